"""Build the shards of a set by the workers of a cluster."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.cluster import Beat, Runner, Task, Told, run_tasks
from metric_oracle.indexes.shard_build import Slice, has_shard, make_shard
from metric_oracle.indexes.shards import shard_name
from metric_oracle.progress import Progress


def make_remote(
    slices: Iterable[Slice],
    out: Path,
    beside: Any,
    metrics: Sequence[str] | None,
    progress: Progress | None,
    *,
    runner: Runner,
    expected: int | None = None,
) -> tuple[list[Path], int]:
    """Make the shards that are not there, see `Maker` in `indexes.shard_build`.

    `progress` also gets the numbers of finished shards and of all, the `expected` one until it is known.
    """
    busy: list[Path] = []
    n_there = n_shards = 0
    total = expected

    def tasks() -> Iterator[Task]:
        nonlocal n_there, n_shards, total
        for piece in slices:
            folder = out.resolve() / shard_name(n_shards)
            n_shards += 1
            if has_shard(folder, piece):
                n_there += 1
            else:
                yield Task(folder.name, (str(folder), piece, metrics))
        total = n_shards

    def take(task: Task, is_made: bool) -> None:
        if not is_made:
            busy.append(out / task.name)

    def look(finished: int, beats: dict[str, Beat]) -> None:
        if progress is not None:
            name, said = min(((name, beat.said) for name, beat in beats.items()), default=("", ""))
            more = f", and {len(beats) - 1} more" if len(beats) > 1 else ""
            progress(f"{name}: {said}{more}" if said else name, n_there + finished, total)

    run_tasks("build_index", runner, "metric_oracle.indexes.remote:make_one", beside, tasks(), take=take, look=look)
    return busy, n_shards


def make_one(beside: Any, told: Told, folder: str, piece: Slice, metrics: Sequence[str] | None) -> bool:
    """Build a shard in a worker; see `indexes.shard_build.make_shard`."""
    return make_shard(Path(folder), piece, beside, metrics, lambda step, done, total: told.say(step))
