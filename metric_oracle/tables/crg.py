"""CRG (Hamamci et al., MIDL 2025) of a test set, from a table of reference labels and a table of predicted labels.

``kernels/crg`` has the equations, and says what happens if they divide by zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import FILES, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.corpora.label_tables import LabelTable, is_abnormality, read_label_tables
from metric_oracle.findings.cells import Format, Row, ends_of, number_of
from metric_oracle.findings.printed_tables import PaperTable, listing, plain
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.metrics import METRICS
from metric_oracle.statistics import Array, Interval, n_resamples
from metric_oracle.tables.label_scores import (
    IS_POSITIVE,
    LabelScores,
    PredictedLabels,
    ReferenceLabels,
    Tell,
    join_labels,
    scored,
)
from metric_oracle.tables.table_cells import crg_of_means

COUNTS = ("tp", "fn", "fp", "tn")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("level", "label")),
        *((name, pa.int64()) for name in COUNTS),
        *((name, pa.float64()) for name in ("crg", "low", "high")),
    ]
)
# The columns of the printed table.
_COLUMNS: dict[str, Format] = {
    **{name.upper(): number_of(name, ",") for name in COUNTS},
    "CRG": number_of("crg"),
    "95 % CI": ends_of(),
}


@dataclass(frozen=True)
class LevelScore:
    """CRG of one set of labels, such as all abnormalities, or the types and locations of one abnormality."""

    name: str  # as the caller chose it
    labels: list[str]  # the names of L labels
    counts: np.ndarray  # int64[L, 4], true positives, false negatives, false positives and true negatives of each label
    interval: Interval  # of the score, by the BCa bootstrap over reports; each resample has its own prevalence

    @property
    def score(self) -> float:
        """CRG of the level."""
        from metric_oracle.kernels.crg.score import crg

        matched, missed, invented, _ = self.counts.sum(axis=0).tolist()
        return crg(missed, invented, matched + missed, int(self.counts.sum()))


@dataclass(frozen=True, repr=False)
class CRG(LabelScores):
    """CRG of a test set.

    Attributes
    ----------
    levels : list of LevelScore
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

    levels: list[LevelScore]
    interval: Interval
    signature: dict[str, Any]

    @property
    def score(self) -> float:
        """Mean of the levels' scores, which is how the paper combines binary and structured labels."""
        return math.fsum(level.score for level in self.levels) / len(self.levels)

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
        rows: list[dict[str, Any]] = []
        for level in self.levels:
            for label, counts in zip(level.labels, level.counts.tolist(), strict=True):
                rows.append({"level": level.name, "label": label, **dict(zip(COUNTS, counts, strict=True))})
            sums = dict(zip(COUNTS, level.counts.sum(axis=0).tolist(), strict=True))
            rows.append({"level": level.name, "label": "all", **sums, **_scored(level.score, level.interval)})
        if len(self.levels) > 1:
            rows.append({"level": "mean", "label": "all", **_scored(self.score, self.interval)})
        return pa.Table.from_pylist(rows, _SCHEMA)

    def tables(self) -> list[PaperTable]:
        """Return the table with the counts of each label, and the score of each level with its interval."""
        policy = self.signature["uncertain"]
        notes = [
            f"{self.reports:,} reports; an uncertain label counts as {policy}; trivial answers have 0.3333",
            "95 % BCa intervals over reports, each resample with its own prevalence",
            *self.warnings(),
        ]
        return [listing("CRG", self.records(), _label, _COLUMNS, notes, "label")]


def _scored(score: float, interval: Interval) -> dict[str, float]:
    """Return what the numbers have of a score."""
    return {"crg": score, "low": interval.low, "high": interval.high}


def _label(row: Row) -> str:
    """Return the name of a row of the printed table."""
    return f"{plain(row['level'])}: {plain(row['label'])}"


