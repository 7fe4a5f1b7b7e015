"""The best of a pool under a metric without an exact search: CREPE of the reports that another metric ranks first.

CREPE's model reads both reports, so no bound skips a pair: an oracle would run it on the whole corpus. Instead a pool
is stated, the first N reports of an exact search under a metric that an index can search (the prefix), and every
report of the pool is scored. What that loses is not assumed but measured:

- CREPE is never below 0, so an answer with score 0 is certified: no report of the corpus has a better score.
- An audit scores the whole corpus for some of the queries, drawn at random, and counts those whose best report is not
  in the pool, with an exact binomial interval (Clopper and Pearson, 1934).
- From the places that the audited queries' best reports have in the prefix, split conformal prediction (Vovk et al.,
  2005) gives the pool that holds the best report of a further query with a probability of at least the recall asked
  for: the ceil((m + 1) recall)-th smallest of m places, if queries are exchangeable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from math import ceil
from typing import Any

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import Metric, get_metric
from metric_oracle.retrieval.answers import layout, n_scorable, strings
from metric_oracle.retrieval.merge import Answer
from metric_oracle.retrieval.pair_models import COMPONENTS, PairModel, totals
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import digest, retrieve

ALL = "all"
POOL = 100  # reports where nothing else is asked for
LEVEL = 0.95
_NOT_RANKED = np.iinfo(np.int64).max  # the place of a report that the prefix cannot score

Tell = Callable[[str, int, int], None]


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
        Probability with which the pool is to hold the best report.
    seed : int
        Of the draw of audited queries.
    settings : dict
        Of a search under the prefix, see :func:`metric_oracle.retrieval.search.retrieve`.
    """

    prefix: Metric | None
    size: int | None = POOL
    audit: int = 0
    recall: float | None = None
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)


def rerank(
    index: Index, queries: Inputs, model: PairModel, pool: Pool, *, k: int = 1, text: bool = True,
    progress: Tell | None = None,
) -> Results:  # fmt: skip
    """Find, for every query, the k reports of its pool with the fewest predicted errors.

    Parameters
    ----------
    index : Index
    queries : Inputs
        The references, with what the prefix reads.
    model : PairModel
    pool : Pool
    k : int
        Answers a query, at most the pool.
    text : bool
        Whether the results carry the candidates' text.
    progress : function
        Called with what is done ("audit", "rerank"), finished queries and all.

    Returns
    -------
    Results
        Lowest score first, equal scores by ascending corpus row. Beside the columns of a search: ``pool_rank``, the
        place under the prefix, and ``certified``, whether no report of the corpus has a better score at that rank.
        ``n_ties`` counts rows of the pool. The signature's ``pool`` has prefix, size and audit.

    Raises
    ------
    InputError
        If pool, k or audit do not fit index and queries, or the index lacks what the prefix reads.
    """
    prefix, n = pool.prefix, len(queries.ids)
    n_rows = index.n_reports if prefix is None else _n_ranked(index, prefix)
    _check(pool, n, n_rows)
    told: Tell = progress or (lambda what, done, total: None)
    score = partial(_score, index, model)
    audited: dict[str, Any] = {}
    size = pool.size
    if pool.audit and prefix is not None:
        chosen = np.sort(np.random.default_rng(pool.seed).choice(n, pool.audit, replace=False))
        found = [
            _audit(index, queries.take(np.array([q])), prefix, pool, score, done, told)
            for done, q in enumerate(chosen.tolist())
        ]
        places = np.array([place for place, _ in found])
        size = conformal_pool(places, pool.recall) if pool.recall is not None else size
        audited = _described(pool, places, size, n_rows, [losses for _, losses in found])
    whole = prefix is None or size is None
    n_pool = index.n_reports if whole or size is None else size
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n_pool:
        msg = f"rerank: k must be an int from 1 to {n_pool} (reports of the pool); got {k!r}. Choose one."
        raise InputError(msg)
    k = int(k)
    if whole or prefix is None:
        rows = np.broadcast_to(np.arange(n_pool), (n, n_pool))
    else:
        ranked = retrieve(index, queries, prefix, k=n_pool, text=False, **pool.settings)
        rows = ranked.table["row"].to_numpy().reshape(n, n_pool)
    answer, place = _best(index, queries.texts, rows, score, k, text, told)
    table = layout(queries.ids, answer, np.zeros((n, k), bool), whole)
    if not whole:
        table = table.append_column("pool_rank", [place.ravel()])
    certified = (answer.scores == 0.0) | whole
    table = table.append_column("certified", [certified.ravel()])
    if text:  # last, as in a search
        table = table.select([name for name in table.column_names if name != "text"] + ["text"])
    return Results(table, _signature(index, queries, model, pool, None if whole else n_pool, audited, k))


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


_Score = Callable[[str, np.ndarray], np.ndarray]


def _score(index: Index, model: PairModel, reference: str, rows: np.ndarray) -> np.ndarray:
    """Return the counts of some rows for a reference, float64[n, 6]."""
    texts = index.take("text", rows).to_pylist()
    return model.count_errors([(reference, candidate) for candidate in texts])[0]


