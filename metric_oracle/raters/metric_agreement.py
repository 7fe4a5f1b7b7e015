"""Agreement of metrics with radiologists: on one rated set by rater, and on several rated sets side by side.

`align` prints tables S2 and figure 3 of Yu et al. (Patterns 2023). `compare_metrics` prints what a paper on a metric
prints: for each set, and for the same set without pairs of equal texts (ReXVal* of Cho et al. 2025), the agreement with
the mean of the raters, the change between the two, differences of metrics, the raters' own agreement as a ceiling, the
time for each pair, and variants of a metric.

Agreement is positive where a better score goes with fewer errors: for a metric whose higher scores are better it is the
correlation with the error counts times -1. Scores are kept as they were read. Differences of metrics are computed on
the same resampled studies, and so find what a comparison of two intervals cannot find.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metric_oracle.corpora.shown import OneLine
from metric_oracle.corpora.tables import is_missing, read_table, shown_names
from metric_oracle.errors import InputError, called, option
from metric_oracle.files import identify
from metric_oracle.raters.interrater import (
    RADIOLOGISTS,
    RESAMPLES,
    accuracy_on_judgements,
    draw_raters,
    each_left_out,
    mean_over_raters,
    other_raters,
    raters_among_themselves,
)
from metric_oracle.raters.rank_correlation import (
    JUDGEMENTS,
    SPEARMAN,
    STATISTICS,
    TAU,
    Resamples,
    Side,
    add_adjusted,
    difference_record,
    draw,
    interval_record,
    lowest,
    side,
    sum_of_raters,
)
from metric_oracle.raters.rated_scores import drop_identical, lower_is_better, read_rated, score_texts
from metric_oracle.raters.ratings import Rated
from metric_oracle.retrieval.machine import machine
from metric_oracle.statistics import LEVEL, Array, checked_resamples, difference, few_studies, varies

MEAN = "mean of raters"
AMONG = "raters among themselves"
AGREEMENT, CHANGE, DIFFERENCE, CEILING = "agreement", "change", "difference", "ceiling"
ABLATION, TIME = "ablation", "time"
IDENTICAL = "*"  # after the name of a set: without pairs of equal texts
_COMPARE, _ALIGN = "compare_metrics", "align"
_INTERVAL = ("value", "low", "high", "bca_low", "bca_high")
# One flat record for each number. `align` writes it without what, set and device, `compare_metrics` without rater.
_SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in ("what", "set", "metric", "versus", "errors", "rater", "statistic")),
        *((name, pa.float64()) for name in (*_INTERVAL, "p_value", "p_adjusted")),
        ("degenerate", pa.int64()),
        ("device", pa.large_string()),
    ]
)
_Record = dict[str, Any]
_Values = dict[tuple[str, str, str], Array]  # (statistic, kind, metric) -> agreement with the mean on all resamples


@dataclass(frozen=True, repr=False)
class Alignment(OneLine):
    """Agreement of every metric with each radiologist and with their mean.

    Attributes
    ----------
    numbers : pyarrow.Table
        All numbers, as they are written to a file: the rows of `table`, of `raters` (without a metric), and of
        `differences` (``versus`` is the second metric, ``value`` the difference).
    signature : dict
        What is needed to compute the same numbers again.
    scores : dict of float64[P]
        Scores of each metric, as they were read.
    errors : dict of float64[P]
        Mean of the raters for each kind of errors.
    """

    numbers: pa.Table
    signature: dict[str, Any]
    scores: dict[str, Array]
    errors: dict[str, Array]

    @property
    def table(self) -> pa.Table:
        """One row for each metric, kind of errors, rater and statistic: the value and its percentile and BCa intervals.

        ``degenerate`` is the number of resamples without a value. A value or an end that does not exist is null.
        """
        rows = self.numbers.filter(pc.field("metric").is_valid() & pc.field("versus").is_null())
        return rows.select(["metric", "errors", "rater", "statistic", *_INTERVAL, "degenerate"])

    @property
    def raters(self) -> pa.Table:
        """One row for each kind of errors and statistic of the raters' agreement with one another.

        It is empty for one rater.
        """
        rows = self.numbers.filter(pc.field("metric").is_null())
        return rows.select(["errors", "statistic", "value", "low", "high", "degenerate"])

    @property
    def differences(self) -> pa.Table:
        """One row for each statistic, kind of errors and pair of metrics, with the mean of raters.

        ``difference`` is a - b (positive: a agrees more), with its percentile interval, its two-sided p-value from the
        same resamples, and the p-value adjusted over the pairs and kinds of that statistic (Benjamini and Hochberg).
        """
        name_of = {"metric": "a", "versus": "b", "value": "difference"}
        names = [
            "statistic",
            "errors",
            "metric",
            "versus",
            "value",
            "low",
            "high",
            "p_value",
            "p_adjusted",
            "degenerate",
        ]
        rows = self.numbers.filter(pc.field("versus").is_valid()).select(names)
        return rows.rename_columns([name_of.get(name, name) for name in names])

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of `numbers`."""
        return self.numbers.to_pylist()

    def summary(self) -> str:
        """Return one line that says what was compared."""
        counts = f"{self.signature['pairs']:,} pairs of {self.signature['studies']:,} studies"
        return f"{counts}, {self.signature['raters']} raters: {', '.join(self.scores)}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        return few_studies({"": self.signature["studies"]})


