"""Distance of two sets of sentence vectors, in plain, slow Python: float64 sums in index order."""

import numpy as np

from metric_oracle.kernels.bertscore.reference import sum_in_order
from metric_oracle.kernels.cosine.score import cosine
from metric_oracle.kernels.sentences.score import distance


def score(candidate, reference):
    """Return the distance of a pair, and the mean cosine in each direction.

    Parameters
    ----------
    candidate, reference : float32[n, d], float32[m, d]
        Sentence vectors; n or m may be 0. A report without sentences matches nothing: its cosines are 0.

    Returns
    -------
    score : float
        From 0, the same set of directions, to 2; 1 if a report has no sentence.
    components : dict of precision and recall
        Mean cosine of the candidate's, and of the reference's, sentences with the nearest sentence of the other report.
    """
    precision = recall = 0.0
    if len(candidate) and len(reference):
        a, b = candidate.astype(np.float64), reference.astype(np.float64)
        dots = np.zeros((len(a), len(b)))
        for dimension in range(a.shape[1]):
            dots += np.multiply.outer(a[:, dimension], b[:, dimension])
        of_a, of_b = ([sum_in_order(row * row) for row in side] for side in (a, b))
        cosines = np.array([[cosine(dots[i, j], x, y) for j, y in enumerate(of_b)] for i, x in enumerate(of_a)])
        precision = sum_in_order(cosines.max(axis=1)) / len(a)
        recall = sum_in_order(cosines.max(axis=0)) / len(b)
    return distance(precision, recall), {"precision": precision, "recall": recall}
