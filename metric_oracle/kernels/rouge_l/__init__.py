"""ROUGE-L: the longest common subsequence of the words of two reports."""

from metric_oracle.kernels.bleu import NGRAMS
from metric_oracle.records import USUAL, Metric, RepresentationRecord

WORDS = RepresentationRecord("words", "metric_oracle.indexes.ngrams:NgramIndex", by_default=True)
METRICS = (
    Metric(
        "rouge-l",
        WORDS,
        "rouge_l",
        "Lin, ROUGE 2004, as in rouge-score without stemming",
        is_symmetric=True,
        shown_in=USUAL,
        tool="rouge-score",
        title="ROUGE-L",
    ),
    Metric(
        "rouge-l:coco",
        NGRAMS,
        "rouge_l",
        "Lin, ROUGE 2004, as in pycocoevalcap",
        {"coco": True},
        tool="pycocoevalcap",
        title="ROUGE-L (COCO)",
    ),
)
