"""The weights file of a composite: metrics, their means, scales and weights. JSON, checked when it is read."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.checksum import SIGNATURE, opened
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import existing_file
from metric_oracle.metrics import composite, get_metric
from metric_oracle.records import COMPOSITE, Metric

FORMAT, VERSION = "metric-oracle composite", 1


def weighed(metric: str | Metric, weights: str | Path | None) -> Metric:
    """Return a metric, or the composite in the file `weights` if that is not None.

    Raise InputError for a file with a metric other than the name of composites.
    """
    if weights is None:
        return get_metric(metric)
    if metric != COMPOSITE:
        step = f"Pass `metric={COMPOSITE!r}`."
        check_left_out({"weights": weights}, f"for metric {metric!r}", step, got=str(weights))
    return read_weights(weights)


def read_weights(path: str | Path) -> Metric:
    """Return the composite in a weights file, which it names by its hash.

    The file is JSON with ``format``, ``version``, ``name``, ``direction`` "lower", ``terms`` (metric -> ``mean``,
    ``scale``, ``weight``) and ``intercept``. Other entries, such as the statistics of the fit, are for people and are
    ignored. Raise InputError if it is not such JSON, was altered, has another version, or names terms that a composite
    cannot have.
    """
    path = existing_file(Path(path))
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
        is_known = content["format"] == FORMAT
        version, direction, name = content["version"], content["direction"], content["name"]
    except (ValueError, TypeError, KeyError, RecursionError):
        is_known = False
    if not is_known or not isinstance(name, str) or not name.isprintable():  # half of a surrogate pair is not
        raise InputError(
            "weights",
            f"must be a JSON file that `mo.fit_composite` writes, of format {FORMAT!r}",
            f"another file, {path}",
            "Fit one with `mo.fit_composite`.",
        )
    if opened(content) is None:
        raise InputError(
            f"{path} was changed after `mo.fit_composite` wrote it.",
            f"Fit it again, or delete its field {SIGNATURE!r} to use numbers of your own.",
        )
    if version != VERSION:
        raise InputError("the version of weights", f"must be {VERSION}", f"{version!r} in {path}", "Fit them again.")
    if direction != "lower":
        raise InputError(
            "the direction of weights",
            "must be 'lower', as composites predict errors",
            f"{direction!r} in {path}",
            'Change the signs of weights and intercept, and write "direction": "lower".',
        )
    checksum = hashlib.sha256(raw).hexdigest()
    return record_of(content, f"{name}, weights file sha256 {checksum}", f"weights:{checksum[:8]}")


def record_of(content: Any, citation: str, tool: str = "") -> Metric:
    """Return a composite from the terms and the intercept in `content`, of a weights file or a signature.

    `citation` and `tool` are fields of the metric. Raise InputError if they are no numbers, or terms that a composite
    cannot have.
    """
    terms: dict[str, tuple[float, float, float]] = {}
    try:
        for part, numbers in content["terms"].items():
            terms[part] = _number(numbers["mean"]), _number(numbers["scale"]), _number(numbers["weight"])
        intercept = _number(content["intercept"])
    except (TypeError, KeyError, AttributeError, OverflowError):
        raise InputError(
            "weights",
            "must have terms with a mean, a scale and a weight each, and an intercept, all numbers",
            "a file without them",
            "Fit them again with `mo.fit_composite`.",
        ) from None
    return composite(COMPOSITE, terms, intercept, citation, tool=tool)


def _number(value: Any) -> float:
    """Return an int or a float as float; raise TypeError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def metric_of(signature: Mapping[str, Any]) -> str | Metric:
    """Return the metric that a signature names: its name, or the metric if it is a composite of a weights file."""
    name = str(signature.get("metric"))
    if name != COMPOSITE:
        return name
    return record_of(signature.get("options"), str(signature.get("source")), str(signature.get("tool") or ""))
