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

    def read(self, number: int) -> bytes | None:
        """Return the content of a part, or None if there is no valid file of it."""
        if self._folder is None:
            return None
        try:
            raw = self._path(self._folder, number).read_bytes()
        except FileNotFoundError:
            return None
        return raw[32:] if raw[:32] == self._checksum(number, raw[32:]) else None

    def write(self, number: int, content: bytes) -> None:
        """Write the content of a part, and return when it is on disk."""
        if self._folder is None:
            return
        write_bytes(self._path(self._folder, number), self._checksum(number, content), content)

    def _path(self, folder: Path, number: int) -> Path:
        return folder / f"{self._name}-{number:06d}.part"

    def _checksum(self, number: int, content: bytes) -> bytes:
        return hashlib.sha256(f"{self._digest} {number} ".encode() + content).digest()
