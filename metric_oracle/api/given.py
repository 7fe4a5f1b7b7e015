"""What the public functions are given: reports in any container or prepared, and what belongs to them.

The keywords that several functions share are typed here, once; at run time the registry says which there are.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import Reports, as_reports, check_left_out
from metric_oracle.errors import InputError
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.shards import ShardSet, is_set, one_index, open_index

# A file or folder, reports that were read, a prepared set; or a list, dict, Arrow table, frame or dataset.
Given: TypeAlias = Any


class Reading(TypedDict, total=False):
    """How reports are read, see `corpora.reports.read_reports`."""

    section: str
    id_column: str | None
    text_column: str | None
    split: str | None
    split_file: str | Path | None
    profile: str
    keep_empty: bool
    encoding: str | None
    separator: str | None


READING = tuple(Reading.__annotations__)
# What models need, how labels are counted, and who is told.
MODELS = ("radgraph_encoder", "vocabulary", "entity_encoder", "device", "uncertain", "tell")


def split(given: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the keywords, or those of some names, that were given a value."""
    return {name: given[name] for name in (given if names is None else names) if given.get(name) is not None}


def names_of(metrics: str | Sequence[str] | None) -> list[str] | None:
    """Return names of metrics from one name, several with commas between, or a sequence."""
    if metrics is None:
        return None
    return [name.strip() for name in metrics.split(",")] if isinstance(metrics, str) else list(metrics)


def say(line: str, tell: Callable[[str], None] | None) -> None:
    """Tell a line; where nobody listens it is a warning, at the line of the caller that called a public function."""
    if tell is not None:
        tell(line)
        return
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("metric_oracle", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(line, stacklevel=depth)


def opened(index: str | Path | Index) -> Index:
    """Return an index that is open, or open it."""
    return index if isinstance(index, Index) else open_index(index)


def is_prepared(given: Any) -> bool:
    """Tell a folder that `build_index` wrote, an index or a shard set, from anything else."""
    return isinstance(given, str | Path) and (is_set(Path(given)) or (Path(given) / manifest.NAME).is_file())


def section_of(*others: Any) -> str | None:
    """Return the section of the first that says its own: indexes, folders of prepared reports, results."""
    for one in others:
        if is_prepared(one):
            one = open_index(one)
        found = one.section[0] if isinstance(one, Index) else getattr(one, "signature", {}).get("section")
        if isinstance(found, str):
            return found
    return None


def reports_of(
    given: Given,
    function: str,
    reading: Mapping[str, Any],
    *,
    predictions: bool = False,
    keep_empty: bool = False,
    like: str | None = None,
) -> tuple[Reports, Inputs | None]:
    """Return reports, and of a prepared set what is stored for them.

    Parameters
    ----------
    given : anything that holds reports
    function : str
        The public function, for error lines.
    reading : mapping
        Options of the reader.
    predictions : bool
        Whether a model wrote them: empty ones count.
    keep_empty : bool
        Whether those of others count that are read here.
    like : str or None
        The section of what they are compared with: the default of `section`.
    """
    prepared = given if isinstance(given, Inputs) else None
    source = ""
    if isinstance(given, ShardSet) or (isinstance(given, str | Path) and is_set(Path(given))):
        msg = one_index(given.folder if isinstance(given, ShardSet) else Path(given), function)
        raise InputError(msg)
    if isinstance(given, Index) or (isinstance(given, str | Path) and (Path(given) / manifest.NAME).is_file()):
        index = opened(given)
        prepared = prepared_inputs(index)
        source = f"prepared set {index.folder.name}: {index.content['source']}"
    if prepared is None:
        if like is not None and not isinstance(given, Reports):
            reading = {"section": like, **reading}
        if keep_empty and not isinstance(given, Reports):
            reading = {**reading, "keep_empty": True}
        read: Callable[..., Reports] = as_predictions if predictions else as_reports
        return read(given, function=function, **reading), None
    usual = {"profile": "yu2023", "seed": 0}
    foreign = [name for name, value in reading.items() if value not in (None, False, usual.get(name))]
    check_left_out(foreign, (), function, "a prepared set")
    counts = {"rows": len(prepared.ids), "kept": len(prepared.ids)}
    states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
    return Reports(list(prepared.ids), list(prepared.texts), source, counts, states, *prepared.section), prepared
