"""CheXbert labels -> distinct vectors of 14 small integers."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.indexes.features import Units, group_rows
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.indexes.store import read_arrays, write_arrays
from metric_oracle.indexes.vectors import VectorQueries, distinct_rows, flat_index, in_order_of_use
from metric_oracle.kernels.chexbert_labels.cpu import LabelBatch, LabelCorpus
from metric_oracle.kernels.cosine.codes import unit_vectors
from metric_oracle.metrics import Metric

# Value of the classes 0 blank, 1 positive, 2 negative, 3 uncertain in a label vector.
VALUES = {"positive": (0, 1, -1, 1), "negative": (0, 1, -1, -1), "blank": (0, 1, -1, 0)}


@dataclass(frozen=True)
class LabelIndex(Units):
    """Distinct CheXbert label vectors of a corpus.

    Attributes
    ----------
    vectors : int8[D, 14]
        Positive 1, negative -1, blank 0, uncertain as recorded.
    row_ptr, row_id : int64[D + 1], int64[N]
    uncertain : str
    """

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    uncertain: str
    data_files: ClassVar[tuple[str, ...]] = ("labels.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "LabelIndex":
        """Index the labels of a corpus."""
        uncertain = inputs.attached[kind].settings["uncertain"]
        vectors, document_of_row = _distinct(inputs, uncertain)
        return cls(vectors, *group_rows(document_of_row, len(vectors)), uncertain)

    def encode(self, inputs: Inputs) -> VectorQueries:
        """Give the queries' labels the values that the index uses."""
        vectors, which = _distinct(inputs, self.uncertain)
        return VectorQueries(which, LabelBatch(vectors))

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records."""
        return {"uncertain": self.uncertain}

    def corpus(self, metric: Metric, encoded: VectorQueries) -> LabelCorpus:
        """Return what the kernels take."""
        return LabelCorpus(self.vectors, self.row_ptr, self.row_id)

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a document."""
        return self.vectors[unit]

    def key(self, unit: int) -> bytes:
        """Return what tells a unit from others, in any index."""
        return self.vectors[unit].tobytes()

    def faiss(self) -> Any:
        """Return a faiss.IndexFlatIP over the directions of the vectors; one that is all blank stays zero."""
        directions = np.zeros(self.vectors.shape, np.float32)
        some = self.vectors.any(axis=1)
        directions[some] = unit_vectors(self.vectors[some])
        return flat_index(directions)

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        arrays = {"vectors": self.vectors, "row_ptr": self.row_ptr, "row_id": self.row_id}
        write_arrays(folder / "labels.arrow", {**arrays, "uncertain": [self.uncertain]})

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "LabelIndex":
        """Open a saved representation."""
        columns = read_arrays(files["labels.arrow"])
        uncertain = columns.pop("uncertain")[0]
        return cls(uncertain=uncertain, **columns)


def _distinct(inputs: Inputs, uncertain: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct label vectors of some reports, and each report's: -1 for none."""
    classes, of_row = inputs.attached["labels"].both
    used, place = in_order_of_use(of_row)
    vectors = np.array(VALUES[uncertain], np.int8)[classes[used]]
    position, which = distinct_rows(vectors)
    return vectors[position], np.where(place >= 0, which[place], -1) if len(which) else place
