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

from metric_oracle.errors import InputError
from metric_oracle.metrics import ALIASES, BACKENDS, COMPOSITE, METRICS, REPRESENTATIONS, shown_in

SEARCH, FILES, BERTSCORE = "Metric and search", "Files and models", "BERTScore"
READING, PREDICTED, ROWS, OUTPUT = "How to read the reports", "The predictions", "Rows, intervals and tests", "Options"
PANELS = (OUTPUT, SEARCH, ROWS, PREDICTED, FILES, BERTSCORE, READING)  # in this order in the help
DEVICES = ("cpu", "cuda")
UNCERTAIN = ("positive", "negative", "blank")
SECTIONS = ("impression", "findings", "findings+impression")
PROFILES = ("yu2023", "mit")
INTERVALS = ("bca", "percentile", "legacy-yu2023")
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
_NAMES = ", ".join(_SHORT.get(name, name).partition(":")[0] for name in shown_in("study"))

# Arguments
_INDEX = typer.Argument(metavar="INDEX", help="Folder that build-index made.")
_QUERIES = typer.Argument(metavar="QUERIES", help="Test reports: a file, as for build-index.")
Index = Annotated[Path, _INDEX]
IndexOrNone = Annotated[Path | None, _INDEX]
Queries = Annotated[Path, _QUERIES]
QueriesOrNone = Annotated[Path | None, _QUERIES]
Corpus = Annotated[Path, typer.Argument(metavar="REPORTS", help="A table; MIMIC-CXR's folder, zip.")]
Predictions = Annotated[
    Path,
    typer.Argument(metavar="PREDICTIONS", help="A table, or a model's own layout."),
]
ResultFile = Annotated[Path, typer.Argument(metavar="RESULTS", help="File that retrieve or baseline --out wrote.")]
ResultFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="RESULTS", help="Files of retrieve, baseline and score.")
]
Ratings = Annotated[
    Path,
    typer.Argument(metavar="RATINGS", help="ReXVal's counted errors, GREEN's, RadEvalX, ReFiSco, a row a pair."),
]
Systems = Annotated[list[str], typer.Argument(metavar="NAME=FILE", help="Rows: files of score, retrieve or baseline.")]
ScoredPairs = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Scored pairs with errors and study; with --scores, ratings.")
]
ReferenceLabels = Annotated[
    Path, typer.Argument(metavar="REFERENCE", help="Labels of the references: an id and a column a label.")
]
PredictedLabels = Annotated[Path, typer.Argument(metavar="PREDICTED", help="Labels of the predictions, by the ids.")]
_FOLDER = typer.Argument(metavar="FOLDER", help="New or empty folder.")
Folder = Annotated[Path, _FOLDER]
FolderOrNone = Annotated[Path | None, _FOLDER]

# What is searched, and how
_METRIC = _option(
    *("-m", "--metric", "--metrics"), panel=SEARCH, metavar="NAME", autocompletion=complete_metric,
    help=f"{_NAMES}, ...; with commas.",
)  # fmt: skip
Metric = Annotated[list[str], _METRIC]
Metrics = Annotated[list[str] | None, _METRIC]
BLEU: Any = ("bleu",)  # the metric where none is named
TopK = Annotated[int, _number("-k", "--top-k", text="Answers for each test report.")]
Text = Annotated[str | None, _option("--text", panel=SEARCH, metavar="REPORT", help="One test report, in quotes.")]
Backend = Annotated[str, _choice("--backend", BACKENDS, SEARCH), OneOf(BACKENDS)]
Backends = Annotated[list[str], _choice("--backends", ("cpu", "cuda"), SEARCH, ", or both with a comma")]
BOTH: Any = ("cpu", "cuda")
Threads = Annotated[int | None, _number("--threads", text="Worker threads; default: all.")]
MaxMemory = Annotated[float | None, _option("--max-memory", panel=SEARCH, metavar="GB", help="Memory to stay under.")]
Part = Annotated[
    str | None, _option("--part", panel=SEARCH, metavar="I/N", help="Of a set: search one of N runs of shards.")
]
Parts = Annotated[list[Path], typer.Argument(metavar="PARTS", help="Files that retrieve --part wrote, all of them.")]
ShardRows = Annotated[int | None, _number("--shard-rows", text="Make a set of shards of N reports each.")]
RUNNERS = ("ray",)


