"""Tables of `Results` and `Scores` for a terminal. Numbers are rounded only here and in the layouts.

Every view fits 60 columns and up: numbers and ids are never cut, see `printed_tables.PaperTable`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from metric_oracle.base.option_types import RESTRICTIONS
from metric_oracle.findings import corpus_bleu
from metric_oracle.findings.printed_tables import PaperTable, entry, plain
from metric_oracle.findings.signature import signature_line
from metric_oracle.statistics import FEW, RESAMPLES, effective_studies

SHOWN_QUERIES = 20


def one_line(text: str) -> Text:
    """Return a report or an id as one line of plain text, without markup, line breaks or control characters."""
    return Text(plain(text), overflow="fold")


def answers_table(results: Any, texts: Mapping[str, str] | None = None, components: bool = False) -> Group:
    """Return what a terminal shows: the results of the first queries, and the mean of the best scores of all queries.

    For a baseline it is the mean of all scores. `texts` has the text of test reports by id, which is shown above
    their results; `components` says whether the components of the scores are shown.
    """
    signature = results.signature
    baseline, k = signature.get("baseline"), signature["k"]
    lines_above: list[Any] = [Text(f"{signature['metric']} {baseline or 'oracle'}", style="bold")]
    if signature.get("pool", {"size": "all"})["size"] != "all":
        lines_above = [Text(f"{signature['metric']}, best of a pool", style="bold")]
    rows = results.table.slice(0, SHOWN_QUERIES * k).to_pylist()
    score = max((len(f"{row['score']:z.4f}") for row in rows), default=0)
    for row in rows:
        if row["rank"] == 1:
            lines_above += [Text(""), Text(plain(row["query_id"]), style="bold cyan", overflow="fold")]
            if texts is not None and row["query_id"] in texts:
                lines_above.append(Padding(one_line(texts[row["query_id"]]), (0, 0, 0, 2)))
        lines_above += _answer(row, len(str(k)), score, results.components if components else ())
    *lines, last = (Text(line, style="dim") for line in _result_lines(results))
    # A list is longer than a screen: what holds for all of it stands first. One answer needs no mean.
    first = lines if len(rows) > k else []
    return Group(lines_above[0], *first, *lines_above[1:], Text(""), *(() if first else lines), last)


def _answer(row: dict[str, Any], rank_width: int, score_width: int, components: Sequence[str]) -> Iterator[Any]:
    """Yield the lines of one result: rank, score, ties and id, then the named components, and its text, wrapped."""
    line = Text(overflow="fold")
    line.append(f"  {row['rank']:>{rank_width}}  ")
    line.append(f"{row['score']:z{score_width}.4f}", style="bold")
    ties = row["n_ties"]
    line.append(f"  {ties:,} {'tie' if ties == 1 else 'ties'}  {plain(row['candidate_id'])}")
    if row["fallback"]:
        line.append(" (fallback)")
    yield line
    margin = (0, 0, 0, rank_width + 4)
    if components:
        numbers = [(name, row[name]) for name in components]
        parts = (f"{name} {n:,}" if isinstance(n, int) else f"{name} {n:z.3f}" for name, n in numbers)
        yield Padding(Text("  ".join(parts), style="dim"), margin)
    if "text" in row:
        yield Padding(one_line(row["text"]), margin)


def pool_lines(results: Any) -> list[str]:
    """Return lines that describe a pool of candidates: its size, and how many best reports it certainly contains."""
    pool, table = results.signature["pool"], results.table
    is_best = table["rank"].to_numpy() == 1
    if pool["size"] == "all":
        return ["pool: the whole corpus, so the answers are exact"]
    judge = results.signature["judge"]
    parts = [f"the first {of_list['size']:,} under {of_list['metric']}" for of_list in pool["lists"]]
    parts += [f"{pool['random']:,} at random"] if "random" in pool else []
    lines = [f"pool: {', '.join(parts)}; {pool['pairs']:,} distinct pairs"]
    if judge["best"] is not None:
        beyond = f"{'below' if judge['direction'] == 'lower' else 'above'} {judge['best']:g}"
        reached = table["score"].to_numpy()[is_best] == judge["best"]
        more = int((table["exact"].to_numpy(zero_copy_only=False)[is_best] & ~reached).sum())
        whole = f", and {more:,} more, as the whole corpus was judged" if more else ""
        lines.append(f"certified, as no score is {beyond}: {reached.sum():,} of {len(reached):,} best answers{whole}")
    audit = pool.get("audit")
    if audit is None:
        return [*lines, "what the pool misses is not known; --audit M measures it"]
    regret = f"regret {audit['regret']['mean']:z.4f}, at most {audit['regret']['max']:z.4f}"
    lines.append(f"audit of {audit['queries']:,}: {audit['missed']:,} without a best report in the pool, {regret}")
    if "asked_recall" in audit:
        return [
            *lines,
            f"for a further test report, the pool has a best report with probability {audit['asked_recall']:g}",
        ]
    recall = audit["recall_at_1"]
    return [*lines, f"recall {recall['value']:.1%}, 95 % interval {recall['low']:.1%} to {recall['high']:.1%}"]


def _result_lines(results: Any) -> list[str]:
    """Return the lines under a table of results: what holds for all of it, and the short signature last."""
    signature, baseline = results.signature, results.signature.get("baseline")
    scores = results.table["score"].to_numpy()
    best = scores[results.table["rank"].to_numpy() == 1]  # lists may have fewer than k, or none
    n = len(best)
    if not n:
        return ["no test report has an answer", signature_line(signature)]
    mean = f"mean best score {best.mean():z.4f}" if baseline is None else f"mean score {scores.mean():z.4f}"
    answered = " with answers" if set(RESTRICTIONS) & set(signature) else ""
    lines = [f"{n:,} test report{'s' if n > 1 else ''}{answered}, {mean}"]
    if baseline == "random":
        of_draws = scores.reshape(n, -1).mean(axis=0)
        range_of_means = f"their means {of_draws.min():z.4f} to {of_draws.max():z.4f}"
        lines.append(f"draws: {signature['draws']:,}, seed {signature['seed']}, {range_of_means}")
    if signature["metric"] == "crg" and baseline is None:
        lines.append(f"CRG of the best answers {1 / (2 - best.mean()):.4f}")
    if "pool" in signature:
        lines += pool_lines(results)
    if "stages" in signature:
        skipped = math.fsum(share for stage, share in signature["stages"].items() if stage != "scored")
        lines += [f"{skipped:.2%} of pairs skipped: a bound proved they cannot win"] if skipped else []
    if n > SHOWN_QUERIES:
        lines.append(f"shown: the first {SHOWN_QUERIES}; a file has all")
    return ["; ".join(lines), signature_line(signature)]


def scores_table(scores: Any) -> Group:
    """Return what a terminal shows of scores: a table of each metric's mean over the pairs it scored, with interval."""
    import pyarrow.compute as pc

    signature = scores.signature
    rows, intervals = [], scores.interval()
    for name, how in signature["metrics"].items():
        column = scores.table[name]
        mean = pc.mean(column).as_py()
        n_scored = len(column) - column.null_count
        low, high, is_degenerate = intervals[name]
        ends = "" if n_scored < 2 else f"[{low:z.4f} {high:z.4f}]{'†' if is_degenerate else ''}"
        mean_text = "" if mean is None else f"{mean:z.4f}"
        cells = [f"{len(column):,}", f"{n_scored:,}", mean_text, ends, how["direction"]]
        rows.append((name, [entry(cell) for cell in cells]))
        noted = signature.get("noted", {}).get(name, {}).get("corpus")
        of_corpus = corpus_bleu.of_scores(scores.table, name) if noted is None else noted
        if of_corpus is not None:  # computed from sums of counts; its interval is in `oracle table`
            cells = [f"{len(column):,}", f"{n_scored:,}", f"{of_corpus:z.4f}", "", how["direction"]]
            rows.append((f"{name} of the corpus", [entry(cell) for cell in cells]))
    left_out = ", ".join(f"{count:,} {what}" for what, count in signature.get("left_out", {}).items())
    lines = [f"left out: {left_out}"] if left_out else []
    if any(scores.table[name].null_count for name in signature["metrics"]):
        lines.append("pairs not scored lack a graph, an embedding or labels on a side; the mean is over the others")
    lines.append(f"95 % BCa intervals of the mean over studies, {RESAMPLES:,} resamples, seed 0")
    effective = {name: effective_studies(scores.values(name)) for name in intervals if not intervals[name].degenerate}
    few = ", ".join(f"{name} {n:.0f}" for name, n in effective.items() if n < FEW)
    if few:
        lines.append(
            f"too few pairs for these intervals: {few}; effective pairs are those with a score that is not 0, or n / "
            f"skewness² if fewer; below {FEW} an interval is too short"
        )
    if any(ends.degenerate for ends in intervals.values()):
        lines.append("† all values are equal, or nearly, or fewer than two: the interval says nothing")
    heads = ["pairs", "scored", "mean", "95 % CI", "better"]
    return Group(PaperTable(signature["system"], heads, rows, [*lines, signature_line(signature)], "metric"))


