"""Agreement of metrics with radiologists on one rated set: with the mean of the raters, and with each.

Agreement is positive where a better score goes with fewer errors: for a metric whose higher scores are better it is the
correlation with the error counts times -1. Scores are kept as they were read. Differences of metrics are computed on
the same resampled studies, and so find what a comparison of two intervals cannot find.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.findings.cells import Row
from metric_oracle.raters.interrater import each_left_out, other_raters
from metric_oracle.raters.rank_correlation import (
    SPEARMAN,
    STATISTICS,
    TAU,
    DrawnStudies,
    Side,
    add_adjusted,
    difference_row,
    draw,
    interval_row,
    lowest,
    side,
    sum_of_raters,
)
from metric_oracle.raters.ratings import Rated
from metric_oracle.statistics import Array, difference, varies

MEAN = "mean of raters"
AMONG = "raters among themselves"
INTERVAL = ("value", "low", "high", "bca_low", "bca_high")
# One row for each number. `align` writes it without what, set and device, `compare_metrics` without rater.
SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("what", "set", "metric", "versus", "errors", "rater", "statistic")),
        *((name, pa.float64()) for name in (*INTERVAL, "p_value", "p_adjusted")),
        ("degenerate", pa.int64()),
        ("device", pa.large_string()),
    ]
)
Values = dict[tuple[str, str, str], Array]  # (statistic, kind, metric) -> agreement with the mean on all resamples


@dataclass(frozen=True)
class View:
    """A rated set as it is compared: all its pairs, or only those whose two texts differ."""

    name: str  # of the view, such as "ReXVal*"
    base: str  # of the set that it is made from, such as "ReXVal"
    kinds: tuple[str, ...]  # kinds of numbers that the raters gave to a pair, such as "total" and "significant" errors
    statistics: tuple[str, ...]  # rank statistics that the ratings allow; the first is that of tests, ceilings, figures
    scores: dict[str, Array]  # scores of each metric, as they were read
    errors: dict[str, Array]  # mean of the raters for each kind
    studies: int  # number of studies
    raters: int  # number of raters


@dataclass(frozen=True)
class ScoredRatings:
    """Rated pairs with their scores and resamples."""

    rated: Rated
    scores: dict[str, Array]
    lower: set[str]  # metrics whose lower scores are better
    drawn: DrawnStudies
    deviations: Array | None = None  # float64[B, R] of `draw_raters`; None where the raters are fixed

    def subset(self, pairs: npt.NDArray[np.bool_]) -> "ScoredRatings":
        """Return the pairs where `pairs` is true, with the same resamples."""
        scores = {name: values[pairs] for name, values in self.scores.items()}
        return ScoredRatings(self.rated.subset(pairs), scores, self.lower, self.drawn.subset(pairs), self.deviations)

    def goodness(self) -> dict[str, Side]:
        """Return the scores of each metric, with the sign that makes higher better, prepared for all resamples."""
        signed = ((name, -values if name in self.lower else values) for name, values in self.scores.items())
        return {name: side(values, self.drawn) for name, values in signed}

    def agreement(self, by: str) -> tuple[list[Row], Values]:
        """Return how well each metric agrees with the mean of raters; if `by` is "rater", also with each rater.

        The first result has a row for each of them. The second has the agreement with the mean on all resamples,
        followed by what `other_raters` needs.
        """
        from scipy.stats import kendalltau, spearmanr

        rows: list[Row] = []
        of_mean: Values = {}
        n_left_out, left_out = self.drawn.studies.shape[1] + 1, self.drawn.left_out
        # Negative numbers make agreement positive. Sums over raters have the ranks of the means.
        negated: dict[tuple[str, str], npt.NDArray[Any]] = {}
        panels: dict[str, list[Side]] = {}
        for kind in self.rated.kinds:
            by_rater = self.rated.by_rater(kind)
            negated |= {
                (kind, rater): -own for rater, own in zip(self.rated.raters, by_rater, strict=True) if by == "rater"
            }
            negated[kind, MEAN] = -sum_of_raters(by_rater)
            each = () if self.deviations is None else each_left_out(by_rater)
            panels[kind] = [side(-others, left_out) for _, others in each]
        sides = {key: side(column, self.drawn) for key, column in negated.items()}
        for metric, x in self.goodness().items():
            for (kind, rater), statistic in product(negated, self.rated.statistics):
                function = STATISTICS[statistic]
                whole = function(x, sides[kind, rater], self.drawn)
                without = [function(x.last(n_left_out), panel, left_out) for panel in panels[kind]]
                values = np.concatenate([whole, *without])
                row = self.interval_row(values, statistic)
                if by == "rater" and row["value"] is not None and statistic in (TAU, SPEARMAN):
                    # To the last bit as SciPy has it.
                    correlation = kendalltau if statistic == TAU else spearmanr
                    row["value"] = float(correlation(-x.ranks[-1], negated[kind, rater]).statistic)
                rows.append({"metric": metric, "errors": kind, "rater": rater, **row})
                if rater == MEAN:
                    of_mean[statistic, kind, metric] = values
        return rows, of_mean

    def place(self, row: Row) -> tuple[int, int]:
        """Return the key by which rows are sorted: by statistic, then by kind of errors."""
        return self.rated.statistics.index(row["statistic"]), self.rated.kinds.index(row["errors"])

    def resampled(self, values: Array, statistic: str, *, is_difference: bool = False) -> Array:
        """Return a statistic on all resamples; of studies and raters if there are `deviations`, else of studies.

        `values` are those of `agreement`, or differences of two of them.
        """
        if self.deviations is None:
            return values
        low, high = lowest(statistic), 1.0
        low, high = (low - high, high - low) if is_difference else (low, high)
        return np.clip(other_raters(values, self.deviations, self.drawn.studies.shape[1]), low, high)

    def interval_row(self, values: Array, statistic: str, *, is_difference: bool = False) -> dict[str, Any]:
        """Return the value of a statistic with its intervals; `values` as in `resampled`."""
        resampled = self.resampled(values, statistic, is_difference=is_difference)
        row = interval_row(statistic, resampled, self.drawn)
        if self.deviations is not None:  # the jackknife of BCa leaves out studies only
            row.update(bca_low=None, bca_high=None)
        return row

    def difference(self, values: Array, statistic: str) -> Row | None:
        """Return a difference of two metrics with its interval and p-value, None where it has no value."""
        resampled = self.resampled(values, statistic, is_difference=True)
        row = difference_row(resampled, len(self.drawn.studies) - self.drawn.studies.shape[1] - 1)
        return None if row is None else {"statistic": statistic, **row}


def differences_of(
    parts: Mapping[str, ScoredRatings], values: Mapping[str, Values], pairs: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    """Yield a row for each difference of two metrics, one of `pairs`, in a part that has both.

    `values` has the agreement with the mean of raters of each part. All differences of a statistic are one family.
    """
    for statistic in STATISTICS:
        family = []
        for (view, part), (a, b) in product(parts.items(), pairs):
            applies = statistic in part.rated.statistics and {a, b} <= part.scores.keys()
            for kind in part.rated.kinds if applies else ():
                between = difference(values[view][statistic, kind, a], values[view][statistic, kind, b])
                row = part.difference(between, statistic)
                if row is not None:
                    family.append({"set": view, "metric": a, "versus": b, "errors": kind, **row})
        add_adjusted(family)
        yield from family


def check_varied(rated: Rated, columns: Mapping[str, Array]) -> None:
    """Raise InputError unless there are at least 2 studies to resample, and at least one metric's scores differ."""
    n = len(set(rated.studies))
    if n < 2:
        raise InputError(
            "ratings", "must hold at least 2 studies, which the bootstrap resamples", str(n), "Rate more studies."
        )
    if not any(map(varies, columns.values())):
        raise InputError(
            "scores",
            "must differ between pairs",
            f"one value for all {len(rated.pairs)} in every column",
            "Choose other columns with `metrics`.",
        )


