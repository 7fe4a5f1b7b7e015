"""The representations of the shards of a set, one after another as if they were one.

Units of two shards may be equal, so that a unit stands for rows of its shard only; everything that goes by scores and
rows is as in one index.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.features import Encoded, Units
from metric_oracle.kernels.contract import Kernel
from metric_oracle.metrics import Metric
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.sources.inputs import Inputs


@dataclass(frozen=True)
class ShardedIndex(Units):
    """Units of all shards that have any.

    Attributes
    ----------
    parts : list of Representation
    unit_ptr : int64[S + 1]
        First unit of each shard.
    row_ptr, row_id : int64[D + 1], int64[...]
        Rows of the whole corpus.
    """

    parts: list[Representation]
    unit_ptr: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray

    @classmethod
    def join(cls, shards: Sequence[tuple[int, Representation]]) -> "ShardedIndex":
        """Join the representations of shards, each with the first row of its shard."""
        shards = [(first, part) for first, part in shards if len(part.row_id)] or list(shards[:1])
        parts = [part for _, part in shards]
        ends = np.cumsum([0, *(len(part.row_id) for part in parts)])
        row_ptr = [part.row_ptr[:-1] + end for part, end in zip(parts, ends, strict=False)]
        row_id = [part.row_id + first for first, part in shards]
        unit_ptr = np.cumsum([0, *(len(part.row_ptr) - 1 for part in parts)])
        return cls(parts, unit_ptr, np.concatenate([*row_ptr, ends[-1:]]), np.concatenate(row_id))

    def encode(self, inputs: Inputs, **settings: Any) -> "ShardedQueries":
        """Encode the queries for each shard; what a model makes of them is made once."""
        parts: list[EncodedQueries] = []
        for part in self.parts:
            again = part.encode_again(inputs, parts[0], **settings) if parts else part.encode(inputs, **settings)
            parts.append(again)
        distinct, which = np.unique(np.stack([part.which for part in parts], axis=1), axis=0, return_inverse=True)
        return ShardedQueries(which.reshape(-1), parts, distinct.T)

    def place(self, unit: int) -> tuple[int, int]:
        """Return the shard of a unit, among those here, and its place there."""
        shard = int(np.searchsorted(self.unit_ptr, unit, side="right")) - 1
        return shard, int(unit - self.unit_ptr[shard])

    def item(self, unit: int) -> Any:
        """Return a unit as the plain scorer takes it."""
        shard, own = self.place(unit)
        return self.parts[shard].item(own)

    def candidate(self, unit: int, encoded: Any) -> Any:
        """Return the same with the weights that belong to some queries."""
        shard, own = self.place(unit)
        return self.parts[shard].candidate(own, None if encoded is None else encoded.parts[shard])

    def rows_like(self, units: np.ndarray) -> np.ndarray:
        """Return how many rows of the whole corpus each unit stands for, in all shards: int64[n]."""
        keys = [self.parts[shard].key(own) for shard, own in map(self.place, units.tolist())]
        n_rows = dict.fromkeys(keys, 0)
        for part in self.parts:
            for unit, n in enumerate(np.diff(part.row_ptr).tolist()):
                key = part.key(unit)
                if key in n_rows:
                    n_rows[key] += n
        return np.array([n_rows[key] for key in keys], np.int64)


@dataclass(frozen=True)
class ShardedQueries(Encoded):
    """Queries that are the same for all shards, or differ for one.

    Attributes
    ----------
    which : int64[Q]
    parts : list of EncodedQueries
        For each shard.
    places : int64[S, n]
        Place of each distinct query among the distinct ones of each shard.
    """

    which: np.ndarray
    parts: list[EncodedQueries]
    places: np.ndarray

    def item(self, q: int) -> Any:
        """Return a distinct query as the plain scorer takes it."""
        return self.parts[0].item(int(self.places[0, q]))

    def own(self, q: int) -> Any:
        """Return a distinct query as a candidate for itself."""
        return self.parts[0].own(int(self.places[0, q]))

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return self.parts[0].settings


def rows_like(representation: Any, units: np.ndarray) -> np.ndarray:
    """Return how many corpus rows each of some units stands for: int64[n]."""
    if isinstance(representation, ShardedIndex):
        return representation.rows_like(units)
    return np.diff(representation.row_ptr)[units]


def sides_of(record: Metric, representation: Any, encoded: Any) -> list[tuple[Any, Any, np.ndarray | None]]:
    """Return for each shard, or the only index, the arrays of corpus and queries that the kernels take.

    Beside them are the places of the distinct queries among those, None where they are the same.
    """
    if not isinstance(representation, ShardedIndex):
        return [(representation.corpus(record, encoded), encoded.batch, None)]
    parts = zip(representation.parts, encoded.parts, encoded.places, strict=True)
    return [(part.corpus(record, of_part), of_part.batch, places) for part, of_part, places in parts]


def score_all(
    kernel: Kernel, sides: Sequence[tuple[Any, Any, np.ndarray | None]], chosen: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield the scores of all documents of all sides with each of some distinct queries, see `Kernel.score_all`."""
    streams = [
        kernel.score_all(corpus, batch, chosen if places is None else places[list(chosen)].tolist())
        for corpus, batch, places in sides
    ]
    for found in zip(*streams, strict=True):
        yield found[0] if len(found) == 1 else np.concatenate(found)


def score_pairs(
    record: Metric, representation: Any, encoded: Any, query: np.ndarray, unit: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the exact scores of pairs of a distinct query and a unit, float64[n], and their components."""
    if not isinstance(representation, ShardedIndex):
        corpus = representation.corpus(record, encoded)
        return load_kernel(record, "cpu").score_pairs(corpus, encoded.batch, query, unit)
    shard = np.searchsorted(representation.unit_ptr, unit, side="right") - 1
    scores = np.empty(len(query))
    components: dict[str, np.ndarray] = {}
    for place in np.unique(shard).tolist():
        some = np.flatnonzero(shard == place)
        scores[some], of_some = score_pairs(
            record,
            representation.parts[place],
            encoded.parts[place],
            encoded.places[place][query[some]],
            unit[some] - representation.unit_ptr[place],
        )
        for name, values in of_some.items():
            components.setdefault(name, np.empty(len(query), values.dtype))[some] = values
    return scores, components
