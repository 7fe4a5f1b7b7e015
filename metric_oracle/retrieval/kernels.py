"""Load the kernel or the plain scorer of a metric of the registry, and choose between them."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from metric_oracle.base.errors import BackendError
from metric_oracle.base.option_types import Backend
from metric_oracle.kernels._compiling import NotStoredError, only_stored
from metric_oracle.kernels.contract import Kernel, ScoredWhole, read_only
from metric_oracle.records import Metric

# Seconds that the plain scorer of each kernel takes for a pair of reports, as `benchmarks.small` measured it.
PLAIN_SECONDS = {
    "bertscore": 5e-3,
    "bleu": 3e-5,
    "chexbert_labels": 3e-6,
    "cider_d": 5e-4,
    "cosine": 1.2e-5,
    "crg": 2e-6,
    "jaccard": 5e-6,
    "labels": 2e-6,
    "meteor": 6e-5,
    "radgraph": 1e-5,
    "ratescore": 5e-5,
    "rouge_l": 1.2e-5,
    "sentences": 1.2e-3,
    "temporal": 1e-6,
}
# Most seconds that the plain scorer may take in the place of a kernel: for one search or scan, and for all work under
# one metric in a process. To compile a kernel takes 7 to 14 s, to load it 0.3 s.
SMALL_SEARCH = 1.0
SMALL = 3.0
_spent: dict[str, float] = {}  # seconds of plain scorers in this process, by metric


def backend_of(name: Backend, metric: Metric, n_pairs: int) -> Backend:
    """Return the backend of a search or a scan of `n_pairs` pairs: for "auto" the plain scorer if they are few.

    In a process that begins, that does not depend on what is compiled, so that equal commands have equal signatures.
    """
    if name != "auto":
        return name
    return "reference" if not metric.conditions and _is_spent(metric, n_pairs, SMALL_SEARCH) else "cpu"


def backend_of_pairs(metric: Metric, n_pairs: int, call: Callable[[], object]) -> Backend:
    """Return what scores `n_pairs` given pairs: the plain scorer if they are few and the kernel is not compiled yet.

    `call` calls what would have to be compiled.
    """
    if _seconds(metric, n_pairs) > SMALL - _spent.get(metric.name, 0.0):
        return "cpu"
    try:
        with only_stored():
            call()
    except NotStoredError:
        return "reference" if _is_spent(metric, n_pairs, SMALL) else "cpu"
    return "cpu"


def _is_spent(metric: Metric, n_pairs: int, most: float) -> bool:
    """Return whether the plain scorer may score `n_pairs` pairs, within `most` seconds; if so, take note of them."""
    seconds, spent = _seconds(metric, n_pairs), _spent.get(metric.name, 0.0)
    if seconds > min(most, SMALL - spent):
        return False
    _spent[metric.name] = spent + seconds
    return True


def _seconds(metric: Metric, n_pairs: int) -> float:
    """Return about how long the plain scorer of a metric takes for `n_pairs` pairs."""
    return n_pairs * sum(PLAIN_SECONDS[one.kernel] for one in metric.metrics.values())


def load_kernel(metric: Metric, backend: str) -> Kernel:
    """Return a backend of a metric, with the metric's options: "cpu", "cuda", or "reference" for the plain scorer.

    That of a sum gets the CPU backends of its metrics.
    """
    if backend == "reference":
        return PlainKernel(metric)
    backend_class = import_module(f"{home(metric)}.{backend}").Backend
    kernel: Kernel = metric.called(backend_class, lambda one: load_kernel(one, "cpu"))()
    return kernel


class PlainKernel(ScoredWhole):
    """The plain scorer in the place of a kernel; corpus and batch are `ScorerItems`."""

    def __init__(self, metric: Metric) -> None:
        self.sign, self._score = metric.sign, load_reference(metric)

    def counts(
        self, corpus: "ScorerItems", batch: "ScorerItems", query: np.ndarray, document: np.ndarray, known: Any = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the scores of pairs, float64[n], and their components by name."""
        n, pairs = len(query), zip(query.tolist(), document.tolist(), strict=True)
        if not n and corpus.n and batch.n:
            pairs = zip([0], [0], strict=True)  # for the names and the types of the components
        scored = [self._score(corpus.item(d), batch.item(q)) for q, d in pairs]
        scores = np.array([score for score, _ in scored], np.float64)[:n]
        names = scored[0][1] if scored else ()
        return scores, {name: np.array([parts[name] for _, parts in scored])[:n] for name in names}

    def scores(self, counts: tuple[np.ndarray, dict[str, np.ndarray]]) -> np.ndarray:
        """Return the scores of pairs; see `counts`."""
        return counts[0]

    def components(self, counts: tuple[np.ndarray, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the components of pairs by name; see `counts`."""
        return counts[1]


class ScorerItems:
    """The documents of a corpus or of queries in the form that the plain scorer reads, each made once."""

    def __init__(self, documents: Any) -> None:
        self.row_ptr, self.row_id, self.item = documents.row_ptr, documents.row_id, cache(documents.item)
        self.n = len(self.row_ptr) - 1


def arrays_of(metric: Metric, representation: Any, encoded: Any, backend: Backend = "cpu") -> tuple[Any, Any]:
    """Return a corpus and encoded queries as a backend of a metric takes them: read-only arrays, or `ScorerItems`."""
    if backend == "reference":
        return ScorerItems(representation), ScorerItems(encoded)
    return read_only(representation.arrays(metric, encoded)), read_only(representation.translate(metric, encoded))


def load_reference(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return the plain scorer of a metric: a function of candidate and reference that returns score and components."""
    return _with_options(metric, "reference", load_reference)


def load_scorer(metric: Metric, items: Sequence[Any]) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return a scorer of `items`, with the results of the plain scorer: the compiled one if the kernel has a `pair.py`.

    BERTScore has one, because its plain scorer takes milliseconds a pair. Few items are scored by the plain scorer, see
    `backend_of_pairs`. The metrics of a sum are scored likewise.
    """
    compiled = _compiled_scorer(metric)
    backend = backend_of_pairs(metric, len(items), lambda: compiled(items[0], items[0]))
    return load_reference(metric) if backend == "reference" else compiled


def _compiled_scorer(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return the function `score` of the module `pair` of a metric's kernel, if it has one, else the plain scorer."""
    return _with_options(metric, _scorer(home(metric)), _compiled_scorer)


def _with_options(metric: Metric, module: str, load: Callable[[Metric], Any]) -> Callable[[Any, Any], Any]:
    """Return the function `score` of a module of a metric's kernel, with the metric's options.

    That of a sum gets the scorers of its metrics, which `load` returns.
    """
    return metric.called(import_module(f"{home(metric)}.{module}").score, load)


@cache
def _scorer(package: str) -> str:
    """Return "pair" if the package of a kernel has a module of that name, else "reference"."""
    return "pair" if find_spec(f"{package}.pair") else "reference"


def home(metric: Metric) -> str:
    """Return the name of the Python package that holds a metric's plain scorer and backends."""
    return f"metric_oracle.kernels.{metric.kernel}"


def check_backend(name: Backend, metric: Metric) -> Backend:
    """Return the name of a backend; raise BackendError if the metric lacks it or this machine cannot run it."""
    if name not in ("auto", "reference"):
        if find_spec(f"{home(metric)}.{name}") is None:
            titled = {"cuda": "CUDA"}.get(name, name)
            raise BackendError(
                f'backend "{name}" is not usable: {metric.name} has no {titled} kernels.', 'Use "cpu", or "auto".'
            )
        lacking = load_kernel(metric, name).lacking()
        if lacking:
            raise BackendError(f'backend "{name}" is not usable: {lacking}.', 'Use "cpu", or "auto".')
    return name
