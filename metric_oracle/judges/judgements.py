"""Judgements that are kept in a folder, by the digests of both texts: a killed run goes on, another study reuses them.

Each answer is one line of a piece of a `Job`, written as soon as it came. The first line of a piece names the judge. A
text never gets into the folder.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import DamagedIndexError, InputError
from metric_oracle.base.files import checksum, sync, write_bytes
from metric_oracle.base.job import Job

RECORD = "judgements.json"
DIGITS = 32  # hexadecimal digits of a SHA-256 that stand for a text: 128 bits; two make an id of 64 characters
PIECE = 100_000  # lines of a piece


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
        self._piece: Any = None  # the piece under way
        self._name, self._n_lines = "", 0
        for name in [name for name, piece in job.pieces.items() if piece.made_of == self._made_of]:
            self._read(name)

    @classmethod
    @contextmanager
    def open(cls, folder: Path, name: str, version: str) -> Iterator["Judgements"]:
        """Yield the judgements of a judge in a folder, which is made if missing and locked while the body runs."""
        with Job.open(folder, RECORD, "run with a judge", "keep") as job:
            judgements = cls(job, {"judge": name, "version": version})
            try:
                yield judgements
            finally:
                judgements._finish()

    def add(self, pair: str, numbers: dict[str, float]) -> None:
        """Keep the score and the components of a pair: from now on a kill does not lose them."""
        if self._piece is None:
            names = (f"{self._made_of[:12]}-{number:05}.jsonl" for number in count(1))
            self._name = next(name for name in names if name not in self._job.pieces)
            self._job.claim(self._name, made_of=self._made_of)
            self._piece = (self.folder / self._name).open("wb", buffering=0)
            self._piece.write(_line(self._judge))
        self.of[pair] = numbers
        self._piece.write(_line({"pair": pair, **numbers}))
        self._n_lines += 1
        if self._n_lines == PIECE:
            self._finish()

    def _finish(self) -> None:
        """Record the piece under way with its checksum."""
        if self._piece is not None:
            self._piece.close()
            sync(self.folder / self._name)
            self._job.record(self._name)
            self._piece, self._n_lines = None, 0

    def _read(self, name: str) -> None:
        """Read the judgements of a piece; a piece that a killed process left is cut after its last whole line."""
        path, is_finished = self.folder / name, bool(self._job.pieces[name].sha256)
        if not path.is_file():
            self._job.remove(name)
            return
        if is_finished and not self._job.holds(name):
            raise InputError(
                f"{path} was changed after it was written: its checksum is not the one in {RECORD}.",
                "Delete it to have its pairs judged again.",
            )
        lines = [*read_piece(path)]
        if not is_finished and len(lines) > 1:
            write_bytes(path, *map(_line, lines))
            self._job.record(name)
        elif not is_finished:
            self._job.remove(name)
        self.of |= {line.pop("pair"): line for line in lines[1:]}


def counted(folder: Path, *, check: bool = False) -> list[dict[str, Any]]:
    """Return a record for each judge with judgements in a folder: its name and version, and how many it has.

    Counted are judgements, distinct references and distinct candidates. With `check`, raise DamagedIndexError if a
    finished piece was changed.
    """
    job = Job(folder, RECORD)
    found: dict[tuple[str, str], set[str]] = {}
    for name, piece in job.pieces.items():
        if check and piece.sha256 and not job.holds(name):
            raise DamagedIndexError(f"{folder / name} is missing or was changed after it was written.", "Delete it.")
        if (folder / name).is_file():
            judge, *lines = [*read_piece(folder / name)] or [{}]
            if lines:
                found.setdefault((judge["judge"], judge["version"]), set()).update(line["pair"] for line in lines)
    return [
        {
            "judge": judge,
            "version": version,
            "judgements": len(pairs),
            "references": len({pair[:DIGITS] for pair in pairs}),
            "candidates": len({pair[DIGITS:] for pair in pairs}),
        }
        for (judge, version), pairs in sorted(found.items())
    ]


def read_piece(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a piece, the judge's first, up to the first that is not whole."""
    with path.open("rb") as file, suppress(ValueError):
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=True).encode() + b"\n"
