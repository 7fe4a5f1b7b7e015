"""Generated reports, in the files that the code of the models writes: one text for each study.

Files: R2Gen and its family (`res.csv`, one column without header), CXR-RePaiR and CXR-ReDonE (a text column without
ids), CvT2DistilGPT2 (`report,dicom_id`), M2 Trans (`*_samples.txt.gz`, `gen.csv`), ReXrank (JSON with
`model_prediction`), CXR-Report-Metric (`study_id,report`), and tables with one id and one text column.
"""

import csv
import io
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.missing import checked_texts, is_missing
from metric_oracle.corpora.reports import (
    JOINED,
    Reports,
    check_left_out,
    check_options,
    check_section,
    section_of_column,
    sort_out,
)
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    chexpert_studies,
    existing_file,
    file_ending,
    read_table,
    shown_names,
    table_kind,
)
from metric_oracle.corpora.text_files import checked_separator, read_text, separator_of
from metric_oracle.errors import InputError, option

# A column with one of these names is the prediction; the file may hold the reference in another column.
_GENERATED = ("model_prediction", "prediction", "report generated", "predicted")
_TEXTS = (*_GENERATED, "report", "report_text", "text", "report impression", "impression", "findings", "filtered")
_KNOWN = (
    ("CvT2DistilGPT2", {"report", "dicom_id"}),
    ("M2 Trans", {"DOC_ID", "Report Generated"}),
    ("ReXrank", {"model_prediction"}),
)
# R2Gen and WCL write one column without header. Yu et al. compare these models with both sections (table S7).
_NO_HEADER = "CSV of one column without header"
_JOINTLY = ("CvT2DistilGPT2", _NO_HEADER)
# A text with both sections under their names. References have no such names.
_HEADERS = re.compile(r"\bfindings\s*:\s*(.*?)\s*\bimpression\s*:\s*", re.IGNORECASE | re.DOTALL)
_LINES = (".txt", ".tok")
# A line of M2 Trans: id, score, and the text, which may be empty.
_SAMPLE = re.compile(r"(\S+)[ \t]+(?:[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|[-+]?inf)(?:[ \t]+(.*?))?[ \t]*")
_FRONTAL = {"AP", "PA"}
_VIEW_OF_CODE = {"antero-posterior": "AP", "postero-anterior": "PA"}


@dataclass(frozen=True)
class _Keys:
    """Ids of the rows: those of studies, of images, or both."""

    studies: list[str] | None
    images: list[str] | None
    name: str


@dataclass(frozen=True)
class _Rows:
    """Texts in file order (None for a missing cell), and their ids if the file has them; its columns for a message."""

    what: str
    texts: list[str | None]
    keys: _Keys | None
    section: str | None = None
    header: str = ""


class _Options(NamedTuple):
    """Options of `read_predictions` that apply to files and containers."""

    ids: str | Path | None = None
    split: str | None = None
    metadata: str | Path | None = None
    seed: int = 0
    after_impression: bool = False
    section: str | None = None


def as_predictions(predictions: Any, **reading: Any) -> Reports:
    """Return the reports of a model from a file or a container, see `corpora.reports.as_reports`.

    Empty reports are kept. Texts without ids get the ids "0", "1", ...

    Parameters
    ----------
    predictions : path, Reports, or a container
    **reading
        Options of `read_predictions`.

    Raises
    ------
    ArgumentError
        If an option does not exist.
    InputError
        If the predictions cannot be read, or an option does not apply to them.
    """
    check_options(reading, (*_Options._fields, "id_column", "text_column", "encoding", "separator"))
    if isinstance(predictions, str | Path):
        return read_predictions(predictions, **reading)
    given = [name for name, value in reading.items() if value not in (None, False, 0)]
    if isinstance(predictions, Reports):
        check_left_out(given, (), "Reports, which are read")
        return predictions
    options = _Options(**{name: value for name, value in reading.items() if name in _Options._fields})
    table, texts = in_memory(predictions)
    if table is not None:
        check_left_out([name for name in given if name in ("encoding", "separator")], (), str(table.path))
        rows = _of_table(table, reading.get("id_column"), reading.get("text_column"))
        return _assembled(rows, table.path, options)
    check_left_out(given, ("seed", "after_impression", "section"), "texts without columns")
    cells = checked_texts(texts or [], "the predictions in memory")
    rows = _Rows("texts in memory", cells, _Keys([str(i) for i in range(len(cells))], None, "place"))
    return _assembled(rows, "the texts in memory", options)


