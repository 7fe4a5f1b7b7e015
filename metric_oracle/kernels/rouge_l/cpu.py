"""ROUGE-L search on CPUs: bounds from shared words, for the search function of `_overlap_search.py`.

The longest common subsequence (LCS) of a query and a document is computed with bit-parallel operations, 64 words of the
query at a time.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for, inner, jit, scalar
from metric_oracle.kernels._overlap import Features, features_of, with_forward
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels._pairs import begin_query, count_pairs, count_run, end_query, score_of
from metric_oracle.kernels._simd import count_ones
from metric_oracle.kernels.rouge_l.score import common, rouge_l

ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


class Positions(NamedTuple):
    """Positions of the words of a query, as bits in blocks of 64 words.

    A slot is a number from 1 for each distinct word of the query that occurs in the corpus. Slot 0, of all other words,
    has one entry without bits, so that in a query of at most 64 words slot s has the entry s.
    """

    ptr: np.ndarray  # int64[S + 2], entries of slot s are `ptr[s] : ptr[s + 1]`
    block: np.ndarray  # int64[E], block of each entry, ascending within a slot
    # uint64[E]; bit i of an entry says whether the query's word 64 * block + i is the slot's
    bits: np.ndarray


@jit
def find_positions(words, slot):
    """Return the `Positions` of a query's words, int64[n], and write the slots of its distinct words into `slot`.

    `slot`, int32[V], is all zero before. Words that do not occur in the corpus, -1, get none.
    """
    n = len(words)
    ptr = np.zeros(n + 2, np.int64)
    ptr[1] = 1
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
    bits = np.zeros(len(block), np.uint64)
    cursor = ptr.copy()
    for i in range(n):
        if words[i] >= 0:
            s = slot[words[i]]
            if block[cursor[s]] >= 0 and block[cursor[s]] != i >> 6:
                cursor[s] += 1
            block[cursor[s]] = i >> 6
            bits[cursor[s]] |= np.uint64(1) << np.uint64(i & 63)
    return Positions(ptr, block, bits)


@inner
def _after(v, sequence, begin, end, slot, bits):
    """Return the state `v` of a query of at most 64 words after the word ids ``sequence[begin:end]``."""
    for p in range(np.uint64(begin), np.uint64(end)):  # unsigned indices avoid the test for negative ones
        u = v & bits[np.uint32(slot[np.uint32(sequence[p])])]
        v = (v + u) | (v - u)
    return v


@inner
def count_lcs(sequence, begin, end, slot, positions, state):
    """Return the length of the longest common subsequence of the word ids ``sequence[begin:end]`` and a query.

    `slot` and `positions` are those of `find_positions`, and `state`, uint64[B], is scratch with a bit for each word of
    the query.

    Cost
    ----
    Six operations for each word that the query contains; for a query of more than 64 words, for each block that
    contains it.

    Source
    ------
    Hyyrö, Bit-parallel LCS-length computation revisited (AWOCA 2004); a block whose word does not occur changes only by
    a carry.
    """
    if len(state) == 1:
        return count_ones(~_after(ONES, sequence, begin, end, slot, positions.bits))
    state[:] = ONES
    for p in range(begin, end):
        s = slot[sequence[p]]
        if s == 0:
            continue
        carry = np.uint64(0)
        done = np.int64(0)  # blocks before this one are up to date
        for e in range(positions.ptr[s], positions.ptr[s + 1]):
            j = positions.block[e]
            carry = ripple(state, carry, done, j)
            v = state[j]
            u = v & positions.bits[e]
            total = v + u
            overflow = np.uint64(total < v)
            total += carry
            overflow |= np.uint64(total < carry)
            state[j] = total | (v - u)
            carry = overflow
            done = j + 1
        ripple(state, carry, done, len(state))
    zeros = np.int64(0)
    for j in range(len(state)):
        zeros += count_ones(~state[j])
    return zeros


@scalar
def ripple(state, carry, j, end):
    """Add a carry, 0 or 1, to the blocks j, j + 1, ... of `state` until it is absorbed or block `end` is reached.

    A block v becomes ``v | (v + carry)``. Return the carry that is left.
    """
    while carry > 0 and j < end:
        total = state[j] + carry
        carry = np.uint64(total == 0)
        state[j] |= total
        j += 1
    return carry


class Slots(NamedTuple):
    """Scratch of one thread."""

    slot: np.ndarray  # int32[V], slot of each word, see `Positions`; all zero between queries


class RougeForm(NamedTuple):
    """The option of ROUGE-L, see `_overlap_search.py` and `_pairs.py`."""

    coco: bool  # as in `RougeL`


class RougeL(NamedTuple):
    """The scorer (see `_overlap_search.py`): ROUGE-L of documents against one query."""

    index: Features  # type: ignore[assignment] # its forward index holds the words of the documents, in order
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length, see `SetCorpus`
    size: int | np.integer  # number of words of the query
    coco: bool  # compute pycocoevalcap's form instead of rouge-score's, see `score.py`
    slot: np.ndarray  # int32[V], slot of each word, 0 if it is not in the query
    positions: Positions
    state: np.ndarray  # uint64[B], scratch of `count_lcs`


@compiled_for(driver.scorer_of, RougeForm)
def _(form, found, corpus, batch, q):
    slot, positions, state, size = found
    index = with_forward(corpus.features, corpus.sequence_ptr, corpus.sequence)
    ids = features_of(batch.queries, q, 0, 1)  # pairs (word, occurrence)
    return RougeL(index, corpus.buckets, size, form.coco, slot, positions, state), ids


compiled_for(driver.find, RougeL)(driver.find_in_family)


# The longest common subsequence is no longer than the number of shared words, each counted as often as in both texts.
@compiled_for(bound, RougeL)
def _(scorer, j, a, b):
    length = scorer.buckets[j, 2]
    return rouge_l(min(a, length), length, scorer.size, scorer.coco)


@compiled_for(driver.score, RougeL)
def _(scorer, d, j):
    length = scorer.buckets[j, 2]  # all documents of a bucket are equally long
    begin = scorer.index.fwd_ptr[scorer.buckets[j, 0]] + (d - scorer.buckets[j, 0]) * length
    lcs = count_lcs(scorer.index.fwd_id, begin, begin + length, scorer.slot, scorer.positions, scorer.state)
    return rouge_l(lcs, length, scorer.size, scorer.coco)


@compiled_for(begin_query, Slots)
def _(space, batch, q):
    words = batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]
    positions = find_positions(words, space.slot)
    return space.slot, positions, np.empty((len(words) + 63) // 64, np.uint64), np.int64(len(words))


@inner
def _count_short(sequence, ptr, documents, slot, bits, counts):
    """Write what `count_lcs` returns for `documents`, int64[n], and a query of at most 64 words into ``counts[0]``.

    `ptr` has the offset of each document in `sequence`. Four are read side by side, as far as the shortest goes, which
    hides the latency of the loads: documents of equal lengths take an eighth of the time. The others, n % 4, are left.
    """
    for i in range(0, len(documents) - 3, 4):
        d0, d1, d2, d3 = documents[i], documents[i + 1], documents[i + 2], documents[i + 3]
        p0, p1, p2, p3 = np.uint64(ptr[d0]), np.uint64(ptr[d1]), np.uint64(ptr[d2]), np.uint64(ptr[d3])
        end0, end1, end2, end3 = ptr[d0 + 1], ptr[d1 + 1], ptr[d2 + 1], ptr[d3 + 1]
        shortest = min(min(end0 - ptr[d0], end1 - ptr[d1]), min(end2 - ptr[d2], end3 - ptr[d3]))
        s0 = s1 = s2 = s3 = ONES
        for t in range(np.uint64(shortest)):
            u0 = s0 & bits[np.uint32(slot[np.uint32(sequence[p0 + t])])]
            u1 = s1 & bits[np.uint32(slot[np.uint32(sequence[p1 + t])])]
            u2 = s2 & bits[np.uint32(slot[np.uint32(sequence[p2 + t])])]
            u3 = s3 & bits[np.uint32(slot[np.uint32(sequence[p3 + t])])]
            s0, s1, s2, s3 = (s0 + u0) | (s0 - u0), (s1 + u1) | (s1 - u1), (s2 + u2) | (s2 - u2), (s3 + u3) | (s3 - u3)
        counts[0, i] = count_ones(~_after(s0, sequence, ptr[d0] + shortest, end0, slot, bits))
        counts[0, i + 1] = count_ones(~_after(s1, sequence, ptr[d1] + shortest, end1, slot, bits))
        counts[0, i + 2] = count_ones(~_after(s2, sequence, ptr[d2] + shortest, end2, slot, bits))
        counts[0, i + 3] = count_ones(~_after(s3, sequence, ptr[d3] + shortest, end3, slot, bits))


@compiled_for(count_run, Slots)
def _(space, found, corpus, documents, counts):
    slot, positions, state, size = found
    sequence, ptr = corpus.sequence, corpus.sequence_ptr
    is_short = len(state) == 1
    if is_short:
        _count_short(sequence, ptr, documents, slot, positions.bits, counts)
    for i in range(len(documents) - len(documents) % 4 if is_short else 0, len(documents)):
        begin, end = ptr[documents[i]], ptr[documents[i] + 1]
        counts[0, i] = count_lcs(sequence, begin, end, slot, positions, state)
    for i, d in enumerate(documents):
        counts[1, i] = ptr[d + 1] - ptr[d]
        counts[2, i] = size


@compiled_for(end_query, Slots)
def _(space, batch, q):
    for p in range(batch.words_ptr[q], batch.words_ptr[q + 1]):
        if batch.words[p] >= 0:
            space.slot[batch.words[p]] = 0


@compiled_for(score_of, RougeForm)
def _(form, counts):
    return rouge_l(counts[0], counts[1], counts[2], form.coco)


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """ROUGE-L on CPUs."""

    coco: bool = False  # compute pycocoevalcap's form instead of rouge-score's, see `score.py`

    @property
    def form(self):
        """Return the option for which the search is compiled."""
        return RougeForm(self.coco)

    def new_space(self, corpus):
        """Allocate the scratch arrays that `begin_query` takes."""
        return Slots(np.zeros(corpus.n_words, np.int32))

    def counts(self, corpus, batch, query, document, known=None):
        """Return the longest common subsequence of pairs and the words of both reports: int64[3, n].

        Scores that are known imply the length of the subsequence.
        """
        counts = np.empty((3, len(query)), np.int64)
        if known is None:
            count_pairs(self.new_space(corpus), batch, corpus, query, document, counts)
        else:
            counts[1], counts[2] = corpus.features.sizes[0, document], batch.queries.sizes[query, 0]
            counts[0] = np.rint(common(known, counts[1], counts[2], self.coco))
        return counts

    def components(self, counts):
        """Return precision and recall of pairs by name: float64[n] each."""
        lcs, length, reference_length = counts
        return {"precision": lcs / np.maximum(length, 1), "recall": lcs / np.maximum(reference_length, 1)}
