"""Counts of the features that a query shares with each document (matches), in one family of features or in two.

A search reads the posting lists of the query's features one after another and adds 1 to the count of each document in
them. A count is one byte, so it stops at `FULL`. The search in `_overlap_search.py` is compiled for both kinds of
counts, with the functions below inlined. In their parameters, `counts` is a `OneFamily` or a `TwoFamilies`, `scorer` is
the metric with its query (see `_overlap_search.py`), d a document, j a length bucket (a run of documents of equal
size), i the number of lists that were read for that bucket, and theta the threshold: the score of the k-th best row so
far.
"""

from typing import Any, NamedTuple

import numpy as np

from metric_oracle.kernels._bitmaps import ALL, DENSEST, WORD, Bitmaps, count_bits, row_of_bits
from metric_oracle.kernels._jit import compiled_for, inner
from metric_oracle.kernels._overlap import FULL, SLACK, Features, postings
from metric_oracle.kernels._simd import bits_at_least, count_ones, first_one

# Fixed-point one. A count of one byte times its weight is at most ONE + FULL, so that a weighted count fits 16 bits:
# half as many would fit into a register if they had 32.
ONE = (1 << 15) - 256
BLOCK = 64  # documents whose weighted counts are compared at once
LONGEST = 1 << 15  # documents that are counted in 16 bits


class OneFamily(NamedTuple):
    """Counts of one family of features for one query."""

    matched: np.ndarray  # uint8[D], matches so far of each document, a row of `Workspace.counts`
    # int64[C], minimum overlap: the least number of matches with which a document of each length bucket can reach the
    # threshold, `n_lists + 1` if no number suffices. Comparing counts with this integer drops most documents.
    minimum: np.ndarray
    n_lists: int  # posting lists, one for each of the query's features that occur in the corpus
    # number of features of the query; documents with most matches for the sum of both sizes are scored first
    size: int | np.integer
    # float64[C], threshold for which each minimum was computed, -1 for none. It is computed when `is_out_of_reach` asks
    # for the bucket, because a threshold often rises again before another bucket is asked for.
    demanded: np.ndarray
    met: np.ndarray  # uint8[D], nonzero for documents that an earlier search of the query met, or uint8[0]


class TwoFamilies(NamedTuple):
    """Counts of two families of features for one query, whose posting lists are read in one order."""

    matched: np.ndarray  # uint8[2, D], matches so far of each document in each family
    second: int | np.integer  # first feature id of the second family
    unread: np.ndarray  # int64[2, n_lists + 1], how many lists of each family are still unread after i lists
    hidden: np.ndarray  # int64[2], the most matches of each family beyond `FULL`, which a count of one byte cannot show
    # uint16[2, C], the most that one match of each family adds to the score in each bucket, in steps of 1 / ONE
    weight: np.ndarray


class Lists(NamedTuple):
    """The posting lists of a query's features."""

    ids: np.ndarray  # int32[n_lists], the features, in the order in which their lists are read
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets
    bitmaps: Bitmaps  # of the thread


class ListPart(NamedTuple):
    """The part of a posting list that is in a run of documents."""

    feature: int | np.integer
    begin: int  # of the part in `Features.post_unit`
    end: int


@inner
def part_of_list(lists, i, lo, hi):
    """Return the `ListPart` of the i-th list for the documents of the buckets lo .. hi - 1."""
    begin, end = postings(lists.ids[i], lists.buckets, lo, hi, lists.index)
    return ListPart(lists.ids[i], begin, end)


def bound(scorer: Any, j: int, a: int, b: int) -> float:
    """Return an upper bound on the score of a document of length bucket j with a and b matches in the two families.

    Each metric registers its own version for its class of `scorer`; see `_overlap_search.py`.
    """
    raise NotImplementedError


# ---- vectorised passes over bytes ------------------------------------------------------------------------------------


@inner
def _read(count, lists, part, documents):
    """Add 1 to ``count[d]`` for each document d of a part of a posting list.

    Counts stop at `FULL` if the query has more lists than that; otherwise they are plainly incremented, which is three
    times as fast. Unsigned indices avoid the test for negative ones. The parameters are those of `read_postings`.
    """
    index, begin, end = lists.index, part.begin, part.end
    first, last = documents
    saturate = len(lists.ids) > FULL
    row = np.int64(-1)
    if (end - begin) * DENSEST >= last - first and end > begin and not saturate:
        row = row_of_bits(part.feature, end - begin, index, lists.bitmaps)
    if row >= 0:
        count_bits(row, first, last, count, lists.bitmaps)
    elif saturate:
        for p in range(np.uint64(begin), np.uint64(end)):
            d = np.uint32(index.post_unit[p])
            c = count[d]
            count[d] = c + np.uint8(c < FULL)
    else:
        for p in range(np.uint64(begin), np.uint64(end)):
            count[np.uint32(index.post_unit[p])] += np.uint8(1)


