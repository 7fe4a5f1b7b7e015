"""Reports in memory: Arrow tables, Polars and pandas frames, datasets, dicts and lists.

A container is recognised by its attributes, so that no library is imported for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import (
    AS_LIST,
    NO_ROW_STEP,
    Table,
    are_places,
    cells_of,
    of_arrow,
    series_of,
    table_of_objects,
)
from metric_oracle.corpora.usual_names import IDS, bare_name

_FILE_NAME = re.compile(
    r"\S*[^\s.]\.(?:csv|tsv|parquet|jsonl?|ndjson|xlsx?|txt|tok|npz|npy|pkl|zip)(?:\.gz)?", re.IGNORECASE
)
_SET_ITERATOR: type = type(iter(set()))


def in_memory(data: Any) -> tuple[Table | None, list[Any] | None]:
    """Return (table, None) for a container with columns or ids, and (None, texts) for one of texts alone.

    A container is an Arrow table, Polars or pandas frame, or Hugging Face dataset; a dict id -> text, id -> row or
    name of a column -> cells; a list of rows; a pandas Series; or any iterable of texts in an order: a list, a
    column, an array. Anything else raises InputError.
    """
    if isinstance(data, Table):
        return data, None
    type_name = f"{type(data).__module__.partition('.')[0]}.{type(data).__qualname__}".removeprefix("builtins.")
    where = f"the {type_name} in memory"
    if isinstance(data, Mapping):
        if not data:
            raise InputError(f"there is no row in {where}.", NO_ROW_STEP)
        table = table_of_objects(where, type_name, dict(data))
        if table is not None:
            return table, None
    elif hasattr(data, "iloc"):
        return _of_pandas(data, where, type_name)
    elif hasattr(data, "features") and hasattr(data, "with_format"):
        # A dataset: through Arrow, which respects a selection.
        arrow = pa.table(data.with_format("arrow")[:])
        return Table(where, type_name, arrow.column_names, of_arrow(arrow)), None
    elif hasattr(data, "columns") and any(hasattr(data, f"__arrow_c_{protocol}__") for protocol in ("stream", "array")):
        arrow = pa.table(data)
        return Table(where, type_name, arrow.column_names, of_arrow(arrow)), None
    elif any(hasattr(data, name) for name in AS_LIST):  # columns, arrays
        cells = cells_of(data)
        if cells is not None:
            return None, cells
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        items = list(in_order(data))
        if any(isinstance(item, Mapping) for item in items):
            table = table_of_objects(where, type_name, items)
            if table is not None:
                return table, None
        else:
            _refuse_files(items)
            return None, items
    raise InputError(
        "reports",
        "must be a path, texts, a dict of id -> text, a table or a dataset",
        f"{type_name} of another layout" if isinstance(data, Iterable) else type_name,
        "Make a list or a table of it.",
    )


def _refuse_files(items: list[Any]) -> None:
    """Raise InputError for a list of paths, or of nothing but names of files, which are no reports."""
    names = [str(item) for item in items if isinstance(item, str | PurePath)]
    if any(isinstance(item, PurePath) for item in items) or (
        len(names) == len(items) and names and all(map(_FILE_NAME.fullmatch, names))
    ):
        raise InputError(
            "reports",
            "must be one file, or texts",
            f"a list of {len(items)} names of files, such as {shown(names[0])}",
            "Join the files into one table, or read their texts first.",
        )


def in_order(data: Any) -> Any:
    """Return a container as it is, an iterator as a list; raise InputError for a set or an iterator over one."""
    if _is_unordered(data):
        raise InputError(
            "reports", "must be in an order", f"a {type(data).__name__}", "Pass a list, or a dict of id -> text."
        )
    return list(data) if isinstance(data, Iterator) else data


def _is_unordered(data: Any) -> bool:
    """Return whether a container is a set, or an iterator over one: its order changes from run to run."""
    if isinstance(data, map | filter):
        return any(map(_is_unordered, data.__reduce__()[1][1:]))
    return isinstance(data, Set) or type(data) is _SET_ITERATOR


def _of_pandas(data: Any, where: str, type_name: str) -> tuple[Table | None, list[Any] | None]:
    """Return a pandas frame or Series as `in_memory` does; an index that is not 0, 1, ... has ids.

    Its cells are taken one by one: Arrow refuses a column of several types, which may be one that nobody asks for.
    """
    index = data.index.tolist()
    has_ids = not are_places(index)
    if not hasattr(data, "columns"):
        texts = data.tolist()
        if not has_ids:
            return None, texts
        return Table(where, type_name, ["text"], [series_of("text", texts)], series_of("index", index)), None
    names = [str(name) for name in data.columns]
    columns = [series_of(name, data.iloc[:, i].tolist()) for i, name in enumerate(names)]
    keys = series_of(str(data.index.name or "index"), index) if has_ids else None
    if keys is not None and bare_name(keys.name) in IDS and keys.name not in names:  # as after `reset_index`
        names, columns, keys = [*names, keys.name], [*columns, keys], None
    return Table(where, type_name, names, columns, keys), None
