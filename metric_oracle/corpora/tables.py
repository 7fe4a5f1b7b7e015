"""Tables (CSV, TSV, Parquet, JSON, JSON Lines, Excel) as Polars columns.

CSV cells stay text; `corpora.texts` defines which are missing. An empty cell is missing, too,
except for a quoted one (``""``) in a column of reports, which is an empty report. Errors never quote a cell.

Arrow parses CSV: Polars' reader fills short rows with nulls, takes a carriage return or a quote within a cell for
damage, and shows cells in its errors. JSON is parsed by Python, which knows the place of an error and a key that occurs
twice.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from metric_oracle.base import checksum
from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import ColumnsError, InputError, described, naming_columns, read_call, shown
from metric_oracle.corpora.chats import answers_of_batch, is_chat, n_answers, without_chat
from metric_oracle.corpora.text_files import (
    checked_separator,
    csv_body,
    existing_file,
    file_ending,
    header_names,
    read_text,
    usual_quotes,
)
from metric_oracle.corpora.texts import MISSING_WORDS, is_missing
from metric_oracle.corpora.usual_names import IDS, IMAGE_IDS, TEXTS, bare_name, id_columns, is_report
from metric_oracle.corpora.workbooks import read_sheet

if TYPE_CHECKING:
    import polars as pl

ENDINGS = {
    ".csv": "CSV",
    ".tsv": "TSV",
    ".parquet": "Parquet",
    ".json": "JSON",
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".xlsx": "Excel",
}
BINARY, SEPARATED = ("Parquet", "Excel"), ("CSV", "TSV")


def text_options(path: Path) -> list[str]:
    """Return those of the options ``encoding`` and ``separator`` that apply to a file; none to a folder."""
    if not path.is_file():
        return []
    kind = ENDINGS.get(file_ending(path))
    return ["encoding"] * (kind not in BINARY) + ["separator"] * (kind in SEPARATED)


_MIMIC_ID = r"^(?:(?:.*/)?s)?(5\d{7})(?:\.0|\.txt)?$"
_NUMBER = r"^\d+(?:\.0)?$"
_FLOAT = r"^\d+\.0$|^\d(?:\.\d+)?[eE]\+?\d+$"  # a whole number as a float is written
_MOST_WHOLE = 2.0**53
_WORDS = r"[^\W\d_]\S*\s+\S*[^\W\d_]"
# What Python's `strip` removes; Polars' own leaves the separators of ASCII.
_BLANKS = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
# What is meant as a number, and may be read in two ways: "1,234", "25%".
_NEARLY_NUMBERS = (
    ("a decimal comma", r"^[+-]?[\d.]*,\d+$"),
    ("a percent sign", r"^[+-]?\d[\d.,]*\s*%$"),
    ("a number with more behind it", r"^[+-]?\d*\.?\d+\s*[/(±]"),
)
_NUMBER_STEP = "Write 0.25 for 0,25 or 25%, and empty the cells without a number."
_DICOM_ID = re.compile(r"(?:.*/)?[0-9a-f]{8}(?:-[0-9a-f]{8}){4}(?:\.\w+)*")
_CHEXPERT_PATH = re.compile(r"[^/]+/(patient\d+)/(study\d+)/.+")
_CODE_OR_WORD = re.compile(r"[\w./:+-]{0,119}\w|Unnamed: \d+")
_CODE = r"^[\w./:+-]{3,120}$"  # with a digit: an id of any form; "1", "-1" and "12" may as well be labels or counts
_SURE_NAMES = IDS | TEXTS | {"subject_id", "split"}
NO_ROW_STEP = "Check what wrote or filtered it."  # for a table without rows
_OBJECT_KEY = "object key"  # what the keys of an object are called
AS_LIST = ("to_pylist", "to_list", "tolist")  # methods of columns that return their cells
_SHOWN_NAMES = 12  # of a header, at most
_END_OF_FILE = "end-of-file"
_PLAIN = (
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null),
)


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


@dataclass(frozen=True)
class Table:
    """Columns in file order."""

    path: str | Path  # the file, or a description of the container in memory; for messages
    kind: str  # "CSV", "TSV", "Parquet", "JSON", "JSON Lines" or "Excel"; the type of a container in memory
    names: list[str]  # the header, stripped; a name may be empty or repeated, as none of a frame of Polars may be
    columns: Sequence["pl.Series | pa.ChunkedArray"]  # of each name; times and the like stay Arrow's, see `of_arrow`
    # What each row stands under: keys of a JSON object or dict, or the index of a pandas object. Its name is what they
    # are called where columns are named, and as an id column.
    keys: "pl.Series | None" = None
    note: str = ""  # a remark on how the file was read, such as "read as cp1252"
    lines: Sequence[int] | None = None  # line of each row in a JSON Lines file, from 1
    said_as: str = "mo.reports(..., mo.Read({}))"  # call that names columns, for messages

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", [str(name).strip() for name in self.names])
        is_header = self._are_headers()
        if is_header is not None:
            self._leave_out(is_header)

    def _are_headers(self) -> "pl.Series | None":
        """Return which rows repeat the header, as in files put together with theirs; None if none does.

        Raise InputError for a row that has the names of the columns in another order.
        """
        import polars as pl

        names = [name for name in self.names if name]
        is_text = all(
            isinstance(column, pl.Series) and column.dtype in (pl.String, pl.Object) for column in self.columns
        )
        if len(names) < 2 or not is_text or not any(bare_name(name) in _SURE_NAMES for name in names):
            return None

        def texts(number: int) -> pl.Series:
            """Return a column as texts without blanks around them; of a column of objects, those that are names."""
            cells = self.columns[number]
            if cells.dtype != pl.String:
                named = [cell if isinstance(cell, str) and cell.strip() in names else None for cell in cells]
                cells = pl.Series(named, dtype=pl.String)
            return cells.fill_null("").str.strip_chars(_BLANKS)

        first = next(number for number, name in enumerate(self.names) if name)
        has_names = is_header = texts(first).is_in(names)
        if not has_names.any():  # as in most tables
            return None
        for number, name in enumerate(self.names):
            cells = texts(number)
            has_names &= cells.is_in(self.names)
            is_header &= cells == name
        is_mixed = has_names & ~is_header
        if is_mixed.any():
            raise InputError(
                f"{self.path} has the names of the columns again in row {(is_mixed.arg_max() or 0) + 1}, in another "
                "order.",
                "Put the parts together by the names of their columns.",
            )
        return is_header if is_header.any() else None

    def _leave_out(self, is_header: "pl.Series") -> None:
        """Leave out the rows that repeat the header, and say so in the note."""
        keep = ~is_header
        object.__setattr__(self, "note", ", ".join(filter(None, [self.note, note_on_headers(int(is_header.sum()))])))
        object.__setattr__(self, "columns", [column.filter(keep) for column in self.columns])
        if self.keys is not None:
            object.__setattr__(self, "keys", self.keys.filter(keep))
        if self.lines is not None:
            object.__setattr__(self, "lines", [line for line, is_kept in zip(self.lines, keep, strict=True) if is_kept])

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0]) if self.columns else 0

    def column(self, name: str | int, *, is_text: bool = False) -> "pl.Series":
        """Return the column of a name, or at a number, with null for null cells, and for empty ones unless `is_text`.

        Words such as "nan" stay. Raise InputError unless exactly one column has that name.
        """
        import polars as pl

        matches = [name] if isinstance(name, int) else [n for n, other in enumerate(self.names) if other == name]
        if len(matches) != 1:
            problem = "has several columns" if matches else "has no column"
            raise InputError(f"{self.path} {problem} {shown(name)}.", f"Columns: {self.header}.")
        cells, called = self.columns[matches[0]], self.names[matches[0]]
        if isinstance(cells, pa.ChunkedArray):
            kind = cells.type
            try:
                cells = series_of(called, cells.to_pylist())
            except (pa.ArrowException, OverflowError, ValueError, LookupError):  # LookupError: unknown time zones
                raise InputError(
                    f"column {shown(called)} of {self.path} has values out of range of {kind}.",
                    "Convert the column to text.",
                ) from None
        if cells.dtype == pl.Object and not is_text:
            cells = series_of(called, [None if isinstance(cell, str) and not cell else cell for cell in cells])
        return (cells if is_text or cells.dtype != pl.String else cells.replace("", None)).alias(called)

    def place_of(self, row: int) -> str:
        """Return the place of a row, counted from 0, for a message: its line in a JSON Lines file, else its number."""
        return f"row {row + 1} of {self.path}" if self.lines is None else f"line {self.lines[row]} of {self.path}"

    def said_by(self, columns: Mapping[str, str]) -> str:
        """Return how a call says which columns have the ids and the texts: names of columns, or "NAME", by argument."""
        return f"`{self.said_as.format(naming_columns(columns))}`"

    @property
    def header(self) -> str:
        """The names of the columns for a message. Where the first row may be no header, texts in it are not shown."""
        names = [name for name in self.names if name]
        if self._lacks_header:
            listed = [shown(name) if _CODE_OR_WORD.fullmatch(name) else described(name) for name in names]
        else:
            listed = [shown(name) for name in names]
        more = f", and {len(listed) - _SHOWN_NAMES:,} more" if len(listed) > _SHOWN_NAMES else ""
        return ", ".join(listed[:_SHOWN_NAMES]) + more

    @property
    def _lacks_header(self) -> bool:
        """Return whether the names may be cells: a single one, an id like those below it, a text that is there again.

        A usual name of a column decides.
        """
        if self.kind not in (*SEPARATED, "Excel") or any(bare_name(name) in _SURE_NAMES for name in self.names):
            return False
        return len(self.names) == 1 or any(
            re.search(r"\d{5}", name) or _is_cell(name, list(map(str, cells)))
            for name, cells in zip(self.names, self.columns, strict=True)
        )

    @property
    def image_name(self) -> str | None:
        """The column of image ids, or None. R2Gen's annotation.json of MIMIC-CXR calls it `id`, next to `study_id`."""
        lower = {bare_name(name): name for name in self.names}
        is_image = {"id"} if {"id", "study_id"} <= lower.keys() else set()
        return next((lower[name] for name in (*sorted(IMAGE_IDS), *is_image) if name in lower), None)

    @property
    def has_ids(self) -> bool:
        """Return whether the rows have ids that can be found without the name of a column."""
        return self.keys is not None or bool(id_columns(self.names))

    @property
    def may_have_ids(self) -> bool:
        """Return whether a column of any name may hold ids: no float, blank or missing cell among its first 100."""
        heads = [self.column(number, is_text=True)[:100] for number in range(len(self.names))]
        return any(
            not any(is_missing(cell) or isinstance(cell, float) for cell in cells)
            and all(_CODE_OR_WORD.fullmatch(str(cell).strip()) for cell in cells)
            for cells in heads
        )

    def id_cells(self, id_column: str | None = None, *, is_optional: bool = False) -> "pl.Series | None":
        """Return the column with the ids of the rows, as they are; None if there is none.

        It is `id_column` if the caller names it. Otherwise a column with a usual name for ids of studies or of images
        comes before the keys, one of studies first, because the unit of analysis is the study; other usual ids count
        where there are no keys. Where either may be the ids, InputError is raised; with `is_optional` it says that the
        option id_column can name the column.
        """
        keys = self.keys
        if id_column is not None:
            return keys if keys is not None and id_column == keys.name else self.column(id_column)
        own = self._own_ids(is_optional)
        if keys is None:
            return own
        other = None
        if own is None and self._may_be_numbered:
            other = next(self._names_of_codes(), None)
        elif own is not None and self.has_named_keys:
            ids = canonical_ids(own, f"{shown(own.name)} in {self.path}")
            is_weak = own.name == self.image_name or (are_places(ids) and len(ids) > 1)
            other = own.name if is_weak and ids != canonical_ids(keys, f"the keys of {self.path}") else None
        if other is not None:
            raise InputError(
                f"{self.path} has ids in {shown(keys.name)} and in {shown(other)}, which differ, and either may be "
                "those of the studies.",
                f"Pass one of these names: {self.said_by({'id_column': 'NAME'})}."
                if is_optional
                else "Leave one of them out.",
            )
        return keys if own is None else own

    @property
    def _may_be_numbered(self) -> bool:
        """Return whether the keys may be numbers of rows: 0, 1, ..., n - 1, or numbers in an index without a name."""
        if self.keys is None or len(self.keys) < 2:
            return False
        return are_places(self.keys) or (self.keys.name == "index" and all(str(key).isdigit() for key in self.keys))

    def _names_of_codes(self) -> Iterator[str]:
        """Yield the columns of any name that may hold ids, by all their cells: codes with a digit, none twice."""
        for number, name in enumerate(self.names):
            if bare_name(name) not in TEXTS:
                cells = self.column(number)
                codes = written(cells)
                if (
                    not any(isinstance(cell, float | bool) for cell in cells)
                    and codes.null_count() == 0
                    and codes.n_unique() == len(codes)
                    and (codes.str.contains(_CODE) & codes.str.contains(r"\d")).all()
                ):
                    yield name

    @property
    def has_named_keys(self) -> bool:
        """Return whether the rows stand under keys that someone chose: no places, and no index without a name."""
        return self.keys is not None and self.keys.name != "index" and not are_places(self.keys)

    def _own_ids(self, is_optional: bool) -> "pl.Series | None":
        """Return the column with a usual id name, or None; raise InputError for several."""
        by_kind = id_columns(self.names, of_reports=self.keys is not None)
        if not by_kind:
            return None
        (kind, names), *_ = by_kind
        if kind == "studies" and len(names) > 1:
            names = [name for name in names if name != self.image_name]
        if len(names) > 1:
            problem = f"has several columns that can hold the ids: {shown(*names)}"
            raise columns_error(self, problem, {"id_column": "NAME"} if is_optional else {})
        return self.column(names[0])

    def others_of_words(self, id_name: str) -> list[str]:
        """Return the columns without a usual name, other than the ids, that have a cell of several words."""
        names = [name for name in dict.fromkeys(self.names) if name != id_name and is_report(name)]
        return [name for name in names if bare_name(name) not in TEXTS and self._has_words(name)]

    def _has_words(self, name: str) -> bool:
        """Return whether a cell of a column is several words, a list with such a text, or a chat."""
        import polars as pl

        cells = self.column(self.names.index(name), is_text=True)
        if cells.dtype == pl.String:
            return bool(cells.str.contains(_WORDS).any())
        if cells.dtype != pl.Object:
            return False
        if any(map(is_chat, cells)):
            return True
        lists = (cell if isinstance(cell, list | tuple) else [cell] for cell in cells)
        return any(isinstance(text, str) and re.search(_WORDS, text) is not None for cell in lists for text in cell)

    def scores(self, name: str, *, may_be_words: bool = False) -> "pl.Series | None":
        """Return a column as floats, null for a missing cell; raise InputError for a cell with anything else.

        With `may_be_words`, a column in which no cell is a number, and most do not seem to be one, is None.
        """
        cells = self.column(name)
        texts, numbers = written(cells), numbers_of(cells)
        is_other = numbers.is_null() & texts.is_not_null() & (texts != "")
        if not is_other.any():
            return numbers
        nearly = texts.str.contains("|".join(pattern for _, pattern in _NEARLY_NUMBERS)).fill_null(False)
        if may_be_words and numbers.null_count() == len(numbers) and 2 * nearly.sum() <= is_other.sum():
            return None
        row = is_other.arg_max() or 0
        raise InputError(
            f"column {shown(name)}",
            "must hold numbers such as 0.25, and nothing where there is none",
            f"{_kind_of_number(texts[row]) or 'text'} in {self.place_of(row)}",
            _NUMBER_STEP,
        )

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column as float64[n_rows]; raise InputError if a row has no finite number."""
        numbers = numbers_of(self.column(name)).to_numpy()
        is_bad = ~np.isfinite(numbers)
        if is_bad.any():
            row = int(is_bad.argmax())
            kind = _kind_of_number(written(self.column(name))[row] or "")
            raise InputError(
                f"column {shown(name)}",
                "must hold a finite number in every row",
                f"{kind or 'none'} in {self.place_of(row)}",
                _NUMBER_STEP if kind else "Complete the column, or leave the row out.",
            )
        return numbers

    def texts(self, name: str, rows: Sequence[int] | None = None) -> list[str | None]:
        """Return the texts of a column, of all rows or of some: None for missing ones, the only one for a list of one.

        Words such as "nan" stay. Raise InputError for a cell of those rows that is no text.
        """
        import polars as pl

        cells = self.column(name, is_text=True)
        if cells.dtype == pl.String:
            return (cells if rows is None else cells.gather([*rows])).to_list()
        texts = single_texts(cells.to_list(), f"column {shown(name)} of {self.path}")
        rows = range(len(texts)) if rows is None else rows
        for row in rows:
            if not isinstance(texts[row], str) and not is_missing(texts[row]):
                raise InputError(
                    f"column {shown(name)} of {self.path} has {type(texts[row]).__name__} instead of text in row "
                    f"{row + 1}.",
                    "Pass `mo.reports(..., mo.Read(text_column=NAME))`.",
                )
        return [texts[row] if isinstance(texts[row], str) else None for row in rows]


def series_of(name: str, cells: Iterable[Any]) -> "pl.Series":
    """Return cells as a column of texts, whole numbers, floats or truth values; any others stay objects of Python.

    So do cells of several of these types, as a file of JSON may have them, and text that is not valid Unicode.
    """
    import polars as pl

    cells = list(cells)
    kinds = set(map(type, cells)) - {type(None)}
    if len(kinds) > 1:
        cells = [None if not isinstance(cell, str) and is_missing(cell) else cell for cell in cells]
        kinds = set(map(type, cells)) - {type(None)}
    types = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
    kind = pl.Null if not kinds else types.get(kinds.pop(), pl.Object) if len(kinds) == 1 else pl.Object
    try:
        return pl.Series(name, cells, kind)
    except (UnicodeEncodeError, TypeError, OverflowError):  # half of a surrogate pair; a number beyond 64 bits
        return pl.Series(name, cells, pl.Object)


def of_arrow(table: pa.Table) -> list["pl.Series | pa.ChunkedArray"]:
    """Return the columns of an Arrow table: texts, numbers and truth values as Polars', all others as they are.

    Polars shows a time that it cannot hold as another one and refuses some types, which may be those of columns that
    nobody asks for.
    """
    import polars as pl

    columns: list[pl.Series | pa.ChunkedArray] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_dictionary(column.type):
            column = _of_categories(column)
        if any(is_kind(column.type) for is_kind in _BYTES):
            with suppress(pa.ArrowInvalid):  # texts of a writer that does not say so; others are no texts
                column = column.cast(pa.large_string())
        is_plain = any(is_kind(column.type) for is_kind in _PLAIN)
        columns.append(pl.Series(name, column) if is_plain else column)
    return columns


def _of_categories(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of categories as one of their values; Arrow cannot cast those of Polars."""
    kind = column.type.value_type
    if pa.types.is_string_view(kind):
        kind = pa.large_string()
    parts = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(parts, kind)


