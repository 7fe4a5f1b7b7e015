"""Temporal F1 in plain, slow Python."""

from metric_oracle.kernels.temporal.score import temporal_f1


def score(candidate, reference):
    """Return the F1 of two sets of keywords, with precision and recall by name; all are 1 if both sets are empty."""
    if not candidate and not reference:
        return temporal_f1(0, 0, 0), {"precision": 1.0, "recall": 1.0}
    shared = len(candidate & reference)
    parts = {"precision": shared / max(len(candidate), 1), "recall": shared / max(len(reference), 1)}
    return temporal_f1(shared, len(candidate), len(reference)), parts
