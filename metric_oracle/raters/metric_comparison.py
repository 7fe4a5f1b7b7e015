"""Metrics against radiologists on one or several rated sets: what a paper on a metric prints.

For each set, and for the same set without pairs of equal texts (ReXVal* of Cho et al. 2025): rank agreement with the
mean of raters over all pairs and within studies, the change from the one to the other, differences of metrics on the
same resampled studies, the raters' own agreement as a ceiling, time for each pair, variants of a metric beside it.

`alignment` has the same statistics by rater, for one set.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.shown import OneLine
from metric_oracle.corpora.tables import existing_file, is_missing, read_table, shown_names
from metric_oracle.errors import InputError, called
from metric_oracle.files import identify
from metric_oracle.raters.alignment import (
    RESAMPLES,
    adjust,
    agreement,
    check_draws,
    check_varied,
    difference,
    pairs_asked,
)
from metric_oracle.raters.rank_agreement import ACCURACY, STATISTICS, TAU, Resamples, Side, draw, side, sum_of
from metric_oracle.raters.rated_scores import lower_is_better, read_rated, score_texts
from metric_oracle.raters.rater_agreement import draw_raters, other_raters
from metric_oracle.raters.ratings import Rated
from metric_oracle.retrieval.machine import machine
from metric_oracle.statistics import FEW, LEVEL, Array

AGREEMENT, CHANGE, DIFFERENCE, CEILING = "agreement", "change", "difference", "ceiling"
ABLATION, TIME = "ablation", "time"
RADIOLOGISTS = "radiologists"  # in the place of a metric: one rater against the mean of the others
IDENTICAL = "*"  # behind the name of a set: without pairs of equal texts
_FUNCTION = "compare_metrics"
_TEXTS = ("what", "set", "metric", "versus", "errors", "statistic")
_FLOATS = ("value", "low", "high", "bca_low", "bca_high", "p_value", "p_adjusted")
_SCHEMA = pa.schema(
    [
        *((name, pa.large_string()) for name in _TEXTS),
        *((name, pa.float64()) for name in _FLOATS),
        ("degenerate", pa.int64()),
        ("device", pa.large_string()),
    ]
)


@dataclass(frozen=True)
class RatedFiles:
    """The files of a rated set.

    Parameters
    ----------
    ratings : path or Rated
        See [`read_rated_set`][metric_oracle.read_rated_set].
    scores : sequence of paths, optional
        Scores of the pairs, as in [`align`][metric_oracle.align].
    samples : path, optional
        Texts of the pairs, as in [`align`][metric_oracle.align].

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
    """A rated set as it is compared.

    Attributes
    ----------
    name, base : str
        Of the view, and of the set that it is made of: "ReXVal*" of "ReXVal".
    kinds : tuple of str
        What the raters say of a pair.
    scores : dict of float64[P]
        By metric, as they were read.
    errors : dict of float64[P]
        Mean of raters by kind.
    studies, raters : int
    """

    name: str
    base: str
    kinds: tuple[str, ...]
    scores: dict[str, Array]
    errors: dict[str, Array]
    studies: int
    raters: int


