"""Build a shard set. Each shard is an ordinary build in its own folder, and several workers can build in parallel.

A worker builds the shards that no other worker has built or is building. Then it waits for the other workers, and takes
over shards whose workers have died. `plan.json` is the record of a job (see `job`) whose piece, `set.json`, is made of
all that the set is built from, so that a worker with other inputs is refused. `set.json` is written last, by the first
worker to see that all shards exist.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from metric_oracle.base.argument_checks import check_new_folder
from metric_oracle.base.errors import InputError, InUseError
from metric_oracle.base.files import checksum, only_writer, remove_leftovers, sync
from metric_oracle.base.job import Job
from metric_oracle.base.locks import exclusive
from metric_oracle.base.progress import Progress
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import manifest
from metric_oracle.indexes.build import BUILDING, build_index
from metric_oracle.indexes.index import open_index as open_one
from metric_oracle.indexes.shards import NAME, PLAN, ShardSet, shard_name, write_set
from metric_oracle.indexes.store import Strings

PAUSE = 0.5  # seconds between two checks of the shards that other workers are building


@dataclass(frozen=True)
class Slice:
    """The reports of one shard."""

    ids: Sequence[str]
    texts: Sequence[str]
    make: Callable[[Any], Reports]  # returns the inputs of these reports; its argument is `SharedInputs.sources`
    # What follows is as in `indexes.build.build_index`.
    source: str = ""
    states: dict[str, int] | None = None
    section: tuple[str | None, str] = (None, "")


class SharedInputs(NamedTuple):
    """The inputs that are the same for every shard of a set."""

    sources: Any = None  # the argument of `Slice.make`
    metrics: Sequence[str] | None = None  # as in `indexes.build.build_index`


# A function that builds the missing shards of a set. Its arguments are the slices in the order of the rows, the folder
# of the set, and `shared` and `progress` of `build_set`. It returns the folders of the shards that another process is
# building, and the number of all shards.
Maker = Callable[[Iterable[Slice], Path, SharedInputs, Progress | None], tuple[list[Path], int]]


def build_set(
    slices: Callable[[], Iterable[Slice]],
    out: str | Path,
    plan: Any,
    shared: SharedInputs,
    *,
    progress: Progress | None = None,
    make_all: Maker | None = None,
) -> ShardSet:
    """Build a shard set; an interrupted build resumes, and workers with the same plan share the work.

    `slices` returns the slices in the order of the rows, and may be called several times. `plan` is everything that the
    set depends on, as values that JSON can represent. `progress` is as in `indexes.build.build_index`; names of parts
    begin with the name of the shard. By default this process builds the missing shards one after another; `make_all`
    builds them in another way.

    `out` is a new folder or that of the same set. A finished set is returned as it is, so that workers that start late
    succeed. InputError is raised for another folder or a set with another plan, and for the reasons of `build_index`.
    """
    out, plan_sum = Path(out), checksum(plan)
    if _begin(out, plan_sum):
        return ShardSet(out)
    while True:
        busy, n_shards = (make_all or _make_all)(slices(), out, shared, progress)
        if not busy:
            break
        while not any(_is_free(folder) for folder in busy) and not all(map(_is_finished, busy)):
            time.sleep(PAUSE)
    with only_writer(out / NAME):
        if not (out / NAME).is_file():
            write_set(out, n_shards, plan_sum)
    (out / PLAN).unlink(missing_ok=True)
    for name in (PLAN, NAME):  # temporary files of workers that were killed before the rename
        remove_leftovers(out / name, f".{name}.", ".tmp")
    return ShardSet(out)


def _make_all(
    slices: Iterable[Slice], out: Path, shared: SharedInputs, progress: Progress | None
) -> tuple[list[Path], int]:
    """Build the missing shards one after another in this process; see `Maker`."""
    busy, n_shards = [], 0
    for piece in slices:
        folder = out / shard_name(n_shards)
        tell = None if progress is None else partial(_tell, progress, folder.name)
        if not has_shard(folder, piece) and not make_shard(folder, piece, shared, tell):
            busy.append(folder)
        n_shards += 1
    return busy, n_shards


def _tell(progress: Progress, shard: str, step: str, done: int | None, total: int | None) -> None:
    """Report the progress of a shard under its name."""
    progress(f"{shard}: {step}", done, total)


def _begin(out: Path, plan_sum: str) -> bool:
    """Make the folder of a set and record the checksum of its plan there; return whether the set is finished already.

    Raise InputError if the folder is another one, or a set with another plan.
    """
    manifest.check_name(out, "out")
    if not out.exists() and not out.is_symlink():
        out.mkdir(parents=True, exist_ok=True)
    # Another worker may have made the folder a moment ago, or may finish the set at any moment. It writes NAME before
    # it removes PLAN, so NAME is looked for after PLAN.
    is_new = out.is_dir() and all(path.name.startswith((PLAN, f".{PLAN}.")) for path in out.iterdir())
    begun = _begun(out)
    finished = _finished(out)
    if finished is not None and finished == plan_sum:
        return True
    if finished is not None or (begun is None and not is_new):
        check_new_folder("out", out)
    if begun is None:
        with only_writer(out / PLAN):  # of workers with different plans, one begins
            begun = _begun(out)
            if begun is None:
                begun = plan_sum
                Job(out, PLAN).claim(NAME, made_of=plan_sum)
        sync(out.parent)
    if begun != plan_sum:
        raise InputError(
            "out",
            "must be a new folder, or an unfinished set of the same reports, files and options",
            f"{out}, which was begun with other ones",
            "Pass what it was begun with, or name another folder.",
        )
    return False


def _begun(out: Path) -> str | None:
    """Return the checksum of the plan of an unfinished set; None if there is none, "" if it cannot be read."""
    job = Job(out, PLAN)
    return job.pieces[NAME].made_of if NAME in job.pieces else "" if job.is_damaged else None


def _finished(out: Path) -> str | None:
    """Return the checksum of the plan of a finished set; None if there is none, "" if it cannot be read."""
    try:
        return str(json.loads((out / NAME).read_text(encoding="utf-8"))["plan"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ""


def _is_finished(folder: Path) -> bool:
    """Return whether the folder of a shard has a finished index."""
    return (folder / manifest.NAME).is_file()


def _is_free(folder: Path) -> bool:
    """Return whether a shard is unfinished and no process is building it."""
    building = folder.with_name(folder.name + BUILDING)
    if _is_finished(folder):
        return False
    try:
        with exclusive(building, "build"):
            return True
    except InUseError:
        return False
    except FileNotFoundError:
        return not _is_finished(folder)


def has_shard(folder: Path, piece: Slice) -> bool:
    """Return whether a shard is finished; raise InputError if it has other reports than the slice `piece`."""
    if not _is_finished(folder):
        return False
    reports = open_one(folder).reports
    if not all(
        reports[name].equals(Strings(wanted).arrow) for name, wanted in (("study_id", piece.ids), ("text", piece.texts))
    ):
        raise InputError(
            str(folder),
            "must hold the reports of this shard",
            "other reports",
            "Remove the folder and run the same command again.",
        )
    return True


def make_shard(folder: Path, piece: Slice, shared: SharedInputs, progress: Progress | None) -> bool:
    """Build the shard of the slice `piece`; return False if another worker is building it.

    A shard that another worker has finished in the meantime counts as built.
    """
    try:
        build_index(
            piece.make(shared.sources),
            folder,
            metrics=shared.metrics,
            source=piece.source,
            states=piece.states,
            section=piece.section,
            progress=progress,
        )
    except InUseError:
        return False
    except InputError:
        if not _is_finished(folder):  # otherwise another worker has finished it in the meantime
            raise
    return True
