"""align, compare-metrics, failure-modes, agreement, fit-composite."""

import json
from pathlib import Path
from typing import Any

import typer

from metric_oracle.choices import TABLES
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, metric_names, named, split_names
from metric_oracle.commands.output import Destination, csv_lines, note, progress, signed
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
    ratings: o.Ratings,
    to: Destination,
    scores: o.Scores = None,
    samples: o.Samples = None,
    metric: o.Metrics = None,
    direction: o.Direction = None,
    paired: o.Paired = None,
    without_identical: o.WithoutIdentical = False,
    resamples: o.Resamples = 1000,
    seed: o.Seed = 0,
) -> None:
    """Measure how well metrics agree with each radiologist and with their mean: Kendall's tau-b and Spearman's rho.

    The tables of scores have a row for each pair, named by pair_id, or by study_id (or study_number) and
    candidate_type, and a column for each metric. Without scores, the texts of --samples are scored.
    """
    from metric_oracle.raters import metric_agreement
    from metric_oracle.raters.metric_agreement_layout import alignment_tables
    from metric_oracle.raters.plots import plot_alignment

    # Columns of other tools have names of their own.
    names = metric_names(metric, "align") if not scores else metric and split_names(metric)
    directions = dict(named(direction, "direction", "NAME=higher|lower", "=", function="align"))
    pairs = None if paired is None else named(paired, "paired", "A,B", ",", repeatable=True, function="align")
    with progress("align"):
        result = metric_agreement.align(
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
    if to.plot is not None:
        plot_alignment(result, to.plot)
        note(f"{to.plot}: errors against scores of {len(result.scores)} metrics")
    tables = alignment_tables(result)
    _deliver(to, "align", tables, tables, result.numbers, result)


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
    metric: o.Metrics = None,
    direction: o.Direction = None,
    paired: o.Paired = None,
    ablation: o.Ablations = None,
    times: o.Times = None,
    resample_raters: o.ResampleRaters = False,
    scatter: o.Scatter = None,
    resamples: o.Resamples = 1000,
    seed: o.Seed = 0,
) -> None:
    """Compare metrics by their agreement with radiologists on one or several rated sets, as papers on metrics do.

    A set has counted errors, grades, preferences between two candidates, or candidates in an order. If its texts are
    known, the set without pairs of equal texts is added (ReXVal*), and metrics of this tool are scored and timed next
    to the columns of the scores. --plot draws bars.
    """
    from metric_oracle.presentation.matplotlib_io import check_plot
    from metric_oracle.raters import metric_agreement
    from metric_oracle.raters import plots as ratings_plots
    from metric_oracle.raters.metric_agreement_layout import comparison_tables

    function = "compare_metrics"
    ratings = dict(named(sets, "sets", "NAME=FILE", "=", function=function))
    of_set: dict[str, dict[str, Any]] = {name: {"scores": [], "samples": None} for name in ratings}
    for argument, given in (("scores", scores), ("samples", samples)):
        for name, file in named(given, argument, "NAME=FILE", "=", repeatable=argument == "scores", function=function):
            if name not in ratings:
                msg = f"{function}: {argument} must name a set of {', '.join(ratings)}; got {name!r}. Add NAME=RATINGS."
                raise InputError(msg)
            if argument == "scores":
                of_set[name]["scores"].append(file)
            else:
                of_set[name]["samples"] = file
    if scatter is not None:
        check_plot(scatter, function, [Path(given) for given in to.inputs if given])
    directions = dict(named(direction, "direction", "NAME=higher|lower", "=", function=function))
    pairs = None if paired is None else named(paired, "paired", "A,B", ",", repeatable=True, function=function)
    with progress("compare-metrics"):
        result = metric_agreement.compare_metrics(
            {name: metric_agreement.RatedFiles(file, **of_set[name]) for name, file in ratings.items()},
            metrics=metric and split_names(metric),
            directions=directions,
            paired=pairs,
            times=times,
            ablations=dict(named(ablation, "ablation", "NAME=FILE", "=", function=function)),
            resample_raters=resample_raters,
            resamples=resamples,
            seed=seed,
        )
    for path, draw, what in (
        (to.plot, ratings_plots.plot_metric_bars, "agreement"),
        (scatter, ratings_plots.plot_scatter, "errors against scores"),
    ):
        if path is not None:
            draw(result, path)
            note(f"{path}: {what} of {len(result.metrics)} metrics")
    tables = comparison_tables(result)
    _deliver(to, function, tables, tables, result.numbers, result)


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
    """Compare the errors that radiologists found in the reports of several metric-oracles, by error category.

    A terminal gets the means and the significant differences; with --category, every test.
    """
    from metric_oracle.raters import failure_modes as modes
    from metric_oracle.raters.layout import failure_mode_tables, mean_tables, significant_table
    from metric_oracle.raters.plots import plot_failure_modes

    result = modes.failure_modes(ratings, categories=category, rate=rate)
    if to.plot is not None:
        plot_failure_modes(result, to.plot)
        note(f"{to.plot}: mean errors of {len(result.candidates)} candidate types")
    every = failure_mode_tables(result)
    shown = every if category else [*mean_tables(result), significant_table(result)]
    _deliver(to, "failure_modes", shown, every, result.tests, result)


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
    """Measure how well radiologists agree with one another, by candidate type, and with themselves.

    Intraclass correlations ICC(A,1) and ICC(A,k): two-way, random raters, absolute agreement; also called ICC(2,1) and
    ICC(2,k).
    """
    from metric_oracle.raters import interrater
    from metric_oracle.raters.layout import agreement_tables

    with progress("agreement"):
        result = interrater.agreement(ratings, repeated, resamples=resamples, seed=seed)
    tables = agreement_tables(result)
    _deliver(to, "agreement", tables, tables, result.table, result)


