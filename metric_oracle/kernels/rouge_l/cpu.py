"""ROUGE-L search with Numba: word-overlap screen, bit-parallel longest common subsequence, one thread a call."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import (
    FIRST_SEED,
    FULL,
    MAX_SEEDS,
    SEED_GROWTH,
    SLACK,
    by_rarity,
    close_cells,
    contains,
    deepen,
    new_scratch,
    next_at_least,
    outward,
    postings,
    promising,
    read,
)
from metric_oracle.kernels.contract import Kernel
from metric_oracle.kernels.rouge_l.score import rouge_l
from metric_oracle.kernels.topk.cpu import expand, new_best, offer, reset, threshold

ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def _zeros(x):
    """Count the zero bits of a uint64."""
    x = ~x
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


class Positions(NamedTuple):
    """Where the words of a query stand, 64 positions a block.

    Attributes
    ----------
    ptr : int64[S + 2]
        Entries of slot s (from 1) are ``ptr[s] : ptr[s + 1]``.
    block : int64[E]
        Ascending within a slot.
    bits : uint64[E]
        Bit i of an entry is set where the query's word 64 * block + i is the slot's word.
    """

    ptr: np.ndarray
    block: np.ndarray
    bits: np.ndarray


@jit
def find_positions(words, slot):
    """Give each distinct known word of a query a slot and note its positions.

    Parameters
    ----------
    words : int64[n]
        Word ids, -1 for words that the corpus lacks.
    slot : int32[V]
        All zero; the slots of the query's words are written.

    Returns
    -------
    Positions
    """
    n = len(words)
    ptr = np.zeros(n + 2, np.int64)
    last_block = np.full(n + 1, -1, np.int64)
    n_slots = 0
    for i in range(n):
        if words[i] >= 0:
            if slot[words[i]] == 0:
                n_slots += 1
                slot[words[i]] = n_slots
            s = slot[words[i]]
            if last_block[s] != i >> 6:
                ptr[s + 1] += 1
                last_block[s] = i >> 6
    for s in range(n_slots + 1):
        ptr[s + 1] += ptr[s]
    block = np.full(ptr[n_slots + 1], -1, np.int64)
    bits = np.zeros(ptr[n_slots + 1], np.uint64)
    cursor = ptr.copy()
    for i in range(n):
        if words[i] >= 0:
            s = slot[words[i]]
            if block[cursor[s]] >= 0 and block[cursor[s]] != i >> 6:
                cursor[s] += 1
            block[cursor[s]] = i >> 6
            bits[cursor[s]] |= np.uint64(1) << np.uint64(i & 63)
    return Positions(ptr, block, bits)


@jit
def count_lcs(sequence, begin, end, slot, positions, state):
    """Return the length of the longest common subsequence of ``sequence[begin:end]`` and the query.

    Parameters
    ----------
    sequence : int32[...]
        Word ids.
    begin, end : int
    slot : int32[V]
        Slot of each word id, 0 for words that the query lacks.
    positions : Positions
    state : uint64[B]
        Work space, a bit for each word of the query.

    Cost
    ----
    Six operations for each word that the query has; beyond 64 words, for each block that holds it.

    Source
    ------
    Hyyrö, Bit-parallel LCS-length computation revisited (AWOCA 2004); a block whose word does not occur changes only by
    a carry.
    """
    if len(state) == 1:
        v = ONES
        for p in range(begin, end):
            s = slot[sequence[p]]
            if s > 0:
                u = v & positions.bits[s - 1]
                v = (v + u) | (v - u)
        return _zeros(v)
    state[:] = ONES
    for p in range(begin, end):
        s = slot[sequence[p]]
        if s == 0:
            continue
        carry = np.uint64(0)
        done = np.int64(0)  # blocks before this one are up to date
        for e in range(positions.ptr[s], positions.ptr[s + 1]):
            j = positions.block[e]
            carry = _ripple(state, carry, done, j)
            v = state[j]
            u = v & positions.bits[e]
            total = v + u
            overflow = np.uint64(total < v)
            total += carry
            overflow |= np.uint64(total < carry)
            state[j] = total | (v - u)
            carry = overflow
            done = j + 1
        _ripple(state, carry, done, len(state))
    zeros = np.int64(0)
    for j in range(len(state)):
        zeros += _zeros(state[j])
    return zeros


@jit
def _ripple(state, carry, j, end):
    """Add a carry to the blocks from j on until it is used up or `end` is reached; return what is left of it."""
    while carry > 0 and j < end:
        total = state[j] + carry
        carry = np.uint64(total == 0)
        state[j] |= total
        j += 1
    return carry


@jit
def _raise_need(theta, reference_length, known, cells, need):
    """Raise, for each length, the least number of shared words with which a unit reaches theta; known + 1 for never."""
    limit = theta * SLACK
    for i in range(len(cells)):
        while need[i] <= known and rouge_l(min(need[i], cells[i, 2]), cells[i, 2], reference_length) < limit:
            need[i] += 1


@jit
def search_rouge_l(
    queries, words, words_ptr, first, last, index, sequence, sequence_ptr, cells, k, scratch, slot, best, rows, scores,
    ties,
):  # fmt: skip
    """Find the k best rows of the corpus for the queries first .. last - 1.

    Parameters
    ----------
    queries : Queries
        One family: words (with occurrence).
    words, words_ptr : int64[...], int64[Q + 1]
        Word ids of the queries in order, -1 for words that the corpus lacks.
    first, last : int
        Block of queries.
    index : Features
        Units by ascending length.
    sequence, sequence_ptr : int32[...], int64[D + 1]
        Word ids of the units in order.
    cells : int64[C, 8]
        Runs of units of equal length: first and end unit, then the length.
    k : int
    scratch, slot, best : Scratch, int32[V], Best
        Work space of this thread; `slot` all zero.

    Writes
    ------
    rows, scores, ties : int64[Q, k], float64[Q, k], int64[Q, k], rows first .. last - 1

    Exactness
    ---------
    The screen bounds the common subsequence by the clipped word matches; finalists get the true length.

    Source
    ------
    Lin, ROUGE (2004), as computed by the rouge-score package.
    """
    need = np.empty(len(cells), np.int64)
    stop = np.empty(len(cells), np.int64)
    nearest = np.empty(len(cells), np.int64)
    lengths = cells[:, 2].copy()
    count = scratch.counts[0]
    for q in range(first, last):
        reset(best)
        reference_length = np.int64(queries.sizes[q, 0])
        ids = by_rarity(queries.id[queries.ptr[q] : queries.ptr[q + 1]], index.post_ptr)
        known = len(ids)
        text = words[words_ptr[q] : words_ptr[q + 1]]
        positions = find_positions(text, slot)
        state = np.empty((len(text) + 63) // 64, np.uint64)
        lo, hi = 0, len(cells)
        theta = 0.0
        need[:] = 1
        n_read = np.int64(0)
        next_seed = np.int64(FIRST_SEED)
        seeds = np.full(MAX_SEEDS, -1, np.int64)
        n_seeds = 0
        for i in range(known + 1):
            if i == known or n_read + index.post_ptr[ids[i] + 1] - index.post_ptr[ids[i]] > next_seed:
                # Score the most promising unit, so that theta rises before the long lists are reached.
                u = promising(count, cells, lo, hi, reference_length)
                if u >= 0 and n_seeds < MAX_SEEDS:
                    if not contains(seeds, u):  # later lists may make a scored unit the most promising one again
                        lcs = count_lcs(sequence, sequence_ptr[u], sequence_ptr[u + 1], slot, positions, state)
                        offer(u, rouge_l(lcs, np.int64(index.sizes[0, u]), reference_length), index.row_ptr, k, best)
                    seeds[n_seeds] = u
                    n_seeds += 1
                    count[u] = 0
                    if threshold(best, k) > theta:
                        theta = threshold(best, k)
                        _raise_need(theta, reference_length, known, cells, need)
                next_seed = max(next_seed, n_read) * SEED_GROWTH
            lo, hi = close_cells(need, stop, known, i, lo, hi)
            if lo == hi or i == known:
                break
            begin, end = postings(ids[i], cells, lo, hi, index)
            read(begin, end, index, count, known > FULL)
            n_read += end - begin
        stop[lo:hi] = known
        outward(lengths, reference_length, nearest)
        for j in nearest:
            if need[j] > known:
                continue
            least = deepen(j, ids, need, stop, cells, index, count)
            first_word = sequence_ptr[cells[j, 0]]
            u = cells[j, 0]
            while need[j] <= known:
                u = next_at_least(count, u, cells[j, 1], min(max(need[j] - (known - stop[j]), least), FULL))
                if u == cells[j, 1]:
                    break
                if not contains(seeds, u):
                    begin = first_word + (u - cells[j, 0]) * cells[j, 2]  # all units of a cell are equally long
                    lcs = count_lcs(sequence, begin, begin + cells[j, 2], slot, positions, state)
                    offer(u, rouge_l(lcs, cells[j, 2], reference_length), index.row_ptr, k, best)
                    if threshold(best, k) > theta:
                        theta = threshold(best, k)
                        _raise_need(theta, reference_length, known, cells, need)
                u += 1
        count[:] = 0
        for i in range(len(text)):
            if text[i] >= 0:
                slot[text[i]] = 0
        expand(best, index.row_ptr, index.row_id, k, rows[q], scores[q], ties[q])


@jit
def _count_short(words, sequence, cells, mask, out):
    """Write the common subsequence of every unit with a query of at most 64 words, in the manner of `count_lcs`.

    Parameters
    ----------
    words : int64[n]
    cells : int64[C, 8]
        First unit, end unit, length, and in the fourth column the first word of a cell in `sequence`.
    mask : uint64[V]
        All zero before and after; holds the positions of each word of the query.

    Writes
    ------
    out : float64[D]

    Cost
    ----
    Two loads and four operations a word of the corpus, without a branch; four units side by side hide their latency.
    """
    for i in range(len(words)):
        if words[i] >= 0:
            mask[words[i]] |= np.uint64(1) << np.uint64(i)
    for j in range(len(cells)):
        u = np.uint64(cells[j, 0])
        end = np.uint64(cells[j, 1])
        length = np.uint64(cells[j, 2])
        a = np.uint64(cells[j, 3])
        while u + np.uint64(4) <= end:
            b, c, d = a + length, a + length + length, a + length + length + length
            s0 = s1 = s2 = s3 = ONES
            for t in range(length):
                m0 = s0 & mask[np.uint32(sequence[a + t])]
                m1 = s1 & mask[np.uint32(sequence[b + t])]
                m2 = s2 & mask[np.uint32(sequence[c + t])]
                m3 = s3 & mask[np.uint32(sequence[d + t])]
                s0 = (s0 + m0) | (s0 - m0)
                s1 = (s1 + m1) | (s1 - m1)
                s2 = (s2 + m2) | (s2 - m2)
                s3 = (s3 + m3) | (s3 - m3)
            out[u] = _zeros(s0)
            out[u + np.uint64(1)] = _zeros(s1)
            out[u + np.uint64(2)] = _zeros(s2)
            out[u + np.uint64(3)] = _zeros(s3)
            a = d + length
            u += np.uint64(4)
        while u < end:
            s0 = ONES
            for t in range(length):
                m0 = s0 & mask[np.uint32(sequence[a + t])]
                s0 = (s0 + m0) | (s0 - m0)
            out[u] = _zeros(s0)
            a += length
            u += np.uint64(1)
    for i in range(len(words)):
        if words[i] >= 0:
            mask[words[i]] = np.uint64(0)


@jit
def _score_all(words, sequence, sequence_ptr, cells, slot, mask, out):
    n = len(words)
    if n <= 64:
        _count_short(words, sequence, cells, mask, out)
    else:
        positions = find_positions(words, slot)
        state = np.empty((n + 63) // 64, np.uint64)
        for u in range(len(out)):
            out[u] = count_lcs(sequence, sequence_ptr[u], sequence_ptr[u + 1], slot, positions, state)
        for i in range(n):
            if words[i] >= 0:
                slot[words[i]] = 0
    for j in range(len(cells)):
        for u in range(cells[j, 0], cells[j, 1]):
            out[u] = rouge_l(np.int64(out[u]), cells[j, 2], np.int64(n))


@jit
def _score_pairs(query, unit, words, words_ptr, sequence, sequence_ptr, slot, out):
    for i in range(len(query)):
        text = words[words_ptr[query[i]] : words_ptr[query[i] + 1]]
        positions = find_positions(text, slot)
        state = np.empty((len(text) + 63) // 64, np.uint64)
        begin, end = sequence_ptr[unit[i]], sequence_ptr[unit[i] + 1]
        lcs = count_lcs(sequence, begin, end, slot, positions, state)
        out[i] = rouge_l(lcs, np.int64(end - begin), np.int64(len(text)))
        for w in text:
            if w >= 0:
                slot[w] = 0


@dataclass(frozen=True)
class Backend(Kernel):
    """ROUGE-L on CPUs."""

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1; see :func:`search_rouge_l`."""
        search_rouge_l(
            batch.queries, batch.words, batch.words_ptr, first, last, corpus.features, corpus.sequence,
            corpus.sequence_ptr, corpus.cells, k, *workspace, answers.rows, answers.scores, answers.ties,
        )  # fmt: skip

    def score_all(self, corpus, batch, chosen):
        """Yield ROUGE-L of every unit against each of some distinct queries: float64[D], overwritten by the next."""
        out = np.empty(len(corpus.features.fwd_ptr) - 1)
        slot, mask = np.zeros(corpus.n_words, np.int32), np.zeros(corpus.n_words, np.uint64)
        cells = corpus.cells.copy()
        cells[:, 3] = corpus.sequence_ptr[cells[:, 0]]
        for q in chosen:
            words = batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]
            _score_all(words, corpus.sequence, corpus.sequence_ptr, cells, slot, mask, out)
            yield out

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n], and their components."""
        scores = np.empty(len(query))
        slot = np.zeros(corpus.n_words, np.int32)
        _score_pairs(
            query, unit, batch.words, batch.words_ptr, corpus.sequence, corpus.sequence_ptr, slot, scores
        )  # fmt: skip
        return scores, self.components(corpus, batch, query, unit, scores)

    def components(self, corpus, batch, query, unit, scores):
        """Return precision and recall of pairs of a distinct query and a unit; the score gives the subsequence back.

        Parameters
        ----------
        query, unit : int64[n]
        scores : float64[n]

        Returns
        -------
        dict of str to float64[n]
        """
        length = corpus.features.sizes[0, unit].astype(np.int64)
        reference_length = batch.queries.sizes[query, 0].astype(np.int64)
        lcs = np.rint(scores * (length + reference_length) / 2.0)
        return {"precision": lcs / np.maximum(length, 1), "recall": lcs / np.maximum(reference_length, 1)}

    def new_workspace(self, corpus):
        """Allocate the work space of one thread."""
        slot = np.zeros(corpus.n_words, np.int32)
        return new_scratch(corpus.features), slot, new_best(len(corpus.features.fwd_ptr) - 1)
