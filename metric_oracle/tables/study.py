"""A whole study: models, oracles, random retrieval, the most frequent report and perfect answers, under all metrics.

Every finished step is a file (`study_folder.py`), so that a killed study resumes. Metrics over token states come
last, because their steps take minutes and the others seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.declarations import IN_PYTHON, ROWS, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results, Scores, read_results, read_scores
from metric_oracle.indexes.build import inputs_digest
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.judges.given import MetricsOrJudges, opened_judges, parted
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import METRICS, SOURCES
from metric_oracle.pools.candidate_pools import planned_pool
from metric_oracle.reading import AttachedReports
from metric_oracle.retrieval.checks import with_frequencies
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan, plan_scores
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.scores.baselines import identity
from metric_oracle.scores.expectation import expectation_of
from metric_oracle.scores.pair_scores import score_rows
from metric_oracle.scores.sampled import sampled_means
from metric_oracle.sides import Sides
from metric_oracle.sources.attaching import attach_sources, run_models
from metric_oracle.sources.token_states import OpenedEncoder
from metric_oracle.tables.compare import compare
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.judged_study import JudgedReports, PoolOfStudy, check_metrics, default_pool, with_columns
from metric_oracle.tables.study_folder import Steps, checksum_of, file_name, study_job
from metric_oracle.tables.study_inputs import (
    BASELINES,
    CHANCE_SEED,
    OF_STUDY,
    ModelReports,
    TestReports,
    index_of,
    study_inputs,
)
from metric_oracle.tables.systems import (
    IDENTITY,
    MOST_FREQUENT,
    POOL,
    RANDOM,
    GivenResults,
    is_yardstick,
    oracle_name,
    read_system,
)

CHANCE_ERROR = 5e-5  # greatest standard error of a sampled mean: tables print three digits


@public
def study(
    index: AnyIndex,
    queries: TestReports,
    models: ModelReports = None,
    *,
    metrics: MetricsOrJudges | None = None,
    scores: Annotated[
        Mapping[str, GivenResults | Sequence[GivenResults]] | None,
        Doc(
            "Further rows of the table, by name: scores under all metrics of the study, or a file of them, which "
            "[`score`][metric_oracle.score] or [`best_of`][metric_oracle.best_of] (the best scores) made. Several of "
            "one name are one row, whose metrics are in several files."
        ),
        Flag(metavar="NAME=FILE", panel=ROWS),
    ] = None,
    inner: option_types.Inner = False,
    pool: PoolOfStudy = None,
    exact_chance: Annotated[
        bool,
        Doc(
            "Compute random retrieval exactly under BERTScore and composites that contain it. By default its mean is "
            "estimated there from a stratified sample of the corpus, with a standard error of at most 0.00005; small "
            "studies, of which the sample would be half of all pairs, are computed exactly."
        ),
    ] = False,
    out: Annotated[
        str | Path | None,
        Doc(
            "Folder to write. It must not exist yet. It gets the table in several formats, and the results and scores "
            "that it is made of. Finished steps are kept beside it, in a folder with the ending .unfinished. By "
            "default nothing is written."
        ),
        option_types.OUT,
    ] = None,
    threads: option_types.Threads | None = None,
    progress: Progress | None = None,
    tell: Annotated[
        Callable[[str], None] | None,
        Doc(
            "Called with a line on how many pairs the judge gets, before it starts, and with lines on the best of the "
            "pools. By default nothing is told."
        ),
        IN_PYTHON,
    ] = None,
) -> dict[str, Scores]:
    """Run a complete study: compare the oracle of every metric, baselines and models in one table.

    The rows are the oracle of each metric, random retrieval (its mean), the most frequent report, a perfect prediction
    and the models; each is scored under every metric, and the difference of every two models is tested. For MIMIC-CXR
    this takes a few minutes, and with `exact_chance` a quarter of an hour or more for random retrieval under BERTScore,
    which comes last. With `out`, an interrupted study resumes when the same call is made again.

    A judge is one more column. It scores the reports of all rows but those of `scores`, which must have it; the best of
    a pool for each test report, which are a further row, a bound of the oracle under the judge; and random reports,
    from which chance is estimated. All distinct pairs are judged together, after everything else, and their number is
    told before. A judge whose answers are kept in a folder judges no pair twice.

    Returns
    -------
    dict of str to Scores
        Name of the row -> scores. The rows are the models, those of `scores`, the oracles, the most frequent report,
        perfect answers (each test report scored with itself), and the expectation of random retrieval: for each test
        report, the mean score over all corpus rows. The entry ``averaged`` of its signature says which metrics were
        sampled, with the standard error of the mean over all test reports, the rows drawn for each and the seed.

    Raises
    ------
    InputError
        If an argument is wrong, or index, test reports and models do not fit one another.

    Notes
    -----
    [`compare_study`][metric_oracle.compare_study] makes the table of the scores that are returned, and
    [`write_study`][metric_oracle.write_study] writes the folder `out`: it renames ``<out>.unfinished``, which has a
    file with the scores of each row and one with the reports of each oracle.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["small effusion", "clear"], f"{folder}/INDEX", metrics="rouge-l")
    >>> systems = mo.study(index, ["small effusion"], {"model": ["effusion"]}, metrics="rouge-l")
    >>> list(systems)
    ['model', 'rouge-l oracle', 'most frequent', 'identity', 'random (expected)']
    """
    metric_names, given_judges = parted(metrics)
    if given_judges:
        check_metrics(metric_names)
    with opened_judges(given_judges) as judges:
        if not judges:
            check_left_out({"pool": pool}, "without a judge")
        of_judges = [name for judge in judges for name in (oracle_name(judge.name), f"{judge.name}{POOL}")]
        further = [*(scores or {})], of_judges
        sides = Sides.of(queries, models or {}, OF_STUDY)
        inputs = study_inputs(index, sides, metric_names, inner=inner, pool=pool, further=further, progress=progress)
        index, queries, models_read, names = inputs.index, inputs.queries, inputs.models, inputs.metrics
        planned = None
        if judges:
            planned = planned_pool(index, pool or default_pool(names), SearchOptions(threads=threads), seed=CHANCE_SEED)
        ready = {name: read_system(name, row) for name, row in (scores or {}).items()}
        _check_ready(ready, [*names, *(judge.name for judge in judges)], queries)
        out = None if out is None else Path(out)
        base = [version("metric-oracle"), index.fingerprint, inputs_digest(queries), names]
        with study_job(out) as job:
            late = [name for name in names if "bertscore" in METRICS[name].representations]
            early = [name for name in names if name not in late]
            exact = dict.fromkeys([file_name(RANDOM), *map(_random_step, late)], "exact") if exact_chance else {}
            made_of = {
                **{file_name(name): _made_of(model, inputs.read[name]) for name, model in models_read.items()},
                **exact,
            }
            steps = Steps(job, base, made_of, len(queries.ids), len(models_read) + 3 * len(names) + 2, progress)
            systems: dict[str, Scores] = {}
            for name, model in models_read.items():
                predictions_folder = steps.predictions_folder(file_name(name))
                of_model = inputs.read[name], inputs.rows[name]
                make = _ModelScores(index, queries, name, model, *of_model, names, predictions_folder)
                systems[name] = steps.run(name, file_name(name), read_scores, make)
                steps.remove(predictions_folder.name)
            oracle_rows: dict[str, np.ndarray] = {}  # metric -> corpus rows that its oracle has found
            sizes = {} if planned is None else planned.sizes
            lists: dict[str, np.ndarray] = {}  # metric -> corpus rows of the list that the pool has of it

            def oracles(metrics: Iterable[str]) -> None:
                """Run the searches of these metrics' oracles and score the reports that they find."""
                for metric in metrics:
                    row = oracle_name(metric)

                    def search(metric: str = metric) -> Results:
                        options = SearchOptions(k=sizes.get(metric, 1), threads=threads)
                        results = plan(index, metric, options).search(queries, steps.searching())
                        if metric in sizes:
                            lists[metric] = results.table["row"].to_numpy().reshape(len(queries.ids), options.k)
                        best = results.table.filter(results.table["rank"].to_numpy() == 1)
                        return Results(best, {**results.signature, "k": 1})

                    results = steps.run(f"{row}: search", f"{file_name(row)}-reports", read_results, search)
                    oracle_rows[metric] = results.table["row"].to_numpy()

                    def score(rows: np.ndarray = oracle_rows[metric], row: str = row) -> Scores:
                        return score_rows(index, queries, rows, names, system=row)

                    systems[row] = steps.run(row, file_name(row), read_scores, score)

            oracles(early)
            frequent_row = inputs.most_frequent_row()
            frequent = systems[MOST_FREQUENT] = steps.run(
                MOST_FREQUENT,
                file_name(MOST_FREQUENT),
                read_scores,
                lambda: score_rows(
                    index, queries, np.full(len(queries.ids), frequent_row), names, system=MOST_FREQUENT
                ),
            )

            def perfect() -> Scores:
                """Score each test report as a prediction for itself."""
                without_text = SearchOptions(text=False)
                planned = {name: plan_scores(index, name, without_text) for name in names}
                scores = {name: identity(each, queries).table["score"] for name, each in planned.items()}
                return _scores(frequent, scores, IDENTITY)

            systems[IDENTITY] = steps.run(IDENTITY, file_name(IDENTITY), read_scores, perfect)
            chance = _Chance(index, queries, inputs.scorable, frequent, steps, threads, () if exact_chance else late)
            chance.average(early)
            oracles(late)
            systems[RANDOM] = chance.row()
            if planned is not None:
                reports = JudgedReports(planned, queries, inputs.texts(oracle_rows), lists)
                systems = with_columns(systems, judges, reports, steps, threads, progress, tell or inputs.listener)
        order = [*models_read, *ready, *map(oracle_name, names)]
        order += [*(name for name in systems if name not in (*order, *BASELINES)), *BASELINES]
        return {name: {**systems, **ready}[name] for name in order}


