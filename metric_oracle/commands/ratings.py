"""The commands align, compare-metrics, failure-modes, agreement and fit-composite."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base.declarations import OUTPUT, ROWS, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.option_types import TABLES
from metric_oracle.commands.command import Call, command
from metric_oracle.commands.output import Destination, deliver_finding, note
from metric_oracle.commands.shared_options import FORMATS

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle align 6_valid_raters_per_rater_error_categories.csv --scores scores.csv",
    "oracle align RATINGS --scores ours.csv --scores other.csv \\\n--direction other=lower --plot scatter.png",
    "oracle align RATINGS --samples 50_samples_gt_and_candidates.csv -m bleu",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
)
def align(call: Call, to: Destination) -> None:
    """Show how well metrics agree with radiologists."""
    _deliver(to, call.tracked("align"))


@command(
    app,
    "oracle agreement 6_valid_raters_per_rater_error_categories.csv",
    "oracle agreement ratings.csv --repeated repeats.csv --out tables.md",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
)
def agreement(call: Call, to: Destination) -> None:
    """Show how well radiologists agree."""
    _deliver(to, call.tracked("agreement"))


@command(
    app,
    "oracle compare-metrics ReXVal=RATINGS --scores ReXVal=scores.csv \\\n"
    "--samples ReXVal=50_samples_gt_and_candidates.csv --out tables.md",
    "oracle compare-metrics ReXVal=RATINGS ReFiSco=refisco-v0.csv \\\n"
    "-m crepe,bleu --paired crepe,bleu --times times.csv \\\n"
    "--scores ReXVal=crepe.csv --scores ReFiSco=refisco_crepe.csv",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
)
def compare_metrics(
    call: Call,
    to: Destination,
    *,
    scores: Annotated[
        Mapping[str, Sequence[Path]] | None,
        Doc(
            "Scores of the pairs in the rated set NAME: one row per pair, with the columns that name the pair in the "
            "ratings, and one column per metric. By default the texts of the pairs are scored."
        ),
        Flag(metavar="NAME=FILE"),
    ] = None,
    samples: Annotated[
        Mapping[str, Path] | None,
        Doc(
            "Texts of the pairs in the rated set NAME, if its file has none: a table like ReXVal's "
            "50_samples_gt_and_candidates.csv, with one row per study and one column per candidate. Metrics are scored "
            "on them."
        ),
        Flag(metavar="NAME=FILE"),
    ] = None,
    scatter: Annotated[
        Path | None,
        Doc("Also draw errors against scores in the first rated set: a .png, .svg or .pdf file."),
        Flag(panel=OUTPUT),
    ] = None,
) -> None:
    """Compare the metrics on sets of files, and draw the scatter plot."""
    from metric_oracle.findings.figures import check_plot, write_figure
    from metric_oracle.raters.metric_comparison import RatedFiles

    sets: Mapping[str, str] = call.values["sets"]
    for argument, given in (("scores", scores), ("samples", samples)):
        for name in given or ():
            if name not in sets:
                raise InputError(argument, f"must name a set of {shown(*sets)}", shown(name), "Add NAME=RATINGS.")
    of_sets = {
        name: RatedFiles(file, (scores or {}).get(name, ()), (samples or {}).get(name)) for name, file in sets.items()
    }
    if scatter is not None:
        check_plot(scatter, [Path(given) for given in to.inputs if given])
    result = call.tracked("compare-metrics", sets=of_sets)
    if scatter is not None:
        write_figure(scatter, result.scatter())
        note(f"{scatter}: errors against scores of {len(result.metrics)} metrics")
    _deliver(to, result)


@command(
    app,
    "oracle failure-modes 6_valid_raters_per_rater_error_categories.csv",
    "oracle failure-modes RATINGS --category 3 --rate 0.01",
    "oracle failure-modes RATINGS --out tables.md --plot errors.png",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
)
def failure_modes(call: Call, to: Destination) -> None:
    """Show the means and the significant differences, and every test of chosen categories."""
    _deliver(to, call())


def _deliver(to: Destination, result: Any) -> None:
    """Deliver a finding; with it, a terminal names the input files."""
    from metric_oracle.findings.signature import sources_line

    def view() -> list[Any]:
        note(sources_line(result.signature))
        return result.shown()

    deliver_finding(to, result, view)


@command(
    app,
    "oracle fit-composite scores.csv -m radgraph,bertscore,bleu --out weights.json",
    "oracle retrieve INDEX test.csv -m composite --weights weights.json",
    panel=ROWS,
    endings=(".json",),
    formats=("table", "jsonl"),
)
def fit_composite(call: Call, to: Destination) -> None:
    """Show the composite, and which columns it does not use."""
    from metric_oracle.findings.printed_tables import plain

    fitted = call.tracked("fit")
    if fitted.content["source"].get("unused"):
        note(f"not used, as no composite takes them: {', '.join(map(plain, fitted.content['source']['unused']))}")
    texts = {"jsonl": lambda: [json.dumps(fitted.content)]}
    to.deliver(fitted.tables, texts, fitted.summary(), fitted.write)
