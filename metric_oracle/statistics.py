"""Intervals and tests over studies: means and what follows from means, the difference of two systems.

The study is the unit: resampling and tests draw studies, never pairs or words. All randomness comes from a seed.
Columns of equal length are resampled with the same draws, so that a table does not depend on its order, and whatever is
computed from several means (a share, a change, CRG) has an interval of its own from the same resamples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError
from metric_oracle.base.option_types import LEGACY
from metric_oracle.base.validation import public

RESAMPLES = 10_000
LEVEL = 0.95
LEGACY_SAMPLE = 5000  # values that the released code draws
FEW = 20  # effective studies; with fewer a 95 % interval may hold the mean in fewer than 92 of 100 cases
_HELD = 1 << 21  # drawn studies in memory at once
_TIE = 1e-12  # numbers that agree so far, relative to the greater one, are equal: the rest is rounding

Array = npt.NDArray[np.float64]


class Interval(NamedTuple):
    """Ends of an interval."""

    low: float
    high: float
    degenerate: bool = False  # whether the values differ too little for the interval to mean anything


class PairedDifference(NamedTuple):
    """Mean difference a - b of two systems on the same studies, with interval and two-sided p-value of one test."""

    difference: float
    interval: Interval
    p_value: float


@dataclass(frozen=True)
class Resampled:
    """A statistic of all studies, of bootstrap resamples of them, and of all studies but one."""

    value: Any  # float64[...], statistic of all studies
    resampled: Array  # float64[B, ...], statistic of each of B resamples
    left_out: Array  # float64[n, ...], statistic without each of the n studies

    def map(self, function: Callable[[Array], Array]) -> "Resampled":
        """Return the statistic that a function computes from this one: from float64[..., m] it makes float64[...]."""
        return Resampled(*(function(np.asarray(part)) for part in (self.value, self.resampled, self.left_out)))

    def __sub__(self, other: "Resampled") -> "Resampled":
        return Resampled(
            difference(self.value, other.value),
            difference(self.resampled, other.resampled),
            difference(self.left_out, other.left_out),
        )

    def interval(self, method: str = "bca", level: float = LEVEL) -> Interval | None:
        """Return the "bca" or "percentile" interval of a scalar; None if it is not finite for some resample.

        Where there is no BCa interval, it is the percentile interval, marked as degenerate.
        """
        if not (np.isfinite(self.value) and np.isfinite(self.resampled).all()):
            return None
        sides = (1 + np.array([-1, 1]) * level) / 2
        low, high = percentile(self.resampled, sides)
        is_close = False
        if method == "bca":
            ends = bca(float(self.value), self.resampled, self.left_out, sides)
            is_close = None in ends  # the values differ by less than float64 can square
            low, high = (low, high) if is_close else ends
        return Interval(float(low or 0), float(high or 0), is_close)


def difference(a: Any, b: Any) -> Any:
    """Return a - b, of numbers or arrays, 0 where they differ by rounding alone: the rule for whatever is compared.

    Equal scores have equal bits, but their means need not: (0.1 + 0.1 + 0.1) / 3 is not 0.1.
    """
    gap = np.subtract(a, b)
    return np.where(np.abs(gap) <= _TIE * np.maximum(np.abs(a), np.abs(b)), 0.0, gap)[()]


def first_best(values: Array) -> int:
    """Return the index of the greatest value; of those that differ from it by rounding alone, the first one's."""
    return int(np.argmax(difference(values.max(), values) == 0))


def varies(values: Array, size: float = 0.0) -> bool:
    """Return whether values differ by more than rounding; `size` is that of the numbers whose differences they are."""
    return bool(difference(size + values.max(), size + values.min()) > 0)


def few_studies(studies: Mapping[str, int], effect: str = "the intervals are too short") -> list[str]:
    """Return a list with the warning that sets have fewer than `FEW` studies, or an empty one.

    `studies` has the number of studies by name of the set; the name of an only set is "". `effect` ends the sentence.
    """
    few = [f"{name} {n}".strip() for name, n in studies.items() if n < FEW]
    return [f"Fewer than {FEW} studies ({', '.join(few)}): {effect}."] if few else []


