"""Judgements that are kept in a folder, by the digests of both texts: a killed run goes on, another study reuses them.

Each answer is one line of a piece of a `Job`, written as soon as it came. A piece is a journal (`base.journal`) that
belongs to the judge, whom its first line names. A damaged line costs its own answer: that pair is judged again. A text
never gets into the folder.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import DamagedIndexError
from metric_oracle.base.files import checksum, naming, sync
from metric_oracle.base.job import Job
from metric_oracle.base.journal import End, Journal
from metric_oracle.base.progress import say

RECORD = "judgements.json"
DIGITS = 32  # hexadecimal digits of a SHA-256 that stand for a text: 128 bits; two make an id of 64 characters
PIECE = 100_000  # lines of a piece
PAUSE = 1.0  # seconds between two syncs: a power cut costs no more of the answers that were not announced


def pair_ids(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return an id for each pair: the first half of the SHA-256 of the reference, then that of the candidate."""
    digests: dict[str, str] = {}
    ids = []
    for pair in pairs:
        for text in pair:
            if text not in digests:
                digests[text] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
        ids.append(digests[pair[0]] + digests[pair[1]])
    return ids


class Judgements:
    """The judgements of one judge in a folder; those of others stay there untouched."""

    def __init__(self, job: Job, judge: dict[str, str]) -> None:
        self.folder = job.folder
        self.of: dict[str, dict[str, float]] = {}  # score and components by the id of the pair
        self._job, self._judge, self._made_of = job, judge, checksum(judge)
        self._file = -1  # descriptor of the piece under way
        self._name, self._journal, self._synced = "", Journal(judge), 0.0
        for name in [name for name, piece in job.pieces.items() if piece.made_of == self._made_of]:
            self._read_answers(name)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, name: str, version: str, job: Job | None = None) -> Iterator["Judgements"]:
        """Yield the judgements of a judge in a folder, which is made if missing and locked while the body runs.

        `job` is the lock that `locked` has yielded, if several judges keep theirs in the folder at once.
        """
        with cls.locked(folder) if job is None else nullcontext(job) as held:
            judgements = cls(held, {"judge": name, "version": version})
            try:
                yield judgements
            finally:
                judgements._finish()

    @staticmethod
    def locked(folder: Path) -> AbstractContextManager[Job]:
        """Lock a folder of judgements while the body runs; it is made if missing."""
        return Job.open(folder, RECORD, "run with a judge", "keep")

    def add(self, pair: str, numbers: dict[str, float]) -> None:
        """Keep the score and the components of a pair: from now on a kill does not lose them.

        Raise OSError if they cannot be written; what was kept before stays, and others can be kept later.
        """
        if self._file < 0:
            self._begin()
        self._write({"pair": pair, **numbers})
        self.of[pair] = numbers
        if self._journal.end.lines > PIECE:
            self._finish()

    def _begin(self) -> None:
        """Begin a piece, with the line that names the judge."""
        names = (f"{self._made_of[:12]}-{number:05}.jsonl" for number in count(1))
        self._name = next(name for name in names if name not in self._job.pieces)
        self._job.claim(self._name, made_of=self._made_of)
        path = self.folder / self._name
        self._journal = Journal(self._judge)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            self._write(self._judge)
        except BaseException:
            os.close(self._file)
            self._file = -1
            self._job.remove(self._name)
            raise

    def _write(self, entry: dict[str, Any]) -> None:
        """Append a line to the piece under way."""
        now = time.monotonic()
        is_synced = now - self._synced > PAUSE
        with naming(self.folder / self._name):
            self._journal.append(self._file, entry, is_synced=is_synced)
        if is_synced:
            self._synced = now

    def _finish(self) -> None:
        """Record the piece under way with its checksum and its end."""
        if self._file >= 0:
            self._journal.cut(self._file)
            os.close(self._file)
            self._file = -1
            sync(self.folder / self._name)
            self._job.record(self._name, note=self._journal.end)

    def _read_answers(self, name: str) -> None:
        """Read the judgements of a piece, also of one that a killed process left; damage is told in one line."""
        piece, path = self._job.pieces[name], self.folder / name
        if not path.is_file():
            if piece.sha256:
                say(f"{path} is missing: the pairs of its {_answers(piece.note)} are judged again.", None)
            self._job.remove(name)
            return
        _, answers, end, flaws = read_piece(path, self._judge, is_former=self._job.holds(name))
        lost = _lost(path, flaws, end, piece.note if piece.sha256 else None)
        if lost:
            say(f"{lost} The pairs of those that are lost are judged again.", None)
        for answer in answers:
            self.of[answer.pop("pair")] = answer
        if not piece.sha256 and not flaws:
            self._job.record(name, note=end)


