"""A report's contribution to CRG in plain, slow Python."""

from metric_oracle.kernels.crg.score import contribution


def score(candidate, reference):
    """Return the contribution of one report to CRG, and its numbers of correct and wrong labels by name.

    `candidate` is the set of its positive labels. `reference` is a pair: the set of the reference's positive labels,
    and a dict of the numbers `positives`, `labels` and `reports` of the whole test set, see `contribution`.
    """
    truth, prevalence = reference
    missed, invented = len(truth - candidate), len(candidate - truth)
    counts = {
        "tp": len(truth & candidate),
        "fn": missed,
        "fp": invented,
    }
    return contribution(missed, invented, **prevalence), counts