def checked_values(values: Sequence[float] | np.ndarray) -> Array:
    """Return the values as float64[n]; raise InputError unless there are at least two and all are finite."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):  # which would quote the values
        array = np.empty((0, 0))
    if array.ndim != 1 or len(array) < 2:
        got = f"{len(array)}" if array.ndim == 1 else f"an array of shape {array.shape}" if array.size else "no numbers"
        raise InputError(
            "values",
            "must be one number for each of at least 2 studies",
            got,
            "Pass a one-dimensional array of the scores of at least 2 studies.",
        )
    if not np.isfinite(array).all():
        raise InputError(
            "values",
            "must be finite",
            f"NaN or infinity in {np.count_nonzero(~np.isfinite(array))} of {len(array)} studies",
            "Leave out studies that cannot be scored.",
        )
    return array


def n_resamples(resamples: int | None) -> int:
    """Return the number of resamples, 10,000 if it is None."""
    return RESAMPLES if resamples is None else int(resamples)


def check_method(method: str, resamples: int | None) -> None:
    """Raise InputError if a number of resamples is given for the method `LEGACY`, which has none."""
    if method == LEGACY:
        where = f"with {LEGACY}, which draws one sample of {LEGACY_SAMPLE:,}"
        check_left_out({"resamples": resamples}, where, got=f"{resamples}")


def resample_means(columns: Array, resamples: int, seed: int) -> Resampled:
    """Return, as `Resampled`, the means of m columns over n studies: over all, over resamples, and without each.

    The columns, float64[m, n], are resampled together: a study is drawn with all its numbers. The draws are those of
    `scipy.stats.bootstrap`.
    """
    n = columns.shape[1]
    rng = np.random.default_rng(seed)
    resampled = np.empty((resamples, len(columns)))
    batch = max(1, _HELD // n)
    for begin in range(0, resamples, batch):
        size = min(batch, resamples - begin)
        drawn = rng.integers(0, n, (size, n))
        times = np.bincount((drawn + n * np.arange(size)[:, None]).ravel(), minlength=size * n).reshape(size, n)
        resampled[begin : begin + size] = times @ columns.T / n
    # The value as the resampled ones are rounded: they are compared.
    value = np.ones(n) @ columns.T / n
    return Resampled(value, resampled, (n * value - columns.T) / (n - 1))


@public
def interval(
    values: Sequence[float] | np.ndarray,
    method: option_types.Method = "bca",
    level: option_types.Level = LEVEL,
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
) -> Interval:
    """Return a confidence interval of the mean over studies.

    Parameters
    ----------
    values : array_like of float, shape (n,)
        One finite score for each study, n >= 2.
    method : {"bca", "percentile", "legacy-yu2023"}
        Bias-corrected and accelerated or percentile bootstrap (Efron and Tibshirani, 1993, chapters 13 and 14). With
        fewer than 20 effective studies both are too short: docs/intervals.md has their coverage.
        ``legacy-yu2023`` is what the code released with Yu et al. computes: the t interval of the mean of ONE sample of
        5,000 values with replacement, around the mean of that sample. Its width follows the 5,000 and not the number of
        studies, so that it is no confidence interval of the mean. The printed digits of the paper's tables S5 to S7 are
        closer to the percentile bootstrap with 5,000 resamples that the preprint describes.
    level : float
        Confidence level.
    resamples : int, optional
        Number of bootstrap resamples, by default 10,000; not allowed with ``legacy-yu2023``.
    seed : int
        Seed of the resamples; the same seed gives the same interval.

    Returns
    -------
    Interval
        Its ends ``low`` and ``high``. If all values are equal, both ends are that value and ``degenerate`` is true; so
        it is for a percentile interval of values that differ too little for BCa.

    Raises
    ------
    InputError
        If there are fewer than two studies, a value is not finite, or an option breaks its rule.

    Examples
    --------
    >>> interval = mo.interval([0.2, 0.4, 0.4, 0.7])
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.3, 0.625)
    """
    return intervals(checked_values(values)[None], method, level, resamples, seed)[0]


def intervals(
    columns: Array, method: str = "bca", level: float = LEVEL, resamples: int | None = None, seed: int = 0
) -> list[Interval]:
    """Return the `interval` of each of m columns of the same studies, float64[m, n], from the same draws."""
    check_method(method, resamples)
    differ = difference(columns.max(axis=1), columns.min(axis=1)) > 0
    if method != LEGACY:
        means = resample_means(columns[differ], n_resamples(resamples), seed)
    results = []
    for column, is_varied, place in zip(columns, differ, np.cumsum(differ) - 1, strict=True):
        low, high = float(column.min()), float(column.max())
        if not is_varied:
            results.append(Interval(low, high, degenerate=True))
        elif method == LEGACY:
            results.append(_legacy(column, level, seed))
        else:
            one = Resampled(means.value[place], means.resampled[:, place], means.left_out[:, place])
            results.append(one.interval(method, level) or Interval(low, high, degenerate=True))
    return results


def percentile(values: Array, at: Array) -> list[float | None]:
    """Return the quantiles of values at the probabilities `at`; [None, None] if there are no values."""
    return [float(end) for end in np.quantile(values, at)] if len(values) else [None, None]


def bca(value: float, resampled: Array, left_out: Array, sides: Array) -> list[float | None]:
    """Return the ends of the bias-corrected and accelerated interval (Efron and Tibshirani, 1993, section 14.3).

    `value` is the statistic of all studies, `resampled`, float64[B], that of the resamples for which it is defined,
    `left_out`, float64[n], that without each study. `sides`, float64[2], are the probabilities of the ends, such as
    0.025 and 0.975. Both ends are None if a statistic without a study is NaN, all of these are equal, or all resamples
    lie on one side of `value`.
    """
    from scipy.special import ndtr, ndtri

    with np.errstate(all="ignore"):
        deviations = left_out.mean() - left_out
        spread = (deviations**2).sum() ** 1.5
        # Half of the ties, which rounding keeps apart.
        ties = np.abs(resampled - value) <= _TIE * np.abs(resampled).max(initial=0)
        below = ((resampled < value) & ~ties).mean() + ties.mean() / 2 if len(resampled) else 0.0
        if not np.isfinite(spread) or spread == 0 or not varies(left_out) or not 0 < below < 1:
            return [None, None]
        acceleration = (deviations**3).sum() / (6 * spread)
        shift = ndtri(below) + ndtri(sides)
        at = ndtr(ndtri(below) + shift / (1 - acceleration * shift))
    return percentile(resampled, at) if np.isfinite(at).all() else [None, None]


def _legacy(array: Array, level: float, seed: int) -> Interval:
    """Return the interval of values that `eval_bleu` and `eval_semb` of CXR-Report-Metric print, by a seeded sample."""
    from scipy.stats import sem, t

    drawn = np.random.default_rng(seed).choice(array, LEGACY_SAMPLE, replace=True)
    mean, half = float(drawn.mean()), float(sem(drawn) * t.ppf((1 + level) / 2, LEGACY_SAMPLE - 1))
    return Interval(mean - half, mean + half, degenerate=half == 0)


def paired_test(
    a: Array, b: Array, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL
) -> PairedDifference:
    """Return, as `PairedDifference`, the mean of a - b, the scores of two systems on the same studies, float64[n] each.

    The p-value is that of the permutation test that swaps the two systems' scores of a study (approximate
    randomization: Riezler and Maxwell, ACL 2005 workshop on intrinsic and extrinsic evaluation; all 2^n assignments
    where they are no more than the resamples). N resamples give no p-value under 2 / (N + 1). The interval is the set
    of differences that the same test does not reject, so that it holds 0 exactly where p > 1 - level. It is degenerate
    where all differences are equal, and where the studies are too few for the test to reject any: below 6 for 95 %.
    """
    by_study = difference(a, b)
    means = subset_means(by_study, resamples, seed)
    value, p_value = float(by_study.mean()), bootstrap_p(means)
    if not varies(by_study, max(np.abs(a).max(), np.abs(b).max())):
        return PairedDifference(value, Interval(value, value, degenerate=True), p_value)
    return PairedDifference(value, acceptance_interval(means, level), p_value)


def bootstrap_test(a: Resampled, b: Resampled) -> PairedDifference:
    """Return the difference a - b of two scalar statistics of the same resamples; its level is 0.95."""
    between = a - b
    value, p_value = float(between.value), bootstrap_p(between.resampled)
    if not varies(between.resampled, float(np.abs(a.resampled).max())):
        return PairedDifference(value, Interval(value, value, degenerate=True), p_value)
    return PairedDifference(value, acceptance_interval(between.resampled), p_value)


def subset_means(values: Array, resamples: int, seed: int) -> Array:
    """Return the means of B subsets of the studies, float64[B], each study in a subset with probability 1/2.

    They are all subsets but the empty one where there are no more than `resamples`.

    To swap the scores of a subset turns the sign of its differences. The test of a mean difference `d` counts the
    assignments of signs whose mean of the differences less `d` is at least the observed one, which are those whose
    subset has a mean of at most `d`. So the test of every `d` follows from these means, by `bootstrap_p` and
    `acceptance_interval` (Hartigan, JASA 1969, typical values).
    """
    n = len(values)
    size = np.abs(values).mean() or 1.0

    def means(is_in: npt.NDArray[Any]) -> Array:
        """Return the mean of each subset: `is_in`, [subset, study], has 1 for the studies in it; 0 if it has none."""
        sums: Array = is_in @ (values / size)
        sums[np.abs(sums) <= _TIE * n] = 0  # numbers that cancel leave rounding, which would decide the side of 0
        # The empty subset is the observed assignment. It counts on both sides of 0.
        return size * sums / np.maximum(is_in.sum(axis=1), 1)

    if n < 63 and 1 << n <= resamples:
        return means(np.arange(1, 1 << n)[:, None] >> np.arange(n) & 1)
    rng = np.random.default_rng(seed)
    batch = max(1, _HELD // n)
    sizes = [min(batch, resamples - begin) for begin in range(0, resamples, batch)]
    return np.concatenate([means(rng.integers(0, 2, (some, n), np.int8)) for some in sizes])


def bootstrap_p(resampled: Array) -> float:
    """Return the two-sided p-value of a resampled statistic: twice the share on the other side of 0, at most 1.

    One resample more is counted on either side, so that N resamples give no p-value under 2 / (N + 1).
    """
    n = len(resampled)
    sides = ((resampled <= 0).sum() + 1) / (n + 1), ((resampled >= 0).sum() + 1) / (n + 1)
    return float(min(1.0, 2 * min(sides)))


def acceptance_interval(resampled: Array, level: float = LEVEL) -> Interval:
    """Return the interval of the values that `bootstrap_p` does not reject: their p-value is above 1 - `level`.

    It is degenerate if there are too few resampled values to reject any; its ends are then the least and the greatest.
    """
    rank = int((1 - level) / 2 * (len(resampled) + 1) + _TIE)
    ordered, place = np.sort(resampled), max(rank, 1)
    return Interval(float(ordered[place - 1]), float(ordered[-place]), rank < 1)


def effective_studies(values: Array) -> float:
    """Return the effective number of studies of a mean's interval: those that are not 0, or n / skewness^2 if fewer.

    Below `FEW` the interval may be too short (docs/intervals.md). Of n scores of which m are 1 and the others 0,
    or the reverse, n / skewness^2 is about m; Cochran (Sampling Techniques, 1977, section 2.15) wants 25 for a normal
    interval. Few differences that are not 0 need not be skewed, so these are counted.
    """
    deviations = values - values.mean()
    spread = float((deviations**2).mean())
    nonzero = float(np.count_nonzero(values))
    if not varies(values):
        return nonzero
    squared = float((deviations**3).mean()) ** 2 / spread**3
    return nonzero if squared == 0 else min(nonzero, len(values) / squared)


def weights_of_best(n_scores: int, n: int) -> Array:
    """Return the probability that the i-th smallest of N scores is the greatest of n drawn: float64[N], 1 <= n <= N.

    Scores are drawn without replacement. It is C(i - 1, n - 1) / C(N, n), the estimator behind pass@k (Chen et al.,
    arXiv 2107.03374). Each is computed from the one above it by a ratio, without factorials: n / N for the greatest,
    times (i - n) / (i - 1) for the next.
    """
    weight = np.zeros(n_scores)
    weight[-1] = n / n_scores
    for i in range(n_scores, n, -1):  # i counts from 1
        weight[i - 2] = weight[i - 1] * ((i - n) / (i - 1))
    return weight


def expected_best(scores: Array, n: int, sign: float = 1.0) -> float:
    """Return the expected best of n of these scores, drawn without replacement; the least where lower is better."""
    ordered = np.sort(sign * scores)
    best = float(weights_of_best(len(scores), n) @ ordered)
    return sign * best


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of one family of tests, adjusted by Benjamini and Hochberg (1995), in the order given."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(p_values), method="bh")]


def benjamini_hochberg(p_values: Sequence[float] | Array, rate: float) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the critical value of each p-value, float64[m], and whether it is significant, bool[m].

    By Benjamini and Hochberg (1995), for the m p-values of one family of tests and the false discovery rate `rate`. The
    critical value is rank x rate / m, which papers print next to a p-value; equal p-values are ranked in the order
    given. Significant are those up to the largest that does not exceed its critical value.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    by_rank = np.arange(1, len(order) + 1) * rate / len(order)
    passing = np.flatnonzero(p_values[order] <= by_rank)
    critical = np.empty(len(order))
    critical[order] = by_rank
    significant = np.zeros(len(order), np.bool_)
    significant[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return critical, significant


def overlap(a: Interval, b: Interval) -> bool:
    """Return whether two intervals have a point in common.

    Yu et al. call a system significantly better where they have none (medRxiv 2022.08.30.22279318, statistical
    analysis, "Prior models evaluation"). The rule ignores that the studies are the same; `paired_test` does not.
    """
    return bool(difference(b.high, a.low) >= 0 and difference(a.high, b.low) >= 0)