@dataclass(frozen=True, repr=False)
class MetricComparison(OneLine):
    """A comparison of metrics.

    Attributes
    ----------
    views : list of View
    numbers : pyarrow.Table
        One row a number. ``what`` is "agreement", "change" (of a metric's agreement where pairs of equal texts are left
        out, usually a fall), "difference" (of two metrics, `versus` the second), "ceiling" (agreement with the mean of
        all raters but one, averaged over these: of ``radiologists``, the one left out), "ablation" (of a variant,
        `versus` the metric) or "time" (milliseconds a pair).
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
        """Return the view of that name."""
        return next(view for view in self.views if view.name == name)

    def select(self, what: str, **keys: str) -> list[dict[str, Any]]:
        """Return the records of one kind of number that have these texts."""
        wanted = {"what": what, **keys}
        return [r for r in self.numbers.to_pylist() if all(r[name] == value for name, value in wanted.items())]

    def summary(self) -> str:
        """Return one line: what was compared on what."""
        sets = ", ".join(f"{view.name} ({len(next(iter(view.errors.values()))):,} pairs)" for view in self.views)
        return f"{', '.join(self.metrics)} on {sets}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        few = [f"{view.name} {view.studies}" for view in self.views if view.studies < FEW]
        return [f"Fewer than {FEW} studies ({', '.join(few)}): the intervals are too short."] if few else []


@dataclass(frozen=True)
class _Set:
    """A set with its resamples, and by how much the raters deviate in each; None where they are fixed."""

    rated: Rated
    columns: dict[str, Array]
    drawn: Resamples
    raters: Array | None

    def resampled(self, values: Array, statistic: str, is_difference: bool = False) -> Array:
        """Return a statistic over the resamples, as other raters would have it where these are asked for."""
        if self.raters is None:
            return values
        low = 0 if statistic == ACCURACY else -1
        low, high = (low - 1, 1 - low) if is_difference else (low, 1)
        return np.clip(other_raters(values, self.raters, self.drawn.studies.shape[1]), low, high)


@called(_FUNCTION)
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
        Files of each set, by name. Where both texts of the pairs are known and some are equal, the set without these
        follows under its name with a star, on the same resampled studies.
    metrics : sequence of str, optional
        Columns of the scores of each set; a name that is no column is a metric, under which the texts are scored and
        which is timed. By default all columns; where a set has no scores, its texts are scored under the usual metrics.
    directions : mapping of str to {"higher", "lower"}, optional
        As in [`align`][metric_oracle.align].
    paired : sequence of (str, str), optional
        As in [`align`][metric_oracle.align]. Two metrics are compared on the sets that have both, and all comparisons
        under one statistic are one family.
    times : path, optional
        A table of other tools' times: ``metric``, ``ms_per_pair`` and, if known, ``device``.
    ablations : mapping, optional
        Name of a variant -> its scores of the pairs of the first set, in a file with one of the metrics as a column. As
        in Cho et al., variants are compared without pairs of equal texts, where the texts are known.
    resample_raters : bool
        Resample raters as well as studies, so that intervals and p-values are about other raters, too; the intervals of
        the ceiling keep the raters. A few raters who weigh findings very differently do not show how differently others
        would: such intervals are still too short.
    resamples : int
        Number of bootstrap resamples of the studies.
    seed : int
        Seed of the resamples.

    Returns
    -------
    MetricComparison
        Agreement of each metric with each set, intervals, tests and times.

    Raises
    ------
    InputError
        If a file cannot be read, scores lack pairs, a direction is not known, or no metric is common to a comparison.

    Examples
    --------
    >>> sets = {"example": mo.RatedFiles("ratings.csv", samples="samples.csv")}
    >>> mo.compare_metrics(sets, metrics=["bleu", "rouge-l"], resamples=200)
    <MetricComparison: bleu-2, rouge-l on example (96 pairs), example* (77 pairs)>
    """
    check_draws(resamples, seed)
    if not sets:
        msg = "compare_metrics: sets must be at least one rated set; got none. Give NAME=RATINGS."
        raise InputError(msg)
    read: dict[str, _Set] = {}
    sources: dict[str, Any] = {}
    measured: dict[str, float] = {}
    for name, files in sets.items():
        rated, columns, sources[name] = read_rated(files.ratings, files.scores, files.samples, metrics, _FUNCTION)
        check_varied(rated, columns)
        measured |= {m: t for m, t in _measure(rated, sources[name]).items() if m not in measured}
        n_raters = len(rated.raters)
        if resample_raters and n_raters < 2:
            msg = (
                f"{_FUNCTION}: resample_raters must be asked of sets with at least 2 raters; got {n_raters} in {name}. "
                "Leave the set or resample_raters out."
            )
            raise InputError(msg)
        raters = draw_raters(n_raters, resamples, seed) if resample_raters else None
        read[name] = _Set(rated, columns, draw(rated.studies, resamples, seed), raters)
    names = list(dict.fromkeys(metric for one in read.values() for metric in one.columns))
    lower = lower_is_better(names, directions or {}, _FUNCTION)
    asked = pairs_asked(names, paired)
    views, found = [], {}
    for name, one in read.items():
        for view, kept in _views(name, one.rated):
            views.append(_view(view, name, one, kept))
            found[view] = _statistics(one, kept, lower)
    of_first = next(iter(read.values()))
    variants = _read_variants(ablations or {}, of_first, names)
    records = [
        *_agreements(found, read, views),
        *_changes(found, read, views),
        *_differences(found, read, views, asked, resamples),
        *(record for view in views if view.raters > 1 for record in _ceilings(view, read[view.base], lower)),
        *_ablations(found, [v for v in views if v.base == views[0].base][-1], of_first, variants, lower, resamples),
        *_times(names, times, measured),
    ]
    if resample_raters:  # the jackknife of BCa leaves out studies alone
        for record in records:
            record.update(dict.fromkeys(("bca_low", "bca_high") if record["what"] != CEILING else ()))
    signature = {
        "command": "compare-metrics",
        "sets": sources,
        "metrics": names,
        "lower_is_better": [name for name in names if name in lower],
        "paired": [list(pair) for pair in asked],
        "ablations": {name: identify(Path(path)) for name, path in (ablations or {}).items()},
        "times": None if times is None else identify(Path(times)),
        **({"machine": machine()} if measured else {}),
        "bootstrap": {
            "unit": "study, and raters by the jackknife" if resample_raters else "study",
            "resamples": resamples, "seed": seed, "level": LEVEL,
        },
        "version": version("metric-oracle"),
    }  # fmt: skip
    return MetricComparison(views, pa.Table.from_pylist(records, _SCHEMA), signature)


