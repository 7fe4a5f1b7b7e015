"""The best documents of one query, and the corpus rows that they stand for. The tie rule is here and nowhere else.

Order: best score first, then row ascending. A document, a distinct representation, stands for all corpus rows that have
it. Documents of equal scores are never dropped before their rows are known, because any of the tied documents may hold
the lowest row.

A query has one list of rows, or several that exclude different rows (`exclusion.py`). An excluded row counts nowhere:
not in its list, not among the ties, and not for the threshold, which counts only the rows of a document that every list
of the query may contain.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels._sort import sink, sort


class Best(NamedTuple):
    """The best documents of one query so far, as a binary heap with the worst score at index 0."""

    document: np.ndarray  # int32[D], the documents of the heap
    score: np.ndarray  # float64[D], their scores; `score[i]` is at most those of its children, 2 i + 1 and 2 i + 2
    # int64[3], numbers of documents in the heap, of their corpus rows, and of the rows of those with the least score
    state: np.ndarray
    floor: np.ndarray  # float64[1], documents with a lower score are not inserted
    # int32[n], for each document of the corpus, the most of its rows that one list of the query excludes
    excluded: np.ndarray
    of_list: np.ndarray  # int32[n], scratch: the number of its rows that the present list excludes; 0 between lists


def new_best(n_kept: int, n_documents: int | None = None) -> Best:
    """Allocate a `Best` for up to `n_kept` documents of a corpus of `n_documents`, by default `n_kept`.

    It must have room for all documents that may be inserted, because all may have equal scores.
    """
    n = n_kept if n_documents is None else n_documents
    return Best(
        np.empty(n_kept, np.int32),
        np.empty(n_kept, np.float64),
        np.zeros(3, np.int64),
        np.full(1, -np.inf),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
    )


def new_bests(n: int, n_documents: int) -> Best:
    """Allocate a `Best` for each of n queries that one thread searches together, in arrays with one axis more.

    `best_of` returns that of one query. A tuple of n of them would take seconds to compile, and arrays for each query a
    large part of the time of a search of one query. They share the scratch array `of_list`.
    """
    return Best(
        np.empty((n, n_documents), np.int32),
        np.empty((n, n_documents), np.float64),
        np.zeros((n, 3), np.int64),
        np.full((n, 1), -np.inf),
        np.zeros((n, n_documents), np.int32),
        np.zeros(n_documents, np.int32),
    )


@jit
def best_of(bests, i):
    """Return the `Best` of query i, from what `new_bests` returned."""
    return Best(bests.document[i], bests.score[i], bests.state[i], bests.floor[i], bests.excluded[i], bests.of_list)


@inner
def reset(best, floor):
    """Remove all documents from `best`; from now on those that score below `floor` are not inserted."""
    best.state[:] = 0
    best.floor[0] = floor


@inner
def begin(best, answers, q):
    """Prepare `best` for query q: remove all documents, set the floor to its limit, count the rows its lists exclude.

    Insertions follow; `expand` ends the query.
    """
    reset(best, answers.limit[q])
    exclusion = answers.exclusion
    if len(exclusion.first) > 0:
        for place in range(exclusion.first[q], exclusion.first[q + 1]):
            _count_excluded(exclusion, place, 1, best)
            for g in range(exclusion.wanted.shape[1]):
                group = exclusion.wanted[place, g]
                if group >= 0:
                    for p in range(exclusion.ptr[group], exclusion.ptr[group + 1]):
                        document = exclusion.document[exclusion.row[p]]
                        if document >= 0:
                            best.excluded[document] = max(best.excluded[document], best.of_list[document])
            _count_excluded(exclusion, place, 0, best)


@inner
def _is_excluded(exclusion, place, row, n_columns):
    """Return whether list `place` excludes a corpus row by one of the first columns of groups, `n_columns` of them."""
    for g in range(n_columns):
        if exclusion.wanted[place, g] >= 0 and exclusion.group[g, row] == exclusion.wanted[place, g]:
            return True
    return False


@inner
def _count_excluded(exclusion, place, step, best):
    """Count, in `best.of_list`, the rows of each document that list `place` excludes, each row once.

    `step` is 1 to count, 0 to set these counts to 0.
    """
    for g in range(exclusion.wanted.shape[1]):
        group = exclusion.wanted[place, g]
        if group >= 0:
            for p in range(exclusion.ptr[group], exclusion.ptr[group + 1]):
                row = exclusion.row[p]
                document = exclusion.document[row]
                if document >= 0 and step == 0:
                    best.of_list[document] = 0
                elif document >= 0 and not _is_excluded(exclusion, place, row, g):
                    best.of_list[document] += 1


@inner
def _n_rows(document, row_ptr, best):
    """Return a lower bound on the number of a document's rows that a list of the query may contain."""
    return row_ptr[document + 1] - row_ptr[document] - best.excluded[document]


@inner
def threshold(best, k):
    """Return the score that a document must reach to be listed: that of the k-th best row, else the floor."""
    return best.score[0] if best.state[1] >= k else best.floor[0]


