"""The source of entities: terms found in each report, with types and vectors, as RaTEScore reads them."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.containers import in_memory
from metric_oracle.corpora.entities import TYPES, EntityTable
from metric_oracle.corpora.tables import Table, canonical_ids, check_unique, read_table
from metric_oracle.sources.contract import Attachment, Source

_COLUMNS = ("types", "vectors")


def as_entities(file_or_data: Any) -> EntityTable:
    """Return the entities of reports from a table in a file (Parquet, JSON, JSON Lines) or in memory.

    The table has two columns of lists: ``types``, of `TYPES` in upper or lower case, and ``vectors``, one for each
    type. A report without entities has empty lists. A table without ids has one row per report, in their order. Raise
    InputError for anything else.
    """
    if isinstance(file_or_data, EntityTable):
        return file_or_data
    if isinstance(file_or_data, str | Path):
        table: Table | None = read_table(Path(file_or_data))
    else:
        table, _ = in_memory(file_or_data)
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
        ids = canonical_ids(id_cells, f"the ids of {table.path}")
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


def flat_lists(table: Table, column_name: str, depth: int) -> list[Any]:
    """Return, in one list, the lengths of a column's nested lists, an array for each of `depth` levels, and the values.

    The values are the innermost ones of all cells. Raise ValueError, or an error of Arrow, if a cell is no such list.
    """
    column = table.columns[table.names.index(column_name)]
    levels: list[Any] = []
    if isinstance(column, pa.ChunkedArray):  # Arrow, without an object for each number
        import pyarrow.compute as pc

        inner = column.combine_chunks()
        for _ in range(depth):
            if inner.null_count:
                raise ValueError
            levels.append(pc.list_value_length(inner).to_numpy())
            inner = inner.flatten()
        return [*levels, inner.to_pylist() if depth == 1 else inner.to_numpy(zero_copy_only=False)]
    cells = column.to_list()
    for _ in range(depth):
        if any(isinstance(cell, str) or not isinstance(cell, Iterable) for cell in cells):
            raise ValueError
        levels.append(np.array([len(cell) for cell in cells], np.int64))
        cells = [item for cell in cells for item in cell]
    return [*levels, cells]


def _parquet_bytes(output: Any, ids: Sequence[str]) -> bytes:
    """Return the content of a Parquet file with lists of the words, types and vectors of each report's entities."""
    import pyarrow.parquet as pq

    # One list for each distinct report, taken by row.
    ptr, width = pa.array(output.table.ptr), output.table.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(output.table.vectors.reshape(-1)), width)
    columns = {
        "entities": pa.array(output.words, pa.string()),
        "types": pa.array([TYPES[kind] for kind in output.table.kinds], pa.string()),
        "vectors": vectors.cast(pa.list_(pa.float32())),
    }
    lists = {name: pa.LargeListArray.from_arrays(ptr, values) for name, values in columns.items()}
    of_row = pa.array(output.of_row)
    table = pa.table(
        {"study_id": pa.array(list(ids), pa.string()), **{n: values.take(of_row) for n, values in lists.items()}}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


class EntitySource(Source):
    """Entities with vectors, from tables, or found by the model RaTE-NER and encoded by an encoder.

    The output of `run` is a `Recognised` of `encoders.ratescore`.
    """

    endings: ClassVar[Mapping[str, Callable[[Any, Sequence[str]], bytes]]] = {".parquet": _parquet_bytes}

    def read(self, file_or_data: Any, data_ids: Any) -> EntityTable:
        """Return the entities, see `as_entities`; `data_ids` is not used."""
        return as_entities(file_or_data)

    def values_of(self, table: Any, settings: Mapping[str, Any]) -> EntityTable:
        """Return the table unchanged."""
        return table

    def is_model(self, file_or_model: Any) -> bool:
        """Return whether it is the path of a folder, that of RaTE-NER."""
        return isinstance(file_or_model, str | Path) and Path(file_or_model).is_dir()

    def open(self, model_path: Any, model_options: Mapping[str, Any]) -> Any:
        """Open RaTE-NER in its folder; `model_options` may have `entity_encoder`, a path, and `device`."""
        from metric_oracle.encoders.ratescore import EntityModels

        device = model_options.get("device") or "auto"
        return EntityModels(model_path, encoder=model_options.get("entity_encoder"), device=device)

    def call(self, model: Any, texts: Sequence[str], **keywords: Any) -> Any:
        """Return the entities of texts and their vectors; see the class."""
        return model.recognise(texts, **keywords)

    def cut_off(self, output: Any, n_texts: int) -> str:
        """Return a line about the texts or words that were cut off, "" for none."""
        return output.cut_off() if output.n_truncated else ""

    def attachment(
        self, output: Any, n_texts: int, settings: Mapping[str, Any], signature: Mapping[str, Any]
    ) -> Attachment:
        """Return the entities, a list for each distinct text."""
        return Attachment(output.table, output.of_row, made_by=signature)

    def answer(self, output: Any) -> Any:
        """Return the types and vectors of the entities of each text, as a table without ids."""
        return output.by_position()

    def restore(
        self, representation: Any, document_of_row: np.ndarray, manifest_entry: Mapping[str, Any], index: Any
    ) -> Attachment:
        """Return the list of entities of each document, and which document each row of the index has."""
        return Attachment(representation.table(), document_of_row, made_by=manifest_entry.get("encoder", {}))
