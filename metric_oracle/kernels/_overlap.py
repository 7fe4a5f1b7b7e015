"""Sets of features: the index, the queries, and the counts that the kernels over them share.

A *document* is a distinct representation of the corpus (a distinct token sequence, a distinct graph), identified by an
int32 id; a *feature* is an element that a query and a document can share (the second occurrence of a bigram, an entity,
a relation). Features of all families (n-gram orders; entities, relations, ...) share one id space. Repeated n-grams
become features of their own (n-gram, occurrence), so every clipped count is the size of a set intersection.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._pairs import begin_query, count_pairs, count_run, end_query, score_of
from metric_oracle.kernels._sort import sort

FULL = 255  # a saturated count
# Bounds are computed in float64 from the same integers as the scores; the slack covers their rounding (a handful of
# operations, each within 2**-53) with three orders of magnitude to spare.
SLACK = 1.0 - 1e-12


class Features(NamedTuple):
    """Features of the documents of a corpus: posting lists and forward index."""

    post_ptr: np.ndarray  # int64[V + 1], offset of the posting list of each of V features
    post_unit: np.ndarray  # int32[P], documents that have the feature, ascending within a list: P postings in all
    fwd_ptr: np.ndarray  # int64[D + 1], offset of each of D documents in the forward index
    fwd_id: np.ndarray  # int32[P], forward index: the features of each document, family after family
    sizes: np.ndarray  # int32[F, D], number of features of each of F families (set or multiset size) in each document
    skip_slot: np.ndarray  # int32[V], row of `skip` for the long posting lists, -1 for the others
    # int32[S, C + 1], where each of the C finest length buckets begins in each of S long lists, and its length
    skip: np.ndarray
    row_ptr: np.ndarray  # int64[D + 1], offset of the corpus rows of each document in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows, ascending within a document


@jit
def with_forward(index, ptr, ids):
    """Return a copy of `index`, a `Features`, with another forward index: `ids`, int32[...], and its offsets `ptr`.

    A search prefetches the forward index. A metric that scores word sequences puts these in its place.
    """
    return Features(
        index.post_ptr,
        index.post_unit,
        ptr,
        ids,
        index.sizes,
        index.skip_slot,
        index.skip,
        index.row_ptr,
        index.row_id,
    )


class QueryFeatures(NamedTuple):
    """Features of a batch of distinct queries."""

    ptr: np.ndarray  # int64[Q * F + 1], offsets: family f of query q is `id[ptr[q * F + f] : ptr[q * F + f + 1]]`
    id: np.ndarray  # int32[...], ids of the query's features that occur in the corpus, unique within a query
    sizes: np.ndarray  # int32[Q, F], number of features of each family, including those that do not occur in the corpus


# `row_ptr` and `row_id` of a corpus with `features`.
ROWS = property(lambda corpus: corpus.features.row_ptr), property(lambda corpus: corpus.features.row_id)


class SetCorpus(NamedTuple):
    """Arrays of a corpus for a search over sets of features."""

    features: Features
    # int64[C, 8], length buckets: runs of documents of equal or similar sizes; for the columns see
    # `indexes.features.buckets_of`
    buckets: np.ndarray

    row_ptr, row_id = ROWS  # type: ignore[misc]


class SequenceCorpus(NamedTuple):
    """Arrays of a corpus whose documents are also sequences of words."""

    features: Features
    buckets: np.ndarray  # int64[C, 8], as in `SetCorpus`
    sequence: np.ndarray  # int32[...], word ids of each document in order
    sequence_ptr: np.ndarray  # int64[D + 1], offset of each document in `sequence`
    n_words: int  # size of the vocabulary

    row_ptr, row_id = ROWS  # type: ignore[misc]


class SetBatch(NamedTuple):
    """Arrays of distinct queries for a search over sets of features."""

    queries: QueryFeatures


class SequenceBatch(NamedTuple):
    """Arrays of distinct queries that are also sequences of words."""

    queries: QueryFeatures
    words: np.ndarray  # int64[...], word ids of each query in order, -1 for words that do not occur in the corpus
    words_ptr: np.ndarray  # int64[Q + 1], offset of each query in `words`


@jit
def features_of(queries, q, first, last):
    """Return the ids of the features of query `q` in the families first .. last - 1, family after family: int32[n]."""
    base = q * queries.sizes.shape[1]
    return queries.id[queries.ptr[base + first] : queries.ptr[base + last]]


@jit
def by_rarity(ids, post_ptr):
    """Return feature ids, int32[n], sorted by the length of their posting lists, shortest first, ties by id.

    `post_ptr` is that of `Features`.
    """
    n = len(ids)
    keys = np.empty(n, np.int64)
    for i in range(n):
        keys[i] = (post_ptr[ids[i] + 1] - post_ptr[ids[i]]) << 31 | ids[i]
    sort(keys)
    out = np.empty(n, np.int32)
    for i in range(n):
        out[i] = keys[i] & 0x7FFFFFFF
    return out


@inner
def lower_bound(values, begin, end, x):
    """Return the first index i of the ascending ``values[begin:end]`` with ``values[i] >= x``, else `end`."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] < x:
            begin = middle + 1
        else:
            end = middle
    return begin


