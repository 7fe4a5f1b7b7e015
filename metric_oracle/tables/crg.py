"""CRG (Hamamci et al., MIDL 2025) of a test set, from a table of reference labels and a table of predicted labels.

``kernels/crg`` has the equations, and says what happens if they divide by zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.shown import OneLine
from metric_oracle.corpora.tables import shown_names
from metric_oracle.corpora.vectors import LabelTable, is_abnormality, read_label_tables
from metric_oracle.errors import InputError, called
from metric_oracle.files import sha256
from metric_oracle.findings.finding import Frames
from metric_oracle.kernels.crg.score import crg
from metric_oracle.metrics import METRICS
from metric_oracle.sources.labels import LabelSets
from metric_oracle.statistics import FEW, LEVEL, Interval, Resampled, checked_resamples, resample_means, varies
from metric_oracle.tables.table_cells import crg_of_means

COUNTS = ("tp", "fn", "fp", "tn")
# For each policy on uncertain labels: whether the classes 0 blank, 1 positive, 2 negative and 3 uncertain are positive.
IS_POSITIVE = {
    "positive": (False, True, False, True),
    "negative": (False, True, False, False),
    "blank": (False, True, False, False),
}


@dataclass(frozen=True)
class Level:
    """CRG of one set of labels, such as all abnormalities, or the types and locations of one abnormality."""

    name: str  # name of the level, as the caller chose it
    labels: list[str]  # names of its L labels
    counts: np.ndarray  # int64[L, 4], true positives, false negatives, false positives and true negatives of each label
    interval: Interval  # Interval of the score by the BCa bootstrap over reports. Each resample has its own prevalence.

    @property
    def score(self) -> float:
        """CRG of the level."""
        matched, missed, invented, _ = self.counts.sum(axis=0).tolist()
        return crg(missed, invented, matched + missed, int(self.counts.sum()))


@dataclass(frozen=True, repr=False)
class CRG(OneLine, Frames):
    """CRG of a test set.

    Attributes
    ----------
    levels : list of Level
        The levels, each with its counts, score and interval.
    reports : int
        Number of reference reports. Each has a prediction.
    unused : int
        Number of predictions without a reference.
    interval : Interval
        Interval of the mean score, computed as that of a level.
    signature : dict
        What is needed to compute the same numbers again.
    """

    levels: list[Level]
    reports: int
    unused: int
    interval: Interval
    signature: dict[str, Any]

    @property
    def score(self) -> float:
        """Mean of the levels' scores, which is how the paper combines binary and structured labels."""
        return math.fsum(level.score for level in self.levels) / len(self.levels)

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        return (
            [f"Fewer than {FEW} reports ({self.reports}): the intervals are too short."] if self.reports < FEW else []
        )

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""
        return self.table.to_pylist()

    def summary(self) -> str:
        """Return one line with the score, its interval and the number of reports."""
        ends = "" if self.interval.degenerate else f" [{self.interval.low:.4f} {self.interval.high:.4f}]"
        return f"CRG {self.score:.4f}{ends}, {self.reports:,} reports"

    @property
    def table(self) -> pa.Table:
        """Table with the columns level, label, tp, fn, fp, tn, crg, low and high.

        Every label has a row with its counts. Every level has a row "all" with its sums, score and interval. With
        several levels, the last row has the mean of their scores.
        """
        rows = []
        for level in self.levels:
            rows += [
                (level.name, name, *counts, None, None, None)
                for name, counts in zip(level.labels, level.counts.tolist(), strict=True)
            ]
            rows.append((level.name, "all", *level.counts.sum(axis=0).tolist(), level.score, *level.interval[:2]))
        if len(self.levels) > 1:
            rows.append(("mean", "all", *[None] * len(COUNTS), self.score, *self.interval[:2]))
        kinds = (pa.string(), pa.string(), *[pa.int64()] * len(COUNTS), *[pa.float64()] * 3)
        names = ("level", "label", *COUNTS, "crg", "low", "high")
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names)


