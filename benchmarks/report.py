"""Write results into the site's pages and the README, between two marks each: ``python -m benchmarks.report [FILE]``.

The page has all tables: those of one full run, what later ones measured besides, the newest ones with real reports,
and one of ``benchmarks.growth``, each one file. The README has one table: a row an oracle. Sets of shards, of one file
of ``benchmarks.scale``, are on a page of their own; those on radiologists and on intervals have the newest run of
``benchmarks.simulate``.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import tables
from benchmarks.data import CAPTIONS, CORPORA, LEXICAL_AND_GRAPH, OF_STATES
from benchmarks.growth import curves, exponent
from benchmarks.machine import ROOT, Row, read
from benchmarks.reading import KINDS
from benchmarks.states import PACKAGES, TEXTS

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
# Of growth: ten times the corpus, for the metrics without vectors, from this size on.
GOAL, GOAL_METRICS, GOAL_SIZE = 6.0, LEXICAL_AND_GRAPH, 1_000_000

_NEEDED = {*(f"oracle-{metric}" for metric in (*LEXICAL_AND_GRAPH, *OF_STATES)), "study"}
_STAGES = {"filtered": "dropped", "scored": "scored in float64"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Regenerate the tables and the plot; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.report", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="run; default: the newest full one of the results folder")
    parser.add_argument("--growth", type=Path, help="run of benchmarks.growth; default: the newest one there")
    parser.add_argument("--scale", type=Path, help="run of benchmarks.scale; default: the newest one there")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="folder (%(default)s)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/benchmarks.md", help="for all tables (%(default)s)")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="for one table (%(default)s)")
    options = parser.parse_args(arguments)
    for path in (options.file, options.growth, options.scale):
        if path and not path.is_file():
            parser.error(f"there is no file {path}")
    paths = [path for path in sorted(options.results.glob("*.jsonl")) if not path.name.startswith("turns-")]
    runs = [read(path) for path in paths]
    rows = read(options.file) if options.file else newest([run for run in runs if _is_full(CORPORA[0], run)])
    growth = read(options.growth) if options.growth else newest(runs, lambda row: row["table"] == "growth")
    scales = [read(options.scale)] if options.scale else _scales(runs)
    if not rows:
        print(
            f"report: results must hold a full run; got none in {options.results}. Run python -m benchmarks.",
            file=sys.stderr,
        )
        return 1
    parts = [markdown(rows), *(markdown(run) for run in _apart(runs, rows))]
    real = [run for run in runs if _is_full("iu-xray", run)]
    for size in sorted({(run[0]["reports"], run[0]["tests"]) for run in real}):
        of_size = newest(real, lambda row, size=size: (row["reports"], row["tests"]) == size)  # type: ignore[misc]
        parts += ["## Real reports", markdown(of_size)]
    if growth:
        plot = options.page.parent / "images/growth.png"
        parts += [growth_markdown(growth), _draw(growth, plot, options.page)]
    first = newest(runs, lambda row: row["table"] == "first")
    if first:
        parts.append(first_markdown(first))
    small = newest(runs, lambda row: row["table"] == "small")
    if small:
        parts.append(small_markdown(small))
    reading = newest(runs, lambda row: row["table"] == "reading")
    if reading:
        parts.append(reading_markdown(reading))
    parts += map(encoders_markdown, _of_each_machine(runs, "encoders"))
    parts += map(states_markdown, _of_each_machine(runs, "states"))
    of_itself = [newest(runs, lambda row, name=name: row["table"] == name) for name in ("itself", "mining")]  # type: ignore[misc]
    if any(of_itself):
        parts.append(itself_markdown([run for run in of_itself if run]))
    bodies = {
        options.page: "\n\n".join(part for part in parts if part),
        options.page.with_name("sizes.md"): sizes(rows),
        options.readme: headline(rows),
        **({options.page.with_name("scaling.md"): "\n\n".join(map(scale_markdown, scales))} if scales else {}),
    }
    simulation = newest(runs, lambda row: row["table"] == "simulation")
    if simulation:
        bodies[options.page.with_name("radiologists.md")] = simulated([row for row in simulation if "n" not in row])
        by_size = [row for row in simulation if "n" in row]
        bodies |= {options.page.with_name("intervals.md"): coverage(by_size)} if by_size else {}
    texts = {}
    for path, body in bodies.items():
        try:
            texts[path] = replace_between_marks(path.read_text(encoding="utf-8"), body)
        except ValueError as error:
            print(f"report: {path}: {error}", file=sys.stderr)
            return 1
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


def _is_full(corpus: str, run: Sequence[Row]) -> bool:
    """Return whether a run on a corpus measured all workloads, or at least those that are `_NEEDED`.

    The samples of all peers do not fit into 24 GB beside the corpus. At first there was one corpus.
    """
    if not run or run[0].get("corpus", CORPORA[0]) != corpus:
        return False
    return run[0].get("full", False) or _NEEDED.issubset(row.get("name") for row in run if "skipped" not in row)


def _apart(runs: Sequence[list[Row]], rows: Sequence[Row]) -> list[list[Row]]:
    """Return what later runs of the same size measured that the full one did not have, with these instructions.

    Of a workload that several of them measured, the newest row is kept.
    """
    first, seen = rows[0], {_what(row) for row in rows}
    kept = []
    for run in sorted(filter(None, runs), key=lambda run: run[0]["time"], reverse=True):
        alike = "full" in run[0] and all(run[0][name] == first[name] for name in ("reports", "tests"))
        if alike and run[0].get("corpus", CORPORA[0]) == CORPORA[0] and run[0]["time"] > first["time"]:
            kept.append([row for row in run if _what(row) not in seen])
            seen |= {_what(row) for row in run}
    return [run for run in reversed(kept) if run]


def _what(row: Row) -> tuple[str, str | None]:
    return row["name"], row["machine"].get("simd")


def newest(runs: Sequence[list[Row]], wanted: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """Return the rows of the wanted run that began last."""
    return max((rows for rows in runs if rows and wanted(rows[0])), key=lambda rows: rows[0]["time"], default=[])


def _of_each_machine(runs: Sequence[list[Row]], table: str) -> list[list[Row]]:
    """Return the newest run with a table on each processor and instruction set, the newest of all first."""
    of_machine: dict[str, list[Row]] = {}
    for rows in sorted(filter(None, runs), key=lambda rows: rows[0]["time"], reverse=True):
        if rows[0]["table"] == table:
            of_machine.setdefault(tables.where(rows[0]), rows)
    return list(of_machine.values())


def replace_between_marks(text: str, body: str) -> str:
    """Return the text with another body between the marks, each of which must be there once."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        msg = f"the marks {BEGIN} and {END} must be there once each, in this order. Add them."
        raise ValueError(msg)
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{body}\n{END}{after}"


