"""Scans on a GPU: the device scores every document, and the host scores again those that may be among the k best.

Counts are integers and equal on all devices. Scores differ in the last bits: a GPU fuses multiplications with additions
and has its own exp. Its float64 score is therefore only a screen, by a histogram for each query:

1. The kernel of a metric (`make_scan`) counts the matches of every document, and adds the document's rows to the bin
   of its score. `bin_of` never falls as the score rises.
2. `find_least` goes down from the best bin until it has k rows.
3. The kernel runs again over the tiles whose best document reaches that bin, and writes the counts of the documents
   that do.

Nothing is lost: let d be a document that belongs in the list, and e the relative error of a device's score. Of the k
rows in the bins from `least` upwards, one at least, of document w, has no better exact score than d (else d would not
belong in the list). So device(w) <= (1 + e) exact(w) <= (1 + e) exact(d) <= (1 + e) / (1 - e) device(d) <= MARGIN
device(d), and bin_of(MARGIN device(d)) >= bin_of(device(w)) >= least. A score is a dozen float64 operations, each right
to 2 ulp, and an exp of up to -709, which multiplies the error of its argument by that: e < 2**-40.

Every search checks this: each record contains MARGIN times the device's score, which the exact score must not exceed.
A sample of the documents of each query is recorded even if they were dropped; none of them may belong in the list.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import cuda, int32

from metric_oracle.kernels import _device
from metric_oracle.kernels._errors import check_bounds, sample_size
from metric_oracle.kernels._jit import device_function, jit, kernel
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.cpu import Best, begin, expand, insert, new_best, threshold

BINS = 2048
MARGIN = 1.0 + 2.0**-20
RECORDS = 256  # of each query, to begin with
SHARE_OF_QUERIES = 0.25  # of the free memory, at most
STRIDE = 2654435761  # between the sampled documents of two queries (Knuth's multiplicative hashing)
ONE = 1 << 30  # a score of 1 in a record


class ScanArrays(NamedTuple):
    """Arrays on the device with which a scan of B queries and T tiles selects the documents to score on the host."""

    weight: Any  # int32[BINS, B], histogram of each query: how many corpus rows score in each bin
    # int32[B, T], bin of MARGIN times the best score of each tile (run of documents), -1 if no document matches
    peak: Any
    least: Any  # int32[B], lowest bin whose documents are recorded
    # int32[R, 3 + C], a row for each recorded document, in any order: query, document, its C counts, and a bound. The
    # bound b is MARGIN times the device's score in steps of 1 / ONE, rounded up; -1 - b marks a sampled document that
    # was dropped.
    record: Any
    n_records: Any  # int64[1], number of records; those beyond R are counted but not written
    spacing: int  # distance, in documents, between two sampled documents of a query


@device_function
def bin_of(score):
    """Return the bin of a score from 0 to 1 by its fourth root, which spreads low scores; bins ascend with scores."""
    return min(int(math.sqrt(math.sqrt(score)) * (BINS - 1)), BINS - 1)


@kernel
def find_least(k, weight, least):
    """Write, for each query, the highest bin such that it and the bins above hold at least `k` rows; 0 if all do not.

    `weight`, int32[BINS, B], has the histogram of each query, and `least`, int32[B], is written. One thread per query
    reads up to BINS integers, next to those of neighbouring threads.
    """
    q = (cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y) * cuda.blockDim.x + cuda.threadIdx.x
    if q < least.shape[0]:
        b = weight.shape[0]
        n = 0
        while b > 0 and n < k:
            b -= 1
            n += weight[b, q]
        least[q] = b


def make_scan(count: Callable[..., None], estimate: Callable[..., float], n_counters: int) -> Any:
    """Return the device function that a metric's kernel consists of.

    The kernel itself stands in the module of `count`: Numba's simulator knows `cuda` throughout a launch only there.

    Parameters
    ----------
    count : device function
        ``count(corpus, queries, q, options, tile, first, last, counts)`` compares query q with the documents first ..
        last - 1: count c of document d goes into ``counts[c * tile + d - first]``. All threads of the block take part.
    estimate : device function
        ``estimate(corpus, queries, q, options, tile, d, counts, i)`` is the score of document d, whose count c is
        ``counts[c * tile + i]``. Negative where nothing matches.
    n_counters : int
        Length of `counts`, which is int32 and in shared memory: at least `Scan.n_counts` for each document of a tile.
    """

    @device_function
    def scan(corpus, queries, options, tile, selection, collect):
        """Score all documents for one query per block: block (q, s) takes every s-th tile of query q.

        `corpus` has `rows`, int32[D], the number of corpus rows of each document; `options` are settings of the metric,
        for `count` and `estimate`; `tile` is the number of documents that are counted at a time. In the first run
        `collect` is False, and the arrays `weight` and `peak` of the `ScanArrays` are written; in the second run its
        records are.
        """
        counts = cuda.shared.array(n_counters, int32)
        weight = cuda.shared.array(BINS, int32)
        top = cuda.shared.array(1, int32)
        q = cuda.blockIdx.x
        thread = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        n_threads = cuda.blockDim.x * cuda.blockDim.y
        n_counts = selection.record.shape[1] - 3
        shift = (q + 1) * STRIDE % selection.spacing
        for i in range(thread, BINS, n_threads):
            weight[i] = 0
        for t in range(cuda.blockIdx.y, selection.peak.shape[1], cuda.gridDim.y):
            first = t * tile
            last = min(first + tile, corpus.rows.shape[0])
            sampled = first + (shift - first) % selection.spacing  # the first sampled document from `first` on
            if collect and selection.peak[q, t] < selection.least[q] and sampled >= last:
                continue
            if thread == 0:
                top[0] = -1
            count(corpus, queries, q, options, tile, first, last, counts)
            cuda.syncthreads()
            best = -1.0
            for d in range(first + thread, last, n_threads):
                score = estimate(corpus, queries, q, options, tile, d, counts, d - first)
                if collect:
                    is_wanted = score >= 0.0 and bin_of(score * MARGIN) >= selection.least[q]
                    if is_wanted or d % selection.spacing == shift:
                        row = cuda.atomic.add(selection.n_records, 0, 1)
                        if row < selection.record.shape[0]:
                            selection.record[row, 0] = q
                            selection.record[row, 1] = d
                            for c in range(n_counts):
                                selection.record[row, 2 + c] = counts[c * tile + d - first]
                            bound = int(max(score, 0.0) * MARGIN * ONE) + 1
                            selection.record[row, 2 + n_counts] = bound if is_wanted else -1 - bound
                elif score >= 0.0:
                    cuda.atomic.add(weight, bin_of(score), corpus.rows[d])
                    best = max(best, score)
            if best >= 0.0:
                cuda.atomic.max(top, 0, bin_of(best * MARGIN))
            cuda.syncthreads()  # the counters may be overwritten from here on
            if thread == 0 and not collect:
                selection.peak[q, t] = top[0]
        cuda.syncthreads()
        if not collect:
            for i in range(thread, BINS, n_threads):
                if weight[i] > 0:
                    cuda.atomic.add(selection.weight, (i, q), weight[i])
        cuda.syncthreads()  # the first thread to return ends the simulator's `cuda` of this module

    return scan


class Scan(ABC):
    """What of a GPU search depends on the metric: arrays of corpus and queries on the device, and the kernel."""

    corpus: Any  # NamedTuple with `row_ptr` and `row_id`, arrays of the corpus on the host
    name: str  # name under which the corpus is kept on the device
    kernel: Any  # CUDA kernel, calls the function that `make_scan` made
    options: Any  # number or NamedTuple of numbers: settings of the metric, for its device functions
    n_counts: int  # counts per document in a record, in addition to query, document and bound
    tile: int  # number of documents that a block counts at a time

    @abstractmethod
    def document_bytes(self) -> float:
        """Return how many bytes of GPU memory a document of average size takes."""

    @abstractmethod
    def query_bytes(self) -> float:
        """Return, at an estimate, how many bytes of GPU memory the arrays of one query take."""

    @abstractmethod
    def put_documents(self, first: int, last: int) -> Any:
        """Copy the documents first .. last - 1 to the current device, numbered from 0, and return the copy."""

    @abstractmethod
    def put_queries(self, queries: np.ndarray, n_slices: int) -> Any:
        """Copy the distinct queries with these numbers to the current device, and return the copy.

        `n_slices` is the number of blocks that will share each query.
        """

    @abstractmethod
    def score(self, queries: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Return the exact scores of the rows of `record` (see `ScanArrays`): float64[n].

        Their first column is an index into `queries`, which holds numbers of distinct queries.
        """

    def find(self, queries: np.ndarray, k: int, device: int, answers: Answers) -> None:
        """Find the k best rows of the distinct queries numbered in `queries`, and write them into `answers`.

        `device` is the number of the current device, which does the work. Raise DeviceError if it fails, or has no room
        for one query and one document, and ExactnessError as `finish` does.
        """
        n_documents = len(self.corpus.row_ptr) - 1
        if n_documents == 0 or len(queries) == 0:
            return
        name = f"{self.name} on {device}"
        memory = max(_device.free_bytes(), 1.0)
        n_pieces = 1
        if not _device.is_resident(self.corpus.row_ptr, name):
            needed = n_documents * self.document_bytes() / (1 - SHARE_OF_QUERIES)
            n_pieces = min(max(math.ceil(needed / memory), 1), n_documents)
        per_query = self.query_bytes() + 4.0 * (BINS + n_documents // self.tile + RECORDS * (3 + self.n_counts))
        batch = int(min(max(SHARE_OF_QUERIES * memory // per_query, 1), len(queries)))
        first = 0
        while first < len(queries):
            block = queries[first : first + batch]
            try:
                n_rows = max(answers.exclusion.n_documents(q, k) for q in block.tolist())
                record = np.concatenate([*self._candidates(block, n_rows, n_pieces, name)])
            except _device.NoRoomError as error:
                _device.forget(self.corpus.row_ptr, name)
                _device.release_unused()
                if batch > 1:
                    batch = (batch + 1) // 2
                elif n_pieces < n_documents:
                    n_pieces = min(2 * n_pieces, n_documents)
                else:
                    raise _device.DeviceError(
                        "the GPU",
                        "must have room for one query and a part of the corpus",
                        "too little",
                        'Free its memory, or use backend "cpu".',
                    ) from error
                continue
            finish(block, record, self.score(block, record), self.corpus, k, answers)
            first += len(block)

    def _candidates(self, queries: np.ndarray, k: int, n_pieces: int, name: str) -> Iterator[np.ndarray]:
        """Yield, for each of `n_pieces` pieces of the corpus, records of the documents that may hold the k best rows.

        They are int32[n, 3 + C], see `ScanArrays`. A corpus in one piece is kept on the device under `name`.
        """
        n_documents = len(self.corpus.row_ptr) - 1
        n = len(queries)
        n_slices = max(min(_device.n_blocks() // n, -(-n_documents // (n_pieces * self.tile))), 1)
        on_device = self.put_queries(queries, n_slices)
        weight = _device.filled((BINS, n), 0, np.int32)  # of all pieces so far
        least = _device.empty(n, np.int32)
        record = _device.empty((RECORDS * n, 3 + self.n_counts), np.int32)
        edges = np.linspace(0, n_documents, n_pieces + 1).astype(np.int64).tolist()
        for a, b in pairwise(edges):
            if n_pieces == 1:
                on_gpu = _device.resident(self.corpus.row_ptr, name, lambda: self.put_documents(0, n_documents))
            else:
                on_gpu = self.put_documents(a, b)
            n_tiles = -(-(b - a) // self.tile)
            grid = n, min(n_slices, n_tiles)
            peak = _device.empty((n, n_tiles), np.int32)
            spacing = max((b - a) // sample_size(n), 1)
            selection = ScanArrays(weight, peak, least, record, _device.filled(1, 0, np.int64), spacing)
            args = on_gpu, on_device, self.options, self.tile
            _device.launch(self.kernel, grid, *args, selection, False)
            threads = _device.LANES * _device.WARPS
            _device.launch(find_least, (-(-n // threads), 1), k, weight, least)
            _device.launch(self.kernel, grid, *args, selection, True)
            n_records = int(_device.download(selection.n_records)[0])
            if n_records > record.shape[0]:  # again, with room for all records
                record = _device.empty((n_records, 3 + self.n_counts), np.int32)
                selection = selection._replace(record=record, n_records=_device.filled(1, 0, np.int64))
                _device.launch(self.kernel, grid, *args, selection, True)
            part = _device.download(record[:n_records]) if n_records else np.empty((0, 3 + self.n_counts), np.int32)
            part[:, 1] += a
            yield part
            del on_gpu, args, peak, selection  # before the next piece needs the memory


class Scanned(_device.OnDevice):
    """Base of the backends that search by a scan on GPUs. Several GPUs share the queries."""

    library: ClassVar[str] = "numba"

    def scan(self, corpus: Any, batch: Any) -> Scan:
        """Return a new `Scan` of the corpus for the distinct queries of a batch."""
        raise NotImplementedError

    def groups(self, corpus: Any, batch: Any, queries: np.ndarray) -> Sequence[np.ndarray]:
        """Return arrays that together hold the query numbers `queries`; each is searched by a scan of its own.

        By default one array has all.
        """
        return [queries]

    def search(self, corpus: Any, batch: Any, queries: range, k: int, answers: Answers, workspace: Any) -> None:
        """Write the k best rows for the distinct queries numbered in `queries` into `answers`.

        Raise DeviceError if a device fails or has no room, and ExactnessError as `finish` does.
        """
        for group in self.groups(corpus, batch, np.arange(queries.start, queries.stop)):

            def work(device: int, begin: int, end: int, group: np.ndarray = group) -> None:
                self.scan(corpus, batch).find(group[begin:end], k, device, answers)

            _device.share("numba", len(group), work)


def finish(queries: np.ndarray, record: np.ndarray, score: np.ndarray, corpus: Any, k: int, answers: Answers) -> None:
    """Write the k best rows of distinct queries into `answers`, by the exact `score` of each row of `record`.

    `queries` holds the numbers of the queries, and the first column of `record`, see `ScanArrays`, an index into it.
    Raise ExactnessError if a score exceeds its bound, or a document that was dropped, and scored only as a check,
    belongs in a list.
    """
    bound = record[:, -1]
    above = np.where(bound < 0, -1 - bound, bound) / ONE - score
    most = int(np.bincount(record[:, 0]).max(initial=0))
    n_missed = _finish(
        queries,
        record,
        score,
        corpus.row_ptr,
        corpus.row_id,
        k,
        new_best(most, len(corpus.row_ptr) - 1),
        answers,
    )
    check_bounds({"scores of the GPU": float(above.min(initial=np.inf))}, n_missed)


@jit
def _finish(queries, record, score, row_ptr, row_id, k, best: Best, answers):
    """Write the k best rows of each query for `finish`; return how many documents of the check belong in a list.

    `queries`, `record` and `score` are those of `finish`, `row_ptr` and `row_id` those of the corpus; `best` is
    scratch.
    """
    n = len(queries)
    start = np.zeros(n + 1, np.int64)
    for i in range(len(record)):
        start[record[i, 0] + 1] += 1
    for q in range(n):
        start[q + 1] += start[q]
    end = start[:-1].copy()
    order = np.empty(len(record), np.int64)
    for i in range(len(record)):
        order[end[record[i, 0]]] = i
        end[record[i, 0]] += 1
    n_missed = 0
    last = record.shape[1] - 1
    for q in range(n):
        begin(best, answers, queries[q])
        for i in order[start[q] : start[q + 1]]:
            if score[i] > 0.0 and record[i, last] >= 0:
                insert(record[i, 1], score[i], row_ptr, k, best)
        for i in order[start[q] : start[q + 1]]:
            if score[i] > 0.0 and record[i, last] < 0 and score[i] >= threshold(best, k):
                n_missed += 1
        expand(best, row_ptr, row_id, k, answers, queries[q])
    return n_missed
