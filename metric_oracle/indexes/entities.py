"""Entities with vectors (RaTEScore's, given) -> distinct lists of entities, whose vectors are stored once each."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.corpora.entities import EntityTable
from metric_oracle.errors import InputError
from metric_oracle.indexes.features import Encoded, Units, group_rows
from metric_oracle.indexes.store import check_ids, check_offsets, read_arrays, write_arrays
from metric_oracle.indexes.vectors import distinct_rows, in_order_of_use
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs


class Entities(NamedTuple):
    """The entities of one report, in their order: types uint8[n] and vectors float32[n, d]."""

    kinds: np.ndarray
    vectors: np.ndarray


class EntityLists(NamedTuple):
    """Distinct lists of entities: what the search takes, of a corpus and of a batch of queries.

    Attributes
    ----------
    vectors : float32[E, d]
        Distinct.
    ptr : int64[D + 1]
    entity : int32[m]
        Vector of each entity of each list.
    kinds : uint8[m]
    row_ptr, row_id : int64[D + 1], int64[...]
        Of a corpus: the rows of each list.
    """

    vectors: np.ndarray
    ptr: np.ndarray
    entity: np.ndarray
    kinds: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray

    def item(self, place: int) -> Entities:
        """Return a list as the plain scorer takes it."""
        some = slice(self.ptr[place], self.ptr[place + 1])
        return Entities(self.kinds[some], self.vectors[self.entity[some]])


@dataclass(frozen=True)
class EntityIndex(Units):
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
        """Find the distinct lists of the queries."""
        lists, which = _distinct(*inputs.attached["entities"].both)
        widths = lists.vectors.shape[1], self.lists.vectors.shape[1]
        if len(lists.vectors) and len(self.lists.vectors) and widths[0] != widths[1]:
            msg = (
                f"retrieve: vectors of entities must have the index's width {widths[1]}; got {widths[0]}. Encode "
                "queries and corpus with one model."
            )
            raise InputError(msg)
        return EntityQueries(which, lists)

    def corpus(self, metric: Metric, encoded: Encoded) -> EntityLists:
        """Return what the search takes."""
        return self.lists

    def item(self, unit: int) -> Entities:
        """Return the entities of a list."""
        return self.lists.item(unit)

    def key(self, unit: int) -> tuple[bytes, bytes]:
        """Return what tells a list from others, in any index."""
        kinds, vectors = self.item(unit)
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
        """Return the lists as they were given."""
        ids = [str(unit) for unit in range(len(self.row_ptr) - 1)]
        return EntityTable(
            ids, np.array(self.lists.ptr), np.array(self.lists.kinds), self.lists.vectors[self.lists.entity]
        )


@dataclass(frozen=True)
class EntityQueries(Encoded):
    """Distinct lists of entities of a batch of queries."""

    which: np.ndarray
    batch: EntityLists

    def item(self, q: int) -> Entities:
        """Return the entities of a distinct query."""
        return self.batch.item(q)


def _distinct(table: EntityTable, of_row: np.ndarray) -> tuple[EntityLists, np.ndarray]:
    """Return the distinct lists of some reports in order of first use, and each report's: -1 for none."""
    used, place = in_order_of_use(of_row)
    some = table.take(used)
    vectors = some.vectors + np.float32(0)  # -0.0 and 0.0 are one
    first, entity = distinct_rows(vectors)
    seen: dict[tuple[bytes, bytes], int] = {}
    which, kept = np.empty(len(used), np.int64), []
    for i, (begin, end) in enumerate(zip(some.ptr[:-1].tolist(), some.ptr[1:].tolist(), strict=True)):
        key = some.kinds[begin:end].tobytes(), entity[begin:end].tobytes()
        if key not in seen:
            seen[key] = len(seen)
            kept.append(i)
        which[i] = seen[key]
    lists = some.take(np.array(kept, np.int64))
    lengths = np.diff(lists.ptr)
    places = np.arange(lists.ptr[-1]) + np.repeat(some.ptr[:-1][kept] - lists.ptr[:-1], lengths)
    list_of_row = np.where(place >= 0, which[place], -1) if len(which) else place
    rows = group_rows(list_of_row, len(kept))
    # Vectors are numbered by first use, so no distinct list leaves one without a list.
    return EntityLists(vectors[first], lists.ptr, entity[places].astype(np.int32), lists.kinds, *rows), list_of_row
