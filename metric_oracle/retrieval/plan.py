"""The plan of a search: metric, index and options, checked once and before any test report is read."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import check_left_out
from metric_oracle.errors import InputError
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, check_max_memory
from metric_oracle.indexes.shards import ShardSet, open_index
from metric_oracle.metrics import Metric, check_searched, get_metric
from metric_oracle.progress import Progress, counter
from metric_oracle.retrieval.answers import n_scorable
from metric_oracle.retrieval.checks import check_queries
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.weights import weighed
from metric_oracle.retrieval.kernels import check_backend, load_kernel
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.parts import places_of, retrieve_part
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import search


@dataclass(frozen=True)
class SearchPlan:
    """A search that was checked; only the queries are missing. Made by `plan` and `plan_scores`.

    Attributes
    ----------
    index : Index
        The opened index.
    metric : Metric
        The record of the metric; of a composite with a weights file that was read.
    options : SearchOptions
        With the backend that "auto" stands for.
    runner : Runner or None
        Where the shards of a set are searched; None is this process.
    """

    index: Index
    metric: Metric
    options: SearchOptions
    runner: Any = None

    @cached_property
    def representation(self) -> Representation:
        """What the metric reads of the index."""
        return representation_of(self.index, self.metric)

    def encode(self, queries: Inputs) -> EncodedQueries:
        """Return the distinct queries as the kernels take them, after a check that they have what the metric reads."""
        check_queries(queries, self.metric, self.index)
        return self.representation.encode(queries, **self.options.settings)

    def run(self, queries: Inputs, progress: Progress | None = None) -> Results:
        """Find, for every query, the k corpus reports that score best.

        Parameters
        ----------
        queries : Inputs
            Loaded test reports with what the metric reads in addition to the texts. They are the references of the
            metric, the corpus reports its candidates.
        progress : function, optional
            Called as ``progress("", done, total)`` with numbers of queries.

        Returns
        -------
        Results
            Best score first, equal scores by ascending corpus row.

        Raises
        ------
        InputError
            If the queries do not fit the index or lack what the metric reads.
        BackendError
            If the GPU fails or has too little memory.
        ExactnessError
            If a score of the checked sample differs from the reference scorer's, or a bound was broken.
        """
        check_queries(queries, self.metric, self.index)
        count = counter(progress, "", len(queries.ids))
        if self.runner is not None:
            from metric_oracle.retrieval.remote import retrieve_remote

            return retrieve_remote(self.index, queries, self.metric, self.options, self.runner, count)
        if self.options.part is not None:
            return retrieve_part(self.index, queries, self.metric, self.options, count)
        return search(self.index, queries, self.metric, self.options, progress=count).results(queries.ids)

    def rows(self, queries: Inputs, k: int) -> np.ndarray:
        """Return the k best rows of each query, of which the metric can score as many: int64[Q, k]."""
        found = replace(self, options=replace(self.options, k=k, text=False)).run(queries)
        return found.table["row"].to_numpy().reshape(-1, k)


def plan(index: str | Path | Index, metric: str | Metric, options: SearchOptions = DEFAULTS) -> SearchPlan:
    """Check everything about a search that does not depend on the queries, and open the index.

    Arguments are checked before files are opened, the weights file and the index once each.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    metric : str or Metric
        Name of a metric, such as ``"radgraph"`` or ``"bleu"``; or ``"composite"`` with ``options.weights``.
    options : SearchOptions, optional
        By default those of ``SearchOptions()``.

    Returns
    -------
    SearchPlan
        Its method ``run`` takes loaded test reports.

    Raises
    ------
    InputError
        If the metric, the options or the weights file are wrong, or do not fit the index.
    IndexFormatError
        If there is no index, or it is damaged or of another format version.
    BackendError
        If the backend cannot be used here.
    """
    _check_values(options)
    runner = open_runner("retrieve", options.runner, options.address, options.num_gpus, options.threads)
    if runner is not None and options.part is not None:
        msg = "retrieve: part must be left out with a runner; got both. Drop one."
        raise InputError(msg)
    record = weighed(metric, options.weights)
    check_searched(record, "retrieve")
    backend = check_backend(options.backend, record, "retrieve")
    opened = _checked(index, record, options)
    k, n_rows = options.k, n_scorable(opened, record)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= n_rows:
        msg = (
            f"retrieve: k must be an int from 1 to {n_rows} (reports that {record.name} can score); got {k!r}. "
            "Choose one."
        )
        raise InputError(msg)
    if options.part is not None:
        places_of(options.part, opened)
    if runner is not None and not isinstance(opened, ShardSet):
        msg = (
            f"retrieve: runner must be left out for an index that is no set of shards; got {opened.folder}. Build one "
            "with --shard-rows, or drop it."
        )
        raise InputError(msg)
    ignored = [name for name in ("threads", "max_memory") if getattr(options, name) is not None]
    if ignored and backend != "reference" and load_kernel(record, backend).capabilities.batched:
        msg = (
            f"retrieve: {', '.join(ignored)} must be left out for {record.name} on backend {backend!r}, which takes "
            "all queries at once; got a value. Drop it."
        )
        raise InputError(msg)
    return SearchPlan(opened, record, replace(options, k=int(k), backend=backend), runner)


def plan_scores(
    index: str | Path | Index, metric: str | Metric, options: SearchOptions = DEFAULTS, function: str = "baseline"
) -> SearchPlan:
    """Check the same about scores of chosen or of all corpus reports, for which nothing is searched.

    Parameters
    ----------
    index, metric
        See `plan`.
    options : SearchOptions, optional
        Of them `text`, `threads` and those that change scores are used.
    function : str
        Name for error messages.
    """
    options.check_used(("text", "threads", *options.settings), function, "scores without a search")
    _check_values(options)
    record = get_metric(metric, function)
    check_searched(record, function)
    return SearchPlan(_checked(index, record, options), record, options)


def _check_values(options: SearchOptions) -> None:
    threads = options.threads
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1):
        msg = f"retrieve: threads must be an int of at least 1; got {threads!r}. Leave it out to use all cores."
        raise InputError(msg)
    check_max_memory(options.max_memory, "retrieve")


def _checked(index: str | Path | Index, record: Metric, options: SearchOptions) -> Index:
    """Return the opened index, after a check that the metric takes the settings and the index holds what it reads."""
    check_left_out(options.settings, record.settings, "retrieve", f"metric {record.name!r}")
    opened = index if isinstance(index, Index) else open_index(index)
    opened.check_holds(record)
    return opened


def open_runner(
    function: str, runner: str | None, address: str | None, num_gpus: float | None, threads: int | None = None
) -> Any:
    """Return what works on the shards of a set, None for this process; Ray is imported for those who ask for it."""
    if runner is None:
        given = [name for name, value in (("address", address), ("num_gpus", num_gpus)) if value is not None]
        if given:
            msg = f"{function}: {', '.join(given)} must be left out without a runner; got a value. Add --runner ray."
            raise InputError(msg)
        return None
    from metric_oracle.cluster import runner_of

    return runner_of(function, runner, address, num_gpus, threads)
