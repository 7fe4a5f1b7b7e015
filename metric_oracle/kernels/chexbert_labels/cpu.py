"""Cosine of CheXbert's 14 labels: integer products with every distinct vector, of which there are few."""

import numpy as np

from metric_oracle.kernels.topk.reference import select


def score_all(index, encoded, chosen):
    """Yield the cosine of every unit with each of some distinct queries: float64[D]."""
    corpus = index.vectors.astype(np.float64)  # small integers: every product and sum is exact
    squares = np.sum(corpus * corpus, axis=1)
    for q in chosen:
        query = encoded.vectors[q].astype(np.float64)
        norm = np.sqrt(squares * np.sum(query * query))
        yield np.divide(corpus @ query, norm, out=np.zeros(len(corpus)), where=norm > 0)


def search(index, encoded, first, last, k, found, work):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
    units = np.arange(len(index.vectors))
    for q, all_scores in enumerate(score_all(index, encoded, range(first, last)), first):
        rows, scores, ties = select(units, all_scores, index.row_ptr, index.row_id, k)
        m = len(rows)
        found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return nothing: a cosine has no parts."""
    return {}
