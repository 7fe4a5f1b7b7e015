"""The cells of one metric of a table: every system's mean with its interval, against random and the oracle.

All systems are resampled together. CRG is no mean: its cell is CRG of the whole test set, 1 / (2 - mean contribution),
and each resample of studies has its own prevalence, as the definition would on that test set.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metric_oracle.choices import LEGACY
from metric_oracle.retrieval.corpus_bleu import corpus_bleu
from metric_oracle.retrieval.results import Scores
from metric_oracle.statistics import (
    LEVEL,
    Array,
    Interval,
    Resampled,
    acceptance_interval,
    bootstrap_p,
    effective_studies,
    interval,
    paired_test,
    resample_means,
)

CRG = "crg"
CORPUS = " (corpus)"  # behind the name of a metric: of the whole test set, and no mean


@dataclass(frozen=True)
class Column:
    """One metric of a table; `n` studies, those that every system can score."""

    metric: str
    higher_is_better: bool
    n: int


@dataclass(frozen=True)
class Cell:
    """One system under one metric.

    Attributes
    ----------
    mean : float
        Over the column's studies; of CRG, the score of the whole test set.
    interval : Interval
        Of the mean.
    minimum, maximum : float or None
        Of the scores; of a row whose scores are means (over random draws, or over a whole corpus), of the single scores
        behind them. None where these are not known, and under CRG, which a single report has not.
    nonzero : int
        Studies whose score is not 0.
    effective : float
        Studies that the interval rests on, see `statistics.effective_studies`.
    unscorable : int
        Studies that this system could not score.
    best : bool
        Whether no competing system has a better mean: oracles, baselines and perfect answers do not compete.
    percent_change : float or None
        Change of the mean from random's in per cent of it, as in figure 5 of Yu et al.: positive is better; where lower
        is better, the decrease. None without a random row, and where its mean is not above 0.
    share : float or None
        Part of the way from the mean of random to the mean of the metric's oracle; None without these rows, and where
        the oracle is not better than random.
    change_interval, share_interval : Interval or None
        Of them, all rows resampled together; None of rows that are fixed at 0 or 1, and where some resample has no such
        number.
    """

    mean: float
    interval: Interval
    minimum: float | None
    maximum: float | None
    nonzero: int
    effective: float
    unscorable: int
    best: bool
    percent_change: float | None
    share: float | None
    change_interval: Interval | None = None
    share_interval: Interval | None = None


def means_of(
    metric: str,
    scores: Mapping[str, Scores],
    row: Mapping[str, Array],
    counts: Mapping[str, np.ndarray | None],
    complete: np.ndarray,
    resamples: int,
    seed: int,
) -> Resampled:
    """Return each system's mean, of float64[S]; under CRG each system's CRG, with the prevalence of the resample."""
    if metric != CRG:
        return resample_means(np.array([*row.values()]), resamples, seed)
    columns: list[np.ndarray] = []
    places: list[tuple[slice, float | None]] = []  # of each system's columns, and the labels of a report
    for name, contributions in row.items():
        prevalence = scores[name].signature["metrics"][metric].get("prevalence")
        held, start = counts[name], len(columns)
        if held is None or not prevalence:
            columns.append(contributions)
            places.append((slice(start, start + 1), None))
        else:
            matched, missed, invented = held[:, complete]
            columns += [matched + missed, missed, invented]
            places.append((slice(start, start + 3), prevalence["labels"] / prevalence["reports"]))

    def scored(means: Array) -> Array:
        return np.stack(
            [
                1 / (2 - means[..., place.start]) if labels is None else crg_of_means(means[..., place], labels)
                for place, labels in places
            ],
            axis=-1,
        )

    return resample_means(np.array(columns), resamples, seed).map(scored)


def corpus_means(counts: Sequence[Array], resamples: int, seed: int) -> Resampled:
    """Return each system's corpus BLEU from the counts of its reports, float64[2 order + 2, n] each."""
    size, n = counts[0].shape

    def scored(means: Array) -> Array:
        return corpus_bleu(n * means.reshape(*means.shape[:-1], len(counts), size))

    return resample_means(np.concatenate(counts), resamples, seed).map(scored)


def crg_of_means(means: Array, labels: float) -> Array:
    """Return CRG; `kernels.crg.score` has the equation and what an empty class means.

    Parameters
    ----------
    means : float64[..., 3]
        Positive labels, false negatives and false positives of a report.
    labels : float
        Labels of a report.
    """
    positives, missed, invented = means[..., 0], means[..., 1], means[..., 2]
    negatives = labels - positives
    lost = missed / np.where(positives > 0, positives, 1) + invented / np.where(negatives > 0, negatives, 1)
    return 1 / (1 + 2 * lost)


