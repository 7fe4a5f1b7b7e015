"""Generated reports as the models' own code writes them -> one text for each study.

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
from metric_oracle.errors import InputError

_NAME = "read_predictions"
# A column of the first line is the prediction wherever it occurs: such files may hold the reference beside it.
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
# A text that holds both sections under their names, which no reference has.
_HEADERS = re.compile(r"\bfindings\s*:\s*(.*?)\s*\bimpression\s*:\s*", re.IGNORECASE | re.DOTALL)
_LINES = (".txt", ".tok")
# A line of M2 Trans: id, score, and the text, which may be empty.
_SAMPLE = re.compile(r"(\S+)[ \t]+(?:[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|[-+]?inf)(?:[ \t]+(.*?))?[ \t]*")
_FRONTAL = {"AP", "PA"}
_VIEW_OF_CODE = {"antero-posterior": "AP", "postero-anterior": "PA"}


@dataclass(frozen=True)
class _Keys:
    """Ids of rows: of their studies, of their images, or both."""

    studies: list[str] | None
    images: list[str] | None
    name: str


@dataclass(frozen=True)
class _Rows:
    """Texts in file order (None where the cell is missing), and their ids where the file has them."""

    what: str
    texts: list[str | None]
    keys: _Keys | None
    section: str | None = None


class _Options(NamedTuple):
    """Options of `read_predictions` that are for rows of any container."""

    ids: str | Path | None = None
    split: str | None = None
    metadata: str | Path | None = None
    seed: int = 0
    after_impression: bool = False
    section: str | None = None


def as_predictions(predictions: Any, *, function: str = "as_predictions", **reading: Any) -> Reports:
    """Return a model's reports whatever they are in, see `corpora.reports.as_reports`.

    Empty ones are kept. Of texts without columns and ids, the ids are "0", "1", ...

    Parameters
    ----------
    predictions : path, Reports, or a container
    function : str
        The public function, for error lines.
    **reading
        Options of `read_predictions`.

    Raises
    ------
    ArgumentError
        For an option that is none, in the name of `function`.
    InputError
        For predictions that cannot be read, or an option that makes no sense for them.
    """
    check_options(reading, (*_Options._fields, "id_column", "text_column", "encoding", "separator"), function)
    if isinstance(predictions, str | Path):
        return read_predictions(predictions, **reading)
    given = [name for name, value in reading.items() if value not in (None, False, 0)]
    if isinstance(predictions, Reports):
        check_left_out(given, (), function, "Reports, which are read")
        return predictions
    options = _Options(**{name: value for name, value in reading.items() if name in _Options._fields})
    table, texts = in_memory(predictions, function)
    if table is not None:
        check_left_out([name for name in given if name in ("encoding", "separator")], (), function, str(table.path))
        rows = _of_table(table, reading.get("id_column"), reading.get("text_column"))
        return _assembled(rows, table.path, options)
    check_left_out(given, ("seed", "after_impression", "section"), function, "texts without columns")
    cells = checked_texts(texts or [], function, "the predictions in memory")
    rows = _Rows("texts in memory", cells, _Keys([str(place) for place in range(len(cells))], None, "place"))
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
    path = existing_file(Path(path), _NAME, "predictions")
    rows = _read_rows(path, id_column, text_column, encoding, separator)
    return _assembled(rows, path, _Options(ids, split, metadata, seed, after_impression, section))


def _assembled(rows: _Rows, path: str | Path, options: _Options) -> Reports:
    """Return one report a study."""
    ids, split, metadata, seed, after_impression, section = options
    if section is not None:
        check_section(section, _NAME)
    what, keys = rows.what, rows.keys
    if (keys is None) == (ids is None):
        rule = "given where the predictions have none" if ids is None else "left out where the predictions have ids"
        step = "Pass --ids FILE with an id a row, in the same order" if ids is None else "Drop it"
        msg = f"{_NAME}: ids must be {rule}; got {ids} for {path} ({what}). {step}."
        raise InputError(msg)
    if keys is None:
        keys = _read_keys(existing_file(Path(str(ids)), _NAME, "ids"), split or "test")
        n_ids = len(keys.studies or keys.images or [])
        if n_ids != len(rows.texts):
            msg = (
                f"{_NAME}: ids must be as many as the predictions, {len(rows.texts)} in {path} ({what}); got {n_ids} "
                f"in {ids}. Pass the file that the predictions were made for; a blank line counts as a report."
            )
            raise InputError(msg)
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
    return sort_out(first, f"{what}, id {keys.name}", counts, path, _NAME, keep_empty=True, section=said)


def _section(rows: _Rows, after_impression: bool, section: str | None) -> tuple[str | None, str]:
    """Return which section the predictions are, and what says so."""
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
    ending = file_ending(path)
    if ending in _LINES:
        _check_no_columns(path, id_column, text_column)
        if separator is not None:
            msg = f"{_NAME}: separator must be left out for text with a report a line; got a value for {path}. Drop it."
            raise InputError(msg)
        return _read_lines(path, encoding)
    if ending == ".csv":
        table_kind(path, _NAME, encoding=encoding, separator=separator)
        text, note = read_text(path, _NAME, encoding)
        column = _one_column(text, separator_of(text, "CSV", checked_separator(separator, _NAME)), path)
        if column is not None:
            is_header = bool(column[0]) and column[0].strip().lower() in (*_TEXTS, (text_column or "").lower())
            _check_no_columns(path, id_column, None if is_header else text_column)
            what = f"CSV with the column {column[0].strip()} alone" if is_header else _NO_HEADER
            section = section_of_column(column[0].strip()) if is_header else None
            return _Rows(", ".join(filter(None, [what, note])), list(column[is_header:]), None, section)
    return _of_table(read_table(path, _NAME, encoding=encoding, separator=separator), id_column, text_column)


def _of_table(table: Table, id_column: str | None, text_column: str | None) -> _Rows:
    path = table.path
    known = next((f"{model} {table.kind}" for model, names in _KNOWN if names <= set(table.names)), table.kind)
    name = _text_name(table, text_column)
    texts = table.column(name, _NAME, "text_column", is_text=True)
    for row, cell in enumerate(texts):
        if not isinstance(cell, str) and not is_missing(cell):
            msg = (
                f"{_NAME}: column {name!r} of {path} must hold text; got {type(cell).__name__} in row {row + 1}. "
                "Pass --predicted-text-column NAME."
            )
            raise InputError(msg)
    what = ", ".join(filter(None, [known, f"column {name}", table.note]))
    # An empty report is unquoted in CSV, and a cell without content in Excel: it is a failure of the model, not a study
    # that it was not asked for.
    absent = "" if table.kind in ("CSV", "TSV", "Excel") else None
    cells = [cell if isinstance(cell, str) else absent for cell in texts]
    return _Rows(what, cells, _keys(table, id_column), section_of_column(name))


def _check_no_columns(path: Path, id_column: str | None, text_column: str | None) -> None:
    """Raise where a column is named of a file that has none by name."""
    if id_column is not None or text_column is not None:
        msg = (
            f"{_NAME}: id_column and text_column must be left out where the predictions have no such columns; got "
            f"{shown_names([id_column or '', text_column or ''])} for {path}. Drop them."
        )
        raise InputError(msg)


def _read_lines(path: Path, encoding: str | None) -> _Rows:
    """Read one report a line, blank ones too, or the samples of M2 Trans."""
    text, note = read_text(path, _NAME, encoding)
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if _SAMPLE.fullmatch(lines[0]) is None:
        return _Rows(", ".join(filter(None, ["text, a report a line", note])), list(lines), None)
    samples = [_SAMPLE.fullmatch(line) for line in lines]
    if None in samples:
        msg = (
            f"{_NAME}: every line of {path} must be `id score text` as the first one is; got another form in line "
            f"{samples.index(None) + 1}. The file is cut short or damaged."
        )
        raise InputError(msg)
    parts = [(sample[1].partition("__"), sample[2] or "") for sample in samples if sample is not None]
    studies = canonical_ids([key[0] for key, _ in parts], _NAME, f"the first field of {path}")
    images = [key[2] for key, _ in parts]
    keys = _Keys(studies, images if all(images) else None, "first field")
    return _Rows("M2 Trans samples", [text for _, text in parts], keys)


def _one_column(text: str, separator: str, path: Path) -> list[str] | None:
    """Return the cells of a CSV file of one column, a blank line being an empty one; None for a wider file.

    Arrow's reader drops blank lines, which would shift every report after an empty one. Reports without header may hold
    semicolons or bars, which separate columns only where they cut all rows into as many.
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
                msg = (
                    f"{_NAME}: every row of {path} must be one cell, as its first is; got {len(row)} in row "
                    f"{len(cells) + 1}. Quote the reports."
                )
                raise InputError(msg)
            cells.append(row[0] if row else "")
    except csv.Error:
        msg = (
            f"{_NAME}: every quote in {path} must be closed; got another in row {len(cells) + 1}. "
            "The file is cut short or damaged."
        )
        raise InputError(msg) from None
    return cells


