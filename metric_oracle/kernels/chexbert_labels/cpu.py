"""Cosine of CheXbert's 14 labels: products with every distinct vector, of which there are few, by blocks of queries."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels.contract import ScoredWhole
from metric_oracle.kernels.cosine.score import integer_cosine


class LabelCorpus(NamedTuple):
    """Distinct label vectors of a corpus: int8[D, 14], and the rows of each, int64[D + 1] and int64[N]."""

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray


class LabelBatch(NamedTuple):
    """Distinct label vectors of a batch of queries: int8[Q, 14]."""

    vectors: np.ndarray


def cosines(dot, squares, square):
    """Return the exact cosines of a query with label vectors, float64[D].

    One division of integers makes equal cosines equal numbers.

    Parameters
    ----------
    dot : float64[D]
        Products with the query.
    squares : float64[D]
        Squared lengths.
    square : float
        The query's.
    """
    root = np.sqrt(dot * dot / np.maximum(squares * square, 1))  # where a length is 0 the product is
    return np.where(dot < 0, -root, root)


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """Cosine of CheXbert's labels on CPUs."""

    def score_all(self, corpus, batch, chosen):
        """Yield the cosine of every document with each of some distinct queries: float64[D]."""
        # Products of so few small integers are exact in float32.
        vectors, queries = corpus.vectors.astype(np.float32), batch.vectors[list(chosen)].astype(np.float32)
        squares = np.einsum("dl,dl->d", vectors, vectors).astype(np.float64)
        for first in range(0, len(queries), self.capabilities.queries_at_once):
            some = queries[first : first + self.capabilities.queries_at_once]
            for query, dot in zip(some, some @ vectors.T, strict=True):
                yield cosines(dot.astype(np.float64), squares, float(query @ query))

    def score_pairs(self, corpus, batch, query, document):
        """Return the score of pairs of a distinct query and a document, float64[n]; a cosine has no components."""
        a, b = corpus.vectors[document].astype(np.int64), batch.vectors[query].astype(np.int64)
        sums = [np.sum(x * y, axis=1).tolist() for x, y in ((a, b), (a, a), (b, b))]
        return np.array([integer_cosine(*row) for row in zip(*sums, strict=True)]), {}
