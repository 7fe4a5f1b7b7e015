"""Scores of predicted labels against reference labels: the join of two tables, intervals over reports, the result."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base.declarations import IN_PYTHON
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import identify
from metric_oracle.base.progress import say
from metric_oracle.corpora.label_tables import LabelTable
from metric_oracle.findings.finding import Finding
from metric_oracle.sources.labels import LabelSets
from metric_oracle.statistics import FEW, Array, Interval, Resampled, resample_means, varies

# Files with the labels of the two sides.
ReferenceLabels: TypeAlias = Annotated[
    str | Path, Doc("Table with the labels of the references: an id column, and one column per label.")
]
PredictedLabels: TypeAlias = Annotated[
    str | Path,
    Doc(
        "Table with the labels of the predictions, in the same columns. Rows are joined on the ids, and every "
        "reference must have a prediction."
    ),
]
# Of the functions that score labels.
Tell: TypeAlias = Annotated[
    Callable[[str], None] | None,
    Doc("Called with a line on what is left out. By default the line is a warning."),
    IN_PYTHON,
]
# For each policy on uncertain labels: whether the classes 0 blank, 1 positive, 2 negative and 3 uncertain are positive.
IS_POSITIVE = {
    "positive": (False, True, False, True),
    "negative": (False, True, False, False),
    "blank": (False, True, False, False),
}


class SetScore(NamedTuple):
    """A score of a test set."""

    value: float
    interval: Interval  # by the BCa bootstrap over reports


class LabelScores(Finding):
    """Base of the scores of predicted labels; a signature has the entries of `join_labels`."""

    @property
    def reports(self) -> int:
        """Number of reference reports. Each has a prediction."""
        return int(self.signature["reference"]["reports"])

    @property
    def unused(self) -> int:
        """Number of predictions without a reference."""
        return int(self.signature["predicted"]["reports"]) - self.reports

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        too_few = f"Fewer than {FEW} reports ({self.reports}): the intervals are too short."
        return [too_few] if self.reports < FEW else []


def join_labels(
    reference: str | Path,
    references: LabelTable | LabelSets,
    predicted: str | Path,
    predictions: LabelTable | LabelSets,
    tell: Tell,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the values of the predictions in the order of the references, and the signature's entries for both files.

    Raise InputError if a reference report has no prediction; predictions without a reference are left out and told.
    """
    row_of_id = {key: row for row, key in enumerate(predictions.ids)}
    lacking = [key for key in references.ids if key not in row_of_id]
    if lacking:
        raise InputError(
            f"{predicted} has no labels for {len(lacking)} of {len(references.ids)} reference reports "
            f"({shown(*lacking[:3])}).",
            "Add them, or leave these reports out of the reference.",
        )
    if len(predictions.ids) > len(references.ids):
        say(f"predictions without a reference, not used: {len(predictions.ids) - len(references.ids):,}", tell)
    sides = {"reference": (Path(reference), references), "predicted": (Path(predicted), predictions)}
    files = {side: {**identify(path), "reports": len(table.ids)} for side, (path, table) in sides.items()}
    return predictions.values[[row_of_id[key] for key in references.ids]], files


def scored(counts: Array, formula: Callable[[Array], Array], resamples: int, seed: int) -> list[SetScore]:
    """Return S scores of a test set, each with its interval.

    `counts`, float64[C, n], are those of each of n reports; `formula` returns the scores, float64[..., S], from mean
    counts, float64[..., C].
    """
    if counts.shape[1] < 2:  # a single report cannot be resampled; two copies of it give a degenerate interval
        counts = np.repeat(counts, 2, axis=1)
    scores = resample_means(counts, resamples, seed).map(formula)
    parts = [scores.map(partial(np.take, indices=place, axis=-1)) for place in range(scores.value.shape[-1])]
    return [SetScore(float(part.value), _interval(part)) for part in parts]


def _interval(score: Resampled) -> Interval:
    """Return the interval of a score of a test set; a degenerate one if all resamples have one score, or some none."""
    if not varies(score.resampled):
        return Interval(float(score.value), float(score.value), degenerate=True)
    return score.interval() or Interval(float(score.value), float(score.value), degenerate=True)
