"""BLEU search on a GPU, which counts n-gram matches from posting lists; the host scores what may be listed."""

from dataclasses import dataclass

from metric_oracle.kernels._jit import device_function
from metric_oracle.kernels._overlap_cuda import ComparedFamilies, OverlapScan, overlap_kernel
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


@dataclass(frozen=True)
class Backend(Scanned, cpu.Backend):
    """BLEU on GPUs."""

    def scan(self, corpus, batch):
        """Return a new `Scan` of the corpus for distinct queries."""
        orders = ComparedFamilies(0, self.order, COCO if self.coco else 0)
        return OverlapScan(corpus, batch.queries, orders, scan_bleu, self.scores)
