"""The timings of `oracle bench` as tables for a terminal, and as a figure."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.option_types import DEVICES
from metric_oracle.bench.timing import Row, seconds_text
from metric_oracle.findings.figures import BLUE, ORANGE, SMALL, WIDTH, finish, new_figure, write_figure
from metric_oracle.findings.printed_tables import Entry, PaperTable, entry
from metric_oracle.retrieval.machine import machine


def bench_tables(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the two tables of `oracle bench`: times of a search; one-off costs (loading, compiling) and memory.

    `rows` are those of `run_bench`. Notes below the second table list what was not measured, and why.
    """
    measured = [row for row in rows if "skipped" not in row]
    on_cpu = {row["metric"]: row["seconds"] for row in measured if row["backend"] == "cpu"}
    has_gpu = any(row["backend"] == "cuda" for row in measured)
    names = ["batch", "spread", "M pairs/s", "queries/s", "one query", *(("CPU/GPU",) if has_gpu else ())]
    parts = ["open", "compile", "first use", "encode", "search", "memory", *(("GPU",) if has_gpu else ())]
    table: list[tuple[str, list[Entry]]] = []
    apart: list[tuple[str, list[Entry]]] = []
    sizes: dict[str, list[str]] = {}
    for row in measured:
        who = row["metric"], row["backend"]
        factor = [f"{on_cpu[who[0]] / row['seconds']:.3g}" if who[0] in on_cpu else ""] if has_gpu else []
        spread = " ".join(f"{row[name] / row['seconds'] - 1:+.0%}" for name in ("p20", "p80"))
        cells = [
            seconds_text(row["seconds"]),
            spread,
            f"{row['pairs_per_s'] / 1e6:,.4g}",
            f"{row['queries_per_s']:,.0f}",
            seconds_text(row["single_ms"] / 1000),
            *factor,
        ]
        table.append((" ".join(who), [entry(cell) for cell in cells]))
        seconds = (seconds_text(row[f"{name}_s"]) for name in ("load", "compile", "prepare", "encode", "search"))
        memory = [f"{row[name]:.2f}" if name in row else "" for name in ("peak_gb", "gpu_peak_gb")]
        apart.append((" ".join(who), [entry(cell) for cell in (*seconds, *memory[: 1 + has_gpu])]))
        sizes.setdefault(f"{row['tests']:,} test reports x {row['reports']:,} reports", []).append(row["metric"])
    notes = [f"{size}: {', '.join(dict.fromkeys(metrics))}" for size, metrics in sizes.items()]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "skipped" in row:
            reasons.setdefault(row["skipped"], []).append(f"{row['metric']} on {row['backend']}")
    notes.append("spread: 20th and 80th percentile beside the median")
    notes += [f"not measured: {', '.join(what)}: {reason}" for reason, what in reasons.items()]
    notes.append("answers equal to the reference's on a sample, and to one another's, before any timing")
    title = "Once an index or process; parts of a batch; peak memory in GB"
    return [
        PaperTable("Oracles on this machine: medians", names, table, first="metric"),
        PaperTable(title, parts, apart, notes, "metric"),
    ]


def write_plot(path: Path, rows: Sequence[Row], width: float | None = None) -> None:
    """Draw pairs per second of each metric and backend, medians with the 20th to 80th percentile, into a file.

    `rows` are those of `run_bench`; what was skipped is not drawn. `width` is in millimetres, by default 180.
    """
    measured = [row for row in rows if "skipped" not in row]
    metrics = list(dict.fromkeys(row["metric"] for row in measured))
    backends = [name for name in DEVICES if any(row["backend"] == name for row in measured)]
    figure = new_figure(width or WIDTH, 40 + 10.7 * len(metrics) * len(backends))
    axes = figure.add_subplot()
    for number, (backend, colour, form) in enumerate(zip(backends, (BLUE, ORANGE), "o^", strict=False)):
        of_backend = [row for row in measured if row["backend"] == backend]
        pairs = [row["reports"] * row["tests"] for row in of_backend]
        rates = [row["pairs_per_s"] for row in of_backend]
        low = [rate - n / row["p80"] for rate, n, row in zip(rates, pairs, of_backend, strict=True)]
        high = [n / row["p20"] - rate for rate, n, row in zip(rates, pairs, of_backend, strict=True)]
        where = [metrics.index(row["metric"]) + 0.4 * (number - (len(backends) - 1) / 2) for row in of_backend]
        axes.errorbar(rates, where, xerr=(low, high), fmt=form, color=colour, capsize=2, label=backend.upper())
        for x, y, row in zip(rates, where, of_backend, strict=True):
            text = f"{x / 1e6:,.3g} M/s, {seconds_text(row['single_ms'] / 1000)}"
            axes.annotate(text, (x, y), (0, 7), textcoords="offset points", ha="center", fontsize=SMALL)
    axes.set_xscale("log")
    rates = [row["pairs_per_s"] for row in measured]
    axes.set_xlim(10 ** np.floor(np.log10(min(rates) / 2)), 10 ** np.ceil(np.log10(max(rates) * 4)))
    axes.set_ylim(-0.8, len(metrics) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    axes.set_yticks(range(len(metrics)), metrics)
    axes.invert_yaxis()
    axes.set_xlabel("pairs per second of a batch, 20th to 80th percentile; time of one query")
    axes.set_title(f"{machine()['cpu']}, {n_threads()} cores")
    if len(backends) > 1:
        axes.legend()
    write_figure(path, finish(figure))
