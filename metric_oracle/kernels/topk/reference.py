"""The tie rule in plain, slow Python: sort all rows by score, then by row."""

import numpy as np


def select(documents, scores, row_ptr, row_id, k, excluded=()):
    """Return the k best rows of scored documents, their scores and ties: best score first, equal ones by ascending row.

    `documents`, int64[n], are distinct, `scores` is float64[n], and `row_ptr` and `row_id` are the corpus rows of each
    document, int64[D + 1] and int64[N]. Rows in `excluded`, int64[e], are neither listed nor counted. The ties of a row
    that is listed are the number of rows with exactly its score. Fewer than k are returned if there are fewer.
    """
    n = k + len(excluded)  # so many documents stand for k rows or more: nothing below the last of them is listed
    if len(documents) > n:
        kept = scores >= np.partition(scores, len(scores) - n)[len(scores) - n]
        documents, scores = documents[kept], scores[kept]
    sizes = row_ptr[documents + 1] - row_ptr[documents]
    row = np.concatenate([row_id[:0], *(row_id[row_ptr[u] : row_ptr[u + 1]] for u in documents)])
    score = np.repeat(scores, sizes)
    if len(excluded):
        kept = ~np.isin(row, excluded)
        row, score = row[kept], score[kept]
    order = np.lexsort((row, -score))
    row, score = row[order], score[order]
    _, count = np.unique(-score, return_counts=True)
    ties = np.repeat(count, count)
    m = min(k, len(row))
    return row[:m], score[:m], ties[:m]