@dataclass(frozen=True)
class RatedFiles:
    """The files of one rated set.

    Parameters
    ----------
    ratings : path or Rated
        See [`read_rated_set`][metric_oracle.read_rated_set].
    scores : sequence of paths, optional
        Tables of scores of the pairs, see [`align`][metric_oracle.align].
    samples : path, optional
        Texts of the pairs, where `ratings` is a path to a file without them.

    Examples
    --------
    >>> mo.RatedFiles("ratings.csv", samples="samples.csv")
    RatedFiles(ratings='ratings.csv', scores=(), samples='samples.csv')
    """

    ratings: str | Path | Rated
    scores: Sequence[str | Path] = ()
    samples: str | Path | None = None


@dataclass(frozen=True)
class View:
    """A rated set as it is compared: all its pairs, or only those whose two texts differ."""

    name: str  # name of the view and of the set that it is made from, such as "ReXVal*" and "ReXVal"
    base: str
    kinds: tuple[str, ...]  # kinds of numbers that the raters gave to a pair, such as "total" and "significant" errors
    # Rank statistics that the ratings allow. The first is used in tests, ceilings and figures.
    statistics: tuple[str, ...]
    scores: dict[str, Array]  # scores of each metric, as they were read
    errors: dict[str, Array]  # mean of the raters for each kind
    studies: int  # numbers of studies and raters
    raters: int


@dataclass(frozen=True, repr=False)
class MetricComparison(OneLine):
    """Agreement of metrics with radiologists on several rated sets.

    Attributes
    ----------
    views : list of View
    numbers : pyarrow.Table
        One row for each number. ``what`` is "agreement"; "change" (of a metric's agreement when pairs of equal texts
        are left out, usually a fall); "difference" (of two metrics, ``versus`` is the second); "ceiling" (agreement
        with the mean of all raters but one, averaged over the raters left out; ``radiologists`` are the raters left
        out); "ablation" (of a variant, ``versus`` is the metric); or "time" (milliseconds for each pair).
    signature : dict
        What is needed to compute the same numbers again.
    """

    views: list[View]
    numbers: pa.Table
    signature: dict[str, Any]

    @property
    def metrics(self) -> list[str]:
        """Metrics of all sets, in their order."""
        return list(dict.fromkeys(name for view in self.views for name in view.scores))

    def view(self, name: str) -> View:
        """Return the view with this name."""
        views = {view.name: view for view in self.views}
        if name not in views:
            raise InputError("name", f"must be one of {', '.join(views)}", repr(name), "Choose a rated set.")
        return views[name]

    def select(self, what: str, **keys: str) -> list[dict[str, Any]]:
        """Return the rows of `numbers` of one kind (column ``what``) whose other columns have these values."""
        wanted = {"what": what, **keys}
        return [r for r in self.numbers.to_pylist() if all(r[name] == value for name, value in wanted.items())]

    def summary(self) -> str:
        """Return one line that says what was compared."""
        sets = ", ".join(f"{view.name} ({len(next(iter(view.errors.values()))):,} pairs)" for view in self.views)
        return f"{', '.join(self.metrics)} on {sets}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        return few_studies({view.name: view.studies for view in self.views})


