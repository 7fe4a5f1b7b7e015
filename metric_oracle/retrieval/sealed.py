"""Checksums of a result file's table and signature, so that a damaged file is an error and not a wrong number."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from metric_oracle.files import checksum
from metric_oracle.indexes.store import Strings, hash_strings

# Fields that only signatures in files have. `REPLACES` exists between the two renames of a write: the old signature.
TABLE, SIGNATURE, REPLACES = "table_sha256", "signature_sha256", "replaces"

# Types of the fields that other modules read, also within the entry of one metric. A field may be absent or None.
_TYPES: dict[str, type] = {
    **dict.fromkeys(("metric", "baseline", "index", "direction", "references", "version", "system", "kind"), str),
    **dict.fromkeys(("options", "representation", "metrics", "stages", "left_out", "noted", "averaged", "pool"), dict),
    **dict.fromkeys(("environment", "part", "histogram", "closest_call"), dict),
    **dict.fromkeys(("draws", "seed", "distinct_texts"), int),
    "foreign": list,
}
_OF_DICTS = ("metrics", "representation")  # dicts of dicts
_OF_NUMBERS = ("stages", "closest_call", "left_out")  # dicts of numbers


def mistyped(signature: Mapping[str, Any]) -> str | None:
    """Return the name of a field with a type that no version writes; None if all types are right."""
    for name, kind in _TYPES.items():
        value = signature.get(name)
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            return name
        inside = [*value.values()] if isinstance(value, dict) else []
        if name in _OF_DICTS and not all(isinstance(item, dict) for item in inside):
            return name
        if name == "metrics" and any(map(mistyped, inside)):  # those of a representation are its own
            return name
        if name in _OF_NUMBERS and any(isinstance(n, bool) or not isinstance(n, int | float) for n in inside):
            return name
    return None


def seal(signature: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Return a signature with the SHA-256 of its table, and of itself."""
    record = {**signature, TABLE: table}
    return {**record, SIGNATURE: _own(record)}


def opened(record: Any, table: str) -> dict[str, Any] | None:
    """Return the signature that belongs to a table with the SHA-256 `table`, or None if `record` has none for it.

    A signature file may hold two: the record itself, and the older one that it replaces. Files of version 0.1 have no
    checksums, and those of 0.2 none of the signature; these are accepted unchecked.
    """
    if not isinstance(record, dict):
        return None
    for known in (record, record.get(REPLACES)):
        if (
            isinstance(known, dict)
            and known.get(TABLE, table) == table
            and known.get(SIGNATURE, "") in ("", _own(known))
        ):
            return {name: value for name, value in known.items() if name not in (TABLE, SIGNATURE, REPLACES)}
    return None


def _own(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a signature as it reads after a round trip through JSON.

    Its own checksum and the older signature that it may hold are left out.
    """
    kept = {name: value for name, value in record.items() if name not in (SIGNATURE, REPLACES)}
    return checksum(json.loads(json.dumps(kept)))


def hash_table(table: pa.Table) -> str:
    """Return a SHA-256 of the content of a table: names, types, nulls and values, but not the layout in memory."""
    hasher = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_number = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
        type_name = "text" if is_text else str(kind) if is_number else "other"
        hasher.update(repr((name, type_name, len(column))).encode())
        if type_name == "other":
            hasher.update(repr(column.to_pylist()).encode())
            continue
        if column.null_count:
            import pyarrow.compute as pc  # takes a while to load

            hasher.update(column.is_null().to_numpy().tobytes())
            column = pc.fill_null(column, "" if is_text else pa.scalar(0).cast(kind))
        hasher.update(hash_strings(Strings(column).arrow) if is_text else column.to_numpy().tobytes())
    return hasher.hexdigest()
