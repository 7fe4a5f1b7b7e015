"""The steps of a study, each a file in the folder ``<out>.unfinished``, from which a killed study resumes.

The file `STEPS` records the checksum of each file, and a checksum of the inputs that it was computed from.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.arguments import check_new_folder
from metric_oracle.errors import InputError, as_called, option
from metric_oracle.files import checksum, exclusive, sha256, temporary_folder
from metric_oracle.findings.results import Results, Scores
from metric_oracle.indexes import manifest
from metric_oracle.progress import Progress
from metric_oracle.sealed import read_json, write_json

STEPS, LOCK = "steps.json", ".lock"
FOLDER = ".predictions"  # suffix of the folders where models keep parts of what they make of predictions
_T = TypeVar("_T", Scores, Results)


class Written:
    """The record, in `STEPS`, of the files that a study wrote: a checksum of their inputs and one of their content.

    A name is recorded before its file is written. A file without a record is therefore not the study's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Name -> checksums of its inputs and of its content, both empty until it is finished.
        self.entries: dict[str, tuple[str, str]] = {}
        path = folder / STEPS
        if path.exists():
            try:
                content = read_json(path, "")
                self.entries = {name: (str(entry["made_of"]), str(entry["sha256"])) for name, entry in content.items()}
                if any(Path(name).name != name for name in self.entries):  # a path into another folder
                    raise ValueError
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise _foreign(self._folder, f"its {STEPS} cannot be read") from error

    def check(self) -> None:
        """Raise InputError if the folder has a file that no study wrote: it must not be deleted or overwritten."""
        for path in sorted(self._folder.iterdir()):
            of_temporary = re.fullmatch(r"\.(.+)\.\d+\.tmp", path.name)
            name = of_temporary[1] if of_temporary else path.name.removesuffix(".building")
            if name not in (STEPS, LOCK, *self.entries):
                raise _foreign(self._folder, f"it holds {path.name}")

    def claim(self, *names: str) -> None:
        """Record the names of files or folders before they are written. Only what is recorded may be deleted later."""
        self.entries = {**dict.fromkeys(names, ("", "")), **self.entries}
        self._write()

    def finish(self, *names: str, made_of: str | None = None) -> None:
        """Record the checksums of finished files and, if it is given, that of their inputs, `made_of`."""
        for name in names:
            self.entries[name] = made_of or self.entries[name][0], checksum_of(self._folder / name)
        self._write()

    def remove(self, name: str) -> None:
        """Remove a file or folder if the study wrote it."""
        if name not in self.entries:
            return
        path = self._folder / name
        if name.endswith(FOLDER):
            for folder in (path, path.with_name(f"{name}.building")):
                if folder.exists():
                    shutil.rmtree(folder)
        else:
            path.unlink(missing_ok=True)
        del self.entries[name]
        self._write()

    def _write(self) -> None:
        """Write the record to its file."""
        entries = {name: {"made_of": key, "sha256": recorded} for name, (key, recorded) in self.entries.items()}
        write_json(self._folder / STEPS, entries)


