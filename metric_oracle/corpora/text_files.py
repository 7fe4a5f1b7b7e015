"""Files as text: what their bytes are, in which encoding, and which character separates their columns.

A file is UTF-8, or what its byte-order mark says, or what the caller says. Without any of these it is cp1252, which
Windows writes, if every line beyond ASCII is. Error messages name files and lines and never quote a text.
"""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NoReturn

from metric_oracle.errors import InputError

PIECE = 1 << 24  # bytes of a large text that are read at once
HEAD = 1 << 16  # characters that a header lies in
SEPARATORS = (",", ";", "\t", "|")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_C1 = re.compile("[\x80-\x9f]")
_MAGIC = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1")
_STEP = "Save the file in UTF-8, or name its encoding: --encoding for tables of reports"


def existing_file(path: Path, function: str, argument: str = "path") -> Path:
    """Return `path` if it is a regular file; reading a pipe could wait without end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        msg = f"{function}: {argument} must be a regular file; got the pipe or device {path}. Write it to a file first."
        raise InputError(msg)
    if not path.is_file():
        msg = f"{function}: {argument} must be an existing file; got {path}. Check the name."
        raise InputError(msg)
    return path


def file_ending(path: Path) -> str:
    """Return the lower-case ending without `.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_packed(path: Path) -> bool:
    """Tell whether a file is to be unpacked by gzip."""
    return path.suffix.lower() == ".gz"


def read_bytes(path: Path, function: str) -> bytes:
    """Read a whole file, unpacked where its name ends with `.gz`."""
    existing_file(path, function)
    try:
        return b"".join(unpacked(path, function)) if is_packed(path) else path.read_bytes()
    except MemoryError:
        msg = f"{function}: path must be a file that fits into memory; got {path}, which does not. Split it."
        raise InputError(msg) from None


def unpacked(path: Path, function: str) -> Iterator[bytes]:
    """Yield what is in a gzip file, piece by piece."""
    packed, n = path.stat().st_size, 0
    try:
        with gzip.open(path) as file:
            while piece := file.read(PIECE):
                n += len(piece)
                check_unpacked(packed, n, path, function)
                yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error):
        msg = f"{function}: path must be a whole gzip file; got a damaged or cut one, {path}. Fetch it again."
        raise InputError(msg) from None


def check_unpacked(packed: int, size: int, path: Path, function: str) -> None:
    """Raise where a packed file unpacks to far more bytes than reports, vectors or tables do.

    Reports that repeat one another unpack to 50 times their size; what was made to fill the memory, to 1,000 times.
    """
    if size > 100 * 2**20 and size > 300 * packed:
        msg = (
            f"{function}: packed files must unpack to less than 300 times their size; got more in {path}. "
            "If the file is right, unpack it first."
        )
        raise InputError(msg)


# Encodings


def checked_encoding(encoding: str | None, function: str) -> str | None:
    """Return the name of an encoding as Python has it."""
    if encoding is None:
        return None
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)  # refuses codecs that are not of text, such as base64
        return codecs.lookup(encoding).name
    except (LookupError, ValueError, TypeError):
        msg = (
            f"{function}: encoding must be the name of a text encoding, such as utf-8, utf-16 or cp1252; got "
            f"{encoding!r}. Correct it."
        )
        raise InputError(msg) from None


def _of_mark(head: bytes, asked: str | None, path: Path, function: str) -> str | None:
    """Return the encoding that is asked for or that the byte-order mark says, None where nothing says it."""
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if asked is None or marked is None:
        return asked or marked
    if not asked.replace("_", "-").startswith(marked.removesuffix("-sig")):
        msg = (
            f"{function}: encoding must be that of the file's byte-order mark, {marked.removesuffix('-sig')}; got "
            f"{asked} for {path}. Leave --encoding out."
        )
        raise InputError(msg)
    return marked


def _utf8(pieces: Iterable[bytes]) -> bool | None:
    """Tell whether bytes are UTF-8: None where they are nothing but ASCII, which most encodings share."""
    decode, is_ascii = codecs.getincrementaldecoder("utf-8")().decode, True
    try:
        for piece in pieces:
            is_ascii = is_ascii and piece.isascii()
            decode(piece)
        decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return None if is_ascii else True


def _check_asked(asked: str, pieces: Iterable[bytes], path: Path, function: str) -> None:
    """Raise where another encoding is asked for and a file is UTF-8 beyond ASCII, which is no accident."""
    if not asked.startswith("utf") and _utf8(pieces):
        msg = f"{function}: encoding must be that of the file; got {asked} for {path}, which is UTF-8. Leave it out."
        raise InputError(msg)


def _guessed(lines: Iterable[bytes], path: Path, function: str) -> str:
    """Return the encoding of lines that are not all UTF-8: cp1252, if all that go beyond ASCII can be that."""
    n_utf8 = n_others = n_beyond = n_letters = 0
    first: list[int] = []
    is_cp1252 = True
    for number, line in enumerate(lines, start=1):
        if b"\0" in line:
            refuse_binary(path, function)
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            n_utf8 += 1
            continue
        except UnicodeDecodeError:
            n_others += 1
        if len(first) < 5:
            first.append(number)
        if _CONTROLS.search(line):
            refuse_binary(path, function)
        try:
            text = line.decode("cp1252")
        except UnicodeDecodeError:
            is_cp1252 = False
            continue
        letters = [character for character in text if character.isalpha()]
        n_letters += len(letters)
        n_beyond += sum(not character.isascii() for character in letters)
    if n_utf8:
        shown = f"{'line' if n_others == 1 else 'lines'} {', '.join(f'{number:,}' for number in first)}"
        more = f", ... ({n_others:,} in all)" if n_others > len(first) else ""
        msg = (
            f"{function}: every line of {path} must be in the same encoding; got UTF-8 in {n_utf8:,} of its lines and "
            f"another encoding in {shown}{more}. Repair the file, or name the encoding of all lines with --encoding."
        )
        raise InputError(msg)
    if not is_cp1252 or 2 * n_beyond > n_letters:  # the languages that are written in it use mostly ASCII letters
        msg = f"{function}: path must be a text file in UTF-8, UTF-16 or cp1252; got none of them in {path}. {_STEP}."
        raise InputError(msg)
    return "cp1252"


def encoding_note(encoding: str) -> str:
    """Return what is said of an encoding that is not UTF-8."""
    return "" if encoding.startswith(("utf-8", "ascii")) else f"read as {encoding}"


def read_text(path: Path, function: str, encoding: str | None = None) -> tuple[str, str]:
    """Read a text file; return its text without a byte-order mark, and a note where its encoding is not UTF-8.

    Parameters
    ----------
    path : Path
    function : str
        For error lines.
    encoding : str
        By default UTF-8, or what the byte-order mark says, or cp1252 where all lines that go beyond ASCII can be that.
    """
    asked = checked_encoding(encoding, function)
    raw = read_bytes(path, function)
    if raw.startswith(_MAGIC):
        refuse_binary(path, function)
    known = _of_mark(raw[:4], asked, path, function)
    if asked is not None:
        _check_asked(asked, [raw], path, function)
    name = known or "utf-8"
    try:
        text = raw.decode(name)
    except ValueError:  # some codecs raise no UnicodeDecodeError
        if known is not None:
            raise wrong_encoding(name, path, function) from None
        name = _guessed(raw.splitlines(), path, function)
        text = raw.decode(name)
    if not text.strip():
        msg = f"{function}: path must be a file with content; got an empty file, {path}. Fetch it again."
        raise InputError(msg)
    check_characters(text, asked, path, function)
    return text, encoding_note(name)


def stream_encoding(path: Path, function: str, encoding: str | None = None) -> str:
    """Return the encoding of a file that is read piece by piece, by the rules of `read_text`: reads it once."""
    asked = checked_encoding(encoding, function)
    with opened(path) as file:
        head = file.read(4)
    if head.startswith(_MAGIC):
        refuse_binary(path, function)
    known = _of_mark(head, asked, path, function)
    if asked is not None:
        _check_asked(asked, _pieces(path), path, function)
    if known is not None:
        return known
    if _utf8(_pieces(path)) is not False:
        return "utf-8"
    with opened(path) as file:
        return _guessed((part for line in file for part in line.splitlines()), path, function)


def _pieces(path: Path) -> Iterator[bytes]:
    with opened(path) as file:
        while piece := file.read(PIECE):
            yield piece


def opened(path: Path) -> IO[bytes]:
    """Open a file to read its bytes, unpacked where its name ends with `.gz`."""
    return gzip.open(path) if is_packed(path) else path.open("rb")  # type: ignore[return-value]


def check_characters(text: str, asked: str | None, path: str | Path, function: str) -> None:
    """Raise where a text has characters that no text file has: NUL, or what a wrong choice of encoding makes.

    Latin-1 has control characters where cp1252 has quotation marks and dashes.
    """
    if "\0" in text:
        refuse_binary(path, function)
    if asked is not None and not asked.startswith("utf") and _C1.search(text):
        msg = (
            f"{function}: encoding must be that of the file; got {asked} for {path}, which makes control characters of "
            "some bytes. Try cp1252."
        )
        raise InputError(msg)


def wrong_encoding(encoding: str, path: str | Path, function: str) -> InputError:
    """Return the error for bytes that an encoding does not have."""
    msg = f"{function}: encoding must be that of the file; got {encoding} for {path}, which has other bytes. {_STEP}."
    return InputError(msg)


def text_pieces(path: Path, function: str) -> Iterator[str]:
    """Yield a text file: whole where it is small or packed, as `read_text` gives it, else piece by piece.

    Raises
    ------
    UnicodeDecodeError
        If a large file is not in UTF-8, maybe after some pieces.
    """
    existing_file(path, function)
    with path.open("rb") as file:
        mark = _of_mark(file.read(4), None, path, function)
    if is_packed(path) or path.stat().st_size <= PIECE or mark not in (None, "utf-8-sig"):
        yield read_text(path, function)[0]
        return
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    with path.open("rb") as file:
        is_first = True
        while raw := file.read(PIECE):
            if (is_first and raw.startswith(_MAGIC)) or b"\0" in raw:
                refuse_binary(path, function)
            is_first = False
            yield decode(raw)
    yield decode(b"", final=True)


def refuse_binary(path: str | Path, function: str) -> NoReturn:
    """Raise because a file is no text."""
    msg = (
        f"{function}: path must be the file type that its ending says; got binary content in {path}. "
        "Rename or convert it."
    )
    raise InputError(msg)


# Separators


def checked_separator(separator: str | None, function: str) -> str | None:
    """Return a separator as a character; "tab" is one that no shell types."""
    if separator in (None, "tab", "\\t"):
        return None if separator is None else "\t"
    if not (isinstance(separator, str) and re.fullmatch(r"[\t !#-/:-@\[-`{-~]", separator)):
        msg = (
            f"{function}: separator must be tab or one ASCII character other than letters, digits, quotes and line "
            f"breaks; got {separator!r}. Choose one, such as ';'."
        )
        raise InputError(msg)
    return separator


def separator_of(head: str, kind: str, asked: str | None = None) -> str:
    """Return the separator of a CSV or TSV file: the one that cuts its header into most columns.

    Parameters
    ----------
    head : str
        Its first characters.
    kind : {"CSV", "TSV"}
        Says which it is where several cut alike.
    asked : str
        What the caller says that it is.
    """
    if asked is not None:
        return asked
    usual = "\t" if kind == "TSV" else ","
    return max((usual, *SEPARATORS), key=lambda separator: len(header_names(head, separator)))


def header_names(head: str, separator: str) -> list[str]:
    """Return the cells of the first row of a CSV text."""
    try:
        return next(csv.reader(io.StringIO(head[:HEAD].lstrip("\r\n"), newline=""), delimiter=separator), [])
    except csv.Error:
        return []
