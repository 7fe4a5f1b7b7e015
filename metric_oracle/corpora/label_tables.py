"""CheXbert's labels, and labels with any names, from tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError, option
from metric_oracle.corpora.joining import UNKNOWN, IdSource, check_joined, shared_column, source_of_ids
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    chexpert_studies,
    columns_error,
    numbers_of,
    read_table,
    shown_names,
    written,
)
from metric_oracle.corpora.usual_names import IDS, bare_name

if TYPE_CHECKING:
    import polars as pl

LABELS = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    "No Finding",
)
FIVE_LABELS = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")  # most often counted
_SNAKE_LABELS = tuple(label.lower().replace(" ", "_") for label in LABELS)
_CLASS_OF_VALUE = {1.0: 1, 0.0: 2, -1.0: 3}
_CLASS_OF_INDEX = {0.0: 0, 1.0: 1, 2.0: 2, 3.0: 3}
# CheXbert's head for No Finding has two classes; some tools write its blank as 0.
_NO_FINDING_CLASS = {1.0: 1, 0.0: 0}


@dataclass(frozen=True)
class Labels:
    """CheXbert labels of reports."""

    ids: list[str] | None  # None if the rows belong to the reports in their order
    values: npt.NDArray[np.uint8]  # uint8[n, 14] in the order of `LABELS`: 0 blank, 1 positive, 2 negative, 3 uncertain


@dataclass(frozen=True)
class LabelTable:
    """Labels with any names."""

    ids: list[str]
    names: list[str]
    values: npt.NDArray[np.uint8]  # uint8[n, number of names]: 0 blank, 1 positive, 2 negative, 3 uncertain
    ids_from: IdSource = UNKNOWN


def is_abnormality(label: str) -> bool:
    """Return whether a label names an abnormality; "No Finding", in any spelling, means the absence of all."""
    return label.strip().lower().replace("_", " ") != "no finding"


def read_labels(path: str | Path, *, id_column: str | None = None) -> Labels:
    """Read CheXbert labels, matched by name in any order.

    Columns called as in `LABELS` hold 1, 0, -1 and empty (CheXbert, MIMIC-CXR-JPG, CheXpert Plus); columns in snake
    case hold class indices 0 to 3 (CvT2DistilGPT2). Images of one CheXpert Plus study become the first in path order.
    `id_column` is for ids under an unusual name.
    """
    return labels_of_table(read_table(Path(path)), id_column=id_column)


def labels_of_table(table: Table, *, id_column: str | None = None) -> Labels:
    """Return the CheXbert labels in a table in memory, see `read_labels`."""
    path = table.path
    is_snake = _SNAKE_LABELS[0] in table.names
    names = _SNAKE_LABELS if is_snake else LABELS
    absent = [name for name in names if name not in table.names]
    if absent:
        raise InputError(f"{path} lacks columns of the 14 CheXbert labels: {', '.join(absent)}.", "Rename them.")
    values = np.empty((table.n_rows, len(LABELS)), np.uint8)
    for place, name in enumerate(names):
        class_of = _CLASS_OF_INDEX if is_snake else _CLASS_OF_VALUE
        if LABELS[place] == "No Finding":
            class_of = _NO_FINDING_CLASS
        values[:, place] = _classes(table.column(name), class_of, f"column {name!r}", path, may_miss=not is_snake)

    id_cells = table.id_cells(id_column)
    if id_cells is None:
        return Labels(None, values)
    where = f"{id_cells.name!r} in {path}"
    ids = canonical_ids(id_cells, where)
    if id_cells.name == "path_to_image":
        studies, rows = chexpert_studies(ids, where)
        ids, values = [studies[row] for row in rows], values[rows]
    check_unique(ids, where)
    return Labels(ids, values)


def read_label_table(path: str | Path, *, id_column: str | None = None, is_optional: bool = False) -> LabelTable:
    """Read labels with any names, and the id of the report of each row, which must have one.

    A file with CheXbert's 14 columns is read as `read_labels` does. In any other file every column besides the ids is a
    label that holds 1, 0, -1 (uncertain) or empty (blank). `is_optional` says whether the user can name the column of
    the ids, see `Table.id_cells`.
    """
    return label_table_of(read_table(Path(path)), id_column, is_optional=is_optional)


def label_table_of(
    table: Table, id_column: str | None = None, *, by_place: bool = False, is_optional: bool = False
) -> LabelTable:
    """Return the labels in a table that is in memory, see `read_label_table`.

    With `by_place`, a table without ids has the row numbers "0", "1", ...; otherwise it raises InputError.
    """
    path = table.path
    id_cells = table.id_cells(id_column, is_optional=is_optional)
    ids_from = UNKNOWN if id_cells is None else source_of_ids(table, id_cells.name, id_column)
    if set(LABELS) <= set(table.names) or set(_SNAKE_LABELS) <= set(table.names):
        labels = labels_of_table(table, id_column=id_column)
        ids, names, values = labels.ids, list(LABELS), labels.values
    else:
        ids = None if id_cells is None else canonical_ids(id_cells, f"{id_cells.name!r} in {path}")
        names = [
            name
            for name in table.names
            if bare_name(name) not in IDS | {"subject_id", ""}
            and not name.startswith("Unnamed:")
            and (id_cells is None or name != id_cells.name)
        ]
        columns = [table.column(name) for name in names]
        values = np.array(
            [
                _classes(cells, _CLASS_OF_VALUE, f"label column {place} ({shown_names([name])})", path, may_miss=True)
                for place, (name, cells) in enumerate(zip(names, columns, strict=True), start=1)
            ],
            np.uint8,
        ).T
    if ids is None and by_place:
        ids = [str(place) for place in range(len(values))]
    if ids is None:
        raise columns_error(table, "has no column of ids", [option("id_column", "NAME")] if is_optional else [])
    if not ids or not names:
        raise InputError(
            f"{path} must have at least one report and one label; it has {len(ids)} and {len(names)}.",
            "Check the file.",
        )
    check_unique(ids, str(path))
    return LabelTable(ids, names, values, ids_from)


def read_label_tables(paths: tuple[str | Path, str | Path], id_column: str | None) -> tuple[LabelTable, LabelTable]:
    """Read the labels of references and of predictions, by the column of ids that both have; see `read_label_table`.

    `id_column` names that of both, unless it is None. Raise InputError if the ids are of two kinds.
    """
    both = [read_label_table(path, id_column=id_column, is_optional=True) for path in paths]
    names = shared_column(*(table.ids_from for table in both))
    if names is not None:
        both = [
            read_label_table(path, id_column=name, is_optional=True) for path, name in zip(paths, names, strict=True)
        ]
    check_joined(both[0].ids_from, both[1].ids_from, lambda line: None)
    return both[0], both[1]


def _classes(
    cells: "pl.Series", class_of: dict[float, int], what: str, path: str | Path, *, may_miss: bool
) -> npt.NDArray[np.uint8]:
    """Return the class of each cell of a label column; raise InputError for a cell that is not valid.

    `class_of` is number -> class, `what` and `path` name the column, a missing cell is blank with `may_miss`.
    """
    import polars as pl

    cells = cells.cast(pl.Int8) if cells.dtype == pl.Boolean else cells
    classes = numbers_of(cells).replace_strict(
        list(class_of), list(class_of.values()), default=None, return_dtype=pl.UInt8
    )
    is_bad = classes.is_null()
    if may_miss:
        is_bad &= written(cells).is_not_null()
    row = is_bad.arg_max()
    if row is not None and is_bad[row]:
        allowed = ", ".join(f"{value:g}" for value in class_of) + (" or empty" if may_miss else "")
        raise InputError(
            f"{what} of {path}",
            f"must hold {allowed}",
            f"another value in row {row + 1}",
            "Repair it.",
        )
    return classes.fill_null(0).to_numpy()
