"""Files and folders that are being written beside their place, and what killed writers left there."""

import fcntl
import glob
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path

from metric_oracle.errors import InputError, InUseError


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Lock a folder, or a file that is made, so that others see that its writer lives; yields its descriptor.

    The lock goes with the process, however it ends.
    """
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)


@contextmanager
def alone(folder: Path, lock: str, function: str, work: str) -> Iterator[None]:
    """Hold a folder in which one process works at a time, by a file `lock` in it, or raise.

    The system lets go of it when the process ends, however it ends.
    """
    with (folder / lock).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"{function}: {folder} must not be in use; got another {work} at work there. Wait for it to end."
            raise InUseError(msg) from error
        yield


def check_new(folder: Path, function: str, argument: str) -> None:
    """Raise unless a folder is new or empty, and can be renamed to: the current one cannot."""
    if folder.is_dir() and folder.samefile(Path.cwd()):
        msg = (
            f"{function}: {argument} must be a new or empty folder; got the current folder, which cannot be replaced. "
            "Name another folder."
        )
        raise InputError(msg)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        msg = f"{function}: {argument} must be a new or empty folder; got {folder}. Name another folder."
        raise InputError(msg)


@contextmanager
def new_folder(out: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder next to `out`; at the end its files are synced, and it is renamed to `out`.

    `out` is new or an empty folder. What killed writers left beside it is removed; so is the folder if anything fails.
    """
    before = f".{out.name}.unfinished-"
    remove_leftovers(out, before, "")
    folder = out.with_name(f"{before}{os.getpid()}{time.time_ns()}")
    try:
        folder.mkdir(mode=mode)  # a signal may arrive before the next line
        with held(folder):
            yield folder
            for path in (*folder.rglob("*"), folder):
                sync(path)
            if out.exists():
                out.rmdir()
            folder.rename(out)
            sync(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def identify(path: Path) -> dict[str, str]:
    """Return the name and the SHA-256 of a file, by which signatures identify it."""
    with path.open("rb") as file:
        return {"file": path.name, "sha256": file_digest(file, "sha256").hexdigest()}


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are safe from a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(place: Path, before: str, after: str) -> None:
    """Remove what killed writers left beside `place`: of the name `before`, a number, `after`, and held by nobody."""
    for left in place.parent.glob(f"{glob.escape(before)}*{glob.escape(after)}"):
        if not left.name[len(before) : len(left.name) - len(after)].isdecimal():
            continue
        with suppress(OSError):
            file = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
            finally:
                os.close(file)