def _check_ready(rows: Mapping[str, Scores], columns: Sequence[str], queries: Reports) -> None:
    """Raise InputError unless a user's scores have all columns of the study and belong to its test reports."""
    for name, row in rows.items():
        lacking = [column for column in columns if column not in row.signature.get("metrics", {})]
        if lacking:
            raise InputError(
                f"the scores of {shown(name)} lack {', '.join(lacking)}, which the study has.",
                "Score these too, or name fewer metrics with `metrics`.",
            )
        if row.signature.get("references") not in (None, digest(queries)):
            raise InputError(
                f"the scores of {shown(name)} are of other test reports than the study's.", "Score these test reports."
            )


def _made_of(model: AttachedReports, read: Reports) -> list[Any]:
    """Return checksums of all that a model's scores depend on: ids and texts, sources, and the index if there is one.

    Raise InputError if a source is not a file.
    """
    in_memory = [name for name, value in model.sources.items() if not isinstance(value, str | Path)]
    if in_memory:
        raise InputError(
            f"{in_memory[0]} of a model",
            "must be a file, so that a study that was killed can go on",
            type(model.sources[in_memory[0]]).__name__,
            "Write it to a file, or prepare the reports with `mo.build_index`.",
        )
    files = {name: checksum_of(Path(path)) for name, path in sorted(model.sources.items())}
    model_index = index_of(model)
    texts = checksum([read.ids, read.texts])
    return [texts, files, None if model_index is None else model_index.fingerprint]


