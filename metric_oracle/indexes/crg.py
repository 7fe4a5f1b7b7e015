"""Representation of CRG: sets of positive labels. CRG weighs labels by their prevalence in the test set.

It has no files of its own and reads the label vectors that an index stores.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.label_tables import LABELS, is_abnormality
from metric_oracle.corpora.reports import Reports
from metric_oracle.errors import InputError
from metric_oracle.indexes.documents import Documents, Encoded, group_rows
from metric_oracle.indexes.labels import LabelIndex
from metric_oracle.kernels.crg.cpu import PositiveBatch, PositiveCorpus
from metric_oracle.records import Metric

_COUNTED = [column for column, label in enumerate(LABELS) if is_abnormality(label)]


@dataclass(frozen=True)
class PositiveIndex(Documents):
    """Distinct sets of positive labels of a corpus, without "No Finding"."""

    labels: LabelIndex  # the stored labels
    positive: np.ndarray  # bool[D, 13], whether each label is positive
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], corpus rows, ascending within a document
    encodes_by_corpus: ClassVar[bool] = False

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "PositiveIndex":
        """Merge the documents of the stored labels, `parts["labels"]`, that have the same positive labels."""
        labels = parts["labels"]
        positive, which = _distinct(labels.vectors)
        document_of_row = np.where(labels.document_of_row >= 0, which[labels.document_of_row], -1)
        return cls(labels, positive, *group_rows(document_of_row, len(positive)))

    def encode(self, reports: Reports, *, prevalence: dict[str, int] | None = None) -> "PositiveQueries":
        """Return the distinct sets of positive labels of the queries, and the prevalence.

        If the queries are only a part of the test set, `prevalence` has the counts `positives`, `labels` and `reports`
        of the whole; by default the queries are counted. Raise InputError unless these counts fit one another.
        """
        vectors = self.labels.encode(reports)
        positive, which = _distinct(vectors.vectors)
        which = which[vectors.which]
        if prevalence is None:
            prevalence = {
                "positives": int(np.sum(positive[which])),
                "labels": len(which) * positive.shape[1],
                "reports": len(which),
            }
        _check(prevalence, positive.shape[1])
        return PositiveQueries(which, positive, prevalence)

    def corpus(self, metric: Metric, encoded_queries: Encoded) -> PositiveCorpus:
        """Return the arrays that the kernels read, for any metric and queries."""
        return PositiveCorpus(self.positive, self.row_ptr, self.row_id)

    def key(self, document: int) -> bytes:
        """Return the positive labels of a document as bytes."""
        return self.positive[document].tobytes()

    def item(self, document: int) -> set[int]:
        """Return the set of the columns in `positive` of a document's positive labels."""
        return set(np.flatnonzero(self.positive[document]).tolist())


@dataclass(frozen=True)
class PositiveQueries(Encoded):
    """Distinct sets of positive labels of a batch of queries."""

    which: np.ndarray  # int64[Q], distinct set of each query
    positive: np.ndarray  # bool[n, 13], whether each label is positive
    prevalence: dict[str, int]  # counts `positives`, `labels` and `reports` of the test set

    @property
    def batch(self) -> PositiveBatch:
        """The arrays that the kernels read."""
        return PositiveBatch(self.positive, self.prevalence)

    def item(self, q: int) -> tuple[set[int], dict[str, int]]:
        """Return the set of the columns in `positive` of a distinct query's positive labels, and the prevalence."""
        return self.as_candidate(q), self.prevalence

    def as_candidate(self, q: int) -> set[int]:
        """Return a distinct query as a candidate: `item` without the prevalence."""
        return set(np.flatnonzero(self.positive[q]).tolist())

    @property
    def settings(self) -> dict[str, Any]:
        """The prevalence, and the names of the labels that are counted."""
        return {"prevalence": self.prevalence, "counted": [LABELS[column] for column in _COUNTED]}


def _distinct(label_vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct sets of positive labels, bool[n, 13], of vectors, int8[m, 14], and which each has: int64[m].

    "No Finding" is left out.
    """
    positive, which = np.unique(label_vectors[:, _COUNTED] == 1, axis=0, return_inverse=True)
    return positive, which.reshape(-1)


def _check(prevalence: dict[str, int], n_labels: int) -> None:
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
        repr(prevalence),
        "Copy it from the signature of the whole test set, or leave it out.",
    )