@dataclass
class Running:
    """Where shards are worked on."""

    runner: Annotated[str | None, _choice("--runner", RUNNERS, SEARCH, ": who works on shards"), OneOf(RUNNERS)] = None
    address: Annotated[
        str | None, _option("--address", panel=SEARCH, metavar="ADDRESS", help="Ray: local, auto or HOST:PORT.")
    ] = None
    num_gpus: Annotated[
        float | None, _option("--num-gpus", panel=SEARCH, metavar="N", help="GPUs for each worker of Ray.")
    ] = None


Weights = Annotated[Path | None, _file("--weights", SEARCH, f"Of -m {COMPOSITE}: a file of weights.")]
Draws = Annotated[int, _number("--draws", text="Random reports for each test report.")]
Sample = Annotated[int, _number("--sample", least=0, text="Queries to search by brute force.")]
Pool = Annotated[str, _option("--pool", panel=SEARCH, metavar="NAME:N", help="Reports to score: its first N, or all.")]
AuditedQueries = Annotated[int, _number("--audit", least=0, text="Test reports to score with the whole corpus.")]
Recall = Annotated[
    float | None, _option("--recall", panel=SEARCH, metavar="Q", help="Pool that holds the best so surely.")
]
Seed = Annotated[int, _number("--seed", panel=OUTPUT, least=0, text="Seed of all draws.")]
_REPORTS = _number("--reports", text="Training reports of a synthetic corpus.")
_TESTS = _number("--tests", text="Its test reports.")
NReports = Annotated[int, _REPORTS]
NReportsOrNone = Annotated[int | None, _REPORTS]
NTests = Annotated[int, _TESTS]
NTestsOrNone = Annotated[int | None, _TESTS]
Generated = Annotated[bool, _flag("--models", panel=SEARCH, text="Also what three made-up models generate.")]
_ERRORS = "--errors"  # of ratings, and of a synthetic corpus
WithErrors = Annotated[bool, _flag(_ERRORS, panel=SEARCH, text="Also candidates with counted errors.")]
Repetitions = Annotated[int, _number("--repetitions", text="How often each timing is taken.")]
_CORPUS_VECTORS = _file("--corpus-vectors", FILES, "Image embeddings: .npy, .npz, .parquet, .pt.")
_QUERY_VECTORS = _file("--query-vectors", FILES, "Those of the test reports.")
CorpusVectors = Annotated[Path, _CORPUS_VECTORS]
CorpusVectorsOrNone = Annotated[Path | None, _CORPUS_VECTORS]
QueryVectors = Annotated[Path, _QUERY_VECTORS]
QueryVectorsOrNone = Annotated[Path | None, _QUERY_VECTORS]
CorpusVectorIds = Annotated[Path | None, _file("--corpus-vector-ids", FILES, "Their ids, if the file has none.")]
QueryVectorIds = Annotated[Path | None, _file("--query-vector-ids", FILES, "Their ids, if the file has none.")]
Check = Annotated[bool, _flag("--check", panel=OUTPUT, text="Read every file and compare its checksum.")]

# Models
_ENCODER = _file("--encoder", BERTSCORE, "Its encoder: name or folder.", "MODEL")
Layer = Annotated[int | None, _number("--layer", panel=BERTSCORE, least=0, text="Its layers to run.")]
STATES = ("float32", "float16")
States = Annotated[str | None, _choice("--states", STATES, BERTSCORE, ": how states are stored"), OneOf(STATES)]
Bf16 = Annotated[bool, _flag("--bf16", panel=BERTSCORE, text="Run the encoder in bfloat16.")]
Rescaling = Annotated[Path | None, _file("--rescale-table", BERTSCORE, "bert_score's baselines.")]


@dataclass
class Bertscore:
    """Settings of BERTScore in a search."""

    idf: Annotated[
        str | None, _option("--idf", panel=BERTSCORE, metavar="FROM", help="off, tests, corpus, or a table.")
    ] = None
    rescale: Annotated[
        bool | None,
        _flag("--rescale/--no-rescale", panel=BERTSCORE, text="Above its baseline, or plain."),
    ] = None


@dataclass
class Models:
    """Where the models are that make what there are no files of, and where they run."""

    encoder: Annotated[str | None, _ENCODER] = None
    radgraph_encoder: Annotated[
        Path | None, _file("--radgraph-encoder", FILES, "Transformer that the archive names.", "FOLDER")
    ] = None
    vocabulary: Annotated[Path | None, _file("--vocabulary", FILES, "vocab.txt of bert-base-uncased.")] = None
    entity_encoder: Annotated[
        Path | None, _file("--entity-encoder", FILES, "BioLORD-2023-C, beside RaTE-NER.", "FOLDER")
    ] = None
    device: Annotated[str | None, _choice("--device", DEVICES, FILES, "; default: a GPU, if any"), OneOf(DEVICES)] = (
        None
    )


