"""Search by the Jaccard coefficient on CPUs: its bound, for the search function of `_overlap_search.py`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for
from metric_oracle.kernels._overlap import Features, count_all, count_marked, count_shared, features_of, new_marks
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels.jaccard.score import jaccard


class JaccardForm(NamedTuple):
    """Says that a search is by the Jaccard coefficient, see `_overlap_search.py`; there are no options."""


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


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """Jaccard coefficient on CPUs."""

    form = JaccardForm()

    def new_space(self, corpus):
        """Allocate the scratch arrays that `begin_query` takes."""
        return new_marks(corpus, 0, 1)

    def counts(self, corpus, batch, query, document, known=None):
        """Return, for pairs, how many n-grams are shared, in the candidate and in the reference: int64[3, n]."""
        return count_shared(corpus, batch, query, document, 0, 1)

    def scores(self, counts):
        """Return the coefficients of pairs, float64[n], with the same division of integers as `jaccard`."""
        shared, n_candidate, n_reference = counts
        return shared / np.maximum(n_candidate + n_reference - shared, 1)

    def components(self, counts):
        """Return precision and recall of pairs by name: float64[n] each."""
        shared, n_candidate, n_reference = counts
        return {"precision": shared / np.maximum(n_candidate, 1), "recall": shared / np.maximum(n_reference, 1)}

    def score_all(self, corpus, batch, chosen):
        """Yield the coefficient of every document with each of the chosen queries, by the lists of its n-grams."""
        sizes = corpus.features.sizes[0].astype(np.int64)
        for q in chosen:
            shared = count_all(batch.queries, q, 0, 1, corpus.features)[0].astype(np.int64)
            yield self.scores((shared, sizes, np.int64(batch.queries.sizes[q, 0])))
