"""Corpus BLEU: BLEU of a whole test set, as pycocoevalcap computes it and papers after R2Gen report it.

Matches, n-grams and lengths are added up over the reports before they are divided, so it is not a mean of scores.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from metric_oracle.metrics import METRICS

LENGTHS = ("length", "reference_length")


def order_of(name: str) -> int:
    """Return the order of the BLEU of pycocoevalcap that the name of a metric stands for, 0 if it is another metric."""
    metric = METRICS.get(name)
    return int(str(metric.options["order"])) if metric and metric.kernel == "bleu" and metric.options["coco"] else 0


def names_of(order: int) -> list[str]:
    """Return the column names of the counts of a report: matches and n-grams of each order, and the two lengths."""
    return [f"{what}_{n}" for what in ("matches", "ngrams") for n in range(1, order + 1)] + [*LENGTHS]


def counts_in(table: Any, metric: str) -> np.ndarray | None:
    """Return the counts of a metric in a table of scores, float64[2 order + 2, n], in the order of `names_of`.

    Pairs without counts are NaN. The result is None if the metric is not BLEU of pycocoevalcap, or the table lacks a
    column of counts.
    """
    columns = [f"{metric}.{name}" for name in names_of(order_of(metric))] if order_of(metric) else []
    if not columns or not set(columns) <= set(table.column_names):
        return None
    return np.array([table[name].to_numpy() for name in columns], np.float64)


def corpus_bleu(sums: np.ndarray) -> np.ndarray:
    """Return corpus BLEU, float64[...], from sums of the counts `names_of` over the reports: float64[..., 2 order + 2].

    It equals pycocoevalcap's ``Bleu.compute_score`` with one reference per report, but is 0 if no unigram matches.
    """
    order = (sums.shape[-1] - len(LENGTHS)) // 2
    matches, totals = sums[..., :order], sums[..., order : 2 * order]
    length, reference_length = sums[..., -2], sums[..., -1]
    precisions = (matches + 1e-15) / (totals + 1e-9)
    ratio = (length + 1e-15) / (reference_length + 1e-9)
    penalty = np.exp(np.minimum(1 - 1 / ratio, 0))
    return np.where(matches[..., 0] > 0, penalty * precisions.prod(axis=-1) ** (1 / order), 0.0)


def of_scores(table: Any, metric: str) -> float | None:
    """Return corpus BLEU of a table of scores under a metric; None if no pair of the table has counts of it."""
    counts = counts_in(table, metric)
    if counts is None:
        return None
    counts = counts[:, ~np.isnan(counts[0])]
    return float(corpus_bleu(counts.sum(axis=1))) if counts.size else None


def counts_of(metric: str, lengths: np.ndarray, components: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the counts of n pairs by name, see `names_of`, from the precisions among the components of their scores.

    `lengths` are numbers of tokens, of candidates and of references, int64[2, n]; `components` has `precision_1` and so
    on.
    """
    order = order_of(metric)
    totals = [np.maximum(lengths[0] - n + 1, 0) for n in range(1, order + 1)]
    matches = [np.rint(components[f"precision_{n}"] * total) for n, total in enumerate(totals, start=1)]
    columns = [*matches, *totals, *lengths]
    return dict(zip(names_of(order), [column.astype(np.float64) for column in columns], strict=True))
