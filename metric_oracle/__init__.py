"""Exact metric-oracle retrieval for radiology reports.

>>> import metric_oracle as mo
>>> index = mo.build_index("train.csv", "INDEX")        # doctest: +SKIP
>>> results = mo.retrieve(index, "test.csv", "bleu")    # doctest: +SKIP
>>> scores = mo.score("test.csv", "generated.csv")      # doctest: +SKIP

The names below are loaded when first used, so that importing the package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metric_oracle.api import (
        baseline,
        build_index,
        expectation,
        load_queries,
        open_index,
        read_scores,
        retrieve,
        score,
        verify,
    )
    from metric_oracle.corpora.raters import read_ratings
    from metric_oracle.errors import MetricOracleError
    from metric_oracle.evaluation.alignment import align
    from metric_oracle.evaluation.comparison import compare
    from metric_oracle.evaluation.crg import score_crg
    from metric_oracle.evaluation.failure_modes import failure_modes
    from metric_oracle.evaluation.fit_composite import fit_composite

_HOMES = {
    "align": "metric_oracle.evaluation.alignment",
    "baseline": "metric_oracle.api",
    "build_index": "metric_oracle.api",
    "compare": "metric_oracle.evaluation.comparison",
    "expectation": "metric_oracle.api",
    "failure_modes": "metric_oracle.evaluation.failure_modes",
    "load_queries": "metric_oracle.api",
    "fit_composite": "metric_oracle.evaluation.fit_composite",
    "open_index": "metric_oracle.api",
    "read_ratings": "metric_oracle.corpora.raters",
    "read_scores": "metric_oracle.api",
    "retrieve": "metric_oracle.api",
    "score": "metric_oracle.api",
    "score_crg": "metric_oracle.evaluation.crg",
    "verify": "metric_oracle.api",
    "MetricOracleError": "metric_oracle.errors",
}
__all__ = [
    "MetricOracleError",
    "align",
    "baseline",
    "build_index",
    "compare",
    "expectation",
    "failure_modes",
    "fit_composite",
    "load_queries",
    "open_index",
    "read_ratings",
    "read_scores",
    "retrieve",
    "score",
    "score_crg",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
