"""The public functions: reports in memory or in files -> answers. The command line calls these."""

from metric_oracle.api.memory import compute, pairwise, reward
from metric_oracle.api.reranking import rerank
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
from metric_oracle.metrics import METRICS, Metric
from metric_oracle.retrieval.results import read_results, read_scores

__all__ = [
    "baseline",
    "build_index",
    "compute",
    "expectation",
    "list_metrics",
    "load_queries",
    "merge",
    "open_index",
    "pairwise",
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
