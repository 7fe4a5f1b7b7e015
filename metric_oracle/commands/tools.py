"""The commands annotate and bench."""

from collections.abc import Callable
from typing import Any

import typer

from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import ANNOTATED, TESTS
from metric_oracle.commands.output import Destination, note

app = typer.Typer(rich_markup_mode="rich")


def _run_bench() -> Callable[..., Any]:
    """Return the function that `oracle bench` calls; it is not one of the public names of the package."""
    from metric_oracle.bench.timing import run_bench

    return run_bench


@command(
    app,
    "oracle annotate test.csv --radgraph radgraph.tar.gz --out test_graphs.json",
    "oracle annotate test.csv --chexbert chexbert.pth --out test.npz",
    "oracle annotate test.csv --chexbert chexbert.pth --out test_labels.csv",
    "oracle annotate samples.jsonl --radgraph radgraph.tar.gz --out g.json",
    "oracle annotate t.csv --entities NER --entity-encoder BioLORD --out e.parquet",
    reports={"reports": ANNOTATED},
    endings=(".json", ".npz", ".csv", ".parquet"),
    needs_out=True,
)
def annotate(call: Call, to: Destination) -> None:
    """Say how many reports the file has."""
    n_reports = call.tracked("reports annotated")
    note(f"{to.out}: {n_reports:,} reports")


@command(
    app,
    "oracle bench --plot bench.png",
    "oracle bench --reports 185538 --tests 2192 --out rows.jsonl",
    "oracle bench INDEX test -m bleu,radgraph",
    of=_run_bench,
    reports={"queries": TESTS},
    endings=(".jsonl",),
    formats=("table", "jsonl"),
    plot=True,
)
def bench(call: Call, to: Destination) -> None:
    """Measure how fast searches are on this machine, on CPU and GPU, after checking their results.

    The results are compared with those of the plain reference scorer first. Without INDEX and QUERIES the searches run
    on a synthetic corpus.
    """
    from metric_oracle.bench.timing import json_lines, write_rows
    from metric_oracle.bench.view import bench_tables, write_plot

    if "queries" not in call.values:
        call.attach["queries"](None)
    rows = call.tracked("bench")
    if to.plot is not None:
        write_plot(to.plot, rows, to.width)
    to.deliver(
        lambda: bench_tables(rows),
        {"jsonl": lambda: json_lines(rows)},
        f"{len(rows)} rows",
        lambda path: write_rows(path, rows),
    )
