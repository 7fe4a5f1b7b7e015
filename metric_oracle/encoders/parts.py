"""Finished parts of a long run of a model, kept in a folder so that a killed run resumes."""

import hashlib
from pathlib import Path

from metric_oracle.files import write_bytes


class Parts:
    """Parts of one run, a file each.

    A file begins with the SHA-256 of the run's digest, the part's number and the content: what is damaged, cut or of
    another run does not count.

    Parameters
    ----------
    folder : path or None
        Made where it does not exist; None keeps nothing.
    name : str
        How the files' names begin.
    digest : str
        Hash of everything that the contents depend on.
    """

    def __init__(self, folder: Path | None, name: str, digest: str) -> None:
        self._folder, self._name, self._digest = folder, name, digest
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def read(self, part: int) -> bytes | None:
        """Return the content of a part that is whole, else None."""
        if self._folder is None:
            return None
        try:
            raw = self._path(self._folder, part).read_bytes()
        except FileNotFoundError:
            return None
        return raw[32:] if raw[:32] == self._checksum(part, raw[32:]) else None

    def write(self, part: int, content: bytes) -> None:
        """Keep a part; it is on disk when this returns."""
        if self._folder is None:
            return
        write_bytes(self._path(self._folder, part), self._checksum(part, content), content)

    def _path(self, folder: Path, part: int) -> Path:
        return folder / f"{self._name}-{part:06d}.part"

    def _checksum(self, part: int, content: bytes) -> bytes:
        return hashlib.sha256(f"{self._digest} {part} ".encode() + content).digest()
