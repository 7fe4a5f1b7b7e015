"""Every option of the command line, once, with its panel and choices; and what makes a command of a function.

A command is a plain function. A dataclass among its parameters stands for the options of its fields, so that options
which belong together are asked for, and handed on, together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metric_oracle.choices import (
    BACKENDS,
    DEVICES,
    IDENTICAL,
    INTERVALS,
    ORDERS,
    PROFILES,
    RUNNERS,
    SECTIONS,
    STATES,
    UNCERTAIN,
)
from metric_oracle.errors import InputError
from metric_oracle.metrics import ALIASES, ATTACHED, COMPOSITE, METRICS, shown_in

SEARCH, FILES, BERTSCORE = "Metric and search", "Files and models", "BERTScore"
READING, PREDICTED, ROWS, OUTPUT = "How to read the reports", "The predictions", "Rows, intervals and tests", "Options"
PANELS = (OUTPUT, SEARCH, ROWS, PREDICTED, FILES, BERTSCORE, READING)  # in this order in the help
FORMATS = ("table", "jsonl", "csv", "md", "tex")


@dataclass(frozen=True)
class OneOf:
    """Beside an option: what may be typed."""

    values: tuple[str, ...]


def _option(*names: str, panel: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


def _file(name: str, panel: str, text: str, metavar: str = "FILE") -> Any:
    return _option(name, panel=panel, help=text, metavar=metavar)


def _word(name: str, panel: str, text: str) -> Any:
    return _option(name, panel=panel, help=text, metavar="NAME")


def _number(*names: str, panel: str = SEARCH, least: int = 1, text: str) -> Any:
    def check(context: typer.Context, parameter: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < least and not context.resilient_parsing:
            name = parameter.opts[-1]
            msg = f"{context.command_path}: {name} must be an integer of at least {least}; got {value}. Choose one."
            raise InputError(msg)
        return value

    return _option(*names, panel=panel, help=text, metavar="N", callback=check)


def _choice(name: str, values: tuple[str, ...], panel: str, text: str = "") -> Any:
    return _option(name, panel=panel, metavar="NAME", help=f"{', '.join(values)}{text}.", show_default=False)


def _flag(*names: str, panel: str, text: str) -> Any:
    return _option(*names, panel=panel, help=text, metavar=" ", show_default=False)


def _several(name: str, metavar: str, text: str, panel: str = ROWS) -> Any:
    return _option(name, panel=panel, help=text, metavar=metavar)


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the names that a metric can be completed to, after the last comma, with what they are."""
    before, comma, begun = incomplete.rpartition(",")
    names = {alias: f"short for {name}" for alias, name in ALIASES.items()}
    names |= {name: record.source for name, record in METRICS.items()}
    yield from ((before + comma + name, what) for name, what in names.items() if name.startswith(begun))


_SHORT = {name: alias for alias, name in ALIASES.items()}
_NAMES = ", ".join(_SHORT.get(name, name).partition(":")[0] for name in shown_in("study")[:3])

