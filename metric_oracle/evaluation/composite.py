"""Fit a composite as Yu et al. fitted RadCliQ: standardised metrics, linear regression on the number of errors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.tables import Table, existing_file, is_missing, read_table, shown_names
from metric_oracle.errors import BackendError, InputError
from metric_oracle.indexes.manifest import sha256
from metric_oracle.metrics import ALIASES, COMPOSABLE
from metric_oracle.retrieval.composite.weights import FORMAT, VERSION
from metric_oracle.retrieval.results import check_out, replacing


@dataclass(frozen=True)
class Composite:
    """A fitted composite.

    Attributes
    ----------
    content : dict
        What :meth:`write` writes: format, version, name, direction, terms, intercept, statistics of the fit, source.
    """

    content: dict[str, Any]

    def write(self, path: str | Path) -> None:
        """Write the weights file (.json) that ``retrieve --metric composite --weights`` reads; beside and renamed."""
        path = Path(path)
        check_out(path, function="fit_composite", endings=(".json",))
        with replacing("fit_composite", path) as (beside,):
            beside.write_text(json.dumps(self.content, indent=2) + "\n", encoding="utf-8")


def fit_composite(
    table: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    errors: str = "errors",
    study: str = "study_id",
    name: str | None = None,
) -> Composite:
    """Fit a composite to a table of scored pairs of reports.

    Each metric is standardised with its mean and population standard deviation over the pairs, and a linear regression
    predicts the number of errors; lower is better. Other columns of the table are not looked at.

    Parameters
    ----------
    table : path
        CSV, TSV, Parquet, JSON or JSON Lines; a row a pair, a column for each metric, the errors and the study.
    metrics : sequence of str
        Columns, called as in the registry; by default all columns that have such a name.
    errors, study : str
        Columns with the number of errors (of the raters' mean, say) and with the study that a pair belongs to.
    name : str
        Of the composite; by default that of the file.

    Returns
    -------
    Composite
        ``content["fit"]`` has the numbers of ``pairs`` and ``studies``, ``r2`` and ``tau_b`` (Kendall) on these pairs,
        and ``tau_b_leave_one_study_out``, of predictions for each study by a fit without it, all pairs together.

    Raises
    ------
    InputError
        If a cell is no finite number, a column is constant, columns depend on one another, there are not more pairs
        than metrics, or there is but one study.
    """
    try:
        from sklearn.linear_model import LinearRegression
        from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        msg = (
            "fit_composite: scikit-learn must be installed; got no module sklearn. "
            'Install the extra: pip install "metric-oracle[stats]".'
        )
        raise BackendError(msg) from error
    path = existing_file(Path(table), "fit_composite", "table")
    read = read_table(path, "fit_composite")
    columns = _columns(read, metrics, path)
    studies = [
        _text(cell, place, path) for place, cell in enumerate(read.column(study, "fit_composite", "study"), start=1)
    ]
    x = np.stack([_numbers(read, column, path) for column in columns.values()], axis=1)
    y = _numbers(read, errors, path)
    _check(x, y, studies, list(columns), path)

    model = make_pipeline(StandardScaler(), LinearRegression())
    held_out = cross_val_predict(model, x, y, groups=studies, cv=LeaveOneGroupOut())
    model.fit(x, y)
    scaler, regression = model[0], model[-1]
    numbers = zip(columns, scaler.mean_.tolist(), scaler.scale_.tolist(), regression.coef_.tolist(), strict=True)
    return Composite(
        {
            "format": FORMAT,
            "version": VERSION,
            "name": name or path.stem,
            "direction": "lower",
            "terms": {metric: {"mean": m, "scale": s, "weight": w} for metric, m, s, w in numbers},
            "intercept": float(regression.intercept_),
            "fit": {
                "pairs": len(y),
                "studies": len(set(studies)),
                "r2": float(model.score(x, y)),
                "tau_b": _tau(model.predict(x), y),
                "tau_b_leave_one_study_out": _tau(held_out, y),
            },
            "source": {
                "table": path.name,
                "sha256": sha256(path),
                "errors": errors,
                "study": study,
                "fitted_by": f"metric-oracle {version('metric-oracle')}",
            },
        }
    )


def _tau(predicted: np.ndarray, errors: np.ndarray) -> float | None:
    """Return Kendall's tau-b; None where all predictions are equal."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(predicted, errors).statistic)
    return None if np.isnan(tau) else tau


def _columns(table: Table, metrics: Sequence[str] | None, path: Path) -> dict[str, str]:
    """Return the columns of scores: metric -> column."""
    known = {**{name: name for name in COMPOSABLE}, **{a: name for a, name in ALIASES.items() if name in COMPOSABLE}}
    chosen = [name for name in table.names if name in known] if metrics is None else list(metrics)
    foreign = [name for name in chosen if name not in known]
    columns = {known[name]: name for name in chosen if name in known}
    if foreign or not chosen or len(columns) < len(chosen):
        got = repr(foreign[0]) if foreign else "none" if not chosen else "one twice"
        msg = (
            f"fit_composite: metrics must be columns called {', '.join(COMPOSABLE)}, each once; got {got} for {path}. "
            f"Columns: {shown_names(table.names)}."
        )
        raise InputError(msg)
    return columns


def _text(cell: object, row: int, path: Path) -> str:
    if is_missing(cell) or not str(cell).strip():
        msg = f"fit_composite: study must be given in every row; got none in row {row} of {path}. Complete it."
        raise InputError(msg)
    return str(cell).strip()


def _numbers(table: Table, column: str, path: Path) -> np.ndarray:
    """Return the cells of a column as float64[n]."""
    values = []
    for row, cell in enumerate(table.column(column, "fit_composite", "column"), start=1):
        try:
            value = float(cell)
        except (TypeError, ValueError):
            value = np.nan
        if not np.isfinite(value):
            msg = (
                f"fit_composite: column {column!r} must hold a finite number in every row; got none in row {row} of "
                f"{path}. Leave out pairs without a score."
            )
            raise InputError(msg)
        values.append(value)
    return np.array(values, np.float64)


def _check(x: np.ndarray, y: np.ndarray, studies: list[str], columns: list[str], path: Path) -> None:
    """Raise unless the pairs determine a composite."""
    if len(set(studies)) < 2:
        msg = (
            f"fit_composite: pairs must be of two studies at least, as each is left out once; got {len(set(studies))} "
            f"in {path}. Add pairs, or name the right column with --study."
        )
        raise InputError(msg)
    if len(y) <= x.shape[1] + 1:
        msg = (
            f"fit_composite: pairs must be more than the metrics and the intercept, {x.shape[1] + 1}; got {len(y)} in "
            f"{path}. Add pairs, or fit fewer metrics."
        )
        raise InputError(msg)
    constant = [column for column, values in zip([*columns, "errors"], [*x.T, y], strict=True) if np.ptp(values) == 0.0]
    if constant:
        msg = (
            f"fit_composite: columns must vary between pairs; got one value in {', '.join(map(repr, constant))} of "
            f"{path}. Leave it out."
        )
        raise InputError(msg)
    standardised = (x - x.mean(axis=0)) / x.std(axis=0)
    if np.linalg.matrix_rank(standardised) < x.shape[1]:
        msg = (
            f"fit_composite: no metric may follow from the others; got {', '.join(columns)} in {path}, of which one "
            "does: its weight could be anything. Fit without it."
        )
        raise InputError(msg)
