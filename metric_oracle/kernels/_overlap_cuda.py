"""Counting shared features on a GPU: one block for a query and some tiles of units, counters in shared memory.

Term at a time: each warp reads the part of a posting list that falls into the tile, and adds one to the counters of its
units. Integers, so the order does not matter. See `_overlap.py` for units and features, `_scan.py` for the selection.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int32, int64

from metric_oracle.kernels import _device
from metric_oracle.kernels import _overlap as overlap
from metric_oracle.kernels._jit import device_function, jit, kernel
from metric_oracle.kernels._scan import BINS, MARGIN, Scan, Selection, bin_of

WORDS = 8192  # counters of a block: 32 KB, so that five blocks share a multiprocessor of compute capability 9.0
THREADS = _device.LANES * _device.WARPS  # the most that a block may have


class Corpus(NamedTuple):
    """Units on the device, numbered from 0; see `_overlap.Features`.

    Attributes
    ----------
    post_ptr : int64[V + 1]
    post_unit : int32[P]
    sizes : int32[F, D]
    rows : int32[D]
        Corpus rows of each unit.
    """

    post_ptr: Any
    post_unit: Any
    sizes: Any
    rows: Any


_lower_bound = device_function(overlap.lower_bound.py_func)


@device_function
def _count_tile(corpus, queries, q, family, n_families, first, last, counts, begin, end):
    """Count the features of some families that query q shares with the units first .. last - 1.

    All threads of the block take part, and wait for each other at the end.

    Parameters
    ----------
    family, n_families : int
        The first family and how many there are.
    begin, end : int64[THREADS], shared

    Writes
    ------
    counts : int32[WORDS], shared: those of family f of unit u in ``f * (WORDS // n_families) + u - first``
    """
    thread = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    n_threads = cuda.blockDim.x * cuda.blockDim.y
    tile = WORDS // n_families
    for i in range(thread, n_families * tile, n_threads):
        counts[i] = 0
    for f in range(n_families):
        slot = q * queries.sizes.shape[1] + family + f
        n_lists = queries.ptr[slot + 1]
        for base in range(queries.ptr[slot], n_lists, n_threads):
            cuda.syncthreads()  # the bounds of the lists before have been read
            if base + thread < n_lists:
                v = queries.id[base + thread]
                a, b = corpus.post_ptr[v], corpus.post_ptr[v + 1]
                a = _lower_bound(corpus.post_unit, a, b, first)
                begin[thread] = a
                end[thread] = _lower_bound(corpus.post_unit, a, min(b, a + last - first), last)
            cuda.syncthreads()
            for i in range(cuda.threadIdx.y, min(n_threads, n_lists - base), cuda.blockDim.y):
                for p in range(begin[i] + cuda.threadIdx.x, end[i], cuda.blockDim.x):
                    cuda.atomic.add(counts, f * tile + corpus.post_unit[p] - first, 1)
    cuda.syncthreads()


def overlap_kernel(estimate: Callable[..., float]) -> Any:
    """Make the kernel of a metric.

    Parameters
    ----------
    estimate : device function
        ``estimate(counts, i, tile, sizes, u, query_sizes, q, family, n_families, option)`` is the score of unit u;
        its matches of the f-th family are ``counts[i + f * tile]``. Negative where nothing matches.
    """

    @kernel
    def scan(corpus, queries, family, n_families, option, selection, collect):
        """Score all units for one query a block; see `_scan.py`.

        Parameters
        ----------
        corpus : Corpus
        queries : Queries
            Those of this launch, on the device; block (q, s) does every s-th tile of query q.
        family, n_families, option : int
            What the metric counts, and a number for `estimate`.
        selection : Selection
        collect : bool
            First run or second.

        Writes
        ------
        selection.weight, .peak, every cell of peak (first run); .record, .n_records (second run)

        Exactness
        ---------
        Counts are integers; the float64 score is right within `MARGIN`.

        Cost
        ----
        4 bytes and one shared atomic addition a posting; one score a unit that matches anything. Expected limit: shared
        atomics and L2, see the README of `kernels`.
        """
        counts = cuda.shared.array(WORDS, int32)
        begin = cuda.shared.array(THREADS, int64)
        end = cuda.shared.array(THREADS, int64)
        weight = cuda.shared.array(BINS, int32)
        top = cuda.shared.array(1, int32)
        q = cuda.blockIdx.x
        thread = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n_threads = cuda.blockDim.x * cuda.blockDim.y
        n_units = corpus.rows.shape[0]
        tile = WORDS // n_families
        for i in range(thread, BINS, n_threads):
            weight[i] = 0
        for t in range(cuda.blockIdx.y, selection.peak.shape[1], cuda.gridDim.y):
            if collect and selection.peak[q, t] < selection.least[q]:
                continue
            if thread == 0:
                top[0] = -1
            first = t * tile
            last = min(first + tile, n_units)
            _count_tile(corpus, queries, q, family, n_families, first, last, counts, begin, end)
            best = -1.0
            for u in range(first + thread, last, n_threads):
                score = estimate(counts, u - first, tile, corpus.sizes, u, queries.sizes, q, family, n_families, option)
                if score >= 0.0:
                    if collect:
                        if bin_of(score * MARGIN) >= selection.least[q]:
                            place = cuda.atomic.add(selection.n_records, 0, 1)
                            if place < selection.record.shape[0]:
                                selection.record[place, 0] = q
                                selection.record[place, 1] = u
                                for f in range(n_families):
                                    selection.record[place, 2 + f] = counts[f * tile + u - first]
                    else:
                        cuda.atomic.add(weight, bin_of(score), corpus.rows[u])
                        best = max(best, score)
            if best >= 0.0:
                cuda.atomic.max(top, 0, bin_of(best * MARGIN))
            cuda.syncthreads()  # nobody needs the counters any more
            if thread == 0 and not collect:
                selection.peak[q, t] = top[0]
        cuda.syncthreads()
        if not collect:
            for i in range(thread, BINS, n_threads):
                if weight[i] > 0:
                    cuda.atomic.add(selection.weight, (i, q), weight[i])

    return scan


class OverlapScan(Scan):
    """A scan of posting lists.

    Parameters
    ----------
    corpus : SetCorpus or SequenceCorpus
    queries : Queries
    family, n_families : int
        The families that the metric counts: a run of them.
    kernel : from :func:`overlap_kernel`
    option : int
        What `estimate` gets.
    score : function
        ``score(record, query_sizes, sizes)`` gives float64[n] on the host; query_sizes is that of each record.
    """

    name = "postings"

    def __init__(
        self, corpus: Any, queries: overlap.Queries, family: int, n_families: int, kernel: Any, option: int,
        score: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
    ) -> None:  # fmt: skip
        self.corpus, self.queries, self.kernel, self.score_records = corpus, queries, kernel, score
        self.family, self.n_counts, self.option = family, n_families, option
        self.tile = WORDS // n_families

    def unit_bytes(self) -> float:
        """Return the memory of one unit of average size, with its share of the dictionary."""
        features = self.corpus.features
        total = features.post_ptr.nbytes + features.post_unit.nbytes + features.sizes.nbytes
        return total / (len(features.row_ptr) - 1) + 4

    def query_bytes(self) -> float:
        """Return the memory of an average query's features."""
        return (self.queries.id.nbytes + self.queries.ptr.nbytes) / len(self.queries.sizes)

    def put_units(self, first: int, last: int) -> Corpus:
        """Bring the units first .. last - 1 to the device."""
        features = self.corpus.features
        post_ptr, post_unit = features.post_ptr, features.post_unit
        if last - first < len(features.row_ptr) - 1:
            post_ptr, post_unit = _cut(post_ptr, post_unit, first, last)
        rows = np.diff(features.row_ptr[first : last + 1]).astype(np.int32)
        return Corpus(*map(_device.upload, (post_ptr, post_unit, features.sizes[:, first:last], rows)))

    def put_queries(self, queries: np.ndarray, n_slices: int) -> overlap.Queries:
        """Bring queries that follow each other to the device."""
        first, last = int(queries[0]), int(queries[-1]) + 1
        n_families = self.queries.sizes.shape[1]
        ptr = self.queries.ptr[first * n_families : last * n_families + 1]
        ids = self.queries.id[ptr[0] : ptr[-1]]
        return overlap.Queries(*map(_device.upload, (ptr - ptr[0], ids, self.queries.sizes[first:last])))

    def run(self, grid: tuple[int, int], corpus: Any, queries: Any, selection: Selection, collect: bool) -> None:
        """Launch the kernel."""
        _device.launch(self.kernel, grid, corpus, queries, self.family, self.n_counts, self.option, selection, collect)

    def score(self, queries: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Return the exact scores of records."""
        query_sizes = self.queries.sizes[queries]
        return self.score_records(record, query_sizes, self.corpus.features.sizes)


@jit
def _cut(post_ptr, post_unit, first, last):
    """Return the posting lists of the units first .. last - 1, which are numbered from 0 then."""
    ptr = np.zeros(len(post_ptr), np.int64)
    begin = np.empty(len(post_ptr) - 1, np.int64)
    for v in range(len(begin)):
        begin[v] = overlap.lower_bound(post_unit, post_ptr[v], post_ptr[v + 1], first)
        ptr[v + 1] = ptr[v] + overlap.lower_bound(post_unit, begin[v], post_ptr[v + 1], last) - begin[v]
    unit = np.empty(ptr[-1], np.int32)
    for v in range(len(begin)):
        for i in range(ptr[v + 1] - ptr[v]):
            unit[ptr[v] + i] = post_unit[begin[v] + i] - first
    return ptr, unit