def markdown(rows: Sequence[Row]) -> str:
    """Return the caption and the tables."""
    measured = [row for row in rows if "skipped" not in row]
    parts = [_caption(rows)]
    oracles = [row for row in measured if row["table"] == "oracle"]
    parts.append(
        tables.table(
            ["Oracle", "Measured", "20 to 80 %", "Goal", "Met", "Pairs/s", "Distinct pairs/s"],
            [
                [
                    row["title"],
                    tables.value(row["value"], row),
                    tables.spread(row),
                    tables.goal(row),
                    tables.met(row),
                    tables.rate(row["pairs_per_s"]),
                    tables.rate(row["distinct_pairs_per_s"]) if "distinct_pairs_per_s" in row else "",
                ]
                for row in oracles
            ],
        )
    )
    parts.append(
        tables.table(
            ["Apart", "Opening", "Compiling", "First use", "Encoding", "Search", "Floor", "Times the floor", "Limit"],
            [
                [
                    row["title"],
                    *(
                        tables.seconds(row.get(f"{name}_s"))
                        for name in ("load", "compile", "prepare", "encode", "search", "floor")
                    ),
                    tables.number(row["times_floor"]) if "times_floor" in row else "",
                    row.get("floor_limit", ""),
                ]
                for row in oracles
            ],
        )
    )
    parts.append(_ceilings(oracles))
    staged = [row for row in oracles if row.get("stages")]
    if staged:
        stages = max((list(row["stages"]) for row in staged), key=len)  # the others have some of these
        shares = [[row["stages"].get(stage) for stage in stages] for row in staged]
        cells = [["" if share is None else f"{100 * share:.3g} %" for share in of_row] for of_row in shares]
        parts.append(
            tables.table(
                ["Share of pairs", *(_STAGES.get(stage, f"dropped by {stage}") for stage in stages)],
                [[row["title"], *of_row] for row, of_row in zip(staged, cells, strict=True)],
            )
        )
    peers = [row for row in measured if row["table"] == "peer"]
    parts.append(_beside(peers))
    others = [row for row in measured if row["table"] == "other"]
    parts.append(
        tables.table(
            ["What", "Measured", "20 to 80 %", "Goal", "Met"],
            [
                [row["title"], tables.noted(row), tables.spread(row), tables.goal(row), tables.met(row)]
                for row in others
            ],
        )
    )
    parts += [_steps(row) for row in others if "steps_cpu_s" in row]
    skipped = [
        f"- {row['name']} was not measured: {tables.escaped(row['skipped'])}" for row in rows if "skipped" in row
    ]
    parts.append("\n".join(skipped))
    return "\n\n".join(part for part in parts if part)