def written(cells: "pl.Series") -> "pl.Series":
    """Return cells as text without blanks around it, null for missing ones; raise InputError for half a character."""
    import polars as pl

    if cells.dtype != pl.String and not cells.dtype.is_integer():
        texts = [None if is_missing(cell) else str(cell) for cell in cells]
        try:
            cells = pl.Series(cells.name, texts, pl.String)
        except UnicodeEncodeError:
            raise InputError(
                f"column {shown(cells.name)}", "must be valid Unicode", "half of a surrogate pair", "Repair it."
            ) from None
    text = cells.cast(pl.String).str.strip_chars(_BLANKS)
    return text.set(text.is_in(list(MISSING_WORDS)), None)


def columns_error(
    table: Table, problem: str, columns: Mapping[str, str], more: str = "", *, otherwise: str = ""
) -> ColumnsError:
    """Return the error for a table whose columns must be named, or if no argument names them, renamed.

    Its sentence is the path and `problem`. `columns` are the arguments that name columns, with the likeliest name of
    each or "NAME"; `otherwise` is another way than the last of them; `more` is appended to the step.
    """
    step = "Rename one, such as study_id"
    if columns:
        step = f"Pass {table.said_by(columns)}{otherwise}"
    error = ColumnsError(f"{table.path} {problem}.", f"{step}; columns: {table.header}.{more}")
    error.path, error.columns, error.header, error.more = str(table.path), columns, table.header, more
    return error