@dataclass(frozen=True)
class _ModelScores:
    """A step of the study: encode a model's predictions with the encoder of the corpus index, and score them."""

    index: Index  # of the corpus, with the document frequencies and the encoder
    queries: Reports  # test reports
    name: str
    model: AttachedReports
    read: Reports  # predictions of the model
    rows: Mapping[str, int]  # id of a test report -> row of its prediction
    metrics: list[str]
    place: Path  # folder of finished parts of what is made of the predictions, for a study that is killed

    def __call__(self) -> Scores:
        """Return the scores of the model."""
        rows = np.array([self.rows[study] for study in self.queries.ids])
        written = index_of(self.model)
        if written is not None:  # prepared by the user
            return self._scored(written, rows)
        opened_encoder = None
        if any("bertscore" in METRICS[metric].representations for metric in self.metrics):
            states: Any = next(self.index.shards()).part("bertscore")
            base = states.description["baseline"]
            encoder = states.open_encoder(self.queries)
            opened_encoder = OpenedEncoder(encoder, states.states.dtype, None if base is None else tuple(base))
        options: dict[str, Any] = {
            name: attachment.settings[name]
            for kind, attachment in self.queries.attached.items()
            for name in SOURCES[kind].settings
        }
        options |= {name: value for name, value in self.model.models.items() if name not in ("tell", *options)}
        options |= self.model.sources
        reports = attach_sources(self.read, opened_encoder=opened_encoder, **options)
        self.place.mkdir(exist_ok=True)
        reports = replace(run_models(reports, self.place), scratch=self.place)
        # Without what only a search reads, such as codes and postings.
        return self._scored(MemoryIndex(reports, self.metrics), rows, opened_encoder)

    def _scored(self, written: Index, rows: np.ndarray, opened_encoder: OpenedEncoder | None = None) -> Scores:
        """Score predictions with the document frequencies of the study's corpus, and the encoder if it is open."""
        weighted = with_frequencies(written, self.index, [METRICS[name] for name in self.metrics], None)
        queries = replace(self.queries, opened_encoder=opened_encoder)
        return score_rows(weighted, queries, rows, self.metrics, system=self.name, text=True)