def _steps(row: Row) -> str:
    """Return the table of the steps of a study."""
    lines = [
        [step, tables.seconds(seconds), tables.seconds(row["steps_cpu_s"][step])]
        for step, seconds in row["steps_s"].items()
    ]
    return tables.table([f"Step of {row['title']}", "Time", "Processor time"], lines)


def _beside(peers: Sequence[Row]) -> str:
    """Return the table of the other ways, and what its times are."""
    if not peers:
        return ""
    header = ["Metric", "Other way", "Same answers", "Pairs", "Its time", "Its cores", "Our time", "Our cores", "Times"]
    lines = []
    for row in peers:
        pairs = f"{row['distinct_pairs'] / 1e6:,.4g} million distinct" if "distinct_pairs" in row else "all"
        times = [_peer_time(row), _cores(row, "peer_cores"), tables.seconds(_our_seconds(row)), _cores(row, "cores")]
        ends = [tables.number(row["value"]), tables.spread(row), tables.goal(row), tables.met(row)]
        lines.append([row["title"], row["peer"], _same_answers(row), pairs, *times, *ends])
    every = f"{peers[0]['tests'] * peers[0]['reports'] / 1e6:,.4g} million"
    counted = {
        True: f"Of {every} pairs the distinct ones count, on both sides: those of reports that differ for the metric.",
        False: f"All {every} pairs count where no number says otherwise, repeated reports for each time they occur.",
    }
    about = (
        "Both times are of a whole search; a scorer of pairs has its own extrapolated from those that are named. Times "
        "are theirs over ours: not how fast a pair is scored, since our search never looks at most of them. "
        + counted[all("distinct_pairs" in row for row in peers)]
    )
    return f"{tables.table([*header, '20 to 80 %', 'Goal', 'Met'], lines)}\n\n{about}"


def _our_seconds(row: Row) -> float:
    """Return the seconds of our search in a peer's row; earlier rows have its rate alone, of all pairs."""
    return row["our_s"] if "our_s" in row else row["tests"] * row["reports"] / row["pairs_per_s"]


def _peer_time(row: Row) -> str:
    """Return a peer's seconds for a whole search, and from how many pairs they are extrapolated, if they are."""
    pairs = row.get("distinct_pairs", row["tests"] * row["reports"])
    seconds = tables.seconds(row["peer_s"] if "peer_s" in row else pairs / row["peer_pairs_per_s"])
    return seconds if row["peer_pairs"] == pairs else f"{seconds}, from {row['peer_pairs']:,} pairs"


def _cores(row: Row, side: str) -> str:
    return str(row[side]) if side in row else ""


def _is_same(row: Row) -> bool:
    """Return whether a peer's answers are ours; earlier rows say what share of them is."""
    return row.get("same", row.get("recall", 1.0) == 1.0 and "recall alone" not in row["peer"])


def _same_answers(row: Row) -> str:
    if _is_same(row):
        return "yes"
    return f"no, {100 * row['recall']:.3g} % of the best" if "recall" in row else "no"


def headline(rows: Sequence[Row]) -> str:
    """Return a table with a row an oracle, but for captioning: its time, a GPU's, that of the fastest other way."""
    measured = [row for row in rows if "skipped" not in row]
    oracles = [row for row in measured if row["table"] == "oracle"]
    on_gpu = {row["name"].removeprefix("cuda-"): row for row in oracles if row["name"].startswith("cuda-")}
    table = []
    for row in oracles:
        name = row["name"].removeprefix("oracle-")
        if row["name"] == f"oracle-{name}" and name not in CAPTIONS:
            beside = [peer for peer in measured if peer["table"] == "peer" and peer["title"].startswith(row["title"])]
            peers = [peer for peer in beside if _is_same(peer)]
            other = min(peers, key=lambda peer: peer["value"], default=None)
            gpu = [tables.value(on_gpu[name]["value"], on_gpu[name]) if name in on_gpu else ""] if on_gpu else []
            cells = [row["title"], tables.value(row["value"], row), *gpu]
            table.append([*cells, _next_best(other) if other else ""])
    gpus = sorted({row["machine"].get("gpu", "not named") for row in on_gpu.values()})
    device = f"GPU: {', '.join(gpus)}" if on_gpu else "no GPU was measured"
    gpu_header = ["On the GPU"] if on_gpu else []
    header = ["Oracle", "All tests", *gpu_header, "Next best way"]
    return f"{_whose(rows[0], device)}\n\n{tables.table(header, table)}\n\n*: from a sample of pairs."


