"""Figure of the histogram of an expectation."""

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
    figure = new_figure(*SIZE)
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
    """Draw the histogram of all scores of random retrieval, and write it as PNG, SVG or PDF by the ending of the path.

    Parameters
    ----------
    expectation : Expectation
        Return value of [`expectation`][metric_oracle.expectation].
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
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> mo.plot_histogram(mo.expectation(index, "test.csv", "bleu"), "histogram.png")
    """
    write_figure(Path(path), draw_histogram(expectation))
