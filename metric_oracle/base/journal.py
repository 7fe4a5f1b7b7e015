"""Journals: files to which lines are appended. Reading one finds every line that was changed or lost since.

Each line is a JSON object. It ends with ``after``, the checksum of the line before it, and ``check``, the checksum of
the journal's owner and of all bytes of the line before that. So a changed byte is found, and a line that is missing,
exchanged, or of another owner; and damage in one line costs no other line.

What no line can show is that whole lines were cut off at the end of the file. Therefore whoever acknowledged them
keeps `Journal.end` elsewhere: a file beside the journal, or the record of a job.
"""

import errno
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from metric_oracle.base.files import checksum

_CHECK, _DIGITS = b',"check":"', 16
_TAIL = re.compile(rb',"check":"[0-9a-f]{%d}"\}' % _DIGITS)


class End(NamedTuple):
    """The end of a journal: what must be known elsewhere to find that lines were cut off."""

    lines: int = 0
    check: str = ""  # that of the last line


class JournalLine(NamedTuple):
    """A line of a journal."""

    number: int  # from 1
    record: dict[str, Any] | None  # None if it is damaged
    flaw: str = ""  # what is wrong, such as "is damaged"
    size: int = 0  # bytes


class Journal:
    """The lines of one journal that were read or appended so far; the file is opened and locked by the caller."""

    def __init__(self, owner: Any, former: Callable[[bytes], dict[str, Any] | None] = lambda line: None) -> None:
        self._owner = checksum(owner).encode()
        self._former = former  # reads a line as earlier versions wrote it; no such line follows one of this version
        self.size = 0  # bytes of these lines
        self.end = End()
        self.is_former = True  # whether none of these lines is of this version

    def take(self, raw: bytes) -> Iterator[JournalLine]:
        """Yield the lines of the bytes that follow; those after the last line feed are left, see `size`."""
        for line in _split(raw):
            parts = [line] if self._is_whole(line) else _glued(line)
            for part in parts:
                whole = part if part.endswith(b"\n") else part[:-1] + b"\n"
                yield self._advance(part, whole if self._is_whole(whole) else b"", part == line)

    def append(self, file: int, record: Mapping[str, Any], *, is_synced: bool = True) -> None:
        """Append a line to the open file, whole or not at all; raise OSError if the system cannot write it.

        What an interrupted write left behind the last whole line is cut off before.
        """
        body = json.dumps({**record, "after": self.end.check}, separators=(",", ":")).removesuffix("}").encode()
        line = body + _CHECK + self._sum(body) + b'"}\n'
        try:
            if os.fstat(file).st_size > self.size:
                os.ftruncate(file, self.size)
            written = 0
            while written < len(line):
                n = os.pwrite(file, line[written:], self.size + written)
                if not n:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                written += n
            if is_synced:
                os.fsync(file)
        except OSError:
            self.cut(file)
            raise
        self._advance(line, line, True)

    @property
    def place(self) -> tuple[int, End, bool]:
        """What `go_back` needs to forget the lines that follow."""
        return self.size, self.end, self.is_former

    def go_back(self, place: tuple[int, End, bool]) -> None:
        """Forget the lines that were read or appended since `place` was taken; the file stays as it is."""
        self.size, self.end, self.is_former = place

    def cut(self, file: int) -> None:
        """Cut off what follows the last line; where the system cannot, the next `append` does."""
        with suppress(OSError):
            os.ftruncate(file, self.size)
            os.fsync(file)

    def _advance(self, part: bytes, whole: bytes, is_exact: bool) -> JournalLine:
        """Return the next line, of the bytes `part`; `whole` is the line if it is not damaged, otherwise empty."""
        number, before = self.end.lines + 1, self.end.check
        self.size += len(part)
        if not whole and self.is_former and (record := self._former(part)) is not None:
            self.end = End(number, sha256(part).hexdigest()[:_DIGITS])
            return JournalLine(number, record, "", len(part))
        if not whole:
            self.end = End(number, "")
            return JournalLine(number, None, "is damaged", len(part))
        self.is_former = False
        record = json.loads(whole)
        after, check = record.pop("after"), record.pop("check")
        is_next = after == before or (number > 1 and not before)  # after a damaged line nothing is known
        self.end = End(number, check)
        flaw = "" if is_exact else "has no end of its own"
        return JournalLine(number, record, flaw if is_next else "does not follow the line before it", len(part))

    def _is_whole(self, line: bytes) -> bool:
        """Return whether a line is of this owner and as it was written."""
        body, mark, check = line.rpartition(_CHECK)
        return bool(mark) and check == self._sum(body) + b'"}\n'

    def _sum(self, body: bytes) -> bytes:
        return sha256(self._owner + body).hexdigest()[:_DIGITS].encode()


def _split(raw: bytes) -> list[bytes]:
    """Return the lines of bytes, each with its line feed, without what follows the last one."""
    return [line + b"\n" for line in raw.split(b"\n")[:-1]]


def _glued(line: bytes) -> Iterator[bytes]:
    """Yield the parts of a damaged line that each end as a line does: a line feed may have become another byte."""
    start = 0
    for tail in _TAIL.finditer(line):
        stop = min(tail.end() + 1, len(line))
        yield line[start:stop]
        start = stop
    if start < len(line):
        yield line[start:]
