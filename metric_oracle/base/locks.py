"""Locks of processes: files that are locked while a body runs. The system releases a lock when its process ends."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from metric_oracle.base.errors import InUseError

LOCK = ".lock"  # the file of a folder that the process which works there locks, see `exclusive`


def let_interrupts_end_waits() -> None:
    """Let SIGINT end the next wait of this process for a lock, a file, a thread or a process.

    Importing Polars registers SIGINT anew, so that the system goes on with a wait after the signal, and Python learns
    of it only when the wait is over. Python's own choice is restored; whoever handles the signal stays.
    """
    signal.siginterrupt(signal.SIGINT, True)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether an open file is still the one at a path, where it may have been removed, renamed or replaced."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    return False


def open_locked(path: Path, flags: int = 0, *, is_needed: bool = False) -> int:
    """Create or open a file with further `flags` of `os.open`, wait for its lock, and return its descriptor.

    Return -1 if it was removed in the meantime. Where the file system has no locks, it is only opened, or OSError is
    raised if the lock `is_needed`.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    try:
        let_interrupts_end_waits()
        with suppress(*() if is_needed else (OSError,)):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_at(descriptor, path):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return -1


@contextmanager
def alone(lock: Path, *, is_needed: bool = False) -> Iterator[None]:
    """Wait for the lock of the file `lock` and hold it, alone of all processes, while the body runs; then remove it.

    `is_needed` is as in `open_locked`.
    """
    descriptor = -1
    try:
        while descriptor < 0:
            descriptor = open_locked(lock, is_needed=is_needed)
        yield
    finally:
        if descriptor >= 0:
            lock.unlink(missing_ok=True)
            os.close(descriptor)


@contextmanager
def exclusive(folder: Path, work: str) -> Iterator[int]:
    """Let one process at a time work in a folder: lock the file `LOCK` in it while the body runs; yield its descriptor.

    Raise InUseError if another process has the lock, or removed it a moment ago; `work` names the work in the message.
    The system releases the lock when the process ends, in whatever way.
    """
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_at(file.fileno(), folder / LOCK):
                raise BlockingIOError
        except BlockingIOError as error:
            raise InUseError(f"another {work} is working in {folder}.", "Wait for it to end.") from error
        yield file.fileno()
