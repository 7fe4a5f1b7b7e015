"""Cosine of the 14 CheXbert labels, and the share of labels on which two reports agree."""

from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_SOURCE = SourceRecord(
    "labels",
    "metric_oracle.sources.labels:CheXbertLabelSource",
    "labels",
    "labels",
    ("chexbert_labels",),
    "`mo.reports(..., chexbert_labels=FILE, uncertain=positive|negative|blank)`",
    made_by="chexbert",
    settings=("uncertain",),
)
LABELS = RepresentationRecord("labels", "metric_oracle.indexes.labels:LabelDocuments", _SOURCE, by_default=True)
_FOURTEEN = RepresentationRecord("agreement", "metric_oracle.indexes.agreement:AgreementDocuments", parts=(LABELS,))
_FIVE = RepresentationRecord("agreement_5", "metric_oracle.indexes.agreement:FiveLabelDocuments", parts=(LABELS,))
METRICS = (
    Metric(
        "chexbert:labels",
        LABELS,
        "chexbert_labels",
        "cosine of the 14-label vectors, Yu et al., Patterns 2023",
        shown_in=("score",),
        title="CheXbert label cosine",
    ),
    *(
        Metric(
            f"chexbert:{name}",
            reads,
            "chexbert_labels",
            f"share of equal labels of {n}, positive or not, as in FactMM-RAG (Sun et al., arXiv 2407.15268)",
            {"measure": "agreement"},
            tool="factmm-rag",
            title=f"CheXbert-{n} agreement",
        )
        for name, reads, n in (("agreement", _FOURTEEN, 14), ("agreement-5", _FIVE, 5))
    ),
)