class _Chance:
    """Expected scores of random retrieval, for each test report a mean over the corpus.

    Each metric is one step of the study; the row of the table is made of all.
    """

    def __init__(
        self,
        index: Index,
        queries: Reports,
        rows: Mapping[str, np.ndarray],  # metric -> corpus rows that it can score
        template: Scores,  # scores of another row, for ids and signature
        steps: Steps,
        threads: int | None,
        sampled: Sequence[str],  # metrics whose means may be estimated from a sample
    ) -> None:
        self._index, self._queries, self._rows, self._template, self._steps = index, queries, rows, template, steps
        self._threads, self._may_sample = threads, sampled
        self._sampled: dict[str, dict[str, Any]] = {}
        self._ranges: dict[str, list[float] | None] = dict.fromkeys(rows)
        self._means: dict[str, np.ndarray] = {}

    def average(self, metrics: Iterable[str]) -> None:
        """Run the steps of some metrics, unless the row is finished.

        The mean of a composite is computed from the means of its terms, without scoring pairs again, if all terms can
        score the same rows. Its range is then not known.
        """
        if self._steps.holds(file_name(RANDOM)):
            return
        new = [metric for metric in metrics if metric not in self._means]
        for metric in sorted(new, key=lambda name: len(METRICS[name].terms) > 1):
            terms, rows = METRICS[metric].terms, self._rows
            if all(part in self._means and np.array_equal(rows[part], rows[metric]) for part in terms):
                columns = zip(*(self._means[part].tolist() for part in terms), strict=True)
                intercept = METRICS[metric].intercept
                self._means[metric] = np.array([composite(values, terms.values(), intercept) for values in columns])
                for part in terms.keys() & self._sampled.keys():  # one at most: BERTScore
                    error = _slope(metric, part) * self._sampled[part]["standard_error"]
                    self._sampled[metric] = {**self._sampled[part], "standard_error": error}
            else:
                name, make, step = f"{RANDOM}: {metric}", partial(self._average, metric), _random_step(metric)
                scores = self._steps.run(name, step, read_scores, make)
                self._means[metric] = scores.table[metric].to_numpy()
                self._ranges[metric] = scores.signature["range"]
                if "sampled" in scores.signature:
                    self._sampled[metric] = scores.signature["sampled"]

    def _average(self, metric: str) -> Scores:
        """Return the expected scores under one metric; the signature has their ``range``, or how they were sampled."""
        options = SearchOptions(threads=self._threads)
        described: dict[str, Any] = {"metrics": {metric: self._template.signature["metrics"][metric]}, "range": None}
        average, scores = None, plan_scores(self._index, metric, options)
        if metric in self._may_sample:
            error = CHANCE_ERROR / max(1.0, *(_slope(name, metric) for name in self._rows))
            progress = self._steps.searching()
            average = sampled_means(scores, self._queries, error=error, seed=CHANCE_SEED, progress=progress)
        if average is None:
            table = expectation_of(scores, self._queries, progress=self._steps.searching()).table
            described["range"] = [float(table["min"].to_numpy().min()), float(table["max"].to_numpy().max())]
            means = table["mean"].to_numpy()
        else:
            means = average.means
            described["sampled"] = {"standard_error": average.standard_error, "rows": average.rows, "seed": CHANCE_SEED}
        row = _scores(self._template, {metric: means}, RANDOM)
        return replace(row, signature={**row.signature, **described})

    def row(self) -> Scores:
        """Run the remaining steps, remove their files, and return the table's row of random retrieval."""
        left = [*self._ranges.values()].count(None)  # composites computed from means, which had no step
        scores = self._steps.run(RANDOM, file_name(RANDOM), read_scores, self._joined, of=left)
        for metric in self._rows:
            self._steps.remove(f"{_random_step(metric)}.parquet")
        return scores

    def _joined(self) -> Scores:
        """Return the row, made of the results of all steps."""
        self.average(self._rows)
        scores = _scores(self._template, {metric: self._means[metric] for metric in self._rows}, RANDOM)
        averaged: dict[str, Any] = {"over": "all reports of the corpus", "ranges": self._ranges}
        if self._sampled:
            averaged["sampled"] = {name: self._sampled[name] for name in self._rows if name in self._sampled}
        return replace(scores, signature={**scores.signature, "averaged": averaged})


