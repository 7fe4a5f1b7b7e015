"""The source of entities: terms found in each report, with types and vectors, as RaTEScore reads them."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.entities import TYPES, EntityTable
from metric_oracle.corpora.tables import Table, canonical_ids, check_unique, read_table
from metric_oracle.errors import InputError
from metric_oracle.sources.contract import Attachment, Source

_COLUMNS = ("types", "vectors")


def as_entities(given: Any) -> EntityTable:
    """Return the entities of reports from a file or from a table in memory.

    Parameters
    ----------
    given : EntityTable, path or container
        A table (Parquet, JSON, JSON Lines) with an id and two columns of lists: ``types``, of `TYPES` in any case, and
        ``vectors``, one for each type. A report without entities has empty lists. A table without ids has one row per
        report, in their order.
    """
    if isinstance(given, EntityTable):
        return given
    if isinstance(given, str | Path):
        table: Table | None = read_table(Path(given))
    else:
        table, _ = in_memory(given)
    if table is None or not set(_COLUMNS) <= set(table.names):
        got = "a list" if table is None else f"columns {table.header}"
        raise InputError(
            "entities",
            "must have the columns types and vectors, a list each",
            f"{got} in {'memory' if table is None else table.path}",
            "Write these two columns.",
        )
    id_cells = table.id_cells()
    ids = [str(place) for place in range(table.n_rows)]
    if id_cells is not None:
        ids = canonical_ids(id_cells[0], f"the ids of {table.path}")
        check_unique(ids, f"the ids of {table.path}")
    try:
        lengths, names = flat_lists(table, "types", 1)
        of_vectors, widths, numbers = flat_lists(table, "vectors", 2)
        types, flat = [str(name).lower() for name in names], np.asarray(numbers, np.float64)
    except (ValueError, TypeError, pa.ArrowException):
        wrong = "cells that are no such lists"
    else:
        wrong = ""
        if not set(types) <= set(TYPES):
            wrong = "another type"
        elif lengths.tolist() != of_vectors.tolist():
            wrong = "another number of vectors than of types"
        elif len(set(widths.tolist())) > 1:
            wrong = "vectors of several widths"
    if wrong:
        raise InputError(
            "entities",
            f"must have types of {', '.join(TYPES)}, and a vector of one width for each",
            f"{wrong} in {table.path}",
            "Correct the file.",
        )
    kinds = np.array([TYPES.index(name) for name in types], np.uint8)
    vectors = flat.reshape(len(kinds), -1 if len(kinds) else 1).astype(np.float32)
    if not (np.isfinite(vectors).all() and vectors.any(axis=1).all()):
        raise InputError(
            "vectors of entities",
            "must be finite and other than zero",
            f"a zero vector, NaN or infinity in {table.path}",
            "Compute these vectors again, or leave their reports out.",
        )
    return EntityTable(ids, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), kinds, vectors)


def flat_lists(table: Table, name: str, depth: int) -> list[Any]:
    """Return the lengths of the nested lists of a column, level by level to `depth`, and the innermost values."""
    column = table.columns[table.names.index(name)]
    levels: list[Any] = []
    if not isinstance(column, list):  # Arrow, without an object for each number
        import pyarrow.compute as pc

        inner = column.combine_chunks()
        for _ in range(depth):
            if inner.null_count:
                raise ValueError
            levels.append(pc.list_value_length(inner).to_numpy())
            inner = inner.flatten()
        return [*levels, inner.to_pylist() if depth == 1 else inner.to_numpy(zero_copy_only=False)]
    cells: Sequence[Any] = column
    for _ in range(depth):
        if any(isinstance(cell, str) or not isinstance(cell, Iterable) for cell in cells):
            raise ValueError
        levels.append(np.array([len(cell) for cell in cells], np.int64))
        cells = [item for cell in cells for item in cell]
    return [*levels, cells]


def _parquet(made: Any, ids: Sequence[str]) -> bytes:
    """Return the content of a Parquet file with lists of the words, types and vectors of each report's entities."""
    import pyarrow.parquet as pq

    # One list for each distinct report, taken by row.
    ptr, width = pa.array(made.table.ptr), made.table.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(made.table.vectors.reshape(-1)), width)
    columns = {
        "entities": pa.array(made.words, pa.string()),
        "types": pa.array([TYPES[kind] for kind in made.table.kinds], pa.string()),
        "vectors": vectors.cast(pa.list_(pa.float32())),
    }
    lists = {name: pa.LargeListArray.from_arrays(ptr, values) for name, values in columns.items()}
    of_row = pa.array(made.of_row)
    table = pa.table(
        {"study_id": pa.array(list(ids), pa.string()), **{n: values.take(of_row) for n, values in lists.items()}}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


class EntitySource(Source):
    """Entities with vectors, from tables, or found by the model RaTE-NER and encoded by an encoder."""

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".parquet": _parquet}

    def read(self, value: Any, value_ids: Any) -> EntityTable:
        """Read entities; see `as_entities`."""
        return as_entities(value)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> EntityTable:
        """Return the table unchanged."""
        return table

    def is_model(self, value: Any) -> bool:
        """Return whether a value is the folder of the model RaTE-NER, not a table of entities."""
        return isinstance(value, str | Path) and Path(value).is_dir()

    def open(self, value: Any, files: Mapping[str, Any]) -> Any:
        """Open RaTE-NER, and the encoder of entities that the argument `entity_encoder` names."""
        from metric_oracle.encoders.ratescore import EntityModels

        device = files.get("device") or "auto"
        return EntityModels(value, encoder=files.get("entity_encoder"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> Any:
        """Return the entities of texts and their vectors, a `Recognised` of `encoders.ratescore`."""
        return model.recognise(texts, **keywords)

    def cut_off(self, made: Any, n_texts: int) -> str:
        """Return a line for the user if texts were cut off."""
        return made.cut_off() if made.n_truncated else ""

    def attachment(
        self, made: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the entities that the models found as the attachment of the texts."""
        return Attachment(made.table, made.of_row, made_by=signature)

    def answer(self, made: Any) -> Any:
        """Return the types and vectors of the entities of each text, as a table without ids."""
        return made.records()

    def restore(self, part: Any, of_row: np.ndarray, recorded: Mapping[str, Any], index: Any) -> Attachment:
        """Return the lists of entities that an index stores."""
        return Attachment(part.table(), of_row, made_by=recorded.get("encoder", {}))
