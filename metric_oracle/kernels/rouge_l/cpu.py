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
from metric_oracle.kernels._pairs import begin_query, count_pair, count_pairs, end_query, score_of
from metric_oracle.kernels._simd import count_ones
from metric_oracle.kernels.rouge_l.score import common, rouge_l

ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


class Positions(NamedTuple):
    """Positions of the words of a query, as bits in blocks of 64 words.

    A slot is a number from 1 for each distinct word of the query that occurs in the corpus.
    """

    ptr: np.ndarray  # int64[S + 2], entries of slot s are `ptr[s] : ptr[s + 1]`
    block: np.ndarray  # int64[E], block of each entry, ascending within a slot
    # uint64[E + 1]; bit i of an entry says whether the query's word 64 * block + i is the slot's; the last is 0
    bits: np.ndarray


@jit
def find_positions(words, slot):
    """Return the `Positions` of a query's words, int64[n], and write the slots of its distinct words into `slot`.

    `slot`, int32[V], is all zero before. Words that do not occur in the corpus, -1, get none.
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
    bits = np.zeros(ptr[n_slots + 1] + 1, np.uint64)
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
        v = ONES
        for p in range(begin, end):
            u = v & positions.bits[slot[sequence[p]] - 1]  # a word that the query lacks reads the last entry, 0
            v = (v + u) | (v - u)
        return count_ones(~v)
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


@jit
def _count_short(words, sequence, buckets, mask, out):
    """Write the length of the longest common subsequence of a query of at most 64 words and every document into `out`.

    `words`, int64[n], and `sequence` are the word ids of query and documents, `buckets`, int64[C, 8], has first and end
    document, length, and in the fourth column the first word of a bucket in `sequence`, and `mask`, uint64[V], is all
    zero before and after. There are two loads and four operations per word of the corpus, without a branch; four
    documents are processed together, which hides the latency of the loads.
    """
    for i in range(len(words)):
        if words[i] >= 0:
            mask[words[i]] |= np.uint64(1) << np.uint64(i)
    for j in range(len(buckets)):
        u = np.uint64(buckets[j, 0])
        end = np.uint64(buckets[j, 1])
        length = np.uint64(buckets[j, 2])
        a = np.uint64(buckets[j, 3])
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
            out[u] = count_ones(~s0)
            out[u + np.uint64(1)] = count_ones(~s1)
            out[u + np.uint64(2)] = count_ones(~s2)
            out[u + np.uint64(3)] = count_ones(~s3)
            a = d + length
            u += np.uint64(4)
        while u < end:
            s0 = ONES
            for t in range(length):
                m0 = s0 & mask[np.uint32(sequence[a + t])]
                s0 = (s0 + m0) | (s0 - m0)
            out[u] = count_ones(~s0)
            a += length
            u += np.uint64(1)
    for i in range(len(words)):
        if words[i] >= 0:
            mask[words[i]] = np.uint64(0)


@jit
def _score_all(coco, words, sequence, ptr, buckets, slot, mask, out):
    """Write the ROUGE-L score of one query, the word ids `words`, with each document into `out`.

    `sequence` and `buckets` are as in `_count_short`, `ptr` has the offset of each document; `slot` and `mask` are
    scratch, all zero before and after.
    """
    n = len(words)
    if n <= 64:
        _count_short(words, sequence, buckets, mask, out)
    else:
        positions = find_positions(words, slot)
        state = np.empty((n + 63) // 64, np.uint64)
        for d in range(len(out)):
            out[d] = count_lcs(sequence, ptr[d], ptr[d + 1], slot, positions, state)
        for i in range(n):
            if words[i] >= 0:
                slot[words[i]] = 0
    for j in range(len(buckets)):
        for d in range(buckets[j, 0], buckets[j, 1]):
            out[d] = rouge_l(np.int64(out[d]), buckets[j, 2], np.int64(n), coco)


@compiled_for(begin_query, Slots)
def _(space, batch, q):
    words = batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]
    positions = find_positions(words, space.slot)
    return space.slot, positions, np.empty((len(words) + 63) // 64, np.uint64), np.int64(len(words))


@compiled_for(count_pair, Slots)
def _(space, found, corpus, d, counts):
    slot, positions, state, size = found
    begin, end = corpus.sequence_ptr[d], corpus.sequence_ptr[d + 1]
    counts[0] = count_lcs(corpus.sequence, begin, end, slot, positions, state)
    counts[1] = end - begin
    counts[2] = size


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

    def score_all(self, corpus, batch, chosen):
        """Yield ROUGE-L of every document with each of the chosen queries: float64[D], overwritten by the next."""
        out = np.empty(len(corpus.features.fwd_ptr) - 1)
        slot, mask = np.zeros(corpus.n_words, np.int32), np.zeros(corpus.n_words, np.uint64)
        buckets = corpus.buckets.copy()
        buckets[:, 3] = corpus.sequence_ptr[buckets[:, 0]]
        for q in chosen:
            words = batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]
            _score_all(self.coco, words, corpus.sequence, corpus.sequence_ptr, buckets, slot, mask, out)
            yield out

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