def _text_name(table: Table, text_column: str | None) -> str:
    if text_column is not None:
        return text_column
    for known in (_GENERATED, _TEXTS):
        found = [name for name in table.names if name.lower() in known]
        if len(found) == 1:
            return found[0]
        if found:
            break
    got = shown_names(found) or "none of a usual name"
    msg = (
        f"{_NAME}: text_column must be given where the header does not tell the predictions; got {got} in "
        f"{table.path}. Pass --predicted-text-column NAME; columns: {table.header}."
    )
    raise InputError(msg)


# Ids


def _keys(table: Table, id_column: str | None = None) -> _Keys | None:
    """Return the ids of a table's rows, None where no column has an id name."""
    image_name = table.image_name
    found = table.id_cells(_NAME, id_column)
    if found is None:
        return None
    cells, name = found
    ids = canonical_ids(cells, _NAME, f"{name!r} in {table.path}")
    if name == "path_to_image":
        return _Keys(chexpert_studies(ids, _NAME, f"{name!r} in {table.path}")[0], ids, name)
    if name == image_name:
        return _Keys(None, ids, name)
    images = None
    if image_name is not None:
        images = canonical_ids(table.column(image_name, _NAME, "id_column"), _NAME, f"{image_name!r} in {table.path}")
    return _Keys(ids, images, name)


