"""The table of test reports: its filters, histograms, headings grouped by metric, and what a row shows of a report."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.explorer.addresses import ROWS, Address, Choice, choose, link
from metric_oracle.explorer.cases import MODEL, ORACLE, OTHER, Cases

_ROOM = 780  # pixels for columns, beside ids and words, in a window of 1,248
_LETTER, _MARGINS, _SHORTEST = 10, 20, 6  # pixels of a letter in a heading and of the margins of a column; letters
_STEPS = 20  # lengths of the bar in a score cell
_PREVIEW = 240  # characters of a text that are sent; the style sheet cuts them to one line
_BARS = 20  # bars per histogram
_ORDER = (MODEL, ORACLE, OTHER, "frequent", "chance", "perfect")  # of the columns of a metric, by role
_VIEW = {"sort", "minus", "files", "turn", "under", "all"}  # which order and which columns; the others are filters


def table(cases: Cases, address: Address) -> dict[str, Any]:
    """Return a page of the table of test reports, with the filters and in the order of an address."""
    choice, filters = address.choice, address.filters
    order, columns, positions = choose(cases, choice), shown_columns(cases, choice), informative(cases)
    paged = address.page("/cases", filters, len(order))
    return {
        "total": len(order),
        "n_all": len(cases.ids),
        "is_filtered": bool(set(filters) - _VIEW),
        "kept": [(name, value) for name, value in filters.items() if name in {*_VIEW, "words"}],
        "all_kept": list(filters.items()),
        "choice": asdict(choice),
        "has_ratings": cases.rated is not None,
        "labels": [name for name in LABELS if name in cases.frame.columns],
        "columns": [column.name for column in cases.columns],
        "constant": [column.name for i, column in enumerate(cases.columns) if i not in positions],
        "headings": _headings(cases, address, columns),
        "histograms": [_histogram(cases, i, order, filters) for i in columns],
        "views": [] if fits(cases, positions) else _views(cases, address, len(positions)),
        "rows": _row_views(cases, address, columns, order[(paged["page"] - 1) * ROWS : paged["page"] * ROWS]),
        "csv_link": link("/rows.csv", filters),
        "orders": [
            ("disagreement", link("/cases", filters, sort=None, minus=None, turn=None, files=None)),
            ("order of the files", link("/cases", filters, sort=None, minus=None, turn=None, files=1)),
        ],
        **paged,
    }


def whole_table(cases: Cases) -> dict[str, Any]:
    """Return the table of all test reports and columns on one page, by disagreement, for a page without a server.

    Its `views` are the choices of columns: their name, and the places in the table of those that they show.
    """
    choice, positions = Choice(), informative(cases)
    order = [i for _, of_metric in metrics(cases, positions) for i in of_metric]
    usual = shown_columns(cases, choice)
    named = [(name, shown_columns(cases, Choice(under=i))) for i, name in enumerate(cases.metric_names)]
    if len({cases.columns[i].metric for i in usual}) > 1:
        named.insert(0, ("models and oracles", usual))
    views = [] if fits(cases, positions) else [*named, (f"all {len(positions)} columns", positions)]
    return {
        "choice": asdict(choice),
        "has_ratings": cases.rated is not None,
        "labels": [name for name in LABELS if name in cases.frame.columns],
        "columns": [cases.columns[i].name for i in order],
        "constant": [column.name for i, column in enumerate(cases.columns) if i not in positions],
        "headings": _headings(cases, Address(), positions),
        "views": [(name, [order.index(i) for i in shown]) for name, shown in views],
        "rows": _row_views(cases, Address(), positions, choose(cases, choice)),
    }


def rows_of_table(cases: Cases, address: Address) -> dict[str, list[Any]]:
    """Return the columns of the whole table, with all systems, for the test reports that an address chooses."""
    order = choose(cases, address.choice)
    scores = order.select(column.name for column in cases.columns).to_dict(as_series=False)
    ids = [cases.ids[q] for q in order["q"].to_list()]
    return {"query_id": ids, **scores, "oracles_differ": order["differ"].to_list()}


def informative(cases: Cases) -> list[int]:
    """Return the positions of columns whose scores differ between test reports; those of perfect answers do not."""

    def differs(values: np.ndarray) -> bool:
        scored = values[np.isfinite(values)]
        return len(scored) > 0 and (len(cases.ids) == 1 or len(scored) < len(values) or np.ptp(scored) > 0)

    return [i for i, column in enumerate(cases.columns) if differs(column.values)]


def shown_columns(cases: Cases, choice: Choice) -> list[int]:
    """Return the positions of the columns that the table shows: as many as fit, models and each metric's oracle first.

    If these do not fit for all metrics, they are those of one metric.
    """
    all_columns = informative(cases)
    if choice.all:
        return all_columns
    main = [i for i in all_columns if cases.columns[i].role in (MODEL, ORACLE)]
    sorted_by = {i for i in (choice.sort, choice.minus) if i is not None}
    name = main_metric(cases, choice)
    of_metric = [[i for i in some if cases.columns[i].metric == name] for some in (all_columns, main)]
    choices = [*of_metric] if choice.under is not None else [all_columns, main, *of_metric]
    for some in choices:
        columns = [i for i in all_columns if i in some or i in sorted_by]
        if fits(cases, columns):
            break
    return columns


def main_metric(cases: Cases, choice: Choice) -> str:
    """Return the metric to show where only one fits: that of `choice.under`, of the column to sort by, or the first."""
    if choice.under is not None:
        return cases.metric_names[choice.under]
    return cases.metric_names[0] if choice.sort is None else cases.columns[choice.sort].metric


def fits(cases: Cases, positions: Sequence[int]) -> bool:
    """Return whether the headings of the columns at `positions` need no more than `_ROOM`."""

    def width(name: str) -> int:
        return _LETTER * max(_SHORTEST, *map(len, name.split() or [""])) + _MARGINS

    widths = [
        max(width(metric), sum(width(cases.columns[i].system) for i in columns))
        for metric, columns in metrics(cases, positions)
    ]
    return sum(widths) <= _ROOM


def metrics(cases: Cases, positions: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return each metric, in the order of the files, and the positions of its columns among `positions`.

    They are in the order models, the metric's oracle, other oracles, baselines.
    """
    grouped: dict[str, list[int]] = {}
    for i in positions:
        grouped.setdefault(cases.columns[i].metric, []).append(i)
    return [
        (metric, sorted(of, key=lambda i: (_ORDER.index(cases.columns[i].role), i))) for metric, of in grouped.items()
    ]


