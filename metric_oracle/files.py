"""Write files and folders so that an interruption loses nothing: checksums, locks, temporary files, clean-up."""

import fcntl
import glob
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from metric_oracle.errors import InputError, InUseError


@cache
def package_version() -> str:
    """Return the version of this package; the first call reads a file, which takes a millisecond or more."""
    from importlib.metadata import version

    return version("metric-oracle")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identify(path: Path) -> dict[str, str]:
    """Return the name and the SHA-256 of a file, by which signatures identify it."""
    return {"file": path.name, "sha256": sha256(path)}


def checksum(content: Any) -> str:
    """Return the SHA-256 of JSON content; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def json_text(content: Any) -> str:
    """Return JSON as it is written to files: ASCII, indented by two, with a line feed at the end."""
    return json.dumps(content, indent=2, ensure_ascii=True) + "\n"


def without_nan(table: Any) -> Any:
    """Return an Arrow table with null in place of NaN: JSON has no NaN, and a reader of CSV takes it for a text."""
    import pyarrow as pa

    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_floating(column.type):
            values = column.to_pylist()  # Arrow's other ways import pandas or all of its functions
            if any(value != value for value in values):
                known = [None if value != value else value for value in values]
                table = table.set_column(place, name, pa.array(known, column.type))
    return table


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file; see `write_bytes`."""
    write_bytes(path, json_text(content).encode())


def write_bytes(path: Path, *content: bytes) -> None:
    """Write a file under the temporary name ``NAME.PID.tmp``, sync it and rename it: no reader sees half of it."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file's content, or the list of a folder's files, is on disk and would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Lock a folder, or a file that is created for this, while the body runs; yield its file descriptor.

    The lock shows other processes that this one is still writing. The system releases it when the process ends, in
    whatever way.
    """
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)


@contextmanager
def exclusive(folder: Path, lock: str, work: str) -> Iterator[None]:
    """Let one process at a time work in a folder: lock the file `lock` in it while the body runs.

    Raise InUseError if another process has the lock; `work` names the work in the message. The system releases the lock
    when the process ends, in whatever way.
    """
    with (folder / lock).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUseError(f"another {work} is working in {folder}.", "Wait for it to end.") from error
        yield


@contextmanager
def replacing(path: Path, *more: Path) -> Iterator[list[Path]]:
    """Yield a temporary file for each path; at the end all are synced and renamed to their paths, `path` last.

    All paths are in one folder, which is synced too. Old files stay until the end, and stay if anything fails.
    Temporary files that a killed process left are removed.
    """
    paths = (path, *more)
    temporary = [place.with_name(f".{place.name}.{os.getpid()}.tmp") for place in paths]
    try:
        with ExitStack() as stack:
            for place in paths:
                remove_leftovers(place, f".{place.name}.", ".tmp")
            descriptors = [stack.enter_context(locked(file)) for file in temporary]
            yield temporary
            for descriptor in descriptors:
                os.fsync(descriptor)
            for file, place in zip(temporary[::-1], paths[::-1], strict=True):
                file.replace(place)
            sync(path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}).", "Name another file.") from error
    finally:
        for file in temporary:
            file.unlink(missing_ok=True)


def check_new(folder: Path, argument: str) -> None:
    """Raise InputError unless `folder` does not exist or is empty, and is not the current folder.

    `argument` is its name in the message.
    """
    if folder.is_dir() and folder.samefile(Path.cwd()):
        raise InputError(
            argument=argument,
            rule="must be a new or empty folder",
            value="the current folder",
            step="Name another folder.",
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(
            argument=argument, rule="must be a new or empty folder", value=folder, step="Name another folder."
        )


@contextmanager
def new_folder(out: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder next to `out`; at the end its files are synced, and it is renamed to `out`.

    `out` is new or an empty folder. If anything fails it is removed, as are those of killed processes.
    """
    before = f".{out.name}.unfinished-"
    remove_leftovers(out, before, "")
    folder = out.with_name(f"{before}{os.getpid()}{time.time_ns()}")
    try:
        folder.mkdir(mode=mode)  # a signal may arrive before the next line
        with locked(folder):
            yield folder
            for path in (*folder.rglob("*"), folder):
                sync(path)
            if out.exists():
                out.rmdir()
            folder.rename(out)
            sync(out.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(place: Path, before: str, after: str) -> None:
    """Remove the files that killed processes left next to `place`.

    Their names are `before`, a number, `after`; files that a living process has locked stay.
    """
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