@dataclass(frozen=True)
class MetricCells:
    """One metric of all systems, resampled together."""

    column: Column
    row: Mapping[str, Array]
    means: Resampled
    method: str
    seed: int
    ranges: Mapping[str, tuple[float | None, float | None] | None]
    unscorable: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Whether the column is of the whole test set, and no mean over reports."""
        return self.column.metric == CRG or self._is_corpus

    @property
    def _is_corpus(self) -> bool:
        return self.column.metric.endswith(CORPUS)

    def _place(self, name: str) -> int:
        return list(self.row).index(name)

    def _interval(self, name: str) -> Interval:
        """Return the interval of a system's mean."""
        values, place = self.row[name], self._place(name)
        of_all = float(self.means.value[place])
        if not self._is_corpus and values.min() == values.max():
            return Interval(of_all, of_all, degenerate=True)
        if self.method == LEGACY:
            ends = interval(values, LEGACY, LEVEL, seed=self.seed)
            return ends if self.column.metric != CRG else Interval(1 / (2 - ends.low), 1 / (2 - ends.high))
        one = self.means.map(lambda means: means[..., place])
        return one.interval(self.method) or Interval(of_all, of_all, degenerate=True)

    def difference(self, a: str, b: str, resamples: int) -> tuple[float, Interval, float]:
        """Return the difference of two systems, its interval and its p-value, both of one procedure.

        Of means this is the permutation test; of a whole test set the bootstrap over studies, as a subset of the
        studies has no difference of its own.
        """
        places = self._place(a), self._place(b)
        between = self.means.map(lambda means: means[..., places[0]] - means[..., places[1]])
        difference = float(between.value)
        if not self.is_whole:
            return difference, *paired_test(self.row[a] - self.row[b], resamples, self.seed)
        if np.ptp(between.resampled) == 0:
            return difference, Interval(difference, difference, degenerate=True), bootstrap_p(between.resampled)
        return difference, acceptance_interval(between.resampled), bootstrap_p(between.resampled)

    def cells(self, random: str | None, oracles: Mapping[str, str], competing: Collection[str]) -> dict[str, Cell]:
        """Return the cells: means beside each other, random and the oracle."""
        metric, sign = self.column.metric, 1 if self.column.higher_is_better else -1
        mean = {name: float(value) for name, value in zip(self.row, self.means.value, strict=True)}
        if not self.is_whole:  # to the last bit as a reader of the file has it
            mean = {name: float(values.mean()) for name, values in self.row.items()}
        best = max((sign * mean[name] for name in competing), default=None)
        found = {}
        for name, values in self.row.items():
            ends = self.ranges.get(name, (float(values.min()), float(values.max())))
            if self.is_whole or ends is None:
                ends = (None, None)
            change: tuple[float | None, Interval | None] = (None, None)
            share: tuple[float | None, Interval | None] = (None, None)
            if random is not None:
                change = self._ratio(name, random, None, 100.0 * sign)
            if random is not None and metric in oracles:
                share = self._ratio(name, random, oracles[metric], 1.0)
            found[name] = Cell(
                mean[name],
                self._interval(name),
                *ends,
                int(np.count_nonzero(values)),
                effective_studies(values),
                self.unscorable[name],
                name in competing and sign * mean[name] == best,
                change[0],
                share[0],
                change[1],
                share[1],
            )
        return found

    def _ratio(self, name: str, random: str, oracle: str | None, scale: float) -> tuple[float | None, Interval | None]:
        """Return the way of a mean from random's, over random's mean or over the oracle's way, and its interval."""
        sign = 1 if self.column.higher_is_better else -1
        own, start = self._place(name), self._place(random)

        def of(means: Array) -> Array:
            way = means[..., own] - means[..., start]
            whole = means[..., start] if oracle is None else means[..., self._place(oracle)] - means[..., start]
            exists = whole > 0 if oracle is None else sign * whole > 0
            return np.divide(scale * way, whole, out=np.full_like(way, np.nan), where=exists)

        found = self.means.map(of)
        if not np.isfinite(found.value):
            return None, None
        is_fixed = name in (random, oracle) or self.method == LEGACY
        return float(found.value), None if is_fixed else found.interval(self.method)