def _deliver(to: Destination, function: str, shown: Any, every: Any, numbers: Any, result: Any) -> None:
    """Deliver tables: to a terminal, Markdown and LaTeX as a paper has them, elsewhere all numbers."""
    from metric_oracle.presentation import paper_table
    from metric_oracle.retrieval.results import Results

    def view() -> list[Any]:
        note(paper_table.sources_line(result.signature))
        return [*shown, signed(result.signature)]

    def write(path: Any) -> None:
        paper_table.write_tables(path, every, numbers, result.signature, function)

    texts = {
        "jsonl": Results(numbers, result.signature).json_lines,
        "csv": lambda: csv_lines(numbers),
        "md": lambda: [paper_table.markdown(every, result.signature).removesuffix("\n")],
        "tex": lambda: [paper_table.latex(every, result.signature).removesuffix("\n")],
    }
    to.deliver(view, texts, result.summary(), write)


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
    scores: o.Scores = None,
    samples: o.Samples = None,
    metric: o.Metrics = None,
    errors: o.Errors = "errors",
    study: o.Study = "study_id",
    name: o.Name = None,
) -> None:
    """Fit a composite that predicts the number of errors, as RadCliQ does; retrieve searches under it.

    With --scores or --samples, TABLE is the counted errors, as for align.
    """
    from metric_oracle.presentation.paper_table import plain
    from metric_oracle.raters.fit_composite import fit_composite as fit
    from metric_oracle.raters.layout import composite_table

    names = None if metric is None else split_names(metric)
    with progress("fit"):
        fitted = fit(table, scores or (), samples=samples, metrics=names, errors=errors, study=study, name=name)
    if fitted.content["source"].get("unused"):
        note(f"not used, as no composite takes them: {', '.join(map(plain, fitted.content['source']['unused']))}")
    texts = {"jsonl": lambda: [json.dumps(fitted.content)]}
    to.deliver(lambda: [composite_table(fitted)], texts, fitted.summary(), fitted.write)
