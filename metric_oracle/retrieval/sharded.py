"""Representations of shards, joined so that they can be used like the representation of one index.

Two shards may have equal documents. A document stands only for rows of its own shard, but a search returns the scores
and rows that it would return for a single index.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.documents import Documents, Encoded
from metric_oracle.kernels.contract import Kernel
from metric_oracle.records import Metric
from metric_oracle.retrieval.kernels import arrays_of, load_kernel


@dataclass(frozen=True)
class ShardedIndex(Documents):
    """Documents of all S shards with rows that can be scored; if there is none, those of the first shard."""

    parts: list[Representation]  # the representation of each shard
    document_ptr: np.ndarray  # int64[S + 1], number of the first document of each shard
    row_ptr: np.ndarray  # int64[D + 1], where the rows of each document begin in `row_id`
    row_id: np.ndarray  # int64[N], rows in the whole corpus

    @classmethod
    def join(cls, shards: Sequence[tuple[int, Representation]]) -> "ShardedIndex":
        """Join the representations of shards, each with the first row of its shard."""
        shards = [(first, part) for first, part in shards if len(part.row_id)] or list(shards[:1])
        parts = [part for _, part in shards]
        ends = np.cumsum([0, *(len(part.row_id) for part in parts)])
        row_ptr = [part.row_ptr[:-1] + end for part, end in zip(parts, ends, strict=False)]
        row_id = [part.row_id + first for first, part in shards]
        document_ptr = np.cumsum([0, *(len(part.row_ptr) - 1 for part in parts)])
        return cls(parts, document_ptr, np.concatenate([*row_ptr, ends[-1:]]), np.concatenate(row_id))

    def encode(self, reports: Reports, **settings: Any) -> "ShardedQueries":
        """Return the queries in `reports` encoded for each shard; models run only once."""
        parts: list[EncodedQueries] = []
        for part in self.parts:
            again = part.encode_again(reports, parts[0], **settings) if parts else part.encode(reports, **settings)
            parts.append(again)
        distinct, which = np.unique(np.stack([part.which for part in parts], axis=1), axis=0, return_inverse=True)
        return ShardedQueries(which.reshape(-1), parts, distinct.T)

    def place(self, document: int) -> tuple[int, int]:
        """Return the index in `parts` of a document's shard, and the document's number in that shard."""
        shard = int(np.searchsorted(self.document_ptr, document, side="right")) - 1
        return shard, int(document - self.document_ptr[shard])

    def item(self, document: int) -> Any:
        """Return a document for the plain scorer."""
        shard, own = self.place(document)
        return self.parts[shard].item(own)

    def candidate(self, document: int, encoded_queries: Any) -> Any:
        """Return a document as a candidate, with what depends on the queries of its shard."""
        shard, own = self.place(document)
        return self.parts[shard].candidate(own, None if encoded_queries is None else encoded_queries.parts[shard])

    def rows_like(self, documents: np.ndarray) -> np.ndarray:
        """Return the number of corpus rows with an equal document, in all shards, for each document: int64[n]."""
        keys = [self.parts[shard].key(own) for shard, own in map(self.place, documents.tolist())]
        n_rows = dict.fromkeys(keys, 0)
        for part in self.parts:
            for document, n in enumerate(np.diff(part.row_ptr).tolist()):
                key = part.key(document)
                if key in n_rows:
                    n_rows[key] += n
        return np.array([n_rows[key] for key in keys], np.int64)


@dataclass(frozen=True)
class ShardedQueries(Encoded):
    """Distinct queries of a batch; queries that differ for at least one shard are distinct."""

    which: np.ndarray  # int64[Q], distinct query of each query
    parts: list[EncodedQueries]  # encoded queries of each shard
    places: np.ndarray  # int64[S, n], number of each distinct query among the distinct queries of each shard

    def item(self, q: int) -> Any:
        """Return a distinct query as a reference for the plain scorer."""
        return self.parts[0].item(int(self.places[0, q]))

    def as_candidate(self, q: int) -> Any:
        """Return a distinct query in the form of a candidate, for its score with itself."""
        return self.parts[0].as_candidate(int(self.places[0, q]))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the signature records."""
        return self.parts[0].settings


def rows_like(representation: Any, documents: np.ndarray) -> np.ndarray:
    """Return how many corpus rows, in all shards, have a document equal to each of `documents`, int64[n]: int64[n]."""
    if isinstance(representation, ShardedIndex):
        return representation.rows_like(documents)
    return np.diff(representation.row_ptr)[documents]


def sides_of(record: Metric, representation: Any, encoded: Any) -> list[tuple[Any, Any, np.ndarray | None]]:
    """Return the arrays of corpus and queries that the kernels read, for each shard, or for the only index.

    The third element of each tuple maps distinct queries to those of the shard; None if they are the same.
    """
    if not isinstance(representation, ShardedIndex):
        return [(*arrays_of(record, representation, encoded), None)]
    parts = zip(representation.parts, encoded.parts, encoded.places, strict=True)
    return [(*arrays_of(record, part, of_part), places) for part, of_part, places in parts]


def score_all(
    kernel: Kernel, sides: Sequence[tuple[Any, Any, np.ndarray | None]], chosen: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield the scores of all documents with each chosen distinct query: float64[D]; for `sides` see `sides_of`."""
    streams = [
        kernel.score_all(corpus, batch, chosen if places is None else places[list(chosen)].tolist())
        for corpus, batch, places in sides
    ]
    for found in zip(*streams, strict=True):
        yield found[0] if len(found) == 1 else np.concatenate(found)


def score_some(
    kernel: Kernel,
    representation: Any,
    sides: Sequence[tuple[Any, Any, np.ndarray | None]],
    chosen: Sequence[int],
    documents: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yield the scores of some documents, int64[n] ascending, with each chosen distinct query: float64[n].

    `sides` are those of `sides_of` for this representation.
    """
    is_set = isinstance(representation, ShardedIndex)
    ends = representation.document_ptr if is_set else np.array([0, len(representation.row_ptr) - 1])
    streams = []
    for (corpus, batch, places), first, last in zip(sides, ends[:-1], ends[1:], strict=True):
        some = documents[np.searchsorted(documents, first) : np.searchsorted(documents, last)] - first
        which = chosen if places is None else places[list(chosen)].tolist()
        streams.append(kernel.score_some(corpus, batch, which, some))
    for found in zip(*streams, strict=True):
        yield found[0] if len(found) == 1 else np.concatenate(found)


def score_pairs(
    record: Metric, representation: Any, encoded: Any, query: np.ndarray, document: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the exact scores of pairs of a distinct query and a document, float64[n], and their components by name."""
    if not isinstance(representation, ShardedIndex):
        return load_kernel(record, "cpu").score_pairs(*arrays_of(record, representation, encoded), query, document)
    shard = np.searchsorted(representation.document_ptr, document, side="right") - 1
    scores = np.empty(len(query))
    components: dict[str, np.ndarray] = {}
    for place in np.unique(shard).tolist():
        some = np.flatnonzero(shard == place)
        scores[some], of_some = score_pairs(
            record,
            representation.parts[place],
            encoded.parts[place],
            encoded.places[place][query[some]],
            document[some] - representation.document_ptr[place],
        )
        for name, values in of_some.items():
            components.setdefault(name, np.empty(len(query), values.dtype))[some] = values
    return scores, components
