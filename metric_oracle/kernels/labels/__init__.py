"""Agreement and F1 of two reports' labels, each of which is positive, negative or missing."""

from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_TABLE_SOURCE = SourceRecord(
    "label_table",
    "metric_oracle.sources.labels:LabelTableSource",
    "labels",
    "labels",
    ("labels",),
    "`mo.reports(..., labels=FILE)`",
)
_SRR_SOURCE = SourceRecord(
    "srr",
    "metric_oracle.sources.labels:LabelSetSource",
    "SRR labels",
    "SRR labels",
    ("srr_labels",),
    "`mo.reports(..., srr_labels=FILE)`",
)
_TABLE = RepresentationRecord(
    "label_table", "metric_oracle.indexes.labels:LabelTableDocuments", _TABLE_SOURCE, by_default=True
)
_SRR = RepresentationRecord("srr", "metric_oracle.indexes.labels:SrrDocuments", _SRR_SOURCE, by_default=True)
_SRR_CITATION = "labels of Delbrouck et al., ACL 2025 (SRR-BERT)"
METRICS = (
    Metric(
        "srr-bert",
        RepresentationRecord("srr_sets", "metric_oracle.indexes.labels:SrrSets", parts=(_SRR,)),
        "radgraph",
        _SRR_CITATION + ", F1 as scikit-learn's samples average",
        {"family_a": 0, "family_b": -1},  # the labels are one family of features
        is_symmetric=True,
        tool="scikit-learn",
        title="SRR-BERT F1",
    ),
    Metric(
        "srr-bert:agreement",
        RepresentationRecord("srr_agreement", "metric_oracle.indexes.agreement:AgreementDocuments", parts=(_SRR,)),
        "chexbert_labels",
        _SRR_CITATION + ", share of equal labels",
        {"measure": "agreement"},
        title="SRR-BERT agreement",
    ),
    *(
        Metric(
            f"labels:{measure}",
            _TABLE,
            "labels",
            f"{what}, of a table with any columns; labels missing on either side are not compared",
            {"measure": measure},
            tool=tool,
            title=title,
        )
        for measure, what, tool, title in (
            ("agreement", "share of equal labels", "", "Label agreement"),
            ("f1", "F1 of the positive labels", "scikit-learn", "Label F1"),
        )
    ),
)
