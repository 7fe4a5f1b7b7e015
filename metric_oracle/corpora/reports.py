"""Reports with ids from the files people have: MIMIC-CXR, IU X-ray, CheXpert Plus, CXR-Report-Metric, plain tables."""

import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from metric_oracle.corpora.sections import extract_mit, extract_yu2023
from metric_oracle.corpora.tables import (
    STUDY_ID_NAMES,
    Table,
    canonical_ids,
    chexpert_studies,
    existing_file,
    is_missing,
    read_table,
    shown_names,
)
from metric_oracle.errors import InputError

_SECTION_COLUMNS = {
    "impression": ("impression", "section_impression", "report impression"),
    "findings": ("findings", "section_findings"),
}
_OTHER_COLUMNS = (
    "report",
    "report_text",
    "text",
    "prediction",
    "model_prediction",
    "report generated",
    "predicted",
    "filtered",
)
_PROFILES = ("yu2023", "mit")
_KNOWN_HEADERS = (
    ("IU X-ray", {"uid", "MeSH", "findings", "impression"}),
    ("mimic_cxr_sectioned", {"study", "impression", "findings", "last_paragraph"}),
    ("CheXpert Plus", {"path_to_image", "deid_patient_id", "section_impression"}),
    ("CXR-Report-Metric", {"study_id", "report"}),
)
_MIMIC_FILE = re.compile(r"s5\d{7}\.txt")
_ALPHANUMERIC = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class Reports:
    """Reports of one corpus in file order, one a study.

    Attributes
    ----------
    ids : study ids, unique
    texts : the text of each, untouched
    source : one line for people that says what was recognised
    counts : rows = other_split + duplicate + missing + empty + tokenless + kept (with keep_empty, kept includes the two
        states before it); also absent (ids of the split without a report) and disagreeing (studies whose images differ)
    states : ids by state: missing, empty (blank after strip), tokenless (no alphanumeric character)
    """

    ids: list[str]
    texts: list[str]
    source: str
    counts: dict[str, int]
    states: dict[str, list[str]]


@dataclass(frozen=True)
class _Source:
    """Rows before any choice; texts are fetched for chosen rows only, because MIMIC-CXR is 227,835 files."""

    what: str
    ids: list[str]
    texts: Callable[[Sequence[int]], list[str | None]]
    splits: list[Any] | None = None
    first_images: list[int] | None = None


def read_reports(
    path: str | Path,
    *,
    section: str = "impression",
    id_column: str | None = None,
    text_column: str | None = None,
    split: str | None = None,
    split_file: str | Path | None = None,
    profile: str = "yu2023",
    keep_empty: bool = False,
) -> Reports:
    """Read reports; what a file is follows from its header and content, and an open question is an error.

    Parameters
    ----------
    path : a table (CSV, TSV, Parquet, JSON, JSON Lines), the MIMIC-CXR report folder or `mimic-cxr-reports.zip`
    section : "impression" or "findings"; decides between columns, and what is cut from MIMIC-CXR report files
    id_column, text_column : columns of a table, where their names do not say it
    split : names joined with "+", such as "train+validate"
    split_file : the table that says the split of each id (MIMIC-CXR's, R2Gen's); else the reports' own column `split`
    profile : the section rule for MIMIC-CXR report files, see :mod:`metric_oracle.corpora.sections`
    keep_empty : keep reports that are empty or hold no alphanumeric character; missing ones are dropped always
    """
    path = Path(path)
    if section not in _SECTION_COLUMNS:
        msg = f"read_reports: section must be one of {', '.join(_SECTION_COLUMNS)}; got {section!r}. Choose one."
        raise InputError(msg)
    if profile not in _PROFILES:
        msg = f"read_reports: profile must be one of {', '.join(_PROFILES)}; got {profile!r}. Choose one."
        raise InputError(msg)
    if split_file is not None and split is None:
        msg = f"read_reports: split must be given with split_file; got None. Name the rows wanted from {split_file}."
        raise InputError(msg)
    if not path.exists():
        msg = (
            f"read_reports: path must be an existing file or folder; got {path}. "
            "Check the name: it is never read as text."
        )
        raise InputError(msg)
    if not path.is_dir():
        existing_file(path, "read_reports")

    if path.is_dir() or path.suffix.lower() == ".zip":
        if id_column is not None or text_column is not None:
            msg = f"read_reports: id_column and text_column must be left out for report files; got {path}. Use section."
            raise InputError(msg)
        if profile == "yu2023" and section != "impression":
            msg = f'read_reports: section must be "impression" for profile yu2023; got {section!r}. Use profile "mit".'
            raise InputError(msg)
        source = _mimic_source(path, profile, section)
    else:
        source = _table_source(path, section, id_column, text_column)

    counts = {"rows": len(source.ids)}
    rows = list(range(len(source.ids)))
    if split is not None:
        wanted = _split_ids(split, split_file, source, path)
        rows = [row for row in rows if source.ids[row] in wanted]
        counts["other_split"] = len(source.ids) - len(rows)
        counts["absent"] = len(wanted.difference(source.ids))
    ids = [source.ids[row] for row in rows]
    texts = source.texts(rows)
    if source.first_images is None:
        first = _one_text_each(ids, texts, path)
    else:
        several = Counter(study for study, _ in set(zip(ids, texts, strict=True)))
        counts["disagreeing"] = sum(count > 1 for count in several.values())
        text_of_row = dict(zip(rows, texts, strict=True))
        first = {source.ids[row]: text_of_row[row] for row in source.first_images if row in text_of_row}
    counts["duplicate"] = len(ids) - len(first)
    return sort_out(first, source.what, counts, path, "read_reports", keep_empty=keep_empty)


