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
    from metric_oracle.errors import MetricOracleError
    from metric_oracle.evaluation.composite import fit_composite
    from metric_oracle.evaluation.crg import score_crg

_HOMES = {
    "build_index": "metric_oracle.api",
    "load_queries": "metric_oracle.api",
    "fit_composite": "metric_oracle.evaluation.composite",
    "open_index": "metric_oracle.api",
    "retrieve": "metric_oracle.api",
    "score_crg": "metric_oracle.evaluation.crg",
    "verify": "metric_oracle.api",
    "MetricOracleError": "metric_oracle.errors",
}
__all__ = [
    "MetricOracleError",
    "build_index",
    "fit_composite",
    "load_queries",
    "open_index",
    "retrieve",
    "score_crg",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
