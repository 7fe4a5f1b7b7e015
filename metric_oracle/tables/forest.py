"""The figure of a comparison: for each metric the systems as dots with intervals, and a band from chance to oracle."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from metric_oracle.findings.cells import number
from metric_oracle.findings.figures import (
    BAND,
    BASELINE,
    DASHED,
    GREY,
    LETTER,
    LINE,
    MODEL,
    ORACLE,
    OTHER_ORACLE,
    SMALL,
    Dot,
    add_legend,
    draw_dot,
    finish,
    new_figure,
)
from metric_oracle.findings.printed_tables import plain
from metric_oracle.tables.layout import Chosen
from metric_oracle.tables.table_cells import Cell, MetricColumn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL = 29.0  # least width of a panel, in millimetres
_WIDE = 38.0  # a panel that has room for more ticks
_TICKS: dict[str, Any] = {"nbins": 6, "steps": [1, 2, 5, 10]}
_FEW_TICKS: dict[str, Any] = {"nbins": 4, "steps": [1, 2, 2.5, 5, 10]}
_ROW = 4.6  # height of a system
_LONGEST = 34  # letters of a name in one line
_GAP = 0.7  # between models and the others, in rows
_SQUEEZE = 1.6  # a baseline that would make an axis wider by this factor is cut
_ROOM = 0.06  # of an axis beyond its outermost mark


@dataclass(frozen=True)
class Forest:
    """What the figure of a comparison is drawn of."""

    chosen: Chosen
    cells: Mapping[tuple[str, str], Cell]  # by system and metric
    random: str | None  # the row of random retrieval
    oracles: Mapping[str, str]  # metric -> the row of its oracle
    bounds: frozenset[str]  # oracles, and other rows that are a bound or a ceiling
    interval: str  # what the lines are, such as "95% CI"

    def figure(self, width: float) -> Any:
        """Return the figure, of a width in millimetres, with as many panels side by side as have room."""
        columns, systems = self.chosen.columns, self.chosen.systems
        names = [fill(plain(self.chosen.names.get(name, name)), _LONGEST) for name in systems]
        left = LETTER * max(len(line) for name in names for line in name.split("\n")) + 3
        n_wide = min(max(int((width - left) // _PANEL), 1), len(columns))
        n_rows = -(-len(columns) // n_wide)
        n_wide = -(-len(columns) // n_rows)
        heights = self._heights()
        height = n_rows * (_ROW * (heights[-1] + 1.6) + 11)
        figure = new_figure(width, height)
        grid = figure.subplots(n_rows, n_wide, squeeze=False, sharey=True)
        is_cut = [self._draw(axes, column, heights) for axes, column in zip(grid.ravel(), columns, strict=False)]
        ticks = _TICKS if (width - left) / n_wide >= _WIDE else _FEW_TICKS
        for axes in grid.ravel():
            axes.locator_params(axis="x", **ticks)
        for axes in grid.ravel()[len(columns) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_yticks(heights, names, parse_math=False)
        grid[0, 0].set_ylim(heights[-1] + 0.8, -0.8)
        lines = self._add_legend(figure, any(is_cut), width)
        figure.set_figheight(figure.get_figheight() * (1 + (4 + 4.4 * lines) / height))
        finish(figure)
        for axes in grid.ravel():
            axes.tick_params(axis="y", length=0)
        return figure

    def _heights(self) -> list[float]:
        """Return where the systems are, from top to bottom; a gap is between those that compete and the others."""
        n = len(self.chosen.models)
        return [i + (_GAP if n and i >= n else 0.0) for i in range(len(self.chosen.systems))]

    def _kind(self, system: str, metric: str) -> Dot:
        """Return how a system is drawn under a metric."""
        if system in self.chosen.models:
            return MODEL
        if system == self.oracles.get(metric):
            return ORACLE
        return OTHER_ORACLE if system in self.bounds else BASELINE

    def _draw(self, axes: "Axes", column: MetricColumn, heights: list[float]) -> bool:
        """Draw a metric; return whether a baseline is beyond the axis."""
        metric = column.metric
        chance = None if self.random is None else self.cells[self.random, metric].mean
        oracle = None if metric not in self.oracles else self.cells[self.oracles[metric], metric].mean
        if chance is not None and oracle is not None:
            axes.axvspan(chance, oracle, color=BAND, linewidth=0, zorder=0)
        if chance is not None:
            axes.axvline(chance, zorder=0.5, **DASHED)
        low, high = self._limits(metric, [value for value in (chance, oracle) if value is not None])
        is_cut = False
        for system, y in zip(self.chosen.systems, heights, strict=True):
            cell, kind = self.cells[system, metric], self._kind(system, metric)
            if low <= cell.mean <= high:
                ends = None if cell.interval.degenerate else cell.interval[:2]
                draw_dot(axes, kind, cell.mean, y, ends)
            else:
                is_cut = True
                self._draw_beyond(axes, cell.mean, y, is_right=cell.mean > high)
        axes.set_xlim(low, high)
        axes.grid(axis="x", color=LINE, linewidth=0.4)
        axes.set_axisbelow(True)
        axes.set_title(column.label)
        return is_cut

    def _limits(self, metric: str, further: list[float]) -> tuple[float, float]:
        """Return the ends of an axis: all systems and what is `further`, without baselines that would squeeze it."""
        inner, outer = list(further), list(further)
        for system in self.chosen.systems:
            cell = self.cells[system, metric]
            marks = [cell.mean, *cell.interval[:2]]
            outer += marks
            if self._kind(system, metric) is not BASELINE:
                inner += marks
        low, high = min(outer), max(outer)
        if inner and max(inner) > min(inner):
            span = max(inner) - min(inner)
            low = low if max(inner) - low <= _SQUEEZE * span else min(inner)
            high = high if high - min(inner) <= _SQUEEZE * span else max(inner)
        room = _ROOM * (high - low) or 0.05
        return low - room, high + room

    @staticmethod
    def _draw_beyond(axes: "Axes", mean: float, y: float, *, is_right: bool) -> None:
        """Draw the mark of a baseline that is beyond the axis: an arrow at the edge, with its mean."""
        where = axes.get_yaxis_transform()
        x, side, shift = (1.0, "right", -5) if is_right else (0.0, "left", 5)
        axes.plot(x, y, ">" if is_right else "<", color=GREY, markersize=4, transform=where, clip_on=False, zorder=5)
        axes.annotate(
            number(mean, "z.2f"),
            (x, y),
            (shift, 0),
            xycoords=where,
            textcoords="offset points",
            ha=side,
            va="center",
            size=SMALL - 1,
            color=GREY,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )

    def _add_legend(self, figure: Any, is_cut: bool, width: float) -> int:
        """Add what the forms, the lines and the band mean, as far as they are in the figure; return how many lines."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        metrics = [column.metric for column in self.chosen.columns]
        found = {self._kind(system, metric) for system in self.chosen.systems for metric in metrics}
        kinds = [kind for kind in (MODEL, ORACLE, OTHER_ORACLE, BASELINE) if kind in found]
        dot: dict[str, Any] = {"linestyle": "", "markersize": 4.2}
        marks: list[Any] = [Line2D([], [], label=kind.name, **dot, **kind.style) for kind in kinds]
        marks.append(Line2D([], [], color=GREY, linewidth=1.1, label=self.interval))
        if self.random is not None and any(metric in self.oracles for metric in metrics):
            marks.append(Patch(color=BAND, label="from chance to the oracle"))
        elif self.random is not None:
            marks.append(Line2D([], [], label="chance", **DASHED))
        if is_cut:
            beyond = Line2D([], [], linestyle="", marker=">", color=GREY, markersize=4, label="beyond the axis")
            marks.append(beyond)
        return add_legend(figure, marks, width)
