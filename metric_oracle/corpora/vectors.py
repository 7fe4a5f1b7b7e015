"""Embeddings and CheXbert labels that other tools wrote, as arrays with ids."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.joining import UNKNOWN, IdSource, check_joined, shared_column, source_of_ids
from metric_oracle.corpora.tables import (
    Table,
    canonical_ids,
    check_unique,
    chexpert_studies,
    columns_error,
    existing_file,
    numbers_of,
    read_table,
    shown_names,
    written,
)
from metric_oracle.corpora.text_files import check_unpacked, read_text
from metric_oracle.corpora.usual_names import is_id_name
from metric_oracle.errors import DtypeError, InputError, not_installed, option

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
# What NumPy and zipfile raise at a damaged file; RuntimeError is an encrypted one.
_DAMAGES = (
    *(ValueError, TypeError, EOFError, OSError, RuntimeError, MemoryError, OverflowError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Vectors:
    """Vectors of reports."""

    ids: list[str]
    values: npt.NDArray[np.float32]  # float32[n, d], one for each id; readers check that all are finite, none zero


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


def read_embeddings(path: str | Path, *, ids: str | Path | None = None) -> Vectors:
    """Read vectors of reports; `ids` is a file for `read_ids` if `path` has no ids, else None.

    The file is `.npy`; `.npz` with one 2-d array and maybe an array `ids`; `.parquet` with an id column and one column
    of lists; or `.pt` with a tensor or with CXR-Report-Metric's object row -> vector.
    """
    path = existing_file(Path(path))
    readers = {".npy": _read_npy, ".npz": read_npz, ".parquet": _read_parquet, ".pt": _read_pt}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"{path} is not a file of vectors by its ending, which must be one of {', '.join(readers)}.",
            "Convert the file.",
        )
    own_ids, array = reader(path)
    if (own_ids is None) == (ids is None):
        rule = "given where the file holds no ids" if ids is None else "left out where the file holds ids"
        raise InputError("ids", f"must be {rule}", f"{ids} for {path}", "Pass ids once.")
    if ids is not None:
        where = str(ids)
        id_list = read_ids(existing_file(Path(ids)))
    else:
        where = f"the ids of {path}"
        id_list = canonical_ids([] if own_ids is None else own_ids, where)
    return Vectors(id_list, checked_vectors(array, id_list, path, where))


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
            if not is_id_name(name) and not name.startswith("Unnamed:") and (id_cells is None or name != id_cells.name)
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
        is_bad &= written(cells, f"{what} of {path}").is_not_null()
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


def read_ids(path: Path) -> list[str]:
    """Return the ids in a text file with one id per line, or in the id column of a table."""
    if path.suffix.lower() == ".txt":
        text, _ = read_text(path)
        return canonical_ids(text.rstrip("\r\n").split("\n"), str(path))
    table = read_table(path)
    id_cells = table.id_cells()
    if id_cells is None:
        raise InputError(
            "ids",
            "must have a column with a usual id name",
            f"columns {table.header} in {path}",
            "Rename the column with the ids to study_id.",
        )
    return canonical_ids(id_cells, f"{id_cells.name!r} in {path}")


def checked_vectors(array: Any, ids: Sequence[str], path: str | Path, where: str) -> npt.NDArray[np.float32]:
    """Return vectors as float32[n, d]; raise InputError unless each id has one, finite and not all zero.

    Ids must differ. A zero vector has no cosine. `path` and `where` name the vectors and their ids in messages.
    """
    if array.ndim != 2 or array.dtype.kind != "f":
        raise DtypeError(
            "vectors",
            "must be a floating 2-d array",
            f"shape {array.shape} and dtype {array.dtype} in {path}",
            "Save one row for each report.",
        )
    if not array.size:
        raise InputError("vectors", "must be at least one", f"shape {array.shape} in {path}", "Check the file.")
    if len(ids) != len(array):
        raise InputError(
            "ids", "must be as many as vectors", f"{len(ids)} in {where} and {len(array)} in {path}", "Pass its ids."
        )
    check_unique(ids, where)
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, np.float32)
    for rule, is_bad in (("finite", ~np.isfinite(values).all(axis=1)), ("other than zero", ~values.any(axis=1))):
        if is_bad.any():
            row = int(is_bad.argmax())
            raise InputError(
                "every vector",
                f"must be {rule}",
                f"row {row + 1} (id {shown_names([ids[row]])}) in {path}",
                "Repair or drop it.",
            )
    return values


def _damaged(path: Path, kind: str) -> InputError:
    """Return the error for a damaged file of a kind such as ".npy file"."""
    return InputError(
        f"{path} is not a whole {kind} without pickled objects: it is damaged or of another format.", "Save it again."
    )


def _read_array(file: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Return the array of an open .npy file of `size` bytes; raise ValueError if its header promises another size.

    The size is checked before NumPy allocates memory, because a damaged header may promise any size.
    """
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = read_header[version](file) if version in read_header else ((), False, np.dtype("O"))
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _read_npy(path: Path) -> tuple[None, Any]:
    """Return None, because a .npy file has no ids, and the array in it; raise InputError if it is damaged."""
    try:
        with path.open("rb") as file:
            return None, _read_array(file, path.stat().st_size)
    except PermissionError:
        raise
    except _DAMAGES:
        raise _damaged(path, ".npy file") from None


