"""Rerank a pool of candidates by a judge, such as CREPE: a scorer of pairs without an exact search.

A judge reads both reports, so there is no bound with which to skip pairs: an exact search would judge the whole corpus.
Instead only a stated pool is scored, the best lists of exact searches under other metrics. The best score of a pool is
a lower bound of the oracle under the judge, an upper one where lower scores are better. The loss is measured:

- An answer with the best possible score, such as 0 errors, is certified: no report of the corpus has a better one.
- `pooled` says how the best score grows with the pool, and what random reports say of the rest of the corpus.
- An audit scores the whole corpus for some of the queries, drawn at random. The answers of these queries are exact.
  For the others they show how often the best score is in the pool (recall, with the interval of Clopper and Pearson,
  1934) and by how much the best score of the corpus is better than that of the pool (regret).
- The ranks of the audited queries' best reports under the only metric of a pool give its size by split conformal
  prediction (Vovk et al., 2005): the ceil((m + 1) recall)-th smallest of m ranks. For a further query of the same test
  set, a pool of this size contains a best report with at least the probability `recall`.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from math import ceil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_in_range, check_left_out
from metric_oracle.base.declarations import IN_PYTHON, Flag, Uses
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import package_version
from metric_oracle.base.progress import Progress, counter
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.judges.given import GivenJudge, crepe_judge, keep_answers, one_judge
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import METRICS
from metric_oracle.pools.candidate_pools import DEFAULT, Audit, CandidatePool, PoolRows, planned_pool
from metric_oracle.pools.pooled_oracle import JudgedPool, PooledOracle, pooled_oracle
from metric_oracle.reading import Queries, attached, loaded
from metric_oracle.retrieval.checks import check_section, section_entry
from metric_oracle.retrieval.merge import BestRows
from metric_oracle.retrieval.options import SETTINGS, SearchOptions, with_arguments
from metric_oracle.retrieval.result_table import layout, n_scorable, strings
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.scores.scoring import open_crepe

LEVEL = 0.95
BLOCK = 1 << 20  # pairs that a judge gets at a time, up to the end of a reference
_NOT_RANKED = np.iinfo(np.int64).max  # rank of a report that the metric of the list cannot score


@dataclass(frozen=True, repr=False)
class Reranked(Results):
    """The best reports of each pool under a judge.

    Attributes
    ----------
    table : pyarrow.Table
        The columns of a search and ``pool``, how many reports the judge scored, and ``certified``, whether no report of
        the corpus can have a better score at that rank. ``n_ties`` counts reports of the pool; ``exact`` is true where
        that is the whole corpus.
    signature : dict
        What is needed to compute the same numbers again.
    oracle : PooledOracle or None
        What the pools say of the oracle under the judge, and how far it can be trusted; None if the whole corpus was
        scored.
    """

    oracle: PooledOracle | None = None

    def shown(self, texts: Mapping[str, str] | None = None, components: bool = False) -> list[Any]:
        """Return what a terminal shows: the answers, and what the pools say of the judge's oracle."""
        return [*super().shown(texts, components), *([] if self.oracle is None else self.oracle.tables())]


