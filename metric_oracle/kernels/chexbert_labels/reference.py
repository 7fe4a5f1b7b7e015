"""Cosine and agreement of labels, in plain, slow Python."""

from metric_oracle.kernels.cosine.score import integer_cosine
from metric_oracle.kernels.labels.score import agreement


def score(candidate, reference, *, measure="cosine"):
    """Return the cosine of two vectors of integers, one number per label, and an empty dict of components.

    It is 0 if all labels of one are 0 (blank). With `measure` "agreement", the vectors are those of
    `AgreementDocuments`, and the result is the share of labels on which they agree.
    """
    a, b = candidate.tolist(), reference.tolist()
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    squares = [sum(x * x for x in side) for side in (a, b)]
    return agreement(dot, squares[1]) if measure == "agreement" else integer_cosine(dot, *squares), {}
