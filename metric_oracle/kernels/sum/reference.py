"""Plain scorer of a sum: the plain scorers of its metrics, and the weighted sum. Slow and simple."""

from metric_oracle.kernels.sum.score import composite


def score(candidate, reference, *, record, scorers):
    """Return the sum of one pair, and the scores that stand beside it by name of their metric.

    Candidate and reference are dicts from the name of a representation to the document for its plain scorers, `record`
    is the `records.Metric` of the sum, and `scorers` has the plain scorer of each of its metrics by name.
    """
    values = {}
    for name, metric in record.metrics.items():
        kind = metric.representation
        values[name] = scorers[name](candidate[kind], reference[kind])[0]
    total = composite([values[name] for name in record.terms], record.terms.values(), record.intercept)
    return total, {name: values[name] for name in record.columns}
