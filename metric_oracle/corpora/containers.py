"""Reports in memory: Arrow tables, Polars and pandas frames, datasets, dicts and lists.

A container is recognised by its attributes, so that no library is imported for it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from metric_oracle.corpora.tables import Table, table_of_objects
from metric_oracle.errors import InputError


def in_memory(data: Any) -> tuple[Table | None, list[Any] | None]:
    """Return a container as a table if it has columns or ids, else None and the list of its texts.

    Parameters
    ----------
    data : Arrow table, Polars or pandas frame, Hugging Face dataset; dict id -> text or id -> record; list of records;
        or any iterable of texts: a list, a column, an array
    """
    type_name = f"{type(data).__module__.partition('.')[0]}.{type(data).__qualname__}".removeprefix("builtins.")
    where = f"the {type_name} in memory"
    if isinstance(data, Mapping):
        table = table_of_objects(where, type_name, dict(data))
        if table is not None:
            return table, None
    elif hasattr(data, "iloc"):  # pandas
        if not hasattr(data, "columns"):
            return None, data.tolist()
        names = [str(name) for name in data.columns]
        columns: list[Any] = [data.iloc[:, i].tolist() for i in range(len(names))]
        return Table(where, type_name, names, columns, len(data)), None
    elif hasattr(data, "features") and hasattr(
        data, "with_format"
    ):  # datasets; through Arrow, which respects a selection
        return _of_arrow(pa.table(data.with_format("arrow")[:]), where, type_name), None
    elif hasattr(data, "columns") and any(hasattr(data, f"__arrow_c_{protocol}__") for protocol in ("stream", "array")):
        return _of_arrow(pa.table(data), where, type_name), None
    elif hasattr(data, "to_pylist") or hasattr(data, "tolist") or hasattr(data, "to_list"):  # columns, arrays
        cells = next(getattr(data, name)() for name in ("to_pylist", "to_list", "tolist") if hasattr(data, name))
        if isinstance(cells, list):
            return None, cells
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        items = list(data)
        if any(isinstance(item, Mapping) for item in items):
            table = table_of_objects(where, type_name, items)
            if table is not None:
                return table, None
        else:
            return None, items
    raise InputError(
        argument="reports",
        rule="must be a path, texts, a dict of id -> text, a table or a dataset",
        value=f"{type_name} of another layout" if isinstance(data, Iterable) else type_name,
        step="Make a list or a table of it.",
    )


def _of_arrow(table: pa.Table, where: str, type_name: str) -> Table:
    """Return an Arrow table as a `Table`; `where` and `type_name` describe it in messages."""
    return Table(where, type_name, table.column_names, table.columns, table.num_rows)
