"""CheXbert search: FAISS flat inner product screens, finalists are re-scored in float64 in index order."""

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.chexbert.score import cosine
from metric_oracle.kernels.topk.reference import select

FIRST_FINALISTS = 32
OWN_THREADS = True  # FAISS brings threads of its own: one call answers all queries


def screen_error(width: int) -> float:
    """Bound the error of a float32 inner product of unit vectors of `width` dimensions, in any order of summation.

    gamma_n = n u / (1 - n u) with u = 2**-24 times the sum of the absolute products, at most the product of the lengths
    (Higham, Accuracy and Stability, section 3.1); the lengths are 1 within 2**-23 after rounding. The exact cosine
    divides by those lengths, hence the added 2**-21.
    """
    n_u = (width + 2) * 2.0**-24
    return n_u / (1.0 - n_u) * (1.0 + 2.0**-21) + 2.0**-21


@jit
def score_pairs(units, query, vectors, out):
    """Write the exact cosine of the query and each of the units.

    Parameters
    ----------
    units : int64[n]
    query : float32[d]
    vectors : float32[D, d]

    Writes
    ------
    out : float64[n]
    """
    for i in range(len(units)):
        u = units[i]
        dot = 0.0
        square_a = 0.0
        square_b = 0.0
        for j in range(len(query)):
            x = np.float64(vectors[u, j])
            y = np.float64(query[j])
            dot += x * y
            square_a += x * x
            square_b += y * y
        out[i] = cosine(dot, square_a, square_b)


def nearest(index, queries, n):
    """Return the n greatest float32 products of each query with the units: float32[Q, n], int64[Q, n]."""
    return index.faiss_index.search(queries, n)


def search(index, encoded, first, last, k, found, work, nearest=nearest):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1.

    A unit that `nearest` does not return has a float32 score of at most the last one returned; where that plus the
    error bound does not stay below the k-th exact score, more are asked for.
    """
    n_units = len(index.vectors)
    error = screen_error(index.vectors.shape[1])
    pending = np.arange(first, last)
    n = min(max(FIRST_FINALISTS, 2 * k), n_units)
    while len(pending):
        screened, finalists = nearest(index, encoded.vectors[pending], n)
        again = []
        for i, q in enumerate(pending):
            # The k-th best exact score is no lower than the k-th product less the error: k units are k rows or more.
            product = screened[i].astype(np.float64)
            units = finalists[i][product >= product[min(k, n) - 1] - 2 * error]
            exact = np.empty(len(units))
            score_pairs(units, encoded.vectors[q], index.vectors, exact)
            rows, scores, ties = select(units, exact, index.row_ptr, index.row_id, k)
            if n < n_units and (len(rows) < k or float(screened[i, -1]) + error >= scores[-1]):
                again.append(q)
                continue
            m = len(rows)
            found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties
        pending = np.array(again, np.int64)
        n = min(4 * n, n_units)


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return nothing: a cosine has no parts."""
    return {}
