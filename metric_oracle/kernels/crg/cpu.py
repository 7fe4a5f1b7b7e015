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


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """Contributions of single reports to CRG, on CPUs."""

    def counts(self, corpus, batch, query, document, known=None):
        """Return true positives, false negatives and false positives of pairs, int64[n], and the batch's prevalence."""
        truth, candidate = batch.positive[query], corpus.positive[document]
        matched = np.sum(truth & candidate, axis=-1)
        missed, invented = np.sum(truth, axis=-1) - matched, np.sum(candidate, axis=-1) - matched
        return matched, missed, invented, batch.prevalence

    def scores(self, counts):
        """Return the contribution of each pair's document as the prediction for its query: float64[n]."""
        _, missed, invented, prevalence = counts
        return contribution(missed, invented, **prevalence)

    def components(self, counts):
        """Return, as "tp", "fn" and "fp", the numbers of correct, missed and wrong positive labels: int64[n]."""
        return dict(zip(("tp", "fn", "fp"), counts[:3], strict=True))
