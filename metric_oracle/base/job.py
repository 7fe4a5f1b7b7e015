"""Jobs that resume: a folder of finished pieces and a record of their checksums, so that a kill loses little."""

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from metric_oracle.base.checksum import read_sealed, write_sealed
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import remove_leftovers, sha256
from metric_oracle.base.locks import LOCK, exclusive, is_at

_AT_ONCE = 1 << 20  # bytes that are hashed at a time


class Recorded(NamedTuple):
    """What the record of a job says of a piece."""

    made_of: str  # checksum of all that the piece is made of
    sha256: str = ""  # of its content; empty until the piece is finished
    note: Any = None  # what the job must know of a finished piece: a JSON value
    # Of a piece that grows: (first, stop), bytes of it that are finished -> their checksum.
    parts: Mapping[tuple[int, int], str] = MappingProxyType({})


class Job:
    """A job that a later process can resume: a folder of pieces, which are files, and a record in one more file.

    A piece is claimed before it is written, so that a file without a record is not the job's, and recorded with its
    checksum when it is finished. It may also be a folder with a record of its own, which is only claimed, or a file
    that is recorded part by part. If the record is lost or damaged, no piece counts as finished.
    """

    def __init__(self, folder: Path, record: str) -> None:
        self.folder = folder
        self.pieces: dict[str, Recorded] = {}  # by name, relative to the folder
        self.is_damaged = False  # whether there is a record that cannot be read
        self._record = folder / record
        self._held: set[str] = set()  # pieces that need no further comparison with their checksums
        try:
            content = read_sealed(self._record, "")
            pieces = {
                name: Recorded(
                    str(entry["made_of"]),
                    str(entry["sha256"]),
                    entry.get("note"),
                    {(int(first), int(stop)): str(sha) for first, stop, sha in entry.get("parts", [])},
                )
                for name, entry in content.items()
            }
            _check_inside(pieces)
            self.pieces = pieces
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            self.is_damaged = self._record.exists()

    @classmethod
    @contextmanager
    def open(cls, folder: Path, record: str, title: str, argument: str = "out") -> Iterator["Job"]:
        """Yield the job in a folder, which is made if missing and locked while the body runs; see `working`.

        Raise InputError if the folder has a file that is not on record: it must not be deleted or overwritten. `title`
        names what works there, and `argument` is the option for the folder, for messages.
        """
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if names and LOCK not in names:
            raise _foreign(folder, title, argument, f"it holds {names[0]}")
        with working(folder, title):
            job = cls(folder, record)
            if job.is_damaged:
                raise _foreign(folder, title, argument, f"its {record} cannot be read")
            of_job, killed = {LOCK, record, *(Path(name).parts[0] for name in job.pieces)}, set()
            for name in sorted(path.name for path in folder.iterdir()):
                temporary = re.fullmatch(r"\.(.+)\.\d+\.tmp", name)
                if (temporary[1] if temporary else name) not in of_job:
                    raise _foreign(folder, title, argument, f"it holds {name}")
                if temporary:
                    killed.add(temporary[1])
            for name in killed:
                remove_leftovers(folder / name, f".{name}.", ".tmp")
            yield job

    def keep(self, made_of: Mapping[str, str]) -> None:
        """Remove all pieces but those that `made_of` has with the checksum of what they are made of."""
        others = [name for name, piece in self.pieces.items() if made_of.get(name) != piece.made_of]
        if others:
            self.remove(*others)

    def claim(self, *names: str, made_of: str) -> None:
        """Record pieces before they are written; those that were made of the same stay as they are."""
        _check_inside(names)
        new = [name for name in names if name not in self.pieces or self.pieces[name].made_of != made_of]
        self._held.difference_update(new)
        self.pieces |= dict.fromkeys(new, Recorded(made_of))
        if new:
            self._write()

    def holds(self, name: str) -> bool:
        """Return whether a piece is finished and has its checksum; the file is read once."""
        piece = self.pieces.get(name)
        if piece is not None and piece.sha256 and name not in self._held:
            with suppress(OSError):
                if sha256(self.folder / name) == piece.sha256:
                    self._held.add(name)
        return name in self._held

    def record(self, *names: str, note: Any = None) -> None:
        """Record that claimed pieces are finished, each with the checksum of its file and with `note`."""
        for name in names:
            self.pieces[name] = Recorded(self.pieces[name].made_of, sha256(self.folder / name), note)
        self._held.update(names)
        self._write()

    def holds_part(self, name: str, first: int, stop: int) -> bool:
        """Return whether the bytes from `first` to `stop` of a claimed piece are recorded and have their checksum."""
        wanted = self.pieces[name].parts.get((first, stop))
        return wanted is not None and _sha256_of_part(self.folder / name, first, stop) == wanted

    def record_part(self, name: str, first: int, stop: int) -> None:
        """Record that the bytes from `first` to `stop` of a claimed piece, which are on disk, are finished."""
        piece = self.pieces[name]
        sha = _sha256_of_part(self.folder / name, first, stop)
        self.pieces[name] = piece._replace(parts={**piece.parts, (first, stop): sha})
        self._write()

    def remove(self, *names: str) -> None:
        """Remove pieces; names that are not on record are left alone."""
        for name in names:
            if name in self.pieces:
                if (self.folder / name).is_dir():
                    shutil.rmtree(self.folder / name)
                else:
                    (self.folder / name).unlink(missing_ok=True)
                del self.pieces[name]
        self._held.difference_update(names)
        self._write()

    def _write(self) -> None:
        """Write the record."""
        content: dict[str, dict[str, Any]] = {}
        for name, piece in self.pieces.items():
            content[name] = {"made_of": piece.made_of, "sha256": piece.sha256}
            if piece.note is not None:
                content[name]["note"] = piece.note
            if piece.parts:
                content[name]["parts"] = [[first, stop, sha] for (first, stop), sha in piece.parts.items()]
        write_sealed(self._record, content)


@contextmanager
def working(folder: Path, title: str) -> Iterator[None]:
    """Make a folder and lock it while the body runs; at the end it is removed if it has nothing but the lock.

    Raise InUseError if another process works there; `title` names the work in the message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive(folder, title) as lock:
        try:
            yield
        finally:
            with suppress(OSError):
                # The folder may be another process's by now, if the body has renamed or removed that of this one.
                if is_at(lock, folder / LOCK) and [path.name for path in folder.iterdir()] == [LOCK]:
                    (folder / LOCK).unlink()
                    folder.rmdir()


def _sha256_of_part(path: Path, first: int, stop: int) -> str:
    """Return the SHA-256, in hexadecimal, of the bytes from `first` to `stop` of a file, of fewer where it is short."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(first)
        while content := file.read(min(stop - file.tell(), _AT_ONCE)):
            hasher.update(content)
    return hasher.hexdigest()


def _check_inside(names: Iterable[str]) -> None:
    """Raise InputError if one of the names of pieces leads out of the folder of its job."""
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
            raise InputError("the name of a piece", "must be inside its folder", shown(name), "Name another.")


def _foreign(folder: Path, title: str, argument: str, reason: str) -> InputError:
    """Return the error for a folder that an earlier process of the same work did not leave."""
    return InputError(
        f"{folder} was not left by an earlier {title}: {reason}.", f"Move it, or name another `{argument}`."
    )
