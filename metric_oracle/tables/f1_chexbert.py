"""F1 of predicted labels against reference labels, with intervals.

The labels are CheXbert's 14 findings, or those of SRR-BERT, where each label is a finding with a status.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.shown import OneLine
from metric_oracle.corpora.tables import shown_names
from metric_oracle.corpora.vectors import FIVE_LABELS, LABELS, LabelTable, read_label_tables
from metric_oracle.errors import InputError, as_called
from metric_oracle.files import sha256
from metric_oracle.findings.finding import Frames
from metric_oracle.sources.labels import LabelSets, as_label_sets
from metric_oracle.statistics import FEW, LEVEL, Interval, checked_resamples, resample_means
from metric_oracle.tables.crg import IS_POSITIVE, ends_of, join_labels

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
HEADS = ("labels", "uncertain", "average", "f1", "low", "high")
TITLES = {"f1-chexbert": "F1-CheXbert", "f1-srr-bert": "F1-SRR-BERT"}


@dataclass(frozen=True, repr=False)
class F1(OneLine, Frames):
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

    values: dict[tuple[str, str, str], tuple[float, Interval]]
    reports: int
    rare: dict[str, int]
    unused: int
    signature: dict[str, Any]

    @property
    def title(self) -> str:
        """Name of the metric, as papers print it."""
        return TITLES[self.signature["metric"]]

    @property
    def table(self) -> pa.Table:
        """Table with one row per F1 value and the columns labels, uncertain, average, f1, low and high."""
        rows = [(*key, value, *interval[:2]) for key, (value, interval) in self.values.items()]
        kinds = (*[pa.string()] * 3, *[pa.float64()] * 3)
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=HEADS)

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        lines = (
            [f"Fewer than {FEW} reports ({self.reports}): the intervals are too short."] if self.reports < FEW else []
        )
        rare = ", ".join(f"{n} of {labels} labels" for labels, n in self.rare.items() if n)
        if rare:
            lines.append(
                f"Fewer than {FEW_POSITIVE} reference reports have {rare}: the intervals of the macro average are too "
                "short."
            )
        return lines

    def summary(self) -> str:
        """Return one line with the averages over all labels under each policy, and the number of reports."""
        all_labels = next(iter(self.values))[0]
        by_policy: dict[str, list[str]] = {}
        for (labels, uncertain, average), (value, _) in self.values.items():
            if labels == all_labels:
                by_policy.setdefault(uncertain, []).append(f"{average} {value:.4f}")
        policies = "; ".join(" ".join([uncertain, *averages]) for uncertain, averages in by_policy.items())
        return f"{self.title}-{all_labels}, uncertain as {policies}; {self.reports:,} reports"


def score_f1_chexbert(
    reference: str | Path,
    predicted: str | Path,
    *,
    id_column: str | None = None,
    resamples: int | None = None,
    seed: int = 0,
) -> F1:
    """Score predicted CheXbert labels against those of the references, as scikit-learn's classification_report does.

    Parameters
    ----------
    reference, predicted : str or path
        CheXbert's files: an id and its 14 columns. Every reference report must have a prediction.
    id_column : str, optional
        Column of the ids, if its name is not a known one.
    resamples : int, optional
        Number of bootstrap resamples of the studies, by default 10,000.
    seed : int
        Seed of the resamples.

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
    n_resamples = checked_resamples(resamples)
    references, predictions = read_label_tables((reference, predicted), id_column)
    for path, table in ((reference, references), (predicted, predictions)):
        _check_labels(path, table)
    rows = join_labels(references, predictions, predicted)
    values: dict[tuple[str, str, str], tuple[float, Interval]] = {}
    for uncertain in POLICIES:
        is_positive = np.array(IS_POSITIVE[uncertain])
        sides = is_positive[references.values], is_positive[predictions.values[rows]]
        scores = f1_scores(*sides, LABEL_SETS, AVERAGES, n_resamples, seed)
        for key, f1 in scores.items():
            values[key[0], uncertain, key[1]] = f1
    in_order = {key: values[key] for key in product(LABEL_SETS, POLICIES, AVERAGES)}
    signature = {
        "metric": "f1-chexbert",
        "source": "scikit-learn's F1 over the labels of Smit et al., EMNLP 2020",
        "tool": "scikit-learn",
        "direction": "higher",
        "uncertain": dict(POLICIES),
        "labels": {name: [LABELS[label] for label in columns] for name, columns in LABEL_SETS.items()},
        **_files_of(reference, references, predicted, predictions),
        **_bootstrap_of(n_resamples, seed),
    }
    positive = references.values == IS_POSITIVE["negative"].index(True)
    rare = {name: _rare(positive[:, list(columns)]) for name, columns in LABEL_SETS.items()}
    return F1(in_order, len(references.ids), rare, len(predictions.ids) - len(references.ids), signature)


