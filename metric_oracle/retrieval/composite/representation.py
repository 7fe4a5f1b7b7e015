"""A composite's representation: no files of its own, those of its parts that an index holds, joined row by row."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.features import Encoded, Units, group_rows
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import ShardSet
from metric_oracle.metrics import REPRESENTATIONS, Metric
from metric_oracle.retrieval.sharded import ShardedIndex
from metric_oracle.sources.inputs import Inputs

_JOINED: WeakKeyDictionary[Index, dict[tuple[str, ...], Any]] = WeakKeyDictionary()


def representation_of(index: Index, metric: Metric) -> Representation:
    """Return what a metric reads of an index: one representation, or for a composite several, joined once.

    Of a set of shards it is what they have, one after another. That the index holds it was checked before.
    """
    is_set = isinstance(index, ShardSet)
    if not metric.terms and not is_set:
        return index.part(metric.representation)
    joined = _JOINED.setdefault(index, {})
    terms = tuple(dict.fromkeys(term.metric.representation for term in metric.terms.values()))
    kinds = terms or (metric.representation,)
    if kinds not in joined:
        if is_set:
            joined[kinds] = ShardedIndex.join(
                [(shard.first_row, representation_of(shard, metric)) for shard in index.shards()]
            )
        else:
            joined[kinds] = CompositeIndex.join({kind: index.part(kind) for kind in kinds})
    return joined[kinds]


class CompositeCorpus(NamedTuple):
    """What the search under a composite reads of a corpus; see `CompositeIndex`.

    Attributes
    ----------
    parts : dict
        Part of the composite -> named tuple of its kernel.
    unit : dict of str to int32[D]
        Representation -> unit of each combination.
    row_ptr, row_id : int64[D + 1], int64[...]
    """

    parts: dict[str, Any]
    unit: dict[str, np.ndarray]
    row_ptr: np.ndarray
    row_id: np.ndarray


class CompositeBatch(NamedTuple):
    """What it reads of distinct queries.

    Attributes
    ----------
    parts : dict
        Representation -> named tuple of its kernels.
    place : dict of str to int64[Q]
        Place of each combination among a representation's distinct queries.
    """

    parts: dict[str, Any]
    place: dict[str, np.ndarray]

    def of(self, q: int, kind: str) -> int:
        """Return the place of a combination among a representation's distinct queries."""
        return int(self.place[kind][q])


@dataclass(frozen=True)
class CompositeIndex(Units):
    """Distinct combinations of the units of several representations.

    Attributes
    ----------
    parts : dict
        Name -> opened representation.
    unit : dict of str to int32[D]
        Unit of each combination in each representation; those of BERTScore ascend.
    row_ptr, row_id : int64[D + 1], int64[...]
        Rows that have all of them.
    """

    parts: dict[str, Representation]
    unit: dict[str, np.ndarray]
    row_ptr: np.ndarray
    row_id: np.ndarray

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "CompositeIndex":
        """Join representations of one corpus on its rows."""
        n_rows = max(len(part.unit_of_row) for part in parts.values())
        # The units of what a model encoded first: they ascend.
        names = sorted(parts, key=lambda name: not REPRESENTATIONS[name].is_encoded)
        columns = [
            np.pad(parts[n].unit_of_row, (0, n_rows - len(parts[n].unit_of_row)), constant_values=-1) for n in names
        ]
        table = np.stack(columns, axis=1)
        complete = np.flatnonzero((table >= 0).all(axis=1))
        distinct, which = np.unique(table[complete], axis=0, return_inverse=True)
        item_of_row = np.full(n_rows, -1, np.int64)
        item_of_row[complete] = which.reshape(-1)
        unit = {name: distinct[:, i].astype(np.int32) for i, name in enumerate(names)}
        row_ptr, row_id = group_rows(item_of_row, len(distinct))
        row_ptr.flags.writeable = False  # as in a mapped file: else BERTScore's search is compiled once more
        return cls(parts, unit, row_ptr, row_id)

    def encode(self, inputs: Inputs, **settings: Any) -> "CompositeQueries":
        """Encode the queries for each representation, with the settings that belong to it."""
        return self._joined(
            {name: part.encode(inputs, **_of_part(name, settings)) for name, part in self.parts.items()}
        )

    def encode_again(self, inputs: Inputs, encoded: "CompositeQueries", **settings: Any) -> "CompositeQueries":
        """Do the same where another shard of the same set has encoded them."""
        return self._joined(
            {
                name: part.encode_again(inputs, encoded.parts[name], **_of_part(name, settings))
                for name, part in self.parts.items()
            }
        )

    def _joined(self, parts: dict[str, Any]) -> "CompositeQueries":
        table = np.stack([part.which for part in parts.values()], axis=1)
        distinct, which = np.unique(table, axis=0, return_inverse=True)
        place = {name: distinct[:, i] for i, name in enumerate(parts)}
        return CompositeQueries(which.reshape(-1), parts, place)

    def item(self, unit: int) -> dict[str, Any]:
        """Return what the reference scorers of the parts take, by representation."""
        return {name: part.item(int(self.unit[name][unit])) for name, part in self.parts.items()}

    def key(self, unit: int) -> tuple[Hashable, ...]:
        """Return what tells a combination from others, in any index."""
        return tuple(part.key(int(self.unit[name][unit])) for name, part in sorted(self.parts.items()))

    def candidate(self, unit: int, encoded: Any) -> dict[str, Any]:
        """Return the same with the weights that belong to some queries."""
        return {
            name: part.candidate(int(self.unit[name][unit]), None if encoded is None else encoded.parts[name])
            for name, part in self.parts.items()
        }

    def corpus(self, metric: Metric, encoded: "CompositeQueries") -> CompositeCorpus:
        """Return what the kernels of all parts take."""
        parts = {
            name: self.parts[t.metric.representation].corpus(t.metric, encoded.parts[t.metric.representation])
            for name, t in metric.terms.items()
        }
        return CompositeCorpus(parts, self.unit, self.row_ptr, self.row_id)


def _of_part(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a representation takes."""
    return {key: settings[key] for key in REPRESENTATIONS[kind].settings if key in settings}


@dataclass(frozen=True)
class CompositeQueries(Encoded):
    """Distinct combinations of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    parts : dict
        Representation -> encoded queries.
    place : dict of str to int64[n]
        Place of each combination among a representation's distinct queries.
    """

    which: np.ndarray
    parts: dict[str, EncodedQueries]
    place: dict[str, np.ndarray]

    @property
    def batch(self) -> CompositeBatch:
        """What the kernels take."""
        return CompositeBatch({name: part.batch for name, part in self.parts.items()}, self.place)

    def portable(self) -> "CompositeQueries | None":
        """Return what a model made for the parts."""
        parts = {name: part.portable() for name, part in self.parts.items()}
        return replace(self, parts=parts) if any(part is not None for part in parts.values()) else None

    def item(self, q: int) -> dict[str, Any]:
        """Return what the reference scorers of the parts take, by representation."""
        return {name: part.item(int(self.place[name][q])) for name, part in self.parts.items()}

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return {key: value for part in self.parts.values() for key, value in part.settings.items()}
