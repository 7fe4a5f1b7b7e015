"""Write arrays and strings to Arrow IPC files, on disk or in memory, and read them back without a copy.

Arrays of different lengths share a file: the file is a table with one row, whose cells are lists. So a representation
is one file, and its arrays reach the kernels without a copy. Numeric arrays begin at multiples of `ALIGNMENT` bytes.
Arrow's writer only guarantees multiples of 8, so a filler column precedes each of them.
"""

import hashlib
import mmap
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias, overload
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from metric_oracle.base import checksum
from metric_oracle.base.checksum import string_parts
from metric_oracle.base.operating_system import release_pages

ALIGNMENT = 64  # bytes of a cache line, and of an AVX-512 register
_FILLER = "filler"
BATCH = 1 << 16  # strings that are converted at once
FEW = 1 << 12  # up to this number, strings are selected without Arrow's functions
PIECE = 1 << 26  # bytes that are written or hashed before their pages are released
_TEXT, _NUMBER = pa.large_string(), pa.int64()
# Columns of the tables of corpus rows and of distinct texts.
REPORTS = pa.schema({"row": _NUMBER, "study_id": _TEXT, "text": _TEXT, "distinct_id": _NUMBER})
DISTINCT = pa.schema({"text": _TEXT, "first_row": _NUMBER, "multiplicity": _NUMBER})
COLUMNS = "columns.arrow"  # file of the columns that are kept with the reports, all of them strings
Columns: TypeAlias = Mapping[str, np.ndarray | Sequence[str]]  # of a file, by name
Stored: TypeAlias = mmap.mmap | pa.Buffer  # the content of a file: mapped from it, or in memory
_MAPS: WeakSet[mmap.mmap] = WeakSet()
_LOCK = threading.Lock()  # `_MAPS` must not grow while it is copied


def map_file(file: Path | int) -> mmap.mmap:
    """Memory-map a file or an open descriptor, read-only, and register the map for `release`."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return map_file(opened.fileno())
    mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    with _LOCK:
        _MAPS.add(mapped)
    return mapped


def release() -> None:
    """Release the pages of all mapped files; the system loads them again when they are read."""
    with _LOCK:
        maps = list(_MAPS)
    for mapped in maps:
        release_pages(mapped)


class Strings(Sequence[str]):
    """A sequence of strings in an Arrow array, which needs a third of the memory of a list.

    Strings are converted to Python strings when they are read.
    """

    def __init__(self, values: "Sequence[str] | pa.Array | pa.ChunkedArray") -> None:
        if isinstance(values, Strings):
            self.arrow: pa.ChunkedArray = values.arrow  # of large_string
        elif isinstance(values, pa.Array | pa.ChunkedArray):
            self.arrow = pa.chunked_array(values if isinstance(values, pa.ChunkedArray) else [values])
            if self.arrow.type != _TEXT:
                self.arrow = self.arrow.cast(_TEXT)
        else:
            chunks = (pa.array(values[i : i + BATCH], pa.large_string()) for i in range(0, len(values), BATCH))
            self.arrow = pa.chunked_array(chunks, pa.large_string())

    def __len__(self) -> int:
        return len(self.arrow)

    @overload
    def __getitem__(self, position: int) -> str: ...

    @overload
    def __getitem__(self, position: slice) -> list[str]: ...

    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return self.arrow[position].to_pylist()
        return self.arrow[int(position)].as_py()

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), BATCH):
            yield from self.arrow.slice(first, BATCH).to_pylist()


def to_arrow(values: "np.ndarray | Sequence[str]") -> pa.Array:
    """Return numbers, booleans or strings as an Arrow array; numbers are not copied.

    `pa.array` does the same, but imports pandas if it is installed, which takes as long as importing NumPy and Arrow
    together. It is faster for more than `FEW` strings.
    """
    if not isinstance(values, np.ndarray):
        return _strings_of([value.encode() for value in values]) if len(values) <= FEW else pa.array(values, _TEXT)
    packed = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(packed)])


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of numbers without nulls, as a view if it has one chunk. Arrow's own method imports pandas."""
    return np.from_dlpack(column.combine_chunks())


