"""Cosine of CheXbert's 14 labels, in plain, slow Python."""

from metric_oracle.kernels.cosine.score import integer_cosine


def score(candidate, reference):
    """Return the cosine of two vectors of integers, one number per label, and an empty dict of components.

    It is 0 if all labels of one are 0 (blank).
    """
    a, b = candidate.tolist(), reference.tolist()
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return integer_cosine(dot, sum(x * x for x in a), sum(y * y for y in b)), {}
