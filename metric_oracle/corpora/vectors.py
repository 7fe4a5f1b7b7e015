"""Embeddings that other tools wrote, as arrays with ids."""

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

from metric_oracle.base.errors import DtypeError, InputError, not_installed, shown
from metric_oracle.corpora.tables import (
    canonical_ids,
    check_unique,
    existing_file,
    read_table,
)
from metric_oracle.corpora.text_files import check_unpacked, read_text

if TYPE_CHECKING:
    import polars as pl

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
        raise InputError("ids of the vectors", f"must be {rule}", f"{ids} for {path}", "Pass ids once.")
    if ids is not None:
        where = str(ids)
        id_list = read_ids(existing_file(Path(ids)))
    else:
        where = f"the ids of {path}"
        id_list = canonical_ids([] if own_ids is None else own_ids, where)
    return Vectors(id_list, checked_vectors(array, id_list, path, where))


def read_ids(path: Path) -> list[str]:
    """Return the ids in a text file with one id per line, or in the id column of a table."""
    if path.suffix.lower() == ".txt":
        text, _ = read_text(path)
        return canonical_ids(text.rstrip("\r\n").split("\n"), str(path))
    table = read_table(path)
    id_cells = table.id_cells()
    if id_cells is None:
        raise InputError(
            "ids of the vectors",
            "must have a column with a usual id name",
            f"columns {table.header} in {path}",
            "Rename the column with the ids to study_id.",
        )
    return canonical_ids(id_cells, f"{shown(id_cells.name)} in {path}")


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
            "ids of the vectors",
            "must be as many as vectors",
            f"{len(ids)} in {where} and {len(array)} in {path}",
            "Pass its ids.",
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
                f"row {row + 1} (id {shown(ids[row])}) in {path}",
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
            "ids of the vectors", "must be text or numbers", f"bytes beyond ASCII in {path}", "Save them as text."
        ) from None
    if len(arrays) != 1:
        raise InputError(
            "an .npz file",
            "must hold one array of vectors, and ids under the name ids",
            f"{len(arrays)} arrays beside ids in {path}",
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
        raise InputError(
            f"the vectors of {path} must have rows, of one width and without missing values.", "Write the file again."
        )
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
