"""The report on copies as a figure: each share with its interval, one row for each set."""

from pathlib import Path
from typing import TYPE_CHECKING

from metric_oracle.copies.report import HUMAN, Overlap
from metric_oracle.presentation.matplotlib_io import literal, new_figure, write_figure
from metric_oracle.presentation.paper_table import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 4
_BLUE, _LIGHT, _GREY = "#2f6ea5", "#a9c7e2", "#9aa0a6"


def draw(overlap: Overlap) -> "Figure":
    """Draw the shares of each line; a dashed line is that of the human test reports."""
    lines = [line for line in overlap.lines if not line.endswith("median")]
    names = list(overlap.sets)
    rows = -(-len(lines) // _WIDE)
    figure = new_figure(2.5 * _WIDE, rows * (0.8 + 0.25 * len(names)))
    grid = figure.subplots(rows, _WIDE, squeeze=False, sharey=True).ravel()
    for axes, line in zip(grid, lines, strict=False):
        for y, name in enumerate(names):
            cell = overlap.cells.get((name, line))
            if cell is None or cell.value != cell.value:
                continue
            if cell.interval is not None:
                ends = [100 * cell.interval.low, 100 * cell.interval.high]
                axes.plot(ends, [y, y], color=_LIGHT, linewidth=4, solid_capstyle="butt")
            axes.plot(100 * cell.value, y, "o", color=_BLUE, markersize=3)
        if (HUMAN, line) in overlap.cells:
            axes.axvline(100 * overlap.cells[HUMAN, line].value, color=_GREY, linestyle="--", linewidth=0.9, zorder=0)
        axes.set_title(line, fontsize=8)
        axes.set_xlabel("% of reports" if "grams" not in line else "% of n-grams", fontsize=7)
        axes.tick_params(labelsize=7, length=2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.6 / max(len(names), 2))
        if axes.get_xlim()[1] < 1:  # nothing but zeros
            axes.set_xlim(-0.5, 10)
    for axes in grid[len(lines) :]:
        axes.set_visible(False)
    for axes in grid[::_WIDE]:
        axes.set_yticks(range(len(names)), [literal(plain(name)) for name in names])
    grid[0].invert_yaxis()
    return figure


def plot_overlap(overlap: Overlap, path: str | Path) -> None:
    """Draw the report on copies, and write it as PNG, PDF or SVG by the ending of the path.

    Parameters
    ----------
    overlap : Overlap
        The report, of [`overlap`][metric_oracle.overlap].
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
    >>> index = mo.build_index("train.csv", "INDEX", metrics="rouge-l,bleu-2")
    >>> mo.plot_overlap(mo.overlap(index, {"strong": "strong.csv"}, resamples=1000), "copies.png")
    """
    write_figure(Path(path), draw(overlap))