def _views(name: str, rated: Rated) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield the views of a set: name, and which pairs it has."""
    yield name, np.ones(len(rated.pairs), np.bool_)
    texts = [*(rated.references or [None]), *(rated.predictions or [None])]
    if None not in texts:
        differ = rated.differing(_FUNCTION)
        if not differ.all():
            yield f"{name}{IDENTICAL}", differ


def _view(name: str, base: str, one: _Set, kept: npt.NDArray[np.bool_]) -> View:
    rated = one.rated
    return View(
        name,
        base,
        rated.kinds,
        {metric: values[kept] for metric, values in one.columns.items()},
        {kind: rated.by_rater(kind)[:, kept].mean(axis=0) for kind in rated.kinds},
        len({study for study, is_kept in zip(rated.studies, kept, strict=True) if is_kept}),
        len(rated.raters),
    )


def _some(drawn: Resamples, kept: npt.NDArray[np.bool_]) -> Resamples:
    return Resamples(drawn.studies, drawn.member[kept], drawn.pairs[:, kept])


def _at(one: Side, places: npt.NDArray[np.int64]) -> Side:
    """Return a side of some of the resamples."""
    return Side(one.signs, *(part[places] for part in one[1:]))


def _statistics(
    one: _Set, kept: npt.NDArray[np.bool_], lower: set[str], columns: Mapping[str, Array] | None = None
) -> dict[tuple[str, str, str], Array]:
    """Return each statistic, kind and metric over all resamples; then as `other_raters` wants them, if asked."""
    drawn = _some(one.drawn, kept)
    goodness = {
        name: side((-values if name in lower else values)[kept], drawn)
        for name, values in (columns or one.columns).items()
    }
    left_out = np.arange(len(drawn.studies))[-drawn.studies.shape[1] - 1 :]
    fewer = Resamples(drawn.studies[left_out], drawn.member, drawn.pairs[left_out])
    found = {}
    for kind in one.rated.kinds:
        by_rater = one.rated.by_rater(kind)[:, kept]
        panels = [(side(-sum_of(by_rater), drawn), drawn)]
        if one.raters is not None:
            rest = (np.delete(by_rater, place, axis=0) for place in range(len(by_rater)))
            panels += [(side(-sum_of(some), fewer), fewer) for some in rest]
        for (name, values), statistic in product(goodness.items(), STATISTICS):
            sides = [values, *[_at(values, left_out)] * (len(panels) - 1)]
            parts = [STATISTICS[statistic](x, *panel) for x, panel in zip(sides, panels, strict=True)]
            found[statistic, kind, name] = np.concatenate(parts)
    return {key: found[key] for key in product(STATISTICS, one.rated.kinds, goodness)}


def _agreements(
    found: Mapping[str, Mapping[tuple[str, str, str], Array]], read: Mapping[str, _Set], views: Sequence[View]
) -> Iterator[dict[str, Any]]:
    for view in views:
        for (statistic, kind, metric), values in found[view.name].items():
            one = read[view.base]
            record = agreement(statistic, one.resampled(values, statistic), one.drawn)
            yield {"what": AGREEMENT, "set": view.name, "metric": metric, "errors": kind, **record}


def _changes(
    found: Mapping[str, Mapping[tuple[str, str, str], Array]], read: Mapping[str, _Set], views: Sequence[View]
) -> Iterator[dict[str, Any]]:
    """Yield the agreement without pairs of equal texts less that on all pairs."""
    for view in views:
        for key, values in found[view.name].items() if view.name != view.base else ():
            statistic, kind, metric = key
            one = read[view.base]
            change = one.resampled(values - found[view.base][key], statistic, is_difference=True)
            record = agreement(statistic, change, one.drawn)
            names = {"set": view.base, "metric": metric, "versus": view.name, "errors": kind}
            yield {"what": CHANGE, **names, **record}


def _differences(
    found: Mapping[str, Mapping[tuple[str, str, str], Array]],
    read: Mapping[str, _Set],
    views: Sequence[View],
    asked: Sequence[tuple[str, str]],
    resamples: int,
) -> Iterator[dict[str, Any]]:
    """Yield the differences of two metrics, all of a statistic one family."""
    for statistic in STATISTICS:
        family = []
        for view, (a, b) in product(views, asked):
            for kind in view.kinds if {a, b} <= view.scores.keys() else ():
                values = found[view.name]
                between = values[statistic, kind, a] - values[statistic, kind, b]
                between = read[view.base].resampled(between, statistic, is_difference=True)
                record = difference(between, resamples)
                if record is not None:
                    record["value"] = record.pop("difference")
                    names = {"set": view.name, "metric": a, "versus": b, "errors": kind, "statistic": statistic}
                    family.append({"what": DIFFERENCE, **names, **record})
        adjust(family)
        yield from family


def _ceilings(view: View, one: _Set, lower: set[str]) -> Iterator[dict[str, Any]]:
    """Yield tau-b with the mean of all raters but one, averaged over the raters left out: of metrics and of these."""
    kept = dict(_views(view.base, one.rated))[view.name]
    drawn = _some(one.drawn, kept)
    tau = STATISTICS[TAU]
    goodness = {name: side((-values if name in lower else values)[kept], drawn) for name, values in one.columns.items()}
    for kind in view.kinds:
        by_rater = one.rated.by_rater(kind)[:, kept]
        of_name: dict[str, list[Array]] = {name: [] for name in (RADIOLOGISTS, *goodness)}
        for place, own in enumerate(by_rater):
            others = side(-sum_of(np.delete(by_rater, place, axis=0)), drawn)
            of_name[RADIOLOGISTS].append(tau(side(-own, drawn), others, drawn))
            for name, values in goodness.items():
                of_name[name].append(tau(values, others, drawn))
        # A rater without a value in a resample leaves the mean to the others.
        means = {name: _mean(np.array(values)) for name, values in of_name.items()}
        for name, mean in means.items():
            names = {"what": CEILING, "set": view.name, "metric": name, "errors": kind}
            yield {**names, **agreement(TAU, mean, drawn)}
            if name != RADIOLOGISTS:
                yield {**names, "versus": RADIOLOGISTS, **agreement(TAU, mean - means[RADIOLOGISTS], drawn)}


def _mean(values: Array) -> Array:
    """Return the mean over the first axis of what has a value, NaN where nothing has."""
    exists = np.isfinite(values)
    n = exists.sum(axis=0)
    sums = np.where(exists, values, 0).sum(axis=0)
    return np.divide(sums, n, out=np.full(len(sums), np.nan), where=n > 0)


def _read_variants(
    ablations: Mapping[str, str | Path], one: _Set, names: Sequence[str]
) -> dict[str, tuple[str, Array]]:
    """Return the metric and the scores of each variant."""
    found = {}
    for variant, path in ablations.items():
        table = read_table(existing_file(Path(path), _FUNCTION, "ablations"), _FUNCTION)
        held = [name for name in one.columns if name in table.names]
        if len(held) != 1:
            msg = (
                f"{_FUNCTION}: ablations must have one of the metrics as a column ({shown_names(names)}); got "
                f"{shown_names(held) or 'none'} in {path}. Call the variant's scores as the metric's."
            )
            raise InputError(msg)
        _, columns, _ = read_rated(one.rated, path, None, held, _FUNCTION)
        found[variant] = (held[0], columns[held[0]])
    return found


def _ablations(
    found: Mapping[str, Mapping[tuple[str, str, str], Array]],
    view: View,
    one: _Set,
    variants: Mapping[str, tuple[str, Array]],
    lower: set[str],
    resamples: int,
) -> Iterator[dict[str, Any]]:
    """Yield tau-b of each variant and its difference from the metric, one family."""
    kept = dict(_views(view.base, one.rated))[view.name]
    family = []
    for variant, (metric, values) in variants.items():
        own = _statistics(one, kept, lower, {metric: values})
        for kind in view.kinds:
            names = {"what": ABLATION, "set": view.name, "metric": variant, "errors": kind}
            of_variant = own[TAU, kind, metric]
            yield {**names, **agreement(TAU, one.resampled(of_variant, TAU), one.drawn)}
            between = one.resampled(of_variant - found[view.name][TAU, kind, metric], TAU, is_difference=True)
            record = difference(between, resamples)
            if record is not None:
                record["value"] = record.pop("difference")
                family.append({**names, "versus": metric, "statistic": TAU, **record})
    adjust(family)
    yield from family


def _measure(rated: Rated, source: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds that a pair takes under each metric that was scored here: each alone, all of it."""
    found = {}
    for metric in source.get("scored", {}):
        begin = time.perf_counter()
        score_texts(rated, [metric], _FUNCTION)  # everything was compiled and loaded when they were scored
        found[metric] = 1000 * (time.perf_counter() - begin) / len(rated.pairs)
    return found


