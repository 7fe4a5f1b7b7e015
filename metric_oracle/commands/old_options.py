"""All arguments and options of the command line: each is defined once, with its panel, help text and choices.

A command is a plain function whose parameters are annotated with the types of this module. A parameter annotated with a
dataclass stands for one option per field of it, so that options which belong together are passed on as one object.

A help text is one or more complete sentences: what the option is or does in this command, its unit, which other option
it needs, and its default. Typer appends the default value unless it is None; the text states what happens then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from metric_oracle import choices
from metric_oracle.choices import (
    BACKENDS,
    DEVICES,
    FEWEST,
    IDENTICAL,
    INTERVALS,
    MOST,
    ORDERS,
    PROFILES,
    RUNNERS,
    SECTIONS,
    SHAPES,
    STATES,
    STRATEGIES,
    UNCERTAIN,
)
from metric_oracle.metrics import ALIASES, ATTACHED, COMPOSITE, METRICS, shown_in

SEARCH, FILES, BERTSCORE = "Metric and search", "Files and models", "BERTScore"
READING, PREDICTED, ROWS, OUTPUT = "How to read the reports", "The predictions", "Rows, intervals and tests", "Options"
PANELS = (OUTPUT, SEARCH, ROWS, PREDICTED, FILES, BERTSCORE, READING)  # in this order in the help
FORMATS = ("table", "jsonl", "csv", "md", "tex")


def _argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text)


def _option(*names: str, panel: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


def _word(name: str, panel: str, text: str, metavar: str = "NAME") -> Any:
    return _option(name, panel=panel, help=text, metavar=metavar)


def _file(name: str, panel: str, text: str, metavar: str = "FILE") -> Any:
    return _word(name, panel, text, metavar)


def _number(*names: str, panel: str = SEARCH, text: str) -> Any:
    return _option(*names, panel=panel, help=text, metavar="N")


def listed(values: Sequence[str]) -> str:
    """Return values as a list in a sentence: ``a, b or c``."""
    *first, last = values
    return f"{', '.join(first)} or {last}" if first else last


def _choice(name: str, values: tuple[str, ...], panel: str, text: str) -> Any:
    """Return an option with a few allowed values, which replace ``{}`` in the text."""
    return _option(name, panel=panel, metavar="NAME", help=text.format(listed(values)))


def _flag(*names: str, panel: str, text: str) -> Any:
    # Typer shows the default of a flag with two names only.
    return _option(*names, panel=panel, help=text, metavar=" ", show_default="/" in names[0])


def _several(name: str, metavar: str, text: str, panel: str = ROWS) -> Any:
    return _word(name, panel, text, metavar)


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the completions of a metric's name, or of the last one after a comma, each with a description."""
    before, comma, begun = incomplete.rpartition(",")
    names = {alias: f"short for {name}" for alias, name in ALIASES.items()}
    names |= {name: record.citation for name, record in METRICS.items()}
    yield from ((before + comma + name, text) for name, text in names.items() if name.startswith(begun))


_SHORT = {name: alias for alias, name in ALIASES.items()}
_NAMES = ", ".join(_SHORT.get(name, name).partition(":")[0] for name in shown_in("study")[:3])

# Arguments
_READABLE = (
    "a table with ids and texts (CSV, TSV, Parquet, JSON, JSON Lines or Excel), or the folder or zip file of MIMIC-CXR"
)
_TESTS = "a file in any format that build-index reads, or a folder that build-index wrote"
_BUILT = "Index of the corpus: a folder that build-index wrote."
_SYNTHETIC = "Without INDEX and QUERIES, a synthetic corpus is made and searched."
Index = Annotated[Path, _argument("INDEX", _BUILT)]
TimedIndex = Annotated[Path | None, _argument("INDEX", f"{_BUILT} {_SYNTHETIC}")]


def _queries(text: str = "") -> Any:
    return _argument("QUERIES", f"Test reports: {_TESTS}.{text}")


Queries = Annotated[Path, _queries()]
QueriesOrText = Annotated[Path | None, _queries(" Needed unless --text is given.")]
TimedQueries = Annotated[Path | None, _queries(f" Needed with INDEX. {_SYNTHETIC}")]
Corpus = Annotated[Path, _argument("REPORTS", f"Reports: {_READABLE}.")]
References = Annotated[Path, _argument("REFERENCES", f"Reference reports, which radiologists wrote: {_TESTS}.")]
Predictions = Annotated[
    Path,
    _argument(
        "PREDICTIONS",
        "Reports that a model wrote: a table with ids and texts, a file as the code of R2Gen, CvT2DistilGPT2, "
        "M2 Trans, CXR-RePaiR, CXR-ReDonE or ReXrank writes it, or a folder that build-index wrote.",
    ),
]
_SAMPLED = "JSON Lines or Parquet with lists in the column candidates, or a table with one row per sample"
SampledReports = Annotated[
    Path, _argument("CANDIDATES", f"Several reports of a model for each study, called samples: {_SAMPLED}.")
]
ResultFile = Annotated[Path, _argument("RESULTS", "File of results that retrieve or baseline wrote with --out.")]
_RESULT_FILES = "Files of results or scores, such as retrieve, rerank, baseline or score wrote with --out"
ResultFiles = Annotated[list[Path] | None, _argument("RESULTS", f"{_RESULT_FILES}.")]
ResultsOrIndex = Annotated[
    list[Path] | None, _argument("RESULTS", f"{_RESULT_FILES}. They may be left out if --index is given.")
]
_COUNTS = (
    "Errors that radiologists counted: the published table of ReXVal, GREEN or RadEvalX, or a table with one row per "
    "pair, rater, error category and significance"
)
Ratings = Annotated[Path, _argument("RATINGS", f"{_COUNTS}.")]
_EMPTY = "It must not exist yet, or be empty and not the current folder."
_FOLDER = _argument("FOLDER", f"Folder for the files. {_EMPTY}")
Folder = Annotated[Path, _FOLDER]
FolderOrNone = Annotated[
    Path | None,
    _argument(
        "FOLDER",
        f"Folder in which corpus and index are kept. {_EMPTY} By default they are deleted at the end.",
    ),
]


