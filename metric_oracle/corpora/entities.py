"""Entities of reports with their vectors, as RaTEScore reads them: what a recogniser and an encoder wrote."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.tables import Table, canonical_ids, check_unique, existing_file, read_table
from metric_oracle.errors import InputError

# Types of RaTE-NER (Zhao et al., EMNLP 2024); the place in this order is the number.
TYPES = ("abnormality", "anatomy", "disease", "non-abnormality", "non-disease")
_COLUMNS = ("types", "vectors")


@dataclass(frozen=True)
class EntityTable:
    """Entities of reports; those of report `i` lie at `ptr[i]:ptr[i + 1]`.

    Attributes
    ----------
    ids : list of str
    ptr : int64[n + 1]
    kinds : uint8[m]
        Places in `TYPES`.
    vectors : float32[m, d]
        Finite, none of them zero; as given, of any length.
    """

    ids: list[str]
    ptr: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    vectors: npt.NDArray[np.float32]

    def take(self, chosen: npt.NDArray[np.int64]) -> "EntityTable":
        """Return those of some of the reports."""
        lengths = np.diff(self.ptr)[chosen]
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][chosen] - ptr[:-1], lengths)
        ids = [self.ids[i] for i in chosen.tolist()]
        return replace(self, ids=ids, ptr=ptr, kinds=self.kinds[places], vectors=self.vectors[places])


def as_entities(given: Any, function: str) -> EntityTable:
    """Return the entities of reports: a file, or a table in memory; rows without ids are by place.

    Parameters
    ----------
    given : EntityTable, path or container
        A table (Parquet, JSON, JSON Lines) with an id and two columns of lists: ``types``, of `TYPES` in any case, and
        ``vectors``, one for each of them. A report without entities has empty lists.
    function : str
        Name for error messages.
    """
    if isinstance(given, EntityTable):
        return given
    if isinstance(given, str | Path):
        table: Table | None = read_table(existing_file(Path(given), function, "entities"), function)
    else:
        table, _ = in_memory(given, function)
    if table is None or not set(_COLUMNS) <= set(table.names):
        got = "a list" if table is None else f"columns {table.header}"
        msg = (
            f"{function}: entities must have the columns types and vectors, a list each; got {got} in "
            f"{'memory' if table is None else table.path}. Write them so."
        )
        raise InputError(msg)
    found = table.id_cells(function)
    ids = [str(place) for place in range(table.n_rows)]
    if found is not None:
        ids = canonical_ids(found[0], function, f"the ids of {table.path}")
        check_unique(ids, function, f"the ids of {table.path}")
    try:
        lengths, names = _flat(table, "types", 1)
        of_vectors, widths, numbers = _flat(table, "vectors", 2)
        kinds = np.array([TYPES.index(str(name).lower()) for name in names], np.uint8)
        if lengths.tolist() != of_vectors.tolist() or len(set(widths.tolist())) > 1:
            raise ValueError
        vectors = np.asarray(numbers, np.float64).reshape(len(kinds), -1 if len(kinds) else 1).astype(np.float32)
    except (ValueError, TypeError, pa.ArrowException):
        msg = (
            f"{function}: entities must have types of {', '.join(TYPES)}, and a vector of one width for each; got "
            f"others in {table.path}. Repair it."
        )
        raise InputError(msg) from None
    if not (np.isfinite(vectors).all() and vectors.any(axis=1).all()):
        msg = f"{function}: vectors of entities must be finite and other than zero; got others in {table.path}. Repair."
        raise InputError(msg)
    return EntityTable(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), kinds, vectors)


def _flat(table: Table, name: str, depth: int) -> list[Any]:
    """Return the lengths of the lists of a column, level by level, and what is in the innermost."""
    column = table.columns[table.names.index(name)]
    found: list[Any] = []
    if not isinstance(column, list):  # Arrow, without an object for each number
        import pyarrow.compute as pc

        inner = column.combine_chunks()
        for _ in range(depth):
            if inner.null_count:
                raise ValueError
            found.append(pc.list_value_length(inner).to_numpy())
            inner = inner.flatten()
        return [*found, inner.to_pylist() if depth == 1 else inner.to_numpy(zero_copy_only=False)]
    cells: Sequence[Any] = column
    for _ in range(depth):
        if any(isinstance(cell, str) or not isinstance(cell, Iterable) for cell in cells):
            raise ValueError
        found.append(np.array([len(cell) for cell in cells], np.int64))
        cells = [item for cell in cells for item in cell]
    return [*found, cells]