@inner
def bucket_of(d, buckets):
    """Return the number of the length bucket that document `d` is in."""
    begin, end = 0, len(buckets)
    while end - begin > 1:
        middle = (begin + end) >> 1
        if buckets[middle, 0] <= d:
            begin = middle
        else:
            end = middle
    return begin


@inner
def postings(feature, buckets, lo, hi, index):
    """Return begin and end of the part of a feature's posting list that is in the length buckets lo .. hi - 1.

    They are indices into ``index.post_unit``.
    """
    begin = index.post_ptr[feature]
    end = index.post_ptr[feature + 1]
    if lo == 0 and hi == len(buckets):
        return begin, end
    slot = index.skip_slot[feature]
    if slot >= 0:
        return begin + index.skip[slot, buckets[lo, 6]], begin + index.skip[slot, buckets[hi - 1, 7]]
    begin = lower_bound(index.post_unit, begin, end, buckets[lo, 0])
    return begin, lower_bound(index.post_unit, begin, end, buckets[hi - 1, 1])


@inner
def set_marks(ids, mark, value):
    """Write `value` at the feature ids `ids` of the query bitmap `mark`: 1 marks a query's features, 0 clears them."""
    for i in range(len(ids)):
        mark[ids[i]] = value


@inner
def count_marked(fwd_id, begin, end, mark):
    """Return how many of the feature ids in ``fwd_id[begin:end]`` are marked in the query bitmap `mark`."""
    n = 0
    for p in range(np.uint64(begin), np.uint64(end)):  # unsigned indices avoid the test for negative ones
        n += mark[np.uint32(fwd_id[p])]
    return n


class Marks(NamedTuple):
    """What counting shared features of some families in pairs needs, see `_pairs.py`."""

    mark: np.ndarray  # uint8[V], scratch for the query bitmap: all zero between queries
    first: int  # the families first .. last - 1 are counted
    last: int


@compiled_for(begin_query, Marks)
def _(space, batch, q):
    set_marks(features_of(batch.queries, q, space.first, space.last), space.mark, 1)
    return space.mark, batch.queries.sizes[q]


@compiled_for(count_run, Marks)
def _(space, found, corpus, documents, counts):
    index = corpus.features
    _, sizes = found
    for i, d in enumerate(documents):
        begin = index.fwd_ptr[d]
        for f in range(space.last):
            end = begin + index.sizes[f, d]
            if f >= space.first:
                row = 3 * (f - space.first)
                counts[row, i] = count_marked(index.fwd_id, begin, end, space.mark)
                counts[row + 1, i] = index.sizes[f, d]
                counts[row + 2, i] = sizes[f]
            begin = end


@compiled_for(end_query, Marks)
def _(space, batch, q):
    set_marks(features_of(batch.queries, q, space.first, space.last), space.mark, 0)


def new_marks(corpus, first, last):
    """Allocate a `Marks` for a corpus with `features`, of which the families first .. last - 1 are counted."""
    return Marks(np.zeros(len(corpus.features.post_ptr) - 1, np.uint8), first, last)


