"""CheXbert embeddings and CheXbert labels -> distinct vectors.

Embeddings lie in FAISS (a flat inner-product index, memory-mapped) as unit vectors in float32; that rounding is part of
the representation, so every backend scores the same numbers. Products of their codes, which lie beside them, bound the
cosines from above. Labels become vectors of 14 small integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.errors import BackendError
from metric_oracle.indexes.features import Encoded, Units, group_rows
from metric_oracle.indexes.inputs import Attachment, Inputs
from metric_oracle.indexes.store import read_arrays, write_arrays
from metric_oracle.kernels.chexbert.cpu import CHUNK, RUN, VectorBatch, VectorCorpus
from metric_oracle.metrics import Metric

CODE = 64  # numbers of a code: coordinates along the leading directions, and the length of what they leave out
SAMPLE = 1 << 14  # vectors that the directions are made from
# Value of the classes 0 blank, 1 positive, 2 negative, 3 uncertain in a label vector.
_VALUES = {"positive": (0, 1, -1, 1), "negative": (0, 1, -1, -1), "blank": (0, 1, -1, 0)}


def import_faiss(function: str) -> Any:
    """Import FAISS or say which extra is lacking."""
    try:
        import faiss
    except ImportError as error:
        msg = (
            f'{function}: metric "chexbert" must have FAISS installed; got no module faiss. '
            'Install the extra: pip install "metric-oracle[cpu]".'
        )
        raise BackendError(msg) from error
    return faiss


def _distinct_rows(values: np.ndarray, of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of distinct vectors among those used, and each row's (-1 for none)."""
    seen: dict[bytes, int] = {}
    position: list[int] = []
    unit = np.full(len(of_row), -1, np.int64)
    unit_of_vector: dict[int, int] = {}
    for row, v in enumerate(of_row.tolist()):
        if v < 0:
            continue
        if v not in unit_of_vector:
            u = seen.setdefault(values[v].tobytes(), len(position))
            if u == len(position):
                position.append(v)
            unit_of_vector[v] = u
        unit[row] = unit_of_vector[v]
    return np.array(position, np.int64), unit


def unit_vectors(values: np.ndarray) -> np.ndarray:
    """Return the directions of the rows in float32; -0.0 becomes 0.0, so that equal vectors have equal bytes."""
    wide = values.astype(np.float64)
    return (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32) + np.float32(0)


def _directions(given: Attachment) -> np.ndarray:
    """Return unit vectors; those of a prepared set are, and dividing once more could move their last bits."""
    return given.values if given.are_unit else unit_vectors(given.values)


def leading_directions(vectors: np.ndarray) -> np.ndarray:
    """Return the eigenvectors of the vectors' second moments with the greatest eigenvalues: float32[d, m]."""
    sample = vectors[np.linspace(0, len(vectors) - 1, min(SAMPLE, len(vectors))).astype(np.int64)].astype(np.float64)
    return np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : CODE - 1].astype(np.float32)


