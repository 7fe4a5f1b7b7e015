"""BLEU: shared n-grams of orders 1 to 4."""

from metric_oracle.records import USUAL, Metric, RepresentationRecord

NGRAMS = RepresentationRecord("ngrams", "metric_oracle.indexes.ngrams:NgramIndex", by_default=True)
COCO = RepresentationRecord("coco", "metric_oracle.indexes.ngrams:NgramIndex", by_default=True)
_CITATION = "Papineni et al., ACL 2002, as in "
METRICS = (
    *(
        Metric(
            f"bleu-{order}",
            NGRAMS,
            "bleu",
            _CITATION + "CXR-Report-Metric (fast_bleu)",
            {"order": order, "coco": False},
            shown_in={2: USUAL, 4: ("score",)}.get(order, ()),
            tool="cxr-report-metric",
            title=f"BLEU-{order}",
            column="bleu_score" if order == 2 else "",
        )
        for order in (1, 2, 3, 4)
    ),
    *(
        Metric(
            f"bleu-{order}:coco",
            COCO,
            "bleu",
            _CITATION + "pycocoevalcap",
            {"order": order, "coco": True},
            tool="pycocoevalcap",
            title=f"BLEU-{order} (COCO)",
        )
        for order in (1, 2, 3, 4)
    ),
)
