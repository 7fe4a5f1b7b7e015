"""Write the newest results into the README, between its two marks: ``python -m benchmarks.report``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Regenerate the tables; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="folder, or one .jsonl file")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    options = parser.parse_args(arguments)
    rows = newest(options.results)
    if not rows:
        print(
            f"report: results must hold a .jsonl file; got {options.results}. Run python -m benchmarks.",
            file=sys.stderr,
        )
        return 1
    text = options.readme.read_text(encoding="utf-8")
    try:
        text = replace_between_marks(text, markdown(rows))
    except ValueError as error:
        print(f"report: {options.readme}: {error}", file=sys.stderr)
        return 1
    options.readme.write_text(text, encoding="utf-8")
    return 0


def newest(results: Path) -> list[Row]:
    """Return the rows of a file, or of the file in a folder whose run began last."""
    files = [results] if results.is_file() else sorted(results.glob("*.jsonl"))
    runs = [[json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files]
    return max((rows for rows in runs if rows), key=lambda rows: rows[0]["time"], default=[])


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
            ["Oracle", "Measured", "20 to 80 %", "Encoding / search", "Goal", "Met", "Pairs/s"],
            [
                [
                    row["title"],
                    _value(row["value"], row),
                    _range(row),
                    f"{_number(row['encode_s'])} / {_number(row['search_s'])} s",
                    _goal(row),
                    _met(row),
                    _rate(row["pairs_per_s"]),
                ]
                for row in oracles
            ],
        )
    )
    staged = [row for row in oracles if row.get("stages")]
    if staged:
        stages = list(staged[0]["stages"])
        parts.append(
            _table(
                ["Share of pairs", *(f"dropped by {s}" if s != "scored" else "scored in float64" for s in stages)],
                [[row["title"], *(f"{100 * row['stages'][s]:.3g} %" for s in stages)] for row in staged],
            )
        )
    peers = [row for row in measured if row["table"] == "peer"]
    parts.append(
        _table(
            ["Metric", "Published scorer", "Its pairs/s", "Our pairs/s", "Factor", "20 to 80 %", "Goal", "Met"],
            [
                [
                    row["title"],
                    row["peer"],
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


def _rate(value: float) -> str:
    return f"{value / 1e6:,.0f} million" if value >= 1e7 else f"{value:,.0f}"


def _goal(row: Row) -> str:
    return "" if row["goal"] is None else f"{row['sense']} {_value(row['goal'], row)}"


def _met(row: Row) -> str:
    return {True: "yes", False: "**no**", None: ""}[row["met"]]


if __name__ == "__main__":
    sys.exit(main())
