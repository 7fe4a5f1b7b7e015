"""Build the shards of a shard set in the workers of a cluster, one shard per task."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from metric_oracle.base.progress import Progress
from metric_oracle.cluster import Beat, Cluster, Task, WorkerProgress, run_tasks
from metric_oracle.indexes.shard_build import SharedInputs, Slice, has_shard, make_shard
from metric_oracle.indexes.shards import shard_name


def make_remote(
    slices: Iterable[Slice],
    out: Path,
    shared: SharedInputs,
    progress: Progress | None,
    *,
    runner: Cluster,
    expected: int | None = None,
) -> tuple[list[Path], int]:
    """Build, in the workers of a cluster, the shards that do not exist yet; see `Maker` in `indexes.shard_build`.

    `progress` is called with the names of a shard and its part, and with the numbers of finished and of all shards.
    Until the latter is known, it is `expected`.
    """
    busy: list[Path] = []
    n_existing = n_shards = 0
    total = expected

    def tasks() -> Iterator[Task]:
        """Yield a task for each shard that does not exist yet."""
        nonlocal n_existing, n_shards, total
        for piece in slices:
            folder = out.resolve() / shard_name(n_shards)
            n_shards += 1
            if has_shard(folder, piece):
                n_existing += 1
            else:
                yield Task(folder.name, (str(folder), piece))
        total = n_shards

    def take(task: Task, is_built: bool) -> None:
        """Record that another process is building the shard of a task, if the worker did not build it."""
        if not is_built:
            busy.append(out / task.name)

    def look(finished: int, beats: dict[str, Beat]) -> None:
        """Report the progress of the workers, each with its last report by the name of its task."""
        if progress is not None:
            name, step = min(((name, beat.step) for name, beat in beats.items()), default=("", ""))
            more = f", and {len(beats) - 1} more" if len(beats) > 1 else ""
            progress(f"{name}: {step}{more}" if step else name, n_existing + finished, total)

    run_tasks(runner, "metric_oracle.indexes.remote_build:make_one", shared, tasks(), take=take, look=look)
    return busy, n_shards


def make_one(shared: SharedInputs, reporter: WorkerProgress, folder: str, piece: Slice) -> bool:
    """Build a shard in a worker, as `indexes.shard_build.make_shard` does; return False if another is building it."""
    return make_shard(Path(folder), piece, shared, lambda step, done, total: reporter.say(step))
