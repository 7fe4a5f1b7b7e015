"""Rerank a pool of candidates by CREPE, a metric without an exact search.

CREPE's model reads both reports, so there is no bound with which to skip pairs: an exact search would run the model on
the whole corpus. Instead only a stated pool is scored, the first N reports of an exact search under another metric (the
prefix). The loss is not assumed but measured:

- CREPE is never below 0, so an answer with score 0 is certified: no report of the corpus has a better score.
- An audit scores the whole corpus for some of the queries, drawn at random. The answers of these queries are exact.
  For the others they show how often the best score is in the pool (recall, with the interval of Clopper and Pearson,
  1934) and by how much the best score of the pool is above that of the corpus (regret).
- The ranks of the audited queries' best reports under the prefix give a pool size by split conformal prediction
  (Vovk et al., 2005): the ceil((m + 1) recall)-th smallest of m ranks. For a further query of the same test set, a
  pool of this size contains a best report with at least the probability `recall`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import choices
from metric_oracle.base.arguments import check_in_range, check_left_out
from metric_oracle.base.declared import Flag, Uses
from metric_oracle.base.errors import InputError, called, option
from metric_oracle.base.files import package_version
from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import shown_names
from metric_oracle.findings.results import Results
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.shards import open_index
from metric_oracle.judges.pair_models import COMPONENTS, ErrorModel, totals
from metric_oracle.metrics import get_metric
from metric_oracle.reading import Queries, attached, loaded
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_section, section_entry
from metric_oracle.retrieval.merge import BestRows
from metric_oracle.retrieval.options import DEFAULTS, SETTINGS, SearchOptions, chosen
from metric_oracle.retrieval.plan import Plan, plan
from metric_oracle.retrieval.result_table import layout, n_scorable, strings
from metric_oracle.retrieval.scoring import open_crepe
from metric_oracle.retrieval.search import digest
from metric_oracle.retrieval.weights import weighed

ALL = "all"
SIZE = 200  # default number of reports in a pool
LEVEL = 0.95
_NOT_RANKED = np.iinfo(np.int64).max  # rank of a report that the prefix cannot score


@dataclass(frozen=True)
class Pool:
    """The pool of reports that are scored, and its audit."""

    prefix: Metric | None  # metric that ranks the corpus; None if the pool is the whole corpus
    size: int | None = SIZE  # reports in each pool; None for the whole corpus, or for the size that `recall` gives
    audit: int = 0  # number of queries for which the whole corpus is scored
    recall: float | None = None  # probability with which the pool should contain a best report
    seed: int = 0  # seed of the draw of audited queries
    options: SearchOptions = DEFAULTS  # options of the search under the prefix; `k` and `text` are those of the answers


class _Reranked(NamedTuple):
    """The k best rows of one query."""

    rows: np.ndarray  # int64[k]
    scores: np.ndarray  # float64[k]
    ties: np.ndarray  # int64[k], number of rows of the pool with the same score
    counts: np.ndarray  # float64[k, 6], predicted errors by category
    n_pool: int  # number of rows that were scored


@dataclass(frozen=True)
class RerankPlan:
    """A checked reranking, ready to run on queries. Made by `plan_rerank`."""

    index: Index
    pool: Pool
    search: Plan | None  # the search under the prefix; None if the pool is the whole corpus
    model: ErrorModel  # model that counts the errors

    def run(self, queries: Reports, progress: Progress | None = None) -> Results:
        """Find, for every query, the k reports of its pool with the fewest predicted errors, fewest first, then by row.

        The queries, the references, have what the prefix reads. The columns are those of a search and: ``pool``, how
        many rows were scored, and ``certified``, whether no report of the corpus can have a better score at that rank.
        ``n_ties`` counts rows of the pool; ``exact`` is true where that is the whole corpus. The signature's ``pool``
        has prefix, size and audit. Steps of `progress` are "audit" and "rerank". Raise InputError if the queries are of
        another section, or fewer than the audit, or the pool has fewer than k reports.
        """
        index, pool, search, n = self.index, self.pool, self.search, len(queries.ids)
        report = silent if progress is None else progress
        check_section(queries, index)
        check_in_range("audit", pool.audit, ge=0, le=n, note=" (test reports)")
        reader, k = _Reader(index, self.model), int(pool.options.k)
        every, best_of = np.arange(index.n_reports), dict[int, _Reranked]()
        size, audited = pool.size, dict[str, Any]()
        if pool.audit and search is not None:
            chosen = np.sort(np.random.default_rng(pool.seed).choice(n, pool.audit, replace=False))
            ranks, losses = [], []
            for done, q in enumerate(chosen.tolist(), start=1):
                counts = reader.counts(queries.texts[q], every)
                best_of[q] = _pick(every, counts, k)
                rank, loss = _audit(search, queries.take(np.array([q])), totals(counts))
                ranks.append(rank)
                losses.append(loss)
                report("audit", done, pool.audit)
            size = conformal_pool(np.array(ranks), pool.recall) if pool.recall is not None else size
            audited = _described(pool, np.array(ranks), size, losses)
        whole = search is None or size is None
        rest = [q for q in range(n) if q not in best_of]
        n_pool = index.n_reports if whole or size is None else size
        check_in_range("k", pool.options.k, ge=1, le=n_pool, note=" (reports of the pool)")
        ranked = np.broadcast_to(every, (len(rest), len(every)))
        if search is not None and size is not None and rest:
            ranked = search.rows(queries.take(np.array(rest)), size)
        alike: dict[str, list[int]] = {}
        for i, q in enumerate(rest):
            alike.setdefault(queries.texts[q], []).append(i)
        done = len(best_of)
        for reference, positions in alike.items():  # queries of one text are scored together
            references, which = np.unique(ranked[positions], return_inverse=True)
            counts = reader.counts(reference, references)
            for i, documents in zip(positions, which.reshape(len(positions), -1), strict=True):
                best_of[rest[i]] = _pick(ranked[i], counts[documents], k)
            done += len(positions)
            report("rerank", done, n)
        entries = _signature(index, queries, self.model, pool, None if whole else size, audited, k)
        if reader.n_cut:
            entries["truncated_pairs"] = reader.n_cut
        return Results(_table(index, queries, [best_of[q] for q in range(n)], pool.options.text), entries)


def _table(index: Index, queries: Reports, best_of_queries: Sequence[_Reranked], text: bool) -> Any:
    """Return the table of results: the columns of a search, then those of a pool, then the text if `text` is true."""
    rows, scores, ties, counts = (np.array(list(values)) for values in list(zip(*best_of_queries, strict=True))[:4])
    n_pool = np.repeat([best.n_pool for best in best_of_queries], rows.shape[1])
    ids, shown = strings(index.take("study_id", rows.ravel())), strings(index.take("text", rows.ravel()))
    components = {name: counts[:, :, i] for i, name in enumerate(COMPONENTS)}
    table = layout(queries.ids, BestRows(rows, scores, ties, components, ids, None), np.zeros(rows.shape, bool), False)
    exact = n_pool == index.n_reports
    table = table.set_column(table.column_names.index("exact"), "exact", [exact])
    columns = {"pool": n_pool, "certified": exact | (scores.ravel() == 0.0), **({"text": shown} if text else {})}
    for name, values in columns.items():
        table = table.append_column(name, [values])
    return table


def conformal_pool(ranks: np.ndarray, recall: float) -> int | None:
    """Return the pool size that contains the best report of a further query with probability `recall`, between 0 and 1.

    `ranks`, int64[m], are the ranks from 1 of the best reports of m exchangeable queries under the prefix. The result
    is None if no pool, not even all reports that the prefix can score, has this probability.
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


