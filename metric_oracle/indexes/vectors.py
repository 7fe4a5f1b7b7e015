"""What embeddings and labels share: distinct rows of a matrix, encoded queries, and FAISS for those who want it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.errors import not_installed
from metric_oracle.indexes.features import Encoded
from metric_oracle.kernels._build import number_rows


def import_faiss(function: str) -> Any:
    """Import FAISS or say which extra is lacking."""
    try:
        import faiss
    except ImportError as error:
        raise not_installed(function, "an index of vectors", error.name, "cpu") from error
    return faiss


def flat_index(vectors: np.ndarray, function: str = "Index.faiss") -> Any:
    """Return a faiss.IndexFlatIP over a copy of the vectors, in their order: number i is document i.

    Parameters
    ----------
    vectors : float32[D, d]
    function : str
        Name for error messages.

    Raises
    ------
    BackendError
        If FAISS is not installed.
    """
    index = import_faiss(function).IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors, np.float32))
    return index


def in_order_of_use(of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what rows use in the order of first use.

    Parameters
    ----------
    of_row : int64[N]
        -1 for nothing.

    Returns
    -------
    used : int64[n]
        What is used.
    place : int64[N]
        Place of each row's in `used`, -1 for nothing.
    """
    values, first, inverse = np.unique(of_row[of_row >= 0], return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    place = np.full(len(of_row), -1, np.int64)
    place[of_row >= 0] = rank[inverse.reshape(-1)]
    return values[order], place


def distinct_rows(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the distinct rows of a matrix, byte by byte.

    Parameters
    ----------
    values : float32[n, d] or int8[n, d]
        Without -0.0, which would differ from 0.0.

    Returns
    -------
    first : int64[m]
        First row of each distinct one, ascending.
    which : int64[n]
        Number of each row's distinct one.
    """
    values = np.ascontiguousarray(values)
    words = values.view({4: np.uint32, 1: np.uint8}[values.dtype.itemsize])
    return number_rows(words, max(2 * len(words) - 1, 1).bit_length())


@dataclass(frozen=True)
class VectorQueries(Encoded):
    """Distinct vectors of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    batch : NamedTuple of arrays
        What the kernel reads; its `vectors` are float32[n, d] or int8[n, 14].
    """

    which: np.ndarray
    batch: Any

    @property
    def vectors(self) -> np.ndarray:
        """The distinct vectors."""
        return self.batch.vectors

    def item(self, q: int) -> np.ndarray:
        """Return the vector of a distinct query."""
        return self.vectors[q]
