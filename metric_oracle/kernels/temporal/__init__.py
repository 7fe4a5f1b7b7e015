"""Temporal F1: keywords of change over time, such as "increased", that two reports share."""

from metric_oracle.records import Metric, RepresentationRecord

METRICS = (
    Metric(
        "temporal",
        RepresentationRecord("temporal", "metric_oracle.indexes.temporal:KeywordDocuments", by_default=True),
        "temporal",
        "Bannur et al., CVPR 2023; words as in RadEval 2.2.1",
        tool="radeval-2.2.1",
        title="Temporal F1",
    ),
)
