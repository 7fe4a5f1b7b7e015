"""Arrays and strings <-> Arrow IPC files, memory-mapped on the way back.

Arrays of different lengths share a file as one row of large lists, so that a representation is one file and its arrays
reach the kernels without a copy. Numbers begin at multiples of `ALIGNMENT` bytes: Arrow's writer promises 8, so that a
filler goes before each array.
"""

import mmap
import resource
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from pyarrow import ipc

ALIGNMENT = 64  # a line of the cache, and a register of AVX-512
_FILLER = "filler"
_MAPS: WeakSet[mmap.mmap] = WeakSet()


def map_file(path: Path) -> mmap.mmap:
    """Map a file, read-only, so that :func:`release` knows it."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _MAPS.add(mapped)
    return mapped


def release() -> None:
    """Give the pages of all mapped files back to the system, which brings them again when they are read."""
    for mapped in list(_MAPS):
        mapped.madvise(mmap.MADV_DONTNEED)


def resident() -> int:
    """Return the bytes that the process holds, mapped pages included; where the system does not tell, the most ever."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * mmap.PAGESIZE
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write_arrays(path: Path, columns: Mapping[str, np.ndarray | Sequence[str]]) -> None:
    """Write arrays (any shape, fixed-width dtypes) and lists of strings into one Arrow IPC file."""
    arrays, fields = [], []
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            shape = ",".join(map(str, values.shape))
        else:
            flat = pa.array(values, pa.large_string())
            shape = "strings"
        column = pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat)
        arrays.append(column)
        fields.append(pa.field(name, column.type, metadata={"shape": shape}))
    arrays, fields = _aligned(arrays, fields)
    schema = pa.schema(fields)
    with path.open("wb") as file, ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def _aligned(arrays: list[pa.Array], fields: list[pa.Field]) -> tuple[list[pa.Array], list[pa.Field]]:
    """Add columns of zeros that let numbers begin at multiples of `ALIGNMENT` in the file; strings go to its end."""
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


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the columns of :func:`write_arrays`: read-only views of the mapped file, strings as an Arrow array."""
    batch = ipc.open_file(pa.py_buffer(map_file(path))).get_batch(0)
    columns: dict[str, Any] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.name == _FILLER:
            continue
        shape = field.metadata[b"shape"].decode()
        if shape == "strings":
            columns[field.name] = column.values
        else:
            columns[field.name] = column.values.to_numpy().reshape([int(n) for n in shape.split(",")])
    return columns


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table into one Arrow IPC file."""
    with path.open("wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path) -> pa.Table:
    """Return a table that is a view of the mapped file."""
    return ipc.open_file(pa.memory_map(str(path))).read_all()
