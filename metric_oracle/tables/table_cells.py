"""The cells of one metric of a table: each system's mean, its interval, and its place between random and the oracle.

All systems are resampled together. CRG is not a mean: its cell has the CRG of the whole test set, which is
1 / (2 - mean contribution of a report). Each resample of studies uses its own prevalence, as CRG is defined.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from metric_oracle.base import option_types
from metric_oracle.base.option_types import LEGACY
from metric_oracle.findings.cells import arrow
from metric_oracle.findings.corpus_bleu import corpus_bleu
from metric_oracle.metrics import METRICS, title_of
from metric_oracle.records import Directed
from metric_oracle.statistics import (
    LEVEL,
    Array,
    Interval,
    PairedDifference,
    Resampled,
    bootstrap_test,
    difference,
    effective_studies,
    interval,
    paired_test,
    resample_means,
    varies,
)

CRG = "crg"
RADCLIQS = ("radcliq", "radcliq:v0")
CORPUS = " (corpus)"  # suffix of a metric's name: one value for the whole test set, not a mean over reports


def title(name: str) -> str:
    """Return the name of a column as papers print it, for a metric, for corpus BLEU or for another tool's score."""
    metric = METRICS.get(name.removesuffix(CORPUS))
    if metric is not None and name.endswith(CORPUS):
        return f"{metric.name.partition(':')[0].upper()} of the corpus ({metric.tool})"
    return title_of(name)


@dataclass(frozen=True)
class MetricColumn(Directed):
    """One metric of a table."""

    metric: str
    higher_is_better: bool
    n: int  # number of studies that every system can score

    @property
    def label(self) -> str:
        """The name of the metric as papers print it, with the arrow of its direction."""
        return f"{title(self.metric)} {arrow(self.direction)}"


@dataclass(frozen=True)
class Cell:
    """One system under one metric."""

    mean: float  # over the column's studies; of CRG and corpus BLEU, the score of the whole test set
    interval: Interval  # of the mean
    # Range of the scores. If the scores of a row are means (over random draws, or over a whole corpus), it is the range
    # of the single scores that they average. None if that is not known, and for CRG and corpus BLEU, which a single
    # report does not have.
    minimum: float | None
    maximum: float | None
    nonzero: int  # number of studies whose score is not 0
    effective: float  # effective number of studies behind the interval, see `statistics.effective_studies`
    unscorable: int  # number of studies that this system could not score
    best: bool  # whether it competes, and no other that competes has a better mean
    # Improvement of the mean over that of random retrieval, in per cent of the latter, as in figure 5 of Yu et al.; for
    # a metric where lower is better, the decrease. None without a random row, or if its mean is not above 0.
    percent_change: float | None
    # Share of the way from random's mean to the mean of the metric's oracle, 1 at the oracle. None without these rows,
    # or if the oracle is not better than random.
    share: float | None
    # Intervals of the two, with all rows resampled together. None for the rows at which they are 0 or 1 by definition,
    # if some resample does not define the number, and for legacy intervals.
    change_interval: Interval | None = None
    share_interval: Interval | None = None


@dataclass(frozen=True)
class Difference:
    """Paired comparison of two systems under one metric."""

    a: str  # names of the two rows and of the column
    b: str
    metric: str
    difference: float  # mean of a - b over the column's studies
    # The differences that the test does not reject. It contains 0 if and only if the p-value is above 0.05.
    interval: Interval
    # P-value of the permutation test (for CRG and corpus BLEU, of the bootstrap), and the same adjusted over all
    # differences of the table (Benjamini and Hochberg).
    p_value: float
    p_adjusted: float
    overlap: bool  # Whether the two systems' intervals overlap. Yu et al. call two systems different if they do not.
    effective: float  # effective number of studies behind the test, see `statistics.effective_studies`


@dataclass(frozen=True)
class Resampling:
    """How the studies of a table are resampled."""

    method: option_types.Method  # of the intervals
    resamples: int
    seed: int


def crg_means(
    row: Mapping[str, Array],
    prevalences: Mapping[str, Mapping[str, int] | None],
    counts: Mapping[str, Array | None],
    how: Resampling,
) -> Resampled:
    """Return the CRG of S systems, float64[S], resampled together.

    `row` has the contributions of n reports, float64[n] by system, and `counts` CRG's counts of these reports,
    float64[3, n] by system, or None; `prevalences` are those of the signatures. Without counts or prevalence, a system
    has that of the test set in each resample.
    """
    columns: list[np.ndarray] = []
    parts: list[tuple[slice, float | None]] = []  # of each system: its columns, and the number of labels per report
    for name, contributions in row.items():
        prevalence, label_counts, start = prevalences[name], counts[name], len(columns)
        if label_counts is None or not prevalence:
            columns.append(contributions)
            parts.append((slice(start, start + 1), None))
        else:
            matched, missed, invented = label_counts
            columns += [matched + missed, missed, invented]
            parts.append((slice(start, start + 3), prevalence["labels"] / prevalence["reports"]))

    def scored(means: Array) -> Array:
        """Return each system's score from mean counts or mean scores."""
        return np.stack(
            [
                1 / (2 - means[..., where.start]) if labels is None else crg_of_means(means[..., where], labels)
                for where, labels in parts
            ],
            axis=-1,
        )

    return resample_means(np.array(columns), how.resamples, how.seed).map(scored)


