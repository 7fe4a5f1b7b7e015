"""RadGraph F1 search with Numba: prefix-filtered postings, exact scores, one thread a call."""

from dataclasses import dataclass

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import (
    BLOCK,
    FIRST_SEED,
    FULL,
    MAX_SEEDS,
    SCORE_COST,
    SEED_GROWTH,
    SLACK,
    by_rarity,
    contains,
    count_all,
    count_marked,
    matches,
    new_matched,
    new_scratch,
    outward,
    postings,
    read,
    set_marks,
)
from metric_oracle.kernels.contract import Kernel
from metric_oracle.kernels.radgraph.score import NAMES, f1, mean_f1
from metric_oracle.kernels.topk.cpu import expand, new_best, offer, reset, threshold

UNIT = 1 << 16  # fixed-point one: weighted counts stay within int32


@jit
def _combine(f1_a, f1_b, two):
    return 0.5 * (f1_a + f1_b) if two else f1_a


@jit
def _bound_f1(matched, least, greatest, n):
    """Bound the F1 of a set of `least` to `greatest` features that matches at most `matched` of the query's n."""
    size = min(max(matched, least), greatest)
    return f1(min(matched, size), size, n)


@jit
def _bound(match_a, match_b, cell, n_a, n_b, two):
    """Bound the score of the units of a cell by their matches."""
    return _combine(_bound_f1(match_a, cell[2], cell[3], n_a), _bound_f1(match_b, cell[4], cell[5], n_b), two)


@jit
def _next_weighted(count_a, count_b, begin, end, weight_a, weight_b, least):
    """Return the first unit of ``[begin, end)`` whose weighted count is at least `least`, else `end`."""
    while begin + BLOCK <= end:
        block_a, block_b = count_a[begin : begin + BLOCK], count_b[begin : begin + BLOCK]
        hit = np.uint8(0)
        for i in range(BLOCK):  # vectorised
            hit |= np.uint8(np.int32(block_a[i]) * weight_a + np.int32(block_b[i]) * weight_b >= least)
        if hit:
            break
        begin += BLOCK
    while begin < end and np.int32(count_a[begin]) * weight_a + np.int32(count_b[begin]) * weight_b < least:
        begin += 1
    return begin


@jit
def _count_weighted(count_a, count_b, begin, end, weight_a, weight_b, least):
    """Return how many units of ``[begin, end)`` have a weighted count of at least `least`."""
    n = np.int64(0)
    for u in range(np.uint64(begin), np.uint64(end)):  # vectorised
        n += np.int32(count_a[u]) * weight_a + np.int32(count_b[u]) * weight_b >= least
    return n


@jit
def _largest_weighted(count_a, count_b, begin, end, weight_a, weight_b):
    """Return the largest weighted count of ``[begin, end)``."""
    top = np.int32(0)
    for u in range(np.uint64(begin), np.uint64(end)):
        value = np.int32(count_a[u]) * weight_a + np.int32(count_b[u]) * weight_b
        top = value if value > top else top
    return top


@jit
def _weights(cell, n_a, n_b, two):
    """Return what one match of each family adds to the score of a unit of this cell, rounded up, in 1/UNIT."""
    weight_a = np.int32(UNIT * (1.0 if two else 2.0) / max(cell[2] + n_a, 1)) + np.int32(1)
    weight_b = np.int32(UNIT / max(cell[4] + n_b, 1)) + np.int32(1) if two else np.int32(0)
    return weight_a, weight_b


@jit
def _promising(count, cells, lo, hi, n_a, n_b, two):
    """Return the unit of the cells [lo, hi) with the best score by its matches so far, -1 if none matches."""
    cell, value = -1, np.int32(0)
    for j in range(lo, hi):
        weight_a, weight_b = _weights(cells[j], n_a, n_b, two)
        v = _largest_weighted(count[0], count[1], cells[j, 0], cells[j, 1], weight_a, weight_b)
        if v > value:
            cell, value = j, v
    if cell < 0:
        return np.int64(-1)
    weight_a, weight_b = _weights(cells[cell], n_a, n_b, two)
    return np.int64(_next_weighted(count[0], count[1], cells[cell, 0], cells[cell, 1], weight_a, weight_b, value))


@jit
def _score_unit(u, family_a, family_b, two, n_a, n_b, index, k, scratch, best):
    """Count the matches of a unit from its forward list and offer its score."""
    begin = index.fwd_ptr[u]
    for f in range(family_a):
        begin += index.sizes[f, u]
    size_a, size_b = np.int64(index.sizes[family_a, u]), np.int64(0)
    end = begin + size_a
    match_a, match_b = count_marked(index.fwd_id, begin, end, scratch.mark), np.int64(0)
    if two:
        for f in range(family_a + 1, family_b):
            end += index.sizes[f, u]
        size_b = np.int64(index.sizes[family_b, u])
        match_b = count_marked(index.fwd_id, end, end + size_b, scratch.mark)
    value = mean_f1(match_a, size_a + n_a, match_b, size_b + n_b) if two else f1(match_a, size_a, n_a)
    if value > 0.0:
        offer(u, value, index.row_ptr, k, best)


