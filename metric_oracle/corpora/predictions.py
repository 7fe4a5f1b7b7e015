"""Generated reports: one text for each study, from the files that the code of the models writes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle import choices
from metric_oracle.arguments import check_left_out, check_options
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.joining import PLACE, IdSource
from metric_oracle.corpora.missing import checked_texts
from metric_oracle.corpora.prediction_files import NO_HEADER, Keys, Rows, read_keys, read_rows, rows_of_table
from metric_oracle.corpora.prediction_views import text_of_chosen_image
from metric_oracle.corpora.reports import Reports, one_text_each, sort_out
from metric_oracle.corpora.sections import JOINED, NO_HEADINGS, by_headings, under_heading, under_note, without_headings
from metric_oracle.corpora.tables import chexpert_studies, columns_error, existing_file, single_texts
from metric_oracle.errors import InputError, of_predictions, option

# Models whose files have both sections: Yu et al. compare them so (table S7).
_JOINTLY = ("CvT2DistilGPT2", NO_HEADER)


class _Options(NamedTuple):
    """Options of `read_predictions` that apply to files and containers."""

    ids: str | Path | None = None
    split: str | None = None
    metadata: str | Path | None = None
    seed: int = 0
    after_impression: bool = False
    section: str | None = None
    wanted: str | None = None  # section of what the predictions are compared with


@of_predictions()
def as_predictions(predictions: Any, *, wanted: str | None = None, **reading: Any) -> Reports:
    """Return the reports of a model from a path, Reports or a container, see `corpora.reports.as_reports`.

    Empty reports are kept. Texts without ids get the ids "0", "1", ... `reading` are options of `read_predictions`.
    `wanted` is the section of what the predictions are compared with: texts that hold both sections under their names
    are cut to it, unless an option names another one.
    """
    of_file = ("id_column", "text_column", "encoding", "separator")
    check_options(reading, (*_Options._fields[:-1], *of_file))
    options = _Options(**{name: value for name, value in reading.items() if name not in of_file}, wanted=wanted)
    if isinstance(predictions, str | Path):
        path = existing_file(Path(predictions))
        return _assembled(read_rows(path, *map(reading.get, of_file)), path, options)
    given = {name: value for name, value in reading.items() if value not in (False, 0)}
    if isinstance(predictions, Reports):
        check_left_out(given, "for Reports, which are read")
        return predictions
    table, texts = in_memory(predictions)
    if table is not None:
        check_left_out({name: reading.get(name) for name in ("encoding", "separator")}, f"for {table.path}")
        rows = rows_of_table(table, reading.get("id_column"), reading.get("text_column"))
        return _assembled(rows, table.path, options)
    check_left_out(given, "for texts without columns", allowed=("seed", "after_impression", "section"))
    where = "the predictions in memory"
    cells = checked_texts(single_texts(texts or [], where), where)
    rows = Rows("texts in memory", cells, Keys([str(i) for i in range(len(cells))], None, "place"), ids_from=PLACE)
    return _assembled(rows, "the texts in memory", options)


@of_predictions()
def read_predictions(
    path: str | Path,
    *,
    ids: str | Path | None = None,
    split: str | None = None,
    metadata: str | Path | None = None,
    seed: choices.Seed = 0,
    after_impression: bool = False,
    id_column: str | None = None,
    text_column: str | None = None,
    section: choices.Section | None = None,
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
        Use what follows "Impression:"; a prediction without it counts as missing. Texts of which most have both
        "Findings:" and "Impression:" need only `section`.
    id_column, text_column : str, optional
        Columns of a table, where their names do not tell.
    section : {"impression", "findings", "findings+impression"}, optional
        What the model writes, where the file does not say it, or says something else. Of texts that hold both sections
        after "Findings:" and "Impression:", the part that is read; by default both, without these words.
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
    path = existing_file(Path(path))
    rows = read_rows(path, id_column, text_column, encoding, separator)
    return _assembled(rows, path, _Options(ids, split, metadata, seed, after_impression, section))


def _assembled(rows: Rows, path: str | Path, options: _Options) -> Reports:
    """Return the rows of a file or container as Reports, one for each study; `path` names it in messages."""
    ids, split, metadata, seed, after_impression, section, _ = options
    if after_impression and section not in (None, "impression"):
        raise InputError(
            "section",
            f"must be impression with {option('after_impression', True)}",
            section,
            f"Leave {option('after_impression')} out: texts with both headings are cut to the section.",
        )
    what, keys, ids_from = rows.what, rows.keys, rows.ids_from
    if (keys is None) == (ids is None):
        in_order = f"{option('ids', 'FILE')} with one id per row, in the same order."
        if ids is not None:
            raise InputError(f"{path} has ids, and {ids} is given for them ({what}).", f"Drop {option('ids')}.")
        if rows.table is None:
            raise InputError(f"{path} has no ids ({what}).", f"Pass {in_order}")
        more = f" If none of them has ids, pass {in_order}"
        raise columns_error(rows.table, f"has no ids ({what})", [option("id_column", "NAME")], more)
    if keys is None:
        keys = read_keys(existing_file(Path(str(ids))), split or "test")
        n_ids = len(keys.studies or keys.images or [])
        if n_ids != len(rows.texts):
            raise InputError(
                f"{path} has {len(rows.texts)} predictions ({what}), and {ids} has {n_ids} ids.",
                "Pass the file that the predictions were made for; a blank line counts as a report.",
            )
        what = f"{what}, in the order of {Path(str(ids)).name}"
    texts, known_section, note = _of_section(rows, options)
    what = ", ".join(filter(None, [what, note]))
    if metadata is not None:
        first = text_of_chosen_image(keys, texts, Path(metadata), seed, path)
        ids_from = IdSource("study_id", "name")
        what += f", one image a study by view (seed {seed})"
    else:
        first = _one_each(keys, texts, path)
    counts = {"rows": len(texts), "duplicate": len(texts) - len(first)}
    return sort_out(
        first, f"{what}, id {keys.name}", counts, path, keep_empty=True, section=known_section, ids_from=ids_from
    )


def _of_section(rows: Rows, options: _Options) -> tuple[Sequence[str | None], tuple[str | None, str], str]:
    """Return the texts of the wanted section, (their section, how it is known), and a note on what was done or ""."""
    said = options.section
    if options.after_impression:
        cut = [text and under_heading(text, "impression") for text in rows.texts]
        return cut, ("impression", "headers"), under_note("impression")
    known: tuple[str | None, str] = (None, "") if rows.section is None else (rows.section, "column")
    texts, known, note = by_headings(rows.texts, said or options.wanted, known)
    if note:
        return texts, known, note
    if said is not None:
        known = said, "caller"
    elif known[0] is None and rows.what.startswith(_JOINTLY):
        known = JOINED, "paper"
    if known[0] == JOINED:  # a few texts may have headings
        texts = [text and without_headings(text) for text in rows.texts]
    return texts, known, NO_HEADINGS if texts != rows.texts else ""


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
    step = f"Pass {option('metadata', 'mimic-cxr-2.0.0-metadata.csv.gz')}, which chooses images by view."
    return one_text_each(keys.studies or keys.images, texts, path, step)
