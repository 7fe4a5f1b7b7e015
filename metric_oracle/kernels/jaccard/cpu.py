"""Search by the Jaccard coefficient on CPUs: its bound, for the search function of `_overlap_search.py`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for, jit
from metric_oracle.kernels._overlap import Features, count_all, count_marked, count_shared, features_of, set_marks
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels.jaccard.score import jaccard
from metric_oracle.kernels.topk.cpu import begin


class Jaccard(NamedTuple):
    """The scorer (see `_overlap_search.py`): Jaccard coefficient of sets of n-grams, documents with one query."""

    size: int | np.integer  # number of n-grams of the query
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal size, see `_overlap_search.find_best`
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the n-grams of the query


@compiled_for(bound, Jaccard)
def _(scorer, j, a, b):
    size = scorer.buckets[j, 2]  # all documents of a bucket are of one size
    return jaccard(min(a, size), size, scorer.size)


@compiled_for(driver.score, Jaccard)
def _(scorer, d, j):
    begin, end = scorer.index.fwd_ptr[d], scorer.index.fwd_ptr[d + 1]
    return jaccard(np.int64(count_marked(scorer.index.fwd_id, begin, end, scorer.mark)), end - begin, scorer.size)


@compiled_for(driver.is_excluded, Jaccard)
def _(scorer, d):
    return False


@jit
def search_jaccard(queries, first, last, index, buckets, k, work, answers):
    """Write the k best rows of the corpus for the queries first .. last - 1 into `answers`.

    `queries`, a `QueryFeatures`, has sets of n-grams, one family; `index` and `buckets` are as in `Jaccard`, and `work`
    is a `Workspace`.

    Exactness
    ---------
    Counts are integers; scores come from the compiled function of `score.py`; a document is dropped only by a bound.
    """
    visits = driver.new_visits(buckets[:, 2].copy())
    n_queries = len(queries.sizes)
    for q in range(first, last):
        begin(work.best, answers, q)
        ids = features_of(queries, q, 0, 1)
        size = np.int64(queries.sizes[q, 0])
        set_marks(ids, work.mark, 1)
        scorer = Jaccard(size, index, buckets, work.mark)
        rarest = driver.rarest_first(ids, index.post_ptr)
        driver.find_by_family(scorer, 0, rarest, size, visits, index, buckets, k, work)
        driver.finish(scorer, q, n_queries, ids, (ids, ids[:0]), index, buckets, k, work, answers)
        work.counts[0] = 0
        set_marks(ids, work.mark, 0)


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """Jaccard coefficient on CPUs."""

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries first .. last - 1 into `answers`."""
        search_jaccard(batch.queries, first, last, corpus.features, corpus.buckets, k, workspace, answers)
        driver.require_bounds(workspace)

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
