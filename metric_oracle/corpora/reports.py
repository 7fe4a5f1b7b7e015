"""Reports with ids from the files people have: MIMIC-CXR, IU X-ray, CheXpert Plus, CXR-Report-Metric, plain tables."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from metric_oracle.choices import PROFILES, SECTIONS
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.mimic_files import find_report_files, read_report_files
from metric_oracle.corpora.missing import checked_texts, is_missing, state_of
from metric_oracle.corpora.sections import extract_mit, extract_yu2023
from metric_oracle.corpora.shown import html_table
from metric_oracle.corpora.splits import ids_of_split
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    chexpert_studies,
    existing_file,
    read_table,
    shown_names,
)
from metric_oracle.errors import ArgumentError, InputError

_SECTION_COLUMNS = {
    "impression": ("impression", "section_impression", "report impression"),
    "findings": ("findings", "section_findings"),
}
JOINED = SECTIONS[2]
USUAL = "impression"  # the section that is read where nobody says another
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
_KNOWN_HEADERS = (
    ("IU X-ray", {"uid", "MeSH", "findings", "impression"}),
    ("mimic_cxr_sectioned", {"study", "impression", "findings", "last_paragraph"}),
    ("CheXpert Plus", {"path_to_image", "deid_patient_id", "section_impression"}),
    ("CXR-Report-Metric", {"study_id", "report"}),
)


@dataclass(frozen=True)
class Reports:
    """Reports of one corpus in the order of the file, one for each study.

    Usually made by [`read_reports`][metric_oracle.read_reports] or `Reports.from_texts`.

    Parameters
    ----------
    ids : list of str
        Study ids, each once.
    texts : list of str
        The text of each report, unchanged.
    source : str
        One line that says what the file was recognised as.
    counts : dict of str to int
        ``rows`` is the sum of ``other_split``, ``duplicate``, ``missing``, ``empty``, ``tokenless`` and ``kept``; with
        `keep_empty`, ``kept`` includes the two states before it. Also ``absent`` (ids of the split without a report)
        and ``disagreeing`` (studies whose images have different reports).
    states : dict of str to list of str
        Ids by state: ``missing``; ``empty`` (nothing but white space); ``tokenless`` (no letter or digit).
    section : {"impression", "findings", "findings+impression"}, optional
        The section, where it is known.
    section_by : {"column", "headers", "caller", "paper", ""}
        What names the section: the name of the column, headers within the texts, the caller, or how Yu et al. (2023)
        tabulate the models that write such files.
    words : dict of str to int
        How many reports count as missing because they consist of a word such as "nan" or "NULL".

    See Also
    --------
    read_predictions : Read the reports that a model wrote.

    Examples
    --------
    >>> reports = mo.Reports.from_texts(["No edema.", None, ""], ["s1", "s2", "s3"])
    >>> reports.ids
    ['s1']
    >>> reports.states["missing"], reports.states["empty"]
    (['s2'], ['s3'])
    """

    ids: list[str]
    texts: list[str]
    source: str
    counts: dict[str, int]
    states: dict[str, list[str]]
    section: str | None = None
    section_by: str = ""
    words: dict[str, int] = field(default_factory=dict)

    @property
    def said(self) -> tuple[str | None, str]:
        """The section, and what says so."""
        return self.section, self.section_by

    @property
    def left_out(self) -> str:
        """What was left out and why, in one line; nothing of a corpus of which all is there."""
        kept = set(self.ids)
        counts = {state: sum(study not in kept for study in studies) for state, studies in self.states.items()}
        lost = [f"{n:,} {state}" for state, n in counts.items() if n]
        return f"left out: {', '.join(lost)} ({self.source})" if lost else ""

    def __repr__(self) -> str:
        # Without ids and texts: these are patients' data, and end up in logs.
        return f"<Reports: {len(self.ids):,} of section {self.section or 'unknown'}; {self.source}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], ("reports", "number"), self.counts.items())

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str | None],
        ids: Iterable[object] | None = None,
        *,
        section: str | None = None,
        keep_empty: bool = False,
    ) -> "Reports":
        """Return reports that are in memory, by the rules that hold for files.

        Parameters
        ----------
        texts : iterable of str or None
            The reports. None is a missing report, and so is a word that stands for it, such as "nan".
        ids : iterable, optional
            Study ids, each once; by default the positions "0", "1", ...
        section : {"impression", "findings", "findings+impression"}, optional
            The section of the texts, where it is known.
        keep_empty : bool
            Keep reports that are empty or have no letter or digit; missing ones are always dropped.

        Returns
        -------
        Reports
            The reports that are kept.

        Raises
        ------
        InputError
            If ids and texts differ in number, an id occurs twice, or there is no such section.
        """
        return _from_texts(list(texts), ids, section, keep_empty, "Reports.from_texts", "the texts")


@dataclass(frozen=True)
class _Source:
    """Rows before any choice; texts are fetched for chosen rows only, because MIMIC-CXR is 227,835 files."""

    what: str
    ids: list[str]
    texts: Callable[[Sequence[int]], list[str | None]]
    said: tuple[str | None, str]
    splits: list[Any] | None = None
    first_images: list[int] | None = None


def read_reports(
    path: str | Path,
    *,
    section: str | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    split: str | None = None,
    split_file: str | Path | None = None,
    profile: str = "yu2023",
    keep_empty: bool = False,
    encoding: str | None = None,
    separator: str | None = None,
) -> Reports:
    """Read reports from a file or folder, whose layout follows from its header and content.

    What the content does not settle, such as which of two columns has the text, is an error.

    Parameters
    ----------
    path : str or path
        A table (CSV, TSV, Parquet, JSON, JSON Lines, Excel), the folder of MIMIC-CXR's reports, or
        ``mimic-cxr-reports.zip``.
    section : {"impression", "findings", "findings+impression"}, optional
        Decides between columns, and what is cut out of MIMIC-CXR's files, where the default is the impression. The last
        choice joins both by a blank, findings first (tables S6 and S7 of Yu et al., 2023).
    id_column, text_column : str, optional
        Columns of a table, where their names do not tell.
    split : str, optional
        Split to read; several are joined with "+", such as "train+validate".
    split_file : str or path, optional
        Table with the split of each id (MIMIC-CXR's, R2Gen's); by default the column ``split`` of the reports.
    profile : {"yu2023", "mit"}
        Rule that cuts sections out of MIMIC-CXR's report files: that of Yu et al. (2023) or that of the MIT scripts.
    keep_empty : bool
        Keep reports that are empty or have no letter or digit; missing ones are always dropped.
    encoding : str, optional
        Encoding of a text file, such as "cp1252". By default UTF-8 or what the byte-order mark says, or cp1252 if all
        lines beyond ASCII can be read as that.
    separator : str, optional
        Separator of a CSV or TSV file; by default the comma, semicolon, tab or bar that cuts the header into most
        columns.

    Returns
    -------
    Reports
        The reports that are kept, with the ids of those that are missing or empty.

    Raises
    ------
    InputError
        If the file does not exist or cannot be read, a column is missing or ambiguous, an id occurs twice with
        different texts, or an option does not fit the kind of file.

    Examples
    --------
    >>> mo.read_reports("test.csv")
    <Reports: 24 of section unknown; CXR-Report-Metric CSV, id study_id, column report, 24 of 24 rows>
    """
    path = Path(path)
    if section is not None:
        check_section(section, "read_reports")
    check_profile(profile, "read_reports")
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
        of_table = {"id_column": id_column, "text_column": text_column, "encoding": encoding, "separator": separator}
        given = [name for name, value in of_table.items() if value is not None]
        if given:
            msg = f"read_reports: {', '.join(given)} must be left out for report files; got {path}. Use section."
            raise InputError(msg)
        if profile == "yu2023" and section not in (None, USUAL):
            msg = f'read_reports: section must be "impression" for profile yu2023; got {section!r}. Use profile "mit".'
            raise InputError(msg)
        source = _mimic_source(path, profile, section or USUAL)
    else:
        table = read_table(path, "read_reports", encoding=encoding, separator=separator)
        source = table_source(table, section, id_column, text_column)
    return _chosen(source, path, split, split_file, keep_empty=keep_empty)


# Options of `read_reports` and what they are where nobody says anything.
_DEFAULTS: dict[str, Any] = {
    "profile": "yu2023",
    "keep_empty": False,
    **dict.fromkeys(("section", "id_column", "text_column", "split", "split_file", "encoding", "separator")),
}


def as_reports(reports: Any, *, function: str = "as_reports", **reading: Any) -> Reports:
    """Return reports whatever they are in, by one set of rules.

    Parameters
    ----------
    reports : path, Reports, or a container
        A path is a file or folder for `read_reports`. A list, a column of an Arrow table, Polars or pandas
        frame, or a NumPy array holds the texts, whose ids are "0", "1", ...; a dict is id -> text. Arrow tables, Polars
        and pandas frames, Hugging Face datasets, and lists or dicts of records have columns as a file has. A missing
        text is None, NaN or NA, or a word that stands for it, such as "nan", as in files.
    function : str
        The public function, for error lines.
    **reading
        Options of `read_reports`. Of texts without columns, `section` says what they are.

    Raises
    ------
    ArgumentError
        For an option that is none, in the name of `function`.
    InputError
        For reports that cannot be read, or an option that makes no sense for them.
    """
    check_options(reading, _DEFAULTS, function)
    if isinstance(reports, str | Path):
        return read_reports(reports, **reading)
    given = {name: value for name, value in reading.items() if value is not None and value != _DEFAULTS[name]}
    if isinstance(reports, Reports):
        check_left_out(given, (), function, "Reports, which are read already")
        return reports
    table, texts = in_memory(reports, function)
    if texts is not None:
        check_left_out(given, ("section", "keep_empty"), function, "texts without columns")
        return _from_texts(
            texts, None, reading.get("section"), bool(reading.get("keep_empty")), function, "the reports in memory"
        )
    assert table is not None
    of_files = ("profile", "encoding", "separator")
    check_left_out(given, [name for name in _DEFAULTS if name not in of_files], function, str(table.path))
    section = reading.get("section")
    if section is not None:
        check_section(section, function)
    source = table_source(table, section, reading.get("id_column"), reading.get("text_column"))
    return _chosen(
        source, table.path, reading.get("split"), reading.get("split_file"), keep_empty=bool(reading.get("keep_empty"))
    )


def check_options(options: Iterable[str], known: Iterable[str], function: str) -> None:
    """Raise where an option does not exist, in the name of the public function."""
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            msg = f"{function}: there is no argument {name!r}.{hint}"
            raise ArgumentError(msg)


def check_left_out(given: Iterable[str], allowed: Container[str], function: str, what: str) -> None:
    """Raise where options have a value that make no sense for what is read."""
    foreign = [name for name in given if name not in allowed]
    if foreign:
        msg = f"{function}: {', '.join(foreign)} must be left out for {what}; got a value. Drop it."
        raise InputError(msg)


def check_section(section: object, function: str) -> None:
    """Raise unless a section is one that reports have."""
    if section not in SECTIONS:
        msg = f"{function}: section must be one of {', '.join(SECTIONS)}; got {section!r}. Choose one."
        raise InputError(msg)


def check_profile(profile: object, function: str) -> None:
    """Raise unless a profile is one that MIMIC-CXR report files are read by."""
    if profile not in PROFILES:
        msg = f"{function}: profile must be one of {', '.join(PROFILES)}; got {profile!r}. Choose one."
        raise InputError(msg)


def _from_texts(
    texts: list[Any], ids: Iterable[object] | None, section: str | None, keep_empty: bool, function: str, where: str
) -> Reports:
    if section is not None:
        check_section(section, function)
    texts = checked_texts(texts, function, where)
    keys = [str(place) for place in range(len(texts))]
    if ids is not None:
        keys = canonical_ids(ids, function, "ids")
        if len(keys) != len(texts):
            msg = f"{function}: ids must be as many as texts, {len(texts)}; got {len(keys)}. Pass one for each."
            raise InputError(msg)
        check_unique(keys, function, "ids")
    counts = {"rows": len(texts), "duplicate": 0}
    said = (section, "caller" if section else "")
    reports = dict(zip(keys, texts, strict=True))
    return sort_out(reports, where, counts, where, function, keep_empty=keep_empty, section=said)


def _chosen(
    source: _Source, path: str | Path, split: str | None, split_file: str | Path | None, *, keep_empty: bool
) -> Reports:
    """Return one report a study of the rows wanted."""
    counts = {"rows": len(source.ids)}
    rows = list(range(len(source.ids)))
    if split is not None:
        wanted = ids_of_split(split, split_file, source.ids, source.splits, path)
        rows = [row for row in rows if source.ids[row] in wanted]
        counts["other_split"] = len(source.ids) - len(rows)
        counts["absent"] = len(wanted.difference(source.ids))
    ids = [source.ids[row] for row in rows]
    texts = source.texts(rows)
    if source.first_images is None:
        first = one_text_each(ids, texts, path)
    else:
        several = Counter(study for study, _ in set(zip(ids, texts, strict=True)))
        counts["disagreeing"] = sum(count > 1 for count in several.values())
        text_of_row = dict(zip(rows, texts, strict=True))
        first = {source.ids[row]: text_of_row[row] for row in source.first_images if row in text_of_row}
    counts["duplicate"] = len(ids) - len(first)
    return sort_out(first, source.what, counts, path, "read_reports", keep_empty=keep_empty, section=source.said)


def sort_out(
    reports: dict[str, str | None],
    what: str,
    counts: dict[str, int],
    path: str | Path,
    function: str,
    *,
    keep_empty: bool,
    section: tuple[str | None, str] = (None, ""),
) -> Reports:
    """Drop and list what is missing, empty or without a token; `section` is which, and what says so."""
    states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
    kept_ids, kept_texts, words = [], [], Counter[str]()
    for study, text in reports.items():
        state = state_of(text)
        if state:
            states[state].append(study)
        if text is not None and state == "missing":
            words[text.strip()] += 1
        elif text is not None and (keep_empty or not state):
            kept_ids.append(study)
            kept_texts.append(text)
    counts |= {state: len(found) for state, found in states.items()} | {"kept": len(kept_ids)}
    if not kept_ids:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        name, step = ("path", "section and split") if isinstance(path, Path) else ("reports", "what they hold")
        msg = f"{function}: {name} must hold at least one report to keep; got none in {path} ({listed}). Check {step}."
        raise InputError(msg)
    source = f"{what}, {len(kept_ids):,} of {counts['rows'] - counts.get('other_split', 0):,} rows"
    if words:
        source += f"; {words_line(words)}"
    return Reports(kept_ids, kept_texts, source, counts, states, *section, words=dict(words))


def words_line(words: Counter[str]) -> str:
    """Return how often each word stands for a missing report."""
    listed = ", ".join(f'{count:,} "{word}"' for word, count in words.most_common())
    return f"words that stand for a missing report: {listed}"


# Tables


def table_source(table: Table, section: str | None, id_column: str | None, text_column: str | None) -> _Source:
    """Recognise what a table of reports is, before any row is chosen."""
    path = table.path
    if table.kind == "JSON" and "entities" in table.names and text_column is None:
        msg = f"read_reports: path must be a file of reports; got RadGraph graphs in {path}. Pass it as --radgraph."
        raise InputError(msg)
    found = table.id_cells("read_reports", id_column)
    if found is None:
        msg = (
            f"read_reports: id_column must be given where no column has a usual id name; got {path}. "
            f"Pass --id-column NAME; columns: {table.header}."
        )
        raise InputError(msg)
    cells, id_name = found
    where = f"{id_name!r} in {path}"
    ids = canonical_ids(cells, "read_reports", where)
    first_images = None
    if id_name == "path_to_image":
        ids, first_images = chexpert_studies(ids, "read_reports", where)
    names, of_section = _text_names(table, section or USUAL, text_column)
    said = (of_section, "column") if of_section else (section, "caller" if section else "")
    columns = {name: table.column(name, "read_reports", "text_column", is_text=True) for name in names}

    def texts(rows: Sequence[int]) -> list[str | None]:
        for name, cells in columns.items():
            for row in rows:
                if not isinstance(cells[row], str) and not is_missing(cells[row]):
                    got = type(cells[row]).__name__
                    msg = (
                        f"read_reports: column {name!r} of {path} must hold text; got {got} in row {row + 1}. "
                        "Pass --text-column NAME."
                    )
                    raise InputError(msg)
        return [_joined_sections(cells[row] for cells in columns.values()) for row in rows]

    kind = next((f"{name} {table.kind}" for name, header in _KNOWN_HEADERS if header <= set(table.names)), table.kind)
    what = ", ".join(filter(None, [kind, f"id {id_name}", f"column {' + '.join(names)}", table.note]))
    splits = table.column("split", "read_reports", "split") if "split" in table.names else None
    return _Source(what, ids, texts, said, splits, first_images)


def section_of_column(name: str) -> str | None:
    """Return the section that a column holds by its name, None where the name does not say it."""
    return next((section for section, names in _SECTION_COLUMNS.items() if name.lower() in names), None)


def _joined_sections(cells: Iterable[object]) -> str | None:
    """Join the sections of a report; it is missing where all are, and a blank one leaves no blank."""
    found = [cell for cell in cells if isinstance(cell, str)]
    texts = [text for text in found if not is_missing(text)] or found[:1]  # a word is counted before it is dropped
    return " ".join(filter(str.strip, texts)) if len(texts) > 1 else texts[0] if texts else None


def _text_names(table: Table, section: str, text_column: str | None) -> tuple[list[str], str | None]:
    """Return the columns of the texts and the section that they hold, None where their name does not say it."""
    if text_column is None:
        parts = section.split("+")
        of_parts = [[name for name in table.names if name.lower() in _SECTION_COLUMNS[part]] for part in parts]
        if len(parts) > 1 and all(len(found) == 1 for found in of_parts):
            return [found[0] for found in of_parts], section
        of_section = [] if len(parts) > 1 else of_parts[0]
        others = [
            name for name in table.names if name.lower() in {*_OTHER_COLUMNS, *sum(_SECTION_COLUMNS.values(), ())}
        ]
        found = of_section or others
        if len(found) != 1 or (not of_section and found[0].lower() not in _OTHER_COLUMNS):
            got = shown_names(found) or "none of a usual name"
            msg = (
                f"read_reports: text_column must be given where the header does not tell the {section} column"
                f"{'s' if '+' in section else ''}; "
                f"got {got} in {table.path}. Pass --text-column NAME or --section; columns: {table.header}."
            )
            raise InputError(msg)
        text_column = found[0]
    return [text_column], section_of_column(text_column)


def one_text_each(ids: list[str], texts: list[str | None], path: str | Path) -> dict[str, str | None]:
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


# MIMIC-CXR report files


def _mimic_source(path: Path, profile: str, section: str) -> _Source:
    files = find_report_files(path)
    names = list(files)

    def texts(rows: Sequence[int]) -> list[str | None]:
        reports = read_report_files(path, [files[names[row]] for row in rows])
        if profile == "yu2023":
            return [extract_yu2023(report) or None for report in reports]
        return [_joined_sections(map(extract_mit(report).get, section.split("+"))) for report in reports]

    what = f"MIMIC-CXR report files, profile {profile}, section {section}"
    return _Source(what, canonical_ids(names, "read_reports", str(path)), texts, (section, "headers"))
