"""A judge's column of a study: the pairs that it scores, as a file too, and what the rows of the table have of it.

All pairs are known before the judge starts, so that the price of the whole study is told first, and each is judged
once, whichever rows have it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, counter, say
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Scores
from metric_oracle.judges.judge import Judge, Pair
from metric_oracle.metrics import METRICS
from metric_oracle.pools.candidate_pools import CandidatePool, PoolRows, planned_pool
from metric_oracle.pools.rerank import Reranked, Reranking
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan_scores
from metric_oracle.scores.baselines import DRAWS, drawn_rows
from metric_oracle.scores.expectation import Control, RandomPairs, judged_expectation
from metric_oracle.tables.study_inputs import CHANCE_SEED, StudyInputs
from metric_oracle.tables.systems import name_of_results

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

    @cached_property
    def pairs(self) -> dict[Pair, ToJudge]:
        """The distinct pairs (reference, candidate), and where each occurs first."""
        pairs: dict[Pair, ToJudge] = {}
        for text, of in self._candidates():
            pairs.setdefault((self.queries.texts[of.query], text), of)
        return pairs

    def _candidates(self) -> Iterator[tuple[str, ToJudge]]:
        """Yield the texts that are compared with test reports: those of the rows, then those of the pools."""
        for system, texts in self.texts.items():
            yield from ((text, ToJudge(q, system, None)) for q, text in enumerate(texts))
        index, n = self.pool.index, len(self.queries.ids)
        every = np.arange(index.n_reports)
        drawn = drawn_rows(every, n, self.pool.seed, self.draws)
        for q in range(n):
            listed = every if self.pools is None else self.pools[q].listed
            rows = [*listed.tolist(), *drawn[q].tolist()]
            for i, text in enumerate(index.take("text", np.array(rows)).to_pylist()):
                yield text, ToJudge(q, "pool" if i < len(listed) else "random", rows[i])

    def answered(
        self, judges: Sequence[Judge], progress: Progress | None, tell: Callable[[str], None] | None
    ) -> list[Judge]:
        """Return the judges with their answers to all pairs; the prices of all are told before the first is asked."""
        pairs = [*self.pairs]
        for judge in judges:
            judge.check_cost(len(pairs), judge.n_kept(pairs), tell)
        return [judge.answered(pairs, counter(progress, judge.name, len(pairs))) for judge in judges]

    def best_of_pools(self, judge: Judge, tell: Callable[[str], None] | None) -> tuple[Reranked, dict[str, Any]]:
        """Return the best reports of the pools, and entries of the signature of their scores; tell what they say.

        They are a bound of the oracle under the judge, or it if the pool is the whole corpus.
        """
        best = Reranking(self.pool, judge, self.queries, self.pools).results()
        if best.oracle is None:
            return best, {}
        if tell is not None:
            for line in (best.oracle.summary(), *best.oracle.warnings()):
                say(f"{name_of_results(best.signature)}: {line}", tell)
        of_study = {"of_study": len(self.pairs), "late": best.oracle.late}
        return best, {"pool": {"metric": judge.name, **best.signature["pool"], **of_study}}

    def with_chance(self, random: Scores, judge: Judge, threads: int | None) -> Scores:
        """Return the row of random retrieval with estimates under a judge, corrected by the exact means of metrics."""
        averaged: dict[str, Any] = random.signature["averaged"]
        sampled = averaged.get("sampled", {})
        exact = [name for name in random.metrics if name not in sampled and name in METRICS[name].terms]
        controls = [
            Control(plan_scores(self.pool.index, name, SearchOptions(threads=threads)), random.table[name].to_numpy())
            for name in exact
        ]
        pairs = RandomPairs.of(self.pool.index, self.queries, self.draws, self.pool.seed)
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


def pool_of_study(inputs: StudyInputs, pool: str | None, threads: int | None) -> CandidatePool:
    """Return the pool of a study, planned; `pool` is the argument."""
    options = SearchOptions(threads=threads)
    return planned_pool(inputs.index, pool or default_pool(inputs.metrics), options, seed=CHANCE_SEED)


def default_pool(metrics: Sequence[str]) -> str:
    """Return the pool that a study under these metrics has by default."""
    return ",".join([*(f"{metric}:{LISTED}" for metric in metrics), f"random:{DRAWS}"])


def check_metrics(names: Sequence[str] | None) -> None:
    """Raise InputError unless there is a metric beside the judge: the pool has the best reports under metrics."""
    if not names:
        raise InputError("metrics", "must be at least one beside a judge", "none", "Add one, such as bleu.")
