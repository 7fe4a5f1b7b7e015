"""The log of a rater: an append-only file of saves (events), from which no acknowledged save is ever lost.

Each save is one line of JSON. It is acknowledged only after its line is on the disk (fsync). The last event of each
candidate counts, and events are never overwritten. All processes that read or write take the same file lock, so that
two tabs, two servers, or an export during a survey always see complete lines.

Each line ends with a checksum of the bytes before it, which distinguishes damage from a torn write. A kill or a power
cut leaves at most one torn line, at the end: without a line end, or with zeros in blocks that were never
written. It was never acknowledged, and is removed under the lock. Any other invalid line is damage: the log is
refused and left as it is. Lines of earlier versions have no checksum; they are accepted if they can be parsed.
"""

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError, MetricOracleError, option

MAX_ERRORS = 99  # largest number of errors in one cell
Counts = list[list[int | None]]
_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
_CHECK = b',"check":"'  # between a line's record and its checksum


class SaveError(MetricOracleError):
    """A save did not reach the disk. The log is unchanged."""


class ConflictError(MetricOracleError):
    """A save was based on an outdated state, as from a second tab; `event` is the candidate's last save or None."""

    def __init__(self, sentence: str, step: str, *, event: "Event | None") -> None:
        super().__init__(sentence, step)
        self.event = event


@dataclass(frozen=True)
class Event:
    """One save: all cells of one candidate."""

    id: str  # chosen by the page, so that a save that is sent twice is recognised
    seq: int  # number of the line, from 1
    time: str  # of the save, UTC, in ISO format
    study: int  # position in the survey, from 0
    candidate: int  # position in the study, from 0
    counts: Counts  # for each category, the numbers of significant and insignificant errors; None if not answered

    @property
    def open_cells(self) -> int:
        """Number of cells without an answer."""
        return sum(count is None for cells in self.counts for count in cells)


@dataclass
class History:
    """The state of a log."""

    latest: dict[tuple[int, int], Event] = field(default_factory=dict)  # (study, candidate) -> its last event
    by_id: dict[str, Event] = field(default_factory=dict)  # id -> event, all of them in the order of the file
    torn: int = 0  # number of bytes of a torn line at the end, which is ignored


