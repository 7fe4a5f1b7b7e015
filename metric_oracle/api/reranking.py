"""The best of a pool under CREPE."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from metric_oracle.api.given import Given, Loading
from metric_oracle.api.searching import load_batch
from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.progress import Progress
from metric_oracle.retrieval import rerank as _rerank
from metric_oracle.retrieval.composite.weights import weighed
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.rerank import RerankPlan
from metric_oracle.retrieval.results import Results
from metric_oracle.sources.inputs import Inputs
from metric_oracle.sources.pair_models import open_pair_models


@called("rerank")
def rerank(
    index: str | Path | Index,
    queries: Given,
    crepe: str | Path,
    *,
    pool: str = f"radcliq:{_rerank.SIZE}",
    weights: str | Path | None = None,
    k: int = 1,
    audit: int = 0,
    recall: float | None = None,
    seed: int = 0,
    crepe_config: str | Path | None = None,
    crepe_vocabulary: str | Path | None = None,
    text: bool = True,
    progress: Progress | None = None,
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
    pool : str
        ``"METRIC:N"``, the first N reports of each search under a metric, by default ``"radcliq:200"``;
        ``"composite:N"`` with `weights`, such as those fitted to scores of CREPE; or ``"all"``, the whole corpus, which
        is exact. With `recall`, ``"METRIC"``.
    weights, idf, rescale
        Of that search, see :func:`retrieve`.
    k : int
        Answers a query.
    audit : int
        Queries, drawn at random, for which the whole corpus is scored: their answers are exact, and the signature's
        ``pool`` says what the pool misses of them.
    recall : float
        Probability with which the pool is to hold a best report; the audit chooses its size.
    seed : int
        Of the draw.
    text, progress
        See :func:`metric_oracle.retrieval.rerank.rerank`.
    **loading
        Keyword arguments of :func:`load_queries`; `device` is also that of CREPE.

    Returns
    -------
    Results
        With the columns nA to nF, `pool` and `certified`; see :func:`metric_oracle.retrieval.rerank.rerank`.
    """
    checkpoint = {"crepe": crepe, "crepe_config": crepe_config, "crepe_vocabulary": crepe_vocabulary}
    options = SearchOptions(k=k, text=text, idf=idf, rescale=rescale, weights=weights)
    planned = plan_rerank(index, checkpoint, loading.get("device"), pool, audit, recall, seed, options)
    if isinstance(queries, Inputs):
        loading.pop("device", None)  # that of CREPE alone: these are loaded
    return planned.run(load_batch(planned.index, queries, loading, "rerank", progress), progress)


@called("rerank")
def plan_rerank(
    index: str | Path | Index, checkpoint: Mapping[str, str | Path | None], device: str | None, pool: str,
    audit: int, recall: float | None, seed: int, options: SearchOptions,
) -> RerankPlan:  # fmt: skip
    """Check everything that :func:`rerank` is given except the test reports."""
    name, size = read_pool(pool, recall is not None)
    record = None if name is None else weighed(name, options.weights)
    if record is None:
        options.check_used(("k", "text"), "rerank", "a pool that is the whole corpus")
    named = {name: path for name, path in checkpoint.items() if path is not None}
    return _rerank.plan_rerank(
        index, _rerank.Pool(record, size, audit, recall, seed, replace(options, weights=None)),
        lambda: open_pair_models(named, "rerank", device)["crepe"],
    )  # fmt: skip


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
