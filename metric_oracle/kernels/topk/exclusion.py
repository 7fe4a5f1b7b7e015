"""Which corpus rows the lists of a query leave out.

A *list* is an answer: the k best rows of a distinct query, without the rows that are excluded. A query has several
where reports of one representation exclude different rows, such as those of their own patients: they share a search.
"""

from typing import NamedTuple

import numpy as np


class Exclusion(NamedTuple):
    """Groups of corpus rows, and the groups that each list leaves out.

    Attributes
    ----------
    first : int64[Q + 1]
        First list of each distinct query; empty where each has one list, and nothing is excluded.
    wanted : int64[L, G]
        Group that a list leaves out by each of G columns, -1 for none.
    group : int64[G, N]
        Group of each corpus row by each column, -1 for none. No two columns share a group.
    ptr, row : int64[M + 1], int64[...]
        Rows of each group.
    document : int64[N]
        Document of each row, -1 for none.
    """

    first: np.ndarray
    wanted: np.ndarray
    group: np.ndarray
    ptr: np.ndarray
    row: np.ndarray
    document: np.ndarray

    def lists(self, q: int) -> range:
        """Return the lists of a distinct query."""
        return range(int(self.first[q]), int(self.first[q + 1])) if len(self.first) else range(q, q + 1)

    def rows_of(self, place: int) -> np.ndarray:
        """Return the excluded rows of a list that have a document in the representation, ascending: int64[n]."""
        if not len(self.wanted):
            return self.row[:0]
        groups = self.wanted[place][self.wanted[place] >= 0].tolist()
        rows = np.unique(np.concatenate([self.row[:0], *(self.row[self.ptr[g] : self.ptr[g + 1]] for g in groups)]))
        return rows[self.document[rows] >= 0]

    def row_ptr(self, q: int, row_ptr: np.ndarray) -> np.ndarray:
        """Return offsets of as many rows of each document as every list of a query has at least: int64[D + 1]."""
        if not len(self.first):
            return row_ptr
        least = np.diff(row_ptr)
        sizes = least.copy()
        for place in self.lists(q):
            documents, n = np.unique(self.document[self.rows_of(place)], return_counts=True)
            least[documents] = np.minimum(least[documents], sizes[documents] - n)
        found = np.concatenate([np.zeros(1, np.int64), np.cumsum(least)])
        found.flags.writeable = row_ptr.flags.writeable  # otherwise kernels are compiled once more
        return found

    def n_documents(self, q: int, k: int) -> int:
        """Return how many of the best documents surely hold k rows of each list: an excluded row costs one at most."""
        if not len(self.first):
            return k
        return k + max((len(self.rows_of(place)) for place in self.lists(q)), default=0)


_NONE = np.empty(0, np.int64)
NOTHING = Exclusion(_NONE, np.empty((0, 0), np.int64), np.empty((0, 0), np.int64), _NONE, _NONE, _NONE)
