"""Intervals and tests over studies: the mean of a metric, and the difference of two systems.

The study is the unit: resampling and tests draw studies, never pairs or words. All randomness comes from a seed.
Columns of equal length are resampled with the same draws, so that a table does not depend on its order.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metric_oracle.errors import InputError

LEGACY = "legacy-yu2023"
METHODS = ("bca", "percentile", LEGACY)
RESAMPLES = 10_000
LEGACY_SAMPLE = 5000  # values that the released code draws
FEWEST = 100  # resamples under which the ends of a 95 % interval are two or three draws
_HELD = 1 << 21  # resampled values in memory at once


class Interval(NamedTuple):
    """Ends of an interval; `degenerate` where all values are equal, so that it has no width and says nothing."""

    low: float
    high: float
    degenerate: bool = False


class Paired(NamedTuple):
    """Mean difference of two systems on the same studies, its BCa interval and a two-sided p-value."""

    difference: float
    interval: Interval
    p_value: float


def _checked(values: Sequence[float] | np.ndarray, function: str) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < 2:
        got = f"{len(array)}" if array.ndim == 1 else f"an array of shape {array.shape}"
        msg = f"{function}: values must be one number for each of at least 2 studies; got {got}. Score more studies."
        raise InputError(msg)
    if not np.isfinite(array).all():
        msg = (
            f"{function}: values must be finite; got NaN or infinity in {np.count_nonzero(~np.isfinite(array))} of "
            f"{len(array)} studies. Leave out studies that cannot be scored."
        )
        raise InputError(msg)
    return array


def _resamples(resamples: int | None, function: str) -> int:
    if resamples is None:
        return RESAMPLES
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < FEWEST:
        msg = (
            f"{function}: resamples must be an int of at least {FEWEST}; got {resamples!r}. The default is {RESAMPLES}."
        )
        raise InputError(msg)
    return int(resamples)


def interval(
    values: Sequence[float] | np.ndarray,
    method: str = "bca",
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
) -> Interval:
    """Return an interval of the mean over studies.

    Parameters
    ----------
    values : float64[n]
        One score for each study, n >= 2, finite.
    method : {"bca", "percentile", "legacy-yu2023"}
        Bias-corrected and accelerated or percentile bootstrap (Efron and Tibshirani, 1993, chapters 13 and 14; SciPy's
        implementation). ``legacy-yu2023`` is what the code released with Yu et al. computes: the t interval of the mean
        of ONE sample of 5,000 values with replacement. Its width follows the 5,000 and not the number of studies: it is
        no confidence interval of the mean, and is here to reproduce numbers.
    level : float
        Confidence level.
    resamples : int
        Of the bootstrap, 10,000 by default; not with ``legacy-yu2023``.
    seed : int

    Returns
    -------
    Interval
        Of equal values both ends are that value, marked degenerate.

    Raises
    ------
    InputError
        If there are fewer than two studies, a value is not finite, or an option breaks its rule.
    """
    array = _checked(values, "interval")
    if method not in METHODS:
        msg = f"interval: method must be one of {', '.join(METHODS)}; got {method!r}. Choose one of these."
        raise InputError(msg)
    if not 0 < level < 1:
        msg = f"interval: level must be between 0 and 1; got {level}. The usual one is 0.95."
        raise InputError(msg)
    if method == LEGACY and resamples is not None:
        msg = (
            f"interval: resamples must be left out with {LEGACY}, which draws one sample of {LEGACY_SAMPLE:,}; "
            f"got {resamples}. Drop it."
        )
        raise InputError(msg)
    n_resamples = _resamples(resamples, "interval")
    if array.min() == array.max():
        return Interval(float(array[0]), float(array[0]), degenerate=True)
    if method == LEGACY:
        return _legacy(array, level, seed)

    from scipy.stats import bootstrap

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Values that differ by less than float64 can square have no acceleration: an error below, not a warning.
        warnings.simplefilter("ignore")
        low, high = bootstrap(
            (array,),
            np.mean,
            n_resamples=n_resamples,
            batch=max(1, _HELD // len(array)),
            vectorized=True,
            confidence_level=level,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    if not (np.isfinite(low) and np.isfinite(high)):
        msg = (
            f"interval: values must differ enough for a {method} interval; got a range of "
            f"{array.max() - array.min():g}. Use method percentile."
        )
        raise InputError(msg)
    return Interval(float(low), float(high))


def _legacy(array: np.ndarray, level: float, seed: int) -> Interval:
    """Return what ``eval_bleu`` and ``eval_semb`` of CXR-Report-Metric's eval_methods.py print, with a seed."""
    from scipy.stats import sem, t

    drawn = np.random.default_rng(seed).choice(array, LEGACY_SAMPLE, replace=True)
    mean, half = float(drawn.mean()), float(sem(drawn) * t.ppf((1 + level) / 2, LEGACY_SAMPLE - 1))
    return Interval(mean - half, mean + half, degenerate=half == 0)


def paired(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    *,
    level: float = 0.95,
    resamples: int | None = None,
    seed: int = 0,
) -> Paired:
    """Compare two systems on the same studies.

    The p-value is that of the permutation test that swaps the two systems' scores of a study (approximate
    randomization: Riezler and Maxwell, ACL 2005 workshop on intrinsic and extrinsic evaluation; SciPy's implementation;
    all 2^n assignments where they are no more than the resamples). N resamples give no p-value under 2 / (N + 1).

    Parameters
    ----------
    a, b : float64[n]
        Scores of the two systems, study by study.
    level : float
        Of the BCa interval of the mean difference.
    resamples : int
        Of the interval and of the test, 10,000 by default.
    seed : int

    Returns
    -------
    Paired
        ``difference`` is the mean of a - b.
    """
    first, second = _checked(a, "paired"), _checked(b, "paired")
    if len(first) != len(second):
        msg = f"paired: a and b must have the same studies; got {len(first)} and {len(second)}. Join them on the ids."
        raise InputError(msg)
    n_resamples = _resamples(resamples, "paired")

    from scipy.stats import permutation_test

    difference = first - second
    p_value = permutation_test(
        (difference,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=n_resamples,
        batch=max(1, _HELD // len(difference)),
        rng=np.random.default_rng(seed),
    ).pvalue
    return Paired(float(difference.mean()), interval(difference, "bca", level, n_resamples, seed), float(p_value))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for one family of tests by Benjamini and Hochberg (1995)."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(p_values), method="bh")]


def overlap(a: Interval, b: Interval) -> bool:
    """Tell whether two intervals have a point in common.

    Yu et al. call a system significantly better where they have none (medRxiv 2022.08.30.22279318, statistical
    analysis, "Prior models evaluation"). The rule ignores that the studies are the same; :func:`paired` does not.
    """
    return a.low <= b.high and b.low <= a.high