def _read_keys(path: Path, wanted: str) -> _Keys:
    """Read the ids of predictions that have only an order."""
    if file_ending(path) in _LINES:
        text, _ = read_text(path, _NAME)
        return _Keys(canonical_ids(text.rstrip("\r\n").split("\n"), _NAME, str(path)), None, "line")
    table = read_table(path, _NAME)
    keys = _keys(table)
    if keys is None:
        msg = f"{_NAME}: ids must have a column with a usual id name; got {path}. Columns: {table.header}."
        raise InputError(msg)
    if "split" not in table.names:
        return keys
    splits = table.column("split", _NAME, "ids")
    rows = [row for row, name in enumerate(splits) if name in wanted.split("+")]
    if not rows:
        msg = (
            f"{_NAME}: ids must have rows of split {wanted!r} where it has a column split; got none in {path}, whose "
            f"splits are {shown_names(sorted(map(str, set(splits))))}. Name another with --split."
        )
        raise InputError(msg)
    studies, images = ([of[row] for row in rows] if of else None for of in (keys.studies, keys.images))
    return _Keys(studies, images, keys.name)


# One report a study


def _one_each(keys: _Keys, texts: Sequence[str | None], path: str | Path) -> dict[str, str | None]:
    """Return the text of each id; images of one study must agree unless their names say which is first."""
    if keys.name == "path_to_image":
        studies, places = chexpert_studies(keys.images or [], _NAME, str(path))
        return {studies[place]: texts[place] for place in places}
    first: dict[str, str | None] = {}
    differing: dict[str, None] = {}
    for key, text in zip(keys.studies or keys.images or [], texts, strict=True):
        if first.setdefault(key, text) != text:
            differing[key] = None
    if differing:
        step = "Pass --metadata mimic-cxr-2.0.0-metadata.csv.gz, which chooses by view" if keys.images else ""
        msg = (
            f"{_NAME}: predictions must be one text for each id; got {len(differing)} ids with several in {path}: "
            f"{shown_names(list(differing)[:3])}. {step or 'Keep one row each'}."
        )
        raise InputError(msg)
    return first


def _collapse(
    keys: _Keys, texts: Sequence[str | None], metadata: Path, seed: int, path: str | Path
) -> dict[str, str | None]:
    """Choose one image a study by the rule of Yu et al."""
    if keys.images is None:
        msg = (
            f"{_NAME}: metadata must be left out where the predictions have no image ids; got {metadata} for {path}. "
            "Drop it."
        )
        raise InputError(msg)
    study_of, view_of = _read_metadata(metadata)
    unknown = [image for image in keys.images if image not in study_of]
    if unknown:
        msg = (
            f"{_NAME}: metadata must have every image of the predictions; got {len(unknown)} that {metadata} lacks: "
            f"{shown_names(unknown[:3])}. Pass the metadata of this data set."
        )
        raise InputError(msg)
    text_of: dict[str, str | None] = {}
    images_of: dict[str, list[str]] = {}
    for place, (image, text) in enumerate(zip(keys.images, texts, strict=True)):
        study = study_of[image]
        if (keys.studies is not None and keys.studies[place] != study) or text_of.setdefault(image, text) != text:
            msg = (
                f"{_NAME}: an image must have one text and the study that the metadata says; got another for "
                f"{shown_names([image])} in {path}. Repair the file."
            )
            raise InputError(msg)
        images_of.setdefault(study, []).append(image)
    chosen = {}
    for study, images in images_of.items():
        pool = sorted({image for image in images if view_of[image] in _FRONTAL} or set(images))
        # A seed for each study, so that what else a model has written changes no choice.
        chosen[study] = text_of[random.Random(f"{seed} {study}").choice(pool)]
    return chosen


def _read_metadata(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the study and the view of each image; a missing view is recovered from its code."""
    table = read_table(existing_file(path, _NAME, "metadata"), _NAME)
    cells = [table.column(name, _NAME, "metadata") for name in ("dicom_id", "study_id", "ViewPosition")]
    images = canonical_ids(cells[0], _NAME, f"'dicom_id' in {path}")
    studies = canonical_ids(cells[1], _NAME, f"'study_id' in {path}")
    code = "ViewCodeSequence_CodeMeaning"
    codes = table.column(code, _NAME, "metadata") if code in table.names else [None] * len(images)
    views = [
        _VIEW_OF_CODE.get(str(meaning)) if is_missing(view) else view
        for view, meaning in zip(cells[2], codes, strict=True)
    ]
    return dict(zip(images, studies, strict=True)), dict(zip(images, views, strict=True))


def _after_impression(text: str | None) -> str | None:
    """Return what follows "Impression:", None where it does not occur in a text; an empty report stays empty."""
    if text is not None and not text.strip():
        return text
    _, header, rest = (text or "").partition("Impression:")
    return rest.strip() if header else None
