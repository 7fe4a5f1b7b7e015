"""Decorators that compile functions with Numba, and the store of their machine code.

No other module names compiler flags.

``nogil`` lets a thread pool share the work; ``cache`` stores the machine code next to the package, so that a second
process starts at once; fast-math stays off, because backends must agree to the last bit.

Numba by itself loads stored machine code if the file of the compiled function is unchanged. Kernels inline functions of
other files (`score.py`, the tie rule), so this module also compares the source of every module of the kernels that the
function's module imports, directly or indirectly, and of those that define the NamedTuples among its arguments, because
search functions are compiled once per class of NamedTuple.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numba
import numba.extending
import numpy as np
from numba.core.runtime import rtsys
from numba.core.types import BaseTuple

from metric_oracle.kernels import _target

# No function here is called back from C. Compiled into its callers is what asks for it, not what that calls in turn.
_FLAGS: dict[str, Any] = {
    "nogil": True, "fastmath": False, "error_model": "numpy", "no_cfunc_wrapper": True, "forceinline": False
}  # fmt: skip


def jit(function: Callable[..., Any]) -> Any:
    """Compile the decorated function for CPUs at its first call.

    The machine code is stored on disk if a folder for it can be written; otherwise each process compiles it again.
    """
    return _kept(function, _FLAGS)


def _kept(function: Callable[..., Any], flags: dict[str, Any]) -> Any:
    """Compile a function with these flags.

    Store its machine code if the package's folder or the user's cache can be written.
    """
    try:
        return _ready(_keyed(numba.njit(cache=True, **flags)(function)))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(**flags)(function)


_HERE = __package__  # all compiled functions are in it: no other module of the project matters to machine code
_IMPORT = re.compile(rf"from {re.escape(_HERE)}([\w.]*) import (\([^)]*\)|.*)")
_WORD = re.compile(r"\w+")


@cache
def _modules() -> dict[str, str]:
    """Return the path of each module of the kernels by its dotted name; a package has the path of its `__init__.py`."""
    home = os.path.dirname(__file__)
    found = {}
    for folder, _, files in os.walk(home):
        package = _HERE + folder[len(home) :].replace(os.sep, ".")
        for file in files:
            if file.endswith(".py"):
                name = package if file == "__init__.py" else f"{package}.{file[:-3]}"
                found[name] = os.path.join(folder, file)
    return found


@cache
def _read(module: str) -> tuple[str, frozenset[str]]:
    """Return the hash of the source of a module of the kernels, and the names of the modules of the kernels it imports.

    Imports are found with a regular expression rather than by parsing, because this runs at every start of the program.
    """
    with open(_modules()[module], "rb") as file:
        source = file.read()
    imported = set()
    for origin, names in _IMPORT.findall(source.decode()):
        # Of a package modules are imported, or names of its own.
        modules = {f"{_HERE}{origin}.{name}" for name in _WORD.findall(names)} & _modules().keys()
        imported |= modules or {f"{_HERE}{origin}"}
    return hashlib.sha256(source).hexdigest(), frozenset(imported)


@cache
def sources(module: str) -> str:
    """Return a hash of all sources that a module's machine code depends on: its own and those that it imports.

    Imports of a module outside the kernels, such as a test's, are not followed: its hash covers all modules of the
    kernels.
    """
    missing = {module} if module in _modules() else set(_modules())
    found: dict[str, str] = {}
    while missing:
        name = missing.pop()
        found[name], imported = _read(name)
        missing |= imported - found.keys()
    return _digest([np.__version__, *(part for item in sorted(found.items()) for part in item)])


def _digest(parts: Iterable[str]) -> str:
    """Return the SHA-256 of strings, joined by line ends, as hexadecimal digits."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tuple_modules(kinds: Any) -> Iterator[str]:
    """Yield the module of each NamedTuple class among Numba's types of arguments, also of NamedTuples within others."""
    for kind in kinds:
        if isinstance(kind, BaseTuple):
            if hasattr(kind, "instance_class"):
                yield kind.instance_class.__module__
            yield from _tuple_modules(kind)


def _sources_of_arguments(signature: Any) -> str:
    """Return a hash of the sources of the modules that define the NamedTuples in a signature, and of their imports."""
    modules = set(_tuple_modules(getattr(signature, "args", signature)))
    return _digest(map(sources, sorted(modules)))


