"""The steps of a study, each a file in its folder, which is called ``<out>.unfinished`` until all is done.

A study that was killed goes on from there. `STEPS` says what each file was made of, and its checksum.
"""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.corpora.unfinished import alone, held, remove_leftovers
from metric_oracle.errors import InputError
from metric_oracle.indexes import manifest
from metric_oracle.retrieval.results import Results, Scores, replacing

STEPS, LOCK = "steps.json", ".lock"
Progress = Callable[[str, int, int], object]
_T = TypeVar("_T", Scores, Results)


class Steps:
    """The steps of a study: each a file, which is kept if it is what its record says and was made of the same."""

    def __init__(self, folder: Path, base: list[Any], size: int, n_steps: int, progress: Progress | None) -> None:
        self._folder, self._base, self._progress = folder, base, progress
        self._size, self._total = size, size * n_steps
        self._name, self._done, self._limit = "", 0, 0
        try:
            kept = json.loads((folder / STEPS).read_text(encoding="utf-8"))
            self._kept = {name: (entry["made_of"], entry["sha256"]) for name, entry in kept.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            self._kept = {}

    def _key(self, name: str, made_of: Any) -> str:
        return sha256(json.dumps([self._base, name, made_of]).encode()).hexdigest()

    def place(self, model: str, made_of: Any) -> Path:
        """Return the folder for the index of a model's predictions."""
        return self._folder / f"{model}.{self._key(model, made_of)[:16]}.predictions"

    def clear(self, models: Mapping[str, Any]) -> None:
        """Remove what belongs to no step of this study, such as files of a model that is no longer in it."""
        places = {self.place(name, made_of).name for name, made_of in models.items()}
        for path in self._folder.glob("*"):
            made_of, checksum = self._kept.get(path.name, (None, None))
            is_kept = made_of == self._key(path.name, models.get(path.stem)) and checksum == checksum_of(path)
            if not (is_kept or path.name in (STEPS, LOCK) or path.name.removesuffix(".building") in places):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                self._kept.pop(path.name, None)

    def advance(self, n: int) -> None:
        """Tell of n more of the queries of a step."""
        self._tell(self._name, min(self._done + n, self._limit))

    def _tell(self, step: str, done: int) -> None:
        self._name, self._done = step, done
        if self._progress is not None:
            self._progress(step, done, self._total)

    def holds(self, name: str, made_of: Any = None) -> bool:
        """Tell whether the file of a step is kept."""
        path = self._folder / f"{name}.parquet"
        return self._kept.get(path.name, ("", ""))[0] == self._key(path.name, made_of) and path.is_file()

    def run(
        self, step: str, name: str, read: Callable[[Path], _T], make: Callable[[], _T], made_of: Any = None,
        of: int = 1,
    ) -> _T:  # fmt: skip
        """Return what a step makes, from its file where it is kept; `of` is how many it counts for."""
        after = self._done + of * self._size
        self._limit = self._done + self._size
        self._tell(step, self._done)
        path = self._folder / f"{name}.parquet"
        if not self.holds(name, made_of):
            make().write(path)
            self._kept[path.name] = self._key(path.name, made_of), checksum_of(path)
            self._record()
        self._tell(step, after)
        return read(path)

    def drop(self, name: str) -> None:
        """Remove the file of a step that is part of another."""
        if self._kept.pop(f"{name}.parquet", None):
            (self._folder / f"{name}.parquet").unlink(missing_ok=True)
            self._record()

    def _record(self) -> None:
        entries = {name: {"made_of": key, "sha256": checksum} for name, (key, checksum) in self._kept.items()}
        with replacing("study", self._folder / STEPS) as (beside,):
            beside.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder."""
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        listed = [(str(file.relative_to(path)), checksum_of(file)) for file in inside]
        return sha256(json.dumps(listed).encode()).hexdigest()
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        msg = f"study: model files must be readable; got {path} ({error.strerror or error}). Check the name."
        raise InputError(msg) from error


def unfinished(out: Path) -> Path:
    """Return the folder of a study that is not done."""
    return out.with_name(f"{out.name}.unfinished")


@contextmanager
def workplace(out: Path | None) -> Iterator[Path]:
    """Yield the folder of the steps, nobody else's while it is used; without `out` one that goes at the end."""
    if out is None:
        place = Path(tempfile.gettempdir()) / "oracle-study"
        remove_leftovers(place, "oracle-study-", "")
        folder = place.with_name(f"oracle-study-{os.getpid()}{time.time_ns()}")
        folder.mkdir(mode=0o700)
        try:
            with held(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    check_folder(out)
    folder = unfinished(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file():
        msg = (
            f"study: {folder} must be what an earlier study left; got a folder with other files. Move it, or name "
            "another out."
        )
        raise InputError(msg)
    folder.mkdir(exist_ok=True)
    with alone(folder, LOCK, "study", "study"):
        yield folder


def file_name(name: str) -> str:
    """Return a name in letters, digits, - and _ alone."""
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def check_folder(out: Path, function: str = "study") -> None:
    """Raise unless a new folder can be written there, before the work is done."""
    manifest.check_name(out, function, "out")
    if out.exists() or out.is_symlink():
        msg = f"{function}: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)
    if not out.parent.is_dir():
        msg = f"{function}: out must be in an existing folder; got {out}. Make the folder first."
        raise InputError(msg)
