"""The histogram of an expectation as a picture."""

from pathlib import Path
from typing import Any

from metric_oracle.presentation.matplotlib_io import new_figure, write_figure
from metric_oracle.retrieval.expectation import Expectation

SIZE = (6.4, 3.6)  # inches


def draw_histogram(expectation: Expectation) -> Any:
    """Return a Matplotlib figure: the share of all pairs in each bin of scores, and the mean."""
    signature = expectation.signature
    means = expectation.table["mean"].to_numpy()
    n_rows = expectation.table["n"][0].as_py()
    figure = new_figure("baseline", *SIZE)
    axes = figure.subplots()
    shares = 100 * expectation.counts / expectation.counts.sum()
    axes.stairs(shares, expectation.edges, fill=True, color="0.65")
    axes.axvline(means.mean(), color="C3", label=f"mean {means.mean():.4f}")
    axes.set_xlim(expectation.edges[0], expectation.edges[-1])
    axes.set_xlabel(f"{signature['metric']} of a test report and a random report of the corpus")
    axes.set_ylabel("pairs (%)")
    axes.set_title(f"{len(means):,} test reports x {n_rows:,} reports", fontsize="medium", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def plot_histogram(expectation: Expectation, path: str | Path) -> None:
    """Write the histogram as PNG, SVG or PDF by the ending of `path`."""
    write_figure(Path(path), draw_histogram(expectation), "baseline")
