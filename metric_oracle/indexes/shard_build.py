"""Build a set of shards: each an ordinary build in its own folder, by any number of workers side by side.

A worker makes the shards that nobody has made or is making, then waits for those of others and takes over what they
left. `plan.json` says what the set is built of, so that a worker with another command is refused; `set.json` is
written last, by whoever sees that all shards are there.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from metric_oracle.errors import InputError, InUseError
from metric_oracle.files import checksum, exclusive, remove_leftovers, sync, write_json
from metric_oracle.indexes import manifest
from metric_oracle.indexes.build import BUILDING, LOCK, build_index
from metric_oracle.indexes.index import open_index as open_one
from metric_oracle.indexes.shards import NAME, PLAN, ShardSet, shard_name, write_set
from metric_oracle.indexes.store import Strings
from metric_oracle.progress import Progress
from metric_oracle.sources.inputs import Inputs

PAUSE = 0.5  # seconds between two looks at what others are building


@dataclass(frozen=True)
class Slice:
    """What one shard is made of.

    Attributes
    ----------
    ids, texts : sequences of str
    make : function
        Returns the Inputs of these reports, when they are needed; gets what all shards have `beside` them.
    source, states, section
        See `indexes.build.build_index`.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    make: Callable[[Any], Inputs]
    source: str = ""
    states: dict[str, int] | None = None
    section: tuple[str | None, str] = (None, "")


# Gets the slices, the folder, what all shards have beside them, metrics and progress; returns the shards that another
# process is making, and the number of all.
Maker = Callable[[Iterable[Slice], Path, Any, Sequence[str] | None, Progress | None], tuple[list[Path], int]]


def check_shard_rows(shard_rows: object) -> None:
    """Raise unless it is a number of rows."""
    if isinstance(shard_rows, bool) or not isinstance(shard_rows, int) or shard_rows < 1:
        msg = f"build_index: shard_rows must be an int of at least 1; got {shard_rows!r}. Choose one."
        raise InputError(msg)


def build_set(
    slices: Callable[[], Iterable[Slice]],
    out: str | Path,
    plan: Any,
    *,
    beside: Any = None,
    metrics: Sequence[str] | None = None,
    progress: Progress | None = None,
    make_all: Maker | None = None,
) -> ShardSet:
    """Build a set of shards; a killed build resumes, and workers with the same plan share the work.

    Parameters
    ----------
    slices : function
        Returns what the shards are made of, in the order of the rows, each time it is called.
    out : path
        New folder, or one where the same set is under way.
    plan : what JSON can hold
        Everything that the set depends on.
    beside : object
        What slices make Inputs with.
    metrics, progress
        See `indexes.build.build_index`; the name of the shard stands before that of the part.
    make_all : function
        Makes the shards that are not there; by default this process, one after another. See `indexes.remote`.

    Raises
    ------
    InputError
        If `out` is another folder, or a set under way of another plan; and as `build_index` does for a shard.
    """
    out = Path(out)
    _begin(out, checksum(plan))
    while True:
        busy, n_shards = (make_all or _make_all)(slices(), out, beside, metrics, progress)
        if not busy:
            break
        while not any(_is_free(folder) for folder in busy) and not all(map(_is_finished, busy)):
            time.sleep(PAUSE)
    while not (out / NAME).is_file():
        try:
            with exclusive(out, LOCK, "build_index", "build"):
                if not (out / NAME).is_file():
                    write_set(out, n_shards)
        except InUseError:
            time.sleep(PAUSE)
    for name in (PLAN, LOCK):
        (out / name).unlink(missing_ok=True)
    for name in (PLAN, NAME):  # of a worker that was killed before it renamed it
        remove_leftovers(out / name, f"{name}.", ".tmp")
    return ShardSet(out)


def _make_all(
    slices: Iterable[Slice],
    out: Path,
    beside: Any,
    metrics: Sequence[str] | None,
    progress: Progress | None,
) -> tuple[list[Path], int]:
    """Make the shards that are not there; return those that another process is making, and the number of all."""
    busy, n_shards = [], 0
    for piece in slices:
        folder = out / shard_name(n_shards)
        tell = None if progress is None else partial(_tell, progress, folder.name)
        if not has_shard(folder, piece) and not make_shard(folder, piece, beside, metrics, tell):
            busy.append(folder)
        n_shards += 1
    return busy, n_shards


def _tell(progress: Progress, name: str, step: str, done: int | None, total: int | None) -> None:
    progress(f"{name}: {step}", done, total)


def _begin(out: Path, plan: str) -> None:
    """Make the folder of a set, or raise unless the same set is under way there."""
    manifest.check_name(out, "build_index", "out")
    if not out.exists() and not out.is_symlink():
        out.mkdir(parents=True, exist_ok=True)
    # Another worker may just have made the folder.
    is_begun = out.is_dir() and all(path.name.startswith(PLAN) for path in out.iterdir())
    if not is_begun and (not (out / PLAN).is_file() or (out / NAME).is_file()):
        msg = f"build_index: out must be a new folder; got {out}, which exists. Remove it or name another."
        raise InputError(msg)
    if (out / PLAN).is_file():
        try:
            known = json.loads((out / PLAN).read_text(encoding="utf-8"))["plan"]
        except (ValueError, TypeError, KeyError, RecursionError):
            known = None
        if known != plan:
            msg = (
                "build_index: out must be new, or a set under way of these very reports, files and options; got "
                f"{out}, of others. Give the same as then, or name another."
            )
            raise InputError(msg)
        return
    write_json(out / PLAN, {"plan": plan})
    sync(out.parent)


def _is_finished(folder: Path) -> bool:
    return (folder / manifest.NAME).is_file()


def _is_free(folder: Path) -> bool:
    """Tell whether nobody is building a shard that is not finished."""
    building = folder.with_name(folder.name + BUILDING)
    if _is_finished(folder):
        return False
    try:
        with exclusive(building, LOCK, "build_index", "build"):
            return True
    except InUseError:
        return False
    except FileNotFoundError:
        return not _is_finished(folder)


def has_shard(folder: Path, piece: Slice) -> bool:
    """Tell whether a shard is finished; one of other reports is an error."""
    if not _is_finished(folder):
        return False
    reports = open_one(folder).reports
    if not all(
        reports[name].equals(Strings(given).arrow) for name, given in (("study_id", piece.ids), ("text", piece.texts))
    ):
        msg = (
            f"build_index: {folder} must hold the reports of its place; got others. Remove the folder and run the same "
            "command again."
        )
        raise InputError(msg)
    return True


def make_shard(
    folder: Path, piece: Slice, beside: Any, metrics: Sequence[str] | None, progress: Progress | None
) -> bool:
    """Build a shard; False where another worker is at it."""
    try:
        build_index(
            piece.make(beside),
            folder,
            metrics=metrics,
            source=piece.source,
            states=piece.states,
            section=piece.section,
            progress=progress,
        )
    except InUseError:
        return False
    except InputError:
        if not _is_finished(folder):  # another worker has just ended
            raise
    return True
