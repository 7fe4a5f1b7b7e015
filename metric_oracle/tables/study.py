"""A whole study: models, oracles, random retrieval, the most frequent report and perfect answers, under all metrics.

Every finished step is a file (`study_steps.py`): a study that was killed goes on. Metrics over token states come last,
since their steps take minutes where the others take seconds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from hashlib import sha256
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.api.attached import AttachedReports, attached
from metric_oracle.api.given import Given, names_of, opened, say
from metric_oracle.api.searching import loaded
from metric_oracle.corpora.reports import Reports, check_left_out
from metric_oracle.corpora.sections import check_sections
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, called, option
from metric_oracle.indexes import manifest
from metric_oracle.indexes.build import build_index, inputs_digest
from metric_oracle.indexes.index import Index, open_index
from metric_oracle.indexes.shards import is_set, one_index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, SOURCES, get_metric, shown_in
from metric_oracle.progress import Progress
from metric_oracle.retrieval.answers import most_frequent_row
from metric_oracle.retrieval.baselines import plan_baseline
from metric_oracle.retrieval.checks import check_section, with_frequencies
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.expectation import plan_expectation
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.pairs import join_ids, score_rows
from metric_oracle.retrieval.plan import plan
from metric_oracle.retrieval.results import Results, Scores, read_results, read_scores
from metric_oracle.sources.contract import source_of
from metric_oracle.sources.inputs import Inputs, attached_sources, load_inputs
from metric_oracle.sources.token_states import Encoding
from metric_oracle.tables.comparison import Comparison, compare
from metric_oracle.tables.study_steps import Steps, checksum_of, file_name, workplace
from metric_oracle.tables.systems import IDENTITY, MOST_FREQUENT, RANDOM


@dataclass(frozen=True)
class _Model:
    """What a model wrote about the test reports, with its sources.

    Parameters
    ----------
    given : AttachedReports
    """

    given: AttachedReports

    def __post_init__(self) -> None:
        check_left_out(self.given.encoding, (), "study", "a model's reports, which the encoder of the index encodes")

    @property
    def files(self) -> Mapping[str, Any]:
        """What was given for the metrics to read."""
        return self.given.sources

    @property
    def index(self) -> Index | None:
        """The index that stands for the predictions, if one does."""
        given = self.given.data
        if isinstance(given, str | Path) and is_set(Path(given)):
            raise InputError(one_index(Path(given), "study"))
        is_index = isinstance(given, str | Path) and (Path(given) / manifest.NAME).is_file()
        return open_index(given) if is_index else None

    def read(self) -> Reports:
        """Read the predictions.

        Returns
        -------
        Reports
            The reports, of the file or of the index.
        """
        index = self.index
        if index is None:
            try:
                return self.given.read("study", predictions=True)[0]
            except InputError as error:
                model_ids = option("model_ids", "NAME=FILE", python="ids=FILE")
                error.step = error.step.replace(option("ids", "FILE"), model_ids)
                raise
        texts = {name: index.strings(name).to_pylist() for name in ("study_id", "text")}
        return Reports(texts["study_id"], texts["text"], str(self.given.data), {}, {}, *index.section)

    def holds(self, queries: Inputs) -> set[str]:
        """Return the representations that can be made of the predictions.

        Parameters
        ----------
        queries : Inputs
            Test reports of the study.

        Returns
        -------
        set of str
            Names of representations.
        """
        index = self.index
        if index is not None:
            return set(index.content["representations"])
        found = {kind for kind, record in REPRESENTATIONS.items() if record.is_of_texts or record.is_encoded}
        for source in attached_sources():
            if source.argument in self.files:
                found.add(source.name)
            elif source.record.made_by and source.name in queries.attached:
                maker = source_of(source.record.made_by)
                found |= {source.name} if maker.is_model(self.files.get(maker.argument)) else set()
        return found


def oracle_name(metric: str) -> str:
    """Return the name of an oracle's row."""
    return f"{metric} oracle"


