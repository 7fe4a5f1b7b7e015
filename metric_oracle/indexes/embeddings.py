"""Report embeddings (CheXbert's, or any that a user brings) -> distinct unit vectors and their codes.

The unit vectors are float32; that rounding is part of the representation, so every backend scores the same numbers.
Products of their codes, which lie beside them, bound the cosines from above.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.errors import BackendError, InputError
from metric_oracle.indexes.features import Units, group_rows
from metric_oracle.indexes.store import read_arrays, write_arrays
from metric_oracle.indexes.vectors import VectorQueries, distinct_rows, flat_index, in_order_of_use
from metric_oracle.kernels.cosine.codes import (
    CHUNK,
    WIDEST,
    make_codes,
    pack_codes,
    principal_directions,
    skew_of,
    unit_vectors,
)
from metric_oracle.kernels.cosine.cpu import Batch, Corpus
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs


@dataclass(frozen=True)
class EmbeddingIndex(Units):
    """Distinct embeddings of a corpus, of any width up to `WIDEST`.

    Attributes
    ----------
    kind : str
        Name of the representation, "chexbert" or that of other vectors.
    vectors : float32[D, d]
        Unit vectors.
    row_ptr, row_id : int64[D + 1], int64[N]
    codes : float32[C, K, BLOCK]
        Of blocks of documents, zeros at the end.
    basis : float32[d, m]
        Directions of the codes.
    measured : float64[3]
        See `kernels.cosine.cpu.Corpus`.

    The last three are None before it was saved and opened.
    """

    kind: str
    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    codes: Any = None
    basis: Any = None
    measured: Any = None
    data_files: ClassVar[tuple[str, ...]] = ("vectors.arrow", "rows.arrow")
    derived_files: ClassVar[tuple[str, ...]] = ("codes.arrow",)

    def corpus(self, metric: Metric, encoded: VectorQueries) -> Corpus:
        """Return what the kernels take."""
        return Corpus(self.vectors, self.codes, self.measured, self.row_ptr, self.row_id)

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "EmbeddingIndex":
        """Index the embeddings of a corpus.

        Raises
        ------
        InputError
            If they are wider than the bounds allow.
        """
        vectors, document_of_row = _directions(kind, inputs)
        return cls(kind, vectors, *group_rows(document_of_row, len(vectors)))

    def encode(self, inputs: Inputs) -> VectorQueries:
        """Normalise the queries' embeddings."""
        width = inputs.attached[self.kind].values.shape[1]
        if width != self.vectors.shape[1]:
            msg = (
                f"retrieve: embeddings must have the index's width {self.vectors.shape[1]}; got "
                f"{width}. Encode queries and corpus with one model."
            )
            raise BackendError(msg)
        vectors, which = _directions(self.kind, inputs)
        if self.basis is None:
            return VectorQueries(which, Batch(vectors, np.empty((len(vectors), 0), np.float32), np.empty(0)))
        codes, measured = make_codes(vectors, self.basis)
        return VectorQueries(which, Batch(vectors, codes, np.array(measured)))

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a document."""
        return self.vectors[unit]

    def key(self, unit: int) -> bytes:
        """Return what tells a unit from others, in any index."""
        return self.vectors[unit].tobytes()

    def faiss(self) -> Any:
        """Return a faiss.IndexFlatIP over the vectors, whose inner products are cosines in float32."""
        return flat_index(self.vectors)

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        basis = principal_directions(self.vectors)
        codes, measured = pack_codes(self.vectors, basis)
        of_corpus = np.array([skew_of(basis), *measured])
        write_arrays(folder / "vectors.arrow", {"vectors": self.vectors})
        write_arrays(folder / "codes.arrow", {"codes": codes, "basis": basis, "measured": of_corpus})
        write_arrays(folder / "rows.arrow", {"row_ptr": self.row_ptr, "row_id": self.row_id})

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "EmbeddingIndex":
        """Open a saved representation; everything stays in mapped files."""
        arrays = [read_arrays(files[name]) for name in (*cls.data_files, *cls.derived_files)]
        return cls(kind=kind, **arrays[0], **arrays[1], **arrays[2])


def _directions(kind: str, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct unit vectors of some reports in order of first use, and each report's: -1 for none."""
    values, of_row = inputs.attached[kind].both
    if values.shape[1] > WIDEST:
        msg = (
            f"build_index: embeddings must have at most {WIDEST} numbers each, for which the bounds of a search are "
            f"proven; got {values.shape[1]}. Reduce them."
        )
        raise InputError(msg)
    used, place = in_order_of_use(of_row)
    vectors = np.empty((len(used), values.shape[1]), np.float32)
    for first in range(0, len(used), CHUNK):
        some = slice(first, first + CHUNK)
        # Those of a prepared set are unit vectors, and dividing once more could move their last bits.
        vectors[some] = values[used[some]] if inputs.attached[kind].are_unit else unit_vectors(values[used[some]])
    position, which = distinct_rows(vectors)
    for first in range(0, len(position), CHUNK):  # within the array: each comes from its own place or a later one
        some = slice(first, first + CHUNK)
        vectors[some][: len(position[some])] = vectors[position[some]]
    return vectors[: len(position)], np.where(place >= 0, which[place], -1) if len(which) else place
