"""Plain scorer of a sum: the plain scorers of its metrics, and the weighted sum. Slow and simple."""

from metric_oracle.kernels.sum.score import composite


def score(candidate, reference, *, metric, parts):
    """Return the sum of one pair, and the scores that stand beside it by name of their metric.

    Candidate and reference are dicts from the name of a representation to the document for its plain scorers, `metric`
    is the `records.Metric` of the sum, and `parts` has the plain scorer of each of its metrics by name.
    """
    values = {}
    for name, one in metric.metrics.items():
        kind = one.representation
        values[name] = parts[name](candidate[kind], reference[kind])[0]
    total = composite([values[name] for name in metric.terms], metric.terms.values(), metric.intercept)
    return total, {name: values[name] for name in metric.columns}