Positives = Annotated[
    Path, _argument("POSITIVES", "Pairs of reports that say the same: a file that oracle mine wrote.")
]
Negatives = Annotated[
    Path | None,
    _argument(
        "NEGATIVES",
        "Pairs of reports that differ in what they say: a file that oracle mine wrote in the same index. Needed for "
        "the shapes triplet and labeled-list.",
    ),
]
Shape = Annotated[
    choices.Shape,
    _choice(
        "--shape",
        SHAPES,
        OUTPUT,
        "What a row of the file has: {}. triplet: anchor, positive, negative. n-tuple: anchor, positive and several "
        "negatives. labeled-pair: anchor, candidate and label, 1 or 0. labeled-list: anchor, a list of candidates and "
        "a list of labels. trec: relevance judgements by ids. trec writes .txt or .qrels, the others .parquet.",
    ),
]


# Searches
def _metric(text: str) -> Any:
    return typer.Option(*_METRIC, rich_help_panel=SEARCH, metavar="NAME", autocompletion=complete_metric, help=text)


_METRIC = ("-m", "--metric", "--metrics")
_LISTED = f"such as {_NAMES}; oracle metrics lists all"
Metric = Annotated[list[str], _metric(f"Metric under which the baseline is scored, {_LISTED}. A sum is not possible.")]
Summed = Annotated[
    list[str], _metric(f"Metric of the search, {_LISTED}; or a sum, such as radgraph+chexbert:agreement.")
]
_SEVERAL = f"{_LISTED}. Separate several by commas, or repeat the option."
Metrics = Annotated[
    list[str] | None, _metric(f"Metrics, {_SEVERAL} By default the usual ones whose inputs are all given.")
]
IndexedMetrics = Annotated[
    list[str] | None,
    _metric(f"Metrics that the index is built for, {_SEVERAL} By default all whose inputs are given."),
]
MetricsOfSamples = Annotated[list[str], _metric(f"Metrics of the samples, {_SEVERAL}")]
MetricsOfPairs = Annotated[
    list[str] | None,
    _metric(
        "Metrics to use: columns of --scores, or metrics of this tool under which the texts of the pairs are scored, "
        f"{_SEVERAL} By default all columns, or the usual metrics of texts if there are no --scores."
    ),
]
BLEU: Any = ("bleu",)  # the default metric
_TOP_K = ("-k", "--top-k")
TopK = Annotated[choices.Positive, _number(*_TOP_K, text="Number of best reports to return for each test report.")]
NCandidates = Annotated[choices.Positive, _number(*_TOP_K, text="Number of candidates to keep for each report.")]
Text = Annotated[
    str | None, _word("--text", SEARCH, "Text of one test report, in quotes, instead of a QUERIES file.", "REPORT")
]
Backend = Annotated[
    choices.Backend,
    _choice(
        "--backend",
        BACKENDS,
        SEARCH,
        "Backend of the search: {}. auto is cpu; cuda uses the GPUs of this machine; reference scores every report "
        "with the plain scorer and is slow. All return the same results.",
    ),
]
Backends = Annotated[
    list[str],
    _choice(
        "--backends",
        DEVICES,
        SEARCH,
        "Backends to time: {}, or both separated by a comma. One that this machine lacks is skipped.",
    ),
]
BOTH: Any = DEVICES
Threads = Annotated[
    choices.Threads | None, _number("--threads", text="Number of worker threads. By default one for each core.")
]


def _max_memory(text: str) -> Any:
    return typer.Option(_MAX_MEMORY, rich_help_panel=SEARCH, metavar="GB", help=text)


_MAX_MEMORY = "--max-memory"
MaxMemory = Annotated[
    choices.Memory | None,
    _max_memory("Memory in GB that the process should use at most. By default there is no limit."),
]
EncodingMemory = Annotated[
    choices.Memory | None,
    _max_memory(
        "Memory in GB that encoding for BERTScore may use, in addition to the model. By default there is no limit."
    ),
]
Part = Annotated[
    str | None,
    _word(
        "--part",
        SEARCH,
        "Search only the I-th of N parts, such as 3/16, so that N processes share the work. retrieve divides the "
        "shards of a set, mine the anchors. Needs --out; oracle merge joins the files of all parts. By default all "
        "is searched.",
        "I/N",
    ),
]
Parts = Annotated[
    list[Path],
    _argument("PARTS", "Files that retrieve --part or mine --part wrote, one for each part of the same search."),
]
Keep = Annotated[
    str | None,
    _word(
        "--keep",
        READING,
        "Columns of the table to store with the reports, such as subject_id; several with commas. --exclude of "
        "retrieve and mine can name them. By default none is stored.",
    ),
]
ShardRows = Annotated[
    choices.Positive | None,
    _number(
        "--shard-rows",
        text="Build a set of shards with N reports each instead of one index, for corpora that do not fit into memory. "
        "By default one index is built.",
    ),
]


