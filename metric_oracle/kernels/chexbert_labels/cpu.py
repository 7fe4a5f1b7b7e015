"""Cosine of CheXbert's 14 labels: integer products with every distinct vector, of which there are few."""

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


def cosines(corpus, squares, query):
    """Return the exact cosines of a query with label vectors, float64[D].

    Small integers: every sum is exact, and one division of integers makes equal cosines equal numbers.

    Parameters
    ----------
    corpus : float64[D, 14]
    squares : float64[D]
        Squared lengths.
    query : int8[14]
    """
    query = query.astype(np.float64)
    dot, norm = corpus @ query, squares * np.sum(query * query)
    root = np.sqrt(np.divide(dot * dot, norm, out=np.zeros(len(corpus)), where=norm > 0))
    return np.where(dot < 0, -root, root)


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """Cosine of CheXbert's labels on CPUs."""

    def score_all(self, corpus, batch, chosen):
        """Yield the cosine of every document with each of some distinct queries: float64[D]."""
        corpus = corpus.vectors.astype(np.float64)
        squares = np.sum(corpus * corpus, axis=1)
        for q in chosen:
            yield cosines(corpus, squares, batch.vectors[q])

    def score_pairs(self, corpus, batch, query, document):
        """Return the score of pairs of a distinct query and a document, float64[n]; a cosine has no components."""
        a, b = corpus.vectors[document].astype(np.int64), batch.vectors[query].astype(np.int64)
        sums = [np.sum(x * y, axis=1).tolist() for x, y in ((a, b), (a, a), (b, b))]
        return np.array([integer_cosine(*row) for row in zip(*sums, strict=True)]), {}
