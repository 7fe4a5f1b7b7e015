"""The plan of a search or of scores: metric, index and options, checked once and before any test report is read."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_in_range, check_left_out
from metric_oracle.base.declarations import IN_PYTHON
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, counter
from metric_oracle.base.validation import public
from metric_oracle.corpora.kept_columns import RESERVED
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.metrics import check_searched, get_metric
from metric_oracle.reading import Queries, loaded
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_queries
from metric_oracle.retrieval.conditions import conditioned, parsed, summands
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.kernels import backend_of, check_backend, load_kernel
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions, with_arguments
from metric_oracle.retrieval.part_files import retrieve_part, shards_of
from metric_oracle.retrieval.restrictions import check_exclude
from metric_oracle.retrieval.result_table import n_scorable
from metric_oracle.retrieval.search import Search
from metric_oracle.retrieval.weights import weighed


@dataclass(frozen=True)
class Plan:
    """A checked search, or checked scores without one, of any queries. Made by `plan` and `plan_scores`."""

    index: Index  # the opened index
    metric: Metric  # for a composite, it contains the weights of its file
    options: SearchOptions  # the options
    runner: Any = None  # searches the shards of a set in other processes; None for this process

    @property
    def columns(self) -> list[str]:
        """The columns that the test reports must have."""
        return [name for name in self.options.exclude if name not in RESERVED]

    def search(self, queries: Reports, progress: Progress | None = None) -> Results:
        """Find, for every query, the k corpus reports that score best: best first, equal scores by ascending row.

        Queries are the references of the metric, corpus reports its candidates. Raise InputError if the queries do not
        fit the index or lack what the metric reads, BackendError if the GPU fails or has too little memory, and
        ExactnessError if a score of the checked sample differs from the plain scorer's or a bound was broken.
        """
        check_queries(queries, self.metric, self.index)
        count = counter(progress, "", len(queries.ids))
        search = Search(self.index, queries, self.metric, self.settled(len(queries.ids)).options)
        if self.runner is not None:
            from metric_oracle.retrieval.remote_search import retrieve_remote

            return retrieve_remote(search, self.runner, count)
        return search.results(count) if self.options.part is None else retrieve_part(search, count)

    def settled(self, n_queries: int) -> "Plan":
        """Return the plan of a search of so many queries, in which backend "auto" is replaced by the one it means."""
        backend = backend_of(self.options.backend, self.metric, n_queries * self.index.n_reports)
        return replace(self, options=replace(self.options, backend=backend))

    def rows(self, queries: Reports, k: int, progress: Progress | None = None) -> np.ndarray:
        """Return the k best rows of each query: int64[Q, k]. The metric must be able to score at least k rows."""
        results = replace(self, options=replace(self.options, k=k, text=False)).search(queries, progress)
        return results.table["row"].to_numpy().reshape(-1, k)

    def pairs(self, queries: Reports) -> Pairs:
        """Return all pairs of the queries and the documents, to score some of them or all, without a search.

        Raise InputError if the queries do not fit the index or lack what the metric reads.
        """
        check_queries(queries, self.metric, self.index)
        return Pairs.of(self.index, self.metric, queries, self.options.settings)


def plan(
    index: AnyIndex, metric: str | Metric, options: SearchOptions = DEFAULTS, progress: Progress | None = None
) -> Plan:
    """Check everything about a search that does not depend on the queries, and open the index, see `corpus_of`.

    The metric is one, such as ``"bleu"``, a sum, such as ``"radgraph+chexbert:agreement"``, or ``"composite"`` with
    ``options.weights``. Arguments are checked before files are opened, the weights file and the index once each. Raise
    InputError if the metric, the options or the weights file are wrong or do not fit the index, IndexFormatError if it
    cannot be opened, and BackendError if the backend cannot be used here.
    """
    runner = open_runner(options.runner, options.address, options.num_gpus, options.threads)
    if runner is not None:
        step = "Leave `part` or `runner` out."
        check_left_out({"part": options.part}, "with a runner", step, got="both")
    metric, options = asked(metric, options)
    backend = check_backend(options.backend, metric)
    if backend == "reference":
        check_left_out({"where": options.where or None}, 'with backend "reference"')
    opened = _open_checked(index, metric, options, progress)
    k, n_rows = options.k, n_scorable(opened, metric)
    check_in_range("k", k, ge=1, le=n_rows, note=f" (reports that {metric.name} can score)")
    if options.part is not None:
        shards_of(options.part, opened)
    step = "Build one with `shard_rows` of `mo.build_index`, or leave out `runner`."
    opened.check_is_set({"runner": runner}, step, got=str(opened.folder))
    ignored = {name: getattr(options, name) for name in ("threads", "max_memory")}
    if any(ignored.values()) and backend != "auto" and load_kernel(metric, backend).capabilities.batched:
        check_left_out(ignored, f"for {metric.name} on backend {backend!r}, which takes all queries at once")
    exclude = check_exclude(options.exclude, opened) if options.exclude else ()
    return Plan(opened, metric, replace(options, k=int(k), backend=backend, exclude=exclude), runner)


def asked(metric: str | Metric, options: SearchOptions) -> tuple[Metric, SearchOptions]:
    """Return the metric of a search, with its sum and its conditions; and the options, these checked.

    Raise InputError if the metric, the conditions or the weights file are wrong.
    """
    names = metric if isinstance(metric, str) and options.weights is None else ""
    ordered = summands(names) if "+" in names else [weighed(metric, options.weights)]
    check_searched(ordered[0])
    if not options.where and len(ordered) == 1:
        return ordered[0], options
    conditions = parsed(options.where)
    metric = conditioned(ordered, conditions)
    if options.backend == "cuda":
        raise InputError(
            "backend",
            'must be "cpu" or "auto" for a sum of metrics and for conditions, which have no CUDA kernels',
            "'cuda'",
            "Leave it out.",
        )
    return metric, replace(options, where=tuple(map(str, conditions)))


def plan_scores(
    index: AnyIndex, metric: str | Metric, options: SearchOptions = DEFAULTS, progress: Progress | None = None
) -> Plan:
    """Check everything about scoring chosen or all corpus reports, without a search, and open the index; see `plan`.

    Sums and weights files are not allowed; of the options only `text`, `threads` and those that change scores are.
    """
    options.check_used(("text", "threads", *options.settings), "scores without a search")
    metric = get_metric(metric)
    check_searched(metric)
    return Plan(_open_checked(index, metric, options, progress), metric, options)


def _open_checked(index: AnyIndex, metric: Metric, options: SearchOptions, progress: Progress | None) -> Index:
    """Return the opened index; raise InputError if the metric does not have an option, or the index not its data."""
    check_left_out(options.settings, f"for metric {metric.name!r}", allowed=metric.settings)
    opened = corpus_of(index, [metric], progress, exclude=options.exclude)
    opened.check_holds(metric)
    return opened


def open_runner(runner: str | None, address: str | None, num_gpus: float | None, threads: int | None = None) -> Any:
    """Return the object that searches the shards of a set in other processes; None if `runner` is None.

    The arguments are those of `SearchOptions`, checked before. Raise InputError for `address` or `num_gpus` without a
    runner, and BackendError if Ray is not installed.
    """
    if runner is None:
        of_runner = {"address": address, "num_gpus": num_gpus}
        check_left_out(of_runner, "without a runner", "Add `runner='ray'`.")
        return None
    from metric_oracle.cluster import runner_of

    return runner_of(address, num_gpus, threads)


@public
def retrieve(
    index: AnyIndex,
    queries: Queries,
    metric: option_types.OneMetric,
    *,
    k: option_types.K | None = None,
    backend: Annotated[
        option_types.Backend | None, Doc("Backend of the search; replaces that of `options`."), IN_PYTHON
    ] = None,
    threads: Annotated[option_types.Threads | None, IN_PYTHON] = None,
    text: Annotated[option_types.WithText | None, IN_PYTHON] = None,
    options: Annotated[
        SearchOptions | None,
        Doc("All options of the search, see [`SearchOptions`][metric_oracle.SearchOptions]."),
    ] = None,
    progress: Progress | None = None,
) -> Results:
    """Find, for every test report, the k reports of the corpus that score best under a metric.

    Returns
    -------
    Results
        ``table`` has k rows for each query: best score first, equal scores by ascending row of the corpus.
        ``signature`` contains everything that is needed to reproduce the result.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.
    BackendError
        If the backend cannot be used here.
    ExactnessError
        If the result is not exact: a bound was lower than a score, or a score differs from the reference scorer's.

    Notes
    -----
    Reports in the place of the index are in any form that [`reports`][metric_oracle.reports] takes: a list of texts, a
    frame, a file; a folder of reports is given by that function. The index in memory has what this metric reads; the
    object that [`reports`][metric_oracle.reports] returns keeps it for the next call. Answers and signature are those
    of an index in a folder.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> corpus, tests = ["no acute process", "small effusion"], ["small left effusion"]
    >>> mo.retrieve(corpus, tests, "rouge-l").table["text"].to_pylist()
    ['small effusion']

    For several searches, the index is built once:

    >>> index = mo.build_index(corpus, metrics="rouge-l,bleu")
    >>> [mo.retrieve(index, tests, metric).table["row"].to_pylist() for metric in ("rouge-l", "bleu")]
    [[1], [1]]
    """
    planned = plan(index, metric, with_arguments(options, k=k, backend=backend, threads=threads, text=text), progress)
    return planned.search(loaded(queries, planned.index, progress, planned.columns, [planned.metric]), progress)