def _slope(metric: str, part: str) -> float:
    """Return by how much a composite changes if the score of its term `part` changes by 1, as an absolute value.

    It is 0 if `part` is no term of the composite.
    """
    term = METRICS[metric].terms.get(part)
    return 0.0 if term is None else abs(term.weight / term.scale)


def _random_step(metric: str) -> str:
    """Return the file name of the step of random retrieval under a metric."""
    return f"{file_name(RANDOM)}-{file_name(metric)}"


def _scores(template: Scores, columns: Mapping[str, Any], system: str) -> Scores:
    """Return the scores of a system, `columns` by metric, with ids and signature of `template`, another system's."""
    table = pa.table({"query_id": template.table["query_id"], **{name: pa.array(v) for name, v in columns.items()}})
    return Scores(table, {**template.signature, "system": system})


@public
def compare_study(
    systems: Annotated[
        Mapping[str, Scores],
        Doc(
            "Scores by name of the row, which [`study`][metric_oracle.study] returned. Each pair of models is tested "
            "on the same studies; the best of several samples is no model."
        ),
    ],
    progress: Progress | None = None,
    *,
    method: option_types.IntervalMethod = "bca",
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
) -> Comparison:
    """Return the table of a study: means, changes from random, shares of the way to the oracle, paired tests.

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
    metrics = next((scores.metrics for scores in systems.values()), [])
    oracles = {metric: name for metric in metrics if (name := oracle_name(metric)) in systems}
    rows = {*oracles.values(), MOST_FREQUENT, IDENTITY, RANDOM}
    models = [name for name, scores in systems.items() if name not in rows and not is_yardstick(scores)]
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
