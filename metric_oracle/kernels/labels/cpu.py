"""Agreement and F1 of labels that may be missing: counts for all distinct label vectors, as products of matrices."""

from dataclasses import dataclass

import numpy as np

from metric_oracle.kernels.contract import ScoredWhole


def _scores(counts, measure):
    """Return the scores that follow from counts, float64[...], by the same operations as the functions of `score.py`.

    `counts` is what `_products` returns for `measure`, "agreement" or "f1".
    """
    if measure == "agreement":
        equal, compared = counts["equal"], counts["compared"]
        return np.sqrt(equal * equal / np.maximum(compared * compared, 1))  # where nothing is compared nothing is equal
    matched, sizes = counts["matched"], counts["sizes"]
    return 2.0 * matched / np.maximum(sizes, 1)  # where no label is positive none is matched


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

    def score_all(self, corpus, batch, chosen):
        """Yield, for each of the chosen distinct queries, its scores with all documents: float64[D]."""
        queries = batch.vectors[list(chosen)]
        for first in range(0, len(queries), self.capabilities.queries_at_once):
            some = queries[first : first + self.capabilities.queries_at_once]
            counts = _products(some, corpus.vectors, self.measure, lambda a, b: a @ b.T)
            yield from _scores(counts, self.measure)

    def score_pairs(self, corpus, batch, query, document):
        """Return the scores of pairs of a query and a document, float64[n], and how many labels were compared."""
        pairs = batch.vectors[query], corpus.vectors[document]
        counts = _products(*pairs, self.measure, lambda a, b: np.sum(a * b, axis=-1))
        return _scores(counts, self.measure), self.components(corpus, batch, query, document, None)

    def components(self, corpus, batch, query, document, scores):
        """Return, by the name "compared", how many labels are missing in neither report of each pair: int64[n]."""
        return {"compared": np.sum((batch.vectors[query] != 0) & (corpus.vectors[document] != 0), axis=-1)}