def corpus_means(counts: Sequence[Array], how: Resampling) -> Resampled:
    """Return the corpus BLEU of S systems, float64[S], resampled together.

    `counts` has those of each system's n reports, float64[2 order + 2, n], see `corpus_bleu.names_of`.
    """
    size, n = counts[0].shape

    def scored(means: Array) -> Array:
        """Return corpus BLEU of each system from mean counts."""
        return corpus_bleu(n * means.reshape(*means.shape[:-1], len(counts), size))

    return resample_means(np.concatenate(counts), how.resamples, how.seed).map(scored)


def crg_of_means(means: Array, labels: float) -> Array:
    """Return CRG from the mean positive labels, false negatives and false positives of a report, float64[..., 3].

    A report has `labels` labels. `kernels.crg.score` has the equation and the rule for a class without labels.
    """
    positives, missed, invented = means[..., 0], means[..., 1], means[..., 2]
    negatives = labels - positives
    lost = missed / np.where(positives > 0, positives, 1) + invented / np.where(negatives > 0, negatives, 1)
    return 1 / (1 + 2 * lost)


@dataclass(frozen=True)
class MetricCells:
    """One metric of all systems, resampled together."""

    column: MetricColumn
    row: Mapping[str, Array]  # system -> its scores float64[n]
    means: Resampled  # means of the systems in the order of `row`; of CRG and corpus BLEU, those of the test set
    how: Resampling
    # System whose scores are means -> (minimum, maximum) of the single scores, or None if not known.
    ranges: Mapping[str, tuple[float | None, float | None] | None]
    unscorable: Mapping[str, int]  # system -> number of studies that it cannot score

    @property
    def is_whole(self) -> bool:
        """Whether the column has one value for the whole test set, not a mean over reports."""
        return self.column.metric == CRG or self._is_corpus

    @property
    def _is_corpus(self) -> bool:
        """Whether the column is corpus BLEU."""
        return self.column.metric.endswith(CORPUS)

    def _position(self, name: str) -> int:
        """Return the position of a system among the rows."""
        return list(self.row).index(name)

    def _interval(self, name: str) -> Interval:
        """Return the interval of a system's mean."""
        values, position = self.row[name], self._position(name)
        of_all = float(self.means.value[position])
        if not self._is_corpus and not varies(values):
            return Interval(of_all, of_all, degenerate=True)
        if self.how.method == LEGACY:
            ends = interval(values, LEGACY, LEVEL, seed=self.how.seed)
            return ends if self.column.metric != CRG else Interval(1 / (2 - ends.low), 1 / (2 - ends.high))
        of_system = self.means.map(lambda means: means[..., position])
        return of_system.interval(self.how.method) or Interval(of_all, of_all, degenerate=True)

    def difference(self, a: str, b: str) -> PairedDifference:
        """Return the difference of two systems, its interval and its p-value, both from the same test.

        Means use the permutation test. Values of a whole test set use the bootstrap over studies, because a single
        study has no difference that a permutation could change the sign of.
        """
        if not self.is_whole:
            return paired_test(self.row[a], self.row[b], self.how.resamples, self.how.seed)
        return bootstrap_test(
            *(self.means.map(partial(np.take, indices=self._position(name), axis=-1)) for name in (a, b))
        )

    def cells(self, random: str | None, oracles: Mapping[str, str], competing: Collection[str]) -> dict[str, Cell]:
        """Return each system's cell; `random` is the random row, `oracles` has that of each metric's oracle.

        The best of the rows `competing` is marked.
        """
        metric, sign = self.column.metric, self.column.sign
        mean = {name: float(value) for name, value in zip(self.row, self.means.value, strict=True)}
        if not self.is_whole:  # the same bits that a reader of the file computes
            mean = {name: float(values.mean()) for name, values in self.row.items()}
        best = max((sign * mean[name] for name in competing), default=None)
        cells = {}
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
            cells[name] = Cell(
                mean[name],
                self._interval(name),
                *ends,
                int(np.count_nonzero(values)),
                effective_studies(values),
                self.unscorable[name],
                name in competing and bool(difference(sign * mean[name], best) == 0),
                change[0],
                share[0],
                change[1],
                share[1],
            )
        return cells

    def _ratio(self, name: str, random: str, oracle: str | None, scale: float) -> tuple[float | None, Interval | None]:
        """Return `scale` times (mean - random) / random or (mean - random) / (oracle - random), and its interval.

        Both are None where the number is not defined; the interval also for the random row and the oracle, whose
        numbers are fixed, if some resample does not define it, and for legacy intervals.
        """
        position, start = self._position(name), self._position(random)

        def of(means: Array) -> Array:
            """Return the ratio from the means of all systems."""
            base = means[..., start]
            way = difference(means[..., position], base)
            whole = base if oracle is None else difference(means[..., self._position(oracle)], base)
            exists = whole > 0 if oracle is None else self.column.sign * whole > 0
            return np.divide(scale * way, whole, out=np.full_like(way, np.nan), where=exists)

        ratios = self.means.map(of)
        if not np.isfinite(ratios.value):
            return None, None
        is_fixed = name in (random, oracle) or self.how.method == LEGACY
        return float(ratios.value), None if is_fixed else ratios.interval(self.how.method)
