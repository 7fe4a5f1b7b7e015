"""Write results into the site's pages and the README, between two marks each: ``python -m benchmarks.report [FILE]``.

The page has all tables, those of one full run, one file, and growth, that of one file of ``benchmarks.growth``. The
README has one table: a row an oracle. Sets of shards, of one file of ``benchmarks.scale``, are on a page of their own;
the page on radiologists has the newest run of ``benchmarks.simulate``.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.data import LEXICAL_AND_GRAPH
from benchmarks.growth import curves, exponent
from benchmarks.machine import ROOT, Row, read

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
# Of growth: ten times the corpus, for the metrics without vectors, from this size on.
GOAL, GOAL_METRICS, GOAL_SIZE = 6.0, LEXICAL_AND_GRAPH, 1_000_000


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
    runs = [read(path) for path in sorted(options.results.glob("*.jsonl"))]
    rows = read(options.file) if options.file else newest(runs, lambda row: row.get("full", False))
    growth = read(options.growth) if options.growth else newest(runs, lambda row: row["table"] == "growth")
    encoders = newest(runs, lambda row: row["table"] == "encoders")
    scale = read(options.scale) if options.scale else newest(runs, lambda row: row["table"] == "scale")
    if not rows:
        print(
            f"report: results must hold a full run; got none in {options.results}. Run python -m benchmarks.",
            file=sys.stderr,
        )
        return 1
    parts = [markdown(rows)]
    if growth:
        plot = options.page.parent / "images/growth.png"
        parts += [growth_markdown(growth), _draw(growth, plot, options.page)]
    if encoders:
        parts.append(encoders_markdown(encoders))
    bodies = {
        options.page: "\n\n".join(part for part in parts if part),
        options.page.with_name("sizes.md"): sizes(rows),
        options.readme: headline(rows),
        **({options.page.with_name("scaling.md"): scale_markdown(scale)} if scale else {}),
    }
    simulation = newest(runs, lambda row: row["table"] == "simulation")
    if simulation:
        bodies[options.page.with_name("radiologists.md")] = simulated(simulation)
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


def newest(runs: Sequence[list[Row]], wanted: Callable[[Row], bool]) -> list[Row]:
    """Return the rows of the wanted run that began last."""
    return max((rows for rows in runs if rows and wanted(rows[0])), key=lambda rows: rows[0]["time"], default=[])


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
    parts = [_caption(rows[0])]
    oracles = [row for row in measured if row["table"] == "oracle"]
    parts.append(
        _table(
            ["Oracle", "Measured", "20 to 80 %", "Goal", "Met", "Pairs/s"],
            [
                [
                    row["title"],
                    _value(row["value"], row),
                    _range(row),
                    _goal(row),
                    _met(row),
                    _rate(row["pairs_per_s"]),
                ]
                for row in oracles
            ],
        )
    )
    parts.append(
        _table(
            ["Apart", "Opening", "Compiling", "First use", "Encoding", "Search", "Floor", "Times the floor", "Limit"],
            [
                [
                    row["title"],
                    *(
                        _seconds(row.get(f"{name}_s"))
                        for name in ("load", "compile", "prepare", "encode", "search", "floor")
                    ),
                    _number(row["times_floor"]) if "times_floor" in row else "",
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
            _table(
                ["Share of pairs", *(f"dropped by {s}" if s != "scored" else "scored in float64" for s in stages)],
                [[row["title"], *of_row] for row, of_row in zip(staged, cells, strict=True)],
            )
        )
    peers = [row for row in measured if row["table"] == "peer"]
    parts.append(
        _table(
            [
                "Metric",
                "Published scorer",
                "Recall",
                "Its pairs/s",
                "Our pairs/s",
                "Factor",
                "20 to 80 %",
                "Goal",
                "Met",
            ],
            [
                [
                    row["title"],
                    row["peer"],
                    f"{100 * row['recall']:.3g} %" if "recall" in row else "",
                    _rate(row["peer_pairs_per_s"]),
                    _rate(row["pairs_per_s"]),
                    _number(row["value"]),
                    _range(row),
                    _goal(row),
                    _met(row),
                ]
                for row in peers
            ],
        )
    )
    others = [row for row in measured if row["table"] == "other"]
    parts.append(
        _table(
            ["What", "Measured", "20 to 80 %", "Goal", "Met"],
            [[row["title"], _noted(row), _range(row), _goal(row), _met(row)] for row in others],
        )
    )
    skipped = [f"- {row['name']} was not measured: {_escaped(row['skipped'])}" for row in rows if "skipped" in row]
    parts.append("\n".join(skipped))
    return "\n\n".join(part for part in parts if part)


def headline(rows: Sequence[Row]) -> str:
    """Return a table with a row an oracle: time, a GPU's where one was measured, over that of the fastest other way."""
    measured = [row for row in rows if "skipped" not in row]
    oracles = [row for row in measured if row["table"] == "oracle"]
    on_gpu = {row["name"].removeprefix("cuda-"): row for row in oracles if row["name"].startswith("cuda-")}
    table = []
    for row in oracles:
        name = row["name"].removeprefix("oracle-")
        if row["name"] == f"oracle-{name}":
            peers = [peer for peer in measured if peer["table"] == "peer" and peer["title"].startswith(row["title"])]
            other = min(peers, key=lambda peer: peer["value"], default=None)
            gpu = [_value(on_gpu[name]["value"], on_gpu[name]) if name in on_gpu else ""] if on_gpu else []
            cells = [row["title"], _value(row["value"], row), *gpu]
            table.append([*cells, _number(other["value"]) if other else ""])
    gpus = sorted({row["machine"].get("gpu", "not named") for row in on_gpu.values()})
    device = f"GPU: {', '.join(gpus)}" if on_gpu else "no GPU was measured"
    gpu_header = ["On the GPU"] if on_gpu else []
    header = ["Oracle", "All tests", *gpu_header, "Times as fast as the next best way"]
    return f"{_whose(rows[0], device)}\n\n{_table(header, table)}"


