"""Temporal F1 search on CPUs.

A set of keywords is a mask of 64 bits, and a corpus has few distinct sets, so all are scored.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._simd import count_ones
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.temporal.score import temporal_f1
from metric_oracle.kernels.topk.cpu import begin, expand, insert, new_best


class Masks(NamedTuple):
    """Distinct sets of keywords of a corpus or of queries."""

    masks: np.ndarray  # uint64[D], one bit per keyword
    row_ptr: np.ndarray  # int64[D + 1], offset of the rows with each set in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows or queries


@jit
def search_masks(corpus, queries, first, last, k, best, answers):
    """Write the k best rows for the queries first .. last - 1 of `queries`, masks uint64[Q], into `answers`.

    `corpus` is a `Masks`, and `best` is scratch. Nothing is dropped, so the result is exact; a score takes two bit
    operations.
    """
    for q in range(first, last):
        begin(best, answers, q)
        n_reference = count_ones(queries[q])
        for d in range(len(corpus.masks)):
            value = temporal_f1(count_ones(corpus.masks[d] & queries[q]), count_ones(corpus.masks[d]), n_reference)
            insert(d, value, corpus.row_ptr, k, best)
        expand(best, corpus.row_ptr, corpus.row_id, k, answers, q)


@dataclass(frozen=True)
class Backend(Kernel):
    """Temporal F1 on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`."""
        search_masks(corpus, batch.masks, queries.start, queries.stop, k, workspace, answers)

    def counts(self, corpus, batch, query, document, known=None):
        """Return, for pairs, how many keywords are shared, in the candidate and in the reference: int64[3, n]."""
        candidates, references = corpus.masks[document], batch.masks[query]
        return np.bitwise_count([candidates & references, candidates, references]).astype(np.int64)

    def scores(self, counts):
        """Return the F1 of pairs, float64[n], by the same division of integers as `temporal_f1`."""
        shared, n_candidate, n_reference = counts
        total = n_candidate + n_reference
        return np.where(total == 0, 1.0, 2.0 * shared / np.maximum(total, 1))

    def components(self, counts):
        """Return precision and recall of pairs by name, float64[n]; both are 1 where neither report has a keyword."""
        shared, n_candidate, n_reference = counts
        agree = n_candidate + n_reference == 0
        parts = {"precision": shared / np.maximum(n_candidate, 1), "recall": shared / np.maximum(n_reference, 1)}
        return {name: np.where(agree, 1.0, values) for name, values in parts.items()}

    def new_workspace(self, corpus):
        """Allocate the scratch arrays of one thread."""
        return new_best(len(corpus.masks))