@dataclass
class Running:
    """Options of the Ray cluster that works on the shards of a set."""

    runner: Annotated[
        choices.Runner | None,
        _choice(
            "--runner",
            RUNNERS,
            SEARCH,
            "Where the shards of a set are processed: {}, on a Ray cluster. It needs a set of shards, which "
            "build-index --shard-rows builds. By default they are processed in this process.",
        ),
    ] = None
    address: Annotated[
        str | None,
        _word(
            "--address",
            SEARCH,
            "Ray cluster to use with --runner ray: local starts one on this machine for the command, auto or "
            "HOST:PORT joins a running one. By default local.",
            "ADDRESS",
        ),
    ] = None
    num_gpus: Annotated[
        choices.Gpus | None,
        _word("--num-gpus", SEARCH, "Number of GPUs that each worker gets with --runner ray. By default 0.", "N"),
    ] = None


Weights = Annotated[
    Path | None,
    _file(
        "--weights",
        SEARCH,
        f"Weights of the metric {COMPOSITE}: a JSON file that fit-composite wrote. That metric needs them, and no "
        "other takes them.",
    ),
]


@dataclass
class Searching:
    """Options of an exact search that every command with one has: the fields of `SearchOptions` with these names."""

    backend: Backend = "auto"
    threads: Threads = None
    max_memory: MaxMemory = None
    weights: Weights = None
    exclude: Annotated[
        str | None,
        _word(
            "--exclude",
            SEARCH,
            "Leave out reports of the corpus: self (with the test report's id), text (with its text), same (equal for "
            "the metric), or the name of a column that build-index --keep stored (with its value); several with "
            "commas. By default none is left out.",
        ),
    ] = None
    min_score: Annotated[
        choices.MinScore | None,
        _word(
            "--min-score",
            SEARCH,
            "List only reports that score X or better. A list may then be shorter than -k. By default all scores "
            "count.",
            "X",
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        _word(
            "--where",
            SEARCH,
            "List only reports whose score by another metric is >=, >, <= or < X; may be repeated, and then all must "
            "hold. By default no other metric counts.",
            '"METRIC>=X"',
        ),
    ] = None


Draws = Annotated[choices.Draws, _number("--draws", text="Number of random reports to draw for each test report.")]
Sample = Annotated[
    choices.Count,
    _number("--sample", text="Number of test reports, drawn at random, that are searched again by brute force."),
]
Pool = Annotated[
    str,
    _word(
        "--pool",
        SEARCH,
        "Candidates that CREPE scores for each test report: the N best under another metric, or the whole corpus "
        "(all). With --recall, METRIC alone.",
        "METRIC:N",
    ),
]
AuditedQueries = Annotated[
    choices.Count,
    _number(
        "--audit",
        text="Number of test reports, drawn at random, for which CREPE scores the whole corpus, to measure how often "
        "the best report is missing from the pool. 0 means no audit.",
    ),
]
Recall = Annotated[
    choices.Recall | None,
    _word(
        "--recall",
        SEARCH,
        "Probability, between 0 and 1, with which the pool should contain a best report; the audit then chooses "
        "the size N of the pool. Needs --audit, and --pool METRIC without N. By default N is that of --pool.",
        "Q",
    ),
]
Seed = Annotated[
    choices.Seed, _number("--seed", panel=OUTPUT, text="Seed of the random draws. The same seed gives the same result.")
]


_REPORTS, _N_TESTS = "--reports", "--tests"


def _reports(text: str = "") -> Any:
    return _number(_REPORTS, text=f"Number of training reports in the synthetic corpus.{text}")


def _tests(text: str = "") -> Any:
    return _number(_N_TESTS, text=f"Number of test reports in the synthetic corpus.{text}")


NReports = Annotated[choices.Positive, _reports()]
NReportsOrNone = Annotated[choices.Positive | None, _reports(" By default 20000; not with INDEX.")]
NTests = Annotated[choices.Positive, _tests()]
NTestsOrNone = Annotated[choices.Positive | None, _tests(" By default 500; not with INDEX.")]
Generated = Annotated[
    bool,
    _flag(
        "--models",
        panel=SEARCH,
        text="Also write what three made-up models generate for the test reports, with graphs and labels.",
    ),
]
_ERRORS = "--errors"  # a column of ratings, and a flag of the synthetic corpus
WithErrors = Annotated[
    bool,
    _flag(
        _ERRORS,
        panel=SEARCH,
        text="Also write a copy of each report with zero to six artificial errors, and their number by category.",
    ),
]
Repetitions = Annotated[
    choices.Positive,
    _number("--repetitions", text="Number of times that each measurement is repeated; the median is shown."),
]
_VECTOR_FILE = "one vector per report, in .npz, .npy, .parquet or .pt"
_IDS_FILE = "if that file has none: a text file with one id per line, or a table with an id column"
_IF_NEAREST = ", if oracle baseline nearest wrote RESULTS"


def _corpus_vectors(when: str = "") -> Any:
    return _file("--corpus-vectors", FILES, f"Image embeddings of the corpus{when}: {_VECTOR_FILE}.")


def _query_vectors(when: str = "") -> Any:
    return _file("--query-vectors", FILES, f"Image embeddings of the test reports{when}: {_VECTOR_FILE}.")


CorpusVectors = Annotated[Path, _corpus_vectors()]
CorpusVectorsOrNone = Annotated[Path | None, _corpus_vectors(_IF_NEAREST)]
QueryVectors = Annotated[Path, _query_vectors()]
QueryVectorsOrNone = Annotated[Path | None, _query_vectors(_IF_NEAREST)]
CorpusVectorIds = Annotated[
    Path | None, _file("--corpus-vector-ids", FILES, f"Ids of the vectors in --corpus-vectors, {_IDS_FILE}.")
]
QueryVectorIds = Annotated[
    Path | None, _file("--query-vector-ids", FILES, f"Ids of the vectors in --query-vectors, {_IDS_FILE}.")
]
Check = Annotated[
    bool,
    _flag(
        "--check",
        panel=OUTPUT,
        text="Also read every file of the index and compare its checksum with the one stored when it was built; a "
        "difference is an error.",
    ),
]

# Models
_HUGGING_FACE = "a folder, or the name of a Hugging Face model, which is downloaded"
_ENCODER = _file(
    "--encoder",
    BERTSCORE,
    f"Encoder of BERTScore: {_HUGGING_FACE}. By default test reports of a search are encoded by the encoder of the "
    "index; elsewhere BERTScore needs this option.",
    "MODEL",
)
Layer = Annotated[
    choices.Count | None,
    _number(
        "--layer",
        panel=BERTSCORE,
        text="Number of the layer of --encoder whose hidden states BERTScore compares. By default 5 for "
        "distilroberta-base; any other encoder needs this option.",
    ),
]
States = Annotated[
    choices.States | None,
    _choice(
        "--states",
        STATES,
        BERTSCORE,
        "Precision in which the index stores the token states of --encoder for BERTScore: {}. float16 takes half the "
        "space and changes scores in the fifth digit. By default float32.",
    ),
]
Bf16 = Annotated[
    bool,
    _flag(
        "--bf16",
        panel=BERTSCORE,
        text="Run --encoder in bfloat16, which changes the scores of BERTScore. It is faster on a GPU and on "
        "processors with AVX-512 or AMX, and slower on others. By default the encoder runs in float32.",
    ),
]
Rescaling = Annotated[
    Path | None,
    _file(
        "--rescale-table",
        BERTSCORE,
        "Baselines of --encoder, with which BERTScore is then rescaled: the .tsv file of the bert_score package. By "
        "default the published ones of distilroberta-base; scores of other encoders are then not rescaled.",
    ),
]


@dataclass
class Bertscore:
    """Options that change BERTScores in a search."""

    idf: Annotated[
        str | None,
        _word(
            "--idf",
            BERTSCORE,
            "Weights of the tokens in BERTScore: off (equal weights), tests (inverse document frequencies in the "
            "test reports or references), corpus (in the reports of the index), or a table with the columns token_id "
            "and idf. By default off.",
            "FROM",
        ),
    ] = None
    rescale: Annotated[
        bool | None,
        _flag(
            "--rescale/--no-rescale",
            panel=BERTSCORE,
            text="Rescale BERTScore with the encoder's baseline, or do not. By default it is rescaled if the baseline "
            "is known: that of distilroberta-base, or from --rescale-table.",
        ),
    ] = None


@dataclass
class Models:
    """Options of the models that make graphs, embeddings, labels, entities and token states."""

    encoder: Annotated[str | None, _ENCODER] = None
    radgraph_encoder: Annotated[
        Path | None,
        _file(
            "--radgraph-encoder",
            FILES,
            "Folder with the configuration and tokenizer of the transformer that a RadGraph model is based on. By "
            "default a local folder of the transformer's name or, without one, the cache of Hugging Face is read.",
            "FOLDER",
        ),
    ] = None
    vocabulary: Annotated[
        Path | None,
        _file(
            "--vocabulary",
            FILES,
            "Vocabulary for --chexbert chexbert.pth: the file vocab.txt of bert-base-uncased. By default it is taken "
            "from the folder of chexbert.pth or, if it is not there, the cache of Hugging Face.",
        ),
    ] = None
    entity_encoder: Annotated[
        Path | None,
        _file(
            "--entity-encoder",
            FILES,
            "Folder of the model BioLORD-2023-C, which makes the vectors of entities. Needed if --entities is a model, "
            "and only then.",
            "FOLDER",
        ),
    ] = None
    device: Annotated[
        choices.Device | None,
        _choice(
            "--device", DEVICES, FILES, "Device that runs the models: {}. By default cuda if this machine has a GPU."
        ),
    ] = None


def _crepe(text: str = "") -> Any:
    return _file("--crepe", FILES, f"Checkpoint of CREPE: its folder, or the file of its weights.{text}")


Crepe = Annotated[Path, _crepe()]
CrepeOrNone = Annotated[Path | None, _crepe(" The metric crepe needs it.")]
_NEXT_TO_WEIGHTS = "By default the one in the folder of its weights."


@dataclass
class CrepeFiles:
    """Options for files of CREPE that are not in the folder of its weights."""

    crepe_config: Annotated[
        Path | None, _file("--crepe-config", FILES, f"Configuration of CREPE, config.json. {_NEXT_TO_WEIGHTS}")
    ] = None
    crepe_vocabulary: Annotated[
        Path | None,
        _file("--crepe-vocabulary", FILES, f"Vocabulary of CREPE, tokenizer.json or vocab.txt. {_NEXT_TO_WEIGHTS}"),
    ] = None


Uncertain = Annotated[
    choices.Uncertain | None,
    _choice(
        "--uncertain",
        UNCERTAIN,
        FILES,
        "What an uncertain label (-1) counts as: {}. blank means not mentioned. There is no default, because this "
        "changes the scores: needed with CheXbert labels, and where other labels are uncertain.",
    ),
]
_RECOGNIZED = "By default it is recognized by its name."
_LIKE = "By default that of the reference or test reports if this file has it, or else it is recognized by its name."
IdColumn = Annotated[str | None, _word("--id-column", READING, f"Column with the ids of the studies. {_RECOGNIZED}")]


_PANEL_OF = {"": FILES, "predicted_": PREDICTED, "model_": ROWS}
_OWNER = {"": "the reports", "predicted_": "the predictions", "model_": "the reports of the --model NAME"}
_QUERIES, _REFERENCES = "the reports in QUERIES", "the references"
_COUNTERPART = {"predicted_": "references", "model_": "test reports"}


TextColumn = Annotated[
    str | None, _word("--text-column", READING, f"Column with the texts of the reports. {_RECOGNIZED}")
]
Encoding = Annotated[
    str | None,
    _word("--encoding", READING, "Character encoding of text files, such as cp1252. By default it is detected."),
]
Separator = Annotated[
    str | None,
    _word(
        "--separator",
        READING,
        "Separator between the columns of CSV and TSV files: one character, or the word tab. By default it is "
        "detected.",
    ),
]
PredictedIdColumn = Annotated[
    str | None,
    _word("--predicted-id-column", PREDICTED, f"Column with the ids in the file that a model wrote. {_LIKE}"),
]
PredictedTextColumn = Annotated[
    str | None,
    _word("--predicted-text-column", PREDICTED, f"Column with the texts in the file that a model wrote. {_LIKE}"),
]


def _source_options(prefix: str, owner: str = "") -> dict[str, Any]:
    """Return the options for the sources in the registry, by the names of their arguments with the prefix.

    It is "" for the reports that a command reads, "predicted_" for predictions, and "model_" for the models of a study,
    whose options take NAME=FILE. `owner` calls the reports, by default as in `_OWNER`.
    """
    options: dict[str, Any] = {}
    for record in ATTACHED:
        for argument in record.arguments:
            name, first = (f"--{prefix}{word}".replace("_", "-") for word in (argument, record.arguments[0]))
            if name != first:
                text = f"Ids of the vectors in {first}, {_IDS_FILE}."
            else:
                text = f"{record.contents.format(owner or _OWNER[prefix])}."
                if record.model and not prefix:
                    also = ", also for the predictions" if owner == _REFERENCES else ""
                    text = f"{text[:-1]}; or {record.model}, which then makes them{also}."
                if prefix:
                    own = f"--{argument.replace('_', '-')}"
                    text += f" The {_COUNTERPART[prefix]} need them, too: {own}, or a folder built with it."
            if prefix == "model_":
                options[f"{prefix}{argument}"] = Annotated[
                    list[str] | None, _several(name, "NAME=FILE", f"{text} Repeatable.")
                ]
            else:
                options[f"{prefix}{argument}"] = Annotated[Path | None, _file(name, _PANEL_OF[prefix], text)]
    return options


def _model_options() -> dict[str, Any]:
    """Return the options of the sources that a model makes, for the command that runs these models only."""
    return {
        argument: Annotated[
            Path | None,
            _file(f"--{argument}", FILES, f"Model that makes {record.plural} of the reports: {record.model}."),
        ]
        for record in ATTACHED
        for argument in record.arguments[:1]
        if record.model
    }


if TYPE_CHECKING:

    class Files:
        """Sources of reports: graphs, embeddings, labels, entities."""

        def __getattr__(self, name: str) -> Any: ...

    class QueryFiles(Files):
        """Sources of test reports."""

    class ReferenceFiles(Files):
        """Sources of references."""

    class Annotators(Files):
        """Models that make sources, for `annotate`."""

    class PredictedFiles(Files):
        """Sources of predictions."""

    class ModelFiles(Files):
        """Sources of the reports of a study's models."""

else:

    def _group(name: str, options: dict[str, Any]) -> type:
        return make_dataclass(name, [(argument, kind, None) for argument, kind in options.items()])

    Annotators = _group("Annotators", _model_options())
    Files = _group("Files", {**_source_options(""), "uncertain": Uncertain})
    QueryFiles = _group("QueryFiles", {**_source_options("", _QUERIES), "uncertain": Uncertain})
    ReferenceFiles = _group("ReferenceFiles", {**_source_options("", _REFERENCES), "uncertain": Uncertain})
    PredictedFiles = _group("PredictedFiles", _source_options("predicted_"))
    ModelFiles = _group("ModelFiles", _source_options("model_"))


OverlapOfStudy = Annotated[
    bool,
    _flag(
        "--overlap",
        panel=OUTPUT,
        text="Also write overlap.md and overlap.csv into the folder of the study: what the reports of models and "
        "the test reports copy from the corpus, as oracle overlap measures it. Needs --out.",
    ),
]
Inner = Annotated[
    bool,
    _flag(
        "--inner",
        panel=PREDICTED,
        text="Use only the studies that have a reference and a prediction of each model. By default a missing one is "
        "an error.",
    ),
]


ExactChance = Annotated[
    bool,
    _flag(
        "--exact-chance",
        panel=SEARCH,
        text="Compute random retrieval exactly under BERTScore and composites that contain it. By default its mean is "
        "estimated there from a sample, with a standard error of at most 0.00005.",
    ),
]


@dataclass
class PredictedReading:
    """Options of how a file of predictions is read."""

    predicted_id_column: PredictedIdColumn = None
    predicted_text_column: PredictedTextColumn = None
    ids: Annotated[
        Path | None,
        _file(
            "--ids",
            PREDICTED,
            "Ids of the predictions in their order, if PREDICTIONS has none: R2Gen's annotation.json, a table, or a "
            "text file with one id per line. Of a file with splits, the ids of --split count, by default those of "
            "test.",
        ),
    ] = None
    metadata: Annotated[
        Path | None,
        _file(
            "--metadata",
            PREDICTED,
            "Metadata of MIMIC-CXR (mimic-cxr-2.0.0-metadata.csv.gz). Needed if PREDICTIONS has one row per image; one "
            "image of each study is then used.",
        ),
    ] = None
    predicted_section: Annotated[
        choices.Section | None,
        _choice(
            "--predicted-section",
            SECTIONS,
            PREDICTED,
            "Section of the predictions: {}. It must be that of the references, which is the default. Texts with both "
            "Findings: and Impression: are cut to it.",
        ),
    ] = None
    after_impression: Annotated[
        bool,
        _flag(
            "--after-impression",
            panel=PREDICTED,
            text='Use only the text that follows "Impression:" in each prediction. Not needed where most have '
            '"Findings:", too, and --section says which.',
        ),
    ] = False


@dataclass
class Reading:
    """Options of how a file of reports is read."""

    section: Annotated[
        choices.Section | None,
        _choice(
            "--section",
            SECTIONS,
            READING,
            "Section of the reports to use: {}. By default that of the index, or else the impression or the only "
            "section that a table has.",
        ),
    ] = None
    id_column: IdColumn = None
    text_column: TextColumn = None
    split: Annotated[
        str | None,
        _word(
            "--split",
            READING,
            'Split to read, such as "test", or several, such as "train+validate", from the column split of the reports '
            "or from --split-file. By default all reports are read.",
        ),
    ] = None
    split_file: Annotated[
        Path | None,
        _file(
            "--split-file",
            READING,
            "Table with an id column and a column split, which says which reports are in --split. Needs --split. By "
            "default the reports' own column split is used.",
        ),
    ] = None
    profile: Annotated[
        choices.Profile,
        _choice(
            "--profile",
            PROFILES,
            READING,
            "Published rules that cut sections out of MIMIC-CXR report files: {}. yu2023 is that of CXR-RePaiR and Yu "
            "et al., mit that of the repository MIT-LCP/mimic-cxr.",
        ),
    ] = "yu2023"
    encoding: Encoding = None
    separator: Separator = None


@dataclass
class Inputs:
    """Options of the reports that a command reads: their sources, the models that make them, and the file itself."""

    files: Files
    models: Models
    reading: Reading


@dataclass
class QueryInputs(Inputs):
    """Options of test reports, as in `Inputs`."""

    files: QueryFiles


@dataclass
class ReferenceInputs(Inputs):
    """Options of references, as in `Inputs`."""

    files: ReferenceFiles


Sampled = Annotated[
    Path | None,
    _file(
        "--sampled",
        ROWS,
        f"Several reports of a model for each study, to show with the test reports: {_SAMPLED}. By default none are "
        "shown.",
    ),
]
Copied = Annotated[
    Path | None,
    _file(
        "--copies",
        ROWS,
        "File that oracle overlap --pairs wrote for the test reports: .parquet, .csv or .jsonl. Pages then show the "
        "longest runs of words that reports share with training reports.",
    ),
]
ImagesFolder = Annotated[
    Path | None,
    _file(
        "--images",
        ROWS,
        "Folder of images to show with the reports: a file ID.png (.jpg, .jpeg, .webp) for each id, or a folder ID of "
        "such files, of which the first by name is shown.",
        "FOLDER",
    ),
]


# Tables and ratings
System = Annotated[
    str | None,
    _word(
        "--system",
        PREDICTED,
        "Name of the model that wrote PREDICTIONS. By default that of the file without its ending.",
    ),
]
_paired = partial(_several, "--paired", "A,B")
PairedMetrics = Annotated[
    list[str] | None,
    _paired("Two metrics whose agreement with radiologists is compared. By default all pairs are. Repeatable."),
]
IntervalMethod = Annotated[
    choices.Method,
    _choice(
        "--interval",
        INTERVALS,
        ROWS,
        "Method of the 95 % confidence intervals: {}. bca is the bias-corrected and accelerated bootstrap, percentile "
        "the percentile bootstrap, legacy-yu2023 the method of Yu et al.",
    ),
]
_RESAMPLES = "--resamples"
_DRAWN = f"Number of bootstrap resamples of the studies, for intervals and tests: {FEWEST} to {MOST}."
_SCORES_FLAG = "--scores"
_scores, _samples = (partial(_file, name, ROWS) for name in (_SCORES_FLAG, "--samples"))
_SCORES = "one row per pair, with the columns that name the pair in the ratings, and one column per metric"
_TEXTS = "a table like ReXVal's 50_samples_gt_and_candidates.csv, with one row per study and one column per candidate"
_OF_PAIRS = f"Scores of the rated pairs, by any tool: {_SCORES}."
_OR_SCORED = "By default the texts of the pairs are scored"
_IF_LACKING = "Needed to score the pairs if RATINGS has no texts"
Scores = Annotated[list[Path] | None, _scores(f"{_OF_PAIRS} {_OR_SCORED}. Repeatable.")]
Samples = Annotated[Path | None, _samples(f"Texts of the rated pairs: {_TEXTS}. {_IF_LACKING}.")]


@dataclass
class Rated:
    """Options of rated pairs: counted errors, texts and scores."""

    ratings: Annotated[
        Path | None,
        _file(
            "--ratings",
            ROWS,
            f"{_COUNTS}, to show with the reports. Needs --samples. By default none are shown.",
            "RATINGS",
        ),
    ] = None
    samples: Annotated[Path | None, _samples(f"Texts of the pairs in --ratings, which needs them: {_TEXTS}.")] = None
    scores: Annotated[
        list[Path] | None,
        _scores(f"Scores of the pairs in --ratings, by any tool: {_SCORES}. {_OR_SCORED}. Repeatable."),
    ] = None


Direction = Annotated[
    list[str] | None,
    _several(
        "--direction",
        "NAME=higher|lower",
        "Which values are better in the column NAME of scores that another tool wrote. Needed if NAME is not a metric "
        "of this tool. Repeatable.",
    ),
]
Foreign = Annotated[
    list[str] | None,
    _several(
        "--foreign",
        "NAME=FILE",
        "Scores of the system NAME by another tool, which are added to those of NAME, if there are any: a table with "
        "an id column and one column per metric. Columns of unknown metrics need --direction, or else are left out. "
        "Repeatable.",
    ),
]
ModelRows = Annotated[
    list[str] | None,
    _several(
        "--model",
        "NAME=FILE",
        "Reports that the model NAME wrote for the test reports. Each model is a row of the table. Repeatable.",
    ),
]
ScoredRows = Annotated[
    list[str] | None,
    _scores(
        "Further row of the table: its name, and a file of scores under all metrics of the study, as oracle best-of "
        "--scores or oracle score --out writes it. Repeatable.",
        "NAME=FILE",
    ),
]


@dataclass
class ModelsReading:
    """Options of how the files of several models are read: NAME=VALUE for the file of one model, or VALUE for all."""

    model_id_column: Annotated[
        list[str] | None,
        _several(
            "--model-id-column",
            "[NAME=]COLUMN",
            f"Column with the ids in the files that models wrote, or in that of NAME. {_LIKE} Repeatable.",
            PREDICTED,
        ),
    ] = None
    model_text_column: Annotated[
        list[str] | None,
        _several(
            "--model-text-column",
            "[NAME=]COLUMN",
            f"Column with the texts in the files that models wrote, or in that of NAME. {_LIKE} Repeatable.",
            PREDICTED,
        ),
    ] = None
    model_ids: Annotated[
        list[str] | None,
        _several(
            "--model-ids",
            "[NAME=]FILE",
            "Ids of the reports in the files that models wrote, or in that of NAME, in their order, if they have none. "
            "Of a file with splits, the ids of --split count, by default those of test. Repeatable.",
            PREDICTED,
        ),
    ] = None
    model_metadata: Annotated[
        list[str] | None,
        _several(
            "--model-metadata",
            "[NAME=]FILE",
            "Metadata of MIMIC-CXR (mimic-cxr-2.0.0-metadata.csv.gz). Needed if the files that models wrote, or that "
            "of NAME, have one row per image. Repeatable.",
            PREDICTED,
        ),
    ] = None
    model_section: Annotated[
        list[str] | None,
        _several(
            "--model-section",
            "[NAME=]SECTION",
            f"Section that the models write, or the model NAME: {listed(SECTIONS)}. By default that of the reference "
            "or test reports. Repeatable.",
            PREDICTED,
        ),
    ] = None


# A survey of radiologists
SurveyFolder = Annotated[Path, _argument("SURVEY", "Folder of the survey, which oracle survey create wrote.")]
Candidates = Annotated[
    list[str],
    _several(
        "--candidates",
        "NAME=FILE",
        "Candidate reports of one type: a result of retrieve, whose best report of each study is used, or the reports "
        "of a model. Raters do not see NAME. Repeatable.",
        SEARCH,
    ),
]
Raters = Annotated[
    list[str],
    _several(
        "--raters",
        "NAME",
        "Names of the raters, of letters, digits, - and _. Separate several by commas, or repeat the option.",
        SEARCH,
    ),
]
Studies = Annotated[choices.Positive, _number("--studies", text="Number of studies to draw.")]
Repeats = Annotated[
    choices.Count,
    _number(
        "--repeats",
        text="Number of studies that are shown a second time at the end, to measure how well each rater agrees with "
        "their own first answers.",
    ),
]
Identical = Annotated[
    choices.Identical,
    _choice(
        "--identical",
        IDENTICAL,
        SEARCH,
        "How candidates of a study with equal texts are rated: {}. once shows the text once and counts the answer for "
        "each of them; show shows each.",
    ),
]
Order = Annotated[
    choices.Order,
    _choice(
        "--order",
        ORDERS,
        SEARCH,
        "Order of studies and candidates: {}. shared is one random order for all raters; per-rater is another random "
        "order for each.",
    ),
]
Categories = Annotated[
    str,
    _word(
        "--categories",
        SEARCH,
        "Error categories that raters count: rexval (six), radevalx (eight), or a text file with one category per "
        "line.",
    ),
]
Stratify = Annotated[
    Path | None,
    _file(
        "--stratify",
        SEARCH,
        "Table with CheXbert labels (the stratum of a study is its rarest positive finding, or none) or with one "
        "column of strata beside the ids; it must have every reference. About equally many studies of each stratum are "
        "then drawn. By default every study is equally likely.",
    ),
]
Instructions = Annotated[
    Path | None,
    _file(
        "--instructions",
        SEARCH,
        "Text file with the instructions that raters see. By default built-in instructions are shown.",
    ),
]
Unequal = Annotated[
    bool,
    _flag(
        "--unequal",
        panel=SEARCH,
        text="Allow studies for which some files of candidates have no report. By default every file must have one for "
        "each drawn study.",
    ),
]
Partial = Annotated[
    bool,
    _flag(
        "--partial",
        panel=ROWS,
        text="Keep the raters who have not finished, and export only the pairs that all raters have finished. By "
        "default raters who have not finished are left out of the export.",
    ),
]
LeaveOut = Annotated[
    list[str] | None,
    _several(
        "--leave-out", "NAME=REASON", "Rater to leave out of the export, and the reason, which is recorded. Repeatable."
    ),
]


# Pages
def _index(text: str) -> Any:
    return _file("--index", SEARCH, text, "INDEX")


CountedIndex = Annotated[
    Path | None,
    _index(
        "Index whose document frequencies the metric cider-d:corpus and --idf corpus use, which need it: a folder that "
        "build-index wrote."
    ),
]
MinedIndex = Annotated[
    Path | None,
    _index(
        "Index that mine searched: a folder that build-index wrote. The texts of the pairs are read from it. Needed if "
        "mine wrote the files without texts, which is its default."
    ),
]
ShownIndex = Annotated[
    Path | None,
    _index(
        "Index that RESULTS were searched in: a folder that build-index wrote. With --queries, pages then show what "
        "the scores of its reports are based on; explore also searches it for texts that are typed in."
    ),
]
ShownQueries = Annotated[
    Path | None,
    _file(
        "--queries",
        SEARCH,
        f"Test reports: {_TESTS}. By default pages show the text of a test report only if a file of scores has it.",
        "QUERIES",
    ),
]
_port = partial(_number, "--port", panel=OUTPUT)
_OF_SERVER = "Port of the web server on this machine. 0 takes"
Port = Annotated[choices.Count, _port(text=f"{_OF_SERVER} a free port.")]
SurveyPort = Annotated[choices.Count, _port(text=f"{_OF_SERVER} that of the last time, or a free port the first time.")]

Anchors = Annotated[
    Path | None,
    _file(
        "--anchors",
        SEARCH,
        "Ids of the reports to find others for: a table with an id column, or a text file with one id per line. By "
        "default all reports of the index.",
    ),
]


@dataclass(frozen=True)
class Selection:
    """Options that say which candidates of a list are kept, under the names of sentence-transformers."""

    range_min: Annotated[
        choices.Count,
        _number(
            "--range-min",
            text="Number of the best candidates to leave out of the list of each report, after --exclude, --where and "
            "--min-score.",
        ),
    ] = 0
    range_max: Annotated[
        choices.Positive | None,
        _number(
            "--range-max",
            text="Last rank that may be kept, at least --range-min plus -k. By default there is no last rank.",
        ),
    ] = None
    max_score: Annotated[
        choices.MaxScore | None,
        _word(
            "--max-score", SEARCH, "Leave out candidates that score better than X. By default all scores count.", "X"
        ),
    ] = None
    positives: Annotated[
        Path | None,
        _file(
            "--positives",
            SEARCH,
            "File that oracle mine wrote in the same index, with the positives of each report. Only reports that have "
            "a positive are then searched for. Needed for --absolute-margin and --relative-margin, and only for them.",
        ),
    ] = None
    absolute_margin: Annotated[
        choices.Margin | None,
        _word(
            "--absolute-margin",
            SEARCH,
            "Leave out candidates whose score is not worse by X or more than that of the worst of the report's "
            "--positives, which it needs. By default there is no such margin.",
            "X",
        ),
    ] = None
    relative_margin: Annotated[
        choices.Margin | None,
        _word(
            "--relative-margin",
            SEARCH,
            "Leave out candidates whose score is not worse by this share or more than that of the worst of the "
            "report's --positives, which it needs: at 0.05, by 5 % of the positive's score. By default there is no "
            "such margin.",
            "SHARE",
        ),
    ] = None
    sampling_strategy: Annotated[
        choices.Strategy,
        _choice(
            "--sampling-strategy",
            STRATEGIES,
            SEARCH,
            "How the -k candidates are chosen from those that are not left out: {}. top takes the best, random draws "
            "them with equal probability and needs --range-max.",
        ),
    ] = "top"
    seed: Seed = 0


SelfScore = Annotated[
    bool,
    _flag(
        "--self-score",
        panel=SEARCH,
        text="Find nothing for a report whose score with itself is worse than the best that any report has with "
        "itself, such as one without a graph. By default candidates are found for all.",
    ),
]

# Output
WithText = Annotated[
    bool,
    _flag(
        "--with-text/--no-text", panel=OUTPUT, text="Include the texts of the reports in the result, or leave them out."
    ),
]
Components = Annotated[
    bool,
    _flag(
        "--components",
        panel=OUTPUT,
        text="Show in the table the terms of which a composite score such as RadCliQ is the sum; files have them "
        "anyway.",
    ),
]
PublishedNames = Annotated[
    bool,
    _flag(
        "--published-names",
        panel=OUTPUT,
        text="Name the columns of the CSV file as CXR-Report-Metric does. Needs --out FILE.csv.",
    ),
]
Plot = Annotated[Path | None, _file("--plot", OUTPUT, "Figure to write: .png, .svg or .pdf.")]
Quiet = Annotated[
    bool,
    _flag("--quiet", "-q", panel=OUTPUT, text="Print no notes and show no progress bar. Errors are still printed."),
]


def print_format(formats: Sequence[str], *, has_out: bool) -> Any:
    """Return the type of --format for a command that prints these formats; `has_out` if it can write files instead."""
    with_out = " With --out, the whole result is printed only if this option is given." if has_out else ""
    return Annotated[
        Literal[tuple(formats)] | None,
        _choice(
            "--format",
            tuple(formats),
            OUTPUT,
            "Format of what is printed: {}. By default a table on a terminal, and jsonl (JSON Lines) where the output "
            f"is redirected.{with_out}",
        ),
    ]


def _out(text: str) -> Any:
    return _file("--out", OUTPUT, text, "PATH")


def out(endings: Sequence[str], *, is_needed: bool) -> Any:
    """Return the option --out of a command that writes a file with one of these endings, or else prints the result."""
    text = f"File to write: {listed(endings)}. The ending chooses the format."
    if len(endings) == 1:
        text = f"File to write, with the ending {endings[0]}."
    return _out(f"{text} {'It must be given.' if is_needed else _PRINTED}")


_PRINTED = "By default the result is printed."
_NEW_FOLDER = "Folder to write. It must not exist yet"
NewFolder = Annotated[Path, _out(f"{_NEW_FOLDER}.")]
IndexFolder = Annotated[
    Path, _out(f"{_NEW_FOLDER}, unless it is a set of shards that the same command began and now goes on with.")
]
StudyFolder = Annotated[
    Path | None,
    _out(
        f"{_NEW_FOLDER}. It gets the table in several formats, and the results and scores that it is made of. "
        f"{_PRINTED}"
    ),
]