class _Reader:
    """Runs the model on pairs of a reference and corpus rows."""

    def __init__(self, index: Index, model: ErrorModel) -> None:
        self._index, self._model = index, model
        self.n_cut = 0  # number of pairs so far that were too long and truncated

    def counts(self, reference: str, rows: np.ndarray) -> np.ndarray:
        """Return the predicted errors of corpus rows, as candidates for the text `reference`: float64[n, 6]."""
        texts = self._index.take("text", rows).to_pylist()
        errors, n_cut = self._model.count_errors([(reference, candidate) for candidate in texts])
        self.n_cut += n_cut
        return errors


def _pick(rows: np.ndarray, counts: np.ndarray, k: int) -> _Reranked:
    """Return the k of `rows`, int64[n], with the fewest errors in sum, ascending; of equal ones the lowest row first.

    `counts`, float64[n, 6], has the errors of each row.
    """
    sums = totals(counts)
    order = np.lexsort((rows, sums))[:k]
    ordered, scores = np.sort(sums), sums[order]
    ties = np.searchsorted(ordered, scores, "right") - np.searchsorted(ordered, scores, "left")
    return _Reranked(rows[order], scores, ties, counts[order], len(rows))


def _audit(search: Plan, query: Reports, sums: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the rank of the first best report of the corpus under the prefix, and the loss of each pool size.

    `sums`, float64[N], are the scores of all corpus rows for the query. The rank counts from 1, and is `_NOT_RANKED` if
    the prefix can score no best report. Element n - 1 of the loss is how far the best score of a pool of n reports is
    above the best score of the corpus.
    """
    by_place = sums[search.rows(query, n_scorable(search.index, search.metric))[0]]
    hits = np.flatnonzero(by_place == sums.min())
    return (int(hits[0]) + 1 if len(hits) else _NOT_RANKED), np.minimum.accumulate(by_place) - sums.min()


def _described(pool: Pool, ranks: np.ndarray, size: int | None, losses: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the entry of the signature that describes an audit: regret, ranks of the best reports, and the recall.

    The recall is the one measured with its interval, or the one that was asked for. `size` is that of the pool, None
    for the whole corpus; `losses` and `ranks`, int64[m], are those of `_audit` for each query.
    """
    regret = np.array([0.0 if size is None else loss[size - 1] for loss in losses])
    missed = 0 if size is None else int((ranks > size).sum())
    entry: dict[str, Any] = {
        "queries": pool.audit,
        "seed": pool.seed,
        "missed": missed,
        "regret": {"mean": float(regret.mean()), "max": float(regret.max())},
        "places": [None if r == _NOT_RANKED else r for r in np.sort(ranks).tolist()],
    }
    if pool.recall is None:
        low, high = binomial_interval(pool.audit - missed, pool.audit)
        return {**entry, "recall_at_1": {"value": 1 - missed / pool.audit, "low": low, "high": high, "level": LEVEL}}
    return {**entry, "asked_recall": pool.recall}


def plan_rerank(
    index: str | Path | Index,
    pool: Pool,
    crepe: str | Path | Mapping[str, Any] | ErrorModel,
    device: str | None = None,
) -> RerankPlan:
    """Check that size, audit, recall and k go together and fit an index, and plan the search under the prefix.

    `crepe` is a checkpoint, which is opened after all other checks, or an opened model; `device` is where it runs if
    the checkpoint does not say it. Raise InputError if an option is wrong, or the index lacks a representation that the
    prefix reads.
    """
    search = None if pool.prefix is None else plan(index, pool.prefix, replace(pool.options, k=1, text=False))
    opened = index if isinstance(index, Index) else open_index(index) if search is None else search.index
    n_rows = opened.n_reports if search is None else n_scorable(opened, search.metric)
    if pool.size is not None and not 1 <= pool.size <= n_rows and pool.prefix is not None:
        raise InputError(
            "pool",
            f"must be all, or an int from 1 to {n_rows} (reports that {pool.prefix.name} can score)",
            pool.size,
            "Choose another size.",
        )
    if pool.prefix is None:
        check_left_out({"audit": pool.audit or None}, "where the pool is the whole corpus", got=f"{pool.audit}")
    if pool.recall is not None and (pool.size is not None or not pool.audit):
        got = "no audit" if pool.size is None else f"{pool.size}"
        raise InputError(
            "recall",
            f"must be given with {option('audit')} and without the size of a pool",
            got,
            f"Pass {option('audit', 'M')} {option('pool', 'METRIC')}.",
        )
    n_pool = opened.n_reports if pool.size is None else pool.size
    check_in_range("k", pool.options.k, ge=1, le=n_pool, note=" (reports of the pool)")
    model = crepe if isinstance(crepe, ErrorModel) else open_crepe(crepe, device)["crepe"]
    return RerankPlan(opened, pool, search, model)


def _signature(
    index: Index, queries: Reports, model: ErrorModel, pool: Pool, size: int | None, audited: dict[str, Any], k: int
) -> dict[str, Any]:
    """Return the signature of a reranking: what is needed to reproduce it.

    `size` is that of the pool, None for the whole corpus; `audited` is what `_described` returns, empty without an
    audit.
    """
    record = get_metric("crepe")
    described: dict[str, Any] = {"size": ALL if size is None else size}
    if pool.prefix is not None:
        content = index.content["representations"]
        described["prefix"] = {
            "metric": pool.prefix.name,
            "options": pool.prefix.recorded,
            "source": pool.prefix.citation,
            "representation": {kind: content[kind] for kind in pool.prefix.representations},
            **{name: value if isinstance(value, bool) else str(value) for name, value in pool.options.settings.items()},
        }
    return {
        "metric": record.name,
        "options": record.recorded,
        "source": record.citation,
        "tool": record.tool,
        "direction": "lower",
        "representation": {record.representation: {"encoder": model.signature}},
        "index": index.fingerprint,
        **section_entry(index, queries),
        "k": k,
        "ties": "lowest row first",
        "version": package_version(),
        "references": digest(queries),
        "pool": {**described, **({"audit": audited} if audited else {})},
    }


@called("rerank")
def rerank(
    index: AnyIndex,
    queries: Queries,
    crepe: choices.Crepe,
    *,
    pool: Annotated[
        str,
        Doc(
            "Candidates that CREPE scores for each test report: METRIC:N, the N best under another metric; "
            "composite:N, those under `weights`, such as weights fitted to scores of CREPE; or all, the whole corpus, "
            "which makes the result exact. With `recall`, METRIC alone."
        ),
        Flag(metavar="METRIC:N"),
    ] = f"radcliq:{SIZE}",
    k: choices.K | None = None,
    audit: Annotated[
        choices.Count,
        Doc(
            "Number of test reports, drawn at random, for which CREPE scores the whole corpus, to measure how often "
            "the best report is missing from the pool. Their results are exact. 0 means no audit."
        ),
    ] = 0,
    recall: Annotated[
        choices.Recall | None,
        Doc(
            "Probability, between 0 and 1, with which the pool should contain a best report; the audit then chooses "
            "the size N of the pool. Needs `audit`, and METRIC without N as `pool`. By default N is that of `pool`."
        ),
        Flag(metavar="Q"),
    ] = None,
    seed: choices.Seed = 0,
    options: Annotated[
        SearchOptions | None,
        Doc("`k`, `text`, and the options of the search for the pool."),
        Uses("k", "text", "weights", *SETTINGS),
    ] = None,
    progress: Progress | None = None,
) -> Results:
    """Find the reports with the fewest errors as predicted by CREPE, among the best reports under another metric.

    No exact search exists for CREPE: only the reports of a pool are scored, and the best of the corpus may be missing
    from it. Where the result has a score of 0 errors, no report can be better. `audit` measures how often the pool
    misses the best report; `recall` chooses the size of the pool by this measurement.

    Returns
    -------
    Results
        Reports with the predicted errors of each category in the columns nA to nF; ``pool`` says which pool they come
        from, and ``certified`` whether no report of the corpus can be better.

    Raises
    ------
    InputError
        If an argument is wrong, or pool, k or audit do not fit index and queries.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> best = mo.rerank("INDEX", "test.csv", "crepe-biomedbert", pool="bleu:200", audit=50)  # doctest: +SKIP
    """
    wanted = pool_of(pool, audit, recall, seed, chosen(options, k=k))
    planned = plan_rerank(index, wanted, crepe, attached(queries).models.get("device"))
    return planned.run(loaded(queries, planned.index, progress), progress)


def pool_of(pool: str, audit: int, recall: float | None, seed: int, options: SearchOptions) -> Pool:
    """Return the pool that the arguments of `rerank` describe; raise InputError if one is wrong."""
    name, size = read_pool(pool, recall is not None)
    check_left_out({**options.restrictions, "part": options.part}, "for a pool")
    record = None if name is None else weighed(name, options.weights)
    if record is None:
        options.check_used(("k", "text"), "a pool that is the whole corpus")
    return Pool(record, size, audit, recall, seed, replace(options, weights=None))


def read_pool(pool: str, is_chosen: bool) -> tuple[str | None, int | None]:
    """Return the metric and the size in an argument such as "bleu:200"; both are None for "all", the whole corpus.

    If `is_chosen`, an audit chooses the size: the argument is a metric alone or the default, and the size None. Another
    size is returned for the caller to refuse. Raise InputError if a size is missing otherwise.
    """
    if pool == ALL:
        return None, None
    name, mark, size = str(pool).rpartition(":")
    if mark and size.isdecimal():
        # The audit chooses the size of the pool, so the size in the default value, which no user typed, is dropped.
        return name, None if is_chosen and pool == f"radcliq:{SIZE}" else int(size)
    if is_chosen:
        return str(pool), None
    raise InputError("pool", f"must be METRIC:N or {ALL}", shown_names([pool]), f"Pass radcliq:{SIZE}.")
