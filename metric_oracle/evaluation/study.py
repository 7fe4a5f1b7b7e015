"""A whole study: models, oracles, random retrieval, the most frequent report and perfect answers, under all metrics."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.evaluation.comparison import Comparison, compare
from metric_oracle.indexes.build import build_index
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Encoding, Inputs, load_inputs
from metric_oracle.indexes.manifest import check_name
from metric_oracle.metrics import METRICS, Term, get_metric
from metric_oracle.retrieval import baselines
from metric_oracle.retrieval.answers import most_frequent_row
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.expectation import expectation
from metric_oracle.retrieval.pairs import score_rows
from metric_oracle.retrieval.results import Scores
from metric_oracle.retrieval.search import retrieve

# One metric of each kind; the other names are forms and parts of these.
METRICS_OF_STUDY = ("bleu-2", "rouge-l", "bertscore", "chexbert", "radgraph", "radcliq")
RANDOM, MOST_FREQUENT, IDENTITY = "random (expected)", "most frequent", "identity"


@dataclass(frozen=True)
class Model:
    """What a model wrote about the test reports; `files` are the keyword arguments of `load_inputs` for it."""

    predictions: Path
    files: Mapping[str, Path] = field(default_factory=dict)


def oracle_name(metric: str) -> str:
    """Return the name of an oracle's row."""
    return f"{metric} oracle"


def run_study(
    index: Index,
    queries: Inputs,
    models: Mapping[str, Model] | None = None,
    *,
    metrics: tuple[str, ...] | None = None,
    progress: Callable[[str, int, int], object] | None = None,
) -> dict[str, Scores]:
    """Score every system of a study under every metric.

    Parameters
    ----------
    index : Index
    queries : Inputs
        Test reports with what the metrics read.
    models : mapping
        Name -> what a model wrote for each test report.
    metrics : tuple of str
        By default those of `METRICS_OF_STUDY` that the index holds; each has an oracle and a column.
    progress : function
        Called with the name of a step, and the numbers of finished steps and of all.

    Returns
    -------
    dict
        Name of the row -> scores: the models, the oracles, the most frequent report, what a perfect answer gets, and
        the exact expectation of random retrieval, whose score of a test report is the mean over all corpus rows.
    """
    names = [get_metric(name, "study").name for name in metrics or [m for m in METRICS_OF_STUDY if m in index.metrics]]
    given = models or {}
    files = [file_name(name) for name in given]
    unusable = [name for name, file in zip(given, files, strict=True) if not file or files.count(file) > 1]
    if unusable:
        msg = (
            f"study: models must have names that make different file names; got {unusable[0]!r}. Use other letters, "
            "digits, - and _."
        )
        raise InputError(msg)
    taken = sorted({*map(oracle_name, names), MOST_FREQUENT, IDENTITY, RANDOM} & given.keys())
    if taken:
        msg = f"study: models must have names that no other row has; got {taken[0]!r}. Choose another."
        raise InputError(msg)
    steps = iter(range(len(given) + len(names) + 3))
    total = len(given) + len(names) + 3

    def step(name: str) -> None:
        done = next(steps)
        if progress is not None:
            progress(name, done, total)

    systems: dict[str, Scores] = {}
    for name, model in given.items():  # first: a bad file shows before the long work
        step(name)
        systems[name] = _score_model(index, queries, name, model, names)
    for metric in names:
        step(oracle_name(metric))
        rows = retrieve(index, queries, metric, text=False).table["row"].to_numpy()
        systems[oracle_name(metric)] = score_rows(index, queries, rows, names, system=oracle_name(metric))
    step(MOST_FREQUENT)
    held = [index.representation(METRICS[name]).row_id for name in names]
    row = most_frequent_row(index, _common(held))
    rows = np.full(len(queries.ids), row)
    systems[MOST_FREQUENT] = score_rows(index, queries, rows, names, system=MOST_FREQUENT)
    step(IDENTITY)
    own = {name: baselines.identity(index, queries, name, text=False).table["score"] for name in names}
    systems[IDENTITY] = _scores(systems[MOST_FREQUENT], own, IDENTITY)
    step(RANDOM)
    expected, ranges = _expected(index, queries, names)
    random = _scores(systems[MOST_FREQUENT], {name: expected[name] for name in names}, RANDOM)
    averaged = {"over": "all reports of the corpus", "ranges": ranges}
    systems[RANDOM] = replace(random, signature={**random.signature, "averaged": averaged})
    return systems


