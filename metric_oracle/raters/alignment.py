"""How well metrics agree with radiologists: rank correlation of scores and error counts, bootstrap over studies.

Yu et al., Patterns 2023, table S2 and figure 3. Agreement is positive where a better score goes with fewer errors: for
a metric whose higher score is better it is the correlation with the error count times -1. Scores are shown as read.

Beside the paper's two statistics over all pairs stand the same within studies, where metrics choose between candidates
for one reference; the difference of two metrics on the same resampled studies, which finds what the comparison of two
intervals cannot; and the radiologists' agreement with one another, a ceiling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.shown import OneLine
from metric_oracle.errors import InputError, called
from metric_oracle.raters.rank_agreement import SPEARMAN, STATISTICS, TAU, Resamples, draw, side, sum_of
from metric_oracle.raters.rated_scores import drop_identical, lower_is_better, read_rated
from metric_oracle.raters.rater_agreement import SIDES, rater_agreement
from metric_oracle.raters.ratings import Rated
from metric_oracle.statistics import (
    FEW,
    FEWEST,
    LEVEL,
    Array,
    adjusted,
    bca,
    bootstrap_p,
    effective_studies,
    percentile,
)

MEAN = "mean of raters"
RESAMPLES = 1000  # as in the paper
_FUNCTION = "align"
_TEXT = pa.large_string()
_FLOATS = ("value", "low", "high")
AMONG = "raters among themselves"
_NUMBERS = pa.schema(
    [
        *((name, _TEXT) for name in ("metric", "versus", "errors", "rater", "statistic")),
        *((name, pa.float64()) for name in (*_FLOATS, "bca_low", "bca_high", "p_value", "p_adjusted")),
        ("degenerate", pa.int64()),
    ]
)


@dataclass(frozen=True, repr=False)
class Alignment(OneLine):
    """Agreement of every metric with the radiologists.

    Attributes
    ----------
    table : pyarrow.Table
        One row for each metric, kind of errors, rater and statistic: the value, its percentile and BCa intervals, and
        the number of resamples without a value. Null is a value or an interval that does not exist.
    differences : pyarrow.Table
        One row for each statistic, kind of errors and pair of metrics, on the mean of raters: a - b (positive: a agrees
        more) with its percentile interval and two-sided p-value from the same resamples, and the p-value adjusted over
        the pairs and kinds of that statistic (Benjamini and Hochberg).
    raters : pyarrow.Table
        One row for each kind of errors and statistic of the raters' agreement with one another; none of one rater.
    signature : dict
        What is needed to compute the same numbers again.
    scores : dict of float64[P]
        Scores of each metric, as they were read.
    errors : dict of float64[P]
        Mean of raters for each kind of errors.
    """

    table: pa.Table
    differences: pa.Table
    raters: pa.Table
    signature: dict[str, Any]
    scores: dict[str, Array]
    errors: dict[str, Array]

    def records(self) -> list[dict[str, Any]]:
        """Return one flat record for each number: of the table, of the raters' agreement, of the differences.

        In the record of a difference `versus` names the second metric and `value` is the difference; the raters'
        agreement with one another has no metric.
        """
        empty = dict.fromkeys(_NUMBERS.names)
        found = [{**empty, **record} for record in self.table.to_pylist()]
        found += [{**empty, "rater": AMONG, **record} for record in self.raters.to_pylist()]
        for record in self.differences.to_pylist():
            names = {"metric": record.pop("a"), "versus": record.pop("b"), "rater": MEAN}
            found.append({**empty, **names, "value": record.pop("difference"), **record})
        return found

    @property
    def numbers(self) -> pa.Table:
        """The records as a table, as they are written."""
        return pa.Table.from_pylist(self.records(), _NUMBERS)

    def summary(self) -> str:
        """Return one line: what was compared on what."""
        counts = f"{self.signature['pairs']:,} pairs of {self.signature['studies']:,} studies"
        return f"{counts}, {self.signature['raters']} raters: {', '.join(self.scores)}"

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read the intervals with care."""
        if self.signature["studies"] >= FEW:
            return []
        return [f"Fewer than {FEW} studies ({self.signature['studies']}): the intervals are too short."]


