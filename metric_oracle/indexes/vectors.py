"""What embeddings and labels share: documents and queries that are vectors, distinct rows, and FAISS indexes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.errors import not_installed
from metric_oracle.indexes.features import Documents, Encoded
from metric_oracle.kernels._build import number_rows


def import_faiss() -> Any:
    """Import and return FAISS; raise BackendError, which names the extra to install, if it is missing."""
    try:
        import faiss
    except ImportError as error:
        raise not_installed("an index of vectors", error.name, "cpu") from error
    return faiss


def flat_index(vectors: np.ndarray) -> Any:
    """Return a faiss.IndexFlatIP over a copy of the vectors; vector i is document i.

    Parameters
    ----------
    vectors : float32[D, d]

    Raises
    ------
    BackendError
        If FAISS is not installed.
    """
    index = import_faiss().IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, np.float32))
    return index


def in_order_of_use(of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values that rows refer to, in the order of their first rows.

    Parameters
    ----------
    of_row : int64[N]
        Value of each row, such as the number of its vector in a source; -1 for a row without one.

    Returns
    -------
    used : int64[n]
        The distinct values.
    position : int64[N]
        Index in `used` of each row's value, -1 for a row without one.
    """
    values, first, inverse = np.unique(of_row[of_row >= 0], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    position = np.full(len(of_row), -1, np.int64)
    position[of_row >= 0] = rank[inverse.reshape(-1)]
    return values[order], position


def distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a matrix, byte by byte.

    Parameters
    ----------
    values : float32[n, d] or int8[n, d]
        It must not contain -0.0, whose bytes differ from those of 0.0.

    Returns
    -------
    first : int64[m]
        First occurrence of each distinct row, ascending.
    which : int64[n]
        Index in `first` of the distinct row that equals each row.
    """
    values = np.ascontiguousarray(values)
    words = values.view(np.uint32) if values.dtype.itemsize == 4 else values.astype(np.uint32)
    return number_rows(words, max(2 * len(words) - 1, 1).bit_length())


class VectorDocuments(Documents):
    """Base of representations whose documents are the rows of a matrix, `vectors`."""

    vectors: np.ndarray

    def item(self, document: int) -> np.ndarray:
        """Return the vector of a document."""
        return self.vectors[document]

    def key(self, document: int) -> bytes:
        """Return bytes that identify a document in any index."""
        return self.vectors[document].tobytes()


@dataclass(frozen=True)
class VectorQueries(Encoded):
    """Distinct vectors of a batch of queries."""

    which: np.ndarray  # int64[Q], distinct vector of each query
    batch: Any  # NamedTuple of arrays, arrays that the kernels read; the field `vectors` is float32[n, d] or int8[n, L]

    @property
    def vectors(self) -> np.ndarray:
        """The distinct vectors: float32[n, d] or int8[n, L]."""
        return self.batch.vectors

    def item(self, q: int) -> np.ndarray:
        """Return the vector of a distinct query."""
        return self.vectors[q]