class Scored(NamedTuple):
    """What a judge makes of the candidates of one reference."""

    codes: np.ndarray  # int64[n], numbers of the candidates' texts, ascending
    scores: np.ndarray  # float64[n]
    components: dict[str, np.ndarray]  # float64[n] each

    def at(self, codes: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return scores and components of some of the texts, in any order."""
        places = np.searchsorted(self.codes, codes)
        return self.scores[places], {name: values[places] for name, values in self.components.items()}


class _Best(NamedTuple):
    """The k best rows of one query."""

    rows: np.ndarray  # int64[k]
    scores: np.ndarray  # float64[k]
    components: dict[str, np.ndarray]  # float64[k] each
    ties: np.ndarray  # int64[k], number of rows of the pool with the same score
    n_pool: int  # number of rows that were scored


class _Run:
    """A judge at work on the texts of rows; rows that have one text share its number."""

    def __init__(self, judge: Judge, index: Index, rows: np.ndarray) -> None:
        number: dict[str, int] = {}
        texts = index.take("text", rows).to_pylist()
        self._rows, self._judge = rows, judge  # all rows that may be scored, ascending
        self._codes = np.array([number.setdefault(text, len(number)) for text in texts], np.int64)
        self._texts = [*number]
        self.n_pairs = 0
        self.noted: dict[str, int] = {}  # for the signature

    def codes(self, rows: np.ndarray) -> np.ndarray:
        """Return the number of the text of each row: int64[n]."""
        return self._codes[np.searchsorted(self._rows, rows)]

    def wanted(self, references: Iterable[str], pools: Iterable[PoolRows] | None) -> dict[str, np.ndarray]:
        """Return the texts in the pools of each distinct reference, ascending; all texts if `pools` is None.

        The pools are in the order of the references.
        """
        if pools is None:
            return dict.fromkeys(references, np.arange(len(self._texts)))
        codes: dict[str, list[np.ndarray]] = {}
        for reference, of_query in zip(references, pools, strict=True):
            codes.setdefault(reference, []).append(self.codes(of_query.rows))
        return {reference: np.unique(np.concatenate(of_queries)) for reference, of_queries in codes.items()}

    def check_cost(self, wanted: Mapping[str, np.ndarray], tell: Callable[[str], None] | None) -> None:
        """Tell what it costs to judge the texts of each reference; raise InputError if they are too many."""
        n_kept = self._judge.n_kept(self.pairs(wanted)) if self._judge.answers else 0
        self._judge.check_cost(sum(map(len, wanted.values())), n_kept, tell)

    def pairs(self, wanted: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str]]:
        """Yield each reference of `wanted` with each of its texts, which are given by their codes."""
        return ((reference, self._texts[code]) for reference, codes in wanted.items() for code in codes.tolist())

    def score(
        self, wanted: Mapping[str, np.ndarray], progress: Progress | None, step: str
    ) -> Iterator[tuple[str, Scored]]:
        """Yield each reference with the scores of its texts; blocks of references are judged together."""
        ends = np.cumsum([len(codes) for codes in wanted.values()], dtype=np.int64)
        count = counter(progress if wanted else None, step, int(ends[-1]) if wanted else 0)
        block_of = dict(zip(wanted, ((ends - 1) // BLOCK).tolist(), strict=True))
        for _, group in groupby(wanted, key=block_of.__getitem__):
            block = {reference: wanted[reference] for reference in group}
            pairs = [*self.pairs(block)]
            count(self._judge.n_kept(pairs))
            judged = self._judge.score(pairs, count)
            self.n_pairs += len(pairs)
            self.noted |= {name: n + self.noted.get(name, 0) for name, n in judged.notes.items()}
            first = 0
            for reference, codes in block.items():
                own = slice(first, first := first + len(codes))
                parts = {name: values[own] for name, values in judged.components.items()}
                yield reference, Scored(codes, judged.scores[own], parts)


class Reranking:
    """The search of the best reports of each query's pool under a judge.

    The queries, the references, have what the metrics of the pool read. `pools` are those of the queries, if they were
    found before. Raise InputError if the queries are of another section.
    """

    def __init__(
        self, pool: CandidatePool, judge: Judge, queries: Reports, pools: Sequence[PoolRows] | None = None
    ) -> None:
        check_section(queries, pool.index)
        self._pool, self._judge, self._queries = pool, judge, queries
        self._pools = pools  # None where the whole corpus is scored
        self._every = np.arange(pool.index.n_reports)
        self._positions: dict[str, list[int]] = {}  # text of a reference -> its queries
        for q, reference in enumerate(queries.texts):
            self._positions.setdefault(reference, []).append(q)
        self._audited: list[int] = []
        self._best: dict[int, _Best] = {}
        self._of_corpus: dict[int, np.ndarray] = {}  # scores of all rows, for the audited queries
        self._of_pools: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # scores of the lists and of what was drawn

    def results(self, progress: Progress | None = None, tell: Callable[[str], None] | None = None) -> Reranked:
        """Return, for every query, the k reports of its pool with the best scores, best first, then by row.

        Steps of `progress` are "audit" and "rerank". Raise InputError if the queries are fewer than the audit, or a
        pool has fewer than k reports.
        """
        queries, n, (audit, recall) = self._queries, len(self._queries.ids), self._pool.audit
        check_in_range("audit", audit, ge=0, le=n, note=" (test reports)")
        if audit:
            self._audited = np.random.default_rng(self._pool.seed).choice(n, audit, replace=False).tolist()
        if self._pools is None and not self._pool.is_whole:
            self._pools = self._pool.rows(queries)
        run = _Run(self._judge, self._pool.index, self._scored_rows())
        in_audit = run.wanted([queries.texts[q] for q in self._audited], None)
        wanted = {} if recall is not None else self._unaudited(run, in_audit)
        run.check_cost({**in_audit, **wanted}, tell)
        self._check_k()
        held = self._audit(run, run.score(in_audit, progress, "audit"))
        places = self._places() if audit and len(self._pool.lists) == 1 else None
        if recall is not None and places is not None:
            self._pool = self._pool.of_size(conformal_pool(places, recall))
            self._pools = None if self._pool.is_whole else self._pool.rows(queries)
            wanted = self._unaudited(run, in_audit)
            run.check_cost(wanted, tell)
            self._check_k()
        self._rerank(run, chain(held.items(), run.score(wanted, progress, "rerank")))
        described = {**self._pool.recorded(), "pairs": run.n_pairs}
        if audit:
            described["audit"] = _audit_entry(self._pool.seed, self._regret(), places, recall)
        k, text = int(self._pool.options.k), self._pool.options.text
        signature = _signature(self._pool.index, queries, self._judge, described, k) | run.noted
        oracle = None if self._pools is None else self._oracle(self._pools, signature)
        table = _table(self._pool.index, queries, [self._best[q] for q in range(n)], self._judge, text)
        return Reranked(table, signature, oracle)

    def _scored_rows(self) -> np.ndarray:
        """Return the rows that may be scored, ascending: those of all pools, or all that there are."""
        if self._pools is None or self._audited:
            return self._every
        return np.unique(np.concatenate([of_query.rows for of_query in self._pools]))

    def _unaudited(self, run: _Run, in_audit: Container[str]) -> dict[str, np.ndarray]:
        """Return the texts to score for the references that are not audited."""
        rest = [q for q, reference in enumerate(self._queries.texts) if reference not in in_audit]
        pools = None if self._pools is None else [self._pools[q] for q in rest]
        return run.wanted([self._queries.texts[q] for q in rest], pools)

    def _check_k(self) -> None:
        """Raise InputError if a pool has fewer than k reports."""
        n_pool = len(self._every) if self._pools is None else min(len(of_query.rows) for of_query in self._pools)
        check_in_range("k", self._pool.options.k, ge=1, le=n_pool, note=" (reports of the pool)")

    def _audit(self, run: _Run, scored_of: Iterable[tuple[str, Scored]]) -> dict[str, Scored]:
        """Take the scores of all texts with the references of audited queries.

        Return those of references that another query has, too: it takes its pool's from them.
        """
        held = {}
        for reference, scored in scored_of:
            for q in self._positions[reference]:
                if q in self._audited:
                    scores, components = scored.at(run.codes(self._every))
                    self._best[q], self._of_corpus[q] = self._pick(self._every, scores, components), scores
                else:
                    held[reference] = scored
        return held

    def _places(self) -> np.ndarray:
        """Return the rank of the best report of each audited query, see `_rank_of_best`: int64[m]."""
        sign, take = self._judge.sign, self._queries.take
        return np.array(
            [_rank_of_best(self._pool, take(np.array([q])), sign * self._of_corpus[q]) for q in self._audited]
        )

    def _rerank(self, run: _Run, scored_of: Iterable[tuple[str, Scored]]) -> None:
        """Take the scores with the references of all other queries, and what the audit has of the pools."""
        if self._pools is not None:
            for q, scores in self._of_corpus.items():
                self._of_pools[q] = scores[self._pools[q].listed], scores[self._pools[q].drawn]
        for reference, scored in scored_of:
            for q in self._positions[reference]:
                if q in self._audited:
                    continue
                rows = self._every if self._pools is None else self._pools[q].rows
                self._best[q] = self._pick(rows, *scored.at(run.codes(rows)))
                if self._pools is not None:
                    pool = self._pools[q]
                    self._of_pools[q] = scored.at(run.codes(pool.listed))[0], scored.at(run.codes(pool.drawn))[0]

    def _pick(self, rows: np.ndarray, scores: np.ndarray, components: Mapping[str, np.ndarray]) -> _Best:
        """Return the k of `rows`, int64[n], with the best scores, best first; of equal ones the lowest row first.

        `scores` and `components`, float64[n], are those of each row.
        """
        losses = -self._judge.sign * scores
        order = np.lexsort((rows, losses))[: int(self._pool.options.k)]
        ordered, best = np.sort(losses), losses[order]
        ties = np.searchsorted(ordered, best, "right") - np.searchsorted(ordered, best, "left")
        parts = {name: values[order] for name, values in components.items()}
        return _Best(rows[order], scores[order], parts, ties, len(rows))

    def _regret(self) -> np.ndarray:
        """Return by how much the best score of the corpus is better than that of the pool, by audited query."""
        if self._pools is None:
            return np.zeros(len(self._audited))
        sign, ends = self._judge.sign, [(self._of_corpus[q], self._pools[q].rows) for q in self._audited]
        return np.array([(sign * whole).max() - (sign * whole[rows]).max() for whole, rows in ends])

    def _oracle(self, pools: Sequence[PoolRows], signature: Mapping[str, Any]) -> PooledOracle:
        """Return what the pools say of the oracle; `signature` is that of the results."""
        cheap = self._pool.scores(self._queries, [of_query.listed for of_query in pools])
        judged = [
            JudgedPool(*self._of_pools[q], of_query.places > 0, cheap[q], len(of_query.rows) == len(self._every))
            for q, of_query in enumerate(pools)
        ]
        entries = {name: signature[name] for name in ("index", "references", "section") if name in signature}
        return pooled_oracle(
            self._queries.ids, judged, self._pool.signs, signature["judge"], pool=signature["pool"], **entries
        )


def _table(index: Index, queries: Reports, of_queries: Sequence[_Best], judge: Judge, text: bool) -> Any:
    """Return the table of results: the columns of a search, then those of a pool, then the text if `text` is true."""
    rows, scores, ties = (np.array([best[i] for best in of_queries]) for i in (0, 1, 3))
    names = [name for name in of_queries[0].components if all(name in best.components for best in of_queries)]
    components = {name: np.array([best.components[name] for best in of_queries]) for name in names}
    n_pool = np.repeat([best.n_pool for best in of_queries], rows.shape[1])
    ids, texts = strings(index.take("study_id", rows.ravel())), strings(index.take("text", rows.ravel()))
    table = layout(queries.ids, BestRows(rows, scores, ties, components, ids, None), np.zeros(rows.shape, bool), False)
    exact = n_pool == index.n_reports
    table = table.set_column(table.column_names.index("exact"), "exact", [exact])
    certified = exact | judge.is_best(scores.ravel())
    for name, values in {"pool": n_pool, "certified": certified, **({"text": texts} if text else {})}.items():
        table = table.append_column(name, [values])
    return table


def conformal_pool(ranks: np.ndarray, recall: float) -> int | None:
    """Return the pool size that contains the best report of a further query with probability `recall`, between 0 and 1.

    `ranks`, int64[m], are the ranks from 1 of the best reports of m exchangeable queries under the metric of the pool.
    The result is None if no pool, not even all reports that this metric can score, has this probability.
    """
    # Rounded to 9 decimals, because a product such as (99 + 1) * 0.95 may be just above a whole number.
    rank = ceil(round((len(ranks) + 1) * recall, 9))
    if rank > len(ranks):
        return None
    size = int(np.sort(ranks)[rank - 1])
    return None if size == _NOT_RANKED else size


def binomial_interval(hits: int, n: int) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of the proportion `hits` / `n`, whose coverage is at least `LEVEL`."""
    from scipy.stats import beta

    tail = (1 - LEVEL) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high


def _rank_of_best(pool: CandidatePool, query: Reports, gains: np.ndarray) -> int:
    """Return the rank, from 1, of the first best report of the corpus in the whole list of the pool's only metric.

    It is `_NOT_RANKED` if that metric can score no best report. `gains`, float64[N], are the judge's scores of all
    corpus rows for the query, negative if lower ones are better.
    """
    search = pool.lists[0][0]
    by_place = gains[search.rows(query, n_scorable(search.index, search.metric))[0]]
    hits = np.flatnonzero(by_place == gains.max())
    return int(hits[0]) + 1 if len(hits) else _NOT_RANKED


def _audit_entry(seed: int, regret: np.ndarray, places: np.ndarray | None, recall: float | None) -> dict[str, Any]:
    """Return the entry of the signature that describes an audit: regret, ranks of the best reports, and the recall.

    The recall is the one measured with its interval, or the one that was asked for. `regret`, float64[m], is by how
    much the best score of the corpus is better than that of the pool; `places` are those of `_rank_of_best`.
    """
    n, missed = len(regret), int((regret > 0).sum())
    entry: dict[str, Any] = {
        "queries": n,
        "seed": seed,
        "missed": missed,
        "regret": {"mean": float(regret.mean()), "max": float(regret.max())},
    }
    if places is not None:
        entry["places"] = [None if place == _NOT_RANKED else place for place in np.sort(places).tolist()]
    if recall is not None:
        return {**entry, "asked_recall": recall}
    low, high = binomial_interval(n - missed, n)
    return {**entry, "recall_at_1": {"value": (n - missed) / n, "low": low, "high": high, "level": LEVEL}}


def _signature(index: Index, queries: Reports, judge: Judge, described: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the signature of a reranking, with the entry `described` for the pool: what is needed to reproduce it."""
    entry: dict[str, Any] = {"options": {}, "source": f"the judge {judge.name}", "tool": "", "representation": {}}
    if judge.name in METRICS:
        metric = METRICS[judge.name]
        entry = {"options": metric.recorded, "source": metric.citation, "tool": metric.tool}
        entry["representation"] = {metric.representation: {"encoder": judge.signature}}
    return {
        "metric": judge.name,
        **entry,
        "direction": judge.direction,
        "judge": judge.recorded,
        "index": index.fingerprint,
        **section_entry(index, queries),
        "k": k,
        "ties": "lowest row first",
        "version": package_version(),
        "references": digest(queries),
        "pool": dict(described),
    }


@public
def rerank(
    index: AnyIndex,
    queries: Queries,
    metric: Annotated[
        str | GivenJudge | Sequence[str | GivenJudge],
        Doc(
            "Judge: its name in oracle.toml, in Python what ``judge`` returns; or crepe, the checkpoint that `crepe` "
            "names."
        ),
        option_types.METRIC,
    ],
    *,
    crepe: option_types.Crepe | None = None,
    keep: Annotated[
        str | Path | None,
        Doc(
            "For crepe: folder in which its scores are kept, by checksums of both texts: no pair of it is scored "
            "again. No text is stored."
        ),
        Flag(metavar="FOLDER"),
    ] = None,
    pool: Annotated[
        str,
        Doc(
            "Reports that the judge scores for each test report: METRIC:N, the N best under another metric; "
            "composite:N, those under `weights`, such as weights fitted to scores of CREPE; random:N, N drawn at "
            "random; several of these with commas; or all, the whole corpus, which makes the result exact. With "
            "`recall`, METRIC alone."
        ),
        Flag(metavar="METRIC:N"),
    ] = DEFAULT,
    k: option_types.K | None = None,
    audit: Annotated[
        option_types.Count,
        Doc(
            "Number of test reports, drawn at random, for which the judge scores the whole corpus, to measure how "
            "often the best report is missing from the pool. Their results are exact. 0 means no audit."
        ),
    ] = 0,
    recall: Annotated[
        option_types.Recall | None,
        Doc(
            "Probability, between 0 and 1, with which the pool should contain a best report; the audit then chooses "
            "the size N of the pool. Needs `audit`, and METRIC without N as `pool`. By default N is that of `pool`."
        ),
        Flag(metavar="Q"),
    ] = None,
    seed: option_types.Seed = 0,
    options: Annotated[
        SearchOptions | None,
        Doc("`k`, `text`, and the options of the searches for the pool."),
        Uses("k", "text", "weights", *SETTINGS),
    ] = None,
    progress: Progress | None = None,
    tell: Annotated[
        Callable[[str], None] | None,
        Doc("Called before the judge starts with a line on how many pairs it gets. By default nothing is told."),
        IN_PYTHON,
    ] = None,
) -> Reranked:
    """Find the best reports under a judge, such as CREPE or GREEN, among the best reports under other metrics.

    No exact search exists for a judge, which reads both reports together: only the reports of a pool are scored, and
    the best of the corpus may be missing from it. So the mean of the best scores is a lower bound of the oracle under
    the judge, an upper one where lower scores are better. A report with the best possible score cannot be beaten.
    `audit` measures how often the pool misses the best report; `recall` chooses the size of the pool by this
    measurement; random reports limit the share of the corpus that is better.

    Returns
    -------
    Reranked
        Reports with their scores and whatever numbers the judge gives beside them, for CREPE the predicted errors of
        each category in the columns nA to nF; ``pool`` says how many reports were scored, and ``certified`` whether no
        report of the corpus can be better. ``oracle`` says how far the best scores can be trusted.

    Raises
    ------
    InputError
        If an argument is wrong, pool, k or audit do not fit index and queries, or the judge gives no number for a pair.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> def differing(pairs):
    ...     return [abs(len(reference) - len(candidate)) for reference, candidate in pairs]
    >>> judge = mo.judge(differing, direction="lower", best=0)
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> best = mo.rerank(index, "test.csv", judge, pool="bleu:5,random:5")
    >>> best.oracle.summary()
    'mean best score ...
    """
    names, unopened_judge = one_judge(metric, "metric")
    if unopened_judge is not None and not names:
        check_left_out({"crepe": crepe, "keep": keep}, f"for the judge {unopened_judge.name}")
    elif names != ["crepe"]:
        raise InputError(
            "metric",
            "must be one judge or crepe",
            shown(*(names or ["none"])),
            "Search for the best under a metric with `mo.retrieve`, and name a judge in oracle.toml.",
        )
    planned = planned_pool(
        index, pool, with_arguments(options, k=k), seed=seed, audit=Audit(audit, recall), progress=progress
    )
    device = attached(queries).models.get("device")
    with unopened_judge.opened() if unopened_judge is not None else _opened_crepe(crepe, keep, device) as judge:
        reports = loaded(queries, planned.index, progress)
        return Reranking(planned, judge, reports).results(progress, tell)


@contextmanager
def _opened_crepe(crepe: Any, keep: str | Path | None, device: str | None) -> Iterator[Judge]:
    """Yield the checkpoint of CREPE as a judge."""
    model = open_crepe({} if crepe is None else crepe, device)["crepe"]
    with keep_answers(crepe_judge(model), None if keep is None else Path(keep)) as judge:
        yield judge
