"""Write files and folders so that an interruption loses nothing: checksums, temporary files, clean-up."""

import fcntl
import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError
from metric_oracle.base.locks import alone, is_at, open_locked


@cache
def package_version() -> str:
    """Return the version of this package; the first call reads a file, which takes a millisecond or more."""
    from importlib.metadata import version

    return version("metric-oracle")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identify(path: Path) -> dict[str, str]:
    """Return a dict of `file`, the name of a file, and `sha256`, by which signatures identify it."""
    return {"file": path.name, "sha256": sha256(path)}


def checksum(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold, in hexadecimal; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def json_text(content: Any) -> str:
    """Return content as JSON as it is written to files: ASCII, indented by two, with a line feed at the end."""
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
    """Write content as a JSON file, whole or not at all; see `write_bytes`."""
    write_bytes(path, json_text(content).encode())


def write_bytes(path: Path, *content: bytes) -> None:
    """Write a file of pieces of bytes under a temporary name, sync it and rename it: no reader sees half of it."""
    with new_file(path) as temporary:
        with temporary.open("wb") as file:
            file.writelines(content)
        sync(temporary)
        temporary.replace(path)


def sync(path: Path) -> None:
    """Wait until a file's content, or the list of a folder's files, is on disk and would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in those errors of the system, raised in the body, that name no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new, empty and locked file beside `path`; it is removed at the end, unless it was renamed.

    Its name has a random number, because processes of two containers that share a folder may have the same id.
    """
    file, descriptor = path, -1
    try:
        with naming(path):
            while descriptor < 0:
                file = path.with_name(f".{path.name}.{secrets.randbelow(10**9)}.tmp")
                with suppress(FileExistsError):
                    descriptor = open_locked(file, os.O_EXCL)
            yield file
    finally:
        if descriptor >= 0:
            os.close(descriptor)
        if file != path:
            file.unlink(missing_ok=True)


def only_writer(path: Path) -> AbstractContextManager[None]:
    """Let one writer at a time rename files to `path` and to its signature file; the others wait.

    The lock is a file of its own, because `path` itself is replaced, and has the name of a temporary file, so that the
    next writer removes it after a kill. Where the file system has no locks, nobody waits.
    """
    return alone(path.with_name(f".{path.name}.0.tmp"))


@contextmanager
def writing(path: Path, *more: Path) -> Iterator[None]:
    """Remove the temporary files that killed writers of all paths left, and run the body.

    Errors of the system in the body become an InputError that names `path`.
    """
    for place in (path, *more):
        remove_leftovers(place, f".{place.name}.", ".tmp")
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}).", "Name another file.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file; at the end it is synced and renamed to `path`, which it replaces.

    An old file stays if anything fails. Raise InputError if the system cannot write the file.
    """
    with writing(path), new_file(path) as temporary:
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)


@contextmanager
def new_folder(out: Path, mode: int = 0o777) -> Iterator[Path]:
    """Yield a temporary folder next to `out` with the permissions `mode`; at the end it is synced and renamed to `out`.

    `out` is new or an empty folder. If anything fails the folder is removed, as are those of killed processes.
    """
    with naming(out), temporary_folder(out.with_name(f".{out.name}.unfinished-"), mode) as folder:
        yield folder
        move_folder(folder, out)


def move_folder(folder: Path, out: Path) -> None:
    """Rename a folder to `out`, which is new or an empty folder, when all of it is on disk.

    A power cut leaves all of it, under the new or the old name.
    """
    for path in (*folder.rglob("*"), folder):
        sync(path)
    folder.rename(out)
    sync(out.parent)


@contextmanager
def temporary_folder(before: Path, mode: int) -> Iterator[Path]:
    """Yield a new, locked folder at the path `before` and a random number; at the end it is removed if still there.

    Those that killed processes left are removed first.
    """
    remove_leftovers(before, before.name, "")
    folder = before.with_name(f"{before.name}{secrets.randbelow(10**18)}")
    descriptor = -1
    try:
        folder.mkdir(mode=mode)  # a signal may arrive before the next line
        descriptor = os.open(folder, os.O_RDONLY)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor >= 0:
            os.close(descriptor)


def remove_leftovers(place: Path, before: str, after: str) -> None:
    """Remove the files and folders that killed processes left in the folder of `place`.

    Their names are `before`, a number, `after`; what a living process has locked stays.
    """
    for left in place.parent.glob(f"{glob.escape(before)}*{glob.escape(after)}"):
        if not left.name[len(before) : len(left.name) - len(after)].isdecimal():
            continue
        with suppress(OSError):
            file = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_at(file, left):
                    continue  # it was removed, and is another writer's now
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
            finally:
                os.close(file)
