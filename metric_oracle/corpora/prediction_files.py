"""Rows of the files in which models write their reports: texts in file order, and the ids, where the file has them.

Files: R2Gen and its family (`res.csv`, one column without header), CXR-RePaiR and CXR-ReDonE (a text column without
ids), CvT2DistilGPT2 (`report,dicom_id`), M2 Trans (`*_samples.txt.gz`, `gen.csv`), ReXrank (JSON with
`model_prediction`), CXR-Report-Metric (`study_id,report`), and tables with one id and one text column.
"""

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.joining import UNKNOWN, IdSource, source_of_ids
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    chexpert_studies,
    file_ending,
    likeliest,
    named,
    no_text,
    note_on_headers,
    read_table,
    table_kind,
)
from metric_oracle.corpora.text_files import LINES, checked_separator, csv_body, read_text, usual_quotes
from metric_oracle.corpora.text_folders import IDS_FROM, WHAT, find_text_files, read_text_files
from metric_oracle.corpora.usual_names import (
    REFERENCE,
    TEXTS,
    bare_name,
    generated_names,
    has_other,
    matching,
    section_of_column,
)

_KNOWN = (
    ("CvT2DistilGPT2", {"report", "dicom_id"}),
    ("M2 Trans", {"DOC_ID", "Report Generated"}),
    ("ReXrank", {"model_prediction"}),
)
# R2Gen and WCL write one column without header.
NO_HEADER = "CSV of one column without header"
# A line of M2 Trans: id, score, and the text, which may be empty.
_SAMPLE = re.compile(r"(\S+)[ \t]+(?:[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|[-+]?inf)(?:[ \t]+(.*?))?[ \t]*")


@dataclass(frozen=True)
class Keys:
    """Ids of the rows: those of studies, of images, or both."""

    studies: list[str] | None  # None if they are not known; one of both is
    images: list[str] | None
    name: str  # what the ids stand under, such as the name of their column


@dataclass(frozen=True)
class Rows:
    """The rows of a file of predictions, in file order."""

    what: str  # what the file was recognised as, for the user
    texts: list[str | None]  # None for a missing cell
    keys: Keys | None  # None if the file has no ids
    section: str | None = None  # the section that the name of the column means
    table: Table | None = None  # the table for messages; None for a file without columns
    ids_from: IdSource = UNKNOWN
    chosen: tuple[str, ...] = ()  # parts of `what` that say what was read where another reading was possible


def read_rows(
    path: Path,
    id_column: str | None,
    text_column: str | None,
    encoding: str | None,
    separator: str | None,
    wanted: str | None = None,
) -> Rows:
    """Read the texts of a file in file order, and their ids if it has them.

    Columns, encoding, separator and the section `wanted` are None where the caller does not name them. Raise
    InputError if the columns are not clear then, or an option does not apply to the file.
    """
    if path.is_dir():
        _check_no_columns(path, id_column, text_column)
        files = find_text_files(path)
        if not files:
            raise InputError(
                f"{path} is a folder without text files.",
                "Name a file, or a folder with a text file for each report, called by its id.",
            )
        return Rows(WHAT, read_text_files([*files.values()]), Keys([*files], None, "file name"), ids_from=IDS_FROM)
    ending = file_ending(path)
    if ending in LINES:
        _check_no_columns(path, id_column, text_column)
        check_left_out(
            {"separator": separator}, "for text with one report per line", got=f"{shown(separator)} for {path}"
        )
        return _read_lines(path, encoding)
    if ending == ".csv":
        table_kind(path, encoding=encoding, separator=separator)
        text, note = read_text(path, encoding)
        text, delimiter, above = csv_body(text, "CSV", checked_separator(separator))
        note = ", ".join(filter(None, [note, above]))
        column = _one_column(usual_quotes(text, delimiter), delimiter, path)
        if column is not None:
            is_header = bool(column[0]) and (bare_name(column[0]) in TEXTS or column[0].strip() == text_column)
            _check_no_columns(path, id_column, None if is_header else text_column)
            what = f"CSV with the column {column[0].strip()} alone" if is_header else NO_HEADER
            section = section_of_column(column[0].strip()) if is_header else None
            cells = [cell for cell in column[is_header:] if not (is_header and cell.strip() == column[0].strip())]
            again = note_on_headers(len(column) - is_header - len(cells))
            return Rows(", ".join(filter(None, [what, note, again])), list(cells), None, section)
    return rows_of_table(read_table(path, encoding=encoding, separator=separator), id_column, text_column, wanted)


def rows_of_table(table: Table, id_column: str | None, text_column: str | None, wanted: str | None = None) -> Rows:
    """Return the texts and ids of a table; a column that the caller does not name (None) is found by its name.

    Of columns of both sections, that of the section `wanted` has the texts.
    """
    kind = next((f"{model} {table.kind}" for model, names in _KNOWN if names <= set(table.names)), table.kind)
    name = text_column or generated_name(table, "the predictions", id_column, wanted)
    what = ", ".join(filter(None, [kind, f"column {name}", table.note]))
    # An empty cell of a CSV or Excel file is an empty report, which is a failure of the model, not a missing study.
    absent = "" if table.kind in ("CSV", "TSV", "Excel") else None
    cells = [absent if text is None else text for text in table.texts(name)]
    keys = _keys(table, id_column)
    ids_from = UNKNOWN if keys is None else source_of_ids(table, keys.name, id_column)
    if text_column is None:
        ids_from = ids_from._replace(texts=name)
    is_chosen = text_column is None and has_other(table.names, TEXTS - REFERENCE, [name])
    chosen = tuple(filter(None, [f"column {name}" if is_chosen else "", table.note]))
    return Rows(what, cells, keys, section_of_column(name), table, ids_from, chosen)


