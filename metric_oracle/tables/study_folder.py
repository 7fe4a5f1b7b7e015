"""The folder of a study: its steps, each a file in ``<out>.unfinished``, from which a killed study resumes; its result.

The finished folder has the scores of each row, the oracles' reports, the table and a figure of it.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_doc import Doc

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import checksum, move_folder, sha256, temporary_folder
from metric_oracle.base.job import Job
from metric_oracle.base.locks import LOCK
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.findings.results import Results, Scores
from metric_oracle.findings.writing import check_folder
from metric_oracle.tables.comparison import Comparison

STEPS = "steps.json"
FOLDER = ".predictions"  # suffix of the folders where models keep parts of what they make of predictions
_T = TypeVar("_T", Scores, Results)


class Steps:
    """The steps of a study. A step's file is reused if it is undamaged and was made of the same inputs.

    Files that are of no step of this study, or were made of other inputs, are removed.
    """

    def __init__(
        self,
        job: Job,
        base: list[Any],  # inputs of all steps, such as the fingerprint of the index; JSON values
        made_of: Mapping[str, Any],  # further inputs, by file name without ending, of the steps that have some
        size: int,  # number of test reports, which a step counts for in `progress`
        n_steps: int,
        progress: Progress | None,
    ) -> None:
        self._job, self._base, self._made_of, self._progress = job, base, made_of, progress
        self._size, self._total = size, size * n_steps
        self._name, self._done, self._limit = "", 0, 0
        job.keep({name: self._key(name) for name in job.pieces})

    def _key(self, name: str) -> str:
        """Return the checksum of the inputs of the step that writes the file or folder `name`."""
        return checksum([self._base, name, self._made_of.get(Path(name).stem)])

    def predictions_folder(self, model: str) -> Path:
        """Return the folder for what is made of a model's predictions; record its name unless they are scored."""
        name = f"{model}{FOLDER}"
        if not self.holds(model):
            self._job.claim(name, made_of=self._key(name))
        return self._job.folder / name

    def searching(self) -> Progress:
        """Return the progress function for the search of this step."""
        begun = self._done
        return lambda _, done, total: self._tell(self._name, min(begun + (done or 0), self._limit))

    def _tell(self, step: str, done: int) -> None:
        """Report how many test reports of a step are done."""
        self._name, self._done = step, done
        if self._progress is not None:
            self._progress(step, done, self._total)

    def holds(self, name: str) -> bool:
        """Return whether the file of a step, `name` without its ending, was finished in an earlier run."""
        return self._job.holds(f"{name}.parquet")

    def run(self, step: str, name: str, read: Callable[[Path], _T], make: Callable[[], _T], of: int = 1) -> _T:
        """Return the result of a step: what `read` reads from its file, which `make` has made now or in an earlier run.

        `step` is its name in `progress`, where it counts for `of` steps, and `name` is that of its file without ending.
        """
        after = self._done + of * self._size
        self._limit = self._done + self._size
        self._tell(step, self._done)
        file = f"{name}.parquet"
        path = self._job.folder / file
        if not self.holds(name):
            result = make()
            self._job.claim(file, made_of=self._key(file))
            result.write(path)
            self._job.record(file)
        self._tell(step, after)
        return read(path)

    def write(self, name: str, results: Results) -> None:
        """Write results that are made of other steps, so that they are made again whenever the study goes on."""
        file = f"{name}.parquet"
        self._job.claim(file, made_of="")
        results.write(self._job.folder / file)
        self._job.record(file)

    def remove(self, name: str) -> None:
        """Remove a file or folder whose content is part of the file of another step."""
        self._job.remove(name)


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
