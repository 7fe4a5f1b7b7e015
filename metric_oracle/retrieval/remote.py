"""Search the shards of a set by the workers of a cluster; a shard that is handed out knows the best scores so far."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.cluster import Beat, Runner, Task, Told, run_tasks
from metric_oracle.errors import IndexFormatError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index, shard_name
from metric_oracle.metrics import Metric
from metric_oracle.progress import Count
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.merge import Answer, merge
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import Found, found_of, limit_of, search
from metric_oracle.sources.inputs import Inputs


def search_one(
    shared: tuple[Any, ...], told: Told, folder: str, fingerprint: str, place: int, limit: np.ndarray | None
) -> tuple[Answer, bool, tuple[int, dict[str, Any]]]:
    """Search a shard in a worker; return its answers, whether they are exact, and what the signature records."""
    queries, encoded, record, options = shared
    found = search(
        _opened(folder, fingerprint),
        queries,
        record,
        options,
        places=[place],
        limit=limit,
        encoded=encoded,
        progress=told.add,
    )
    signature = found.signature
    stages: dict[str, Any] = {name: signature[name] for name in ("stages", "closest_call") if name in signature}
    return found.answer, found.exact, (found.documents, stages)


@lru_cache(maxsize=1)
def _opened(folder: str, fingerprint: str) -> Index:
    """Open the set of a search once in each worker."""
    index = open_index(folder)
    if index.fingerprint != fingerprint:
        msg = (
            f"retrieve: workers must see the set of this process, fingerprint {fingerprint[:12]}; got "
            f"{index.fingerprint[:12]} in {folder}. Share the folder between the machines."
        )
        raise IndexFormatError(msg)
    return index


def retrieve_remote(
    index: Index,
    queries: Inputs,
    record: Metric,
    options: SearchOptions,
    runner: Runner,
    progress: Count | None = None,
) -> Results:
    """Search a set of shards as a plan asks for it, each shard in a worker with `threads`, by default one."""
    k = options.k
    first = next(part for part in (representation_of(s, record) for s in index.shards()) if len(part.row_id))
    encoded = first.encode(queries, **options.settings)  # by a model once, for all shards
    # What only a model reads, or is, stays here.
    attached = {kind: attachment for kind, attachment in queries.attached.items() if kind != "bertscore"}
    sent = replace(queries, attached=attached, encoding=None)
    # Kernels that take all queries at once have no threads of their own.
    backend = options.backend
    is_batched = backend != "reference" and load_kernel(record, backend).capabilities.batched
    of_worker = replace(options, threads=None if is_batched else options.threads or 1)
    shared = sent, encoded.portable(), record, of_worker
    answer: Answer | None = None
    limit: np.ndarray | None = None
    exact, told = True, 0
    stages: dict[str, tuple[int, dict[str, Any]]] = {}

    def tasks() -> Iterator[Task]:
        for place in range(index.n_shards):
            arguments = str(Path(index.folder).resolve()), index.fingerprint, place, limit
            yield Task(shard_name(place), arguments)

    def take(task: Task, result: tuple[Answer, bool, tuple[int, dict[str, Any]]]) -> None:
        nonlocal answer, limit, exact
        part, is_exact, of_part = result
        if not part.rows.shape[1]:
            return
        exact, stages[task.name] = is_exact, of_part
        answer = part if answer is None else merge([answer, part], k, record.higher_is_better)
        limit = limit_of(answer, k, limit, record.higher_is_better)

    def look(finished: int, beats: dict[str, Beat]) -> None:
        nonlocal told
        done = (finished * len(queries.ids) + sum(beat.done for beat in beats.values())) // index.n_shards
        if progress is not None and done > told:
            progress(done - told)
            told = done

    home = "metric_oracle.retrieval.remote:search_one"
    run_tasks("retrieve", runner, home, shared, tasks(), take=take, look=look)
    in_order = [stages[name] for name in sorted(stages)]
    found: Found = found_of(index, queries, record, options, answer, exact, encoded, in_order)
    return found.results(queries.ids)
