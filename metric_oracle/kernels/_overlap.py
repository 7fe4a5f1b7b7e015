"""Shared parts of the exact searches over sets of features: postings, counting, marking.

A *unit* is a distinct representation of the corpus (a distinct token sequence, a distinct graph), identified by an
int32 id; a *feature* is one thing that a query and a unit can share (the second occurrence of a bigram, an entity, a
relation). Features of all families (n-gram orders; entities, relations, ...) share one id space. Repeated n-grams
become features of their own (n-gram, occurrence), so every clipped count is the size of a set intersection. A *cell*
is a run of units of equal sizes: units are sorted by size, and a bound holds for a whole cell.

Why it is exact: a unit that holds none of the features read so far can only match the features still unread. Each
metric turns that into an upper bound on its score; once the bound is below the worst score that is kept, no such unit
can enter the list (the prefix filter of exact set-similarity search: Chaudhuri et al., ICDE 2006; Bayardo et al., WWW
2007). Units that were met are dropped by the same bound with their own counts and sizes, or scored from their forward
list.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit

# Bounds are computed in float64 from the same integers as the scores; the slack covers their rounding (a handful of
# operations, each within 2**-53) with three orders of magnitude to spare.
SLACK = 1.0 - 1e-12


class Features(NamedTuple):
    """Features of the distinct representations of a corpus, both ways round.

    Attributes
    ----------
    post_ptr : int64[V + 1]
        Offsets of each feature's posting list.
    post_unit : int32[P]
        Unit ids, ascending within a list.
    fwd_ptr : int64[D + 1]
        Offsets of each unit's forward list.
    fwd_id : int32[P]
        Feature ids of each unit, family after family.
    sizes : int32[F, D]
        Number of features of each family (set or multiset size) in each unit.
    skip_slot : int32[V]
        Row of `skip` for the long posting lists, -1 for the others.
    skip : int32[S, C + 1]
        Where each of the C finest cells begins within a long list, and the list's length.
    row_ptr : int64[D + 1]
        Offsets of the corpus rows of each unit.
    row_id : int64[N]
        Corpus rows, ascending within a unit.
    """

    post_ptr: np.ndarray
    post_unit: np.ndarray
    fwd_ptr: np.ndarray
    fwd_id: np.ndarray
    sizes: np.ndarray
    skip_slot: np.ndarray
    skip: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray


class Queries(NamedTuple):
    """Features of a batch of distinct queries.

    Attributes
    ----------
    ptr : int64[Q * F + 1]
        Offsets: family f of query q is ``id[ptr[q * F + f] : ptr[q * F + f + 1]]``.
    id : int32[...]
        Known feature ids, unique within a query.
    sizes : int32[Q, F]
        Sizes including features that the corpus lacks.
    """

    ptr: np.ndarray
    id: np.ndarray
    sizes: np.ndarray


class SetCorpus(NamedTuple):
    """What a search over sets of features reads of a corpus.

    Attributes
    ----------
    features : Features
    cells : int64[C, 8]
        Runs of units of equal or similar sizes, see `indexes.features.cells_of`.
    """

    features: Features
    cells: np.ndarray

    @property
    def row_ptr(self):
        """Offsets of the rows of each unit."""
        return self.features.row_ptr

    @property
    def row_id(self):
        """Corpus rows, ascending within a unit."""
        return self.features.row_id


class SequenceCorpus(NamedTuple):
    """The same of a corpus whose units are sequences of words.

    Attributes
    ----------
    features : Features
    cells : int64[C, 8]
    sequence : int32[...]
        Word ids of each unit in order.
    sequence_ptr : int64[D + 1]
    n_words : int
        Size of the vocabulary.
    """

    features: Features
    cells: np.ndarray
    sequence: np.ndarray
    sequence_ptr: np.ndarray
    n_words: int

    @property
    def row_ptr(self):
        """Offsets of the rows of each unit."""
        return self.features.row_ptr

    @property
    def row_id(self):
        """Corpus rows, ascending within a unit."""
        return self.features.row_id


class SetBatch(NamedTuple):
    """What a search over sets of features reads of distinct queries."""

    queries: Queries


class SequenceBatch(NamedTuple):
    """The same of sequences of words.

    Attributes
    ----------
    queries : Queries
    words, words_ptr : int64[...], int64[Q + 1]
        Word ids in order, -1 for words that the corpus lacks.
    """

    queries: Queries
    words: np.ndarray
    words_ptr: np.ndarray


class Scratch(NamedTuple):
    """Work space of one thread; all zero between queries.

    Attributes
    ----------
    counts : uint8[2, D]
        Matches found so far in one or two families, saturated at 255 (read 255 as "any number from 255").
    mark : uint8[V]
        1 for the features of the query.
    """

    counts: np.ndarray
    mark: np.ndarray


FULL = 255  # a saturated count
# Tuned on 2,192 x 185,538 synthetic impressions; any values give the same answers.
SCORE_COST = 256  # postings that take as long to read as one unit takes to score
FIRST_SEED = 1000  # postings read before the first unit is scored
SEED_GROWTH = 8
MAX_SEEDS = 16
BLOCK = 64  # one AVX-512 register of counts


def new_scratch(features: Features) -> Scratch:
    """Allocate the work space of one thread for `features`."""
    return Scratch(np.zeros((2, len(features.fwd_ptr) - 1), np.uint8), np.zeros(len(features.post_ptr) - 1, np.uint8))


@jit
def count_all(queries, q, family, index, matched):
    """Count the features of a family that query `q` shares with every unit.

    Writes
    ------
    matched : integers[D], every cell; see :func:`new_matched`
    """
    matched[:] = 0
    base = q * queries.sizes.shape[1] + family
    for i in range(queries.ptr[base], queries.ptr[base + 1]):
        v = queries.id[i]
        for p in range(np.uint64(index.post_ptr[v]), np.uint64(index.post_ptr[v + 1])):
            matched[np.uint32(index.post_unit[p])] += 1


def new_matched(queries, q, n_families, index):
    """Return room for :func:`count_all` of some families: bytes, which stay in the cache, unless a count may be larger.

    Returns
    -------
    uint8 or int32[n_families, D]
    """
    base = q * queries.sizes.shape[1]
    known = queries.ptr[base + queries.sizes.shape[1]] - queries.ptr[base]
    return np.empty((n_families, len(index.fwd_ptr) - 1), np.uint8 if known <= FULL else np.int32)


@jit
def by_rarity(ids, post_ptr):
    """Sort feature ids by the length of their posting lists, shortest first (ties by id).

    Parameters
    ----------
    ids : int32[n]
    post_ptr : int64[V + 1]

    Returns
    -------
    int32[n]
    """
    n = len(ids)
    out = ids.copy()
    if n > 64:
        keys = np.empty(n, np.int64)
        for i in range(n):
            keys[i] = post_ptr[ids[i] + 1] - post_ptr[ids[i]]
        order = np.argsort(keys, kind="mergesort")
        for i in range(n):
            out[i] = ids[order[i]]
        return out
    for i in range(1, n):
        x = out[i]
        key = post_ptr[x + 1] - post_ptr[x]
        j = i - 1
        while j >= 0 and post_ptr[out[j] + 1] - post_ptr[out[j]] > key:
            out[j + 1] = out[j]
            j -= 1
        out[j + 1] = x
    return out


@jit
def lower_bound(values, begin, end, x):
    """Return the first position in the ascending ``values[begin:end]`` whose value is not below x."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] < x:
            begin = middle + 1
        else:
            end = middle
    return begin


