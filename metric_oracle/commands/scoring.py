"""score, table, study, crg, f1-chexbert, f1-srr-bert."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from metric_oracle.choices import RESULTS
from metric_oracle.commands import options as o
from metric_oracle.commands.command import command, given, metric_names, named, used
from metric_oracle.commands.inputs import check_device, check_installed, checkpoint, load_tests
from metric_oracle.commands.output import Destination, deliver_results, note, progress, signed
from metric_oracle.commands.search import PLAIN
from metric_oracle.errors import InputError

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "score",
    "oracle score test.csv generated.csv --encoder distilroberta-base \\\n"
    "--radgraph radgraph.tar.gz --chexbert chexbert.pth --out report_scores.csv",
    "oracle score annotation.json res.csv --split test --ids annotation.json",
    endings=RESULTS,
    formats=PLAIN,
)
def score(
    references: o.Corpus,
    predictions: o.Predictions,
    predicted: o.Predicted,
    files: o.Files,
    models: o.Models,
    bertscore: o.Bertscore,
    beside: o.CrepeFiles,
    reading: o.Reading,
    to: Destination,
    metric: o.Metrics = None,
    system: o.System = None,
    published_names: o.PublishedNames = False,
    with_text: o.WithText = False,
    layer: o.Layer = None,
    rescale_table: o.Rescaling = None,
    crepe: o.CrepeOrNone = None,
    seed: o.Seed = 0,
    index: o.IndexOption = None,
) -> None:
    """Score a model's reports against the radiologists', joined on ids."""
    from metric_oracle import api
    from metric_oracle.presentation.terminal import scores_table

    if published_names and to.out is None:
        msg = "score: --published-names must be given with --out; got none. Add --out FILE.csv."
        raise InputError(msg)
    if published_names:
        to.check((".csv",), PLAIN)
    names = metric_names(metric, "score")
    check_installed("score", files, models.encoder, crepe)
    check_device("score", files, models)
    of_predictions = given(predicted)
    inner = of_predictions.pop("inner")
    own = {**of_predictions, **given(of_predictions.pop("predicted_files"))}
    own = {name.removeprefix("predicted_"): value for name, value in own.items() if name != "predicted_files"}
    split = reading.split if own["ids"] is not None else None
    with progress("scoring") as step:
        written = api.reports(predictions, **own, split=split, seed=seed, **_of_text(predictions, reading))
        asked = api.reports(
            references,
            **given(files),
            **used(models),
            **used(reading),
            layer=layer,
            rescale_table=rescale_table,
            tell=note,
        )
        scores = api.score(
            asked,
            written,
            names,
            system=system,
            index=index,
            inner=inner,
            text=with_text or published_names,
            crepe=checkpoint(crepe, beside, models) or None,
            options=api.SearchOptions(**given(bertscore)),
            progress=step,
        )
    means = [f"{name} {scores_mean(scores, name)}" for name in scores.metrics]
    deliver_results(
        to,
        scores,
        lambda: [scores_table(scores)],
        f"{scores.table.num_rows:,} pairs: {', '.join(means)}",
        write=partial(scores.write, published_names=published_names),
    )


def _of_text(predictions: Path, reading: o.Reading) -> dict[str, Any]:
    """Return how the text of the references is read, as far as the predictions are such a file, too."""
    from metric_oracle.corpora.tables import BINARY, ENDINGS, SEPARATED
    from metric_oracle.corpora.text_files import file_ending

    if not predictions.is_file():
        return {}
    kind = ENDINGS.get(file_ending(predictions))
    names = ["encoding"] * (kind not in BINARY) + ["separator"] * (kind in SEPARATED)
    return {name: getattr(reading, name) for name in names}


def scores_mean(scores: Any, name: str) -> str:
    """Return the mean of a metric over the pairs that it scored, for a line."""
    import pyarrow.compute as pc

    mean = pc.mean(scores.table[name]).as_py()
    return "none" if mean is None else f"{mean:z.4f}"


@command(
    app,
    "table",
    "oracle table R2Gen=r2gen.parquet WCL=wcl.parquet --out table.md",
    'oracle table "BLEU oracle=bleu.csv" R2Gen=r2gen.csv random=random.csv \\\n'
    '--random random --oracle "bleu=BLEU oracle" --paired R2Gen,random',
    "oracle table R2Gen=r2gen.parquet --foreign R2Gen=green.csv",
    endings=(".md", ".tex", ".csv", ".jsonl"),
    formats=o.FORMATS,
    plot=True,
)
def table(
    systems: o.Systems,
    to: Destination,
    random: o.Random = None,
    oracle: o.Oracles = None,
    paired: o.Paired = None,
    foreign: o.Foreign = None,
    direction: o.Direction = None,
    interval: o.IntervalMethod = "bca",
    resamples: o.ResamplesOrNone = None,
    seed: o.Seed = 0,
) -> None:
    """Put the scores of several systems into one table: means, 95 % intervals, ranges, as in Yu et al.

    A mean is over the studies that every system can score. Tables need equal signatures and the same studies. A name
    that comes twice joins files of different metrics, and --foreign those of other tools.
    """
    from metric_oracle.tables.comparison import compare
    from metric_oracle.tables.comparison_layout import write

    files: dict[str, list[Any]] = {}
    for name, file in named(systems, "systems", "NAME=FILE", "=", repeatable=True):
        files.setdefault(name, []).append(file)
    for name, scores in read_foreign_files(foreign, direction, "table"):
        files.setdefault(name, []).append(scores)
    oracles = dict(named(oracle, "oracle", "METRIC=NAME", "="))
    pairs = named(paired, "paired", "A,B", ",", repeatable=True)
    with progress("table") as step:
        compared = compare(
            files,
            random=random,
            oracles=oracles,
            paired=pairs,
            method=interval,
            resamples=resamples,
            seed=seed,
            progress=step,
        )
    if to.plot is not None:
        from metric_oracle.tables.comparison_plot import write_plot

        write_plot(compared, to.plot)
        note(f"{to.plot}: {len(compared.columns)} metrics")
    _deliver_comparison(to, compared, partial(write, compared), compared.summary())


def read_foreign_files(
    foreign: Sequence[str] | None, direction: Sequence[str] | None, function: str
) -> list[tuple[str, Any]]:
    """Read the scores of other tools, each with the name of its system."""
    from metric_oracle.tables.foreign import read_foreign

    directions = dict(named(direction, "direction", "NAME=higher|lower", "=", function=function))
    files = named(foreign, "foreign", "NAME=FILE", "=", repeatable=True, function=function)
    if directions and not files:
        msg = f"{function}: direction must be given with foreign columns; got no --foreign. Drop it, or add the file."
        raise InputError(msg)
    return [(name, read_foreign(name, file, directions, function)) for name, file in files]


def _deliver_comparison(to: Destination, compared: Any, write: Any, summary: str, brief: Any = None) -> None:
    from metric_oracle.tables.comparison_layout import RENDER, layout

    texts = {name: partial(_lines, render, compared) for name, render in RENDER.items()}
    shown = None if brief is None else partial(brief, compared)
    to.deliver(lambda: [*layout(compared), signed(compared.signature)], texts, summary, write, shown)


def _lines(render: Any, compared: Any) -> list[str]:
    return [render(compared).removesuffix("\n")]


@command(
    app,
    "study",
    "oracle study INDEX test.csv --radgraph test_graphs.json \\\n"
    "--model R2Gen=r2gen.csv --model-radgraph R2Gen=r2gen.json --out study",
    formats=o.FORMATS,
)
def study(
    index: o.Index,
    queries: o.Queries,
    files: o.Files,
    models: o.Models,
    reading: o.Reading,
    to: Destination,
    model_files: o.ModelFiles,
    metric: o.Metrics = None,
    model: o.ModelRows = None,
    model_ids: o.ModelIds = None,
    model_metadata: o.ModelMetadata = None,
    model_section: o.ModelSection = None,
    inner: o.Inner = False,
    out: o.NewFolderOrNone = None,
    interval: o.IntervalMethod = "bca",
    threads: o.Threads = None,
    seed: o.Seed = 0,
) -> None:
    """Run a whole study: every oracle, random retrieval (exact), the most frequent report and models, in one table.

    Each row is scored under every metric. At full size that takes a few minutes, and random retrieval under BERTScore,
    which comes last, a quarter of an hour or more. The same command goes on where it was killed.
    """
    from metric_oracle import api
    from metric_oracle.tables import study as studies
    from metric_oracle.tables.study_steps import check_folder

    if out is not None:
        check_folder(out)
    names = metric_names(metric, "study")
    check_installed("study", files, models.encoder)
    written = dict(named(model, "model", "NAME=FILE", "=", function="study"))
    of_model: dict[str, dict[str, Any]] = {}
    own = {name.removeprefix("model_"): values for name, values in given(model_files).items()}
    for option, values in {**own, "ids": model_ids, "metadata": model_metadata, "section": model_section}.items():
        for name, path in named(values, f"model_{option}", "NAME=FILE", "=", function="study"):
            if name not in written:
                msg = f"study: model_{option} must name a model; got {name!r}, which has no --model. Add it."
                raise InputError(msg)
            of_model.setdefault(name, {})[option] = path if option == "section" else Path(path)
            if option == "ids" and reading.split is not None:
                of_model[name]["split"] = reading.split
    rows = {name: api.reports(Path(path), **of_model.get(name, {})) for name, path in written.items()}
    opened = api.open_index(index)
    batch = load_tests(queries, files, models, reading, opened)
    with progress("study") as step:
        chosen = None if names is None else tuple(names)
        systems = studies.run_study(
            opened, batch, rows, metrics=chosen, inner=inner, out=out, threads=threads, progress=step
        )
        compared = studies.compare_study(systems, step, method=interval, seed=seed)
    to.out = out
    from metric_oracle.tables.comparison_layout import brief
    from metric_oracle.tables.study_folder import write_study

    table = "" if out is None else f"; the table is {out / 'table.md'}, and table.tex, table.csv beside it"
    _deliver_comparison(to, compared, partial(write_study, systems, compared), f"{compared.summary()}{table}", brief)


@command(
    app,
    "crg",
    "oracle crg test_labels.csv predicted_labels.csv --uncertain positive",
    endings=RESULTS,
    formats=PLAIN,
)
def crg(
    reference: o.ReferenceLabels,
    predicted: o.PredictedLabels,
    uncertain: o.Uncertain,
    to: Destination,
    level: o.Levels = None,
    id_column: o.IdColumn = None,
) -> None:
    """Score predicted labels by CRG (Hamamci et al. 2025), of CheXbert or any other names."""
    from metric_oracle.retrieval.results import Results
    from metric_oracle.tables.crg import parse_levels, score_crg
    from metric_oracle.tables.views import crg_table

    levels = parse_levels(level) if level else None
    scored = score_crg(reference, predicted, uncertain=uncertain, levels=levels, id_column=id_column)
    if scored.unused:
        note(f"predictions without a reference, not used: {scored.unused:,}")
    results = Results(scored.table, scored.signature)
    deliver_results(to, results, lambda: [crg_table(scored)], scored.summary(), partial(results.write, function="crg"))


@command(
    app,
    "f1-chexbert",
    "oracle f1-chexbert test_labels.csv predicted_labels.csv",
    endings=RESULTS,
    formats=PLAIN,
)
def f1_chexbert(
    reference: o.ReferenceLabels, predicted: o.PredictedLabels, to: Destination, id_column: o.IdColumn = None
) -> None:
    """Score predicted CheXbert labels by F1 of 14 and 5 labels, under every policy for uncertain ones."""
    from metric_oracle.tables.f1_chexbert import score_f1_chexbert

    _deliver_f1(to, score_f1_chexbert(reference, predicted, id_column=id_column), "f1_chexbert")


@command(
    app,
    "f1-srr-bert",
    "oracle f1-srr-bert test_srr.csv predicted_srr.csv",
    endings=RESULTS,
    formats=PLAIN,
)
def f1_srr_bert(reference: o.ReferenceLabels, predicted: o.PredictedLabels, to: Destination) -> None:
    """Score predicted labels of SRR-BERT, a finding with a status each, by F1."""
    from metric_oracle.tables.f1_chexbert import score_f1_srr

    _deliver_f1(to, score_f1_srr(reference, predicted), "f1_srr_bert")


def _deliver_f1(to: Destination, scored: Any, function: str) -> None:
    from metric_oracle.retrieval.results import Results
    from metric_oracle.tables.views import f1_table

    if scored.unused:
        note(f"predictions without a reference, not used: {scored.unused:,}")
    results = Results(scored.table, scored.signature)
    write = partial(results.write, function=function)
    deliver_results(to, results, lambda: [f1_table(scored)], scored.summary(), write)