def score_f1_srr(reference: str | Path, predicted: str | Path, *, resamples: int | None = None, seed: int = 0) -> F1:
    r"""Score predicted labels of SRR-BERT against those of the references, as scikit-learn does.

    Parameters
    ----------
    reference, predicted : str or path
        Tables with an id and a column for each label (a finding with a status), 1 or 0. Every reference report must
        have a prediction.
    resamples : int, optional
        Number of bootstrap resamples of the studies, by default 10,000.
    seed : int
        Seed of the resamples.

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
    n_resamples = checked_resamples(resamples)
    references, predictions = (as_label_sets(path) for path in (reference, predicted))
    if references.schema != predictions.schema:
        raise InputError(
            f"{reference} and {predicted} have different labels ({references.schema}; {predictions.schema}).",
            "Make both with one model.",
        )
    rows = join_labels(references, predictions, predicted)
    n_labels = references.values.shape[1]
    all_labels = {str(n_labels): tuple(range(n_labels))}
    scores = f1_scores(
        references.values == 1, predictions.values[rows] == 1, all_labels, SRR_AVERAGES, n_resamples, seed
    )
    signature = {
        "metric": "f1-srr-bert",
        "source": "scikit-learn's F1 over labels of Delbrouck et al., ACL 2025, as in RadEval 2.2.1",
        "tool": "radeval-2.2.1",
        "direction": "higher",
        "uncertain": OWN_LABEL,
        "labels": references.schema,
        **_files_of(reference, references, predicted, predictions),
        **_bootstrap_of(n_resamples, seed),
    }
    values = {(labels, OWN_LABEL, average): f1 for (labels, average), f1 in scores.items()}
    rare = {str(n_labels): _rare(references.values == 1)}
    return F1(values, len(references.ids), rare, len(predictions.ids) - len(references.ids), signature)


def _rare(positive: np.ndarray) -> int:
    """Return the number of labels that fewer than `FEW_POSITIVE` reports have; `positive` is bool[n, L]."""
    return int((positive.sum(axis=0) < FEW_POSITIVE).sum())


def _files_of(
    reference: str | Path,
    references: LabelTable | LabelSets,
    predicted: str | Path,
    predictions: LabelTable | LabelSets,
) -> dict[str, Any]:
    """Return the signature's entries for both files: name, checksum and number of reports."""
    sides = {"reference": (Path(reference), references), "predicted": (Path(predicted), predictions)}
    return {
        side: {"file": path.name, "sha256": sha256(path), "reports": len(table.ids)}
        for side, (path, table) in sides.items()
    }


def _bootstrap_of(resamples: int, seed: int) -> dict[str, Any]:
    """Return the signature's entries for the bootstrap and the version of this package."""
    return {
        "bootstrap": {"unit": "study", "resamples": resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }


def _check_labels(path: str | Path, table: LabelTable) -> None:
    """Raise InputError unless a table of labels has all 14 of CheXbert's."""
    lacking = [label for label in LABELS if label not in table.names]
    if lacking:
        raise InputError(
            f"{path} lacks {len(lacking)} of CheXbert's {len(LABELS)} labels ({shown_names(lacking[:3])}).",
            f"Pass what CheXbert wrote; {as_called('crg')} takes labels of other names.",
        )


def f1_scores(
    truth: np.ndarray,
    predicted: np.ndarray,
    label_sets: Mapping[str, Sequence[int]],
    names: Sequence[str],
    resamples: int,
    seed: int,
) -> dict[tuple[str, str], tuple[float, Interval]]:
    """Return F1 and its interval for each set of labels and each average.

    Parameters
    ----------
    truth, predicted : bool[n, L]
        Labels of n studies: those of the references and those of the predictions.
    label_sets : mapping of str to sequence of int
        Columns of each set of labels.
    names : sequence of str
        Averages to compute, of micro, macro, weighted and samples.
    resamples, seed : int
        Bootstrap resamples of the studies, and their seed.

    Returns
    -------
    dict of (label set, average) to (float, Interval)
    """
    cells = [truth & predicted, ~truth & predicted, truth & ~predicted]
    by_study = [
        _f1(*(cell[:, columns_of_set].sum(axis=1) for cell in cells))
        for columns_of_set in map(list, label_sets.values())
    ]
    columns = np.concatenate([*(cell.T for cell in cells), by_study]).astype(np.float64)
    if columns.shape[1] < 2:  # a single study cannot be resampled; two copies of it give a degenerate interval
        columns = np.repeat(columns, 2, axis=1)
    n = truth.shape[1]

    def averages(means: np.ndarray) -> np.ndarray:
        """Return the F1 of each label set and average, from mean counts."""
        averaged = []
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
            averaged += [by_average[name] for name in names]
        return np.stack(averaged, axis=-1)

    scores = resample_means(columns, resamples, seed).map(averages)
    keys = [(labels, average) for labels in label_sets for average in names]
    averaged = [scores.map(partial(np.take, indices=position, axis=-1)) for position in range(len(keys))]
    return {key: (float(score.value), ends_of(score)) for key, score in zip(keys, averaged, strict=True)}


def _f1(matched: np.ndarray, invented: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Return F1 from counts of true positives, false positives and false negatives; 0 if all three are 0."""
    total = 2 * matched + invented + missed
    return np.where(total > 0, 2 * matched / np.where(total > 0, total, 1), 0.0)
