"""A report's contribution to CRG, slow and obvious: Python sets."""

from metric_oracle.kernels.crg.score import contribution


def score(candidate, reference):
    """Return the contribution of a candidate's labels against a reference's, and the counts.

    Parameters
    ----------
    candidate : set of int
        Positive labels.
    reference : pair of a set and a dict
        The reference's positive labels; positives, labels and reports of the whole reference set.
    """
    truth, prevalence = reference
    missed, invented = len(truth - candidate), len(candidate - truth)
    counts = {
        "tp": len(truth & candidate),
        "fn": missed,
        "fp": invented,
    }
    return contribution(missed, invented, **prevalence), counts
