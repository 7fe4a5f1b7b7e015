"""The commands score, crg, f1-chexbert and f1-srr-bert."""

from functools import partial
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_given
from metric_oracle.base.declarations import OUTPUT, ROWS, Flag
from metric_oracle.base.option_types import RESULTS
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.inputs import (
    REFERENCES,
    TEXTS,
    check_models,
)
from metric_oracle.commands.output import (
    Destination,
    deliver_finding,
    deliver_results,
    note,
)
from metric_oracle.commands.shared_options import PLAIN

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle score radiologists.csv model.csv -m bleu,rouge-l --out mine.parquet",
    "oracle score test strong -m radgraph,bertscore --encoder distilroberta-base",
    reports={"references": REFERENCES, "predictions": TEXTS},
    endings=RESULTS,
    formats=PLAIN,
)
def score(
    call: Call,
    to: Destination,
    *,
    published_names: Annotated[
        bool,
        Doc("Name the columns of the CSV file as CXR-Report-Metric does. Needs --out FILE.csv."),
        Flag(panel=OUTPUT),
    ] = False,
) -> None:
    """Check the models first, and write published names."""
    if published_names:
        advice = "Add `out=FILE.csv`."
        check_given("published_names", to.out, "with `out`", advice, got="none")
        to.check((".csv",), PLAIN)
        call.values["text"] = True
    check_models(call.values["references"], call.values.get("crepe"))
    scores = call.tracked("scoring")
    means = [f"{name} {scores_mean(scores, name)}" for name in scores.metrics]
    summary = f"{scores.table.num_rows:,} pairs: {', '.join(means)}"
    write = partial(scores.write, published_names=published_names)
    deliver_results(to, scores, scores.shown, summary, write=write)
    if to.is_piped:
        note(summary)


def scores_mean(scores: Any, name: str) -> str:
    """Return the mean of a metric over the pairs that have a score, as text."""
    import pyarrow.compute as pc

    mean = pc.mean(scores.table[name]).as_py()
    return "none" if mean is None else f"{mean:z.4f}"


@command(
    app,
    "oracle crg test_labels.csv predicted_labels.csv --uncertain positive",
    name="crg",
    panel=ROWS,
    endings=RESULTS,
    formats=PLAIN,
)
def score_crg(call: Call, to: Destination) -> None:
    """Deliver the score."""
    deliver_finding(to, call(tell=note))


@command(
    app,
    "oracle f1-chexbert test_labels.csv predicted_labels.csv",
    name="f1-chexbert",
    endings=RESULTS,
    formats=PLAIN,
)
def score_f1_chexbert(call: Call, to: Destination) -> None:
    """Deliver the scores."""
    deliver_finding(to, call(tell=note))


@command(
    app,
    "oracle f1-srr-bert test_srr.csv predicted_srr.csv",
    name="f1-srr-bert",
    endings=RESULTS,
    formats=PLAIN,
)
def score_f1_srr(call: Call, to: Destination) -> None:
    """Deliver the scores."""
    deliver_finding(to, call(tell=note))
