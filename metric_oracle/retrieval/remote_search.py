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
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.combined import CombinedDocuments
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index, shard_name
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.records import Metric
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.merge import BestRows, merge_best
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.search import SearchedShards, limit_of, search_index, searched_of


def search_one(
    shared: tuple[Any, ...],
    reporter: WorkerProgress,
    folder: str,
    fingerprint: str,
    shard: int,
    limit: np.ndarray | None,
) -> tuple[BestRows, bool, tuple[int, dict[str, Any]]]:
    """Search a shard in a worker; return its best rows, whether exact, and (documents, entries of the signature).

    `shared` has the queries, these encoded or None, the metric and the options. `folder` and `fingerprint` are those of
    the set. Rows that score worse than `limit`, float64[Q] or None, may be left out.
    """
    queries, encoded, metric, options = shared
    searched = search_index(
        opened_set(folder, fingerprint),
        queries,
        metric,
        options,
        shards=[shard],
        limit=limit,
        encoded=encoded,
        progress=reporter.add,
    )
    signature = searched.signature
    stages: dict[str, Any] = {name: signature[name] for name in ("stages", "closest_call") if name in signature}
    return searched.best, searched.exact, (searched.documents, stages)


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


def retrieve_remote(
    index: Index,
    queries: Reports,
    metric: Metric,
    options: SearchOptions,
    runner: Cluster,
    progress: Advance | None = None,
) -> Results:
    """Search a shard set, each shard in a worker with `options.threads` threads, by default one."""
    k = options.k
    first = next(part for part in (s.representation(metric) for s in index.shards()) if len(part.row_id))
    encoded = first.encode(queries, **options.settings)  # models run once for all shards
    # Only what a model made of the queries is sent; the workers encode the rest themselves.
    sent_documents: Documents | None = encoded if metric.needs_encoder else None
    if isinstance(sent_documents, CombinedDocuments):
        parts: dict[str, Any] = {
            name: part if REPRESENTATIONS[name].is_encoded else None for name, part in sent_documents.parts.items()
        }
        sent_documents = replace(sent_documents, parts=parts)
    # Models and their reports are not sent to the workers.
    attached = {kind: attachment for kind, attachment in queries.attached.items() if kind != "bertscore"}
    sent = replace(queries, attached=attached, opened_encoder=None)
    # Kernels that process all queries at once do not use `threads`.
    backend = options.backend
    is_batched = backend != "reference" and load_kernel(metric, backend).capabilities.batched
    of_worker = replace(options, threads=None if is_batched else options.threads or 1)
    shared = sent, sent_documents, metric, of_worker
    best: BestRows | None = None
    limit: np.ndarray | None = None
    exact, reported = True, 0
    stages: dict[str, tuple[int, dict[str, Any]]] = {}

    def tasks() -> Iterator[Task]:
        """Yield one task per shard, each with the limit that is known when it is taken."""
        for shard in range(index.n_shards):
            arguments = str(Path(index.folder).resolve()), index.fingerprint, shard, limit
            yield Task(shard_name(shard), arguments)

    def take(task: Task, result: tuple[BestRows, bool, tuple[int, dict[str, Any]]]) -> None:
        """Merge the best rows of a finished task into those so far."""
        nonlocal best, limit, exact
        part, is_exact, of_part = result
        if not part.rows.shape[1]:
            return
        exact, stages[task.name] = is_exact, of_part
        best = part if best is None else merge_best([best, part], k, metric.sign)
        limit = limit_of(best, k, limit, metric.sign)

    def look(finished: int, beats: dict[str, Beat]) -> None:
        """Report the progress of the workers."""
        nonlocal reported
        done = (finished * len(queries.ids) + sum(beat.done for beat in beats.values())) // index.n_shards
        if progress is not None and done > reported:
            progress(done - reported)
            reported = done

    target = "metric_oracle.retrieval.remote_search:search_one"
    run_tasks(runner, target, shared, tasks(), take=take, look=look)
    in_order = [stages[name] for name in sorted(stages)]
    searched: SearchedShards = searched_of(index, queries, metric, options, best, exact, encoded, in_order)
    return searched.results(queries.ids)
