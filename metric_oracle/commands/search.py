"""The commands build-index, retrieve, rerank, merge, verify, info and metrics."""

import csv
import io
import json
from contextlib import nullcontext
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.arguments import check_given, check_left_out, check_new_folder
from metric_oracle.choices import RESULTS
from metric_oracle.commands import old_options as o
from metric_oracle.commands.command import Call
from metric_oracle.commands.command import command as new_command
from metric_oracle.commands.inputs import TESTS, check_models, load_tests
from metric_oracle.commands.old_command import command, given, metric_names
from metric_oracle.commands.old_inputs import attached, check_installed, checkpoint, with_ids
from metric_oracle.commands.old_inputs import check_models as old_check
from metric_oracle.commands.old_inputs import load_tests as old_load
from metric_oracle.commands.options import PLAIN, Components
from metric_oracle.commands.output import Destination, checking, deliver_results, note, progress, put
from metric_oracle.declared import Flag
from metric_oracle.errors import InputError, in_terms_of_caller, option
from metric_oracle.metrics import ALIASES, METRICS, REPRESENTATIONS

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "build-index",
    "oracle build-index train.csv --out INDEX",
    "oracle build-index mimic-cxr-reports.zip --split train+validate \\\n"
    "--split-file mimic-cxr-2.0.0-split.csv.gz --radgraph graphs.json --out INDEX",
    "oracle build-index train.csv --encoder distilroberta-base --out INDEX",
    "oracle build-index all.parquet --shard-rows 1000000 --out SET",
    "oracle build-index all.parquet --shard-rows 1000000 --runner ray --out SET",
    formats=("table", "jsonl"),
)
def build_index(
    reports: o.Corpus,
    out: o.IndexFolder,
    inputs: o.Inputs,
    running: o.Running,
    to: Destination,
    metric: o.IndexedMetrics = None,
    layer: o.Layer = None,
    states: o.States = None,
    bf16: o.Bf16 = False,
    rescale_table: o.Rescaling = None,
    max_memory: o.EncodingMemory = None,
    keep: o.Keep = None,
    shard_rows: o.ShardRows = None,
) -> None:
    """Build the index of a corpus of reports, which searches read.

    An interrupted build resumes when the same command runs again. With --shard-rows the corpus becomes a set of shards.
    Several processes that run the same command share the work.
    """
    from metric_oracle.retrieval.building import build_index

    names = metric_names(metric)
    old_check(inputs)
    if shard_rows is None:
        check_new_folder("out", out)
    with progress("building") as step:
        encoding = {"layer": layer, "states": states, "bf16": bf16, "rescale_table": rescale_table}
        corpus = attached(reports, inputs, **encoding)
        index = build_index(
            corpus,
            out,
            metrics=names,
            keep=keep or (),
            shard_rows=shard_rows,
            max_memory=max_memory,
            **given(running),
            progress=step,
        )
    _show_info(index, to)


@new_command(
    app,
    "retrieve",
    "oracle retrieve INDEX test.csv -m bleu -k 5 --out oracle.parquet",
    "oracle retrieve INDEX test.csv -m radgraph --radgraph test_graphs.json",
    'oracle retrieve INDEX --text "No acute process." -m rouge-l',
    of="metric_oracle.retrieval.plan:retrieve",
    reports={"queries": TESTS},
    endings=RESULTS,
    formats=PLAIN,
    metric="bleu",
    queries=None,
)
def retrieve(
    call: Call,
    to: Destination,
    *,
    one_text: Annotated[
        str | None,
        Doc("Text of one test report, in quotes, instead of a QUERIES file."),
        Flag("--text", metavar="REPORT"),
    ] = None,
    components: Components = False,
) -> None:
    """Show the answers under the texts of their test reports."""
    from metric_oracle.retrieval.plan import plan

    queries = call.values.get("queries")
    if (queries is None) == (one_text is None):
        got = "neither" if queries is None else "both"
        raise InputError(
            f"give either QUERIES or {option('text')}; got {got}.", "Name a file, or one report in quotes."
        )
    if one_text is not None:
        queries = call.attach["queries"]([one_text])
        ignored = [
            f"--{name.replace('_', '-')}" for name in queries.options.given if name not in ("section", "profile")
        ]
        of_text = {"options of a file": ignored or None}
        check_left_out(of_text, f"with {option('text')}", "Leave them out.", got=", ".join(ignored))
    options = call.values["options"]
    if options.part is not None:
        check_given(
            "out",
            to.out,
            f"with {option('part')}",
            f"Add {option('out', 'FILE')}, which oracle merge takes.",
            got="none",
        )
    planned = plan(call.values["index"], call.values["metric"], options)
    check_encoder(planned, queries)
    batch = load_tests(queries, planned.index, keep=planned.columns, metrics=[planned.metric])
    with progress("test reports") as step:
        results = planned.run(batch, step)
    if results.signature.get("truncated_queries"):
        note(f"cut off at the encoder's longest input: {results.signature['truncated_queries']} test reports")
    if options.part is not None and to.out is not None:
        results.write(to.out)
        note(f"{to.out}: part {options.part}, {results.table.num_rows:,} lines; oracle merge joins all parts")
        return
    show_answers(to, results, batch, components)