def note_on_headers(n: int) -> str:
    """Return a note that n rows repeated the header and were left out; "" if n is 0."""
    return f"without {n:,} row{'s' * (n > 1)} that repeat{'s' * (n == 1)} the header" if n else ""


def named(id_column: str | None, text_column: str | None) -> dict[str, str]:
    """Return the arguments for the two columns with their names, without an argument whose name is None."""
    columns = {"id_column": id_column, "text_column": text_column}
    return {name: column for name, column in columns.items() if column is not None}


def likeliest(candidates: Sequence[str]) -> str:
    """Return the first candidate for a column if it can be shown, else "NAME"."""
    return candidates[0] if candidates and shown(candidates[0]) == repr(candidates[0]) else "NAME"


def no_text(table: Table, problem: str, columns: Mapping[str, str], otherwise: str = "") -> InputError:
    """Return the error for a table in which no column is clearly the reports; scores that were written have none.

    The reports of a study's oracle lie beside its scores.
    """
    import polars as pl

    heads = [table.column(number).head(100) for number, name in enumerate(table.names) if name != "query_id"]
    has_scores = 0 < len(heads) < len(table.names) and all(
        head.dtype != pl.Object and head.cast(pl.Float64, strict=False).null_count() == head.null_count()
        for head in heads
    )
    if not has_scores:
        return columns_error(table, problem, columns, otherwise=otherwise)
    path = Path(table.path)
    beside = path.with_name(f"{path.stem}-reports{path.suffix}")
    step = f"Name {beside}, which has them." if beside.is_file() else "Name the file with the reports themselves."
    return InputError(f"{table.path} has scores and no reports.", step)


