"""A whole study: models, oracles, random retrieval, the most frequent report and perfect answers, under all metrics.

Every finished step is a file (`study_folder.py`), so that a killed study resumes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
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
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.cells import arrow, number_of
from metric_oracle.findings.notebook import InNotebook
from metric_oracle.findings.printed_tables import PaperTable, pivot
from metric_oracle.findings.results import Results, Scores, read_results
from metric_oracle.indexes.index import AnyIndex
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.indexes.store import to_arrow
from metric_oracle.judges.given import MetricsOrJudges, one_judge, opened_judges, parted
from metric_oracle.judges.judge import Judge
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import METRICS, SOURCES
from metric_oracle.pools.candidate_pools import CandidatePool
from metric_oracle.pools.pair_files import PairsToJudge, pairs_to_judge
from metric_oracle.retrieval.checks import with_frequencies
from metric_oracle.retrieval.document_pairs import scorable_rows
from metric_oracle.retrieval.fall_back import most_frequent_row
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan, plan_scores
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.scores.baselines import identity
from metric_oracle.scores.expectation import expectation_of
from metric_oracle.scores.pair_scores import score_rows, with_judge
from metric_oracle.scores.sampled import sampled_means
from metric_oracle.sides import Sides
from metric_oracle.sources.attaching import attach_sources, run_models
from metric_oracle.sources.token_states import OpenedEncoder
from metric_oracle.tables.compare import compare
from metric_oracle.tables.comparison import Comparison
from metric_oracle.tables.judged_study import JudgedReports, PoolOfStudy, check_metrics, pool_of_study
from metric_oracle.tables.layout import ShownAs
from metric_oracle.tables.study_folder import FOLDER, Step, Steps, file_name, read_study, study_job
from metric_oracle.tables.study_inputs import (
    CHANCE_SEED,
    OF_STUDY,
    FurtherRows,
    ModelReports,
    StudyInputs,
    StudyModel,
    TestReports,
    study_inputs,
)
from metric_oracle.tables.systems import (
    BASELINES,
    IDENTITY,
    MOST_FREQUENT,
    POOL,
    RANDOM,
    GivenResults,
    is_yardstick,
    name_of_results,
    oracle_name,
    read_system,
)
from metric_oracle.tables.table_cells import title

CHANCE_ERROR = 5e-5  # greatest standard error of a sampled mean: tables print three digits
EXACT = "exact"  # what means over token states are made of, beside the inputs, if they are not sampled


class ScoredRows(dict[str, Scores], InNotebook):
    """The scores of each row of a study, which a notebook shows as a table of means."""

    def shown(self) -> list[PaperTable]:
        """Return the table of means; intervals and tests, which take longer, are those of `compare_study`."""
        of = {name: how["direction"] for row in self.values() for name, how in row.signature["metrics"].items()}
        means = [
            {"system": system, "metric": metric, "mean": mean}
            for system, row in self.items()
            for metric, mean in row.mean().items()
        ]
        n = max((row.table.num_rows for row in self.values()), default=0)
        what = f"Means of {n:,} test reports; mo.compare_study adds intervals and tests"
        cell = number_of("mean")
        return [pivot(what, means, "system", "metric", cell, named=lambda name: f"{title(name)} {arrow(of[name])}")]


class WholeStudy:
    """The steps of a study. The methods that make them find the results of earlier steps, by name, in `made`."""

    def __init__(
        self,
        inputs: StudyInputs,
        *,
        pool: CandidatePool | None = None,  # that judges score
        threads: int | None = None,
        exact_chance: bool = False,
        progress: Progress | None = None,  # of searches and means
        folder: Path = Path(),  # where models keep what is made of their reports
    ) -> None:
        self.index, self.queries = inputs.index, inputs.queries
        self.models, self.metrics = inputs.models, inputs.metrics
        self.pool, self.threads, self.exact_chance = pool, threads, exact_chance
        self.progress, self.folder = progress, folder
        self.made: dict[str, Any] = {}  # Scores or Results
        self.lists: dict[str, np.ndarray] = {}  # metric -> corpus rows of its list in the pool: int64[Q, N]

    def steps(self) -> list[Step]:
        """Return all steps, in the order in which they run.

        Those under metrics over token states come last, because they take minutes and the others seconds.
        """
        late = [metric for metric in self.metrics if _reads_states(metric)]
        early = [metric for metric in self.metrics if metric not in late]
        means = self.means(early)
        made_of = EXACT if self.exact_chance else None
        return [
            *self.rows_of_models(),
            *self.oracles(early),
            *self.baselines(),
            *means,
            *self.oracles(late),
            Step(RANDOM, file_name(RANDOM), self.random, made_of=made_of, parts=(*means, *self.means(late))),
        ]

    @property
    def n_steps(self) -> int:
        """The number of steps in `progress`: joining the means is none, and sums that are made of means are some."""
        return len(self.models) + 3 * len(self.metrics) + len(self.baselines())

    def score(self, step: Step) -> Scores:
        """Score the reports of the corpus that the step chooses."""
        assert step.chosen is not None
        return score_rows(self.index, self.queries, step.chosen(step), self.metrics, system=step.name)

    # Models

    def rows_of_models(self) -> list[Step]:
        """Return the steps that score the models' reports, one for each model."""
        files = {name: file_name(name) for name in self.models}
        return [
            Step(name, files[name], self.model, made_of=model.made_of(), folder=f"{files[name]}{FOLDER}")
            for name, model in self.models.items()
        ]

    def model(self, step: Step) -> Scores:
        """Score the reports of a model, with the encoder and the document frequencies of the corpus."""
        model, opened_encoder = self.models[step.name], None
        index = model.index  # prepared by the user
        if index is None:
            opened_encoder = self._open_encoder()
            reports = self._with_sources(model, opened_encoder)
            place = self.folder / step.folder
            place.mkdir(exist_ok=True)
            reports = replace(run_models(reports, place), scratch=place)
            # Without what only a search reads, such as codes and postings.
            index = MemoryIndex(reports, self.metrics)
        weighted = with_frequencies(index, self.index, [METRICS[name] for name in self.metrics], None)
        queries = replace(self.queries, opened_encoder=opened_encoder)
        return score_rows(weighted, queries, model.rows, self.metrics, system=step.name, text=True)

    def _open_encoder(self) -> OpenedEncoder | None:
        """Return the encoder of the corpus, which encodes the reports of models; None if no metric reads its states."""
        if not any(map(_reads_states, self.metrics)):
            return None
        states: Any = next(self.index.shards()).part("bertscore")
        base = states.description["baseline"]
        encoder = states.open_encoder(self.queries)
        return OpenedEncoder(encoder, states.states.dtype, None if base is None else tuple(base))

    def _with_sources(self, model: StudyModel, opened_encoder: OpenedEncoder | None) -> Reports:
        """Return the reports of a model with their sources, made with the settings that the test reports have."""
        options: dict[str, Any] = {
            name: attachment.settings[name]
            for kind, attachment in self.queries.attached.items()
            for name in SOURCES[kind].settings
        }
        options |= {name: value for name, value in model.given.models.items() if name not in ("tell", *options)}
        options |= model.given.sources
        return attach_sources(model.reports, opened_encoder=opened_encoder, **options)

    # Oracles

    def oracles(self, metrics: Iterable[str]) -> list[Step]:
        """Return the steps of some metrics' oracles: the search of each, and its row."""
        steps = []
        for metric in metrics:
            row = oracle_name(metric)
            steps += [self.search_of(metric), Step(row, file_name(row), self.score, metric, chosen=self.oracle)]
        return steps

    def search_of(self, metric: str) -> Step:
        """Return the step of the search of a metric's oracle."""
        row = oracle_name(metric)
        return Step(f"{row}: search", f"{file_name(row)}-reports", self.search, metric, read=read_results)

    def search(self, step: Step) -> Results:
        """Find the best report for each test report under a metric; keep the list of the pool, if it has one."""
        metric, sizes = step.metric, {} if self.pool is None else self.pool.sizes
        options = SearchOptions(k=sizes.get(metric, 1), threads=self.threads)
        results = plan(self.index, metric, options).search(self.queries, self.progress)
        if metric in sizes:
            self.lists[metric] = results.table["row"].to_numpy().reshape(-1, options.k)
        best = results.table.filter(results.table["rank"].to_numpy() == 1)
        return Results(best, {**results.signature, "k": 1})

    def oracle(self, step: Step) -> np.ndarray:
        """Return the corpus rows that the search before has found: int64[Q]."""
        return self.made[f"{step.name}: search"].table["row"].to_numpy()

    # Baselines

    def baselines(self) -> list[Step]:
        """Return the steps of the other rows that take seconds."""
        return [
            Step(MOST_FREQUENT, file_name(MOST_FREQUENT), self.score, chosen=self.most_frequent),
            Step(IDENTITY, file_name(IDENTITY), self.identity),
        ]

    def most_frequent(self, step: Step) -> np.ndarray:
        """Return the corpus row of the most frequent report for each test report: int64[Q]."""
        return np.full(len(self.queries.ids), self._most_frequent_row)

    @cached_property
    def _most_frequent_row(self) -> int:
        """The corpus row of the most frequent report of those that every metric can score.

        Raise InputError if there is none.
        """
        common = reduce(np.intersect1d, self._scorable.values())
        if not len(common):
            raise InputError(
                "the index has no report that every metric can score.", "Name fewer metrics with `metrics`."
            )
        return most_frequent_row(self.index, common)

    def identity(self, step: Step) -> Scores:
        """Score each test report as a prediction for itself."""
        planned = {name: plan_scores(self.index, name, SearchOptions(text=False)) for name in self.metrics}
        scores = {name: identity(each, self.queries).table["score"] for name, each in planned.items()}
        return self._scores(step.name, scores)

    # Random retrieval

    def means(self, metrics: Iterable[str]) -> list[Step]:
        """Return one step for the mean of random retrieval under each metric.

        A sum has none if its mean follows from those of its terms.
        """
        own = [metric for metric in metrics if not self._is_of_means(metric)]
        return [
            Step(
                f"{RANDOM}: {metric}",
                f"{file_name(RANDOM)}-{file_name(metric)}",
                self.mean,
                metric,
                made_of=EXACT if self.exact_chance and _reads_states(metric) else None,
            )
            for metric in sorted(own, key=lambda metric: metric not in METRICS[metric].terms)  # sums last
        ]

    def _is_of_means(self, metric: str) -> bool:
        """Return whether a metric is a sum of others of the study that can score the same corpus rows."""
        rows, terms = self._scorable, METRICS[metric].terms
        return metric not in terms and all(
            term in self.metrics and np.array_equal(rows[term], rows[metric]) for term in terms
        )

    def mean(self, step: Step) -> Scores:
        """Return the mean over the corpus for each test report under a metric.

        The signature has the ``range`` of the scores, or how they were sampled.
        """
        metric, average = step.metric, None
        scores = plan_scores(self.index, metric, SearchOptions(threads=self.threads))
        if _reads_states(metric) and not self.exact_chance:
            error = CHANCE_ERROR / max(1.0, *(_slope(name, metric) for name in self.metrics))
            average = sampled_means(scores, self.queries, error=error, seed=CHANCE_SEED, progress=self.progress)
        described: dict[str, Any] = {"metrics": {metric: self._template.signature["metrics"][metric]}, "range": None}
        if average is None:
            table = expectation_of(scores, self.queries, progress=self.progress).table
            described["range"] = [float(table["min"].to_numpy().min()), float(table["max"].to_numpy().max())]
            means = table["mean"].to_numpy()
        else:
            means = average.means
            described["sampled"] = {"standard_error": average.standard_error, "rows": average.rows, "seed": CHANCE_SEED}
        return self._scores(RANDOM, {metric: means}, **described)

    def random(self, step: Step) -> Scores:
        """Join the means under all metrics.

        That of a sum without a step of its own is computed from the means of its terms; the range of its scores is
        not known.
        """
        parts = {part.metric: self.made[part.name] for part in step.parts}
        means = {metric: part.table[metric].to_numpy() for metric, part in parts.items()}
        sampled = {metric: part.signature["sampled"] for metric, part in parts.items() if "sampled" in part.signature}
        for metric in self.metrics:
            if metric not in parts:
                terms, intercept = METRICS[metric].terms, METRICS[metric].intercept
                columns = zip(*(means[term].tolist() for term in terms), strict=True)
                means[metric] = np.array([composite(values, terms.values(), intercept) for values in columns])
                for term in terms.keys() & sampled.keys():  # one at most: BERTScore
                    error = _slope(metric, term) * sampled[term]["standard_error"]
                    sampled[metric] = {**sampled[term], "standard_error": error}
        ranges = {metric: parts[metric].signature["range"] if metric in parts else None for metric in self.metrics}
        averaged: dict[str, Any] = {"over": "all reports of the corpus", "ranges": ranges}
        if sampled:
            averaged["sampled"] = {name: sampled[name] for name in self.metrics if name in sampled}
        return self._scores(RANDOM, {metric: means[metric] for metric in self.metrics}, averaged=averaged)

    # Judges

    def to_judge(self) -> JudgedReports:
        """Return the reports that judges score, once the searches are made."""
        assert self.pool is not None
        texts: dict[str, Sequence[str]] = {name: model.texts for name, model in self.models.items()}
        for step in [*self.oracles(self.metrics), *self.baselines()]:
            if step.chosen is not None:
                texts[step.name] = self.index.take("text", step.chosen(step)).to_pylist()
        texts[IDENTITY] = self.queries.texts
        return JudgedReports(self.pool, self.queries, texts, self.lists)

    def judge(
        self, judges: Sequence[Judge], steps: Steps, progress: Progress | None, tell: Callable[[str], None] | None
    ) -> list[str]:
        """Add the column of each judge to the rows, and a row for the best reports of the pools; return their names.

        Such a row is named as files of `rerank` are in a table: it is no oracle unless the pool is the whole corpus.
        Its reports are written beside those of the oracles.
        """
        reports = self.to_judge()
        judges = reports.answered(judges, progress, tell)
        texts, of_pools = dict(reports.texts), list[str]()
        for judge in judges:
            best, described = reports.best_of_pools(judge, tell)
            name, rows = name_of_results(best.signature), best.table["row"].to_numpy()
            steps.write(f"{file_name(name)}-reports", best)
            scores = score_rows(self.index, self.queries, rows, self.metrics, system=name)
            self.made[name] = replace(scores, signature={**scores.signature, **described})
            texts[name] = best.table["text"].to_pylist()
            of_pools.append(name)
        for judge in judges:
            for name, candidates in texts.items():
                self.made[name] = with_judge(
                    self.made[name], judge, [*zip(self.queries.texts, candidates, strict=True)]
                )
            self.made[RANDOM] = reports.with_chance(self.made[RANDOM], judge, self.threads)
        return of_pools

    # What they share

    @cached_property
    def _scorable(self) -> dict[str, np.ndarray]:
        """The corpus rows that each metric can score."""
        return {name: scorable_rows(self.index, METRICS[name]) for name in self.metrics}

    @property
    def _template(self) -> Scores:
        """The scores of a row that every study has, of which others take ids and signature."""
        return self.made[MOST_FREQUENT]

    def _scores(self, system: str, columns: Mapping[str, Any], **described: Any) -> Scores:
        """Return the scores of a row, `columns` by metric; `described` are more entries of the signature."""
        columns = {name: pa.array(values) for name, values in columns.items()}
        table = pa.table({"query_id": self._template.table["query_id"], **columns})
        return Scores(table, {**self._template.signature, "system": system, **described})