def _next_best(row: Row) -> str:
    """Return a peer's time for a whole search, with a mark where it is extrapolated."""
    seconds, _, extrapolated = _peer_time(row).partition(", ")
    return f"{seconds}{'*' if extrapolated else ''}"


def _whose(row: Row, device: str = "") -> str:
    """Return what was searched, on which machine and when."""
    return f"{tables.size(row)}, {tables.where(row)}, {row['time'][:10]}{device and f'; {device}'}."


def sizes(rows: Sequence[Row]) -> str:
    """Return a table of memory and time: a row an oracle, and what a build takes."""
    measured = {row["name"]: row for row in rows if "skipped" not in row}
    table = []
    for name, row in measured.items():
        if name.startswith("oracle-"):
            single = measured.get(name.replace("oracle-", "single-"))
            peak = f"{tables.number(row['peak_gb'])} GB" if "peak_gb" in row else ""
            table.append([row["title"], tables.value(row["value"], row), tables.noted(single) if single else "", peak])
    lines = [_whose(rows[0]), tables.table(["Oracle", "Whole search", "One test report alone", "Peak memory"], table)]
    if "build" in measured:
        lines.append(
            f"{measured['build']['title']} takes {tables.value(measured['build']['value'], measured['build'])}."
        )
    if "memory-bertscore" in measured:
        lines.append(
            f"BERTScore's token states take {tables.number(measured['memory-bertscore']['states_gb'])} GB of disk."
        )
    return "\n\n".join(lines)


def _ceilings(oracles: Sequence[Row]) -> str:
    """Say what the floors were computed with."""
    found = [row["ceilings"] for row in oracles if "ceilings" in row]
    if not found:
        return ""
    rates = (found[0][name] / 1e9 for name in ("flop_per_s", "bytes_per_s", "adds_per_s"))
    flop, moved, added = map(tables.number, rates)
    return (
        "Opening, compiling and first use of an index (tables, encoder; on a GPU the transfer) are paid once and are "
        "in no other number. The floor is the least time for what this design must read and compute, at this machine's "
        f"own best in the same run: {flop} GFLOP/s of a float32 product, {moved} GB/s of a copy, "
        f"{added} billion byte-adds a second. Search over floor; benchmarks/floor.py counts."
    )


def growth_markdown(rows: Sequence[Row]) -> str:
    """Return the tables of growth with the corpus and with the queries."""
    parts = [_growth_caption(rows[0])]
    for by, what, other, others in (
        ("reports", "reports", "tests", "test reports"),
        ("tests", "test reports", "reports", "reports"),
    ):
        found = curves(rows, by)
        sizes = sorted({size for some, _ in found.values() for size in some})
        fixed = sorted({row[other] for row in rows if by in row["by"]})
        header = [f"Number of {what}", *(f"{size:,}" for size in sizes), "Exponent"]
        lines = []
        for metric, (some, seconds) in found.items():
            at = dict(zip(some, seconds, strict=True))
            slope = tables.number(exponent(some, seconds)) if len(some) > 1 else ""
            line = [metric, *(tables.seconds(at.get(size)) for size in sizes), slope]
            lines.append(line + (_tenfold(metric, at) if by == "reports" else []))
        if lines:
            parts.append(f"With {' or '.join(f'{n:,}' for n in fixed)} {others}:")
            parts.append(tables.table(header + (["Last tenfold", "Goal", "Met"] if by == "reports" else []), lines))
    return "\n\n".join(parts)


