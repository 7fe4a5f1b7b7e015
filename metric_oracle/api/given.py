"""Helpers for the arguments of public functions: reports in any container or prepared folder, and their options."""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from metric_oracle.arguments import check_left_out
from metric_oracle.corpora.kept import check_kept
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import Reports, as_reports
from metric_oracle.errors import InputError, in_terms_of_caller, option
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.ngrams import n_wordless
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.shards import ShardSet, is_set, not_one_index, open_index
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

# Reports in any form: a file or folder, a prepared folder, `Reports`, a list, dict, Arrow table, frame or dataset.
Given: TypeAlias = Any

# Options for reading reports; see `corpora.reports.read_reports`.
READING = (
    "section",
    "id_column",
    "text_column",
    "split",
    "split_file",
    "profile",
    "keep_empty",
    "encoding",
    "separator",
    "keep",
)
# Options of the models, how uncertain labels count, and the function that gets notes.
MODELS = ("radgraph_encoder", "vocabulary", "entity_encoder", "device", "uncertain", "tell")


def given_of(arguments: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return those arguments, by name, that are not None: of `names`, or of all if that is None."""
    return {
        name: arguments[name] for name in (arguments if names is None else names) if arguments.get(name) is not None
    }


def names_of(metrics: str | Sequence[str] | None) -> list[str] | None:
    """Return a list of metric names from a name, several names separated by commas, or a sequence; None from None."""
    if metrics is None:
        return None
    return [name.strip() for name in metrics.split(",")] if isinstance(metrics, str) else list(metrics)


def say(line: str, tell: Callable[[str], None] | None) -> None:
    """Pass a note to `tell`; without it, issue a UserWarning that points at the call of the public function."""
    line = in_terms_of_caller(line)
    if tell is not None:
        tell(line)
        return
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("metric_oracle", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(line, stacklevel=depth)


def say_wordless(
    metrics: Iterable[Metric], sides: Mapping[str, Sequence[str]], tell: Callable[[str], None] | None
) -> None:
    """Tell how many texts have no word under those metrics that read letters and digits; nothing if there is none.

    `sides` has the texts of each side by its noun in the message.
    """
    names = [metric.name for metric in metrics if "words" in metric.representations]
    for noun, texts in sides.items() if names else ():
        n = n_wordless(texts)
        if n:
            shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
            say(
                f"{n:,} of {len(texts):,} {noun} have no word under {shown}: only the letters a to z and digits count, "
                "so they score 0 and tie",
                tell,
            )


def opened(index: str | Path | Index) -> Index:
    """Return an index: the argument itself if it is open, else the index opened from the path."""
    return index if isinstance(index, Index) else open_index(index)


def is_prepared(value: Any) -> bool:
    """Return whether a value is the path of a folder with an index or shard set, as `build_index` writes it."""
    return isinstance(value, str | Path) and (is_set(Path(value)) or (Path(value) / manifest.NAME).is_file())


def section_of(*others: Any) -> str | None:
    """Return the section of the first of `others` (index, prepared folder or result) that has one, else None."""
    for other in others:
        if is_prepared(other):
            other = open_index(other)
        section = other.section[0] if isinstance(other, Index) else getattr(other, "signature", {}).get("section")
        if isinstance(section, str):
            return section
    return None


def reports_of(
    data: Given,
    reading: Mapping[str, Any],
    *,
    predictions: bool = False,
    keep_empty: bool = False,
    default_section: str | None = None,
) -> tuple[Reports, Inputs | None]:
    """Return reports, and for a prepared folder, an index or Inputs the inputs that are stored in it, else None.

    `reading` has the options of the reader. Empty reports are kept of predictions, and of others with `keep_empty`.
    `default_section` is the section of the reports that they are compared with, which is the default of `section`.
    """
    prepared = data if isinstance(data, Inputs) else None
    source = ""
    if isinstance(data, ShardSet) or (isinstance(data, str | Path) and is_set(Path(data))):
        raise not_one_index(data.folder if isinstance(data, ShardSet) else Path(data))
    if isinstance(data, Index) or (isinstance(data, str | Path) and (Path(data) / manifest.NAME).is_file()):
        index = opened(data)
        prepared = prepared_inputs(index)
        source = f"prepared set {index.folder.name}: {index.content['source']}"
    if prepared is None and predictions:
        return as_predictions(data, wanted=default_section, **reading), None
    if prepared is None:
        is_default = default_section is not None and "section" not in reading and not isinstance(data, Reports)
        if is_default:
            reading = {"section": default_section, **reading}
        if keep_empty and not isinstance(data, Reports):
            reading = {**reading, "keep_empty": True}
        read = as_reports(data, **reading)
        # What the others have does not tell the section of texts whose column does not.
        return replace(read, section=None, section_by="") if is_default and read.section_by == "caller" else read, None
    usual = {"profile": "yu2023", "seed": 0}
    chosen = {name: value for name, value in reading.items() if value not in (False, usual.get(name))}
    check_left_out(chosen, "for a prepared set", allowed=("keep",))
    prepared = replace(prepared, columns=_kept(prepared, reading.get("keep") or ()))
    counts = {"rows": len(prepared.ids), "kept": len(prepared.ids)}
    states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
    return Reports(list(prepared.ids), list(prepared.texts), source, counts, states, *prepared.section), prepared


def _kept(prepared: Inputs, names: str | Sequence[str]) -> dict[str, Sequence[str]]:
    """Return those columns of a prepared folder that `names` asks for, by default all; raise InputError for another."""
    wanted = check_kept(names) or tuple(prepared.columns)
    for name in wanted:
        if name not in prepared.columns:
            raise InputError(
                f"the prepared reports have no column {name!r}.",
                f"Build them again with {option('keep', name)}; they have {', '.join(prepared.columns) or 'none'}.",
            )
    return {name: prepared.columns[name] for name in wanted}
