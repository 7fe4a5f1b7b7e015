"""Matplotlib figures: how they look, and how they are checked early, drawn without a window and written atomically.

Sizes are in millimetres, as journals state them. Colours are those of the pages, and a colour never stands alone: kinds
of systems differ in form, lines in their dashes, so that a figure can be read in grey and by colour-blind readers.
"""

import io
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metric_oracle.base.errors import not_installed
from metric_oracle.base.files import replacing
from metric_oracle.base.option_types import FIGURES
from metric_oracle.findings.writing import check_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN, WIDTH = 88.0, 180.0  # widths of a figure in a column, and over both columns of a page
ORANGE, BLUE, GREY, INK, BAND, LINE = "#b0400d", "#0b57a4", "#55606c", "#1a1d21", "#e4eaf1", "#c9d0d8"
SMALL, MEDIUM = 7.0, 8.0  # points of text
LETTER = 1.35  # width of a small letter in millimetres
_KEY = 9.0  # width of a mark in a legend and of the space around it, in millimetres
_INCH = 25.4
DASHED: dict[str, Any] = {"color": GREY, "linestyle": (0, (4, 2)), "linewidth": 0.7}  # a line to compare with
# Of several series, in their order: colour and dashes of lines, and colour and pattern of bars.
LINES = ((BLUE, "--"), (GREY, ":"), ("#0a6b3d", "-."), (INK, (0, (6, 2))), (ORANGE, (0, (1, 1))))
BARS = ((BLUE, ""), ("#f0b898", "///"), (LINE, ""), ("#ffffff", "..."), ("#8a97a5", "\\\\\\"), (INK, ""))


@dataclass(frozen=True)
class Dot:
    """How a kind of systems is drawn."""

    name: str  # in the legend
    colour: str
    marker: str
    is_filled: bool = True

    @property
    def style(self) -> dict[str, Any]:
        """The arguments of a plot of points."""
        fill = self.colour if self.is_filled else "white"
        return {"marker": self.marker, "color": self.colour, "markerfacecolor": fill, "markeredgewidth": 0.9}


MODEL = Dot("models", ORANGE, "o")
ORACLE = Dot("the metric's oracle", BLUE, "^")
OTHER_ORACLE = Dot("other oracles", BLUE, "^", is_filled=False)
BASELINE = Dot("baselines", GREY, "s", is_filled=False)


def check_plot(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Raise InputError unless a figure can be written to `path`, which must not be one of the `inputs`.

    Raise BackendError if Matplotlib is not installed.
    """
    check_out(path, inputs, argument="plot", endings=FIGURES)
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Any:
    """Return an empty Matplotlib figure of a size in millimetres, without a window and without global state.

    Raise BackendError if Matplotlib is not installed.
    """
    try:
        return _figure_class()(figsize=(width / _INCH, height / _INCH), layout="constrained")
    except ImportError as error:
        raise not_installed(subject="a plot", module=error.name, extra="plots") from error


def _figure_class() -> Any:
    """Import Matplotlib and return its class of figures, which need no backend, whatever the environment names.

    A notebook's kernel names one, MPLBACKEND, that may not be installed here; Matplotlib's import fails on it.
    """
    backend = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            mpl.rcParams["backend"] = backend  # as Matplotlib does
    return Figure


def finish(figure: Any) -> Any:
    """Return a figure whose axes have the lines and the text sizes of all figures; it is called when all is drawn."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(color=GREY, linewidth=0.6)
        axes.tick_params(labelsize=SMALL, length=2, width=0.6, color=GREY)
        for title in (axes.title, axes._left_title):
            title.set_size(MEDIUM)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_size(SMALL)
    for legend in [*figure.legends, *(found for axes in figure.axes if (found := axes.get_legend()))]:
        legend.set_frame_on(False)
        for text in legend.get_texts():
            text.set_size(SMALL)
    return figure


def panels(n: int, width: float, *, least: float, height: float) -> tuple[list["Axes"], Any]:
    """Return axes for n panels and their figure: as many side by side as are not narrower than `least`."""
    n_rows = -(-n // max(1, int(width // least)))
    n_wide = -(-n // n_rows)
    figure = new_figure(width, height * n_rows)
    grid = figure.subplots(n_rows, n_wide, squeeze=False).ravel()
    for axes in grid[n:]:
        axes.set_visible(False)
    return [*grid[:n]], figure


def draw_curve(axes: "Axes", points: Sequence[Mapping[str, Any]], colour: str, dashes: str, label: str = "") -> None:
    """Draw a curve with a dot at each of its points, over the band of their intervals.

    A point has its place under `n`, its height under `mean`, and the ends of its interval under `low` and `high`.
    """
    n, low, mean, high = ([point[key] for point in points] for key in ("n", "low", "mean", "high"))
    axes.fill_between(n, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(n, mean, marker="o", linestyle=dashes, color=colour, markersize=3, linewidth=1.1, label=label)


def add_legend(figure: Any, marks: Sequence[Any], width: float) -> int:
    """Add what marks with labels mean below the panels of a figure of a width in millimetres; return how many lines."""
    longest = max(len(mark.get_label()) for mark in marks)
    total = sum(LETTER * len(mark.get_label()) + _KEY for mark in marks)
    n_wide = len(marks) if total <= width else max(1, int(width // (LETTER * longest + _KEY)))
    style = {"handlelength": 2.0, "handletextpad": 0.5, "columnspacing": 1.2, "fontsize": SMALL}
    figure.legend(handles=marks, loc="outside lower center", ncols=n_wide, **style)
    return -(-len(marks) // n_wide)


def draw_dot(axes: "Axes", kind: Dot, mean: float, y: float, interval: tuple[float, float] | None = None) -> None:
    """Draw a mean as a dot at the height `y`, on the line of its interval if it has one."""
    if interval is not None:  # drawn from end to end: a BCa or legacy interval need not contain the mean
        axes.plot(interval, [y, y], color=kind.colour, linewidth=1.1, solid_capstyle="butt", alpha=0.75)
    axes.plot(mean, y, linestyle="", markersize=4.2, **kind.style)


def literal(text: str) -> str:
    """Return a text with escaped dollar signs, so that Matplotlib reads no formula."""
    return text.replace("$", r"\$")


def write_figure(path: Path, figure: Any) -> None:
    """Write a figure in the format of the ending of `path`, see `check_plot`. Equal figures give equal bytes."""
    check_plot(path)
    content = picture(figure, path.suffix.lower().removeprefix("."))
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def picture(figure: Any, kind: str) -> bytes:
    """Return the bytes of a figure's file; `kind` is "png", "svg" or "pdf"."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    # TrueType fonts in PDF, because publishers refuse Type 3; outlines of letters in SVG, which needs no font then.
    fonts: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "metric-oracle"}
    with warnings.catch_warnings(), mpl.rc_context(fonts):
        # If the font lacks a letter of a name, the figure shows a box. That needs no warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(buffer, format=kind, dpi=300, metadata=_METADATA[kind])
    return buffer.getvalue()


# The program's name, by which `checksum.is_ours` knows the file; no date, so that equal figures give equal bytes.
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": "metric-oracle"},
    "svg": {"Creator": "metric-oracle", "Date": None},
    "pdf": {"Creator": "metric-oracle", "CreationDate": None},
}