def encoders_markdown(rows: Sequence[Row]) -> str:
    """Return the table of the encoders."""
    header = ["Encoder", "Reports a second", "Beside", "Reports a second", "Times as many"]
    lines = []
    for row in rows:
        sides = tables.number(row["value"]), row["other"], tables.number(row["single"])
        lines.append([row["name"].removeprefix("encode-"), *sides, tables.number(row["times"])])
    first = rows[0]
    of_one = " of one processor" if first.get("device") == "cpu" else ""
    about = (
        f"Encoders, {first['time'][:10]}, commit {(first['commit'] or 'unknown')[:7]}"
        f"{' with changes' if first['dirty'] else ''}, {tables.where(first)}: {first['reports']} synthetic "
        f"impressions of {first['words']:.0f} words, models of bert-base's size with random weights; reports a "
        f"second{of_one}, sides in turns (benchmarks/encoders.py)."
    )
    return f"{about}\n\n{tables.table(header, lines)}"


def states_markdown(rows: Sequence[Row]) -> str:
    """Return the tables of token states beside other ways, rates and differences; a sentence on a run that ended."""
    beside = sorted((row for row in rows if "others" in row), key=lambda row: [*TEXTS].index(row["name"]))
    others = [*dict.fromkeys(side for row in beside for side in row["others"])]
    rates, differences = [], []
    for row in beside:
        model, dtype = row["name"].rsplit("-", 1)
        numbers = [tables.number(row["others"][side]) if side in row["others"] else "" for side in others]
        met = f"at least {row['goal']:g}, {'yes' if row['times'] >= row['goal'] else '**no**'}"
        rates.append([f"{model} in {dtype}", tables.number(row["value"]), *numbers, f"{row['times']:.2f}", met])
        both = [(row["difference"].get(side), row["f1_difference"].get(side)) for side in ("", *others)]
        cells = ["" if None in pair else ", ".join(f"{x:.0e}" if x else "0" for x in pair) for pair in both]
        differences.append([f"{model} in {dtype}", *cells])
    first = rows[0]
    repetitions = min((row["repetitions"] for row in beside), default=0)
    about = (
        f"Token states of BERTScore, {first['time'][:10]}, commit {(first['commit'] or 'unknown')[:7]}"
        f"{' with changes' if first['dirty'] else ''}, {tables.where(first)}: distinct synthetic impressions of "
        f"{first['words']:.0f} words, the same layers of the same model; reports a second of one processor, "
        f"{repetitions} of each side in turns (benchmarks/states.py)."
    )
    header = ["Model", "metric-oracle", *others, f"Times the faster of {' and '.join(PACKAGES)}", "Goal"]
    compared = [
        "Greatest difference of a component of a unit vector, and of F1, from transformers in float32:",
        tables.table(["Model", "metric-oracle", *others], differences),
    ]
    resumed = [
        f"A run of {row['reports']:,} reports that was killed after {row['kept']} of {row['parts']} parts goes on in "
        f"{tables.seconds(row['value'])}, a whole one takes {tables.seconds(row['whole_s'])}; the states are equal."
        for row in rows
        if "whole_s" in row
    ]
    return "\n\n".join([about, tables.table(header, rates), *compared, *resumed])


# What `benchmarks.itself` and `benchmarks.mining` measure.
_ITSELF = {
    "itself-radgraph": "RadGraph F1, 10 best, without self and same patient",
    "itself-rouge-l": "ROUGE-L, the same",
    "itself-bleu-2": "BLEU-2, the same",
    "itself-radgraph-scipy": "RadGraph F1, the best, SciPy's sparse products on one core, extrapolated",
    "overlap": "all lines of overlap of the test reports",
    "planted-ours": "planted near duplicates, exact search under ROUGE-L",
    "planted-minhash-5": "the same, MinHash of runs of five words",
    "planted-text-dedup": "the same, MinHash of runs of five words: datasketch with the defaults of text-dedup",
    "planted-minhash-1": "the same, MinHash of words",
    "planted-semhash": "the same, semhash with all-MiniLM-L6-v2, its threshold of 0.9",
    "factmm-rag": "FactMM-RAG's rule: RadGraph F1 + agreement of labels, 3 best",
    "factmm-rag-memory": "its peak of memory",
}


def itself_markdown(runs: Sequence[list[Row]]) -> str:
    """Return the table of corpora against themselves: a caption for each run, and their rows."""
    captions = [
        f"benchmarks/{run[0]['table']}.py, {run[0]['time'][:10]}, commit {(run[0]['commit'] or 'unknown')[:7]}"
        f"{' with changes' if run[0]['dirty'] else ''}, {tables.where(run[0])}"
        for run in runs
    ]
    lines = []
    for row in (row for run in runs for row in run):
        goal = row.get("goal")
        met = "" if goal is None else "yes" if row["value"] <= goal else "**no**"
        most = "" if goal is None else f"at most {goal:g} {row['unit']}"
        size = f"{row['reports']:,}" if "reports" in row else ""
        name = str(row["name"])
        lines.append([_ITSELF.get(name, name), size, tables.value(row["value"], row), most, met])
    header = ["A corpus against itself", "Reports", "Value", "Goal", "Met"]
    return f"Synthetic reports: {'; '.join(captions)}.\n\n{tables.table(header, lines)}"


