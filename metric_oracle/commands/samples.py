"""The commands consensus and best-of."""

from pathlib import Path
from typing import Annotated

import typer
from annotated_doc import Doc

from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.base.option_types import RESULTS, TABLES
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import REFERENCES, SAMPLES, check_models
from metric_oracle.commands.output import Destination, deliver_finding, note, table_lines
from metric_oracle.commands.shared_options import FORMATS, PLAIN
from metric_oracle.metrics import get_metric

app = typer.Typer(rich_markup_mode="rich")


def _check(to: Destination, path: Path | None, argument: str) -> None:
    """Raise InputError unless a second output file, given by the option `argument`, can be written."""
    if path is not None:
        from metric_oracle.findings.writing import check_out

        check_out(path, to.inputs, argument=argument)


@command(
    app,
    "oracle consensus samples.jsonl -m rouge-l --out chosen.csv",
    "oracle consensus samples -m radgraph,bleu --weighted --out chosen.csv \\\n--utilities utilities.csv",
    reports={"candidates": SAMPLES},
    endings=RESULTS,
    formats=PLAIN,
    metrics="bleu",
)
def consensus(
    call: Call,
    to: Destination,
    *,
    utilities: Annotated[
        Path | None,
        Doc(
            "Also write the expected score of every sample, its mean score with the others as references: a .parquet, "
            ".csv or .jsonl file."
        ),
        Flag(panel=OUTPUT),
    ] = None,
    matrix: Annotated[
        Path | None,
        Doc(
            "Also write the scores of all pairs of samples of a study, in both orders and with themselves: a .parquet, "
            ".csv or .jsonl file."
        ),
        Flag(panel=OUTPUT),
    ] = None,
) -> None:
    """Write the chosen reports under each metric, and the scores that they were chosen by."""
    from metric_oracle.findings.results import Results
    from metric_oracle.judges.given import parted
    from metric_oracle.samples.consensus import paths_of

    found, judges = parted(call.values["metrics"])
    names = [*dict.fromkeys(get_metric(name).name for name in found or ()), *(judge.name for judge in judges)]
    out, paths = to.out, [] if to.out is None else paths_of(to.out, names)
    for argument, file in (*(("out", path) for path in paths), ("utilities", utilities), ("matrix", matrix)):
        _check(to, file, argument)
    check_models(call.values["candidates"])
    chosen = call.tracked("consensus")
    for file, table in ((utilities, chosen.utility_table), (matrix, chosen.pair_table)):
        if file is not None:
            Results(table(), chosen.signature).write(file)
            note(f"{file}: {chosen.summary()}")
    to.out = next(iter(paths), out)
    to.deliver(
        chosen.shown,
        table_lines(chosen),
        ", also ".join([f"{len(chosen.samples.ids):,} reports", *map(str, list(paths)[1:])]),
        lambda path: chosen.write(out or path),
        chosen.shown,
    )


@command(
    app,
    "oracle best-of samples.jsonl test.csv -m rouge-l,bleu --plot curve.png",
    "oracle best-of samples test -m radgraph --out best.md",
    reports={"references": REFERENCES, "candidates": SAMPLES},
    endings=TABLES,
    formats=FORMATS,
    plot=True,
    metrics="bleu",
)
def best_of(
    call: Call,
    to: Destination,
    *,
    best_scores: Annotated[
        Path | None,
        Doc(
            "Also write the best score of all samples of each study, which oracle table takes as a row: a .parquet, "
            ".csv or .jsonl file."
        ),
        Flag("--scores", panel=OUTPUT),
    ] = None,
) -> None:
    """Show the curve and the selectors, and write the best scores."""
    _check(to, best_scores, "scores")
    check_models(call.values["references"])
    best = call.tracked("best of n")
    if best_scores is not None:
        scores = best.to_scores()
        scores.write(best_scores)
        note(f"{best_scores}: {scores.signature['system']}, {scores.table.num_rows:,} studies")
    deliver_finding(to, best)
