"""Reports with ids from the files people have: MIMIC-CXR, IU X-ray, CheXpert Plus, CXR-Report-Metric, plain tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.reprs import html_block
from metric_oracle.base.validation import Checked, check_declared, public
from metric_oracle.corpora.containers import in_memory, in_order
from metric_oracle.corpora.joining import PLACE, UNKNOWN, IdSource, source_of_ids
from metric_oracle.corpora.kept_columns import check_kept, kept_values, values_of_ids
from metric_oracle.corpora.mimic_files import find_report_files, has_report_files, read_report_files
from metric_oracle.corpora.read import DEFAULT, Read, check_applies
from metric_oracle.corpora.sections import NO_HEADINGS, by_headings, extract_mit, extract_yu2023
from metric_oracle.corpora.splits import ids_of_split
from metric_oracle.corpora.tables import (
    ENDINGS,
    NO_ROW_STEP,
    Table,
    canonical_ids,
    check_unique,
    chexpert_studies,
    columns_error,
    existing_file,
    likeliest,
    named,
    no_text,
    read_table,
    single_texts,
    written,
)
from metric_oracle.corpora.text_files import LINES, file_ending
from metric_oracle.corpora.text_folders import IDS_FROM, WHAT, find_text_files, read_text_files
from metric_oracle.corpora.texts import checked_texts, count_marks, is_missing, remarks, state_of
from metric_oracle.corpora.usual_names import (
    GENERATED,
    REFERENCE,
    SECTIONS,
    TEXTS,
    has_other,
    has_other_ids,
    matching,
    section_of_column,
    written_names,
)

if TYPE_CHECKING:
    import polars as pl

ALL_SPLITS = "all splits"
USUAL = "impression"  # the section that is read by default
_KNOWN_HEADERS = (
    ("IU X-ray", {"uid", "MeSH", "findings", "impression"}),
    ("mimic_cxr_sectioned", {"study", "impression", "findings", "last_paragraph"}),
    ("CheXpert Plus", {"path_to_image", "deid_patient_id", "section_impression"}),
)


@dataclass(frozen=True)
class Reports(Checked):
    """Reports in the order of the file, with the sources that metrics read.

    Made by [`read_reports`][metric_oracle.read_reports] or `Reports.from_texts`, which give one report for each study.
    A function that searches or scores attaches sources to them; see [`reports`][metric_oracle.reports].

    Parameters
    ----------
    ids : sequence of str
        Study ids, each once.
    texts : sequence of str
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
    columns : dict of str to list of str
        Columns that were kept: the value of each report, "" where it has none.
    marks : dict of str to int
        How many kept reports have marks of a file format that count as words, such as quotes around the text or
        ``['...']``, by kind.
    ids_from : (str, str, tuple of str)
        Where the ids come from: the name of their column, how it was found, and all columns of the table.
    chosen : tuple of str
        The parts of `source` that say what was read where another reading was possible, such as one of two sections.
    attached : dict
        The sources of the reports, such as graphs or vectors, by name.
    stored : (str, int64[N]), optional
        Checksum of the index that holds the reports, and the row of each.
    is_loaded : bool
        Whether the sources were joined, so that a function uses the reports as they are; an id may then repeat.
    opened_encoder : OpenedEncoder, optional
        Encoder and settings with which token states of a corpus are made.
    encoder : str or path, optional
        Of test reports: the encoder of the index, by name or folder, if it is not where the index says.
    models : tuple
        Models that still have to run, to make further sources.
    scratch : path, optional
        Folder for intermediate results, while an index is built.
    kept : dict, optional
        Token states of test reports that are kept for later searches and scores; None if each encodes them anew.

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

    ids: Sequence[str]
    texts: Sequence[str]
    source: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    section: str | None = None
    section_by: str = ""
    words: dict[str, int] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    ids_from: IdSource = UNKNOWN
    chosen: tuple[str, ...] = ()
    attached: dict[str, Any] = field(default_factory=dict)
    stored: tuple[str, Any] | None = None
    is_loaded: bool = False
    opened_encoder: Any = None
    encoder: str | Path | None = None
    models: tuple[Any, ...] = ()
    scratch: Path | None = None
    kept: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check that each report has an id of its own and a value in each column."""
        for what, values in {"texts": self.texts, **self.columns}.items():
            if len(values) != len(self.ids):
                raise InputError(f"there are {len(values)} {what} and {len(self.ids)} ids.", "Pass one for each id.")
        if not self.is_loaded:  # the reports of several studies may be searched or scored together, and repeat
            check_unique(self.ids, "ids")
        check_declared("section", self.section, option_types.Section)

    @property
    def known_section(self) -> tuple[str | None, str]:
        """The section, and how it is known."""
        return self.section, self.section_by

    @property
    def told(self) -> str:
        """One line: what they were read from, and how many are missing, empty or without a token."""
        ids = set(self.ids)
        notes = []
        for state, studies in self.states.items():
            n_kept = sum(study in ids for study in studies)
            notes += [f"{n_kept:,} {state}, scored as such"] * (n_kept > 0)
            notes += [f"{len(studies) - n_kept:,} {state}, left out"] * (len(studies) > n_kept)
        return "; ".join(filter(None, [self.source, *notes]))

    @property
    def is_noted(self) -> bool:
        """Whether `told` is more than what was read: reports are left out, texts look damaged, a column was chosen."""
        ids = set(self.ids)
        is_left_out = any(study not in ids for studies in self.states.values() for study in studies)
        return bool(self.words or self.marks or self.chosen) or is_left_out

    def __repr__(self) -> str:
        # Without ids and texts, which are patient data and would end up in logs.
        attached = f" with {', '.join(self.attached)}" if self.attached else ""
        return f"<Reports: {len(self.ids):,} of section {self.section or 'unknown'}{attached}; {self.source}>"

    def _repr_html_(self) -> str:
        return html_block(repr(self)[1:-1], ((name, f"{count:,}") for name, count in self.counts.items()))

    @public
    def take(self, positions: Sequence[int] | np.ndarray) -> "Reports":
        """Return the reports at some positions, with their columns and sources.

        Parameters
        ----------
        positions : sequence of int or int64[n]
            Places of the reports. Those of loaded reports may repeat.

        Returns
        -------
        Reports
            One report for each position, in this order.
        """
        places = np.asarray(positions, np.int64)
        return replace(
            self,
            ids=[self.ids[i] for i in places],
            texts=[self.texts[i] for i in places],
            columns={name: [values[i] for i in places] for name, values in self.columns.items()},
            attached={kind: attachment.take(places) for kind, attachment in self.attached.items()},
            stored=None if self.stored is None else (self.stored[0], self.stored[1][places]),
        )

    @classmethod
    @public
    def from_texts(
        cls,
        texts: Iterable[str | None],
        ids: Iterable[object] | None = None,
        *,
        section: option_types.Section | None = None,
        keep_empty: bool = False,
    ) -> "Reports":
        """Return reports that are in memory, by the rules that hold for files.

        Parameters
        ----------
        texts : iterable of str or None
            The reports, in an order. None is a missing report, and so is a word that stands for it, such as "nan".
        ids : iterable, optional
            Study ids, each once; by default the index of a pandas Series unless it is 0, 1, ..., or else the positions
            "0", "1", ...
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
            If ids and texts differ in number, an id occurs twice, either has no order, or there is no such section.
        """
        table, cells = in_memory(texts)
        if table is not None and (table.names != ["text"] or table.keys is None):
            raise InputError("texts", "must be texts alone", "a table", "Pass its column of texts, and ids.")
        if table is not None:
            cells, ids = table.column(0, is_text=True).to_list(), table.keys if ids is None else ids
        return _from_texts(cells or [], ids, section, keep_empty, "the texts")


@dataclass(frozen=True)
class _Source:
    """The rows of a file or container of reports."""

    what: str  # what the file was recognised as, for the user
    ids: list[str]  # of each row; several rows of a study have the same id
    texts: Callable[[Sequence[int]], list[str | None]]  # reads those of some rows: MIMIC-CXR has 227,835 files
    known_section: tuple[str | None, str]  # the section of the texts, and how it is known
    wanted: str | None = None  # the section that the caller wants
    splits: "pl.Series | None" = None  # split of each row, where the file has them
    first_images: list[int] | None = None  # CheXpert Plus: the row of the first image of each study
    ids_from: IdSource = UNKNOWN
    kept_columns: dict[str, list[str]] = field(default_factory=dict)  # name of a kept column -> value of each row
    chosen: tuple[str, ...] = ()  # parts of `what` that say what was read where another reading was possible

    def cut(self, rows: Sequence[int]) -> tuple[Sequence[str | None], tuple[str | None, str], str]:
        """Return the texts of some rows, (their section, how it is known), and a note; see `by_headings`."""
        texts = self.texts(rows)
        return (
            (texts, self.known_section, "")
            if self.known_section[1] == "headers"
            else by_headings(texts, self.wanted, self.known_section)
        )


@public
def read_reports(path: str | Path, read: Read | None = None, *, keep: str | Sequence[str] = ()) -> Reports:
    """Read reports from a file or folder, whose layout follows from its header and content.

    What the content does not settle, such as which of two columns has the text, is an error.

    Parameters
    ----------
    path : str or path
        A table (CSV, TSV, Parquet, JSON, JSON Lines, Excel), the folder of MIMIC-CXR's reports,
        ``mimic-cxr-reports.zip``, or a folder with a text file for each report, called by its id.
    read : Read, optional
        How they are read: [`Read`][metric_oracle.Read]. The section decides between columns, and what is cut out of
        MIMIC-CXR's files, where the default is the impression.
    keep : str or sequence of str, optional
        Columns of a table whose values are kept with the reports, such as ``"subject_id"``.

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
    <Reports: 24 of section unknown; CSV, id study_id, column report, 24 of 24 rows>
    """
    path, read = Path(path), read or DEFAULT
    check_applies(read, "reports that are no predictions")
    if read.split_file is not None and read.split is None:
        raise InputError(
            "`split_file` needs `split`.",
            f"Name the rows wanted from {read.split_file}: `mo.reports(..., mo.Read(split=NAME))`.",
        )
    if not path.exists():
        raise InputError(f"there is no file or folder {shown(path)}.", "Check the name: it is never read as text.")
    if not path.is_dir():
        existing_file(path)

    if path.is_dir() or path.suffix.lower() == ".zip":
        step, got = "Choose the text with `section`.", f"a value for {path}"
        check_applies(read, "report files", step=step, got=got)
        check_left_out({"keep": keep or None}, "for report files", step, got=got)
        if read.profile == "yu2023" and read.section not in (None, USUAL):
            raise InputError(
                "section",
                'must be "impression" for profile yu2023',
                shown(read.section),
                "Use `mo.reports(..., mo.Read(profile='mit'))`.",
            )
        files = find_text_files(path) if path.is_dir() and not has_report_files(path) else {}
        source = (
            _folder_source(files, read.section) if files else _mimic_source(path, read.profile, read.section or USUAL)
        )
    else:
        if file_ending(path) in LINES and path.is_file():
            raise InputError(
                f"{path} has a report a line, and reports of radiologists need ids.",
                "Make a table with a column of ids and one of texts. Two such files are compared line by line as the "
                "columns reference and prediction of one CSV file, given for both sides; in Python, as two lists.",
            )
        table = read_table(path, encoding=read.encoding, separator=read.separator)
        source = table_source(table, read.section, read.id_column, read.text_column, keep)
    return _reports_of_split(source, path, read.split, read.split_file, keep_empty=read.keep_empty)


def as_reports(reports: Any, read: Read = DEFAULT, keep: str | Sequence[str] = ()) -> Reports:
    """Return Reports from a path, Reports or a container in memory, by the same rules.

    A container is one of `containers.in_memory`; texts without ids get the ids "0", "1", ... A missing text is None,
    NaN, NA or a word that stands for it, such as "nan", as in files. An option of `read` that does not apply raises
    InputError. For texts without columns, its `section` says which section they are. `keep` is that of `read_reports`.
    """
    if isinstance(reports, str | Path):
        return read_reports(reports, read, keep=keep)
    check_applies(read, "reports that are no predictions")
    if isinstance(reports, Reports):
        check_applies(read, "Reports, which are read already")
        check_unique(reports.ids, "ids")  # those of loaded reports may repeat
        return with_kept(reports, keep)
    table, texts = in_memory(reports)
    if texts is not None:
        check_applies(read, "texts without columns")
        check_left_out({"keep": keep or None}, "for texts without columns")
        return _from_texts(texts, None, read.section, read.keep_empty, "the reports in memory", is_cut=True)
    assert table is not None
    check_applies(read, "a table in memory", f"for {table.path}")
    source = table_source(table, read.section, read.id_column, read.text_column, keep)
    return _reports_of_split(source, table.path, read.split, read.split_file, keep_empty=read.keep_empty)


def _from_texts(
    texts: list[Any],
    ids: Iterable[object] | None,
    section: str | None,
    keep_empty: bool,
    where: str,
    is_cut: bool = False,
) -> Reports:
    """Return texts in memory as Reports; without `ids` these are "0", "1", ... `where` describes them in messages.

    `section` is that of the texts, None if it is not known. With `is_cut`, texts that hold both sections under their
    names are cut to it.
    """
    texts = checked_texts(single_texts(texts, where), where)
    keys = [str(i) for i in range(len(texts))]
    if ids is not None:
        keys = canonical_ids(in_order(ids), "ids")
        if len(keys) != len(texts):
            raise InputError(f"there are {len(texts)} texts and {len(keys)} ids.", "Pass one for each id.")
        check_unique(keys, "ids")
    counts = {"rows": len(texts), "duplicate": 0}
    known_section, what, note = (section, "caller" if section else ""), where, ""
    if is_cut:
        cut, known_section, note = by_headings(texts, section, known_section)
        texts, what = list(cut), ", ".join(filter(None, [where, note]))
    by_id = dict(zip(keys, texts, strict=True))
    ids_from = PLACE if ids is None else IdSource("ids", "caller")
    read = sort_out(by_id, what, counts, where, keep_empty=keep_empty, section=known_section)
    return replace(read, ids_from=ids_from, chosen=(note,) if note == NO_HEADINGS and section is None else ())


def _reports_of_split(
    source: _Source, path: str | Path, split: str | None, split_file: str | Path | None, *, keep_empty: bool
) -> Reports:
    """Return one report per study of the rows of a file, of all rows if `split` is None, see `ids_of_split`."""
    counts = {"rows": len(source.ids)}
    rows = list(range(len(source.ids)))
    if split is not None:
        wanted = ids_of_split(split, split_file, source.ids, source.splits, path)
        rows = [row for row in rows if source.ids[row] in wanted]
        counts["other_split"] = len(source.ids) - len(rows)
        counts["absent"] = len(wanted.difference(source.ids))
    ids = [source.ids[row] for row in rows]
    texts, known_section, note = source.cut(rows)
    if source.first_images is None:
        first = one_text_each(ids, texts, path)
    else:
        several = Counter(study for study, _ in set(zip(ids, texts, strict=True)))
        counts["disagreeing"] = sum(count > 1 for count in several.values())
        text_of_row = dict(zip(rows, texts, strict=True))
        first = {source.ids[row]: text_of_row[row] for row in source.first_images if row in text_of_row}
    counts["duplicate"] = len(ids) - len(first)
    columns = {
        name: values_of_ids(name, ids, [values[row] for row in rows], path)
        for name, values in source.kept_columns.items()
    }
    has_all = split is None and source.splits is not None and source.splits.n_unique() > 1
    what = ", ".join(filter(None, [source.what, ALL_SPLITS if has_all else "", note]))
    reports = sort_out(first, what, counts, path, keep_empty=keep_empty, section=known_section)
    chosen = (
        *source.chosen,
        *filter(None, [ALL_SPLITS if has_all else "", note if note == NO_HEADINGS and source.wanted is None else ""]),
    )
    return with_columns(replace(reports, ids_from=source.ids_from, chosen=chosen), columns)


def with_kept(reports: Reports, names: str | Sequence[str]) -> Reports:
    """Return reports that were read before with the named columns alone; with all of theirs if `names` is empty.

    Raise InputError for a column that they do not have.
    """
    wanted = check_kept(names)
    for name in wanted:
        if name not in reports.columns:
            held = ", ".join(reports.columns) or "none"
            raise InputError(
                f"the reports, which were read before, have no column {shown(name)}.",
                f"Read or build them again with `keep={name!r}`; they have {held}.",
            )
    return replace(reports, columns={name: reports.columns[name] for name in wanted}) if wanted else reports


def with_columns(reports: Reports, columns: Mapping[str, Mapping[str, str]]) -> Reports:
    """Return reports with kept columns, from `columns`: name -> id -> value."""
    return replace(
        reports, columns={name: [values[study] for study in reports.ids] for name, values in columns.items()}
    )


def sort_out(
    reports: dict[str, str | None],
    what: str,
    counts: dict[str, int],
    path: str | Path,
    *,
    keep_empty: bool,
    section: tuple[str | None, str] = (None, ""),
) -> Reports:
    """Return Reports from id -> text without missing, empty and tokenless texts, whose ids are listed in `states`.

    With `keep_empty` only the missing ones are left out. `what` says what was read, and `path` is for messages.
    `counts` needs "rows", and gets the number of reports in each state. `section` is the section and how it is known.
    Raise InputError if no report is left.
    """
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
    counts |= {state: len(studies) for state, studies in states.items()} | {"kept": len(kept_ids)}
    if not counts["rows"]:
        raise InputError(f"there is no row in {path}.", NO_ROW_STEP)
    if not kept_ids:
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        step = "section and split" if isinstance(path, Path) else "the texts"
        raise InputError(f"there is no usable report in {path} ({listed}).", f"Check {step}.")
    source = f"{what}, {len(kept_ids):,} of {counts['rows'] - counts.get('other_split', 0):,} rows"
    marks = count_marks(kept_texts)
    source = "; ".join(filter(None, [source, remarks(words, marks)]))
    return Reports(kept_ids, kept_texts, source, counts, states, *section, words=dict(words), marks=dict(marks))


# Tables


def column_names(reports: Any, encoding: str | None = None, separator: str | None = None) -> list[str]:
    """Return the names of the columns of a path or container, see `as_reports`; of Reports, those kept; else []."""
    if isinstance(reports, Reports):
        return [*reports.columns]
    table = table_of(reports, encoding, separator)
    return [] if table is None else table.names


def table_of(reports: Any, encoding: str | None = None, separator: str | None = None) -> Table | None:
    """Return the table of a path or container of reports, see `as_reports`; None where it has no columns."""
    if isinstance(reports, str | Path):
        path = Path(reports)
        is_table = path.is_file() and file_ending(path) in ENDINGS
        return read_table(path, encoding=encoding, separator=separator) if is_table else None
    return in_memory(reports)[0]


def table_source(
    table: Table, section: str | None, id_column: str | None, text_column: str | None, keep: str | Sequence[str] = ()
) -> _Source:
    """Find ids, texts, splits and the columns to keep in a table of reports; raise InputError if one is not clear.

    Columns that the caller does not name (None) are found by their names.
    """
    path = table.path
    if table.kind == "JSON" and "entities" in table.names and text_column is None:
        raise InputError(
            f"{path} holds RadGraph graphs, not reports.",
            "Name a file of reports, and pass the graphs as `mo.reports(..., radgraph=FILE)`.",
        )
    id_cells = table.id_cells(id_column, is_optional=True)
    id_name = "" if id_cells is None else id_cells.name
    names, of_section = _text_names(table, section, text_column, id_name)
    if id_cells is None:
        if not table.may_have_ids:
            raise InputError(
                f"{path} has no column with a usual id name.",
                f"None of its columns can hold ids: add one, such as study_id; columns: {table.header}.",
            )
        columns = named("NAME", text_column if names else "NAME")
        raise columns_error(table, "has no column with a usual id name", columns)
    where = f"{shown(id_name)} in {path}"
    ids = canonical_ids(id_cells, where)
    first_images = None
    if id_name == "path_to_image":
        ids, first_images = chexpert_studies(ids, where)
    known_section = (of_section, "column") if of_section else (section, "caller" if section else "")

    def texts(rows: Sequence[int]) -> list[str | None]:
        """Return the texts of some rows."""
        columns = [table.texts(name, rows) for name in names]
        return columns[0] if len(columns) == 1 else [_joined_sections(cells) for cells in zip(*columns, strict=True)]

    layout = next((f"{name} {table.kind}" for name, header in _KNOWN_HEADERS if header <= set(table.names)), table.kind)
    others = [name for name in table.names if section_of_column(name) and name not in names]
    left = f"{' and '.join(others)} not taken" if section is None and text_column is None and others else ""
    by_id, by_text = f"id {id_name}", f"column {' + '.join(names)}"
    what = ", ".join(filter(None, [layout, by_id, by_text, left, table.note]))
    splits = written(table.column("split")) if "split" in table.names else None
    kept_columns = {name: kept_values(table.column(name)) for name in check_kept(keep)}
    ids_from = source_of_ids(table, id_name, id_column)
    if text_column is None and len(names) == 1:
        ids_from = ids_from._replace(texts=names[0])
    is_chosen = {
        by_id: id_column is None and has_other_ids(table.names, id_name),
        by_text: text_column is None and has_other(table.names, TEXTS - GENERATED, [*names, *others]),
        left: bool(left),
        table.note: bool(table.note),
    }
    chosen = tuple(part for part, is_one in is_chosen.items() if is_one)
    return _Source(what, ids, texts, known_section, section, splits, first_images, ids_from, kept_columns, chosen)


def _joined_sections(columns: Iterable[object]) -> str | None:
    """Join the sections of a report, `columns`, with blanks, without blank or missing ones; None if none is a text."""
    cells = [cell for cell in columns if isinstance(cell, str)]
    texts = [text for text in cells if not is_missing(text)] or cells[:1]  # "nan" is counted before it is dropped
    return " ".join(filter(str.strip, texts)) if len(texts) > 1 else texts[0] if texts else None


def _text_names(
    table: Table, section: str | None, text_column: str | None, id_name: str
) -> tuple[list[str], str | None]:
    """Return the names of the columns with the texts, and their section (None if their names do not tell it).

    `id_name` is the column of the ids, "" if no column has a usual id name. Then, if no column has a usual name of
    texts either, no name is returned; otherwise InputError is raised.
    """
    if text_column is not None:
        return [text_column], section_of_column(text_column)
    parts = (section or USUAL).split("+")
    of_parts = [matching(table.names, SECTIONS[part]) for part in parts]
    if all(len(names) == 1 for names in of_parts):
        return [names[0] for names in of_parts], "+".join(parts)
    of_section = of_parts[0] if len(parts) == 1 else []
    names, is_clear = of_section, len(of_section) == 1
    if not names:
        names, is_clear = written_names(table.names, lambda: table.others_of_words(id_name))
        if len(matching(names, REFERENCE)) == len(names) > 1:  # of several, those without a text cannot be meant
            filled = [name for name in names if written(table.column(table.names.index(name))).count()]
            names, is_clear = filled or names, len(filled) == 1
    if not id_name and not matching(names, TEXTS):  # one of them may hold the ids
        names, is_clear = [], False
    of_column = section_of_column(names[0]) if len(names) == 1 else None
    if not is_clear or of_column not in (None, section or of_column):
        if not names and not id_name:
            return [], None
        candidates = f"; candidates are {shown(*names)}" if names else ""
        problem = f"has no column that is clearly the {section or USUAL}{candidates}"
        columns = named(None if id_name else "NAME", likeliest(names))
        otherwise = " or `mo.reports(..., mo.Read(section=NAME))`" if names else ""
        raise no_text(table, problem, columns, otherwise=otherwise)
    return names, of_column


def one_text_each(
    ids: Sequence[str], texts: Sequence[str | None], path: str | Path, step: str = "Keep one row for each id."
) -> dict[str, str | None]:
    """Return id -> text, in the order of their first rows; `path` names the file in messages.

    Rows with the same id are images of one study and must have one text; the error for several ends with `step`.
    """
    first: dict[str, str | None] = {}
    differing: dict[str, None] = {}
    for study, text in zip(ids, texts, strict=True):
        if first.setdefault(study, text) != text:
            differing[study] = None
    if differing:
        named = shown(*list(differing)[:3])
        raise InputError(f"{path} has {len(differing)} ids with several texts: {named}.", step)
    return first


# Folders and archives


def _folder_source(files: Mapping[str, Path], section: str | None) -> _Source:
    """Return the rows of a folder of plain text files, by their ids."""
    ids, paths = list(files), list(files.values())
    known_section = (section, "caller" if section else "")
    return _Source(
        WHAT, ids, lambda rows: read_text_files([paths[row] for row in rows]), known_section, section, ids_from=IDS_FROM
    )


def _mimic_source(path: Path, profile: str, section: str) -> _Source:
    """Return the rows of MIMIC-CXR's report files, cut to a section by the rule `profile`."""
    files = find_report_files(path)
    names = list(files)

    def texts(rows: Sequence[int]) -> list[str | None]:
        """Read the texts of some rows."""
        reports = read_report_files(path, [files[names[row]] for row in rows])
        if profile == "yu2023":
            return [extract_yu2023(report) or None for report in reports]
        return [_joined_sections(map(extract_mit(report).get, section.split("+"))) for report in reports]

    what = f"MIMIC-CXR report files, profile {profile}, section {section}"
    return _Source(what, canonical_ids(names, str(path)), texts, (section, "headers"))
