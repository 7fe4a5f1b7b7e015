"""Finished parts of a long run of a model, kept in a folder so that a killed run resumes."""

import hashlib
from pathlib import Path

from metric_oracle.files import write_bytes


class Parts:
    """The finished parts of one run, one file per part; their names begin with `name`.

    A file begins with the SHA-256 of the run's digest, the part's number and the content. `digest` is the hash of all
    that the contents depend on. A file that is damaged, cut off or from another run is ignored. The folder is created
    if missing; if it is None, nothing is kept.
    """

    def __init__(self, folder: Path | None, name: str, digest: str) -> None:
        self._folder, self._name, self._digest = folder, name, digest
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, part: int) -> bytes | None:
        """Return the content of the part of a number, or None if there is no valid file of it."""
        if self._folder is None:
            return None
        try:
            raw = self._path(self._folder, part).read_bytes()
        except FileNotFoundError:
            return None
        return raw[32:] if raw[:32] == self._checksum(part, raw[32:]) else None

    def write(self, part: int, content: bytes) -> None:
        """Write the content of the part of a number, and return when it is on disk."""
        if self._folder is None:
            return
        write_bytes(self._path(self._folder, part), self._checksum(part, content), content)

    def _path(self, folder: Path, part: int) -> Path:
        return folder / f"{self._name}-{part:06d}.part"

    def _checksum(self, part: int, content: bytes) -> bytes:
        return hashlib.sha256(f"{self._digest} {part} ".encode() + content).digest()
