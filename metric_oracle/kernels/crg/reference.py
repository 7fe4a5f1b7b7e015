"""A report's contribution to CRG in plain, slow Python."""

from metric_oracle.kernels.crg.score import contribution


def score(candidate, reference):
    """Return the contribution of one report to CRG, and its numbers of correct and wrong labels by name.

    Both are pairs: the set of a report's positive labels, and a dict of the numbers `positives`, `labels` and `reports`
    of the whole test set, see `contribution`. Those of the reference are used.
    """
    candidate, _ = candidate
    truth, prevalence = reference
    missed, invented = len(truth - candidate), len(candidate - truth)
    counts = {
        "tp": len(truth & candidate),
        "fn": missed,
        "fp": invented,
    }
    return contribution(missed, invented, **prevalence), counts
