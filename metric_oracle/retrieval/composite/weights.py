"""The file of a composite: which metrics, how they are standardised, their weights. JSON, read without trust."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metric_oracle.corpora.tables import existing_file
from metric_oracle.errors import InputError
from metric_oracle.metrics import COMPOSITE, Metric, composite, get_metric

FORMAT, VERSION = "metric-oracle composite", 1


def weighed(metric: str | Metric, weights: str | Path | None) -> Metric:
    """Return the record that a search asks for by name, or by the weights file of a composite."""
    if weights is None:
        return get_metric(metric)
    if metric != COMPOSITE:
        msg = f"retrieve: weights must be left out for metric {metric!r}; got {weights}. Pass --metric {COMPOSITE}."
        raise InputError(msg)
    return read_weights(weights)


def read_weights(path: str | Path, function: str = "retrieve") -> Metric:
    """Read the weights of a composite; its record names the file by its hash.

    Parameters
    ----------
    path : path
        JSON with ``format``, ``version``, ``name``, ``direction`` "lower", ``terms`` (metric -> ``mean``, ``scale``,
        ``weight``) and ``intercept``; what else there is, such as the statistics of the fit, is for people.
    function : str
        Name for error messages.

    Raises
    ------
    InputError
        If the file is no such JSON, of another version, or its terms are none that a composite can have.
    """
    path = existing_file(Path(path), function, "weights")
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
        known = content["format"] == FORMAT
        version, direction, name = content["version"], content["direction"], content["name"]
    except (ValueError, TypeError, KeyError, RecursionError):
        known = False
    if not known or not isinstance(name, str) or not name.isprintable():  # half of a surrogate pair is not
        msg = (
            f"{function}: weights must be a JSON file that fit-composite writes, of format {FORMAT!r}; got another in "
            f'{path}. Fit one with "oracle fit-composite".'
        )
        raise InputError(msg)
    if version != VERSION:
        msg = f"{function}: the version of weights must be {VERSION}; got {version!r} in {path}. Fit them again."
        raise InputError(msg)
    if direction != "lower":
        msg = (
            f"{function}: the direction of weights must be 'lower', as composites predict errors; got {direction!r} in "
            f"{path}. Turn the signs of the weights and of the intercept."
        )
        raise InputError(msg)
    checksum = hashlib.sha256(raw).hexdigest()
    return record_of(content, f"{name}, weights file sha256 {checksum}", function, f"weights:{checksum[:8]}")


def record_of(content: Any, source: str, function: str, tool: str = "") -> Metric:
    """Return the record of a composite from its terms and intercept, as a weights file or a signature has them."""
    terms: dict[str, tuple[float, float, float]] = {}
    try:
        for part, numbers in content["terms"].items():
            terms[part] = _number(numbers["mean"]), _number(numbers["scale"]), _number(numbers["weight"])
        intercept = _number(content["intercept"])
    except (TypeError, KeyError, AttributeError, OverflowError):
        msg = (
            f"{function}: weights must have terms with a mean, a scale and a weight each, and an intercept, all "
            'numbers; got others. Fit them again with "oracle fit-composite".'
        )
        raise InputError(msg) from None
    return composite(COMPOSITE, terms, intercept, source, function, tool=tool)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def metric_of(signature: Mapping[str, Any], function: str) -> str | Metric:
    """Return the metric of a result: the name, or the record where the weights are those of a file."""
    name = str(signature.get("metric"))
    if name != COMPOSITE:
        return name
    return record_of(signature.get("options"), str(signature.get("source")), function, str(signature.get("tool") or ""))
