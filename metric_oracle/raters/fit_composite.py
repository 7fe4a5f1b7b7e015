"""Fit a composite as Yu et al. fitted RadCliQ: standardised metrics, linear regression on the number of errors.

The held-out agreement says how well a fit predicts studies that it has not seen. Predictions of each study by the fit
without it cannot be ranked together: leaving out a study with many errors lowers the intercept of the fit that predicts
it, so that tau is below 0 if nothing predicts (-0.06 for 50 studies, -0.15 for 20). Two reports are therefore compared
under one fit without the studies of both (leave-pair-out: Airola et al., Computational Statistics and Data Analysis
2011).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.checksum import seal
from metric_oracle.base.declarations import Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import json_text, replacing, sha256
from metric_oracle.base.validation import public
from metric_oracle.corpora.tables import canonical_ids, existing_file, read_table
from metric_oracle.findings import cells
from metric_oracle.findings.finding import Finding
from metric_oracle.findings.printed_tables import PaperTable, listing
from metric_oracle.findings.score_names import direction_of
from metric_oracle.findings.signature import bootstrap
from metric_oracle.findings.writing import check_out
from metric_oracle.metrics import ALIASES, COMPOSABLE, METRICS, names_of
from metric_oracle.raters.interrater import RESAMPLES
from metric_oracle.raters.rank_correlation import TAU, draw, interval_row, of_signs, side, tau_b
from metric_oracle.raters.rated_scores import ScoreFiles, Texts, read_rated
from metric_oracle.raters.ratings import Rated
from metric_oracle.retrieval.weights import FORMAT, VERSION
from metric_oracle.statistics import Array, few_studies, varies

_SEED = 0
_NO_WEIGHT = 1e-10  # a column with an eigenvalue below this part of the pairs is constant, or depends on the others
_NO_ORDER = 1e-9  # predictions that differ by less than this part of the errors' range are equal: the rest is rounding


@dataclass(frozen=True, repr=False)
class Composite(Finding):
    """A composite whose weights were fitted to ratings; made by [`fit_composite`][metric_oracle.fit_composite].

    Attributes
    ----------
    content : dict
        Content of the weights file that `write` writes: format, version, name, direction, terms, intercept, statistics
        of the fit, and the source with the names of score columns that the fit did not use ("unused").
    """

    content: dict[str, Any]

    @property
    def signature(self) -> dict[str, Any]:
        """What is needed to fit the composite again."""
        return {"command": "fit-composite", **self.content["source"], "metrics": [*self.content["terms"]]}

    @property
    def table(self) -> pa.Table:
        """One row for each term of the composite: metric, mean, scale, weight and standard_error."""
        errors = self.content["fit"]["standard_errors"]
        terms = self.content["terms"].items()
        return pa.Table.from_pylist([{"metric": m, **term, "standard_error": errors[m]} for m, term in terms])

    def warnings(self) -> list[str]:
        """Return a sentence for each reason to read intervals and standard errors with care."""
        fit = self.content["fit"]
        few = few_studies({"": fit["studies"]}, "intervals and standard errors are too small")
        equal = "The fits without the studies of two reports predict equal errors for both: held out is undefined."
        return [*few, *[equal] * (fit["tau_b_held_out"] is None)]

    def summary(self) -> str:
        """Return one line that describes terms and fit."""
        fit = self.content["fit"]
        return f"{len(self.content['terms'])} metrics, {fit['pairs']:,} pairs, R2 {fit['r2']:z.3f}"

    def tables(self) -> list[PaperTable]:
        """Return the table of the terms of the composite, with its fit in the notes."""
        content, fit = self.content, self.content["fit"]
        columns = {
            name.replace("_", " "): cells.number_of(name) for name in ("mean", "scale", "weight", "standard_error")
        }
        resampled = fit["bootstrap"]
        notes = [
            (
                f"intercept {content['intercept']:z.4f}; {fit['pairs']:,} pairs of {fit['studies']:,} studies; "
                f"R2 {fit['r2']:z.3f}, Kendall tau-b {_tau(fit, 'tau_b')}, held out {_tau(fit, 'tau_b_held_out')}; "
                "lower is better"
            ),
            (
                "held out: two reports are compared under a fit without their studies, so 0 is no skill; 95 % "
                f"percentile intervals, {resampled['resamples']:,} resamples of studies, seed {resampled['seed']}, the "
                "fits as they are; standard errors of weights: clustered by study"
            ),
            *self.warnings(),
        ]
        return [listing(content["name"], self.records(), "metric", columns, notes, "metric")]

    @public
    def write(self, path: str | Path) -> None:  # type: ignore[override]
        """Write the weights file (.json) that ``retrieve --metric composite --weights`` reads."""
        path = Path(path)
        check_out(path, endings=(".json",))
        with replacing(path) as temporary:
            temporary.write_text(json_text(seal(self.content)), encoding="utf-8")


def _tau(fit: Mapping[str, Any], name: str) -> str:
    """Return Kendall's tau-b with its interval; `name` is its field of `fit`."""
    value, low, high = (fit[name + end] for end in ("", "_low", "_high"))
    return "undefined" if value is None else cells.over(value, low, high, ".3f").replace("\n", " ")


