"""Parse sums of metrics and conditions as people type them, and make the metric of such a search."""

import re
from collections.abc import Sequence
from math import isfinite

from metric_oracle.base.errors import InputError, shown
from metric_oracle.metrics import check_searched, get_metric
from metric_oracle.records import SUM, Condition, Metric, Sum, Term, joined

_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<)\s*([^<>=\s]+)\s*")


def parsed(where: str | Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions in a text such as ``"radgraph>=0.4,bleu-2>0.1"``.

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
                "where",
                "must be METRIC, one of >=, >, <=, <, and a number",
                shown(text),
                'Write it as "radgraph>=0.4".',
            )
        conditions.append(Condition(get_metric(parts[1]), parts[2], value))
    return tuple(conditions)


def summands(names: str) -> list[Metric]:
    """Return the metrics of a sum, such as ``"radgraph+chexbert:agreement"``, or of a single metric."""
    return [get_metric(name.strip()) for name in names.split("+")]


def conditioned(added: Sequence[Metric], conditions: Sequence[Condition]) -> Metric:
    """Return the metric of a search by a metric, or a sum of metrics, under conditions on others.

    Raise InputError if one of them is a composite, or those of the sum are not different ones of one direction.
    """
    metrics = {metric.name: metric for metric in (*added, *(condition.metric for condition in conditions))}
    for metric in metrics.values():
        check_searched(metric)
        if metric.name not in metric.terms:  # a metric is its own only term
            raise InputError(
                "where" if conditions else "metric",
                f"must have no composite{', nor must the metric of the search' if conditions else ' in a sum'}",
                shown(metric.name),
                "Use the metrics that the composite sums, without its weights.",
            )
    name = "+".join(metric.name for metric in added)
    if len({metric.name for metric in added}) < len(added) or len({metric.direction for metric in added}) > 1:
        raise InputError(
            "metric",
            "must be a sum of different metrics with the same better direction",
            shown(name),
            "Leave one of them out.",
        )
    is_alone = len(added) == 1
    return Sum(
        name,
        joined(metrics.values()),
        SUM,
        added[0].citation if is_alone else "sum of the scores of its metrics",
        higher_is_better=added[0].higher_is_better,
        cheap=False,
        composable=False,
        tool=added[0].tool if is_alone else "",
        added=tuple(map(Term, added)),
        conditions=tuple(conditions),
    )