@command(
    app,
    "rerank",
    "oracle rerank INDEX test.csv --crepe crepe-biomedbert \\\n--pool bleu:200 --audit 50",
    "oracle rerank INDEX test.csv --crepe crepe-biomedbert \\\n"
    "--pool composite --weights weights.json --audit 199 --recall 0.95",
    "oracle rerank INDEX test.csv --crepe crepe-biomedbert --pool all",
    endings=RESULTS,
    formats=PLAIN,
)
def rerank(
    index: o.Index,
    queries: o.Queries,
    crepe: o.Crepe,
    crepe_files: o.CrepeFiles,
    bertscore: o.Bertscore,
    inputs: o.QueryInputs,
    to: Destination,
    pool: o.Pool = "radcliq:200",
    weights: o.Weights = None,
    k: o.TopK = 1,
    audit: o.AuditedQueries = 0,
    recall: o.Recall = None,
    components: o.Components = False,
    with_text: o.WithText = True,
    seed: o.Seed = 0,
) -> None:
    """Find the reports with the fewest errors as predicted by CREPE, among the best reports under another metric.

    No exact search exists for CREPE: only the reports of a pool are scored, and the best of the corpus may be missing
    from it. Where the result has a score of 0 errors, no report can be better. --audit measures how often the pool
    misses the best report; --recall chooses the size of the pool by this measurement.
    """
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.retrieval.rerank import plan_rerank, pool_of

    check_installed(inputs.files, crepe)
    options = SearchOptions(k=k, text=with_text, weights=weights, **given(bertscore))
    of_crepe = checkpoint(crepe, crepe_files, inputs.models)
    plan = plan_rerank(index, pool_of(pool, audit, recall, seed, options), of_crepe)
    batch = old_load(queries, inputs, plan.index)
    with progress("rerank") as step:
        results = plan.run(batch, step)
    show_answers(to, results, batch, components)


@command(app, "merge", "oracle merge part-*.parquet --out oracle.parquet", endings=RESULTS, formats=PLAIN)
def merge(parts: o.Parts, to: Destination, components: o.Components = False) -> None:
    """Join the results of retrieve --part or mine --part into the result of the whole search."""
    from metric_oracle.mining.mined_files import is_mined
    from metric_oracle.retrieval.part_files import merge

    if parts and is_mined(parts[0]):
        from metric_oracle.commands.mining import report
        from metric_oracle.mining.mine import merge_mined

        report(to, merge_mined(parts, to.file()))
        return
    show_answers(to, merge(parts), None, components)


def check_encoder(plan: Any, queries: Any) -> None:
    """Raise if the encoder of a plan's metric, or a model that is attached to the queries, cannot run here."""
    from metric_oracle.indexes.shards import is_prepared

    # A prepared folder contains token states; other reports are encoded by the model that the index names.
    needs_encoder = plan.metric.needs_encoder and not is_prepared(queries.data)
    check_models(queries, f"metric {plan.metric.name!r}" if needs_encoder else None)