def sort_out(
    reports: dict[str, str | None], what: str, counts: dict[str, int], path: Path, function: str, *, keep_empty: bool
) -> Reports:
    """Drop and list what is missing, empty or without a token."""
    states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
    kept_ids, kept_texts = [], []
    for study, text in reports.items():
        if text is None:
            states["missing"].append(study)
            continue
        if not _ALPHANUMERIC.search(text):
            states["tokenless" if text.strip() else "empty"].append(study)
            if not keep_empty:
                continue
        kept_ids.append(study)
        kept_texts.append(text)
    counts |= {state: len(found) for state, found in states.items()} | {"kept": len(kept_ids)}
    if not kept_ids:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        msg = (
            f"{function}: path must hold at least one report to keep; got none in {path} ({listed}). "
            "Check section and split."
        )
        raise InputError(msg)
    source = f"{what}, {len(kept_ids):,} of {counts['rows'] - counts.get('other_split', 0):,} rows"
    return Reports(kept_ids, kept_texts, source, counts, states)


# Tables


def _table_source(path: Path, section: str, id_column: str | None, text_column: str | None) -> _Source:
    table = read_table(path, "read_reports")
    if table.kind == "JSON" and "entities" in table.names and text_column is None:
        msg = f"read_reports: path must be a file of reports; got RadGraph graphs in {path}. Pass it as --radgraph."
        raise InputError(msg)
    found = table.id_cells("read_reports", id_column)
    if found is None:
        msg = (
            f"read_reports: id_column must be given where no column has a usual id name; got {path}. "
            f"Pass --id-column NAME; columns: {shown_names(table.names)}."
        )
        raise InputError(msg)
    cells, id_name = found
    where = f"{id_name!r} in {path}"
    ids = canonical_ids(cells, "read_reports", where)
    first_images = None
    if id_name == "path_to_image":
        ids, first_images = chexpert_studies(ids, "read_reports", where)
    text_cells, text_name = _text_cells(table, section, text_column)

    def texts(rows: Sequence[int]) -> list[str | None]:
        chosen = [(row, text_cells[row]) for row in rows]
        for row, cell in chosen:
            if not isinstance(cell, str) and not is_missing(cell):
                got = type(cell).__name__
                msg = (
                    f"read_reports: column {text_name!r} of {path} must hold text; got {got} in row {row + 1}. "
                    "Pass --text-column NAME."
                )
                raise InputError(msg)
        return [cell if isinstance(cell, str) else None for _, cell in chosen]

    kind = next((f"{name} {table.kind}" for name, header in _KNOWN_HEADERS if header <= set(table.names)), table.kind)
    what = ", ".join(filter(None, [kind, f"id {id_name}", f"column {text_name}", table.note]))
    splits = table.column("split", "read_reports", "split") if "split" in table.names else None
    return _Source(what, ids, texts, splits, first_images)


def _text_cells(table: Table, section: str, text_column: str | None) -> tuple[list[Any], str]:
    if text_column is None:
        of_section = [name for name in table.names if name.lower() in _SECTION_COLUMNS[section]]
        others = [
            name for name in table.names if name.lower() in {*_OTHER_COLUMNS, *sum(_SECTION_COLUMNS.values(), ())}
        ]
        found = of_section or others
        if len(found) != 1 or (not of_section and found[0].lower() not in _OTHER_COLUMNS):
            got = shown_names(found) or "none of a usual name"
            msg = (
                f"read_reports: text_column must be given where the header does not tell the {section} column; "
                f"got {got} in {table.path}. Pass --text-column NAME or --section; columns: {shown_names(table.names)}."
            )
            raise InputError(msg)
        text_column = found[0]
    return table.column(text_column, "read_reports", "text_column", is_text=True), text_column


def _one_text_each(ids: list[str], texts: list[str | None], path: Path) -> dict[str, str | None]:
    """Keep the first row of each id; rows of one id are images of one study and must carry one text."""
    first: dict[str, str | None] = {}
    differing: dict[str, None] = {}
    for study, text in zip(ids, texts, strict=True):
        if first.setdefault(study, text) != text:
            differing[study] = None
    if differing:
        named = shown_names(list(differing)[:3])
        msg = (
            "read_reports: rows with one id must carry one text; "
            f"got {len(differing)} ids with several texts in {path}: {named}. Keep one row each."
        )
        raise InputError(msg)
    return first