@jit
def search_radgraph(queries, first, last, family_a, family_b, index, cells, k, scratch, best, rows, scores, ties):
    """Find the k best rows of the corpus for the queries first .. last - 1.

    Parameters
    ----------
    queries : Queries
    first, last : int
        Block of queries.
    family_a, family_b : int
        Families whose F1 values are averaged, family_a first in the forward lists; family_b is -1 for a metric of one.
    index : Features
    cells : int64[C, 8]
        Runs of units of similar sizes: first and end unit, least and greatest size of family a, of family b.
    k : int
    scratch, best : Scratch, Best
        Work space of this thread.

    Writes
    ------
    rows, scores, ties : int64[Q, k], float64[Q, k], int64[Q, k], rows first .. last - 1

    Exactness
    ---------
    Counts are integers; scores are `score.py` compiled; a unit is dropped only by a bound.

    Source
    ------
    Yu et al., Patterns 2023 (RadGraph F1); Delbrouck et al., EMNLP Findings 2022 (RG_E, RG_ER, RG_ER-bar).
    """
    n_families = queries.sizes.shape[1]
    two = family_b >= 0
    stop = np.empty(len(cells), np.int64)
    nearest = np.empty(len(cells), np.int64)
    sizes = cells[:, 2] + cells[:, 4] * two
    count = scratch.counts
    for q in range(first, last):
        reset(best)
        base = q * n_families
        ids_a = queries.id[queries.ptr[base + family_a] : queries.ptr[base + family_a + 1]]
        ids_b = queries.id[queries.ptr[base + family_b] : queries.ptr[base + family_b + 1]] if two else ids_a[:0]
        n_a = np.int64(queries.sizes[q, family_a])
        n_b = np.int64(queries.sizes[q, family_b]) if two else np.int64(0)
        set_marks(ids_a, scratch.mark, 1)
        set_marks(ids_b, scratch.mark, 1)
        ids = by_rarity(np.concatenate((ids_a, ids_b)), index.post_ptr)
        first_b = ids_b.min() if len(ids_b) > 0 else np.int32(2**31 - 1)
        n_lists = len(ids)
        # Lists of each family that are unread after the first i; beyond FULL lists a count may have saturated, and a
        # unit may hold that many more matches than its count says.
        unread = np.zeros((2, n_lists + 1), np.int64)
        for i in range(n_lists - 1, -1, -1):
            is_b = ids[i] >= first_b
            unread[0, i] = unread[0, i + 1] + (not is_b)
            unread[1, i] = unread[1, i + 1] + is_b
        spare_a, spare_b = max(len(ids_a) - FULL, 0), max(len(ids_b) - FULL, 0)
        lo, hi = 0, len(cells)
        theta = 0.0
        n_read = np.int64(0)
        next_seed = np.int64(FIRST_SEED)
        seeds = np.full(MAX_SEEDS, -1, np.int64)
        n_seeds = 0
        for i in range(n_lists + 1):
            if i == n_lists or n_read + index.post_ptr[ids[i] + 1] - index.post_ptr[ids[i]] > next_seed:
                # Score the most promising unit, so that theta rises before the long lists are reached.
                u = _promising(count, cells, lo, hi, n_a, n_b, two)
                if u >= 0 and n_seeds < MAX_SEEDS:
                    if not contains(seeds, u):  # later lists may make a scored unit the most promising one again
                        _score_unit(u, family_a, family_b, two, n_a, n_b, index, k, scratch, best)
                    seeds[n_seeds] = u
                    n_seeds += 1
                    count[0, u] = 0
                    count[1, u] = 0
                    theta = threshold(best, k)
                next_seed = max(next_seed, n_read) * SEED_GROWTH
            a, b = unread[0, i], unread[1, i]
            while lo < hi and _bound(a, b, cells[lo], n_a, n_b, two) < theta * SLACK:
                stop[lo] = i
                lo += 1
            while lo < hi and _bound(a, b, cells[hi - 1], n_a, n_b, two) < theta * SLACK:
                hi -= 1
                stop[hi] = i
            if lo == hi or i == n_lists:
                break
            begin, end = postings(ids[i], cells, lo, hi, index)
            read(begin, end, index, count[1 if ids[i] >= first_b else 0], n_lists > FULL)
            n_read += end - begin
        stop[lo:hi] = n_lists
        outward(sizes, n_a + n_b, nearest)
        for j in nearest:
            if _bound(len(ids_a), len(ids_b), cells[j], n_a, n_b, two) < theta * SLACK:
                continue
            weight_a, weight_b = _weights(cells[j], n_a, n_b, two)
            while True:  # read further lists while that is cheaper than scoring the units that would be left
                beyond = (unread[0, stop[j]] + spare_a) * weight_a + (unread[1, stop[j]] + spare_b) * weight_b
                least = np.int32(max(np.int64(theta * SLACK * UNIT) - beyond, 1))
                if stop[j] == n_lists:
                    break
                begin, end = postings(ids[stop[j]], cells, j, j + 1, index)
                hits = _count_weighted(count[0], count[1], cells[j, 0], cells[j, 1], weight_a, weight_b, least)
                if hits * SCORE_COST <= end - begin:
                    break
                read(begin, end, index, count[1 if ids[stop[j]] >= first_b else 0], n_lists > FULL)
                stop[j] += 1
            u = cells[j, 0]
            while True:
                u = _next_weighted(count[0], count[1], u, cells[j, 1], weight_a, weight_b, least)
                if u == cells[j, 1]:
                    break
                if not contains(seeds, u):
                    _score_unit(u, family_a, family_b, two, n_a, n_b, index, k, scratch, best)
                    if threshold(best, k) > theta:
                        theta = threshold(best, k)
                        least = np.int32(max(np.int64(theta * SLACK * UNIT) - beyond, 1))
                u += 1
        count[:] = 0
        set_marks(ids_a, scratch.mark, 0)
        set_marks(ids_b, scratch.mark, 0)
        expand(best, index.row_ptr, index.row_id, k, rows[q], scores[q], ties[q])


