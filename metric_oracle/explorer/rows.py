"""The table of test reports: headings grouped by system, and what a row shows of each report."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from metric_oracle.explorer.cases import Cases, Chosen

Link = Callable[..., str]
STEPS = 20  # lengths of the bar in a score cell
_PREVIEW = 240  # characters of a text that are sent; the style sheet cuts them to one line


def systems(cases: Cases) -> list[tuple[str, list[int]]]:
    """Return each system and its columns, in the order of their first columns."""
    grouped: dict[str, list[int]] = {}
    for i, column in enumerate(cases.columns):
        grouped.setdefault(column.system, []).append(i)
    return list(grouped.items())


def headings(cases: Cases, chosen: Chosen, link: Link) -> list[dict[str, Any]]:
    """Return the systems, each with its columns: metric, link that sorts by it, and direction of the order.

    Parameters
    ----------
    cases : Cases
    chosen : Chosen
        Present order.
    link : callable
        Called with parameters of the address, None for those to remove; returns the address of the table.
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

    return [{"system": system, "columns": [heading(i) for i in columns]} for system, columns in systems(cases)]


def rows(cases: Cases, shown: Sequence[int], chosen: Chosen, link: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return what the table shows of the test reports at these positions: one dict for each.

    Parameters
    ----------
    cases : Cases
    shown : sequence of int
        Positions of the test reports.
    chosen : Chosen
        Order of the table. If it is sorted by an oracle, the report that this oracle found is shown, otherwise the one
        of the first oracle.
    link : callable
        Returns the address of a test report's page.
    """
    oracles = [i for i, column in enumerate(cases.columns) if column.system == "oracle"]
    oracle = chosen.sort if chosen.sort in oracles else oracles[0] if oracles else None
    order = [i for _, columns in systems(cases) for i in columns]
    scale = cache(lambda metric: scale_of(cases, metric))
    values = np.array([cases.columns[i].values for i in order])[:, list(shown)].T.tolist()
    table = []
    for q, scores in zip(shown, values, strict=True):
        best = None if oracle is None else cases.candidate_of(cases.columns[oracle].source, q)
        reference, text = cases.reference(q), None if best is None else best.text
        table.append(
            {
                "place": q + 1,
                "id": cases.ids[q],
                "link": link(q),
                "reference": _preview(reference),
                "oracle": _preview(text),
                "oracle_metric": "" if oracle is None else cases.columns[oracle].metric,
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


def _preview(text: str | None) -> str:
    return "" if text is None else " ".join(text[:_PREVIEW].split())


def _notes(cases: Cases, q: int) -> list[str]:
    """Return short notes on a test report: "fallback", "not proven", the number of ties, "rated"."""
    notes = ["fallback"] * bool(cases.is_fallback[:, q].any()) + ["not proven"] * bool(cases.is_inexact[:, q].any())
    most = int(cases.ties[:, q].max(initial=0))
    return notes + [f"{most:,} ties"] * (most > 1) + ["rated"] * bool(cases.is_rated[q])
