"""Distance of two sets of sentence vectors; see README.md."""

from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "sentences",
    "metric_oracle.sources.sentences:SentenceSource",
    "sentence vectors",
    "sentence vectors",
    ("sentences",),
    "`mo.reports(..., sentences=FILE)`",
)
METRICS = (
    Metric(
        "sentences",
        RepresentationRecord(
            "sentences", "metric_oracle.indexes.sentences:SentenceDocuments", _SOURCE, by_default=True
        ),
        "sentences",
        "cosine Chamfer distance of given sentence vectors, mean of both ways; set distances as in SDR (Gulluk et "
        "al., arXiv 2606.00440)",
        higher_is_better=False,
        cheap=False,
        composable=False,
        tool="metric-oracle",
        title="Sentence distance",
    ),
)
