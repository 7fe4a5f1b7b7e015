"""The command line: parse, call the API, print. No arithmetic here, and nothing heavy imported before it is needed."""

import inspect
import io
import os
import sys
from collections.abc import Callable
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

baselines = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Score what needs no oracle: chance, the most frequent report, a perfect prediction, the nearest image.",
)
app.add_typer(baselines, name="baseline")

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
MaxMemory = Annotated[float | None, typer.Option(help="GB of memory to stay under; default: no limit.")]
Idf = Annotated[
    str | None, typer.Option(help="BERTScore's weights of tokens: off, tests, corpus or a table; default: off.")
]
Rescale = Annotated[
    bool | None,
    typer.Option("--rescale/--no-rescale", help="BERTScore relative to the baseline; default: where there is one."),
]
MetricOption = Annotated[str, typer.Option(help='Such as bleu, rouge-l, radgraph, "radgraph:rg_er", chexbert, crg.')]
Out = Annotated[Path | None, typer.Option(help="Write .parquet, .csv or .jsonl, with the signature.")]
WithText = Annotated[bool, typer.Option("--with-text/--no-text", help="Candidates' text in the results.")]
Profile = Annotated[str, typer.Option(help="Section rule for MIMIC-CXR report files: yu2023 or mit.")]
RatingsArgument = Annotated[
    Path,
    typer.Argument(help="Counted errors: ReXVal's file, GREEN's table of it, or one row a pair, rater and category."),
]
SheetOut = Annotated[
    Path | None,
    typer.Option("--out", help="Write tables (.md, .tex) or all numbers (.csv, .parquet, .jsonl), with the signature."),
]
PlotOut = Annotated[Path | None, typer.Option("--plot", help="Draw a picture: .png, .svg or .pdf.")]


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
    from metric_oracle.presentation.terminal import demo_tables

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
    models: Annotated[bool, typer.Option("--models", help="Also what three made-up models generate.")] = False,
) -> None:
    """Write a synthetic corpus of chest X-ray impressions with gold RadGraph graphs and CheXbert labels.

    Example: oracle synth corpus --reports 10000 --tests 200
    """
    from metric_oracle.corpora.synthetic import MODELS, write_synthetic

    with _bar("reports written", reports + tests * (1 + len(MODELS) * models)) as advance:
        paths = write_synthetic(out, reports, tests, seed=seed, models=models, progress=advance)
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
    max_memory: MaxMemory = None,
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
            max_memory=max_memory,
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
    metric: MetricOption = "bleu",
    text: Annotated[str | None, typer.Option(help="One test report, instead of a file.")] = None,
    k: Annotated[int, typer.Option("-k", help="Answers for each test report.")] = 1,
    backend: Annotated[str, typer.Option(help="auto, cpu, cuda or reference.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="Worker threads; default: all cores.")] = None,
    out: Out = None,
    with_text: WithText = True,
    idf: Idf = None,
    rescale: Rescale = None,
    max_memory: MaxMemory = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of --metric composite, which fit-composite wrote.")
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

        given_files = (queries, radgraph, chexbert, chexbert_ids, chexbert_labels, split_file, weights)
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
        _note_dropped(read)
        batch = api.load_queries(read, **given)
    with _bar("test reports", len(batch.ids)) as advance:
        results = api.retrieve(
            opened, batch, metric, k=k, backend=backend, threads=threads, text=with_text, idf=idf, rescale=rescale,
            progress=advance, max_memory=max_memory, weights=weights,
        )  # fmt: skip
    if results.signature.get("truncated_queries"):
        _note(f"cut off at the encoder's longest input: {results.signature['truncated_queries']} test reports")
    if out is not None:
        results.write(out)
        _note(f"{out}: {results.table.num_rows:,} answers")
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.terminal import answers_table

        Console().print(answers_table(results, dict(zip(batch.ids, batch.texts, strict=True))))
    else:
        for line in results.json_lines():
            print(line)


def _asked(
    index: IndexArgument,
    queries: Annotated[Path, typer.Argument(help="Test reports: a file, as for build-index.")],
    metric: MetricOption = "bleu",
    idf: Idf = None,
    rescale: Rescale = None,
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
) -> dict[str, Any]:
    """Open the index and read the test reports; return what the functions of all baselines take."""
    from metric_oracle import api
    from metric_oracle.corpora.reports import read_reports

    opened = api.open_index(index)
    read = read_reports(
        queries, section=section, id_column=id_column, text_column=text_column, split=split, split_file=split_file,
        profile=profile,
    )  # fmt: skip
    _note_dropped(read)
    batch = api.load_queries(
        read, radgraph=radgraph, chexbert=chexbert, chexbert_ids=chexbert_ids, chexbert_labels=chexbert_labels,
        uncertain=uncertain, encoder=encoder,
    )  # fmt: skip
    return {"index": opened, "queries": batch, "metric": metric, "idf": idf, "rescale": rescale}


def _baseline_command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that takes the arguments of :func:`_asked` besides its own, and --out.

    The command is called with what `_asked` returns, once --out and --plot are known to be safe to write.
    """

    def register(command: Callable[..., None]) -> Callable[..., None]:
        shared = inspect.signature(_asked).parameters
        own = list(inspect.signature(command).parameters.values())[1:]

        def run(**given: Any) -> None:
            from metric_oracle.retrieval.results import check_out

            out, plot = given["out"], given.get("plot")
            read = {key: value for key, value in given.items() if key not in ("index", "out", "plot")}
            inputs = [value for value in read.values() if isinstance(value, Path)]
            if out is not None:
                check_out(out, inputs)
            if plot is not None:
                from metric_oracle.presentation.matplotlib_io import check_plot

                check_plot(plot, "baseline", inputs)
            asked = _asked(**{key: given.pop(key) for key in shared})
            command(asked, **given)

        first, rest = list(shared.values())[:3], list(shared.values())[3:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*first, *own, *rest)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__ = command.__doc__
        return baselines.command(name)(run)

    return register


def _show_results(results: Any, out: Path | None, view: str) -> None:
    """Write results to a file, or show the table of that name on a terminal, or print JSON Lines."""
    if out is not None:
        results.write(out)
        _note(f"{out}: {results.table.num_rows:,} lines")
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation import terminal as tables

        Console().print(getattr(tables, view)(results))
    else:
        for line in results.json_lines():
            print(line)


@_baseline_command("random")
def baseline_random(
    asked: dict[str, Any],
    draws: Annotated[int, typer.Option(help="Random reports for each test report.")] = 10,
    seed: Annotated[int, typer.Option(help="Same seed, same reports, for all metrics.")] = 0,
    out: Out = None,
    with_text: WithText = True,
) -> None:
    """Score random reports of the corpus, each row as likely as any other.

    Example: oracle baseline random INDEX test.csv --metric bleu --draws 10 --seed 0
    """
    from metric_oracle import api

    results = api.baseline(kind="random", draws=draws, seed=seed, text=with_text, **asked)
    _show_results(results, out, "answers_table")


@_baseline_command("most-frequent")
def baseline_most_frequent(asked: dict[str, Any], out: Out = None, with_text: WithText = True) -> None:
    """Score the most frequent report of the corpus."""
    from metric_oracle import api

    _show_results(api.baseline(kind="most-frequent", text=with_text, **asked), out, "answers_table")


@_baseline_command("identity")
def baseline_identity(asked: dict[str, Any], out: Out = None, with_text: WithText = True) -> None:
    """Score each test report with itself: what a perfect prediction gets."""
    from metric_oracle import api

    _show_results(api.baseline(kind="identity", text=with_text, **asked), out, "answers_table")


@_baseline_command("nearest")
def baseline_nearest(
    asked: dict[str, Any],
    corpus_vectors: Annotated[Path, typer.Option(help="Image embeddings of the corpus: .npy, .npz, .parquet or .pt.")],
    query_vectors: Annotated[Path, typer.Option(help="Image embeddings of the test reports.")],
    corpus_vector_ids: Annotated[Path | None, typer.Option(help="Their ids, where the file has none.")] = None,
    query_vector_ids: Annotated[Path | None, typer.Option(help="Their ids, where the file has none.")] = None,
    out: Out = None,
    with_text: WithText = True,
) -> None:
    """Score the report of the nearest image, by the cosine of image embeddings, as CXR-RePaiR retrieves."""
    from metric_oracle import api

    results = api.baseline(
        kind="nearest", corpus_vectors=corpus_vectors, query_vectors=query_vectors, text=with_text,
        corpus_vector_ids=corpus_vector_ids, query_vector_ids=query_vector_ids, **asked,
    )  # fmt: skip
    _show_results(results, out, "answers_table")


@_baseline_command("expectation")
def baseline_expectation(
    asked: dict[str, Any],
    out: Out = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the histogram of all pairs: .png or .svg.")] = None,
) -> None:
    """Describe the scores of each test report with all reports of the corpus: exact mean, deviation, quantiles.

    Example: oracle baseline expectation INDEX test.csv --metric bleu --plot bleu.png
    """
    from metric_oracle import api

    with _bar("test reports", len(asked["queries"].ids)) as advance:
        found = api.expectation(**asked, progress=advance)
    if plot is not None:
        from metric_oracle.presentation.expectation_plot import plot_histogram

        plot_histogram(found, plot)
        _note(f"{plot}: {found.counts.sum():,} pairs")
    _show_results(found, out, "expectation_table")


@app.command()
def score(
    references: ReportsArgument,
    predictions: Annotated[
        Path,
        typer.Argument(
            help="A model's reports: CSV, TSV, Parquet, JSON, JSON Lines or text, as R2Gen, CvT2DistilGPT2, M2 Trans, "
            "CXR-RePaiR, CXR-ReDonE and ReXrank write them, or any table with ids and reports."
        ),
    ],
    metrics: Annotated[
        str | None, typer.Option(help="Metrics, comma-separated; default: the usual ones that the files allow.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="Name of the model; default: that of its file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write .parquet, .csv or .jsonl, with the signature.")] = None,
    published_names: Annotated[
        bool, typer.Option("--published-names", help="Columns of the CSV as in CXR-Report-Metric's report_scores.csv.")
    ] = False,
    with_text: Annotated[bool, typer.Option("--with-text", help="Both reports in the results.")] = False,
    inner: Annotated[
        bool, typer.Option("--inner", help="Score the ids that have both reports; default: others are an error.")
    ] = False,
    encoder: Encoder = None,
    layer: Annotated[
        int | None, typer.Option(help="Layers of the encoder to run; default: 5 of distilroberta-base.", min=0)
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="bert_score's table of baselines of another encoder: scores are rescaled.")
    ] = None,
    idf: Annotated[
        str | None,
        typer.Option(
            help="BERTScore's weights of tokens: off, tests (the references), corpus (the predictions) or a table; "
            "default: off."
        ),
    ] = None,
    rescale: Annotated[
        bool | None,
        typer.Option("--rescale/--no-rescale", help="BERTScore relative to the baseline; default: where there is one."),
    ] = None,
    radgraph: Annotated[
        Path | None,
        typer.Option(help="RadGraph JSON of the references, or a model archive (.tar.gz) that annotates both sides."),
    ] = None,
    predicted_radgraph: Annotated[Path | None, typer.Option(help="RadGraph JSON of the predictions.")] = None,
    chexbert: Annotated[
        Path | None, typer.Option(help="CheXbert embeddings of the references; or chexbert.pth, which encodes both.")
    ] = None,
    predicted_chexbert: Annotated[Path | None, typer.Option(help="CheXbert embeddings of the predictions.")] = None,
    chexbert_ids: ChexbertIds = None,
    predicted_chexbert_ids: ChexbertIds = None,
    chexbert_labels: Annotated[Path | None, typer.Option(help="CheXbert labels of the references (CSV).")] = None,
    predicted_chexbert_labels: Annotated[
        Path | None, typer.Option(help="CheXbert labels of the predictions (CSV).")
    ] = None,
    uncertain: Uncertain = None,
    ids: Annotated[
        Path | None,
        typer.Option(
            help="Ids of predictions that have only an order: R2Gen's annotation.json, CXR-RePaiR's reports.csv, ..."
        ),
    ] = None,
    metadata: Annotated[
        Path | None,
        typer.Option(help="mimic-cxr-2.0.0-metadata.csv.gz: of a study's images, one with AP or PA view is taken."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice among such images.", min=0)] = 0,
    after_impression: Annotated[
        bool, typer.Option("--after-impression", help='Score what follows "Impression:" in each prediction.')
    ] = False,
    predicted_id_column: IdColumn = None,
    predicted_text_column: TextColumn = None,
    section: Section = "impression",
    id_column: IdColumn = None,
    text_column: TextColumn = None,
    split: Split = None,
    split_file: SplitFile = None,
    profile: Profile = "yu2023",
) -> None:
    """Score a model's reports against the radiologists', joined on ids: what CXR-Report-Metric does, and more metrics.

    A terminal gets the means, a pipe gets JSON Lines, --out gets a file. Id, text and layout follow from the headers.

    From two CSV files (study_id, report) to RadCliQ, with models:

    oracle score test.csv generated.csv --encoder distilroberta-base --radgraph radgraph.tar.gz --chexbert chexbert.pth
    --out report_scores.csv --published-names

    The same from what is already there:

    oracle score test.csv generated.csv --encoder distilroberta-base --radgraph test_graphs.json
    --predicted-radgraph generated_graphs.json --chexbert test.npz --predicted-chexbert generated.npz

    BLEU and ROUGE-L need nothing but the reports:

    oracle score test.csv generated.csv

    R2Gen; and a report for each image, of which the paper's rule takes one a study:

    oracle score annotation.json res.csv --split test --ids annotation.json

    oracle score mimic_cxr_sectioned.csv test_reports.csv --metadata mimic-cxr-2.0.0-metadata.csv.gz --inner
    """
    from metric_oracle import api

    if published_names and out is None:
        msg = "score: published_names must be given with out; got none. Add --out FILE.csv."
        raise InputError(msg)
    if out is not None:
        from metric_oracle.retrieval.results import ENDINGS, check_out

        inputs = (
            references, predictions, radgraph, predicted_radgraph, chexbert, predicted_chexbert, chexbert_ids,
            predicted_chexbert_ids, chexbert_labels, predicted_chexbert_labels, ids, metadata, split_file, baseline,
        )  # fmt: skip
        endings = (".csv",) if published_names else ENDINGS
        check_out(out, [path for path in inputs if path is not None], function="score", endings=endings)
    with _progress("scoring") as step:
        scores = api.score(
            references, predictions, None if metrics is None else [name.strip() for name in metrics.split(",")],
            system=system, inner=inner, radgraph=radgraph, predicted_radgraph=predicted_radgraph, chexbert=chexbert,
            predicted_chexbert=predicted_chexbert, chexbert_ids=chexbert_ids,
            predicted_chexbert_ids=predicted_chexbert_ids, chexbert_labels=chexbert_labels,
            predicted_chexbert_labels=predicted_chexbert_labels, uncertain=uncertain, encoder=encoder, layer=layer,
            baseline=baseline, idf=idf, rescale=rescale, text=with_text or published_names,
            reading={
                "section": section, "id_column": id_column, "text_column": text_column, "split": split,
                "split_file": split_file, "profile": profile,
            },
            tell=_note, advance=partial(step, "models"), progress=step, ids=ids, metadata=metadata, seed=seed,
            after_impression=after_impression, id_column=predicted_id_column, text_column=predicted_text_column,
        )  # fmt: skip
    if out is not None:
        scores.write(out, published_names=published_names)
        _note(f"{out}: {scores.table.num_rows:,} pairs")
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.terminal import scores_table

        Console().print(scores_table(scores))
    else:
        for line in scores.json_lines():
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
def table(
    systems: Annotated[list[str], typer.Argument(metavar="NAME=FILE...", help="Rows: a name and the file of scores.")],
    random: Annotated[
        str | None, typer.Option(help="Row of random retrieval: adds percentage changes from it.")
    ] = None,
    oracle: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=NAME", help="Row of a metric's oracle: adds the share of the way; repeatable."),
    ] = None,
    paired: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Two rows to test on the same studies; repeatable.")
    ] = None,
    interval: Annotated[str, typer.Option(help="bca, percentile or legacy-yu2023.")] = "bca",
    resamples: Annotated[int | None, typer.Option(help="Of the bootstrap and the test; default: 10000.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the resamples.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="Write .md, .tex (booktabs), .csv or .jsonl.")] = None,
    output: Annotated[
        str | None,
        typer.Option("--format", help="Stdout: table, md, tex or jsonl; default: table on a terminal, else jsonl."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the means and changes: .png, .pdf or .svg.")] = None,
) -> None:
    """Put the scores of several systems into one table: means, 95 % intervals, ranges, as in Yu et al.

    A mean is over the studies that every system can score. Tables need equal signatures and the same studies. Files of
    score, retrieve and baseline are rows; a name that comes twice joins files of different metrics.

    oracle table R2Gen=r2gen.parquet WCL=wcl.parquet --out table.md

    oracle table "BLEU oracle=bleu.csv" R2Gen=r2gen.csv random=random.csv --random random --oracle "bleu=BLEU oracle"
    --paired R2Gen,random --out table.tex --plot table.png
    """
    from metric_oracle.evaluation.comparison import compare
    from metric_oracle.presentation.comparison_layout import ENDINGS, RENDER, write
    from metric_oracle.retrieval.results import check_out

    files: dict[str, list[str]] = {}
    for name, file in _named(systems, "systems", "NAME=FILE", "=", repeatable=True):
        files.setdefault(name, []).append(file)
    if output is not None and (out is not None or output not in ("table", "md", "tex", "jsonl")):
        got = f"{output} with --out, whose ending says it" if out is not None else repr(output)
        msg = f"table: format must be one of table, md, tex, jsonl, for stdout; got {got}. Use --format or --out."
        raise InputError(msg)
    inputs = [Path(file) for some in files.values() for file in some]
    if out is not None:
        check_out(out, inputs, function="table", endings=ENDINGS)
    if plot is not None:
        from metric_oracle.presentation.comparison_plot import write_plot
        from metric_oracle.presentation.matplotlib_io import check_plot

        check_plot(plot, "table", inputs)
    with _progress("table") as step:
        compared = compare(
            files,
            random=random,
            oracles=dict(_named(oracle or [], "oracle", "METRIC=NAME", "=")),
            paired=_named(paired or [], "paired", "A,B", ",", repeatable=True),
            method=interval,
            resamples=resamples,
            seed=seed,
            progress=step,
        )
    if plot is not None:
        write_plot(compared, plot)
        _note(f"{plot}: {len(compared.columns)} metrics")
    if out is not None:
        write(compared, out)
        _note(f"{out}: {len(compared.systems)} systems, {len(compared.columns)} metrics")
    elif output == "table" or (output is None and sys.stdout.isatty()):
        from rich.console import Console

        from metric_oracle.presentation.comparison_layout import layout

        console = Console()
        for part in layout(compared):
            console.print(part)
    else:
        print(RENDER[output or "jsonl"](compared), end="")


@app.command()
def study(
    index: IndexArgument,
    queries: Annotated[Path, typer.Argument(help="Test reports: a file, as for build-index.")],
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="What a model wrote about the tests; repeatable."),
    ] = None,
    model_radgraph: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="RadGraph JSON of a model's reports; repeatable.")
    ] = None,
    model_chexbert: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="CheXbert embeddings of them; repeatable.")
    ] = None,
    model_chexbert_ids: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="Ids of embeddings that carry none; repeatable.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Metrics, comma-separated; default: one of each kind that the index holds.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder for the scores of each row and the table: .md, .tex, .csv, .png.")
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
    """Run a whole study: every oracle, random retrieval (exact), the most frequent report and models, in one table.

    Each row is scored under every metric. With BERTScore at full size, random retrieval takes more than half an hour.

    oracle study INDEX test.csv --radgraph test_graphs.json --model R2Gen=r2gen.csv --model-radgraph R2Gen=r2gen.json
    --out study
    """
    from metric_oracle import api
    from metric_oracle.corpora.reports import read_reports
    from metric_oracle.evaluation import study as studies

    if out is not None:
        studies.check_folder(out)
    files: dict[str, dict[str, Path]] = {}
    given = {"radgraph": model_radgraph, "chexbert": model_chexbert, "chexbert_ids": model_chexbert_ids}
    written = dict(_named(model or [], "model", "NAME=FILE", "=", function="study"))
    for option, values in given.items():
        for name, path in _named(values or [], f"model_{option}", "NAME=FILE", "=", function="study"):
            if name not in written:
                msg = f"study: model_{option} must name a model; got {name!r}, which has no --model. Add it."
                raise InputError(msg)
            files.setdefault(name, {})[option] = Path(path)
    models = {name: studies.Model(Path(path), files.get(name, {})) for name, path in written.items()}
    read = read_reports(
        queries, section=section, id_column=id_column, text_column=text_column, split=split, split_file=split_file,
        profile=profile,
    )  # fmt: skip
    _note_dropped(read)
    batch = api.load_queries(
        read, radgraph=radgraph, chexbert=chexbert, chexbert_ids=chexbert_ids, chexbert_labels=chexbert_labels,
        uncertain=uncertain, encoder=encoder,
    )  # fmt: skip
    with _progress("study") as step:
        chosen = None if metrics is None else tuple(name.strip() for name in metrics.split(","))
        systems = studies.run_study(api.open_index(index), batch, models, metrics=chosen, progress=step)
        compared = studies.compare_study(systems, step)
    if out is not None:
        from metric_oracle.presentation.study_folder import write_study

        write_study(systems, compared, out)
        _note(f"{out}: {len(systems)} systems, {len(compared.columns)} metrics")
    if sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.comparison_layout import layout

        console = Console()
        for part in layout(compared):
            console.print(part)
    elif out is None:
        from metric_oracle.presentation.comparison_layout import RENDER

        print(RENDER["jsonl"](compared), end="")


def _named(
    given: list[str], argument: str, form: str, mark: str, *, repeatable: bool = False, function: str = "table"
) -> list[tuple[str, str]]:
    """Split arguments such as NAME=FILE at the first mark; a name may come once unless it is repeatable."""
    pairs: list[tuple[str, str]] = []
    for text in given:
        name, found, value = text.partition(mark)
        if not (name and found and value):
            msg = (
                f"{function}: {argument} must be {form}; got {text!r}. "
                "Put both sides, in quotes where there are blanks."
            )
            raise InputError(msg)
        if not repeatable and name in dict(pairs):
            msg = f"{function}: {argument} must have each name once; got {name!r} twice. Give one of them another name."
            raise InputError(msg)
        pairs.append((name, value))
    return pairs


@app.command()
def align(
    ratings: RatingsArgument,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="Scores of any tool: one row a pair, one column a metric. May be repeated; default: the texts of "
            "--samples are scored."
        ),
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Texts of the pairs, such as ReXVal's 50_samples_gt_and_candidates.csv.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Column to use; default: all that hold numbers. May be repeated.")
    ] = None,
    direction: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=higher|lower", help="What is better in a column whose name does not say it. May be repeated."
        ),
    ] = None,
    paired: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="Two metrics whose agreement is compared; default: all pairs. Repeatable."),
    ] = None,
    without_identical: Annotated[
        bool, typer.Option("--without-identical", help="Leave out pairs of equal texts (ReXVal*); needs --samples.")
    ] = False,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap over studies.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.", min=0)] = 0,
    out: SheetOut = None,
    plot: PlotOut = None,
) -> None:
    """Measure how well metrics agree with radiologists: tau-b and Spearman by rater and on their mean.

    A terminal gets tables, a pipe gets JSON Lines, --out gets a file.
    The scores name their pairs by pair_id, or by study_id (or study_number) and candidate_type.

    oracle align 6_valid_raters_per_rater_error_categories.csv --scores scores.csv

    oracle align RATINGS --scores ours.csv --scores other.csv --direction other=lower --plot scatter.png

    oracle align RATINGS --samples 50_samples_gt_and_candidates.csv --metric bleu --metric rouge-l

    oracle align RATINGS --scores scores.csv --samples 50_samples_gt_and_candidates.csv --without-identical
    """
    from metric_oracle.evaluation.alignment import align
    from metric_oracle.presentation.ratings_layout import alignment_tables
    from metric_oracle.presentation.ratings_plots import plot_alignment

    inputs = [ratings, *(scores or []), *([samples] if samples else [])]
    _check_outputs("align", inputs, out, plot)
    found = align(
        ratings, scores or (), samples=samples, metrics=metric,
        directions=dict(_named(direction or [], "direction", "NAME=higher|lower", "=", function="align")),
        paired=None if paired is None else _named(paired, "paired", "A,B", ",", repeatable=True, function="align"),
        without_identical=without_identical, resamples=resamples, seed=seed,
    )  # fmt: skip
    if plot is not None:
        plot_alignment(found, plot)
        _note(f"{plot}: errors against scores of {len(found.scores)} metrics")
    tables = alignment_tables(found)
    _hand_over("align", tables, tables, found.numbers, found.signature, out)


@app.command("failure-modes")
def failure_modes(
    ratings: RatingsArgument,
    category: Annotated[
        list[str] | None, typer.Option(help="Error category to test, such as 1; default: all. May be repeated.")
    ] = None,
    direction: Annotated[
        str, typer.Option(help='How a test is written: more ("A > B") or less ("A < B"); they are the same tests.')
    ] = "more",
    rate: Annotated[float, typer.Option(help="False discovery rate within a category and kind of errors.")] = 0.01,
    out: SheetOut = None,
    plot: PlotOut = None,
) -> None:
    """Compare the errors that radiologists found in the reports of several metric-oracles, by error category.

    A terminal gets the means and the significant differences (with --category: every test), a pipe gets every test
    as JSON Lines, --out gets a file.

    oracle failure-modes 6_valid_raters_per_rater_error_categories.csv

    oracle failure-modes RATINGS --category 3 --direction less --rate 0.01

    oracle failure-modes RATINGS --out tables.md --plot errors.png
    """
    from metric_oracle.evaluation.failure_modes import failure_modes
    from metric_oracle.presentation.ratings_layout import failure_mode_tables, found_table, mean_tables
    from metric_oracle.presentation.ratings_plots import plot_failure_modes

    _check_outputs("failure_modes", [ratings], out, plot)
    found = failure_modes(ratings, categories=category, direction=direction, rate=rate)
    if plot is not None:
        plot_failure_modes(found, plot)
        _note(f"{plot}: mean errors of {len(found.candidates)} candidate types")
    every = failure_mode_tables(found)
    shown = every if category else [*mean_tables(found), found_table(found)]
    _hand_over("failure_modes", shown, every, found.tests, found.signature, out)


def _check_outputs(function: str, inputs: list[Path], out: Path | None, plot: Path | None) -> None:
    from metric_oracle.presentation.matplotlib_io import check_plot
    from metric_oracle.presentation.paper_table import ENDINGS
    from metric_oracle.retrieval.results import check_out

    if out is not None:
        check_out(out, inputs, function=function, endings=ENDINGS)
    if plot is not None:
        check_plot(plot, function, inputs)


def _hand_over(function: str, shown: Any, sheets: Any, table: Any, signature: dict[str, Any], out: Path | None) -> None:
    """Give tables to a file, a terminal or a pipe."""
    if out is not None:
        from metric_oracle.presentation.paper_table import write_tables

        write_tables(out, sheets, table, signature, function)
        _note(
            f"{out}: {len(sheets)} tables"
            if out.suffix.lower() in (".md", ".tex")
            else f"{out}: {table.num_rows:,} rows"
        )
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.paper_table import sources_line
        from metric_oracle.presentation.short_signature import short_signature

        console = Console()
        for sheet in shown:
            console.print(sheet)
        console.print(f"signature: {short_signature(signature)}", style="dim", markup=False, soft_wrap=True)
        _note(sources_line(signature))
    else:
        from metric_oracle.retrieval.results import Results

        for line in Results(table, signature).json_lines():
            print(line)


@app.command()
def crg(
    reference_labels: Annotated[Path, typer.Argument(help="Labels of the references: an id and a column a label.")],
    predicted_labels: Annotated[Path, typer.Argument(help="Labels of the predicted reports, joined on the ids.")],
    uncertain: Uncertain = None,
    level: Annotated[
        list[str] | None,
        typer.Option(help='A set of labels, "NAME=COLUMN,COLUMN"; given more than once, the score is their mean.'),
    ] = None,
    id_column: IdColumn = None,
    out: Annotated[Path | None, typer.Option(help="Write .parquet, .csv or .jsonl, with the signature.")] = None,
) -> None:
    """Score predicted labels by CRG (Hamamci et al. 2025), of CheXbert or any other names.

    Example: oracle crg test_labels.csv predicted_labels.csv --uncertain positive
    """
    from metric_oracle.evaluation.crg import parse_levels, score_crg
    from metric_oracle.retrieval.results import Results, check_out

    if out is not None:
        check_out(out, [reference_labels, predicted_labels], function="crg")
    levels = parse_levels(level) if level else None
    scored = score_crg(reference_labels, predicted_labels, uncertain=uncertain, levels=levels, id_column=id_column)
    if scored.unused:
        _note(f"predictions without a reference, not used: {scored.unused:,}")
    results = Results(scored.table, scored.signature)
    if out is not None:
        results.write(out, function="crg")
        _note(f"{out}: CRG {scored.score:.4f}, {scored.reports:,} reports")
    elif sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.terminal import crg_table

        Console().print(crg_table(scored))
    else:
        for line in results.json_lines():
            print(line)


@app.command("fit-composite")
def fit_composite(
    table: Annotated[
        Path,
        typer.Argument(
            help="Scored pairs: a column a metric, the errors and the study of each; with --scores or --samples, the "
            "counted errors, as for align."
        ),
    ],
    scores: Annotated[
        list[Path] | None, typer.Option(help="Scores of the rated pairs, as for align. May be repeated.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Texts of the rated pairs, such as ReXVal's 50_samples_gt_and_candidates.csv.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Columns to fit, comma-separated; default: all that are called as a metric.")
    ] = None,
    errors: Annotated[
        str, typer.Option(help="Column with the number of errors; of counted errors: total or significant.")
    ] = "errors",
    study: Annotated[str, typer.Option(help="Column with the study of each pair.")] = "study_id",
    name: Annotated[str | None, typer.Option(help="Name of the composite; default: that of the table.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the weights (.json) for retrieve --weights.")] = None,
) -> None:
    """Fit a composite that predicts the number of errors, as RadCliQ does; retrieve searches under it.

    oracle fit-composite scores.csv --metrics radgraph,bertscore,chexbert,bleu --out weights.json

    oracle retrieve INDEX test.csv --metric composite --weights weights.json
    """
    from metric_oracle.evaluation.fit_composite import fit_composite as fit
    from metric_oracle.retrieval.results import check_out

    if out is not None:
        inputs = [table, *(scores or []), *([samples] if samples else [])]
        check_out(out, inputs, function="fit_composite", endings=(".json",))
    fitted = fit(
        table,
        scores or (),
        samples=samples,
        metrics=None if metrics is None else [metric.strip() for metric in metrics.split(",")],
        errors=errors,
        study=study,
        name=name,
    )
    if out is not None:
        fitted.write(out)
        _note(f"{out}: {len(fitted.content['terms'])} metrics")
    if sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.terminal import composite_table

        Console().print(composite_table(fitted))
    elif out is None:
        import json

        print(json.dumps(fitted.content, indent=2))


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
    from metric_oracle.presentation.matplotlib_io import check_plot
    from metric_oracle.retrieval.results import check_out

    if out is not None:
        check_out(out, function="bench", endings=(".jsonl",))
    if plot is not None:
        check_plot(plot, "bench")
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
        from metric_oracle.presentation.bench_plot import write_plot

        write_plot(plot, rows)
    if sys.stdout.isatty():
        from rich.console import Console

        from metric_oracle.presentation.terminal import bench_tables

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

        from metric_oracle.presentation.terminal import info_table

        Console().print(info_table(index))
    else:
        import json

        print(json.dumps({"folder": str(index.folder), **index.manifest, "metrics": index.metrics}))


def _note_dropped(read: Any) -> None:
    """Say how many reports of a file were left out, and why."""
    dropped = {state: read.counts.get(state, 0) for state in ("missing", "empty", "tokenless")}
    if any(dropped.values()):
        _note("left out: " + ", ".join(f"{n} {state}" for state, n in dropped.items() if n) + f" ({read.source})")


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