@called("align")
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
    """Measure how well scores agree with the errors that radiologists counted.

    Parameters
    ----------
    ratings : path or Rated
        A rated set, see [`read_rated_set`][metric_oracle.read_rated_set].
    scores : path or sequence of paths, optional
        Tables of any tool with one row for each pair, named by a pair id or by study and candidate type, and a column
        of numbers for each metric. A file that ``oracle score`` wrote about the pairs is one; its components are left
        out. Without such a file the texts of the pairs are scored.
    samples : path, optional
        Texts of the pairs, where `ratings` is a path.
    metrics : sequence of str, optional
        Columns to use, by default all that hold numbers; a name that is no column is a metric, under which the texts
        are scored.
    directions : mapping of str to {"higher", "lower"}, optional
        Which values of a column are better, for columns whose names do not tell.
    paired : sequence of (str, str), optional
        Pairs of metrics whose agreement is compared, by default all: the family over which p-values are adjusted.
    without_identical : bool
        Leave out pairs whose two texts are the same (ReXVal*, Cho et al. 2025).
    resamples : int
        Number of bootstrap resamples of the studies, by default 1,000 as in the paper.
    seed : int
        Seed of the resamples.

    Returns
    -------
    Alignment
        Rank correlations of each metric with the counted errors, their intervals and the tests between metrics.

    Raises
    ------
    InputError
        If a file cannot be read, scores lack pairs, a direction is not known, every column is constant, or fewer than
        two studies are left.

    Examples
    --------
    >>> mo.align("ratings.csv", samples="samples.csv", metrics=["bleu", "rouge-l"], resamples=200)
    <Alignment: 96 pairs of 24 studies, 3 raters: bleu-2, rouge-l>
    """
    check_draws(resamples, seed)
    from scipy.stats import kendalltau, spearmanr

    rated, columns, sources = read_rated(ratings, scores, samples, metrics, _FUNCTION)
    lower = lower_is_better(list(columns), directions or {}, _FUNCTION)
    asked = pairs_asked(list(columns), paired)
    left_out = 0
    if without_identical:
        rated, columns, left_out = drop_identical(rated, columns, _FUNCTION)
    check_varied(rated, columns)
    drawn = draw(rated.studies, resamples, seed)
    by_rater = {kind: rated.by_rater(kind) for kind in rated.kinds}
    counts = {  # negative, so that agreement is positive; sums over raters rank as their means do
        (kind, rater): -count
        for kind in rated.kinds
        for rater, count in zip([*rated.raters, MEAN], [*by_rater[kind], sum_of(by_rater[kind])], strict=True)
    }
    sides = {key: side(count, drawn) for key, count in counts.items()}
    records: list[dict[str, Any]] = []
    of_mean: dict[tuple[str, str, str], Array] = {}
    for name, values in columns.items():
        goodness = -values if name in lower else values
        of_goodness = side(goodness, drawn)
        for (kind, rater), count in counts.items():
            for statistic, function in STATISTICS.items():
                found = function(of_goodness, sides[kind, rater], drawn)
                record = agreement(statistic, found, drawn)
                if record["value"] is not None and statistic in (TAU, SPEARMAN):  # to the last bit
                    of_scipy = kendalltau if statistic == TAU else spearmanr
                    record["value"] = float(of_scipy(goodness, count).statistic)
                records.append({"metric": name, "errors": kind, "rater": rater, **record})
                if rater == MEAN:
                    of_mean[statistic, kind, name] = found
    of_raters = [
        {"errors": kind, **record}
        for kind in rated.kinds
        if len(rated.raters) > 1
        for record in rater_agreement(by_rater[kind], drawn)
    ]
    signature: dict[str, Any] = {
        "command": _FUNCTION,
        **sources,
        "metrics": list(columns),
        "lower_is_better": [name for name in columns if name in lower],
        "paired": [list(pair) for pair in asked],
        "left_out": left_out,
        "pairs": len(rated.pairs),
        "studies": len(set(rated.studies)),
        "raters": len(rated.raters),
        "bootstrap": {"unit": "study", "resamples": resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    return Alignment(
        _table(records, ("metric", "errors", "rater", "statistic"), (*_FLOATS, "bca_low", "bca_high")),
        _table(
            differences(of_mean, rated.kinds, asked, resamples),
            ("statistic", "errors", "a", "b"),
            ("difference", "low", "high", "p_value", "p_adjusted"),
        ),
        _table(of_raters, ("errors", "statistic"), _FLOATS),
        signature,
        columns,
        {kind: by_rater[kind].mean(axis=0) for kind in rated.kinds},
    )


def check_draws(resamples: int, seed: int) -> None:
    """Raise unless a bootstrap can be drawn so."""
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < FEWEST:
        msg = f"align: resamples must be an int of at least {FEWEST}; got {resamples!r}. The paper takes 1000."
        raise InputError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        msg = f"align: seed must be an int from 0; got {seed!r}. Take 0."
        raise InputError(msg)


def check_varied(rated: Rated, columns: Mapping[str, Array]) -> None:
    """Raise unless there are studies to resample, and scores that can rank."""
    n = len(set(rated.studies))
    if n < 2:
        msg = f"align: ratings must hold at least 2 studies, which the bootstrap resamples; got {n}. Rate more studies."
        raise InputError(msg)
    if all(values.min() == values.max() for values in columns.values()):
        msg = (
            f"align: scores must differ between pairs; got one value for all {len(rated.pairs)} in every column. "
            "Choose other columns with --metric."
        )
        raise InputError(msg)


def _table(records: list[dict[str, Any]], texts: Sequence[str], numbers: Sequence[str]) -> pa.Table:
    kinds = [*((name, _TEXT) for name in texts), *((name, pa.float64()) for name in numbers)]
    return pa.Table.from_pylist(records, pa.schema([*kinds, ("degenerate", pa.int64())]))


def pairs_asked(names: list[str], paired: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """Return the pairs of metrics to compare: all, or those that were asked for."""
    if paired is None:
        return list(combinations(names, 2))
    for a, b in paired:
        if a == b or a not in names or b not in names:
            msg = f"align: paired must name two metrics of {', '.join(names)}; got {a!r} and {b!r}. Correct the names."
            raise InputError(msg)
    if len({frozenset(pair) for pair in paired}) < len(paired):
        msg = "align: paired must name each pair once; got one twice. A repeated test changes the adjusted p-values."
        raise InputError(msg)
    return [(a, b) for a, b in paired]


def agreement(statistic: str, values: Array, drawn: Resamples) -> dict[str, Any]:
    """Return the record of a statistic: value, intervals, the studies that these rest on, degenerate resamples.

    Parameters
    ----------
    statistic : str
    values : float64[B + S + 1]
        Of the resamples, of all studies but one, of all studies.
    drawn : Resamples
    """
    n_studies = drawn.studies.shape[1]
    resampled, left_out, value = values[: -n_studies - 1], values[-n_studies - 1 : -1], float(values[-1])
    exists = np.isfinite(resampled)
    record: dict[str, Any] = dict.fromkeys(("value", "low", "high", "bca_low", "bca_high", "effective"))
    if np.isfinite(value):
        record["value"] = value
        record["low"], record["high"] = percentile(resampled[exists], SIDES)
        record["bca_low"], record["bca_high"] = bca(value, resampled[exists], left_out, SIDES)
        # What leaving out a study changes is to the statistic what the scores are to their mean.
        record["effective"] = effective_studies(left_out - value) if np.isfinite(left_out).all() else 0.0
    return {"statistic": statistic, **record, "degenerate": int((~exists).sum())}


def differences(
    of_mean: Mapping[tuple[str, str, str], Array],
    kinds: Sequence[str],
    asked: Sequence[tuple[str, str]],
    resamples: int,
) -> list[dict[str, Any]]:
    """Return a record for each comparison of two metrics that both have a value, each statistic a family."""
    records: list[dict[str, Any]] = []
    for statistic in STATISTICS:
        family = [
            {"statistic": statistic, "errors": kind, "a": a, "b": b, **found}
            for kind, (a, b) in product(kinds, asked)
            if (found := difference(of_mean[statistic, kind, a] - of_mean[statistic, kind, b], resamples))
        ]
        adjust(family)
        records += family
    return records


def difference(between: Array, resamples: int) -> dict[str, Any] | None:
    """Return the record of a difference of two statistics on the same resamples; None where it has no value."""
    resampled = between[:resamples]
    exists = np.isfinite(resampled)
    if not np.isfinite(between[-1]) or not exists.any():
        return None
    low, high = percentile(resampled[exists], SIDES)
    numbers: dict[str, Any] = {"difference": float(between[-1]), "low": low, "high": high}
    return {**numbers, "p_value": bootstrap_p(resampled[exists]), "degenerate": int((~exists).sum())}


def adjust(family: Sequence[dict[str, Any]]) -> None:
    """Add the p-values that are adjusted over these records."""
    if family:
        for record, p in zip(family, adjusted([one["p_value"] for one in family]), strict=True):
            record["p_adjusted"] = p


def fit(x: Array, y: Array) -> tuple[float, float, float | None]:
    """Return slope, intercept and R² of the least-squares line; R² is None where all x or all y are equal."""
    from scipy.stats import linregress

    if y.min() == y.max() or x.min() == x.max():
        return 0.0, float(y.mean()), None
    line = linregress(x, y)
    return float(line.slope), float(line.intercept), float(line.rvalue**2)