# Arguments
_INDEX = typer.Argument(metavar="INDEX", help="Index of the corpus: a folder that build-index wrote.")
_QUERIES = typer.Argument(metavar="QUERIES", help="Test reports: a file as for build-index, or a folder that it wrote.")
Index = Annotated[Path, _INDEX]
IndexOrNone = Annotated[Path | None, _INDEX]
Queries = Annotated[Path, _QUERIES]
QueriesOrNone = Annotated[Path | None, _QUERIES]
Corpus = Annotated[
    Path,
    typer.Argument(
        metavar="REPORTS",
        help="Reports: a table (CSV, Parquet, JSON Lines, ...), or the folder or zip file of MIMIC-CXR.",
    ),
]
Predictions = Annotated[
    Path,
    typer.Argument(metavar="PREDICTIONS", help="Reports of a model: a table, or the layout that its code writes."),
]
ResultFile = Annotated[Path, typer.Argument(metavar="RESULTS", help="File that retrieve or baseline --out wrote.")]
ResultFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="RESULTS", help="Files that retrieve, baseline or score wrote.")
]
Ratings = Annotated[
    Path,
    typer.Argument(
        metavar="RATINGS",
        help="Errors that radiologists counted: files of ReXVal, GREEN, RadEvalX or ReFiSco, or one row per pair.",
    ),
]
Systems = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME=FILE", help="A row of the table: its name, and a file of score, retrieve or baseline."
    ),
]
ScoredPairs = Annotated[
    Path,
    typer.Argument(metavar="TABLE", help="Scores of pairs with their errors and studies; with --scores, the ratings."),
]
ReferenceLabels = Annotated[
    Path,
    typer.Argument(metavar="REFERENCE", help="Labels of the references: a column of ids, and one column per label."),
]
PredictedLabels = Annotated[
    Path, typer.Argument(metavar="PREDICTED", help="Labels of the predictions, joined on the column of ids.")
]
_FOLDER = typer.Argument(metavar="FOLDER", help="New or empty folder.")
Folder = Annotated[Path, _FOLDER]
FolderOrNone = Annotated[Path | None, _FOLDER]

# What is searched, and how
_METRIC = _option(
    *("-m", "--metric", "--metrics"),
    panel=SEARCH,
    metavar="NAME",
    autocompletion=complete_metric,
    help=f"Metric: {_NAMES}, ... (oracle metrics lists all). Several, where a command takes them, with commas.",
)
Metric = Annotated[list[str], _METRIC]
Metrics = Annotated[list[str] | None, _METRIC]
BLEU: Any = ("bleu",)  # the metric where none is named
TopK = Annotated[int, _number("-k", "--top-k", text="Number of best reports to return for each test report.")]
Text = Annotated[
    str | None,
    _option("--text", panel=SEARCH, metavar="REPORT", help="One test report, typed in quotes in place of QUERIES."),
]
Backend = Annotated[str, _choice("--backend", BACKENDS, SEARCH), OneOf(BACKENDS)]
Backends = Annotated[list[str], _choice("--backends", DEVICES, SEARCH, ", or both with a comma")]
BOTH: Any = DEVICES
Threads = Annotated[int | None, _number("--threads", text="Number of worker threads; by default one per core.")]
MaxMemory = Annotated[
    float | None,
    _option(
        "--max-memory",
        panel=SEARCH,
        metavar="GB",
        help="Upper limit of the memory of the process, in GB; by default none.",
    ),
]
Part = Annotated[
    str | None,
    _option(
        "--part",
        panel=SEARCH,
        metavar="I/N",
        help="Search only the I-th of N parts of a shard set; oracle merge joins the results.",
    ),
]
Parts = Annotated[list[Path], typer.Argument(metavar="PARTS", help="Files that retrieve --part wrote, all of them.")]
ShardRows = Annotated[
    int | None, _number("--shard-rows", text="Write a set of shards of N reports each in place of one index.")
]


@dataclass
class Running:
    """Where shards are worked on."""

    runner: Annotated[
        str | None,
        _choice("--runner", RUNNERS, SEARCH, ": run the shards on a Ray cluster. By default they run in this process"),
        OneOf(RUNNERS),
    ] = None
    address: Annotated[
        str | None,
        _option("--address", panel=SEARCH, metavar="ADDRESS", help="Ray cluster to join: local, auto or HOST:PORT."),
    ] = None
    num_gpus: Annotated[
        float | None, _option("--num-gpus", panel=SEARCH, metavar="N", help="Number of GPUs for each Ray worker.")
    ] = None