def together(first: Callable[[], Any], *others: Callable[[Any], Any]) -> list[Any]:
    """Call functions that read files, and return their results; one error tells how all of them are to be read.

    The others are called with what the first returns, or with None if its columns are not known. The options of a
    command hold for the first file, which there is unless the first function returns None.
    """
    results, errors = list[Any](), dict[int, ColumnsError]()
    for place, read in enumerate((lambda _: first(), *others)):
        try:
            results.append(read(results[0] if results else None))
        except ColumnsError as error:
            errors[place] = error
        except InputError:  # after an error in columns, that one is told first
            if not errors:
                raise
    if not errors:
        return results
    place, only = next(iter(errors.items()))
    is_first = place == 0 or (place == 1 and results[0] is None)
    if not only.columns or (is_first and len(errors) == 1):
        raise only
    problems = ", and ".join(error.sentence.removesuffix(".") for error in errors.values())
    lines = "; ".join(dict.fromkeys(read_call(error.path, error.columns) for error in errors.values()))
    if len(errors) == 1:
        raise ColumnsError(f"{problems}.", f"Say how it is read: {lines}; columns: {only.header}.{only.more}")
    columns = "; ".join(f"columns of {error.path}: {error.header}" for error in errors.values())
    raise ColumnsError(f"{problems}.", f"Say how they are read: {lines}; {columns}.{only.more}")


