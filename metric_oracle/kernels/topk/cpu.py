"""Keep the best units of one query and turn them into corpus rows; the only home of the tie rule.

Order: best score first, then row ascending. Equal scores are never dropped before the rows are known, because any of
the tied units may hold the lowest row.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit


class Best(NamedTuple):
    """The units kept for one query, best score first.

    Attributes
    ----------
    unit : int32[D]
    score : float64[D]
    state : int64[4]
        Number of kept units; rows that they stand for; start and rows of the last group of equal scores.
    """

    unit: np.ndarray
    score: np.ndarray
    state: np.ndarray


def new_best(n_units: int) -> Best:
    """Allocate room for every unit (all of a corpus may tie)."""
    return Best(np.empty(n_units, np.int32), np.empty(n_units, np.float64), np.zeros(4, np.int64))


@jit
def reset(best):
    """Forget all units."""
    best.state[:] = 0


@jit
def threshold(best, k):
    """Return the score that a unit must reach to be listed: the k-th best row's, 0 while there are fewer rows."""
    if best.state[0] > 0 and best.state[1] >= k:
        return best.score[best.state[0] - 1]
    return 0.0


@jit
def push(unit, score, n_rows, k, best):
    """Offer a unit with a positive score; keep it unless k rows are better.

    Parameters
    ----------
    unit : int
    score : float64, greater than 0
    n_rows : int
        Corpus rows of the unit.
    k : int
    best : Best
        Changed in place.
    """
    n, rows, tail, tail_rows = best.state[0], best.state[1], best.state[2], best.state[3]
    if rows >= k and score < best.score[n - 1]:
        return
    i = n
    while i > 0 and best.score[i - 1] < score:
        best.score[i] = best.score[i - 1]
        best.unit[i] = best.unit[i - 1]
        i -= 1
    best.score[i] = score
    best.unit[i] = unit
    n += 1
    rows += n_rows
    if n == 1 or (i == n - 1 and score < best.score[n - 2]):
        tail = n - 1
        tail_rows = n_rows
    elif i == n - 1:
        tail_rows += n_rows
    else:
        tail += 1
    if rows - tail_rows >= k:  # the last group of equal scores is no longer needed
        n = tail
        rows -= tail_rows
        tail_rows = -1
    best.state[0], best.state[1], best.state[2], best.state[3] = n, rows, tail, tail_rows


@jit
def regroup(best, row_ptr):
    """Find the last group of equal scores again after :func:`push` cut one off."""
    if best.state[3] >= 0:
        return
    n = best.state[0]
    i = n
    rows = 0
    while i > 0 and best.score[i - 1] == best.score[n - 1]:
        i -= 1
        rows += row_ptr[best.unit[i] + 1] - row_ptr[best.unit[i]]
    best.state[2] = i
    best.state[3] = rows


@jit
def offer(unit, score, row_ptr, k, best):
    """Push a unit and keep the groups right, cutting as many groups as k allows."""
    push(unit, score, row_ptr[unit + 1] - row_ptr[unit], k, best)
    while best.state[3] < 0:
        regroup(best, row_ptr)
        if best.state[1] - best.state[3] >= k:
            best.state[0] = best.state[2]
            best.state[1] -= best.state[3]
            best.state[3] = -1


@jit
def expand(best, row_ptr, row_id, k, out_row, out_score, out_ties):
    """Write the k best rows of one query.

    Parameters
    ----------
    best : Best
    row_ptr, row_id : int64[D + 1], int64[N]
        Rows of each unit, ascending.
    k : int

    Writes
    ------
    out_row : int64[k], -1 where there is no further row with a positive score
    out_score : float64[k]
    out_ties : int64[k], number of corpus rows with that very score
    """
    n = best.state[0]
    filled = 0
    begin = 0
    while begin < n:
        end = begin
        rows = 0
        while end < n and best.score[end] == best.score[begin]:
            rows += row_ptr[best.unit[end] + 1] - row_ptr[best.unit[end]]
            end += 1
        # The lowest rows of the group, by insertion: rows ascend within a unit, so a unit ends at its first loser.
        first = filled
        for i in range(begin, end):
            for p in range(row_ptr[best.unit[i]], row_ptr[best.unit[i] + 1]):
                row = row_id[p]
                if filled == k and (filled == first or row > out_row[filled - 1]):
                    break
                j = filled if filled < k else filled - 1
                while j > first and out_row[j - 1] > row:
                    out_row[j] = out_row[j - 1]
                    j -= 1
                out_row[j] = row
                filled = min(filled + 1, k)
        for i in range(first, filled):
            out_score[i] = best.score[begin]
            out_ties[i] = rows
        begin = end
    for i in range(filled, k):
        out_row[i] = -1
        out_score[i] = 0.0
        out_ties[i] = 0