Weights = Annotated[
    Path | None, _file("--weights", SEARCH, f"JSON file with the weights of -m {COMPOSITE}; fit-composite writes one.")
]
Draws = Annotated[int, _number("--draws", text="Number of random reports to draw for each test report.")]
Sample = Annotated[int, _number("--sample", least=0, text="Number of test reports to search again by brute force.")]
Pool = Annotated[
    str,
    _option(
        "--pool",
        panel=SEARCH,
        metavar="NAME:N",
        help="Candidates to rerank: the first N under a metric (METRIC:N), or the whole corpus (all).",
    ),
]
AuditedQueries = Annotated[
    int,
    _number(
        "--audit",
        least=0,
        text="Number of test reports for which the whole corpus is scored, to measure what the pool misses.",
    ),
]
Recall = Annotated[
    float | None,
    _option(
        "--recall",
        panel=SEARCH,
        metavar="Q",
        help="Choose the pool's size so that it holds the best report with probability Q; needs --audit.",
    ),
]
Seed = Annotated[int, _number("--seed", panel=OUTPUT, least=0, text="Seed of all random draws.")]
_REPORTS = _number("--reports", text="Number of training reports of the synthetic corpus.")
_TESTS = _number("--tests", text="Number of test reports of the synthetic corpus.")
NReports = Annotated[int, _REPORTS]
NReportsOrNone = Annotated[int | None, _REPORTS]
NTests = Annotated[int, _TESTS]
NTestsOrNone = Annotated[int | None, _TESTS]
Generated = Annotated[bool, _flag("--models", panel=SEARCH, text="Also write the reports of three made-up models.")]
_ERRORS = "--errors"  # of ratings, and of a synthetic corpus
WithErrors = Annotated[
    bool, _flag(_ERRORS, panel=SEARCH, text="Also write candidates with zero to six errors, and their counts.")
]
Repetitions = Annotated[int, _number("--repetitions", text="Number of times that each timing is taken.")]
_CORPUS_VECTORS = _file("--corpus-vectors", FILES, "Image embeddings of the corpus: .npy, .npz, .parquet or .pt.")
_QUERY_VECTORS = _file("--query-vectors", FILES, "Image embeddings of the test reports, in the same forms.")
CorpusVectors = Annotated[Path, _CORPUS_VECTORS]
CorpusVectorsOrNone = Annotated[Path | None, _CORPUS_VECTORS]
QueryVectors = Annotated[Path, _QUERY_VECTORS]
QueryVectorsOrNone = Annotated[Path | None, _QUERY_VECTORS]
CorpusVectorIds = Annotated[
    Path | None, _file("--corpus-vector-ids", FILES, "Ids of the corpus embeddings, if their file has none.")
]
QueryVectorIds = Annotated[
    Path | None, _file("--query-vector-ids", FILES, "Ids of the test embeddings, if their file has none.")
]
Check = Annotated[bool, _flag("--check", panel=OUTPUT, text="Read every file of the index and compare its checksum.")]

# Models
_ENCODER = _file(
    "--encoder", BERTSCORE, "Encoder of BERTScore: a folder, or the name of a Hugging Face model.", "MODEL"
)
Layer = Annotated[
    int | None,
    _number(
        "--layer",
        panel=BERTSCORE,
        least=0,
        text="Encoder layer whose hidden states are compared; by default known for distilroberta-base only.",
    ),
]
States = Annotated[
    str | None,
    _choice("--states", STATES, BERTSCORE, ": precision in which token states are stored; float32 by default"),
    OneOf(STATES),
]
Bf16 = Annotated[bool, _flag("--bf16", panel=BERTSCORE, text="Run the encoder in bfloat16; faster, with other scores.")]
Rescaling = Annotated[
    Path | None,
    _file("--rescale-table", BERTSCORE, "Table of baselines for rescaling: a .tsv file of the bert_score package."),
]


@dataclass
class Bertscore:
    """Settings of BERTScore in a search."""

    idf: Annotated[
        str | None,
        _option(
            "--idf",
            panel=BERTSCORE,
            metavar="FROM",
            help="Source of the token weights: off, tests, corpus, or a table of weights.",
        ),
    ] = None
    rescale: Annotated[
        bool | None,
        _flag(
            "--rescale/--no-rescale",
            panel=BERTSCORE,
            text="Rescale BERTScore with the encoder's baseline, or not; by default where the baseline is known.",
        ),
    ] = None


