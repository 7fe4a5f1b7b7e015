"""The folder of a study: its steps, each a file in ``<out>.unfinished``, from which a killed study resumes; its result.

The finished folder has the scores of each row, the oracles' reports, the table and a figure of it.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_doc import Doc

from metric_oracle.base.checksum import signature_path
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum, move_folder, sha256, temporary_folder
from metric_oracle.base.job import Job
from metric_oracle.base.locks import LOCK
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.findings.results import Results, Scores, read_scores
from metric_oracle.findings.writing import check_folder
from metric_oracle.tables.comparison import Comparison

STEPS = "steps.json"
FOLDER = ".predictions"  # suffix of the folders where models keep parts of what they make of predictions


@dataclass(frozen=True, eq=False)
class Step:
    """A row of a study, or a part of one, in a file of its own, which a study that was killed reads when it goes on."""

    name: str  # in `progress`; that of a row is its name in the table
    file: str  # name of its file, without the ending
    make: Callable[["Step"], Scores | Results]  # makes it, from what the steps before it have made
    metric: str = ""  # of an oracle or of chance
    chosen: Callable[["Step"], np.ndarray] | None = None  # if its reports are of the corpus, their rows: int64[Q]
    read: Callable[[Path], Scores | Results] = read_scores
    made_of: Any = None  # what it is made of beside what all steps are: a JSON value
    parts: tuple["Step", ...] = ()  # made before it; their files are removed when it is finished
    folder: str = ""  # name of a folder for what `make` has finished, removed then, too

    @property
    def path(self) -> str:
        """The name of its file."""
        return f"{self.file}.parquet"

    @property
    def removed(self) -> list[str]:
        """The names of the files and folders that are removed when it is finished."""
        return [*(part.path for part in self.parts), *([self.folder] if self.folder else [])]


class Steps:
    """The steps of a study that runs. A step's file is reused if it is undamaged and was made of the same inputs."""

    def __init__(
        self,
        job: Job,
        base: list[Any],  # inputs of all steps, such as the fingerprint of the index; JSON values
        size: int,  # number of test reports, which a step counts for in `progress`
        progress: Progress | None,
    ) -> None:
        self._job, self._base, self._size, self._progress = job, base, size, progress
        self._name, self._begun, self._done, self._total = "", 0, 0, 0

    def run(self, steps: Sequence[Step], made: dict[str, Any], n_steps: int) -> None:
        """Run the steps in turn, and put the result of each into `made`, by its name.

        The file of a step that an earlier run finished is read instead.
        Files that are of no step, or were made of other inputs, are removed. `n_steps` is their number in `progress`.
        """
        self._total = self._size * n_steps
        every = [*steps, *(part for step in steps for part in step.parts)]
        self._job.keep({name: self._key(step, name) for step in every for name in (step.path, step.folder)})
        joined = {part.file for step in steps if step.parts and self._job.holds(step.path) for part in step.parts}
        for step in steps:
            if step.file not in joined:
                self._run(step, made, is_last=step is steps[-1])

    def _run(self, step: Step, made: dict[str, Any], is_last: bool = False) -> None:
        """Run a step, with those of its parts that are not made yet, or read its file; the last ends the progress."""
        begun = self._begun = self._done
        self._tell(step.name, begun)
        if not self._job.holds(step.path):
            for part in step.parts:
                if part.name not in made:
                    self._run(part, made)
            if step.folder:
                self._job.claim(step.folder, made_of=self._key(step, step.folder))
            self._write(step.path, step.make(step), self._key(step, step.path))
        self._tell(step.name, self._total if is_last else begun + self._size)
        made[step.name] = step.read(self._job.folder / step.path)
        if step.removed:
            self._job.remove(*step.removed)

    def _key(self, step: Step, name: str) -> str:
        """Return the checksum of the inputs of the file or folder `name` of a step."""
        return checksum([self._base, name, step.made_of])

    def _write(self, name: str, result: Scores | Results, made_of: str) -> None:
        """Write the file of a result."""
        self._job.claim(name, made_of=made_of)
        result.write(self._job.folder / name)
        self._job.record(name)

    def write(self, name: str, results: Results) -> None:
        """Write results that are made of finished steps, and are made again whenever the study goes on."""
        self._write(f"{name}.parquet", results, "")

    def advance(self, _: str, done: int | None, total: int | None) -> None:
        """Report, as a function for `progress`, how many test reports a search or an average of this step has done."""
        self._tell(self._name, max(self._done, self._begun + min(done or 0, self._size)))

    def _tell(self, name: str, done: int) -> None:
        """Report how many test reports are done, over all steps."""
        self._name, self._done = name, done
        if self._progress is not None:
            self._progress(name, done, self._total)


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


