"""CRG search: integer counts for all distinct sets of positive labels, of which there are few."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels.contract import ScoredWhole
from metric_oracle.kernels.crg.score import contribution


class Positives(NamedTuple):
    """Distinct sets of positive labels of a corpus or of queries."""

    positive: np.ndarray  # bool[D, 13], which labels are positive
    row_ptr: np.ndarray  # int64[D + 1], offset of the rows with each set in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows or queries
    # positives, labels and reports of the whole test set, which weight the labels, see `contribution`; None of a corpus
    prevalence: dict[str, int] | None


def _count(truth, candidate):
    """Return the numbers of true positives, false negatives and false positives of pairs of label sets.

    They are int64[...]. `truth` and `candidate` are bool[..., L], true for positive labels.
    """
    matched = np.sum(truth & candidate, axis=-1)
    return matched, np.sum(truth, axis=-1) - matched, np.sum(candidate, axis=-1) - matched


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """Contributions of single reports to CRG, on CPUs."""

    def score_all(self, corpus, batch, chosen):
        """Yield the contribution of every document, as the prediction for each of the chosen queries: float64[D]."""
        for q in chosen:
            _, missed, invented = _count(batch.positive[q], corpus.positive)
            yield contribution(missed, invented, **batch.prevalence)

    def score_pairs(self, corpus, batch, query, document):
        """Return the contribution of pairs of a distinct query and a document, float64[n], and their components."""
        counts = self.components(corpus, batch, query, document, None)
        return contribution(counts["fn"], counts["fp"], **batch.prevalence), counts

    def components(self, corpus, batch, query, document, scores):
        """Return, as "tp", "fn" and "fp", the numbers of correct, missed and wrong positive labels: int64[n]."""
        counts = _count(batch.positive[query], corpus.positive[document])
        return dict(zip(("tp", "fn", "fp"), counts, strict=True))
