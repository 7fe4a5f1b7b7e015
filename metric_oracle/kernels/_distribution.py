"""The distribution of one query's scores over all rows of a corpus: mean, standard deviation, histogram and quantiles.

Documents are the distinct representations of a corpus. Each stands for one or more rows (reports), so all figures are
weighted by the number of rows. The width of a bin is a power of two, and bins begin at multiples of it. Multiplying a
score by a power of two is exact, so every score is counted in its true bin, and histograms of two queries can be added
once the bins of the finer one are merged.
"""

import math
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import inner, jit, linear
from metric_oracle.kernels._sort import order_of

BINS = 4096  # of one query at most: 128 KiB of counters, which stay in the second cache
LEAST_EXPONENT = -40  # finer bins are not needed: scores within a bin are sorted
CHUNK = 256  # scores that are summed before their sum is: keeps the error of a mean of 2**20 documents under 2**-44
WAYS = 4  # counters of one bin: updates for equal scores, which are frequent, would wait for one another


class SummaryScratch(NamedTuple):
    """Arrays that `summarise` writes its steps to, for a corpus of D documents; each thread has its own."""

    bin: np.ndarray  # uint16[D], bin of each document
    counts: np.ndarray  # int64[WAYS, BINS], corpus rows in each bin, in WAYS parts
    wanted: np.ndarray  # uint8[BINS], 1 for bins that a quantile lies in
    least: np.ndarray  # float64[BINS], lowest score in such a bin
    mass: np.ndarray  # int64[BINS], number of corpus rows with that score
    value: np.ndarray  # float64[D], the other scores in these bins
    weight: np.ndarray  # int64[D], corpus rows of each of them
    home: np.ndarray  # uint16[D], bin of each of them


def new_scratch(n_documents: int) -> SummaryScratch:
    """Allocate the scratch arrays of one thread for a corpus of `n_documents` documents; their values are undefined."""
    return SummaryScratch(
        np.empty(n_documents, np.uint16),
        np.empty((WAYS, BINS), np.int64),
        np.empty(BINS, np.uint8),
        np.empty(BINS),
        np.empty(BINS, np.int64),
        np.empty(n_documents),
        np.empty(n_documents, np.int64),
        np.empty(n_documents, np.uint16),
    )


@inner
def _sum(scores, rows, center, square):
    """Return the sum over all corpus rows of (score - center), a float, or of its square if `square` is true.

    `scores`, float64[D], has the score of each document, and `rows`, int64[D], the number of rows that it stands for.
    """
    total = 0.0
    for first in range(0, len(scores), CHUNK):
        last = min(first + CHUNK, len(scores))
        a = b = c = d = 0.0  # four sums side by side: one alone would wait for each addition
        u = first
        while u + 4 <= last:
            x, y, z, w = scores[u] - center, scores[u + 1] - center, scores[u + 2] - center, scores[u + 3] - center
            if square:
                x, y, z, w = x * x, y * y, z * z, w * w
            a += x * rows[u]
            b += y * rows[u + 1]
            c += z * rows[u + 2]
            d += w * rows[u + 3]
            u += 4
        while u < last:
            x = scores[u] - center
            a += (x * x if square else x) * rows[u]
            u += 1
        total += (a + b) + (c + d)
    return total


@inner
def _range(scores):
    """Return the lowest and the highest of `scores`, float64[D] with D at least 1, as a pair of floats."""
    least = greatest = scores[0]
    for u in range(len(scores)):
        x = scores[u]
        least = x if x < least else least
        greatest = x if x > greatest else greatest
    return least, greatest


@inner
def _finest(least, greatest):
    """Return the least int e from LEAST_EXPONENT on for which `BINS` bins of width 2**e cover `least` to `greatest`."""
    exponent = LEAST_EXPONENT
    while max(abs(least), abs(greatest)) * math.ldexp(1.0, -exponent) > 2.0**52:
        exponent += 1
    while True:
        scale = math.ldexp(1.0, -exponent)
        if math.floor(greatest * scale) - math.floor(least * scale) < BINS:
            return exponent
        exponent += 1