@dataclass(frozen=True)
class _Scored:
    """Rated pairs with their scores and resamples."""

    rated: Rated
    scores: dict[str, Array]
    lower: set[str]  # Metrics whose lower scores are better
    drawn: Resamples
    deviations: Array | None = None  # float64[B, R] or None, see `draw_raters`; None where the raters are fixed

    def subset(self, kept: npt.NDArray[np.bool_]) -> "_Scored":
        """Return the pairs where `kept` is true, with the same resamples."""
        scores = {name: values[kept] for name, values in self.scores.items()}
        return _Scored(self.rated.subset(kept), scores, self.lower, self.drawn.subset(kept), self.deviations)

    def goodness(self) -> dict[str, Side]:
        """Return the scores of each metric, with the sign that makes higher better."""
        signed = ((name, -values if name in self.lower else values) for name, values in self.scores.items())
        return {name: side(values, self.drawn) for name, values in signed}

    def agreement(self, by: str) -> tuple[list[_Record], _Values]:
        """Return how well each metric agrees with the mean of raters; if `by` is "rater", also with each rater.

        The second result has the agreement with the mean on all resamples, followed by what `other_raters` needs.
        """
        records: list[_Record] = []
        of_mean: _Values = {}
        n_left_out, left_out = self.drawn.studies.shape[1] + 1, self.drawn.left_out
        # Negative numbers make agreement positive. Sums over raters have the ranks of the means.
        worse: dict[tuple[str, str], npt.NDArray[Any]] = {}
        panels: dict[str, list[Side]] = {}
        for kind in self.rated.kinds:
            by_rater = self.rated.by_rater(kind)
            worse |= {
                (kind, rater): -own for rater, own in zip(self.rated.raters, by_rater, strict=True) if by == "rater"
            }
            worse[kind, MEAN] = -sum_of_raters(by_rater)
            each = () if self.deviations is None else each_left_out(by_rater)
            panels[kind] = [side(-others, left_out) for _, others in each]
        sides = {key: side(column, self.drawn) for key, column in worse.items()}
        for metric, x in self.goodness().items():
            for (kind, rater), statistic in product(worse, self.rated.statistics):
                function = STATISTICS[statistic]
                whole = function(x, sides[kind, rater], self.drawn)
                without = [function(x.last(n_left_out), panel, left_out) for panel in panels[kind]]
                values = np.concatenate([whole, *without])
                record = self.record(values, statistic)
                if by == "rater" and record["value"] is not None and statistic in (TAU, SPEARMAN):
                    record["value"] = _of_scipy(statistic, -x.ranks[-1], worse[kind, rater])
                records.append({"metric": metric, "errors": kind, "rater": rater, **record})
                if rater == MEAN:
                    of_mean[statistic, kind, metric] = values
        return records, of_mean

    def place(self, record: _Record) -> tuple[int, int]:
        """Return the key by which records are sorted: by statistic, then by kind of errors."""
        return self.rated.statistics.index(record["statistic"]), self.rated.kinds.index(record["errors"])

    def resampled(self, values: Array, statistic: str, *, is_difference: bool = False) -> Array:
        """Return a statistic over the resamples of studies; also over those of raters if the caller requested it."""
        if self.deviations is None:
            return values
        low, high = lowest(statistic), 1.0
        low, high = (low - high, high - low) if is_difference else (low, high)
        return np.clip(other_raters(values, self.deviations, self.drawn.studies.shape[1]), low, high)

    def record(self, values: Array, statistic: str, *, is_difference: bool = False) -> dict[str, Any]:
        """Return the value of a statistic with its intervals."""
        resampled = self.resampled(values, statistic, is_difference=is_difference)
        record = interval_record(statistic, resampled, self.drawn)
        if self.deviations is not None:  # the jackknife of BCa leaves out studies only
            record.update(bca_low=None, bca_high=None)
        return record

    def difference(self, values: Array, statistic: str) -> _Record | None:
        """Return the difference of two metrics with its interval and p-value."""
        resampled = self.resampled(values, statistic, is_difference=True)
        record = difference_record(resampled, len(self.drawn.studies) - self.drawn.studies.shape[1] - 1)
        return None if record is None else {"statistic": statistic, **record}


