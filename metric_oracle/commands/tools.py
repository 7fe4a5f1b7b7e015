"""The commands demo, example, synth, annotate and bench."""

from pathlib import Path
from typing import Annotated

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import ANNOTATED, TESTS
from metric_oracle.commands.output import Destination, note, progress, put, show

app = typer.Typer(rich_markup_mode="rich")


_REPORTS = Doc("Number of training reports in the synthetic corpus.")
_TESTS = Doc("Number of test reports in the synthetic corpus.")
_FOLDER = Flag(metavar="FOLDER", panel=OUTPUT)
NewFiles = Annotated[
    Path,
    Doc("Folder for the files. It must not exist yet, or be empty and not the current folder."),
    _FOLDER,
]


@command(app, "demo", "oracle demo", "oracle demo try --reports 2000 --tests 100")
def demo(
    folder: Annotated[
        Path | None,
        Doc(
            "Folder in which corpus and index are kept. It must not exist yet, or be empty and not the current folder. "
            "By default they are deleted at the end."
        ),
        _FOLDER,
    ] = None,
    *,
    reports: Annotated[option_types.Positive, _REPORTS] = 20000,
    tests: Annotated[option_types.Positive, _TESTS] = 500,
    seed: option_types.Seed = 0,
) -> None:
    """Show the whole tool in some minutes: make a synthetic corpus, index it, search it under every metric.

    Metrics whose libraries are not installed are left out. With FOLDER, the files, those of oracle example in any size,
    and the index are kept there; otherwise they are deleted.
    """
    from metric_oracle.synthetic.demo import COMMANDS, demo_tables, run_demo

    with progress("demo") as step:
        outcome = run_demo(reports, tests, seed=seed, folder=folder, progress=step, tell=note)
    show(demo_tables(outcome))
    put("\nIt works: the searches ran on this machine, and their code is compiled now.")
    if folder is not None:
        put(f"{folder}: the files and the index. Try, in this folder:\n")
        put("\n".join(COMMANDS))
    else:
        put("Try it on small files, with commands to paste, and then on yours:\n")
        put("oracle example first")
        put("oracle score REFERENCES.csv PREDICTIONS.csv -m bleu,rouge-l")


@command(app, "example", "oracle example try && cd try")
def example(folder: NewFiles, *, seed: option_types.Seed = 0) -> None:
    """Write small example files (reports, graphs, labels, ratings), and print commands to try on them."""
    from metric_oracle.synthetic.example import COMMANDS, write_example

    files = write_example(folder, seed=seed)
    put(f"{folder}: {len(files)} files. Try, in this folder:\n")
    put("\n".join(COMMANDS))


@command(
    app,
    "synth",
    "oracle synth corpus --reports 10000 --tests 200 --models",
    "oracle synth pairs --reports 4000 --tests 500 --errors",
)
def synth(
    out: NewFiles,
    *,
    reports: Annotated[option_types.Positive, _REPORTS] = 185538,
    tests: Annotated[option_types.Positive, _TESTS] = 2192,
    seed: option_types.Seed = 0,
    models: Annotated[
        bool,
        Doc("Also write what three made-up models generate for the test reports, with graphs and labels."),
    ] = False,
    errors: Annotated[
        bool,
        Doc("Also write a copy of each report with zero to six artificial errors, and their number by category."),
    ] = False,
) -> None:
    """Write a synthetic corpus of chest X-ray impressions, with their true RadGraph graphs and CheXbert labels.

    With --models, what three made-up models generate for the test reports is written, too. With --errors each report
    also gets a candidate: a copy with zero to six artificial errors. The number of errors is written by category: 1 to
    6 of ReXVal, A to F of CREPE.
    """
    from metric_oracle.synthetic.corpus import write_synthetic

    with progress("reports written") as step:
        paths = write_synthetic(out, reports, tests, seed=seed, models=models, errors=errors, progress=step)
    for path in paths.values():
        put(str(path))


@command(
    app,
    "annotate",
    "oracle annotate test.csv --radgraph radgraph.tar.gz --out test_graphs.json",
    "oracle annotate test.csv --chexbert chexbert.pth --out test.npz",
    "oracle annotate test.csv --chexbert chexbert.pth --out test_labels.csv",
    "oracle annotate samples.jsonl --radgraph radgraph.tar.gz --out g.json",
    "oracle annotate t.csv --entities NER --entity-encoder BioLORD --out e.parquet",
    of="metric_oracle.annotating:annotate",
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
    "bench",
    "oracle bench --plot bench.png",
    "oracle bench --reports 185538 --tests 2192 --out rows.jsonl",
    "oracle bench INDEX test -m bleu,radgraph",
    of="metric_oracle.bench.timing:run_bench",
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
        write_plot(to.plot, rows)
    to.deliver(
        lambda: bench_tables(rows),
        {"jsonl": lambda: json_lines(rows)},
        f"{len(rows)} rows",
        lambda path: write_rows(path, rows),
    )