def _best(
    index: Index, texts: Sequence[str], rows: np.ndarray, score: _Score, k: int, text: bool, told: Tell
) -> tuple[Answer, np.ndarray]:  # fmt: skip
    """Return the k best rows of each query's pool, and their places in it, from 1: int64[Q, k].

    Queries of one text are scored together.
    """
    n = len(texts)
    best, places = np.empty((n, k), np.int64), np.empty((n, k), np.int64)
    scores, ties, counts = np.empty((n, k)), np.empty((n, k), np.int64), np.empty((n, k, len(COMPONENTS)))
    alike: dict[str, list[int]] = {}
    for q, reference in enumerate(texts):
        alike.setdefault(reference, []).append(q)
    done = 0
    for reference, some in alike.items():
        asked, which = np.unique(rows[some], return_inverse=True)
        found = score(reference, asked)
        sums = totals(found)
        for q, units in zip(some, which.reshape(len(some), -1), strict=True):
            order = np.lexsort((rows[q], sums[units]))[:k]
            best[q], places[q], scores[q] = rows[q][order], order + 1, sums[units[order]]
            counts[q] = found[units[order]]
            ordered = np.sort(sums[units])
            ties[q] = np.searchsorted(ordered, scores[q], "right") - np.searchsorted(ordered, scores[q], "left")
        done += len(some)
        told("rerank", done, n)
    components = {name: counts[:, :, i] for i, name in enumerate(COMPONENTS)}
    ids = strings(index.take("study_id", best.ravel()))
    shown = strings(index.take("text", best.ravel())) if text else None
    return Answer(best, scores, ties, components, ids, shown), places


def _audit(
    index: Index, query: Inputs, prefix: Metric, pool: Pool, score: _Score, done: int, told: Tell
) -> tuple[int, np.ndarray]:  # fmt: skip
    """Return the first place under the prefix of a best report of the corpus, and what each pool size loses.

    The latter: by place under the prefix, how far the best score up to there is above the corpus's best.
    """
    every = np.arange(index.n_reports)
    sums = totals(score(query.texts[0], every))
    ranked = retrieve(index, query, prefix, k=_n_ranked(index, prefix), text=False, **pool.settings)
    by_place = sums[ranked.table["row"].to_numpy()]
    hits = np.flatnonzero(by_place == sums.min())
    told("audit", done + 1, pool.audit)
    return (int(hits[0]) + 1 if len(hits) else _NOT_RANKED), np.minimum.accumulate(by_place) - sums.min()


def _described(
    pool: Pool, places: np.ndarray, size: int | None, n_rows: int, losses: Sequence[np.ndarray]
) -> dict[str, Any]:  # fmt: skip
    """Return what the signature says of an audit."""
    missed = 0 if size is None else int((places > size).sum())
    found: dict[str, Any] = {
        "queries": pool.audit,
        "seed": pool.seed,
        "missed": missed,
        "mean_loss": 0.0 if size is None else float(np.mean([loss[size - 1] for loss in losses])),
        "places": [None if place == _NOT_RANKED else place for place in np.sort(places).tolist()],
    }
    if pool.recall is None:
        low, high = binomial_interval(missed, pool.audit)
        return {**found, "missed_share": missed / pool.audit, "missed_low": low, "missed_high": high, "level": LEVEL}
    return {**found, "recall": pool.recall}


def _n_ranked(index: Index, prefix: Metric) -> int:
    index.check_holds(prefix)
    return n_scorable(index, prefix)


def _check(pool: Pool, n_queries: int, n_rows: int) -> None:
    """Raise unless size, audit and recall go together."""
    if pool.size is not None and not 1 <= pool.size <= n_rows and pool.prefix is not None:
        msg = (
            f"rerank: pool must be all, or an int from 1 to {n_rows} (reports that {pool.prefix.name} can score); got "
            f"{pool.size}. Choose one."
        )
        raise InputError(msg)
    if pool.audit and pool.prefix is None:
        msg = "rerank: audit must be left out where the pool is the whole corpus; got a number. Drop it."
        raise InputError(msg)
    if not 0 <= pool.audit <= n_queries:
        msg = f"rerank: audit must be an int from 0 to {n_queries} (test reports); got {pool.audit}. Choose one."
        raise InputError(msg)
    if pool.recall is not None and not 0 < pool.recall < 1:
        msg = f"rerank: recall must be a number between 0 and 1; got {pool.recall}. Choose one, such as 0.95."
        raise InputError(msg)
    if pool.recall is not None and (pool.size is not None or not pool.audit):
        got = "none" if pool.size is None else "a pool"
        msg = f"rerank: recall must be given with audit and without pool; got {got}. Add --audit M, drop --pool."
        raise InputError(msg)


def _signature(
    index: Index, queries: Inputs, model: PairModel, pool: Pool, size: int | None, audited: dict[str, Any], k: int
) -> dict[str, Any]:  # fmt: skip
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
            **{name: value if isinstance(value, bool) else str(value) for name, value in pool.settings.items()},
        }
    return {
        "metric": record.name,
        "options": record.recorded,
        "source": record.source,
        "direction": "lower",
        "representation": {record.representation: {"encoder": model.signature}},
        "index": index.fingerprint,
        "k": k,
        "ties": "lowest row first",
        "version": version("metric-oracle"),
        "references": digest(queries),
        "pool": {**described, **({"audit": audited} if audited else {})},
    }
