"""The commands build-index, retrieve, rerank, merge, verify, info and metrics."""

import csv
import io
import json
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_left_out
from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.option_types import RESULTS
from metric_oracle.commands.command import REQUIRED, Call, command
from metric_oracle.commands.inputs import CORPUS, TESTS, check_models, with_ids
from metric_oracle.commands.output import Destination, checking, deliver_results, is_quiet, note, put
from metric_oracle.commands.shared_options import (
    PLAIN,
    Components,
    CorpusVectorIds,
    QueryVectorIds,
)
from metric_oracle.commands.wording import Wording
from metric_oracle.metrics import ALIASES, REPRESENTATIONS
from metric_oracle.records import Metric

app = typer.Typer(rich_markup_mode="rich")


@command(
    app,
    "oracle build-index train.csv --out INDEX",
    "oracle build-index mimic-cxr-reports.zip --split train+validate \\\n"
    "--split-file mimic-cxr-2.0.0-split.csv.gz --radgraph graphs.json --out INDEX",
    "oracle build-index train.csv --encoder distilroberta-base --out INDEX",
    "oracle build-index all.parquet --shard-rows 1000000 --out SET",
    "oracle build-index all.parquet --shard-rows 1000000 --runner ray --out SET",
    reports={"reports": CORPUS},
    formats=("table", "jsonl"),
    out=REQUIRED,
)
def build_index(call: Call, to: Destination) -> None:
    """Show what the index contains, unless --quiet is given without --format."""
    check_models(call.values["reports"])
    built = call.tracked("building")
    if to.form is not None or not is_quiet():
        _show_info(built, to)


