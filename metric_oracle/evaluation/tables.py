"""Answers as tables for a terminal. Rounding happens here and in the layout of comparisons, nowhere else."""

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from metric_oracle.evaluation.bench import seconds_text
from metric_oracle.evaluation.comparison import Comparison
from metric_oracle.evaluation.composite import Composite
from metric_oracle.evaluation.crg import COUNTS, CRG
from metric_oracle.evaluation.demo import DemoOutcome
from metric_oracle.evaluation.publication import layout, plain
from metric_oracle.retrieval.expectation import Expectation
from metric_oracle.retrieval.results import Results, Scores

SHOWN_QUERIES = 20


def _table(title: str | Text, *columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Long text wraps; numbers never do.
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column in right)
    return table


def _one_line(text: str) -> Text:
    """Return a report or an id as it is, made harmless: no markup, line break or control character of a terminal."""
    return Text(plain(text))


def answers_table(results: Results) -> Group:
    """Return the first queries' answers and the mean of the best scores; of a baseline, of all scores."""
    signature = results.signature
    baseline = signature.get("baseline")
    right = ("rank", "score", "ties", *results.components)
    table = _table(
        f"{signature['metric']} {baseline or 'oracle'}", "query", "rank", "score", *results.components, "ties",
        "candidate", "text", right=right,
    )  # fmt: skip
    if "text" not in results.table.column_names:
        table.columns.pop()
    records = results.table.slice(0, SHOWN_QUERIES * signature["k"]).to_pylist()
    for record in records:
        cells: list[Any] = [
            _one_line(record["query_id"] if record["rank"] == 1 else ""),
            str(record["rank"]),
            f"{record['score']:.4f}",
            *(_number(record[name]) for name in results.components),
            f"{record['n_ties']:,}",
            _one_line(record["candidate_id"] + (" (fallback)" if record["fallback"] else "")),
        ]
        if "text" in record:
            cells.append(_one_line(record["text"]))
        table.add_row(*cells, end_section=record["rank"] == signature["k"] > 1)
    scores = results.table["score"].to_numpy().reshape(-1, signature["k"])
    n = len(scores)
    best = f"mean best score {scores[:, 0].mean():.4f}"
    lines = [f"{n:,} test reports, {best if baseline is None else f'mean score {scores.mean():.4f}'}"]
    if baseline == "random":
        of_draws = scores.mean(axis=0)
        range_of_means = f"their means {of_draws.min():.4f} to {of_draws.max():.4f}"
        lines.append(f"draws: {signature['draws']:,}, seed {signature['seed']}, {range_of_means}")
    if signature["metric"] == "crg" and baseline is None:
        lines.append(f"CRG of the best answers {1 / (2 - scores[:, 0].mean()):.4f}")
    if "stages" in signature:
        shares = [f"{stage} {share:.2%}" for stage, share in signature["stages"].items() if stage != "scored"]
        lines += [f"pairs dropped by bounds: {', '.join(shares)}"] if shares else []
    if n > SHOWN_QUERIES:
        lines.append(f"shown: the first {SHOWN_QUERIES}; --out FILE writes all")
    return Group(table, Text("; ".join(lines), style="dim"))


def scores_table(scores: Scores) -> Group:
    """Return the mean of each metric over the pairs that it scored."""
    signature = scores.signature
    right = ("pairs", "scored", "mean")
    table = _table(_one_line(signature["system"]), "metric", *right, "better", right=right)
    for name, record in signature["metrics"].items():
        column = scores.table[name]
        mean = pc.mean(column).as_py()
        shown = "" if mean is None else f"{mean:.4f}"
        n_scored = len(column) - column.null_count
        table.add_row(name, f"{len(column):,}", f"{n_scored:,}", shown, record["direction"])
    left_out = ", ".join(f"{count:,} {what}" for what, count in signature.get("left_out", {}).items())
    lines = [f"left out: {left_out}"] if left_out else []
    if any(scores.table[name].null_count for name in signature["metrics"]):
        lines.append("pairs not scored lack a graph, an embedding or labels on a side; the mean is over the others")
    return Group(table, *(Text(line, style="dim") for line in lines))


