"""Text files: their encoding, compression and column separator.

A file is read in the encoding that the caller names, else that of its byte-order mark, else UTF-8, else cp1252
(Windows) if every line that is not ASCII is valid cp1252. Errors name files and lines and never quote a text.
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

from metric_oracle.base.checksum import check_unaltered
from metric_oracle.base.errors import InputError, shown

PIECE = 1 << 24  # bytes read at once from a large file
HEAD = 1 << 16  # characters that contain the header
LINES = (".txt", ".tok")  # endings of text with one report per line
SEPARATORS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r'"?sep=([\t,;|:])"?[,;\t|"]*', re.IGNORECASE)  # Excel's; see `above_header`
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_C1 = re.compile("[\x80-\x9f]")
_MAGIC = (b"\x1f\x8b", b"PK\x03\x04", b"PAR1")
_NAMED = "`mo.reports(..., mo.Read(encoding=NAME))` can name the encoding of a table of reports."
_STEP = f"Save the file in UTF-8; {_NAMED}"


def existing_file(path: Path) -> Path:
    """Return `path`; raise InputError unless it is a regular file, and unaltered if a signature file is beside it.

    Pipes are refused: reading one could block for ever. So are pointers of Git LFS and pages of HTML, which stand in
    the place of a file that was not fetched.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe or device.", "Write it to a file first.")
    if path.is_dir():
        raise InputError(f"{path} is a folder, where a file is expected.", "Name the file in it.")
    if not path.is_file():
        raise InputError(f"there is no file {shown(path)}.", "Check the name.")
    with path.open("rb") as file:
        start = file.read(512).lstrip(codecs.BOM_UTF8 + b" \t\r\n").lower()
    if start.startswith(b"version https://git-lfs.github.com/"):
        raise InputError(f"{path} is a pointer of Git LFS, not the file itself.", "Fetch it: git lfs pull.")
    if start.startswith((b"<!doctype html", b"<html")):
        raise InputError(f"{path} is a page of HTML, as a site sends in place of a file.", "Download the file itself.")
    check_unaltered(path)
    return path


def file_ending(path: Path) -> str:
    """Return the ending of the name of a file in lower case, such as ".csv"; ".gz" does not count."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_packed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed with gzip."""
    return path.suffix.lower() == ".gz"


def read_bytes(path: Path) -> bytes:
    """Read a whole file, decompressed if its name ends with `.gz`."""
    existing_file(path)
    try:
        return b"".join(unpacked(path)) if is_packed(path) else path.read_bytes()
    except MemoryError:
        raise InputError(f"{path} does not fit into memory.", "Split the file.") from None


def unpacked(path: Path) -> Iterator[bytes]:
    """Yield the content of a gzip file in pieces; see `check_unpacked`. A damaged one raises InputError."""
    packed, n = path.stat().st_size, 0
    try:
        with gzip.open(path) as file:
            while piece := file.read(PIECE):
                n += len(piece)
                check_unpacked(packed, n, path)
                yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path} is not a whole gzip file: it is damaged or cut short.", "Fetch it again.") from None


def check_unpacked(packed: int, size: int, path: Path) -> None:
    """Raise InputError if `packed` bytes unpack to `size` bytes that are over 300 times as many, and over 100 MiB.

    Repetitive reports unpack to 50 times their size; a file that was made to fill the memory unpacks to 1,000 times.
    """
    if size > 100 * 2**20 and size > 300 * packed:
        raise InputError(f"{path} unpacks to more than 300 times its size.", "If the file is right, unpack it first.")


# Encodings


def checked_encoding(encoding: str | None) -> str | None:
    """Return Python's name of an encoding, None for None; raise InputError if there is no such encoding of text."""
    if encoding is None:
        return None
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)  # refuses codecs that are not of text, such as base64
        return codecs.lookup(encoding).name
    except (LookupError, ValueError, TypeError):
        raise InputError(
            "encoding",
            "must be the name of a text encoding, such as utf-8, utf-16 or cp1252",
            shown(encoding),
            "Correct it.",
        ) from None


