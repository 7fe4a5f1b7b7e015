"""The commands align, compare-metrics, failure-modes, agreement and fit-composite."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from metric_oracle.choices import TABLES
from metric_oracle.commands import old_options as o
from metric_oracle.commands.old_command import command, metric_names, named, split_names
from metric_oracle.commands.output import Destination, deliver_finding, note, progress
from metric_oracle.errors import InputError

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "align",
    "oracle align 6_valid_raters_per_rater_error_categories.csv --scores scores.csv",
    "oracle align RATINGS --scores ours.csv --scores other.csv \\\n--direction other=lower --plot scatter.png",
    "oracle align RATINGS --samples 50_samples_gt_and_candidates.csv -m bleu",
    endings=TABLES,
    formats=o.FORMATS,
    plot=True,
)
def align(
    ratings: o.GradedRatings,
    to: Destination,
    scores: o.Scores = None,
    samples: o.Samples = None,
    metric: o.MetricsOfPairs = None,
    direction: o.Direction = None,
    paired: o.PairedMetrics = None,
    without_identical: o.WithoutIdentical = False,
    resamples: o.Resamples = 1000,
    seed: o.Seed = 0,
) -> None:
    """Measure how well metrics agree with the errors that radiologists counted: Kendall's tau-b and Spearman's rho.

    Agreement is computed with each radiologist and with their mean. Without --scores, the texts of --samples are scored
    under the metrics that need no other file. Tables of scores have one column for each metric and one row for each
    pair, named by pair_id, or by study_id (or study_number) and candidate_type.
    """
    from metric_oracle.raters import alignment

    # Columns of other tools have names of their own.
    names = metric_names(metric) if not scores else metric and split_names(metric)
    directions = dict(named(direction, "direction", "NAME=higher|lower"))
    pairs = None if paired is None else named(paired, "paired", "A,B", ",", repeatable=True)
    with progress("align"):
        result = alignment.align(
            ratings,
            scores or (),
            samples=samples,
            metrics=names,
            directions=directions,
            paired=pairs,
            without_identical=without_identical,
            resamples=resamples,
            seed=seed,
        )
    _deliver(to, result)


@command(
    app,
    "compare-metrics",
    "oracle compare-metrics ReXVal=RATINGS --scores ReXVal=scores.csv \\\n"
    "--samples ReXVal=50_samples_gt_and_candidates.csv --out tables.md",
    "oracle compare-metrics ReXVal=RATINGS ReFiSco=refisco-v0.csv \\\n"
    "-m crepe,bleu --paired crepe,bleu --times times.csv \\\n"
    "--scores ReXVal=crepe.csv --scores ReFiSco=refisco_crepe.csv",
    endings=TABLES,
    formats=o.FORMATS,
    plot=True,
)
def compare_metrics(
    sets: o.RatedSets,
    to: Destination,
    scores: o.ScoresOfSets = None,
    samples: o.SamplesOfSets = None,
    metric: o.MetricsOfPairs = None,
    direction: o.Direction = None,
    paired: o.PairedMetrics = None,
    ablation: o.Ablations = None,
    times: o.Times = None,
    resample_raters: o.ResampleRaters = False,
    scatter: o.Scatter = None,
    resamples: o.Resamples = 1000,
    seed: o.Seed = 0,
) -> None:
    """Compare metrics by their agreement with radiologists, on one or several rated sets, in the tables of a paper.

    A rated set has counted errors, grades, preferences between two candidates, or candidates in an order. Where the
    texts are known, metrics of this tool are scored and timed as well, and the set without pairs of equal texts is
    added under its name with a star. --plot draws the agreement as bars.
    """
    from metric_oracle.findings.figures import check_plot, write_figure
    from metric_oracle.raters import metric_comparison

    ratings = dict(named(sets, "sets"))
    of_set: dict[str, dict[str, Any]] = {name: {"scores": [], "samples": None} for name in ratings}
    for argument, given in (("scores", scores), ("samples", samples)):
        for name, file in named(given, argument, repeatable=argument == "scores"):
            if name not in ratings:
                raise InputError(argument, f"must name a set of {', '.join(ratings)}", repr(name), "Add NAME=RATINGS.")
            if argument == "scores":
                of_set[name]["scores"].append(file)
            else:
                of_set[name]["samples"] = file
    if scatter is not None:
        check_plot(scatter, [Path(given) for given in to.inputs if given])
    directions = dict(named(direction, "direction", "NAME=higher|lower"))
    pairs = None if paired is None else named(paired, "paired", "A,B", ",", repeatable=True)
    with progress("compare-metrics"):
        result = metric_comparison.compare_metrics(
            {name: metric_comparison.RatedFiles(file, **of_set[name]) for name, file in ratings.items()},
            metrics=metric and split_names(metric),
            directions=directions,
            paired=pairs,
            times=times,
            ablations=dict(named(ablation, "ablation")),
            resample_raters=resample_raters,
            resamples=resamples,
            seed=seed,
        )
    if scatter is not None:
        write_figure(scatter, result.scatter())
        note(f"{scatter}: errors against scores of {len(result.metrics)} metrics")
    _deliver(to, result)


@command(
    app,
    "failure-modes",
    "oracle failure-modes 6_valid_raters_per_rater_error_categories.csv",
    "oracle failure-modes RATINGS --category 3 --rate 0.01",
    "oracle failure-modes RATINGS --out tables.md --plot errors.png",
    endings=TABLES,
    formats=o.FORMATS,
    plot=True,
)
def failure_modes(ratings: o.Ratings, to: Destination, category: o.Category = None, rate: o.Rate = 0.01) -> None:
    """Compare the errors that radiologists counted in the reports of several metric-oracles, by error category.

    A terminal shows the means and the significant differences, and every test if --category is given; a file contains
    all tests.
    """
    from metric_oracle.raters import failure_modes as modes

    result = modes.failure_modes(ratings, categories=category, rate=rate)
    _deliver(to, result, result.tables if category else result.brief)


@command(
    app,
    "agreement",
    "oracle agreement 6_valid_raters_per_rater_error_categories.csv",
    "oracle agreement ratings.csv --repeated repeats.csv --out tables.md",
    endings=TABLES,
    formats=o.FORMATS,
)
def agreement(
    ratings: o.Ratings, to: Destination, repeated: o.Repeated = None, resamples: o.Resamples = 1000, seed: o.Seed = 0
) -> None:
    """Measure how well radiologists agree with one another, and with themselves where they rated a study twice.

    The result has intraclass correlations for all pairs and for each candidate type: ICC(A,1) of one rater and ICC(A,k)
    of the mean of all, in the two-way model with random raters and absolute agreement, also called ICC(2,1) and
    ICC(2,k).
    """
    from metric_oracle.raters import interrater

    with progress("agreement"):
        result = interrater.agreement(ratings, repeated, resamples=resamples, seed=seed)
    _deliver(to, result)


def _deliver(to: Destination, result: Any, tables: Callable[[], list[Any]] | None = None) -> None:
    """Deliver a finding; a terminal shows `tables`, by default all of its own, and names the input files."""
    from metric_oracle.findings.signature import sources_line

    def view() -> list[Any]:
        note(sources_line(result.signature))
        return result.shown(tables and tables())

    deliver_finding(to, result, view)


@command(
    app,
    "fit-composite",
    "oracle fit-composite scores.csv -m radgraph,bertscore,bleu --out weights.json",
    "oracle retrieve INDEX test.csv -m composite --weights weights.json",
    endings=(".json",),
    formats=("table", "jsonl"),
)
def fit_composite(
    table: o.ScoredPairs,
    to: Destination,
    scores: o.ScoresToFit = None,
    samples: o.SamplesToFit = None,
    metric: o.MetricsOfSum = None,
    errors: o.Errors = "errors",
    study: o.Study = "study_id",
    name: o.Name = None,
) -> None:
    """Fit a weighted sum of metrics that predicts the number of errors in a report, as RadCliQ does.

    oracle retrieve -m composite searches under the fitted sum. With --scores or --samples, TABLE is a file of counted
    errors or grades as for oracle align.
    """
    from metric_oracle.findings.printed_tables import plain
    from metric_oracle.raters.fit_composite import fit_composite as fit

    names = None if metric is None else split_names(metric)
    with progress("fit"):
        fitted = fit(table, scores or (), samples=samples, metrics=names, errors=errors, study=study, name=name)
    if fitted.content["source"].get("unused"):
        note(f"not used, as no composite takes them: {', '.join(map(plain, fitted.content['source']['unused']))}")
    texts = {"jsonl": lambda: [json.dumps(fitted.content)]}
    to.deliver(fitted.tables, texts, fitted.summary(), fitted.write)
