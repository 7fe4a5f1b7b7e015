"""Long posting lists as bits, one for each document, which are added to 64 counts at once.

Half of the documents of a corpus have its commonest words. Their bits are added in an eighth of the time that it takes
to add their postings one by one. Each thread makes them for the lists that it reads often: to make the bits of a list
takes as long as to read it four times.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import inner
from metric_oracle.kernels._overlap import Features
from metric_oracle.kernels._simd import add_bits

# Tuned on 185,538 synthetic impressions against themselves; any values give the same counts.
WORD = 64  # documents of a word of bits
DENSEST = 16  # bits are added where at least one document in so many has the feature
READS = 4  # a list gets bits once this many times its number of postings were read
MOST_BYTES = 1 << 26  # all bits of a thread
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Bitmaps(NamedTuple):
    """The bits of the long posting lists that one thread has read often."""

    # int64[S], the row of `bits` that each long list has, by `Features.skip_slot`; for a list without one, -1 less the
    # number of its postings that were read, repeated ones included
    row: np.ndarray
    n: np.ndarray  # int64[1], rows of `bits` that are in use
    bits: np.ndarray  # uint64[R, W]; in a row in use, bit d % WORD of word d // WORD is 1 if document d has the feature


def n_words(n_documents: int) -> int:
    """Return how many words hold a bit for each document."""
    return -(-n_documents // WORD)


def new_bitmaps(features: Features) -> Bitmaps:
    """Allocate the `Bitmaps` of one thread; a row is written, and takes memory, when its list gets bits."""
    width = n_words(len(features.fwd_ptr) - 1)
    n = min(len(features.skip), MOST_BYTES // max(8 * width, 1))
    row = np.full(len(features.skip), -1, np.int64)
    return Bitmaps(row, np.zeros(1, np.int64), np.empty((n, width), np.uint64))


@inner
def row_of_bits(feature, n_postings, index, bitmaps):
    """Return the row of `bitmaps.bits` that a feature's posting list has, or a number below 0 if it has none.

    `n_postings` of the list are to be read now. The bits are made here once the list was read often enough.
    """
    slot = index.skip_slot[feature]
    if slot < 0:
        return -1
    row, begin, end = bitmaps.row[slot], index.post_ptr[feature], index.post_ptr[feature + 1]
    if row >= 0 or (end - begin) * DENSEST < len(index.fwd_ptr) - 1:
        return row
    n = bitmaps.n[0]
    if -1 - row < READS * (end - begin) or n == len(bitmaps.bits):
        bitmaps.row[slot] = row - n_postings
        return -1
    bits = bitmaps.bits[n]
    for w in range(len(bits)):
        bits[w] = np.uint64(0)
    for p in range(begin, end):
        d = np.uint64(index.post_unit[p])
        bits[d >> np.uint64(6)] |= np.uint64(1) << (d & np.uint64(63))
    bitmaps.row[slot] = n
    bitmaps.n[0] = n + 1
    return n


@inner
def count_bits(row, first, end, count, bitmaps):
    """Add 1 to ``count[d]`` for each document d from `first` to `end` - 1 whose bit is 1 in a row of bits.

    `count`, uint8[...], has a byte for each bit of the row.
    """
    bits, address = bitmaps.bits[row], count.ctypes.data
    w, last = first >> 6, (end - 1) >> 6
    of_first, of_last = ALL << np.uint64(first & 63), ALL >> np.uint64(63 - ((end - 1) & 63))
    if w == last:
        of_first &= of_last
    add_bits(address + WORD * w, bits[w] & of_first)
    w += 1
    while w < last:
        add_bits(address + WORD * w, bits[w])
        w += 1
    if w == last:
        add_bits(address + WORD * w, bits[w] & of_last)