@public
def fit_composite(
    table: Annotated[
        str | Path | Rated,
        Doc(
            "Table with one row per rated pair: a column for each metric, the number of errors and the study. With "
            "`scores` or `samples` it is instead a file of counted errors or grades, as for "
            "[`align`][metric_oracle.align]."
        ),
    ],
    scores: ScoreFiles = (),
    *,
    samples: Texts | None = None,
    metrics: Annotated[
        str | Sequence[str] | None,
        Doc(
            "Metrics that the sum is fitted on, such as bleu or rouge-l, see "
            "[`list_metrics`][metric_oracle.list_metrics]; several with commas. A column of scores is called as such a "
            "metric, or as CXR-Report-Metric calls it. By default all that have a column of scores, or the usual "
            "metrics of texts if only texts are given."
        ),
        option_types.METRIC,
    ] = None,
    errors: Annotated[
        str,
        Doc(
            "Number of errors to predict. If `table` is a table of scores: its column with that number, such as the "
            "mean over raters. If it has the errors that radiologists counted: total for all errors (the default "
            "then), significant for clinically significant ones only; the mean over raters is predicted."
        ),
    ] = "errors",
    study: Annotated[
        str,
        Doc("Column with the study that a pair belongs to, if `table` is a table of scores."),
        Flag(metavar="COLUMN"),
    ] = "study_id",
    name: Annotated[
        str | None,
        Doc(
            'Name that the composite gets. By default that of the file `table` without its ending, or "composite" with '
            "`scores` or `samples`."
        ),
    ] = None,
) -> Composite:
    """Fit a weighted sum of metrics that predicts the number of errors in a report, as RadCliQ does.

    Each metric is standardised with its mean and population standard deviation over the pairs, and a linear regression
    predicts the number of errors; lower is better. Other columns are ignored. [`retrieve`][metric_oracle.retrieve]
    searches under the fitted sum as the metric composite.

    Returns
    -------
    Composite
        ``content["fit"]`` has the numbers of ``pairs`` and ``studies``, ``r2`` and ``tau_b`` (Kendall) on these pairs,
        and ``tau_b_held_out``, in which two reports are compared under a fit without their studies: 0 is no skill, None
        that no two predictions differ. Both
        have 95 % percentile intervals (``_low``, ``_high``) from resamples of studies (``bootstrap``) with fixed fits:
        in simulations the interval of the held-out value covered it in 91 of 100 with 50 studies of 4 pairs, in 79 with
        20 of one. ``standard_errors`` are those of the weights, clustered by study (Liang and Zeger, 1986, with the
        factor S / (S - 1) x (n - 1) / (n - m - 1) of S studies, n pairs and m metrics), means and scales fixed.

    Raises
    ------
    InputError
        If a cell is no finite number, a column is constant, columns depend on one another, there are not more pairs
        than metrics, or there is only one study.

    Examples
    --------
    >>> mo.fit_composite("ratings.csv", samples="samples.csv", metrics=["bleu", "rouge-l"], name="mine")
    <Composite: 2 metrics, 96 pairs, R2 0.360>
    """
    names = names_of(metrics)
    if isinstance(table, Rated) or scores or samples is not None:
        observed = _of_ratings(table, scores, samples, names, errors)
    else:
        observed = _of_table(table, names, errors, study)
    source = observed.source
    if observed.unused and names is None:
        source = {**source, "unused": observed.unused}
    _check_columns(observed)
    regression = _Regression.of(observed.x, observed.errors)
    return Composite(
        {
            "format": FORMAT,
            "version": VERSION,
            "name": name or observed.name,
            "direction": "lower",
            "terms": regression.terms(observed.columns),
            "intercept": regression.intercept,
            "fit": _fit_entry(regression, observed),
            "source": {**source, "fitted_by": f"metric-oracle {version('metric-oracle')}"},
        }
    )


@dataclass(frozen=True)
class _Observed:
    """The rated pairs on which a composite is fitted."""

    columns: dict[str, Array]  # by metric, the scores of the n pairs, float64[n]
    errors: Array  # float64[n], number of errors to predict
    studies: list[str]  # the study of each pair
    unused: list[str]  # names of columns of scores that the fit does not use
    source: dict[str, Any]  # what was read, for the signature
    name: str  # of the composite, if the user gives none
    where: str  # name of the table in messages

    @property
    def x(self) -> Array:
        """The scores, float64[n, m]."""
        return np.stack([*self.columns.values()], axis=1)