def read_predictions(
    path: str | Path,
    *,
    ids: str | Path | None = None,
    split: str | None = None,
    metadata: str | Path | None = None,
    seed: int = 0,
    after_impression: bool = False,
    id_column: str | None = None,
    text_column: str | None = None,
    section: str | None = None,
    encoding: str | None = None,
    separator: str | None = None,
) -> Reports:
    """Read the reports that a model wrote, from a file whose layout follows from its header and content.

    Parameters
    ----------
    path : str or path
        CSV, TSV, Parquet, JSON, JSON Lines, Excel, or text with one report a line. docs/formats.md lists the models
        whose files are recognised.
    ids : str or path, optional
        For predictions that have only an order: the file with one id a row in that order, such as R2Gen's
        ``annotation.json`` or CXR-RePaiR's ``bootstrap_test/reports.csv``.
    split : str, optional
        Rows of that file to use, where it has splits: "test" (the default), "val", or several joined with "+".
    metadata : str or path, optional
        ``mimic-cxr-2.0.0-metadata.csv.gz``, which turns reports of images into reports of studies as in Yu et al.: the
        report of an AP or PA image, a random one if there are several, otherwise that of a random other image.
    seed : int
        Seed of these choices. The choice for a study depends only on the seed and on the study's own images.
    after_impression : bool
        Use what follows "Impression:"; a prediction without it counts as missing.
    id_column, text_column : str, optional
        Columns of a table, where their names do not tell.
    section : {"impression", "findings", "findings+impression"}, optional
        What the model writes, where file and texts do not say it, or say something else.
    encoding, separator : str, optional
        Encoding and separator of the file, as in [`read_reports`][metric_oracle.read_reports].

    Returns
    -------
    Reports
        Empty texts are kept, because an empty report is a failure of the model: an empty cell of a CSV or Excel file is
        one, quoted or not. `states` lists the studies whose report is missing (null in JSON and Parquet, in any file a
        word such as "nan" alone); these are left out.

    Raises
    ------
    InputError
        If the file does not exist or cannot be read, ids are missing or occur twice, or `ids` has another number of
        rows.

    Examples
    --------
    >>> len(mo.read_predictions("strong.csv").ids)
    24
    """
    path = existing_file(Path(path), "predictions")
    rows = _read_rows(path, id_column, text_column, encoding, separator)
    return _assembled(rows, path, _Options(ids, split, metadata, seed, after_impression, section))


