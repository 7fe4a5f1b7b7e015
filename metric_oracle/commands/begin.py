"""The commands demo, example and synth."""

from pathlib import Path
from typing import Annotated

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.commands.command import command
from metric_oracle.commands.output import progress, put, show

app = typer.Typer(rich_markup_mode="rich")


_REPORTS = Doc("Number of training reports in the synthetic corpus.")
_TESTS = Doc("Number of test reports in the synthetic corpus.")
_FOLDER = Flag(metavar="FOLDER", panel=OUTPUT)
NewFiles = Annotated[
    Path,
    Doc("Folder for the files. It must not exist yet, or be empty and not the current folder."),
    _FOLDER,
]


@command(app, "oracle demo", "oracle demo try --reports 2000 --tests 100")
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
    reports: Annotated[option_types.Positive, _REPORTS] = 400,
    tests: Annotated[option_types.Positive, _TESTS] = 24,
    seed: option_types.Seed = 0,
) -> None:
    """Show in some seconds what the tool finds: the best report of a made-up corpus for each test report.

    With FOLDER, the files, those of oracle example in any size, and the index are kept there; otherwise they are
    deleted.
    """
    from metric_oracle.synthetic.demo import COMMANDS, demo_tables, run_demo

    with progress("demo", every=5) as step:
        outcome = run_demo(reports, tests, seed=seed, folder=folder, progress=step)
    show(demo_tables(outcome))
    if folder is not None:
        put(f"\n{folder}: the files and the index. Try, in this folder:\n")
        put("\n".join(COMMANDS))
    else:
        put("\nIt works. Try it on small files, with commands to paste, and then on yours:\n")
        put("oracle example first")
        put("oracle score REFERENCES.csv PREDICTIONS.csv -m bleu,rouge-l")


@command(app, "oracle example try && cd try")
def example(folder: NewFiles, *, seed: option_types.Seed = 0) -> None:
    """Write small example files (reports, graphs, labels, ratings), and print commands to try on them."""
    from metric_oracle.synthetic.example import COMMANDS, write_example

    files = write_example(folder, seed=seed)
    put(f"{folder}: {len(files)} files. Try, in this folder:\n")
    put("\n".join(COMMANDS))


@command(
    app,
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