@called("study")
def run_study(
    index: str | Path | Index,
    queries: Given,
    models: Mapping[str, Any] | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    inner: bool = False,
    out: str | Path | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Scores]:
    """Score every system of a study under every metric.

    Parameters
    ----------
    index : path or Index
        The corpus.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, with what the metrics read in addition to the texts: [`reports`][metric_oracle.reports].
    models : dict of str to reports, optional
        By name, what each model wrote about the test reports: a file, a container, a prepared folder, or
        [`reports`][metric_oracle.reports] with its sources, which are files.
    metrics : str or sequence of str, optional
        By default one of each kind that index, queries and models allow; each has an oracle and a column.
    inner : bool, default False
        Leave out test reports that a model has no prediction for; otherwise they are an error.
    out : path, optional
        New folder of the study. Its finished steps are kept next to it in ``<out>.unfinished``, where the same call
        goes on after a kill: a file for the scores of each row, and for each oracle one of its reports. The folder is
        renamed once the table is written, see `tables.study_folder`.
    threads : int, optional
        Worker threads of searches and expectations; by default the cores of this process.
    progress : function, optional
        Called as ``progress(step, done, total)``.

    Returns
    -------
    dict of str to Scores
        By the name of the row: the models, the oracles, the most frequent report, what a perfect answer gets, and
        the exact expectation of random retrieval, whose score of a test report is the mean over all corpus rows.

    Raises
    ------
    InputError
        If an argument is wrong, or index, test reports and models do not fit one another.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["small effusion", "clear"], f"{folder}/INDEX", metrics="rouge-l")
    >>> systems = mo.study(index, ["small effusion"], {"model": ["effusion"]}, metrics="rouge-l")
    >>> list(systems)
    ['model', 'rouge-l oracle', 'most frequent', 'identity', 'random (expected)']
    """
    index = opened(index)
    tell = queries.models.get("tell") if isinstance(queries, AttachedReports) else None
    queries = loaded(queries, index)
    check_section(queries, index)
    said = index.section if index.section[0] else queries.section
    queries = replace(queries, section=said)
    out = None if out is None else Path(out)
    given = {name: _Model(attached(model)) for name, model in (models or {}).items()}
    names = _metrics(index, queries, given, names_of(metrics))
    _check_models(given, names)
    read = {name: model.read() for name, model in given.items()}  # a bad file shows before the long work
    for name, reports in read.items():
        own = option("model_section", f"{name}={said[0]}", python=f"mo.reports(..., section={said[0]})")
        step = f"Say by {own} what it writes, or search an index of its section"
        warning = check_sections("study", said, reports.said, ("test reports", f"model {name!r}"), step)
        if warning:
            say(warning, tell)
    rows, queries = _rows(read, queries, inner)
    base = [version("metric-oracle"), index.fingerprint, inputs_digest(queries), names]
    with workplace(out) as folder:
        steps = Steps(folder, base, len(queries.ids), len(given) + 3 * len(names) + 2, progress)
        steps.clear({file_name(name): _made_of(model, read[name]) for name, model in given.items()})
        systems: dict[str, Scores] = {}
        for name, model in given.items():
            made_of = _made_of(model, read[name])
            place = steps.place(file_name(name), made_of)
            make = _Predicted(index, queries, name, model, read[name], rows[name], names, place)
            systems[name] = steps.run(name, file_name(name), read_scores, make, made_of)
            steps.leave(place)

        def oracles(metrics: Iterable[str]) -> None:
            for metric in metrics:
                row = oracle_name(metric)

                def search(metric: str = metric) -> Results:
                    return plan(index, metric, SearchOptions(threads=threads)).run(queries, steps.searching())

                found = steps.run(f"{row}: search", f"{file_name(row)}-reports", read_results, search)

                def score(found: Results = found, row: str = row) -> Scores:
                    return score_rows(index, queries, found.table["row"].to_numpy(), names, system=row)

                systems[row] = steps.run(row, file_name(row), read_scores, score)

        late = [name for name in names if "bertscore" in METRICS[name].representations]
        early = [name for name in names if name not in late]
        oracles(early)
        scorable = {name: np.unique(representation_of(index, METRICS[name]).row_id) for name in names}
        most_frequent = np.full(len(queries.ids), most_frequent_row(index, _common(scorable.values())))
        like = systems[MOST_FREQUENT] = steps.run(
            MOST_FREQUENT,
            file_name(MOST_FREQUENT),
            read_scores,
            lambda: score_rows(index, queries, most_frequent, names, system=MOST_FREQUENT),
        )

        def perfect() -> Scores:
            without_text = SearchOptions(text=False)
            planned = {name: plan_baseline(index, "identity", name, without_text) for name in names}
            own = {name: one.run(queries).table["score"] for name, one in planned.items()}
            return _scores(like, own, IDENTITY)

        systems[IDENTITY] = steps.run(IDENTITY, file_name(IDENTITY), read_scores, perfect)
        chance = _Chance(index, queries, scorable, like, steps, threads)
        chance.average(early)
        oracles(late)
        systems[RANDOM] = chance.row()
    order = [*given, *map(oracle_name, names), MOST_FREQUENT, IDENTITY, RANDOM]
    return {name: systems[name] for name in order}