def _is_cell(name: str, cells: Sequence[str]) -> bool:
    """Return whether the name of a column looks like one of its cells: an equal text, or an id of the same form."""
    if not any(character.isdigit() for character in name):
        return " " in name and name in cells
    form = re.sub(r"\d+", "0", name)
    return any(re.sub(r"\d+", "0", cell) == form for cell in cells[:100])


def are_places(keys: Iterable[Any]) -> bool:
    """Return whether keys are 0, 1, ..., n - 1, as numbers or as text: the places of rows, which are no ids."""
    return all(str(key) == str(place) for place, key in enumerate(keys))


def single_texts(cells: Sequence[Any], where: str) -> Sequence[Any]:
    """Return cells with the text of each list of one text, or chat of one answer, in its place.

    Raise InputError, which names `where`, for a list of several (or of none), which may be several references, samples
    or sentences of one study, for a chat with several answers or none, and for an object.
    """
    if not any(isinstance(cell, list | tuple | dict) for cell in cells):
        return cells
    texts = []
    for row, cell in enumerate(map(without_chat, cells)):
        text = cell[0] if isinstance(cell, list | tuple) and len(cell) == 1 and not is_chat(cell) else cell
        if isinstance(text, list | tuple | dict):
            raise _no_single_text(cell, f"in row {row + 1}", where)
        texts.append(text)
    return texts


def _no_single_text(cell: Any, place: str, where: str) -> InputError:
    """Return the error for a cell with a list or an object that is not one text; `place` is its row."""
    if isinstance(cell, dict):
        names = ", ".join(shown(str(key)) if _CODE_OR_WORD.fullmatch(str(key)) else described(key) for key in cell)
        return InputError(
            f"{where} has an object in place of a text {place}, with {names or 'nothing in it'}.",
            "Write the report, or its parts in their order as one text, into a column of texts.",
        )
    if is_chat(cell):
        return InputError(
            f"{where} has a chat of {len(cell)} messages {place}, of which {n_answers(cell)} are an assistant's text.",
            "Write the content of the message that is the report, usually the last, into a column of texts.",
        )
    if not all(isinstance(item, str) or is_missing(item) for item in cell):
        return InputError(
            f"{where} has a list of {len(cell)} parts {place} that are no texts alone, such as sentences with boxes.",
            "Join the sentences of each report with a blank, in their order, into a column of texts.",
        )
    return InputError(
        f"{where} has a list of {len(cell)} texts {place}: several references or samples, or sentences of a report.",
        "Keep one text for each id: join sentences with a blank; `mo.best_of` and `mo.consensus` read samples.",
    )


def numbers_of(cells: "pl.Series") -> "pl.Series":
    """Return numbers, or their texts, as floats; null for other cells. One beyond float64 is infinite or null."""
    import polars as pl

    if not cells.dtype.is_numeric():
        cells = written(cells)
    return cells.cast(pl.Float64, strict=False).fill_nan(None)


def _kind_of_number(text: str) -> str:
    """Return in words what keeps a text, which seems to be a number, from being one; "" for any other text."""
    return next((kind for kind, pattern in _NEARLY_NUMBERS if re.search(pattern, text)), "")


def canonical_ids(cells: "pl.Series | Iterable[object]", where: str, *, mimic: bool = True) -> list[str]:
    """Return id cells as stripped strings; raise InputError if a row has none. `where` is for the message.

    With `mimic`, for ids of studies, InputError is raised for sentences, which are reports, and MIMIC study ids lose
    prefix, path, `.txt` and `.0` (`p10/p10000032/s50414267.txt` is `50414267`). In a column of numbers only, a trailing
    `.0` goes too. InputError is raised for numbers that became floats and have more digits than these hold. Letters and
    accents that stand apart are put together (NFC).
    """
    import polars as pl

    cells = cells if isinstance(cells, pl.Series) else series_of("ids", cells)
    ids = written(cells).str.normalize("NFC")
    _check_digits(cells, ids, where)
    is_id = ids.is_not_null() & (ids != "")
    if not (cells.dtype == pl.String or cells.dtype.is_numeric()):
        is_id &= pl.Series([not isinstance(cell, (bool, list, dict, tuple)) for cell in cells], dtype=pl.Boolean)
    if not is_id.all():
        row = is_id.arg_min()
        raise InputError(
            f"there is no id in row {(row or 0) + 1} of {where}.", "Each row needs a text or a number as id."
        )
    if mimic:
        is_sentence = (ids.str.count_matches(r"\S+") > 3) & ~ids.str.contains(r"\d")
        if 2 * is_sentence.sum() > len(ids):
            raise InputError(
                f"there are sentences in place of ids in {where}.",
                "Give the ids, or name another column of ids.",
            )
        ids = ids.str.replace(_MIMIC_ID, "$1")
    if ids.str.contains(_NUMBER).all():
        ids = ids.str.strip_suffix(".0")
    return ids.to_list()