@jit
def postings(feature, cells, lo, hi, index):
    """Return the bounds of the postings of `feature` within the cells [lo, hi)."""
    begin = index.post_ptr[feature]
    end = index.post_ptr[feature + 1]
    slot = index.skip_slot[feature]
    if slot >= 0:
        return begin + index.skip[slot, cells[lo, 6]], begin + index.skip[slot, cells[hi - 1, 7]]
    begin = lower_bound(index.post_unit, begin, end, cells[lo, 0])
    return begin, lower_bound(index.post_unit, begin, end, cells[hi - 1, 1])


@jit
def read(begin, end, index, count, saturate):
    """Count one more match for the units of ``post_unit[begin:end]``.

    A plain increment is three times as fast; only queries of more than `FULL` features can pass a byte's range and have
    to `saturate`. Unsigned indices spare a test for negative ones.
    """
    if saturate:
        for p in range(np.uint64(begin), np.uint64(end)):
            u = np.uint32(index.post_unit[p])
            c = count[u]
            count[u] = c + np.uint8(c < FULL)
    else:
        for p in range(np.uint64(begin), np.uint64(end)):
            count[np.uint32(index.post_unit[p])] += np.uint8(1)


@jit
def count_at_least(count, begin, end, least):
    """Return how many units of ``[begin, end)`` have a count of at least `least` (1 to 255)."""
    limit = np.uint8(least)
    n = np.int64(0)
    for u in range(np.uint64(begin), np.uint64(end)):  # vectorised
        n += count[u] >= limit
    return n


@jit
def next_at_least(count, begin, end, least):
    """Return the first unit of ``[begin, end)`` whose count is at least `least` (1 to 255), else `end`."""
    limit = np.uint8(least)
    while begin + BLOCK <= end:
        block = count[begin : begin + BLOCK]
        hit = np.uint8(0)
        for i in range(BLOCK):  # vectorised: one comparison for the whole block
            hit |= np.uint8(block[i] >= limit)
        if hit:
            break
        begin += BLOCK
    while begin < end and count[begin] < limit:
        begin += 1
    return begin


