"""The oracle: for every query the best rows of the corpus under a metric, exactly."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import Any

import numpy as np

from metric_oracle.errors import BackendError, ExactnessError, InputError
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, check_max_memory
from metric_oracle.kernels._device import DeviceError
from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import Metric, get_metric
from metric_oracle.retrieval.answers import fall_back, fill_zeros, layout
from metric_oracle.retrieval.checks import encode_queries
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.kernels import check_backend, load_kernel, load_reference
from metric_oracle.retrieval.pool import MemoryLimit, n_threads, report, run_blocks
from metric_oracle.retrieval.results import Results

CHECKED = 100  # listed pairs that are scored again by the reference, evenly spread; `verify` does all
BLOCK = 32  # queries a task: small enough to share the work evenly, large enough to cost nothing
LEAST_BLOCK = 4  # the same where memory is looked after


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
    given = {"threads": threads, "max_memory": max_memory}
    ignored = [name for name, value in given.items() if value is not None]
    if backend != "reference" and load_kernel(record, backend).capabilities.batched and ignored:
        msg = (
            f"retrieve: {', '.join(ignored)} must be left out for {record.name} on backend {backend!r}, which takes "
            "all queries at once; got a value. Drop it."
        )
        raise InputError(msg)
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
        fill_zeros(answers, row_id)
    fallback = np.zeros((n, k), bool)
    if record.fallback:
        fall_back(answers, fallback, index, row_id)
    units = representation.unit_of_row[answers.rows].ravel()
    query = np.repeat(np.arange(n), int(k))
    components = kernel.components(corpus, batch, query, units, answers.scores.ravel())
    check_pairs(record, representation, encoded, query, units, answers.scores.ravel(), components)
    components = {name: values.reshape(n, int(k)) for name, values in components.items()}
    return Results(
        layout(index, queries, encoded.which, answers, fallback, components, kernel.capabilities.exact, text),
        {
            **signature(index, record, backend, int(k)),
            **encoded.settings,
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


def _search(
    kernel: Kernel, corpus: Any, batch: Any, n: int, k: int, answers: Answers, threads: int,
    progress: Callable[[int], None] | None, n_queries: int, max_memory: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Answer the distinct queries block by block on a thread pool; kernels release the interpreter lock.

    Return what the signature records of the work: the share of pairs that each stage of a screen dropped.
    """
    idle: list[Any] = []
    limit = None if max_memory is None else MemoryLimit(max_memory, threads, "retrieve")
    size = BLOCK if limit is None else LEAST_BLOCK

    def run(first: int) -> int:
        last = min(first + size, n)
        workspace = idle.pop() if idle else kernel.new_workspace(corpus)
        with nullcontext() if limit is None else limit.block():
            kernel.search(corpus, batch, first, last, k, answers, workspace)
        idle.append(workspace)
        return last - first

    if kernel.capabilities.batched:
        kernel.search(corpus, batch, 0, n, k, answers, None)
        report(progress, n, n, n_queries, 0)
    else:
        run_blocks(run, range(0, n, size), n, threads, progress, n_queries)
    stages = kernel.stages(idle)
    closest = stages.pop("closest_call", None)
    return {**({"stages": stages} if stages else {}), **({"closest_call": closest} if closest else {})}


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
