"""The command line: parse, call the API, print. No arithmetic here, and nothing heavy imported before it is needed."""

import io
import os
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from metric_oracle.errors import InputError, MetricOracleError

app = typer.Typer(
    name="oracle",
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Find, for every test radiology report, the training report that scores best under a metric: exactly.",
    epilog="Start with [bold]oracle demo[/]. Errors are one line and exit code 2; ORACLE_DEBUG=1 shows the traceback.",
)

ReportsArgument = Annotated[
    Path,
    typer.Argument(help="Reports: CSV, TSV, Parquet, JSON, JSON Lines, or the MIMIC-CXR reports folder or zip."),
]
IndexArgument = Annotated[Path, typer.Argument(help="Folder that build-index made.")]
Radgraph = Annotated[
    Path | None, typer.Option(help="RadGraph JSON of these reports, any known layout, or a model archive (.tar.gz).")
]
Chexbert = Annotated[
    Path | None, typer.Option(help="CheXbert embeddings: .npy, .npz, .parquet or .pt; or the model chexbert.pth.")
]
ChexbertIds = Annotated[Path | None, typer.Option(help="Ids of the embeddings, where their file has none.")]
ChexbertLabels = Annotated[Path | None, typer.Option(help="CheXbert labels (CSV).")]
Uncertain = Annotated[str | None, typer.Option(help="What an uncertain label counts as: positive, negative or blank.")]
Encoder = Annotated[str | None, typer.Option(help="Hugging Face encoder, name or folder, for BERTScore.")]
Section = Annotated[str, typer.Option(help="Which text is the report: impression or findings.")]
IdColumn = Annotated[str | None, typer.Option(help="Id column, where its name does not say it.")]
TextColumn = Annotated[str | None, typer.Option(help="Text column, where its name does not say it.")]
Split = Annotated[str | None, typer.Option(help='Rows to use, such as "train+validate" or "test".')]
SplitFile = Annotated[Path | None, typer.Option(help="Split of each study, such as mimic-cxr-2.0.0-split.csv.gz.")]
Profile = Annotated[str, typer.Option(help="Section rule for MIMIC-CXR report files: yu2023 or mit.")]


