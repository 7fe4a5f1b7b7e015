"""Rank statistics of two columns of numbers, computed on many resamples of the studies at once.

A resample draws studies with replacement, each with all its rated pairs, because the pairs of a study share a
reference report. Every statistic follows from the signs of differences and from the number of times w that each pair
was drawn. With X_ij = sign(x_i - x_j), Kendall's tau-b is sum w_i w_j X Y / sqrt(sum w_i w_j X^2 * sum w_i w_j Y^2),
and X w is twice the centred rank of x. All resamples are therefore a few matrix products, where SciPy would rank each.

The statistics within groups (the candidates for one reference, or one chain of graded candidates) use only the
comparisons inside a group. They need memory for these comparisons, not for all P x P pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metric_oracle.statistics import Array, adjusted, bca, bootstrap_p, difference, effective_studies, percentile

TAU, SPEARMAN, WITHIN, ACCURACY = "tau-b", "spearman", "tau-b within studies", "pairwise accuracy"
TIES, WHOLE = "accuracy with ties", "groups in the right order"
JUDGEMENTS = "accuracy on single judgements"
RATED = (TAU, SPEARMAN, WITHIN, ACCURACY)  # of sets whose ratings can be compared between studies
QUANTILES = np.array([0.025, 0.975])
_DIGITS = 12  # sums of grades are rounded: ties are frequent, and floating-point error would break them


@dataclass(frozen=True)
class DrawnStudies:
    """How often each study occurs in each resample.

    The first B rows are the bootstrap resamples, the next S rows leave out one study each, and the last row has every
    study once.
    """

    studies: Array  # float64[B + S + 1, S], number of times that each study occurs
    study: npt.NDArray[np.int64]  # int64[P], index of the study of each rated pair
    group: npt.NDArray[np.int64]  # int64[P], index of the group of each pair; a group belongs to one study
    is_pooled: bool = True  # whether pairs of different groups are compared, too; if not, a `Side` has no part for them

    @cached_property
    def member(self) -> Array:
        """float64[P, S]: 1 where a pair belongs to a study."""
        return np.eye(self.studies.shape[1])[self.study]

    @cached_property
    def pairs(self) -> Array:
        """float64[B + S + 1, P]: number of times that each pair occurs."""
        return np.ascontiguousarray(self.studies[:, self.study])  # the order of sums in products depends on it

    @cached_property
    def comparisons(self) -> npt.NDArray[np.int64]:
        """int64[2, C]: the two pairs of every comparison inside a group."""
        order = np.argsort(self.group, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(self.group[order])) + 1)
        return np.concatenate([rows[np.array(np.triu_indices(len(rows), 1))] for rows in groups], axis=1)

    @property
    def left_out(self) -> "DrawnStudies":
        """The rows that leave out one study each, and the row of all studies."""
        return DrawnStudies(self.studies[-self.studies.shape[1] - 1 :], self.study, self.group, self.is_pooled)

    def subset(self, pairs: npt.NDArray[np.bool_]) -> "DrawnStudies":
        """Return the same resamples of the pairs where `pairs`, a bool[P], is true."""
        return DrawnStudies(self.studies, self.study[pairs], self.group[pairs], self.is_pooled)


class Side(NamedTuple):
    """One of the two columns that are correlated, prepared for all resamples.

    If pairs of different groups are not compared, `signs`, `untied`, `ranks` and `spread` have no columns.
    """

    signs: Array  # float64[P, P], signs of the differences of all pairs
    within: Array  # float64[C], signs of the differences of the comparisons inside groups
    untied: Array  # float64[B + S + 1], number of ordered comparisons of all pairs that are no ties
    untied_within: Array  # float64[B + S + 1], number of those inside groups
    ranks: Array  # float64[B + S + 1, P], twice the centred mid-ranks, with the sign reversed
    spread: Array  # float64[B + S + 1], sum of the squares of `ranks`, each as often as its pair occurs

    def last(self, n: int) -> "Side":
        """Return the column prepared for the last `n` resamples alone."""
        return Side(self.signs, self.within, *(part[-n:] for part in self[2:]))


def sum_of_raters(by_rater: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sum over raters, number[R, P] -> number[P]. Equal grades give equal sums in any order of raters."""
    total = by_rater.sum(axis=0)
    return total if total.dtype.kind in "iu" else np.round(total, _DIGITS)