@public
def score_crg(
    reference: ReferenceLabels,
    predicted: PredictedLabels,
    *,
    uncertain: Annotated[
        option_types.Uncertain,
        Doc(
            "What an uncertain label (-1) counts as, on both sides: {}. blank means not mentioned, and has the same "
            "effect as negative. There is no default, because this changes the score."
        ),
        Flag(panel=FILES),
    ],
    levels: Annotated[
        Mapping[str, Sequence[str]] | None,
        Doc(
            "Levels, by name: sets of label columns that are scored by themselves; CRG is the mean over the levels. "
            "Hamamci et al. score general classes as one level and structured labels, such as consolidation in the "
            "left lung, as another. By default all columns are one level."
        ),
        Flag("--level", metavar="NAME=COLUMN,..."),
    ] = None,
    id_column: option_types.IdColumn | None = None,
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    tell: Tell = None,
) -> CRG:
    """Score predicted labels of any kind with CRG (Hamamci et al. 2025).

    A label is 1, 0, -1 (uncertain) or empty, as in the files of CheXbert. No Finding, the absence of abnormalities, is
    left out.

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
    resamples = n_resamples(resamples)
    references, predictions = read_label_tables((reference, predicted), id_column)
    values, files = join_labels(reference, references, predicted, predictions, tell)
    labels_of = _levels(references, levels, reference)
    is_positive = np.array(IS_POSITIVE[uncertain])
    counts: list[np.ndarray] = []  # int64[L, 4] of each level
    by_report: list[np.ndarray] = []
    for labels in labels_of.values():
        lacking = [label for label in labels if label not in predictions.names]
        if lacking:
            raise InputError(
                f"{predicted} lacks {len(lacking)} of the {len(labels)} labels of the reference "
                f"({shown(*lacking[:3])}).",
                "Rename its columns, or drop them from the reference.",
            )
        in_reference = is_positive[references.values[:, [references.names.index(label) for label in labels]]]
        in_prediction = is_positive[values[:, [predictions.names.index(label) for label in labels]]]
        cells = [
            in_reference & in_prediction,
            in_reference & ~in_prediction,
            ~in_reference & in_prediction,
            ~in_reference & ~in_prediction,
        ]
        counts.append(np.stack([cell.sum(axis=0) for cell in cells], axis=1))
        by_report += [in_reference.sum(axis=1), cells[1].sum(axis=1), cells[2].sum(axis=1)]

    def scores(means: Array) -> Array:
        """Return the CRG of each level and their mean, from the mean counts of `by_report`."""
        of_levels = np.stack(
            [
                crg_of_means(means[..., 3 * place : 3 * place + 3], len(labels))
                for place, labels in enumerate(labels_of.values())
            ],
            axis=-1,
        )
        return np.concatenate([of_levels, of_levels.mean(axis=-1)[..., None]], axis=-1)

    *of_levels, mean = scored(np.array(by_report, np.float64), scores, resamples, seed)
    signature = signed(
        metric="crg",
        source="Hamamci et al., MIDL 2025",
        tool=METRICS["crg"].tool,
        direction="higher",
        uncertain=uncertain,
        levels=labels_of,
        **files,
        bootstrap=bootstrap("report", resamples, seed),
    )
    level_scores = [
        LevelScore(name, labels, of_level, score.interval)
        for (name, labels), of_level, score in zip(labels_of.items(), counts, of_levels, strict=True)
    ]
    return CRG(level_scores, mean.interval, signature)


def _levels(
    references: LabelTable, levels: Mapping[str, Sequence[str]] | None, reference: str | Path
) -> dict[str, list[str]]:
    """Return level -> labels, by default one level of all abnormalities; raise InputError for labels of no column.

    `references` was read from the file `reference`.
    """
    if levels is None:
        levels = {"labels": [name for name in references.names if is_abnormality(name)]}
    for name, labels in levels.items():
        unknown = [label for label in labels if label not in references.names or not is_abnormality(label)]
        if not labels or unknown or len(set(labels)) < len(labels):
            raise InputError(
                f"level {shown(name)}",
                "must have labels of the reference, each once and No Finding left out",
                f"{len(labels)} labels, {len(unknown)} of them unknown",
                f"Labels in {reference}: {shown(*references.names)}.",
            )
    return {name: list(labels) for name, labels in levels.items()}
