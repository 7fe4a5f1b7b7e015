"""Distance of two sets of sentence vectors, in plain, slow Python: float64 sums in index order."""

import numpy as np

from metric_oracle.kernels.bertscore.reference import sum_in_order
from metric_oracle.kernels.cosine.score import cosine
from metric_oracle.kernels.sentences.score import distance


def score(candidate, reference):
    """Return the distance of a pair, and the mean cosine in each direction as "precision" and "recall".

    `candidate` and `reference` are sentence vectors, float32[n, d] and float32[m, d]; n or m may be 0. The distance is
    from 0, the same set of directions, to 2. A report without sentences matches nothing: its cosines are 0, its
    distance is 1.
    """
    precision = recall = 0.0
    if len(candidate) and len(reference):
        a, b = candidate.astype(np.float64), reference.astype(np.float64)
        dots = np.zeros((len(a), len(b)))
        for dimension in range(a.shape[1]):
            dots += np.multiply.outer(a[:, dimension], b[:, dimension])
        of_a, of_b = (sum_in_order(side * side) for side in (a, b))
        cosines = np.array([[cosine(dots[i, j], x, y) for j, y in enumerate(of_b)] for i, x in enumerate(of_a)])
        precision = sum_in_order(cosines.max(axis=1)) / len(a)
        recall = sum_in_order(cosines.max(axis=0)) / len(b)
    return distance(precision, recall), {"precision": precision, "recall": recall}
