"""Jaccard coefficient in plain, slow Python."""

from metric_oracle.kernels.jaccard.score import jaccard


def score(candidate, reference):
    """Return the Jaccard coefficient of two sets of n-grams, with precision and recall.

    Parameters
    ----------
    candidate, reference : frozenset of tuple of str
    """
    shared = len(candidate & reference)
    parts = {"precision": shared / max(len(candidate), 1), "recall": shared / max(len(reference), 1)}
    return jaccard(shared, len(candidate), len(reference)), parts
