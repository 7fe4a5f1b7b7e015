"""The pool of each test report: the best lists of exact searches under cheap metrics, and reports drawn at random.

A judge scores a pool alone, because no bound skips a pair of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.argument_checks import check_in_range, check_left_out
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.metrics import find_metric
from metric_oracle.pools.pooled_oracle import RANDOM
from metric_oracle.records import COMPOSITE
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import Plan, asked, plan
from metric_oracle.retrieval.result_table import n_scorable
from metric_oracle.scores.baselines import drawn_rows

ALL = "all"
SIZE = 200  # default number of reports in a pool
DEFAULT = f"radcliq:{SIZE}"


class PoolRows(NamedTuple):
    """The pool of one test report: corpus rows."""

    listed: np.ndarray  # int64[n], distinct rows of the lists, by their best place in one, then by list
    places: np.ndarray  # int64[M, n], place of each in each list from 1, or 0
    drawn: np.ndarray  # int64[R], rows drawn at random from the whole corpus, with replacement

    @property
    def rows(self) -> np.ndarray:
        """All distinct rows, ascending."""
        return np.union1d(self.listed, self.drawn)


class Audit(NamedTuple):
    """Queries for which a judge scores the whole corpus, to measure how often a pool misses the best report."""

    size: int = 0  # number of queries, drawn at random
    recall: float | None = None  # with which the pool should contain a best report; it then decides the pool's size


NO_AUDIT = Audit()


@dataclass(frozen=True)
class CandidatePool:
    """Which reports a judge scores for each test report. Made by `planned_pool`."""

    index: Index
    lists: tuple[tuple[Plan, int | None], ...]  # searches, and how many of the best of each; None if the audit says it
    draws: int  # reports drawn at random
    options: SearchOptions  # `k` and `text` are those of the answers
    seed: int = 0  # of what is drawn at random
    audit: Audit = NO_AUDIT

    @property
    def is_whole(self) -> bool:
        """Whether the pool is the whole corpus; so it is until an audit has said the size of its list."""
        return not self.draws and all(size is None for _, size in self.lists)

    def of_size(self, size: int | None) -> "CandidatePool":
        """Return the pool with another size of its only list; None for the whole corpus."""
        return replace(self, lists=((self.lists[0][0], size),))

    @property
    def size(self) -> int:
        """The most reports that the pool of a test report can have."""
        return self.index.n_reports if self.is_whole else sum(size or 0 for _, size in self.lists) + self.draws

    @property
    def signs(self) -> dict[str, float]:
        """The metrics of the lists, each with its `sign`."""
        return {search.metric.name: search.metric.sign for search, _ in self.lists}

    @property
    def sizes(self) -> dict[str, int]:
        """How many of the best reports under each metric the pool has; without a list that is the whole corpus."""
        return {search.metric.name: size for search, size in self.lists if size is not None}

    def rows(self, queries: Reports, searched_lists: Mapping[str, np.ndarray] | None = None) -> list[PoolRows]:
        """Return the pool of each query; `searched_lists` has those searched before, int64[Q, N] by metric."""
        searched_lists, n = searched_lists or {}, len(queries.ids)
        searched = [(search, search.metric.name, size) for search, size in self.lists if size is not None]
        lists = [
            searched_lists[name] if name in searched_lists else search.rows(queries, size)
            for search, name, size in searched
        ]
        # Those that `expectation` draws, so that the scores of a pool say what chance gives, too.
        drawn = drawn_rows(np.arange(self.index.n_reports), n, self.seed, self.draws)
        return [_pool_of_lists([of_queries[q] for of_queries in lists], drawn[q]) for q in range(n)]

    def scores(self, queries: Reports, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the score of each list's metric for corpus rows of each query, float64[M, n]; NaN for what it cannot.

        `rows` has those of each query.
        """
        of_queries = [np.full((len(self.lists), len(some)), np.nan) for some in rows]
        query = np.repeat(np.arange(len(rows)), [len(some) for some in rows])
        row = np.concatenate([*rows, np.empty(0, np.int64)])
        ends = np.cumsum([len(some) for some in rows])[:-1]
        for m, (search, _) in enumerate(self.lists):
            for q, scores in enumerate(np.split(search.pairs(queries).score_corpus_rows(query, row), ends)):
                of_queries[q][m] = scores
        return of_queries

    def recorded(self) -> dict[str, Any]:
        """Return the entry of the signature."""
        if not self.lists and self.is_whole:
            return {"size": ALL}
        content = self.index.content["representations"]
        lists = [
            {
                "metric": search.metric.name,
                "options": search.metric.recorded,
                "source": search.metric.citation,
                "representation": {kind: content[kind] for kind in search.metric.representations},
                **{
                    name: value if isinstance(value, bool) else str(value)
                    for name, value in search.options.settings.items()
                },
                "size": size,
            }
            for search, size in self.lists
        ]
        drawn = {RANDOM: self.draws, "seed": self.seed} if self.draws else {}
        return {"size": ALL if self.is_whole else self.size, "lists": lists, **drawn}


