"""The best of a pool under a metric without an exact search: CREPE of the reports that another metric ranks first.

CREPE's model reads both reports, so no bound skips a pair: an oracle would run it on the whole corpus. Instead a pool
is stated, the first N reports of an exact search under a metric that an index can search (the prefix), and every
report of the pool is scored. What that loses is not assumed but measured:

- CREPE is never below 0, so an answer with score 0 is certified: no report of the corpus has a better score.
- An audit scores the whole corpus for some of the queries, drawn at random: their own answers are exact, and of the
  others it says how often the best score is in the pool (recall, with the interval of Clopper and Pearson, 1934) and
  by how much the pool's best is above it (regret).
- From the places that the audited queries' best reports have under the prefix, split conformal prediction (Vovk et al.,
  2005) gives the pool that holds a best report of a further query of the same test set with a probability of at least
  the recall asked for: the ceil((m + 1) recall)-th smallest of m places.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import Metric, get_metric
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.answers import layout, n_scorable, strings
from metric_oracle.retrieval.checks import check_section, section_entry
from metric_oracle.retrieval.merge import Answer
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.pair_models import COMPONENTS, ErrorModel, totals
from metric_oracle.retrieval.plan import SearchPlan, plan
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import digest
from metric_oracle.sources.inputs import Inputs

ALL = "all"
SIZE = 200  # reports of a pool where nothing else is asked for
LEVEL = 0.95
_NOT_RANKED = np.iinfo(np.int64).max  # the place of a report that the prefix cannot score


@dataclass(frozen=True)
class Pool:
    """Which reports are scored.

    Attributes
    ----------
    prefix : Metric or None
        Ranks the corpus; None where the pool is the whole corpus.
    size : int or None
        Reports of the pool for each query; None: the whole corpus, or what `recall` asks for.
    audit : int
        Queries for which the whole corpus is scored.
    recall : float or None
        Probability with which the pool is to hold a best report.
    seed : int
        Of the draw of audited queries.
    options : SearchOptions
        Of the search under the prefix, whose `k` is the size; `k` and `text` of the answers.
    """

    prefix: Metric | None
    size: int | None = SIZE
    audit: int = 0
    recall: float | None = None
    seed: int = 0
    options: SearchOptions = DEFAULTS


class _Best(NamedTuple):
    """The k best rows of one query: rows, scores, rows of the pool with that score, counts [k, 6]; and the pool."""

    rows: np.ndarray
    scores: np.ndarray
    ties: np.ndarray
    counts: np.ndarray
    n_pool: int


@dataclass(frozen=True)
class RerankPlan:
    """A pool that was checked against an index; only the queries are missing. Made by `plan_rerank`.

    Attributes
    ----------
    index : Index
    pool : Pool
    search : SearchPlan or None
        Of the search under the prefix.
    model : ErrorModel
        Counts the errors.
    """

    index: Index
    pool: Pool
    search: SearchPlan | None
    model: ErrorModel

    def run(self, queries: Inputs, progress: Progress | None = None) -> Results:
        """Find, for every query, the k reports of its pool with the fewest predicted errors.

        Parameters
        ----------
        queries : Inputs
            The references, with what the prefix reads.
        progress : function
            Called as ``progress(step, done, total)`` with numbers of queries; steps are "audit" and "rerank".

        Returns
        -------
        Results
            Lowest score first, equal scores by ascending corpus row. In addition to the columns of a search: ``pool``,
            how many rows were scored, and ``certified``, whether no report of the corpus can have a better score at
            that rank. ``n_ties`` counts rows of the pool; ``exact`` is true where that is the whole corpus. The
            signature's ``pool`` has prefix, size and audit.

        Raises
        ------
        InputError
            If the queries are of another section, or fewer than the audit.
        """
        index, pool, search, n = self.index, self.pool, self.search, len(queries.ids)
        report = silent if progress is None else progress
        check_section(queries, index)
        if pool.audit > n:
            msg = f"rerank: audit must be an int from 0 to {n} (test reports); got {pool.audit}. Choose one."
            raise InputError(msg)
        reader, k = _Reader(index, self.model), int(pool.options.k)
        every, found = np.arange(index.n_reports), dict[int, _Best]()
        size, audited = pool.size, dict[str, Any]()
        if pool.audit and search is not None:
            chosen = np.sort(np.random.default_rng(pool.seed).choice(n, pool.audit, replace=False))
            places, losses = [], []
            for done, q in enumerate(chosen.tolist(), start=1):
                counts = reader.counts(queries.texts[q], every)
                found[q] = _pick(every, counts, k)
                place, loss = _audit(search, queries.take(np.array([q])), totals(counts))
                places.append(place)
                losses.append(loss)
                report("audit", done, pool.audit)
            size = conformal_pool(np.array(places), pool.recall) if pool.recall is not None else size
            audited = _described(pool, np.array(places), size, losses)
        whole = search is None or size is None
        rest = [q for q in range(n) if q not in found]
        _check_k(pool.options.k, index.n_reports if whole or size is None else size)
        ranked = np.broadcast_to(every, (len(rest), len(every)))
        if search is not None and size is not None and rest:
            ranked = search.rows(queries.take(np.array(rest)), size)
        alike: dict[str, list[int]] = {}
        for place, q in enumerate(rest):
            alike.setdefault(queries.texts[q], []).append(place)
        done = len(found)
        for reference, some_places in alike.items():  # queries of one text are scored together
            asked, which = np.unique(ranked[some_places], return_inverse=True)
            counts = reader.counts(reference, asked)
            for place, units in zip(some_places, which.reshape(len(some_places), -1), strict=True):
                found[rest[place]] = _pick(ranked[place], counts[units], k)
            done += len(some_places)
            report("rerank", done, n)
        entries = _signature(index, queries, self.model, pool, None if whole else size, audited, k)
        if reader.n_cut:
            entries["truncated_pairs"] = reader.n_cut
        return Results(_table(index, queries, [found[q] for q in range(n)], pool.options.text), entries)


def _table(index: Index, queries: Inputs, found: Sequence[_Best], text: bool) -> Any:
    """Lay out the answers: the columns of a search, then those of a pool, then the text."""
    rows, scores, ties, counts = (np.array(list(values)) for values in list(zip(*found, strict=True))[:4])
    n_pool = np.repeat([best.n_pool for best in found], rows.shape[1])
    ids, shown = strings(index.take("study_id", rows.ravel())), strings(index.take("text", rows.ravel()))
    components = {name: counts[:, :, i] for i, name in enumerate(COMPONENTS)}
    table = layout(queries.ids, Answer(rows, scores, ties, components, ids, None), np.zeros(rows.shape, bool), False)
    exact = n_pool == index.n_reports
    table = table.set_column(table.column_names.index("exact"), "exact", [exact])
    columns = {"pool": n_pool, "certified": exact | (scores.ravel() == 0.0), **({"text": shown} if text else {})}
    for name, values in columns.items():
        table = table.append_column(name, [values])
    return table


def conformal_pool(places: np.ndarray, recall: float) -> int | None:
    """Return the pool that holds a further query's best report with at least that probability; None: no pool is sure.

    Parameters
    ----------
    places : int64[m]
        Of the best reports of m exchangeable queries under the prefix, from 1.
    recall : float
        Between 0 and 1.
    """
    # Without the rounding of a product such as (99 + 1) * 0.95.
    rank = ceil(round((len(places) + 1) * recall, 9))
    if rank > len(places):
        return None
    found = int(np.sort(places)[rank - 1])
    return None if found == _NOT_RANKED else found


def binomial_interval(hits: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the interval of a share by Clopper and Pearson, which covers at least with the level."""
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, n - hits + 1))
    high = 1.0 if hits == n else float(beta.ppf(1 - tail, hits + 1, n - hits))
    return low, high


