"""Kernels: exact searches and scores of each metric, on arrays. See README.md."""

import os

from metric_oracle.errors import BackendError


def _check_environment() -> None:
    """Raise for settings of Numba with which the kernels cannot run, where Numba would end in a traceback."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        msg = "oracle: NUMBA_DISABLE_JIT is set, but the kernels run as machine code only. Unset it."
        raise BackendError(msg)
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not threads.isdecimal() or int(threads) == 0:
        msg = f"oracle: NUMBA_NUM_THREADS must be a whole number of at least 1; got {threads!r}. Change or unset it."
        raise BackendError(msg)


_check_environment()