@dataclass
class Models:
    """Where the models are that make what there are no files of, and where they run."""

    encoder: Annotated[str | None, _ENCODER] = None
    radgraph_encoder: Annotated[
        Path | None,
        _file("--radgraph-encoder", FILES, "Folder of the transformer that the RadGraph archive names.", "FOLDER"),
    ] = None
    vocabulary: Annotated[
        Path | None, _file("--vocabulary", FILES, "vocab.txt of bert-base-uncased, for chexbert.pth.")
    ] = None
    entity_encoder: Annotated[
        Path | None,
        _file("--entity-encoder", FILES, "Folder of BioLORD-2023-C, which encodes the entities of RaTE-NER.", "FOLDER"),
    ] = None
    device: Annotated[
        str | None,
        _choice("--device", DEVICES, FILES, ": device that runs models; by default a GPU if there is one"),
        OneOf(DEVICES),
    ] = None


_CREPE = _file("--crepe", FILES, "Checkpoint of CREPE: its folder, or its file of weights.")
Crepe = Annotated[Path, _CREPE]
CrepeOrNone = Annotated[Path | None, _CREPE]


@dataclass
class CrepeFiles:
    """Files of a checkpoint of CREPE that do not lie beside its weights."""

    crepe_config: Annotated[
        Path | None, _file("--crepe-config", FILES, "config.json of CREPE, if it is not beside the weights.")
    ] = None
    crepe_vocabulary: Annotated[
        Path | None, _file("--crepe-vocabulary", FILES, "Vocabulary of CREPE, if it is not beside the weights.")
    ] = None


Base = Annotated[
    str, _file("--base", FILES, "Encoder to start from: a folder, or the name of a Hugging Face model.", "MODEL")
]
Epochs = Annotated[int, _number("--epochs", text="Number of passes over the pairs.")]
BatchSize = Annotated[int, _number("--batch-size", text="Number of pairs per optimization step.")]
LearningRate = Annotated[float, _option("--learning-rate", panel=SEARCH, metavar="X", help="Peak learning rate.")]
PresenceWeight = Annotated[
    float, _option("--presence-weight", panel=SEARCH, metavar="W", help="Weight of the presence loss, from 0 to 1.")
]
Uncertain = Annotated[
    str | None, _choice("--uncertain", UNCERTAIN, FILES, ": how to count labels that are uncertain"), OneOf(UNCERTAIN)
]
IdColumn = Annotated[
    str | None,
    _option("--id-column", panel=READING, metavar="NAME", help="Column of study ids, if its name is not a usual one."),
]


def _source_options(prefix: str, panel: str) -> dict[str, Any]:
    """Return the options that give sources, from the registry, by the names of their arguments.

    `prefix` is "" of reports, "predicted_" of predictions, and "model_" of the models of a study, which name a file for
    each model.
    """
    found: dict[str, Any] = {}
    for record in ATTACHED:
        for argument in record.arguments:
            is_ids = argument != record.arguments[0]
            text = (
                f"Ids of the {record.plural}, if their file has none"
                if is_ids
                else record.plural[0].upper() + record.plural[1:]
            )
            option = f"--{prefix}{argument}".replace("_", "-")
            if prefix == "model_":
                text += " of a model's reports"
                found[f"{prefix}{argument}"] = Annotated[list[str] | None, _several(option, "NAME=FILE", f"{text}.")]
                continue
            text += f", or {record.model}" if record.model and not is_ids and not prefix else ""
            found[f"{prefix}{argument}"] = Annotated[Path | None, _file(option, panel, f"{text}.")]
    return found


_FILES = _source_options("", FILES)
if TYPE_CHECKING:

    class Files:
        """Sources of reports: graphs, embeddings, labels, entities."""

        def __getattr__(self, name: str) -> Any: ...

    class Annotators(Files):
        """Models that make sources."""

    class PredictedFiles(Files):
        """Sources of predictions."""

    class ModelFiles(Files):
        """Sources of the reports of a study's models."""

