"""The oracle: for every query the best rows of the corpus under a metric, exactly."""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import BackendError, ExactnessError, InputError
from metric_oracle.indexes.index import REPRESENTATIONS, Index
from metric_oracle.indexes.inputs import Inputs, check_max_memory
from metric_oracle.indexes.store import release, resident
from metric_oracle.kernels._device import DeviceError, lacking
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import BACKENDS, Metric, get_metric
from metric_oracle.retrieval.results import Results

CHECKED = 100  # listed pairs that are scored again by the reference, evenly spread; `verify` does all
BLOCK = 32  # queries a task: small enough to share the work evenly, large enough to cost nothing
LEAST_BLOCK = 4  # the same where memory is looked after


class Found(NamedTuple):
    """Answers for the distinct queries of a batch.

    Attributes
    ----------
    rows : int64[n, k]
        -1 where there are fewer rows with a positive score than k.
    scores : float64[n, k]
    ties : int64[n, k]
    """

    rows: np.ndarray
    scores: np.ndarray
    ties: np.ndarray


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
    representation = index.representation(record)
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
    backend = _backend(backend, record)
    encoded = encode_queries(index, queries, record, settings)
    n = int(encoded.which.max()) + 1 if len(encoded.which) else 0
    found = Found(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64))
    try:
        stages = _search(
            record, backend, representation, encoded, n, int(k), found, threads or n_threads(), progress,
            len(encoded.which), max_memory,
        )  # fmt: skip
    except DeviceError as error:
        raise BackendError(str(error)) from error
    _fill_zeros(found, row_id)
    fallback = np.zeros((n, k), bool)
    if record.fallback:
        _fall_back(found, fallback, index, row_id)
    components = _components(record, representation, encoded, found)
    return Results(
        _table(index, queries, encoded.which, found, fallback, components, text),
        {
            **signature(index, record, backend, int(k)),
            **getattr(encoded, "settings", {}),
            "references": digest(queries),
            **stages,
        },
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


def digest(queries: Inputs) -> str:
    """Return the SHA-256 over the sorted ids and texts."""
    hasher = hashlib.sha256()
    for strings in sorted(zip(queries.ids, queries.texts, strict=True)):
        for string in strings:
            raw = string.encode("utf-8", "surrogatepass")
            hasher.update(b"%d:" % len(raw) + raw)
    return hasher.hexdigest()


def subset(inputs: Inputs, chosen: np.ndarray) -> Inputs:
    """Return some of the queries."""
    of_row: dict[str, Any] = {
        name: None if value is None else value[chosen]
        for name in ("graph_of_row", "embedding_of_row", "label_of_row")
        for value in [getattr(inputs, name)]
    }
    ids, texts = [inputs.ids[i] for i in chosen], [inputs.texts[i] for i in chosen]
    return replace(inputs, ids=ids, texts=texts, **of_row)


def _backend(name: str, record: Metric) -> str:
    if name not in BACKENDS:
        msg = f"retrieve: backend must be one of {', '.join(BACKENDS)}; got {name!r}. Choose one."
        raise InputError(msg)
    if name == "cuda":
        home = f"metric_oracle.kernels.{record.kernel}.cuda"
        if find_spec(home) is None:
            msg = f'retrieve: backend "cuda" is not usable: {record.name} has no CUDA kernels. Use "cpu", or "auto".'
            raise BackendError(msg)
        kernel = import_module(home)
        if not kernel.is_usable():
            msg = f'retrieve: backend "cuda" is not usable: {lacking(kernel.LIBRARY)}. Use "cpu", or "auto".'
            raise BackendError(msg)
    return "cpu" if name == "auto" else name


def encode_queries(index: Index, queries: Inputs, record: Metric, settings: dict[str, Any]) -> Any:
    """Return the distinct queries as the kernels of a metric take them, after all checks."""
    check_queries(queries, record, index)
    foreign = [name for name in settings if name not in record.settings]
    if foreign:
        msg = f"retrieve: {', '.join(foreign)} must be left out for metric {record.name!r}; got a value. Drop it."
        raise InputError(msg)
    return index.representation(record).encode(queries, **settings)


def check_queries(queries: Inputs, record: Metric, index: Index) -> None:
    """Raise unless every query has what the metric reads."""
    if not queries.ids:
        msg = "retrieve: queries must be at least one report; got 0. Check the file and the section."
        raise InputError(msg)
    for kind in record.representations:
        _check_queries(queries, record, index, kind)


def _check_queries(queries: Inputs, record: Metric, index: Index, kind: str) -> None:
    """Raise unless every query has what one representation is made from."""
    needs = REPRESENTATIONS[kind]
    if needs.needs is None or needs.needs[1] is None:  # made from the texts
        return
    of_row = getattr(queries, needs.needs[1])
    if of_row is None:
        msg = f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got none. Add {needs.option}."
        raise InputError(msg)
    lacking = [queries.ids[i] for i in np.flatnonzero(of_row < 0)]
    if lacking:
        shown = shown_names(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        msg = (
            f"retrieve: queries must have {needs.what} each for metric {record.name!r}; got {len(lacking)} of "
            f"{len(queries.ids)} without ({shown}). Add them to the file or leave these queries out."
        )
        raise InputError(msg)
    recorded = index.content["representations"][kind].get("encoder", {})
    given = queries.made_by.get(kind, {})
    if {"sha256"} <= recorded.keys() & given.keys() and recorded["sha256"] != given["sha256"]:
        msg = (
            f"retrieve: {needs.plural} must come from the model of the index, sha256 {recorded['sha256'][:12]}; got "
            f"{given['sha256'][:12]}. Pass that model, or build another index."
        )
        raise InputError(msg)
    if kind == "labels":
        recorded = index.content["representations"]["labels"]["uncertain"]
        if queries.uncertain != recorded:
            msg = (
                f"retrieve: uncertain must be {recorded!r} as in the index; got {queries.uncertain!r}. "
                "Pass the same value or build another index."
            )
            raise InputError(msg)


def _search(
    record: Metric, backend: str, representation: Any, encoded: Any, n: int, k: int, found: Found, threads: int,
    progress: Callable[[int], None] | None, n_queries: int, max_memory: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Answer the distinct queries block by block on a thread pool; kernels release the interpreter lock.

    Return what the signature records of the work: the share of pairs that each stage of a screen dropped.
    """
    if backend == "reference":
        kernel: Any = _Reference(record)
    else:
        kernel = import_module(f"metric_oracle.kernels.{record.kernel}.{backend}")
    options = {} if backend == "reference" else record.options
    idle: list[Any] = []
    limit = None if max_memory is None else _Limit(max_memory, threads)
    size = BLOCK if limit is None else LEAST_BLOCK

    def run(first: int) -> int:
        last = min(first + size, n)
        work = idle.pop() if idle else kernel.new_work(representation)
        with limit or nullcontext():
            kernel.search(representation, encoded, first, last, k, found, work, **options)
        idle.append(work)
        return last - first

    if getattr(kernel, "WHOLE", False):  # a GPU takes all queries at once
        kernel.search(representation, encoded, 0, n, k, found, None, **options)
        _report(progress, n, n, n_queries, 0)
    else:
        run_blocks(run, range(0, n, size), n, threads, progress, n_queries)
    return {"stages": kernel.stages(idle)} if hasattr(kernel, "stages") else {}


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


def candidates(representation: Any, encoded: Any) -> Callable[[int], Any]:
    """Return what gives a unit to the reference scorer: weights of tokens may depend on the queries."""
    return getattr(encoded, "candidate", representation.item)


def itself(encoded: Any) -> Callable[[int], Any]:
    """Return what gives a query to the reference scorer as a candidate."""
    return getattr(encoded, "own", encoded.item)


class _Reference:
    """The plain scorer on every distinct candidate, behind the same two functions as a kernel."""

    def __init__(self, record: Metric) -> None:
        self._score = import_module(f"metric_oracle.kernels.{record.kernel}.reference").score
        self._options = record.options
        self._higher = record.higher_is_better

    def new_work(self, representation: Any) -> None:
        return None

    def search(self, index: Any, encoded: Any, first: int, last: int, k: int, found: Found, work: None) -> None:
        units = np.arange(len(index.row_ptr) - 1)
        item = candidates(index, encoded)
        items = [item(int(u)) for u in units]
        for q in range(first, last):
            query = encoded.item(q)
            scores = np.array([self._score(item, query, **self._options)[0] for item in items])
            sign = 1.0 if self._higher else -1.0
            rows, best, ties = select(units, sign * scores, index.row_ptr, index.row_id, k)
            found.rows[q], found.scores[q], found.ties[q] = rows, sign * best, ties


def _fill_zeros(found: Found, row_id: np.ndarray) -> None:
    """Where fewer than k rows have a positive score, the others follow with score 0 in row order."""
    short = np.flatnonzero(found.rows[:, -1] < 0)
    if not len(short):
        return
    k = found.rows.shape[1]
    lowest = np.sort(np.partition(row_id, k - 1)[:k])
    for q in short:
        m = int(np.count_nonzero(found.rows[q] >= 0))
        listed = found.rows[q, :m]
        found.rows[q, m:] = lowest[~np.isin(lowest, listed)][: k - m]
        found.ties[q, m:] = len(row_id) - m


def _fall_back(found: Found, fallback: np.ndarray, index: Index, row_id: np.ndarray) -> None:
    """Give queries without any positive match the most frequent report, as Yu et al. do, marked as such."""
    nothing = np.flatnonzero(found.scores[:, 0] == 0.0)
    if not len(nothing):
        return
    row = most_frequent_row(index, row_id)
    for q in nothing:
        others = found.rows[q][found.rows[q] != row]
        found.rows[q] = np.r_[row, others][: found.rows.shape[1]]
        fallback[q, 0] = True


def most_frequent_row(index: Index, row_id: np.ndarray) -> int:
    """Return the lowest of the scorable rows `row_id` of the most frequent text that has one."""
    scorable = np.sort(row_id)
    multiplicity = index.distinct["multiplicity"].to_numpy()[index.reports["distinct_id"].to_numpy()[scorable]]
    return int(scorable[np.argmax(multiplicity)])


def _components(record: Metric, representation: Any, encoded: Any, found: Found) -> dict[str, np.ndarray]:
    """Return the components of every listed pair, float64[n, k], and check a sample of pairs with the reference."""
    units = representation.unit_of_row[found.rows].ravel()
    n, k = found.rows.shape
    query = np.repeat(np.arange(n), k)
    scores = found.scores.ravel()
    kernel = import_module(f"metric_oracle.kernels.{record.kernel}.cpu")
    components = kernel.components(representation, encoded, query, units, scores, **record.options)
    check_pairs(record, representation, encoded, query, units, scores, components)
    return {name: values.reshape(n, k) for name, values in components.items()}


def check_pairs(
    record: Metric, representation: Any, encoded: Any, query: np.ndarray, units: np.ndarray, scores: np.ndarray,
    components: dict[str, np.ndarray],
) -> None:  # fmt: skip
    """Raise unless the scores and components of a sample of pairs are those of the reference."""
    score = import_module(f"metric_oracle.kernels.{record.kernel}.reference").score
    candidate = candidates(representation, encoded)
    for i in np.unique(np.linspace(0, len(scores) - 1, min(CHECKED, len(scores))).astype(np.int64)):
        expected = score(candidate(int(units[i])), encoded.item(int(query[i])), **record.options)
        got = scores[i], {name: values[i] for name, values in components.items()}
        if got != expected:
            row = representation.row_id[representation.row_ptr[units[i]]]
            msg = (
                f"retrieve: {record.name} of row {row} must be the reference's {expected}; got {got}. "
                "This is a defect: please report it with the index fingerprint."
            )
            raise ExactnessError(msg)


def _table(
    index: Index, queries: Inputs, which: np.ndarray, found: Found, fallback: np.ndarray,
    components: dict[str, np.ndarray], text: bool,
) -> pa.Table:  # fmt: skip
    """Lay out the answers, distinct queries expanded to queries."""
    k = found.rows.shape[1]
    rows = found.rows[which].ravel()
    reports = index.reports
    columns: dict[str, Any] = {
        "query_id": pa.array(queries.ids, pa.large_string()).take(pa.array(np.repeat(np.arange(len(which)), k))),
        "rank": np.tile(np.arange(1, k + 1), len(which)),
        "row": rows,
        "candidate_id": reports["study_id"].take(pa.array(rows)),
        "score": found.scores[which].ravel(),
        **{name: values[which].ravel() for name, values in components.items()},
        "n_ties": found.ties[which].ravel(),
        "fallback": fallback[which].ravel(),
        "exact": pa.array(np.ones(len(rows), bool)),
    }
    if text:
        columns["text"] = reports["text"].take(pa.array(rows))
    return pa.table(columns)
