"""The metrics of a sum with their kernels, and the scores of pairs and of whole corpora."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.kernels.contract import Kernel
from metric_oracle.kernels.sum.score import composite, term
from metric_oracle.records import Sum


class Combined(NamedTuple):
    """Arrays of the distinct combinations of the documents of several metrics, of a corpus or of queries."""

    parts: dict[str, Any]  # name of a metric -> named tuple of its kernel
    document_of: dict[str, np.ndarray]  # name of a metric -> int32[D], its document in each combination
    row_ptr: np.ndarray  # int64[D + 1], where the rows of each combination begin in `row_id`
    row_id: np.ndarray  # int64[N], rows

    def of(self, name: str, combinations: Any) -> Any:
        """Return the documents of a metric in some combinations, int64[n], or the document in one of them."""
        return self.document_of[name][combinations].astype(np.int64)


@dataclass(frozen=True)
class Terms(Kernel):
    """The metrics of a sum, and what a search computes once for all threads."""

    metric: Sum
    parts: Mapping[str, Kernel]  # the kernel of each metric, by its name
    # Scores of distinct queries with all documents of metrics of few documents, the arrays of
    # `ConditionalSearch._by_document`, and how often a condition's metric could list all documents that fulfil it.
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    # Smallest distance between an error margin and a measured error, for float32 cosines and for bonuses.
    closest: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def of_metric(
        self, name: str, corpus: Combined, batch: Combined, query: np.ndarray, document: np.ndarray
    ) -> np.ndarray:
        """Return the exact scores of pairs of a distinct query and a document under the metric `name`: float64[n]."""
        return self.exact(name, corpus, batch, query, corpus.of(name, document))

    def stream(self, name: str, corpus: Combined, batch: Combined, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the scores of all documents of the metric `name` with each chosen query, see `score_all`."""
        places = batch.of(name, list(chosen)).tolist()
        return self.parts[name].score_all(corpus.parts[name], batch.parts[name], places)

    def exact(self, name: str, corpus: Combined, batch: Combined, query: Any, documents: np.ndarray) -> np.ndarray:
        """Return the exact scores of documents of the metric `name` itself, int64[n], with one query or one each."""
        which = np.full(len(documents), batch.of(name, query))
        kernel = self.parts[name]
        return kernel.scores(kernel.counts(corpus.parts[name], batch.parts[name], which, documents))

    def score_all(self, corpus: Combined, batch: Combined, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the sums of all documents, float64[D], with each chosen query, within `score_error`.

        Each array overwrites the one before.
        """
        streams = [self.stream(name, corpus, batch, chosen) for name in self.metric.terms]
        return self._sums(streams, [corpus.document_of[name] for name in self.metric.terms])

    def score_some(
        self, corpus: Combined, batch: Combined, chosen: Sequence[int], documents: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Yield the sums of some documents, int64[n], with each chosen query: float64[n], see `score_all`."""
        streams, places = [], []
        for name in self.metric.terms:
            own, place = np.unique(corpus.of(name, documents), return_inverse=True)
            which = batch.of(name, list(chosen)).tolist()
            streams.append(self.parts[name].score_some(corpus.parts[name], batch.parts[name], which, own))
            places.append(place)
        return self._sums(streams, places)

    def _sums(self, streams: Sequence[Iterator[np.ndarray]], places: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the sums of documents, float64[n], for each query; each array overwrites the one before.

        There is a stream for each term, which yields the scores of its documents for each query, and an array in
        `places` with the document of each combination among these.
        """
        out = np.empty(len(places[0]))
        for values in zip(*streams, strict=True):
            out[:] = self.metric.intercept
            for t, value, place in zip(self.metric.terms.values(), values, places, strict=True):
                out += term(value, t.mean, t.scale, t.weight)[place]
            yield out

    def score_error(self, corpus: Combined, batch: Combined) -> float:
        """Return an upper bound on the error of any score of `score_all`.

        It is the sum of the bounds of the terms, each times |weight / scale|.
        """
        error = 0.0
        for name, t in self.metric.terms.items():
            of_term = self.parts[name].score_error(corpus.parts[name], batch.parts[name])
            error += abs(t.weight / t.scale) * of_term
        return error

    def counts(
        self, corpus: Combined, batch: Combined, query: np.ndarray, document: np.ndarray, known: Any = None
    ) -> dict[str, np.ndarray]:
        """Return the exact scores of pairs by metric, float64[n]; with `known`, those that `components` returns."""
        names = self.metric.metrics if known is None else self.metric.columns
        return {name: self.of_metric(name, corpus, batch, query, document) for name in names}

    def scores(self, counts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the sums of pairs, float64[n], from the exact scores of each metric by name."""
        terms = self.metric.terms
        return np.asarray(composite([counts[name] for name in terms], terms.values(), self.metric.intercept))

    def components(self, counts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the scores of pairs that stand beside the sum, by name of their metric: float64[n] each."""
        return {name: counts[name] for name in self.metric.columns}