def _check_no_columns(path: Path, id_column: str | None, text_column: str | None) -> None:
    """Raise InputError if the caller named a column (not None) for a file without named columns."""
    if id_column is not None or text_column is not None:
        raise InputError(
            "`id_column` and `text_column`",
            "must be left out where the predictions have no such columns",
            f"{shown(*filter(None, (id_column, text_column)))} for {path}",
            "Leave them out.",
        )


def _read_lines(path: Path, encoding: str | None) -> Rows:
    """Read text with one report per line, blank lines included, or the samples of M2 Trans if the first line is one."""
    text, note = read_text(path, encoding)
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if _SAMPLE.fullmatch(lines[0]) is None:
        return Rows(", ".join(filter(None, ["text, a report a line", note])), list(lines), None)
    samples = [_SAMPLE.fullmatch(line) for line in lines]
    if None in samples:
        raise InputError(
            f"{path} has a line that is not `id score text` as the first one is: line {samples.index(None) + 1}.",
            "Correct the line, or fetch the file again.",
        )
    parts = [(sample[1].partition("__"), sample[2] or "") for sample in samples if sample is not None]
    studies = canonical_ids([key[0] for key, _ in parts], f"the first field of {path}")
    images = [key[2] for key, _ in parts]
    keys = Keys(studies, images if all(images) else None, "first field")
    return Rows("M2 Trans samples", [text for _, text in parts], keys)


def _one_column(text: str, separator: str, path: Path) -> list[str] | None:
    """Return the cells of a CSV text with one column, where a blank line is an empty cell; None for a wider one.

    `separator` is the one that the header seems to have, `path` is for messages. Raise InputError if a wider row is
    below others, or a quote is never closed.

    Arrow's reader drops blank lines, which would shift every report after an empty one. Semicolons and bars in reports
    without header count as separators only if they give all rows the same number of columns.
    """
    if separator != ",":
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            widths = {len(row) for row in rows if row}
        except csv.Error:
            widths = set()
        if len(widths) == 1 and widths != {1}:
            return None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    cells: list[str] = []
    try:
        for row in reader:
            if len(row) > 1:
                if not any(cells):
                    return None
                raise InputError(
                    f"{path} has {len(row)} cells in row {len(cells) + 1} and one in its first row.",
                    "Quote the reports, or delete the lines above the header.",
                )
            cells.append(row[0] if row else "")
    except csv.Error:
        raise InputError(
            f"{path} has a quote that is never closed, in row {len(cells) + 1}.",
            "Close the quote, or fetch the file again.",
        ) from None
    return cells


def generated_name(table: Table, what: str, id_column: str | None, wanted: str | None = None) -> str:
    """Return the name of the column with the reports that a model wrote; `what` calls them in messages.

    A column called `prediction` or the like wins: the file may hold the reference in another one. Of columns of both
    sections, that of the section `wanted` is it. Raise InputError if no column, or more than one, can be it.
    """
    id_cells = table.id_cells(id_column, is_optional=True)
    id_name = "" if id_cells is None else id_cells.name
    names, is_clear = generated_names(table.names, wanted, lambda: table.others_of_words(id_name))
    if not id_name and not matching(names, TEXTS):  # one of them may hold the ids
        names, is_clear = [], False
    if is_clear:
        return names[0]
    candidates = f"; candidates are {shown(*names)}" if names else ""
    columns = named("NAME" if id_cells is None else id_column, likeliest(names))
    raise no_text(table, f"has no column that is clearly {what}{candidates}", columns)


def _keys(table: Table, id_column: str | None = None) -> Keys | None:
    """Return the ids of a table: in `id_column`, else under a usual name, else its keys; None if there are none."""
    image_name = table.image_name
    id_cells = table.id_cells(id_column, is_optional=True)
    if id_cells is None:
        return None
    name = id_cells.name
    ids = canonical_ids(id_cells, f"{shown(name)} in {table.path}")
    if name == "path_to_image":
        return Keys(chexpert_studies(ids, f"{shown(name)} in {table.path}")[0], ids, name)
    if name == image_name:
        return Keys(None, ids, name)
    images = None
    if image_name is not None:
        images = canonical_ids(table.column(image_name), f"{shown(image_name)} in {table.path}")
    elif table.keys is not None and table.has_named_keys and name != table.keys.name:  # an object of image -> row
        images = canonical_ids(table.keys, f"the keys of {table.path}")
    return Keys(ids, images, name)


def read_keys(path: Path, split: str) -> Keys:
    """Read the ids for predictions without ids, one per row of the file, in the same order.

    If the file has a column of splits, only the rows of `split` are used: one name, or several joined with "+".
    """
    if file_ending(path) in LINES:
        text, _ = read_text(path)
        return Keys(canonical_ids(text.rstrip("\r\n").split("\n"), str(path)), None, "line")
    table = read_table(path)
    keys = _keys(table)
    if keys is None:
        raise InputError(
            f"{path} has no column with a usual id name; columns: {table.header}.",
            "Rename the column with the ids to study_id.",
        )
    if "split" not in table.names:
        return keys
    splits = table.column("split")
    rows = [row for row, name in enumerate(splits) if name in split.split("+")]
    if not rows:
        raise InputError(
            f"{path} has no row of split {shown(split)} in its column split: {shown(*sorted(map(str, set(splits))))}.",
            "Name another with `split`.",
        )
    studies, images = ([column[row] for row in rows] if column else None for column in (keys.studies, keys.images))
    return Keys(studies, images, keys.name)
