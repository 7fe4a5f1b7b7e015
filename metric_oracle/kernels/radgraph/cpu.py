"""RadGraph F1 search on CPUs: bounds of one F1 or of the mean of two, for the search function of `_overlap_search.py`.

A *family* is one of four sets of features of a graph: entities, relations, and the two sets of RG_ER and RG_ER-bar.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._overlap import (
    FULL,
    Features,
    by_rarity,
    count_all,
    count_marked,
    count_shared,
    features_of,
    set_marks,
)
from metric_oracle.kernels._overlap_counts import ONE, TwoFamilies, bound
from metric_oracle.kernels._pairs import score_of, scores_of
from metric_oracle.kernels.radgraph.score import NAMES, f1, mean_f1
from metric_oracle.kernels.topk.cpu import begin


class GraphF1(NamedTuple):
    """The scorer (see `_overlap_search.py`) of a metric of one family: F1 of documents against one query."""

    family: int  # family that is compared
    size: int | np.integer  # number of features of the query in this family
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of similar sizes, see `_overlap_search.find_best`
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the features of the query


class MeanGraphF1(NamedTuple):
    """The scorer (see `_overlap_search.py`) of a metric of two families: mean of both F1 against one query."""

    family_a: int  # first of the two families, which is first in the forward index
    family_b: int  # second one
    size_a: int | np.integer  # number of features of the query in the first family
    size_b: int | np.integer  # number of features of the query in the second family
    # as in `GraphF1`
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # as in `GraphF1`
    mark: np.ndarray  # as in `GraphF1`


@inner
def _bound_f1(matched, least, greatest, n_query):
    """Bound the F1 of sets of `n_query` and of `least` to `greatest` features that share at most `matched`."""
    size = min(max(matched, least), greatest)
    return f1(min(matched, size), size, n_query)


@compiled_for(bound, GraphF1)
def _(scorer, j, a, b):
    return _bound_f1(a, scorer.buckets[j, 2], scorer.buckets[j, 3], scorer.size)


@compiled_for(bound, MeanGraphF1)
def _(scorer, j, a, b):
    buckets = scorer.buckets
    f1_a = _bound_f1(a, buckets[j, 2], buckets[j, 3], scorer.size_a)
    return 0.5 * (f1_a + _bound_f1(b, buckets[j, 4], buckets[j, 5], scorer.size_b))


@inner
def _count_family(d, family, index, mark):
    """Return how many features of document d in a family are marked in `mark`, the query's, and how many it has."""
    begin = index.fwd_ptr[d]
    for f in range(family):
        begin += index.sizes[f, d]
    size = np.int64(index.sizes[family, d])
    return np.int64(count_marked(index.fwd_id, begin, begin + size, mark)), size


@compiled_for(driver.score, GraphF1)
def _(scorer, d, j):
    matched, size = _count_family(d, scorer.family, scorer.index, scorer.mark)
    return f1(matched, size, scorer.size)


@compiled_for(driver.score, MeanGraphF1)
def _(scorer, d, j):
    match_a, size_a = _count_family(d, scorer.family_a, scorer.index, scorer.mark)
    match_b, size_b = _count_family(d, scorer.family_b, scorer.index, scorer.mark)
    return mean_f1(match_a, size_a + scorer.size_a, match_b, size_b + scorer.size_b)


@compiled_for(driver.is_excluded, GraphF1)
def _(scorer, d):
    return False


@compiled_for(driver.is_excluded, MeanGraphF1)
def _(scorer, d):
    return False


@jit
def search_radgraph(family_a, family_b, queries, first, last, index, buckets, k, work, answers):
    """Write the k best rows of the corpus for the queries first .. last - 1 into `answers`.

    The F1 of `family_a` and of `family_b` are averaged; `family_b` is the one after `family_a`, or -1 for a metric of
    one family. `queries` is a `QueryFeatures`, `index` and `buckets` are as in `GraphF1`, and `work` is a `Workspace`.

    Exactness
    ---------
    Counts are integers; scores come from the compiled functions of `score.py`; a document is dropped only by a bound.

    Source
    ------
    Yu et al., Patterns 2023 (RadGraph F1); Delbrouck et al., EMNLP Findings 2022 (RG_E, RG_ER, RG_ER-bar).
    """
    two = family_b >= 0
    visits = driver.new_visits(buckets[:, 2] + buckets[:, 4] * two)
    n_queries = len(queries.sizes)
    for q in range(first, last):
        begin(work.best, answers, q)
        ids_a = features_of(queries, q, family_a, family_a + 1)
        ids_b = features_of(queries, q, family_b, family_b + 1) if two else ids_a[:0]
        size_a = np.int64(queries.sizes[q, family_a])
        size_b = np.int64(queries.sizes[q, family_b]) if two else np.int64(0)
        set_marks(ids_a, work.mark, 1)
        set_marks(ids_b, work.mark, 1)
        if two:
            ids = by_rarity(np.concatenate((ids_a, ids_b)), index.post_ptr)
            mean = MeanGraphF1(family_a, family_b, size_a, size_b, index, buckets, work.mark)
            both = _two_families(ids, ids_a, ids_b, mean, work.counts)
            driver.find_best(mean, both, ids, size_a + size_b, visits, index, buckets, k, work)
            driver.finish(mean, q, n_queries, ids, (ids_a, ids_b), index, buckets, k, work, answers)
            work.counts[:] = 0
        else:
            single = GraphF1(family_a, size_a, index, buckets, work.mark)
            rarest = driver.rarest_first(ids_a, index.post_ptr)
            driver.find_by_family(single, 0, rarest, size_a, visits, index, buckets, k, work)
            driver.finish(single, q, n_queries, ids_a, (ids_a, ids_b), index, buckets, k, work, answers)
            work.counts[0] = 0
        set_marks(ids_a, work.mark, 0)
        set_marks(ids_b, work.mark, 0)


