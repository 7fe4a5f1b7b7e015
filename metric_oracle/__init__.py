"""Exact metric-oracle retrieval for radiology reports.

>>> import metric_oracle as mo
>>> index = mo.build_index("train.csv", "INDEX")        # doctest: +SKIP
>>> results = mo.retrieve(index, "test.csv", "bleu")    # doctest: +SKIP

The names below are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metric_oracle.api import build_index, load_queries, open_index, retrieve, verify
    from metric_oracle.corpora.raters import read_ratings
    from metric_oracle.errors import MetricOracleError
    from metric_oracle.evaluation.alignment import align
    from metric_oracle.evaluation.failure_modes import failure_modes

_HOMES = {
    "align": "metric_oracle.evaluation.alignment",
    "build_index": "metric_oracle.api",
    "failure_modes": "metric_oracle.evaluation.failure_modes",
    "load_queries": "metric_oracle.api",
    "open_index": "metric_oracle.api",
    "read_ratings": "metric_oracle.corpora.raters",
    "retrieve": "metric_oracle.api",
    "verify": "metric_oracle.api",
    "MetricOracleError": "metric_oracle.errors",
}
__all__ = [
    "MetricOracleError",
    "align",
    "build_index",
    "failure_modes",
    "load_queries",
    "open_index",
    "read_ratings",
    "retrieve",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
