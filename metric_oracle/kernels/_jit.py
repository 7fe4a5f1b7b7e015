"""The only module that names compiler flags.

``nogil`` lets a thread pool share the work; ``cache`` keeps the machine code beside the package, so that a second
process starts at once; fast-math stays off, because backends must agree to the last bit.

Numba takes kept code as valid while the file of the compiled function is as it was. Kernels inline functions of other
files (`score.py`, the tie rule), so kept code is valid here only while *every* module of the kernels is as it was.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numba.extending
from numba.core.runtime import rtsys

from metric_oracle.kernels import _target

# No function here is called back from C. Compiled into its callers is what asks for it, not what that calls in turn.
_FLAGS: dict[str, Any] = {
    "nogil": True, "fastmath": False, "error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": False
}  # fmt: skip


def jit(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call; without a folder to keep the code in, once in each process."""
    return _kept(function, _FLAGS)


def _kept(function: Callable[..., Any], flags: dict[str, Any]) -> Any:
    try:
        return _ready(_keyed(numba.njit(cache=True, **flags)(function)))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(**flags)(function)


@cache
def _sources() -> str:
    """Return a hash of all modules of the kernels."""
    hasher = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        hasher.update(f"{path.relative_to(folder)}:{len(source)}:".encode() + source)
    return hasher.hexdigest()


def _keyed(compiled: Any) -> Any:
    """Have kept code checked against all kernels, beside the file of its function; nothing where none is kept."""
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None:
        file._source_stamp = (file._source_stamp, _sources())
        # A file for each instruction set: they would drive one another out of one.
        file._index_path += f".{_target.name_for_cache()}"
        file._data_name_pattern = f"{_target.name_for_cache()}.{file._data_name_pattern}"
        load = file._load_index

        def load_index() -> Any:
            try:
                return load()
            except (AttributeError, ImportError):  # kept for a named tuple that is no longer there
                return {}

        file._load_index = load_index
        save = compiled._cache.save_overload

        def save_overload(signature: Any, data: Any) -> None:
            # On a full disk the code serves this process alone.
            with suppress(OSError):
                save(signature, data)

        compiled._cache.save_overload = save_overload
    return compiled


def _ready(compiled: Any) -> Any:
    """Load kept code without what only compiling needs.

    Numba prepares its compiler before it looks whether there is kept code: the types of hundreds of functions, and
    SciPy's linear algebra. That takes as long as all of Numba's import. A function without kept code is compiled as
    ever, by a compiler that is prepared then.
    """
    load: Any = getattr(getattr(compiled, "_cache", None), "_load_overload", None)

    def load_overload(signature: Any, context: Any) -> Any:
        rtsys.initialize(context)  # what compiled code calls to count references
        return load(signature, context)

    if load is not None:
        compiled._cache.load_overload = load_overload
    return compiled


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into its callers: a call that hands over dozens of arrays costs more than a short body."""
    return numba.njit(inline="always", nogil=True, fastmath=False, error_model="numpy")(function)


def jit_borrowing(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates nothing, without reference counts.

    A loop over NamedTuples of arrays would spend a third of its time on counting references that its caller holds.
    """
    return _kept(function, {**_FLAGS, "_nrt": False})


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function for compiled callers alone, by their flags: what Python needs to call it takes a fifth longer.

    From Python it runs as it stands, uncompiled.
    """
    return numba.extending.register_jitable(no_cfunc_wrapper=True, forceinline=False)(function)


_INTO_CALLER: Any = {"no_cfunc_wrapper": True, "forceinline": True}


def compiled_for(function: Callable[..., Any], kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated body into the callers of `function` that pass a NamedTuple `kind` first.

    So a driver is compiled once for each class of NamedTuples, with what that class means in place. LLVM puts it there:
    Numba would infer and lower it again at each place, and took twice as long for the same machine code.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        @numba.extending.overload(function, strict=False, jit_options=_INTO_CALLER)
        def choose(first: Any, *_: Any) -> Callable[..., Any] | None:
            return body if getattr(first, "instance_class", None) is kind else None

        return body

    return register


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function for a GPU at its first launch, kept like those of `jit`."""
    from numba import cuda

    try:
        return _keyed(cuda.jit(cache=True, fastmath=False)(function))
    except RuntimeError:  # as above
        return cuda.jit(fastmath=False)(function)


def device_function(function: Callable[..., Any]) -> Any:
    """Compile a function into the kernels that call it."""
    from numba import cuda

    return cuda.jit(device=True, fastmath=False)(function)


# For `score.py`: the function stays plain Python for the reference and can be called from compiled kernels.
scalar: Any = numba.extending.register_jitable
