"""Representation of RaTEScore: distinct lists of entities, each with a type and a vector; a vector is stored once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.entities import EntityTable
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.lists import group_rows, numbered_anew, places_of_lists
from metric_oracle.indexes.store import Columns, Stored, check_ids, check_offsets, read_arrays
from metric_oracle.indexes.vectors import distinct_rows, in_order_of_use
from metric_oracle.kernels._build import distinct_lists
from metric_oracle.records import Metric


class Entities(NamedTuple):
    """The entities of one report, in its order."""

    kinds: np.ndarray  # uint8[n], types: places in `corpora.entities.TYPES`
    vectors: np.ndarray  # float32[n, d]


class EntityLists(NamedTuple):
    """Distinct lists of entities of a corpus or of a batch of queries, as the search reads them."""

    vectors: np.ndarray  # float32[E, d], distinct vectors
    ptr: np.ndarray  # int64[D + 1], offsets of each list in `entity` and `kinds`
    entity: np.ndarray  # int32[m], index in `vectors` of each entity
    kinds: np.ndarray  # uint8[m], type of each entity
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each list
    row_id: np.ndarray  # int64[...], corpus rows or queries, ascending within a list

    def item(self, list_number: int) -> Entities:
        """Return the entities of a list, by its number."""
        span = slice(self.ptr[list_number], self.ptr[list_number + 1])
        return Entities(self.kinds[span], self.vectors[self.entity[span]])


@dataclass(frozen=True)
class EntityDocuments(StoredDocuments):
    """Distinct lists of entities, the documents."""

    lists: EntityLists
    data_files: ClassVar[tuple[str, ...]] = ("entities.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ()

    @property
    def row_ptr(self) -> np.ndarray:  # type: ignore[override]
        """Offsets of the rows of each list in `row_id`: int64[D + 1]."""
        return self.lists.row_ptr

    @property
    def row_id(self) -> np.ndarray:  # type: ignore[override]
        """Rows, ascending within a list: int64[...]."""
        return self.lists.row_id

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "EntityDocuments":
        """Index the entities of the reports, without their texts."""
        return cls(_distinct_lists(*corpus.reports.attached[kind].both))

    def encode(self, reports: Reports) -> "EntityDocuments":
        """Return the distinct lists of the queries; raise InputError unless their vectors have the index's width."""
        lists = _distinct_lists(*reports.attached["entities"].both)
        widths = lists.vectors.shape[1], self.lists.vectors.shape[1]
        if len(lists.vectors) and len(self.lists.vectors) and widths[0] != widths[1]:
            raise InputError(
                "vectors of entities",
                f"must have the index's width {widths[1]}",
                widths[0],
                "Encode queries and corpus with one model.",
            )
        return EntityDocuments(lists)

    def arrays(self, metric: Metric, queries: Documents) -> EntityLists:
        """Return the lists, for any metric and queries."""
        return self.lists

    def item(self, document: int) -> Entities:
        """Return the entities of a document."""
        return self.lists.item(document)

    def key(self, document: int) -> tuple[bytes, bytes]:
        """Return the types and the vectors of a document as bytes."""
        kinds, vectors = self.item(document)
        return kinds.tobytes(), vectors.tobytes()

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the lists."""
        yield "entities.arrow", self.lists._asdict()

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "EntityDocuments":
        """Open the lists."""
        lists = EntityLists(**read_arrays(stored["entities.arrow"]))
        check_offsets(lists.ptr, lists.entity)
        check_ids(lists.entity, len(lists.vectors))
        return cls(lists)

    def table(self) -> EntityTable:
        """Return the lists in the form of a table of entities that a user gives, with the number of each as its id."""
        ids = [str(document) for document in range(len(self.row_ptr) - 1)]
        return EntityTable(
            ids, np.array(self.lists.ptr), np.array(self.lists.kinds), self.lists.vectors[self.lists.entity]
        )


def _distinct_lists(table: EntityTable, of_row: np.ndarray) -> EntityLists:
    """Return the distinct lists of reports, in order of first use.

    `of_row` has the place of each report's entities in the table, or -1.
    """
    used, used_of_row = in_order_of_use(of_row)
    used_table = table.take(used)
    vectors = used_table.vectors + np.float32(0)  # -0.0 becomes 0.0
    first, entity = distinct_rows(vectors)
    number = np.unique(entity.astype(np.int64) << 8 | used_table.kinds, return_inverse=True)[1]
    which, distinct = distinct_lists(used_table.ptr, number.astype(np.int32))
    lists, source = used_table.take(distinct), places_of_lists(used_table.ptr, distinct)
    rows = group_rows(numbered_anew(used_of_row, which), len(distinct))
    # Vectors are numbered by first use and every distinct list is kept, so every vector is used.
    return EntityLists(vectors[first], lists.ptr, entity[source].astype(np.int32), lists.kinds, *rows)
