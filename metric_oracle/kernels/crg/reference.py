"""A report's contribution to CRG in plain, slow Python."""

from metric_oracle.kernels.crg.score import contribution


def score(candidate, reference):
    """Return the contribution of one report to CRG, and its numbers of correct and wrong labels.

    Parameters
    ----------
    candidate : set of int
        Positive labels of the candidate report.
    reference : pair of a set and a dict
        The reference's positive labels; and the numbers of positive labels, labels and reports of the whole test set.
    """
    truth, prevalence = reference
    missed, invented = len(truth - candidate), len(candidate - truth)
    counts = {
        "tp": len(truth & candidate),
        "fn": missed,
        "fp": invented,
    }
    return contribution(missed, invented, **prevalence), counts
