"""Rank agreement of two columns over resamples of studies: tau-b and Spearman over all pairs, and within studies.

The studies are resampled, each with all its pairs, because the pairs of one study share a reference. All statistics of
a resample follow from signs of differences and from how often each pair was drawn (w): with X_ij = sign(x_i - x_j),
tau-b = sum w_i w_j X Y / sqrt(sum w_i w_j X^2 * sum w_i w_j Y^2), and X w is twice the rank of x, centred. So all
resamples are a few matrix products, where SciPy would rank each resample anew. Within studies the sums run over
pairs of candidates for one reference, each study as often as it was drawn.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metric_oracle.statistics import Array

TAU, SPEARMAN, WITHIN, ACCURACY = "tau-b", "spearman", "tau-b within studies", "pairwise accuracy"
_DIGITS = 12  # of sums of grades: ties are many, and rounding would break them


class Resamples(NamedTuple):
    """Which pairs a statistic is computed on: the resamples, then all studies but one, then all.

    Attributes
    ----------
    studies : float64[B + S + 1, S]
        How often each study occurs.
    member : float64[P, S]
        1 where a pair is of a study.
    pairs : float64[B + S + 1, P]
        How often each pair occurs.
    """

    studies: Array
    member: Array
    pairs: Array


class Side(NamedTuple):
    """One of the two columns that are correlated, prepared for all resamples.

    Attributes
    ----------
    signs : float64[P, P]
        Signs of the differences of all pairs.
    untied, untied_within : float64[B + S + 1]
        Ordered pairs of items that are not tied: of all, and of one study.
    ranks : float64[B + S + 1, P]
        Twice the mid-ranks, centred, with the sign turned.
    spread : float64[B + S + 1]
        Sum of the squares of `ranks`, each as often as its item occurs.
    """

    signs: Array
    untied: Array
    untied_within: Array
    ranks: Array
    spread: Array


def sum_of(by_rater: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sum over raters, number[R, P] -> number[P]; sums of the same grades in another order stay equal."""
    total = by_rater.sum(axis=0)
    return total if total.dtype.kind in "iu" else np.round(total, _DIGITS)


def draw(of_pair: Sequence[str], resamples: int, seed: int) -> Resamples:
    """Draw studies with replacement; `of_pair` is the study of each of P pairs."""
    code = {study: place for place, study in enumerate(dict.fromkeys(of_pair))}
    n = len(code)
    member = np.eye(n)[[code[study] for study in of_pair]]
    times = np.zeros((resamples, n))
    np.add.at(times, (np.arange(resamples)[:, None], np.random.default_rng(seed).integers(0, n, (resamples, n))), 1)
    studies = np.concatenate([times, 1 - np.eye(n), np.ones((1, n))])
    return Resamples(studies, member, studies @ member.T)


def side(values: npt.NDArray[Any], drawn: Resamples) -> Side:
    """Prepare a column of P numbers."""
    return of_signs(np.sign(values[:, None] - values).astype(np.float64), drawn)


def of_signs(signs: Array, drawn: Resamples) -> Side:
    """Prepare float64[P, P] signs of differences, which need not be those of one column; they have no ranks then."""
    ranks = drawn.studies @ (drawn.member.T @ signs)
    untied = signs * signs
    spread = np.einsum("bp,bp->b", drawn.pairs, ranks * ranks)
    return Side(signs, _over_pairs(untied, drawn), _within(untied, drawn), ranks, spread)


def tau_b(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return Kendall's tau-b of each resample, NaN where a side is constant."""
    return _ratio(_over_pairs(x.signs * y.signs, drawn), x.untied, y.untied)


def spearman(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return Spearman's rank correlation of each resample, NaN where a side is constant."""
    return _ratio(np.einsum("bp,bp->b", drawn.pairs, x.ranks * y.ranks), x.spread, y.spread)


def tau_within(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return Kendall's tau-b over pairs of candidates of one study, NaN where a side is constant within studies."""
    return _ratio(_within(x.signs * y.signs, drawn), x.untied_within, y.untied_within)


def accuracy(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return how many of the pairs of candidates of one study that y tells apart x orders alike; a tie of x is half."""
    both = _within(x.signs * y.signs, drawn)
    return (1 + np.divide(both, y.untied_within, out=np.full_like(both, np.nan), where=y.untied_within > 0)) / 2


STATISTICS: dict[str, Callable[[Side, Side, Resamples], Array]] = {
    TAU: tau_b,
    SPEARMAN: spearman,
    WITHIN: tau_within,
    ACCURACY: accuracy,
}


def _within(matrix: Array, drawn: Resamples) -> Array:
    """Sum float64[P, P] over the ordered pairs of items of one study, of each resample."""
    same = drawn.member @ drawn.member.T
    return drawn.studies @ (drawn.member.T @ (matrix * same).sum(axis=1))


def _over_pairs(matrix: Array, drawn: Resamples) -> Array:
    """Sum float64[P, P] over the ordered pairs of items of each resample."""
    by_study = drawn.member.T @ matrix @ drawn.member
    return np.einsum("bs,bs->b", drawn.studies @ by_study, drawn.studies)


def _ratio(both: Array, first: Array, second: Array) -> Array:
    # All are whole numbers below 2^53, so a constant side is exactly zero.
    spread = np.sqrt(first) * np.sqrt(second)
    return np.divide(both, spread, out=np.full_like(both, np.nan), where=spread > 0)