def _scales(runs: Sequence[list[Row]]) -> list[list[Row]]:
    """Return the newest run of sets of shards that has the largest size, and a later one of smaller sizes."""
    of_sets = [rows for rows in runs if rows and rows[0]["table"] == "scale"]
    if not of_sets:
        return []
    largest = max(row["reports"] for rows in of_sets for row in rows)
    whole = newest([rows for rows in of_sets if any(row["reports"] == largest for row in rows)])
    last = newest(of_sets)
    return [whole] if last is whole else [whole, last]


def scale_markdown(rows: Sequence[Row]) -> str:
    """Return the tables of sets of shards: builds, searches beside one index, and 1e8 reports by arithmetic."""
    at = {(row["name"].removeprefix("scale-"), row["reports"]): row for row in rows}
    sizes = sorted({size for _, size in at})
    shards = rows[0].get("shards") or next(row["shards"] for row in rows if "shards" in row)
    commits = dict.fromkeys((row["commit"] or "unknown")[:7] for row in rows if row["name"] != "scale-corpus")
    caption = (
        f"Synthetic reports in sets of {shards} shards, one after another, and in one index; "
        f"{rows[0]['time'][:10]}, commit {' and '.join(commits)}, {tables.where(rows[0])}."
    )
    header = [
        "Reports",
        *(f"{what}, {kind}" for what in ("Build, CPU time", "Its peak") for kind in ("set", "one index")),
    ]
    lines = []
    for size in sizes:
        both = [at.get((f"build-{kind}", size)) for kind in ("set", "single")]
        held = f"{tables.number(both[0]['index_gb'])} GB" if both[0] else ""
        times = [tables.seconds(row.get("cpu_s")) if row else "" for row in both]
        lines.append(
            [f"{size:,}", *times, *(f"{tables.number(row['peak_gb'])} GB" if row else "" for row in both), held]
        )
    parts = [caption, tables.table([*header, "Set on disk"], lines)]
    metrics = list(dict.fromkeys(row["metric"] for row in rows if "metric" in row))
    tests = next(row["tests"] for row in rows if "metric" in row)
    lines = []
    for metric in metrics:
        found = [row for row in rows if row.get("metric") == metric]
        cells = []
        for size in sizes:
            row = at.get((f"search-{metric}", size))
            over = f" ({row['over']:.2f} times one index)" if row and "over" in row else ""
            cells.append(f"{tables.seconds(row['value'])}{over}" if row else "")
        slope = exponent([row["reports"] for row in found], [row["value"] for row in found])
        peak = max(row["peak_gb"] for row in found)
        lines.append([metric, *cells, tables.number(slope) if len(found) > 1 else "", f"{tables.number(peak)} GB"])
    parts += [f"{tests:,} test reports, seconds of the whole search:"]
    parts.append(tables.table(["Oracle", *(f"{size:,}" for size in sizes), "Exponent", "Largest peak"], lines))
    return "\n\n".join([*parts, *_arithmetic(at, sizes[-1], metrics, shards)])


MANY, LARGEST = 100_000_000, 10_000_000  # reports; from fewer than the latter nothing is extrapolated


def _arithmetic(at: dict[tuple[str, int], Row], size: int, metrics: Sequence[str], shards: int) -> list[str]:
    """Return what as many shards like the largest measured ones would take that hold 1e8 reports."""
    build = at.get(("build-set", size))
    if size < LARGEST or not build or build.get("was_there"):
        return []
    times = MANY / size
    searches = [(metric, at[f"search-{metric}", size]["value"] * times) for metric in metrics]
    return [
        f"Extrapolated, not measured: {MANY:,} reports are {shards * times:,.0f} shards of {size // shards:,}. One "
        f"process builds them in {build['cpu_s'] * times / 3600:.1f} hours of CPU time, on "
        f"{build['index_gb'] * times:,.0f} GB of disk, and searches them for the same test reports in "
        + ", ".join(f"{tables.seconds(seconds)} ({metric})" for metric, seconds in searches)
        + ". Every shard counts as much as a measured one: later ones know better thresholds, but files that no longer "
        "fit into memory must be read again. On n machines it is an n-th. Graphs and labels in files are loaded "
        f"into memory: their part of the {build['peak_gb']:.1f} GB that the largest build took grows with the corpus."
    ]


