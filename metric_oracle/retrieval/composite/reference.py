"""Plain scorer of a composite: the plain scorers of its terms, and their weighted sum. Slow and simple."""

from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_reference


def score(candidate, reference, *, terms, intercept, load=load_reference):
    """Return the composite of one pair, and the values of its terms by name.

    Candidate and reference are dicts from the name of a representation to the document for its plain scorer, `terms`
    one from the name of a metric to its `records.Term`. `load` returns the scorer of a metric.
    """
    values = {}
    for part, t in terms.items():
        kind = t.metric.representation
        values[part] = load(t.metric)(candidate[kind], reference[kind])[0]
    return composite(values.values(), terms.values(), intercept), values
