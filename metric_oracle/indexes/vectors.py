"""What embeddings and labels share: documents that are vectors, distinct rows, and FAISS indexes."""

from typing import Any

import numpy as np

from metric_oracle.base.errors import not_installed
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.lists import distinct_in_order
from metric_oracle.kernels._build import number_rows


def flat_index(vectors: np.ndarray) -> Any:
    """Return a faiss.IndexFlatIP over a float32 copy of vectors [D, d]; raise BackendError if FAISS is missing."""
    try:
        import faiss
    except ImportError as error:
        raise not_installed("an index of vectors", error.name, "cpu") from error
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, np.float32))
    return index


def in_order_of_use(of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values that rows refer to, in the order of their first rows, and which each row has.

    `of_row` has the value of each row, such as the number of its vector in a source, and -1 for a row without one. The
    second array, int64[N], has the place of each row's value in the first, or -1.
    """
    used, place = distinct_in_order(of_row[of_row >= 0])
    used_of_row = np.full(len(of_row), -1, np.int64)
    used_of_row[of_row >= 0] = place
    return used, used_of_row


def distinct_rows(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each distinct row of a matrix first occurs, ascending, and which each row is: int64[m], int64[n].

    Rows, float32[n, d] or int8[n, d], are compared byte by byte, so they must not contain -0.0.
    """
    matrix = np.ascontiguousarray(matrix)
    words = matrix.view(np.uint32) if matrix.dtype.itemsize == 4 else matrix.astype(np.uint32)
    return number_rows(words, max(2 * len(words) - 1, 1).bit_length())


class VectorDocuments(Documents):
    """Base of representations whose documents are the rows of a matrix."""

    vectors: np.ndarray  # float32[D, d], or int8[D, L] of labels

    def item(self, document: int) -> np.ndarray:
        """Return the vector of a document."""
        return self.vectors[document]

    def key(self, document: int) -> bytes:
        """Return the bytes of the vector of a document."""
        return self.vectors[document].tobytes()
