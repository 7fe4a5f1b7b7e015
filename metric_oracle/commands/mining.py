"""The commands mine and pairs."""

import json
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
    _deliver(to, written, written.counts)


def report(to: Destination, mined: Any) -> None:
    """Print that a file of mined pairs was written, its counts, and how many candidates each rule left out."""
    _deliver(to, mined, mined.lines)


def _deliver(to: Destination, written: Any, lines: Any) -> None:
    """Print that a file was written, and its numbers by name: as a terminal shows them, or `lines` as JSON."""
    to.deliver(
        written.shown, {"jsonl": lambda: [json.dumps(lines)]}, written.summary(), lambda path: None, written.shown
    )