@jit
def _score_all(queries, q, family_a, family_b, index, matched, out):
    count_all(queries, q, family_a, index, matched[0])
    n_a = np.int64(queries.sizes[q, family_a])
    if family_b < 0:
        for u in range(len(out)):
            out[u] = f1(np.int64(matched[0, u]), np.int64(index.sizes[family_a, u]), n_a)
        return
    count_all(queries, q, family_b, index, matched[1])
    n_b = np.int64(queries.sizes[q, family_b])
    for u in range(len(out)):
        sizes_a = index.sizes[family_a, u] + n_a
        sizes_b = index.sizes[family_b, u] + n_b
        out[u] = mean_f1(np.int64(matched[0, u]), sizes_a, np.int64(matched[1, u]), sizes_b)


@dataclass(frozen=True)
class Backend(Kernel):
    """RadGraph F1 on CPUs."""

    family_a: int
    family_b: int

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for queries first .. last - 1; see :func:`search_radgraph`."""
        search_radgraph(
            batch.queries, first, last, self.family_a, self.family_b, corpus.features, corpus.cells, k, *workspace,
            answers.rows, answers.scores, answers.ties,
        )  # fmt: skip

    def score_all(self, corpus, batch, chosen):
        """Yield the F1 of every unit against each of some distinct queries: float64[D], overwritten by the next."""
        out = np.empty(len(corpus.features.fwd_ptr) - 1)
        for q in chosen:
            matched = new_matched(batch.queries, q, 2, corpus.features)
            _score_all(batch.queries, q, self.family_a, self.family_b, corpus.features, matched, out)
            yield out

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n], and their components."""
        parts = self.components(corpus, batch, query, unit, None)
        if self.family_b < 0:
            return parts[NAMES[self.family_a]], parts
        matched = matches(corpus, batch, query, unit)
        columns = []
        for f in (self.family_a, self.family_b):
            columns += [matched[f].tolist(), (corpus.features.sizes[f, unit] + batch.queries.sizes[query, f]).tolist()]
        return np.array([mean_f1(*row) for row in zip(*columns, strict=True)]), parts

    def components(self, corpus, batch, query, unit, scores):
        """Return the F1 of each family for pairs of a distinct query and a unit.

        Parameters
        ----------
        query, unit : int64[n]
        scores : float64[n]

        Returns
        -------
        dict of str to float64[n]
        """
        matched = matches(corpus, batch, query, unit)
        parts = {}
        for f in (self.family_a, self.family_b):
            if f >= 0:
                total = corpus.features.sizes[f, unit].astype(np.int64) + batch.queries.sizes[query, f]
                parts[NAMES[f]] = 2.0 * matched[f] / np.maximum(total, 1)
        return parts

    def new_workspace(self, corpus):
        """Allocate the work space of one thread."""
        return new_scratch(corpus.features), new_best(len(corpus.features.fwd_ptr) - 1)