def _reads_states(metric: str) -> bool:
    """Return whether a metric reads token states."""
    return "bertscore" in METRICS[metric].representations


def _slope(metric: str, part: str) -> float:
    """Return by how much a composite changes if the score of its term `part` changes by 1, as an absolute value.

    It is 0 if `part` is no term of the composite.
    """
    term = METRICS[metric].terms.get(part)
    return 0.0 if term is None else abs(term.weight / term.scale)


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
        further = FurtherRows([*(scores or {})], of_judges, pool)
        sides = Sides.of(queries, models or {}, OF_STUDY)
        inputs = study_inputs(index, sides, metric_names, inner=inner, further=further, progress=progress)
        planned = pool_of_study(inputs, pool, threads) if judges else None
        ready = {name: read_system(name, row) for name, row in (scores or {}).items()}
        _check_ready(ready, [*inputs.metrics, *(judge.name for judge in judges)], inputs.queries)
        with study_job(None if out is None else Path(out)) as job:
            steps = Steps(job, inputs.made_of, len(inputs.queries.ids), progress)
            work = WholeStudy(
                inputs,
                pool=planned,
                threads=threads,
                exact_chance=exact_chance,
                progress=steps.advance,
                folder=job.folder,
            )
            steps.run(work.steps(), work.made, work.n_steps)
            of_pools = work.judge(judges, steps, progress, tell or inputs.listener) if judges else []
    order = [*inputs.models, *ready, *map(oracle_name, inputs.metrics), *of_pools, *BASELINES]
    return ScoredRows({name: {**work.made, **ready}[name] for name in order})


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