@called("score_crg")
def score_crg(
    reference: str | Path,
    predicted: str | Path,
    *,
    uncertain: str | None,
    levels: Mapping[str, Sequence[str]] | None = None,
    id_column: str | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> CRG:
    """Score predicted labels against reference labels with CRG.

    Parameters
    ----------
    reference, predicted : str or path
        Tables with an id and a column for each label: 1, 0, -1 (uncertain) or empty; CheXbert's files are such tables.
        Rows are joined by id, and every reference report must have a prediction. "No Finding", the absence of
        abnormalities, is left out.
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as, on both sides; negative and blank have the same effect.
    levels : mapping of str to sequence of str, optional
        Labels of each level, by name. The score is the mean of the CRG of all levels: Hamamci et al. score general
        classes as one level and structured labels (such as consolidation in the left lung) as another. By default all
        labels are one level.
    id_column : str, optional
        Column of the ids, if its name is not a known one.
    resamples : int, optional
        Number of bootstrap resamples of the reports, by default 10,000.
    seed : int
        Seed of the resamples.

    Returns
    -------
    CRG
        The score and its interval, the counts of each level, and the signature.

    Raises
    ------
    InputError
        If a file cannot be read, labels or ids of the files do not agree, or an option breaks its rule.

    Examples
    --------
    >>> mo.score_crg("test_labels.csv", "strong_labels.csv", uncertain="negative")
    <CRG: CRG 0.7249 [0.6018 0.8544], 24 reports>
    """
    if uncertain not in IS_POSITIVE:
        raise InputError(
            "uncertain",
            "must be positive, negative or blank",
            repr(uncertain),
            "Say what an uncertain label counts as: it changes the score and is recorded.",
        )
    n_resamples = checked_resamples(resamples)
    references, predictions = read_label_tables((reference, predicted), id_column)
    rows = join_labels(references, predictions, predicted)
    chosen = _levels(references, levels, reference)
    is_positive = np.array(IS_POSITIVE[uncertain])
    scored: list[Level] = []
    by_report: list[np.ndarray] = []
    for name, labels in chosen.items():
        lacking = [label for label in labels if label not in predictions.names]
        if lacking:
            raise InputError(
                f"{predicted} lacks {len(lacking)} of the {len(labels)} labels of the reference "
                f"({shown_names(lacking[:3])}).",
                "Rename its columns, or drop them from the reference.",
            )
        in_reference = is_positive[references.values[:, [references.names.index(label) for label in labels]]]
        in_prediction = is_positive[predictions.values[rows][:, [predictions.names.index(label) for label in labels]]]
        cells = [
            in_reference & in_prediction,
            in_reference & ~in_prediction,
            ~in_reference & in_prediction,
            ~in_reference & ~in_prediction,
        ]
        counts = np.stack([cell.sum(axis=0) for cell in cells], axis=1)
        by_report += [in_reference.sum(axis=1), cells[1].sum(axis=1), cells[2].sum(axis=1)]
        scored.append(Level(name, labels, counts, Interval(np.nan, np.nan, degenerate=True)))
    scores = _resampled(np.array(by_report, np.float64), [len(level.labels) for level in scored], n_resamples, seed)
    ends = [ends_of(scores.map(partial(np.take, indices=position, axis=-1))) for position in range(len(scored))]
    scored = [replace(level, interval=interval) for level, interval in zip(scored, ends, strict=True)]
    signature = {
        "metric": "crg",
        "source": "Hamamci et al., MIDL 2025",
        "tool": METRICS["crg"].tool,
        "direction": "higher",
        "uncertain": uncertain,
        "levels": chosen,
        "reference": {"file": Path(reference).name, "sha256": sha256(Path(reference)), "reports": len(references.ids)},
        "predicted": {"file": Path(predicted).name, "sha256": sha256(Path(predicted)), "reports": len(predictions.ids)},
        "bootstrap": {"unit": "report", "resamples": n_resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    mean = ends_of(scores.map(lambda values: values.mean(axis=-1)))
    return CRG(scored, len(references.ids), len(predictions.ids) - len(references.ids), mean, signature)


def _resampled(columns: np.ndarray, labels: Sequence[int], resamples: int, seed: int) -> Resampled:
    """Return the CRG of L levels: of the test set, of each bootstrap resample, and with each report left out.

    Parameters
    ----------
    columns : float64[3 L, n]
        For each level, three rows with the positive labels, false negatives and false positives of each of n reports.
    labels : sequence of int
        Number of labels of each level.
    """

    def scores(means: np.ndarray) -> np.ndarray:
        """Return the CRG of each level and their mean, from mean counts."""
        parts = [means[..., 3 * level : 3 * level + 3] for level in range(len(labels))]
        return np.stack([crg_of_means(part, n) for part, n in zip(parts, labels, strict=True)], axis=-1)

    if columns.shape[1] < 2:  # a single report cannot be resampled; two copies of it give a degenerate interval
        columns = np.repeat(columns, 2, axis=1)
    return resample_means(columns, resamples, seed).map(scores)


def ends_of(score: Resampled) -> Interval:
    """Return the interval of a score of a test set; if all resamples have one score, a degenerate one at that score."""
    if not varies(score.resampled):
        return Interval(float(score.value), float(score.value), degenerate=True)
    return score.interval() or Interval(float(score.value), float(score.value), degenerate=True)


def join_labels(
    references: LabelTable | LabelSets, predictions: LabelTable | LabelSets, predicted: str | Path
) -> list[int]:
    """Return, for each reference report, the row of its prediction."""
    row_of_id = {key: row for row, key in enumerate(predictions.ids)}
    lacking = [key for key in references.ids if key not in row_of_id]
    if lacking:
        raise InputError(
            f"{predicted} has no labels for {len(lacking)} of {len(references.ids)} reference reports "
            f"({shown_names(lacking[:3])}).",
            "Add them, or leave these reports out of the reference.",
        )
    return [row_of_id[key] for key in references.ids]


def _levels(
    references: LabelTable, levels: Mapping[str, Sequence[str]] | None, reference: str | Path
) -> dict[str, list[str]]:
    """Return the names of the labels of each level, checked against the columns of the reference table."""
    if levels is None:
        levels = {"labels": [name for name in references.names if is_abnormality(name)]}
    for name, labels in levels.items():
        unknown = [label for label in labels if label not in references.names or not is_abnormality(label)]
        if not labels or unknown or len(set(labels)) < len(labels):
            raise InputError(
                f"level {name!r}",
                "must have labels of the reference, each once and No Finding left out",
                f"{len(labels)} labels, {len(unknown)} of them unknown",
                f"Labels in {reference}: {shown_names(references.names)}.",
            )
    return {name: list(labels) for name, labels in levels.items()}


def parse_levels(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse levels written as "NAME=LABEL,LABEL" into a dict from name to labels."""
    levels: dict[str, list[str]] = {}
    for text in texts:
        name, equals, labels = text.partition("=")
        if not equals or not name.strip() or name.strip() in levels:
            raise InputError("level", 'must be "NAME=LABEL,LABEL", each name once', repr(text), "Correct it.")
        levels[name.strip()] = [label.strip() for label in labels.split(",") if label.strip()]
    return levels
