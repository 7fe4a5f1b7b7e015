"""Values that an argument or option may have, declared once.

Public signatures, the fields of public options and the options of the command line are annotated with the types; both
doors check them by `check_declared`. In an annotation, a text after a bound is the next step of its message.
A type that means the same wherever it occurs has its text here, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_doc import Doc
from annotated_types import Ge, Gt, Interval, Unit

from metric_oracle.base.declarations import FILES, IN_PYTHON, OUTPUT, PREDICTED, READING, ROWS, SEARCH, Flag

Backend = Literal["auto", "cpu", "cuda", "reference"]
Device = Literal["cpu", "cuda"]
Runner = Annotated[
    Literal["ray"],
    "Leave it out to work in this process.",
    Doc(
        "Where the shards of a set are processed: {}, on a Ray cluster. It needs a set of shards, which "
        "[`build_index`][metric_oracle.build_index] makes with `shard_rows`; a shard whose worker was lost is "
        "processed again, three times at most. By default they are processed in this process."
    ),
]
States = Literal["float32", "float16"]  # how token states are stored
Section = Literal["impression", "findings", "findings+impression"]
Profile = Literal["yu2023", "mit"]  # rules that cut the sections out of MIMIC-CXR files
Method = Literal["bca", "percentile", "legacy-yu2023"]  # of an interval
Uncertain = Annotated[  # how uncertain labels are counted
    Literal["positive", "negative", "blank"],
    "Say what an uncertain label counts as: it changes the score and is recorded.",
]
Baseline = Literal["random", "most-frequent", "identity", "nearest"]
# Arguments of each kind of baseline; other kinds must not be given them.
OF_BASELINES = {"random": ("draws", "seed"), "nearest": ("corpus_vectors", "query_vectors")}
Identical = Literal["once", "show"]  # equal candidates of a survey
Order = Literal["shared", "per-rater"]
Shape = Literal["triplet", "n-tuple", "labeled-pair", "labeled-list", "trec"]  # of pairs to train on
Strategy = Literal["top", "random"]  # which candidates of a list are kept
BACKENDS, DEVICES, STATES = map(get_args, (Backend, Device, States))
SECTIONS, PROFILES, INTERVALS = map(get_args, (Section, Profile, Method))
IDENTICAL, ORDERS, SHAPES = map(get_args, (Identical, Order, Shape))
UNCERTAIN = get_args(get_args(Uncertain)[0])
LEGACY = "legacy-yu2023"
RESTRICTIONS = ("exclude", "min_score", "where")  # options that leave rows out of lists
# Endings of files of results, of tables and of figures.
RESULTS = (".parquet", ".csv", ".jsonl")
TABLES = (".md", ".tex", ".csv", ".parquet", ".jsonl")
FIGURES = (".png", ".svg", ".pdf")
# Numbers of resamples: with fewer, the ends of a 95 % interval are two or three draws; more take hours and no one sees.
FEWEST, MOST = 100, 1_000_000

Positive = Annotated[int, Ge(1)]
Millimetres = Annotated[float, Interval(ge=40, le=500)]  # width of a figure
Count = Annotated[int, Ge(0)]
Seed = Annotated[
    int,
    Ge(0),
    Doc("Seed of the random draws. The same seed gives the same result."),
    Flag(panel=OUTPUT),
]
Threads = Annotated[
    int,
    Ge(1),
    "Leave it out to use all cores.",
    Doc("Number of worker threads. By default one for each core. The result does not depend on it."),
    Flag(panel=SEARCH),
]
Memory = Annotated[float, Gt(0), Unit("GB"), "Choose one, or leave it out."]
Address = Annotated[
    str,
    Doc(
        "Ray cluster to use with `runner` ray: local starts one on this machine for the call, auto or HOST:PORT joins "
        "a running one. By default local."
    ),
    Flag(metavar="ADDRESS"),
]
Gpus = Annotated[
    float, Ge(0), Doc("Number of GPUs that each worker gets with `runner` ray. By default 0."), Flag(metavar="N")
]
MinScore = Annotated[float, "Give a score of the metric."]
MaxScore = Annotated[float, "Choose another."]
Margin = Annotated[float, Ge(0), "Choose another."]
Draws = Annotated[int, Interval(ge=1, le=10_000)]
Recall = Annotated[float, Interval(gt=0, lt=1), "Choose one, such as 0.95."]
LearningRate = Annotated[float, Interval(gt=0, lt=1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Rate = Annotated[float, Interval(gt=0, lt=1), "Yu et al. take 0.01."]
Level = Annotated[float, Interval(gt=0, lt=1), "The usual one is 0.95."]
Bins = Annotated[int, Interval(ge=2, le=1024)]
_DRAWN = f"Number of bootstrap resamples of the studies, for intervals and tests: {FEWEST} to {MOST}."
Resamples = Annotated[
    int,
    Interval(ge=FEWEST, le=MOST),
    "The default is 10000.",
    Doc(f"{_DRAWN} By default 10000."),
    Flag(panel=ROWS),
]
ResamplesOfRaters = Annotated[int, Interval(ge=FEWEST, le=MOST), "The default is 1000.", Doc(_DRAWN), Flag(panel=ROWS)]
IntervalMethod = Annotated[
    Method,
    Doc(
        "Method of the 95 % confidence intervals: {}. bca is the bias-corrected and accelerated bootstrap, percentile "
        "the percentile bootstrap, legacy-yu2023 the method of Yu et al."
    ),
    Flag("--interval", panel=ROWS),
]
OUT = Flag("--out", metavar="PATH", panel=OUTPUT)  # of a folder
# The metric of a search, and those of other functions; `metrics` has the records.
METRIC = Flag("-m", "--metric", "--metrics", panel=SEARCH)
OneMetric = Annotated[
    str,
    Doc(
        "Metric of the search, such as bleu, rouge-l or radgraph, see [`list_metrics`][metric_oracle.list_metrics]; or "
        "a sum, such as radgraph+chexbert:agreement."
    ),
    METRIC,
]
Metrics = Annotated[
    str | Sequence[str],
    Doc(
        "Metrics, such as bleu, rouge-l or radgraph, see [`list_metrics`][metric_oracle.list_metrics]; several with "
        "commas. By default the usual ones whose inputs are all given."
    ),
    METRIC,
]
Directions = Annotated[
    Mapping[str, str],
    Doc(
        "Which values are better, higher or lower, by the name of a column of scores that another tool wrote. Needed "
        "if the name is not that of a metric of this tool."
    ),
    Flag("--direction", metavar="NAME=higher|lower", panel=ROWS),
]
MetricOfScores = Annotated[
    str,
    Doc(
        "Metric of the scores, such as bleu, rouge-l or radgraph, see [`list_metrics`][metric_oracle.list_metrics]. A "
        "sum is not possible."
    ),
    METRIC,
]
IndexFolder = Annotated[
    str | Path,
    Doc("Index or shard set of the corpus: a folder that [`build_index`][metric_oracle.build_index] wrote."),
]
Parts = Annotated[
    Sequence[str | Path], Doc("Files that were written with `part`, one for each part of the same search.")
]
Crepe = Annotated[
    str | Path | Mapping[str, Any],
    Doc(
        "Checkpoint of CREPE: its folder, or the file of its weights. In Python also a dict with the keys path, "
        "config, vocabulary and device, of which the files may be in different folders."
    ),
    Flag("--crepe", metavar="FILE", panel=FILES, kind=Path),
]
_VECTORS = (
    "by which the baseline nearest chooses: one vector per report, in .npz, .npy, .parquet or .pt. In Python also a "
    "dict of id to vector, or a pair of vectors and ids."
)
CorpusVectors = Annotated[
    Any,
    Doc(f"Image embeddings of the corpus, {_VECTORS}"),
    Flag(panel=FILES),
]
QueryVectors = Annotated[
    Any,
    Doc(f"Image embeddings of the test reports, {_VECTORS}"),
    Flag(panel=FILES),
]
NewFolder = Annotated[
    str | Path,
    Doc("Folder to write. It must not exist yet."),
    OUT,
]
# Search options that are used most, as arguments of functions beside `SearchOptions`.
K = Annotated[int, Doc("Number of reports to list; replaces that of `options`."), IN_PYTHON]
WithText = Annotated[
    bool,
    Doc("Include the texts of the reports in the result."),
    Flag("--with-text/--no-text", panel=OUTPUT),
]
# The reports of two sides, and how they are read and joined.
References = Annotated[
    Any,
    Doc(
        "Reference reports, which radiologists wrote: in any form that [`build_index`][metric_oracle.build_index] "
        "takes, or a folder that it wrote."
    ),
]
Predictions = Annotated[
    Any,
    Doc(
        "Reports that a model wrote: a table with ids and texts, a file as the code of R2Gen, CvT2DistilGPT2, M2 "
        "Trans, CXR-RePaiR, CXR-ReDonE or ReXrank writes it, or a folder that "
        "[`build_index`][metric_oracle.build_index] wrote."
    ),
]
IdColumn = Annotated[
    str,
    Doc("Column with the ids of the studies. By default it is recognized by its name."),
    Flag(panel=READING),
]
Inner = Annotated[
    bool,
    Doc(
        "Use only the studies that have a reference and a prediction of each model. By default a missing one is an "
        "error."
    ),
    Flag(panel=PREDICTED),
]