def _of_ratings(
    table: str | Path | Rated, scores: ScoreFiles, samples: Texts | None, names: Sequence[str] | None, errors: str
) -> _Observed:
    """Return the pairs of counted errors or grades, with their scores; the mean over raters is predicted."""
    rated, scored, source = read_rated(table, scores, samples, None if scores else names)
    if TAU not in rated.statistics:
        raise InputError(
            "ratings",
            "must be counts or grades for a composite, which predicts a number",
            f"preferences or orders in {rated.source}",
            "Use `mo.compare_metrics` for such ratings.",
        )
    kind = rated.kinds[0] if errors == "errors" else errors
    if kind not in rated.kinds:
        raise InputError("errors", f"must be one of {', '.join(rated.kinds)} of ratings", shown(errors), "Choose one.")
    where = rated.source if isinstance(table, Rated) else str(table)
    column_of = _columns(list(scored), names, where)
    return _Observed(
        columns={metric: scored[column] for metric, column in column_of.items()},
        errors=rated.by_rater(kind).mean(axis=0),
        studies=rated.studies,
        unused=[column for column in scored if column not in column_of.values()],
        source={**source, "errors": kind},
        name="composite",
        where=where,
    )


def _of_table(table: str | Path, names: Sequence[str] | None, errors: str, study: str) -> _Observed:
    """Return the pairs of a table with columns of scores, of the number of errors, and of the study."""
    path = existing_file(Path(table))
    read = read_table(path)
    column_of = _columns(read.names, names, str(path))
    studies = canonical_ids(read.column(study), f"column {shown(study)} of {path}", mimic=False)
    return _Observed(
        columns={metric: read.numbers(column) for metric, column in column_of.items()},
        errors=read.numbers(errors),
        studies=studies,
        unused=[column for column in read.names if direction_of(column) and column not in column_of.values()],
        source={"table": path.name, "sha256": sha256(path), "errors": errors, "study": study},
        name=path.stem,
        where=str(path),
    )