_CREPE = _file("--crepe", FILES, "CREPE: folder or weights.")
Crepe = Annotated[Path, _CREPE]
CrepeOrNone = Annotated[Path | None, _CREPE]


@dataclass
class CrepeFiles:
    """Files of a checkpoint of CREPE that do not lie beside its weights."""

    crepe_config: Annotated[Path | None, _file("--crepe-config", FILES, "CREPE's config.json.")] = None
    crepe_vocabulary: Annotated[Path | None, _file("--crepe-vocabulary", FILES, "CREPE's vocabulary.")] = None


Base = Annotated[str, _file("--base", FILES, "Encoder to begin with: name or folder.", "MODEL")]
Epochs = Annotated[int, _number("--epochs", text="How often each pair is seen.")]
BatchSize = Annotated[int, _number("--batch-size", text="Pairs of a step.")]
LearningRate = Annotated[float, _option("--learning-rate", panel=SEARCH, metavar="X", help="The highest.")]
PresenceWeight = Annotated[float, _option("--presence-weight", panel=SEARCH, metavar="W", help="w of the loss.")]
Uncertain = Annotated[str | None, _choice("--uncertain", UNCERTAIN, FILES, ": what it is"), OneOf(UNCERTAIN)]
IdColumn = Annotated[
    str | None, _option("--id-column", panel=READING, metavar="NAME", help="Column of ids, if not found.")
]


# Arguments that may be the model instead, see `inputs.is_model`.
MODEL_FILES = {"radgraph": "a model .tar.gz", "chexbert": "chexbert.pth", "entities": "RaTE-NER's folder"}


def _given_beside(prefix: str, panel: str) -> dict[str, Any]:
    """Return the options of what the registry says can be given beside reports, by the names of the arguments."""
    found: dict[str, Any] = {}
    for record in REPRESENTATIONS.values():
        for argument in record.arguments if record.source == "attachment" else ():
            text = (
                "Their ids, if they have none"
                if argument.endswith("_ids")
                else record.plural[0].upper() + record.plural[1:]
            )
            text += f", or {MODEL_FILES[argument]}" if argument in MODEL_FILES and not prefix else ""
            option = f"--{prefix}{argument}".replace("_", "-")
            found[f"{prefix}{argument}"] = Annotated[Path | None, _file(option, panel, f"{text}.")]
    return found


_FILES = _given_beside("", FILES)
if TYPE_CHECKING:

    class Files:
        """What belongs to reports: graphs, embeddings, labels."""

        def __getattr__(self, name: str) -> Any: ...

    class Annotators(Files):
        """Models that annotate reports."""

    class PredictedFiles(Files):
        """What belongs to predictions."""

else:
    Annotators = make_dataclass("Annotators", [(name, _FILES[name], None) for name in MODEL_FILES])
    Files = make_dataclass("Files", [(n, kind, None) for n, kind in {**_FILES, "uncertain": Uncertain}.items()])
    PredictedFiles = make_dataclass(
        "PredictedFiles", [(n, kind, None) for n, kind in _given_beside("predicted_", PREDICTED).items()]
    )


Inner = Annotated[bool, _flag("--inner", panel=PREDICTED, text="Only ids on both sides.")]


@dataclass
class Predicted:
    """What belongs to predictions, and how their file is read."""

    predicted_files: PredictedFiles
    predicted_id_column: Annotated[str | None, _word("--predicted-id-column", PREDICTED, "Column of ids.")] = None
    predicted_text_column: Annotated[str | None, _word("--predicted-text-column", PREDICTED, "Column of reports.")] = (
        None
    )
    ids: Annotated[Path | None, _file("--ids", PREDICTED, "Their order: annotation.json, ...")] = None
    metadata: Annotated[Path | None, _file("--metadata", PREDICTED, "MIMIC-CXR's, to choose images.")] = None
    predicted_section: Annotated[
        str | None, _word("--predicted-section", PREDICTED, "What they are, as --section."), OneOf(SECTIONS)
    ] = None
    after_impression: Annotated[
        bool, _flag("--after-impression", panel=PREDICTED, text='Only what follows "Impression:".')
    ] = False
    inner: Inner = False


