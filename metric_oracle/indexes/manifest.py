"""The manifest of an index: its contents, its fingerprint, and the checks that its files are unchanged.

Opening an index opens all its files and compares their sizes. A folder that takes the same name later changes nothing
for the opened index. A file is compared with its checksum at its first use, unless its size and modification time are
those that the build, or an earlier check, recorded in the folder. Damage that keeps size and time is noticed if the
file becomes unreadable; otherwise only `IndexFiles.verify`, which reads all files, finds it (docs/security.md).
"""

import hashlib
import json
import mmap
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import DamagedIndexError, IndexFormatError, InputError
from metric_oracle.base.files import checksum, json_text, replacing, write_json
from metric_oracle.base.operating_system import release_pages
from metric_oracle.indexes.store import PIECE, hash_content, map_file

FORMAT = "metric-oracle index"
FORMAT_VERSION = 3
NAME = "manifest.json"
SET_NAME, SET_FORMAT = "set.json", "metric-oracle shard set"  # of a shard set, see `indexes.shards`
# Sizes and modification times of files that had their checksums, written by the build and by readers of a copy.
STAMPS = "stamps.json"


def describe(folder: Path, sums: Mapping[str, str], data_names: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return name -> "bytes" and "sha256" of files of an index, and "content", a hash, of those in `data_names`.

    `sums` has the SHA-256 of each file.
    """
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sums[name]} for name in sums}
    for name in data_names:
        files[name]["content"] = hash_content(map_file(folder / name))
    return files


def fingerprint(content: dict[str, Any]) -> str:
    """Return the fingerprint of an index, by the content of its manifest: a SHA-256 of what its data files hold.

    It does not depend on the program that wrote them.
    """
    return checksum({name: entry["content"] for name, entry in content["files"].items() if "content" in entry})


def made_manifest(content: dict[str, Any], **notes: str) -> dict[str, Any]:
    """Return the manifest of an index: its content with a checksum, and `notes`, which the checksum does not cover."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "fingerprint": fingerprint(content)}
    return {**head, **notes, "checksum": checksum(content), "content": content}


def write_manifest(folder: Path, content: dict[str, Any], **notes: str) -> None:
    """Write the manifest of an index, see `made_manifest`."""
    write_json(folder / NAME, made_manifest(content, **notes))


def stamp(status: os.stat_result) -> list[int]:
    """Return what stands in the file of stamps for a file with this status."""
    return [status.st_size, status.st_mtime_ns]


def check_name(folder: Path, argument: str) -> None:
    """Raise InputError unless the path is valid UTF-8, which the libraries that write and map the files need.

    `argument` names the folder in the message.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InputError(argument, "must be a name in UTF-8", folder, "Rename the folder.") from None


def check_outside(path: Path, argument: str) -> None:
    """Raise InputError, which names `argument`, if a new file or folder would be inside an index or a shard set."""
    for folder in Path(os.path.realpath(path)).parents:
        for name, form in ((NAME, FORMAT), (SET_NAME, SET_FORMAT)):
            with suppress(OSError):
                if (folder / name).is_file() and parse((folder / name).read_bytes(), form) is not None:
                    raise InputError(
                        argument,
                        "must be outside of an index",
                        f"{path}, which is in the index {folder}",
                        "Name another folder.",
                    )


class IndexFiles:
    """The files of an index, all opened together, with its manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        check_name(folder, "index")
        if folder.suffix == ".building":
            raise IndexFormatError(
                "index",
                "must be finished",
                f"{folder}, whose build is running or was stopped",
                "Run `mo.build_index` again to resume it.",
            )
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise no_index(folder) from None
        try:
            self.manifest = _parse(_read_small_file(descriptor, NAME), folder)
            self._maps: dict[str, mmap.mmap] = {}
            self._status: dict[str, os.stat_result] = {}  # of the files when they were opened
            for name, entry in self._entries.items():
                self._open(descriptor, name, entry)
        finally:
            os.close(descriptor)
        recorded = _read_stamps(folder)
        # Names of files that need no further check.
        self._verified = {name for name, status in self._status.items() if recorded.get(name) == stamp(status)}

    @property
    def _entries(self) -> dict[str, dict[str, Any]]:
        """What the manifest records of each file, by name."""
        return self.manifest["content"]["files"]

    def _open(self, directory: int, name: str, described: dict[str, Any]) -> None:
        """Map a file of an open directory, a descriptor, as the manifest has `described` it.

        Raise DamagedIndexError if it is missing or has another size.
        """
        descriptor = None
        if not Path(name).is_absolute() and ".." not in Path(name).parts:
            descriptor = _open_file(directory, name)
        if descriptor is None:
            raise DamagedIndexError(
                name, "must be in the index", f"no such file in {self.folder}", "Rebuild the index."
            )
        try:
            status = os.fstat(descriptor)
            if status.st_size != described["bytes"]:
                raise DamagedIndexError(
                    name,
                    f"must have {described['bytes']} bytes",
                    f"{status.st_size} in {self.folder}",
                    "The file was cut or replaced: rebuild the index.",
                )
            self._maps[name] = map_file(descriptor)
        finally:
            os.close(descriptor)
        self._status[name] = status

    def __getitem__(self, name: str) -> mmap.mmap:
        """Return a mapped file by its name, compared with its checksum unless it was verified before.

        Raise DamagedIndexError if it does not have it.
        """
        if name not in self._verified:
            self._compare_checksum(name)
            self._record([name])
        return self._maps[name]

    def of(self, kind: str) -> dict[str, mmap.mmap]:
        """Return the mapped files of a representation, keyed by their names in its folder."""
        return {name.removeprefix(f"{kind}/"): self[name] for name in self._maps if name.startswith(f"{kind}/")}

    def _compare_checksum(self, name: str) -> None:
        """Read a file; raise DamagedIndexError unless it has its checksum. Afterwards it counts as verified."""
        hasher, mapped = hashlib.sha256(), self._maps[name]
        for first in range(0, len(mapped), PIECE):
            hasher.update(memoryview(mapped)[first : first + PIECE])
            release_pages(mapped, first, min(PIECE, len(mapped) - first))
        if hasher.hexdigest() != self._entries[name]["sha256"]:
            raise DamagedIndexError(
                f"{name} in {self.folder} does not have its checksum in {NAME}: the file was altered.",
                "Build the index again.",
            )
        self._verified.add(name)

    def verify(self) -> None:
        """Read every file; raise DamagedIndexError if one does not have its checksum."""
        for name in self._maps:
            self._compare_checksum(name)
        self._record(self._maps)

    def _record(self, names: Collection[str]) -> None:
        """Add files that have their checksums to the stamps in the folder, so that no later process reads them for it.

        Stamps only save time: where the folder cannot be written, or has other files by now, nothing is recorded.
        """
        with suppress(OSError, InputError):
            now = {name: (self.folder / name).stat() for name in names}
            stamps = {name: stamp(status) for name, status in now.items()}
            is_same = all(
                os.path.samestat(status, self._status[name]) and stamps[name] == stamp(self._status[name])
                for name, status in now.items()
            )
            recorded = _read_stamps(self.folder)
            if is_same and not stamps.items() <= recorded.items():
                with replacing(self.folder / STAMPS) as temporary:
                    temporary.write_text(json_text({**recorded, **stamps}), encoding="utf-8")


def _open_file(directory: int, name: str) -> int | None:
    """Return the descriptor of a regular file of an open directory, None for anything else or nothing.

    A pipe does not block.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _read_small_file(directory: int, name: str) -> bytes | None:
    """Return the content of a small file of an open directory, None if there is no such file."""
    descriptor = _open_file(directory, name)
    if descriptor is None:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def _read_stamps(folder: Path) -> dict[str, Any]:
    """Return the stamps in the folder of an index by name of the file; none if they are missing or cannot be read."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        if (folder / STAMPS).is_file():  # a pipe would block
            return dict(json.loads((folder / STAMPS).read_bytes()))
    return {}


def parse(text: bytes, form: str) -> Any:
    """Return the object in a JSON text if its key "format" has the value `form`; None for any other text."""
    try:
        content = json.loads(text.decode("utf-8"))
        return content if content["format"] == form else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def no_index(folder: Path) -> IndexFormatError:
    """Return the error for a folder without a manifest."""
    return IndexFormatError("index", f"must be a folder with {NAME}", folder, "Build one with `mo.build_index`.")


def _parse(text: bytes | None, folder: Path) -> dict[str, Any]:
    """Return the manifest of the index in `folder`; `text` is the content of its file, None if there is no file.

    Raise IndexFormatError or DamagedIndexError unless format, version, checksum and fingerprint are right.
    """
    if text is None:
        raise no_index(folder)
    manifest = parse(text, FORMAT)
    if manifest is None:
        raise IndexFormatError(f"{NAME} in {folder} is not that of a metric-oracle index.", "Build the index again.")
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        step = "Upgrade metric-oracle" if isinstance(version, int) and version > FORMAT_VERSION else "Rebuild it"
        raise IndexFormatError("format_version", f"must be {FORMAT_VERSION}", f"{version!r} in {folder}", f"{step}.")
    content: Any = manifest.get("content")
    if manifest.get("checksum") != checksum(content):
        raise DamagedIndexError(
            NAME, "must match its own checksum", f"an altered one in {folder}", "Rebuild the index."
        )
    if not _is_whole(content):
        raise IndexFormatError(
            f"{NAME} in {folder} does not describe counts, representations and files.", "Build the index again."
        )
    if manifest.get("fingerprint") != fingerprint(content):
        raise DamagedIndexError(
            NAME, "must match its own fingerprint", f"an altered one in {folder}", "Rebuild the index."
        )
    return manifest


def _is_whole(content: Any) -> bool:
    """Return whether the content of a manifest, any object, has the entries that opening an index needs."""
    parts = [content.get(name) for name in ("counts", "representations", "files")] if isinstance(content, dict) else [0]
    return all(isinstance(part, dict) for part in parts) and all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int and entry["bytes"] > 0 and "sha256" in entry
        for entry in content["files"].values()
    )
