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
    count_marked,
    features_of,
)
from metric_oracle.kernels._overlap_counts import ONE, TwoFamilies, bound
from metric_oracle.kernels._pairs import score_of
from metric_oracle.kernels.radgraph.score import NAMES, f1, mean_f1


class GraphForm(NamedTuple):
    """The option of the F1 of one family, see `_overlap_search.py` and `_pairs.py`."""

    family: int  # family that is compared


class MeanGraphForm(NamedTuple):
    """The options of the mean F1 of two families, see `_overlap_search.py` and `_pairs.py`."""

    family_a: int  # first of the two families, which is first in the forward index
    family_b: int  # second one


class GraphF1(NamedTuple):
    """The scorer (see `_overlap_search.py`) of a metric of one family: F1 of documents against one query."""

    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of similar sizes, see `SetCorpus`
    size: int | np.integer  # number of features of the query in this family
    family: int  # as in `GraphForm`
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the features of the query


class MeanGraphF1(NamedTuple):
    """The scorer (see `_overlap_search.py`) of a metric of two families: mean of both F1 against one query."""

    # as in `GraphF1`
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # as in `GraphF1`
    size_a: int | np.integer  # number of features of the query in the first family
    size_b: int | np.integer  # number of features of the query in the second family
    family_a: int  # as in `MeanGraphForm`
    family_b: int  # as in `MeanGraphForm`
    mark: np.ndarray  # as in `GraphF1`


@compiled_for(driver.scorer_of, GraphForm)
def _(form, found, corpus, batch, q):
    mark, sizes = found
    ids = features_of(batch.queries, q, form.family, form.family + 1)
    return GraphF1(corpus.features, corpus.buckets, np.int64(sizes[form.family]), form.family, mark), ids


@compiled_for(driver.scorer_of, MeanGraphForm)
def _(form, found, corpus, batch, q):
    mark, sizes = found
    a, b = form.family_a, form.family_b
    ids_a, ids_b = features_of(batch.queries, q, a, a + 1), features_of(batch.queries, q, b, b + 1)
    size_a, size_b = np.int64(sizes[a]), np.int64(sizes[b])
    return MeanGraphF1(corpus.features, corpus.buckets, size_a, size_b, a, b, mark), (ids_a, ids_b)


compiled_for(driver.find, GraphF1)(driver.find_in_family)


@compiled_for(driver.find, MeanGraphF1)
def _(scorer, of_families, k, work):
    ids_a, ids_b = of_families
    ids = by_rarity(np.concatenate((ids_a, ids_b)), scorer.index.post_ptr)
    counts = _two_families(ids, ids_a, ids_b, scorer, work.counts)
    driver.find_best(scorer, counts, ids, scorer.size_a + scorer.size_b, k, work)
    work.counts[:] = 0
    return driver.Shared(ids, ids_a, ids_b)


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


# Counts of each family: shared features, those of the candidate and of the reference.
@compiled_for(score_of, GraphForm)
def _(form, counts):
    return f1(counts[0], counts[1], counts[2])


@compiled_for(score_of, MeanGraphForm)
def _(form, counts):
    return mean_f1(counts[0], counts[1] + counts[2], counts[3], counts[4] + counts[5])


@dataclass(frozen=True)
class Backend(driver.SetKernel):
    """RadGraph F1 on CPUs."""

    family_a: int  # family whose F1 is computed
    family_b: int  # the second family, the one after it, or -1 for none

    @property
    def form(self):
        """Return the options for which the search is compiled."""
        return GraphForm(self.family_a) if self.family_b < 0 else MeanGraphForm(self.family_a, self.family_b)

    @property
    def families(self):
        """Return the range of the families that are compared: its first family, and its end."""
        return self.family_a, max(self.family_a, self.family_b) + 1

    def sizes(self, buckets):
        """Return the sizes of the documents of length buckets, of both families if two are compared: int64[C]."""
        return buckets[:, 2] + buckets[:, 4] * (self.family_b >= 0)

    def components(self, counts):
        """Return the F1 of each family for pairs by name: float64[n] each."""
        triples = counts.reshape(len(counts) // 3, 3, counts.shape[1])
        return {
            NAMES[f]: 2.0 * matched / np.maximum(size + reference_size, 1)
            for f, (matched, size, reference_size) in enumerate(triples, self.family_a)
        }
