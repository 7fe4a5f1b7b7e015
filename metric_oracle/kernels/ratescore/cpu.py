"""RaTEScore on CPUs with NumPy. A document is a distinct list of entities; every document is scored, none is dropped.

The vectors of entities are stored once per distinct vector, and compared once per query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.kernels.contract import ScoredWhole
from metric_oracle.kernels.ratescore.score import FACTORS, NOTHING, WEIGHTS, cosines, join, norms


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """RaTEScore on CPUs."""

    matrix: str  # "long" or "short", see `reference.score`

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the score of every document (distinct list of entities) with each of the chosen queries: float64[D]."""
        squares, squares_too = norms(corpus.vectors), norms(batch.vectors)
        for q in chosen:
            yield self._score(corpus, squares, batch, squares_too, q)[0]

    def counts(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, known: Any = None) -> np.ndarray:
        """Return score, precision and recall of pairs, float64[3, n]: weighted mean cosines of a side's entities."""
        values = np.empty((3, len(query)))
        for q in np.unique(query).tolist():
            places = np.flatnonzero(query == q)
            lists, which = np.unique(document[places], return_inverse=True)
            subset = _subset(corpus, lists)
            scored = self._score(subset, norms(subset.vectors), batch, norms(batch.vectors), q)
            values[:, places] = np.stack(scored)[:, which.reshape(-1)]
        return values

    def scores(self, counts: np.ndarray) -> np.ndarray:
        """Return the scores of pairs: float64[n]."""
        return counts[0]

    def components(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """Return precision and recall of pairs by name: float64[n] each."""
        return {"precision": counts[1], "recall": counts[2]}

    def _score(
        self, corpus: Any, squares: np.ndarray, batch: Any, squares_too: np.ndarray, q: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the scores of query q with all documents, and their precision and recall; float64[D] each.

        `squares` and `squares_too` are the squared lengths of the vectors of the corpus and of the queries. All three
        are `NOTHING` where a side has no entity.
        """
        weights, factors = WEIGHTS[self.matrix], FACTORS[self.matrix]
        n_lists = len(corpus.ptr) - 1
        nothing = np.full(n_lists, NOTHING)
        span = slice(batch.ptr[q], batch.ptr[q + 1])
        kinds, entities = batch.kinds[span], batch.entity[span]
        lengths = np.diff(corpus.ptr)
        full = np.flatnonzero(lengths)
        if not len(kinds) or not len(full):
            return nothing, nothing, nothing
        table = cosines(batch.vectors[entities], corpus.vectors, squares_too[entities], squares)
        begin = corpus.ptr[full]
        # From the query's side, entity by entity: the first of the nearest in each list.
        total, weight = np.zeros(len(full)), np.zeros(len(full))
        places = np.arange(len(corpus.entity))
        for kind, row in zip(kinds.tolist(), table, strict=True):
            values = row[corpus.entity]
            best = np.maximum.reduceat(values, begin)
            is_best = values == np.repeat(best, lengths[full])
            first = np.minimum.reduceat(np.where(is_best, places, len(places)), begin)
            weights_used = weights[kind, corpus.kinds[first]]
            total += best * weights_used * factors[kind, corpus.kinds[first]]
            weight += weights_used
        precision = total / weight
        # From the lists' side: the first of the query's nearest for each vector, then list by list in their order.
        nearest = table.argmax(axis=0)
        value, other = table[nearest, np.arange(table.shape[1])][corpus.entity], kinds[nearest][corpus.entity]
        weights_used = weights[corpus.kinds, other]
        terms = value * weights_used * factors[corpus.kinds, other]
        total, weight = np.zeros(len(full)), np.zeros(len(full))
        for position in range(int(lengths.max())):  # one after the other, as the plain scorer adds
            longer = np.flatnonzero(lengths[full] > position)
            total[longer] += terms[begin[longer] + position]
            weight[longer] += weights_used[begin[longer] + position]
        sides = nothing.copy(), nothing.copy()
        sides[0][full], sides[1][full] = precision, total / weight
        scores = nothing.copy()
        scores[full] = join(sides[0][full], sides[1][full])
        return scores, *sides


def _subset(corpus: Any, documents: np.ndarray) -> Any:
    """Return the corpus with some `documents`, int64[n], and their vectors alone."""
    lengths = np.diff(corpus.ptr)[documents]
    ptr = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(ptr[-1]) + np.repeat(corpus.ptr[:-1][documents] - ptr[:-1], lengths)
    used, entity = np.unique(corpus.entity[places], return_inverse=True)
    return corpus._replace(vectors=corpus.vectors[used], ptr=ptr, entity=entity.reshape(-1), kinds=corpus.kinds[places])
