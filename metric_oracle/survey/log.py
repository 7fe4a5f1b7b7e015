"""The log of a rater: an append-only file of saves (events), from which no acknowledged save is ever lost.

Each save is a line of a journal (`base.journal`) that belongs to the rater and the survey. It is acknowledged only
after its line is on the disk (fsync), and after the number of lines and the last checksum are in a file beside the log,
NAME.saved.json: without it, nothing would show that lines were cut off. The last event of each candidate counts, and
events are never overwritten. All processes that read or write take the same file lock, so that two tabs, two servers,
or an export during a survey always see complete lines.

A kill or a power cut leaves at most one torn line, at the end, which was never acknowledged; it is removed under the
lock. Any other invalid line, and a log with fewer lines than were acknowledged, is damage: the log is refused and left
as it is. If the file beside the log is lost or damaged, the log is read, and its reader told. Logs of earlier versions,
whose lines have a checksum of their own or none, go on.
"""

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from metric_oracle.base.checksum import read_sealed, write_sealed
from metric_oracle.base.errors import InputError, MetricOracleError
from metric_oracle.base.journal import End, Journal, JournalLine
from metric_oracle.base.locks import let_interrupts_end_waits

MAX_ERRORS = 99  # largest number of errors in one cell
Counts = list[list[int | None]]
_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
_CHECK = b',"check":"'  # in lines of earlier versions, between the record and its checksum


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
    is_unsure: bool = False  # whether the file is lost or damaged that shows whether lines were cut off at the end