@dataclass
class Reading:
    """How a file of reports is read."""

    section: Annotated[str, _choice("--section", SECTIONS, READING), OneOf(SECTIONS)] = "impression"
    id_column: IdColumn = None
    text_column: Annotated[str | None, _word("--text-column", READING, "Column of reports, if not found.")] = None
    split: Annotated[str | None, _word("--split", READING, 'Rows: "test", "train+validate".')] = None
    split_file: Annotated[Path | None, _file("--split-file", READING, "Split of each study.")] = None
    profile: Annotated[
        str, _choice("--profile", PROFILES, READING, ": who cuts MIMIC-CXR's sections"), OneOf(PROFILES)
    ] = "yu2023"


# Tables and ratings
System = Annotated[str | None, _option("--system", panel=PREDICTED, metavar="NAME", help="Name of the model.")]
Random = Annotated[
    str | None, _option("--random", panel=ROWS, metavar="NAME", help="Row of random retrieval, for changes from it.")
]
Oracles = Annotated[
    list[str] | None, _several("--oracle", "METRIC=NAME", "Row of an oracle: adds the share of the way.")
]
Paired = Annotated[list[str] | None, _several("--paired", "A,B", "Two names to compare on the same studies.")]
IntervalMethod = Annotated[str, _choice("--interval", INTERVALS, ROWS), OneOf(INTERVALS)]
_RESAMPLES = _number("--resamples", panel=ROWS, text="Bootstrap resamples; of a table: 10000.")
Resamples = Annotated[int, _RESAMPLES]
ResamplesOrNone = Annotated[int | None, _RESAMPLES]
_scores, _samples = (partial(_file, name, ROWS) for name in ("--scores", "--samples"))
_TEXTS = "Texts of the pairs: 50_samples_gt_and_candidates.csv."
Scores = Annotated[list[Path] | None, _scores("Scores of any tool, a row a pair. Repeatable.")]
Samples = Annotated[Path | None, _samples(_TEXTS)]
RatedSets = Annotated[list[str], typer.Argument(metavar="NAME=FILE", help="Rated sets, in the layouts of align.")]
ScoresOfSets = Annotated[list[str] | None, _scores("Scores of the pairs of a set. Repeatable.", "NAME=FILE")]
SamplesOfSets = Annotated[list[str] | None, _samples(_TEXTS, "NAME=FILE")]
Ablations = Annotated[list[str] | None, _several("--ablation", "NAME=FILE", "Variant: its scores of the first set.")]
Times = Annotated[Path | None, _file("--times", ROWS, "Of other tools: metric, ms_per_pair, device.")]
ResampleRaters = Annotated[bool, _flag("--resample-raters", panel=ROWS, text="Intervals for other raters, too.")]
Scatter = Annotated[Path | None, _file("--scatter", OUTPUT, "Draw errors against scores of the first set.")]


@dataclass
class Rated:
    """What radiologists counted, and the texts and scores of what they rated."""

    ratings: Annotated[Path | None, _file("--ratings", ROWS, "Errors that radiologists counted.", "RATINGS")] = None
    samples: Samples = None
    scores: Scores = None


Direction = Annotated[
    list[str] | None, _several("--direction", "NAME=higher|lower", "What is better in a foreign column.")
]
Foreign = Annotated[list[str] | None, _several("--foreign", "NAME=FILE", "Scores of a system by another tool.")]
WithoutIdentical = Annotated[
    bool, _flag("--without-identical", panel=ROWS, text="Leave out pairs of equal texts (ReXVal*).")
]
Category = Annotated[list[str] | None, _several("--category", "N", "Error category to test; default: all.")]
Rate = Annotated[float, _option("--rate", panel=ROWS, metavar="Q", help="False discovery rate.")]
Levels = Annotated[list[str] | None, _several("--level", "NAME=COLUMN,...", "A set of labels; mean of several.")]
Errors = Annotated[
    str, _option(_ERRORS, panel=ROWS, metavar="NAME", help="Column of errors; of ratings: total, significant.")
]
Study = Annotated[str, _option("--study", panel=ROWS, metavar="NAME", help="Column with the study of each pair.")]
Name = Annotated[str | None, _option("--name", panel=ROWS, metavar="NAME", help="Of the composite.")]
ModelRows = Annotated[list[str] | None, _several("--model", "NAME=FILE", "What a model wrote about the tests.")]
ModelRadgraph = Annotated[list[str] | None, _several("--model-radgraph", "NAME=FILE", "RadGraph JSON of it.")]
ModelChexbert = Annotated[list[str] | None, _several("--model-chexbert", "NAME=FILE", "Embeddings of it.")]
ModelChexbertIds = Annotated[list[str] | None, _several("--model-chexbert-ids", "NAME=FILE", "Their ids.")]
ModelLabels = Annotated[list[str] | None, _several("--model-chexbert-labels", "NAME=FILE", "CheXbert labels of it.")]
ModelIds = Annotated[list[str] | None, _several("--model-ids", "NAME=FILE", "Ids of a file that has an order only.")]
ModelMetadata = Annotated[list[str] | None, _several("--model-metadata", "NAME=FILE", "Makes studies of its images.")]
ModelSection = Annotated[list[str] | None, _several("--model-section", "NAME=SECTION", "Section that it writes.")]