def _check_digits(cells: "pl.Series", ids: "pl.Series", where: str) -> None:
    """Raise InputError if ids are floats, or what was written of them, beyond the whole numbers that floats hold.

    Study instance numbers of 17 to 20 digits lose their last ones so, and several may become one.
    """
    import polars as pl

    is_float = ids.str.contains(_FLOAT).fill_null(False)
    if cells.dtype == pl.String and not (is_float | ids.str.contains(r"^\d*$")).all():
        return  # codes of letters and digits, such as 12e34
    is_lost = is_float & (ids.cast(pl.Float64, strict=False) >= _MOST_WHOLE).fill_null(False)
    if is_lost.any():
        raise InputError(
            f"there is an id in row {(is_lost.arg_max() or 0) + 1} of {where} that became a float, which holds 15 "
            "digits for certain.",
            "Read the column as text where the ids come from; in pandas: dtype=str, for columns with gaps, too.",
        )


def changed_as_ids(names: Iterable[str]) -> list[str]:
    """Return those names that a table gives back as missing or as another id, such as "NA" and "1.0"."""
    return [name for name in names if is_missing(name) or canonical_ids([name], "names") != [name]]


def chexpert_studies(images: Sequence[str], where: str) -> tuple[list[str], list[int]]:
    """Return the study of each CheXpert Plus image path, and the row of the first image in path order of each study.

    Studies are in the order of their first rows; a path of another form raises InputError. Labels and texts of one
    study can differ between its images (dates were drawn anew for each), so one must be chosen.
    """
    studies = []
    first: dict[str, int] = {}
    for row, image in enumerate(images):
        parts = _CHEXPERT_PATH.fullmatch(image)
        if parts is None:
            raise InputError(
                f"there is no path such as train/patient1/study1/view1.jpg in row {row + 1} of {where}.", "Repair it."
            )
        study = f"{parts[1]}_{parts[2]}"
        studies.append(study)
        if image < images[first.setdefault(study, row)]:
            first[study] = row
    return studies, list(first.values())


def are_mimic_images(ids: Sequence[str]) -> bool:
    """Return whether all ids are those of images of MIMIC-CXR; its metadata file has their studies and views."""
    return bool(ids) and all(map(_DICOM_ID.fullmatch, ids))


def repeated(values: Iterable[str]) -> list[str]:
    """Return the values that occur more than once, in the order of their second occurrences."""
    seen: set[str] = set()
    return list(dict.fromkeys(value for value in values if value in seen or seen.add(value)))  # type: ignore[func-returns-value]


def check_unique(ids: Sequence[str], where: str) -> None:
    """Raise InputError, which names `where`, if an id occurs twice."""
    doubled = repeated(ids)
    if doubled:
        raise InputError(f"an id occurs more than once in {where}: {shown(*doubled[:3])}.", "Keep one row for each id.")


_FILE_ENDING = re.compile(r"(?:\.(?:png|jpe?g|dcm|dicom|tiff?|bmp|nii|gz|txt|npy))+", re.IGNORECASE)


def ids_hint(ids: Iterable[str], others: Iterable[str]) -> str:
    """Return a sentence for messages if one of `ids` is in `others` with other leading zeros or as another file name.

    Such names differ in their folder or ending. The sentence begins with a blank; it is "" if there is no such id.
    """
    other_ids, ids = set(others), list(ids)
    for bare, differing in (
        (lambda study: study.lstrip("0"), "leading zeros, which spreadsheets drop ({}): write them as text"),
        (_without_ending, "the folder or ending of a file name ({}): write the ids of the studies"),
        (bare_id, "what stands before the number ({}): write them in one way in both files"),
    ):
        by_bare = {bare(study): study for study in other_ids}
        pair = next(
            ([study, by_bare[bare(study)]] for study in ids if study not in other_ids and bare(study) in by_bare), None
        )
        if pair is not None:
            return f" Ids differ by {differing.format(shown(*pair))}."
    return ""


def bare_id(value: str) -> str:
    """Return an id in lower case without letters and zeros before its first other digit."""
    return re.sub(r"^[^\W\d]*[ _-]*0*(?=\d)", "", value.strip().lower())


def _without_ending(study: str) -> str:
    """Return an id without the folder and an ending such as .png of a file name."""
    name = study.rpartition("/")[2]
    ending = _FILE_ENDING.search(name)
    return name[: ending.start()] if ending is not None and ending.end() == len(name) else name


def read_table(path: Path, *, encoding: str | None = None, separator: str | None = None) -> Table:
    """Read a table by its ending: .csv, .tsv, .json, .jsonl, .ndjson (each also with .gz), .parquet or .xlsx.

    Encoding and separator are found as `text_files` says where they are None.
    """
    kind = table_kind(path, encoding=encoding, separator=separator)
    if kind == "Parquet":
        return _read_parquet(path)
    if kind == "Excel":
        names, columns, note = read_sheet(path)
        return Table(path, kind, names, columns, note=note)
    text, note = read_text(path, encoding)
    if kind == "JSON":
        return _read_json(path, text, note)
    if kind == "JSON Lines":
        return read_json_lines(path, text, note)
    text, delimiter, above = csv_body(text, kind, checked_separator(separator))
    return read_csv(path, kind, text, ", ".join(filter(None, [note, above])), delimiter)


def table_kind(path: Path, *, encoding: str | None = None, separator: str | None = None) -> str:
    """Return the kind of a table, a value of `ENDINGS`, by its ending.

    Raise InputError if the file does not exist, has another ending, or does not take an option that is not None.
    """
    existing_file(path)
    kind = ENDINGS.get(file_ending(path))
    if kind is None or (kind in BINARY and path.suffix.lower() == ".gz"):
        raise InputError(
            f"{path} is not a table by its ending, which must be one of {', '.join(ENDINGS)}.",
            "Convert or rename the file.",
        )
    text_format = {"encoding": encoding, "separator": separator}
    check_left_out(text_format, f"for {kind} files", allowed=text_options(path), got=f"a value for {path}")
    return kind