def _keyed(compiled: Any) -> Any:
    """Make a compiled function reuse its stored machine code only if all sources that it depends on are unchanged.

    Stored code of each instruction set has a file of its own. A function without a store is returned as it is.
    """
    stored: Any = getattr(compiled, "_cache", None)
    file = getattr(stored, "_cache_file", None)
    if file is not None:
        file._source_stamp = (file._source_stamp, sources(compiled.py_func.__module__))
        # A file for each instruction set: they would drive one another out of one.
        file._index_path += f".{_target.name_for_cache()}"
        file._data_name_pattern = f"{_target.name_for_cache()}.{file._data_name_pattern}"
        load, key, save = file._load_index, stored._index_key, stored.save_overload

        def index_key(signature: Any, codegen: Any) -> tuple[Any, ...]:
            """Return Numba's key of stored code, and a hash of the sources of its argument types."""
            return (*key(signature, codegen), _sources_of_arguments(signature))

        def load_index() -> Any:
            """Return the stored code's index without entries that were compiled from older sources."""
            try:
                # What is not current is left out, so that its file is used again.
                return {key: name for key, name in load().items() if key[-1] == _sources_of_arguments(key[0])}
            except (AttributeError, ImportError):  # stored for a named tuple that no longer exists
                return {}

        def save_overload(signature: Any, data: Any) -> None:
            """Store machine code; on a full disk it is kept for this process only."""
            # On a full disk the code serves this process alone.
            with suppress(OSError):
                save(signature, data)

        file._load_index = load_index
        stored._index_key = index_key
        stored.save_overload = save_overload
    return compiled


def _ready(compiled: Any) -> Any:
    """Make a compiled function load its stored machine code without setting up Numba's compiler first.

    By default Numba sets up its compiler before it looks for stored code, which takes as long as importing Numba: it
    registers the types of hundreds of functions and loads SciPy's linear algebra. A function without stored code is
    compiled as usual, and the compiler is set up then.
    """
    load: Any = getattr(getattr(compiled, "_cache", None), "_load_overload", None)

    def load_overload(signature: Any, context: Any) -> Any:
        """Load stored machine code for a signature, after initialising the functions that count references."""
        rtsys.initialize(context)  # what compiled code calls to count references
        return load(signature, context)

    if load is not None:
        compiled._cache.load_overload = load_overload
    return compiled


def inlined(function: Callable[..., Any]) -> Any:
    """Have Numba insert the body of the decorated function into each compiled caller.

    It is for short functions that take dozens of arrays, whose call would cost more than the body.
    """
    return numba.njit(inline="always", nogil=True, fastmath=False, error_model="numpy")(function)


def jit_borrowing(function: Callable[..., Any]) -> Any:
    """Compile the decorated function, which must allocate nothing, without counting references to its arrays.

    Its caller holds the arrays. In a loop over NamedTuples of arrays, counting references would take a third of the
    time.
    """
    return _kept(function, {**_FLAGS, "_nrt": False})


def inner(function: Callable[..., Any]) -> Any:
    """Compile the decorated function into each compiled function that calls it, with the caller's flags.

    It skips the wrapper with which Python calls compiled code, and so compiles a fifth faster than `jit`. Called from
    Python it runs uncompiled.
    """
    return numba.extending.register_jitable(no_cfunc_wrapper=True, forceinline=False)(function)


_INTO_CALLER: Any = {"no_cfunc_wrapper": True, "forceinline": True}


def compiled_for(function: Callable[..., Any], kind: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Use the decorated function in place of `function` if the first argument is of the NamedTuple class `kind`.

    This is compile-time overloading: a shared search function calls `function`, and is compiled once for each
    NamedTuple class with the body that is registered for it. LLVM inlines the body; inlining by Numba produced the same
    machine code in twice the time.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        """Register `body` as the version of `function` for the class `kind`."""

        @numba.extending.overload(function, strict=False, jit_options=_INTO_CALLER)
        def choose(first: Any, *_: Any) -> Callable[..., Any] | None:
            """Return `body` if the first argument has the class `kind`, else None: Numba then tries other versions."""
            return body if getattr(first, "instance_class", None) is kind else None

        return body

    return register


def kernel(function: Callable[..., Any]) -> Any:
    """Compile the decorated function as a CUDA kernel at its first launch; the machine code is stored as by `jit`."""
    from numba import cuda

    try:
        return _keyed(cuda.jit(cache=True, fastmath=False)(function))
    except RuntimeError:  # as above
        return cuda.jit(fastmath=False)(function)


def device_function(function: Callable[..., Any]) -> Any:
    """Compile the decorated function for a GPU, for the CUDA kernels that call it."""
    from numba import cuda

    return cuda.jit(device=True, fastmath=False)(function)


# For `score.py`: the function stays plain Python for the reference and can be called from compiled kernels.
scalar: Any = numba.extending.register_jitable
