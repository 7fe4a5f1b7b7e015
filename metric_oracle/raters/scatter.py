"""The figure of errors against scores (figure 3 of Yu et al.)."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.findings.cells import number
from metric_oracle.findings.figures import BLUE, INK, SMALL, WIDTH, finish, literal, new_figure
from metric_oracle.metrics import title_of
from metric_oracle.raters.names import agreement_cell, kind_in_line
from metric_oracle.statistics import Array, varies


def scatter(
    scores: Mapping[str, Array],
    errors: Mapping[str, Array],
    row_of: Mapping[tuple[str, str], Mapping[str, Any]],
    lower: Sequence[str],
    width: float | None = None,
) -> Any:
    """Return a Matplotlib figure of mean errors, by kind, against scores, by metric, with a panel for each of both.

    `row_of` has the agreement of each metric and kind, `lower` the metrics of which lower is better. `width` is in
    millimetres, by default 60 for each metric, and at most 180.
    """
    names = list(scores)
    if not row_of:
        raise InputError(
            "ratings",
            "must be counts or grades for a figure of errors against scores",
            "preferences or orders",
            "Leave the figure out.",
        )
    figure = new_figure(width or min(60.0 * max(len(names), 1.5), WIDTH), 58 * len(errors))
    panels = figure.subplots(len(errors), len(names), squeeze=False, sharex="col", sharey="row")
    for (row, kind), (column, name) in product(enumerate(errors), enumerate(names)):
        panel, x, y = panels[row, column], scores[name], errors[kind]
        slope, intercept, r_squared = least_squares(x, y)
        ends = np.array([x.min(), x.max()])
        panel.scatter(x, y, s=9, alpha=0.45, linewidths=0, color=BLUE)
        panel.plot(ends, slope * ends + intercept, color=INK, linewidth=1)
        fit = "undefined" if r_squared is None else number(r_squared, ".3f")
        label = f"tau-b {agreement_cell(row_of[name, kind])}\nR² {fit}"
        corner = 0.03 if name in lower else 0.97
        panel.text(
            corner, 0.97, label, transform=panel.transAxes, va="top", ha="left" if corner < 0.5 else "right", size=SMALL
        )
        # Leave room for the three lines of the label above the points.
        least = min(y.min(), 0)
        room = max(y.max() - least, 1)
        panel.set_ylim(bottom=least - 0.03 * room, top=least + 1.4 * room)
        if row == 0:
            panel.set_title(literal(title_of(name)))
        if row == len(errors) - 1:
            panel.set_xlabel("score (lower is better)" if corner < 0.5 else "score")
        if column == 0:
            panel.set_ylabel(f"{kind_in_line(kind)}, mean of raters")
    return finish(figure)


def least_squares(x: Array, y: Array) -> tuple[float, float, float | None]:
    """Return slope, intercept and R² of the least-squares line; R² is None where all x or all y are equal."""
    from scipy.stats import linregress

    if not (varies(x) and varies(y)):
        return 0.0, float(y.mean()), None
    line = linregress(x, y)
    return float(line.slope), float(line.intercept), float(line.rvalue**2)