def take_strings(column: pa.ChunkedArray, positions: np.ndarray) -> pa.ChunkedArray:
    """Return the strings at some positions, integers, of a column without nulls.

    Up to `FEW` strings are selected in Python, because `column.take` imports all functions of Arrow; for more strings
    it is faster. They are copied to bytes, because the garbage collector runs after some hundreds of views.
    """
    if len(positions) > FEW:
        return column.take(to_arrow(positions))
    ptr, flat = string_parts(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    content = flat.data
    spans = zip(ptr[positions].tolist(), ptr[positions + 1].tolist(), strict=True)
    return pa.chunked_array([_strings_of([content[begin:end].tobytes() for begin, end in spans])])


def checked_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of strings; raise ArrowInvalid unless they are valid UTF-8."""
    column.validate(full=True)
    return column


def _strings_of(encoded: Sequence[bytes | memoryview]) -> pa.Array:
    """Return an Arrow array of strings, each given as bytes in UTF-8."""
    ptr = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return pa.Array.from_buffers(_TEXT, len(encoded), [None, pa.py_buffer(ptr), pa.py_buffer(b"".join(encoded))])


def gathered(arrays: Iterable[np.ndarray], scratch: Path | None = None) -> np.ndarray:
    """Concatenate one or more arrays of one dtype; the result is read-only, a single array is made so itself.

    With `scratch`, a folder, they are written to an unnamed file there and mapped from it, so that only one is in
    memory at a time. The file is deleted with the array, or when the process ends.
    """
    if scratch is None:
        several = list(arrays)
        whole = several[0] if len(several) == 1 else np.concatenate(several)
        whole.setflags(write=False)
        return whole
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        for array in arrays:
            file.write(array.data)
        file.flush()
        return np.frombuffer(map_file(file.fileno()), array.dtype)


class _Pieces:
    """A file that is written piece by piece. After each piece, the memory of mapped files is released."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.flush, self.closed = file, file.flush, False

    def write(self, content: Any) -> None:
        """Write bytes to the file."""
        view = memoryview(content)
        for first in range(0, len(view), PIECE):
            self.file.write(view[first : first + PIECE])
            if len(view) > PIECE:
                release()


def write_arrays(path: Path, columns: Columns) -> None:
    """Write arrays of any shape, with dtypes of fixed width, and strings, all by name, to one Arrow IPC file."""
    with path.open("wb") as file:
        _write(_Pieces(file), _one_row(columns))


def write_files(folder: Path, files: Iterable[tuple[str, Columns]]) -> None:
    """Write the files of a representation, each with its name and columns, into a folder that has no others."""
    for name, columns in files:
        write_arrays(folder / name, columns)


def arrays_in_memory(columns: Columns) -> pa.Buffer:
    """Return the content of the file that `write_arrays` writes."""
    sink = pa.BufferOutputStream()
    _write(sink, _one_row(columns))
    return sink.getvalue()


def _one_row(columns: Columns) -> pa.RecordBatch:
    """Return arrays and strings as the lists of one row; see the module."""
    arrays, fields = [], []
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            shape = ",".join(map(str, values.shape))
        else:
            flat = Strings(values).arrow.combine_chunks()
            shape = "strings"
        column = pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat)
        arrays.append(column)
        fields.append(pa.field(name, column.type, metadata={"shape": shape}))
    arrays, fields = _aligned(arrays, fields)
    return pa.record_batch(arrays, schema=pa.schema(fields))


def _write(sink: Any, content: pa.RecordBatch | pa.Table) -> None:
    """Write rows as an Arrow IPC file to an open file or a stream in memory."""
    with ipc.new_file(sink, content.schema) as writer:
        writer.write(content)