def _rows(read: Mapping[str, Reports], queries: Inputs, inner: bool) -> tuple[dict[str, dict[str, int]], Inputs]:
    """Return the place of each test report among each model's predictions, and the test reports that all have."""
    asked = Reports(list(queries.ids), list(queries.texts), "", {}, {})
    found: dict[str, dict[str, int]] = {}
    for name, reports in read.items():
        places, answered, _ = join_ids(asked, reports, True, lambda line: None, "study")
        found[name] = {asked.ids[i]: row for i, row in zip(places, answered, strict=True)}
        lacking = [study for study in asked.ids if study not in found[name]]
        if lacking and not inner:
            raise InputError(
                f"model {name!r} has no prediction for {len(lacking)} of {len(asked.ids)} test reports "
                f"({shown_names(lacking[:3])}).",
                f"Complete its file, or pass {option('inner', True)} to leave these reports out.",
            )
    kept = [i for i, study in enumerate(asked.ids) if all(study in rows for rows in found.values())]
    if not kept:
        raise InputError(
            f"no test report is predicted by every model; there are {len(asked.ids)}.", "Leave a model out."
        )
    return found, queries if len(kept) == len(asked.ids) else queries.take(np.array(kept))


def _metrics(index: Index, queries: Inputs, models: Mapping[str, _Model], metrics: list[str] | None) -> list[str]:
    """Return the names of the metrics asked for, or of one of each kind that everything allows."""
    if metrics:
        return [get_metric(name, "study").name for name in metrics]
    given = {kind for kind, record in REPRESENTATIONS.items() if not record.is_attached} | set(queries.attached)
    held = [given, *(model.holds(queries) for model in models.values())]
    names = [
        name
        for name in shown_in("study")
        if name in index.metrics and all(set(METRICS[name].representations) <= one for one in held)
    ]
    if not names:
        raise InputError(
            "index, test reports and models allow no metric of a study.",
            f"Build the index for one of {', '.join(shown_in('study'))}.",
        )
    return names


def _check_models(models: Mapping[str, _Model], metrics: list[str]) -> None:
    """Raise unless the names of models can be names of rows and of files."""
    own = [*map(oracle_name, metrics), MOST_FREQUENT, IDENTITY, RANDOM]
    taken = sorted({*own} & models.keys())
    if taken:
        raise InputError(
            argument="models",
            rule="must have names that no other row has",
            value=repr(taken[0]),
            step="Choose another name.",
        )
    files = [file_name(name) for name in models]
    others = [file_name(name) for name in own] + [f"{file_name(oracle_name(metric))}-reports" for metric in metrics]
    for name, file in zip(models, files, strict=True):
        if not file or (files + others).count(file) > 1 or file.startswith(f"{file_name(RANDOM)}-"):
            raise InputError(
                argument="models",
                rule="must have names that make different file names",
                value=repr(name),
                step="Use other letters, digits, - and _.",
            )


