"""Parse sums of metrics and conditions as people type them, and make the metric record of such a search."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from metric_oracle.base.errors import InputError
from metric_oracle.metrics import check_searched, get_metric
from metric_oracle.records import Metric, Term, joined

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
JOINT = "joint"  # kernel of a search under conditions
_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<)\s*([^<>=\s]+)\s*")


def parsed(where: str | Sequence[str]) -> tuple[tuple[str, str, float], ...]:
    """Return metric, operator and number of each condition in a text such as ``"radgraph>=0.4,bleu-2>0.1"``.

    Or in a sequence of texts of one condition each. Raise InputError for any other text.
    """
    conditions = []
    for text in where.split(",") if isinstance(where, str) else where:
        parts = _CONDITION.fullmatch(text)
        try:
            value = float(parts[3]) if parts else float("nan")
        except ValueError:
            value = float("nan")
        if parts is None or not isfinite(value):
            raise InputError(
                "where", "must be METRIC, one of >=, >, <=, <, and a number", repr(text), 'Write it as "radgraph>=0.4".'
            )
        conditions.append((get_metric(parts[1]).name, parts[2], value))
    return tuple(conditions)


def summands(metric: str) -> list[Metric]:
    """Return the records of the metrics of a sum, such as ``"radgraph+chexbert:agreement"``, or of a single metric."""
    return [get_metric(name.strip()) for name in metric.split("+")]


def listed(ordered: Sequence[str], conditions: Sequence[tuple[str, str, float]]) -> tuple[str, ...]:
    """Return the names of the metrics that have a column of their own: those of a sum, then those of the conditions."""
    return tuple(dict.fromkeys([*(ordered if len(ordered) > 1 else ()), *(name for name, *_ in conditions)]))


def conditioned(ordered: Sequence[Metric], conditions: Sequence[tuple[str, str, float]]) -> Metric:
    """Return the metric record of a search by a metric, or a sum of metrics, under conditions on others.

    Raise InputError if one of them is a composite, or those of the sum are not different ones of one direction.
    """
    names = tuple(metric.name for metric in ordered)
    metrics = {metric.name: metric for metric in (*ordered, *(get_metric(name) for name, *_ in conditions))}
    for metric in metrics.values():
        check_searched(metric)
        if metric.terms:
            raise InputError(
                "where" if conditions else "metric",
                f"must have no composite{', nor must the metric of the search' if conditions else ' in a sum'}",
                repr(metric.name),
                "Use the metrics that the composite sums, without its weights.",
            )
    if len(set(names)) < len(names) or len({metric.higher_is_better for metric in ordered}) > 1:
        raise InputError(
            "metric",
            "must be a sum of different metrics with the same better direction",
            repr("+".join(names)),
            "Leave one of them out.",
        )
    terms = {name: Term(metric, 0.0, 1.0, 1.0) for name, metric in metrics.items()}
    options = {"terms": terms, "ordered": names, "conditions": tuple(conditions)}
    is_sum = len(names) > 1
    return replace(
        ordered[0],
        name="+".join(names),
        reads=joined([*terms.values()]),
        kernel=JOINT,
        citation="sum of the scores of its metrics" if is_sum else ordered[0].citation,
        tool="" if is_sum else ordered[0].tool,
        options=options,
        fallback=False,
        cheap=False,
        composable=False,
    )
