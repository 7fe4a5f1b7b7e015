"""The model of rounding errors. The margin of every screen comes from these functions; none is a constant.

Standard model of floating-point arithmetic: fl(x op y) = (x op y)(1 + d) with |d| <= u, the unit roundoff, for + - * /,
square root and a fused multiply-add. All bounds hold in any order of summation, with or without FMA, in lanes or on a
GPU. They come from Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002, named as (section).

The functions take numbers and return float64. Their own few roundings, 2**-53 each, are far below their results: each
result is enlarged by 2**-40 of itself. Where the analysis ends (n u >= 1) a bound is infinite, so that a screen drops
nothing.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from metric_oracle.errors import ExactnessError
from metric_oracle.kernels._jit import scalar

FLOAT16, FLOAT32, FLOAT64 = 2.0**-11, 2.0**-24, 2.0**-53  # unit roundoffs (2.1, table 2.1)
_LEAST = {
    FLOAT16: 2.0**-14,
    FLOAT32: 2.0**-126,
    FLOAT64: 2.0**-1022,
}  # normal; a GPU may flush lesser ones
_OWN = 1.0 + 2.0**-40
SAMPLED = 64  # candidates outside the list that a search scores as a check, at least, over all its queries
SAMPLED_ON_GPU = 8  # the same for each query where a GPU makes the scores, at least


def gamma(n: int, u: float = FLOAT32) -> float:
    """Bound |(1 + d1) ... (1 + dn) - 1| for n roundings, each a factor or a divisor: n u / (1 - n u) (lemma 3.1).

    Parameters
    ----------
    n : int
        Roundings that a term meets at most.
    u : float
        Unit roundoff: `FLOAT16`, `FLOAT32` or `FLOAT64`.
    """
    return n * u / (1.0 - n * u) * _OWN if n * u < 1.0 else math.inf


def underflow(n: int, u: float = FLOAT32) -> float:
    """Bound what n results lose because they fall below the least normal number, even if flushed to zero (2.1)."""
    return n * _LEAST[u]


def product_error(n: int, lengths: float = 1.0, u: float = FLOAT32) -> float:
    """Bound the error of a computed x'y of n terms: gamma_n |x|'|y| (3.1, equation 3.5), and underflow.

    Parameters
    ----------
    n : int
        Width of the vectors. Their numbers count as exact: what rounding them cost is to be added by `rounding`.
    lengths : float
        The product of the vectors' Euclidean lengths at most; |x|'|y| is no greater (Cauchy and Schwarz).
    """
    return gamma(n, u) * lengths * _OWN + underflow(2 * n, u)


def length_error(n: int, u: float = FLOAT64) -> float:
    """Bound the relative error of a computed Euclidean length of n numbers: n roundings in its square, one of the root.

    A length below the square root of n least normal numbers (1e-19 in float32, 1e-154 in float64) is not covered.
    """
    return gamma(n + 1, u)


def rounding(length: float, n: int, u: float = FLOAT32) -> float:
    """Bound the length of the error when a vector of n numbers is rounded to a narrower format (theorem 2.2).

    Parameters
    ----------
    length : float
        The vector's Euclidean length at most.
    n : int
    u : float
        Unit roundoff of the narrower format. A number below its least normal one loses up to that one.
    """
    return (u * length + math.sqrt(n) * _LEAST[u]) * _OWN


@scalar
def sample_size(n_queries):
    """Return how many dropped candidates to score for each query, so that a search checks at least `SAMPLED`.

    Parameters
    ----------
    n_queries : int
        Distinct queries of the search.
    """
    return max(-(-SAMPLED // max(n_queries, 1)), 1)


def check_bounds(closest: Mapping[str, float], n_missed: int = 0) -> None:
    """Raise if a bound of a search was broken.

    Parameters
    ----------
    closest : mapping of str to float
        Stage of a search -> the minimum of bound - score over all exact scores, which must not be negative.
    n_missed : int
        Dropped candidates of the sample that belong in the list.

    Raises
    ------
    ExactnessError
        The search has no answer then.
    """
    advice = "This is a defect: please report it with the index fingerprint."
    for stage, distance in closest.items():
        if not distance >= 0.0:
            raise ExactnessError(
                argument=f"the bound of stage {stage!r}",
                rule="must not lie below a score",
                value=f"one {-distance:.3g} below",
                step=advice,
            )
    if n_missed:
        raise ExactnessError(
            argument="no dropped candidate",
            rule="must score among the best",
            value=f"{n_missed} of a sample",
            step=advice,
        )


def check_dropped(
    q: int, n_queries: int, n: int, kept: np.ndarray, least: float, score: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Score a sample of the dropped documents, which must all score below the k-th best row.

    Parameters
    ----------
    q : int
    n_queries : int
        Distinct queries of the search.
    n : int
        Documents.
    kept : int64[...]
        Documents that were not dropped.
    least : float
        Score of the k-th best row.
    score : function
        Returns the exact scores of documents.

    Raises
    ------
    ExactnessError
        The search has no answer then.
    """
    size = max(sample_size(n_queries), SAMPLED_ON_GPU)
    drawn = np.setdiff1d(np.random.default_rng(q).integers(n, size=size), kept)
    check_bounds({}, int(np.count_nonzero(score(drawn) >= least)))