def _made_of(model: _Model, read: Reports) -> list[Any]:
    """Return what the scores of a model depend on beside the study's own."""
    in_memory = [name for name, value in model.files.items() if not isinstance(value, str | Path)]
    if in_memory:
        msg = (
            f"study: {in_memory[0]} of a model must be a file, so that a study that was killed can go on; got "
            f"{type(model.files[in_memory[0]]).__name__}. Write it to a file, or prepare the reports with build-index."
        )
        raise InputError(msg)
    files = {name: checksum_of(Path(path)) for name, path in sorted(model.files.items())}
    given = model.index
    texts = sha256(json.dumps([read.ids, read.texts]).encode()).hexdigest()
    return [texts, files, None if given is None else given.fingerprint]


@dataclass(frozen=True)
class _Predicted:
    """The scores of a model: indexes what it wrote with the encoder of the study's index, and scores it."""

    index: Index
    queries: Inputs
    name: str
    model: _Model
    read: Reports
    rows: Mapping[str, int]
    metrics: list[str]
    place: Path

    def __call__(self) -> Scores:
        rows = np.array([self.rows[study] for study in self.queries.ids])
        written = open_index(self.place) if self.place.exists() else self.model.index
        if written is not None:  # given, or left by a study that was killed then
            return self._scored(written, rows)
        encoding = None
        if any("bertscore" in METRICS[metric].representations for metric in self.metrics):
            states: Any = next(self.index.shards()).part("bertscore")
            base = states.description["baseline"]
            encoder = states.open_encoder(self.queries)
            encoding = Encoding(encoder, states.states.dtype, None if base is None else tuple(base))
        options: dict[str, Any] = {
            name: made.settings[name] for kind, made in self.queries.attached.items() for name in SOURCES[kind].settings
        }
        options |= {name: value for name, value in self.model.given.models.items() if name not in ("tell", *options)}
        options |= self.model.files
        inputs = load_inputs(self.read.ids, self.read.texts, "study", encoding=encoding, **options)
        written = build_index(inputs, self.place, metrics=self.metrics)  # goes on if it was killed
        return self._scored(written, rows)

    def _scored(self, written: Index, rows: np.ndarray) -> Scores:
        """Score predictions with the document frequencies of the study's corpus."""
        weighted = with_frequencies(written, self.index, [METRICS[name] for name in self.metrics], None, "study")
        return score_rows(weighted, self.queries, rows, self.metrics, system=self.name)


def _common(rows: Iterable[np.ndarray]) -> np.ndarray:
    """Return the corpus rows that every metric can score, ascending."""
    common = reduce(np.intersect1d, rows)
    if not len(common):
        raise InputError(
            "the index has no report that every metric can score.", f"Name fewer metrics with {option('metrics')}."
        )
    return common


