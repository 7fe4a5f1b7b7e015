"""The oracle: for every query the best rows of the corpus under a metric, exactly."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import BackendError, ExactnessError, InputError
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, check_max_memory
from metric_oracle.indexes.store import release, resident
from metric_oracle.kernels._device import DeviceError
from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import REPRESENTATIONS, Metric, get_metric
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.kernels import check_backend, load_kernel, load_reference
from metric_oracle.retrieval.results import Results

CHECKED = 100  # listed pairs that are scored again by the reference, evenly spread; `verify` does all
BLOCK = 32  # queries a task: small enough to share the work evenly, large enough to cost nothing
LEAST_BLOCK = 4  # the same where memory is looked after


def n_threads() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def retrieve(
    index: Index,
    queries: Inputs,
    metric: str | Metric,
    *,
    k: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    text: bool = True,
    progress: Callable[[int], None] | None = None,
    max_memory: float | None = None,
    **settings: Any,
) -> Results:
    """Find, for every query, the k corpus reports that score best.

    Parameters
    ----------
    index : Index
    queries : Inputs
        Test reports (the references; corpus reports are the candidates), with graphs, embeddings or labels where the
        metric reads them.
    metric : str or Metric
        A name of the registry, such as ``"bleu"`` or ``"radgraph:rg_e"``; or the record of a composite, see
        `retrieval.composite.read_weights`.
    k : int
        Answers a query, at most the number of corpus rows that the metric can score.
    backend : {"auto", "cpu", "cuda", "reference"}
        "cuda" searches on the GPUs of this machine, "reference" scores every distinct candidate with the plain scorer.
    threads : int
        Worker threads; by default the cores of this process. The answer does not depend on it.
    text : bool
        Whether the results carry the candidates' text.
    progress : function
        Called with the number of queries answered since the last call.
    max_memory : float
        GB that the process should hold at most, within some per cent: pages of the index's files are given back in
        time, and read again.
    **settings
        Of metrics over token states: `idf` and `rescale`, see `TokenStateIndex.encode` in `indexes.bertscore`. Of CRG:
        `prevalence`, see `PositiveIndex.encode` in `indexes.crg`.

    Returns
    -------
    Results
        Best score first, equal scores by ascending corpus row.

    Raises
    ------
    InputError
        If the metric, k, the backend or the queries do not fit the index.
    BackendError
        If there is no GPU for backend "cuda", or it fails or has no room.
    ExactnessError
        If a score of the checked sample differs from the reference scorer's.
    """
    record = get_metric(metric)
    representation = representation_of(index, record)
    row_id = representation.row_id
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(row_id):
        msg = (
            f"retrieve: k must be an int from 1 to {len(row_id)} (reports that {record.name} can score); got {k!r}. "
            "Choose one."
        )
        raise InputError(msg)
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1):
        msg = f"retrieve: threads must be an int of at least 1; got {threads!r}. Leave it out to use all cores."
        raise InputError(msg)
    check_max_memory(max_memory, "retrieve")
    backend = check_backend(backend, record, "retrieve")
    encoded = encode_queries(index, queries, record, settings)
    n = int(encoded.which.max()) + 1 if len(encoded.which) else 0
    answers = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64))
    try:
        if backend == "reference":
            kernel: Kernel = _Reference(record, representation, encoded)
        else:
            kernel = load_kernel(record, backend)
        corpus, batch = representation.corpus(record, encoded), encoded.batch
        stages = _search(
            kernel, corpus, batch, n, int(k), answers, threads or n_threads(), progress, len(encoded.which), max_memory
        )
    except DeviceError as error:
        raise BackendError(str(error)) from error
    if not kernel.capabilities.signed:
        _fill_zeros(answers, row_id)
    fallback = np.zeros((n, k), bool)
    if record.fallback:
        _fall_back(answers, fallback, index, row_id)
    units = representation.unit_of_row[answers.rows].ravel()
    query = np.repeat(np.arange(n), int(k))
    components = kernel.components(corpus, batch, query, units, answers.scores.ravel())
    check_pairs(record, representation, encoded, query, units, answers.scores.ravel(), components)
    components = {name: values.reshape(n, int(k)) for name, values in components.items()}
    return Results(
        _table(index, queries, encoded.which, answers, fallback, components, text),
        {**signature(index, record, backend, int(k)), **encoded.settings, **stages},
    )


def signature(index: Index, record: Metric, backend: str, k: int) -> dict[str, Any]:
    """Return what is needed to reproduce a result."""
    return {
        "metric": record.name,
        "options": record.recorded,
        "source": record.source,
        "direction": "higher" if record.higher_is_better else "lower",
        "representation": {kind: index.content["representations"][kind] for kind in record.representations},
        "index": index.fingerprint,
        "backend": backend,
        "k": k,
        "ties": "lowest row first",
        "version": version("metric-oracle"),
    }


def encode_queries(index: Index, queries: Inputs, record: Metric, settings: dict[str, Any]) -> EncodedQueries:
    """Return the distinct queries as the kernels of a metric take them, after all checks."""
    check_queries(queries, record, index)
    foreign = [name for name in settings if name not in record.settings]
    if foreign:
        msg = f"retrieve: {', '.join(foreign)} must be left out for metric {record.name!r}; got a value. Drop it."
        raise InputError(msg)
    return representation_of(index, record).encode(queries, **settings)


def check_queries(queries: Inputs, record: Metric, index: Index) -> None:
    """Raise unless every query has what the metric reads."""
    if not queries.ids:
        msg = "retrieve: queries must be at least one report; got 0. Check the file and the section."
        raise InputError(msg)
    index.check_holds(record)
    for kind in record.representations:
        _check_queries(queries, record, index, kind)


def _check_queries(queries: Inputs, record: Metric, index: Index, kind: str) -> None:
    """Raise unless every query has what one representation is made from."""
    needs = REPRESENTATIONS[kind]
    if needs.source != "attachment":
        return
    attachment = queries.attached.get(kind)
    if attachment is None:
        msg = f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got none. Add {needs.option}."
        raise InputError(msg)
    lacking = [queries.ids[i] for i in np.flatnonzero(attachment.of_row < 0)]
    if lacking:
        shown = shown_names(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        msg = (
            f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got {len(lacking)} of "
            f"{len(queries.ids)} without ({shown}). Add them to the file or leave these queries out."
        )
        raise InputError(msg)
    recorded = index.content["representations"][kind].get("encoder", {})
    given = attachment.made_by
    if {"sha256"} <= recorded.keys() & given.keys() and recorded["sha256"] != given["sha256"]:
        msg = (
            f"retrieve: {needs.plural} must come from the model of the index, sha256 {recorded['sha256'][:12]}; got "
            f"{given['sha256'][:12]}. Pass that model, or build another index."
        )
        raise InputError(msg)
    for name, value in attachment.settings.items():
        wanted = index.content["representations"][kind].get(name)
        if value != wanted:
            msg = (
                f"retrieve: {name} must be {wanted!r} as in the index; got {value!r}. "
                "Pass the same value or build another index."
            )
            raise InputError(msg)


def _search(
    kernel: Kernel, corpus: Any, batch: Any, n: int, k: int, answers: Answers, threads: int,
    progress: Callable[[int], None] | None, n_queries: int, max_memory: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Answer the distinct queries block by block on a thread pool; kernels release the interpreter lock.

    Return what the signature records of the work: the share of pairs that each stage of a screen dropped.
    """
    idle: list[Any] = []
    limit = None if max_memory is None else _Limit(max_memory, threads)
    size = BLOCK if limit is None else LEAST_BLOCK

    def run(first: int) -> int:
        last = min(first + size, n)
        workspace = idle.pop() if idle else kernel.new_workspace(corpus)
        with limit or nullcontext():
            kernel.search(corpus, batch, first, last, k, answers, workspace)
        idle.append(workspace)
        return last - first

    if kernel.capabilities.batched:
        kernel.search(corpus, batch, 0, n, k, answers, None)
        _report(progress, n, n, n_queries, 0)
    else:
        run_blocks(run, range(0, n, size), n, threads, progress, n_queries)
    stages = kernel.stages(idle)
    closest = stages.pop("closest_call", None)
    return {**({"stages": stages} if stages else {}), **({"closest_call": closest} if closest else {})}


