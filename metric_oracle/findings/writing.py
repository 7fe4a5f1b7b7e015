"""Writing the numbers of a result: a table with its signature, as Parquet, CSV or JSON Lines."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from metric_oracle.base.argument_checks import check_new_folder
from metric_oracle.base.checksum import has_signature_file, is_ours, replacing_signed, signature_path, write_parquet
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import without_nan
from metric_oracle.base.option_types import RESULTS
from metric_oracle.indexes.manifest import check_name, check_outside


def check_out(
    path: Path, inputs: Sequence[str | Path | None] = (), *, argument: str = "out", endings: Sequence[str] = RESULTS
) -> None:
    """Raise InputError, before any work, unless a result can be written to `path`, which may have one of the endings.

    `path` may be a file that metric-oracle wrote, but none of `inputs`, all arguments of the command, of which those
    that are not files are ignored. The signature file of an input must not be overwritten either, nor an input by the
    signature file of the result. `argument` is the option that `path` was given by.
    """
    if path.suffix.lower() not in endings:
        named = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        step = "Name one of these formats" if len(endings) > 1 else "Name such a file"
        raise InputError(argument, f"must end with {named}", shown(path), f"{step}.")
    if not path.parent.is_dir():
        raise InputError(argument, "must be in an existing folder", shown(path), "Make the folder first.")
    check_outside(path, argument)
    if path.is_dir():
        raise InputError(argument, "must be a file", f"the folder {path}", "Name a file in it.")
    for out in [path, signature_path(path)] if has_signature_file(path) else [path]:
        for file in [Path(file) for file in inputs if file]:
            # "." and "/" have no name, so they have no signature file.
            if _is_same(out, file) or (file.name and _is_same(out, signature_path(file))):
                raise InputError(
                    argument,
                    "must be another file than the inputs",
                    f"{path}, which is one{'' if out == path else f' by its signature file {out}'}",
                    "Name another file.",
                )
        if out.is_symlink() or (out.exists() and not out.is_file()):
            raise InputError(
                argument, "must be a new name or a regular file", f"{out}, a link, pipe or device", "Name another file."
            )
    if path.exists() and not is_ours(path):
        raise InputError(
            argument,
            "must be a new name, or a file that metric-oracle wrote",
            f"{path}, another file",
            "Name another file, or move this one.",
        )


def check_folder(out: Path) -> None:
    """Raise InputError unless a new folder can be made at `out`. It is called before the work begins."""
    check_name(out, "out")
    check_outside(out, "out")
    check_new_folder("out", out)
    if not out.parent.is_dir():
        raise InputError("out", "must be in an existing folder", shown(out), "Make the folder first.")


def _is_same(first: Path, second: Path) -> bool:
    """Return whether two paths lead to the same existing file or folder."""
    return os.path.exists(first) and os.path.exists(second) and os.path.samefile(first, second)


def write_numbers(path: Path, table: pa.Table, signature: dict[str, Any]) -> None:
    """Write a table and its signature by the ending of `path`; raise InputError for what `check_out` refuses."""
    check_out(path)
    table, ending = without_nan(table), path.suffix.lower()
    if ending == ".parquet":
        write_parquet(path, table, signature)
        return
    with replacing_signed(path, signature) as temporary, temporary.open("wb") as file:
        if ending == ".csv":
            from pyarrow import csv

            csv.write_csv(table, file)
        else:
            file.writelines(f"{line}\n".encode() for line in json_lines(table))


def json_lines(table: pa.Table) -> Iterator[str]:
    """Yield one line of JSON per row of a table."""
    for batch in without_nan(table).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield json.dumps(row, ensure_ascii=False)


def csv_text(table: pa.Table) -> str:
    """Return a table as CSV with a header."""
    from pyarrow import csv

    buffer = pa.BufferOutputStream()
    csv.write_csv(without_nan(table), buffer)
    return buffer.getvalue().to_pybytes().decode("utf-8", "surrogateescape")