# Splits


def _split_ids(split: str, split_file: str | Path | None, source: _Source, path: Path) -> set[str]:
    """Return the ids in the named splits."""
    ids, names = source.ids, source.splits
    if split_file is not None:
        path = existing_file(Path(split_file), "read_reports", "split_file")
        table = read_table(path, "read_reports")
        names = table.column("split", "read_reports", "split_file")
        ids = _split_file_ids(table, set(source.ids))
    elif names is None:
        msg = (
            f"read_reports: split_file must be given where the reports have no column split; got {path}. "
            "Pass the split table."
        )
        raise InputError(msg)
    split_of: dict[str, str] = {}
    for study, name in zip(ids, names, strict=True):
        if split_of.setdefault(study, str(name)) != str(name):
            msg = (
                f"read_reports: split must be one for each study; got two for {shown_names([study])} in {path}. "
                "Repair the file."
            )
            raise InputError(msg)
    known = sorted(set(split_of.values()))
    wanted = split.split("+")
    for name in wanted:
        if name not in known:
            msg = (
                f"read_reports: split must be one of {shown_names(known)}; got {name!r} for {path}. "
                "Join several with +."
            )
            raise InputError(msg)
    return {study for study, name in split_of.items() if name in wanted}


def _split_file_ids(table: Table, report_ids: set[str]) -> list[str]:
    """Return the id column that speaks of these reports: R2Gen's file has the Kaggle uid and its own id."""
    best: list[str] = []
    n_best = 0
    for name in table.names:
        if name.lower() in STUDY_ID_NAMES:
            cells = table.column(name, "read_reports", "split_file")
            ids = canonical_ids(cells, "read_reports", f"{name!r} in {table.path}")
            n_found = len(report_ids.intersection(ids))
            if n_found > n_best:
                best, n_best = ids, n_found
    if not best:
        msg = (
            f"read_reports: split_file must share ids with the reports; got none in {table.path}. "
            "Pass the file of this corpus."
        )
        raise InputError(msg)
    return best


# MIMIC-CXR report files


def _mimic_source(path: Path, profile: str, section: str) -> _Source:
    files = _mimic_files(path)
    names = list(files)

    def texts(rows: Sequence[int]) -> list[str | None]:
        reports = _read_mimic(path, [files[names[row]] for row in rows])
        if profile == "yu2023":
            return [extract_yu2023(report) or None for report in reports]
        return [extract_mit(report).get(section) for report in reports]

    what = f"MIMIC-CXR report files, profile {profile}, section {section}"
    return _Source(what, canonical_ids(names, "read_reports", str(path)), texts)


def _mimic_files(path: Path) -> dict[str, str]:
    """Return relative name -> place of every study's report file, in name order."""
    if path.is_dir():
        found = {
            Path(folder, name).relative_to(path).as_posix(): str(Path(folder, name))
            for folder, _, names in os.walk(path)
            for name in names
            if _MIMIC_FILE.fullmatch(name)
        }
    else:
        with _open_zip(path) as archive:
            members = archive.namelist()
        for member in members:
            parts = PurePosixPath(member.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", member):
                msg = (
                    f"read_reports: members of {path} must stay inside it; got a path that climbs out. "
                    "Fetch the archive again."
                )
                raise InputError(msg)
        names = [member for member in members if _MIMIC_FILE.fullmatch(PurePosixPath(member).name)]
        found = {member: member for member in names}
        if len(found) < len(names):
            doubled = next(member for member, count in Counter(names).items() if count > 1)
            msg = (
                f"read_reports: members of {path} must have different names; got two called {doubled}. "
                "Fetch the archive again."
            )
            raise InputError(msg)
    if not found:
        msg = (
            f"read_reports: path must hold report files like p10/p10000032/s50414267.txt; got none in {path}. "
            "Check the name."
        )
        raise InputError(msg)
    return dict(sorted(found.items()))


def _read_mimic(path: Path, places: list[str]) -> Iterator[str]:
    if path.is_dir():
        for place in places:
            if not os.path.isfile(place):
                msg = f"read_reports: report files must be regular files; got {place}, which is none. Remove it."
                raise InputError(msg)
            yield Path(place).read_bytes().decode("utf-8", "replace")
        return
    with _open_zip(path) as archive:
        for place in places:
            try:
                raw = archive.read(place)
            except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, NotImplementedError, OSError):
                msg = (
                    f"read_reports: path must be a whole zip file; got a damaged member {place} in {path}. "
                    "Fetch it again."
                )
                raise InputError(msg) from None
            yield raw.decode("utf-8", "replace")


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except PermissionError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        msg = f"read_reports: path must be a whole zip file; got a damaged, cut or foreign one, {path}. Fetch it again."
        raise InputError(msg) from None