@contextmanager
def study_job(out: Path | None) -> Iterator[Job]:
    """Yield the job of a study in ``<out>.unfinished``, locked; in a temporary folder if `out` is None."""
    if out is None:
        with temporary_folder(Path(tempfile.gettempdir()) / "oracle-study-", 0o700) as folder:
            yield Job(folder, STEPS)
        return
    check_folder(out)
    with Job.open(out.with_name(f"{out.name}.unfinished"), STEPS, "run of `mo.study`") as job:
        yield job


def file_name(name: str) -> str:
    """Return a name as that of a file: each run of characters other than letters, digits, - and _ becomes one hyphen.

    Hyphens at the ends are removed, so that it may be empty, and two names may become one.
    """
    return re.sub(r"[^\w-]+", "-", name).strip("-")


def read_study(folder: Path) -> dict[str, Scores]:
    """Return the scores of each row of a study, in the order of its table; raise InputError if it is no study's folder.

    The table's signature has the names of the rows.
    """
    table = signature_path(folder / "table.csv")
    try:
        names = json.loads(table.read_bytes())["systems"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "systems", "must be the folder of a study", shown(folder), "Name one that `mo.study` wrote, or files."
        ) from error
    return {name: read_scores(folder / f"{file_name(name)}.parquet") for name in names}


@public
def write_study(
    systems: Annotated[
        Mapping[str, Scores],
        Doc("Scores by name of the row, which [`study`][metric_oracle.study] returned."),
    ],
    comparison: Annotated[
        Comparison, Doc("Their table, which [`compare_study`][metric_oracle.compare_study] returned.")
    ],
    out: Annotated[str | Path, Doc("New folder of the study.")],
) -> None:
    """Write a study into its folder: the scores of each system, the table and a figure of it.

    The table is written as Markdown, LaTeX and CSV, the figure only if Matplotlib is installed. The folder
    ``<out>.unfinished``, where [`study`][metric_oracle.study] kept its steps, is renamed when everything is written.

    Raises
    ------
    InputError
        If the folder exists, or its files cannot be written.

    Examples
    --------
    >>> index = mo.build_index("train.csv", "INDEX")
    >>> systems = mo.study(index, "test.csv", {"strong": "strong.csv"}, metrics="bleu", out="study")
    >>> mo.write_study(systems, mo.compare_study(systems, resamples=1000), "study")
    """
    out = Path(out)
    with study_job(out) as job:
        tables = [f"table{ending}" for ending in (".md", ".tex", ".csv")]
        figures = ["table.png"] if find_spec("matplotlib") else []
        files = [*(f"{file_name(name)}.parquet" for name in systems), *tables, "table.csv.signature.json", *figures]
        job.claim(*(name for name in files if name not in job.pieces), made_of="")
        for name, scores in systems.items():
            scores.write(job.folder / f"{file_name(name)}.parquet")
        for name in (*tables, *figures):
            comparison.write(job.folder / name)
        job.record(*files)
        move_folder(job.folder, out)
        (out / LOCK).unlink()
