"""The one place that finds a kernel or a plain scorer by a record of the registry."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from metric_oracle.errors import BackendError, InputError
from metric_oracle.kernels.contract import Kernel
from metric_oracle.metrics import BACKENDS, Metric


def load_kernel(metric: Metric, backend: str) -> Kernel:
    """Return the backend "cpu" or "cuda" of a metric, with the metric's options."""
    return import_module(f"{_home(metric)}.{backend}").Backend(**metric.options)


def load_reference(metric: Metric) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
    """Return the plain scorer of a metric: candidate and reference -> score and components."""
    return partial(import_module(f"{_home(metric)}.reference").score, **metric.options)


def _home(metric: Metric) -> str:
    return "metric_oracle.retrieval.composite" if metric.terms else f"metric_oracle.kernels.{metric.kernel}"


def check_backend(name: str, metric: Metric, function: str) -> str:
    """Return the backend that is meant, "cpu", "cuda" or "reference", after a check that this machine has it."""
    if name not in BACKENDS:
        msg = f"{function}: backend must be one of {', '.join(BACKENDS)}; got {name!r}. Choose one."
        raise InputError(msg)
    if name == "cuda":
        if find_spec(f"{_home(metric)}.cuda") is None:
            msg = f'{function}: backend "cuda" is not usable: {metric.name} has no CUDA kernels. Use "cpu", or "auto".'
            raise BackendError(msg)
        lacking = load_kernel(metric, "cuda").lacking()
        if lacking:
            msg = f'{function}: backend "cuda" is not usable: {lacking}. Use "cpu", or "auto".'
            raise BackendError(msg)
    return "cpu" if name == "auto" else name
