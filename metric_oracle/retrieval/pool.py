"""Threads, BLAS and memory of a search: blocks of queries on a pool of threads."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from metric_oracle.errors import InputError
from metric_oracle.indexes.store import release, resident
from metric_oracle.progress import Count


def n_threads() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_blocks(
    run: Callable[[int], int],
    blocks: range,
    n: int,
    threads: int,
    progress: Count | None,
    n_queries: int,
) -> None:
    """Call `run` with the first of each block of the `n` distinct queries; it returns how many it has answered.

    NumPy's products stay on the thread that asks for them: the helpers that a BLAS library keeps ready spin between
    products and took a third of BERTScore's time from the threads of the pool.
    """
    reported = done = 0
    alone = len(blocks) == 1 and threads > 1  # the threads that no other block needs may multiply
    with nullcontext() if alone else _one_blas_thread():
        if threads == 1 or len(blocks) == 1:
            for first in blocks:
                done += run(first)
                reported = report(progress, done, n, n_queries, reported)
        else:
            pool = ThreadPoolExecutor(min(threads, len(blocks)))
            try:
                for future in as_completed([pool.submit(run, first) for first in blocks]):
                    done += future.result()
                    reported = report(progress, done, n, n_queries, reported)
            finally:
                # After an error or Ctrl-C no further block begins.
                pool.shutdown(cancel_futures=True)
    report(progress, done, n, n_queries, reported)


_LOCK = threading.Lock()
_LIMITERS: list[Any] = []  # of each search under way; the first one knows what was set before


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Keep the BLAS libraries on one thread until the last of several searches that overlap has ended."""
    with _LOCK:
        _LIMITERS.append(_blas().limit(limits=1, user_api="blas") if not _LIMITERS else _LIMITERS[0])
    try:
        yield
    finally:
        with _LOCK:
            last = _LIMITERS.pop()
            if not _LIMITERS:
                last.restore_original_limits()


@cache
def _blas() -> Any:
    """Return what sets the threads of the BLAS libraries that are loaded, NumPy's among them; to ask takes 4 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class MemoryLimit:
    """Keeps the memory of the process under a limit: before each block, mapped pages make room for what one took.

    What a block takes is guessed until one has ended: an eighth of the limit for each thread, but no more than half of
    it in all. Then it is the most that the process grew while a block ran, shared by the blocks beside it.
    """

    def __init__(self, gigabytes: float, threads: int, function: str) -> None:
        self._bytes, self._function = gigabytes * 1e9, function
        self._guess = min(self._bytes / 8 * threads, self._bytes / 2)
        self._growth = 0.0
        self._running, self._lock = 0, threading.Lock()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Make room for one block, and see what it takes."""
        with self._lock:
            needed = (self._running + 1) * self._growth or self._guess
            before = resident()
            if before + needed > self._bytes:
                release()
                before = resident()
                if before > self._bytes:
                    msg = (
                        f"{self._function}: max_memory must be at least {before / 1e9 + 0.005:.2f} GB (held besides "
                        f"files); got {self._bytes / 1e9:g}. Give more, or fewer queries at once."
                    )
                    raise InputError(msg)
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._growth = max(self._growth, (resident() - before) / self._running, 1.0)
                self._running -= 1


def report(progress: Count | None, done: int, n: int, n_queries: int, reported: int) -> int:
    """Report distinct queries as queries."""
    total = n_queries * done // n if n else 0
    if progress is not None and total > reported:
        progress(total - reported)
    return total
