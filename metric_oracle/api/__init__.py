"""The public functions: reports in memory or in files -> answers. The command line calls these.

Each is imported when it is first used, with what it needs and no more.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metric_oracle.metrics import METRICS, Metric

if TYPE_CHECKING:
    from metric_oracle.api.annotating import annotate
    from metric_oracle.api.memory import compute, pairwise, reward
    from metric_oracle.api.reranking import plan_rerank, rerank
    from metric_oracle.api.scoring import score
    from metric_oracle.api.searching import (
        baseline,
        build_index,
        expectation,
        load_queries,
        merge,
        open_index,
        retrieve,
        verify,
    )
    from metric_oracle.corpora.predictions import read_predictions
    from metric_oracle.corpora.reports import read_reports
    from metric_oracle.retrieval.baselines import plan_baseline
    from metric_oracle.retrieval.expectation import plan_expectation
    from metric_oracle.retrieval.options import SearchOptions
    from metric_oracle.retrieval.plan import plan
    from metric_oracle.retrieval.results import read_results, read_scores

_HOMES = {
    "annotate": "metric_oracle.api.annotating",
    **dict.fromkeys(("compute", "pairwise", "reward"), "metric_oracle.api.memory"),
    "rerank": "metric_oracle.api.reranking",
    "score": "metric_oracle.api.scoring",
    **dict.fromkeys(("baseline", "build_index", "expectation", "load_queries", "merge"), "metric_oracle.api.searching"),
    **dict.fromkeys(("open_index", "retrieve", "verify"), "metric_oracle.api.searching"),
    "SearchOptions": "metric_oracle.retrieval.options",
    "plan": "metric_oracle.retrieval.plan",
    "plan_baseline": "metric_oracle.retrieval.baselines",
    "plan_expectation": "metric_oracle.retrieval.expectation",
    "plan_rerank": "metric_oracle.api.reranking",
    "read_predictions": "metric_oracle.corpora.predictions",
    "read_reports": "metric_oracle.corpora.reports",
    **dict.fromkeys(("read_results", "read_scores"), "metric_oracle.retrieval.results"),
}
__all__ = [
    "SearchOptions",
    "annotate",
    "baseline",
    "build_index",
    "compute",
    "expectation",
    "list_metrics",
    "load_queries",
    "merge",
    "open_index",
    "pairwise",
    "plan",
    "plan_baseline",
    "plan_expectation",
    "plan_rerank",
    "read_predictions",
    "read_reports",
    "read_results",
    "read_scores",
    "rerank",
    "retrieve",
    "reward",
    "score",
    "verify",
]


def list_metrics() -> list[Metric]:
    """Return the metrics of the registry: name, direction, source, what each reads."""
    return list(METRICS.values())


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
