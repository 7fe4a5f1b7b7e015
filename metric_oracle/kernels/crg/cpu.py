"""CRG search: integer counts for every distinct set of positive labels, of which there are few."""

import numpy as np

from metric_oracle.kernels.crg.score import contribution
from metric_oracle.kernels.topk.reference import select


def search(index, encoded, first, last, k, found, work):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
    units = np.arange(len(index.positive))
    for q, scores in enumerate(score_all(index, encoded, range(first, last)), first):
        found.rows[q], found.scores[q], found.ties[q] = select(units, scores, index.row_ptr, index.row_id, k)


def score_all(index, encoded, chosen):
    """Yield the contribution of every unit against each of some distinct queries: float64[D]."""
    for q in chosen:
        _, missed, invented = _count(encoded.positive[q], index.positive)
        yield contribution(missed, invented, **encoded.prevalence)


def _count(truth, candidate):
    """Return true positives, false negatives and false positives of sets of positive labels, bool[..., L]: int64."""
    matched = np.sum(truth & candidate, axis=-1)
    return matched, np.sum(truth, axis=-1) - matched, np.sum(candidate, axis=-1) - matched


def score_pairs(index, encoded, query, unit):
    """Return the contribution of pairs of a distinct query and a unit, float64[n], and their components."""
    counts = components(index, encoded, query, unit, None)
    return contribution(counts["fn"], counts["fp"], **encoded.prevalence), counts


def new_work(index):
    """Nothing is kept between blocks."""
    return


def components(index, encoded, query, unit, scores):
    """Return the counts of pairs of a distinct query and a unit: int64[n] each."""
    counts = _count(encoded.positive[query], index.positive[unit])
    return dict(zip(("tp", "fn", "fp"), counts, strict=True))
