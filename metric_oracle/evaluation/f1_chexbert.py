"""F1-CheXbert of a test set: reference labels and predicted labels -> F1 by label set, average and uncertain policy."""

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
from metric_oracle.corpora.vectors import FIVE_LABELS, LABELS, LabelTable, read_label_table
from metric_oracle.errors import InputError
from metric_oracle.evaluation.crg import IS_POSITIVE, ends_of, join_labels
from metric_oracle.indexes.manifest import sha256
from metric_oracle.statistics import LEVEL, Interval, checked_resamples, resample_means

# The five of Irvin et al. (AAAI 2019) that papers print beside all fourteen, "No Finding" among these.
LABEL_SETS = {"14": tuple(range(len(LABELS))), "5": tuple(LABELS.index(label) for label in FIVE_LABELS)}
AVERAGES = ("micro", "macro", "samples")
# What an uncertain label counts as, and who has it so. Negative and blank labels are both 0, so the last two are equal.
POLICIES = {
    "positive": "f1chexbert, RadEval; F1+ of LLaVA-Rad",
    "negative": "F1 of LLaVA-Rad",
    "blank": "R2Gen's compute_ce",
}
HEADS = ("labels", "uncertain", "average", "f1", "low", "high")


@dataclass(frozen=True, repr=False)
class F1(OneLine):
    """F1-CheXbert of a test set.

    Attributes
    ----------
    values : dict of (labels, uncertain, average) to (float, Interval)
        F1 and its interval: BCa bootstrap over studies.
    reports : int
        Reference reports, each with a prediction.
    unused : int
        Predictions without a reference.
    signature : dict
        What is needed to compute the same numbers again.
    """

    values: dict[tuple[str, str, str], tuple[float, Interval]]
    reports: int
    unused: int
    signature: dict[str, Any]

    @property
    def table(self) -> pa.Table:
        """Columns labels, uncertain, average, f1, low, high: a row for each number."""
        rows = [(*key, value, *interval[:2]) for key, (value, interval) in self.values.items()]
        kinds = (*[pa.string()] * 3, *[pa.float64()] * 3)
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=HEADS)

    def summary(self) -> str:
        """Return one line: the averages over all labels under each policy, and the reports."""
        found = []
        for uncertain in POLICIES:
            averages = [f"{average} {self.values['14', uncertain, average][0]:.4f}" for average in AVERAGES]
            found.append(" ".join([uncertain, *averages]))
        return f"F1-CheXbert-14, uncertain as {'; '.join(found)}; {self.reports:,} reports"


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
    reference, predicted : path
        CheXbert's files: an id and its 14 columns. Every reference report must have a prediction.
    id_column : str
        Where its name does not say it.
    resamples, seed : int
        Of the bootstrap over studies, 10,000 by default.

    Returns
    -------
    F1
        Of 14 and 5 labels, micro, macro and samples averages, under the three policies for uncertain labels. An F1
        without any label on either side is 0, and a label without any is one of those that macro averages.

    Raises
    ------
    InputError
        If the files, their labels or their ids do not fit.
    """
    n_resamples = checked_resamples(resamples, "f1_chexbert")
    truth, given = (_read(path, id_column) for path in (reference, predicted))
    rows = join_labels(truth, given, predicted, "f1_chexbert")
    values: dict[tuple[str, str, str], tuple[float, Interval]] = {}
    for uncertain in POLICIES:
        is_positive = np.array(IS_POSITIVE[uncertain])
        found = _scores(is_positive[truth.values], is_positive[given.values[rows]], n_resamples, seed)
        for key, one in found.items():
            values[key[0], uncertain, key[1]] = one
    in_order = {key: values[key] for key in product(LABEL_SETS, POLICIES, AVERAGES)}
    signature = {
        "metric": "f1-chexbert",
        "source": "scikit-learn's F1 over the labels of Smit et al., EMNLP 2020",
        "direction": "higher",
        "uncertain": dict(POLICIES),
        "labels": {name: [LABELS[place] for place in places] for name, places in LABEL_SETS.items()},
        "reference": {"file": Path(reference).name, "sha256": sha256(Path(reference)), "reports": len(truth.ids)},
        "predicted": {"file": Path(predicted).name, "sha256": sha256(Path(predicted)), "reports": len(given.ids)},
        "bootstrap": {"unit": "study", "resamples": n_resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    return F1(in_order, len(truth.ids), len(given.ids) - len(truth.ids), signature)


def _read(path: str | Path, id_column: str | None) -> LabelTable:
    table = read_label_table(path, id_column=id_column)
    lacking = [label for label in LABELS if label not in table.names]
    if lacking:
        msg = (
            f"f1_chexbert: labels must be CheXbert's {len(LABELS)}; got {len(lacking)} lacking in {path} "
            f"({shown_names(lacking[:3])}). Pass what CheXbert wrote; oracle crg takes labels of other names."
        )
        raise InputError(msg)
    return table


def _scores(
    truth: np.ndarray, given: np.ndarray, resamples: int, seed: int
) -> dict[tuple[str, str], tuple[float, Interval]]:
    """Return F1 and interval by label set and average; `truth` and `given` are bool[n, 14]."""
    cells = [truth & given, ~truth & given, truth & ~given]
    by_study = [_f1(*(cell[:, places].sum(axis=1) for cell in cells)) for places in map(list, LABEL_SETS.values())]
    columns = np.concatenate([*(cell.T for cell in cells), by_study]).astype(np.float64)
    if columns.shape[1] < 2:  # of one study nothing varies
        columns = np.repeat(columns, 2, axis=1)
    n = len(LABELS)

    def averages(means: np.ndarray) -> np.ndarray:
        found = []
        for place, labels in enumerate(map(list, LABEL_SETS.values())):
            parts = [means[..., first : first + n][..., labels] for first in (0, n, 2 * n)]
            micro = _f1(*(part.sum(axis=-1) for part in parts))
            found += [micro, _f1(*parts).mean(axis=-1), means[..., 3 * n + place]]
        return np.stack(found, axis=-1)

    scores = resample_means(columns, resamples, seed).map(averages)
    keys = [(labels, average) for labels in LABEL_SETS for average in AVERAGES]
    found = [scores.map(partial(np.take, indices=place, axis=-1)) for place in range(len(keys))]
    return {key: (float(one.value), ends_of(one)) for key, one in zip(keys, found, strict=True)}


def _f1(matched: np.ndarray, invented: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Return F1 of counts, 0 where all are 0."""
    total = 2 * matched + invented + missed
    return np.where(total > 0, 2 * matched / np.where(total > 0, total, 1), 0.0)
