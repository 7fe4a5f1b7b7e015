"""The mean score of random reports under a judge, from a sample, corrected by metrics whose exact means are known.

The sample is stratified by test report: the judge scores as many random reports of the corpus for each. A cheap metric,
a *control variate*, scores the same pairs; how far its mean over the sample is from its exact mean over the whole
corpus says how lucky the draw was, and the judge's mean is corrected by regression on that (Cochran, Sampling
Techniques, 1977, chapter 7; Lavenberg and Welch, Management Science 27, 1981).
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.statistics import Array

_LEAST = 1e-9  # of 1 - leverage, which is 0 for a pair that alone decides a slope; its residual is 0, too


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
    report: their expectation is 0. The slopes are those of one regression within test reports. The standard error of
    the corrected mean is that of the jackknife: a pair far from the others, which draws the slope to itself, would hide
    its error from the residuals. It is 0 if the scores of each test report are equal; then it says nothing.
    """
    n_controls, n_queries, draws = controls.shape
    n = n_queries * draws
    within = (controls - controls.mean(axis=2, keepdims=True)).reshape(n_controls, n)
    of_judge = scores - scores.mean(axis=1, keepdims=True)
    of_judge[(scores == scores[:, :1]).all(axis=1)] = 0.0  # no rounding where all are equal
    slopes = np.linalg.lstsq(within.T, of_judge.ravel())[0]
    inverse = np.linalg.pinv(within @ within.T)
    leverages = (within * (inverse @ within)).sum(axis=0)
    weights = 1 / n - inverse @ controls.mean(axis=(1, 2)) @ within
    residuals = of_judge.ravel() - slopes @ within
    left_out = residuals * weights / np.maximum(1 - leverages, _LEAST)  # how much the mean changes without each pair
    to_sample = draws / (draws - 1)  # deviations are from the means of the same scores
    plain = scores.mean(axis=1)
    return ControlledMeans(
        plain - slopes @ controls.mean(axis=2),
        float(np.sqrt(to_sample * (left_out**2).sum())),
        plain,
        float(np.sqrt(to_sample * (of_judge**2).sum())) / n,
        slopes,
    )