def draw(
    studies: Sequence[str], resamples: int, seed: int, groups: Sequence[str] | None = None, *, is_pooled: bool = True
) -> DrawnStudies:
    """Return resamples of studies, drawn with replacement.

    `studies` and `groups` have those of each pair; by default its study is its group.
    `resamples` is the number of draws. If not `is_pooled`, pairs of different groups may not be compared.
    """
    codes = []
    for labels in (studies, studies if groups is None else groups):
        code = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        codes.append(np.array([code[label] for label in labels], np.int64))
    n = int(codes[0].max(initial=-1)) + 1
    times = np.zeros((resamples, n))
    np.add.at(times, (np.arange(resamples)[:, None], np.random.default_rng(seed).integers(0, n, (resamples, n))), 1)
    return DrawnStudies(np.concatenate([times, 1 - np.eye(n), np.ones((1, n))]), codes[0], codes[1], is_pooled)


def side(values: npt.NDArray[Any], drawn: DrawnStudies) -> Side:
    """Return a column of P numbers prepared for the statistics on all resamples."""
    if drawn.is_pooled:
        return of_signs(np.sign(difference(values[:, None], values)).astype(np.float64), drawn)
    first, second = drawn.comparisons
    within = np.sign(difference(values[first], values[second])).astype(np.float64)
    none = np.zeros((len(drawn.studies), 0))
    return Side(none, within, none, sum_within(within * within, drawn), none, none)


def of_signs(signs: Array, drawn: DrawnStudies) -> Side:
    """Return a matrix of signs of differences, float64[P, P], prepared for the statistics on all resamples.

    The matrix need not come from one column.
    """
    ranks = drawn.studies @ (drawn.member.T @ signs)
    untied = signs * signs
    spread = np.einsum("bp,bp->b", drawn.pairs, ranks * ranks)
    within = signs[tuple(drawn.comparisons)]
    return Side(signs, within, _over_pairs(untied, drawn), sum_within(within * within, drawn), ranks, spread)