def simulated(rows: Sequence[Row]) -> str:
    """Return the table of what intervals and tests are worth in made-up data."""
    lines = [[row["title"], f"{row['value']:.1f} %", _bounds(row), tables.met(row)] for row in rows]
    return f"{_simulation(rows)}\n\n{tables.table(['What', 'Of sets', 'Goal', 'Met'], lines)}"


def coverage(rows: Sequence[Row]) -> str:
    """Return a table for each kind of interval: coverage in percent by shape of the data and number of studies.

    In brackets stands how many percent of the sets have a warning; bold is a coverage below 92 % that few sets warn of.
    """
    parts = [_simulation(rows)]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        cells = {(row["shape"], row["n"]): row for row in rows if row["kind"] == kind}
        sizes = sorted({n for _, n in cells})
        lines = [
            [shape, *(_covered(cells.get((shape, n))) for n in sizes)]
            for shape in dict.fromkeys(shape for shape, _ in cells)
        ]
        parts.append(f"## {kind}\n\n" + tables.table(["Data", *(f"{n:,} studies" for n in sizes)], lines))
    return "\n\n".join(parts)


def _covered(row: Row | None) -> str:
    """Return the cell of a coverage, nothing of fewer than 100 sets."""
    if row is None or row["sets"] < 100:
        return ""
    text = f"{row['value']:.0f}"
    text = f"**{text}**" if round(row["value"]) < 92 and row["warned"] < 50 else text
    return f"{text} ({row['warned']:.0f})" if row["warned"] >= 0.5 else text


def _simulation(rows: Sequence[Row]) -> str:
    """Return the caption of a simulation."""
    sets = max(row["sets"] for row in rows)
    commit = (rows[0]["commit"] or "unknown")[:7] + (" with changes" if rows[0]["dirty"] else "")
    return (
        f"{sets} sets of each kind, {rows[0]['time'][:10]}, commit {commit} (benchmarks/simulate.py); the standard "
        f"error of 95 % is {100 * (0.95 * 0.05 / sets) ** 0.5:.1f}."
    )


def _bounds(row: Row) -> str:
    least, most = (None if row[end] is None else f"{row[end]:g} %" for end in ("least", "most"))
    if least and most:
        return f"{least} to {most}"
    return f"at least {least}" if least else f"at most {most}" if most else ""


def first_markdown(rows: Sequence[Row]) -> str:
    """Return the table of the first commands on a machine."""
    commit = (rows[0]["commit"] or "unknown")[:7] + (" with changes" if rows[0]["dirty"] else "")
    caption = (
        f"The first commands of a new machine, {rows[0]['time'][:10]}, commit {commit}, {tables.where(rows[0])}. Each "
        "of `demo`, `score`, `retrieve` under a metric and the README's `study` begins with an empty store of compiled "
        "code, on the files of `oracle example`, 24 test reports among 400 where no size is named; then it is run "
        "again. Compiling is in seconds of a processor (benchmarks/first.py)."
    )
    lines = []
    for row in rows:
        slowest = ", ".join(f"{name} {s:.1f}" for name, s in list(row["functions"].items())[:3])
        lines.append([f"`{row['name']}`", tables.seconds(row["value"]), f"{row['compile_s']:.1f}", slowest])
    return f"{caption}\n\n{tables.table(['Command', 'Time', 'Compiling', 'Longest'], lines)}"


def small_markdown(rows: Sequence[Row]) -> str:
    """Return the table of what the plain scorers cost."""
    first = rows[0]
    commit = (first["commit"] or "unknown")[:7] + (" with changes" if first["dirty"] else "")
    caption = (
        f"Plain scorers, {first['time'][:10]}, commit {commit}, {tables.where(first)}: the time of a pair; the number "
        f"of pairs from which on `--backend auto` searches by kernels; and whether the {first['k']} best reports of "
        f"{first['reports']:,}, with all columns, were the same under both (benchmarks/small.py). Reports are those of "
        "IU X-ray, or synthetic ones where a metric reads what IU X-ray lacks."
    )
    lines = [
        [
            f"`{row['name']}`",
            f"{1e6 * row['value']:{',.0f' if row['value'] >= 1e-4 else '.3g'}} µs",
            f"{row['pairs']:,.0f}",
            f"{row['queries']} of {row['tests']} test reports, {row['corpus']}",
            "yes" if row["same"] else "no",
        ]
        for row in rows
    ]
    return f"{caption}\n\n{tables.table(['Metric', 'A pair', 'Kernels from', 'Compared', 'Same'], lines)}"