class _Reader:
    """The model over rows of the corpus; `n_cut` counts the pairs that were longer than it takes."""

    def __init__(self, index: Index, model: ErrorModel) -> None:
        self._index, self._model = index, model
        self.n_cut = 0

    def counts(self, reference: str, rows: np.ndarray) -> np.ndarray:
        """Return the counts of some rows for a reference, float64[n, 6]."""
        texts = self._index.take("text", rows).to_pylist()
        found, n_cut = self._model.count_errors([(reference, candidate) for candidate in texts])
        self.n_cut += n_cut
        return found


def _pick(rows: np.ndarray, counts: np.ndarray, k: int) -> _Best:
    """Return the k best of some rows."""
    sums = totals(counts)
    order = np.lexsort((rows, sums))[:k]
    ordered, scores = np.sort(sums), sums[order]
    ties = np.searchsorted(ordered, scores, "right") - np.searchsorted(ordered, scores, "left")
    return _Best(rows[order], scores, ties, counts[order], len(rows))


def _audit(search: SearchPlan, query: Inputs, sums: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the first place under the prefix of a best report of the corpus, and what each pool size loses.

    The latter: by place under the prefix, how far the best score up to there is above the corpus's best.
    """
    by_place = sums[search.rows(query, n_scorable(search.index, search.metric))[0]]
    hits = np.flatnonzero(by_place == sums.min())
    return (int(hits[0]) + 1 if len(hits) else _NOT_RANKED), np.minimum.accumulate(by_place) - sums.min()


def _described(pool: Pool, places: np.ndarray, size: int | None, losses: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return what the signature says of an audit."""
    regret = np.array([0.0 if size is None else loss[size - 1] for loss in losses])
    missed = 0 if size is None else int((places > size).sum())
    found: dict[str, Any] = {
        "queries": pool.audit,
        "seed": pool.seed,
        "missed": missed,
        "regret": {"mean": float(regret.mean()), "max": float(regret.max())},
        "places": [None if place == _NOT_RANKED else place for place in np.sort(places).tolist()],
    }
    if pool.recall is None:
        low, high = binomial_interval(pool.audit - missed, pool.audit)
        return {**found, "recall_at_1": {"value": 1 - missed / pool.audit, "low": low, "high": high, "level": LEVEL}}
    return {**found, "asked_recall": pool.recall}


def _check_k(k: Any, n_pool: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n_pool:
        msg = f"rerank: k must be an int from 1 to {n_pool} (reports of the pool); got {k!r}. Choose one."
        raise InputError(msg)


def plan_rerank(index: str | Path | Index, pool: Pool, open_model: Callable[[], ErrorModel]) -> RerankPlan:
    """Check that size, audit, recall and k go together and fit an index, and plan the search under the prefix.

    Parameters
    ----------
    index : path or Index
    pool : Pool
    open_model : function
        Called once everything else was checked.

    Raises
    ------
    InputError
        If they do not, or the index lacks what the prefix reads.
    """
    search = None if pool.prefix is None else plan(index, pool.prefix, replace(pool.options, k=1, text=False))
    opened = index if isinstance(index, Index) else open_index(index) if search is None else search.index
    n_rows = opened.n_reports if search is None else n_scorable(opened, search.metric)
    if pool.size is not None and not 1 <= pool.size <= n_rows and pool.prefix is not None:
        msg = (
            f"rerank: pool must be all, or an int from 1 to {n_rows} (reports that {pool.prefix.name} can score); got "
            f"{pool.size}. Choose one."
        )
        raise InputError(msg)
    if pool.audit and pool.prefix is None:
        msg = "rerank: audit must be left out where the pool is the whole corpus; got a number. Drop it."
        raise InputError(msg)
    if pool.audit < 0:
        msg = f"rerank: audit must be an int of at least 0; got {pool.audit}. Choose one."
        raise InputError(msg)
    if pool.recall is not None and not 0 < pool.recall < 1:
        msg = f"rerank: recall must be a number between 0 and 1; got {pool.recall}. Choose one, such as 0.95."
        raise InputError(msg)
    if pool.recall is not None and (pool.size is not None or not pool.audit):
        got = "no audit" if pool.size is None else f"{pool.size}"
        msg = (
            f"rerank: recall must be given with audit and without the size of a pool; got {got}. "
            "Pass --audit M --pool METRIC."
        )
        raise InputError(msg)
    _check_k(pool.options.k, opened.n_reports if pool.size is None else pool.size)
    return RerankPlan(opened, pool, search, open_model())


def _signature(
    index: Index, queries: Inputs, model: ErrorModel, pool: Pool, size: int | None, audited: dict[str, Any], k: int
) -> dict[str, Any]:
    """Return what is needed to reproduce a result."""
    record = get_metric("crepe", "rerank")
    described: dict[str, Any] = {"size": ALL if size is None else size}
    if pool.prefix is not None:
        content = index.content["representations"]
        described["prefix"] = {
            "metric": pool.prefix.name,
            "options": pool.prefix.recorded,
            "source": pool.prefix.source,
            "representation": {kind: content[kind] for kind in pool.prefix.representations},
            **{name: value if isinstance(value, bool) else str(value) for name, value in pool.options.settings.items()},
        }
    return {
        "metric": record.name,
        "options": record.recorded,
        "source": record.source,
        "tool": record.tool,
        "direction": "lower",
        "representation": {record.representation: {"encoder": model.signature}},
        "index": index.fingerprint,
        **section_entry(index, queries),
        "k": k,
        "ties": "lowest row first",
        "version": version("metric-oracle"),
        "references": digest(queries),
        "pool": {**described, **({"audit": audited} if audited else {})},
    }
