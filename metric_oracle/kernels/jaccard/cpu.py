"""Search by the Jaccard coefficient on CPUs: its bound, for the search function of `_overlap_search.py`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for
from metric_oracle.kernels._overlap import Features, count_marked, features_of
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels._pairs import score_of
from metric_oracle.kernels.jaccard.score import jaccard


class JaccardForm(NamedTuple):
    """The options of the Jaccard coefficient, of which there are none; see `_overlap_search.py` and `_pairs.py`."""


class Jaccard(NamedTuple):
    """The scorer (see `_overlap_search.py`): Jaccard coefficient of sets of n-grams, documents with one query."""

    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal size, see `SetCorpus`
    size: int | np.integer  # number of n-grams of the query
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the n-grams of the query


@compiled_for(driver.scorer_of, JaccardForm)
def _(form, found, corpus, batch, q):
    mark, sizes = found
    return Jaccard(corpus.features, corpus.buckets, np.int64(sizes[0]), mark), features_of(batch.queries, q, 0, 1)


compiled_for(driver.find, Jaccard)(driver.find_in_family)


@compiled_for(bound, Jaccard)
def _(scorer, j, a, b):
    size = scorer.buckets[j, 2]  # all documents of a bucket are of one size
    return jaccard(min(a, size), size, scorer.size)


@compiled_for(driver.score, Jaccard)
def _(scorer, d, j):
    begin, end = scorer.index.fwd_ptr[d], scorer.index.fwd_ptr[d + 1]
    return jaccard(np.int64(count_marked(scorer.index.fwd_id, begin, end, scorer.mark)), end - begin, scorer.size)


@compiled_for(score_of, JaccardForm)
def _(form, counts):
    return jaccard(counts[0], counts[1], counts[2])


@dataclass(frozen=True)
class Backend(driver.SetKernel):
    """Jaccard coefficient on CPUs."""

    form = JaccardForm()

    def components(self, counts):
        """Return precision and recall of pairs by name: float64[n] each."""
        shared, n_candidate, n_reference = counts
        return {"precision": shared / np.maximum(n_candidate, 1), "recall": shared / np.maximum(n_reference, 1)}
