"""A composite of one pair, slow and obvious: the reference scorers of its parts."""

from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_reference


def score(candidate, reference, *, terms, intercept):
    """Return the composite and the values of its parts.

    Parameters
    ----------
    candidate, reference : dict
        Representation -> what the reference scorers of its metrics take.
    terms : dict
        Part -> what `metrics.Term` has.
    intercept : float
    """
    values = {}
    for part, t in terms.items():
        kind = t.metric.representation
        values[part] = load_reference(t.metric)(candidate[kind], reference[kind])[0]
    return composite(values.values(), terms.values(), intercept), values