@inner
def count_at_least(count, begin, end, least):
    """Return how many of ``count[begin:end]`` are at least `least`, converted to their dtype."""
    limit = count.dtype.type(least)
    n = np.int64(0)
    for d in range(np.uint64(begin), np.uint64(end)):  # vectorised
        n += count[d] >= limit
    return n


@inner
def _count_bytes(count, begin, end, least):
    """Return how many of the bytes ``count[begin:end]`` are at least `least`, which is 1 to 255.

    Whole words of `WORD` bytes are compared, to which `count` is padded. What lies outside of the range in the first
    and the last word is subtracted.
    """
    address, limit = count.ctypes.data, np.uint8(least)
    n = np.int64(0)
    for w in range(begin >> 6, (end + WORD - 1) >> 6):
        n += count_ones(bits_at_least(address + WORD * w, limit))
    if begin & 63:
        n -= count_ones(bits_at_least(address + WORD * (begin >> 6), limit) & ~(ALL << np.uint64(begin & 63)))
    if end & 63:
        n -= count_ones(bits_at_least(address + WORD * (end >> 6), limit) & ALL << np.uint64(end & 63))
    return n


@inner
def _next_at_least(count, begin, end, least):
    """Return the first d from `begin` on with ``count[d] >= least``, else `end`, as `_count_bytes`."""
    address, limit = count.ctypes.data, np.uint8(least)
    of_word = ALL << np.uint64(begin & 63)
    for w in range(begin >> 6, (end + WORD - 1) >> 6):
        found = bits_at_least(address + WORD * w, limit) & of_word
        if found:
            return min(WORD * w + first_one(found), end)
        of_word = ALL
    return end


@inner
def largest(count, begin, end):
    """Return the largest of ``count[begin:end]``, 0 if none is above 0."""
    top = count.dtype.type(0)
    for d in range(np.uint64(begin), np.uint64(end)):  # unsigned index and plain choice: LLVM vectorises this form
        c = count[d]
        top = c if c > top else top
    return top


@inner
def _weighted(matched, d, weights):
    """Return the weighted count of document d, a uint16, as which Numba would not compute it.

    `matched`, uint8[2, D], has its counts in both families, and `weights`, a uint16 for each, is what `bucket_weights`
    returns.
    """
    return np.uint16(np.uint16(matched[0, d]) * weights[0] + np.uint16(matched[1, d]) * weights[1])


@inner
def _count_weighted(matched, begin, end, weights, least):
    """Return for how many d from `begin` to `end` - 1 the weighted count, see `_weighted`, is at least `least`."""
    limit = np.uint16(least)
    n = np.int64(0)
    while begin < end:
        stop = min(begin + LONGEST, end)
        of_block = np.uint16(0)
        for d in range(np.uint64(begin), np.uint64(stop)):  # vectorised
            of_block = np.uint16(of_block + np.uint16(_weighted(matched, d, weights) >= limit))
        n += np.int64(of_block)
        begin = stop
    return n


@inner
def _next_weighted(matched, begin, end, weights, least):
    """Return the first d from `begin` on whose weighted count, see `_weighted`, is at least `least`, else `end`."""
    limit = np.uint16(least)
    while begin + BLOCK <= end:
        first, hit = np.uint64(begin), np.uint16(0)
        for i in range(np.uint64(BLOCK)):  # vectorised; a slice of both rows, whose stride LLVM does not know, is not
            hit = np.uint16(hit | np.uint16(_weighted(matched, first + i, weights) >= limit))
        if hit:
            break
        begin += BLOCK
    while begin < end and _weighted(matched, begin, weights) < limit:
        begin += 1
    return begin


@inner
def _largest_weighted(matched, begin, end, weights):
    """Return the greatest weighted count, see `_weighted`, of the documents from `begin` to `end` - 1, or 0."""
    top = np.uint16(0)
    for d in range(np.uint64(begin), np.uint64(end)):
        value = _weighted(matched, d, weights)
        top = value if value > top else top
    return top


@inner
def _most(count, n_lists, i):
    """Return the most matches of a document whose count is `count` after `i` of a query's `n_lists` lists were read.

    Each unread list may add a match; a count of `FULL` may stand for any number.
    """
    return np.int64(count) + n_lists - i if count < FULL else n_lists


