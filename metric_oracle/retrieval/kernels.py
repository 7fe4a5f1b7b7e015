"""Load the kernel or the plain scorer of a metric of the registry."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from metric_oracle.base.errors import BackendError
from metric_oracle.base.option_types import Backend
from metric_oracle.kernels.contract import Answers, Capabilities, Kernel, read_only
from metric_oracle.records import Metric


def load_kernel(metric: Metric, backend: str) -> Kernel:
    """Return the backend of a metric that is called "cpu" or "cuda", with the metric's options.

    That of a sum gets the CPU backends of its metrics.
    """
    backend_class = import_module(f"{home(metric)}.{backend}").Backend
    kernel: Kernel = metric.called(backend_class, lambda one: load_kernel(one, "cpu"))()
    return kernel


class PlainKernel(Kernel):
    """A kernel that scores every document with the plain scorer; components come from the CPU kernel."""

    capabilities = Capabilities(bound=False, signed=True)

    def __init__(self, metric: Metric, representation: Any, encoded: Any) -> None:
        """Score the documents of a representation with queries that are encoded for it."""
        self._score, self._kernel = load_reference(metric), load_kernel(metric, "cpu")
        self._sign = metric.sign
        self._representation, self._encoded = representation, encoded

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        """Score every document; see `Kernel`."""
        index = self._representation
        documents = np.arange(len(index.row_ptr) - 1)
        items = [index.item(int(u)) for u in documents]
        for q in range(first, last):
            query = self._encoded.item(q)
            scores = np.array([self._score(item, query)[0] for item in items])
            answers.put(q, documents, scores, index, k, self._sign)

    def counts(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, known: Any = None) -> Any:
        """Ask the CPU kernel, for the components."""
        return self._kernel.counts(corpus, batch, query, document, known)

    def scores(self, counts: Any) -> np.ndarray:
        """Ask the CPU kernel, for the components."""
        return self._kernel.scores(counts)

    def components(self, counts: Any) -> dict[str, np.ndarray]:
        """Ask the CPU kernel, for the components."""
        return self._kernel.components(counts)


def arrays_of(metric: Metric, representation: Any, encoded: Any) -> tuple[Any, Any]:
    """Return the arrays of a corpus and of encoded queries as the kernels of a metric take them: read-only."""
    return read_only(representation.arrays(metric, encoded)), read_only(representation.translate(metric, encoded))


def load_reference(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return the plain scorer of a metric: a function of candidate and reference that returns score and components."""
    return _with_options(metric, "reference", load_reference)


def load_scorer(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return a scorer with the results of the plain scorer: the compiled one if the kernel has a module `pair`.

    BERTScore has one, because its plain scorer takes milliseconds a pair. The metrics of a sum are scored likewise.
    """
    return _with_options(metric, _scorer(home(metric)), load_scorer)


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
    """Return the name of a backend, "cpu" for "auto".

    Raise BackendError if the metric does not have it or this machine cannot run it.
    """
    if name not in ("auto", "reference"):
        if find_spec(f"{home(metric)}.{name}") is None:
            titled = {"cuda": "CUDA"}.get(name, name)
            raise BackendError(
                f'backend "{name}" is not usable: {metric.name} has no {titled} kernels.', 'Use "cpu", or "auto".'
            )
        lacking = load_kernel(metric, name).lacking()
        if lacking:
            raise BackendError(f'backend "{name}" is not usable: {lacking}.', 'Use "cpu", or "auto".')
    return "cpu" if name == "auto" else name
