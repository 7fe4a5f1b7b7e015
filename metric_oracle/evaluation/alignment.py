"""How well metrics agree with radiologists: rank correlation of scores and error counts, bootstrap over studies.

Yu et al., Patterns 2023, table S2 and figure 3. Agreement is positive where a better score goes with fewer errors: for
a metric whose higher score is better it is the correlation with the error count times -1. Scores are shown as read.

The studies are resampled, each with all its pairs, because the pairs of one study share a reference. Both statistics of
a resample follow from signs of differences and from how often each pair was drawn (w): with X_ij = sign(x_i - x_j),
tau-b = sum w_i w_j X Y / sqrt(sum w_i w_j X^2 * sum w_i w_j Y^2), and X w is twice the rank of x, centred. So all
resamples are a few matrix products, where SciPy would rank each resample anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metric_oracle.corpora.raters import KINDS, Ratings, match_pairs, read_ratings
from metric_oracle.corpora.tables import existing_file, is_missing, read_table, shown_names
from metric_oracle.errors import InputError
from metric_oracle.evaluation.figures import new_figure, write_figure
from metric_oracle.evaluation.sheets import Sheet, fingerprint
from metric_oracle.metrics import ALIASES, METRICS

MEAN = "mean of raters"
STATISTICS = ("tau-b", "spearman")
LEVEL = 0.95
FEWEST = 100  # resamples under which the ends of a 95 % interval are two or three draws
# Columns of CXR-Report-Metric's report_scores.csv whose direction is known.
_PUBLISHED = {"RadCliQ-v0": "radcliq:v0", "RadCliQ-v1": "radcliq"}
_NO_SCORES = ("", "index", "rank", "row", "n_ties")
_KIND_NAMES = {"total": "sig. and\ninsig. errors", "significant": "sig. errors"}
_FUNCTION = "align"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alignment:
    """Agreement of every metric with the radiologists.

    Attributes
    ----------
    table : pyarrow.Table
        One row for each metric, kind of errors, rater and statistic: the value, its percentile and BCa intervals, and
        the number of resamples without a value. Null is a value or an interval that does not exist.
    signature : dict
        What is needed to compute the same numbers again.
    scores : dict of float64[P]
        Scores of each metric, as they were read.
    errors : dict of float64[P]
        Mean of raters for each kind of errors.
    """

    table: pa.Table
    signature: dict[str, Any]
    scores: dict[str, Array]
    errors: dict[str, Array]

    def sheets(self) -> list[Sheet]:
        """Return one table a statistic, in the layout of table S2 of Yu et al., and the mean of raters."""
        records = self.table.to_pylist()
        raters = list(dict.fromkeys(record["rater"] for record in records))
        bootstrap = self.signature["bootstrap"]
        degenerate = sum(record["degenerate"] for record in records)
        notes = [
            f"{self.signature['pairs']:,} pairs of {self.signature['studies']:,} studies"
            + (f" ({self.signature['left_out']:,} identical pairs left out)" if self.signature["left_out"] else "")
            + f"; 95 % percentile intervals from {bootstrap['resamples']:,} resamples of studies, seed "
            f"{bootstrap['seed']}; positive: a better score goes with fewer errors.",
        ]
        if self.signature["lower_is_better"]:
            notes.append(f"Lower is better: {', '.join(self.signature['lower_is_better'])}.")
        if degenerate:
            notes.append(
                f"Degenerate resamples, in which all scores or all counts are equal: {degenerate:,} over all cells, "
                "left out of their intervals; --out FILE.csv has them by cell."
            )
        names = {MEAN: "Mean of raters", **{r: f"Rater {r}" for r in raters if r.isdecimal()}}
        header = ["", *(names.get(rater, rater) for rater in raters)]
        found = []
        for statistic, title in zip(STATISTICS, ("Kendall tau-b", "Spearman"), strict=True):
            rows = []
            for metric, kind in product(self.scores, KINDS):
                chosen = [r for r in records if (r["metric"], r["errors"], r["statistic"]) == (metric, kind, statistic)]
                rows.append([f"{metric}\n{_KIND_NAMES[kind]}", *map(_cell, chosen)])
            title = f"{title} rank correlation of metric scores and counted errors, by radiologist"
            found.append(Sheet(title, header, rows, notes))
        return found


def align(
    ratings: str | Path | Ratings,
    scores: str | Path | Sequence[str | Path],
    *,
    samples: str | Path | None = None,
    metrics: Sequence[str] | None = None,
    lower_is_better: Sequence[str] = (),
    without_identical: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Alignment:
    """Measure how well scores agree with the errors that radiologists counted.

    Parameters
    ----------
    ratings : path or Ratings
        See :func:`metric_oracle.corpora.raters.read_ratings`.
    scores : path or sequence of paths
        Tables of any tool with one row a pair, named by a pair id or by study and candidate type, and a column of
        numbers for each metric.
    samples : path
        Texts of the pairs, where `ratings` is a path.
    metrics : sequence of str
        Columns to use; by default all that hold numbers.
    lower_is_better : sequence of str
        Columns of other tools where a lower score is better. The direction of our own metrics is known by their names.
    without_identical : bool
        Leave out pairs whose two texts are the same (ReXVal*, Cho et al. 2025).
    resamples, seed : int
        Of the bootstrap over studies; 1,000 resamples as in the paper.

    Returns
    -------
    Alignment

    Raises
    ------
    InputError
        If a file does not hold what it must, scores lack pairs, or fewer than two studies are left.
    """
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < FEWEST:
        msg = f"align: resamples must be an int of at least {FEWEST}; got {resamples!r}. The paper takes 1000."
        raise InputError(msg)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        msg = f"align: seed must be an int from 0; got {seed!r}. Take 0."
        raise InputError(msg)
    if samples is not None and isinstance(ratings, Ratings):
        msg = "align: samples must be left out with Ratings; got both. Give them to read_ratings."
        raise InputError(msg)
    paths = [Path(path) for path in ([scores] if isinstance(scores, str | Path) else scores)]
    rated = ratings if isinstance(ratings, Ratings) else read_ratings(ratings, samples=samples)
    columns = _read_columns(rated, paths, metrics)
    lower = _lower(list(columns), lower_is_better)
    kept = np.ones(len(rated.pairs), np.bool_)
    if without_identical:
        distinct = rated.without_identical(_FUNCTION)
        kept = np.isin(rated.pairs, distinct.pairs)
        rated = distinct
    columns = {name: values[kept] for name, values in columns.items()}
    studies = list(dict.fromkeys(rated.studies))
    if len(studies) < 2:
        msg = (
            f"align: ratings must hold at least 2 studies, which the bootstrap resamples; got {len(studies)}. "
            "Rate more studies."
        )
        raise InputError(msg)
    constant = [name for name, values in columns.items() if values.min() == values.max()]
    if constant:
        msg = (
            f"align: scores must differ between pairs; got one value for all {len(rated.pairs)} in column "
            f"{shown_names(constant)}. Choose other columns with --metric."
        )
        raise InputError(msg)

    drawn = draw(rated.studies, resamples, seed)
    by_rater = {kind: rated.errors(kind).sum(axis=2).T for kind in KINDS}
    counts = {  # negative, so that agreement is positive; sums over raters rank as their means do
        (kind, rater): -count
        for kind in KINDS
        for rater, count in zip([*rated.raters, MEAN], [*by_rater[kind], by_rater[kind].sum(axis=0)], strict=True)
    }
    sides = {key: side(count, drawn) for key, count in counts.items()}
    records: list[dict[str, Any]] = []
    for name, values in columns.items():
        goodness = -values if name in lower else values
        of_goodness = side(goodness, drawn)
        for (kind, rater), count in counts.items():
            for record in _agreement(goodness, count, of_goodness, sides[kind, rater], drawn):
                records.append({"metric": name, "errors": kind, "rater": rater, **record})
    signature: dict[str, Any] = {
        "command": _FUNCTION,
        "ratings": fingerprint(Path(ratings)) if isinstance(ratings, str | Path) else rated.source,
        "samples": None if samples is None else fingerprint(Path(samples)),
        "scores": [fingerprint(path) for path in paths],
        "metrics": list(columns),
        "lower_is_better": [name for name in columns if name in lower],
        "left_out": int((~kept).sum()),
        "pairs": len(rated.pairs),
        "studies": len(studies),
        "raters": len(rated.raters),
        "bootstrap": {"unit": "study", "resamples": resamples, "seed": seed, "level": LEVEL},
        "version": version("metric-oracle"),
    }
    schema = pa.schema(
        [
            *((name, pa.large_string()) for name in ("metric", "errors", "rater", "statistic")),
            *((name, pa.float64()) for name in ("value", "low", "high", "bca_low", "bca_high")),
            ("degenerate", pa.int64()),
        ]
    )
    errors = {kind: by_rater[kind].mean(axis=0) for kind in KINDS}
    return Alignment(pa.Table.from_pylist(records, schema), signature, columns, errors)


def plot_alignment(alignment: Alignment, path: str | Path) -> None:
    """Draw mean errors against scores with the least-squares line, as in figure 3 of Yu et al.

    Parameters
    ----------
    alignment : Alignment
    path : path
        Ends with .png, .svg or .pdf.
    """
    names = list(alignment.scores)
    figure = new_figure(_FUNCTION, max(3.0 * len(names), 4.5), 6)
    records = {
        (r["metric"], r["errors"]): r
        for r in alignment.table.to_pylist()
        if (r["rater"], r["statistic"]) == (MEAN, "tau-b")
    }
    panels = figure.subplots(len(KINDS), len(names), squeeze=False, sharex="col", sharey="row")
    for (row, kind), (column, name) in product(enumerate(KINDS), enumerate(names)):
        panel, x, y = panels[row, column], alignment.scores[name], alignment.errors[kind]
        slope, intercept, r_squared = fit(x, y)
        ends = np.array([x.min(), x.max()])
        panel.scatter(x, y, s=14, alpha=0.45, linewidths=0)
        panel.plot(ends, slope * ends + intercept, color="black", linewidth=1.2)
        label = f"tau-b {_cell(records[name, kind])}\nR² {'undefined' if r_squared is None else f'{r_squared:.3f}'}"
        corner = 0.03 if name in alignment.signature["lower_is_better"] else 0.97
        panel.text(
            corner, 0.97, label, transform=panel.transAxes, va="top", ha="left" if corner < 0.5 else "right", fontsize=8
        )
        # Room for the label above the points.
        panel.set_ylim(bottom=-0.03 * max(y.max(), 1), top=1.25 * max(y.max(), 1))
        if row == 0:
            panel.set_title(name, fontsize=10)
        else:
            panel.set_xlabel("score (lower is better)" if corner < 0.5 else "score", fontsize=9)
        if column == 0:
            panel.set_ylabel(f"{_KIND_NAMES[kind].replace(chr(10), ' ')}, mean of raters", fontsize=9)
    write_figure(Path(path), figure, _FUNCTION)


def fit(x: Array, y: Array) -> tuple[float, float, float | None]:
    """Return slope, intercept and R² of the least-squares line; R² is None where all y are equal."""
    from scipy.stats import linregress

    if y.min() == y.max():
        return 0.0, float(y[0]), None
    line = linregress(x, y)
    return float(line.slope), float(line.intercept), float(line.rvalue**2)


def _read_columns(ratings: Ratings, paths: Sequence[Path], wanted: Sequence[str] | None) -> dict[str, Array]:
    """Read the columns of numbers, each in the order of the rated pairs."""
    columns: dict[str, Array] = {}
    for path in paths:
        table = read_table(existing_file(path, _FUNCTION, "scores"), _FUNCTION)
        rows, keys = match_pairs(ratings, table, _FUNCTION)
        for name in table.names:
            unnamed = name in _NO_SCORES or name.startswith("Unnamed:")
            if name in keys or (unnamed if wanted is None else name not in wanted):
                continue
            cells = table.column(name, _FUNCTION, "scores")
            values = np.array([_number(cells[row]) for row in rows])
            lacking = [pair for pair, value in zip(ratings.pairs, values, strict=True) if not np.isfinite(value)]
            if wanted is None and len(lacking) == len(values):
                continue  # a column of text
            if lacking:
                msg = (
                    f"align: scores must be a finite number for every pair; got none in column {shown_names([name])} "
                    f"of {path} for {len(lacking)}, first {shown_names(lacking[:3])}. Complete it, or choose the "
                    "other columns with --metric."
                )
                raise InputError(msg)
            if name in columns:
                msg = (
                    f"align: scores must have each column in one file; got {shown_names([name])} twice, the second "
                    f"time in {path}. Rename one."
                )
                raise InputError(msg)
            columns[name] = values
    absent = [name for name in wanted or () if name not in columns]
    if absent or not columns:
        got = f"no {shown_names(absent) or '(withheld)'}" if absent else "none"
        msg = (
            f"align: scores must have a column of numbers for each metric; got {got} in "
            f"{', '.join(map(str, paths)) or 'no file'}. Check the file, and the names after --metric."
        )
        raise InputError(msg)
    return columns


def _number(cell: object) -> float:
    if is_missing(cell) or isinstance(cell, bool):
        return np.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return np.nan


def _lower(names: Sequence[str], foreign: Sequence[str]) -> set[str]:
    """Return the columns where a lower score is better: the registry's, and those that the caller names."""
    known = {name: METRICS.get(ALIASES.get(name, _PUBLISHED.get(name, name))) for name in names}
    for name in foreign:
        if name not in names:
            msg = (
                f"align: lower_is_better must name columns of the scores ({shown_names(names)}); got "
                f"{shown_names([name]) or repr(name)}. Correct the name."
            )
            raise InputError(msg)
        if (record := known[name]) is not None and record.higher_is_better:
            msg = (
                f"align: lower_is_better must name columns of other tools; got {name!r}, of which higher is better. "
                "Drop it, or rename a column that holds something else."
            )
            raise InputError(msg)
    return {name for name, record in known.items() if record is not None and not record.higher_is_better} | set(foreign)