def read_npz(path: Path) -> tuple[list[Any] | None, Any]:
    """Return the ids of an `.npz` file as text, None if it has none, and its only other array; or raise InputError."""
    # np.load would take any NumPy file whatever its ending, and of two members with one name the last.
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in arrays or name == member.filename:
                    raise _damaged(path, ".npz file")
                check_unpacked(member.compress_size, member.file_size, path)
                with archive.open(member) as file:
                    arrays[name] = _read_array(file, member.file_size)
    except (PermissionError, InputError):
        raise
    except _DAMAGES:
        raise _damaged(path, ".npz file") from None
    ids = arrays.pop("ids", None)
    try:
        id_list = None if ids is None else ids.astype(str).ravel().tolist()
    except UnicodeDecodeError:
        raise InputError(
            "ids", "must be text or numbers", f"bytes beyond ASCII in {path}", "Save them as text."
        ) from None
    if len(arrays) != 1:
        raise InputError(
            "an .npz file",
            "must hold ids and one array of vectors",
            f"{len(arrays)} arrays in {path}",
            "Save it again with these.",
        )
    return id_list, next(iter(arrays.values()))


def _read_parquet(path: Path) -> tuple["pl.Series", Any]:
    """Return the cells of the ids and the vectors, [n, d], of a Parquet file; raise InputError for other columns."""
    table = read_table(path)
    id_cells = table.id_cells()
    lists = [column for column in table.columns if isinstance(column, pa.ChunkedArray) and _is_list(column.type)]
    if id_cells is None or len(lists) != 1:
        raise InputError(
            "a Parquet file",
            "must have an id column and one column of lists",
            f"{len(lists)} columns of lists in {path}",
            f"Save both, and no other lists; columns: {table.header}.",
        )
    column = lists[0].combine_chunks()
    # flatten() heeds the offset of a slice and drops missing lists; .values does neither.
    flat = column.flatten()
    import pyarrow.compute as pc

    widths = set(pc.list_value_length(column).to_pylist())
    if len(widths) != 1 or None in widths or flat.null_count:
        raise InputError(f"the vectors of {path} must have one width and no missing value.", "Write the file again.")
    return id_cells, flat.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def _is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _read_pt(path: Path) -> tuple[None, Any]:
    """Return None, because a .pt file has no ids, and the array of its tensor, or of its dict of rows 0, 1, ..."""
    try:
        import torch
    except ImportError:
        raise not_installed(subject=f"the .pt file {path}", module="torch", extra="encoders") from None
    try:
        # PyTorch does not look at the checksums of the archive.
        if zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is not None:
            raise _damaged(path, ".pt file")
        data = torch.load(path, map_location="cpu", weights_only=True)
    except (PermissionError, InputError):
        raise
    except Exception:  # a damaged file has PyTorch's unpickler fail in any way
        raise _damaged(path, ".pt file") from None
    if isinstance(data, dict) and data:
        if sorted(data, key=str) != sorted(range(len(data)), key=str):
            raise InputError(
                f"the keys of the dict in {path} must be the rows from 0 to {len(data) - 1}.", "Save it with these."
            )
        rows = [data[row] for row in range(len(data))]
        if not all(_is_plain(torch, row) and row.shape == rows[0].shape for row in rows):
            raise DtypeError(
                "a .pt object",
                "must hold dense tensors of one shape",
                f"tensors of several shapes, or other objects, in {path}",
                "Run encode.py without the logits flag.",
            )
        data = torch.stack(rows)
    if not _is_plain(torch, data):
        got = f"a {data.layout} {data.dtype} tensor" if isinstance(data, torch.Tensor) else type(data).__name__
        raise DtypeError(
            "a .pt file",
            "must hold a dense tensor of numbers or an object row -> tensor",
            f"{got} in {path}",
            "Convert it.",
        )
    # NumPy has no bfloat16, and no conjugates that are still to be taken.
    return None, (data.float() if data.is_floating_point() else data).detach().resolve_conj().resolve_neg().numpy()


def _is_plain(torch: Any, data: Any) -> bool:
    """Return whether an object is a tensor that NumPy can hold: not sparse, quantised, nested or without values."""
    return (
        isinstance(data, torch.Tensor)
        and data.layout == torch.strided
        and not (data.is_quantized or data.is_nested or data.is_meta)
    )
