"""View of the benchmark of searches for a terminal."""

from collections.abc import Sequence
from typing import Any

from metric_oracle.bench.timing import seconds_text
from metric_oracle.findings.printed_tables import Entry, PaperTable, entry


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