class Resamples(NamedTuple):
    """Which pairs a statistic is computed on: the resamples, then all studies but one, then all.

    Attributes
    ----------
    studies : float64[B + S + 1, S]
        How often each study occurs.
    member : float64[P, S]
        1 where a pair is of a study.
    pairs : float64[B + S + 1, P]
        How often each pair occurs.
    """

    studies: Array
    member: Array
    pairs: Array


class Side(NamedTuple):
    """One of the two columns that are correlated, prepared for all resamples.

    Attributes
    ----------
    signs : float64[P, P]
        Signs of the differences of all pairs.
    untied : float64[B + S + 1]
        Ordered pairs of items that are not tied.
    ranks : float64[B + S + 1, P]
        Twice the mid-ranks, centred, with the sign turned.
    spread : float64[B + S + 1]
        Sum of the squares of `ranks`, each as often as its item occurs.
    """

    signs: Array
    untied: Array
    ranks: Array
    spread: Array


def draw(of_pair: Sequence[str], resamples: int, seed: int) -> Resamples:
    """Draw studies with replacement; `of_pair` is the study of each of P pairs."""
    code = {study: place for place, study in enumerate(dict.fromkeys(of_pair))}
    n = len(code)
    member = np.eye(n)[[code[study] for study in of_pair]]
    times = np.zeros((resamples, n))
    np.add.at(times, (np.arange(resamples)[:, None], np.random.default_rng(seed).integers(0, n, (resamples, n))), 1)
    studies = np.concatenate([times, 1 - np.eye(n), np.ones((1, n))])
    return Resamples(studies, member, studies @ member.T)


