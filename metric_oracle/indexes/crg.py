"""CRG's representation: no files of its own, the sets of positive labels of the label vectors that an index holds."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.vectors import LABELS, is_abnormality
from metric_oracle.errors import InputError
from metric_oracle.indexes.features import Encoded, Units, group_rows
from metric_oracle.indexes.labels import LabelIndex
from metric_oracle.kernels.crg.cpu import PositiveBatch, PositiveCorpus
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

_COUNTED = [place for place, label in enumerate(LABELS) if is_abnormality(label)]


@dataclass(frozen=True)
class PositiveIndex(Units):
    """Distinct sets of positive labels of a corpus, "No Finding" left out.

    Attributes
    ----------
    labels : LabelIndex
    positive : bool[D, 13]
    row_ptr, row_id : int64[D + 1], int64[...]
    """

    labels: LabelIndex
    positive: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    encodes_by_corpus: ClassVar[bool] = False

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "PositiveIndex":
        """Merge the units of the labels that have the same positive ones."""
        labels = parts["labels"]
        positive, which = _distinct(labels.vectors)
        unit_of_row = np.where(labels.unit_of_row >= 0, which[labels.unit_of_row], -1)
        return cls(labels, positive, *group_rows(unit_of_row, len(positive)))

    def encode(self, inputs: Inputs, *, prevalence: dict[str, int] | None = None) -> "PositiveQueries":
        """Find the queries' positive labels and count them.

        Parameters
        ----------
        inputs : Inputs
        prevalence : dict
            Counts `positives`, `labels` and `reports` of the whole test set, where the queries are a part of it.
        """
        vectors = self.labels.encode(inputs)
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

    def corpus(self, metric: Metric, encoded: Encoded) -> PositiveCorpus:
        """Return what the kernels take."""
        return PositiveCorpus(self.positive, self.row_ptr, self.row_id)

    def key(self, unit: int) -> bytes:
        """Return what tells a unit from others, in any index."""
        return self.positive[unit].tobytes()

    def item(self, unit: int) -> set[int]:
        """Return the positive labels of a unit."""
        return set(np.flatnonzero(self.positive[unit]).tolist())


@dataclass(frozen=True)
class PositiveQueries(Encoded):
    """Distinct sets of positive labels of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    positive : bool[n, 13]
    prevalence : dict
        `positives`, `labels` and `reports` of the reference set.
    """

    which: np.ndarray
    positive: np.ndarray
    prevalence: dict[str, int]

    @property
    def batch(self) -> PositiveBatch:
        """What the kernels take."""
        return PositiveBatch(self.positive, self.prevalence)

    def item(self, q: int) -> tuple[set[int], dict[str, int]]:
        """Return the positive labels of a distinct query, and the prevalence."""
        return self.own(q), self.prevalence

    def own(self, q: int) -> set[int]:
        """Return the positive labels of a distinct query, as those of a candidate."""
        return set(np.flatnonzero(self.positive[q]).tolist())

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return {"prevalence": self.prevalence, "counted": [LABELS[place] for place in _COUNTED]}


def _distinct(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct sets of positive labels, bool[n, 13], and each vector's: int64[D]."""
    positive, which = np.unique(vectors[:, _COUNTED] == 1, axis=0, return_inverse=True)
    return positive, which.reshape(-1)


def _check(prevalence: dict[str, int], n_labels: int) -> None:
    """Raise unless the counts can be those of a test set."""
    names = ("positives", "labels", "reports")
    counts = [prevalence.get(name) for name in names] if isinstance(prevalence, dict) else []
    if len(counts) == 3 and len(prevalence) == 3 and all(type(count) is int for count in counts):
        positives, labels, reports = counts
        if reports > 0 and labels == reports * n_labels and 0 <= positives <= labels:  # type: ignore[operator]
            return
    msg = (
        f"retrieve: prevalence must be counts of positives, labels and reports, with {n_labels} labels a report; got "
        f"{prevalence!r}. Copy it from the signature of the whole test set, or leave it out."
    )
    raise InputError(msg)
