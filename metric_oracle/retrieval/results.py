"""The answer of a search: fixed columns, the signature, and the files it goes to."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from metric_oracle.errors import InputError

FIXED = ("query_id", "rank", "row", "candidate_id", "score")
AFTER = ("n_ties", "fallback", "exact")
SIGNATURE = b"metric_oracle.signature"
# Types of the columns as read back; CSV does not say them.
_KINDS = {
    "query_id": pa.large_string(),
    "rank": pa.int64(),
    "row": pa.int64(),
    "candidate_id": pa.large_string(),
    "score": pa.float64(),
    "n_ties": pa.int64(),
    "fallback": pa.bool_(),
    "exact": pa.bool_(),
}


def check_out(
    path: Path,
    inputs: Sequence[Path] = (),
    *,
    function: str = "retrieve",
    endings: Sequence[str] = (".parquet", ".csv", ".jsonl"),
    argument: str = "out",
) -> None:
    """Raise unless a result can be written there without harm to the `inputs`, before the work is done."""
    if path.suffix.lower() not in endings:
        shown = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        msg = f"{function}: {argument} must end with {shown}; got {path}. Name one of these formats."
        raise InputError(msg)
    if not path.parent.is_dir():
        msg = f"{function}: {argument} must be in an existing folder; got {path}. Make the folder first."
        raise InputError(msg)
    if path.is_dir():
        msg = f"{function}: {argument} must be a file; got the folder {path}. Name a file in it."
        raise InputError(msg)
    for given in inputs:
        if path.exists() and given.exists() and path.samefile(given):
            msg = (
                f"{function}: {argument} must be another file than the inputs; got {path}, which is one. "
                "Name another file."
            )
            raise InputError(msg)


@dataclass(frozen=True)
class Results:
    """Ranked candidates of every query.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id, rank (from 1), row, candidate_id, score, the components of the metric, n_ties (corpus rows
        with that very score), fallback, exact, and text unless switched off.
    signature : dict
        What is needed to compute the same numbers again.
    """

    table: pa.Table
    signature: dict[str, Any]

    @property
    def components(self) -> list[str]:
        """Names of the component columns."""
        return [name for name in self.table.column_names if name not in (*FIXED, *AFTER, "text")]

    def write(self, path: str | Path, *, function: str = "retrieve") -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`; the signature goes into the file's metadata.

        CSV has no metadata: its signature lies beside it as ``<path>.signature.json``. JSON Lines begins with a record
        ``{"signature": {...}}``.
        """
        path = Path(path)
        check_out(path, function=function)
        writer = {".parquet": self._parquet, ".csv": self._csv, ".jsonl": self._jsonl}[path.suffix.lower()]
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        signature = path.with_name(path.name + ".signature.json")
        signature_beside = beside.with_name(beside.name + ".signature")
        try:
            with beside.open("wb") as file:
                writer(file)
            if path.suffix.lower() == ".csv":
                signature_beside.write_text(json.dumps(self.signature, indent=2) + "\n", encoding="utf-8")
                signature_beside.replace(signature)
            beside.replace(path)
        except OSError as error:
            msg = (
                f"{function}: out must be a place with room to write; got {path} ({error.strerror or error}). "
                "Name another file."
            )
            raise InputError(msg) from error
        finally:
            beside.unlink(missing_ok=True)
            signature_beside.unlink(missing_ok=True)

    def _parquet(self, file: BinaryIO) -> None:
        from pyarrow import parquet

        parquet.write_table(self.table.replace_schema_metadata({SIGNATURE: json.dumps(self.signature)}), file)

    def _csv(self, file: BinaryIO) -> None:
        from pyarrow import csv

        csv.write_csv(self.table, file)

    def _jsonl(self, file: BinaryIO) -> None:
        file.writelines(f"{line}\n".encode() for line in self.json_lines())

    def json_lines(self) -> Iterator[str]:
        """Yield the signature record, then one line an answer."""
        yield json.dumps({"signature": self.signature}, ensure_ascii=False)
        for batch in self.table.to_batches(max_chunksize=4096):
            for record in batch.to_pylist():
                yield json.dumps(record, ensure_ascii=False)


def read_results(path: str | Path) -> Results:
    """Read what :meth:`Results.write` wrote."""
    path = Path(path)
    if not path.is_file():
        msg = f"verify: results must be an existing file; got {path}. Write one with retrieve --out."
        raise InputError(msg)
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            with path.open("rb") as file:
                table = parquet.read_table(file)
            signature = json.loads((table.schema.metadata or {})[SIGNATURE])
        elif path.suffix.lower() == ".csv":
            from pyarrow import csv

            strings = {name: pa.string() for name in ("query_id", "candidate_id", "text")}
            options = csv.ConvertOptions(column_types=strings, strings_can_be_null=False)
            raw = path.read_bytes()
            # One block, so that no report is too long.
            reading = csv.ReadOptions(block_size=min(len(raw) + 1, 1 << 30))
            table = csv.read_csv(pa.BufferReader(raw), reading, csv.ParseOptions(newlines_in_values=True), options)
            signature = json.loads(path.with_name(path.name + ".signature.json").read_text(encoding="utf-8"))
        else:
            # Not splitlines: a JSON string may hold U+2028 as it is.
            records = [json.loads(line) for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
            signature = records[0]["signature"]
            table = pa.Table.from_pylist(records[1:])
        for name, kind in _KINDS.items():
            place = table.column_names.index(name)
            table = table.set_column(place, pa.field(name, kind), table.column(place).cast(kind))
        if any(table[name].null_count for name in _KINDS) or not isinstance(signature, dict):
            raise ValueError
    except PermissionError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        msg = (
            f"verify: results must be a file that retrieve --out wrote, with its signature; got {path} "
            f"({type(error).__name__}). Write it again."
        )
        raise InputError(msg) from error
    return Results(table, signature)