def _assembled(rows: _Rows, path: str | Path, options: _Options) -> Reports:
    """Return one report per study."""
    ids, split, metadata, seed, after_impression, section = options
    if section is not None:
        check_section(section)
    what, keys = rows.what, rows.keys
    if (keys is None) == (ids is None):
        problem = f"{path} has {'no ids' if ids is None else f'ids, and {ids} is given for them'} ({what})."
        in_order = f"{option('ids', 'FILE')} with one id per row, in the same order."
        step = f"Pass {in_order}" if ids is None else "Drop ids."
        if ids is None and rows.header:
            columns = f"Pass {option('predicted_id_column', 'NAME')}; columns: {rows.header}."
            step = f"{columns} If none of them has ids, pass {in_order}"
        raise InputError(problem, step)
    if keys is None:
        keys = _read_keys(existing_file(Path(str(ids)), "ids"), split or "test")
        n_ids = len(keys.studies or keys.images or [])
        if n_ids != len(rows.texts):
            raise InputError(
                f"{path} has {len(rows.texts)} predictions ({what}), and {ids} has {n_ids} ids.",
                "Pass the file that the predictions were made for; a blank line counts as a report.",
            )
        what = f"{what}, in the order of {Path(str(ids)).name}"
    texts = [_after_impression(text) for text in rows.texts] if after_impression else rows.texts
    if after_impression:
        what += ", what follows Impression:"
    said = _section(rows, after_impression, section)
    if said[0] == JOINED:
        bare = [text and _HEADERS.sub(r"\1 ", text, count=1).strip() for text in texts]
        what += ", without Findings: and Impression:" * (bare != [text and text.strip() for text in texts])
        texts = bare
    if metadata is not None:
        first = _collapse(keys, texts, Path(metadata), seed, path)
        what += f", one image a study by view (seed {seed})"
    else:
        first = _one_each(keys, texts, path)
    counts = {"rows": len(texts), "duplicate": len(texts) - len(first)}
    return sort_out(first, f"{what}, id {keys.name}", counts, path, keep_empty=True, section=said)


def _section(rows: _Rows, after_impression: bool, section: str | None) -> tuple[str | None, str]:
    """Return the section of the predictions (or None), and how it is known."""
    if section is not None:
        return section, "caller"
    if after_impression:
        return "impression", "headers"
    texts = [text for text in rows.texts if text and text.strip()]
    if texts and 2 * sum(_HEADERS.search(text) is not None for text in texts) > len(texts):
        return JOINED, "headers"
    if rows.section is not None:
        return rows.section, "column"
    return (JOINED, "paper") if rows.what.startswith(_JOINTLY) else (None, "")


# Files


def _read_rows(
    path: Path, id_column: str | None, text_column: str | None, encoding: str | None, separator: str | None
) -> _Rows:
    """Read the texts of a file in file order, and their ids if it has them."""
    ending = file_ending(path)
    if ending in _LINES:
        _check_no_columns(path, id_column, text_column)
        if separator is not None:
            raise InputError(
                argument="separator",
                rule="must be left out for text with one report per line",
                value=f"a value for {path}",
                step="Drop it.",
            )
        return _read_lines(path, encoding)
    if ending == ".csv":
        table_kind(path, encoding=encoding, separator=separator)
        text, note = read_text(path, encoding)
        column = _one_column(text, separator_of(text, "CSV", checked_separator(separator)), path)
        if column is not None:
            is_header = bool(column[0]) and column[0].strip().lower() in (*_TEXTS, (text_column or "").lower())
            _check_no_columns(path, id_column, None if is_header else text_column)
            what = f"CSV with the column {column[0].strip()} alone" if is_header else _NO_HEADER
            section = section_of_column(column[0].strip()) if is_header else None
            return _Rows(", ".join(filter(None, [what, note])), list(column[is_header:]), None, section)
    return _of_table(read_table(path, encoding=encoding, separator=separator), id_column, text_column)


def _of_table(table: Table, id_column: str | None, text_column: str | None) -> _Rows:
    """Return the texts and ids of a table."""
    path = table.path
    known = next((f"{model} {table.kind}" for model, names in _KNOWN if names <= set(table.names)), table.kind)
    name = _text_name(table, id_column, text_column)
    texts = table.column(name, "text_column", is_text=True)
    for row, cell in enumerate(texts):
        if not isinstance(cell, str) and not is_missing(cell):
            raise InputError(
                f"column {name!r} of {path} has {type(cell).__name__} instead of text in row {row + 1}.",
                f"Pass {option('predicted_text_column', 'NAME')}.",
            )
    what = ", ".join(filter(None, [known, f"column {name}", table.note]))
    # An empty cell of a CSV or Excel file is an empty report, which is a failure of the model, not a missing study.
    absent = "" if table.kind in ("CSV", "TSV", "Excel") else None
    cells = [cell if isinstance(cell, str) else absent for cell in texts]
    return _Rows(what, cells, _keys(table, id_column), section_of_column(name), table.header)


