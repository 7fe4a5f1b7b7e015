"""Which corpus rows the result of a query excludes, such as those of the query's own patient.

A *list* is a result: the k best rows of a distinct query without the rows that are excluded. Reports with equal
representations are one query and are searched once, but if they exclude different rows the query has several lists.
"""

from typing import NamedTuple

import numpy as np


class Exclusion(NamedTuple):
    """Groups of corpus rows, and the groups that each list excludes.

    There are G columns of groups, for example patients and studies, and M groups in all; Q distinct queries have L
    lists.
    """

    # int64[Q + 1], first list of each distinct query; empty if each has one list and nothing is excluded
    first: np.ndarray
    wanted: np.ndarray  # int64[L, G], the group of each column that a list excludes, -1 for none
    group: np.ndarray  # int64[G, N], group of each corpus row in each column, -1 for none; no number is in two columns
    ptr: np.ndarray  # int64[M + 1], offset of each group in `row`
    row: np.ndarray  # int64[...], corpus rows of each group
    document: np.ndarray  # int64[N], document of each corpus row, -1 for none

    def lists(self, q: int) -> range:
        """Return the numbers of the lists of distinct query q."""
        return range(int(self.first[q]), int(self.first[q + 1])) if len(self.first) else range(q, q + 1)

    def rows_of(self, place: int) -> np.ndarray:
        """Return the rows that list `place` excludes, ascending, without rows that have no document: int64[n]."""
        if not len(self.wanted):
            return self.row[:0]
        groups = self.wanted[place][self.wanted[place] >= 0].tolist()
        rows = np.unique(np.concatenate([self.row[:0], *(self.row[self.ptr[g] : self.ptr[g + 1]] for g in groups)]))
        return rows[self.document[rows] >= 0]

    def row_ptr(self, q: int, row_ptr: np.ndarray) -> np.ndarray:
        """Return offsets whose differences are the least number of rows that each document adds to a list of query q.

        Those in `row_ptr`, int64[D + 1], are of all its rows; a list leaves out the rows that it excludes.
        """
        if not len(self.first):
            return row_ptr
        least = np.diff(row_ptr)
        sizes = least.copy()
        for place in self.lists(q):
            documents, n = np.unique(self.document[self.rows_of(place)], return_counts=True)
            least[documents] = np.minimum(least[documents], sizes[documents] - n)
        found = np.concatenate([np.zeros(1, np.int64), np.cumsum(least)])
        found.flags.writeable = False  # as those of a corpus are
        return found

    def n_documents(self, q: int, k: int) -> int:
        """Return how many of the best documents are sure to hold k rows for each list of distinct query q.

        Each excluded row may remove at most one document.
        """
        if not len(self.first):
            return k
        return k + max((len(self.rows_of(place)) for place in self.lists(q)), default=0)


_NONE = np.empty(0, np.int64)
NOTHING = Exclusion(_NONE, np.empty((0, 0), np.int64), np.empty((0, 0), np.int64), _NONE, _NONE, _NONE)