@jit
def _two_families(ids, ids_a, ids_b, scorer, counts):
    """Return a `TwoFamilies` for one query, whose posting lists are read in the order of `ids`.

    `ids_a` and `ids_b` are its features by family, `scorer` is its `MeanGraphF1`, and `counts` that of `Workspace`.
    """
    second = np.int64(2**31)  # the least id of the second family
    for v in ids_b:
        second = min(second, np.int64(v))
    unread = np.zeros((2, len(ids) + 1), np.int64)
    for i in range(len(ids) - 1, -1, -1):
        for family in range(2):  # compiled in a fiftieth of the time of an assignment of slices
            unread[family, i] = unread[family, i + 1]
        unread[1 if ids[i] >= second else 0, i] += 1
    hidden = np.array([max(len(ids_a) - FULL, 0), max(len(ids_b) - FULL, 0)])
    weight = np.empty((2, len(scorer.buckets)), np.uint16)
    for j in range(len(scorer.buckets)):  # of the smallest document, rounded up
        weight[0, j] = ONE / max(scorer.buckets[j, 2] + scorer.size_a, 1) + 1.0
        weight[1, j] = ONE / max(scorer.buckets[j, 4] + scorer.size_b, 1) + 1.0
    return TwoFamilies(counts, second, unread, hidden, weight)


@jit
def _score_all(queries, q, family_a, family_b, index, matched, out):
    """Write the F1 of all documents with query q, or the mean of two, into `out`, float64[D].

    `matched` has the matches of each document in one or two families; `family_b` is -1 for one family.
    """
    n_a = np.int64(queries.sizes[q, family_a])
    if family_b < 0:
        for d in range(len(out)):
            out[d] = f1(np.int64(matched[0, d]), np.int64(index.sizes[family_a, d]), n_a)
        return
    n_b = np.int64(queries.sizes[q, family_b])
    for d in range(len(out)):
        sizes_a = index.sizes[family_a, d] + n_a
        sizes_b = index.sizes[family_b, d] + n_b
        out[d] = mean_f1(np.int64(matched[0, d]), sizes_a, np.int64(matched[1, d]), sizes_b)


class GraphForm(NamedTuple):
    """The options of the F1 of pairs, see `_pairs.py`."""

    n: int  # 1 or 2, the number of families whose F1 is averaged


@compiled_for(score_of, GraphForm)
def _(form, counts):
    # counts of each family: shared features, those of the candidate and of the reference
    if form.n == 1:
        return f1(counts[0], counts[1], counts[2])
    return mean_f1(counts[0], counts[1] + counts[2], counts[3], counts[4] + counts[5])


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """RadGraph F1 on CPUs."""

    family_a: int  # family whose F1 is computed
    family_b: int  # the second family, the one after it, or -1 for none

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries first .. last - 1 into `answers`."""
        search_radgraph(
            self.family_a,
            self.family_b,
            batch.queries,
            first,
            last,
            corpus.features,
            corpus.buckets,
            k,
            workspace,
            answers,
        )
        driver.require_bounds(workspace)

    def score_all(self, corpus, batch, chosen):
        """Yield the F1 of every document with each of the chosen queries: float64[D], overwritten by the next."""
        out = np.empty(len(corpus.features.fwd_ptr) - 1)
        for q in chosen:
            matched = count_all(batch.queries, q, self.family_a, 1 + (self.family_b >= 0), corpus.features)
            _score_all(batch.queries, q, self.family_a, self.family_b, corpus.features, matched, out)
            yield out

    def counts(self, corpus, batch, query, document, known=None):
        """Return, by family, how many features the reports of pairs share and each has: int64[3 F, n]."""
        last = max(self.family_a, self.family_b) + 1
        return count_shared(corpus, batch, query, document, self.family_a, last)

    def scores(self, counts):
        """Return the F1 of pairs, or the mean of two: float64[n]."""
        return scores_of(GraphForm(len(counts) // 3), counts)

    def components(self, counts):
        """Return the F1 of each family for pairs by name: float64[n] each."""
        triples = counts.reshape(len(counts) // 3, 3, counts.shape[1])
        return {
            NAMES[f]: 2.0 * matched / np.maximum(size + reference_size, 1)
            for f, (matched, size, reference_size) in enumerate(triples, self.family_a)
        }
