"""The table of test reports: headings grouped by system, and what a row shows of each report."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from metric_oracle.explorer.cases import MODEL, ORACLE, Cases, Chosen

Link = Callable[..., str]
ROOM = 780  # pixels for columns, beside ids and words, in a window of 1,248
_LETTER, _MARGINS, _SHORTEST = 10, 20, 6  # pixels of a letter in a heading and of the margins of a column; letters
STEPS = 20  # lengths of the bar in a score cell
_PREVIEW = 240  # characters of a text that are sent; the style sheet cuts them to one line


def informative(cases: Cases) -> list[int]:
    """Return the positions of columns whose scores differ between test reports; those of perfect answers do not."""

    def differs(values: np.ndarray) -> bool:
        scored = values[np.isfinite(values)]
        return len(scored) > 0 and (len(cases.ids) == 1 or len(scored) < len(values) or np.ptp(scored) > 0)

    return [i for i, column in enumerate(cases.columns) if differs(column.values)]


def shown_columns(cases: Cases, chosen: Chosen) -> list[int]:
    """Return the positions of the columns that the table shows: as many as fit, models and each metric's oracle first.

    If these do not fit for all metrics, they are those of one metric.
    """
    known = informative(cases)
    if chosen.is_every_column:
        return known
    main = [i for i in known if cases.columns[i].role in (MODEL, ORACLE)]
    sorted_by = {i for i in (chosen.sort, chosen.minus) if i is not None}
    name = main_metric(cases, chosen)
    of_metric = [[i for i in some if cases.columns[i].metric == name] for some in (known, main)]
    choices = [*of_metric] if chosen.under is not None else [known, main, *of_metric]
    for some in choices:
        shown = [i for i in known if i in some or i in sorted_by]
        if fits(cases, shown):
            break
    return shown


def main_metric(cases: Cases, chosen: Chosen) -> str:
    """Return the metric to show where only one fits: that of `chosen.under`, of the column to sort by, or the first."""
    if chosen.under is not None:
        return cases.metric_names[chosen.under]
    return cases.metric_names[0] if chosen.sort is None else cases.columns[chosen.sort].metric


def fits(cases: Cases, shown: Sequence[int]) -> bool:
    """Return whether the headings of the columns at the positions `shown` need no more than `ROOM`."""

    def width(name: str) -> int:
        return _LETTER * max(_SHORTEST, *map(len, name.split() or [""])) + _MARGINS

    widths = [
        max(width(system), sum(width(cases.columns[i].metric) for i in columns))
        for system, columns in systems(cases, shown)
    ]
    return sum(widths) <= ROOM


def systems(cases: Cases, shown: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return each system and the positions of its columns among `shown`, in the order of their first columns."""
    grouped: dict[str, list[int]] = {}
    for i in shown:
        grouped.setdefault(cases.columns[i].system, []).append(i)
    return list(grouped.items())


def headings(cases: Cases, chosen: Chosen, link: Link) -> list[dict[str, Any]]:
    """Return the systems, each with its columns: metric, link that sorts by it, and direction of the order.

    `link` returns the address of the table with other parameters, None for those to remove.
    """

    def heading(i: int) -> dict[str, Any]:
        column = cases.columns[i]
        is_here = chosen.sort == i and chosen.minus is None
        rises = column.is_higher_better == chosen.is_reversed
        turn = 1 if is_here and not chosen.is_reversed else None
        return {
            "name": column.metric,
            "is_lower_better": not column.is_higher_better,
            "sorted": ("ascending" if rises else "descending") if is_here else "",
            "link": link(sort=i, minus=None, files=None, turn=turn),
        }

    grouped = systems(cases, shown_columns(cases, chosen))
    return [{"system": system, "columns": [heading(i) for i in columns]} for system, columns in grouped]


def rows(cases: Cases, shown: Sequence[int], chosen: Chosen, link: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return what the table shows of the test reports at the positions `shown`: one dict for each.

    A row shows the report that an oracle found: the one by which the table is sorted, or else the first. `link` returns
    the address of a test report's page.
    """
    oracles = [i for i, column in enumerate(cases.columns) if column.role == ORACLE]
    oracle = chosen.sort if chosen.sort in oracles else oracles[0] if oracles else None
    order = [i for _, columns in systems(cases, shown_columns(cases, chosen)) for i in columns]
    scale = cache(lambda metric: scale_of(cases, metric))
    values = np.array([cases.columns[i].values[list(shown)] for i in order]).reshape(len(order), len(shown)).T.tolist()
    table = []
    for q, scores in zip(shown, values, strict=True):
        best = None if oracle is None else cases.candidate_of(cases.columns[oracle].file, q)
        reference, text = cases.reference(q), None if best is None else best.text
        table.append(
            {
                "id": cases.ids[q],
                "link": link(q),
                "reference": _preview(reference),
                "oracle": _preview(text),
                "oracle_name": "" if oracle is None else cases.columns[oracle].system,
                "is_same": text is not None and text == reference,
                "scores": [
                    (value, _steps(value, *scale(cases.columns[i].metric)))
                    for i, value in zip(order, scores, strict=True)
                ],
                "differ": int(cases.disagreement[q]),
                "notes": _notes(cases, q),
            }
        )
    return table


def scale_of(cases: Cases, metric: str) -> tuple[float, float]:
    """Return the values at the ends of a metric's bars: 0 and 1, or the range of the files if it is wider."""
    values = np.concatenate([column.values for column in cases.columns if column.metric == metric])
    values = values[np.isfinite(values)]
    return min(0.0, float(values.min(initial=0.0))), max(1.0, float(values.max(initial=0.0)))


def _steps(value: float, low: float, high: float) -> int | None:
    return None if value != value else round(STEPS * (value - low) / (high - low))


def _preview(text: str | None) -> str | None:
    return None if text is None else " ".join(text[:_PREVIEW].split())


def _notes(cases: Cases, q: int) -> list[str]:
    """Return short notes on a test report: "fallback", "not proven", the number of ties, "rated"."""
    notes = ["fallback"] * bool(cases.is_fallback[:, q].any()) + ["not proven"] * bool(cases.is_inexact[:, q].any())
    most = int(cases.ties[:, q].max(initial=0))
    return notes + [f"{most:,} ties"] * (most > 1) + ["rated"] * bool(cases.is_rated[q])