def _of_mark(head: bytes, requested: str | None, path: Path) -> str | None:
    """Return the encoding of the byte-order mark in the first bytes, else the requested one, else None.

    Raise InputError if they contradict each other.
    """
    marked = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    if requested is None or marked is None:
        return requested or marked
    if not requested.replace("_", "-").startswith(marked.removesuffix("-sig")):
        raise InputError(
            f"{path} has the byte-order mark of {marked.removesuffix('-sig')}, not of {requested}.",
            "Leave `encoding` out.",
        )
    return marked


def _utf8(pieces: Iterable[bytes]) -> bool | None:
    """Return whether the bytes of consecutive pieces are UTF-8; None if they are ASCII, valid in most encodings."""
    decode, is_ascii = codecs.getincrementaldecoder("utf-8")().decode, True
    try:
        for piece in pieces:
            is_ascii = is_ascii and piece.isascii()
            decode(piece)
        decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return None if is_ascii else True


def _check_requested(requested: str, pieces: Iterable[bytes], path: Path) -> None:
    """Raise InputError if an encoding other than UTF is requested for bytes that are UTF-8 and not ASCII."""
    if not requested.startswith("utf") and _utf8(pieces):
        raise InputError(f"{path} is in UTF-8, not in {requested}.", "Leave `encoding` out.")


def _guessed(lines: Iterable[bytes], path: Path) -> str:
    """Return the encoding of lines that are not all UTF-8: cp1252, if it fits every line that is not ASCII.

    Raise InputError for any other text: of several encodings, of none that is known, or binary.
    """
    n_utf8 = n_others = n_beyond = n_letters = 0
    first: list[int] = []
    is_cp1252 = True
    for number, line in enumerate(lines, start=1):
        if b"\0" in line:
            refuse_nul(path, number)
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
            refuse_binary(path)
        try:
            text = line.decode("cp1252")
        except UnicodeDecodeError:
            is_cp1252 = False
            continue
        letters = [character for character in text if character.isalpha()]
        n_letters += len(letters)
        n_beyond += sum(not character.isascii() for character in letters)
    if n_utf8:
        where = f"{'line' if n_others == 1 else 'lines'} {', '.join(f'{number:,}' for number in first)}"
        more = f", ... ({n_others:,} in all)" if n_others > len(first) else ""
        raise InputError(
            f"{path} has UTF-8 in {n_utf8:,} of its lines and another encoding in {where}{more}.",
            f"Repair the file; {_NAMED}",
        )
    if not is_cp1252 or 2 * n_beyond > n_letters:  # languages written in cp1252 use mostly ASCII letters
        raise InputError(f"{path} is not a text file in UTF-8, UTF-16 or cp1252.", _STEP)
    return "cp1252"


def encoding_note(encoding: str) -> str:
    """Return the note for the user that a file is not in UTF-8; an empty string if it is."""
    return "" if encoding.startswith(("utf-8", "ascii")) else f"read as {encoding}"


def read_text(path: Path, encoding: str | None = None, *, may_be_empty: bool = False) -> tuple[str, str]:
    """Return the text of a file without its byte-order mark, and a note if its encoding is not UTF-8, else "".

    If `encoding` is None, it is that of the byte-order mark, else UTF-8, else cp1252 if that fits every line beyond
    ASCII. Raise InputError if the file has another encoding than it should, is binary or, unless `may_be_empty`, empty.
    """
    requested = checked_encoding(encoding)
    raw = read_bytes(path)
    if raw.startswith(_MAGIC):
        refuse_binary(path)
    of_mark = _of_mark(raw[:4], requested, path)
    if requested is not None:
        _check_requested(requested, [raw], path)
    name = of_mark or "utf-8"
    try:
        text = raw.decode(name)
    except ValueError:  # some codecs raise no UnicodeDecodeError
        if of_mark is not None:
            raise wrong_encoding(name, path) from None
        name = _guessed(raw.splitlines(), path)
        text = raw.decode(name)
    if not text.strip() and not may_be_empty:
        raise InputError(f"{path} is empty.", "Fetch it again.")
    check_characters(text, requested, path)
    return text, encoding_note(name)


