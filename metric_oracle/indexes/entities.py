"""Representation of RaTEScore: distinct lists of entities, each with a type and a vector; a vector is stored once."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.corpora.entities import EntityTable
from metric_oracle.errors import InputError
from metric_oracle.indexes.features import Documents, Encoded, group_rows
from metric_oracle.indexes.store import check_ids, check_offsets, read_arrays, write_arrays
from metric_oracle.indexes.vectors import distinct_rows, in_order_of_use
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs


class Entities(NamedTuple):
    """The entities of one report, in its order: types, uint8[n], and vectors, float32[n, d]."""

    kinds: np.ndarray
    vectors: np.ndarray


class EntityLists(NamedTuple):
    """Distinct lists of entities of a corpus or of a batch of queries, as the search reads them."""

    vectors: np.ndarray  # float32[E, d], distinct vectors
    ptr: np.ndarray  # int64[D + 1], offsets of each list in `entity` and `kinds`
    entity: np.ndarray  # int32[m], index in `vectors` of each entity
    kinds: np.ndarray  # uint8[m], type of each entity
    row_ptr: np.ndarray  # int64[D + 1], reports of each list, ascending
    row_id: np.ndarray  # int64[...]

    def item(self, number: int) -> Entities:
        """Return a list for the plain scorer."""
        span = slice(self.ptr[number], self.ptr[number + 1])
        return Entities(self.kinds[span], self.vectors[self.entity[span]])


@dataclass(frozen=True)
class EntityIndex(Documents):
    """Distinct lists of entities of a corpus."""

    lists: EntityLists
    data_files: ClassVar[tuple[str, ...]] = ("entities.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ()
    encodes_by_corpus: ClassVar[bool] = False

    @property
    def row_ptr(self) -> np.ndarray:  # type: ignore[override]
        """Offsets of the rows of each list."""
        return self.lists.row_ptr

    @property
    def row_id(self) -> np.ndarray:  # type: ignore[override]
        """Corpus rows, ascending within a list."""
        return self.lists.row_id

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "EntityIndex":
        """Index the entities of a corpus."""
        return cls(_distinct(*inputs.attached[kind].both)[0])

    def encode(self, inputs: Inputs) -> "EntityQueries":
        """Return the distinct lists of the queries."""
        lists, which = _distinct(*inputs.attached["entities"].both)
        widths = lists.vectors.shape[1], self.lists.vectors.shape[1]
        if len(lists.vectors) and len(self.lists.vectors) and widths[0] != widths[1]:
            raise InputError(
                "vectors of entities",
                f"must have the index's width {widths[1]}",
                widths[0],
                "Encode queries and corpus with one model.",
            )
        return EntityQueries(which, lists)

    def corpus(self, metric: Metric, encoded: Encoded) -> EntityLists:
        """Return the arrays that the search reads."""
        return self.lists

    def item(self, document: int) -> Entities:
        """Return the entities of a list."""
        return self.lists.item(document)

    def key(self, document: int) -> tuple[bytes, bytes]:
        """Return bytes that identify a list in any index: its types and its vectors."""
        kinds, vectors = self.item(document)
        return kinds.tobytes(), vectors.tobytes()

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        write_arrays(folder / "entities.arrow", self.lists._asdict())

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "EntityIndex":
        """Open a saved representation."""
        lists = EntityLists(**read_arrays(files["entities.arrow"]))
        check_offsets(lists.ptr, lists.entity)
        check_ids(lists.entity, len(lists.vectors))
        return cls(lists)

    def table(self) -> EntityTable:
        """Return the lists as the table of entities that users give. The id of a list is its number."""
        ids = [str(document) for document in range(len(self.row_ptr) - 1)]
        return EntityTable(
            ids, np.array(self.lists.ptr), np.array(self.lists.kinds), self.lists.vectors[self.lists.entity]
        )


@dataclass(frozen=True)
class EntityQueries(Encoded):
    """Distinct lists of entities of a batch of queries."""

    which: np.ndarray  # int64[Q], distinct list of each query
    batch: EntityLists

    def item(self, q: int) -> Entities:
        """Return the entities of a distinct query."""
        return self.batch.item(q)


def _distinct(table: EntityTable, of_row: np.ndarray) -> tuple[EntityLists, np.ndarray]:
    """Return the distinct lists of reports, in order of first use, and the number of each report's list: int64[N]."""
    used, used_of_row = in_order_of_use(of_row)
    used_table = table.take(used)
    vectors = used_table.vectors + np.float32(0)  # -0.0 becomes 0.0
    first, entity = distinct_rows(vectors)
    number: dict[tuple[bytes, bytes], int] = {}
    which, first_use = np.empty(len(used), np.int64), []
    for i, (begin, end) in enumerate(zip(used_table.ptr[:-1].tolist(), used_table.ptr[1:].tolist(), strict=True)):
        key = used_table.kinds[begin:end].tobytes(), entity[begin:end].tobytes()
        if key not in number:
            number[key] = len(number)
            first_use.append(i)
        which[i] = number[key]
    lists = used_table.take(np.array(first_use, np.int64))
    lengths = np.diff(lists.ptr)
    source = np.arange(lists.ptr[-1]) + np.repeat(used_table.ptr[:-1][first_use] - lists.ptr[:-1], lengths)
    list_of_row = np.where(used_of_row >= 0, which[used_of_row], -1) if len(which) else used_of_row
    rows = group_rows(list_of_row, len(first_use))
    # Vectors are numbered by first use and every distinct list is kept, so every vector is used.
    return EntityLists(vectors[first], lists.ptr, entity[source].astype(np.int32), lists.kinds, *rows), list_of_row
