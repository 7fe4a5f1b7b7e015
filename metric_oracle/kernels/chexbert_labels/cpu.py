"""Cosine of CheXbert's 14 labels: integer products with every distinct vector, of which there are few."""

import numpy as np

from metric_oracle.kernels.chexbert.score import cosine
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


def score_all(index, encoded, chosen):
    """Yield the cosine of every unit with each of some distinct queries: float64[D]."""
    corpus = index.vectors.astype(np.float64)
    squares = np.sum(corpus * corpus, axis=1)
    for q in chosen:
        yield cosines(corpus, squares, encoded.vectors[q])


def search(index, encoded, first, last, k, found, work):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
    units = np.arange(len(index.vectors))
    for q, all_scores in enumerate(score_all(index, encoded, range(first, last)), first):
        rows, scores, ties = select(units, all_scores, index.row_ptr, index.row_id, k)
        m = len(rows)
        found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties


def score_pairs(index, encoded, query, unit):
    """Return the score of pairs of a distinct query and a unit, float64[n]; a cosine has no components."""
    a, b = index.vectors[unit].astype(np.int64), encoded.vectors[query].astype(np.int64)
    sums = [np.sum(x * y, axis=1).tolist() for x, y in ((a, b), (a, a), (b, b))]
    return np.array([cosine(*row) for row in zip(*sums, strict=True)]), {}


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return nothing: a cosine has no parts."""
    return {}
