"""Search the shards of a set in the workers of a cluster, one shard per task.

Each task gets the k-th best scores so far, so that a worker can leave out rows that score worse.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.errors import IndexFormatError
from metric_oracle.base.progress import Advance
from metric_oracle.cluster import Beat, Cluster, Task, WorkerProgress, run_tasks
from metric_oracle.findings.results import Results
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index, shard_name
from metric_oracle.retrieval.document_pairs import scorable
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.limit import Limit
from metric_oracle.retrieval.merge import BestRows, merge_best
from metric_oracle.retrieval.search import Search


def search_one(
    shared: tuple[Any, ...],
    reporter: WorkerProgress,
    folder: str,
    fingerprint: str,
    shard: int,
    limit: np.ndarray | None,
) -> BestRows:
    """Search a shard in a worker, and return its best rows.

    `shared` has the queries, these encoded or None, the metric and the options. `folder` and `fingerprint` are those of
    the set. Rows that score worse than `limit`, float64[Q] or None, may be left out.
    """
    queries, encoded, metric, options = shared
    search = Search(opened_set(folder, fingerprint), queries, metric, options)
    return search.best_rows([shard], limit, encoded, reporter.add)


@lru_cache(maxsize=1)
def opened_set(folder: str, fingerprint: str) -> Index:
    """Return the set in a folder; each worker process opens it once. Raise IndexFormatError if it is another set."""
    index = open_index(folder)
    if index.fingerprint != fingerprint:
        raise IndexFormatError(
            "workers",
            f"must see the same set of shards as this process, fingerprint {fingerprint[:12]}",
            f"{index.fingerprint[:12]} in {folder}",
            "Share the folder between the machines.",
        )
    return index


def retrieve_remote(search: Search, runner: Cluster, progress: Advance | None = None) -> Results:
    """Search a shard set, each shard in a worker with `options.threads` threads, by default one."""
    index, queries, metric, k = search.index, search.queries, search.metric, search.options.k
    best, limit, reported = BestRows.none(len(queries.ids)), Limit(metric.sign), 0

    def tasks() -> Iterator[Task]:
        """Yield one task per shard, each with the limit that is known when it is taken."""
        for shard in range(index.n_shards):
            arguments = str(Path(index.folder).resolve()), index.fingerprint, shard, limit.scores
            yield Task(shard_name(shard), arguments)

    def take(task: Task, of_shard: BestRows) -> None:
        """Merge the best rows of a finished task into those so far."""
        nonlocal best, limit
        best = merge_best([best, of_shard], k, metric.sign)
        limit = limit.after(best, k)

    def look(finished: int, beats: dict[str, Beat]) -> None:
        """Report the progress of the workers."""
        nonlocal reported
        done = (finished * len(queries.ids) + sum(beat.done for beat in beats.values())) // index.n_shards
        if progress is not None and done > reported:
            progress(done - reported)
            reported = done

    target = "metric_oracle.retrieval.remote_search:search_one"
    run_tasks(runner, target, _shared_by_workers(search), tasks(), take=take, look=look)
    return search.table_of(best)


def _shared_by_workers(search: Search) -> tuple[Any, ...]:
    """Return the queries, these encoded or None, the metric and the options, as `search_one` takes them.

    Models run once, here, for all shards, and the queries are sent as they are encoded; where no model runs, the
    workers encode them. Models and their reports are not sent.
    """
    index, queries, metric, options = search.index, search.queries, search.metric, search.options
    _, first = next(scorable(index.shards(), metric))
    encoded: Documents = first.encode(queries, **options.settings)  # raises InputError if the queries do not fit
    attached = {kind: attachment for kind, attachment in queries.attached.items() if kind != "bertscore"}
    # Kernels that process all queries at once do not use `threads`.
    is_batched = load_kernel(metric, options.backend).capabilities.batched
    of_worker = replace(options, threads=None if is_batched else options.threads or 1)
    sent = replace(queries, attached=attached, opened_encoder=None)
    return sent, encoded if metric.needs_encoder else None, metric, of_worker