def _whose(row: Row, device: str = "") -> str:
    """Return what was searched, on which machine and when."""
    size = f"{row['tests']:,} test reports x {row['reports']:,} synthetic reports"
    where = f"{_escaped(row['machine']['cpu'])}, {row['machine']['cores']} cores"
    return f"{size}, {where}, {row['time'][:10]}{device and f'; {device}'}."


def sizes(rows: Sequence[Row]) -> str:
    """Return a table of memory and time: a row an oracle, and what a build takes."""
    measured = {row["name"]: row for row in rows if "skipped" not in row}
    table = []
    for name, row in measured.items():
        if name.startswith("oracle-"):
            single = measured.get(name.replace("oracle-", "single-"))
            peak = f"{_number(row['peak_gb'])} GB" if "peak_gb" in row else ""
            table.append([row["title"], _value(row["value"], row), _noted(single) if single else "", peak])
    lines = [_whose(rows[0]), _table(["Oracle", "Whole search", "One test report alone", "Peak memory"], table)]
    if "build" in measured:
        lines.append(f"{measured['build']['title']} takes {_value(measured['build']['value'], measured['build'])}.")
    if "memory-bertscore" in measured:
        lines.append(f"BERTScore's token states take {_number(measured['memory-bertscore']['states_gb'])} GB of disk.")
    return "\n\n".join(lines)