class Steps:
    """The steps of a study. A step's file is reused if its checksum, and that of its inputs, equal those on record."""

    def __init__(
        self,
        folder: Path,
        base: list[Any],  # inputs of all steps, such as the fingerprint of the index; JSON values
        size: int,  # number of test reports, which a step counts for in `progress`
        n_steps: int,
        progress: Progress | None,
    ) -> None:
        self._folder, self._base, self._progress = folder, base, progress
        self._size, self._total = size, size * n_steps
        self._name, self._done, self._limit = "", 0, 0
        self._written = Written(folder)

    def _key(self, name: str, made_of: Any) -> str:
        """Return the checksum of the inputs of the step whose file is `name`: those of all steps and `made_of`."""
        return checksum([self._base, name, made_of])

    def predictions_folder(self, model: str, made_of: Any) -> Path:
        """Return the folder for what is made of a model's predictions; record its name unless they are scored."""
        name = self._folder_name(model, made_of)
        if not self.holds(model, made_of) and name not in self._written.entries:
            self._written.claim(name)
        return self._folder / name

    def _folder_name(self, model: str, made_of: Any) -> str:
        """Return the name of the folder for what is made of a model's predictions from these inputs."""
        return f"{model}.{self._key(model, made_of)[:16]}{FOLDER}"

    def clear(self, models: Mapping[str, Any]) -> None:
        """Remove files that are of no step of this study, are damaged, or were made of other inputs.

        `models` has the own inputs, by file name without ending, of the steps that have some. Raise InputError, before
        anything is removed, if the folder has a file that no study wrote.
        """
        self._written.check()
        folders = {self._folder_name(name, made_of) for name, made_of in models.items()}
        for name, (made_of, recorded) in list(self._written.entries.items()):
            path = self._folder / name
            is_kept = made_of == self._key(name, models.get(path.stem)) and path.is_file()
            if not (is_kept and recorded == checksum_of(path)) and name not in folders:
                self._written.remove(name)

    def searching(self) -> Progress:
        """Return the progress function for the search of this step."""
        begun = self._done
        return lambda _, done, total: self._tell(self._name, min(begun + (done or 0), self._limit))

    def _tell(self, step: str, done: int) -> None:
        """Report how many test reports of a step are done."""
        self._name, self._done = step, done
        if self._progress is not None:
            self._progress(step, done, self._total)

    def holds(self, name: str, made_of: Any = None) -> bool:
        """Return whether the file of a step, `name` without its ending, exists and was made of the same inputs."""
        path = self._folder / f"{name}.parquet"
        return self._written.entries.get(path.name, ("", ""))[0] == self._key(path.name, made_of) and path.is_file()

    def run(
        self, step: str, name: str, read: Callable[[Path], _T], make: Callable[[], _T], made_of: Any = None, of: int = 1
    ) -> _T:
        """Return the result of a step: what `read` reads from its file, which `make` has made now or in an earlier run.

        `step` is its name in `progress`, where it counts for `of` steps, and `name` is that of its file without ending.
        `made_of`, a JSON value, are its inputs in addition to those of all steps.
        """
        after = self._done + of * self._size
        self._limit = self._done + self._size
        self._tell(step, self._done)
        path = self._folder / f"{name}.parquet"
        if not self.holds(name, made_of):
            made = make()
            self._written.claim(path.name)
            made.write(path)
            self._written.finish(path.name, made_of=self._key(path.name, made_of))
        self._tell(step, after)
        return read(path)

    def drop(self, name: str) -> None:
        """Remove the file of a step, `name` without its ending, whose result is part of another file."""
        self._written.remove(f"{name}.parquet")

    def remove_predictions(self, folder: Path) -> None:
        """Remove the folder of a system's predictions once they are scored."""
        self._written.remove(folder.name)


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's names and contents; raise InputError if a file is not readable."""
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        listed = [(str(file.relative_to(path)), checksum_of(file)) for file in inside]
        return checksum(listed)
    try:
        return sha256(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror or error}).", "Check the name of this file."
        ) from error


def unfinished(out: Path) -> Path:
    """Return the folder ``<out>.unfinished`` that holds a study until it is finished."""
    return out.with_name(f"{out.name}.unfinished")


@contextmanager
def working_folder(out: Path | None) -> Iterator[Path]:
    """Yield the folder of the steps, locked against other processes; a temporary one if `out` is None."""
    if out is None:
        with temporary_folder(Path(tempfile.gettempdir()) / "oracle-study-", 0o700) as folder:
            yield folder
        return
    check_folder(out)
    folder = unfinished(out)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file():
        raise _foreign(folder, "it holds other files")
    folder.mkdir(exist_ok=True)
    with exclusive(folder, LOCK, f"run of {as_called('study')}"):
        yield folder


def _foreign(folder: Path, reason: str) -> InputError:
    """Return the error for a folder that is not that of a study."""
    return InputError(
        f"{folder} was not left by an earlier study: {reason}.", f"Move it, or name another {option('out')}."
    )


def file_name(name: str) -> str:
    """Return a name with only letters, digits, - and _; empty if it has none of them."""
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def check_folder(out: Path) -> None:
    """Raise InputError unless a new folder can be made at `out`. It is called before the work begins."""
    manifest.check_name(out, "out")
    manifest.check_outside(out, "out")
    check_new_folder("out", out)
    if not out.parent.is_dir():
        raise InputError("out", "must be in an existing folder", out, "Make the folder first.")
