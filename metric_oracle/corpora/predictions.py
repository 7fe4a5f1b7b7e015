"""Generated reports: one text for each study, from the files that the code of the models writes."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.joining import PLACE, IdSource
from metric_oracle.corpora.prediction_files import NO_HEADER, Keys, Rows, read_keys, read_rows, rows_of_table
from metric_oracle.corpora.read import DEFAULT, Read, check_applies
from metric_oracle.corpora.reports import Reports, one_text_each, sort_out
from metric_oracle.corpora.sections import JOINED, NO_HEADINGS, by_headings, under_heading, under_note, without_headings
from metric_oracle.corpora.tables import (
    are_mimic_images,
    canonical_ids,
    check_unique,
    chexpert_studies,
    columns_error,
    existing_file,
    named,
    read_table,
    single_texts,
)
from metric_oracle.corpora.texts import checked_texts, is_missing
from metric_oracle.corpora.usual_names import has_other_ids

# Models whose files have both sections: Yu et al. compare them so (table S7).
_JOINTLY = ("CvT2DistilGPT2", NO_HEADER)
_FRONTAL = {"AP", "PA"}
_VIEW_OF_CODE = {"antero-posterior": "AP", "postero-anterior": "PA"}


def as_predictions(predictions: Any, read: Read = DEFAULT, *, wanted: str | None = None) -> Reports:
    """Return the reports of a model from a path, Reports or a container, see `corpora.reports.as_reports`.

    Empty reports are kept. Texts without ids get the ids "0", "1", ... `wanted` is the section of what the predictions
    are compared with: texts that hold both sections under their names are cut to it, unless `read` names another one.
    """
    check_applies(read, "predictions")
    if isinstance(predictions, str | Path):
        path = Path(predictions)
        path = path if path.is_dir() else existing_file(path)
        rows = read_rows(path, read.id_column, read.text_column, read.encoding, read.separator, read.section or wanted)
        return _assembled(rows, path, read, wanted)
    if isinstance(predictions, Reports):
        check_applies(read, "Reports, which are read already")
        check_unique(predictions.ids, "ids")  # those of loaded reports may repeat
        return predictions
    table, texts = in_memory(predictions)
    if table is not None:
        check_applies(read, "a table in memory", f"for {table.path}")
        return _assembled(
            rows_of_table(table, read.id_column, read.text_column, read.section or wanted), table.path, read, wanted
        )
    check_applies(read, "texts without columns")
    where = "the predictions in memory"
    cells = checked_texts(single_texts(texts or [], where), where)
    rows = Rows("texts in memory", cells, Keys([str(i) for i in range(len(cells))], None, "place"), ids_from=PLACE)
    return _assembled(rows, "the texts in memory", read, wanted)


@public
def read_predictions(path: str | Path, read: Read | None = None) -> Reports:
    """Read the reports that a model wrote, from a file whose layout follows from its header and content.

    Parameters
    ----------
    path : str or path
        CSV, TSV, Parquet, JSON, JSON Lines, Excel, text with one report a line, or a folder with a text file for each
        report, called by its id. docs/formats.md lists the models whose files are recognised.
    read : Read, optional
        How they are read: [`Read`][metric_oracle.Read]. Predictions that have only an order need its `ids`, those of
        images its `metadata`.

    Returns
    -------
    Reports
        Empty texts are kept, because an empty report is a failure of the model: an empty cell of a CSV or Excel file is
        one, quoted or not. `states` lists the studies whose report is missing (null in JSON and Parquet, in any file a
        word such as "nan" alone); these are left out.

    Raises
    ------
    InputError
        If the file does not exist or cannot be read, ids are missing or occur twice, or the file of `ids` has another
        number of rows.

    Examples
    --------
    >>> len(mo.read_predictions("strong.csv").ids)
    24
    """
    return as_predictions(Path(path), read or DEFAULT)


def _assembled(rows: Rows, path: str | Path, read: Read, wanted: str | None) -> Reports:
    """Return the rows of a file or container as Reports, one for each study; `path` names it in messages."""
    ids = read.ids
    if read.after_impression and read.section not in (None, "impression"):
        raise InputError(
            "section",
            "must be impression with `mo.reports(..., mo.Read(after_impression=True))`",
            read.section,
            "Leave `after_impression` out: texts with both headings are cut to the section.",
        )
    what, keys, ids_from = rows.what, rows.keys, rows.ids_from
    if (keys is None) == (ids is None):
        in_order = "`mo.reports(..., mo.Read(ids=FILE))` with one id per row, in the same order."
        if ids is not None:
            raise InputError(f"{path} has ids, and {shown(ids)} is given for them ({what}).", "Drop `ids`.")
        if rows.table is None:
            raise InputError(f"{path} has no ids ({what}).", f"Pass {in_order}")
        more = f" If none of them has ids, pass {in_order}"
        raise columns_error(rows.table, f"has no ids ({what})", named("NAME", read.text_column), more)
    if keys is None:
        keys = read_keys(existing_file(Path(str(ids))), read.split or "test")
        n_ids = len(keys.studies or keys.images or [])
        if n_ids != len(rows.texts):
            raise InputError(
                f"{path} has {len(rows.texts)} predictions ({what}), and {shown(ids)} has {n_ids} ids.",
                "Pass the file that the predictions were made for; a blank line counts as a report.",
            )
        what = f"{what}, in the order of {Path(str(ids)).name}"
    texts, known_section, note = _of_section(rows, read, wanted)
    what = ", ".join(filter(None, [what, note]))
    if read.metadata is not None:
        first = _text_of_chosen_image(keys, texts, Path(read.metadata), read.seed, path)
        ids_from = IdSource("study_id", "name")
        what += f", one image a study by view (seed {read.seed})"
    else:
        first = _one_each(keys, texts, path)
    counts = {"rows": len(texts), "duplicate": len(texts) - len(first)}
    reports = sort_out(first, f"{what}, id {keys.name}", counts, path, keep_empty=True, section=known_section)
    is_chosen = read.id_column is None and ids is None and has_other_ids(ids_from.columns, keys.name)
    is_cut = note == NO_HEADINGS and (read.section or wanted) is None
    chosen = [note if is_cut else "", f"id {keys.name}" if is_chosen else ""]
    return replace(reports, ids_from=ids_from, chosen=(*rows.chosen, *filter(None, chosen)))


def _of_section(rows: Rows, read: Read, wanted: str | None) -> tuple[Sequence[str | None], tuple[str | None, str], str]:
    """Return the texts, (their section, how it is known), and a note on what was done or "".

    They are cut to the wanted section if most have headings. Raise InputError as `by_headings` does.
    """
    caller_section = read.section
    if read.after_impression:
        cut = [text and under_heading(text, "impression") for text in rows.texts]
        return cut, ("impression", "headers"), under_note("impression")
    known_section: tuple[str | None, str] = (None, "") if rows.section is None else (rows.section, "column")
    texts, known_section, note = by_headings(rows.texts, caller_section or wanted, known_section)
    if note:
        return texts, known_section, note
    if caller_section is not None:
        known_section = caller_section, "caller"
    elif known_section[0] is None and rows.what.startswith(_JOINTLY):
        known_section = JOINED, "paper"
    if known_section[0] == JOINED:  # a few texts may have headings
        texts = [text and without_headings(text) for text in rows.texts]
    return texts, known_section, NO_HEADINGS if texts != rows.texts else ""


def _one_each(keys: Keys, texts: Sequence[str | None], path: str | Path) -> dict[str, str | None]:
    """Return id -> text, for studies if their ids are known, else for images; `path` names the file in messages.

    Rows with the same id must have the same text. Only of CheXpert Plus, whose paths give an order of the images of a
    study, the first counts.
    """
    if keys.name == "path_to_image":
        studies, rows = chexpert_studies(keys.images or [], str(path))
        return {studies[row]: texts[row] for row in rows}
    if not keys.images:
        return one_text_each(keys.studies or [], texts, path)
    step = "Keep one image for each study."
    if are_mimic_images(keys.images):
        step = (
            "Pass `mo.reports(..., mo.Read(metadata='mimic-cxr-2.0.0-metadata.csv.gz'))`, which chooses images by view."
        )
    return one_text_each(keys.studies or keys.images, texts, path, step)


def _text_of_chosen_image(
    keys: Keys, texts: Sequence[str | None], metadata: Path, seed: int, path: str | Path
) -> dict[str, str | None]:
    """Return id of a study -> text of one of its images, chosen by the rule of Yu et al.

    That is a random frontal image, or if there is none, a random other one; the study and `seed` decide. `keys` and
    `texts` are those of the rows, `metadata` is MIMIC-CXR's table of images, and `path` is for messages.
    """
    if keys.images is None:
        raise InputError(
            "metadata",
            "must be left out for predictions without image ids",
            f"{shown(metadata)} for {path}",
            "Leave out `metadata`.",
        )
    study_of, view_of = _read_metadata(metadata)
    unknown = [image for image in keys.images if image not in study_of]
    if unknown:
        raise InputError(
            f"{metadata} lacks {len(unknown)} images of the predictions: {shown(*unknown[:3])}.",
            "Pass the metadata of this data set.",
        )
    text_of: dict[str, str | None] = {}
    images_of: dict[str, list[str]] = {}
    for row, (image, text) in enumerate(zip(keys.images, texts, strict=True)):
        study = study_of[image]
        if (keys.studies is not None and keys.studies[row] != study) or text_of.setdefault(image, text) != text:
            raise InputError(
                f"{path} has image {shown(image)} with two texts, or in another study than the metadata.",
                "Repair the file.",
            )
        images_of.setdefault(study, []).append(image)
    text_of_study = {}
    for study, images in images_of.items():
        candidates = sorted({image for image in images if view_of[image] in _FRONTAL} or set(images))
        # A seed for each study, so that its choice does not depend on other predictions.
        text_of_study[study] = text_of[random.Random(f"{seed} {study}").choice(candidates)]
    return text_of_study


def _read_metadata(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return image -> study, and image -> view. A missing view is derived from the meaning of its numeric code."""
    table = read_table(path)
    cells = [table.column(name) for name in ("dicom_id", "study_id", "ViewPosition")]
    images = canonical_ids(cells[0], f"'dicom_id' in {path}")
    studies = canonical_ids(cells[1], f"'study_id' in {path}")
    code = "ViewCodeSequence_CodeMeaning"
    codes = table.column(code) if code in table.names else [None] * len(images)
    views = [
        _VIEW_OF_CODE.get(str(meaning)) if is_missing(view) else view
        for view, meaning in zip(cells[2], codes, strict=True)
    ]
    return dict(zip(images, studies, strict=True)), dict(zip(images, views, strict=True))
