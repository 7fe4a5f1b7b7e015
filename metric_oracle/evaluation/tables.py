"""Answers as tables for a terminal. Rounding happens here and nowhere else."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from metric_oracle.evaluation.bench import seconds_text
from metric_oracle.evaluation.demo import DemoOutcome
from metric_oracle.retrieval.results import Results

SHOWN_QUERIES = 20


def _table(title: str | Text, *columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Long text wraps; numbers never do.
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column in right)
    return table


def _one_line(text: str) -> Text:
    """Return a report or an id as it is, made harmless: no markup, line break or control character of a terminal."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split())))


def answers_table(results: Results) -> Group:
    """Return the first queries' answers and the mean of the best scores."""
    signature = results.signature
    right = ("rank", "score", "ties", *results.components)
    table = _table(
        f"{signature['metric']} oracle", "query", "rank", "score", *results.components, "ties", "candidate", "text",
        right=right,
    )  # fmt: skip
    if "text" not in results.table.column_names:
        table.columns.pop()
    records = results.table.slice(0, SHOWN_QUERIES * signature["k"]).to_pylist()
    for record in records:
        cells: list[Any] = [
            _one_line(record["query_id"] if record["rank"] == 1 else ""),
            str(record["rank"]),
            f"{record['score']:.4f}",
            *(f"{record[name]:.3f}" for name in results.components),
            f"{record['n_ties']:,}",
            _one_line(record["candidate_id"] + (" (fallback)" if record["fallback"] else "")),
        ]
        if "text" in record:
            cells.append(_one_line(record["text"]))
        table.add_row(*cells, end_section=record["rank"] == signature["k"] > 1)
    first = results.table.filter(results.table["rank"].to_numpy() == 1)
    n = first.num_rows
    lines = [f"{n:,} test reports, mean best score {first['score'].to_numpy().mean():.4f}"]
    if "stages" in signature:
        shares = [f"{stage} {share:.2%}" for stage, share in signature["stages"].items() if stage != "scored"]
        lines.append(f"pairs dropped by bounds: {', '.join(shares)}")
    if n > SHOWN_QUERIES:
        lines.append(f"shown: the first {SHOWN_QUERIES}; --out FILE writes all")
    return Group(table, Text("; ".join(lines), style="dim"))


def info_table(index: Any) -> Group:
    """Return what an index holds."""
    content = index.content
    table = _table(_one_line(str(index.folder)), "what", "value")
    table.add_row("source", _one_line(content["source"]))
    for name, value in content["counts"].items():
        table.add_row(name.replace("_", " "), f"{value:,}")
    for kind, counts in content["representations"].items():
        shown = ", ".join(_shown(name, value) for name, value in counts.items())
        table.add_row(kind, _one_line(shown.replace("_", " ")))
    table.add_row("metrics", ", ".join(index.metrics))
    table.add_row("on disk", f"{sum(f['bytes'] for f in content['files'].values()) / 2**20:,.1f} MiB")
    table.add_row("built by", f"{index.manifest['built_by']} at {index.manifest['built_at']}")
    table.add_row("fingerprint", index.fingerprint)
    return Group(table)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,} {name}"
    if isinstance(value, dict):  # the model that made it
        return f"{name} {value['model']} {value['sha256'][:12]}" + (
            f", layer {value['layer']}" if "layer" in value else ""
        )
    return f"{name} {value}"


def demo_tables(outcome: DemoOutcome) -> list[Any]:
    """Return the demo's table of metrics and the example's oracle reports."""
    title = f"Metric-oracles of {outcome.tests:,} test reports in a synthetic corpus of {outcome.reports:,}"
    columns = ("reports", "mean oracle score", "mean random score", "pairs per second")
    table = _table(title, "metric", *columns, right=columns)
    for row in outcome.metrics:
        table.add_row(
            row.metric, f"{row.reports:,}", f"{row.oracle:.4f}", f"{row.random:.4f}", f"{row.pairs_per_second:,.0f}"
        )
    notes = []
    if any(row.metric == "chexbert" for row in outcome.metrics):
        notes.append("chexbert: stand-in embeddings made from the gold labels")
    if any(row.metric == "bertscore" for row in outcome.metrics):
        notes.append("bertscore, radcliq: a sample, encoded with MiniLM and not rescaled; for RadCliQ lower is better")
    notes += [f"not run, not installed: {name}" for name in outcome.lacking]
    example = _table("One test report and its oracle reports", "metric", "score", "report", right=("score",))
    example.add_row("(test report)", "", _one_line(outcome.example), end_section=True)
    for row in outcome.metrics:
        example.add_row(row.metric, f"{row.top[0]:.4f}", _one_line(row.top[1]))
    return [table, *(Text(note, style="dim") for note in notes), example]


def bench_tables(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the timings of `oracle bench`, what is paid once, and what was not measured."""
    measured = [row for row in rows if "skipped" not in row]
    on_cpu = {row["metric"]: row["seconds"] for row in measured if row["backend"] == "cpu"}
    has_gpu = any(row["backend"] == "cuda" for row in measured)
    names = ("batch", "spread", "M pairs/s", "queries/s", "one query", *(("CPU/GPU",) if has_gpu else ()))
    table = _table("Oracles on this machine: medians", "metric", "on", *names, right=("on", *names))
    parts = ("open", "compile", "first use", "encode", "search", "memory", *(("GPU",) if has_gpu else ()))
    title = "Once an index or process; parts of a batch; peak memory in GB"
    apart = _table(title, "metric", "on", *parts, right=("on", *parts))
    sizes: dict[str, list[str]] = {}
    for row in measured:
        who = row["metric"], row["backend"]
        factor = [f"{on_cpu[who[0]] / row['seconds']:.3g}" if who[0] in on_cpu else ""] if has_gpu else []
        spread = " ".join(f"{row[name] / row['seconds'] - 1:+.0%}" for name in ("p20", "p80"))
        table.add_row(
            *who,
            seconds_text(row["seconds"]),
            spread,
            f"{row['pairs_per_s'] / 1e6:,.4g}",
            f"{row['queries_per_s']:,.0f}",
            seconds_text(row["single_ms"] / 1000),
            *factor,
        )
        seconds = (seconds_text(row[f"{name}_s"]) for name in ("load", "compile", "prepare", "encode", "search"))
        memory = [f"{row[name]:.2f}" if name in row else "" for name in ("peak_gb", "gpu_peak_gb")]
        apart.add_row(*who, *seconds, *memory[: 1 + has_gpu])
        sizes.setdefault(f"{row['tests']:,} test reports x {row['reports']:,} reports", []).append(row["metric"])
    notes = [f"{size}: {', '.join(dict.fromkeys(metrics))}" for size, metrics in sizes.items()]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if "skipped" in row:
            reasons.setdefault(row["skipped"], []).append(f"{row['metric']} on {row['backend']}")
    notes.append("spread: 20th and 80th percentile beside the median")
    notes += [f"not measured: {', '.join(what)}: {reason}" for reason, what in reasons.items()]
    notes.append("answers equal to the reference's on a sample, and to one another's, before any timing")
    return [table, apart, *(_one_line(note) for note in notes)]