@inner
def insert(document, score, row_ptr, k, best):
    """Insert a document unless its score is below `threshold`, and remove documents that k rows are now better than.

    `best` is changed, and `row_ptr`, int64[D + 1], has the offsets of the documents' corpus rows. The cost is O(log n)
    for a heap of n documents, each of which is removed at most once; ties are counted once.
    """
    if score < threshold(best, k):
        return
    n_rows = _n_rows(document, row_ptr, best)
    n = best.state[0]
    if n == 0 or score < best.score[0]:
        best.state[2] = n_rows
    elif score == best.score[0]:
        best.state[2] += n_rows
    best.state[0] += 1
    best.state[1] += n_rows
    _sift_up(document, score, n, best)
    # The documents with the least score leave together, once the others hold k rows.
    while best.state[1] - best.state[2] >= k:
        least = best.score[0]
        best.state[1] -= best.state[2]
        while best.score[0] == least:  # never all: k rows are left
            best.state[0] -= 1
            last = best.state[0]
            _sift_down(best.document[last], best.score[last], best)
        best.state[2] = _rows_of_least(best, row_ptr)


@inner
def _sift_up(document, score, i, best):
    """Insert a document with its score at the free index i at the end of the heap, and move it up to its place."""
    while i > 0 and score < best.score[(i - 1) >> 1]:
        parent = (i - 1) >> 1
        best.score[i], best.document[i] = best.score[parent], best.document[parent]
        i = parent
    best.score[i], best.document[i] = score, document


@inner
def _sift_down(document, score, best):
    """Replace the document at the root of the heap by this one, and move it down to its place."""
    n = best.state[0]
    i = 0
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and best.score[child + 1] < best.score[child]:
            child += 1
        if score <= best.score[child]:
            break
        best.score[i], best.document[i] = best.score[child], best.document[child]
        i = child
    best.score[i], best.document[i] = score, document


@inner
def _rows_of_least(best, row_ptr):
    """Return the number of corpus rows of the documents with the lowest score, found from the root of the heap."""
    n, least, rows = best.state[0], best.score[0], 0
    i = 0
    while True:
        if i < n and best.score[i] == least:
            rows += _n_rows(best.document[i], row_ptr, best)
            i = 2 * i + 1
            continue
        while i & 1 == 0 and i > 0:  # a right child, or beyond the end: both sides of the parent are done
            i = (i - 1) >> 1
        if i == 0:
            return rows
        i += 1


@inner
def _sort_descending(best):
    """Sort the documents of the heap by descending score, by a heap sort."""
    n = best.state[0]
    while best.state[0] > 1:
        best.state[0] -= 1
        last = best.state[0]
        document, score = best.document[last], best.score[last]
        best.document[last], best.score[last] = best.document[0], best.score[0]
        _sift_down(document, score, best)
    best.state[0] = n


@inner
def expand(best, row_ptr, row_id, k, answers, q):
    """Write the k best rows of each list of query q into `answers`, and reset the counts of excluded rows.

    `row_ptr` and `row_id` are the corpus rows of each document, int64[D + 1] and int64[N], ascending. Afterwards `best`
    is sorted, no longer a heap. The cost is O(n log n) for n documents and the rows that may be listed.
    """
    _sort_descending(best)
    exclusion = answers.exclusion
    if len(exclusion.first) == 0:
        _expand_list(best, row_ptr, row_id, k, exclusion, q, answers.rows[q], answers.scores[q], answers.ties[q])
        return
    for place in range(exclusion.first[q], exclusion.first[q + 1]):
        _count_excluded(exclusion, place, 1, best)
        out = answers.rows[place], answers.scores[place], answers.ties[place]
        _expand_list(best, row_ptr, row_id, k, exclusion, place, out[0], out[1], out[2])
        _count_excluded(exclusion, place, 0, best)
    for place in range(exclusion.first[q], exclusion.first[q + 1]):
        for g in range(exclusion.wanted.shape[1]):
            group = exclusion.wanted[place, g]
            if group >= 0:
                for p in range(exclusion.ptr[group], exclusion.ptr[group + 1]):
                    document = exclusion.document[exclusion.row[p]]
                    if document >= 0:
                        best.excluded[document] = 0


@inner
def _expand_list(best, row_ptr, row_id, k, exclusion, place, out_row, out_score, out_ties):
    """Write the k best rows of list `place`, their scores and ties, into `out_row`, `out_score` and `out_ties`.

    Where there are fewer, they are -1, 0 and 0. The other parameters are those of `expand`.
    """
    n_documents = best.state[0]
    filled = 0
    begin = 0
    while begin < n_documents and filled < k:
        score = best.score[begin]
        end = begin
        # The lowest rows so far. Once this part is full, it is a heap with the greatest of them at index 0.
        lowest = out_row[filled:k]
        rows = n = 0
        while end < n_documents and best.score[end] == score:
            document = best.document[end]
            n_excluded = best.of_list[document]
            rows += row_ptr[document + 1] - row_ptr[document] - n_excluded
            end += 1
            for p in range(row_ptr[document], row_ptr[document + 1]):
                if n_excluded > 0 and _is_excluded(exclusion, place, row_id[p], exclusion.wanted.shape[1]):
                    continue
                if n < len(lowest):
                    lowest[n] = row_id[p]
                    n += 1
                    if n == len(lowest):
                        for i in range(n // 2 - 1, -1, -1):
                            sink(lowest, i, n)
                elif row_id[p] < lowest[0]:
                    lowest[0] = row_id[p]
                    sink(lowest, 0, n)
                else:  # rows ascend within a document
                    break
        sort(lowest[:n])
        for _ in range(n):
            out_score[filled] = score
            out_ties[filled] = rows
            filled += 1
        begin = end
    for i in range(filled, k):
        out_row[i] = -1
        out_score[i] = 0.0
        out_ties[i] = 0
