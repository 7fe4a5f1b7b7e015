"""Figure of the timings of `oracle bench`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from metric_oracle.base.choices import DEVICES
from metric_oracle.bench.timing import Row, seconds_text
from metric_oracle.findings.figures import new_figure, write_figure
from metric_oracle.retrieval.machine import machine
from metric_oracle.retrieval.pool import n_threads


def write_plot(path: Path, rows: Sequence[Row]) -> None:
    """Draw pairs per second of each metric and backend, medians with the 20th to 80th percentile, into a file.

    `rows` are those of `run_bench`; what was skipped is not drawn.
    """
    measured = [row for row in rows if "skipped" not in row]
    metrics = list(dict.fromkeys(row["metric"] for row in measured))
    backends = [name for name in DEVICES if any(row["backend"] == name for row in measured)]
    figure = new_figure(7.0, 1.6 + 0.42 * len(metrics) * len(backends))
    axes = figure.add_subplot()
    for number, backend in enumerate(backends):
        of_backend = [row for row in measured if row["backend"] == backend]
        pairs = [row["reports"] * row["tests"] for row in of_backend]
        rates = [row["pairs_per_s"] for row in of_backend]
        low = [rate - n / row["p80"] for rate, n, row in zip(rates, pairs, of_backend, strict=True)]
        high = [n / row["p20"] - rate for rate, n, row in zip(rates, pairs, of_backend, strict=True)]
        where = [metrics.index(row["metric"]) + 0.4 * (number - (len(backends) - 1) / 2) for row in of_backend]
        axes.errorbar(rates, where, xerr=(low, high), fmt="o", color=f"C{number}", capsize=3, label=backend.upper())
        for x, y, row in zip(rates, where, of_backend, strict=True):
            text = f"{x / 1e6:,.3g} M/s, {seconds_text(row['single_ms'] / 1000)}"
            axes.annotate(text, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xscale("log")
    rates = [row["pairs_per_s"] for row in measured]
    axes.set_xlim(10 ** np.floor(np.log10(min(rates) / 2)), 10 ** np.ceil(np.log10(max(rates) * 4)))
    axes.set_ylim(-0.8, len(metrics) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    axes.set_yticks(range(len(metrics)), metrics)
    axes.invert_yaxis()
    axes.set_xlabel("pairs per second of a batch, 20th to 80th percentile; time of one query")
    axes.set_title(f"{machine()['cpu']}, {n_threads()} cores", fontsize=9)
    if len(backends) > 1:
        axes.legend()
    write_figure(path, figure)
