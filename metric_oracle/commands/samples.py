"""The commands consensus and best-of."""

from pathlib import Path

import typer

from metric_oracle.choices import RESULTS, TABLES
from metric_oracle.commands import old_options as o
from metric_oracle.commands.old_command import command, given, metric_names
from metric_oracle.commands.old_inputs import attached, check_models, written
from metric_oracle.commands.options import PLAIN
from metric_oracle.commands.output import Destination, deliver_finding, note, progress, table_lines

app = typer.Typer(rich_markup_mode="rich")


def _check(to: Destination, path: Path | None, argument: str) -> None:
    """Raise InputError unless a second output file, given by the option `argument`, can be written."""
    if path is not None:
        from metric_oracle.findings.writing import check_out

        check_out(path, to.inputs, argument=argument)


@command(
    app,
    "consensus",
    "oracle consensus samples.jsonl -m rouge-l --out chosen.csv",
    "oracle consensus samples.jsonl -m radgraph,bleu --weighted \\\n"
    "--radgraph samples_graphs.json --out chosen.csv --utilities utilities.csv",
    endings=RESULTS,
    formats=PLAIN,
)
def consensus(
    candidates: o.SampledReports,
    inputs: o.SampleInputs,
    bertscore: o.Bertscore,
    to: Destination,
    metric: o.MetricsOfSamples = o.BLEU,
    weighted: o.Weighted = False,
    layer: o.Layer = None,
    rescale_table: o.Rescaling = None,
    index: o.CountedIndex = None,
    utilities: o.Utilities = None,
    matrix: o.Matrix = None,
) -> None:
    """Choose, of several reports of a model for each study, the one that agrees best with the others.

    The expected score of a sample is its mean score with the other samples as references (minimum Bayes risk). The
    output is a file of predictions, which score, table, study and explore take; of several metrics each has a file of
    its own, such as chosen-radgraph.csv.
    """
    from metric_oracle.findings.results import Results
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.samples.consensus import consensus as choose
    from metric_oracle.samples.consensus import paths_of

    names = list(dict.fromkeys(metric_names(metric) or ()))
    out, paths = to.out, [] if to.out is None else paths_of(to.out, names)
    for argument, file in (*(("out", path) for path in paths), ("utilities", utilities), ("matrix", matrix)):
        _check(to, file, argument)
    check_models(inputs)
    samples = attached(candidates, inputs, layer=layer, rescale_table=rescale_table)
    with progress("consensus") as step:
        chosen = choose(
            samples, names, weighted=weighted, index=index, options=SearchOptions(**given(bertscore)), progress=step
        )
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
    "best-of",
    "oracle best-of samples.jsonl test.csv -m rouge-l,bleu --plot curve.png",
    "oracle best-of samples.jsonl test.csv -m radgraph \\\n"
    "--radgraph test_graphs.json --out best.md \\\n"
    "--predicted-radgraph samples_graphs.json",
    endings=TABLES,
    formats=o.FORMATS,
    plot=True,
)
def best_of(
    candidates: o.SampledReports,
    references: o.References,
    inputs: o.ReferenceInputs,
    predicted_files: o.PredictedFiles,
    bertscore: o.Bertscore,
    to: Destination,
    metric: o.MetricsOfSamples = o.BLEU,
    column: o.Column = None,
    predicted_id_column: o.PredictedIdColumn = None,
    predicted_text_column: o.PredictedTextColumn = None,
    inner: o.Inner = False,
    results: o.OtherResults = None,
    best_scores: o.BestScores = None,
    layer: o.Layer = None,
    rescale_table: o.Rescaling = None,
    index: o.CountedIndex = None,
    seed: o.Seed = 0,
) -> None:
    """Measure how good the best of n reports of a model is expected to be, and how near selectors come to it.

    Of the samples of each study n are drawn without replacement; the expected best is computed in closed form.
    Selectors are the first sample, the one with the highest log-probability, the longest, the consensus under each
    metric, and the greatest value of --column. --results adds the corpus oracle and chance, which oracle retrieve and
    oracle baseline write.
    """
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.samples.best_of import best_of as measure

    names = list(dict.fromkeys(metric_names(metric) or ()))
    _check(to, best_scores, "scores")
    check_models(inputs)
    sources = {name.removeprefix("predicted_"): value for name, value in given(predicted_files).items()}
    of_file = o.PredictedReading(predicted_id_column, predicted_text_column)
    samples = written(candidates, of_file, inputs.reading, **sources)
    tests = attached(references, inputs, layer=layer, rescale_table=rescale_table)
    with progress("best of n") as step:
        best = measure(
            samples,
            tests,
            names,
            column=column,
            inner=inner,
            results=results or (),
            index=index,
            options=SearchOptions(**given(bertscore)),
            seed=seed,
            progress=step,
        )
    if best_scores is not None:
        scores = best.to_scores()
        scores.write(best_scores)
        note(f"{best_scores}: {scores.signature['system']}, {scores.table.num_rows:,} studies")
    deliver_finding(to, best)