@contextmanager
def whole_parquet(path: Path) -> Iterator[None]:
    """Turn Arrow's errors for a damaged Parquet file, within the block, into an InputError with its path."""
    try:
        yield
    except PermissionError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            f"{path} is not a whole Parquet file: it is damaged, cut short or of another format.", "Fetch it again."
        ) from None


def _read_parquet(path: Path) -> Table:
    """Read a Parquet file; raise InputError if it is damaged, or was changed since this package wrote it."""
    from pyarrow import parquet

    with whole_parquet(path):
        # By path: of a Python file, a reader thread of Arrow may outlive the interpreter, which aborts it.
        file = parquet.ParquetFile(str(path))
        table = file.read()
        table.validate(full=True)
        entry = checksum.record_of(table.schema)
        is_altered = entry is not None and checksum.opened(entry, checksum.hash_parquet(file, table)) is None
    if is_altered:
        raise InputError(
            f"{path} was changed after it was written: its checksum is that of another table.",
            f"Write it again, or save it without the metadata {checksum.METADATA.decode()!r} to read it as your own.",
        )
    return Table(path, "Parquet", table.column_names, of_arrow(table))


def read_csv(path: str | Path, kind: str, text: str, note: str, delimiter: str) -> Table:
    """Parse a CSV or TSV text, from its header on, as a table; `path`, `kind` and `note` become the table's.

    Raise InputError if a row has another number of cells than the header, or a quote is never closed.
    """
    text = usual_quotes(text.lstrip("\r\n"), delimiter)
    names = header_names(text, delimiter)
    places = [str(place) for place in range(len(names))]
    bad_rows: list[pa.csv.InvalidRow] = []

    def note_bad_row(row: pa.csv.InvalidRow) -> str:
        """Keep a row that cannot be parsed, for the message; "error" tells Arrow to stop."""
        bad_rows.append(row)
        return "error"

    # A quote that is never closed (a file cut short) would swallow the rest silently. So a row is added at the end,
    # which must be the last one that is parsed.
    whole = f"{text}\n{delimiter.join([_END_OF_FILE] * len(names))}\n".encode()
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(whole),
            # One thread, so that Arrow counts the rows for the message; one block, so that no cell is too long.
            read_options=pa.csv.ReadOptions(
                column_names=places, skip_rows_after_names=1, use_threads=False, block_size=min(len(whole) + 1, 1 << 30)
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note_bad_row
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.large_string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        if bad_rows and bad_rows[0].number is not None:
            n = len(names)
            problem = (
                f"{n} {'column' if n == 1 else 'columns'} in the header and {bad_rows[0].actual_columns} in row "
                f"{bad_rows[0].number} (the header is row 1)"
            )
        else:
            problem = "they do not parse"
        first = " Delete lines above the header, if there are any." if len(names) == 1 else ""
        raise InputError(
            f"{path} has rows that cannot be read: {problem}.",
            "Repair the file; `mo.reports(..., mo.Read(separator=CHARACTER))` can name the separator of a table of "
            f"reports.{first}",
        ) from None
    if not table.num_rows or table.column(0)[-1].as_py() != _END_OF_FILE:
        raise InputError(f"{path} has a quote that is never closed.", "Close the quote, or fetch the file again.")
    return Table(path, kind, names, of_arrow(table.slice(0, table.num_rows - 1)), note=note)


def _unique_keys(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return the function that makes a dict of a JSON object, or raises InputError if a key occurs twice in `where`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = repeated(key for key, _ in pairs)
            raise InputError(f"there is a key more than once in {where}: {shown(twice[0])}.", "Keep one of each name.")
        return content

    return unique


def _read_json(path: Path, text: str, note: str) -> Table:
    """Parse the text of a JSON file as a table; `path` and `note` become the table's.

    JSON Lines under the name of JSON are read, too. Raise InputError for any layout but those of `table_of_objects`.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys(f"objects in {path}"))
    except json.JSONDecodeError as error:
        # CheXpert Plus calls JSON Lines .json: one value, then more.
        if error.msg == "Extra data":
            return read_json_lines(path, text, note)
        raise InputError(
            f"{path} is not valid JSON: it is broken at line {error.lineno} column {error.colno}.", "Repair the file."
        ) from None
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError(
            f"{path} is not readable JSON: a number or the nesting is too large.", "Repair the file."
        ) from None
    table = table_of_objects(path, "JSON", data, note)
    if table is None and not data and isinstance(data, dict | list):
        raise InputError(f"{path} has no row.", NO_ROW_STEP)
    if table is None:
        raise InputError(
            f"{path} is not a JSON object of texts, an object of objects or a list of objects.",
            'Write a list of objects; in pandas: frame.to_json(FILE, orient="records").',
        )
    return table


def table_of_objects(path: str | Path, kind: str, data: Any, note: str = "") -> Table | None:
    """Return dicts and lists as parsed from JSON as a table; None if their layout is not that of a table.

    Layouts: a list of rows; key -> row, text or list of texts; name of a column -> its cells, in a list or by
    row; split -> rows; and pandas' "split" and "table". `path`, `kind` and `note` become the table's.

    Raise InputError if columns have unequal lengths.
    """
    if isinstance(data, dict) and data:
        names, rows = data.get("columns"), data.get("data")
        if (
            isinstance(names, list)
            and isinstance(rows, list)
            and all(isinstance(row, list | tuple) and len(row) == len(names) for row in rows)
        ):
            return _of_columns(path, kind, names, list(zip(*rows, strict=True)), data.get("index"), note)
        if data.keys() == {"schema", "data"}:
            data = rows
    if isinstance(data, dict) and data:
        keys, items = list(data), list(data.values())
        if are_columns(data):
            return _of_columns(path, kind, keys, [cells_of(item) for item in items], None, note)
        if all(isinstance(item, dict) for item in items):
            rows = list(dict.fromkeys(row for item in items for row in item))
            if _are_rows(keys, rows):
                return _of_columns(path, kind, keys, [[item.get(row) for row in rows] for item in items], rows, note)
            return _of_dicts(path, kind, items, keys, note)
        lists = [item for item in items if isinstance(item, list | tuple)]
        if len(lists) == 1 < len(items) and _are_dicts(lists[0]) and not _have_usual(keys):
            return _of_dicts(path, kind, [*lists[0]], None, note)  # beside what is said of all of them
        if isinstance(items[0], list) and not any(items):
            return None
        are_chats = all(map(is_chat, items))
        if not are_chats and all(
            isinstance(item, list) and all(isinstance(row, dict) for row in item) for item in items
        ):
            # R2Gen's annotation.json: split -> reports.
            rows = [{**row, "split": name} for name, item in zip(keys, items, strict=True) for row in item]
            return _of_dicts(path, kind, rows, None, note)
        if all(isinstance(item, str | list | tuple) or is_missing(item) for item in items):
            return Table(path, kind, ["text"], [series_of("text", items)], series_of(_OBJECT_KEY, keys), note)
    elif isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
        return _of_dicts(path, kind, data, None, note)
    return None


def _are_dicts(items: Sequence[Any]) -> bool:
    """Return whether a list holds dicts alone, and one at least."""
    return bool(items) and all(isinstance(item, dict) for item in items)


def are_columns(data: Mapping[Any, Any]) -> bool:
    """Return whether a dict holds columns, such as `dataset[:]`; raise InputError if it does, of unequal lengths."""
    if not _have_usual(data):
        return False
    lists = [cells_of(value) for value in data.values()]
    lengths = {len(cells) for cells in lists if cells is not None}
    if any(cells is None for cells in lists):
        return False
    if len(lengths) > 1:
        raise InputError(
            "a dict of columns",
            "must have lists of one length",
            f"{min(lengths)} to {max(lengths)} cells in the columns {shown(*map(str, data))}",
            "Complete the columns. A dict of studies has study ids as keys, not names of columns.",
        )
    return True


def cells_of(column: Any) -> list[Any] | None:
    """Return the cells of a list, tuple, array or column of a data frame as a list; None for anything else."""
    if isinstance(column, list | tuple):
        return list(column)
    name = next((name for name in AS_LIST if hasattr(column, name)), None)
    cells = None if name is None else getattr(column, name)()
    return cells if isinstance(cells, list) else None


def _have_usual(names: Iterable[Any]) -> bool:
    """Return whether one of these names is usual for a column of ids or texts."""
    return any(bare_name(str(name)) in _SURE_NAMES | {"candidates"} for name in names)


def _are_rows(keys: list[Any], fields: list[Any]) -> bool:
    """Return whether an object of objects is column -> row -> cell, as pandas' `to_json()` writes it by default.

    `keys` are those of the object, `fields` those of the objects within.
    """
    # No row has fields called 0, 1, ...
    is_numbered = bool(fields) and all(str(name).isdigit() for name in fields)
    return is_numbered or (_have_usual(keys) and not _have_usual(fields))


def _of_columns(
    path: str | Path,
    kind: str,
    names: Sequence[Any],
    columns: Sequence[Any],
    index: Sequence[Any] | None,
    note: str,
) -> Table:
    """Return columns as a table; pandas' `index` becomes its keys, unless it is None or 0, 1, ..."""
    keys = None if index is None or are_places(index) else series_of("index", index)
    series = [series_of("", cells) for cells in columns or [[]] * len(names)]
    return Table(path, kind, list(map(str, names)), series, keys, note)


def read_json_lines(path: str | Path, text: str, note: str) -> Table:
    """Parse the text of a JSON Lines file, or a JSON array in it; `path` and `note` become the table's.

    Blank lines are left out. Raise InputError for any other line that is no object.
    """
    if text.lstrip().startswith("["):
        return _json_array(path, text, note)
    rows, lines = [], []
    # Not splitlines: a JSON string may hold U+2028 as it is.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_unique_keys(f"line {number} of {path}"))
        except InputError:
            raise
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(
                f"{path} has no JSON object in line {number}.", "Each line must be one object; repair the file."
            )
        rows.append(row)
        lines.append(number)
    return _of_dicts(path, "JSON Lines", rows, None, note, lines)


def _json_array(path: str | Path, text: str, note: str) -> Table:
    """Parse a JSON array of objects in a file that is named as JSON Lines; raise InputError for any other array."""
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys(f"objects in {path}"))
    except InputError:
        raise
    except (ValueError, RecursionError):
        data = None
    table = table_of_objects(path, "JSON", data, note)
    if table is None:
        raise InputError(
            f"{path} has no JSON object in line 1: it begins with a list.", "Write one object in each line."
        )
    return table


def _of_dicts(
    path: str | Path,
    kind: str,
    rows: list[dict[str, Any]],
    keys: list[str] | None,
    note: str,
    lines: list[int] | None = None,
) -> Table:
    """Return a list of dicts, one per row, as a table; `keys` and `lines` are those of the rows, None without."""
    answers = answers_of_batch(rows)
    if answers is not None:
        rows = [
            {"custom_id": row["custom_id"], "completion": answer} for row, answer in zip(rows, answers, strict=True)
        ]
        note, keys = ", ".join(filter(None, [note, "answers of a batch"])), None
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [series_of(str(name), [row.get(name) for row in rows]) for name in names]
    return Table(path, kind, names, columns, None if keys is None else series_of(_OBJECT_KEY, keys), note, lines)
