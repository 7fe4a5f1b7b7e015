"""How well radiologists agree with one another, and what other radiologists would change.

Intraclass correlations; each rater against the others, a ceiling: no metric can be expected to agree with a radiologist
better than the mean of the other radiologists does; and resamples as other raters would have them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.raters.rank_agreement import STATISTICS, Resamples, side, sum_of
from metric_oracle.statistics import Array, percentile

ICC = ("ICC(A,1)", "ICC(A,k)")
CEILING = "leave-one-rater-out "
SIDES = np.array([0.025, 0.975])


def rater_agreement(counts: npt.NDArray[Any], drawn: Resamples) -> list[dict[str, Any]]:
    """Return a record for each statistic: value and percentile interval over studies, the raters being fixed.

    Parameters
    ----------
    counts : number[R, P]
        Errors that each of R >= 2 raters counted in each pair, or grades.
    drawn : Resamples
    """
    found = dict(zip(ICC, intraclass(counts, drawn.pairs), strict=True))
    sides = [
        (side(count, drawn), side(sum_of(np.delete(counts, place, axis=0)), drawn))
        for place, count in enumerate(counts)
    ]
    for name, function in STATISTICS.items():
        of_raters = np.array([function(one, others, drawn) for one, others in sides])
        # A rater without a value in a resample leaves the mean to the others.
        exists = np.isfinite(of_raters)
        n = exists.sum(axis=0)
        sums = np.where(exists, of_raters, 0).sum(axis=0)
        found[CEILING + name] = np.divide(sums, n, out=np.full(len(sums), np.nan), where=n > 0)
    n_studies = drawn.studies.shape[1]
    records = []
    for name, values in found.items():
        resampled = values[: -n_studies - 1]
        exists = np.isfinite(resampled)
        low, high = percentile(resampled[exists], SIDES)
        value = float(values[-1]) if np.isfinite(values[-1]) else None
        low, high = (low, high) if value is not None else (None, None)
        records.append(
            {"statistic": name, "value": value, "low": low, "high": high, "degenerate": int((~exists).sum())}
        )
    return records


def intraclass(counts: npt.NDArray[Any], times: Array) -> tuple[Array, Array]:
    """Return ICC(A,1) and ICC(A,k), of one rater and of the mean of k, NaN where nothing varies.

    Two-way model, random raters, absolute agreement (McGraw and Wong, Psychological Methods 1996, table 4).

    Parameters
    ----------
    counts : number[k, P]
    times : float64[B, P]
        How often each pair occurs in a resample.
    """
    k, x = len(counts), counts.T.astype(np.float64)
    n = times.sum(axis=1)
    by_rater = times @ x / n[:, None]
    mean = by_rater.mean(axis=1)
    of_rows = k * (times @ (x.mean(axis=1) ** 2) - n * mean**2)
    of_raters = n * ((by_rater - mean[:, None]) ** 2).sum(axis=1)
    of_all = times @ (x**2).sum(axis=1) - n * k * mean**2
    rows, raters = of_rows / (n - 1), of_raters / (k - 1)
    rest = (of_all - of_rows - of_raters) / ((n - 1) * (k - 1))
    some = of_all > 1e-9 * (1 + (x**2).sum())  # else rounding alone

    def ratio(under: Array) -> Array:
        return np.divide(rows - rest, under, out=np.full_like(rows, np.nan), where=some & (under > 0))

    return ratio(rows + (k - 1) * rest + k * (raters - rest) / n), ratio(rows + (raters - rest) / n)


def draw_raters(n_raters: int, resamples: int, seed: int) -> Array:
    """Draw the weight of each of R >= 2 raters in the deviation of a panel: float64[B, R], t with R - 1 degrees."""
    rng = np.random.default_rng([seed, 1])  # another stream than the studies': the same seed must not tie the two
    normal = rng.standard_normal((resamples, n_raters))
    return normal / np.sqrt(rng.chisquare(n_raters - 1, (resamples, 1)) / (n_raters - 1))


def other_raters(values: Array, draws: Array, n_studies: int) -> Array:
    """Return resamples of studies and of raters.

    Raters are not drawn with replacement: a panel that has a rater twice is noisier than one of R raters, so agreement
    with it is too low. The variance between panels is the jackknife's over raters, less the part that comes from single
    studies, which the resampled studies have already (of a mean: the component of raters of a two-way analysis of
    variance; Cameron, Gelbach and Miller, J Bus Econ Stat 2011, on two-way clustering).

    Parameters
    ----------
    values : float64[B + S + 1 + R * (S + 1)]
        A statistic of the resamples, of all studies but one, of all; then, for each rater left out, of all studies but
        one and of all.
    draws : float64[B, R]
        See `draw_raters`.
    n_studies : int
        S.

    Returns
    -------
    float64[B + S + 1]
        NaN in all resamples where the statistic does not exist without some rater or study.
    """
    n_resamples, n_raters = draws.shape
    moved, tail = values[: n_resamples + n_studies + 1].copy(), values[n_resamples + n_studies + 1 :]
    without = tail.reshape(n_raters, n_studies + 1)
    deviations = without[:, -1] - without[:, -1].mean()
    between = (n_raters - 1) / n_raters * (deviations**2).sum()
    # What leaving out both a rater and a study changes beyond leaving out either.
    both = without[:, :-1] - moved[n_resamples:-1]
    both = both - both.mean(axis=0) - both.mean(axis=1, keepdims=True) + both.mean()
    of_single = (n_studies - 1) * (n_raters - 1) / (n_studies * n_raters) * (both**2).sum()
    share = 0.0 if between == 0 else np.sqrt(np.maximum(0, 1 - of_single / between))
    moved[:n_resamples] += share * np.sqrt((n_raters - 1) / n_raters) * (draws @ deviations)
    return moved
