"""Figures of agreement with radiologists: errors against scores, errors by category (figures 3 and 4 of Yu et al.)."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.findings.figures import literal, new_figure, write_figure
from metric_oracle.findings.tables import plain
from metric_oracle.raters.failure_modes import FailureModes
from metric_oracle.raters.interrater import RADIOLOGISTS
from metric_oracle.raters.layout import agreement_entry, candidate_name, category_title, kind_name
from metric_oracle.raters.metric_agreement import AGREEMENT, CEILING, MEAN, Alignment, MetricComparison
from metric_oracle.raters.rank_correlation import TAU
from metric_oracle.raters.ratings import KINDS
from metric_oracle.statistics import Array, varies

_KIND_LABELS = {"total": "all errors", "significant": "clinically significant errors"}


def draw_alignment(alignment: Alignment) -> Any:
    """Return a Matplotlib figure: mean errors against scores with the least-squares line, figure 3 of Yu et al."""
    records = {
        (r["metric"], r["errors"]): r
        for r in alignment.table.to_pylist()
        if (r["rater"], r["statistic"]) == (MEAN, TAU)
    }
    lower = alignment.signature["lower_is_better"]
    return _scatter(alignment.scores, alignment.errors, records, lower)


def plot_scatter(result: MetricComparison, path: str | Path) -> None:
    """Draw mean errors against scores for the first set of a comparison of metrics, like `plot_alignment`."""
    view = result.views[0]
    records = {(r["metric"], r["errors"]): r for r in result.select(AGREEMENT, set=view.name, statistic=TAU)}
    figure = _scatter(view.scores, view.errors, records, result.signature["lower_is_better"])
    write_figure(Path(path), figure)


def _scatter(
    scores: Mapping[str, Array],
    errors: Mapping[str, Array],
    records: Mapping[tuple[str, str], Mapping[str, Any]],
    lower: Sequence[str],
) -> Any:
    """Return the scatter plots of errors against scores, one panel for each metric and kind of errors."""
    names = list(scores)
    if not records:
        raise InputError(
            "ratings",
            "must be counts or grades for a figure of errors against scores",
            "preferences or orders",
            "Leave the figure out.",
        )
    figure = new_figure(max(3.0 * len(names), 4.5), 6)
    panels = figure.subplots(len(errors), len(names), squeeze=False, sharex="col", sharey="row")
    for (row, kind), (column, name) in product(enumerate(errors), enumerate(names)):
        panel, x, y = panels[row, column], scores[name], errors[kind]
        slope, intercept, r_squared = least_squares(x, y)
        ends = np.array([x.min(), x.max()])
        panel.scatter(x, y, s=14, alpha=0.45, linewidths=0)
        panel.plot(ends, slope * ends + intercept, color="black", linewidth=1.2)
        shown = "\n".join(agreement_entry(dict(records[name, kind])).lines)
        label = f"tau-b {shown}\nR² {'undefined' if r_squared is None else f'{r_squared:.3f}'}"
        corner = 0.03 if name in lower else 0.97
        panel.text(
            corner, 0.97, label, transform=panel.transAxes, va="top", ha="left" if corner < 0.5 else "right", fontsize=8
        )
        # Leave room for the label above the points.
        least = min(y.min(), 0)
        room = max(y.max() - least, 1)
        panel.set_ylim(bottom=least - 0.03 * room, top=least + 1.25 * room)
        if row == 0:
            panel.set_title(literal(name), fontsize=10)
        if row == len(errors) - 1:
            panel.set_xlabel("score (lower is better)" if corner < 0.5 else "score", fontsize=9)
        if column == 0:
            panel.set_ylabel(f"{kind_name(kind).replace(chr(10), ' ')}, mean of raters", fontsize=9)
    return figure


def plot_metric_bars(result: MetricComparison, path: str | Path) -> None:
    """Draw the agreement of each metric on each set as bars with intervals, best first.

    A dashed line shows the agreement of one radiologist with the others.

    Parameters
    ----------
    result : MetricComparison
    path : path
        Ends with .png, .svg or .pdf.
    """
    n_kinds = max(len(view.kinds) for view in result.views)
    n_metrics = max(len(view.scores) for view in result.views)
    figure = new_figure(4.2 * n_kinds, len(result.views) * (0.9 + 0.28 * n_metrics))
    panels = figure.subplots(len(result.views), n_kinds, squeeze=False)
    for row, view in enumerate(result.views):
        statistic = view.statistics[0]
        records = result.select(AGREEMENT, set=view.name, statistic=statistic)
        one_rater = result.select(CEILING, set=view.name, metric=RADIOLOGISTS, statistic=statistic)
        ceiling = {r["errors"]: r["value"] for r in one_rater}
        for column, panel in enumerate(panels[row]):
            if column >= len(view.kinds):
                panel.set_visible(False)
                continue
            kind = view.kinds[column]
            shown = [r for r in records if r["errors"] == kind and r["value"] is not None]
            shown.sort(key=lambda r: -r["value"])
            values = np.array([r["value"] for r in shown])
            ends = np.array([[r["low"], r["high"]] for r in shown], np.float64).reshape(-1, 2)
            panel.barh(range(len(shown)), values, height=0.62, color="#2f6ea5")
            for y, (low, end) in enumerate(ends):
                panel.plot([low, end], [y, y], color="black", linewidth=1)
            if ceiling.get(kind) is not None:
                panel.axvline(ceiling[kind], color="#9aa0a6", linestyle="--", linewidth=1)
            panel.set_yticks(range(len(shown)), [plain(r["metric"]) for r in shown], fontsize=8, parse_math=False)
            panel.invert_yaxis()
            panel.tick_params(labelsize=8, length=2)
            panel.spines[["top", "right"]].set_visible(False)
            title = f"{plain(view.name)}: {kind_name(kind)}".replace("\n", " ")
            panel.set_title(title, fontsize=9, parse_math=False)
            if row == len(result.views) - 1:
                names = dict.fromkeys(
                    "Kendall tau-b" if v.statistics[0] == TAU else v.statistics[0] for v in result.views
                )
                label = f"{' or '.join(names)}, 95 % interval; dashed: one radiologist"
                panel.set_xlabel(label, fontsize=8)
    write_figure(Path(path), figure)


def plot_alignment(alignment: Alignment, path: str | Path) -> None:
    """Draw the agreement of scores with counted errors, and write it as PNG, SVG or PDF by the ending of the path.

    Parameters
    ----------
    alignment : Alignment
        What [`align`][metric_oracle.align] returned.
    path : str or path
        File that ends in ``.png``, ``.pdf`` or ``.svg``. An existing one is replaced only when the new one is complete.

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.
    BackendError
        If Matplotlib is not installed.

    Examples
    --------
    >>> alignment = mo.align("ratings.csv", samples="samples.csv", metrics=["bleu", "rouge-l"], resamples=200)
    >>> mo.plot_alignment(alignment, "figure.png")
    """
    write_figure(Path(path), draw_alignment(alignment))


def draw_failure_modes(result: FailureModes) -> Any:
    """Return a Matplotlib figure: mean errors by category and candidate type, a star over significant differences.

    Figure 4 of Yu et al.
    """
    n = len(result.candidates)
    width = 0.8 / n
    figure = new_figure(max(1.6 * len(result.categories), 6), 7)
    panels = figure.subplots(len(KINDS), 1, sharex=True)
    tests = [r for r in result.tests.to_pylist() if r["significant"]]
    for panel, kind in zip(panels, KINDS, strict=True):
        means = result.means[kind]
        centres = np.arange(len(result.categories)) + (np.arange(n)[:, None] - (n - 1) / 2) * width
        for candidate, x, heights in zip(result.candidates, centres, means, strict=True):
            panel.bar(x, heights, width * 0.92, label=literal(candidate_name(candidate)))
        step = 0.06 * max(means.max(), 1e-9)
        for column, category in enumerate(result.categories):
            top = means[:, column].max()
            for record in (r for r in tests if (r["errors"], r["category"]) == (kind, category)):
                top += step
                ends = [centres[result.candidates.index(record[side]), column] for side in ("a", "b")]
                panel.plot(ends, [top, top], color="black", linewidth=0.9)
                panel.text(sum(ends) / 2, top, "*", ha="center", va="baseline", fontsize=10)
        panel.margins(y=0.08)
        panel.set_ylabel(f"{_KIND_LABELS[kind]} of a report, mean", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=n, fontsize=9)
    labels = [fill(literal(category_title(category)), 22) for category in result.categories]
    panels[-1].set_xticks(range(len(labels)), labels, fontsize=8)
    panels[-1].set_xlabel(f"* significant difference, Benjamini-Hochberg at {result.signature['rate']:g}", fontsize=8)
    return figure


def plot_failure_modes(result: FailureModes, path: str | Path) -> None:
    """Draw the mean errors by category and candidate type, and write it as PNG, SVG or PDF by the ending of the path.

    Parameters
    ----------
    result : FailureModes
        What [`failure_modes`][metric_oracle.failure_modes] returned.
    path : str or path
        File that ends in ``.png``, ``.pdf`` or ``.svg``. An existing one is replaced only when the new one is complete.

    Raises
    ------
    InputError
        If the ending is another one, or the file cannot be written.
    BackendError
        If Matplotlib is not installed.

    Examples
    --------
    >>> modes = mo.failure_modes("ratings.csv")
    >>> mo.plot_failure_modes(modes, "figure.png")
    """
    write_figure(Path(path), draw_failure_modes(result))


def least_squares(x: Array, y: Array) -> tuple[float, float, float | None]:
    """Return slope, intercept and R² of the least-squares line; R² is None where all x or all y are equal."""
    from scipy.stats import linregress

    if not (varies(x) and varies(y)):
        return 0.0, float(y.mean()), None
    line = linregress(x, y)
    return float(line.slope), float(line.intercept), float(line.rvalue**2)