@called(_ALIGN)
def align(
    ratings: str | Path | Rated,
    scores: str | Path | Sequence[str | Path] = (),
    *,
    samples: str | Path | None = None,
    metrics: Sequence[str] | None = None,
    directions: Mapping[str, str] | None = None,
    paired: Sequence[tuple[str, str]] | None = None,
    without_identical: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Alignment:
    """Measure how well metrics agree with each radiologist and with the mean of all.

    Parameters
    ----------
    ratings : path or Rated
        A rated set, see [`read_rated_set`][metric_oracle.read_rated_set].
    scores : path or sequence of paths
        Tables of any tool with one row for each pair and a column of numbers for each metric. The pair is named by a
        pair id, or by study and candidate type. Files that ``oracle score`` wrote are such tables; the components of
        their metrics are left out. Without `scores` the texts of the pairs are scored.
    samples : path, optional
        Texts of the pairs, where `ratings` is a path to a file without them.
    metrics : sequence of str, optional
        Columns to use, by default all columns of numbers. A name that is no column is a metric, under which the texts
        are scored.
    directions : mapping of str to {"higher", "lower"}, optional
        Which values of a column are better, for columns whose names do not say it.
    paired : sequence of (str, str), optional
        Pairs of metrics whose agreement is compared, by default all pairs. They are the family over which p-values are
        adjusted.
    without_identical : bool, default False
        Leave out pairs whose two texts are equal (ReXVal* of Cho et al. 2025).
    resamples : int, default 1000
        Number of bootstrap resamples of the studies, as in the paper.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    Alignment
        Agreement of each metric with each rater, with its intervals, and the tests between metrics.

    Raises
    ------
    InputError
        If a file breaks its format, scores lack pairs, a direction is unknown, every column is constant, or fewer than
        two studies are left.

    See Also
    --------
    compare_metrics : The same statistics with the mean of raters, on several rated sets.

    Examples
    --------
    >>> mo.align("ratings.csv", samples="samples.csv", metrics=["bleu", "rouge-l"], resamples=200)
    <Alignment: 96 pairs of 24 studies, 3 raters: bleu-2, rouge-l>
    """
    resamples = check_resampling(resamples, seed)
    rated, columns, sources = read_rated(ratings, scores, samples, metrics)
    lower = lower_is_better(list(columns), directions or {})
    pairs = pairs_to_compare(list(columns), paired)
    left_out = 0
    if without_identical:
        rated, columns, left_out = drop_identical(rated, columns)
    check_varied(rated, columns)
    part = _Scored(rated, columns, lower, _draw(rated, resamples, seed))
    records, values = part.agreement("rater")
    records += [
        {"errors": kind, "rater": AMONG, **record, "bca_low": None, "bca_high": None}
        for kind in rated.kinds
        if len(rated.raters) > 1
        for record in raters_among_themselves(rated.by_rater(kind), part.drawn, rated.statistics)
    ]
    differences = _differences({"": part}, {"": values}, pairs)
    records += [{**record, "rater": MEAN} for record in sorted(differences, key=part.place)]
    signature: dict[str, Any] = {
        "command": _ALIGN,
        **sources,
        "metrics": list(columns),
        "lower_is_better": [name for name in columns if name in lower],
        "paired": [list(pair) for pair in pairs],
        "left_out": left_out,
        "pairs": len(rated.pairs),
        "studies": len(set(rated.studies)),
        "raters": len(rated.raters),
        "bootstrap": {"unit": "study", "resamples": resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    numbers = pa.Table.from_pylist(records, _SCHEMA).drop_columns(["what", "set", "device"])
    return Alignment(numbers, signature, columns, _view("", "", part).errors)


@called(_COMPARE)
def compare_metrics(
    sets: Mapping[str, RatedFiles],
    *,
    metrics: Sequence[str] | None = None,
    directions: Mapping[str, str] | None = None,
    paired: Sequence[tuple[str, str]] | None = None,
    times: str | Path | None = None,
    ablations: Mapping[str, str | Path] | None = None,
    resample_raters: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> MetricComparison:
    """Compare metrics by their agreement with radiologists on several rated sets.

    Parameters
    ----------
    sets : mapping of str to RatedFiles
        Name -> files. Where both texts of all pairs are known and some are equal, the set without these pairs is added
        under its name with a star, on the same resampled studies.
    metrics : sequence of str, optional
        Columns of the scores of each set, by default all. A name that is no column is a metric, under which the texts
        are scored and which is timed. A set without scores is scored under the usual metrics.
    directions : mapping of str to {"higher", "lower"}, optional
        As in [`align`][metric_oracle.align].
    paired : sequence of (str, str), optional
        As in [`align`][metric_oracle.align]. A pair is compared on the sets that have both metrics, and all
        comparisons under one statistic are one family.
    times : path, optional
        Table of other tools' times with the columns ``metric``, ``ms_per_pair`` and, if known, ``device``.
    ablations : mapping of str to path, optional
        Name of a variant -> table of its scores of the pairs of the first set, in a column with the name of the metric.
        As in Cho et al., variants are compared without pairs of equal texts, where these are known.
    resample_raters : bool, default False
        Resample raters as well as studies, so that intervals and p-values are about other raters, too. The intervals of
        the ceiling keep the raters fixed. A few raters who weigh findings very differently do not show how differently
        others would, and such intervals are still too short.
    resamples : int, default 1000
        Number of bootstrap resamples of the studies.
    seed : int, default 0
        Seed of the resamples.

    Returns
    -------
    MetricComparison
        Agreement of each metric on each set, with intervals, tests, ceilings and times.

    Raises
    ------
    InputError
        If there is no set, a file breaks its format, scores lack pairs, a direction is unknown, a set has fewer than
        two studies, or `resample_raters` is given for a set with one rater.

    See Also
    --------
    align : One rated set, with the agreement of each rater.

    Examples
    --------
    >>> sets = {"example": mo.RatedFiles("ratings.csv", samples="samples.csv")}
    >>> result = mo.compare_metrics(sets, metrics=["bleu", "rouge-l"], resamples=200)
    >>> result
    <MetricComparison: bleu-2, rouge-l on example (96 pairs), example* (77 pairs)>
    >>> [round(r["value"], 3) for r in result.select("agreement", set="example", errors="total", statistic="tau-b")]
    [0.417, 0.433]
    """
    resamples = check_resampling(resamples, seed)
    if not sets:
        raise InputError("sets", "must be at least one rated set", "none", "Give NAME=RATINGS.")
    read: dict[str, tuple[Rated, dict[str, Array]]] = {}
    sources: dict[str, Any] = {}
    measured: dict[str, float] = {}
    for name, files in sets.items():
        rated, columns, sources[name] = read_rated(files.ratings, files.scores, files.samples, metrics)
        check_varied(rated, columns)
        measured = {**_measure(rated, sources[name]), **measured}
        if resample_raters and len(rated.raters) < 2:
            raise InputError(
                "resample_raters",
                "must be left out for sets with fewer than 2 raters",
                f"{len(rated.raters)} in {name}",
                f"Leave out the set or {option('resample_raters', True)}.",
            )
        read[name] = rated, columns
    names = list(dict.fromkeys(metric for _, columns in read.values() for metric in columns))
    lower = lower_is_better(names, directions or {})
    pairs = pairs_to_compare(names, paired)
    views: list[View] = []
    parts: dict[str, _Scored] = {}
    for name, (rated, columns) in read.items():
        deviations = draw_raters(len(rated.raters), resamples, seed) if resample_raters else None
        whole = _Scored(rated, columns, lower, _draw(rated, resamples, seed), deviations)
        for view, part in _parts(name, whole):
            parts[view] = part
            views.append(_view(view, name, part))
    records: list[_Record] = []
    values: dict[str, _Values] = {}
    for view, part in parts.items():
        found, values[view] = part.agreement("mean")
        records += [{"what": AGREEMENT, "set": view, **record} for record in sorted(found, key=part.place)]
    first = next(iter(read))
    variants = _read_variants(ablations or {}, parts[first], names)
    records += [
        *_changes(parts, values, views),
        *({"what": DIFFERENCE, **record} for record in _differences(parts, values, pairs)),
        *(record for view in views if view.raters > 1 for record in _ceilings(view.name, parts[view.name])),
        *_ablations([v for v in views if v.base == first][-1], parts, values, variants),
        *_times(names, times, measured),
    ]
    signature = {
        "command": "compare-metrics",
        "sets": sources,
        "metrics": names,
        "lower_is_better": [name for name in names if name in lower],
        "paired": [list(pair) for pair in pairs],
        "ablations": {name: identify(Path(path)) for name, path in (ablations or {}).items()},
        "times": None if times is None else identify(Path(times)),
        **({"machine": machine()} if measured else {}),
        "bootstrap": {
            "unit": "study, and raters by the jackknife" if resample_raters else "study",
            "resamples": resamples,
            "seed": seed,
            "level": LEVEL,
        },
        "version": version("metric-oracle"),
    }
    return MetricComparison(views, pa.Table.from_pylist(records, _SCHEMA).drop_columns(["rater"]), signature)


def check_resampling(resamples: int, seed: int) -> int:
    """Return the number of resamples; raise InputError unless it and the seed are valid."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError("seed", "must be an int from 0", repr(seed), "Take 0.")
    return checked_resamples(resamples, RESAMPLES)


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
            f"Choose other columns with {option('metric')}.",
        )


def pairs_to_compare(names: list[str], paired: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return the pairs of metrics to compare: all pairs, or `paired` after a check."""
    if paired is None:
        return list(combinations(names, 2))
    for a, b in paired:
        if a == b or a not in names or b not in names:
            raise InputError(
                "paired", f"must name two metrics of {', '.join(names)}", f"{a!r} and {b!r}", "Correct the names."
            )
    pairs = [frozenset(pair) for pair in paired]
    for (a, b), pair in zip(paired, pairs, strict=True):
        if pairs.count(pair) > 1:
            raise InputError(
                "paired",
                "must name each pair once",
                f"{a!r} and {b!r} twice",
                "Remove one: a repeated test changes the adjusted p-values.",
            )
    return [(a, b) for a, b in paired]


def _of_scipy(statistic: str, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> float:
    """Return Kendall's tau-b or Spearman's correlation of two columns of numbers, to the last bit as SciPy has it."""
    from scipy.stats import kendalltau, spearmanr

    return float((kendalltau if statistic == TAU else spearmanr)(x, y).statistic)


def _draw(rated: Rated, resamples: int, seed: int) -> Resamples:
    """Draw the resamples of a rated set's studies."""
    return draw(rated.studies, resamples, seed, rated.groups, is_pooled=TAU in rated.statistics)


def _parts(name: str, whole: _Scored) -> Iterator[tuple[str, _Scored]]:
    """Yield the name and the pairs of each view of a set."""
    yield name, whole
    texts = [*(whole.rated.references or [None]), *(whole.rated.predictions or [None])]
    if None not in texts:
        differ = whole.rated.differing()
        if not differ.all():
            yield f"{name}{IDENTICAL}", whole.subset(differ)


def _view(name: str, base: str, part: _Scored) -> View:
    """Return the description of a view."""
    rated = part.rated
    errors = {kind: rated.by_rater(kind).mean(axis=0) for kind in rated.kinds}
    sizes = len(set(rated.studies)), len(rated.raters)
    return View(name, base, rated.kinds, rated.statistics, part.scores, errors, *sizes)


def _changes(parts: Mapping[str, _Scored], values: Mapping[str, _Values], views: Sequence[View]) -> Iterator[_Record]:
    """Yield the agreement without pairs of equal texts minus the agreement on all pairs."""
    for view in (view for view in views if view.name != view.base):
        for statistic, kind, metric in product(view.statistics, view.kinds, view.scores):
            change = difference(*(values[name][statistic, kind, metric] for name in (view.name, view.base)))
            keys = {"what": CHANGE, "set": view.base, "metric": metric, "versus": view.name, "errors": kind}
            yield {**keys, **parts[view.base].record(change, statistic, is_difference=True)}


def _differences(
    parts: Mapping[str, _Scored], values: Mapping[str, _Values], pairs: Sequence[tuple[str, str]]
) -> Iterator[_Record]:
    """Yield the differences of two metrics. All differences of a statistic are one family."""
    for statistic in STATISTICS:
        family = []
        for (view, part), (a, b) in product(parts.items(), pairs):
            applies = statistic in part.rated.statistics and {a, b} <= part.scores.keys()
            for kind in part.rated.kinds if applies else ():
                between = difference(values[view][statistic, kind, a], values[view][statistic, kind, b])
                record = part.difference(between, statistic)
                if record is not None:
                    family.append({"set": view, "metric": a, "versus": b, "errors": kind, **record})
        add_adjusted(family)
        yield from family


def _ceilings(view: str, part: _Scored) -> Iterator[_Record]:
    """Yield the agreement with the mean of all raters but one, averaged over the raters left out.

    There are records for each metric, for the raters left out, and for the difference of the two. If ratings cannot be
    compared between studies, the accuracy on single judgements is added.
    """
    statistic = part.rated.statistics[0]
    function, goodness = STATISTICS[statistic], part.goodness()
    for kind in part.rated.kinds:
        by_rater = part.rated.by_rater(kind)
        values: dict[str, list[Array]] = {name: [] for name in (RADIOLOGISTS, *goodness)}
        for own, others in each_left_out(by_rater):
            panel = side(-others, part.drawn)
            values[RADIOLOGISTS].append(function(side(-own, part.drawn), panel, part.drawn))
            for name, x in goodness.items():
                values[name].append(function(x, panel, part.drawn))
        means = {name: mean_over_raters(of_raters) for name, of_raters in values.items()}
        for name, mean in means.items():
            keys = {"what": CEILING, "set": view, "metric": name, "errors": kind}
            yield {**keys, **interval_record(statistic, mean, part.drawn)}
            if name != RADIOLOGISTS:
                below = interval_record(statistic, difference(mean, means[RADIOLOGISTS]), part.drawn)
                yield {**keys, "versus": RADIOLOGISTS, **below}
        if not part.drawn.is_pooled:
            sides = [side(-own, part.drawn) for own in by_rater]
            for name, accuracy in accuracy_on_judgements(goodness, sides, part.drawn).items():
                keys = {"what": CEILING, "set": view, "metric": name, "errors": kind}
                yield {**keys, **interval_record(JUDGEMENTS, accuracy, part.drawn)}


def _read_variants(
    ablations: Mapping[str, str | Path], part: _Scored, names: Sequence[str]
) -> dict[str, tuple[str, Array]]:
    """Return the metric and the scores of each variant."""
    variants = {}
    for variant, path in ablations.items():
        table = read_table(Path(path))
        columns = [name for name in part.scores if name in table.names]
        if len(columns) != 1:
            raise InputError(
                "ablations",
                f"must have one of the metrics as a column ({shown_names(names)})",
                f"{shown_names(columns) or 'none'} in {path}",
                "Give the column of the variant the name of the metric.",
            )
        _, scores, _ = read_rated(part.rated, path, None, columns)
        variants[variant] = (columns[0], scores[columns[0]])
    return variants


def _ablations(
    view: View, parts: Mapping[str, _Scored], values: Mapping[str, _Values], variants: Mapping[str, tuple[str, Array]]
) -> Iterator[_Record]:
    """Yield the agreement of each variant and its difference from the metric. The differences are one family."""
    whole, statistic = parts[view.base], view.statistics[0]
    family = []
    for variant, (metric, scores) in variants.items():
        alone = _Scored(whole.rated, {metric: scores}, whole.lower, whole.drawn, whole.deviations)
        part = dict(_parts(view.base, alone))[view.name]
        records, of_variant = part.agreement("mean")
        of_kind = {r["errors"]: r for r in records if r["statistic"] == statistic}
        for kind in view.kinds:
            key = statistic, kind, metric
            names = {"what": ABLATION, "set": view.name, "metric": variant, "errors": kind}
            yield {**of_kind[kind], **names}
            record = part.difference(difference(of_variant[key], values[view.name][key]), statistic)
            if record is not None:
                family.append({**names, "versus": metric, **record})
    add_adjusted(family)
    yield from family


def _measure(rated: Rated, source: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds per pair of each metric whose scores were computed in this call, timed one by one."""
    measured = {}
    for metric in source.get("scored", {}):
        begin = time.perf_counter()
        score_texts(rated, [metric])  # the first scoring has compiled and loaded everything
        measured[metric] = 1000 * (time.perf_counter() - begin) / len(rated.pairs)
    return measured


def _times(names: Sequence[str], path: str | Path | None, measured: Mapping[str, float]) -> Iterator[_Record]:
    """Yield the time per pair of each metric, as measured in this call or as a table states it for other tools."""
    given: dict[str, tuple[float, str | None]] = {}
    if path is not None:
        table = read_table(Path(path))
        cells = [table.column(name) for name in ("metric", "ms_per_pair")]
        devices = table.column("device") if "device" in table.names else [None] * table.n_rows
        for row, (metric, milliseconds, device) in enumerate(zip(*cells, devices, strict=True), start=1):
            try:
                value = float(milliseconds)
            except (TypeError, ValueError):
                value = np.nan
            if not 0 < value < np.inf or str(metric) not in names or str(metric) in given:
                if str(metric) in given:
                    got = f"a second time of {str(metric)!r}"
                else:
                    got = "no time above 0" if str(metric) in names else "another metric"
                raise InputError(
                    "times",
                    f"must have each metric ({shown_names(names)}) at most once, with milliseconds above 0 in "
                    "ms_per_pair",
                    f"{got} in row {row} of {path}",
                    "Correct it.",
                )
            given[str(metric)] = value, None if is_missing(device) else str(device)
    device = f"{machine()['cores']} cores" if measured else None
    for metric in names:
        if metric in given or metric in measured:
            value, on_device = given.get(metric) or (measured[metric], device)
            yield {"what": TIME, "metric": metric, "value": value, "device": on_device}