def _aligned(arrays: list[pa.Array], fields: list[pa.Field]) -> tuple[list[pa.Array], list[pa.Field]]:
    """Return columns with fillers, so that numbers begin at multiples of `ALIGNMENT`; strings go to the end.

    `arrays` are lists of one row, and `fields` describe them.
    """
    numbers = [i for i, field in enumerate(fields) if field.metadata[b"shape"] != b"strings"]
    strings = [i for i in range(len(fields)) if i not in numbers]
    filler = pa.field(_FILLER, pa.large_list(pa.uint8()))
    all_fields = [field for i in numbers for field in (filler, fields[i])] + [fields[i] for i in strings]
    schema, sink = pa.schema(all_fields), pa.BufferOutputStream()
    with ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([[]], field.type) for field in schema], schema=schema))
    written = sink.getvalue()
    # Where the first column's numbers begin does not depend on what is written. Offsets of a row are two of 8 bytes.
    end = ipc.open_file(written).get_batch(0).column(0).buffers()[1].address - written.address if numbers else 0
    all_arrays = []
    for i in numbers:
        zeros = pa.array(np.zeros(-(end + 32) % ALIGNMENT, np.uint8))
        all_arrays += [pa.LargeListArray.from_arrays(pa.array([0, len(zeros)], pa.int64()), zeros), arrays[i]]
        end += 32 + len(zeros) + -(-arrays[i].values.nbytes // 8) * 8
    return all_arrays + [arrays[i] for i in strings], all_fields


def read_arrays(stored: Stored) -> dict[str, Any]:
    """Return the columns of `write_arrays` by name: read-only views of the file, strings as `Strings`.

    Raise ArrowInvalid or ValueError if the file is damaged.
    """
    batch = ipc.open_file(pa.py_buffer(stored)).get_batch(0)
    batch.validate()
    columns: dict[str, Any] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == _FILLER:
            continue
        shape = field.metadata[b"shape"].decode()
        if shape == "strings":
            check_offsets(*string_parts(column.values))
            column.values.validate(full=True)  # UTF-8, of vocabularies and settings
            columns[field.name] = Strings(column.values)
        else:
            array = np.from_dlpack(column.values).reshape([int(n) for n in shape.split(",")])
            array.flags.writeable = False  # Arrow's arrays are, but for empty ones
            columns[field.name] = array
    return columns


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table to an Arrow IPC file; one that is there is overwritten."""
    with path.open("wb") as file:
        _write(file, table)


def table_in_memory(table: pa.Table) -> pa.Buffer:
    """Return the content of the file that `write_table` writes."""
    sink = pa.BufferOutputStream()
    _write(sink, table)
    return sink.getvalue()


def read_table(stored: Stored, schema: pa.Schema) -> pa.Table:
    """Return the table of an Arrow IPC file as a view; raise ValueError unless it has the columns of `schema`.

    That strings are valid UTF-8 is not checked.
    """
    table = ipc.open_file(pa.py_buffer(stored)).read_all()
    table.validate()
    if table.schema != schema:
        msg = "a table of other columns"
        raise ValueError(msg)
    for column in table.columns:
        if column.type == pa.large_string():
            for chunk in column.chunks:
                check_offsets(*string_parts(chunk))
    return table


def check_offsets(offsets: np.ndarray, values: Any) -> None:
    """Raise ValueError unless offsets ascend from 0 to the number of values, so that no slice leads out of them."""
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(values) or np.any(offsets[1:] < offsets[:-1]):
        msg = "offsets that lead out of their array"
        raise ValueError(msg)


def check_ids(ids: np.ndarray, end: int, first: int = 0) -> None:
    """Raise ValueError unless all integers of an array are from `first` to `end` - 1, so that they are valid indexes.

    Large arrays are read piece by piece, and the pages of each piece are released.
    """
    flat = ids.reshape(-1)
    at_once = PIECE // ids.itemsize
    for start in range(0, len(flat), at_once):
        piece = flat[start : start + at_once]
        if first == 0:  # as unsigned integers, negative ones are very large, so one pass is enough
            is_outside = piece.view(f"u{piece.itemsize}").max() >= end
        else:
            is_outside = piece.min() < first or piece.max() >= end
        if is_outside:
            msg = "numbers of what is not there"
            raise ValueError(msg)
        if len(flat) > at_once:
            release()


def hash_strings(strings: pa.ChunkedArray) -> bytes:
    """Return two SHA-256 digests, 64 bytes, of the lengths of strings and of their content, whatever their chunks."""
    return checksum.hash_strings(strings, release)


def hash_content(stored: Stored) -> str:
    """Return a SHA-256 of the content of an Arrow file of this module, in hexadecimal.

    It covers names, shapes and values, but not the layout that Arrow chose.
    """
    hasher = hashlib.sha256()
    if any(field.metadata for field in ipc.open_file(pa.py_buffer(stored)).schema):
        columns = read_arrays(stored)
    else:
        table = ipc.open_file(pa.py_buffer(stored)).read_all()
        columns = {
            field.name: Strings(column) if field.type == pa.large_string() else column.to_numpy()
            for field, column in zip(table.schema, table.columns, strict=True)
        }
    for name in sorted(columns):
        values = columns[name]
        if isinstance(values, Strings):
            hasher.update(repr((name, "strings", len(values))).encode() + hash_strings(values.arrow))
        else:
            hasher.update(repr((name, values.dtype.str, values.shape)).encode())
            _update(hasher, values.reshape(-1).view(np.uint8))
    return hasher.hexdigest()


def _update(hasher: Any, content: np.ndarray) -> None:
    """Add mapped bytes, uint8[n], to a hash piece by piece, so that at most one piece stays in memory."""
    for first in range(0, len(content), PIECE):
        hasher.update(content[first : first + PIECE].data)
        release()
