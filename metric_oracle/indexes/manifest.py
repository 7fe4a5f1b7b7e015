"""The manifest of an index: what is in it, its fingerprint, and whether its files are still those that were written.

Opening an index opens all its files, so that a folder that takes its name later changes nothing, and compares their
sizes. A file is compared with its checksum when it is first used, unless its time is the one that the build recorded or
this user found it right before. Damage that keeps size and time is seen where it makes a file unreadable, and else by
`Files.verify` alone, which reads all (docs/security.md).
"""

import hashlib
import json
import mmap
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.errors import DamagedIndexError, IndexFormatError, InputError
from metric_oracle.files import checksum, sha256, write_json
from metric_oracle.indexes.store import PIECE, hash_content, map_file

FORMAT = "metric-oracle index"
FORMAT_VERSION = 3
NAME = "manifest.json"
SET_NAME, SET_FORMAT = "set.json", "metric-oracle shard set"  # of a set of shards, see `indexes.shards`
# Size and time of the files as the build left them; a reader writes nothing into an index.
STAMPS = "stamps.json"


def describe(folder: Path, names: Iterable[str], data: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return size and checksum of files of an index, and the hash of what is in those of its data."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in sorted(names)}
    for name in data:
        files[name]["content"] = hash_content(folder / name)
    return files


def fingerprint(content: dict[str, Any]) -> str:
    """Return the identity of an index: what its data files hold, whatever they were read from or written with."""
    return checksum({name: entry["content"] for name, entry in content["files"].items() if "content" in entry})


def write_manifest(folder: Path, content: dict[str, Any], **notes: str) -> None:
    """Write the manifest of an index, with notes for people."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "fingerprint": fingerprint(content)}
    write_json(folder / NAME, {**head, **notes, "checksum": checksum(content), "content": content})


def check_name(folder: Path, function: str, argument: str) -> None:
    """Raise unless the libraries that write and map the files can take the name."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        msg = f"{function}: {argument} must be a name in UTF-8; got {folder}. Rename the folder."
        raise InputError(msg) from None


def check_outside(path: Path, function: str, argument: str) -> None:
    """Raise where a new file or folder would lie in an index or a set of shards, which hold their own files alone."""
    for folder in Path(os.path.realpath(path)).parents:
        for name, form in ((NAME, FORMAT), (SET_NAME, SET_FORMAT)):
            with suppress(OSError):
                if (folder / name).is_file() and parse((folder / name).read_bytes(), form) is not None:
                    msg = (
                        f"{function}: {argument} must be outside of an index; got {path}, which is in the index "
                        f"{folder}. Name another folder."
                    )
                    raise InputError(msg)


class Files:
    """The files of an index, opened all at once.

    Attributes
    ----------
    folder : Path
    manifest : dict
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        check_name(folder, "open_index", "index")
        if folder.suffix == ".building":
            msg = (
                f"open_index: index must be finished; got {folder}, which is a build under way or killed. "
                "Run build-index again to resume it."
            )
            raise IndexFormatError(msg)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise IndexFormatError(_no_index(folder)) from None
        try:
            self.manifest = _parse(_read(descriptor, NAME), folder)
            stamps = _read(descriptor, STAMPS)
            self._maps: dict[str, mmap.mmap] = {}
            self._stamps: dict[str, tuple[int, int, int]] = {}
            for name, entry in self._described.items():
                self._open(descriptor, name, entry)
        finally:
            os.close(descriptor)
        self._known: set[str] = set()
        with suppress(ValueError, TypeError, RecursionError, KeyError, AttributeError):
            found = dict(json.loads(stamps or b"{}"))
            self._known = {name for name, (n, time, _) in self._stamps.items() if found.get(name) == [n, time]}

    @property
    def _described(self) -> dict[str, dict[str, Any]]:
        return self.manifest["content"]["files"]

    def _open(self, directory: int, name: str, entry: dict[str, Any]) -> None:
        """Map a file of the folder and compare its size."""
        found = None
        if not Path(name).is_absolute() and ".." not in Path(name).parts:
            found = _open_file(directory, name)
        if found is None:
            msg = f"open_index: {name} must be in the index; got no such file in {self.folder}. Rebuild the index."
            raise DamagedIndexError(msg)
        try:
            status = os.fstat(found)
            if status.st_size != entry["bytes"]:
                msg = (
                    f"open_index: {name} must have {entry['bytes']} bytes; got {status.st_size} in {self.folder}. "
                    "The file was cut or replaced: rebuild the index."
                )
                raise DamagedIndexError(msg)
            self._maps[name] = map_file(found)
        finally:
            os.close(found)
        self._stamps[name] = status.st_size, status.st_mtime_ns, status.st_ino

    def __getitem__(self, name: str) -> mmap.mmap:
        """Return a file, compared with its checksum unless it is known to be right."""
        if name not in self._known:
            self._check(name)
        return self._maps[name]

    def of(self, kind: str) -> dict[str, mmap.mmap]:
        """Return the files of a representation by their names in its folder."""
        return {name.removeprefix(f"{kind}/"): self[name] for name in self._maps if name.startswith(f"{kind}/")}

    def _check(self, name: str) -> None:
        """Compare a file with its checksum, once for each user where its time is not that of the build."""
        wanted = self._described[name]["sha256"]
        note = _checked() / checksum([wanted, *self._stamps[name]])
        with suppress(OSError):
            if note.exists():
                self._known.add(name)
                return
        self._compare(name)
        # Notes only save time: without a home, or room in it, the file is read again next time.
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()

    def _compare(self, name: str) -> None:
        hasher, mapped = hashlib.sha256(), self._maps[name]
        for first in range(0, len(mapped), PIECE):
            hasher.update(memoryview(mapped)[first : first + PIECE])
            mapped.madvise(mmap.MADV_DONTNEED, first, min(PIECE, len(mapped) - first))
        if hasher.hexdigest() != self._described[name]["sha256"]:
            msg = (
                f"open_index: {name} must have the checksum in {NAME}; got another one in {self.folder}. "
                "The file was altered: rebuild the index."
            )
            raise DamagedIndexError(msg)
        self._known.add(name)

    def verify(self) -> None:
        """Read every file and compare it with its checksum."""
        for name in self._maps:
            self._compare(name)


def _checked() -> Path:
    """Return this user's folder of notes on files, known by size, time and inode, that had their checksum."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "metric-oracle/checked"


def _open_file(directory: int, name: str) -> int | None:
    """Open a regular file of a folder; a pipe is not waited for."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _read(directory: int, name: str) -> bytes | None:
    """Return what a small file of a folder holds, None where there is none."""
    descriptor = _open_file(directory, name)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def parse(text: bytes, form: str) -> Any:
    """Return the object in a JSON file that names its format, None for anything else."""
    try:
        found = json.loads(text.decode("utf-8"))
        return found if found["format"] == form else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _no_index(folder: Path) -> str:
    return (
        f"open_index: index must be a folder with {NAME}; got {folder}. "
        'Build one with "oracle build-index REPORTS --out INDEX".'
    )


def _parse(text: bytes | None, folder: Path) -> dict[str, Any]:
    """Return the manifest of an index once this version can use it."""
    if text is None:
        raise IndexFormatError(_no_index(folder))
    manifest = parse(text, FORMAT)
    if manifest is None:
        msg = f"open_index: {NAME} must be that of a metric-oracle index; got something else in {folder}. Rebuild it."
        raise IndexFormatError(msg)
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        step = "Upgrade metric-oracle" if isinstance(version, int) and version > FORMAT_VERSION else "Rebuild it"
        msg = f"open_index: format_version must be {FORMAT_VERSION}; got {version!r} in {folder}. {step}."
        raise IndexFormatError(msg)
    content: Any = manifest.get("content")
    if manifest.get("checksum") != checksum(content):
        msg = f"open_index: {NAME} must match its own checksum; got an altered one in {folder}. Rebuild the index."
        raise DamagedIndexError(msg)
    if not _is_whole(content):
        msg = f"open_index: {NAME} must describe counts, representations and files; got others in {folder}. Rebuild it."
        raise IndexFormatError(msg)
    if manifest.get("fingerprint") != fingerprint(content):
        msg = f"open_index: {NAME} must match its own fingerprint; got an altered one in {folder}. Rebuild the index."
        raise DamagedIndexError(msg)
    return manifest


def _is_whole(content: Any) -> bool:
    """Tell whether a description has the parts that an index is opened with."""
    parts = [content.get(name) for name in ("counts", "representations", "files")] if isinstance(content, dict) else [0]
    return all(isinstance(part, dict) for part in parts) and all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int and entry["bytes"] > 0 and "sha256" in entry
        for entry in content["files"].values()
    )
