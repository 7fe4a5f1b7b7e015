"""Cosine of report vectors: CheXbert embeddings, or those of any other model."""

from metric_oracle.records import USUAL, Metric, RepresentationRecord, SourceRecord

_CHEXBERT = SourceRecord(
    "chexbert",
    "metric_oracle.sources.embeddings:CheXbertSource",
    "an embedding",
    "embeddings",
    ("chexbert", "chexbert_ids"),
    "`mo.reports(..., chexbert=FILE)`",
    model="the CheXbert model chexbert.pth",
    model_arguments=("vocabulary",),
)
_VECTORS = SourceRecord(
    "embedding",
    "metric_oracle.sources.embeddings:VectorSource",
    "an embedding",
    "embeddings",
    ("embeddings", "embedding_ids"),
    "`mo.reports(..., embeddings=FILE)`",
)
METRICS = (
    Metric(
        "chexbert",
        RepresentationRecord(
            "chexbert", "metric_oracle.indexes.embeddings:EmbeddingDocuments", _CHEXBERT, by_default=True
        ),
        "cosine",
        "Smit et al., EMNLP 2020; cosine as in CXR-Report-Metric",
        cheap=False,
        shown_in=USUAL,
        tool="cxr-report-metric",
        title="CheXbert vector similarity",
        column="semb_score",
    ),
    Metric(
        "embedding",
        RepresentationRecord(
            "embedding", "metric_oracle.indexes.embeddings:EmbeddingDocuments", _VECTORS, by_default=True
        ),
        "cosine",
        "cosine of the given report embeddings",
        cheap=False,
        composable=False,
        title="Embedding cosine",
    ),
)
