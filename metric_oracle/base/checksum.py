"""Checksums of the files that one command writes and another reads: damage is an error, not a wrong number.

A file has its checksum in one of three places: a signature file beside it (``NAME.signature.json``), the metadata of
Parquet, or a field of a JSON object. `corpora.text_files.existing_file`, which every reader of a user's file calls,
checks the first, `corpora.tables` the second, `read_sealed` the third. A file without a checksum is one that a user or
another program wrote, and is read as it is.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import (
    checksum,
    json_text,
    new_file,
    only_writer,
    replacing,
    sha256,
    sync,
    write_bytes,
    writing,
)

# Fields that only signatures in files have. `NEXT` exists between the renames of a write: the signature to come.
TABLE, SIGNATURE, NEXT = "table_sha256", "signature_sha256", "replaced_by"
METADATA = b"metric_oracle.signature"  # key of the signature in Parquet
# What files that we wrote without a signature file beside them have in them; text files in their last line.
_LAST = {".md": b"<!-- signature: {", ".tex": b"% signature: {"}
_MARKS = {
    ".parquet": METADATA,
    ".html": b'<meta name="generator" content="metric-oracle">',
    ".json": b'"format": "metric-oracle ',
    ".pdf": b"/Creator (metric-oracle)",
    ".png": b"Software\0metric-oracle",
    ".svg": b"<dc:title>metric-oracle</dc:title>",
    **_LAST,
}
PIECE = 1 << 26  # bytes that are hashed before `release` is called


# Signatures


def seal(signature: Mapping[str, Any], table: str | None = None) -> dict[str, Any]:
    """Return a signature with the SHA-256 of its table, `table`, unless that is None, and with its own."""
    record = {**signature} if table is None else {**signature, TABLE: table}
    return {**record, SIGNATURE: _own(record)}


def opened(record: Any, table: str = "") -> dict[str, Any] | None:
    """Return the signature in `record`, without checksums, or None if it has none for a table of the SHA-256 `table`.

    A signature file may hold two: the record itself, and the one that is about to replace it. Files of version 0.1
    have no checksums, and those of 0.2 none of the signature; these are accepted unchecked.
    """
    if not isinstance(record, dict):
        return None
    following = None
    with suppress(ValueError, TypeError):
        following = json.loads(record.get(NEXT, "null"))
    for known in (record, following):
        if (
            isinstance(known, dict)
            and known.get(TABLE, table) == table
            and known.get(SIGNATURE, "") in ("", _own(known))
        ):
            return {name: value for name, value in known.items() if name not in (TABLE, SIGNATURE, NEXT)}
    return None


def _own(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a signature as it reads after a round trip through JSON, without its own and `NEXT`."""
    kept = {name: value for name, value in record.items() if name not in (SIGNATURE, NEXT)}
    return checksum(json.loads(json.dumps(kept)))


# Beside a file


def signature_path(path: Path) -> Path:
    """Return the path of the signature file that belongs to the file `path`."""
    return path.with_name(path.name + ".signature.json")


def read_signature(path: Path) -> dict[str, Any]:
    """Return the content of the signature file `path`; raise ValueError or OSError if it is not one."""
    if not path.is_file():  # also for a pipe, from which reading might never end
        raise FileNotFoundError
    signature = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(signature, dict):
        raise ValueError
    return signature


def check_unaltered(path: Path) -> None:
    """Raise InputError if the signature file beside `path`, if there is one, has the checksum of another content."""
    if not path.name or not os.path.isfile(beside := signature_path(path)):
        return
    try:
        record: Any = read_signature(beside)
    except ValueError:
        record = None
    if record is None or opened(record, sha256(path)) is None:
        raise InputError(
            f"{path} was changed after it was written: its checksum is not the one in {beside.name}.",
            f"Write it again, or delete {beside} to read it as a file of your own.",
        )


def sign(path: Path, signature: Mapping[str, Any]) -> None:
    """Write the signature file of a finished file `path`, in a folder that nobody else sees yet."""
    write_bytes(signature_path(path), json_text(seal(signature, sha256(path))).encode())


