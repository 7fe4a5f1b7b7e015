"""Figure of a comparison: means with intervals, and percentage change from random (figure 5 of Yu et al.)."""

from pathlib import Path
from typing import TYPE_CHECKING

from metric_oracle.choices import LEGACY
from metric_oracle.findings.figures import new_figure, write_figure
from metric_oracle.findings.tables import plain
from metric_oracle.statistics import LEVEL
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.comparison_layout import label
from metric_oracle.tables.table_cells import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 5  # largest number of metrics side by side
_BLUE, _LIGHT, _GREY, _DARK = "#2f6ea5", "#a9c7e2", "#9aa0a6", "#3c4043"


def draw(comparison: Comparison) -> "Figure":
    """Draw a forest plot of the means under each metric and, if random retrieval is a row, bars of the change from it.

    Returns
    -------
    matplotlib.figure.Figure
        Systems from top to bottom in the order of the table; every metric on its own scale.
    """
    columns, systems = comparison.columns, comparison.systems
    kinds = [_forest] if comparison.signature["random"] is None else [_forest, _bars]
    bands = [columns[i : i + WIDE] for i in range(0, len(columns), WIDE)]
    wide = min(len(columns), WIDE)
    names = [plain(name) for name in systems]
    left = min(0.085 * max(map(len, names)), 3.5)
    rows = len(bands) * len(kinds)
    figure = new_figure(left + 2.3 * wide, rows * (0.9 + 0.3 * len(systems)))
    grid = figure.subplots(rows, wide, squeeze=False, sharey=True)
    for b, band in enumerate(bands):
        for k, kind in enumerate(kinds):
            for position, axes in enumerate(grid[b * len(kinds) + k]):
                if position >= len(band):
                    axes.set_visible(False)
                    continue
                kind(axes, comparison, band[position])
                axes.set_title(label(band[position]), fontsize=9)
                axes.tick_params(labelsize=8, length=2)
                axes.xaxis.label.set_size(8)
                axes.spines[["top", "right"]].set_visible(False)
                axes.margins(y=0.6 / max(len(systems), 2))
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(systems)), names, parse_math=False)
    grid[0, 0].invert_yaxis()
    return figure


def _forest(axes: "Axes", comparison: Comparison, column: Column) -> None:
    """Draw means with their intervals. A dashed line shows the mean of random retrieval."""
    random = comparison.signature["random"]
    legacy = comparison.signature["interval"]["method"] == LEGACY
    for y, system in enumerate(comparison.systems):
        cell = comparison.cells[system, column.metric]
        # Drawn from end to end, not from the mean: a BCa or legacy interval need not contain the mean.
        axes.plot([cell.interval.low, cell.interval.high], [y, y], color=_LIGHT, linewidth=4, solid_capstyle="butt")
        axes.plot(cell.mean, y, "o", color=_BLUE, markersize=2.5)
    if random is not None:
        axes.axvline(comparison.cells[random, column.metric].mean, color=_GREY, linestyle="--", linewidth=0.9, zorder=0)
    dashed = "" if random is None else "\ndashed: random"
    axes.set_xlabel(("average, legacy interval" if legacy else f"average, {LEVEL:.0%} CI") + dashed)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)


def _bars(axes: "Axes", comparison: Comparison, column: Column) -> None:
    """Draw the percentage change from random retrieval as bars, with the value at the end of each bar."""
    random = comparison.signature["random"]
    all_changes = [comparison.cells[system, column.metric].percent_change for system in comparison.systems]
    changes = [change for change in all_changes if change is not None]
    if len(changes) < len(all_changes):
        axes.annotate("random's average\nis not above 0", (0.5, 0.5), xycoords="axes fraction", ha="center", size=8)
        axes.set_xticks([])
    else:
        colors = [_GREY if system == random else _BLUE for system in comparison.systems]
        bars = axes.barh(range(len(changes)), changes, color=colors, height=0.6)
        axes.bar_label(bars, [f"{change:+z.0f}" for change in changes], padding=2, fontsize=7, color=_DARK)
        axes.axvline(0, color=_DARK, linewidth=0.8)
        axes.margins(x=0.25)
    axes.set_xlabel("% change from random" if column.higher_is_better else "% decrease from random")


def write_plot(comparison: Comparison, path: str | Path) -> None:
    """Draw the means of a table with their intervals, as PNG, PDF or SVG by the ending of the path.

    Parameters
    ----------
    comparison : Comparison
        The table: a return value of [`compare`][metric_oracle.compare] or
        [`compare_study`][metric_oracle.compare_study].
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
    >>> systems = {name: mo.score("test.csv", f"{name}.csv", "bleu") for name in ("strong", "weak")}
    >>> mo.write_plot(mo.compare(systems, resamples=1000), "table.png")
    """
    write_figure(Path(path), draw(comparison))
