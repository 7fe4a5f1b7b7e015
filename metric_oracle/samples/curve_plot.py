"""The curve of the expected best of n as a picture."""

from itertools import cycle
from pathlib import Path
from typing import Any

from metric_oracle.presentation.matplotlib_io import literal, new_figure, write_figure
from metric_oracle.samples.best_of import BestOf

_STYLES = (("C1", "--"), ("0.4", ":"), ("C2", "-."), ("C4", "--"), ("C5", ":"))  # of levels, in their order


def draw_curve(best: BestOf) -> Any:
    """Return a Matplotlib figure: for each metric the expected best of n with its interval, and the levels as lines."""
    metrics = list(best.scores)
    figure = new_figure(3.4 * len(metrics), 3.0)
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        rows = [row for row in best.curve.to_pylist() if row["metric"] == metric]
        drawn = [row["n"] for row in rows]
        axes.fill_between(drawn, [row["low"] for row in rows], [row["high"] for row in rows], color="0.85", linewidth=0)
        axes.plot(drawn, [row["mean"] for row in rows], "o-", color="C0", markersize=3, linewidth=1.2)
        for row, (colour, style) in zip(
            [row for row in best.levels.to_pylist() if row["metric"] == metric], cycle(_STYLES), strict=False
        ):
            axes.axhline(row["mean"], color=colour, linestyle=style, linewidth=1)
            axes.annotate(
                literal(row["level"]),
                (0, row["mean"]),
                xycoords=("axes fraction", "data"),
                xytext=(3, 2),
                textcoords="offset points",
                color=colour,
                fontsize="small",
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(drawn, [str(n) for n in drawn])
        axes.minorticks_off()
        axes.set_xlabel("samples drawn (95 % intervals)")
        axes.set_title(f"{literal(metric)}, expected best", fontsize="medium", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_best_of(best: BestOf, path: str | Path) -> None:
    """Draw the expected best of n under each metric, and write it as PNG, SVG or PDF by the ending of the path.

    Parameters
    ----------
    best : BestOf
        What [`best_of`][metric_oracle.best_of] returned.
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
    >>> mo.plot_best_of(mo.best_of("samples.jsonl", "test.csv", "rouge-l"), "curve.png")
    """
    write_figure(Path(path), draw_curve(best))
