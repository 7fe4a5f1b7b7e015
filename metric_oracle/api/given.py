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
from metric_oracle.indexes.inputs import ARGUMENTS, Inputs
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.shards import ShardSet, is_set, one_index, open_index
from metric_oracle.progress import Progress

# A file or folder, reports that were read, a prepared set; or a list, dict, Arrow table, frame or dataset.
Given: TypeAlias = Any


class Reading(TypedDict, total=False):
    """How reports are read, see :func:`metric_oracle.corpora.reports.read_reports`."""

    section: str
    id_column: str | None
    text_column: str | None
    split: str | None
    split_file: str | Path | None
    profile: str
    keep_empty: bool
    encoding: str | None
    separator: str | None


class Beside(TypedDict, total=False):
    """What is given beside reports, see :func:`metric_oracle.indexes.inputs.load_inputs`."""

    radgraph: Any
    chexbert: Any
    chexbert_ids: Any
    chexbert_labels: Any
    labels: Any
    srr_labels: Any
    entities: Any
    sentences: Any
    embeddings: Any
    embedding_ids: Any


class Models(TypedDict, total=False):
    """What models need, and how labels are counted."""

    radgraph_encoder: str | Path | None
    vocabulary: str | Path | None
    entity_encoder: str | Path | None
    device: str | None
    uncertain: str | None
    tell: Callable[[str], None]


class Loading(Reading, Beside, Models, total=False):
    """Keywords of :func:`metric_oracle.load_queries`."""

    encoder: str | Path | None


class Predicted(TypedDict, total=False):
    """The same as `Beside` of predictions."""

    predicted_radgraph: Any
    predicted_chexbert: Any
    predicted_chexbert_ids: Any
    predicted_chexbert_labels: Any
    predicted_labels: Any
    predicted_srr_labels: Any
    predicted_entities: Any
    predicted_sentences: Any
    predicted_embeddings: Any
    predicted_embedding_ids: Any


class Sides(Beside, Predicted, Models, total=False):
    """What is given beside references and predictions."""


class Compared(Reading, Sides, total=False):
    """How references are read, and what is given beside references and predictions."""


class Scoring(Compared, total=False):
    """Keywords of :func:`metric_oracle.score` beside the sides and the metrics."""

    index: str | Path | Index | None
    system: str | None
    inner: bool
    encoder: str | Path | None
    layer: int | None
    rescale_table: str | Path | None
    idf: str | Path | None
    rescale: bool | None
    text: bool
    ids: str | Path | None
    metadata: str | Path | None
    seed: int
    after_impression: bool
    predicted_id_column: str | None
    predicted_text_column: str | None
    predicted_section: str | None
    crepe: str | Path | None
    crepe_config: str | Path | None
    crepe_vocabulary: str | Path | None
    progress: Progress | None


READING = tuple(Reading.__annotations__)
MODELS = tuple(Models.__annotations__)
LOADING = (*READING, *ARGUMENTS, *MODELS, "encoder")
SIDES = (*ARGUMENTS, *(f"predicted_{name}" for name in ARGUMENTS), *MODELS)


def split(given: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the keywords, or those of some names, that were given a value."""
    return {name: given[name] for name in (given if names is None else names) if given.get(name) is not None}


def predicted(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given beside the predictions, under the names of one side."""
    return {name: given[f"predicted_{name}"] for name in ARGUMENTS if given.get(f"predicted_{name}") is not None}


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
    """Tell a folder that :func:`metric_oracle.build_index` wrote, an index or a shard set, from anything else."""
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
    given: Given, function: str, reading: Mapping[str, Any], *, predictions: bool = False, keep_empty: bool = False,
    like: str | None = None,
) -> tuple[Reports, Inputs | None]:  # fmt: skip
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
