"""The commands score, table, study, crg, f1-chexbert and f1-srr-bert."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from metric_oracle import choices
from metric_oracle.arguments import check_given
from metric_oracle.choices import RESULTS, TABLES
from metric_oracle.commands import old_options as o
from metric_oracle.commands.command import Call
from metric_oracle.commands.command import command as new_command
from metric_oracle.commands.old_command import command, given, metric_names, named, used
from metric_oracle.commands.old_inputs import (
    attached,
    check_installed,
    check_models,
    checkpoint,
    load_tests,
    written,
    written_by,
)
from metric_oracle.commands.options import FORMATS, PLAIN, Foreign
from metric_oracle.commands.output import (
    Destination,
    deliver_finding,
    deliver_results,
    note,
    progress,
)
from metric_oracle.corpora.read import Read
from metric_oracle.declared import ROWS
from metric_oracle.errors import option

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
    references: o.References,
    predictions: o.Predictions,
    predicted_files: o.PredictedFiles,
    predicted: o.PredictedReading,
    inputs: o.ReferenceInputs,
    bertscore: o.Bertscore,
    crepe_files: o.CrepeFiles,
    to: Destination,
    inner: o.Inner = False,
    metric: o.Metrics = None,
    system: o.System = None,
    published_names: o.PublishedNames = False,
    with_text: o.WithText = False,
    layer: o.Layer = None,
    rescale_table: o.Rescaling = None,
    crepe: o.CrepeOrNone = None,
    seed: o.Seed = 0,
    index: o.CountedIndex = None,
) -> None:
    """Score a model's reports against the radiologists' reports of the same studies, joined on ids."""
    from metric_oracle.findings.views import scores_table
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.retrieval.scoring import score

    if published_names:
        advice = f"Add {option('out', 'FILE.csv')}."
        check_given(option("published_names"), to.out, f"with {option('out')}", advice, got="none")
        to.check((".csv",), PLAIN)
    names = metric_names(metric)
    check_models(inputs, crepe)
    sources = {name.removeprefix("predicted_"): value for name, value in given(predicted_files).items()}
    with progress("scoring") as step:
        predicted_reports = written(predictions, predicted, inputs.reading, seed=seed, **sources)
        reference_reports = attached(references, inputs, layer=layer, rescale_table=rescale_table)
        scores = score(
            reference_reports,
            predicted_reports,
            names,
            system=system,
            index=index,
            inner=inner,
            text=with_text or published_names,
            crepe=checkpoint(crepe, crepe_files, inputs.models) or None,
            options=SearchOptions(**given(bertscore)),
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


def scores_mean(scores: Any, name: str) -> str:
    """Return the mean of a metric over the pairs that have a score, as text."""
    import pyarrow.compute as pc

    mean = pc.mean(scores.table[name]).as_py()
    return "none" if mean is None else f"{mean:z.4f}"


@new_command(
    app,
    "table",
    "oracle table R2Gen=r2gen.parquet WCL=wcl.parquet --out table.md",
    'oracle table "BLEU oracle=bleu.csv" R2Gen=r2gen.csv random=random.csv \\\n'
    '--random random --oracle "bleu=BLEU oracle" --paired R2Gen,random',
    "oracle table R2Gen=r2gen.parquet --foreign R2Gen=green.csv",
    of="metric_oracle.tables.compare:compare",
    panel=ROWS,
    endings=TABLES,
    formats=FORMATS,
    plot=True,
)
def table(
    call: Call, to: Destination, *, foreign: Foreign | None = None, direction: choices.Directions | None = None
) -> None:
    """Add the scores of other tools to the rows."""
    systems: dict[str, list[Any]] = call.values["systems"]
    for name, scores in read_foreign_files(foreign, direction):
        systems.setdefault(name, []).append(scores)
    deliver_finding(to, call.tracked("table"))


def read_foreign_files(
    foreign: Mapping[str, Sequence[str | Path]] | None, direction: Mapping[str, str] | None
) -> list[tuple[str, Any]]:
    """Return pairs of the name of a system and its scores by another tool, from --foreign and --direction."""
    from metric_oracle.tables.foreign import read_foreign

    if direction:
        step = f"Add {option('foreign', 'NAME=FILE')}, or leave {option('direction')} out."
        check_given("direction", foreign or None, "with scores of another tool", step, got=f"no {option('foreign')}")
    return [(name, read_foreign(name, file, direction)) for name, files in (foreign or {}).items() for file in files]


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
    inputs: o.QueryInputs,
    to: Destination,
    model_files: o.ModelFiles,
    of_models: o.ModelsReading,
    metric: o.Metrics = None,
    model: o.ModelRows = None,
    scores: o.ScoredRows = None,
    inner: o.Inner = False,
    overlap: o.OverlapOfStudy = False,
    exact_chance: o.ExactChance = False,
    out: o.StudyFolder = None,
    interval: o.IntervalMethod = "bca",
    threads: o.Threads = None,
    seed: o.Seed = 0,
) -> None:
    """Run a complete study: compare the oracle of every metric, baselines and models in one table.

    The rows are the oracle of each metric, random retrieval (its mean), the most frequent report, a perfect prediction
    and the models; each is scored under every metric, and the difference of every two models is tested. For MIMIC-CXR
    this takes a few minutes, and with --exact-chance a quarter of an hour or more for random retrieval under BERTScore,
    which comes last. With --out, the same command resumes an interrupted study.
    """
    from metric_oracle.corpora.tables import together
    from metric_oracle.indexes.shards import is_prepared, open_index
    from metric_oracle.reading import reports
    from metric_oracle.tables import study as studies
    from metric_oracle.tables.study_steps import check_folder

    if out is not None:
        check_folder(out)
    elif overlap:
        advice = f"Add {option('out', 'FOLDER')}, or leave out {option('overlap')}."
        check_given("out", out, f"with {option('overlap')}", advice, got="none")
    names = metric_names(metric)
    check_installed(inputs.files, inputs.models.encoder)
    rows = written_by(named(model, "model"), of_models, inputs.reading, model_files)
    further: dict[str, list[Any]] = {}
    for name, file in named(scores, "scores", repeatable=True):
        further.setdefault(name, []).append(file)
    opened = open_index(index)
    kept_in_both = []
    if overlap and not is_prepared(queries):
        kept_in_both = [
            name for name in reports(queries, Read(**used(inputs.reading))).column_names() if name in opened.columns
        ]
    tests = reports(queries, Read(**used(inputs.reading)))
    rows = {name: model.beside(tests) for name, model in rows.items()}
    batch = together(
        partial(load_tests, queries, inputs, opened, keep=kept_in_both),
        *(
            lambda read, model=model: model.read(predictions=True, default_section=read and read.section[0])
            for model in rows.values()
        ),
    )[0]
    copies = _copies(opened, batch, rows, inner, seed, threads) if overlap else None
    with progress("study") as step:
        chosen = None if names is None else tuple(names)
        systems = studies.study(
            opened,
            batch,
            rows,
            metrics=chosen,
            scores=further,
            inner=inner,
            exact_chance=exact_chance,
            out=out,
            threads=threads,
            progress=step,
        )
        compared = studies.compare_study(systems, step, method=interval, seed=seed)
    to.out = out
    from metric_oracle.tables.study_folder import write_study

    table = "" if out is None else f"; the table is {out / 'table.md'}, and table.tex, table.csv beside it"
    deliver_finding(
        to,
        compared,
        summary=f"{compared.summary()}{table}",
        write=partial(write_study, systems, compared),
        brief=compared.brief,
    )
    if copies is not None and out is not None:
        for name in ("overlap.md", "overlap.csv"):
            copies.write(out / name)
        note(f"{out / 'overlap.md'}: {copies.summary()}")


def _copies(index: Any, tests: Any, rows: dict[str, Any], inner: bool, seed: int, threads: int | None) -> Any:
    """Return the report on copies in the reports of models, `rows`, and in the test reports.

    With `inner`, of the test reports only those count that every model has.
    """
    from metric_oracle.copies.overlap import overlap

    if inner:
        written = [set(model.read(predictions=True)[0].ids) for model in rows.values()]
        common = [row for row, study in enumerate(tests.ids) if all(study in ids for ids in written)]
        tests = tests.take(common)
    with progress("overlap") as step:
        return overlap(index, rows, tests, seed=seed, threads=threads, progress=step)


@new_command(
    app,
    "crg",
    "oracle crg test_labels.csv predicted_labels.csv --uncertain positive",
    of="metric_oracle.tables.crg:score_crg",
    panel=ROWS,
    endings=RESULTS,
    formats=PLAIN,
)
@new_command(
    app,
    "f1-chexbert",
    "oracle f1-chexbert test_labels.csv predicted_labels.csv",
    of="metric_oracle.tables.f1_chexbert:score_f1_chexbert",
    endings=RESULTS,
    formats=PLAIN,
)
@new_command(
    app,
    "f1-srr-bert",
    "oracle f1-srr-bert test_srr.csv predicted_srr.csv",
    of="metric_oracle.tables.f1_chexbert:score_f1_srr",
    endings=RESULTS,
    formats=PLAIN,
)
def labels(call: Call, to: Destination) -> None:
    """Deliver scores of predicted labels."""
    scored = call()
    if scored.unused:
        note(f"predictions without a reference, not used: {scored.unused:,}")
    deliver_finding(to, scored)
