"""Reports that are read piece by piece: Parquet, CSV and JSON Lines, by the rules that hold for whole files."""

import csv
import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from pyarrow import parquet

from metric_oracle.corpora.reports import Reports, check_section, sort_out, state_of, table_source
from metric_oracle.corpora.tables import (
    ENDINGS,
    Table,
    file_ending,
    read_csv,
    read_json_lines,
    shown_names,
    whole_parquet,
)
from metric_oracle.errors import InputError

AT_ONCE = 1 << 16  # rows of a piece


def can_stream(path: Path) -> bool:
    """Tell whether a file can be read piece by piece: not one whose images are sorted into studies first."""
    kind = ENDINGS.get(file_ending(path))
    if not path.is_file() or kind in (None, "JSON") or (kind == "Parquet" and path.suffix.lower() == ".gz"):
        return False
    table = next(_pieces(path, "read_reports"), None)
    return table is not None and "path_to_image" not in table.names


def n_rows(path: Path) -> int | None:
    """Return how many rows a file says that it has; None where only reading tells."""
    return parquet.read_metadata(str(path)).num_rows if ENDINGS[file_ending(path)] == "Parquet" else None


def stream_reports(
    path: Path, n: int, *, section: str = "impression", id_column: str | None = None, text_column: str | None = None,
    keep_empty: bool = False,
) -> Iterator[Reports]:  # fmt: skip
    """Yield the reports of a file, `n` at a time, fewer at the end; options as those of `read_reports`.

    Rows of one id are images of one study and carry one text: the first one counts where they lie less than `n` reports
    apart. No two runs of reports share an id then, unless the file is in disorder, which `indexes.shards` sees.
    """
    check_section(section, "read_reports")
    before: dict[str, str | None] = {}
    reports: dict[str, str | None] = {}
    n_rows = n_kept = 0
    source: Any = None

    def run() -> Reports:
        counts = {"rows": n_rows, "duplicate": n_rows - len(reports)}
        said = (source.section, "column" if source.section else "")
        return sort_out(reports, source.what, counts, path, "read_reports", keep_empty=keep_empty, section=said)

    for table in _pieces(path, "read_reports"):
        source = table_source(table, section, id_column, text_column)
        for study, text in zip(source.ids, source.texts(range(len(source.ids))), strict=True):
            earlier = reports if study in reports else before
            if study in earlier:
                if earlier[study] != text:
                    msg = (
                        "read_reports: rows with one id must carry one text; got several texts in "
                        f"{path}: {shown_names([study])}. Keep one row each."
                    )
                    raise InputError(msg)
                n_rows += 1
                continue
            is_kept = text is not None and (keep_empty or not state_of(text))
            if is_kept and n_kept == n:
                yield run()
                before, reports, n_rows, n_kept = reports, {}, 0, 0
            reports[study] = text
            n_rows += 1
            n_kept += is_kept
    if source is None:
        msg = f"read_reports: path must hold at least one report to keep; got none in {path}. Check the file."
        raise InputError(msg)
    yield run()


def _pieces(path: Path, function: str) -> Iterator[Table]:
    kind = ENDINGS[file_ending(path)]
    if kind == "Parquet":
        yield from _parquet(path, function)
        return
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        newline = "\n" if kind == "JSON Lines" else ""  # a lone carriage return ends a row of CSV only
        with opened(path, "rt", encoding="utf-8-sig", newline=newline) as file:
            yield from (_json_lines if kind == "JSON Lines" else _csv)(file, path, kind, function)
    except UnicodeDecodeError:
        msg = f"{function}: path must be in UTF-8 to be read piece by piece; got other bytes in {path}. Convert it."
        raise InputError(msg) from None
    except (EOFError, gzip.BadGzipFile) as error:
        msg = f"{function}: path must be a whole gzip file; got a damaged or cut one, {path}. Fetch it again."
        raise InputError(msg) from error


def _parquet(path: Path, function: str) -> Iterator[Table]:
    with whole_parquet(path, function):
        for batch in parquet.ParquetFile(str(path)).iter_batches(AT_ONCE):
            batch.validate(full=True)
            yield Table(path, "Parquet", batch.schema.names, batch.columns, batch.num_rows)


def _csv(file: IO[str], path: Path, kind: str, function: str) -> Iterator[Table]:
    """Cut a file between rows, which Python's reader finds; what they hold is read as that of a whole file."""
    lines: list[str] = []

    def recorded() -> Iterator[str]:
        for line in file:
            lines.append(line)
            yield line

    rows = csv.reader(recorded(), delimiter="\t" if kind == "TSV" else ",")
    first, header = 1, ""
    try:
        while not header.strip("\r\n"):
            if next(rows, None) is None:
                return
            header = "".join(lines)
            lines.clear()
        header = header.lstrip("\r\n").rstrip("\r\n") + "\n"
        while some := sum(1 for _ in islice(rows, AT_ONCE)):
            where = f"{path} (rows {first:,} to {first + some - 1:,} below the header)"
            yield read_csv(where, kind, header + "".join(lines), "", function)
            lines.clear()
            first += some
    except csv.Error:
        msg = (
            f"{function}: every row of {path} must parse; got one that does not after row {first:,}. Close its quotes."
        )
        raise InputError(msg) from None


def _json_lines(file: IO[str], path: Path, kind: str, function: str) -> Iterator[Table]:
    first = 1
    while lines := list(islice(file, AT_ONCE)):
        where = f"{path} (from line {first:,})"
        yield read_json_lines(where, "".join(lines), "", function)
        first += len(lines)
