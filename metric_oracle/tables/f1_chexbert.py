"""F1 of predicted labels against reference labels, with intervals.

The labels are CheXbert's 14 findings, or those of SRR-BERT, where each label is a finding with a status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base import option_types
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.validation import public
from metric_oracle.corpora.label_tables import FIVE_LABELS, LABELS, LabelTable, read_label_tables
from metric_oracle.findings.cells import over_of
from metric_oracle.findings.printed_tables import PaperTable, pivot
from metric_oracle.findings.signature import bootstrap, signed
from metric_oracle.sources.labels import as_label_sets
from metric_oracle.statistics import n_resamples
from metric_oracle.tables.label_scores import (
    IS_POSITIVE,
    LabelScores,
    PredictedLabels,
    ReferenceLabels,
    SetScore,
    Tell,
    join_labels,
    scored,
)

# Positions in LABELS. Papers print F1 over all 14 labels ("No Finding" included) and over five of Irvin et al. (2019).
LABEL_SETS = {"14": tuple(range(len(LABELS))), "5": tuple(LABELS.index(label) for label in FIVE_LABELS)}
AVERAGES = ("micro", "macro", "samples")
# What an uncertain label counts as -> who counts it so. Negative and blank labels are both 0, so the last two agree.
POLICIES = {
    "positive": "f1chexbert, RadEval; F1+ of LLaVA-Rad",
    "negative": "F1 of LLaVA-Rad",
    "blank": "R2Gen's compute_ce",
}
# Averages for SRR-BERT; the published number (RadEval) is the weighted one.
SRR_AVERAGES = ("weighted", *AVERAGES)
OWN_LABEL = "a label"
# With fewer reference reports that have a label, the label's F1, and so the macro average, is biased downwards.
FEW_POSITIVE = 10
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("labels", "uncertain", "average")),
        *((name, pa.float64()) for name in ("f1", "low", "high")),
    ]
)
TITLES = {"f1-chexbert": "F1-CheXbert", "f1-srr-bert": "F1-SRR-BERT"}


@dataclass(frozen=True, repr=False)
class F1(LabelScores):
    """F1 of the labels of a test set.

    Attributes
    ----------
    values : dict of (labels, uncertain, average) to (float, Interval)
        F1 and its interval by the BCa bootstrap over studies. The key is the set of labels ("14", "5"), what an
        uncertain label counts as ("a label" for SRR-BERT, where uncertainty is a status), and the average.
    reports : int
        Number of reference reports. Each has a prediction.
    rare : dict of str to int
        Set of labels -> number of its labels that fewer than 10 reference reports have.
    unused : int
        Number of predictions without a reference.
    signature : dict
        What is needed to compute the same numbers again.
    """

    values: dict[tuple[str, str, str], SetScore]
    rare: dict[str, int]
    signature: dict[str, Any]

    @property
    def title(self) -> str:
        """Name of the metric, as papers print it."""
        return TITLES[self.signature["metric"]]

    @property
    def table(self) -> pa.Table:
        """Table with one row per F1 value and the columns labels, uncertain, average, f1, low and high."""
        rows = [
            {"labels": labels, "uncertain": policy, "average": average, "f1": f1.value}
            | {"low": f1.interval.low, "high": f1.interval.high}
            for (labels, policy, average), f1 in self.values.items()
        ]
        return pa.Table.from_pylist(rows, _SCHEMA)

    def tables(self) -> list[PaperTable]:
        """Return a table of F1 with intervals: one row per label set and policy, one column per average."""
        rows = [{**row, "rows": f"{row['labels']} labels, uncertain {row['uncertain']}"} for row in self.records()]
        policies = self.signature["uncertain"]
        if isinstance(policies, dict):
            policies = "; ".join(f"{name} ({users})" for name, users in policies.items())
        notes = [
            f"{self.reports:,} reports; an uncertain label counts as {policies}",
            "95 % BCa intervals over studies",
            *self.warnings(),
        ]
        return [pivot(self.title, rows, "rows", "average", over_of("f1", "low", "high"), notes, "labels")]

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        rare = ", ".join(f"{n} of {labels} labels" for labels, n in self.rare.items() if n)
        too_short = "the intervals of the macro average are too short."
        few = [f"Fewer than {FEW_POSITIVE} reference reports have {rare}: {too_short}"] if rare else []
        return [*super().warnings(), *few]

    def summary(self) -> str:
        """Return one line with the averages over all labels under each policy, and the number of reports."""
        all_labels = next(iter(self.values))[0]
        by_policy: dict[str, list[str]] = {}
        for (labels, uncertain, average), (value, _) in self.values.items():
            if labels == all_labels:
                by_policy.setdefault(uncertain, []).append(f"{average} {value:.4f}")
        policies = "; ".join(" ".join([uncertain, *averages]) for uncertain, averages in by_policy.items())
        return f"{self.title}-{all_labels}, uncertain as {policies}; {self.reports:,} reports"


@public
def score_f1_chexbert(
    reference: ReferenceLabels,
    predicted: PredictedLabels,
    *,
    id_column: option_types.IdColumn | None = None,
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    tell: Tell = None,
) -> F1:
    """Score predicted CheXbert labels with F1 over 14 and 5 labels, under each convention for uncertain labels.

    Both files have the 14 columns that CheXbert writes. The numbers are those of scikit-learn's classification_report.

    Returns
    -------
    F1
        Micro, macro and samples averages over 14 and 5 labels, under the three policies for uncertain labels. The F1 of
        a label that neither side has is 0, and the macro average includes it.

    Raises
    ------
    InputError
        If a file cannot be read, labels or ids of the files do not agree, or an option breaks its rule.

    Examples
    --------
    >>> mo.score_f1_chexbert("test_labels.csv", "strong_labels.csv", resamples=1000)
    <F1: F1-CheXbert-14, uncertain as positive micro 0.8602 macro 0.7241 samples 0.8486; ...; 24 reports>
    """
    resamples = n_resamples(resamples)
    references, predictions = read_label_tables((reference, predicted), id_column)
    for path, table in ((reference, references), (predicted, predictions)):
        _check_labels(path, table)
    predicted_values, files = join_labels(reference, references, predicted, predictions, tell)
    values: dict[tuple[str, str, str], SetScore] = {}
    for uncertain in POLICIES:
        is_positive = np.array(IS_POSITIVE[uncertain])
        sides = is_positive[references.values], is_positive[predicted_values]
        for (labels, average), f1 in f1_scores(*sides, LABEL_SETS, AVERAGES, resamples, seed).items():
            values[labels, uncertain, average] = f1
    in_order = {key: values[key] for key in product(LABEL_SETS, POLICIES, AVERAGES)}
    signature = signed(
        metric="f1-chexbert",
        source="scikit-learn's F1 over the labels of Smit et al., EMNLP 2020",
        tool="scikit-learn",
        direction="higher",
        uncertain=dict(POLICIES),
        labels={name: [LABELS[label] for label in columns] for name, columns in LABEL_SETS.items()},
        **files,
        bootstrap=bootstrap("study", resamples, seed),
    )
    positive = references.values == IS_POSITIVE["negative"].index(True)
    return F1(in_order, {name: _rare(positive[:, list(columns)]) for name, columns in LABEL_SETS.items()}, signature)


@public
def score_f1_srr(
    reference: ReferenceLabels,
    predicted: PredictedLabels,
    *,
    resamples: option_types.Resamples | None = None,
    seed: option_types.Seed = 0,
    tell: Tell = None,
) -> F1:
    r"""Score predicted SRR-BERT labels (findings with their status) with F1.

    A label is 1 or 0. The numbers are those of scikit-learn's classification_report.

    Returns
    -------
    F1
        The average weighted by the number of references with each label, as RadEval prints it; micro, macro and samples
        averages.

    Raises
    ------
    InputError
        If a file cannot be read, labels or ids of the files do not agree, or an option breaks its rule.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("reference.csv").write_text("study_id,Edema (Present)\ns1,1\ns2,0\n")
    >>> _ = Path("predicted.csv").write_text("study_id,Edema (Present)\ns1,1\ns2,1\n")
    >>> mo.score_f1_srr("reference.csv", "predicted.csv", resamples=1000)
    <F1: F1-SRR-BERT-1, ... micro 0.6667 ...; 2 reports>
    """
    resamples = n_resamples(resamples)
    references, predictions = (as_label_sets(path) for path in (reference, predicted))
    if references.schema != predictions.schema:
        raise InputError(
            f"{reference} and {predicted} have different labels ({references.schema}; {predictions.schema}).",
            "Make both with one model.",
        )
    predicted_values, files = join_labels(reference, references, predicted, predictions, tell)
    n_labels = references.values.shape[1]
    sides = references.values == 1, predicted_values == 1
    scores = f1_scores(*sides, {str(n_labels): range(n_labels)}, SRR_AVERAGES, resamples, seed)
    signature = signed(
        metric="f1-srr-bert",
        source="scikit-learn's F1 over labels of Delbrouck et al., ACL 2025, as in RadEval 2.2.1",
        tool="radeval-2.2.1",
        direction="higher",
        uncertain=OWN_LABEL,
        labels=references.schema,
        **files,
        bootstrap=bootstrap("study", resamples, seed),
    )
    values = {(labels, OWN_LABEL, average): f1 for (labels, average), f1 in scores.items()}
    return F1(values, {str(n_labels): _rare(sides[0])}, signature)


def _rare(positive: np.ndarray) -> int:
    """Return the number of labels that fewer than `FEW_POSITIVE` reports have; `positive` is bool[n, L]."""
    return int((positive.sum(axis=0) < FEW_POSITIVE).sum())


def _check_labels(path: str | Path, table: LabelTable) -> None:
    """Raise InputError unless a table of labels has all 14 of CheXbert's."""
    lacking = [label for label in LABELS if label not in table.names]
    if lacking:
        raise InputError(
            f"{path} lacks {len(lacking)} of CheXbert's {len(LABELS)} labels ({shown(*lacking[:3])}).",
            "Pass what CheXbert wrote; `mo.score_crg` takes labels of other names.",
        )


