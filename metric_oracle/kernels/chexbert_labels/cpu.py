"""Cosine of CheXbert's 14 labels: integer products with every distinct vector, of which there are few."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metric_oracle.kernels.chexbert.score import cosine
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.topk.reference import select


def cosines(corpus, squares, query):
    """Return the exact cosines of a query with label vectors, float64[D]: small integers, every sum is exact.

    Parameters
    ----------
    corpus : float64[D, 14]
    squares : float64[D]
        Squared lengths.
    query : int8[14]
    """
    query = query.astype(np.float64)
    norm = np.sqrt(squares * np.sum(query * query))
    return np.divide(corpus @ query, norm, out=np.zeros(len(corpus)), where=norm > 0)


@dataclass(frozen=True)
class Backend(Kernel):
    """Cosine of CheXbert's labels on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
        units = np.arange(len(corpus.vectors))
        for q, all_scores in enumerate(self.score_all(corpus, batch, range(first, last)), first):
            rows, scores, ties = select(units, all_scores, corpus.row_ptr, corpus.row_id, k)
            m = len(rows)
            answers.rows[q, :m], answers.scores[q, :m], answers.ties[q, :m] = rows, scores, ties

    def score_all(self, corpus, batch, chosen):
        """Yield the cosine of every unit with each of some distinct queries: float64[D]."""
        corpus = corpus.vectors.astype(np.float64)
        squares = np.sum(corpus * corpus, axis=1)
        for q in chosen:
            yield cosines(corpus, squares, batch.vectors[q])

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n]; a cosine has no components."""
        a, b = corpus.vectors[unit].astype(np.int64), batch.vectors[query].astype(np.int64)
        sums = [np.sum(x * y, axis=1).tolist() for x, y in ((a, b), (a, a), (b, b))]
        return np.array([cosine(*row) for row in zip(*sums, strict=True)]), {}
