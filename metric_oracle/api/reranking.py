"""Reranking: the best reports under CREPE in a pool of candidates."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle import choices
from metric_oracle.api.given import Given
from metric_oracle.api.scoring import open_crepe
from metric_oracle.api.searching import chosen, loaded
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, called
from metric_oracle.findings.results import Results
from metric_oracle.indexes.index import Index
from metric_oracle.progress import Progress
from metric_oracle.retrieval import rerank as _rerank
from metric_oracle.retrieval.composite.weights import weighed
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.rerank import RerankPlan


@called("rerank")
def rerank(
    index: str | Path | Index,
    queries: Given,
    crepe: str | Path | Mapping[str, Any],
    *,
    pool: str = f"radcliq:{_rerank.SIZE}",
    k: int | None = None,
    audit: choices.Count = 0,
    recall: choices.Recall | None = None,
    seed: choices.Seed = 0,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Results:
    """Find, for every test report, the k reports with the fewest errors as predicted by CREPE, in a pool of candidates.

    No exact search exists for CREPE. The pool is therefore part of the result, and `audit` measures how often it misses
    the best report.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    crepe : path or dict
        The checkpoint, see [`score`][metric_oracle.score].
    pool : str, default "radcliq:200"
        Candidates of each query: ``"METRIC:N"`` takes the N best reports under a metric; ``"composite:N"`` those under
        ``options.weights``, such as weights fitted to scores of CREPE; ``"all"`` the whole corpus, which makes the
        result exact. With `recall`, ``"METRIC"``.
    k : int, optional
        Reports returned for each query, by default 1.
    audit : int, default 0
        Number of queries, drawn at random, for which the whole corpus is scored. Their results are exact, and ``pool``
        in the signature says how many of their best reports the pool misses.
    recall : float, optional
        Probability with which the pool should contain a best report; the audit then chooses the size of the pool.
    seed : int, default 0
        Seed of the draw.
    options : SearchOptions, optional
        `text`, and the options of the search for the pool.
    progress : function, optional
        Called as ``progress(step, done, total)`` with the step ("audit", "rerank") and numbers of queries.

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
    planned = plan_rerank(index, crepe, pool, audit, recall, seed, chosen(options, k=k))
    return planned.run(loaded(queries, planned.index, progress), progress)


@called("rerank")
def plan_rerank(
    index: str | Path | Index,
    crepe: str | Path | Mapping[str, Any],
    pool: str,
    audit: int,
    recall: float | None,
    seed: int,
    options: SearchOptions,
) -> RerankPlan:
    """Check all arguments of `rerank` except the test reports, and return the plan."""
    name, size = read_pool(pool, recall is not None)
    record = None if name is None else weighed(name, options.weights)
    if record is None:
        options.check_used(("k", "text"), "a pool that is the whole corpus")
    return _rerank.plan_rerank(
        index,
        _rerank.Pool(record, size, audit, recall, seed, replace(options, weights=None)),
        lambda: open_crepe(crepe)["crepe"],
    )


def read_pool(pool: str, is_chosen: bool) -> tuple[str | None, int | None]:
    """Return the metric and the size in an argument such as "bleu:200"; both are None for "all", the whole corpus.

    If `is_chosen`, an audit chooses the size: the argument is a metric alone or the default, and the size None. Another
    size is returned for the caller to refuse. Raise InputError if a size is missing otherwise.
    """
    if pool == _rerank.ALL:
        return None, None
    name, mark, size = str(pool).rpartition(":")
    if mark and size.isdecimal():
        # The audit chooses the size of the pool, so the size in the default value, which no user typed, is dropped.
        return name, None if is_chosen and pool == f"radcliq:{_rerank.SIZE}" else int(size)
    if is_chosen:
        return str(pool), None
    raise InputError("pool", f"must be METRIC:N or {_rerank.ALL}", shown_names([pool]), f"Pass radcliq:{_rerank.SIZE}.")