@command(
    app,
    "oracle retrieve INDEX test.csv -m bleu -k 5 --out oracle.parquet",
    "oracle retrieve INDEX test -m radgraph",
    'oracle retrieve INDEX --text "No acute process." -m rouge-l',
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
    queries: Any = call.values.get("queries")
    if (queries is None) == (one_text is None):
        got = "neither" if queries is None else "both"
        raise InputError(f"give either QUERIES or `text`; got {got}.", "Name a file, or one report in quotes.")
    if one_text is not None:
        queries = call.attach["queries"]([one_text])
        ignored = [
            f"--{name.replace('_', '-')}" for name in queries.options.given if name not in ("section", "profile")
        ]
        of_text = {"options of a file": ignored or None}
        check_left_out(of_text, "with `text`", "Leave them out.", got=", ".join(ignored))
    part = call.values["options"].part
    if part is not None:
        check_given(
            "out",
            to.out,
            "with `part`",
            "Add `out=FILE`, which oracle merge takes.",
            got="none",
        )
    results = call.tracked("test reports", queries=queries)
    if results.signature.get("truncated_queries"):
        note(f"cut off at the encoder's longest input: {results.signature['truncated_queries']} test reports")
    if part is not None and to.out is not None:
        results.write(to.out)
        note(f"{to.out}: part {part}, {results.table.num_rows:,} lines; oracle merge joins all parts")
        return
    show_answers(to, results, queries.texts, components)


@command(
    app,
    "oracle rerank INDEX test -m green --pool bleu:50,rouge-l:50,random:20 \\\n--out best.parquet",
    "oracle rerank INDEX test -m crepe --crepe crepe-biomedbert \\\n--pool bleu:200 --audit 50",
    "oracle rerank INDEX test -m crepe --crepe crepe-biomedbert \\\n"
    "--pool composite --weights weights.json --audit 199 --recall 0.95",
    reports={"queries": TESTS},
    endings=RESULTS,
    formats=PLAIN,
    plot=True,
)
def rerank(
    call: Call,
    to: Destination,
    *,
    components: Components = False,
) -> None:
    """Show the answers under the texts of their test reports, and what the pools say of the judge's oracle."""
    queries = call.values["queries"]
    check_models(queries, call.values.get("crepe"))
    results = call.tracked("rerank", tell=note)
    oracle = results.oracle
    if to.plot is not None:
        check_given("plot", oracle, "for a pool, not the whole corpus", "Leave it out.", got="one")
        oracle.write(to.plot, to.width)
        note(f"{to.plot}: {oracle.summary()}")
    elif to.out is not None and oracle is not None:
        note(f"rerank: {oracle.summary()}")
    show_answers(to, results, queries.texts, components)


@command(
    app,
    "oracle pool INDEX test.csv --pool bleu:50,rouge-l:50,random:20 \\\n--out pairs.parquet",
    "oracle pool INDEX test -m green --pool bleu:100 --out rest.parquet",
    reports={"queries": TESTS},
    endings=RESULTS,
    needs_out=True,
)
def pool(call: Call, to: Destination) -> None:
    """Write the pairs."""
    path = to.file()
    check_models(call.values["queries"])
    pairs = call.tracked("pool")
    pairs.write(path)
    judged = pairs.signature["pool"]["judged"]
    note(f"{path}: {pairs.table.num_rows:,} distinct pairs{f'; {judged:,} others are judged' if judged else ''}")


@command(app, "oracle merge part-*.parquet --out oracle.parquet", endings=RESULTS, formats=PLAIN)
def merge(parts: option_types.Parts, to: Destination, *, components: Components = False) -> None:
    """Join the results of retrieve --part or mine --part into the result of the whole search."""
    from metric_oracle.mining.mined_files import is_mined
    from metric_oracle.retrieval.part_files import merge

    if is_mined(parts[0]):
        from metric_oracle.commands.mining import report
        from metric_oracle.mining.mine import merge_mined

        report(to, merge_mined(parts, to.file()))
        return
    show_answers(to, merge(parts), {}, components)


def show_answers(
    to: Destination,
    results: Any,
    texts: Mapping[str, str] = MappingProxyType({}),
    components: bool = False,
) -> None:
    """Show or write the results of a search or a baseline, under the texts of their test reports, if given by id."""
    n = results.table.num_rows
    noun = "answers" if results.signature.get("baseline") is None else "lines"
    deliver_results(
        to,
        results,
        partial(results.shown, texts, components),
        f"{n:,} {noun}, mean score {results.mean_of_rows():z.4f}",
    )


@command(
    app,
    "oracle verify INDEX oracle.parquet test.csv --sample 50",
    reports={"queries": TESTS},
)
def verify(
    call: Call,
    *,
    corpus_vector_ids: CorpusVectorIds = None,
    query_vector_ids: QueryVectorIds = None,
) -> None:
    """Check the files of the index, too, and print how much was checked."""
    from metric_oracle.indexes.shards import open_index

    vectors = with_ids(call.values, corpus_vectors=corpus_vector_ids, query_vectors=query_vector_ids)
    with checking():
        index = open_index(call.values["index"])
        index.verify_files()
        checked = call.tracked("verifying", index=index, tell=note, **vectors)
    put(f"right: {checked['pairs']:,} pairs scored again, {checked['queries']:,} queries searched by brute force")


@command(app, "oracle info INDEX --check", formats=("table", "jsonl"))
def info(
    index: option_types.IndexFolder,
    to: Destination,
    *,
    check: Annotated[
        bool,
        Doc(
            "Also read every file of the index and compare its checksum with the one stored when it was built; a "
            "difference is an error."
        ),
        Flag(panel=OUTPUT),
    ] = False,
) -> None:
    """Show what an index contains: reports, representations, metrics, files and fingerprint.

    Of a folder in which a judge's answers are kept, the judgements are counted. With --check, the exit code
    is 1 if a file differs from the one that was written.
    """
    from metric_oracle.findings.views import one_line
    from metric_oracle.indexes.shards import open_index
    from metric_oracle.judges.judgements import RECORD, counted

    if (Path(index) / RECORD).is_file():
        with checking():
            records = counted(Path(index), check=check)
        lines = [
            one_line(
                f"{one['judge']} {one['version']}".rstrip() + f": {one['judgements']:,} judgements of "
                f"{one['references']:,} references and {one['candidates']:,} candidates"
            )
            for one in records
        ]
        to.deliver(lambda: lines, {"jsonl": lambda: map(json.dumps, records)})
        return
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


@command(
    app,
    "oracle metrics",
    "oracle metrics --format jsonl",
    formats=PLAIN,
    name="metrics",
)
def list_metrics(call: Call, to: Destination) -> None:
    """Show a row for each metric."""
    rows = [metric_record(metric) for metric in call()]

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


def metric_record(record: Metric) -> dict[str, str]:
    """Return the row of a metric in the list that `oracle metrics` shows."""
    sources = [REPRESENTATIONS[kind].source for kind in record.representations]
    reads = list(
        dict.fromkeys(Wording({}).text(source.option) for source in sources if source is not None and source.option)
    )
    return {
        "metric": record.name,
        "also": ", ".join(alias for alias, meant in ALIASES.items() if meant == record.name),
        "better": record.direction,
        "reads": "; ".join(reads) or "the reports",
        "equals": record.citation,
    }