@contextmanager
def replacing_signed(path: Path, signature: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of a temporary file; at the end, it replaces `path`, together with its signature file.

    Raise InputError if the system cannot write them.

    Two files cannot be renamed at once. Therefore the old signature, with the new one in it, is renamed first, the
    table second and the new signature last: an interruption leaves a table with its signature. Other writers of the
    same name wait meanwhile, so that table and signature are of one of them.
    """
    beside = signature_path(path)
    with writing(path, beside), new_file(path) as temporary:
        yield temporary
        with only_writer(path), new_file(beside) as first, new_file(beside) as last:
            record = seal(signature, sha256(temporary))
            last.write_text(json_text(record), encoding="utf-8")
            replaced = None
            if path.is_file():
                with suppress(OSError, ValueError):
                    replaced = opened(read_signature(beside), sha256(path))
            if replaced is not None:
                both = {**seal(replaced, sha256(path)), NEXT: json.dumps(record)}
                first.write_text(json_text(both), encoding="utf-8")
            for file in (temporary, first, last):
                sync(file)
            if replaced is not None:
                first.replace(beside)
            elif not path.exists():
                last.replace(beside)  # without a table, it says nothing
            temporary.replace(path)
            if last.exists():
                last.replace(beside)
            sync(path.parent)


# In a JSON object


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum; old content stays until the new one is complete."""
    write_bytes(path, json_text(seal(content)).encode())


def read_sealed(path: Path, step: str) -> dict[str, Any]:
    """Return a JSON object that `write_sealed` wrote; raise InputError with the next step `step` if missing or changed.

    Those of earlier versions have no checksum, and are returned as they are.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InputError(f"{path} is missing or not readable.", step)
    content = opened(record)
    if content is None:
        raise InputError(f"{path} was changed after it was written.", step)
    return content


# In Parquet


def write_parquet(path: Path, table: Any, signature: Mapping[str, Any]) -> None:
    """Write an Arrow table with its signature and checksums as a Parquet file, whole or not at all."""
    from pyarrow import parquet

    described = table.replace_schema_metadata({METADATA: json.dumps(seal(signature, hash_table(table)))})
    with replacing(path) as temporary, temporary.open("wb") as file:
        parquet.write_table(described, file, write_page_checksum=True)


def record_of(schema: Any) -> Any:
    """Return the signature in the metadata of an Arrow schema; None if it has none, or one that cannot be read."""
    with suppress(ValueError, RecursionError):
        return json.loads((schema.metadata or {}).get(METADATA, b"null"))
    return None


def hash_parquet(file: Any, table: Any) -> str:
    """Return the checksum of an open Parquet file, whose content is `table`: of the table, or of its row groups'.

    It is of the row groups where the file was written one by one.
    """
    record = record_of(file.schema_arrow)
    if isinstance(record, dict) and "row_groups" in record:
        return checksum([hash_table(file.read_row_group(number)) for number in range(file.num_row_groups)])
    return hash_table(table)


def hash_table(table: Any) -> str:
    """Return a SHA-256, in hexadecimal, of an Arrow table: names, types, nulls and values, but not its layout."""
    import pyarrow as pa

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
        hasher.update(hash_strings(column.cast(pa.large_string())) if is_text else column.to_numpy().tobytes())
    return hasher.hexdigest()


def hash_strings(strings: Any, release: Callable[[], object] = bool) -> bytes:
    """Return two SHA-256 digests, 64 bytes, of a chunked array of large strings: of their lengths and of their content.

    They do not depend on the chunks. `release` is called after each piece of the content.
    """
    lengths, contents = hashlib.sha256(), hashlib.sha256()
    for chunk in strings.chunks:
        ptr, flat = string_parts(chunk)
        lengths.update((ptr[1:] - ptr[:-1]).data)
        for first in range(0, len(flat), PIECE):
            contents.update(flat[first : first + PIECE].data)
            release()
    return lengths.digest() + contents.digest()


def string_parts(strings: Any) -> tuple[Any, Any]:
    """Return the offsets, int64[n + 1] from 0, and the bytes, uint8[...], of an array of large strings."""
    import numpy as np

    if not len(strings):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, content = strings.buffers()
    ptr = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    flat = np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(0, np.uint8)
    return ptr - ptr[0] if ptr[0] else ptr, flat[ptr[0] : ptr[-1]]


# Files of ours


def has_signature_file(path: Path) -> bool:
    """Return whether a file of this ending is written with a signature file beside it, not with a mark in itself."""
    return path.suffix.lower() not in _MARKS


def is_ours(path: Path) -> bool:
    """Return whether metric-oracle wrote an existing file: it has a signature file, or the mark of its kind."""
    ending = path.suffix.lower()
    if os.path.isfile(signature_path(path)):
        return True
    if ending not in _MARKS:
        return False
    content = path.read_bytes()
    if ending in _LAST:
        content = content.rstrip().rpartition(b"\n")[2]
    return _MARKS[ending] in content
