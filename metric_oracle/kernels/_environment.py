"""The check of environment variables that Numba reads as it is imported; `_jit.py` imports this module before."""

import os

from metric_oracle.base.errors import BackendError


def _check_environment() -> None:
    """Raise BackendError if environment variables of Numba have values with which the kernels cannot run.

    Without this check, the first call of a kernel would end in a traceback from Numba.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise BackendError("NUMBA_DISABLE_JIT is set, but the kernels run as machine code only.", "Unset it.")
    threads = os.environ.get("NUMBA_NUM_THREADS", "1")
    if not threads.isdecimal() or int(threads) == 0:
        raise BackendError(
            "NUMBA_NUM_THREADS", "must be a whole number of at least 1", repr(threads), "Change or unset it."
        )


_check_environment()
