"""BERTScore of one pair, compiled. It adds in the order of `reference.py`, so that every bit agrees."""

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.bertscore.reference import sides, with_components
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.cosine.score import cosine


def score(candidate, reference, part=F1):
    """Return the score of a candidate and its components; parameters and results are those of `reference.score`."""
    values = precision_recall(*sides(candidate, reference))
    return with_components(values, reference.baseline, part)


@jit
def precision_recall(candidate, candidate_weights, reference, reference_weights):
    """Return precision and recall; parameters and results are those of `reference.precision_recall`."""
    n, m = len(candidate), len(reference)
    width = candidate.shape[1]
    if n == 2 or m == 2:
        return 0.0, 0.0
    turned = np.empty((width, m))
    squares = np.zeros(m)
    for j in range(m):
        for d in range(width):
            turned[d, j] = reference[j, d]
            squares[j] += turned[d, j] * turned[d, j]
    dots = np.empty(m)
    recalls = np.full(m, -np.inf)
    total = weight = 0.0
    for i in range(n):
        dots[:] = 0.0
        square = 0.0
        for d in range(width):
            x = np.float64(candidate[i, d])
            square += x * x
            of_dimension = turned[d]
            for j in range(m):
                dots[j] += x * of_dimension[j]
        best = -np.inf
        for j in range(m):
            value = cosine(dots[j], square, squares[j])
            best = max(best, value)
            recalls[j] = max(recalls[j], value)
        total += candidate_weights[i] * best
        weight += candidate_weights[i]
    precision = total / weight if weight != 0.0 else 0.0
    total = weight = 0.0
    for j in range(m):
        total += reference_weights[j] * recalls[j]
        weight += reference_weights[j]
    return precision, total / weight if weight != 0.0 else 0.0