class _Chance:
    """Each query's mean score over the corpus under each metric: a step for each metric, and then a row."""

    def __init__(
        self,
        index: Index,
        queries: Inputs,
        rows: Mapping[str, np.ndarray],
        like: Scores,
        steps: Steps,
        threads: int | None,
    ) -> None:
        self._index, self._queries, self._rows, self._like, self._steps = index, queries, rows, like, steps
        self._threads = threads
        self._ranges: dict[str, list[float] | None] = dict.fromkeys(rows)
        self._means: dict[str, np.ndarray] = {}

    def average(self, metrics: Iterable[str]) -> None:
        """Run the steps of some metrics, unless the row is there.

        The mean of a composite is the composite of its parts' means where all of them can score the same rows: then
        nothing has to be scored twice, and the range is not known.
        """
        if self._steps.holds(file_name(RANDOM)):
            return
        new = [metric for metric in metrics if metric not in self._means]
        for metric in sorted(new, key=lambda name: bool(METRICS[name].terms)):
            terms, rows = METRICS[metric].terms, self._rows
            if terms and all(part in self._means and np.array_equal(rows[part], rows[metric]) for part in terms):
                columns = zip(*(self._means[part].tolist() for part in terms), strict=True)
                intercept = METRICS[metric].options["intercept"]
                self._means[metric] = np.array([composite(values, terms.values(), intercept) for values in columns])
            else:
                name, make = f"{RANDOM}: {metric}", partial(self._average, metric)
                found = self._steps.run(name, _of_random(metric), read_scores, make)
                self._means[metric] = found.table[metric].to_numpy()
                self._ranges[metric] = found.signature["range"]

    def _average(self, metric: str) -> Scores:
        planned = plan_expectation(self._index, metric, SearchOptions(threads=self._threads))
        table = planned.run(self._queries, self._steps.searching()).table
        ends = [float(table["min"].to_numpy().min()), float(table["max"].to_numpy().max())]
        found = _scores(self._like, {metric: table["mean"]}, RANDOM)
        of_metric = {metric: self._like.signature["metrics"][metric]}
        return replace(found, signature={**found.signature, "metrics": of_metric, "range": ends})

    def row(self) -> Scores:
        """Return the row, after the steps that are left."""
        left = [*self._ranges.values()].count(None)  # a composite of means had no step of its own
        found = self._steps.run(RANDOM, file_name(RANDOM), read_scores, self._joined, of=left)
        for metric in self._rows:
            self._steps.drop(_of_random(metric))
        return found

    def _joined(self) -> Scores:
        self.average(self._rows)
        found = _scores(self._like, {metric: self._means[metric] for metric in self._rows}, RANDOM)
        averaged = {"over": "all reports of the corpus", "ranges": self._ranges}
        return replace(found, signature={**found.signature, "averaged": averaged})


def _of_random(metric: str) -> str:
    return f"{file_name(RANDOM)}-{file_name(metric)}"


def _scores(like: Scores, columns: Mapping[str, Any], system: str) -> Scores:
    """Return scores that were made otherwise, with the signature of the metrics of others."""
    table = pa.table({"query_id": like.table["query_id"], **{name: pa.array(v) for name, v in columns.items()}})
    return Scores(table, {**like.signature, "system": system})


def compare_study(
    systems: Mapping[str, Scores],
    progress: Progress | None = None,
    *,
    method: str = "bca",
    resamples: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Return the table of a study: changes from random retrieval, shares of the way to each oracle, paired models.

    Parameters
    ----------
    systems : mapping of str to Scores
        What [`study`][metric_oracle.study] returned. Every two models are compared on the same studies.
    progress : callable, optional
        Called as ``progress(step, done, total)``.
    method : {"bca", "percentile", "legacy-yu2023"}
        Kind of interval, see [`interval`][metric_oracle.interval].
    resamples : int, optional
        Number of bootstrap resamples of the studies, by default 10,000.
    seed : int
        Seed of the resamples.

    Returns
    -------
    Comparison
        The table, which [`write_study`][metric_oracle.write_study] writes.

    Raises
    ------
    InputError
        If an option breaks its rule, or fewer than two studies are left under every metric.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> systems = mo.study(index, "test.csv", {"strong": "strong.csv"}, metrics="bleu")
    >>> mo.compare_study(systems, resamples=1000)
    <Comparison: 5 systems, 24 studies: bleu-2>
    """
    oracles = {metric: oracle_name(metric) for metric in next(iter(systems.values())).metrics}
    models = [name for name in systems if name not in {*oracles.values(), MOST_FREQUENT, IDENTITY, RANDOM}]
    return compare(
        systems,
        random=RANDOM,
        perfect=IDENTITY,
        oracles=oracles,
        paired=list(combinations(models, 2)),
        method=method,
        resamples=resamples,
        seed=seed,
        progress=progress,
    )