def _ceilings(oracles: Sequence[Row]) -> str:
    """Say what the floors were computed with."""
    found = [row["ceilings"] for row in oracles if "ceilings" in row]
    if not found:
        return ""
    flop, moved, added = (found[0][name] / 1e9 for name in ("flop_per_s", "bytes_per_s", "adds_per_s"))
    return (
        "Opening, compiling and first use of an index (tables, encoder; on a GPU the transfer) are paid once and are "
        "in no other number. The floor is the least time for what this design must read and compute, at this machine's "
        f"own best in the same run: {_number(flop)} GFLOP/s of a float32 product, {_number(moved)} GB/s of a copy, "
        f"{_number(added)} billion byte-adds a second. Search over floor; benchmarks/floor.py counts."
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
            slope = _number(exponent(some, seconds)) if len(some) > 1 else ""
            line = [metric, *(_seconds(at.get(size)) for size in sizes), slope]
            lines.append(line + (_tenfold(metric, at) if by == "reports" else []))
        if lines:
            parts.append(f"With {' or '.join(f'{n:,}' for n in fixed)} {others}:")
            parts.append(_table(header + (["Last tenfold", "Goal", "Met"] if by == "reports" else []), lines))
    return "\n\n".join(parts)


def encoders_markdown(rows: Sequence[Row]) -> str:
    """Return the table of the encoders."""
    header = ["Encoder", "Reports a second", "Beside", "Reports a second", "Times as many"]
    lines = []
    for row in rows:
        sides = _number(row["value"]), row["other"], _number(row["single"])
        lines.append([row["name"].removeprefix("encode-"), *sides, _number(row["times"])])
    first = rows[0]
    about = (
        f"Encoders, {first['time'][:10]}, commit {(first['commit'] or 'unknown')[:7]}, "
        f"{_escaped(first['machine']['cpu'])}, {first['machine']['cores']} cores: {first['reports']} synthetic "
        f"impressions of {first['words']:.0f} words, models of bert-base's size with random weights, sides in turns."
    )
    return f"{about}\n\n{_table(header, lines)}"


def scale_markdown(rows: Sequence[Row]) -> str:
    """Return the tables of sets of shards: builds, searches beside one index, and 1e8 reports by arithmetic."""
    at = {(row["name"].removeprefix("scale-"), row["reports"]): row for row in rows}
    sizes = sorted({size for _, size in at})
    shards = rows[0].get("shards") or next(row["shards"] for row in rows if "shards" in row)
    commits = dict.fromkeys((row["commit"] or "unknown")[:7] for row in rows if row["name"] != "scale-corpus")
    caption = (
        f"Synthetic reports in sets of {shards} shards, one after another, and in one index; "
        f"{rows[0]['time'][:10]}, commit {' and '.join(commits)}, {_escaped(rows[0]['machine']['cpu'])}, "
        f"{rows[0]['machine']['cores']} cores."
    )
    header = [
        "Reports",
        *(f"{what}, {kind}" for what in ("Build, CPU time", "Its peak") for kind in ("set", "one index")),
    ]
    lines = []
    for size in sizes:
        both = [at.get((f"build-{kind}", size)) for kind in ("set", "single")]
        held = f"{_number(both[0]['index_gb'])} GB" if both[0] else ""
        times = [_seconds(row.get("cpu_s")) if row else "" for row in both]
        lines.append([f"{size:,}", *times, *(f"{_number(row['peak_gb'])} GB" if row else "" for row in both), held])
    parts = [caption, _table([*header, "Set on disk"], lines)]
    metrics = list(dict.fromkeys(row["metric"] for row in rows if "metric" in row))
    tests = next(row["tests"] for row in rows if "metric" in row)
    lines = []
    for metric in metrics:
        found = [row for row in rows if row.get("metric") == metric]
        cells = []
        for size in sizes:
            row = at.get((f"search-{metric}", size))
            over = f" ({row['over']:.2f} times one index)" if row and "over" in row else ""
            cells.append(f"{_seconds(row['value'])}{over}" if row else "")
        slope = exponent([row["reports"] for row in found], [row["value"] for row in found])
        peak = max(row["peak_gb"] for row in found)
        lines.append([metric, *cells, _number(slope) if len(found) > 1 else "", f"{_number(peak)} GB"])
    parts += [f"{tests:,} test reports, seconds of the whole search:"]
    parts.append(_table(["Oracle", *(f"{size:,}" for size in sizes), "Exponent", "Largest peak"], lines))
    return "\n\n".join([*parts, *_arithmetic(at, sizes[-1], metrics, shards)])


MANY = 100_000_000


def _arithmetic(at: dict[tuple[str, int], Row], size: int, metrics: Sequence[str], shards: int) -> list[str]:
    """Return what as many shards like the largest measured ones would take that hold 1e8 reports."""
    build = at.get(("build-set", size))
    if not build or build.get("was_there"):
        return []
    times = MANY / size
    searches = [(metric, at[f"search-{metric}", size]["value"] * times) for metric in metrics]
    return [
        f"By arithmetic, not measured: {MANY:,} reports are {shards * times:,.0f} shards of {size // shards:,}. One "
        f"process builds them in {build['cpu_s'] * times / 3600:.1f} hours of CPU time, on "
        f"{build['index_gb'] * times:,.0f} GB of disk, and searches them for the same test reports in "
        + ", ".join(f"{_seconds(seconds)} ({metric})" for metric, seconds in searches)
        + ". Every shard counts as much as a measured one: later ones know better thresholds, but files that no longer "
        "fit into memory must be read again. On n machines it is an n-th. Graphs and labels in files are held "
        f"whole: their part of the {build['peak_gb']:.1f} GB that the largest build took grows with the corpus."
    ]


def simulated(rows: Sequence[Row]) -> str:
    """Return the table of what intervals and tests are worth in made-up data."""
    sets = min(row["sets"] for row in rows)
    commit = (rows[0]["commit"] or "unknown")[:7] + (" with changes" if rows[0]["dirty"] else "")
    caption = (
        f"{sets} sets of each kind, {rows[0]['time'][:10]}, commit {commit} (benchmarks/simulate.py); the standard "
        f"error of 95 % is {100 * (0.95 * 0.05 / sets) ** 0.5:.1f}."
    )
    lines = [[row["title"], f"{row['value']:.1f} %", _bounds(row), _met(row)] for row in rows]
    return f"{caption}\n\n{_table(['What', 'Of sets', 'Goal', 'Met'], lines)}"


def _bounds(row: Row) -> str:
    least, most = (None if row[end] is None else f"{row[end]:g} %" for end in ("least", "most"))
    if least and most:
        return f"{least} to {most}"
    return f"at least {least}" if least else f"at most {most}" if most else ""


def _growth_caption(row: Row) -> str:
    commit = (row["commit"] or "unknown")[:7] + (" with changes" if row["dirty"] else "")
    where = f"{_escaped(row['machine']['cpu'])}, {row['machine']['cores']} cores"
    return (
        f"Growth, {row['time'][:10]}, commit {commit}, {where}: medians of the search without encoding, exponents by "
        "least squares of log(time) over log(size)."
    )


def _tenfold(metric: str, at: dict[int, float]) -> list[str]:
    """Return by how much the largest corpus takes longer than one of a tenth, and the goal where there is one."""
    largest = max(at)
    if largest // 10 not in at:
        return ["", "", ""]
    ratio = at[largest] / at[largest // 10]
    if metric not in GOAL_METRICS or largest < GOAL_SIZE:
        return [f"{_number(ratio)} times", "", ""]
    return [f"{_number(ratio)} times", f"at most {GOAL:g} times", "yes" if ratio <= GOAL else "**no**"]


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


def _caption(row: Row) -> str:
    computer, versions = row["machine"], row["versions"]
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    commit = (row["commit"] or "unknown")[:7] + (" with changes" if row["dirty"] else "")
    where = f"{computer['cpu']}, {computer['cores']} cores, {computer['ram_gb']:g} GB, {computer['os']}"
    return (
        f"{row['tests']:,} test reports x {row['reports']:,} synthetic reports, {row['time'][:10]}, commit {commit}. "
        f"{_escaped(where)}. {_escaped(packages)}. "
        "Medians; index open and compiled; answers equal to the reference on a sample beforehand."
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *[[_escaped(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escaped(text: str) -> str:
    """Keep a text in its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _number(value: float) -> str:
    """Return three significant digits, or an integer with separators."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _value(value: float, row: Row) -> str:
    return f"{_number(value)} {row['unit']}"


def _noted(row: Row) -> str:
    return _value(row["value"], row) + (f" ({row['note']})" if "note" in row else "")


def _range(row: Row) -> str:
    return "one run" if row["repetitions"] == 1 else f"{_number(row['p20'])} to {_number(row['p80'])}"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{_number(value)} s" if value >= 1 else f"{_number(1000 * value)} ms"


def _rate(value: float) -> str:
    return f"{value / 1e6:,.0f} million" if value >= 1e7 else f"{value:,.0f}"


def _goal(row: Row) -> str:
    return "" if row["goal"] is None else f"{row['sense']} {_value(row['goal'], row)}"


def _met(row: Row) -> str:
    return {True: "yes", False: "**no**", None: ""}[row["met"]]


if __name__ == "__main__":
    sys.exit(main())
