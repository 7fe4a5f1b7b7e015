"""The mean score of random reports under a judge, from a sample, corrected by metrics whose exact means are known.

The sample is stratified by test report: the judge scores as many random reports of the corpus for each. A cheap metric,
a *control variate*, scores the same pairs; how far its mean over the sample is from its exact mean over the whole
corpus says how lucky the draw was, and the judge's mean is corrected by regression on that (Cochran, Sampling
Techniques, 1977, chapter 7; Lavenberg and Welch, Management Science 27, 1981).
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.statistics import Array


class ControlledMeans(NamedTuple):
    """Estimated means of a judge's scores of each test report with all corpus reports."""

    means: Array  # float64[Q], corrected
    standard_error: float  # of the mean of `means`
    plain: Array  # float64[Q], means of the sample
    plain_error: float  # standard error of the mean of `plain`
    slopes: Array  # float64[M], by how much the judge's score changes with that of each metric


def controlled_means(scores: Array, controls: Array) -> ControlledMeans:
    """Return the means of a judge's scores, float64[Q, R], for R >= 2 random reports and each of Q test reports.

    `controls`, float64[M, Q, R], are the scores of cheap metrics for the same pairs, less the exact mean of the test
    report: their expectation is 0. The slopes are those of one regression within test reports, which makes the standard
    error least.
    """
    n_controls, n_queries, draws = controls.shape
    within = controls - controls.mean(axis=2, keepdims=True)
    of_judge = scores - scores.mean(axis=1, keepdims=True)
    slopes = np.linalg.lstsq(within.reshape(n_controls, -1).T, of_judge.ravel())[0]
    residuals = of_judge - np.tensordot(slopes, within, 1)
    freedom = n_queries * (draws - 1)

    def error(deviations: Array, freedom: int) -> float:
        """Return the standard error of the mean: the variances of all test reports are estimated together."""
        return float(np.sqrt((deviations**2).sum() / max(freedom, 1) / (n_queries * draws)))

    plain = scores.mean(axis=1)
    return ControlledMeans(
        plain - np.tensordot(slopes, controls.mean(axis=2), 1),
        error(residuals, freedom - n_controls),
        plain,
        error(of_judge, freedom),
        slopes,
    )