@public
def study_pairs(
    index: AnyIndex,
    queries: TestReports,
    models: ModelReports = None,
    *,
    metrics: MetricsOrJudges | None = None,
    inner: option_types.Inner = False,
    pool: PoolOfStudy = None,
    threads: option_types.Threads | None = None,
    progress: Progress | None = None,
) -> PairsToJudge:
    """Pair the reports of a study, for a judge that runs elsewhere.

    The judge adds a column ``score`` to the file, which is then one of its files for the same call of
    [`study`][metric_oracle.study]. Equal texts are one pair. Pairs that the judge among `metrics` has scored, by its
    files or its folder `keep`, are left out.

    Returns
    -------
    PairsToJudge
        One row for each distinct pair of texts that has no score.

    Raises
    ------
    InputError
        If an argument is wrong, or index, test reports and models do not fit one another.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> mo.study_pairs(index, "test.csv", {"strong": "strong.csv"}, metrics="bleu").write("pairs.parquet")
    """
    names, judge = one_judge(metrics, "metrics")
    if judge is not None:
        check_metrics(names)
    judged = set[str]() if judge is None else judge.known_pairs()
    sides = Sides.of(queries, models or {}, OF_STUDY)
    inputs = study_inputs(index, sides, names, inner=inner, further=FurtherRows(pool=pool), progress=progress)
    planned = pool_of_study(inputs, pool, threads)
    work = WholeStudy(inputs, pool=planned, threads=threads, progress=progress)
    for step in map(work.search_of, inputs.metrics):
        work.made[step.name] = work.search(step)
    pairs = work.to_judge().pairs
    of_candidate = {
        "system": to_arrow([of.system for of in pairs.values()]),
        "row": pa.array([of.row for of in pairs.values()], pa.int64()),
    }
    return pairs_to_judge(
        planned,
        inputs.queries,
        judged,
        [of.query for of in pairs.values()],
        [candidate for _, candidate in pairs],
        of_candidate,
        {},
        models=[*inputs.models],
        metrics=inputs.metrics,
    )


@public
def compare_study(
    systems: Annotated[
        Mapping[str, Scores] | str | Path,
        Doc(
            "Scores by name of the row, which [`study`][metric_oracle.study] returned, or the folder of a study. Each "
            "pair of models is tested on the same studies; the best of several samples is no model."
        ),
    ],
    progress: Progress | None = None,
    *,
    method: option_types.IntervalMethod = "bca",
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    layout: ShownAs | None = None,
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
    systems = systems if isinstance(systems, Mapping) else read_study(Path(systems))
    metrics = next((scores.metrics for scores in systems.values()), [])
    oracles = {metric: name for metric in metrics if (name := oracle_name(metric)) in systems}
    rows = {*oracles.values(), *BASELINES}
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
        layout=layout,
        progress=progress,
    )