def stream_encoding(path: Path, encoding: str | None = None) -> str:
    """Return the encoding of a file that is read in pieces, by the rules of `read_text`, in up to two passes."""
    requested = checked_encoding(encoding)
    with opened(path) as file:
        head = file.read(4)
    if head.startswith(_MAGIC):
        refuse_binary(path)
    of_mark = _of_mark(head, requested, path)
    if requested is not None:
        _check_requested(requested, _byte_blocks(path), path)
    if of_mark is not None:
        return of_mark
    if _utf8(_byte_blocks(path)) is not False:
        return "utf-8"
    with opened(path) as file:
        return _guessed((part for line in file for part in line.splitlines()), path)


def _byte_blocks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed if its name ends with `.gz`, in pieces."""
    with opened(path) as file:
        while piece := file.read(PIECE):
            yield piece


def opened(path: Path) -> IO[bytes]:
    """Open a file to read its bytes, decompressed if its name ends with `.gz`."""
    return gzip.open(path) if is_packed(path) else path.open("rb")  # type: ignore[return-value]


def check_characters(text: str, requested: str | None, path: str | Path, line: int = 1) -> None:
    """Raise InputError if a text has NUL or, if an encoding other than UTF was `requested`, control characters.

    `requested` is None if the caller named none; `line` is the number of the first line. A wrong encoding makes control
    characters: Latin-1 has them where cp1252 has quotation marks and dashes.
    """
    if "\0" in text:
        refuse_nul(path, line + text.count("\n", 0, text.index("\0")))
    if requested is not None and not requested.startswith("utf") and _C1.search(text):
        raise InputError(f"{path} is not in {requested}, which makes control characters of some bytes.", "Try cp1252.")


def wrong_encoding(encoding: str, path: str | Path) -> InputError:
    """Return the error for bytes that are not valid in an encoding."""
    return InputError(f"{path} is not in {encoding}: it has bytes that {encoding} does not.", _STEP)


def text_pieces(path: Path) -> Iterator[str]:
    """Yield the text of a file: whole if it is small or compressed (see `read_text`), else in pieces.

    A large file that is not in UTF-8 raises UnicodeDecodeError, maybe after some pieces.
    """
    existing_file(path)
    with path.open("rb") as file:
        mark = _of_mark(file.read(4), None, path)
    if is_packed(path) or path.stat().st_size <= PIECE or mark not in (None, "utf-8-sig"):
        yield read_text(path)[0]
        return
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    with path.open("rb") as file:
        is_first, line = True, 1
        while raw := file.read(PIECE):
            if is_first and raw.startswith(_MAGIC):
                refuse_binary(path)
            if b"\0" in raw:
                refuse_nul(path, line + raw.count(b"\n", 0, raw.index(b"\0")))
            is_first, line = False, line + raw.count(b"\n")
            yield decode(raw)
    yield decode(b"", final=True)


def refuse_nul(path: str | Path, line: int) -> NoReturn:
    """Raise InputError because a text has a NUL byte in a line."""
    raise InputError(
        f"{path} has a NUL byte in line {line:,}, which no text has.",
        "Delete it, or convert the file: it may be binary, or in UTF-16 without a byte-order mark.",
    )


def refuse_binary(path: str | Path) -> NoReturn:
    """Raise InputError because a file is not text."""
    raise InputError(f"{path} is a binary file, which its ending does not say.", "Rename or convert it.")


# Separators


def checked_separator(separator: str | None) -> str | None:
    """Return a separator as one character, "tab" as the tab, None as None; raise InputError if it cannot separate."""
    if separator in (None, "tab", "\\t"):
        return None if separator is None else "\t"
    if not (isinstance(separator, str) and re.fullmatch(r"[\t !#-/:-@\[-`{-~]", separator)):
        raise InputError(
            "separator",
            "must be tab or one ASCII character other than letters, digits, quotes and line breaks",
            shown(separator),
            "Choose one, such as ';'.",
        )
    return separator


def above_header(head: str) -> tuple[int, str | None, str]:
    """Return the number of lines above the header of a CSV text, the separator that they name, and a note on them.

    Such a line is Excel's ``sep=;``, which alone names a separator (None otherwise), or a comment: it begins with "# ",
    or with "#" and has other columns than the line below. `head` is the text or its first `HEAD` characters.
    """
    lines = csv_lines(head)
    if lines and (named := _SEPARATOR_LINE.fullmatch(lines[0])):
        return 1, named[1], "separator as its first line names it"
    n = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if 0 < n < len(lines):
        widths = [len(header_names(line, separator_of(lines[n], "CSV"))) for line in lines[n - 1 : n + 1]]
        if widths[1] > 1 and (widths[0] != widths[1] or lines[n - 1].startswith("# ")):
            return n, None, f"without {n} comment line{'s' * (n > 1)} above the header"
    return 0, None, ""


def csv_lines(head: str) -> list[str]:
    """Return the lines in the first `HEAD` characters of a CSV text, without blank ones above the header."""
    return re.split(r"\r\n|\r|\n", head[:HEAD].lstrip("\r\n"))


def csv_body(text: str, kind: str, requested: str | None) -> tuple[str, str, str]:
    """Return a CSV text from its header on, its separator, and a note on what stood above the header, or "".

    `kind` is "CSV" or "TSV"; `requested` is the separator that the caller names, or None.
    """
    n, named, note = above_header(text)
    text = text.lstrip("\r\n") if n else text
    for _ in range(n):
        text = re.sub(r"\A[^\r\n]*(?:\r\n|\r|\n)+", "", text, count=1)
    return text, separator_of(text, kind, requested or named), note


def usual_quotes(text: str, separator: str) -> str:
    r"""Return a CSV text whose quoted cells are written by the usual rule (RFC 4180).

    Other programs leave blanks around the quotes, write ``\"`` for a quote within them, or do not double it. A cell
    that begins with a quote, and does not end with one, stays as it is.
    """
    sep = re.escape(separator)
    before = rf"(?:(?<=[{sep}\r\n])|\A)"
    # Each search begins with a quote, or what stands for one is found first: a file may have millions of cells.
    lone = rf'"(?:(?<=[^{sep}\r\n"]")|(?<=\A"))(?![{sep}\r\n"])|"(?:(?<=[{sep}\r\n]")|(?<=\A"))"(?![{sep}\r\n"])'
    is_unusual = '\\"' in text or (' "' in text and re.search(rf'{before}[ ]+"', text)) or re.search(lone, text)
    if separator == " " or not is_unusual:
        return text
    usual, other = r'"(?:[^"]++|"")*+"', r'[ ]*+"(?:[^"\\]++|""|\\.)*+"[ ]*+'
    nested = rf'"[^{sep}\r\n]*"'
    cell = rf"(?:{usual}|(?P<other>{other})|(?P<nested>{nested}))(?=[{sep}\r\n]|\Z)|[^{sep}\r\n]++"

    def rewritten(cell: re.Match[str]) -> str:
        """Return a cell by the usual rule."""
        if cell["nested"] is not None:
            return '"' + re.sub('"+', lambda run: run[0] + '"' * (len(run[0]) % 2), cell[0][1:-1]) + '"'
        return cell[0] if cell["other"] is None else cell["other"].strip(" ").replace('\\"', '""')

    return re.sub(rf"{before}(?:{cell})", rewritten, text, flags=re.DOTALL)


def separator_of(head: str, kind: str, requested: str | None = None) -> str:
    """Return the requested separator, or else the one of `SEPARATORS` that gives the header most columns.

    `head` is the text from its header on; `kind`, "CSV" or "TSV", decides between separators that give as many columns.
    """
    if requested is not None:
        return requested
    usual = "\t" if kind == "TSV" else ","
    return max((usual, *SEPARATORS), key=lambda separator: len(header_names(head, separator)))


def header_names(head: str, separator: str) -> list[str]:
    """Return the cells of the first row of a CSV text; [] if it cannot be parsed."""
    try:
        return next(csv.reader(io.StringIO(head[:HEAD].lstrip("\r\n"), newline=""), delimiter=separator), [])
    except csv.Error:
        return []
