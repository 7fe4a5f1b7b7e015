"""Counts of shared features on a GPU, as the first step of a search; see `_overlap.py` for documents and features.

Each CUDA block has one query, and goes through tiles (runs) of documents; several blocks share the tiles of a query.
The counters of a tile are in shared memory. Each warp reads the part of one posting list that falls into the tile, and
adds 1 to the counters of its documents. The counts are integers, so the order does not matter. `_scan.py` selects the
best documents.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, int64

from metric_oracle.kernels import _device
from metric_oracle.kernels import _overlap as overlap
from metric_oracle.kernels._jit import device_function, jit, kernel
from metric_oracle.kernels._scan import Scan, make_scan

WORDS = 8192  # counters of a block: 32 KB, so that five blocks share a multiprocessor of compute capability 9.0
THREADS = _device.LANES * _device.WARPS  # the most that a block may have


class ComparedFamilies(NamedTuple):
    """Which families of features a metric compares, and one option of the metric; passed to the CUDA kernel."""

    first: int  # the families first .. first + n - 1
    n: int
    option: int  # a setting of the metric, for `estimate`


class DeviceFeatures(NamedTuple):
    """Documents in GPU memory, numbered from 0; see `_overlap.Features` for the arrays."""

    post_ptr: Any  # int64[V + 1], as in `Features` for V features, D documents, F families and P postings
    post_unit: Any  # int32[P]
    sizes: Any  # int32[F, D]
    rows: Any  # int32[D], number of corpus rows of each document


_lower_bound = device_function(overlap.lower_bound)


@device_function
def _count(corpus, queries, q, families, tile, first, last, counts):
    """Write how many features query q shares with each of the documents first .. last - 1, by family, for `make_scan`.

    ``counts[f * tile + d - first]`` gets the number of document d in the f-th of the `families`, a `ComparedFamilies`.
    """
    begin = cuda.shared.array(THREADS, int64)
    end = cuda.shared.array(THREADS, int64)
    thread = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    n_threads = cuda.blockDim.x * cuda.blockDim.y
    for i in range(thread, families.n * tile, n_threads):
        counts[i] = 0
    for f in range(families.n):
        slot = q * queries.sizes.shape[1] + families.first + f
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


def overlap_kernel(name: str, estimate: Callable[..., float]) -> Any:
    """Return the CUDA kernel of a metric over sets of features; its stored machine code is named `name`.

    `estimate` is a device function that computes the score of a document from its counts, as for `make_scan`, with
    `ComparedFamilies` for options.
    """
    scan_tiles = make_scan(_count, estimate, WORDS)

    def scan(corpus, queries, families, tile, selection, collect):
        """Score all documents for one query per block, as the function of `make_scan` does; `families` are the options.

        Exactness
        ---------
        Counts are integers; the float64 score is right within `MARGIN`.

        Cost
        ----
        4 bytes and one shared atomic addition per posting; one score per document that matches anything. Expected
        limit: shared atomics and L2, see the README of `kernels`.
        """
        scan_tiles(corpus, queries, families, tile, selection, collect)

    scan.__qualname__ = name
    return kernel(scan)


class OverlapScan(Scan):
    """A GPU search that counts shared features by reading posting lists.

    `options` are the families that the metric compares, and `kernel` is what `overlap_kernel` returned.
    ``scores(counts)`` returns exact scores, float64[n], on the host, from counts as `count_shared` returns them.
    """

    name = "postings"

    def __init__(
        self,
        corpus: Any,
        queries: overlap.QueryFeatures,
        options: ComparedFamilies,
        kernel: Any,
        scores: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self.corpus, self.queries, self.options = corpus, queries, options
        self.kernel, self.scores = kernel, scores
        self.n_counts, self.tile = options.n, WORDS // options.n

    def document_bytes(self) -> float:
        """Return how many bytes an average document takes, with its share of the posting lists' offsets."""
        features = self.corpus.features
        total = features.post_ptr.nbytes + features.post_unit.nbytes + features.sizes.nbytes
        return total / (len(features.row_ptr) - 1) + 4

    def query_bytes(self) -> float:
        """Return how many bytes the features of an average query take."""
        return (self.queries.id.nbytes + self.queries.ptr.nbytes) / len(self.queries.sizes)

    def put_documents(self, first: int, last: int) -> DeviceFeatures:
        """Copy the documents first .. last - 1 to the current device, numbered from 0, and return the copy."""
        features = self.corpus.features
        post_ptr, post_unit = features.post_ptr, features.post_unit
        if last - first < len(features.row_ptr) - 1:
            post_ptr, post_unit = _cut(post_ptr, post_unit, first, last)
        rows = np.diff(features.row_ptr[first : last + 1]).astype(np.int32)
        return DeviceFeatures(*map(_device.upload, (post_ptr, post_unit, features.sizes[:, first:last], rows)))

    def put_queries(self, queries: np.ndarray, n_slices: int) -> overlap.QueryFeatures:
        """Copy consecutive distinct queries to the current device and return the copy; `n_slices` is not needed."""
        first, last = int(queries[0]), int(queries[-1]) + 1
        n_families = self.queries.sizes.shape[1]
        ptr = self.queries.ptr[first * n_families : last * n_families + 1]
        ids = self.queries.id[ptr[0] : ptr[-1]]
        return overlap.QueryFeatures(*map(_device.upload, (ptr - ptr[0], ids, self.queries.sizes[first:last])))

    def score(self, queries: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Return the exact scores of the rows of `record`: float64[n]; see `Scan.score`."""
        families = slice(self.options.first, self.options.first + self.options.n)
        counts = np.empty((3 * self.n_counts, len(record)), np.int64)
        counts[::3] = record[:, 2 : 2 + self.n_counts].T
        counts[1::3] = self.corpus.features.sizes[families, record[:, 1]]
        counts[2::3] = self.queries.sizes[queries[record[:, 0]], families].T
        return self.scores(counts)


@jit
def _cut(post_ptr, post_unit, first, last):
    """Return both arrays of the posting lists with the documents first .. last - 1 alone, renumbered from 0."""
    ptr = np.zeros(len(post_ptr), np.int64)
    begin = np.empty(len(post_ptr) - 1, np.int64)
    for v in range(len(begin)):
        begin[v] = overlap.lower_bound(post_unit, post_ptr[v], post_ptr[v + 1], first)
        ptr[v + 1] = ptr[v] + overlap.lower_bound(post_unit, begin[v], post_ptr[v + 1], last) - begin[v]
    document = np.empty(ptr[-1], np.int32)
    for v in range(len(begin)):
        for i in range(ptr[v + 1] - ptr[v]):
            document[ptr[v] + i] = post_unit[begin[v] + i] - first
    return ptr, document