@inner
def _best_ratio(count, buckets, lo, hi, query_size):
    """Return the document of the buckets lo .. hi - 1 with most matches for its size and the query's, and its bucket.

    The matches in `count` are divided by the sum of both sizes. Both results are -1 if no document has a match.
    """
    bucket, matched, size = np.int64(-1), np.int64(0), np.int64(1)
    for j in range(lo, hi):
        c = np.int64(largest(count, buckets[j, 0], buckets[j, 1]))
        if c * size > matched * (buckets[j, 2] + query_size):
            bucket, matched, size = np.int64(j), c, buckets[j, 2] + query_size
    if bucket < 0:
        return bucket, bucket
    return np.int64(_next_at_least(count, buckets[bucket, 0], buckets[bucket, 1], matched)), bucket


@inner
def _best_weighted(counts, buckets, lo, hi):
    """Return the document of the buckets lo .. hi - 1 with the largest weighted count, and its bucket.

    `counts` is a `TwoFamilies`. Both results are -1 if all counts are 0.
    """
    bucket, value = np.int64(-1), np.uint16(0)
    for j in range(lo, hi):
        v = _largest_weighted(counts.matched, buckets[j, 0], buckets[j, 1], bucket_weights(counts, j))
        if v > value:
            bucket, value = np.int64(j), v
    if bucket < 0:
        return bucket, bucket
    begin, end = buckets[bucket, 0], buckets[bucket, 1]
    d = _next_weighted(counts.matched, begin, end, bucket_weights(counts, bucket), value)
    return np.int64(d), bucket


# ---- counts of one family and of two ---------------------------------------------------------------------------------
# Each function has one version for each kind of counts.


def is_out_of_reach(counts, scorer, j, i, theta):
    """Return whether no document of bucket j that is in none of the first i lists can reach the threshold theta.

    `counts` is a `OneFamily` or a `TwoFamilies`; for the former, raise the minimum overlap of the bucket to what theta
    demands.
    """
    raise NotImplementedError


def is_met(counts, d):
    """Return whether an earlier search of the query met document d: it is not scored again.

    `counts` is a `OneFamily` or a `TwoFamilies`.
    """
    raise NotImplementedError


def reach(counts, scorer, d, j, i):
    """Return an upper bound on the score of document d of bucket j, from its count after i posting lists.

    `counts` is a `OneFamily` or a `TwoFamilies`, and `scorer` the metric with its query.
    """
    raise NotImplementedError


def bucket_weights(counts, j):
    """Return the factors of both families' counts in the weighted count of a document of bucket j.

    `counts` is a `OneFamily`, for which they are (1, 0), or a `TwoFamilies`.
    """
    raise NotImplementedError


def filter_reach(counts, scorer, d, j, i, of_bucket):
    """Return the upper bound on the score of document d of bucket j by which `next_passing` decides, after i lists.

    It is no less than `reach`. `of_bucket` is what `bucket_weights` returns for the bucket.
    """
    raise NotImplementedError


def least_passing(counts, j, i, of_bucket, theta):
    """Return the least weighted count with which a document of bucket j can reach theta after i lists, at least 1.

    It is called after `is_out_of_reach`. `of_bucket` is what `bucket_weights` returns for the bucket.
    """
    raise NotImplementedError


def n_passing(counts, begin, end, of_bucket, least):
    """Return how many of the documents begin .. end - 1 have a weighted count of at least `least`.

    `counts` is a `OneFamily` or a `TwoFamilies`, and `of_bucket` what `bucket_weights` returns for their bucket.
    """
    raise NotImplementedError


def next_passing(counts, begin, end, of_bucket, least):
    """Return the first of the documents begin .. end - 1 whose weighted count is at least `least`, else `end`.

    `counts` is a `OneFamily` or a `TwoFamilies`, and `of_bucket` what `bucket_weights` returns for their bucket.
    """
    raise NotImplementedError


def most_promising(counts, buckets, lo, hi):
    """Return the document of the buckets lo .. hi - 1 whose count promises the best score, and its bucket.

    Both are -1 if no document has a match. `counts` is a `OneFamily` or a `TwoFamilies`.
    """
    raise NotImplementedError


def set_count(counts, d, value):
    """Set the count of document d in `counts`, a `OneFamily` or a `TwoFamilies`, to `value`; of two families both."""
    raise NotImplementedError


def read_postings(counts, lists, part, documents):
    """Add 1 to the counts of the documents in a part of a posting list; a count stops at `FULL`.

    `counts` is a `OneFamily` or a `TwoFamilies`, where the feature belongs to one; `lists` is a `Lists`, and `part` a
    `ListPart`. It has the postings of the documents from the first of `documents` up to the second.
    """
    raise NotImplementedError


