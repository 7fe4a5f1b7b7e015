"""BLEU search on a GPU, which counts n-gram matches from posting lists; the host scores what may be listed."""

from dataclasses import dataclass

import numpy as np

from metric_oracle.kernels._jit import device_function, jit
from metric_oracle.kernels._overlap_cuda import OverlapScan, overlap_kernel
from metric_oracle.kernels._scan import Scanned
from metric_oracle.kernels.bleu import cpu
from metric_oracle.kernels.bleu.score import bleu

LIBRARY = "numba"
COCO = 1  # option of the kernel


@device_function
def _estimate(corpus, queries, q, families, tile, d, counts, i):
    """Return BLEU of document d, as computed on the device, from its counts; -1 if no unigram matches.

    For the parameters see `make_scan`.
    """
    m1 = counts[i]
    if m1 == 0:
        return -1.0
    m2 = counts[i + tile] if families.n > 1 else 0
    m3 = counts[i + 2 * tile] if families.n > 2 else 0
    m4 = counts[i + 3 * tile] if families.n > 3 else 0
    return bleu(m1, m2, m3, m4, corpus.sizes[0, d], queries.sizes[q, 0], families.n, families.option == COCO)


scan_bleu = overlap_kernel("scan_bleu", _estimate)


@jit
def _score(record, query_sizes, sizes, order, coco):
    """Return the exact BLEU of the rows of `record`, float64[n]; for these and the sizes see `OverlapScan`.

    `order` and `coco` are as in `cpu.Bleu`.
    """
    out = np.empty(len(record))
    m = np.zeros(4, np.int64)
    for i in range(len(record)):
        for n in range(order):
            m[n] = record[i, 2 + n]
        length, reference_length = np.int64(sizes[0, record[i, 1]]), np.int64(query_sizes[record[i, 0], 0])
        out[i] = bleu(m[0], m[1], m[2], m[3], length, reference_length, order, coco)
    return out


@dataclass(frozen=True)
class Backend(Scanned, cpu.Backend):
    """BLEU on GPUs."""

    def scan(self, corpus, batch):
        """Return a new `Scan` of the corpus for distinct queries."""

        def score(record, query_sizes, sizes):
            return _score(record, query_sizes, sizes, self.order, self.coco)

        return OverlapScan(corpus, batch.queries, 0, self.order, scan_bleu, COCO if self.coco else 0, score)