def show_answers(to: Destination, results: Any, batch: Any = None, components: bool = False) -> None:
    """Show or write the results of a search or a baseline, under the texts of their test reports `batch`, if given."""

    def view() -> list[Any]:
        from metric_oracle.findings.views import answers_table

        return [answers_table(results, texts, components)]

    texts = None if batch is None else dict(zip(batch.ids, batch.texts, strict=True))
    n = results.table.num_rows
    noun = "answers" if results.signature.get("baseline") is None else "lines"
    deliver_results(to, results, view, f"{n:,} {noun}, mean score {results.mean_of_rows():z.4f}")


@command(app, "verify", "oracle verify INDEX oracle.parquet test.csv --sample 50")
def verify(
    index: o.Index,
    results: o.ResultFile,
    queries: o.Queries,
    inputs: o.QueryInputs,
    to: Destination,
    sample: o.Sample = 20,
    seed: o.Seed = 0,
    corpus_vectors: o.CorpusVectorsOrNone = None,
    query_vectors: o.QueryVectorsOrNone = None,
    corpus_vector_ids: o.CorpusVectorIds = None,
    query_vector_ids: o.QueryVectorIds = None,
) -> None:
    """Check a result file: score it again with the reference scorer, and search a sample by brute force.

    The exit code is 1 if anything differs or the index is damaged.
    """
    from metric_oracle.findings.results import read_results
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.retrieval.verification import verify

    check_installed(inputs.files)
    with checking():
        opened = open_index(index)
        answers = read_results(results)
    excluded_by = answers.signature.get("exclude", ())
    batch = old_load(queries, inputs, opened, keep=[x for x in excluded_by if x in opened.columns])
    with progress("verifying") as step, checking():
        opened.verify_files()
        checked = verify(
            opened,
            answers,
            batch,
            sample=sample,
            seed=seed,
            progress=step,
            tell=note,
            corpus_vectors=with_ids(corpus_vectors, corpus_vector_ids),
            query_vectors=with_ids(query_vectors, query_vector_ids),
        )
    put(f"right: {checked['pairs']:,} pairs scored again, {checked['queries']:,} queries searched by brute force")


@command(app, "info", "oracle info INDEX --check", formats=("table", "jsonl"))
def info(index: o.Index, to: Destination, check: o.Check = False) -> None:
    """Show what an index contains: reports, representations, metrics, files and fingerprint.

    With --check, the exit code is 1 if a file differs from the one that was written.
    """
    from metric_oracle.indexes.shards import open_index

    with checking() if check else nullcontext():
        opened = open_index(index)
        if check:
            opened.verify_files()
    _show_info(opened, to)


def _show_info(index: Any, to: Destination) -> None:
    from metric_oracle.findings.views import info_table

    def line() -> list[str]:
        return [json.dumps({"folder": str(index.folder), **index.manifest, "metrics": index.metrics})]

    to.deliver(lambda: [info_table(index)], {"jsonl": line})


@command(app, "metrics", "oracle metrics", "oracle metrics --format jsonl", formats=PLAIN)
def metrics(to: Destination) -> None:
    """List the metrics: name, files that it reads, better direction, and the publication whose numbers it equals."""
    rows = [metric_record(name) for name in METRICS]

    def csv_text() -> list[str]:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return [buffer.getvalue().removesuffix("\n")]

    def view() -> list[Any]:
        from metric_oracle.findings.views import metrics_view

        return metrics_view(rows)

    to.deliver(view, {"jsonl": lambda: map(json.dumps, rows), "csv": csv_text})


def metric_record(name: str) -> dict[str, str]:
    """Return the row of a metric in the list that `oracle metrics` shows."""
    record = METRICS[name]
    sources = [REPRESENTATIONS[kind].source for kind in record.representations]
    reads = list(
        dict.fromkeys(in_terms_of_caller(source.option) for source in sources if source is not None and source.option)
    )
    return {
        "metric": name,
        "also": ", ".join(alias for alias, meant in ALIASES.items() if meant == name),
        "better": "higher" if record.higher_is_better else "lower",
        "reads": "; ".join(reads) or "the reports",
        "equals": record.citation,
    }
