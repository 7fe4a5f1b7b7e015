"""CIDEr-D: n-grams that two reports share, weighted by how rare they are."""

from metric_oracle.kernels.bleu import COCO
from metric_oracle.records import Metric, RepresentationRecord

_HOME = "metric_oracle.indexes.cider"
_WEIGHTED = RepresentationRecord("weighted", f"{_HOME}:WeightedIndex", parts=(COCO,), counts_queries=True)
_CORPUS_WEIGHTED = RepresentationRecord(
    "corpus_weighted", f"{_HOME}:CorpusWeightedIndex", parts=(COCO,), counts_corpus=True
)
_CITATION = "Vedantam et al., CVPR 2015, as in pycocoevalcap (its Cider is CIDEr-D), document frequencies of the "
METRICS = (
    Metric(
        "cider-d",
        _WEIGHTED,
        "cider_d",
        _CITATION + "references",
        composable=False,
        tool="pycocoevalcap",
        title="CIDEr-D",
    ),
    Metric(
        "cider-d:corpus",
        _CORPUS_WEIGHTED,
        "cider_d",
        _CITATION + "corpus",
        tool="pycocoevalcap",
        title="CIDEr-D (corpus idf)",
    ),
)
