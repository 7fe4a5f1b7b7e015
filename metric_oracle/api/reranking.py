"""The best of a pool under CREPE."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle.api.given import Given
from metric_oracle.api.scoring import open_crepe
from metric_oracle.api.searching import chosen, loaded
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.progress import Progress
from metric_oracle.retrieval import rerank as _rerank
from metric_oracle.retrieval.composite.weights import weighed
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.rerank import RerankPlan
from metric_oracle.retrieval.results import Results


@called("rerank")
def rerank(
    index: str | Path | Index,
    queries: Given,
    crepe: str | Path | Mapping[str, Any],
    *,
    pool: str = f"radcliq:{_rerank.SIZE}",
    k: int | None = None,
    audit: int = 0,
    recall: float | None = None,
    seed: int = 0,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Results:
    """Find, for every test report, the k reports of a pool with the fewest errors that CREPE predicts.

    No exact search exists for CREPE: the pool is stated, and `audit` measures what it misses. See
    [`rerank`][metric_oracle.rerank].

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    crepe : path or dict
        The checkpoint, see [`score`][metric_oracle.score].
    pool : str, default "radcliq:200"
        ``"METRIC:N"``, the first N reports of each search under a metric; ``"composite:N"`` with ``options.weights``,
        such as those fitted to scores of CREPE; or ``"all"``, the whole corpus, which is exact. With `recall`,
        ``"METRIC"``.
    k : int, optional
        Reports returned for each query, by default 1.
    audit : int, default 0
        Queries, drawn at random, for which the whole corpus is scored: their answers are exact, and the signature's
        ``pool`` says what the pool misses of them.
    recall : float, optional
        Probability with which the pool is to hold a best report; the audit chooses its size.
    seed : int, default 0
        Of the draw.
    options : SearchOptions, optional
        `text`, and the options of the search that makes the pool.
    progress : function, optional
        Called with what is done ("audit", "rerank"), finished queries and all.

    Returns
    -------
    Results
        With the columns nA to nF, `pool` and `certified`; see [`rerank`][metric_oracle.rerank].

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
    """Check everything that `rerank` is given except the test reports."""
    name, size = read_pool(pool, recall is not None)
    record = None if name is None else weighed(name, options.weights)
    if record is None:
        options.check_used(("k", "text"), "rerank", "a pool that is the whole corpus")
    return _rerank.plan_rerank(
        index,
        _rerank.Pool(record, size, audit, recall, seed, replace(options, weights=None)),
        lambda: open_crepe(crepe, "rerank")["crepe"],
    )


def read_pool(pool: str, is_chosen: bool) -> tuple[str | None, int | None]:
    """Return metric and size of a pool; None and None of the whole corpus.

    Parameters
    ----------
    pool : str
    is_chosen : bool
        Whether an audit chooses the size.
    """
    if pool == _rerank.ALL:
        return None, None
    name, mark, size = str(pool).rpartition(":")
    if mark and size.isdecimal():
        # The default's size is nobody's wish.
        return name, None if is_chosen and pool == f"radcliq:{_rerank.SIZE}" else int(size)
    if is_chosen:
        return str(pool), None
    msg = f"rerank: pool must be METRIC:N or {_rerank.ALL}; got {shown_names([pool])}. Pass radcliq:{_rerank.SIZE}."
    raise InputError(msg)
