"""Cosine of CheXbert's 14 labels, slow and obvious."""

from metric_oracle.kernels.cosine.score import integer_cosine


def score(candidate, reference):
    """Return the cosine of two label vectors (integers) and no components; 0 where one is all blank."""
    a, b = candidate.tolist(), reference.tolist()
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return integer_cosine(dot, sum(x * x for x in a), sum(y * y for y in b)), {}