def reading_markdown(rows: Sequence[Row]) -> str:
    """Return the table of reading reports from files."""
    first = rows[0]
    commit = (first["commit"] or "unknown")[:7] + (" with changes" if first["dirty"] else "")
    caption = (
        f"Reading synthetic reports, {first['time'][:10]}, commit {commit}, {tables.where(first)}: seconds of a "
        "processor and the peak of the process's memory. Load is the number of processes that wanted a processor in "
        "the minute before (benchmarks/reading.py)."
    )
    lines = [
        [
            KINDS[row["kind"]],
            f"{row['reports']:,}",
            f"{row['per_piece']:,}" if row["per_piece"] else "all",
            f"{row['bytes'] / 1e9:.2g} GB",
            tables.seconds(row["value"]),
            f"{row['peak_gb']:.2g} GB",
            f"{row['load']:.1f}",
        ]
        for row in rows
    ]
    return f"{caption}\n\n{tables.table(['File', 'Reports', 'At once', 'Size', 'Time', 'Peak memory', 'Load'], lines)}"


def _growth_caption(row: Row) -> str:
    commit = (row["commit"] or "unknown")[:7] + (" with changes" if row["dirty"] else "")
    return (
        f"Growth, {row['time'][:10]}, commit {commit}, {tables.where(row)}: medians of the search without encoding, "
        "exponents by least squares of log(time) over log(size)."
    )


def _tenfold(metric: str, at: dict[int, float]) -> list[str]:
    """Return by how much the largest corpus takes longer than one of a tenth, and the goal where there is one."""
    largest = max(at)
    if largest // 10 not in at:
        return ["", "", ""]
    ratio = at[largest] / at[largest // 10]
    if metric not in GOAL_METRICS or largest < GOAL_SIZE:
        return [f"{tables.number(ratio)} times", "", ""]
    return [f"{tables.number(ratio)} times", f"at most {GOAL:g} times", "yes" if ratio <= GOAL else "**no**"]


def _draw(rows: Sequence[Row], path: Path, page: Path) -> str:
    """Draw both growths into a PNG file; return the link to it, or why there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "No plot: matplotlib is not installed."
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for axes, by in zip(figure.subplots(1, 2), ("reports", "tests"), strict=True):
        found = curves(rows, by)
        if not found:
            continue
        for place, (metric, (sizes, seconds)) in enumerate(found.items()):
            slope = f", {exponent(sizes, seconds):.2f}" if len(sizes) > 1 else ""
            axes.plot(sizes, seconds, "o-", color=f"C{place}", label=metric + slope)
        sizes = sorted({size for some, _ in found.values() for size in some})
        low = min(min(seconds) for _, seconds in found.values())
        axes.plot(sizes, [low * size / sizes[0] for size in sizes], ":", color="gray", label="proportional, 1")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("reports of the corpus" if by == "reports" else "test reports")
        axes.set_ylabel("seconds of the search")
        axes.legend(title="oracle, exponent", fontsize=8, title_fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, format="png", dpi=110)
    return f"![Growth of the search with the corpus and with the queries]({os.path.relpath(path, page.parent)})"


def _caption(rows: Sequence[Row]) -> str:
    row = rows[0]
    computer, versions = row["machine"], row["versions"]
    packages = tables.escaped(", ".join(f"{name} {version}" for name, version in versions.items() if version))
    commit = (row["commit"] or "unknown")[:7] + (" with changes" if row["dirty"] else "")
    stolen = max((some["stolen"] for some in rows if some.get("stolen") is not None), default=None)
    shared = "" if stolen is None else f" The host gave at most {100 * stolen:.2g} % of the processors to others."
    return (
        f"{tables.size(row)}, {row['time'][:10]}, commit {commit}. "
        f"{tables.where(row)}, {computer['ram_gb']:g} GB, {tables.escaped(computer['os'])}. {packages}. "
        f"Medians; index open and compiled; answers equal to the reference on a sample beforehand.{shared}"
    )


if __name__ == "__main__":
    sys.exit(main())
