"""CheXbert's labels, and labels with any names, from tables."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.arrays import as_array
from metric_oracle.corpora.joining import UNKNOWN, IdSource, check_joined, shared_column, source_of_ids
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    chexpert_studies,
    columns_error,
    numbers_of,
    read_table,
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
_BARE_LABELS = tuple(map(bare_name, LABELS))
_CLASS_OF_VALUE = {1.0: 1, 0.0: 2, -1.0: 3}
_CLASS_OF_INDEX = {0.0: 0, 1.0: 1, 2.0: 2, 3.0: 3}
_INDICES_ALONE, _CODES_ALONE = (2.0, 3.0), (-1.0,)
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

    Cells are 1, 0, -1 and empty (CheXbert, MIMIC-CXR-JPG, CheXpert Plus), or, where one is 2 or 3 and none is -1 or
    empty, the class indices 0 to 3 (CvT2DistilGPT2); the spelling of the names does not count. Images of one CheXpert
    Plus study become the first in path order.
    `id_column` is for ids under an unusual name.
    """
    return labels_of_table(read_table(Path(path)), id_column=id_column)


def labels_of_table(table: Table, *, id_column: str | None = None) -> Labels:
    """Return the CheXbert labels in a table in memory, see `read_labels`."""
    path = table.path
    names = _spelled(table)
    absent = [label for label, name in zip(LABELS, names, strict=True) if name is None]
    if absent:
        raise InputError(f"{path} lacks columns of the 14 CheXbert labels: {', '.join(absent)}.", "Rename them.")
    columns = [table.column(str(name)) for name in names]
    cells = np.array([_with_nan(column) for column in columns]).T
    # Under the names that labelers write, 0 is negative.
    is_index = _are_indices(cells, f"the labels of {path}", is_stated=tuple(names) == LABELS)
    values = np.empty((table.n_rows, len(LABELS)), np.uint8)
    for place, column in enumerate(columns):
        class_of = _CLASS_OF_INDEX if is_index else _CLASS_OF_VALUE
        if LABELS[place] == "No Finding":
            class_of = _NO_FINDING_CLASS
        values[:, place] = _classes(column, class_of, f"column {shown(names[place])}", path, may_miss=not is_index)

    id_cells = table.id_cells(id_column)
    if id_cells is None:
        return Labels(None, values)
    where = f"{shown(id_cells.name)} in {path}"
    ids = canonical_ids(id_cells, where)
    if id_cells.name == "path_to_image":
        studies, rows = chexpert_studies(ids, where)
        ids, values = [studies[row] for row in rows], values[rows]
    check_unique(ids, where)
    return Labels(ids, values)


def _spelled(table: Table) -> list[str | None]:
    """Return the column of each of `LABELS` in a table, however it is spelled, None for none.

    Raise InputError for several of one label.
    """
    spellings = [
        [name for name in table.names if bare_name(name).replace("_", "") == bare.replace("_", "")]
        for bare in _BARE_LABELS
    ]
    for label, names in zip(LABELS, spellings, strict=True):
        if len(names) > 1 and label not in names:
            raise InputError(
                f"{table.path} has several columns of the label {label}: {shown(*map(str, names))}.",
                "Keep one of them.",
            )
    return [
        label if label in names else names[0] if names else None for label, names in zip(LABELS, spellings, strict=True)
    ]


def _with_nan(cells: "pl.Series") -> npt.NDArray[np.float64]:
    """Return the numbers in a column of labels, NaN for a missing cell, and infinity for one that is no number."""
    import polars as pl

    numbers = numbers_of(cells.cast(pl.Int8) if cells.dtype == pl.Boolean else cells)
    is_text = numbers.is_null() & written(cells).is_not_null()
    return np.asarray(numbers.set(is_text, float("inf")).to_numpy(), np.float64)


def _are_indices(cells: npt.NDArray[np.float64], what: str, *, is_stated: bool) -> bool:
    """Return whether cells, float64[n, 14] with NaN for missing ones, are class indices, not 1, 0, -1 and empty.

    A 2 or 3 says so, an empty cell or -1 the contrary. Without either, 0 may be negative or blank: raise InputError,
    which names the labels as `what`, unless `is_stated` says that it is negative.
    """
    others = cells[:, [place for place, label in enumerate(LABELS) if label != "No Finding"]]
    if np.isnan(cells).any() or np.isin(cells, _CODES_ALONE).any():
        return False
    if np.isin(others, _INDICES_ALONE).any():
        return True
    if not is_stated and (others == 0).any():
        raise InputError(
            what,
            "must show whether 0 means negative (beside 1, -1 and empty) or blank (as class beside 1, 2 and 3)",
            "0 and 1 alone",
            f"Write a table with the columns {', '.join(map(repr, LABELS[:2]))}, ..., as CheXbert does: there 0 is "
            "negative, and blank is an empty cell. In Python classes are also told by their type, numpy.uint8.",
        )
    return False


def classes_of(values: Any) -> npt.NDArray[np.uint8] | None:
    """Return the classes of labels in memory, n rows of 14 numbers, as `Labels.values`; None for anything else.

    They are 1, 0, -1 and NaN or None, or classes 0 to 3: unsigned integers are classes, and so are numbers of which one
    is 2 or 3 and none is missing or -1. Raise InputError for 0 and 1 alone, which may be either.
    """
    try:
        array = as_array(values)
        is_number = array.dtype.kind in "iuf" or (
            array.dtype.kind == "O"
            and all(
                cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool)) for cell in array.flat
            )
        )
        if not is_number or array.shape[1:] != (len(LABELS),):
            return None
        cells = array.astype(np.float64)
    except (TypeError, ValueError):
        return None
    class_of = _CLASS_OF_VALUE
    if array.dtype.kind == "u" or _are_indices(cells, "labels", is_stated=False):
        class_of = _CLASS_OF_INDEX
    if not (np.isin(cells, list(class_of)) | (np.isnan(cells) & (class_of is _CLASS_OF_VALUE))).all():
        return None
    classes = np.zeros(cells.shape, np.uint8)
    for number, one in class_of.items():
        classes[cells == number] = one
    if class_of is _CLASS_OF_VALUE:  # in this column 0 is blank, as in files
        last = LABELS.index("No Finding")
        classes[cells[:, last] == 0, last] = 0
    return classes


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
    path, table = table.path, replace(table, said_as="{}")
    id_cells = table.id_cells(id_column, is_optional=is_optional)
    ids_from = UNKNOWN if id_cells is None else source_of_ids(table, id_cells.name, id_column)
    if None not in _spelled(table):
        labels = labels_of_table(table, id_column=id_column)
        ids, names, values = labels.ids, list(LABELS), labels.values
    else:
        ids = None if id_cells is None else canonical_ids(id_cells, f"{shown(id_cells.name)} in {path}")
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
                _classes(cells, _CLASS_OF_VALUE, f"label column {place} ({shown(name)})", path, may_miss=True)
                for place, (name, cells) in enumerate(zip(names, columns, strict=True), start=1)
            ],
            np.uint8,
        ).T
    if ids is None and by_place:
        ids = [str(place) for place in range(len(values))]
    if ids is None:
        raise columns_error(table, "has no column of ids", {"id_column": "NAME"} if is_optional else {})
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
    check_joined(both[0].ids_from, both[1].ids_from, lambda line: None, are_reports=False)
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
