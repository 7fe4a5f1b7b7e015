"""Jaccard coefficient in plain, slow Python."""

from metric_oracle.kernels.jaccard.score import jaccard


def score(candidate, reference):
    """Return the Jaccard coefficient of two sets of n-grams (tuples of str), with precision and recall by name."""
    shared = len(candidate & reference)
    parts = {"precision": shared / max(len(candidate), 1), "recall": shared / max(len(reference), 1)}
    return jaccard(shared, len(candidate), len(reference)), parts
