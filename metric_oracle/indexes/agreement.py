"""Agreement's representation: no files of its own, of each label of an index whether it is positive and whether not.

The share of the labels on which two reports agree is the cosine of these: labels that agree are products of ones, and
every report has as many ones as labels.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from metric_oracle.corpora.vectors import FIVE_LABELS, LABELS
from metric_oracle.indexes.features import Units, group_rows
from metric_oracle.indexes.labels import LabelIndex
from metric_oracle.indexes.vectors import VectorQueries
from metric_oracle.kernels.chexbert_labels.cpu import LabelBatch, LabelCorpus
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs


@dataclass(frozen=True)
class AgreementIndex(Units):
    """Distinct sets of positive labels of a corpus, with what is not positive.

    Attributes
    ----------
    labels : LabelIndex
    vectors : int8[D, 2 L]
        1 where a label is positive, then 1 where it is not: negative, blank, or uncertain if that is no positive. Of
        labels without such classes, 1 where a report has one, then where not.
    row_ptr, row_id : int64[D + 1], int64[...]
    """

    labels: LabelIndex
    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    counted: ClassVar[list[int] | slice] = slice(None)
    encodes_by_corpus: ClassVar[bool] = False

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Merge the units of the labels that have the same positive ones."""
        (labels,) = parts.values()
        vectors, which = cls._distinct(labels.vectors)
        unit_of_row = np.where(labels.unit_of_row >= 0, which[labels.unit_of_row], -1)
        return cls(labels, vectors, *group_rows(unit_of_row, len(vectors)))

    def encode(self, inputs: Inputs) -> VectorQueries:
        """Find the queries' positive labels."""
        found = self.labels.encode(inputs)
        vectors, which = self._distinct(found.vectors)
        return VectorQueries(np.where(found.which >= 0, which[found.which], -1), LabelBatch(vectors))

    def corpus(self, metric: Metric, encoded: VectorQueries) -> LabelCorpus:
        """Return what the kernels take."""
        return LabelCorpus(self.vectors, self.row_ptr, self.row_id)

    def key(self, unit: int) -> bytes:
        """Return what tells a unit from others, in any index."""
        return self.vectors[unit].tobytes()

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a unit."""
        return self.vectors[unit]

    @classmethod
    def _distinct(cls, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct vectors int8[n, 2 L] of label vectors int8[D, L], and each one's: int64[D]."""
        positive, which = np.unique(vectors[:, cls.counted] == 1, axis=0, return_inverse=True)
        return np.concatenate([positive, ~positive], axis=1).astype(np.int8), which.reshape(-1)


class FiveLabelIndex(AgreementIndex):
    """The same of the five labels that are counted most often."""

    counted: ClassVar[list[int] | slice] = [LABELS.index(label) for label in FIVE_LABELS]
