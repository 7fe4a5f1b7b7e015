"""BLEU search on a GPU: n-gram matches counted from posting lists, finalists scored on the host."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels._jit import device_function, jit
from metric_oracle.kernels._overlap_cuda import OverlapScan, overlap_kernel
from metric_oracle.kernels._scan import search as scan_all
from metric_oracle.kernels.bleu import cpu
from metric_oracle.kernels.bleu.score import bleu

LIBRARY = "numba"
COCO = 1  # option of the kernel


@device_function
def _estimate(corpus, queries, q, families, tile, d, counts, i):
    m1 = counts[i]
    if m1 == 0:
        return -1.0
    m2 = counts[i + tile] if families.n > 1 else 0
    m3 = counts[i + 2 * tile] if families.n > 2 else 0
    m4 = counts[i + 3 * tile] if families.n > 3 else 0
    return bleu(m1, m2, m3, m4, corpus.sizes[0, d], queries.sizes[q, 0], families.n, families.option == COCO)


scan_bleu = overlap_kernel(_estimate)


@jit
def _score(record, query_sizes, sizes, order, coco):
    out = np.empty(len(record))
    m = np.zeros(4, np.int64)
    for i in range(len(record)):
        for n in range(order):
            m[n] = record[i, 2 + n]
        length, reference_length = np.int64(sizes[0, record[i, 1]]), np.int64(query_sizes[record[i, 0], 0])
        out[i] = bleu(m[0], m[1], m[2], m[3], length, reference_length, order, coco)
    return out


@dataclass(frozen=True)
class Backend(_device.OnDevice, cpu.Backend):
    """BLEU on GPUs."""

    library: ClassVar[str] = LIBRARY

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1.

        Raises
        ------
        DeviceError
            If a device fails or has no room.
        """

        def score(record, query_sizes, sizes):
            return _score(record, query_sizes, sizes, self.order, self.coco)

        def make():
            return OverlapScan(corpus, batch.queries, 0, self.order, scan_bleu, COCO if self.coco else 0, score)

        scan_all(make, np.arange(first, last), k, answers)