def _score_model(index: Index, queries: Inputs, name: str, model: Model, metrics: list[str]) -> Scores:
    """Index what a model wrote in a temporary folder, with the encoder of the study's index, and score it."""
    read = read_predictions(model.predictions)
    place = {study: row for row, study in enumerate(read.ids)}
    lacking = [study for study in queries.ids if study not in place]
    if lacking:
        msg = (
            f"study: model {name!r} must have a prediction for each test report; got {len(lacking)} of "
            f"{len(queries.ids)} without ({shown_names(lacking[:3])}). Complete its file, or leave these reports out."
        )
        raise InputError(msg)
    encoding = None
    if any("bertscore" in METRICS[metric].representations for metric in metrics):
        states: Any = index.representation(METRICS["bertscore"])
        baseline = states.description["baseline"]
        encoding = Encoding(
            states.open_encoder(queries), states.states.dtype, None if baseline is None else tuple(baseline)
        )
    labels = queries.attached.get("labels")
    uncertain = None if labels is None else labels.settings["uncertain"]
    options: dict[str, Any] = {
        **model.files,
        "uncertain": uncertain,
        "encoding": encoding,
    }
    inputs = load_inputs(read.ids, read.texts, "study", **options)
    with tempfile.TemporaryDirectory() as folder:
        written = build_index(inputs, Path(folder) / "predictions", metrics=metrics)
        rows = np.array([place[study] for study in queries.ids])
        return score_rows(written, queries, rows, metrics, system=name)


def _common(row_ids: list[np.ndarray]) -> np.ndarray:
    """Return the corpus rows that every metric can score, ascending."""
    common = np.unique(row_ids[0])
    for row_id in row_ids[1:]:
        common = np.intersect1d(common, row_id)
    if not len(common):
        msg = "study: the index must have a report that every metric can score; got none. Name fewer with --metrics."
        raise InputError(msg)
    return common


def _expected(
    index: Index, queries: Inputs, metrics: list[str]
) -> tuple[dict[str, np.ndarray], dict[str, list[float] | None]]:
    """Return each query's mean score over the corpus under each metric, float64[Q], and the range of the single scores.

    The mean of a composite is the composite of its parts' means where all of them can score the same rows: then nothing
    has to be scored twice, and the range is not known.
    """
    ranges: dict[str, list[float] | None] = dict.fromkeys(metrics)
    means: dict[str, np.ndarray] = {}
    rows = {metric: np.unique(index.representation(METRICS[metric]).row_id) for metric in metrics}
    for metric in sorted(metrics, key=lambda name: METRICS[name].kernel == "composite"):
        terms: Mapping[str, Term] = METRICS[metric].options.get("terms", {})  # type: ignore[assignment]
        if terms and all(part in means and np.array_equal(rows[part], rows[metric]) for part in terms):
            columns = zip(*(means[part].tolist() for part in terms), strict=True)
            intercept = METRICS[metric].options["intercept"]
            means[metric] = np.array([composite(values, terms.values(), intercept) for values in columns])
        else:
            table = expectation(index, queries, metric).table
            means[metric] = table["mean"].to_numpy()
            ranges[metric] = [float(table["min"].to_numpy().min()), float(table["max"].to_numpy().max())]
    return means, ranges


def _scores(like: Scores, columns: Mapping[str, Any], system: str) -> Scores:
    """Return scores that were made otherwise, with the signature of the metrics of others."""
    table = pa.table({"query_id": like.table["query_id"], **{name: pa.array(v) for name, v in columns.items()}})
    return Scores(table, {**like.signature, "system": system})


def file_name(name: str) -> str:
    """Return a name in letters, digits, - and _ alone."""
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def check_folder(out: Path) -> None:
    """Raise unless a study can be written there, before the work is done."""
    check_name(out, "study", "out")
    if out.exists() or out.is_symlink():
        msg = f"study: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)
    if not out.parent.is_dir():
        msg = f"study: out must be in an existing folder; got {out}. Make the folder first."
        raise InputError(msg)


def compare_study(
    systems: Mapping[str, Scores], progress: Callable[[str, int, int], object] | None = None
) -> Comparison:
    """Return the table of a study, with changes from random retrieval and shares of the way to each oracle."""
    rows = next(iter(systems.values())).metrics
    return compare(
        systems,
        random=RANDOM,
        perfect=IDENTITY,
        oracles={metric: oracle_name(metric) for metric in rows},
        progress=progress,
    )
