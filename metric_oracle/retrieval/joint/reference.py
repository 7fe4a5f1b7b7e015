"""A pair under conditions, slow and obvious: the reference scorers of the metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

from metric_oracle.metrics import Term
from metric_oracle.retrieval.joint.conditions import listed
from metric_oracle.retrieval.kernels import load_reference


def score(
    candidate: Mapping[str, Any],
    reference: Mapping[str, Any],
    *,
    terms: Mapping[str, Term],
    ordered: Sequence[str],
    conditions: Sequence[tuple[str, str, float]],
) -> tuple[float, dict[str, float]]:
    """Return the score of a pair, and what `listed` names: the values of a sum, and of the metrics of conditions.

    Parameters
    ----------
    candidate, reference : dict
        Representation -> what the reference scorers of its metrics take.
    terms : dict
        Metric -> what `metrics.Term` has.
    ordered : sequence of str
        The metrics whose values are added, in this order.
    conditions : sequence of (str, str, float)
        Metric, operator and number.
    """
    values = {}
    for name, term in terms.items():
        kind = term.metric.representation
        values[name] = load_reference(term.metric)(candidate[kind], reference[kind])[0]
    return sum(values[name] for name in ordered), {name: values[name] for name in listed(ordered, conditions)}
