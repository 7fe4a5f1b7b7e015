"""A disk that loses what was not synced."""

import os
from pathlib import Path


class Power:
    """What a disk holds after a cut of the power, if it keeps nothing that was not synced.

    A file holds the bytes of its last sync, none before it; a folder the names of its last sync. Files are known by
    number, as the disk knows them.
    """

    def __init__(self, monkeypatch, root):
        self.root = root
        self.kept = {root.stat().st_ino: {}}
        self.real = os.fsync
        self.cuts = 0
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor):
        self.real(descriptor)
        status, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self.kept[status.st_ino] = {name: (path / name).stat().st_ino for name in os.listdir(path)}
        else:
            self.kept[status.st_ino] = path.read_bytes()

    def cut(self, to, kinds, names=None):
        """Write what is left into a new folder; `names` are those of the root where they reached the disk early."""
        to.mkdir()
        self._write(self.root.stat().st_ino if names is None else names, to, kinds)

    def _write(self, node, to, kinds):
        for name, number in (node if isinstance(node, dict) else self.kept[node]).items():
            kept = self.kept.get(number, b"" if kinds.get(number) != "folder" else {})
            if isinstance(kept, dict):
                (to / name).mkdir()
                self._write(kept, to / name, kinds)
            else:
                (to / name).write_bytes(kept)


def kinds_of(root):
    """Return what each number of the disk stands for."""
    return {path.stat().st_ino: "folder" if path.is_dir() else "file" for path in root.rglob("*")}
