"""The model of rounding errors in floating-point arithmetic, and the checks that every search makes of its bounds.

A search drops candidates by bounds that are computed in floating point (a *screen*). So that rounding drops no
candidate that belongs in the result, each bound is enlarged by a margin, which these functions compute; no margin is a
constant.

Standard model of floating-point arithmetic: fl(x op y) = (x op y)(1 + d) with |d| <= u, the unit roundoff, for + - * /,
square root and a fused multiply-add. All bounds hold in any order of summation, with or without FMA, in SIMD lanes or
on a GPU. They come from Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002; numbers in
brackets are its sections.

The functions take numbers and return float64. They make a few roundings of 2**-53 each themselves; to cover these, each
result is enlarged by a factor of 1 + 2**-40. If n u >= 1 the analysis does not apply, and the bound is infinite, so
that a screen drops nothing.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from metric_oracle.base.errors import ExactnessError
from metric_oracle.kernels._jit import scalar

FLOAT16, FLOAT32, FLOAT64 = 2.0**-11, 2.0**-24, 2.0**-53  # unit roundoffs (2.1, table 2.1)
_LEAST = {
    FLOAT16: 2.0**-14,
    FLOAT32: 2.0**-126,
    FLOAT64: 2.0**-1022,
}  # normal; a GPU may flush lesser ones
_OWN = 1.0 + 2.0**-40
SAMPLED = 64  # candidates outside the list that a search scores as a check, at least, over all its queries
SPREAD = 256  # queries that a large search checks in this way, at least
SAMPLED_ON_GPU = 8  # the same for each query where a GPU makes the scores, at least


def gamma(n: int, u: float = FLOAT32) -> float:
    """Bound |(1 + d1) ... (1 + dn) - 1| for n roundings, each a factor or a divisor: n u / (1 - n u) (lemma 3.1).

    `n` is the most roundings that a term meets, `u` the unit roundoff: `FLOAT16`, `FLOAT32` or `FLOAT64`. It is
    infinite if n u is at least 1.
    """
    return n * u / (1.0 - n * u) * _OWN if n * u < 1.0 else math.inf


def underflow(n: int, u: float = FLOAT32) -> float:
    """Bound the total error of n results below the least normal number of the format of unit roundoff `u` (2.1).

    It covers results that are flushed to zero.
    """
    return n * _LEAST[u]


def product_error(n: int, lengths: float = 1.0, u: float = FLOAT32) -> float:
    """Bound the error of a computed inner product x'y of n terms: gamma_n |x|'|y| (3.1, equation 3.5), and underflow.

    `lengths` is an upper bound on the product of the vectors' Euclidean lengths, which is no less than |x|'|y| (Cauchy
    and Schwarz), and `u` the unit roundoff of the arithmetic. The vectors' numbers are taken as exact; if they were
    rounded to a narrower format before, add the result of `rounding`.
    """
    return gamma(n, u) * lengths * _OWN + underflow(2 * n, u)


def length_error(n: int, u: float = FLOAT64) -> float:
    """Bound the relative error of a computed Euclidean length of n numbers: n roundings in its square, one of the root.

    `u` is the unit roundoff. A length below the square root of n least normal numbers (1e-19 in float32, 1e-154 in
    float64) is not covered.
    """
    return gamma(n + 1, u)


def rounding(length: float, n: int, u: float = FLOAT32) -> float:
    """Bound the length of the change of a vector of n numbers that are rounded to a narrower format (theorem 2.2).

    `length` is an upper bound on its Euclidean length, `u` the unit roundoff of the narrower format. A number below its
    least normal number may change by as much as that number.
    """
    return (u * length + math.sqrt(n) * _LEAST[u]) * _OWN


@scalar
def sample_size(n_queries):
    """Return how many dropped candidates a search of `n_queries` distinct queries scores for each, as a check.

    In all these are at least `SAMPLED`: every search scores some of them, to find out whether one belongs in the
    result.
    """
    return max(-(-SAMPLED // max(n_queries, 1)), 1)


@scalar
def sample_of(q, n_queries):
    """Return how many dropped candidates a search of `n_queries` distinct queries scores as a check of query `q`.

    It is `sample_size` for every query of a search of fewer than 2 * `SPREAD` queries. In a larger search only every
    (n_queries // SPREAD)-th query is checked, because a check may take a tenth of the time of a query, or more.
    """
    return 0 if q % max(n_queries // SPREAD, 1) else sample_size(n_queries)


def check_bounds(closest: Mapping[str, float], n_missed: int = 0) -> None:
    """Raise ExactnessError if a finished search broke a bound, so that its results must not be used.

    `closest` has, for each stage, the minimum of bound - score over all exactly scored candidates: it must not be
    negative. `n_missed` counts candidates, of those that were scored only as a check, that were dropped but belong in
    the result.
    """
    advice = "This is a defect: please report it with the index fingerprint."
    for stage, distance in closest.items():
        if not distance >= 0.0:
            raise ExactnessError(
                f"the bound of stage {stage!r}", "must not lie below a score", f"one {-distance:.3g} below", advice
            )
    if n_missed:
        raise ExactnessError("no dropped candidate", "must score among the best", f"{n_missed} of a sample", advice)


def check_dropped(
    q: int, n_queries: int, n_documents: int, kept: np.ndarray, least: float, score: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Score a random sample of the documents that a GPU search dropped; raise ExactnessError if one should be listed.

    Parameters
    ----------
    q : int
        Number of the query, which seeds the random choice.
    n_queries : int
        Distinct queries of the search.
    n_documents : int
        Documents of the corpus.
    kept : int64[...]
        Documents that were not dropped.
    least : float
        Score of the k-th best row, below which every dropped document must score.
    score : function
        Returns the exact scores of documents, float64[m], from their numbers, int64[m].
    """
    size = max(sample_size(n_queries), SAMPLED_ON_GPU)
    drawn = np.setdiff1d(np.random.default_rng(q).integers(n_documents, size=size), kept)
    check_bounds({}, int(np.count_nonzero(score(drawn) >= least)))