@dataclass(frozen=True)
class _Regression:
    """A linear regression of the number of errors on standardised scores."""

    z: Array  # float64[n, m], the standardised scores
    y: Array  # float64[n], the errors
    mean: Array  # float64[m], with which the scores were standardised
    scale: Array  # float64[m]
    intercept: float
    weights: Array  # float64[m]

    @classmethod
    def of(cls, x: Array, y: Array) -> "_Regression":
        """Fit the weights of scores float64[n, m]."""
        mean, scale, intercept = x.mean(axis=0), x.std(axis=0), float(y.mean())
        z = (x - mean) / scale
        return cls(z, y, mean, scale, intercept, np.linalg.lstsq(z, y - intercept)[0])

    @property
    def predicted(self) -> Array:
        """The errors that the fit predicts for each pair, float64[n]."""
        return self.intercept + self.z @ self.weights

    @property
    def r2(self) -> float:
        """The share of the errors' variance that the fit explains."""
        return float(1 - ((self.y - self.predicted) ** 2).sum() / ((self.y - self.y.mean()) ** 2).sum())

    def terms(self, metrics: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the terms of the composite by metric."""
        numbers = zip(metrics, self.mean.tolist(), self.scale.tolist(), self.weights.tolist(), strict=True)
        return {metric: {"mean": m, "scale": s, "weight": w} for metric, m, s, w in numbers}


def _fit_entry(regression: _Regression, observed: _Observed) -> dict[str, Any]:
    """Return what a weights file says of the fit: how well it predicts, also what it has not seen, and its errors."""
    z, y, predicted = regression.z, regression.y, regression.predicted
    fit: dict[str, Any] = {"pairs": len(y), "studies": len(set(observed.studies)), "r2": regression.r2}
    drawn = draw(observed.studies, RESAMPLES, _SEED)
    of_errors, inside = side(y, drawn), _signs(predicted[:, None] - predicted, y)
    held_out = _signs_held_out(z, y, drawn.member)
    for name, signs in (("tau_b", inside), ("tau_b_held_out", held_out)):
        tau = interval_row(TAU, tau_b(of_signs(signs, drawn), of_errors, drawn), drawn)
        fit |= {name: tau["value"], f"{name}_low": tau["low"], f"{name}_high": tau["high"]}
    errors = _standard_errors(z, y - predicted, drawn.member).tolist()
    return {
        **fit,
        "bootstrap": bootstrap("study", RESAMPLES, _SEED),
        "standard_errors": dict(zip(observed.columns, errors, strict=True)),
    }


def _signs(differences: Array, y: Array) -> Array:
    """Return the signs of differences of predictions of y; a weight that is 0 is computed with an error of rounding."""
    return np.where(np.abs(differences) <= _NO_ORDER * np.ptp(y), 0.0, np.sign(differences))


def _signs_held_out(z: Array, y: Array, member: Array) -> Array:
    """Return the signs of the differences of predictions of two reports, under the fit without both reports' studies.

    `z` has the standardised metrics of the pairs, float64[P, m], `y` their errors, `member` float64[P, S] is 1 where a
    pair belongs to a study. The result, float64[P, P], is antisymmetric. A metric that is constant without two studies
    has no weight in their fit.
    """
    # All fits follow from the sums over studies of the products of (1, z, y) with (1, z, y).
    full = np.concatenate([np.ones((len(z), 1)), z, y[:, None]], axis=1)
    of_study = np.einsum("ps,pi,pj->sij", member, full, full)
    whole, study = of_study.sum(axis=0), member.argmax(axis=1)
    signs = np.zeros((len(z), len(z)))
    for i, rows in enumerate(member.T.astype(bool)):
        out = of_study + of_study[i]
        out[i] = of_study[i]
        left = whole - out
        n, sums = left[:, 0, 0], left[:, 0]
        centred = left - sums[:, :, None] * sums[:, None] / n[:, None, None]
        size, axes = np.linalg.eigh(centred[:, 1:-1, 1:-1])
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > _NO_WEIGHT * len(z))
        weights = np.einsum("sik,sk,sjk,sj->si", axes, inverse, axes, centred[:, 1:-1, -1])
        signs[rows] = _signs(np.einsum("pqi,qi->pq", z[rows][:, None] - z, weights[study]), y)
    upper = np.triu(signs)
    return upper - upper.T


def _standard_errors(z: Array, residuals: Array, member: Array) -> Array:
    """Return the standard errors of the weights of centred columns float64[P, m], clustered by study."""
    (n, m), s = z.shape, member.shape[1]
    by_study = member.T @ (z * residuals[:, None])
    inverse = np.linalg.inv(z.T @ z)
    factor = s / (s - 1) * (n - 1) / (n - m - 1)
    return np.sqrt(factor * np.diag(inverse @ (by_study.T @ by_study) @ inverse))


def _columns(names: Sequence[str], metrics: Sequence[str] | None, where: str) -> dict[str, str]:
    """Return the column of each metric, among the `names` of columns; by default of all metrics that have one.

    `where` names the table in messages.
    """
    metric_of = {METRICS[name].column: name for name in COMPOSABLE if METRICS[name].column}
    metric_of |= {name: name for name in COMPOSABLE}
    metric_of |= {alias: name for alias, name in ALIASES.items() if name in COMPOSABLE}
    wanted = [name for name in names if name in metric_of] if metrics is None else list(metrics)
    foreign = [name for name in wanted if name not in metric_of]
    columns = {metric_of[name]: name for name in wanted if name in metric_of}
    if foreign or not wanted or len(columns) < len(wanted):
        got = "none"
        if foreign:
            got = shown(foreign[0])
        elif wanted:
            metrics_of_wanted = [metric_of[name] for name in wanted]
            got = f"{shown(next(m for m in metrics_of_wanted if metrics_of_wanted.count(m) > 1))} twice"
        raise InputError(
            "metrics",
            f"must be columns called {', '.join(COMPOSABLE)}, each once",
            f"{got} for {where}",
            f"Columns: {shown(*names)}.",
        )
    # A metric may be asked for by one name and have another name in the file.
    in_file = {metric_of[name]: name for name in names if name in metric_of}
    return {metric: column if column in names else in_file.get(metric, column) for metric, column in columns.items()}


def _check_columns(observed: _Observed) -> None:
    """Raise InputError unless the scores determine the weights of a composite that predicts the errors."""
    x, y, studies, columns, where = observed.x, observed.errors, observed.studies, [*observed.columns], observed.where
    if len(set(studies)) < 2:
        raise InputError(
            "pairs",
            "must be of at least two studies, because each is left out once",
            f"{len(set(studies))} in {where}",
            "Add pairs, or name the right column with `study`.",
        )
    if len(y) <= x.shape[1] + 1:
        raise InputError(
            "pairs",
            f"must be more than the metrics and the intercept, {x.shape[1] + 1}",
            f"{len(y)} in {where}",
            "Add pairs, or fit fewer metrics.",
        )
    constant = [column for column, values in zip([*columns, "errors"], [*x.T, y], strict=True) if not varies(values)]
    if constant:
        raise InputError(
            "columns",
            "must vary between pairs",
            f"one value in {', '.join(map(repr, constant))} of {where}",
            "Leave these columns out.",
        )
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    if np.linalg.matrix_rank(standardised) < x.shape[1]:
        raise InputError(
            f"the metrics {', '.join(columns)} in {where} are linearly dependent, so that their weights are not "
            "determined.",
            "Leave out one of them.",
        )
