"""CheXbert search: FAISS flat inner product screens, finalists are re-scored in float64 in index order."""

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.chexbert.score import cosine
from metric_oracle.kernels.topk.reference import select

FIRST_FINALISTS = 32
OWN_THREADS = True  # FAISS brings threads of its own: one call answers all queries
CHUNK = 1 << 14  # vectors that are widened at once: 96 MiB at 768 dimensions
SCORED_AT_ONCE = 128  # queries that share the widening of all vectors


def screen_error(width: int) -> float:
    """Bound the error of a float32 inner product of unit vectors of `width` dimensions, in any order of summation.

    gamma_n = n u / (1 - n u) with u = 2**-24 times the sum of the absolute products, at most the product of the lengths
    (Higham, Accuracy and Stability, section 3.1); the lengths are 1 within 2**-23 after rounding. The exact cosine
    divides by those lengths, hence the added 2**-21.
    """
    n_u = (width + 2) * 2.0**-24
    return n_u / (1.0 - n_u) * (1.0 + 2.0**-21) + 2.0**-21


@jit
def score_units(units, query, vectors, out):
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
            score_units(units, encoded.vectors[q], index.vectors, exact)
            rows, scores, ties = select(units, exact, index.row_ptr, index.row_id, k)
            if n < n_units and (len(rows) < k or float(screened[i, -1]) + error >= scores[-1]):
                again.append(q)
                continue
            m = len(rows)
            found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties
        pending = np.array(again, np.int64)
        n = min(4 * n, n_units)


def score_all(index, encoded, chosen):
    """Yield the cosine of every unit with each of some distinct queries: float64[D], right within `all_error`."""
    wide = encoded.vectors[chosen].astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    n_units = len(index.vectors)
    out = np.empty((len(wide), n_units))
    for first in range(0, n_units, CHUNK):
        some = slice(first, first + CHUNK)
        np.matmul(wide, index.vectors[some].astype(np.float64).T, out=out[:, some])
    for cosines in out:
        cosines /= index.lengths
        yield cosines


def all_error(index, encoded):
    """Bound the error of what :func:`score_all` yields.

    As for :func:`screen_error`, in float64; eight more roundings for lengths and divisions.
    """
    n_u = (index.vectors.shape[1] + 8) * 2.0**-53
    return n_u / (1.0 - n_u)


def score_pairs(index, encoded, query, unit):
    """Return the score of pairs of a distinct query and a unit, float64[n]; a cosine has no components."""
    scores = np.empty(len(query))
    for i, (q, u) in enumerate(zip(query, unit, strict=True)):
        score_units(np.array([u]), encoded.vectors[q], index.vectors, scores[i : i + 1])
    return scores, {}


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return nothing: a cosine has no parts."""
    return {}