PairedMetrics: TypeAlias = Annotated[
    Sequence[tuple[str, str]],
    Doc(
        "Pairs of metrics whose agreement with radiologists is compared; they are the family of tests over which "
        "p-values are adjusted. By default all pairs are compared."
    ),
    Flag(metavar="A,B"),
]


def pairs_to_compare(names: list[str], paired: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return the pairs of metrics to compare: all pairs, or `paired` after a check."""
    if paired is None:
        return list(combinations(names, 2))
    for a, b in paired:
        if a == b or a not in names or b not in names:
            raise InputError(
                "paired",
                f"must name two metrics of {shown(*names)}",
                f"{shown(a)} and {shown(b)}",
                "Correct the names.",
            )
    pairs = [frozenset(pair) for pair in paired]
    for (a, b), pair in zip(paired, pairs, strict=True):
        if pairs.count(pair) > 1:
            raise InputError(
                "paired",
                "must name each pair once",
                f"{shown(a)} and {shown(b)} twice",
                "Remove one: a repeated test changes the adjusted p-values.",
            )
    return [(a, b) for a, b in paired]


def draw_resamples(rated: Rated, resamples: int, seed: int) -> DrawnStudies:
    """Draw the resamples of a rated set's studies."""
    return draw(rated.studies, resamples, seed, rated.groups, is_pooled=TAU in rated.statistics)


def view_of(name: str, base: str, part: ScoredRatings) -> View:
    """Return the description of a view."""
    rated = part.rated
    errors = {kind: rated.by_rater(kind).mean(axis=0) for kind in rated.kinds}
    sizes = len(set(rated.studies)), len(rated.raters)
    return View(name, base, rated.kinds, rated.statistics, part.scores, errors, *sizes)


def notes_on(signature: Mapping[str, Any], degenerate: int, rated: str) -> list[str]:
    """Return the notes on metrics of which lower is better, and on degenerate resamples, if there are any.

    `rated` is what the raters gave: "counts" or "ratings".
    """
    notes = []
    if signature["lower_is_better"]:
        notes.append(f"Lower is better: {', '.join(signature['lower_is_better'])}.")
    if degenerate:
        notes.append(
            f"Degenerate resamples, in which all scores or all {rated} are equal: {degenerate:,} over all cells, left "
            "out of their intervals; a result file, such as CSV, has them by cell."
        )
    return notes