else:

    def _group(name: str, options: dict[str, Any]) -> type:
        return make_dataclass(name, [(n, kind, None) for n, kind in options.items()])

    Annotators = _group("Annotators", {r.arguments[0]: _FILES[r.arguments[0]] for r in ATTACHED if r.model})
    Files = _group("Files", {**_FILES, "uncertain": Uncertain})
    PredictedFiles = _group("PredictedFiles", _source_options("predicted_", PREDICTED))
    ModelFiles = _group("ModelFiles", _source_options("model_", ROWS))


Inner = Annotated[bool, _flag("--inner", panel=PREDICTED, text="Compare only the ids that both sides have.")]


@dataclass
class Predicted:
    """What belongs to predictions, and how their file is read."""

    predicted_files: PredictedFiles
    predicted_id_column: Annotated[
        str | None, _word("--predicted-id-column", PREDICTED, "Column of study ids of the predictions.")
    ] = None
    predicted_text_column: Annotated[
        str | None, _word("--predicted-text-column", PREDICTED, "Column with the text of the predictions.")
    ] = None
    ids: Annotated[
        Path | None,
        _file("--ids", PREDICTED, "File with the ids of predictions that have only an order, such as annotation.json."),
    ] = None
    metadata: Annotated[
        Path | None, _file("--metadata", PREDICTED, "MIMIC-CXR's metadata, to choose one image per study.")
    ] = None
    predicted_section: Annotated[
        str | None,
        _word("--predicted-section", PREDICTED, "Section that the predictions contain: one of those of --section."),
        OneOf(SECTIONS),
    ] = None
    after_impression: Annotated[
        bool,
        _flag("--after-impression", panel=PREDICTED, text='Keep only what follows "Impression:" in the predictions.'),
    ] = False
    inner: Inner = False


@dataclass
class Reading:
    """How a file of reports is read."""

    section: Annotated[
        str | None,
        _choice("--section", SECTIONS, READING, ": section of the reports; by default the index's, or the impression"),
        OneOf(SECTIONS),
    ] = None
    id_column: IdColumn = None
    text_column: Annotated[
        str | None,
        _word("--text-column", READING, "Column with the text of the reports, if its name is not a usual one."),
    ] = None
    split: Annotated[
        str | None, _word("--split", READING, 'Split to read, such as "test" or "train+validate"; by default all.')
    ] = None
    split_file: Annotated[
        Path | None,
        _file("--split-file", READING, "Table with the split of each study, if the reports have no such column."),
    ] = None
    profile: Annotated[
        str,
        _choice("--profile", PROFILES, READING, ": rules that cut the sections out of MIMIC-CXR files"),
        OneOf(PROFILES),
    ] = "yu2023"
    encoding: Annotated[
        str | None, _word("--encoding", READING, "Encoding of text files, such as cp1252; by default it is recognized.")
    ] = None
    separator: Annotated[
        str | None,
        _word("--separator", READING, "Separator of columns, such as ';' or tab; by default it is recognized."),
    ] = None


