"""Representation of CRG: sets of positive labels. CRG weighs labels by their prevalence in the test set.

It has no files of its own and reads the label vectors that an index stores.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.label_tables import LABELS, is_abnormality
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.labels import LabelDocuments
from metric_oracle.kernels.crg.cpu import Positives
from metric_oracle.records import Metric

_COUNTED = [column for column, label in enumerate(LABELS) if is_abnormality(label)]


@dataclass(frozen=True)
class PositiveDocuments(Documents):
    """Distinct sets of positive labels, without "No Finding"."""

    labels: LabelDocuments  # the labels as they are stored
    positive: np.ndarray  # bool[D, 13], whether each label is positive
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    prevalence: dict[str, int] | None = None  # of queries: counts `positives`, `labels` and `reports` of the test set

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "PositiveDocuments":
        """Merge the documents of the labels, `parts["labels"]`, that have the same positive labels."""
        return cls(parts["labels"], *parts["labels"].positives(_COUNTED))

    def encode(self, reports: Reports, *, prevalence: dict[str, int] | None = None) -> "PositiveDocuments":
        """Return the distinct sets of positive labels of the queries, and the prevalence.

        If the queries are only a part of the test set, `prevalence` has the counts `positives`, `labels` and `reports`
        of the whole; by default the queries are counted. Raise InputError unless these counts fit one another.
        """
        documents = self.join({"labels": self.labels.encode(reports)})
        n_labels = documents.positive.shape[1]
        if prevalence is None:
            prevalence = {
                "positives": int(np.sum(documents.positive[documents.document_of_row])),
                "labels": len(reports.ids) * n_labels,
                "reports": len(reports.ids),
            }
        _check_prevalence(prevalence, n_labels)
        return replace(documents, prevalence=prevalence)

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        """The prevalence, and the names of the labels that are counted."""
        return {"prevalence": self.prevalence, "counted": [LABELS[column] for column in _COUNTED]}

    def arrays(self, metric: Metric, queries: Documents) -> Positives:
        """Return the arrays that the kernels read, for any metric and queries."""
        return Positives(self.positive, self.row_ptr, self.row_id, self.prevalence)

    def key(self, document: int) -> bytes:
        """Return the positive labels of a document as bytes."""
        return self.positive[document].tobytes()

    def item(self, document: int) -> tuple[set[int], dict[str, int] | None]:
        """Return the set of the columns in `positive` of a document's positive labels, and the prevalence."""
        return set(np.flatnonzero(self.positive[document]).tolist()), self.prevalence


def _check_prevalence(prevalence: dict[str, int], n_labels: int) -> None:
    """Raise InputError unless the prevalence has exactly its three counts, and they fit `n_labels` labels a report."""
    names = ("positives", "labels", "reports")
    counts = [prevalence.get(name) for name in names] if isinstance(prevalence, dict) else []
    if len(counts) == 3 and len(prevalence) == 3 and all(type(count) is int for count in counts):
        positives, labels, reports = counts
        if reports > 0 and labels == reports * n_labels and 0 <= positives <= labels:  # type: ignore[operator]
            return
    raise InputError(
        "prevalence",
        f"must be a dict of the ints positives, labels and reports, where labels is {n_labels} times reports",
        shown(prevalence),
        "Copy it from the signature of the whole test set, or leave it out.",
    )