def count_shared(corpus, batch, query, document, first, last):
    """Return three counts of each of the families first .. last - 1 for pairs: int64[3 F, n].

    They are the numbers of features that ``document[i]`` of `corpus`, which has `features`, and ``query[i]`` of
    `batch`, which has `queries`, share, that the document has, and that the query has.
    """
    out = np.empty((3 * (last - first), len(query)), np.int64)
    # Compiled once for all corpora, whatever else they have.
    sets = SetBatch(batch.queries), SetCorpus(corpus.features, corpus.buckets)
    count_pairs(new_marks(corpus, first, last), *sets, query, document, out)
    return out


# ---- all documents ---------------------------------------------------------------------------------------------------
# The counts equal those of `count_shared`. Counting them from the posting lists takes a tenth of the time.


@inner
def _score(form, matched, sizes, of_query, families, d, size):
    """Return what `score_of` returns for document d, whose counts in the four `families` this collects.

    `matched`, uint8 or int32[F, D], has the matches of all documents, `sizes`, int32[.., D], their sizes in all
    families, `of_query` the sizes of the query in the four, and `size` is that of the document in the first of them.
    """
    first, b, c, e = families
    return score_of(
        form,
        (
            np.int64(matched[0, d]),
            np.int64(size),
            of_query[0],
            np.int64(matched[b - first, d]),
            np.int64(sizes[b, d]),
            of_query[1],
            np.int64(matched[c - first, d]),
            np.int64(sizes[c, d]),
            of_query[2],
            np.int64(matched[e - first, d]),
            np.int64(sizes[e, d]),
            of_query[3],
        ),
    )


@cache
def compiled_scan(form: Any, first: int, last: int) -> Any:
    """Return a function that scores all documents, compiled for these options of a metric and these families.

    The compiler knows the values, not only their types as in a search: without their branches loops are vectorised
    (BLEU-2 with 42,000 documents: 0.11 rather than 0.36 ms). There are at most four families.
    """
    assert last - first <= 4
    # Numba fixes the length of a tuple when it compiles, so there are always four families: the last one is repeated.
    families = a, b, c, e = first, min(first + 1, last - 1), min(first + 2, last - 1), min(first + 3, last - 1)

    def scan(queries, q, index, runs, matched, out):
        """Write the scores of all documents with query `q` into `out`, float64[D].

        `runs` is what `runs_of` returns, and `matched`, [F, D], scratch: uint8, or int32 if a count may exceed 255.
        """
        matched[:] = 0
        for f in range(first, last):
            of_family = matched[f - first]
            for v in features_of(queries, q, f, f + 1):
                for p in range(np.uint64(index.post_ptr[v]), np.uint64(index.post_ptr[v + 1])):
                    of_family[np.uint32(index.post_unit[p])] += 1
        sizes, own = index.sizes, queries.sizes[q]
        # Read before the loops: the compiler must assume that writing to `out` changes `own`.
        of_query = np.int64(own[a]), np.int64(own[b]), np.int64(own[c]), np.int64(own[e])
        for i in range(len(runs)):
            begin, end, size = np.uint64(runs[i, 0]), np.uint64(runs[i, 1]), runs[i, 2]
            if size >= 0:  # outside of the loop, LLVM computes what follows from the size alone
                for d in range(begin, end):
                    out[d] = _score(form, matched, sizes, of_query, families, d, size)
            else:
                for d in range(begin, end):
                    out[d] = _score(form, matched, sizes, of_query, families, d, sizes[first, d])

    # Machine code is stored by module and name, see `_overlap_search.compiled_search`: with those of the metric, each
    # metric has a store of its own, which is current until the metric's sources change.
    scan.__qualname__ = f"scan_{type(form).__name__}"
    scan.__module__ = type(form).__module__
    return jit(scan)


def runs_of(buckets):
    """Return, for each run of documents of equal size, its first document, its end and the size: int64[R, 3].

    The runs are the length buckets. If documents of one bucket differ in size, all documents are one run of size -1.
    """
    if (buckets[:, 2] == buckets[:, 3]).all():
        return buckets[:, :3].copy()
    return np.array([[0, buckets[-1, 1], -1]])
