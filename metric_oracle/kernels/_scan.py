"""Scans on a GPU: every unit gets a score, those that may be among the k best go to the host, which finishes them.

Counts are integers and the same everywhere. Scores are not: a GPU fuses multiplications with additions and has its own
exp. So its float64 score only screens, by means of a histogram for each query:

1. The kernel of a metric (`scan`) counts the matches of every unit, and adds the unit's rows to the bin of its score.
   `bin_of` never falls as the score rises.
2. `find_least` goes down from the best bin until it has k rows.
3. The kernel runs again over the tiles whose best unit reaches that bin, and writes the counts of the units that do.

Nothing is lost: let u be a unit that belongs in the list, and e the relative error of a device's score. Of the k rows
in the bins from `least` upwards, one at least, of unit w, has no better exact score than u (else u would not belong in
the list). So device(w) <= (1 + e) exact(w) <= (1 + e) exact(u) <= (1 + e) / (1 - e) device(u) <= MARGIN device(u), and
bin_of(MARGIN device(u)) >= bin_of(device(w)) >= least. A score is a dozen float64 operations, each right to 2 ulp, and
an exp of up to -709, which multiplies the error of its argument by that: e < 2**-40.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from metric_oracle.kernels import _device
from metric_oracle.kernels._jit import device_function, jit, kernel
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.cpu import Best, expand, insert, new_best, reset

BINS = 2048
MARGIN = 1.0 + 2.0**-20
RECORDS = 256  # of each query, to begin with
SHARE_OF_QUERIES = 0.25  # of the free memory, at most


class Selection(NamedTuple):
    """What a scan keeps of B queries and T tiles, on the device.

    Attributes
    ----------
    weight : int32[BINS, B]
        Rows whose units have scores of a bin.
    peak : int32[B, T]
        Bin of MARGIN times the best score of a tile, -1 where nothing matches.
    least : int32[B]
        Bin from which units are wanted.
    record : int32[R, 2 + C]
        Query, unit and counts of the wanted units, in any order.
    n_records : int64[1]
        How many there are; those beyond R are not written.
    """

    weight: Any
    peak: Any
    least: Any
    record: Any
    n_records: Any


@device_function
def bin_of(score):
    """Return the bin of a score of 0 to 1. The fourth root spreads small scores; correctly rounded roots keep order."""
    return min(int(math.sqrt(math.sqrt(score)) * (BINS - 1)), BINS - 1)


@kernel
def find_least(k, weight, least):
    """Find, for each query, the greatest bin such that it and those above hold k rows; 0 where all together do not.

    Parameters
    ----------
    k : int
    weight : int32[BINS, B]

    Writes
    ------
    least : int32[B], every cell

    Exactness
    ---------
    Integers.

    Cost
    ----
    One thread a query reads up to BINS numbers, side by side with its neighbours.
    """
    q = (cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y) * cuda.blockDim.x + cuda.threadIdx.x
    if q < least.shape[0]:
        b = weight.shape[0]
        n = 0
        while b > 0 and n < k:
            b -= 1
            n += weight[b, q]
        least[q] = b


class Scan(ABC):
    """What a metric brings along: how its corpus and its queries lie on a device, and its kernel.

    Attributes
    ----------
    corpus : named tuple with `row_ptr` and `row_id`
    n_counts : int
        Numbers that a record holds besides query and unit.
    tile : int
        Units that a block counts at a time.
    """

    corpus: Any
    name: str
    n_counts: int
    tile: int

    @abstractmethod
    def unit_bytes(self) -> float:
        """Return the memory of one unit of average size."""

    @abstractmethod
    def query_bytes(self) -> float:
        """Return the memory of a query's own arrays, the longest one's."""

    @abstractmethod
    def put_units(self, first: int, last: int) -> Any:
        """Bring the units first .. last - 1 to the device, where they are numbered from 0."""

    @abstractmethod
    def put_queries(self, queries: np.ndarray, n_slices: int) -> Any:
        """Bring the distinct queries with these numbers to the device."""

    @abstractmethod
    def run(self, grid: tuple[int, int], corpus: Any, queries: Any, selection: Selection, collect: bool) -> None:
        """Launch the kernel."""

    @abstractmethod
    def score(self, queries: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Return the exact scores of records whose first column counts within `queries`: float64[n]."""

    def find(self, queries: np.ndarray, k: int, device: int, answers: Answers) -> None:
        """Write the k best rows of some distinct queries into `found`, by means of the current device.

        Raises
        ------
        DeviceError
            If the device fails, or has no room for one query and a single unit.
        """
        n_units = len(self.corpus.row_ptr) - 1
        if n_units == 0 or len(queries) == 0:
            return
        name = f"{self.name} on {device}"
        room = max(_device.free_bytes(), 1.0)
        n_pieces = 1
        if not _device.is_resident(self.corpus.row_ptr, name):
            n_pieces = min(max(math.ceil(n_units * self.unit_bytes() / room / (1 - SHARE_OF_QUERIES)), 1), n_units)
        per_query = self.query_bytes() + 4.0 * (BINS + n_units // self.tile + RECORDS * (2 + self.n_counts))
        batch = int(min(max(SHARE_OF_QUERIES * room // per_query, 1), len(queries)))
        first = 0
        while first < len(queries):
            some = queries[first : first + batch]
            try:
                record = np.concatenate([*self._candidates(some, k, n_pieces, name)])
            except _device.NoRoomError as error:
                _device.forget(self.corpus.row_ptr, name)
                if batch > 1:
                    batch = (batch + 1) // 2
                elif n_pieces < n_units:
                    n_pieces = min(2 * n_pieces, n_units)
                else:
                    msg = (
                        "retrieve: the GPU must have room for one query and a part of the corpus; got too little. "
                        'Free its memory, or use backend "cpu".'
                    )
                    raise _device.DeviceError(msg) from error
                continue
            finish(some, record, self.score(some, record), self.corpus, k, answers)
            first += len(some)

    def _candidates(self, queries: np.ndarray, k: int, n_pieces: int, name: str) -> Iterator[np.ndarray]:
        """Yield the records of units that may be among the k best, int32[n, 2 + C], piece by piece of the corpus."""
        n_units = len(self.corpus.row_ptr) - 1
        n = len(queries)
        n_slices = max(min(_device.n_blocks() // n, -(-n_units // (n_pieces * self.tile))), 1)
        on_device = self.put_queries(queries, n_slices)
        weight = _device.filled((BINS, n), 0, np.int32)  # of all pieces so far
        least = _device.empty(n, np.int32)
        record = _device.empty((RECORDS * n, 2 + self.n_counts), np.int32)
        edges = np.linspace(0, n_units, n_pieces + 1).astype(np.int64).tolist()
        for a, b in pairwise(edges):
            if n_pieces == 1:
                on_gpu = _device.resident(self.corpus.row_ptr, name, lambda: self.put_units(0, n_units))
            else:
                on_gpu = self.put_units(a, b)
            n_tiles = -(-(b - a) // self.tile)
            grid = n, min(n_slices, n_tiles)
            peak = _device.empty((n, n_tiles), np.int32)
            selection = Selection(weight, peak, least, record, _device.filled(1, 0, np.int64))
            self.run(grid, on_gpu, on_device, selection, False)
            threads = _device.LANES * _device.WARPS
            _device.launch(find_least, (-(-n // threads), 1), k, weight, least)
            self.run(grid, on_gpu, on_device, selection, True)
            n_found = int(_device.download(selection.n_records)[0])
            if n_found > record.shape[0]:  # once more, with room for all
                record = _device.empty((n_found, 2 + self.n_counts), np.int32)
                selection = selection._replace(record=record, n_records=_device.filled(1, 0, np.int64))
                self.run(grid, on_gpu, on_device, selection, True)
            part = _device.download(record[:n_found]) if n_found else np.empty((0, 2 + self.n_counts), np.int32)
            part[:, 1] += a
            yield part
            del on_gpu, peak, selection  # before the next piece needs the room


def search(make: Callable[[], Scan], queries: np.ndarray, k: int, answers: Answers) -> None:
    """Let the GPUs share the queries, each with a scan of its own."""

    def work(device: int, first: int, last: int) -> None:
        make().find(queries[first:last], k, device, answers)

    _device.share("numba", len(queries), work)


def finish(queries: np.ndarray, record: np.ndarray, score: np.ndarray, corpus: Any, k: int, answers: Answers) -> None:
    """Order the scored records of some distinct queries and write their k best rows into `answers`."""
    most = int(np.bincount(record[:, 0]).max(initial=0))
    _finish(
        queries,
        record,
        score,
        corpus.row_ptr,
        corpus.row_id,
        k,
        new_best(most),
        answers.rows,
        answers.scores,
        answers.ties,
    )


@jit
def _finish(queries, record, score, row_ptr, row_id, k, best: Best, rows, scores, ties):
    n = len(queries)
    start = np.zeros(n + 1, np.int64)
    for i in range(len(record)):
        start[record[i, 0] + 1] += 1
    for q in range(n):
        start[q + 1] += start[q]
    place = start[:-1].copy()
    order = np.empty(len(record), np.int64)
    for i in range(len(record)):
        order[place[record[i, 0]]] = i
        place[record[i, 0]] += 1
    for q in range(n):
        reset(best)
        for i in order[start[q] : start[q + 1]]:
            if score[i] > 0.0:
                insert(record[i, 1], score[i], row_ptr, k, best)
        own = queries[q]
        expand(best, row_ptr, row_id, k, rows[own], scores[own], ties[own])
