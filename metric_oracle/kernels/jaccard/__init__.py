"""Jaccard coefficient of the sets of word n-grams of two reports."""

from metric_oracle.kernels.rouge_l import WORDS
from metric_oracle.records import Metric, RepresentationRecord

METRICS = tuple(
    Metric(
        f"jaccard:{order}",
        RepresentationRecord(f"{gram.lower()}_sets", f"metric_oracle.indexes.gram_sets:{gram}Sets", parts=(WORDS,)),
        "jaccard",
        f"Jaccard, New Phytologist 1912, of the sets of word {order}-grams; words as for rouge-l",
        title=f"Jaccard ({order}-grams)",
    )
    for order, gram in enumerate(("Word", "Bigram", "Trigram", "Fourgram"), 1)
)