# A survey of radiologists
IDENTICAL = ("once", "show")
SurveyFolder = Annotated[Path, typer.Argument(metavar="SURVEY", help="Folder that oracle survey create made.")]
References = Annotated[Path, typer.Argument(metavar="REFERENCES", help="Test reports, or a prepared set.")]
Candidates = Annotated[
    list[str], _several("--candidates", "NAME=FILE", "Results of retrieve, or what a model wrote. Repeatable.", SEARCH)
]
Raters = Annotated[list[str], _several("--raters", "NAME", "Who rates; repeatable, or with commas.", SEARCH)]
Studies = Annotated[int, _number("--studies", text="Studies to draw.")]
Repeats = Annotated[int, _number("--repeats", least=0, text="Studies shown again at the end.")]
Identical = Annotated[
    str, _choice("--identical", IDENTICAL, SEARCH, ": equal texts are rated once, or each"), OneOf(IDENTICAL)
]
Categories = Annotated[
    str, _option("--categories", panel=SEARCH, metavar="NAME", help="rexval, radevalx, or a file with one a line.")
]
Stratify = Annotated[
    Path | None, _file("--stratify", SEARCH, "CheXbert labels, or ids and strata: draw as many of each.")
]
Instructions = Annotated[Path | None, _file("--instructions", SEARCH, "Text that raters see, in place of ours.")]
Unequal = Annotated[bool, _flag("--unequal", panel=SEARCH, text="Studies may lack candidates of some types.")]
Partial = Annotated[bool, _flag("--partial", panel=ROWS, text="Only the pairs that all raters finished.")]
LeaveOut = Annotated[list[str] | None, _several("--leave-out", "NAME=REASON", "A rater that does not count.")]
Repeated = Annotated[Path | None, _file("--repeated", ROWS, "Counts of pairs shown again: repeats.csv of a survey.")]

# Pages
IndexOption = Annotated[Path | None, _file("--index", SEARCH, "Index that the candidates are of.", "INDEX")]
QueriesOption = Annotated[Path | None, _file("--queries", SEARCH, "Test reports, best prepared.", "QUERIES")]
Port = Annotated[int, _number("--port", panel=OUTPUT, least=0, text="Port of the pages; 0: a free one.")]

# Output
WithText = Annotated[bool, _flag("--with-text/--no-text", panel=OUTPUT, text="Reports in the result, or not.")]
Components = Annotated[bool, _flag("--components", panel=OUTPUT, text="Show what the scores are made of.")]
PublishedNames = Annotated[bool, _flag("--published-names", panel=OUTPUT, text="CSV columns of CXR-Report-Metric.")]
Plot = Annotated[Path | None, _file("--plot", OUTPUT, "Draw a picture: .png, .svg or .pdf.")]
Quiet = Annotated[bool, _flag("--quiet", "-q", panel=OUTPUT, text="No notes and no progress bar.")]


def print_format(formats: Sequence[str]) -> Any:
    """Return the type of --format: what a command can print."""
    return Annotated[str | None, _choice("--format", tuple(formats), OUTPUT, ": printed"), OneOf(tuple(formats))]


def out(*endings: str) -> Any:
    """Return the option --out: a file with one of these endings, or a new folder."""
    return _file("--out", OUTPUT, f"Write {', '.join(endings)}." if endings else "New folder.", "PATH")


_NEW_FOLDER = out()
NewFolder = Annotated[Path, _NEW_FOLDER]
NewFolderOrNone = Annotated[Path | None, _NEW_FOLDER]