@jit
def largest(count, begin, end):
    """Return the largest count of ``[begin, end)``."""
    top = np.uint8(0)
    for u in range(np.uint64(begin), np.uint64(end)):  # unsigned index and plain choice: LLVM vectorises this form
        c = count[u]
        top = c if c > top else top
    return top


@jit
def close_cells(need, stop, n_lists, n_read, lo, hi):
    """Shrink the range [lo, hi) of cells whose coming lists have to be read.

    A unit that was in none of the `n_read` lists read so far matches at most the others; where a cell needs more
    matches than that, it is closed, and `stop` remembers how many lists it has read.

    Returns
    -------
    lo, hi : int
    """
    while lo < hi and need[lo] > n_lists - n_read:
        stop[lo] = n_read
        lo += 1
    while lo < hi and need[hi - 1] > n_lists - n_read:
        hi -= 1
        stop[hi] = n_read
    return lo, hi


@jit
def deepen(j, ids, need, stop, cells, index, count):
    """Read further lists for cell j while that is cheaper than scoring the units that it would leave.

    Returns
    -------
    int
        The least count with which a unit of the cell may reach the threshold, 1 to 255.
    """
    while True:
        least = min(max(need[j] - (len(ids) - stop[j]), 1), FULL)
        if stop[j] == len(ids):
            return least
        begin, end = postings(ids[stop[j]], cells, j, j + 1, index)
        if count_at_least(count, cells[j, 0], cells[j, 1], least) * SCORE_COST <= end - begin:
            return least
        read(begin, end, index, count, len(ids) > FULL)
        stop[j] += 1


@jit
def outward(sizes, size, order):
    """Order the cells by the distance of their size from `size`: those hold the best units, and theta rises early.

    Parameters
    ----------
    sizes : int64[C]
        Ascending.
    size : int

    Writes
    ------
    order : int64[C]
    """
    above = np.searchsorted(sizes, size)
    below = above - 1
    for i in range(len(sizes)):
        if above == len(sizes) or (below >= 0 and size - sizes[below] < sizes[above] - size):
            order[i] = below
            below -= 1
        else:
            order[i] = above
            above += 1


@jit
def promising(count, cells, lo, hi, reference_length):
    """Return the unit of the cells [lo, hi) with the best ratio of matches to summed lengths, -1 if none matches."""
    cell, matched, size = -1, np.int64(0), np.int64(1)
    for j in range(lo, hi):
        c = np.int64(largest(count, cells[j, 0], cells[j, 1]))
        if c * size > matched * (cells[j, 2] + reference_length):
            cell, matched, size = j, c, cells[j, 2] + reference_length
    if cell < 0:
        return np.int64(-1)
    return np.int64(next_at_least(count, cells[cell, 0], cells[cell, 1], matched))


@jit
def contains(values, x):
    """Return whether x is in a short array."""
    for value in values:  # noqa: SIM110 - numba compiles no generator expressions
        if value == x:
            return True
    return False


@jit
def set_marks(ids, mark, value):
    """Write `value` to the marks of the features `ids`."""
    for i in range(len(ids)):
        mark[ids[i]] = value


@jit
def count_marked(fwd_id, begin, end, mark):
    """Count the marked features in ``fwd_id[begin:end]``."""
    n = 0
    for p in range(begin, end):
        n += mark[fwd_id[p]]
    return n


@jit
def count_matches(queries, query, unit, index, mark, out):
    """Count, for pairs of a query and a unit, the features that they share in every family.

    Parameters
    ----------
    queries : Queries
    query, unit : int64[n]
        The pairs.
    index : Features
    mark : uint8[V]
        All zero before and after.

    Writes
    ------
    out : int64[F, n]
    """
    n_families = queries.sizes.shape[1]
    for i in range(len(query)):
        base = query[i] * n_families
        ids = queries.id[queries.ptr[base] : queries.ptr[base + n_families]]
        set_marks(ids, mark, 1)
        begin = index.fwd_ptr[unit[i]]
        for f in range(n_families):
            end = begin + index.sizes[f, unit[i]]
            out[f, i] = count_marked(index.fwd_id, begin, end, mark)
            begin = end
        set_marks(ids, mark, 0)


def matches(corpus, batch, query, unit):
    """Return int64[F, n]: what :func:`count_matches` writes."""
    out = np.empty((batch.queries.sizes.shape[1], len(query)), np.int64)
    mark = np.zeros(len(corpus.features.post_ptr) - 1, np.uint8)
    count_matches(batch.queries, query, unit, corpus.features, mark, out)
    return out
