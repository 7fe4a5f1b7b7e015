"""BERTScore of one pair, in plain, slow Python: float64 sums in index order, no padding."""

import numpy as np

from metric_oracle.kernels.bertscore.score import F1, f1, rescale
from metric_oracle.kernels.cosine.score import cosine


def score(candidate, reference, part=F1):
    """Return the score of a candidate, and precision, recall and f1 by name, on the scale of the score.

    Parameters
    ----------
    candidate, reference : TokenItem
        States and ids of the tokens of a report. The weights of both sides and the baseline are those of the reference.
    part : {PRECISION, RECALL, F1}
    """
    values = precision_recall(*sides(candidate, reference))
    return with_components(values, reference.baseline, part)


def sides(candidate, reference):
    """Return states and weights of the candidate, then of the reference, as `precision_recall` takes them."""
    return candidate.states, reference.weight_of_id[candidate.ids], reference.states, reference.weights


def with_components(values, baseline, part):
    """Return the score, which is a part of precision, recall and F1, and these three by name.

    `values` are precision and recall. All three are rescaled by the `baseline` of each, unless it is None. `part` says
    which of the three is the score: PRECISION, RECALL or F1.
    """
    values = [*values, f1(*values)]
    if baseline is not None:
        values = [rescale(value, base) for value, base in zip(values, baseline, strict=True)]
    return values[part], dict(zip(("precision", "recall", "f1"), values, strict=True))


def precision_recall(candidate, candidate_weights, reference, reference_weights):
    """Return precision and recall of token states, float32[n, d] and float32[m, d], with weights, float64[n] and [m].

    Both are 0 if a report has only the two special tokens, as in the package bert_score.
    """
    if len(candidate) == 2 or len(reference) == 2:
        return 0.0, 0.0
    a, b = candidate.astype(np.float64), reference.astype(np.float64)
    dots = np.zeros((len(a), len(b)))
    for dimension in range(a.shape[1]):
        dots += np.multiply.outer(a[:, dimension], b[:, dimension])
    squares = [sum_in_order(side * side) for side in (a, b)]
    cosines = [[cosine(dots[i, j], x, y) for j, y in enumerate(squares[1])] for i, x in enumerate(squares[0])]
    precision = mean_in_order([max(row) for row in cosines], candidate_weights.tolist())
    recall = mean_in_order([max(column) for column in zip(*cosines, strict=True)], reference_weights.tolist())
    return precision, recall


def sum_in_order(values):
    """Return the sums of an array over its last axis, whose numbers are added from first to last.

    NumPy's sum adds in an order that depends on the length.
    """
    return np.cumsum(values, axis=-1)[..., -1].tolist()


def mean_in_order(values, weights):
    """Return the weighted mean of lists of values and weights, summed in index order; 0 if the weights add up to 0."""
    total = weight = 0.0
    for value, w in zip(values, weights, strict=True):
        total += w * value
        weight += w
    return total / weight if weight else 0.0
