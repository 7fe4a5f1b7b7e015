"""The one place that finds a kernel or a plain scorer by a record of the registry."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from metric_oracle.choices import BACKENDS
from metric_oracle.errors import BackendError, InputError
from metric_oracle.kernels.contract import Kernel
from metric_oracle.metrics import Metric


def load_kernel(metric: Metric, backend: str) -> Kernel:
    """Return a backend of a metric, such as "cpu" or "cuda", with the metric's options."""
    return import_module(f"{home(metric)}.{backend}").Backend(**metric.options)


def load_reference(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return the plain scorer of a metric: candidate and reference -> score and components."""
    return partial(import_module(f"{home(metric)}.reference").score, **metric.options)


def home(metric: Metric) -> str:
    """Return the package of a metric's scorer and backends."""
    return "metric_oracle.retrieval.composite" if metric.terms else f"metric_oracle.kernels.{metric.kernel}"


def check_backend(name: str, metric: Metric, function: str) -> str:
    """Return the backend that is meant, after a check that the metric and this machine have it."""
    if name not in BACKENDS:
        msg = f"{function}: backend must be one of {', '.join(BACKENDS)}; got {name!r}. Choose one."
        raise InputError(msg)
    if name not in ("auto", "reference"):
        if find_spec(f"{home(metric)}.{name}") is None:
            titled = {"cuda": "CUDA"}.get(name, name)
            msg = (
                f'{function}: backend "{name}" is not usable: {metric.name} has no {titled} kernels. '
                'Use "cpu", or "auto".'
            )
            raise BackendError(msg)
        lacking = load_kernel(metric, name).lacking()
        if lacking:
            msg = f'{function}: backend "{name}" is not usable: {lacking}. Use "cpu", or "auto".'
            raise BackendError(msg)
    return "cpu" if name == "auto" else name