def _check_no_columns(path: Path, id_column: str | None, text_column: str | None) -> None:
    """Raise InputError if the caller named a column for a file without named columns."""
    if id_column is not None or text_column is not None:
        raise InputError(
            argument="id_column and text_column",
            rule="must be left out where the predictions have no such columns",
            value=f"{shown_names([id_column or '', text_column or ''])} for {path}",
            step="Drop them.",
        )


def _read_lines(path: Path, encoding: str | None) -> _Rows:
    """Read text with one report per line, blank lines included, or the samples of M2 Trans."""
    text, note = read_text(path, encoding)
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if _SAMPLE.fullmatch(lines[0]) is None:
        return _Rows(", ".join(filter(None, ["text, a report a line", note])), list(lines), None)
    samples = [_SAMPLE.fullmatch(line) for line in lines]
    if None in samples:
        raise InputError(
            f"{path} has a line that is not `id score text` as the first one is: line {samples.index(None) + 1}.",
            "Correct the line, or fetch the file again.",
        )
    parts = [(sample[1].partition("__"), sample[2] or "") for sample in samples if sample is not None]
    studies = canonical_ids([key[0] for key, _ in parts], f"the first field of {path}")
    images = [key[2] for key, _ in parts]
    keys = _Keys(studies, images if all(images) else None, "first field")
    return _Rows("M2 Trans samples", [text for _, text in parts], keys)


