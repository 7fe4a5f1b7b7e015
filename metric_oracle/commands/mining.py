"""The commands mine and pairs."""

import json
from functools import partial
from typing import Any

import typer

from metric_oracle.commands.command import Call, command
from metric_oracle.commands.output import Destination

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle mine INDEX -m radgraph -k 3 --min-score 0.4 --out positives.parquet",
    'oracle mine INDEX -m rouge-l -k 5 --where "radgraph<=0.2" \\\n--exclude text,subject_id --out negatives.parquet',
    endings=(".parquet",),
    needs_out=True,
    formats=("table", "jsonl"),
    metric="bleu",
)
def mine(call: Call, to: Destination) -> None:
    """Print what the file of mined pairs has."""
    report(to, call.tracked("anchors"))


@command(
    app,
    "oracle pairs positives.parquet negatives.parquet --shape triplet \\\n--index INDEX --out triplets.parquet",
    "oracle pairs positives.parquet --shape trec --index INDEX --out qrels.txt",
    endings=(".parquet", ".txt", ".qrels"),
    needs_out=True,
    formats=("table", "jsonl"),
)
def pairs(call: Call, to: Destination) -> None:
    """Print what the file of pairs has."""
    written = call.tracked("blocks")
    _deliver(to, partial(_view, written.counts), written.counts, written.summary())


def report(to: Destination, mined: Any) -> None:
    """Print that a file of mined pairs was written, its counts, and how many candidates each rule left out."""

    def view() -> list[str]:
        """Return the counts as lines."""
        of_sample = dict(mined.skipped)
        n, whole = of_sample.pop("anchors", 0), of_sample.pop("candidates", 0)
        width = max(map(len, of_sample), default=0)
        shares = [f"{name:<{width}}  {count:>14,}  {count / whole:>7.2%}" for name, count in of_sample.items()]
        title = f"{whole:,} candidates of {n:,} anchors, by the first rule that leaves them out:"
        return [*_view({**mined.counts, **mined.scores}), "", title, *shares]

    _deliver(to, view, mined.lines, mined.summary())


def _deliver(to: Destination, view: Any, lines: Any, summary: str) -> None:
    """Print that a file was written, with `summary`, and its numbers by name: what `view` returns, or JSON."""
    to.deliver(view, {"jsonl": lambda: [json.dumps(lines)]}, summary, lambda path: None, view)


def _view(lines: Any) -> list[str]:
    width = max(map(len, lines), default=0)
    return [f"{name:<{width}}  {_shown(value):>14}" for name, value in lines.items()]


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:z.4f}"