def make_codes(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the codes of unit vectors, whose products bound cosines; the kernel's README proves it.

    Parameters
    ----------
    vectors : float32[n, d]
    basis : float32[d, m]

    Returns
    -------
    codes : float32[n, K]
        Coordinates, and the length of the rest, rounded up; K = m + 1.
    leak : float
        Length of the rest's own coordinates at most; the rest is perpendicular to the basis but for rounding.
    """
    n = basis.shape[1]
    codes = np.empty((len(vectors), n + 1), np.float32)
    wide_basis, leak = basis.astype(np.float64), 0.0
    for first in range(0, len(vectors), CHUNK):
        some = slice(first, first + CHUNK)
        wide = vectors[some].astype(np.float64)
        codes[some, :n] = wide @ wide_basis
        rest = wide - codes[some, :n].astype(np.float64) @ wide_basis.T
        codes[some, n] = np.linalg.norm(rest, axis=1) * (1 + 2.0**-20) + 1e-12
        leak = max(leak, float(np.linalg.norm(rest @ wide_basis, axis=1).max()))
    return codes, leak


@dataclass(frozen=True)
class EmbeddingIndex(Units):
    """Distinct CheXbert embeddings of a corpus.

    Attributes
    ----------
    vectors : float32[D, d]
        Unit vectors.
    row_ptr, row_id : int64[D + 1], int64[...]
    faiss_index : IndexFlatIP over `vectors`
    codes : float32[C, K, RUN]
        Of runs of units, zeros at the end.
    basis : float32[d, m]
    code_error : float64[1]
        How far a product of codes may lie below the cosine because of the basis and the corpus's codes.

    The last four are None before it was saved and opened.
    """

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    faiss_index: Any = None
    codes: Any = None
    basis: Any = None
    code_error: Any = None

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "EmbeddingIndex":
        """Index the embeddings of a corpus."""
        given = inputs.attached[kind]
        directions, of_row = _directions(given), given.of_row
        position, unit = _distinct_rows(directions, of_row)
        return cls(directions[position], *group_rows(unit, len(position)))

    def encode(self, inputs: Inputs) -> "VectorQueries":
        """Normalise the queries' embeddings."""
        embeddings, of_row = inputs.attached["chexbert"].both
        if embeddings.shape[1] != self.vectors.shape[1]:
            msg = (
                f"retrieve: embeddings must have the index's width {self.vectors.shape[1]}; got "
                f"{embeddings.shape[1]}. Encode queries and corpus with one model."
            )
            raise BackendError(msg)
        directions = _directions(inputs.attached["chexbert"])
        position, which = _distinct_rows(directions, of_row)
        vectors = directions[position]
        if self.basis is None:
            return VectorQueries(which, vectors)
        codes, leak = make_codes(vectors, self.basis)
        return VectorQueries(which, vectors, codes, float(self.code_error[0]) + leak)

    def corpus(self, metric: Metric, encoded: "VectorQueries") -> VectorCorpus:
        """Return what the kernels take."""
        return VectorCorpus(self.vectors, self.row_ptr, self.row_id, self.codes, encoded.code_error, self.faiss_index)

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a unit."""
        return self.vectors[unit]

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        faiss = import_faiss("build_index")
        basis = leading_directions(self.vectors)
        codes, leak = make_codes(self.vectors, basis)
        wide = basis.astype(np.float64)
        skew = np.linalg.norm(wide.T @ wide - np.eye(wide.shape[1]), 2)
        runs = np.pad(codes, ((0, -len(codes) % RUN), (0, 0))).reshape(-1, RUN, codes.shape[1]).transpose(0, 2, 1)
        index = faiss.IndexFlatIP(self.vectors.shape[1])
        index.add(self.vectors)
        # FAISS's own file writer says nothing when the last bytes find no room.
        with (folder / "vectors.faiss").open("wb") as file:
            faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))
        write_arrays(folder / "codes.arrow", {"codes": runs, "basis": basis, "code_error": np.array([skew + leak])})
        write_arrays(folder / "rows.arrow", {"row_ptr": self.row_ptr, "row_id": self.row_id})

    @classmethod
    def load(cls, folder: Path) -> "EmbeddingIndex":
        """Open a saved representation; the vectors stay in the mapped file."""
        faiss = import_faiss("open_index")
        index = faiss.read_index(str(folder / "vectors.faiss"), faiss.IO_FLAG_MMAP_IFC)
        vectors = faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(index.ntotal, index.d)
        arrays = read_arrays(folder / "codes.arrow") | read_arrays(folder / "rows.arrow")
        return cls(vectors=vectors, faiss_index=index, **arrays)


@dataclass(frozen=True)
class LabelIndex(Units):
    """Distinct CheXbert label vectors of a corpus.

    Attributes
    ----------
    vectors : int8[D, 14]
        Positive 1, negative -1, blank 0, uncertain as recorded.
    row_ptr, row_id : int64[D + 1], int64[...]
    uncertain : str
    """

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    uncertain: str

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "LabelIndex":
        """Index the labels of a corpus."""
        uncertain = inputs.attached[kind].settings["uncertain"]
        vectors, of_row = _label_vectors(inputs, uncertain)
        position, unit = _distinct_rows(vectors, of_row)
        return cls(vectors[position], *group_rows(unit, len(position)), uncertain)

    def encode(self, inputs: Inputs) -> "VectorQueries":
        """Give the queries' labels the values that the index uses."""
        vectors, of_row = _label_vectors(inputs, self.uncertain)
        position, which = _distinct_rows(vectors, of_row)
        return VectorQueries(which, vectors[position])

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records."""
        return {"uncertain": self.uncertain}

    def corpus(self, metric: Metric, encoded: "VectorQueries") -> VectorCorpus:
        """Return what the kernels take."""
        return VectorCorpus(self.vectors, self.row_ptr, self.row_id)

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a unit."""
        return self.vectors[unit]

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        arrays = {"vectors": self.vectors, "row_ptr": self.row_ptr, "row_id": self.row_id}
        write_arrays(folder / "labels.arrow", {**arrays, "uncertain": [self.uncertain]})

    @classmethod
    def load(cls, folder: Path) -> "LabelIndex":
        """Open a saved representation."""
        columns = read_arrays(folder / "labels.arrow")
        uncertain = columns.pop("uncertain").to_pylist()[0]
        return cls(uncertain=uncertain, **columns)


def _label_vectors(inputs: Inputs, uncertain: str) -> tuple[np.ndarray, np.ndarray]:
    classes, of_row = inputs.attached["labels"].both
    return np.array(_VALUES[uncertain], np.int8)[classes], of_row


@dataclass(frozen=True)
class VectorQueries(Encoded):
    """Distinct vectors of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    vectors : float32[n, d] or int8[n, 14]
    codes : float32[n, K], of embeddings
    code_error : float
        How far products with the corpus's codes may lie below cosines, but for the rounding of the products.
    """

    which: np.ndarray
    vectors: np.ndarray
    codes: np.ndarray | None = None
    code_error: float = 0.0

    @property
    def batch(self) -> VectorBatch:
        """What the kernels take."""
        return VectorBatch(self.vectors, self.codes)

    def item(self, q: int) -> np.ndarray:
        """Return the vector of a distinct query."""
        return self.vectors[q]