def main() -> None:
    """Run the command line; every expected error becomes one line and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # JSON is UTF-8 whatever the locale; a terminal shows what it can.
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        app()
    except (MetricOracleError, OSError, MemoryError, KeyboardInterrupt) as error:
        if os.environ.get("ORACLE_DEBUG"):
            raise
        _fail(error)
    except SystemExit as end:
        # Typer ends so, without a word, at Ctrl-C.
        if end.code == 130:
            _fail(KeyboardInterrupt())
        raise


def _fail(error: BaseException) -> NoReturn:
    """Say in one line what went wrong, control characters of file names spelled out, and end."""
    if isinstance(error, KeyboardInterrupt):
        line = "oracle: the command must run to its end; got an interruption. Run it again: a build resumes."
    elif isinstance(error, MemoryError):
        line = "oracle: the data must fit into memory; got more. Use fewer reports, or a machine with more memory."
    elif isinstance(error, OSError):
        line = (
            "oracle: files and folders must be open to this user, with room to write; got "
            f"{error.filename or 'one'} ({error.strerror or type(error).__name__}). Check it and run the command again."
        )
    else:
        line = str(error)
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    print(f"error: {line}", file=sys.stderr)
    raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 2) from None


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"metric-oracle {version('metric-oracle')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    reports: Annotated[int, typer.Option(help="Training reports.")] = 20000,
    tests: Annotated[int, typer.Option(help="Test reports.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the corpus.", min=0)] = 0,
) -> None:
    """Make a synthetic corpus, index it and run every oracle that is installed: the whole tool in a minute."""
    from rich.console import Console

    from metric_oracle.evaluation.demo import run_demo
    from metric_oracle.evaluation.tables import demo_tables

    with _progress("demo") as step:
        outcome = run_demo(reports, tests, seed=seed, progress=step)
    console = Console()
    for table in demo_tables(outcome):
        console.print(table)


@app.command()
def synth(
    out: Annotated[Path, typer.Argument(help="New or empty folder.")],
    reports: Annotated[int, typer.Option(help="Training reports.")] = 185538,
    tests: Annotated[int, typer.Option(help="Test reports.")] = 2192,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.", min=0)] = 0,
) -> None:
    """Write a synthetic corpus of chest X-ray impressions with gold RadGraph graphs and CheXbert labels.

    Example: oracle synth corpus --reports 10000 --tests 200
    """
    from metric_oracle.corpora.synthetic import write_synthetic

    with _bar("reports written", reports + tests) as advance:
        paths = write_synthetic(out, reports, tests, seed=seed, progress=advance)
    for path in paths.values():
        print(path)


@app.command("build-index")
def build_index(
    reports: ReportsArgument,
    out: Annotated[Path, typer.Option(help="New folder for the index.")],
    metrics: Annotated[
        str | None, typer.Option(help="Metrics to build for, comma-separated; default: all that the files allow.")
    ] = None,
    radgraph: Radgraph = None,
    chexbert: Chexbert = None,
    chexbert_ids: ChexbertIds = None,
    chexbert_labels: ChexbertLabels = None,
    uncertain: Uncertain = None,
    encoder: Encoder = None,
    layer: Annotated[
        int | None, typer.Option(help="Layers of the encoder to run; default: 5 of distilroberta-base.", min=0)
    ] = None,
    states: Annotated[
        str | None, typer.Option(help="How token states are stored: float32 or float16; default: float32.")
    ] = None,
    bf16: Annotated[bool, typer.Option("--bf16", help="Run the encoder in bfloat16.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="bert_score's table of baselines of another encoder: scores are rescaled.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where models run: cpu or cuda; default: cuda where there is one.")
    ] = None,
    section: Section = "impression",
    id_column: IdColumn = None,
    text_column: TextColumn = None,
    split: Split = None,
    split_file: SplitFile = None,
    profile: Profile = "yu2023",
) -> None:
    """Index a corpus of reports. A killed build resumes when the same command runs again.

    oracle build-index mimic-cxr-reports.zip --split train+validate --split-file mimic-cxr-2.0.0-split.csv.gz
    --radgraph graphs.json --out INDEX

    oracle build-index train.csv --encoder distilroberta-base --out INDEX
    """
    from metric_oracle import api

    with _progress("building") as step:
        index = api.build_index(
            reports,
            out,
            metrics=None if metrics is None else [name.strip() for name in metrics.split(",")],
            radgraph=radgraph,
            chexbert=chexbert,
            chexbert_ids=chexbert_ids,
            chexbert_labels=chexbert_labels,
            uncertain=uncertain,
            progress=step,
            encoder=encoder,
            layer=layer,
            states=states,
            bf16=bf16,
            baseline=baseline,
            device=device,
            tell=_note,
            advance=partial(step, "encoding"),
            section=section,
            id_column=id_column,
            text_column=text_column,
            split=split,
            split_file=split_file,
            profile=profile,
        )
    _show_info(index)


@app.command()
def retrieve(
    index: IndexArgument,
    queries: Annotated[Path | None, typer.Argument(help="Test reports: a file, as for build-index.")] = None,
    metric: Annotated[
        str, typer.Option(help='Such as bleu, bleu-4, rouge-l, radgraph, "radgraph:rg_er", chexbert.')
    ] = "bleu",
    text: Annotated[str | None, typer.Option(help="One test report, instead of a file.")] = None,
    k: Annotated[int, typer.Option("-k", help="Answers for each test report.")] = 1,
    backend: Annotated[str, typer.Option(help="auto, cpu, cuda or reference.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Worker threads; default: all cores.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write .parquet, .csv or .jsonl, with the signature.")] = None,
    with_text: Annotated[bool, typer.Option("--with-text/--no-text", help="Candidates' text in the results.")] = True,
    idf: Annotated[
        str | None, typer.Option(help="BERTScore's weights of tokens: off, tests, corpus or a table; default: off.")
    ] = None,
    rescale: Annotated[
        bool | None,
        typer.Option("--rescale/--no-rescale", help="BERTScore relative to the baseline; default: where there is one."),
    ] = None,
    radgraph: Radgraph = None,
    chexbert: Chexbert = None,
    chexbert_ids: ChexbertIds = None,
    chexbert_labels: ChexbertLabels = None,
    uncertain: Uncertain = None,
    encoder: Encoder = None,
    section: Section = "impression",
    id_column: IdColumn = None,
    text_column: TextColumn = None,
    split: Split = None,
    split_file: SplitFile = None,
    profile: Profile = "yu2023",
) -> None:
    """Find, for every test report, the k corpus reports that score best.

    A terminal gets a table, a pipe gets JSON Lines, --out gets a file.

    oracle retrieve INDEX test.csv --metric bleu -k 5 --out oracle.parquet

    oracle retrieve INDEX test.csv --metric radgraph --radgraph test_graphs.json

    oracle retrieve INDEX --text "No acute process." --metric rouge-l
    """
    from metric_oracle import api
    from metric_oracle.corpora.reports import read_reports

    if (queries is None) == (text is None):
        got = "neither" if queries is None else "both"
        msg = f"retrieve: give either QUERIES or --text; got {got}. Name a file, or one report in quotes."
        raise InputError(msg)
    reading = {"id-column": id_column, "text-column": text_column, "split": split, "split-file": split_file}
    ignored = [f"--{name}" for name, value in reading.items() if value is not None]
    if text is not None and ignored:
        msg = f"retrieve: options of a file must be left out with --text; got {', '.join(ignored)}. Drop them."
        raise InputError(msg)
    if out is not None:
        from metric_oracle.retrieval.results import check_out

        given_files = (queries, radgraph, chexbert, chexbert_ids, chexbert_labels, split_file)
        check_out(out, [path for path in given_files if path is not None])
    opened = api.open_index(index)
    given: dict[str, Any] = {
        "radgraph": radgraph,
        "chexbert": chexbert,
        "chexbert_ids": chexbert_ids,
        "chexbert_labels": chexbert_labels,
        "uncertain": uncertain,
        "encoder": encoder,
    }
    if queries is None:
        batch = api.load_queries([str(text)], **given)
    else:
        read = read_reports(
            queries, section=section, id_column=id_column, text_column=text_column, split=split,
            split_file=split_file, profile=profile,
        )  # fmt: skip
        dropped = {state: read.counts.get(state, 0) for state in ("missing", "empty", "tokenless")}
        if any(dropped.values()):
            _note("left out: " + ", ".join(f"{n} {state}" for state, n in dropped.items() if n) + f" ({read.source})")
        batch = api.load_queries(read, **given)
    with _bar("test reports", len(batch.ids)) as advance:
        results = api.retrieve(
            opened, batch, metric, k=k, backend=backend, threads=threads, text=with_text, idf=idf, rescale=rescale,
            progress=advance,
        )  # fmt: skip
    if results.signature.get("truncated_queries"):
        _note(f"cut off at the encoder's longest input: {results.signature['truncated_queries']} test reports")
    if out is not None:
        results.write(out)
        _note(f"{out}: {results.table.num_rows:,} answers")
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.evaluation.tables import answers_table

        Console().print(answers_table(results))
    else:
        for line in results.json_lines():
            print(line)


@app.command()
def verify(
    index: IndexArgument,
    results: Annotated[Path, typer.Argument(help="File that retrieve --out wrote.")],
    queries: Annotated[Path, typer.Argument(help="The test reports that it answers.")],
    sample: Annotated[int, typer.Option(help="Queries to search by brute force.", min=0)] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the sample.", min=0)] = 0,
    radgraph: Radgraph = None,
    chexbert: Chexbert = None,
    chexbert_ids: ChexbertIds = None,
    chexbert_labels: ChexbertLabels = None,
    uncertain: Uncertain = None,
    encoder: Encoder = None,
    section: Section = "impression",
    id_column: IdColumn = None,
    text_column: TextColumn = None,
    split: Split = None,
    split_file: SplitFile = None,
    profile: Profile = "yu2023",
) -> None:
    """Score a result file again with the reference scorer, and search a sample of its queries by brute force.

    Example: oracle verify INDEX oracle.parquet test.csv --sample 50
    """
    from metric_oracle import api

    opened = api.open_index(index)
    opened.verify_files()
    checked = api.verify(
        opened, results, queries, sample=sample, seed=seed, radgraph=radgraph, chexbert=chexbert,
        chexbert_ids=chexbert_ids, chexbert_labels=chexbert_labels, uncertain=uncertain, section=section,
        id_column=id_column, text_column=text_column, split=split, split_file=split_file, profile=profile,
        encoder=encoder,
    )  # fmt: skip
    print(f"right: {checked['pairs']:,} pairs scored again, {checked['queries']:,} queries searched by brute force")


@app.command()
def bench(
    index: Annotated[
        Path | None, typer.Argument(help="Folder that build-index made; default: a synthetic one.")
    ] = None,
    queries: Annotated[Path | None, typer.Argument(help="Test reports: a file, as for build-index.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Metrics, comma-separated; default: the main ones.")] = None,
    backends: Annotated[str, typer.Option(help="cpu, cuda or both, comma-separated.")] = "cpu,cuda",
    reports: Annotated[int | None, typer.Option(help="Reports of the synthetic corpus; default: 20000.")] = None,
    tests: Annotated[int | None, typer.Option(help="Test reports of the synthetic corpus; default: 500.")] = None,
    repetitions: Annotated[int, typer.Option(help="Of each timing.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the rows to a .jsonl file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a .png, .svg or .pdf file.")] = None,
    radgraph: Radgraph = None,
    chexbert: Chexbert = None,
    chexbert_ids: ChexbertIds = None,
    chexbert_labels: ChexbertLabels = None,
    uncertain: Uncertain = None,
    encoder: Encoder = None,
    section: Annotated[str | None, typer.Option(help="Which text is the report: impression or findings.")] = None,
    id_column: IdColumn = None,
    text_column: TextColumn = None,
    split: Split = None,
    split_file: SplitFile = None,
    profile: Annotated[str | None, typer.Option(help="Section rule for MIMIC-CXR report files.")] = None,
) -> None:
    """Time the oracles on this machine, CPU beside GPU, after comparing their answers with the reference's.

    A terminal gets tables, a pipe gets JSON Lines, --out gets a file.

    oracle bench --plot bench.png

    oracle bench --reports 185538 --tests 2192 --out rows.jsonl

    oracle bench INDEX test.csv --metrics bleu,radgraph --radgraph test_graphs.json
    """
    from metric_oracle.evaluation import bench as timings

    if out is not None:
        timings.check_file(out, "out", (".jsonl",))
    if plot is not None:
        timings.check_file(plot, "plot", timings.PLOT_ENDINGS)
        timings.new_figure(1, 1)  # says now whether matplotlib is there
    given = {
        "radgraph": radgraph, "chexbert": chexbert, "chexbert_ids": chexbert_ids, "chexbert_labels": chexbert_labels,
        "uncertain": uncertain, "encoder": encoder, "section": section, "id_column": id_column,
        "text_column": text_column, "split": split, "split_file": split_file, "profile": profile,
    }  # fmt: skip
    with _progress("bench") as step:
        rows = timings.run_bench(
            index,
            queries,
            metrics=None if metrics is None else [name.strip() for name in metrics.split(",")],
            backends=[name.strip() for name in backends.split(",")],
            reports=reports,
            tests=tests,
            repetitions=repetitions,
            progress=step,
            **{name: value for name, value in given.items() if value is not None},
        )
    if out is not None:
        timings.write_rows(out, rows)
    if plot is not None:
        timings.write_plot(plot, rows)
    if sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.evaluation.tables import bench_tables

        console = Console()
        for table in bench_tables(rows):
            console.print(table)
    elif out is None:
        for line in timings.json_lines(rows):
            print(line)


@app.command()
def info(
    index: IndexArgument,
    check: Annotated[bool, typer.Option("--check", help="Read every file and compare its checksum.")] = False,
) -> None:
    """Show what an index holds: reports, representations, metrics, files, fingerprint."""
    from metric_oracle import api

    opened = api.open_index(index)
    if check:
        opened.verify_files()
    _show_info(opened)


def _show_info(index: Any) -> None:
    if sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.evaluation.tables import info_table

        Console().print(info_table(index))
    else:
        import json

        print(json.dumps({"folder": str(index.folder), **index.manifest, "metrics": index.metrics}))


def _note(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def _progress(task: str):
    """Name the step under way on stderr, on a terminal; yield `step(name, done, total)`, both None where not known."""
    if not sys.stderr.isatty():
        yield lambda step, done=None, total=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        under_way = progress.add_task(task, total=None)

        def step(name, done=None, total=None):
            progress.update(under_way, description=f"{task}: {name}", completed=done or 0, total=total)

        yield step


@contextmanager
def _bar(what: str, total: int):
    """Show a progress bar on stderr, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda n: progress.advance(task, n)
