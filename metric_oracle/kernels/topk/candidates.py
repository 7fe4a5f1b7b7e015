"""The k best rows of queries for each of which some documents have been scored, by the tie rule of `cpu.py`."""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.topk.cpu import begin, expand, insert, threshold


class Candidates(NamedTuple):
    """Scored documents of n queries, m in all."""

    query: np.ndarray  # int64[n], number of each distinct query
    ptr: np.ndarray  # int64[n + 1], offsets of the documents of each query
    document: np.ndarray  # int64[m]
    score: np.ndarray  # float64[m]
    unseen: np.ndarray  # float64[n], upper bound on the score of every other document with the query
    is_final: np.ndarray  # bool[n], output: no other document can be among the k best rows of the query


@jit
def put_best(candidates, row_ptr, row_id, k, best, answers):
    """Write the k best rows of each query of `candidates` into `answers`.

    `candidates.is_final` says whether no other document can be among them: `unseen` is below the k-th best score.

    `row_ptr` and `row_id` are the corpus rows of each document, int64[D + 1] and int64[N], ascending; `best` is
    scratch.
    """
    ptr = candidates.ptr
    for i in range(len(candidates.query)):
        begin(best, answers, candidates.query[i])
        for p in range(ptr[i], ptr[i + 1]):
            insert(candidates.document[p], candidates.score[p], row_ptr, k, best)
        # Every list has k rows that score more, or a document outside is below the limit.
        candidates.is_final[i] = candidates.unseen[i] < threshold(best, k)
        expand(best, row_ptr, row_id, k, answers, candidates.query[i])
