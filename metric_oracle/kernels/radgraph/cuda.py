"""RadGraph F1 search on a GPU, which counts shared features from posting lists; the host scores what may be listed."""

from dataclasses import dataclass

from metric_oracle.kernels._jit import device_function
from metric_oracle.kernels._overlap_cuda import ComparedFamilies, OverlapScan, overlap_kernel
from metric_oracle.kernels._scan import Scanned
from metric_oracle.kernels.radgraph import cpu
from metric_oracle.kernels.radgraph.score import f1, mean_f1

LIBRARY = "numba"


@device_function
def _estimate(corpus, queries, q, families, tile, d, counts, i):
    """Return the F1 of document d, or the mean of two, as computed on the device, from its counts; -1 if all are 0.

    For the parameters see `make_scan`.
    """
    match_a = counts[i]
    if families.n == 1:
        return f1(match_a, corpus.sizes[families.first, d], queries.sizes[q, families.first]) if match_a > 0 else -1.0
    match_b = counts[i + tile]
    if match_a + match_b == 0:
        return -1.0
    sizes_a, sizes_b = corpus.sizes[0, d] + queries.sizes[q, 0], corpus.sizes[1, d] + queries.sizes[q, 1]
    return mean_f1(match_a, sizes_a, match_b, sizes_b)


scan_radgraph = overlap_kernel("scan_radgraph", _estimate)


@dataclass(frozen=True)
class Backend(Scanned, cpu.Backend):
    """RadGraph F1 on GPUs."""

    def scan(self, corpus, batch):
        """Return a new `Scan` of the corpus for distinct queries."""
        two = self.family_b >= 0  # then they are the first and the second family
        families = ComparedFamilies(self.family_a, 1 + two, 0)
        return OverlapScan(corpus, batch.queries, families, scan_radgraph, self.scores)