# Tables and ratings
System = Annotated[
    str | None,
    _option("--system", panel=PREDICTED, metavar="NAME", help="Name of the model that wrote the predictions."),
]
Random = Annotated[
    str | None,
    _option(
        "--random",
        panel=ROWS,
        metavar="NAME",
        help="Row of random retrieval, against which changes are given in percent.",
    ),
]
Oracles = Annotated[
    list[str] | None,
    _several(
        "--oracle", "METRIC=NAME", "Row of a metric's oracle: adds how far each system is on the way from random to it."
    ),
]
Paired = Annotated[
    list[str] | None, _several("--paired", "A,B", "Two rows to compare on the same studies, with a test. Repeatable.")
]
IntervalMethod = Annotated[
    str, _choice("--interval", INTERVALS, ROWS, ": method of the 95 % intervals"), OneOf(INTERVALS)
]
_RESAMPLES = _number("--resamples", panel=ROWS, text="Number of bootstrap resamples; 10000 for a table.")
Resamples = Annotated[int, _RESAMPLES]
ResamplesOrNone = Annotated[int | None, _RESAMPLES]
_scores, _samples = (partial(_file, name, ROWS) for name in ("--scores", "--samples"))
_TEXTS = "Texts of the rated pairs, in the layout of ReXVal's 50_samples_gt_and_candidates.csv."
Scores = Annotated[list[Path] | None, _scores("Scores of any tool, one row per pair. Repeatable.")]
Samples = Annotated[Path | None, _samples(_TEXTS)]
RatedSets = Annotated[
    list[str], typer.Argument(metavar="NAME=FILE", help="Rated sets: error counts, grades, preferences or orders.")
]
ScoresOfSets = Annotated[list[str] | None, _scores("Scores of the pairs of a set. Repeatable.", "NAME=FILE")]
SamplesOfSets = Annotated[list[str] | None, _samples(_TEXTS, "NAME=FILE")]
Ablations = Annotated[
    list[str] | None, _several("--ablation", "NAME=FILE", "Scores of a variant of a metric, for the first set.")
]
Times = Annotated[Path | None, _file("--times", ROWS, "Times of other tools: columns metric, ms_per_pair, device.")]
ResampleRaters = Annotated[
    bool,
    _flag("--resample-raters", panel=ROWS, text="Also resample raters, so that the intervals hold for other raters."),
]
Scatter = Annotated[Path | None, _file("--scatter", OUTPUT, "Plot errors against scores of the first set.")]


@dataclass
class Rated:
    """What radiologists counted, and the texts and scores of what they rated."""

    ratings: Annotated[
        Path | None, _file("--ratings", ROWS, "Errors that radiologists counted, as for oracle align.", "RATINGS")
    ] = None
    samples: Samples = None
    scores: Scores = None


Direction = Annotated[
    list[str] | None, _several("--direction", "NAME=higher|lower", "Better direction of a column of --foreign.")
]
Foreign = Annotated[
    list[str] | None, _several("--foreign", "NAME=FILE", "Scores of a system that another tool computed.")
]
WithoutIdentical = Annotated[
    bool, _flag("--without-identical", panel=ROWS, text="Leave out pairs of equal texts, as ReXVal* does.")
]
Category = Annotated[
    list[str] | None, _several("--category", "N", "Error category to test; by default all. Repeatable.")
]
Rate = Annotated[float, _option("--rate", panel=ROWS, metavar="Q", help="False discovery rate.")]
Levels = Annotated[
    list[str] | None,
    _several(
        "--level", "NAME=COLUMN,...", "Level: a set of label columns; the score is the mean of all levels. Repeatable."
    ),
]
Errors = Annotated[
    str, _option(_ERRORS, panel=ROWS, metavar="NAME", help="Column of errors; for ratings total or significant.")
]
Study = Annotated[str, _option("--study", panel=ROWS, metavar="NAME", help="Column with the study of each pair.")]
Name = Annotated[str | None, _option("--name", panel=ROWS, metavar="NAME", help="Name of the composite.")]
ModelRows = Annotated[
    list[str] | None,
    _several("--model", "NAME=FILE", "Reports of a model for the test reports; a row of the table. Repeatable."),
]
ModelIds = Annotated[
    list[str] | None, _several("--model-ids", "NAME=FILE", "Ids of a model's file that has only an order.")
]
ModelMetadata = Annotated[
    list[str] | None,
    _several("--model-metadata", "NAME=FILE", "MIMIC-CXR's metadata, for a model's file with one row per image."),
]
ModelSection = Annotated[list[str] | None, _several("--model-section", "NAME=SECTION", "Section that a model writes.")]