def run_blocks(
    run: Callable[[int], int], blocks: range, n: int, threads: int, progress: Callable[[int], None] | None,
    n_queries: int,
) -> None:  # fmt: skip
    """Call `run` with the first of each block of the `n` distinct queries; it returns how many it has answered.

    NumPy's products stay on the thread that asks for them: the helpers that a BLAS library keeps ready spin between
    products and took a third of BERTScore's time from the threads of the pool.
    """
    reported = done = 0
    if threads == 1 or len(blocks) == 1:
        for first in blocks:
            done += run(first)
            reported = _report(progress, done, n, n_queries, reported)
    else:
        with _blas().limit(limits=1, user_api="blas"):
            pool = ThreadPoolExecutor(min(threads, len(blocks)))
            try:
                for future in as_completed([pool.submit(run, first) for first in blocks]):
                    done += future.result()
                    reported = _report(progress, done, n, n_queries, reported)
            finally:
                # After an error or Ctrl-C no further block begins.
                pool.shutdown(cancel_futures=True)
    _report(progress, done, n, n_queries, reported)


@cache
def _blas() -> Any:
    """Return what sets the threads of the BLAS libraries that are loaded, NumPy's among them; to ask takes 4 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Limit:
    """Keeps the memory of the process under a limit: before each block, mapped pages make room for what one took."""

    def __init__(self, gigabytes: float, threads: int) -> None:
        self._bytes, self._threads = gigabytes * 1e9, threads
        self._growth, self._before = self._bytes / 8, 0.0  # what a block takes is known after the first ones

    def __enter__(self) -> None:
        if resident() + self._threads * self._growth > self._bytes:
            release()
            held = resident()
            if held > self._bytes:
                msg = (
                    f"retrieve: max_memory must be at least {held / 1e9 + 0.005:.2f} GB (held besides files); got "
                    f"{self._bytes / 1e9:g}. Give more, or fewer queries at once."
                )
                raise InputError(msg)
        self._before = resident()

    def __exit__(self, *error: object) -> None:
        self._growth = max(self._growth, resident() - self._before)


def _report(progress: Callable[[int], None] | None, done: int, n: int, n_queries: int, reported: int) -> int:
    """Report distinct queries as queries."""
    total = n_queries * done // n if n else 0
    if progress is not None and total > reported:
        progress(total - reported)
    return total


class _Reference(Kernel):
    """The plain scorer on every distinct candidate, as a kernel; components are those of the CPU's."""

    capabilities = Capabilities(bound=False, signed=True)

    def __init__(self, record: Metric, representation: Representation, encoded: EncodedQueries) -> None:
        self._score, self._kernel = load_reference(record), load_kernel(record, "cpu")
        self._sign = 1.0 if record.higher_is_better else -1.0
        self._representation, self._encoded = representation, encoded

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        index = self._representation
        units = np.arange(len(index.row_ptr) - 1)
        items = [index.candidate(int(u), self._encoded) for u in units]
        for q in range(first, last):
            query = self._encoded.item(q)
            scores = np.array([self._score(item, query)[0] for item in items])
            rows, best, ties = select(units, self._sign * scores, index.row_ptr, index.row_id, k)
            answers.rows[q], answers.scores[q], answers.ties[q] = rows, self._sign * best, ties

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        return self._kernel.score_all(corpus, batch, chosen)

    def score_pairs(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> Any:
        return self._kernel.score_pairs(corpus, batch, query, document)

    def components(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray) -> Any:
        return self._kernel.components(corpus, batch, query, document, scores)

    def new_workspace(self, corpus: Any) -> None:
        return None


def _fill_zeros(answers: Answers, row_id: np.ndarray) -> None:
    """Where fewer than k rows have a positive score, the others follow with score 0 in row order."""
    short = np.flatnonzero(answers.rows[:, -1] < 0)
    if not len(short):
        return
    k = answers.rows.shape[1]
    lowest = np.sort(np.partition(row_id, k - 1)[:k])
    for q in short:
        m = int(np.count_nonzero(answers.rows[q] >= 0))
        listed = answers.rows[q, :m]
        answers.rows[q, m:] = lowest[~np.isin(lowest, listed)][: k - m]
        answers.ties[q, m:] = len(row_id) - m


def _fall_back(answers: Answers, fallback: np.ndarray, index: Index, row_id: np.ndarray) -> None:
    """Give queries without any positive match the most frequent report, as Yu et al. do, marked as such."""
    nothing = np.flatnonzero(answers.scores[:, 0] == 0.0)
    if not len(nothing):
        return
    row = most_frequent_row(index, row_id)
    for q in nothing:
        others = answers.rows[q][answers.rows[q] != row]
        answers.rows[q] = np.r_[row, others][: answers.rows.shape[1]]
        fallback[q, 0] = True


def most_frequent_row(index: Index, row_id: np.ndarray) -> int:
    """Return the lowest of the scorable rows `row_id` of the most frequent text that has one."""
    scorable = np.sort(row_id)
    multiplicity = index.distinct["multiplicity"].to_numpy()[index.reports["distinct_id"].to_numpy()[scorable]]
    return int(scorable[np.argmax(multiplicity)])


def check_pairs(
    record: Metric, representation: Representation, encoded: EncodedQueries, query: np.ndarray, units: np.ndarray,
    scores: np.ndarray, components: dict[str, np.ndarray],
) -> None:  # fmt: skip
    """Raise unless the scores and components of a sample of pairs are those of the reference."""
    score = load_reference(record)
    for i in np.unique(np.linspace(0, len(scores) - 1, min(CHECKED, len(scores))).astype(np.int64)):
        expected = score(representation.candidate(int(units[i]), encoded), encoded.item(int(query[i])))
        got = scores[i], {name: values[i] for name, values in components.items()}
        if got != expected:
            row = representation.row_id[representation.row_ptr[units[i]]]
            msg = (
                f"retrieve: {record.name} of row {row} must be the reference's {expected}; got {got}. "
                "This is a defect: please report it with the index fingerprint."
            )
            raise ExactnessError(msg)


def _table(
    index: Index, queries: Inputs, which: np.ndarray, answers: Answers, fallback: np.ndarray,
    components: dict[str, np.ndarray], text: bool,
) -> pa.Table:  # fmt: skip
    """Lay out the answers, distinct queries expanded to queries."""
    k = answers.rows.shape[1]
    rows = answers.rows[which].ravel()
    reports = index.reports
    columns: dict[str, Any] = {
        "query_id": pa.array(queries.ids, pa.large_string()).take(pa.array(np.repeat(np.arange(len(which)), k))),
        "rank": np.tile(np.arange(1, k + 1), len(which)),
        "row": rows,
        "candidate_id": reports["study_id"].take(pa.array(rows)),
        "score": answers.scores[which].ravel(),
        **{name: values[which].ravel() for name, values in components.items()},
        "n_ties": answers.ties[which].ravel(),
        "fallback": fallback[which].ravel(),
        "exact": pa.array(np.ones(len(rows), bool)),
    }
    if text:
        columns["text"] = reports["text"].take(pa.array(rows))
    return pa.table(columns)
