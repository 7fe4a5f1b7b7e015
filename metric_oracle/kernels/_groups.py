"""Matrices of scores within groups of reports, for example of the samples that a model wrote for one study.

Many small matrices (candidates by references) are scored at once. Cells that compare the same document with the same
distinct query are scored once: this module lists the distinct pairs and copies their scores into all cells.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import linear


class Cells(NamedTuple):
    """Matrices of candidates (rows) and references (columns), stored one after another in one array, row by row.

    There are G matrices with H rows and R columns in all. A document is a distinct candidate, a query one of Q distinct
    references.
    """

    row_ptr: np.ndarray  # int64[G + 1], first row of each matrix, of the H rows
    column_ptr: np.ndarray  # int64[G + 1], its first column, of the R columns
    cell_ptr: np.ndarray  # int64[G + 1], its first cell in the array
    matrix: np.ndarray  # int64[R], matrix that each column belongs to
    document: np.ndarray  # int64[H], document of each row, -1 for none
    # int64[R], -1 if all cells of the column are scored; in a symmetric matrix the document of the column, so that one
    # of two mirrored cells is scored
    opposite: np.ndarray
    column_of_query_ptr: np.ndarray  # int64[Q + 1], offsets of each query in `column_of_query`
    column_of_query: np.ndarray  # int64[R], the columns that hold each distinct query


@linear
def distinct_pairs(cells, first, last, n_documents, query, document, cell, pair):
    """List the distinct pairs of a query and a document among the cells of queries first .. last - 1, query by query.

    The n pairs are written to `query` and `document`, and for each of the m cells to score its index, to `cell`, and
    that of its pair, to `pair`; all are int64. Return n and m. Cells without a document are left out, and one of two
    mirrored cells. `n_documents` is the size of the corpus.
    """
    place = np.full(n_documents, -1, np.int64)
    n = m = 0
    for q in range(first, last):
        begin = n
        for c in cells.column_of_query[cells.column_of_query_ptr[q] : cells.column_of_query_ptr[q + 1]]:
            g = cells.matrix[c]
            width = cells.column_ptr[g + 1] - cells.column_ptr[g]
            at = cells.cell_ptr[g] + c - cells.column_ptr[g]
            for row in range(cells.row_ptr[g], cells.row_ptr[g + 1]):
                d = cells.document[row]
                if d >= 0 and d >= cells.opposite[c]:
                    if place[d] < begin:
                        place[d] = n
                        query[n] = q
                        document[n] = d
                        n += 1
                    cell[m] = at
                    pair[m] = place[d]
                    m += 1
                at += width
    return n, m


@linear
def mirror_cells(cells, out):
    """Copy, in `out`, the scores of symmetric matrices to their mirrored cells, which `distinct_pairs` left out."""
    for g in range(len(cells.cell_ptr) - 1):
        first = cells.row_ptr[g]
        n = cells.row_ptr[g + 1] - first
        for i in range(n):
            for j in range(n):
                if cells.document[first + i] < cells.document[first + j]:
                    out[cells.cell_ptr[g] + i * n + j] = out[cells.cell_ptr[g] + j * n + i]