class Log:
    """The log of one rater, in an existing file. A missing file is an error; it is never created again.

    `n_candidates` has the number of candidates of each study, `n_categories` is that of the error categories, and
    `fingerprint` is that of the survey.
    """

    def __init__(self, path: Path, n_candidates: Sequence[int], n_categories: int, fingerprint: str) -> None:
        self.path = path
        self._n_candidates, self._n_categories, self._fingerprint = list(n_candidates), n_categories, fingerprint
        self._lock = threading.Lock()
        self._history = History()
        self._whole = 0  # number of bytes of the file that the history covers
        self._is_synced = False

    def read(self) -> History:
        """Return the current state of the log. The file is not changed: a torn line is counted, but stays."""
        with self._lock, self._opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
            torn = self._follow(file)
            return replace(self._history, latest=dict(self._history.latest), by_id=dict(self._history.by_id), torn=torn)

    def recover(self) -> int:
        """Remove a torn line, sync the file, and return the number of removed bytes."""
        with self._lock, self._opened(os.O_RDWR, fcntl.LOCK_EX) as file:
            return self._recover(file)

    def save(self, request: Mapping[str, Any]) -> Event:
        """Append an event, and return it when it is on the disk; if a save is sent again, return its first event.

        A request has ``id``, ``study``, ``candidate`` and ``counts`` as in `Event`; ``survey``, the survey's
        fingerprint; and ``base``, the ``seq`` of the event that the page showed for this candidate, 0 for none. Raise
        InputError if it is not valid, ConflictError if ``base`` is not the last event of the candidate, and SaveError
        if the event did not reach the disk. Nothing was saved then.
        """
        self._check(request)
        candidate = request["study"], request["candidate"]
        with self._lock, self._opened(os.O_RDWR, fcntl.LOCK_EX) as file:
            self._recover(file)
            earlier = self._history.by_id.get(request["id"])
            if earlier is not None:
                if (earlier.study, earlier.candidate, earlier.counts) != (*candidate, request["counts"]):
                    raise InputError("two saves of this page have the same id.", "Reload the page.")
                return earlier
            last = self._history.latest.get(candidate)
            if request["base"] != (last.seq if last else 0):
                raise ConflictError(
                    "this save is not based on the last save of the candidate.",
                    "Load the page again and compare the counts.",
                    event=last,
                )
            now = datetime.now(UTC).isoformat(timespec="seconds")
            event = Event(
                request["id"], len(self._history.by_id) + 1, now, *candidate, [list(c) for c in request["counts"]]
            )
            self._append(file, event)
            return event

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        """Open the file with flags of `os.open` and a lock of `fcntl`; yield its descriptor, or raise SaveError."""
        try:
            file = os.open(self.path, flags)
        except OSError as error:
            lost = self._lost(f"({error.strerror or error})")
            raise lost from error
        try:
            fcntl.flock(file, lock)
            yield file
        finally:
            os.close(file)

    def _lost(self, reason: str) -> SaveError:
        """Return the error for a log that lacks lines which it had, or cannot be read."""
        return SaveError(
            f"the log of a rater was changed or moved: {self.path} {reason}.",
            "Stop the server, and restore the file from a backup. Without one, export the other raters with "
            f"{option('leave_out')}.",
        )

    def _recover(self, file: int) -> int:
        """Do what `recover` does with the open file, whose lock is held."""
        torn = self._follow(file)
        try:
            if torn:
                os.ftruncate(file, self._whole)
            if torn or not self._is_synced:
                # A process that was killed may have written lines without a sync. They must be on the disk before use.
                os.fsync(file)
                self._is_synced = True
        except OSError as error:
            raise _unsaved(self.path, error) from error
        return torn

    def _follow(self, file: int) -> int:
        """Add new lines of the file to the history; return the number of bytes of a torn line at the end.

        `file` is its descriptor. Raise SaveError if the file has become shorter, or is damaged.
        """
        size = os.fstat(file).st_size
        if size < self._whole:
            lost = self._lost(f"has {size} bytes of {self._whole}")
            raise lost
        if size == self._whole:
            return 0
        raw = b""
        while len(raw) < size - self._whole:
            block = os.pread(file, size - self._whole - len(raw), self._whole + len(raw))
            if not block:
                break
            raw += block
        *whole, rest = raw.split(b"\n")
        lines = [line + b"\n" for line in whole] + ([rest] if rest else [])
        for number, line in enumerate(lines, 1):
            event = self._event(line)
            if event is None:
                if number < len(lines) or not self._is_torn(line):
                    lost = self._lost(f"is damaged in line {len(self._history.by_id) + 1}")
                    raise lost
                return len(line)
            self._add(event, len(line))
            self._is_synced = False
        return 0

    def _add(self, event: Event, size: int) -> None:
        """Add an event, a line of `size` bytes, to the history."""
        self._history.latest[event.study, event.candidate] = self._history.by_id[event.id] = event
        self._whole += size

    def _event(self, line: bytes) -> Event | None:
        """Return the event of a line of the log; None if it is torn, damaged or not the next one."""
        body, mark, _ = line.rpartition(_CHECK)
        if mark and line != _checked(body):
            return None
        try:
            record = json.loads(body + b"}" if mark else line)
            self._check({**record, "base": 0})
            event = Event(**{name: record[name] for name in Event.__dataclass_fields__})
        except (ValueError, TypeError, KeyError, InputError):
            return None
        is_whole = line.endswith(b"\n") and record.keys() == {*Event.__dataclass_fields__, "survey"}
        is_next = event.seq == len(self._history.by_id) + 1 and event.id not in self._history.by_id
        return event if is_whole and is_next and isinstance(event.time, str) else None

    def _is_torn(self, line: bytes) -> bool:
        """Return whether the last line is the rest of an interrupted write: a part of one line, or zeros."""
        body, mark, _ = line.rpartition(_CHECK)
        has_all = len(line) >= len(_checked(body)) if mark else line[:-1].endswith(b"}")
        is_part = b"\0" in line or not (line.endswith(b"\n") or has_all)
        return is_part and len(line) < 512 + 8 * self._n_categories  # longer than any valid line

    def _append(self, file: int, event: Event) -> None:
        """Append an event to the file, sync it, and add the event to the history; raise SaveError if that fails."""
        record = {name: getattr(event, name) for name in Event.__dataclass_fields__}
        text = json.dumps({**record, "survey": self._fingerprint}, separators=(",", ":"))
        line = _checked(text.removesuffix("}").encode())
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(file, line[written:], self._whole + written)
            os.fsync(file)
        except OSError as error:
            self._is_synced = False
            with suppress(OSError):
                os.ftruncate(file, self._whole)
                os.fsync(file)
            raise _unsaved(self.path, error) from error
        self._add(event, len(line))

    def _check(self, request: Mapping[str, Any]) -> None:
        """Raise InputError unless a request, see `save`, belongs to this survey and all its values are valid."""
        study, candidate, counts = (request.get(name) for name in ("study", "candidate", "counts"))
        n_rows = self._n_categories
        rules = {
            "survey must be this survey": request.get("survey") == self._fingerprint,
            "id must be 8 to 64 letters, digits and hyphens": isinstance(request.get("id"), str)
            and _ID.fullmatch(request["id"]),
            "base must be a number of a save, from 0": _is_number(request.get("base"), None),
            "study must be a position": _is_number(study, len(self._n_candidates) - 1),
            "candidate must be a position": _is_number(study, len(self._n_candidates) - 1)
            and _is_number(candidate, self._n_candidates[study or 0] - 1),
            f"counts must be {n_rows} x 2 numbers from 0 to {MAX_ERRORS}, or null for no answer": isinstance(
                counts, list
            )
            and len(counts) == n_rows
            and all(
                isinstance(cells, list)
                and len(cells) == 2
                and all(c is None or _is_number(c, MAX_ERRORS) for c in cells)
                for cells in counts
            ),
        }
        for rule, holds in rules.items():
            if not holds:
                raise InputError(f"the page sent a save that is not valid: {rule}.", "Reload the page.")


def _checked(body: bytes) -> bytes:
    """Return the line of a record with its checksum; `body` is the JSON without its closing brace."""
    return body + _CHECK + sha256(body).hexdigest()[:16].encode() + b'"}\n'


def _is_number(value: object, maximum: int | None) -> bool:
    return type(value) is int and value >= 0 and (maximum is None or value <= maximum)


def _unsaved(path: Path, error: OSError) -> SaveError:
    """Return the error for a save that did not reach the disk."""
    return SaveError(
        f"the save did not reach the disk: {path} ({error.strerror or error}).",
        "Make room there; the page sends it again.",
    )