def _pool_of_lists(lists: Sequence[np.ndarray], drawn: np.ndarray) -> PoolRows:
    """Return the pool of a query from its lists of rows, each best first, and the rows drawn for it."""
    rows = np.unique(np.concatenate([*lists, np.empty(0, np.int64)]))
    places = np.zeros((len(lists), len(rows)), np.int64)
    for m, of_list in enumerate(lists):
        places[m, np.searchsorted(rows, of_list)] = np.arange(1, len(of_list) + 1)
    if not len(lists):
        return PoolRows(rows, places, drawn)
    ranked = np.where(places > 0, places, np.iinfo(np.int64).max)
    order = np.lexsort((ranked.argmin(axis=0), ranked.min(axis=0)))
    return PoolRows(rows[order], places[:, order], drawn)


def planned_pool(
    index: AnyIndex,
    pool: str,
    options: SearchOptions,
    *,
    seed: int = 0,
    audit: Audit = NO_AUDIT,
    progress: Progress | None = None,
) -> CandidatePool:
    """Return the pool that the arguments of `rerank` describe, with its searches planned.

    An audit with a recall chooses the size of the only list. Raise InputError if an argument is wrong, or the index
    lacks a representation that a metric reads.
    """
    sizes = read_pool(pool, audit.recall is not None)
    check_left_out({**options.restrictions, "part": options.part}, "for a pool")
    draws = sizes.pop(RANDOM, None)
    if not sizes:
        options.check_used(
            ("k", "text", "threads"), "a pool that is the whole corpus" if draws is None else "a pool without lists"
        )
    of_lists = {name: _options_of(name, sizes, options) for name in sizes}
    try:
        metrics = [asked(name, own)[0] for name, own in of_lists.items()]
        opened = corpus_of(index, metrics, progress)
        # The metrics have what the weights file says.
        unweighted = [replace(own, weights=None) for own in of_lists.values()]
        searches = [plan(opened, metric, own) for metric, own in zip(metrics, unweighted, strict=True)]
    except InputError as error:
        if error.argument != "metric":
            raise
        raise InputError("a metric of `pool`", error.rule, error.value, error.step) from None
    for search, size in zip(searches, sizes.values(), strict=True):
        n_rows = n_scorable(opened, search.metric)
        if size is not None and not 1 <= size <= n_rows:
            raise InputError(
                "pool",
                f"must be all, or an int from 1 to {n_rows} (reports that {search.metric.name} can score)",
                size,
                "Choose another size.",
            )
    if draws is not None:
        check_in_range(f"pool {RANDOM}", draws, ge=1, le=opened.n_reports, note=" (reports of the corpus)")
    if not sizes and draws is None:
        check_left_out({"audit": audit.size or None}, "where the pool is the whole corpus", got=f"{audit.size}")
    if audit.recall is not None and ([*sizes.values()] != [None] or draws is not None or not audit.size):
        raise InputError(
            "recall",
            "must be given with `audit` and without the size of a pool",
            "no audit" if [*sizes.values()] == [None] else shown(pool),
            "Pass `audit=M` and `pool=METRIC`.",
        )
    planned = CandidatePool(opened, tuple(zip(searches, sizes.values(), strict=True)), draws or 0, options, seed, audit)
    n_most = opened.n_reports if planned.is_whole else planned.size
    check_in_range("k", options.k, ge=1, le=n_most, note=" (reports of the pool)")
    return planned


def _options_of(name: str, sizes: Mapping[str, Any], options: SearchOptions) -> SearchOptions:
    """Return the options of the search for a list: the settings that its metric has, or all if there is one list."""
    own = replace(options, k=1, text=False)
    if len(sizes) == 1:
        return own
    taken = {other: getattr(find_metric(other), "settings", ()) for other in sizes}
    of_others = [setting for setting in options.settings if any(setting in names for names in taken.values())]
    left_out: dict[str, Any] = {setting: None for setting in of_others if setting not in taken[name]}
    if COMPOSITE in sizes and name != COMPOSITE:
        left_out["weights"] = None
    return replace(own, **left_out)


def read_pool(pool: str, is_chosen: bool) -> dict[str, int | None]:
    """Return the number of reports by the metric of a list, or "random", in an argument such as "bleu:50,random:20".

    It is empty for "all", the whole corpus. If `is_chosen`, an audit chooses the size: the argument is a metric alone
    or the default, and the size None. Another size is returned for the caller to refuse. Raise InputError if a size is
    missing otherwise, or a metric occurs twice.
    """
    if pool == ALL:
        return {}
    if is_chosen:
        name, mark, size = pool.rpartition(":")
        if not (mark and size.isdecimal()):
            return {pool: None}
        if pool == DEFAULT:  # which no user typed
            return {name: None}
    sizes: dict[str, int | None] = {}
    for part in pool.split(","):
        name, mark, size = part.strip().rpartition(":")
        if not (mark and size.isdecimal()):
            raise InputError("pool", f"must be METRIC:N or {ALL}", shown(pool), f"Pass {DEFAULT}.")
        if name in sizes:
            raise InputError("pool", "must have each list once", f"{shown(name)} twice", "Leave one out.")
        sizes[name] = int(size)
    return sizes
