"""The source of sentence vectors: for each report a set of vectors, one per sentence, from any sentence encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.arrays import as_array
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.tables import (
    Table,
    are_columns,
    canonical_ids,
    check_unique,
    existing_file,
    read_table,
)
from metric_oracle.corpora.vectors import read_npz
from metric_oracle.sources.contract import Attachment, Source, name_of
from metric_oracle.sources.entities import flat_lists


@dataclass(frozen=True)
class SentenceTable:
    """Sentence vectors of reports; those of report `i` are `vectors[ptr[i]:ptr[i + 1]]`."""

    ids: list[str]
    ptr: npt.NDArray[np.int64]  # int64[n + 1], offsets of the vectors of each report
    vectors: npt.NDArray[np.float32]  # float32[m, d], finite, none of them zero, of any length

    def take(self, positions: npt.NDArray[np.int64]) -> "SentenceTable":
        """Return the table of the reports at these positions."""
        lengths = np.diff(self.ptr)[positions]
        ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][positions] - ptr[:-1], lengths)
        return SentenceTable([self.ids[i] for i in positions.tolist()], ptr, self.vectors[source])


def as_sentences(file_or_data: Any) -> SentenceTable:
    """Return sentence vectors from a file or from memory, in one of these layouts.

    - An ``.npz`` file with ``ids``, the report of each sentence, and an array float[m, d] of vectors.
    - A table (Parquet, JSON, JSON Lines, or in memory) with a column ``vectors`` that holds a list of vectors for each
      report, an empty one for a report without sentences. Without ids, rows are in the order of the reports.
    - A dict of id -> float[n, d], or a list of float[n, d] in the order of the reports.

    Raise InputError if the layout is another, vectors differ in width, or a vector is zero or not finite.
    """
    if isinstance(file_or_data, SentenceTable):
        return file_or_data
    origin = name_of(file_or_data)  # for error messages
    if isinstance(file_or_data, str | Path):
        path = existing_file(Path(file_or_data))
        if path.suffix.lower() == ".npz":
            return _of_sentences(*read_npz(path), origin)
        return _of_table(read_table(path), origin)
    if isinstance(file_or_data, Mapping) and not (
        are_columns(file_or_data) or any(isinstance(value, Mapping) for value in file_or_data.values())
    ):
        return _of_arrays(list(file_or_data), list(file_or_data.values()), origin)
    if isinstance(file_or_data, list | tuple) and not any(isinstance(value, Mapping) for value in file_or_data):
        return _of_arrays(list(map(str, range(len(file_or_data)))), list(file_or_data), origin)
    table, _ = in_memory(file_or_data)
    return _of_table(table, origin)


def _of_sentences(ids: list[Any] | None, vectors: Any, origin: str) -> SentenceTable:
    """Return a table from one vector per sentence, float[m, d]; `ids` has the report of each sentence, or is None.

    Reports are in the order of their first sentences. Raise InputError, which names `origin`, unless the layout fits.
    """
    if ids is None or vectors.ndim != 2 or len(ids) != len(vectors):
        raise _layout(origin)
    keys = canonical_ids(ids, f"the ids of {origin}")
    place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    report = np.array([place[key] for key in keys], np.int64)
    order = np.argsort(report, kind="stable")
    return _checked_table(list(place), np.bincount(report, minlength=len(place)), vectors[order], origin)


def _of_table(table: Table | None, origin: str) -> SentenceTable:
    """Return a table from the column "vectors" of a table, with a list of vectors for each report.

    Raise InputError, which names `origin`, if the layout is another or the table is None.
    """
    if table is None or "vectors" not in table.names:
        raise _layout(origin)
    ids = [str(row) for row in range(table.n_rows)]
    cells = table.id_cells()
    if cells is not None:
        ids = canonical_ids(cells, f"the ids of {origin}")
    try:
        lengths, widths, numbers = flat_lists(table, "vectors", 2)
        if len(set(widths.tolist())) > 1:
            raise ValueError
        width = int(widths[0]) if len(widths) else 1
        vectors = np.asarray(numbers, np.float64).reshape(len(widths), width)
    except (ValueError, TypeError, pa.ArrowException):
        raise _layout(origin) from None
    return _checked_table(ids, lengths, vectors, origin)


def _of_arrays(ids: list[Any], arrays: list[Any], origin: str) -> SentenceTable:
    """Return a table from one array of vectors, float[n, d], per report; InputError, with `origin`, for others."""
    try:
        values = [as_array(array).astype(np.float64) for array in arrays]
        filled = [array for array in values if array.size]
        vectors = np.concatenate(filled) if filled else np.empty((0, 1))
        if vectors.ndim != 2:
            raise ValueError
    except (ValueError, TypeError):
        raise _layout(origin) from None
    keys = canonical_ids(ids, f"the ids of {origin}")
    return _checked_table(keys, np.array([len(array) if array.size else 0 for array in values]), vectors, origin)


def _checked_table(ids: list[str], lengths: Any, vectors: Any, origin: str) -> SentenceTable:
    """Return the table of reports with `lengths` vectors each; InputError, with `origin`, for wrong ids or vectors."""
    check_unique(ids, f"the ids of {origin}")
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(vectors, np.float32)
    is_bad = ~(np.isfinite(values).all(axis=1) & values.any(axis=1))
    if is_bad.any():
        report = int(np.searchsorted(ptr, int(is_bad.argmax()), side="right")) - 1
        raise InputError(
            "sentence vectors",
            "must be finite and not zero",
            f"one that is not for report {shown(ids[report])} in {origin}",
            "Encode its sentences again, or leave the report out.",
        )
    return SentenceTable(ids, ptr, values)


def _layout(origin: str) -> InputError:
    """Return the error for a file or container, `origin`, in none of the known layouts."""
    return InputError(
        "sentences",
        "must be an .npz file with ids and one vector for each sentence, a table with a column vectors that holds "
        "a list of vectors of one width for each report, or a dict of id -> array",
        f"another layout in {origin}",
        "Write one of these.",
    )


class SentenceSource(Source):
    """Sets of sentence vectors, from files or from memory."""

    def read(self, file_or_data: Any, data_ids: Any) -> SentenceTable:
        """Return sentence vectors; see `as_sentences`."""
        return as_sentences(file_or_data)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> SentenceTable:
        """Return the table unchanged."""
        return table

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment:
        """Return the sets of sentence vectors that the documents are; the vectors have unit length."""
        return Attachment(representation.table(), document_of_row, are_unit=True)