def expectation_table(expectation: Expectation) -> Group:
    """Return the first queries' distributions and the mean over all queries."""
    signature = expectation.signature
    names = [name for name in expectation.table.column_names if name not in ("query_id", "n")]
    title = f"{signature['metric']} of a random report: exact over the corpus"
    table = _table(title, "query", *names, right=tuple(names))
    for record in expectation.table.slice(0, SHOWN_QUERIES).to_pylist():
        table.add_row(_one_line(record["query_id"]), *(f"{record[name]:.4f}" for name in names))
    n = expectation.table.num_rows
    mean = expectation.table["mean"].to_numpy().mean()
    lines = [f"{n:,} test reports x {expectation.table['n'][0].as_py():,} reports, mean score {mean:.4f}"]
    if signature["error"] > 0:
        lines.append(f"error of a score at most {signature['error']:.1e}")
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


def _number(value: float) -> str:
    """Return a component; counts have no decimals."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def crg_table(scored: CRG) -> Group:
    """Return the counts of each label and the score of each level."""
    columns = [name.upper() for name in COUNTS]
    table = _table("CRG", "level", "label", *columns, "CRG", right=(*columns, "CRG"))
    for row in scored.table.to_pylist():
        counts = ["" if row[name] is None else f"{row[name]:,}" for name in COUNTS]
        shown = "" if row["crg"] is None else f"{row['crg']:.4f}"
        table.add_row(
            _one_line(row["level"]), _one_line(row["label"]), *counts, shown, end_section=row["label"] == "all"
        )
    uncertain = scored.signature["uncertain"]
    line = f"{scored.reports:,} reports; an uncertain label counts as {uncertain}; trivial answers have 0.3333"
    return Group(table, Text(line, style="dim"))


def composite_table(fitted: Composite) -> Group:
    """Return the terms of a composite and how well it fits."""
    content, fit = fitted.content, fitted.content["fit"]
    table = _table(_one_line(content["name"]), "metric", "mean", "scale", "weight", right=("mean", "scale", "weight"))
    for metric, term in content["terms"].items():
        table.add_row(metric, *(f"{term[number]:.4f}" for number in ("mean", "scale", "weight")))
    taus = [fit[name] for name in ("tau_b", "tau_b_leave_one_study_out")]
    inside, outside = ("undefined" if tau is None else f"{tau:.3f}" for tau in taus)
    line = (
        f"intercept {content['intercept']:.4f}; {fit['pairs']:,} pairs of {fit['studies']:,} studies; "
        f"R2 {fit['r2']:.3f}, Kendall tau-b {inside}, with each study left out {outside}; lower is better"
    )
    return Group(table, Text(line, style="dim"))


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


def comparison_tables(comparison: Comparison, width: int) -> list[Any]:
    """Return the tables of a comparison, cut into groups of metrics that fit into `width` characters, and its notes."""
    blocks, notes = layout(comparison)
    shown: list[Any] = []
    for block in blocks:
        names = min(max(len(name) for name, _ in block.rows), width // 3)
        widths = [
            max(len(part) for part in (*head.split(), *(line for _, row in block.rows for line in row[place].lines)))
            for place, head in enumerate(block.columns)
        ]
        begin = 0
        while begin < len(block.columns):
            end, room = begin + 1, width - names - widths[begin] - 4
            while end < len(block.columns) and room >= widths[end] + 2:
                room -= widths[end] + 2
                end += 1
            table = _table(_one_line(block.title), "system")
            table.columns[0].min_width = names
            for head, least in zip(block.columns[begin:end], widths[begin:end], strict=True):
                table.add_column(_one_line(head), justify="right", min_width=least)
            for name, entries in block.rows:
                texts = [
                    Text("\n").join(
                        Text(line, style="bold" if entry.best and place == 0 else "")
                        for place, line in enumerate(entry.lines)
                    )
                    for entry in entries[begin:end]
                ]
                table.add_row(_one_line(name), *texts, end_section=max(len(entry.lines) for entry in entries) > 1)
            shown.append(table)
            begin = end
    return [*shown, *(Text(note, style="dim") for note in notes)]


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