def _headings(cases: Cases, address: Address, columns: Sequence[int]) -> list[dict[str, Any]]:
    """Return the metrics, each with its columns: system, link that sorts by it, and direction of the order."""
    choice = address.choice

    def heading(i: int) -> dict[str, Any]:
        column = cases.columns[i]
        is_here = choice.sort == i and choice.minus is None
        rises = (column.sign > 0) == choice.turn
        turn = 1 if is_here and not choice.turn else None
        return {
            "name": column.system,
            "sorted": ("ascending" if rises else "descending") if is_here else "",
            "link": link("/cases", address.filters, sort=i, minus=None, files=None, turn=turn),
        }

    return [
        {"metric": metric, "is_lower_better": cases.columns[of[0]].sign < 0, "columns": [heading(i) for i in of]}
        for metric, of in metrics(cases, columns)
    ]


def _views(cases: Cases, address: Address, n: int) -> list[tuple[str, str, bool]]:
    """Return the choices of columns: name, address, and whether it is shown; `n` is the number of all columns."""
    choice, filters = address.choice, address.filters
    usual = shown_columns(cases, Choice())
    has_usual = len({cases.columns[i].metric for i in usual}) > 1
    is_usual = has_usual and choice.under is None and not choice.all
    only = "" if is_usual or choice.all else main_metric(cases, choice)
    return [
        *([("models and oracles", link("/cases", filters, under=None, all=None), is_usual)] if has_usual else []),
        *(
            (metric, link("/cases", filters, under=i, all=None), metric == only)
            for i, metric in enumerate(cases.metric_names)
        ),
        (f"all {n} columns", link("/cases", filters, under=None, all=1), choice.all),
    ]


def _histogram(cases: Cases, i: int, order: pl.DataFrame, filters: dict[str, str]) -> dict[str, Any]:
    column = cases.columns[i]
    scored = column.values[order["q"].to_numpy()]
    scored = scored[np.isfinite(scored)]
    low, high = (float(scored.min()), float(scored.max())) if len(scored) else (0.0, 1.0)
    counts, edges = np.histogram(scored, _BARS, (low, high if high > low else low + 1e-9))
    most = max(int(counts.max()), 1)
    bars = [
        {
            "x": round(5 * b + 0.3, 2),
            "height": round(38 * int(n) / most, 2),
            "n": int(n),
            "low": float(edges[b]),
            "high": float(edges[b + 1]),
            "link": link("/cases", filters, column=i, low=repr(float(edges[b])), high=repr(float(edges[b + 1]))),
        }
        for b, n in enumerate(counts)
    ]
    mean = float(scored.mean()) if len(scored) else None
    return {"name": column.name, "n": len(scored), "mean": mean, "low": low, "high": high, "bars": bars}


def _row_views(cases: Cases, address: Address, columns: Sequence[int], frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what the table shows of some rows of `Cases.frame`.

    It shows the report that an oracle found: the one by which the table is sorted, or else the first.
    """
    oracles = [i for i, column in enumerate(cases.columns) if column.role == ORACLE]
    oracle = address.choice.sort if address.choice.sort in oracles else oracles[0] if oracles else None
    order = [cases.columns[i] for _, of_metric in metrics(cases, columns) for i in of_metric]
    scale = cache(lambda metric: scale_of(cases, metric))
    rows = []
    for row in frame.to_dicts():
        q = row["q"]
        best = None if oracle is None else cases.candidate_of(cases.columns[oracle].file, q)
        reference, text = cases.reference(q), None if best is None else best.text
        rows.append(
            {
                "q": q,
                "id": cases.ids[q],
                "link": link(f"/case/{q}", address.filters),
                "reference": _preview(reference),
                "oracle": _preview(text),
                "oracle_name": "" if oracle is None else cases.columns[oracle].system,
                "is_same": text is not None and text == reference,
                "scores": [(row[column.name], _steps(row[column.name], *scale(column.metric))) for column in order],
                "differ": row["differ"],
                "ties": row["ties"],
                "labels": [i for i, name in enumerate(LABELS) if row.get(name)],
                "notes": [
                    *["fallback"] * row["fallback"],
                    *["not proven"] * row["inexact"],
                    *[f"{row['ties']:,} ties"] * (row["ties"] > 1),
                    *["rated"] * row["rated"],
                ],
            }
        )
    return rows


def scale_of(cases: Cases, metric: str) -> tuple[float, float]:
    """Return the values at the ends of a metric's bars: 0 and 1, or the range of the files if it is wider."""
    values = np.concatenate([column.values for column in cases.columns if column.metric == metric])
    values = values[np.isfinite(values)]
    return min(0.0, float(values.min(initial=0.0))), max(1.0, float(values.max(initial=0.0)))


def _steps(value: float | None, low: float, high: float) -> int | None:
    return None if value is None else round(_STEPS * (value - low) / (high - low))


def _preview(text: str | None) -> str | None:
    return None if text is None else " ".join(text[:_PREVIEW].split())