def _times(names: Sequence[str], path: str | Path | None, measured: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Yield the time for each pair: as measured, and as a table says of other tools."""
    given: dict[str, tuple[float, str | None]] = {}
    if path is not None:
        table = read_table(existing_file(Path(path), _FUNCTION, "times"), _FUNCTION)
        cells = [table.column(name, _FUNCTION, "times") for name in ("metric", "ms_per_pair")]
        devices = table.column("device", _FUNCTION, "times") if "device" in table.names else [None] * table.n_rows
        for row, (metric, milliseconds, device) in enumerate(zip(*cells, devices, strict=True), start=1):
            try:
                value = float(milliseconds)
            except (TypeError, ValueError):
                value = np.nan
            if not 0 < value < np.inf or str(metric) not in names or str(metric) in given:
                msg = (
                    f"{_FUNCTION}: times must have each metric ({shown_names(names)}) at most once, with milliseconds "
                    f"above 0 in ms_per_pair; got something else in row {row} of {path}. Correct it."
                )
                raise InputError(msg)
            given[str(metric)] = value, None if is_missing(device) else str(device)
    usable = f"{machine()['cores']} cores" if measured else None
    for metric in names:
        if metric in given or metric in measured:
            value, device = given.get(metric) or (measured[metric], usable)
            yield {"what": TIME, "metric": metric, "value": value, "device": device}
