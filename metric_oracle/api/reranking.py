"""The best of a pool under CREPE."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from metric_oracle.api.given import Given, Loading, opened
from metric_oracle.api.searching import load_batch, search_settings
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, open_pair_models
from metric_oracle.retrieval import rerank as _rerank
from metric_oracle.retrieval.composite.weights import weighed
from metric_oracle.retrieval.results import Results


@called("rerank")
def rerank(
    index: str | Path | Index,
    queries: Given,
    crepe: str | Path,
    *,
    prefix: str | None = None,
    weights: str | Path | None = None,
    pool: int | str | None = None,
    k: int = 1,
    audit: int = 0,
    recall: float | None = None,
    seed: int = 0,
    crepe_config: str | Path | None = None,
    crepe_vocabulary: str | Path | None = None,
    text: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **loading: Unpack[Loading],
) -> Results:
    """Find, for every test report, the k reports of a pool with the fewest errors that CREPE predicts.

    No exact search exists for CREPE: the pool is stated, and `audit` measures what it misses. See
    :mod:`metric_oracle.retrieval.rerank`.

    Parameters
    ----------
    index : path or Index
    queries : path, container, prepared set or Inputs
    crepe, crepe_config, crepe_vocabulary : path
        The checkpoint, see :func:`score`.
    prefix : str
        Metric whose best reports are the pool, by default "radcliq"; "composite" with `weights`, such as one fitted to
        scores of CREPE.
    weights, idf, rescale
        Of the prefix, see :func:`retrieve`.
    pool : int or "all"
        Reports of the pool, by default 100; "all" is the whole corpus, which is exact.
    k : int
        Answers a query.
    audit : int
        Queries, drawn at random, for which the whole corpus is scored.
    recall : float
        Instead of `pool`: the probability with which it is to hold the best report, by the audit.
    seed : int
        Of the draw.
    text, progress
        See :func:`metric_oracle.retrieval.rerank.rerank`.
    **loading
        Keyword arguments of :func:`load_queries`; `device` is also that of CREPE.

    Returns
    -------
    Results
        With the columns A to F, `pool_rank` and `certified`; the signature's ``pool`` has the audit.
    """
    whole = pool == _rerank.ALL
    if isinstance(pool, bool) or not (pool is None or whole or str(pool).isdecimal()):
        msg = f"rerank: pool must be {_rerank.ALL} or a number of reports; got another value. Choose one."
        raise InputError(msg)
    if whole and not (prefix is None and weights is None):
        msg = "rerank: prefix (-m) must be left out where the pool is the whole corpus; got one. Drop it."
        raise InputError(msg)
    record = None if whole else weighed(prefix or "radcliq", weights)
    held = opened(index)
    if record is not None:
        held.check_holds(record)
    size = None if whole or (pool is None and recall is not None) else _rerank.POOL if pool is None else int(pool)
    given: dict[str, Any] = {"crepe": crepe, "crepe_config": crepe_config, "crepe_vocabulary": crepe_vocabulary}
    named = {name: path for name, path in given.items() if path is not None}
    model = open_pair_models(named, "rerank", loading.get("device"))["crepe"]
    if isinstance(queries, Inputs):
        loading.pop("device", None)  # that of CREPE alone: these are loaded
    batch = load_batch(queries, loading, "rerank")
    settings = search_settings(idf, rescale)
    stated = _rerank.Pool(record, size, audit, recall, seed, settings)
    return _rerank.rerank(held, batch, model, stated, k=k, text=text, progress=progress)
