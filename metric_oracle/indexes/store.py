"""Arrays and strings <-> Arrow IPC files, memory-mapped on the way back.

Arrays of different lengths share a file as one row of large lists, so that a representation is one file and its arrays
reach the kernels without a copy.
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
    schema = pa.schema(fields)
    with path.open("wb") as file, ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the columns of :func:`write_arrays`: read-only views of the mapped file, strings as an Arrow array."""
    batch = ipc.open_file(pa.py_buffer(map_file(path))).get_batch(0)
    columns: dict[str, Any] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
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
