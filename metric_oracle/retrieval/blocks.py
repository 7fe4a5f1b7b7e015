"""Let a kernel answer the queries of a search block by block, on several threads."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.progress import Advance
from metric_oracle.kernels.contract import Answers
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.thread_pool import MemoryLimit, in_queries, run_blocks

# Least and greatest number of queries per task. Large tasks come first, because each has a fixed cost; small ones come
# last, so that the threads end together.
BLOCK = 32
MOST_BLOCK = 128
LEAST_BLOCK = 4  # queries per task if memory is limited


def answer_blocks(
    pairs: Pairs,
    rounds: Iterable[tuple[int, Answers]],
    options: SearchOptions,
    progress: Advance | None,
    answered: Callable[[int, int], None],
) -> dict[str, Any]:
    """Have the backend of the options write the answers of each round; kernels release the interpreter lock.

    `pairs` are those of one shard, `rounds` has the number of the first list of each round, and its answers. `answered`
    is called with the first list and the end of the lists of each finished block, from the thread that searched it.

    Return what the signature records of the work: the share of pairs that each stage dropped by its bounds, and the
    least distance between a bound and a score.
    """
    kernel, ((corpus, batch),) = pairs.on(options.backend)
    n, n_queries, threads = len(pairs.encoded.row_ptr) - 1, len(pairs.which), options.threads or n_threads()
    limit = None if options.max_memory is None else MemoryLimit(options.max_memory, threads)
    sizes = (n, n) if kernel.capabilities.batched else (BLOCK, MOST_BLOCK) if limit is None else (LEAST_BLOCK,) * 2
    blocks = [
        (begin, answers, queries)
        for begin, answers in rounds
        for run_of_queries in _runs(answers, n)
        for queries in _blocks(run_of_queries, *sizes, threads)
    ]
    of_a_query = 1
    if kernel.capabilities.splits and blocks:  # threads beyond the cores make no query faster
        of_a_query = max(min(threads, n_threads()) // len(blocks), 1)
    idle: list[Any] = []  # workspaces that no thread uses

    def run(i: int) -> int:
        """Search block `i` of distinct queries; return how many it has."""
        begin, answers, queries = blocks[i]
        workspace = idle.pop() if idle else None if kernel.capabilities.batched else kernel.new_workspace(corpus)
        k = answers.rows.shape[1]
        with nullcontext() if limit is None else limit.block():
            kernel.search(corpus, batch, queries, k, answers._replace(threads=of_a_query), workspace)
        if workspace is not None:
            idle.append(workspace)
        first, last = answers.exclusion.lists(queries[0]), answers.exclusion.lists(queries[-1])
        answered(begin + first.start, begin + last.stop)
        return len(queries)

    if kernel.capabilities.batched:
        for i in range(len(blocks)):
            run(i)
        in_queries(progress, n, n_queries)(n)
    else:
        total = sum(len(queries) for _, _, queries in blocks)
        run_blocks(run, range(len(blocks)), threads, in_queries(progress, total, n_queries), of_a_query)
    stages = kernel.stages(idle)
    closest = stages.pop("closest_call", None)
    return {**({"stages": stages} if stages else {}), **({"closest_call": closest} if closest else {})}


def _runs(answers: Answers, n: int) -> list[range]:
    """Return the ranges of distinct queries, numbered 0 to n - 1, that have lists among the answers."""
    if not len(answers.exclusion.first):
        return [range(n)] if n else []
    has_lists = np.diff(answers.exclusion.first) > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], has_lists, [False]]).astype(np.int8)))
    return [range(a, b) for a, b in edges.reshape(-1, 2).tolist()]


def _blocks(queries: range, least: int, most: int, threads: int) -> Iterator[range]:
    """Yield blocks of queries: a quarter of a thread's share of what is left, from `least` to `most` of them."""
    while queries:
        size = min(max(len(queries) // (4 * threads), least), most)
        yield queries[:size]
        queries = queries[size:]
