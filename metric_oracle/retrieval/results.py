"""The answer of a search: fixed columns, the signature, and the files it goes to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from metric_oracle.errors import InputError

FIXED = ("query_id", "rank", "row", "candidate_id", "score")
AFTER = ("n_ties", "fallback", "exact")
SIGNATURE = b"metric_oracle.signature"


def check_out(path: Path) -> None:
    """Raise unless a result can be written there, before the work is done."""
    if path.suffix.lower() not in (".parquet", ".csv", ".jsonl"):
        msg = f"retrieve: out must end with .parquet, .csv or .jsonl; got {path}. Name one of these formats."
        raise InputError(msg)
    if not path.parent.is_dir():
        msg = f"retrieve: out must be in an existing folder; got {path}. Make the folder first."
        raise InputError(msg)


@dataclass(frozen=True)
class Results:
    """Ranked candidates of every query.

    Attributes
    ----------
    table : pyarrow.Table
        Columns query_id, rank (from 1), row, candidate_id, score, the components of the metric, n_ties (corpus rows with
        that very score), fallback, exact, and text unless switched off.
    signature : dict
        What is needed to compute the same numbers again.
    """

    table: pa.Table
    signature: dict[str, Any]

    @property
    def components(self) -> list[str]:
        """Names of the component columns."""
        return [name for name in self.table.column_names if name not in (*FIXED, *AFTER, "text")]

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON Lines by the ending of `path`; the signature goes into the file's metadata.

        CSV has no metadata: its signature lies beside it as ``<path>.signature.json``. JSON Lines begins with a record
        ``{"signature": {...}}``.
        """
        path = Path(path)
        check_out(path)
        writer = {".parquet": self._parquet, ".csv": self._csv, ".jsonl": self._jsonl}[path.suffix.lower()]
        beside = path.with_name(path.name + ".tmp")
        try:
            writer(beside)
            if path.suffix.lower() == ".csv":
                text = json.dumps(self.signature, indent=2) + "\n"
                path.with_name(path.name + ".signature.json").write_text(text, encoding="utf-8")
            beside.replace(path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            msg = (
                f"retrieve: out must be a place with room to write; got {path} ({error.strerror or error}). "
                "Name another file."
            )
            raise InputError(msg) from error

    def _parquet(self, path: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(self.table.replace_schema_metadata({SIGNATURE: json.dumps(self.signature)}), path)

    def _csv(self, path: Path) -> None:
        from pyarrow import csv

        csv.write_csv(self.table, path)

    def _jsonl(self, path: Path) -> None:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in self.json_lines())

    def json_lines(self):
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

            table = parquet.read_table(path)
            signature = json.loads((table.schema.metadata or {})[SIGNATURE])
        elif path.suffix.lower() == ".csv":
            from pyarrow import csv

            strings = {name: pa.string() for name in ("query_id", "candidate_id", "text")}
            options = csv.ConvertOptions(column_types=strings, strings_can_be_null=False)
            table = csv.read_csv(path, csv.ReadOptions(), csv.ParseOptions(newlines_in_values=True), options)
            signature = json.loads(path.with_name(path.name + ".signature.json").read_text(encoding="utf-8"))
        else:
            records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            signature = records[0]["signature"]
            table = pa.Table.from_pylist(records[1:])
        missing = {*FIXED, *AFTER} - set(table.column_names)
        if missing or not isinstance(signature, dict):
            raise KeyError(*missing)
    except (OSError, ValueError, KeyError, IndexError, TypeError, pa.ArrowException) as error:
        msg = (
            f"verify: results must be a file that retrieve --out wrote, with its signature; got {path} "
            f"({type(error).__name__}). Write it again."
        )
        raise InputError(msg) from error
    return Results(table, signature)
