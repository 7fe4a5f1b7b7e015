"""Large files of reports (Parquet, CSV, JSON Lines), read in pieces by the same rules as whole files."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from metric_oracle.base.checksum import record_of
from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.kept_columns import check_kept, values_of_ids
from metric_oracle.corpora.read import DEFAULT, Read
from metric_oracle.corpora.reports import Reports, sort_out, table_source, with_columns
from metric_oracle.corpora.tables import (
    ENDINGS,
    Table,
    of_arrow,
    read_csv,
    read_json_lines,
    table_kind,
    whole_parquet,
)
from metric_oracle.corpora.text_files import (
    HEAD,
    above_header,
    check_characters,
    checked_encoding,
    checked_separator,
    csv_body,
    encoding_note,
    file_ending,
    is_packed,
    opened,
    stream_encoding,
    wrong_encoding,
)
from metric_oracle.corpora.texts import state_of

# Fields of `Read` that reports in pieces may have; the profile is that of folders.
STREAMED = ("section", "id_column", "text_column", "profile", "keep_empty", "encoding", "separator")
AT_ONCE = 1 << 16  # rows per piece
LONGEST = 1 << 26  # characters in a cell, at most


def can_stream(path: Path, read: Read = DEFAULT) -> bool:
    """Return whether a file is Parquet, CSV, TSV or JSON Lines and can be read in pieces.

    CheXpert Plus cannot, because its images are sorted into studies, nor a Parquet file that this package wrote,
    because its checksum is that of the whole.
    """
    kind = ENDINGS.get(file_ending(path))
    if not path.is_file() or kind in (None, "JSON", "Excel") or (kind == "Parquet" and is_packed(path)):
        return False
    if kind == "JSON Lines" and _head(path, stream_encoding(path, read.encoding)).lstrip().startswith("["):
        return False  # one JSON array
    if kind == "Parquet":
        from pyarrow import parquet

        with whole_parquet(path):
            if record_of(parquet.read_schema(str(path))) is not None:
                return False  # one that we wrote, whose checksum is that of the whole table
    table = next(_tables_of_file(path, read), None)
    return table is not None and "path_to_image" not in table.names


def n_rows(path: Path) -> int | None:
    """Return the number of rows in the metadata of a Parquet file; None for other files."""
    from pyarrow import parquet

    return parquet.read_metadata(str(path)).num_rows if ENDINGS[file_ending(path)] == "Parquet" else None


def stream_reports(
    path: Path, per_piece: int, read: Read = DEFAULT, *, keep: str | Sequence[str] = ()
) -> Iterator[Reports]:
    """Yield the reports of a file in pieces; each but the last keeps `per_piece`. Of `read`, `STREAMED` counts.

    Rows with the same id are images of one study and must have the same text; only the first is kept. Such rows must
    lie less than `per_piece` reports apart. `indexes.shards` raises if two pieces share an id.
    """
    before: dict[str, str | None] = {}
    reports: dict[str, str | None] = {}
    columns: dict[str, dict[str, str]] = {}
    names = check_kept(keep)
    n_rows = n_kept = 0
    source: Any = None
    known_section: Any = None
    note = ""

    def piece() -> Reports:
        """Return the rows read so far as Reports."""
        counts = {"rows": n_rows, "duplicate": n_rows - len(reports)}
        what = ", ".join(filter(None, [source.what, note]))
        piece_reports = sort_out(reports, what, counts, path, keep_empty=read.keep_empty, section=known_section)
        return with_columns(piece_reports, columns)

    for table in _tables_of_file(path, read):
        if not table.names:  # lines without content
            continue
        source = table_source(table, read.section, read.id_column, read.text_column, names)
        for name in names:
            # Of the ids of the last piece, whose reports may go on in this one.
            of_piece = {study: value for study, value in columns.get(name, {}).items() if study in reports}
            ids, values = [*of_piece, *source.ids], [*of_piece.values(), *source.kept_columns[name]]
            columns[name] = values_of_ids(name, ids, values, path)
        texts, section, note = source.cut(range(len(source.ids)))
        if known_section not in (None, section):
            raise InputError(
                f"{path} has parts with the headings Findings: and Impression:, and others without.",
                "Leave `shard_rows` out, so that it is read at once.",
            )
        known_section = section
        for study, text in zip(source.ids, texts, strict=True):
            earlier = reports if study in reports else before
            if study in earlier:
                if earlier[study] != text:
                    raise InputError(
                        f"{path} has one id with several texts: {shown(study)}.", "Keep one row for each id."
                    )
                n_rows += 1
                continue
            state = state_of(text)
            is_kept = not state or (read.keep_empty and state != "missing")
            if is_kept and n_kept == per_piece:
                yield piece()
                before, reports, n_rows, n_kept = reports, {}, 0, 0
            reports[study] = text
            n_rows += 1
            n_kept += is_kept
    if source is None:
        raise InputError(f"{path} holds no report.", "Check the file.")
    yield piece()


def _tables_of_file(path: Path, read: Read) -> Iterator[Table]:
    """Yield a file as tables of consecutive rows."""
    kind = table_kind(path, encoding=read.encoding, separator=read.separator)
    if kind == "Parquet":
        yield from _parquet_tables(path)
        return
    requested = checked_encoding(read.encoding)
    name = ""
    try:
        name = stream_encoding(path, read.encoding)
        # A lone carriage return ends a row of CSV only.
        with io.TextIOWrapper(opened(path), name, newline="\n" if kind == "JSON Lines" else "") as file:
            lines = _checked_lines(file, requested, path)
            if kind == "JSON Lines":
                yield from _json_lines_tables(lines, path, encoding_note(name))
            else:
                head = _head(path, name)
                n_above, _, above = above_header(head)
                delimiter = csv_body(head, kind, checked_separator(read.separator))[1]
                note = ", ".join(filter(None, [encoding_note(name), above]))
                below = islice(dropwhile(_is_blank, lines), n_above, None)
                yield from _csv_tables(below, path, kind, note, delimiter)
    except UnicodeError:
        raise wrong_encoding(name, path) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: it is damaged or cut short.", "Fetch it again.") from error


def _checked_lines(file: IO[str], requested: str | None, path: Path) -> Iterator[str]:
    """Yield the lines of a text file after `check_characters`, to which `requested` and `path` are given."""
    for number, line in enumerate(file, start=1):
        check_characters(line, requested, path, number)
        yield line


def _is_blank(line: str) -> bool:
    """Return whether a line has no character."""
    return not line.strip("\r\n")


def _head(path: Path, encoding: str) -> str:
    """Return the first characters of a file, which contain the header."""
    with io.TextIOWrapper(opened(path), encoding, newline="") as file:
        return file.read(HEAD)


def _parquet_tables(path: Path) -> Iterator[Table]:
    """Yield a Parquet file as tables of consecutive rows."""
    from pyarrow import parquet

    with whole_parquet(path):
        for batch in parquet.ParquetFile(str(path)).iter_batches(AT_ONCE):
            batch.validate(full=True)
            yield Table(path, "Parquet", batch.schema.names, of_arrow(pa.Table.from_batches([batch])))


def _csv_tables(lines: Iterable[str], path: Path, kind: str, note: str, delimiter: str) -> Iterator[Table]:
    """Yield the lines of a CSV or TSV file as tables of consecutive rows, parsed as if the file was read at once."""
    lines_read: list[str] = []

    def remembered() -> Iterator[str]:
        """Yield the lines, and append each to `lines_read`."""
        for line in lines:
            lines_read.append(line)
            yield line

    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    rows = csv.reader(remembered(), delimiter=delimiter)
    first, header = 1, ""
    try:
        while not header.strip("\r\n"):
            if next(rows, None) is None:
                return
            header = "".join(lines_read)
            lines_read.clear()
        header = header.lstrip("\r\n").rstrip("\r\n") + "\n"
        while n := sum(1 for _ in islice(rows, AT_ONCE)):
            where = f"{path} (rows {first:,} to {first + n - 1:,} below the header)"
            yield read_csv(where, kind, header + "".join(lines_read), note, delimiter)
            lines_read.clear()
            first += n
    except csv.Error:
        raise InputError(
            f"{path} has a row that cannot be parsed: row {first:,} below the header, or a later one.",
            "Close its quotes.",
        ) from None


def _json_lines_tables(lines: Iterator[str], path: Path, note: str) -> Iterator[Table]:
    """Yield the lines of a JSON Lines file as tables of consecutive rows."""
    first = 1
    while piece := list(islice(lines, AT_ONCE)):
        where = f"{path} (from line {first:,})"
        yield read_json_lines(where, "".join(piece), note)
        first += len(piece)
