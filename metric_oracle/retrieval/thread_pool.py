"""Run blocks of queries on several threads, and control the threads of BLAS and the memory of the process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from metric_oracle.base.errors import InputError
from metric_oracle.base.locks import let_interrupts_end_waits
from metric_oracle.base.operating_system import memory_in_use
from metric_oracle.base.progress import Advance
from metric_oracle.indexes.store import release


def run_blocks(
    run: Callable[[int], int], blocks: range, threads: int, progress: Advance | None = None, of_a_query: int = 1
) -> None:
    """Call `run` with each number in `blocks`, on this thread and `threads` - 1 others.

    `run` returns how much work it has done, which this thread alone passes on to `progress`; see `in_queries`. A small
    search takes a seventh longer with an executor: three threads then take turns at Python. `run` may start
    `of_a_query` threads itself, in place of those of BLAS.
    """
    left, finished, failed = iter(blocks), list[int](), list[BaseException]()

    def help_out() -> None:
        """Run blocks until none is left, or one has failed."""
        try:
            for block in left:
                finished.append(run(block))
        except BaseException as error:
            failed.append(error)
            _drop(left)

    helpers = [threading.Thread(target=help_out) for _ in range(min(threads, len(blocks)) - 1)]
    # Helper threads of BLAS busy-wait between matrix products, which took a third of BERTScore's time from the others.
    # For a single block they may work, unless it uses all threads itself.
    alone = len(blocks) == 1 and threads > 1 and of_a_query == 1
    with nullcontext() if alone else _one_blas_thread():
        try:
            for helper in helpers:
                helper.start()
            for block in left:
                done = run(block)
                while finished:
                    done += finished.pop()
                if progress is not None:
                    progress(done)
        finally:
            _drop(left)  # after an error or Ctrl-C no further block begins
            let_interrupts_end_waits()
            for helper in helpers:
                if helper.ident is not None:
                    helper.join()
    if failed:
        raise failed[0]
    if progress is not None:
        progress(sum(finished))


def _drop(values: Iterator[int]) -> None:
    """Leave nothing of an iterator."""
    for _ in values:
        pass


_LOCK = threading.Lock()
_LIMITERS: list[Any] = []  # one per running search; the first one restores the original limits


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Limit BLAS libraries to one thread, until the last of several overlapping searches has ended."""
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
    """Return the object that limits the threads of the loaded BLAS libraries; making it takes 4 ms."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class MemoryLimit:
    """Keeps the memory of the process under a limit: mapped pages are released before a block of queries if necessary.

    The memory of a block is estimated. Until the first block has ended, it is an eighth of the limit per thread, at
    most half of the limit in all. Later it is the greatest growth of the process during a block, divided by the number
    of blocks that ran at the same time.
    """

    def __init__(self, gigabytes: float, threads: int) -> None:
        self._bytes = gigabytes * 1e9
        self._guess = min(self._bytes / 8 * threads, self._bytes / 2)
        self._growth = 0.0
        self._running, self._lock = 0, threading.Lock()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Make room for one block of queries, and measure by how much the process grows while it runs.

        Raise InputError where the limit is exceeded although all mapped pages were released.
        """
        with self._lock:
            needed = (self._running + 1) * self._growth or self._guess
            before = memory_in_use()
            if before + needed > self._bytes:
                release()
                before = memory_in_use()
                if before > self._bytes:
                    raise InputError(
                        "max_memory",
                        f"must be at least {before / 1e9 + 0.005:.2f} GB (memory in use without mapped files)",
                        f"{self._bytes / 1e9:g}",
                        "Allow more memory, or search fewer queries at once.",
                    )
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._growth = max(self._growth, (memory_in_use() - before) / self._running, 1.0)
                self._running -= 1


def in_queries(progress: Advance | None, n: int, n_queries: int) -> Advance:
    """Return a function that adds up finished work, `n` in all, and reports it as a share of `n_queries` queries.

    It does nothing if `progress` is None.
    """
    if progress is None:
        return lambda n: None
    done = reported = 0

    def add(more: int) -> None:
        """Add finished work."""
        nonlocal done, reported
        done += more
        total = n_queries * done // n if n else 0
        if total > reported:
            progress(total - reported)
            reported = total

    return add
