"""The only module that names compiler flags.

``nogil`` lets a thread pool share the work; ``cache`` stores the machine code next to the package, so that a second
process starts at once; fast-math stays off, because backends must agree to the last bit.

Numba reuses stored code while the file of the compiled function is unchanged. Kernels inline functions of other files
(`score.py`, the tie rule), so code is reused here only while all modules are unchanged that the module of the function
imports, directly or through others, and those of the NamedTuples among its arguments, for which drivers are compiled.
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
    """Compile a function at its first call; without a folder to keep the code in, once in each process."""
    return _kept(function, _FLAGS)


def _kept(function: Callable[..., Any], flags: dict[str, Any]) -> Any:
    try:
        return _ready(_keyed(numba.njit(cache=True, **flags)(function)))
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return numba.njit(**flags)(function)


_HERE = __package__  # all compiled functions are in it: no other module of the project matters to machine code
_IMPORT = re.compile(rf"from {re.escape(_HERE)}([\w.]*) import (\([^)]*\)|.*)")
_WORD = re.compile(r"\w+")


@cache
def _modules() -> dict[str, str]:
    """Return the paths of the modules of the kernels by name; a package is called as its folder."""
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
    """Return the hash of the source of a module of the kernels, and the modules of the kernels that it imports.

    Source is searched rather than parsed, because every start of a program does it.
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
    """Return a hash of the sources that machine code of a module depends on: its own and all that it imports.

    Of a module outside the kernels, such as a test's, it is not known what it imports: all kernels count.
    """
    missing = {module} if module in _modules() else set(_modules())
    found: dict[str, str] = {}
    while missing:
        name = missing.pop()
        found[name], imported = _read(name)
        missing |= imported - found.keys()
    return _digest([np.__version__, *(part for item in sorted(found.items()) for part in item)])


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tuple_modules(kinds: Any) -> Iterator[str]:
    """Yield the modules of the NamedTuples among the types of arguments."""
    for kind in kinds:
        if isinstance(kind, BaseTuple):
            if hasattr(kind, "instance_class"):
                yield kind.instance_class.__module__
            yield from _tuple_modules(kind)


def _sources_of_arguments(signature: Any) -> str:
    """Return a hash of the sources of the NamedTuples in a signature, and of all that they import."""
    modules = set(_tuple_modules(getattr(signature, "args", signature)))
    return _digest(map(sources, sorted(modules)))


def _keyed(compiled: Any) -> Any:
    """Have stored code checked against all sources that it depends on; nothing where none is stored."""
    stored: Any = getattr(compiled, "_cache", None)
    file = getattr(stored, "_cache_file", None)
    if file is not None:
        file._source_stamp = (file._source_stamp, sources(compiled.py_func.__module__))
        # A file for each instruction set: they would drive one another out of one.
        file._index_path += f".{_target.name_for_cache()}"
        file._data_name_pattern = f"{_target.name_for_cache()}.{file._data_name_pattern}"
        load, key, save = file._load_index, stored._index_key, stored.save_overload

        def index_key(signature: Any, codegen: Any) -> tuple[Any, ...]:
            return (*key(signature, codegen), _sources_of_arguments(signature))

        def load_index() -> Any:
            try:
                # What is not current is left out, so that its file is used again.
                return {key: name for key, name in load().items() if key[-1] == _sources_of_arguments(key[0])}
            except (AttributeError, ImportError):  # stored for a named tuple that no longer exists
                return {}

        def save_overload(signature: Any, data: Any) -> None:
            # On a full disk the code serves this process alone.
            with suppress(OSError):
                save(signature, data)

        file._load_index = load_index
        stored._index_key = index_key
        stored.save_overload = save_overload
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