@jit
def _find(rank, home, n, scratch):
    """Return the score, a float, at a rank within the bin numbered `home`, found by sorting the scores of the bin.

    `rank`, an int, counts corpus rows from 1, beginning after those with the lowest score of the bin, which the caller
    handles, because many documents may share it. The first `n` entries of the arrays `scratch.home`, `scratch.value`
    and `scratch.weight` hold bin, score and number of rows of the other documents of the wanted bins.
    """
    m = 0
    for i in range(n):
        m += scratch.home[i] == home
    values = np.empty(m)
    rows = np.empty(m, np.int64)
    m = 0
    for i in range(n):
        if scratch.home[i] == home:
            values[m] = scratch.value[i]
            rows[m] = scratch.weight[i]
            m += 1
    last = 0
    for i in order_of(values):
        last = i
        rank -= rows[i]
        if rank <= 0:
            break
    return values[last]


@linear
def summarise(scores, rows, ranks, scratch, out):
    """Describe the scores of all corpus rows with one query.

    Parameters
    ----------
    scores : float64[D], D at least 1
        Score of each document; finite, none with an absolute value between 0 and 1e-290.
    rows : int64[D]
        Corpus rows of each document, at least 1.
    ranks : int64[n]
        Ranks among all rows, from 1 for the lowest score, whose scores are wanted (the quantiles).
    scratch : SummaryScratch
        Arrays to write to; `scratch.counts[0]` is left with the number of rows in each bin.

    Writes
    ------
    out : float64[4 + n]
        Mean, standard deviation (of all rows, so divided by their number), lowest and highest score, and the score at
        each of `ranks`. Quantiles are scores that occur; nothing is interpolated.

    Returns
    -------
    exponent, first, n_bins : tuple of three ints
        The histogram has bins 0 to n_bins - 1; bin i holds the scores from (first + i) * 2**exponent to below
        (first + i + 1) * 2**exponent.

    Cost
    ----
    Six passes over the scores, 3 ns per document in all if they fit into the second-level cache.
    """
    n_documents = len(scores)
    least, greatest = _range(scores)
    exponent = _finest(least, greatest)
    scale = math.ldexp(1.0, -exponent)
    first = np.int64(math.floor(least * scale))
    n_bins = np.int64(math.floor(greatest * scale)) - first + 1
    n_rows = np.int64(0)
    for u in range(n_documents):
        n_rows += rows[u]
    out[0] = out[2] = least
    out[1] = 0.0
    out[3] = greatest
    counts = scratch.counts
    counts[:, :n_bins] = 0
    if least == greatest:
        counts[0, 0] = n_rows
        out[4:] = least
        return exponent, first, n_bins
    out[0] = min(max(_sum(scores, rows, 0.0, False) / n_rows, least), greatest)
    out[1] = math.sqrt(_sum(scores, rows, out[0], True) / n_rows)

    for u in range(n_documents):
        b = np.int64(math.floor(scores[u] * scale)) - first
        scratch.bin[u] = b
        counts[u % WAYS, b] += rows[u]
    scratch.wanted[:n_bins] = 0
    for way in range(1, WAYS):
        counts[0, :n_bins] += counts[way, :n_bins]

    # Many rows may have the minimum score, zero in most metrics: they are counted without a branch.
    at_least = np.int64(0)
    for u in range(n_documents):
        at_least += rows[u] if scores[u] == least else 0
    home = np.full(len(ranks), -1)
    before = np.zeros(len(ranks), np.int64)
    for i in range(len(ranks)):
        if ranks[i] <= at_least:
            continue
        home[i] = 0
        while before[i] + counts[0, home[i]] < ranks[i]:
            before[i] += counts[0, home[i]]
            home[i] += 1
        scratch.wanted[home[i]] = 1
        scratch.least[home[i]] = np.inf
        scratch.mass[home[i]] = 0
    # Many rows may have the minimum of a bin too; the few scores above it are sorted.
    for u in range(n_documents):
        b = np.int64(scratch.bin[u])
        if scratch.wanted[b] == 1 and scores[u] < scratch.least[b]:
            scratch.least[b] = scores[u]
    n = 0
    for u in range(n_documents):
        b = np.int64(scratch.bin[u])
        if scratch.wanted[b] == 1:
            if scores[u] == scratch.least[b]:
                scratch.mass[b] += rows[u]
            else:
                scratch.value[n] = scores[u]
                scratch.weight[n] = rows[u]
                scratch.home[n] = b
                n += 1
    for i in range(len(ranks)):
        b = home[i]
        if b < 0:
            out[4 + i] = least
            continue
        rank = ranks[i] - before[i] - scratch.mass[b]
        out[4 + i] = _find(rank, b, n, scratch) if rank > 0 else scratch.least[b]
    return exponent, first, n_bins
