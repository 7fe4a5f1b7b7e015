"""Decorators that compile functions with Numba.

No other module names compiler flags. ``nogil`` lets a thread pool share the work; ``cache`` stores the machine code
next to the package (`_cache.py`), so that a second process starts at once; fast-math stays off, because backends must
agree to the last bit.
"""

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

from metric_oracle.kernels import _environment  # noqa: F401, before Numba

# isort: split
import numba
import numba.extending
import numpy as np

from metric_oracle.kernels import _inner
from metric_oracle.kernels._cache import stored
from metric_oracle.kernels._compiling import NotStoredError, only_stored

# No function here is called back from C. The last two are named because Numba takes flags that are not named from the
# function for which one is compiled first.
_FLAGS: dict[str, Any] = {
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "forceinline": False,
    "_nrt": True,
}
# Elements of the largest array that the interpreter takes from one `linear` function, in all calls of a process, before
# the function is compiled: about a microsecond each, which is less than the compiler needs.
FEW = 300_000


def jit(function: Callable[..., Any]) -> Any:
    """Compile the decorated function for CPUs at its first call, and store its machine code.

    If neither the package's folder nor the user's cache can be written, or the installed Numba is one that `_cache.py`
    does not know, each process compiles it again.
    """
    try:
        return stored(numba.njit(cache=True, **_FLAGS)(function))
    except RuntimeError:  # no folder can be written, or Numba is unknown
        return numba.njit(**_FLAGS)(function)


def linear(
    function: Callable[..., Any], plain: Callable[..., Any] | None = None, share: float = 1.0
) -> Callable[..., Any]:
    """Compile the decorated function, whose time is linear in the size of its arrays, unless there is little to do.

    Where its machine code is not stored, the interpreter runs the same source for the first `FEW` elements, or `plain`,
    a function in plain Python with the same results, which takes that `share` of the time. The results are the same to
    the bit. Only Python may call the function.
    """
    compiled, interpreted = jit(function), 0.0

    @wraps(function)
    def call(*arguments: Any) -> Any:
        """Call the machine code, or let the interpreter run the function."""
        nonlocal interpreted
        size = share * max(value.size for value in arguments if isinstance(value, np.ndarray))
        if interpreted + size > FEW:
            return compiled(*arguments)
        try:
            with only_stored():
                return compiled(*arguments)
        except NotStoredError:
            interpreted += size
        with np.errstate(over="ignore"):  # hashes are products modulo 2**64
            return (plain or uncompiled(function))(*arguments)

    return call


@cache
def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function that calls the Python functions from which those that it calls are compiled."""
    function = getattr(function, "py_func", function)
    assert isinstance(function, FunctionType)
    called = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    ours = {
        name: uncompiled(value)
        for name, value in called.items()
        if callable(value) and not isinstance(value, type) and getattr(value, "__module__", "").startswith(__package__)
    }
    copied = FunctionType(
        function.__code__,
        {**function.__globals__, **ours},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def inner(function: Callable[..., Any]) -> Any:
    """Compile the decorated function into the compiled functions that call it, without counting references to arrays.

    Only there it is optimised and becomes machine code (`_inner.py`). Called from Python it runs uncompiled. It must
    allocate nothing and return no arrays, because its caller holds those that it uses; other functions are `jit`. In
    loops over NamedTuples of arrays, counting would take half of the time: BLEU's search of one query took 0.21 ms
    rather than 0.08.
    """
    return numba.extending.register_jitable(**_inner.OPTIONS, _nrt=False)(function)


def compiled_for(function: Callable[..., Any], kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Use the decorated function in place of `function` if the first argument is of the NamedTuple class `kind`.

    This is compile-time overloading: a shared search function calls `function`, and is compiled once for each
    NamedTuple class with the body that is registered for it. LLVM inlines the body, with the caller's flags: it may
    allocate where the caller may. Inlining by Numba produced the same machine code in twice the time.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        """Register `body` as the version of `function` for the class `kind`, and return it."""

        @numba.extending.overload(function, strict=False, jit_options=_inner.OPTIONS)
        def choose(first: Any, *_: Any) -> Callable[..., Any] | None:
            """Return `body` if the first argument is of that class, else None: Numba then tries other versions."""
            return body if getattr(first, "instance_class", None) is kind else None

        return body

    return register


def kernel(function: Callable[..., Any]) -> Any:
    """Compile the decorated function as a CUDA kernel at its first launch; the machine code is stored as by `jit`."""
    from numba import cuda

    if numba.config.ENABLE_CUDASIM:  # type: ignore[attr-defined]
        return cuda.jit(fastmath=False)(function)
    try:
        return stored(cuda.jit(cache=True, fastmath=False)(function))
    except RuntimeError:  # as above
        return cuda.jit(fastmath=False)(function)


def device_function(function: Callable[..., Any]) -> Any:
    """Compile the decorated function for a GPU, for the CUDA kernels that call it."""
    from numba import cuda

    return cuda.jit(device=True, fastmath=False)(function)


def scalar(function: Callable[..., Any]) -> Any:
    """Compile the decorated function into its callers, on CPUs and GPUs; for Python, as in `score.py`, it stays plain.

    Compilers for GPUs know none of the options of `inner`.
    """
    return numba.extending.register_jitable(no_cfunc_wrapper=True, forceinline=False)(function)
