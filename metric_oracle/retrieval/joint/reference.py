"""The score of one pair under conditions, in plain, slow Python, from the plain scorers of the metrics."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metric_oracle.records import Metric, Term
from metric_oracle.retrieval.joint.conditions import listed
from metric_oracle.retrieval.kernels import load_reference


def score(
    candidate: Mapping[str, Any],
    reference: Mapping[str, Any],
    *,
    terms: Mapping[str, Term],
    ordered: Sequence[str],
    conditions: Sequence[tuple[str, str, float]],
    load: Callable[[Metric], Callable[..., tuple[float, dict[str, Any]]]] = load_reference,
) -> tuple[float, dict[str, float]]:
    """Return the sum of a pair's scores under `ordered`, and by name those of a sum's and of the conditions' metrics.

    Candidate and reference are dicts from the name of a representation to the document for the plain scorers of its
    metrics, `terms` one from the name of a metric to its `records.Term`. `load` returns the scorer of a metric.
    """
    values = {}
    for name, term in terms.items():
        kind = term.metric.representation
        values[name] = load(term.metric)(candidate[kind], reference[kind])[0]
    return sum(values[name] for name in ordered), {name: values[name] for name in listed(ordered, conditions)}
