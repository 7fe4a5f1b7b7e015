"""Agreement and F1 of labels that may be missing: counts for all distinct label vectors, as products of matrices."""

from dataclasses import dataclass

import numpy as np

from metric_oracle.kernels.contract import ScoredWhole


def _products(queries, documents, measure, multiply):
    """Return, by name, the counts from which a measure is computed, "agreement" or "f1": float64[...].

    The labels of `queries` and `documents`, int8[..., L], are 1 positive, -1 negative, 0 missing. `multiply` multiplies
    two arrays of labels and sums over the labels, as a matrix product does. Counts of labels are exact in float32.
    """
    positive, stated = ([a.astype(np.float32) for a in (x == 1, x != 0)] for x in (queries, documents))
    (a_positive, a_stated), (b_positive, b_stated) = positive, stated
    matched = multiply(a_positive, b_positive).astype(np.float64)
    if measure == "agreement":
        negatives = multiply(a_stated - a_positive, b_stated - b_positive)
        return {"equal": matched + negatives, "compared": multiply(a_stated, b_stated).astype(np.float64)}
    sizes = multiply(a_positive, b_stated) + multiply(a_stated, b_positive)
    return {"matched": matched, "sizes": sizes.astype(np.float64)}


@dataclass(frozen=True)
class Backend(ScoredWhole):
    """Agreement and F1 of labels on CPUs."""

    measure: str  # "agreement" or "f1"

    def counts(self, corpus, batch, query, document, known=None):
        """Return the counts of pairs as `_products` does, and as "compared" how many labels neither report lacks."""
        a, b = batch.vectors[query], corpus.vectors[document]
        counts = _products(a, b, self.measure, lambda a, b: np.sum(a * b, axis=-1))
        return {**counts, "compared": np.sum((a != 0) & (b != 0), axis=-1)}

    def scores(self, counts):
        """Return the scores that follow from counts, float64[...], by the same operations as those of `score.py`."""
        if self.measure == "agreement":
            return counts["equal"] / np.maximum(counts["compared"], 1)  # where nothing is compared nothing is equal
        # where no label is positive none is matched
        return 2.0 * counts["matched"] / np.maximum(counts["sizes"], 1)

    def components(self, counts):
        """Return, by the name "compared", how many labels are missing in neither report of each pair: int64[n]."""
        return {"compared": counts["compared"]}

    def score_all(self, corpus, batch, chosen):
        """Yield, for each of the chosen distinct queries, its scores with all documents, by products of matrices."""
        queries = batch.vectors[list(chosen)]
        for first in range(0, len(queries), self.capabilities.queries_at_once):
            some = queries[first : first + self.capabilities.queries_at_once]
            yield from self.scores(_products(some, corpus.vectors, self.measure, lambda a, b: a @ b.T))