def f1_scores(
    truth: np.ndarray,
    predicted: np.ndarray,
    label_sets: Mapping[str, Sequence[int]],
    averages: Sequence[str],
    resamples: int,
    seed: int,
) -> dict[tuple[str, str], SetScore]:
    """Return (name of a set of labels, average) -> F1, from the labels of references and predictions, bool[n, L] each.

    `label_sets` has the columns of each set, `averages` are of micro, macro, weighted and samples.
    """
    cells = [truth & predicted, ~truth & predicted, truth & ~predicted]
    by_study = [_f1(*(cell[:, labels].sum(axis=1) for cell in cells)) for labels in map(list, label_sets.values())]
    counts = np.concatenate([*(cell.T for cell in cells), by_study]).astype(np.float64)
    n = truth.shape[1]

    def scores(means: np.ndarray) -> np.ndarray:
        """Return the F1 of each label set and average, from mean counts."""
        columns = []
        for position, labels in enumerate(map(list, label_sets.values())):
            means_of_cells = [means[..., first : first + n][..., labels] for first in (0, n, 2 * n)]
            by_label, support = _f1(*means_of_cells), means_of_cells[0] + means_of_cells[2]
            total = support.sum(axis=-1)
            by_average = {
                "micro": _f1(*(part.sum(axis=-1) for part in means_of_cells)),
                "macro": by_label.mean(axis=-1),
                "weighted": (by_label * support).sum(axis=-1) / np.where(total > 0, total, 1),
                "samples": means[..., 3 * n + position],
            }
            columns += [by_average[average] for average in averages]
        return np.stack(columns, axis=-1)

    return dict(zip(product(label_sets, averages), scored(counts, scores, resamples, seed), strict=True))


def _f1(matched: np.ndarray, invented: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Return F1 from counts of true positives, false positives and false negatives; 0 if all three are 0."""
    total = 2 * matched + invented + missed
    return np.where(total > 0, 2 * matched / np.where(total > 0, total, 1), 0.0)