def counted(folder: Path, *, check: bool = False) -> list[dict[str, Any]]:
    """Return a record for each judge with judgements in a folder: its name and version, and how many it has.

    Counted are judgements, distinct references and distinct candidates. With `check`, raise DamagedIndexError if a
    piece was changed.
    """
    job = Job(folder, RECORD)
    pairs_of: dict[tuple[str, str], set[str]] = {}
    for name, piece in job.pieces.items():
        path = folder / name
        if not path.is_file():
            if check and piece.sha256:
                raise DamagedIndexError(f"{path} is missing.", "A run with the judge asks for its pairs again.")
            continue
        judge, answers, end, flaws = read_piece(path, is_former=job.holds(name))
        lost = _lost(path, flaws, end, piece.note if piece.sha256 else None)
        if check and lost:
            raise DamagedIndexError(lost, "A run with the judge asks for the pairs of those that are lost again.")
        if answers:
            pairs_of.setdefault((judge["judge"], judge["version"]), set()).update(line["pair"] for line in answers)
    return [
        {
            "judge": judge,
            "version": version,
            "judgements": len(pairs),
            "references": len({pair[:DIGITS] for pair in pairs}),
            "candidates": len({pair[DIGITS:] for pair in pairs}),
        }
        for (judge, version), pairs in sorted(pairs_of.items())
    ]


def read_piece(
    path: Path, judge: dict[str, str] | None = None, *, is_former: bool = False
) -> tuple[dict[str, str], list[dict[str, Any]], End, list[str]]:
    """Return the judge of a piece, its answers, its end, and what is wrong with it, such as "line 3 is damaged".

    By default the judge is the one that the first line names. The rest of an interrupted write at the end is no fault.
    Lines of earlier versions have no checksum; they are taken if `is_former`, where the record has that of the piece.
    """
    raw = path.read_bytes()
    if judge is None:
        judge = _judge_in(raw)
    journal = Journal(judge, _former if is_former else lambda line: None)
    lines = [*journal.take(raw if raw.endswith(b"\n") else raw + b"\n")] if raw else []
    if lines and lines[-1].record is None and not raw.endswith(b"\n"):
        lines.pop()  # torn
    flaws = [f"line {line.number} {line.flaw}" for line in lines if line.flaw]
    answers = [line.record for line in lines if line.record is not None and "pair" in line.record]
    return judge, answers, journal.end._replace(lines=len(lines)), flaws


def _judge_in(raw: bytes) -> dict[str, str]:
    """Return the judge that the first line of a piece names; empty names if it is damaged."""
    try:
        line = json.loads(raw[: raw.find(b"\n") + 1])
        return {name: str(line[name]) for name in ("judge", "version")}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"judge": "", "version": ""}


def _former(line: bytes) -> dict[str, Any] | None:
    """Return a line of a piece of an earlier version, whose checksum is in the record of the job."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "check" not in entry else None


def _lost(path: Path, flaws: list[str], end: End, recorded: Any) -> str:
    """Return a line on what is damaged in a piece, empty if nothing is; `recorded` is its end on record, or None."""
    n = recorded[0] if isinstance(recorded, list | tuple) else 0
    if n > end.lines:
        flaws = [*flaws, f"{n - end.lines:,} lines are missing at the end"]
    if not flaws:
        return ""
    listed = ", ".join(flaws[:3]) + (f" and {len(flaws) - 3:,} more" if len(flaws) > 3 else "")
    return f"{path} was changed after it was written: {listed}; the other answers are kept."


def _answers(recorded: Any) -> str:
    """Return how many answers a piece had, by its end on record."""
    return f"{recorded[0] - 1:,} answers" if isinstance(recorded, list | tuple) else "answers"