@inner
def _raise_minimum(counts, scorer, j, theta):
    """Raise the minimum overlap of bucket j (`OneFamily.minimum`) to what the threshold theta demands."""
    # A bound never falls, so the minimum is found by steps from a guess: that of the neighbouring buckets.
    n, limit = counts.n_lists, theta * SLACK
    first = counts.minimum[j]
    below, least = first - 1, np.int64(n + 1)  # the minimum is above `below` and at most `least`
    near = max(counts.minimum[max(j - 1, 0)], counts.minimum[min(j + 1, len(counts.minimum) - 1)])
    trial, step = max(min(near, n), first), np.int64(1)
    while least - below > 1:
        if bound(scorer, j, trial, 0) < limit:
            below = trial
        else:
            least = trial
        if least > n:
            trial = min(below + step, n)
        elif below < first:
            trial = max(least - step, first)
        else:
            trial = (below + least) >> 1
        step += step
    counts.minimum[j] = least
    counts.demanded[j] = theta


@compiled_for(is_out_of_reach, OneFamily)
def _(counts, scorer, j, i, theta):
    if counts.demanded[j] < theta:
        _raise_minimum(counts, scorer, j, theta)
    return counts.minimum[j] > counts.n_lists - i


@compiled_for(is_out_of_reach, TwoFamilies)
def _(counts, scorer, j, i, theta):
    return bound(scorer, j, counts.unread[0, i], counts.unread[1, i]) < theta * SLACK


@compiled_for(is_met, OneFamily)
def _(counts, d):
    return len(counts.met) > 0 and counts.met[d] != 0


@compiled_for(is_met, TwoFamilies)
def _(counts, d):
    return False


@compiled_for(reach, OneFamily)
def _(counts, scorer, d, j, i):
    return bound(scorer, j, _most(counts.matched[d], counts.n_lists, i), 0)


@compiled_for(reach, TwoFamilies)
def _(counts, scorer, d, j, i):
    a = counts.unread[0, i] + counts.hidden[0] + np.int64(counts.matched[0, d])
    return bound(scorer, j, a, counts.unread[1, i] + counts.hidden[1] + np.int64(counts.matched[1, d]))


@compiled_for(bucket_weights, OneFamily)
def _(counts, j):
    return np.int32(1), np.int32(0)


@compiled_for(bucket_weights, TwoFamilies)
def _(counts, j):
    return counts.weight[0, j], counts.weight[1, j]


@compiled_for(filter_reach, OneFamily)
def _(counts, scorer, d, j, i, of_bucket):
    return reach(counts, scorer, d, j, i)


@compiled_for(filter_reach, TwoFamilies)
def _(counts, scorer, d, j, i, of_bucket):
    a = counts.unread[0, i] + counts.hidden[0] + np.int64(counts.matched[0, d])
    b = counts.unread[1, i] + counts.hidden[1] + np.int64(counts.matched[1, d])
    return (a * of_bucket[0] + b * of_bucket[1]) * (1.0 / ONE)


@compiled_for(least_passing, OneFamily)
def _(counts, j, i, of_bucket, theta):
    return min(max(counts.minimum[j] - (counts.n_lists - i), 1), FULL)


@compiled_for(least_passing, TwoFamilies)
def _(counts, j, i, of_bucket, theta):
    to_come = (counts.unread[0, i] + counts.hidden[0]) * of_bucket[0]
    to_come += (counts.unread[1, i] + counts.hidden[1]) * of_bucket[1]
    return np.int32(max(np.int64(theta * SLACK * ONE) - to_come, 1))


@compiled_for(n_passing, OneFamily)
def _(counts, begin, end, of_bucket, least):
    return _count_bytes(counts.matched, begin, end, least)


@compiled_for(n_passing, TwoFamilies)
def _(counts, begin, end, of_bucket, least):
    return _count_weighted(counts.matched, begin, end, of_bucket, least)


@compiled_for(next_passing, OneFamily)
def _(counts, begin, end, of_bucket, least):
    return _next_at_least(counts.matched, begin, end, least)


@compiled_for(next_passing, TwoFamilies)
def _(counts, begin, end, of_bucket, least):
    return _next_weighted(counts.matched, begin, end, of_bucket, least)


@compiled_for(most_promising, OneFamily)
def _(counts, buckets, lo, hi):
    return _best_ratio(counts.matched, buckets, lo, hi, counts.size)


@compiled_for(most_promising, TwoFamilies)
def _(counts, buckets, lo, hi):
    return _best_weighted(counts, buckets, lo, hi)


@compiled_for(set_count, OneFamily)
def _(counts, d, value):
    counts.matched[d] = value


@compiled_for(set_count, TwoFamilies)
def _(counts, d, value):
    counts.matched[0, d] = value
    counts.matched[1, d] = value


@compiled_for(read_postings, OneFamily)
def _(counts, lists, part, documents):
    _read(counts.matched, lists, part, documents)


@compiled_for(read_postings, TwoFamilies)
def _(counts, lists, part, documents):
    _read(counts.matched[np.int64(part.feature >= counts.second)], lists, part, documents)