def tau_b(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return Kendall's tau-b of x and y in each resample, NaN where x or y is constant."""
    return _ratio(_over_pairs(x.signs * y.signs, drawn), x.untied, y.untied)


def spearman(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return Spearman's rank correlation of x and y in each resample, NaN where x or y is constant."""
    return _ratio(np.einsum("bp,bp->b", drawn.pairs, x.ranks * y.ranks), x.spread, y.spread)


def tau_within(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return Kendall's tau-b over the comparisons inside groups, NaN where x or y is constant inside every group."""
    return _ratio(sum_within(x.within * y.within, drawn), x.untied_within, y.untied_within)


def accuracy(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return the share of comparisons inside groups, without ties of y, that x orders as y does; a tie of x is half."""
    return (1 + share(sum_within(x.within * y.within, drawn), y.untied_within)) / 2


def accuracy_with_ties(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return the share of comparisons inside groups on which x and y agree: better, worse or tied.

    Deutsch et al., EMNLP 2023. It does not calibrate a threshold below which two scores count as tied.
    """
    equal = (x.within == y.within).astype(np.float64)
    return share(sum_within(equal, drawn), sum_within(np.ones_like(equal), drawn))


def whole_groups(x: Side, y: Side, drawn: DrawnStudies) -> Array:
    """Return the share of groups in which x orders all comparisons as y does.

    Comparisons with a tie in y are left out.
    """
    group = drawn.group[drawn.comparisons[0]]
    n = int(drawn.group.max(initial=-1)) + 1
    counted = np.bincount(group, y.within != 0, n) > 0
    agreeing = counted & (np.bincount(group, (y.within != 0) & (x.within != y.within), n) == 0)
    study = np.zeros(n, np.int64)
    study[drawn.group] = drawn.study
    n_studies = drawn.studies.shape[1]
    return share(*(drawn.studies @ np.bincount(study, groups, n_studies) for groups in (agreeing, counted)))


STATISTICS: dict[str, Callable[[Side, Side, DrawnStudies], Array]] = {
    TAU: tau_b,
    SPEARMAN: spearman,
    WITHIN: tau_within,
    ACCURACY: accuracy,
    TIES: accuracy_with_ties,
    WHOLE: whole_groups,
}


def lowest(statistic: str) -> float:
    """Return the lowest possible value of a statistic: -1 of a correlation, 0 of a share. The highest is 1."""
    return -1.0 if statistic in (TAU, SPEARMAN, WITHIN) else 0.0


def interval_row(statistic: str, values: Array, drawn: DrawnStudies) -> dict[str, Any]:
    """Return the value of a statistic with its percentile and BCa intervals.

    `values`, float64[B + S + 1], has the statistic on every row of `drawn`. The row has ``statistic``, ``value``,
    ``low``, ``high``, ``bca_low``, ``bca_high``, ``effective`` (number of studies that the interval rests on) and
    ``degenerate`` (number of resamples without a value). A value or an end of an interval that does not exist is None.
    """
    n_studies = drawn.studies.shape[1]
    resampled, left_out, value = values[: -n_studies - 1], values[-n_studies - 1 : -1], float(values[-1])
    exists = np.isfinite(resampled)
    numbers: dict[str, Any] = dict.fromkeys(("value", "low", "high", "bca_low", "bca_high", "effective"))
    if np.isfinite(value):
        numbers["value"] = value
        numbers["low"], numbers["high"] = percentile(resampled[exists], QUANTILES)
        numbers["bca_low"], numbers["bca_high"] = bca(value, resampled[exists], left_out, QUANTILES)
        # The change from leaving out a study plays the role that a study's score plays for a mean.
        numbers["effective"] = effective_studies(left_out - value) if np.isfinite(left_out).all() else 0.0
    return {"statistic": statistic, **numbers, "degenerate": int((~exists).sum())}


def difference_row(values: Array, resamples: int) -> dict[str, Any] | None:
    """Return ``value``, ``low``, ``high``, two-sided ``p_value`` and ``degenerate`` of a difference of two statistics.

    `values` has the difference on every row of the `DrawnStudies`, of which the first `resamples` are drawn. The result
    is None where the difference has no value.
    """
    resampled = values[:resamples]
    exists = np.isfinite(resampled)
    if not np.isfinite(values[-1]) or not exists.any():
        return None
    low, high = percentile(resampled[exists], QUANTILES)
    numbers: dict[str, Any] = {"value": float(values[-1]), "low": low, "high": high}
    return {**numbers, "p_value": bootstrap_p(resampled[exists]), "degenerate": int((~exists).sum())}


def add_adjusted(family: Sequence[dict[str, Any]]) -> None:
    """Add ``p_adjusted`` to each row: its ``p_value`` adjusted over all of them (Benjamini and Hochberg)."""
    if family:
        p_values = adjusted([row["p_value"] for row in family])
        for row, p_adjusted in zip(family, p_values, strict=True):
            row["p_adjusted"] = p_adjusted


def sum_within(of_comparison: Array, drawn: DrawnStudies) -> Array:
    """Sum float64[C] over the ordered comparisons inside groups, for each resample."""
    study = drawn.study[drawn.comparisons[0]]
    # Each comparison is counted in both directions, as in the sums over all pairs.
    return 2 * (drawn.studies @ np.bincount(study, of_comparison, drawn.studies.shape[1]))


def _over_pairs(matrix: Array, drawn: DrawnStudies) -> Array:
    """Sum float64[P, P] over the ordered pairs of rated pairs, for each resample."""
    by_study = drawn.member.T @ matrix @ drawn.member
    return np.einsum("bs,bs->b", drawn.studies @ by_study, drawn.studies)


def share(part: Array, whole: Array) -> Array:
    """Return part / whole, NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full_like(part, np.nan), where=whole > 0)


def _ratio(both: Array, first: Array, second: Array) -> Array:
    """Return both / sqrt(first * second), NaN where the denominator is 0."""
    # All sums are integers below 2^53, so that the spread of a constant side is exactly zero.
    return share(both, np.sqrt(first) * np.sqrt(second))
