"""Representation of label agreement: a pair of flags per label, "positive" and "not positive".

It has no files of its own and is made from the labels that an index stores. The share of labels on which two reports
agree is the inner product of their vectors over the squared length of one: each label on which they agree adds 1 to
the product, and every vector has as many ones as there are labels.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.labels import LabelDocuments
from metric_oracle.indexes.vectors import VectorDocuments
from metric_oracle.kernels.chexbert_labels.cpu import LabelVectors
from metric_oracle.records import Metric


@dataclass(frozen=True)
class AgreementDocuments(VectorDocuments):
    """Distinct sets of positive labels."""

    labels: LabelDocuments  # the labels as they are stored
    # int8[D, 2 L]. In the first L columns, 1 if a label is positive (or, for labels without classes, if the report has
    # it); in the last L columns, 1 if it is not. Whether "uncertain" is positive was decided when the index was built.
    vectors: np.ndarray
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    counted: ClassVar[list[int] | slice] = slice(None)  # columns of `labels` that are compared

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Merge the documents of the labels, the one value of `parts`, that have the same positive labels."""
        (labels,) = parts.values()
        positive, row_ptr, row_id = labels.positives(cls.counted)
        return cls(labels, np.concatenate([positive, ~positive], axis=1).astype(np.int8), row_ptr, row_id)

    def encode(self, reports: Reports) -> Self:
        """Return the distinct sets of positive labels of the queries."""
        return self.join({"labels": self.labels.encode(reports)})

    def arrays(self, metric: Metric, queries: Documents) -> LabelVectors:
        """Return the arrays that the kernels read, for any metric and queries."""
        return LabelVectors(self.vectors, self.row_ptr, self.row_id)


class FiveLabelDocuments(AgreementDocuments):
    """Distinct sets of positive labels, of the five that papers report most often: `FIVE_LABELS`."""

    counted: ClassVar[list[int] | slice] = [LABELS.index(label) for label in FIVE_LABELS]
