"""The only module that names compiler flags.

``nogil`` lets a thread pool share the work; ``cache`` keeps the machine code beside the package, so that a second
process starts at once; fast-math stays off, because backends must agree to the last bit.
"""

from collections.abc import Callable
from typing import Any

import numba
import numba.extending


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call; without a folder to keep the code in, once in each process."""
    flags: dict[str, Any] = {"nogil": True, "fastmath": False, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **flags)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(**flags)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into its callers: a call that hands over dozens of arrays costs more than a short body."""
    return numba.njit(inline="always", nogil=True, fastmath=False, error_model="numpy")(function)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function for a GPU at its first launch, kept like those of :func:`jit`."""
    from numba import cuda

    try:
        return cuda.jit(cache=True, fastmath=False)(function)
    except RuntimeError:  # as above
        return cuda.jit(fastmath=False)(function)


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a function into the kernels that call it."""
    from numba import cuda

    return cuda.jit(device=True, fastmath=False)(function)


# For `score.py`: the function stays plain Python for the reference and can be called from compiled kernels.
scalar: Any = numba.extending.register_jitable