class Log:
    """The log of one rater, in an existing file. A missing file is an error; it is never created again.

    `n_candidates` has the number of candidates of each study, `n_categories` is that of the error categories, and
    `fingerprint` is that of the survey.
    """

    def __init__(self, path: Path, n_candidates: Sequence[int], n_categories: int, fingerprint: str) -> None:
        self.path = path
        self._n_candidates, self._n_categories, self._fingerprint = list(n_candidates), n_categories, fingerprint
        self._owner = {"rater": path.stem, "survey": fingerprint}
        self._lock = threading.Lock()
        self._begin()

    @property
    def unsure(self) -> str:
        """What must be told where the history is unsure."""
        return (
            f"{self.path.stem}: {self.beside} is lost or damaged, so nothing shows whether the log lacks its last saves"
        )

    @property
    def beside(self) -> Path:
        """The file that has the number of acknowledged lines."""
        return self.path.with_suffix(".saved.json")

    def start(self) -> None:
        """Make the empty log of a new survey."""
        self.path.touch()
        self._write_end(End())

    def _begin(self) -> None:
        """Forget all that was read."""
        self._history = History()
        self._journal = Journal(self._owner, self._former)
        self._checks = [""]  # of the lines, after that of none
        self._is_synced = False

    def read(self) -> History:
        """Return the current state of the log. The file is not changed: a torn line is counted, but stays."""
        with self._lock, self._opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
            torn, saved = self._follow(file)
            latest, by_id = dict(self._history.latest), dict(self._history.by_id)
            return replace(self._history, latest=latest, by_id=by_id, torn=torn, is_unsure=saved is None)

    def recover(self) -> int:
        """Remove a torn line, sync the file, and return the number of removed bytes; see `read` for what is unsure."""
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

    def _saved(self) -> End | None:
        """Return the acknowledged end of the log; None if the file beside it is lost, damaged or another log's."""
        try:
            content = read_sealed(self.beside, "")
            if all(content.get(name) == value for name, value in self._owner.items()):
                return End(content["lines"], content["check"])
        except (InputError, OSError, KeyError):
            if self._journal.is_former and not self.beside.exists():
                return End()  # of an earlier version
        return None

    def _write_end(self, end: End) -> None:
        """Write the acknowledged end of the log beside it."""
        write_sealed(self.beside, {**self._owner, **end._asdict()})

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        """Open the file with flags of `os.open` and a lock of `fcntl`; yield its descriptor, or raise SaveError."""
        try:
            file = os.open(self.path, flags)
        except OSError as error:
            lost = self._lost(f"({error.strerror or error})")
            raise lost from error
        let_interrupts_end_waits()
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
            "`leave_out`.",
        )

    def _recover(self, file: int) -> int:
        """Do what `recover` does with the open file, whose lock is held."""
        torn, saved = self._follow(file)
        try:
            if torn:
                os.ftruncate(file, self._journal.size)
            if torn or not self._is_synced:
                # A process that was killed may have written lines without a sync. They must be on the disk before use.
                os.fsync(file)
                self._is_synced = True
            if saved != self._journal.end or not self.beside.exists():
                self._write_end(self._journal.end)
        except OSError as error:
            raise _unsaved(self.path, error) from error
        return torn

    def _follow(self, file: int) -> tuple[int, End | None]:
        """Add new lines of the file to the history; return the bytes of a torn line at the end, and `_saved`.

        `file` is its descriptor. Raise SaveError if the file has become shorter, or is damaged.
        """
        size = os.fstat(file).st_size
        if size < self._journal.size:
            lost = self._lost(f"has {size} bytes of {self._journal.size}")
            raise lost
        raw = b""
        first = self._journal.size
        while len(raw) < size - first:
            block = os.pread(file, size - first - len(raw), first + len(raw))
            if not block:
                break
            raw += block
        torn, damaged = raw[raw.rfind(b"\n") + 1 :], ""
        place = self._journal.place
        for line in self._journal.take(raw):
            event = None if line.flaw else self._event(line)
            if event is None:
                damaged = f"is damaged in line {line.number}"
                if not torn and line.size == len(raw):
                    torn = raw  # a line of zeros, if it was never acknowledged
                    self._journal.go_back(place)
                break
            self._add(event)
            raw = raw[line.size :]
            place = self._journal.place
            self._is_synced = False
        saved = self._saved()
        n = len(self._history.by_id)
        if damaged and torn is raw and saved is not None and saved.lines <= n and self.beside.exists():
            damaged = ""
        if not damaged and saved is not None:
            if saved.lines > n:
                damaged = f"is damaged in line {n + 1}" if torn else f"has {n} of {saved.lines} acknowledged saves"
            elif self._checks[saved.lines] != saved.check:
                damaged = f"has other saves than those that were acknowledged, up to line {saved.lines}"
        if damaged:
            self._begin()
            lost = self._lost(damaged)
            raise lost
        return len(torn), saved

    def _add(self, event: Event) -> None:
        """Add an event, the last line of the journal, to the history."""
        self._history.latest[event.study, event.candidate] = self._history.by_id[event.id] = event
        self._checks.append(self._journal.end.check)

    def _event(self, line: JournalLine) -> Event | None:
        """Return the event of a line of the log; None if it is not valid, or not the one that comes next."""
        fields = line.record or {}
        try:
            self._check({**fields, "base": 0})
            event = Event(**{name: fields[name] for name in Event.__dataclass_fields__})
        except (TypeError, KeyError, InputError):
            return None
        is_next = event.seq == len(self._history.by_id) + 1 and event.id not in self._history.by_id
        return event if is_next and isinstance(event.time, str) else None

    def _former(self, line: bytes) -> dict[str, Any] | None:
        """Return the record of a line as earlier versions wrote it, with a checksum of its own or none; else None."""
        body, mark, check = line.rpartition(_CHECK)
        if mark and check != sha256(body).hexdigest()[:16].encode() + b'"}\n':
            return None
        try:
            fields = json.loads(body + b"}" if mark else line)
        except (ValueError, RecursionError):
            return None
        is_one = isinstance(fields, dict) and fields.keys() == {*Event.__dataclass_fields__, "survey"}
        return fields if is_one and line.endswith(b"}\n") else None

    def _append(self, file: int, event: Event) -> None:
        """Append an event to the file, sync it, and add the event to the history; raise SaveError if that fails."""
        fields = {name: getattr(event, name) for name in Event.__dataclass_fields__}
        place = self._journal.place
        try:
            self._journal.append(file, {**fields, **self._owner})
            try:
                self._write_end(self._journal.end)
            except OSError:
                if self._saved() != self._journal.end:  # otherwise it got there
                    raise
        except OSError as error:
            self._is_synced = False
            self._journal.go_back(place)
            self._journal.cut(file)
            raise _unsaved(self.path, error) from error
        except BaseException:
            self._begin()  # the file says what got there
            raise
        self._add(event)

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


def _is_number(value: object, maximum: int | None) -> bool:
    return type(value) is int and value >= 0 and (maximum is None or value <= maximum)


def _unsaved(path: Path, error: OSError) -> SaveError:
    """Return the error for a save that did not reach the disk."""
    return SaveError(
        f"the save did not reach the disk: {path} ({error.strerror or error}).",
        "Make room there; the page sends it again.",
    )
