"""A judge's column of a study: the pairs that it scores, as a file too, and what the rows of the table have of it.

All pairs are known before the judge starts, so that the price of the whole study is told first, and each is judged
once, whichever rows have it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, counter, say
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import AnyIndex
from metric_oracle.indexes.store import to_arrow
from metric_oracle.judges.given import MetricsOrJudges, one_judge
from metric_oracle.judges.judge import Judge, Pair
from metric_oracle.metrics import METRICS
from metric_oracle.pools.candidate_pools import CandidatePool, PoolRows, planned_pool
from metric_oracle.pools.pair_files import PairsToJudge, pairs_to_judge
from metric_oracle.pools.rerank import Reranking
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan, plan_scores
from metric_oracle.scores.baselines import DRAWS, drawn_rows
from metric_oracle.scores.expectation import Control, RandomPairs, judged_expectation
from metric_oracle.scores.pair_scores import score_rows, with_judge
from metric_oracle.sides import Sides
from metric_oracle.tables.study_folder import Steps, file_name
from metric_oracle.tables.study_inputs import CHANCE_SEED, OF_STUDY, ModelReports, TestReports, study_inputs
from metric_oracle.tables.systems import RANDOM, name_of_results

LISTED = 20  # best reports under each metric of a study that its pool has by default

PoolOfStudy: TypeAlias = Annotated[
    str | None,
    Doc(
        "With a judge: the reports that it scores for each test report to find the best of them, METRIC:N, the N "
        f"best under a metric, random:N, several of these with commas, or all. By default the {LISTED} best under each "
        f"metric of the study, and {DRAWS} random ones. Chance under the judge is estimated from the random ones, "
        f"{DRAWS} if the pool has none."
    ),
    Flag(metavar="METRIC:N"),
]


class ToJudge(NamedTuple):
    """A report that a judge compares with a test report."""

    query: int  # row of the test report
    system: str  # row of the table that has it first, or "pool", or "random"
    row: int | None  # of the corpus, for reports of a pool


class JudgedReports:
    """The reports that a judge scores in a study: those of its rows, of the pools, and some drawn at random.

    `found` has what was searched for the oracles, see `CandidatePool.rows`.
    """

    def __init__(
        self,
        pool: CandidatePool,
        queries: Reports,
        texts: Mapping[str, Sequence[str]],
        answers: Mapping[str, np.ndarray],
    ) -> None:
        self.pool, self.queries = pool, queries
        self.texts = texts  # by row of the table, for each test report
        self.pools: list[PoolRows] | None = None if pool.is_whole else pool.rows(queries, answers)
        self.draws = max(pool.draws or DRAWS, 2)  # fewer have no standard error

    def pairs(self) -> dict[Pair, ToJudge]:
        """Return the distinct pairs (reference, candidate), and where each occurs first."""
        pairs: dict[Pair, ToJudge] = {}

        def add(q: int, system: str, text: str, row: int | None = None) -> None:
            """Add the pair of a test report and a report."""
            pairs.setdefault((self.queries.texts[q], text), ToJudge(q, system, row))

        for system, texts in self.texts.items():
            for q, text in enumerate(texts):
                add(q, system, text)
        index, n = self.pool.index, len(self.queries.ids)
        every = np.arange(index.n_reports)
        drawn = drawn_rows(every, n, self.pool.seed, self.draws)
        for q in range(n):
            listed = every if self.pools is None else self.pools[q].listed
            rows = [*listed.tolist(), *drawn[q].tolist()]
            for i, text in enumerate(index.take("text", np.array(rows)).to_pylist()):
                add(q, "pool" if i < len(listed) else "random", text, rows[i])
        return pairs


def default_pool(metrics: Sequence[str]) -> str:
    """Return the pool that a study under these metrics has by default."""
    return ",".join([*(f"{metric}:{LISTED}" for metric in metrics), f"random:{DRAWS}"])


def check_metrics(names: Sequence[str] | None) -> None:
    """Raise InputError unless there is a metric beside the judge: the pool has the best reports under metrics."""
    if not names:
        raise InputError("metrics", "must be at least one beside a judge", "none", "Add one, such as bleu.")


def with_columns(
    systems: Mapping[str, Scores],
    judges: Sequence[Judge],
    reports: JudgedReports,
    steps: Steps,
    threads: int | None,
    progress: Progress | None,
    tell: Callable[[str], None] | None,
) -> dict[str, Scores]:
    """Return the rows of a study with the column of each judge, and for each a row for the best reports of the pools.

    That row is named as files of `rerank` are in a table: it is no oracle unless the pool is the whole corpus. Its
    reports are written beside those of the oracles. The prices of all judges are told before the first is asked.
    """
    pool, queries, random = reports.pool, reports.queries, systems[RANDOM]
    metrics = [*random.metrics]
    every = [*reports.pairs()]
    for judge in judges:
        judge.check_cost(len(every), judge.n_kept(every), tell)
    judges = [judge.answered(every, counter(progress, judge.name, len(every))) for judge in judges]
    texts = dict(reports.texts)
    rows = {name: systems[name] for name in texts}
    for judge in judges:
        best = Reranking(pool, judge, queries, reports.pools).results()
        name = name_of_results(best.signature)
        steps.write(f"{file_name(name)}-reports", best)
        texts[name] = best.table["text"].to_pylist()
        scores = score_rows(pool.index, queries, best.table["row"].to_numpy(), metrics, system=name)
        if best.oracle is not None:
            if tell is not None:
                for line in (best.oracle.summary(), *best.oracle.warnings()):
                    say(f"{name}: {line}", tell)
            of_pool = {"metric": judge.name, **best.signature["pool"], "of_study": len(every), "late": best.oracle.late}
            scores = replace(scores, signature={**scores.signature, "pool": of_pool})
        rows[name] = scores
    for judge in judges:
        for name, row in rows.items():
            rows[name] = with_judge(row, judge, [*zip(queries.texts, texts[name], strict=True)])
        random = _with_chance(random, judge, reports, threads)
    return {**rows, RANDOM: random}


def _with_chance(random: Scores, judge: Judge, reports: JudgedReports, threads: int | None) -> Scores:
    """Return the row of random retrieval with estimates under a judge, corrected by the exact means of metrics."""
    averaged: dict[str, Any] = random.signature["averaged"]
    sampled = averaged.get("sampled", {})
    exact = [name for name in random.metrics if name not in sampled and len(METRICS[name].terms) == 1]
    pool = reports.pool
    controls = [
        Control(plan_scores(pool.index, name, SearchOptions(threads=threads)), random.table[name].to_numpy())
        for name in exact
    ]
    pairs = RandomPairs.of(pool.index, reports.queries, reports.draws, pool.seed)
    pairs.check_cost(judge)
    expected = judged_expectation(pairs, judge, controls)
    described = {name: expected.signature["sampled"][name] for name in ("standard_error", "rows", "seed")}
    signature = {
        **random.signature,
        "metrics": {**random.signature["metrics"], judge.name: judge.entry},
        "averaged": {
            **averaged,
            "ranges": {**averaged["ranges"], judge.name: None},
            "sampled": {**sampled, judge.name: described},
        },
    }
    table = random.table.append_column(judge.name, pa.array(expected.table["mean"].to_numpy()))
    return replace(random, table=table, signature=signature)


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
    inputs = study_inputs(index, sides, names, inner=inner, pool=pool, progress=progress)
    searching = SearchOptions(threads=threads)
    planned = planned_pool(inputs.index, pool or default_pool(inputs.metrics), searching, seed=CHANCE_SEED)
    searches = {metric: plan(inputs.index, metric, searching) for metric in inputs.metrics}
    lists = {
        metric: search.rows(inputs.queries, planned.sizes.get(metric, 1), progress)
        for metric, search in searches.items()
    }
    texts = inputs.texts({metric: rows[:, 0] for metric, rows in lists.items()})
    reports = JudgedReports(planned, inputs.queries, texts, lists)
    pairs = reports.pairs()
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