def info_table(index: Any) -> Group:
    """Return what a terminal shows of an index: its folder, and a table of its contents."""
    return block(str(index.folder), index.facts)


def block(title: str, lines: Iterable[tuple[str, str]]) -> Group:
    """Return a title above lines of names and texts."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(Text(plain(name)), one_line(text))
    return Group(Text(plain(title), style="bold", overflow="fold"), table)


def metrics_view(metrics: Sequence[Mapping[str, str]]) -> list[Any]:
    """Return a view of the metrics that fits a screen: their names, grouped by what they read.

    A row has ``metric``, ``also`` (other names), ``better`` (direction), ``reads`` (inputs) and ``equals``
    (published tool).
    """
    names_of: dict[str, list[str]] = {}
    for row in metrics:
        also = f" (also {row['also']})" if row["also"] else ""
        low = " ↓" if row["better"] == "lower" else ""
        names_of.setdefault(row["reads"], []).append(row["metric"] + also + low)
    parts: list[Any] = []
    for reads, names in names_of.items():
        parts += [
            Text(f"reads {reads}", style="bold", overflow="fold"),
            Padding(Text(", ".join(names), overflow="fold"), (0, 0, 0, 2)),
        ]
    last = "↓: lower is better. The published tool that each equals: --format jsonl or csv, and docs/metrics.md."
    return [*parts, Text(last, style="dim")]
