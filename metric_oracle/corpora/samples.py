"""Samples: several reports that a model wrote for each study, from files, frames and dicts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.reprs import OneLine
from metric_oracle.base.validation import Checked, public
from metric_oracle.corpora.chats import is_chat, without_chat
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.joining import PLACE, UNKNOWN, IdSource, source_of_ids
from metric_oracle.corpora.prediction_files import generated_name
from metric_oracle.corpora.read import DEFAULT, Read, check_applies
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.sections import by_headings
from metric_oracle.corpora.tables import (
    ENDINGS,
    Table,
    are_columns,
    canonical_ids,
    check_unique,
    columns_error,
    existing_file,
    file_ending,
    named,
    numbers_of,
    read_table,
    series_of,
)
from metric_oracle.corpora.texts import count_marks, is_missing, remarks
from metric_oracle.corpora.usual_names import section_of_column

LISTS, LOGPROBS = "candidates", "logprobs"  # one row for each study
_WRITTEN_LIST = re.compile(r"\[\s*(?:['\"].*['\"])?[\s,]*\]", re.DOTALL)
SAMPLE, LOGPROB = "sample", "logprob"  # one row for each sample


@dataclass(frozen=True, repr=False)
class Samples(OneLine, Checked):
    """Reports that a model sampled, a group for each study. Made by [`read_samples`][metric_oracle.read_samples].

    Parameters
    ----------
    ids : list of str
        Study ids, each once.
    texts : list of list of str
        The samples of each study, at least one. Samples may be equal, and may be empty.
    names : list of list of str
        Name of each sample within its study: "0", "1", ... or what the column ``sample`` has, in its order.
    source : str
        One line that says what was read.
    logprobs : list of list of float, optional
        Log-probability of each sample, where they are known.
    values : list of list of float, optional
        Values of a further column, one for each sample.
    section : (str or None, str)
        The section of the reports and how it is known, as in [`Reports`][metric_oracle.Reports].
    remarks : str
        A note on words for missing reports and on marks that count as words of the texts; also part of `source`.
    ids_from : (str, str, tuple of str)
        Where the ids come from, as in [`Reports`][metric_oracle.Reports].

    Examples
    --------
    >>> samples = mo.read_samples({"s1": ["No edema.", "Edema."], "s2": ["Clear."]})
    >>> samples.sizes
    [2, 1]
    """

    ids: list[str]
    texts: list[list[str]]
    names: list[list[str]]
    source: str
    logprobs: list[list[float]] | None = None
    values: list[list[float]] | None = None
    section: tuple[str | None, str] = (None, "")
    remarks: str = ""
    ids_from: IdSource = UNKNOWN

    def __post_init__(self) -> None:
        """Check that each study has its group of samples, and each sample a name and its values."""
        check_unique(self.ids, "ids")
        sizes = self.sizes
        for what in ("texts", "names", "logprobs", "values"):
            groups = getattr(self, what)
            if groups is not None and ([*map(len, groups)] != sizes or len(groups) != len(self.ids)):
                raise InputError(
                    what,
                    "must have a list for each id, with a value for each text",
                    "lists of other lengths",
                    "Complete them.",
                )
        if not all(sizes):
            raise InputError("a study has no sample.", "Leave its id out.")

    @property
    def told(self) -> str:
        """One line: what was read."""
        return self.source

    @property
    def is_noted(self) -> bool:
        """Whether `told` is more than what was read: texts look missing or damaged, or a column was chosen."""
        return bool(self.remarks)

    @property
    def sizes(self) -> list[int]:
        """Number of samples of each study."""
        return [len(group) for group in self.texts]

    def summary(self) -> str:
        """Return one line without ids and texts.

        Returns
        -------
        str
            Numbers of studies and samples, and what was read.
        """
        sizes = self.sizes
        fewest, most = min(sizes, default=0), max(sizes, default=0)
        each = str(most) if fewest == most else f"{fewest} to {most}"
        return f"{len(sizes):,} studies, {each} samples each; {self.source}"

    def reports(self) -> Reports:
        """Return every sample as a report, for models that read single reports.

        Returns
        -------
        Reports
            Its ids are ``study/sample``, such as "50000001/0". Texts may repeat and be empty.

        Examples
        --------
        >>> samples = mo.read_samples({"s1": ["No edema.", "Edema."], "s2": ["Edema."]})
        >>> samples.reports().ids
        ['s1/0', 's1/1', 's2/0']
        """
        ids = [f"{study}/{name}" for study, names in zip(self.ids, self.names, strict=True) for name in names]
        texts = [text for group in self.texts for text in group]
        states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
        return Reports(ids, texts, self.source, {"rows": len(ids), "kept": len(ids)}, states, *self.section)

    def distinct(self) -> Reports:
        """Return each distinct text once, as reports.

        Returns
        -------
        Reports
            Its ids are those of the first sample with that text, ``study/sample`` such as "50000001/0". What metrics
            read in addition to the texts is joined on these ids, or on the texts.

        Examples
        --------
        >>> samples = mo.read_samples({"s1": ["No edema.", "Edema.", "No edema."], "s2": ["Edema."]})
        >>> samples.distinct().ids
        ['s1/0', 's1/1']
        """
        first: dict[str, str] = {}
        for study, group, names in zip(self.ids, self.texts, self.names, strict=True):
            for text, name in zip(group, names, strict=True):
                first.setdefault(text, f"{study}/{name}")
        counts = {"rows": sum(self.sizes), "duplicate": sum(self.sizes) - len(first), "kept": len(first)}
        states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
        return Reports(list(first.values()), list(first), self.source, counts, states, *self.section)


def is_sampled(data: Any, read: Read = DEFAULT) -> bool:
    """Return whether a path or container has several reports for each study: lists, or several rows of samples.

    False for what is no table. Of `read` the column of ids, the encoding and the separator count.
    """
    if isinstance(data, Samples):
        return True
    if isinstance(data, str | Path):
        path = Path(data)
        if not path.is_file() or file_ending(path) not in ENDINGS:
            return False
        try:
            table = read_table(path, encoding=read.encoding, separator=read.separator)
        except InputError:  # files of other layouts, which are no tables
            return False
    else:
        in_a_table, _ = in_memory(data)
        if in_a_table is None:
            return False
        table = in_a_table
    if LISTS in table.names or (table.keys is not None and table.names == ["text"] and _has_lists(table.column(0))):
        return True
    ids = table.id_cells(read.id_column) if SAMPLE in table.names else None
    return ids is not None and len({*map(str, ids[0])}) < table.n_rows


@public
def read_samples(data: Any, read: Read | None = None, *, column: str | None = None) -> Samples:
    """Read several reports for each study: what a model sampled.

    Parameters
    ----------
    data : path, dict, list, table or dataset
        One row for each study, with a list of reports in the column ``candidates`` and, where they are known, a list of
        log-probabilities in ``logprobs``: JSON Lines, Parquet, a frame or a Hugging Face dataset. Or one row for each
        sample, with columns for the study, ``sample`` and ``logprob`` (both optional) and the report: also CSV. Or a
        dict of study id to list of reports, or a list of lists, whose ids are "0", "1", ... With a column ``sample``,
        the samples of a study are in its order, numbers by value, whatever the order of the rows.
    read : Read, optional
        How they are read: [`Read`][metric_oracle.Read]. Samples have its section, columns, encoding and separator.
    column : str, optional
        Further column with a number for each sample, such as the score of a reward model.

    Returns
    -------
    Samples
        Studies are in the order of the file. An empty report, or one that is nothing but a word for a missing report
        such as "nan", is a failure of the model and counts as an empty report.

    Raises
    ------
    InputError
        If the file cannot be read, an id occurs twice, a study has no sample, a report is not text, or there is not a
        finite number for each sample.

    Examples
    --------
    >>> samples = mo.read_samples({"s1": ["No edema.", "Edema."], "s2": ["Clear."]})
    >>> samples
    <Samples: 2 studies, 1 to 2 samples each; the dict in memory>
    """
    read = read or DEFAULT
    check_applies(read, "samples")
    if isinstance(data, Samples):
        check_applies(read, "samples that are read")
        check_left_out({"column": column}, "for samples that are read")
        return data
    if isinstance(data, str | Path):
        path = existing_file(Path(data))
        table = read_table(path, encoding=read.encoding, separator=read.separator)
    else:
        check_applies(read, "samples in memory")
        table = _in_memory(data)
    if not table.n_rows:
        raise InputError(f"{table.path} has no samples.", "Check the file.")
    name = read.text_column or (
        LISTS if LISTS in table.names else generated_name(table, "the sampled reports", read.id_column)
    )
    id_cells = table.id_cells(read.id_column, is_optional=True)
    if id_cells is None:
        raise columns_error(table, "has no column with a usual id name", named("NAME", read.text_column))
    ids = canonical_ids(id_cells, f"{shown(id_cells.name)} in {table.path}")
    cells = [cell.tolist() if hasattr(cell, "tolist") else cell for cell in table.column(name, is_text=True)]
    cells = [_without_chats(cell) for cell in cells]
    _check_not_written(table, cells, name)
    of_column = section_of_column(name)
    by_column = of_column, "column" if of_column else ""
    known_section = (read.section, "caller") if read.section else by_column
    groups = (_of_lists if _has_lists(cells) else _of_rows)(table, ids, cells, column)
    samples = _samples_of(table, groups, known_section)
    by_place = id_cells.name == PLACE.name and table.keys is not None
    ids_from = PLACE if by_place else source_of_ids(table, id_cells.name, read.id_column)
    return replace(samples, ids_from=ids_from if read.text_column or by_place else ids_from._replace(texts=name))


def _has_lists(cells: Iterable[Any]) -> bool:
    """Return whether one of the cells is a list, other than of the messages of a chat."""
    return any(isinstance(cell, list | tuple) and not is_chat(cell) for cell in cells)


def _check_not_written(table: Table, cells: Sequence[Any], name: str) -> None:
    """Raise InputError where lists became texts, as in a frame that was written as CSV: each would be one sample."""
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and not is_missing(cell)]
    if texts and all(_WRITTEN_LIST.fullmatch(text) for text in texts):
        raise InputError(
            f"column {shown(name)} of {table.path} has lists that were written as text.",
            'Write the file as JSON Lines; in pandas: frame.to_json(FILE, orient="records", lines=True).',
        )


def _check_no_repeats(table: Table, rows_of: Mapping[str, list[int]], reports: Sequence[str]) -> None:
    """Raise InputError if the last rows may repeat studies to fill a batch: some studies then have more samples."""
    sizes = Counter(map(len, rows_of.values()))
    usual = sizes.most_common(1)[0][0]
    added = sorted(row for rows in rows_of.values() for row in rows[usual:])
    if not added or min(sizes) < usual or added[0] != table.n_rows - len(added):
        return
    study_of = {row: rows for rows in rows_of.values() for row in rows}
    if all(any(reports[row] == reports[other] for other in study_of[row][:usual]) for row in added):
        raise InputError(
            f"the last {len(added):,} rows of {table.path} repeat samples of studies above, as a last batch that was "
            "filled up.",
            f"Delete them, or write a column {SAMPLE} with the number of each sample.",
        )


def _without_chats(cell: Any) -> Any:
    """Return a cell with the answers in place of the chats that it is, or lists."""
    if isinstance(cell, list | tuple) and not is_chat(cell):
        return [without_chat(item) for item in cell]
    return without_chat(cell)


def _in_memory(data: Any) -> Table:
    """Return a container as a table; a dict id -> list, or a list of lists, gets one row for each study.

    Raise InputError for texts alone, and for a dict of columns.
    """
    type_name = type(data).__name__
    if isinstance(data, Mapping) and data and not any(isinstance(group, str | Mapping) for group in data.values()):
        groups = list(data.values())
        if are_columns(data):
            raise InputError(
                "candidates",
                "must have study ids as keys where they are a dict of lists",
                "a dict of columns",
                "Pass the data set or the frame itself, or a list of records.",
            )
        keys = series_of("object key", data)
        return Table(f"the {type_name} in memory", type_name, [LISTS], [series_of(LISTS, groups)], keys)
    if isinstance(data, Sequence) and data and all(isinstance(group, list | tuple) for group in data):
        keys = series_of(PLACE.name, map(str, range(len(data))))
        return Table(f"the {type_name} in memory", type_name, [LISTS], [series_of(LISTS, data)], keys)
    table, _ = in_memory(data)
    if table is None:
        raise InputError(
            "candidates",
            "must be a list of reports for each study",
            f"a {type_name} of texts",
            "Pass a dict of study id to list of reports.",
        )
    return table


class _Groups(NamedTuple):
    """The samples of a table, grouped by study: each field but `ids` has one list for each study."""

    ids: list[str]
    texts: list[list[str]]  # as the table has them
    names: list[list[str]]
    logprobs: list[list[float]] | None
    values: list[list[float]] | None  # of the further column that the caller wants, if any


def _of_lists(table: Table, ids: list[str], groups: list[Any], column: str | None) -> _Groups:
    """Return the samples of a table with one row for each study: its id, and the list of its reports in `groups`.

    `column` is a further column of numbers, if the caller wants one.
    """
    first: dict[str, int] = {}
    for row, study in enumerate(ids):
        if first.setdefault(study, row) != row:
            raise InputError(
                f"{table.place_of(row)} has id {shown(study)} again, after {table.place_of(first[study])}.",
                "Keep one row for each study.",
            )
    texts = []
    for row, group in enumerate(groups):
        if not isinstance(group, list | tuple) or not group:
            raise InputError(
                f"{table.place_of(row)} has no list of candidates for id {shown(ids[row])}.",
                "Write a list of at least one, or leave the study out.",
            )
        texts.append(_texts_of_cells(group, [table.place_of(row)] * len(group)))
    wanted = [name for name in (LOGPROBS, column) if name == column or name in table.names]
    numbers = {name: _lists_of_numbers(table, name, texts) for name in wanted if name is not None}
    names = [[str(place) for place in range(len(group))] for group in texts]
    return _Groups(ids, texts, names, numbers.get(LOGPROBS), numbers.get(column or ""))


def _of_rows(table: Table, ids: list[str], cells: list[Any], column: str | None) -> _Groups:
    """Return the samples of a table with one row for each sample: the id of its study, and its report in `cells`.

    `column` is a further column of numbers, if the caller wants one.
    """
    rows_of: dict[str, list[int]] = {}
    for row, study in enumerate(ids):
        rows_of.setdefault(study, []).append(row)
    places = [table.place_of(row) for row in range(table.n_rows)]
    # An empty cell of a CSV or Excel file is an empty report.
    is_typed = table.kind in ("CSV", "TSV", "Excel")
    reports = _texts_of_cells(["" if cell is None and is_typed else cell for cell in cells], places, is_list=False)
    labels = [""] * table.n_rows
    if SAMPLE in table.names:
        labels = canonical_ids(table.column(SAMPLE), f"{SAMPLE!r} in {table.path}", mimic=False)
        first: dict[tuple[str, str], int] = {}
        for row, key in enumerate(zip(ids, labels, strict=True)):
            if first.setdefault(key, row) != row:
                raise InputError(
                    f"{places[row]} has sample {shown(key[1])} of id {shown(key[0])} again, after "
                    f"{places[first[key]]}.",
                    "Keep one row for each sample.",
                )
        for rows in rows_of.values():
            rows.sort(key=lambda row: _in_order(labels[row]))
    else:
        _check_no_repeats(table, rows_of, reports)
    groups = list(rows_of.values())
    texts = [[reports[row] for row in rows] for rows in groups]
    names = [
        [labels[row] if SAMPLE in table.names else str(place) for place, row in enumerate(rows)] for rows in groups
    ]
    wanted = [name for name in (LOGPROB, column) if name == column or name in table.names]
    by_row = {name: table.numbers(name) for name in wanted if name is not None}
    numbers = {name: [values[rows].tolist() for rows in groups] for name, values in by_row.items()}
    return _Groups(list(rows_of), texts, names, numbers.get(LOGPROB), numbers.get(column or ""))


def _in_order(name: str) -> tuple[list[Any], str]:
    """Return the key by which samples are sorted: numbers within their names by value, so that 2 is before 10."""
    parts = re.split(r"([0-9]+)", name)
    return [(len(digits.lstrip("0")), digits.lstrip("0")) if i % 2 else digits for i, digits in enumerate(parts)], name


def _samples_of(table: Table, groups: _Groups, section: tuple[str | None, str]) -> Samples:
    """Return the samples of a table as `Samples`; `section` is the section and how it is known.

    A text that is only a word for a missing report, such as "nan", becomes an empty text. Texts that hold both sections
    under their names are cut to the `section` that the caller named; see `by_headings`.
    """
    ids, texts, names, logprobs, values = groups
    n_words = sum(is_missing(text) for group in texts for text in group)
    if n_words:
        texts = [["" if is_missing(text) else text for text in group] for group in texts]
    wanted = section[0] if section[1] == "caller" else None
    cut, section, note = by_headings([text for group in texts for text in group], wanted, section)
    if note:
        rest = iter(cut)
        texts = [[next(rest) or "" for _ in group] for group in texts]
    words = f"{n_words:,} words for a missing report count as empty reports" if n_words else ""
    remark = ", ".join(
        filter(None, [words, remarks(Counter(), count_marks(text for group in texts for text in group))])
    )
    source = ", ".join(filter(None, [str(table.path), table.note, note, remark]))
    return Samples(ids, texts, names, source, logprobs, values, section, remark)


def _texts_of_cells(cells: Sequence[Any], places: Sequence[str], *, is_list: bool = True) -> list[str]:
    """Return the cells as a list. Raise InputError with the place (file and row) of the first that is not a text.

    `places` has one for each cell; `is_list` says that the cells are the candidates of one study, not rows.
    """
    for number, cell in enumerate(cells):
        if not isinstance(cell, str):
            which = f"candidate {number + 1}" if is_list else "the report"
            got = "missing" if is_missing(cell) else type(cell).__name__
            raise InputError(
                f"{places[number]} has no text as {which}: it is {got}.", "Write an empty text for a failed sample."
            )
    return list(cells)


def _lists_of_numbers(table: Table, name: str, texts: list[list[str]]) -> list[list[float]]:
    """Return the lists of a column, with a finite number for each text of each study; raise InputError for others."""
    lists = []
    for row, (cell, group) in enumerate(zip(table.column(name, is_text=True), texts, strict=True)):
        cell = cell.tolist() if hasattr(cell, "tolist") else cell
        if not isinstance(cell, list | tuple) or len(cell) != len(group):
            got = f"{len(cell)} numbers" if isinstance(cell, list | tuple) else "no list"
            raise InputError(
                f"{table.place_of(row)} has {len(group)} candidates, and {got} in column {shown(name)}.",
                "Write one number for each candidate.",
            )
        numbers = numbers_of(series_of(name, cell))
        if numbers.null_count() or numbers.is_infinite().any():
            raise InputError(
                f"{table.place_of(row)} has no finite number in column {shown(name)}.",
                "Complete the column, or leave it out.",
            )
        lists.append(numbers.to_list())
    return lists