def side(values: npt.NDArray[Any], drawn: Resamples) -> Side:
    """Prepare a column of P numbers."""
    signs = np.sign(values[:, None] - values).astype(np.float64)
    ranks = drawn.studies @ (drawn.member.T @ signs)
    return Side(signs, _over_pairs(signs * signs, drawn), ranks, np.einsum("bp,bp->b", drawn.pairs, ranks * ranks))


def tau_b(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return Kendall's tau-b of each resample, NaN where a side is constant."""
    return _ratio(_over_pairs(x.signs * y.signs, drawn), x.untied, y.untied)


def spearman(x: Side, y: Side, drawn: Resamples) -> Array:
    """Return Spearman's rank correlation of each resample, NaN where a side is constant."""
    return _ratio(np.einsum("bp,bp->b", drawn.pairs, x.ranks * y.ranks), x.spread, y.spread)


def _over_pairs(matrix: Array, drawn: Resamples) -> Array:
    """Sum float64[P, P] over the ordered pairs of items of each resample."""
    by_study = drawn.member.T @ matrix @ drawn.member
    return np.einsum("bs,bs->b", drawn.studies @ by_study, drawn.studies)


def _ratio(both: Array, first: Array, second: Array) -> Array:
    # All are whole numbers below 2^53, so a constant side is exactly zero.
    spread = np.sqrt(first) * np.sqrt(second)
    return np.divide(both, spread, out=np.full_like(both, np.nan), where=spread > 0)


def _agreement(x: Array, y: npt.NDArray[np.int64], of_x: Side, of_y: Side, drawn: Resamples) -> list[dict[str, Any]]:
    """Return a record for each statistic: value, intervals, degenerate resamples."""
    from scipy.stats import kendalltau, spearmanr

    n_studies = drawn.studies.shape[1]
    if y.min() == y.max():
        empty = dict.fromkeys(("value", "low", "high", "bca_low", "bca_high"))
        return [{"statistic": name, **empty, "degenerate": len(drawn.studies) - n_studies - 1} for name in STATISTICS]
    records = []
    for name, scipy_function, function in zip(STATISTICS, (kendalltau, spearmanr), (tau_b, spearman), strict=True):
        values = function(of_x, of_y, drawn)
        resampled, left_out = values[: -n_studies - 1], values[-n_studies - 1 : -1]
        exists = np.isfinite(resampled)
        low, high = percentile(resampled[exists], np.array([1 - LEVEL, 1 + LEVEL]) / 2)
        # The value as the resampled ones are rounded: they are compared.
        bca_low, bca_high = bca(float(values[-1]), resampled[exists], left_out)
        records.append(
            {
                "statistic": name,
                "value": float(scipy_function(x, y).statistic),
                "low": low,
                "high": high,
                "bca_low": bca_low,
                "bca_high": bca_high,
                "degenerate": int((~exists).sum()),
            }
        )
    return records


def percentile(values: Array, at: Array) -> list[float | None]:
    """Return quantiles of the resampled values, or None each where there are no values."""
    return [float(end) for end in np.quantile(values, at)] if len(values) else [None, None]


def bca(value: float, resampled: Array, left_out: Array) -> list[float | None]:
    """Return the bias-corrected and accelerated interval (Efron and Tibshirani, 1993, section 14.3).

    Parameters
    ----------
    value : float
    resampled : float64[B]
        Of the resamples that have a value.
    left_out : float64[S]
        With one study left out at a time; NaN there, or all resamples on one side of the value, is no interval.
    """
    from scipy.special import ndtr, ndtri

    deviations = left_out.mean() - left_out
    spread = (deviations**2).sum() ** 1.5
    below = ((resampled < value).mean() + (resampled <= value).mean()) / 2 if len(resampled) else 0.0
    if not np.isfinite(spread) or spread == 0 or not 0 < below < 1:
        return [None, None]
    acceleration = (deviations**3).sum() / (6 * spread)
    shift = ndtri(below) + ndtri(np.array([1 - LEVEL, 1 + LEVEL]) / 2)
    return percentile(resampled, ndtr(ndtri(below) + shift / (1 - acceleration * shift)))


def _cell(record: dict[str, Any]) -> str:
    if record["value"] is None:
        return "undefined\n(equal counts)"
    ends = [record["low"], record["high"]]
    return f"{record['value']:.3f}" + ("" if None in ends else "\n[{:.3f} {:.3f}]".format(*ends))
