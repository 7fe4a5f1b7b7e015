"""The expected best of n of N scores, drawn without replacement, in closed form."""

import numpy as np

from metric_oracle.statistics import Array


def weights(n_scores: int, n: int) -> Array:
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


def expected_best(scores: Array, n: int, *, higher_is_better: bool = True) -> float:
    """Return the expected best of n of these scores, drawn without replacement; the least where lower is better."""
    ordered = np.sort(scores if higher_is_better else -scores)
    best = float(weights(len(scores), n) @ ordered)
    return best if higher_is_better else -best


def points(largest: int) -> list[int]:
    """Return the numbers of samples at which the curve is computed: 1, 2, 4, ... and the largest."""
    return sorted({*(1 << power for power in range(largest.bit_length())), largest})