# A survey of radiologists
SurveyFolder = Annotated[Path, typer.Argument(metavar="SURVEY", help="Folder that oracle survey create made.")]
References = Annotated[Path, typer.Argument(metavar="REFERENCES", help="Test reports, or a prepared set.")]
Candidates = Annotated[
    list[str], _several("--candidates", "NAME=FILE", "Results of retrieve, or what a model wrote. Repeatable.", SEARCH)
]
Raters = Annotated[list[str], _several("--raters", "NAME", "Raters: repeatable, or several with commas.", SEARCH)]
Studies = Annotated[int, _number("--studies", text="Number of studies to draw.")]
Repeats = Annotated[int, _number("--repeats", least=0, text="Number of studies that are shown again at the end.")]
Identical = Annotated[
    str, _choice("--identical", IDENTICAL, SEARCH, ": rate equal texts once, or show each of them"), OneOf(IDENTICAL)
]
Order = Annotated[
    str,
    _choice("--order", ORDERS, SEARCH, ": the same random order for all raters, or one for each"),
    OneOf(ORDERS),
]
Categories = Annotated[
    str,
    _option(
        "--categories",
        panel=SEARCH,
        metavar="NAME",
        help="Error categories: rexval, radevalx, or a file with one per line.",
    ),
]
Stratify = Annotated[
    Path | None, _file("--stratify", SEARCH, "Labels or strata of the studies, to draw equally many of each.")
]
Instructions = Annotated[
    Path | None,
    _file("--instructions", SEARCH, "Text of the instructions that raters see, in place of the built-in one."),
]
Unequal = Annotated[
    bool, _flag("--unequal", panel=SEARCH, text="Also draw studies for which some candidates are missing.")
]
Partial = Annotated[bool, _flag("--partial", panel=ROWS, text="Export only the pairs that all raters finished.")]
LeaveOut = Annotated[
    list[str] | None, _several("--leave-out", "NAME=REASON", "Rater to leave out, and why. Repeatable.")
]
Repeated = Annotated[Path | None, _file("--repeated", ROWS, "Counts of the repeated studies: repeats.csv of a survey.")]

# Pages
IndexOption = Annotated[Path | None, _file("--index", SEARCH, "Index of the corpus.", "INDEX")]
QueriesOption = Annotated[
    Path | None, _file("--queries", SEARCH, "Test reports: a file, or a folder that build-index wrote.", "QUERIES")
]
Port = Annotated[int, _number("--port", panel=OUTPUT, least=0, text="Port of the server; 0 takes a free one.")]

# Output
WithText = Annotated[
    bool, _flag("--with-text/--no-text", panel=OUTPUT, text="Include the texts of the reports in the result, or not.")
]
Components = Annotated[bool, _flag("--components", panel=OUTPUT, text="Show the terms of a composite score.")]
PublishedNames = Annotated[
    bool, _flag("--published-names", panel=OUTPUT, text="Write a CSV with the column names of CXR-Report-Metric.")
]
Plot = Annotated[Path | None, _file("--plot", OUTPUT, "Write a figure: .png, .svg or .pdf.")]
Quiet = Annotated[bool, _flag("--quiet", "-q", panel=OUTPUT, text="Print no notes and no progress bar.")]


def print_format(formats: Sequence[str]) -> Any:
    """Return the type of --format: what a command can print."""
    return Annotated[
        str | None,
        _choice(
            "--format",
            tuple(formats),
            OUTPUT,
            ": form of what is printed; by default a table on a terminal and JSON Lines in a pipe",
        ),
        OneOf(tuple(formats)),
    ]


def out(*endings: str) -> Any:
    """Return the option --out: a file with one of these endings, or a new folder."""
    return _file(
        "--out", OUTPUT, f"File to write: {', '.join(endings)}." if endings else "New folder to write.", "PATH"
    )


_NEW_FOLDER = out()
NewFolder = Annotated[Path, _NEW_FOLDER]
NewFolderOrNone = Annotated[Path | None, _NEW_FOLDER]
