"""The manifest of an index: what is in it, its fingerprint, and whether its files are still those that were written."""

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.errors import IndexFormatError, InputError

FORMAT = "metric-oracle index"
FORMAT_VERSION = 2
NAME = "manifest.json"
# Size and time of the files when they were last known to be right, so that opening need not read them all.
STAMPS = "stamps.json"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return size and checksum of files of an index."""
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in sorted(names)}


def fingerprint(content: Any) -> str:
    """Return the identity of an index: the hash of its description, checksums included."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file beside and rename, so that a reader never sees half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(json.dumps(content, indent=2, ensure_ascii=True) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def check_name(folder: Path, function: str, argument: str) -> None:
    """Raise unless the libraries that write and map the files can take the name."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        msg = f"{function}: {argument} must be a name in UTF-8; got {folder}. Rename the folder."
        raise InputError(msg) from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of an index and check that this version can use it."""
    path = folder / NAME
    check_name(folder, "open_index", "index")
    if folder.suffix == ".building":
        msg = (
            f"open_index: index must be finished; got {folder}, which is a build under way or killed. "
            "Run build-index again to resume it."
        )
        raise IndexFormatError(msg)
    if not path.is_file():
        msg = (
            f"open_index: index must be a folder with {NAME}; got {folder}. "
            'Build one with "oracle build-index REPORTS --out INDEX".'
        )
        raise IndexFormatError(msg)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        known = manifest["format"] == FORMAT
    except (ValueError, TypeError, KeyError, RecursionError):
        known = False
    if not known:
        msg = f"open_index: {NAME} must be that of a metric-oracle index; got something else in {folder}. Rebuild it."
        raise IndexFormatError(msg)
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        step = "Upgrade metric-oracle" if isinstance(version, int) and version > FORMAT_VERSION else "Rebuild it"
        msg = f"open_index: format_version must be {FORMAT_VERSION}; got {version!r} in {folder}. {step}."
        raise IndexFormatError(msg)
    if manifest.get("fingerprint") != fingerprint(manifest.get("content")):
        msg = f"open_index: {NAME} must match its own fingerprint; got an altered one in {folder}. Rebuild the index."
        raise IndexFormatError(msg)
    if not _is_whole(manifest["content"]):
        msg = f"open_index: {NAME} must describe counts, representations and files; got others in {folder}. Rebuild it."
        raise IndexFormatError(msg)
    return manifest


def _is_whole(content: Any) -> bool:
    """Tell whether a description has the parts that an index is opened with."""
    parts = [content.get(name) for name in ("counts", "representations", "files")] if isinstance(content, dict) else [0]
    return all(isinstance(part, dict) for part in parts) and all(
        isinstance(entry, dict) and {"bytes", "sha256"} <= entry.keys() for entry in content["files"].values()
    )


def check_files(folder: Path, files: dict[str, dict[str, Any]], *, full: bool = False) -> None:
    """Raise unless all files of an index are there and are the ones that were written.

    A file whose size and modification time are as they were last time is taken as right; any other one is read and
    compared with its checksum. `full` reads them all.
    """
    try:
        stamps = dict(json.loads((folder / STAMPS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        stamps = {}
    fresh = False
    for name, wanted in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
            msg = f"open_index: {name} must be in the index; got no such file in {folder}. Rebuild the index."
            raise IndexFormatError(msg)
        stat = path.stat()
        if stat.st_size != wanted["bytes"]:
            msg = (
                f"open_index: {name} must have {wanted['bytes']} bytes; got {stat.st_size} in {folder}. "
                "The file was cut or replaced: rebuild the index."
            )
            raise IndexFormatError(msg)
        stamp = [stat.st_size, stat.st_mtime_ns]
        if full or stamps.get(name) != stamp:
            if sha256(path) != wanted["sha256"]:
                msg = (
                    f"open_index: {name} must have the checksum in {NAME}; got another one in {folder}. "
                    "The file was altered: rebuild the index."
                )
                raise IndexFormatError(msg)
            stamps[name] = stamp
            fresh = True
    if fresh:
        # Stamps only save time: a read-only or full disk must not stop a reader.
        with suppress(OSError):
            write_json(folder / STAMPS, stamps)
