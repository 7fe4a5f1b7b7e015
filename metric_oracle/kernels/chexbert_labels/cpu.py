"""Cosine of CheXbert's 14 labels: integer products with every distinct vector, of which there are few."""

import numpy as np

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


def search(index, encoded, first, last, k, found, work):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
    corpus = index.vectors.astype(np.float64)
    squares = np.sum(corpus * corpus, axis=1)
    units = np.arange(len(corpus))
    for q in range(first, last):
        scores = cosines(corpus, squares, encoded.vectors[q])
        rows, scores, ties = select(units, scores, index.row_ptr, index.row_id, k)
        m = len(rows)
        found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return nothing: a cosine has no parts."""
    return {}
