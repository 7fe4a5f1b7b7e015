"""Cosine of two vectors, in plain, slow Python: float64 sums in index order."""

from metric_oracle.kernels.cosine.score import cosine


def score(candidate, reference):
    """Return the cosine of two vectors, and an empty dict of components.

    Parameters
    ----------
    candidate, reference : float32[d]
    """
    a, b = candidate.tolist(), reference.tolist()
    dot = square_a = square_b = 0.0
    for x, y in zip(a, b, strict=True):
        dot += x * y
        square_a += x * x
        square_b += y * y
    return cosine(dot, square_a, square_b), {}