def _one_column(text: str, separator: str, path: Path) -> list[str] | None:
    """Return the cells of a CSV file with one column, where a blank line is an empty cell; None for a wider file.

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
                    "Quote the reports.",
                )
            cells.append(row[0] if row else "")
    except csv.Error:
        raise InputError(
            f"{path} has a quote that is never closed, in row {len(cells) + 1}.",
            "Close the quote, or fetch the file again.",
        ) from None
    return cells


def _text_name(table: Table, id_column: str | None, text_column: str | None) -> str:
    """Return the name of the column of the predictions."""
    if text_column is not None:
        return text_column
    for known in (_GENERATED, _TEXTS):
        names = [name for name in table.names if name.lower() in known]
        if len(names) == 1:
            return names[0]
        if names:
            break
    shown = f"; candidates are {shown_names(names)}" if names else ""
    too = f" and {option('predicted_id_column', 'NAME')}" if table.id_cells(id_column) is None else ""
    raise InputError(
        f"{table.path} has no column that is clearly the predictions{shown}.",
        f"Pass {option('predicted_text_column', 'NAME')}{too}; columns: {table.header}.",
    )


# Ids


def _keys(table: Table, id_column: str | None = None) -> _Keys | None:
    """Return the ids of the rows of a table; None if no column has a usual id name."""
    image_name = table.image_name
    id_cells = table.id_cells(id_column)
    if id_cells is None:
        return None
    cells, name = id_cells
    ids = canonical_ids(cells, f"{name!r} in {table.path}")
    if name == "path_to_image":
        return _Keys(chexpert_studies(ids, f"{name!r} in {table.path}")[0], ids, name)
    if name == image_name:
        return _Keys(None, ids, name)
    images = None
    if image_name is not None:
        images = canonical_ids(table.column(image_name, "id_column"), f"{image_name!r} in {table.path}")
    return _Keys(ids, images, name)


def _read_keys(path: Path, wanted: str) -> _Keys:
    """Read the ids for predictions without ids, one per row of the file, in the same order.

    `wanted` names the splits whose rows are used, if the file has splits.
    """
    if file_ending(path) in _LINES:
        text, _ = read_text(path)
        return _Keys(canonical_ids(text.rstrip("\r\n").split("\n"), str(path)), None, "line")
    table = read_table(path)
    keys = _keys(table)
    if keys is None:
        raise InputError(f"{path} has no column with a usual id name.", f"Columns: {table.header}.")
    if "split" not in table.names:
        return keys
    splits = table.column("split", "ids")
    rows = [row for row, name in enumerate(splits) if name in wanted.split("+")]
    if not rows:
        raise InputError(
            f"{path} has no row of split {wanted!r} in its column split: {shown_names(sorted(map(str, set(splits))))}.",
            f"Name another with {option('split')}.",
        )
    studies, images = ([column[row] for row in rows] if column else None for column in (keys.studies, keys.images))
    return _Keys(studies, images, keys.name)


# One report per study


def _one_each(keys: _Keys, texts: Sequence[str | None], path: str | Path) -> dict[str, str | None]:
    """Return the text of each id.

    The images of a study must have the same text, unless their names give an order, in which case the first counts.
    """
    if keys.name == "path_to_image":
        studies, rows = chexpert_studies(keys.images or [], str(path))
        return {studies[row]: texts[row] for row in rows}
    first: dict[str, str | None] = {}
    differing: dict[str, None] = {}
    for key, text in zip(keys.studies or keys.images or [], texts, strict=True):
        if first.setdefault(key, text) != text:
            differing[key] = None
    if differing:
        by_view = f"Pass {option('metadata', 'mimic-cxr-2.0.0-metadata.csv.gz')}, which chooses images by view."
        step = by_view if keys.images else "Keep one row for each id."
        raise InputError(
            f"{path} has {len(differing)} ids with several texts: {shown_names(list(differing)[:3])}.", step
        )
    return first


def _collapse(
    keys: _Keys, texts: Sequence[str | None], metadata: Path, seed: int, path: str | Path
) -> dict[str, str | None]:
    """Choose one image per study by the rule of Yu et al., and return its text by study id."""
    if keys.images is None:
        raise InputError(
            argument="metadata",
            rule="must be left out for predictions without image ids",
            value=f"{metadata} for {path}",
            step="Drop it.",
        )
    study_of, view_of = _read_metadata(metadata)
    unknown = [image for image in keys.images if image not in study_of]
    if unknown:
        raise InputError(
            f"{metadata} lacks {len(unknown)} images of the predictions: {shown_names(unknown[:3])}.",
            "Pass the metadata of this data set.",
        )
    text_of: dict[str, str | None] = {}
    images_of: dict[str, list[str]] = {}
    for row, (image, text) in enumerate(zip(keys.images, texts, strict=True)):
        study = study_of[image]
        if (keys.studies is not None and keys.studies[row] != study) or text_of.setdefault(image, text) != text:
            raise InputError(
                f"{path} has image {shown_names([image])} with two texts, or in another study than the metadata.",
                "Repair the file.",
            )
        images_of.setdefault(study, []).append(image)
    chosen = {}
    for study, images in images_of.items():
        pool = sorted({image for image in images if view_of[image] in _FRONTAL} or set(images))
        # A seed for each study, so that its choice does not depend on other predictions.
        chosen[study] = text_of[random.Random(f"{seed} {study}").choice(pool)]
    return chosen


def _read_metadata(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the study and the view of each image id. A missing view is derived from its numeric code."""
    table = read_table(existing_file(path, "metadata"))
    cells = [table.column(name, "metadata") for name in ("dicom_id", "study_id", "ViewPosition")]
    images = canonical_ids(cells[0], f"'dicom_id' in {path}")
    studies = canonical_ids(cells[1], f"'study_id' in {path}")
    code = "ViewCodeSequence_CodeMeaning"
    codes = table.column(code, "metadata") if code in table.names else [None] * len(images)
    views = [
        _VIEW_OF_CODE.get(str(meaning)) if is_missing(view) else view
        for view, meaning in zip(cells[2], codes, strict=True)
    ]
    return dict(zip(images, studies, strict=True)), dict(zip(images, views, strict=True))


def _after_impression(text: str | None) -> str | None:
    """Return the text after "Impression:", or None without it; an empty report stays empty."""
    if text is not None and not text.strip():
        return text
    _, header, rest = (text or "").partition("Impression:")
    return rest.strip() if header else None
