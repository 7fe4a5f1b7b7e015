"""ROUGE-L search on a GPU: the longest common subsequence with every document, bit-parallel, one thread per document.

Words of a query that do not occur in the corpus match nothing and are left out; the query's length still counts them.
The query's other words are in a hash table with the bits of their positions: in shared memory for up to 64 words, else
in device memory.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int32, uint64

from metric_oracle.kernels import _device
from metric_oracle.kernels._jit import device_function, jit, kernel
from metric_oracle.kernels._scan import Scan, Scanned, make_scan
from metric_oracle.kernels.rouge_l import cpu
from metric_oracle.kernels.rouge_l.cpu import ONES, find_positions, ripple
from metric_oracle.kernels.rouge_l.score import rouge_l

LIBRARY = "numba"
GROUP = 32  # documents whose words lie interleaved: the threads of a warp read side by side
TILE = 1024  # documents a block scores at a time
BITS = 64  # words of a query in one block of bits
SPARE = 4  # places of a hash table for each word, at least
TABLE = SPARE * BITS  # of a query that fits into shared memory
ZERO = np.uint64(0)
ONE = np.uint64(1)


class DeviceWords(NamedTuple):
    """Documents on the device, numbered from 0."""

    # int32[...], word i of document d is `word[group_ptr[d // GROUP] + i * GROUP + d % GROUP]`; shorter documents of a
    # group leave entries of -1, which are not read
    word: Any
    group_ptr: Any  # int64[ceil(D / GROUP)], offset of each group of documents in `word`
    length: Any  # int32[D], number of words
    rows: Any  # int32[D], number of corpus rows of each document


class DeviceQueries(NamedTuple):
    """B queries on the device."""

    length: Any  # int32[B], number of words, including those that do not occur in the corpus
    n_blocks: Any  # int32[B], blocks of `BITS` words that occur in the corpus, at least 1
    # int64[B + 1], offset in `key` of the hash table of each query: open addressing from `word & (size - 1)`, where the
    # size is a power of two
    table_ptr: Any
    key: Any  # int32[H], word id, -1 for a free entry
    first: Any  # int32[H], first position entry of the word in `block` and `bits`
    last: Any  # int32[H], and the end of these
    block: Any  # int32[E], block of each entry, ascending within a word
    # uint64[E], bit i of an entry says whether word `BITS * block + i`, of those that were not left out, is the word
    bits: Any
    state: Any  # uint64[W, T], scratch of each thread of a launch, for the blocks of the longest query


@device_function
def _find(word, key, base, size):
    """Return the entry of a word in the hash table ``key[base : base + size]``, or the free entry where it would be."""
    probe = word & (size - 1)
    while key[base + probe] != word and key[base + probe] >= 0:
        probe = (probe + 1) & (size - 1)
    return base + probe


@device_function
def _count_short(words, start, length, key, bits, size):
    """Return the length of the longest common subsequence of a document and a query of up to `BITS` words.

    The document's words begin at index `start` of `words` and lie `GROUP` apart, see `DeviceWords`. `key` and `bits`
    are a hash table of `size` slots: the query's distinct words, and the bits of their positions.
    """
    v = ONES
    for i in range(length):
        word = words[start + i * GROUP]
        probe = _find(word, key, 0, size)
        if key[probe] == word:
            u = v & bits[probe]
            v = (v + u) | (v - u)
    return np.int64(cuda.popc(~v))


@device_function
def _count_long(words, start, length, queries, base, size, state):
    """Return the length of the longest common subsequence of a document and a query of any length.

    The document's words are as for `_count_short`. The query's words are a hash table of `size` slots that begins at
    index `base` of ``queries.key``; `state` is scratch with one word of 64 bits for each block of the query. The
    algorithm is that of `cpu.count_lcs`.
    """
    n_blocks = len(state)
    for j in range(n_blocks):
        state[j] = ONES
    for i in range(length):
        word = words[start + i * GROUP]
        probe = _find(word, queries.key, base, size)
        if queries.key[probe] == word:
            carry = ZERO
            done = 0  # blocks before this one are up to date
            for e in range(queries.first[probe], queries.last[probe]):
                j = queries.block[e]
                carry = ripple(state, carry, done, j)
                v = state[j]
                u = v & queries.bits[e]
                total = v + u
                is_over = total < v
                total += carry
                is_over = is_over or total < carry
                state[j] = total | (v - u)
                carry = ONE if is_over else ZERO
                done = j + 1
            ripple(state, carry, done, n_blocks)
    n = np.int64(0)
    for j in range(n_blocks):
        n += np.int64(cuda.popc(~state[j]))
    return n


@device_function
def _count(corpus, queries, q, coco, tile, first, last, counts):
    """Write the length of the longest common subsequence of query q and each of the documents first .. last - 1.

    They go to `counts`, see `make_scan`. Documents are sorted by length, so that the threads of a warp end together.
    """
    key = cuda.shared.array(TABLE, int32)
    bits = cuda.shared.array(TABLE, uint64)
    thread = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    n_threads = cuda.blockDim.x * cuda.blockDim.y
    me = (cuda.blockIdx.y * cuda.gridDim.x + q) * n_threads + thread
    base = queries.table_ptr[q]
    size = queries.table_ptr[q + 1] - base
    n_blocks = queries.n_blocks[q]
    if n_blocks == 1:
        for i in range(thread, size, n_threads):
            key[i] = queries.key[base + i]
            bits[i] = queries.bits[queries.first[base + i]]
    cuda.syncthreads()
    for d in range(first + thread, last, n_threads):
        length = corpus.length[d]
        start = corpus.group_ptr[d // GROUP] + d % GROUP
        if n_blocks == 1:
            lcs = _count_short(corpus.word, start, length, key, bits, size)
        else:
            lcs = _count_long(corpus.word, start, length, queries, base, size, queries.state[:n_blocks, me])
        counts[d - first] = lcs


@device_function
def _estimate(corpus, queries, q, coco, tile, d, counts, i):
    """Return ROUGE-L of document d, as computed on the device, from the length ``counts[i]`` of the subsequence.

    It is -1 if that length is 0. For the parameters see `make_scan`.
    """
    return rouge_l(counts[i], corpus.length[d], queries.length[q], coco) if counts[i] > 0 else -1.0


_scan_tiles = make_scan(_count, _estimate, TILE)


@kernel
def scan_rouge_l(corpus, queries, coco, tile, selection, collect):
    """Score all documents for one query per block, as the function of `make_scan` does; `coco` is that of `RougeL`.

    Exactness
    ---------
    Lengths of subsequences are integers; the float64 score is one division, right within `MARGIN`.

    Cost
    ----
    4 bytes, a look-up and six 64-bit operations for each word of a document; the query's table once per tile. Expected
    limit: integer operations, see the README of this folder.

    Source
    ------
    Hyyrö, Bit-parallel LCS-length computation revisited (AWOCA 2004).
    """
    _scan_tiles(corpus, queries, coco, tile, selection, collect)


class SequenceScan(Scan):
    """The scan of ROUGE-L: documents and queries as sequences of words."""

    name = "sequences"
    n_counts = 1

    def __init__(self, corpus, batch, coco=False):
        self.corpus, self.batch, self.kernel, self.options, self.tile = corpus, batch, scan_rouge_l, coco, TILE
        known = np.zeros(len(batch.words) + 1, np.int64)
        np.cumsum(batch.words >= 0, out=known[1:])
        self.n_known = known[batch.words_ptr[1:]] - known[batch.words_ptr[:-1]]

    def document_bytes(self):
        """Return how many bytes of GPU memory an average document takes."""
        return self.corpus.sequence.nbytes / (len(self.corpus.row_ptr) - 1) + 16

    def query_bytes(self):
        """Return how many bytes of GPU memory the longest query takes: its hash table, and scratch if it is long."""
        n = int(self.n_known.max(initial=0))
        n_threads = _device.LANES * _device.WARPS
        return 12.0 * (2 * SPARE + 1) * n + (8.0 * n / BITS * n_threads if n > BITS else 0)

    def put_documents(self, first, last):
        """Copy the documents first .. last - 1 to the current device, numbered from 0, and return the copy."""
        corpus = self.corpus
        word, group_ptr = _interleave(corpus.sequence, corpus.sequence_ptr, first, last)
        length = np.diff(corpus.sequence_ptr[first : last + 1]).astype(np.int32)
        rows = np.diff(corpus.row_ptr[first : last + 1]).astype(np.int32)
        return DeviceWords(*map(_device.upload, (word, group_ptr, length, rows)))

    def put_queries(self, queries, n_slices):
        """Copy the queries with these numbers to the current device, with scratch for `n_slices` blocks of each.

        Either all have at most `BITS` words that occur in the corpus, or all have more.
        """
        batch = self.batch
        n_known = self.n_known[queries]
        known_ptr = np.r_[0, np.cumsum(n_known)]
        sizes = SPARE * 2 ** np.ceil(np.log2(np.maximum(n_known, 1))).astype(np.int64)
        table_ptr = np.r_[0, np.cumsum(sizes)]
        tables = _tables(
            batch.words, batch.words_ptr, queries, known_ptr, table_ptr, np.zeros(self.corpus.n_words, np.int32)
        )
        n_blocks = np.maximum(-(-n_known // BITS), 1)
        longest = int(n_blocks.max())
        n_threads = len(queries) * n_slices * _device.LANES * _device.WARPS
        state = _device.empty((longest, n_threads) if longest > 1 else (1, 1), np.uint64)
        length = batch.queries.sizes[queries, 0]
        arrays = (length, n_blocks.astype(np.int32), table_ptr, *tables)
        return DeviceQueries._make([*map(_device.upload, arrays), state])

    def score(self, queries, record):
        """Return the exact scores of the rows of `record`: float64[n]; see `Scan.score`."""
        return _score(record, self.batch.queries.sizes[queries, 0], self.corpus.features.sizes[0], self.options)


@jit
def _interleave(sequence, sequence_ptr, first, last):
    """Return `word` and `group_ptr` of `DeviceWords` for the documents first .. last - 1 of `sequence`.

    `sequence_ptr` has the offset of each document.
    """
    n_groups = (last - first + GROUP - 1) // GROUP
    group_ptr = np.zeros(n_groups + 1, np.int64)
    for g in range(n_groups):
        d = min(first + (g + 1) * GROUP, last) - 1  # the longest
        group_ptr[g + 1] = group_ptr[g] + GROUP * (sequence_ptr[d + 1] - sequence_ptr[d])
    word = np.full(max(group_ptr[n_groups], 1), -1, np.int32)
    for d in range(last - first):
        begin = sequence_ptr[first + d]
        start = group_ptr[d // GROUP] + d % GROUP
        for i in range(sequence_ptr[first + d + 1] - begin):
            word[start + i * GROUP] = sequence[begin + i]
    return word, group_ptr[:-1].copy()


@jit
def _tables(words, words_ptr, queries, known_ptr, table_ptr, slot):
    """Return key, first, last, block, bits of `DeviceQueries` for the queries with these numbers.

    `words` and `words_ptr` are those of `SequenceBatch`; `known_ptr` and `table_ptr` have the offset of each query by
    words that occur in the corpus and in the tables. `slot` is scratch, one number per word of the corpus, all zero
    before and after.
    """
    key = np.full(table_ptr[-1], -1, np.int32)
    first = np.zeros(table_ptr[-1], np.int32)
    last = np.zeros(table_ptr[-1], np.int32)
    block = np.zeros(max(known_ptr[-1], 1), np.int32)
    bits = np.zeros(max(known_ptr[-1], 1), np.uint64)
    n_entries = 0
    for i in range(len(queries)):
        text = np.empty(known_ptr[i + 1] - known_ptr[i], np.int64)
        n = 0
        for p in range(words_ptr[queries[i]], words_ptr[queries[i] + 1]):
            if words[p] >= 0:
                text[n] = words[p]
                n += 1
        positions = find_positions(text, slot)
        size = table_ptr[i + 1] - table_ptr[i]
        n_new = 0
        for word in text:
            s = slot[word]
            if s > 0:
                probe = word & (size - 1)
                while key[table_ptr[i] + probe] >= 0:
                    probe = (probe + 1) & (size - 1)
                probe += table_ptr[i]
                key[probe] = word
                first[probe] = n_entries + positions.ptr[s] - 1  # without the entry of slot 0
                last[probe] = n_entries + positions.ptr[s + 1] - 1
                n_new = max(n_new, positions.ptr[s + 1] - 1)
                slot[word] = 0
        for e in range(n_new):
            block[n_entries + e] = positions.block[e + 1]
            bits[n_entries + e] = positions.bits[e + 1]
        n_entries += n_new
    return key, first, last, block, bits


@jit
def _score(record, reference_length, length, coco):
    """Return the exact ROUGE-L of the rows of `record`, float64[n]: query, document and length of the subsequence.

    `reference_length` and `length` are the numbers of words of queries and documents.
    """
    out = np.empty(len(record))
    for i in range(len(record)):
        lcs = np.int64(record[i, 2])
        out[i] = rouge_l(lcs, np.int64(length[record[i, 1]]), np.int64(reference_length[record[i, 0]]), coco)
    return out


@dataclass(frozen=True)
class Backend(Scanned, cpu.Backend):
    """ROUGE-L on GPUs."""

    def scan(self, corpus, batch):
        """Return a new `Scan` of the corpus for distinct queries."""
        return SequenceScan(corpus, batch, self.coco)

    def groups(self, corpus, batch, queries):
        """Return two arrays of queries: those with at most `BITS` words that the corpus contains, and the longer."""
        is_long = self.scan(corpus, batch).n_known[queries] > BITS
        return queries[~is_long], queries[is_long]
