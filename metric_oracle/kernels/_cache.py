"""The store of machine code: what makes stored code current, and one compilation for all processes of a machine.

All that depends on the inside of Numba's cache is in this module. With a release of Numba whose cache is not as this
module knows it nothing is stored, and each process compiles what it calls.

Numba by itself loads stored machine code if the file of the compiled function is unchanged. Kernels inline functions of
other files (`score.py`, the tie rule), so this module also compares the source of every module of the kernels that the
function's module imports, directly or indirectly, and of those that define the NamedTuples among its arguments, because
search functions are compiled once per class of NamedTuple.

Processes that need the same function at the same time, such as the workers of the tests, would each compile it. Here
the first one compiles and stores it, and the others wait for it.
"""

import gc
import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any

import numba
import numpy as np

from metric_oracle.base.locks import alone
from metric_oracle.kernels import _target
from metric_oracle.kernels._compiling import check_may_compile

# The releases of Numba whose cache was read and tested (tests/kernels/test_cache.py), as beginnings of their versions.
KNOWN = ("0.68.",)
# What this module uses of the private names of a compiled function: attributes, and methods with their parameters.
_USED = {
    "compile": "(self, sig)",
    "_cache.load_overload": "(self, sig, target_context)",
    "_cache._load_overload": "(self, sig, target_context)",
    "_cache.save_overload": "(self, sig, data)",
    "_cache._index_key": "(self, sig, codegen)",
    "_cache._cache_file._load_index": "(self)",
    "_cache._cache_file._source_stamp": "",
    "_cache._cache_file._index_path": "",
    "_cache._cache_file._data_name_pattern": "",
}


def stored(compiled: Any) -> Any:
    """Make a compiled function load its stored machine code if it is current, store what it compiles, and return it.

    Raise RuntimeError, and issue a warning, if the cache of the installed Numba is not as this module knows it: by
    Numba's rules alone, stored code would outlive the sources that it was compiled from.
    """
    reason = unknown(compiled)
    if reason:
        message = f'{reason}, so that each process compiles its kernels anew. Run pip install "numba=={KNOWN[-1]}*".'
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        raise RuntimeError(message)
    _key(compiled)
    _load_first(compiled)
    _compile_once(compiled)
    return compiled


def unknown(compiled: Any) -> str:
    """Return why this module does not know the cache of a function that Numba compiled; an empty string if it does."""
    if not numba.__version__.startswith(KNOWN):
        return f"Numba {numba.__version__} was not tested with this package"
    for name, parameters in _USED.items():
        try:
            method = attrgetter(name)(compiled)
        except AttributeError:
            return f"Numba {numba.__version__} has no {name}, which this package uses"
        if parameters and _parameters(getattr(method, "__func__", method)) != parameters:
            return f"Numba {numba.__version__} has other parameters of {name} than {parameters}"
    return ""


@cache
def _parameters(function: Any) -> str:
    """Return the parameters of a function as they are written."""
    return str(signature(function))


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
    """Return a hash of all sources that a module's machine code depends on: its own, those it imports, NumPy's version.

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
    """Return the SHA-256 of `parts`, strings, joined by line ends, as hexadecimal digits."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tuple_modules(kinds: Any) -> Iterator[str]:
    """Yield the module of each NamedTuple class among Numba's types of arguments, also of NamedTuples within others."""
    for kind in kinds:
        if isinstance(kind, numba.types.BaseTuple):
            if hasattr(kind, "instance_class"):
                yield kind.instance_class.__module__
            yield from _tuple_modules(kind)


def _sources_of_arguments(signature: Any) -> str:
    """Return a hash of the sources of the modules that define the NamedTuples in a signature, and of their imports."""
    modules = set(_tuple_modules(getattr(signature, "args", signature)))
    return _digest(map(sources, sorted(modules)))


def _key(compiled: Any) -> None:
    """Make a compiled function reuse its stored machine code only if all sources that it depends on are unchanged.

    Each instruction set has files of its own.
    """
    stored = compiled._cache
    file = stored._cache_file
    file._source_stamp = (file._source_stamp, sources(compiled.py_func.__module__))
    # A file for each instruction set: they would drive one another out of one.
    file._index_path += f".{_target.name_for_cache()}"
    file._data_name_pattern = f"{_target.name_for_cache()}.{file._data_name_pattern}"
    load, key, save = file._load_index, stored._index_key, stored.save_overload

    def index_key(signature: Any, codegen: Any) -> tuple[Any, ...]:
        """Return Numba's key of stored code with a hash of the sources of its argument types."""
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
        # Numba reads the index, chooses a name for the code that is not in it, and writes the index: two processes
        # at a time would choose one name for two codes.
        with suppress(OSError), alone(Path(f"{file._index_path}.lock"), is_needed=True):
            save(signature, data)

    file._load_index = load_index
    stored._index_key = index_key
    stored.save_overload = save_overload


def _load_first(compiled: Any) -> None:
    """Make a compiled function load its stored machine code without setting up Numba's compiler first.

    By default Numba sets up its compiler before it looks for stored code, which takes as long as importing Numba: it
    registers the types of hundreds of functions and loads SciPy's linear algebra. A function without stored code is
    compiled as usual, and the compiler is set up then.
    """
    from numba.core.runtime import rtsys

    load = compiled._cache._load_overload

    def load_overload(signature: Any, context: Any) -> Any:
        """Return stored machine code for a signature, or None, after initialising what counts references."""
        rtsys.initialize(context)  # what compiled code calls to count references
        return load(signature, context)

    compiled._cache.load_overload = load_overload


def _compile_once(compiled: Any) -> None:
    """Let one process of the machine compile a function for a signature, while others wait for the code that it stores.

    A function calls no function that calls it, so that no two processes wait for one another.
    """
    from numba.core import event

    stored = compiled._cache
    compile_, load = compiled.compile, stored.load_overload
    held: dict[Any, ExitStack] = {}  # the locks of signatures that this process compiles

    def load_overload(signature: Any, context: Any) -> Any:
        """Return stored machine code or None; where there is none, lock the signature and look again."""
        found = load(signature, context)
        if found is None:
            check_may_compile()
            lock = Path(f"{stored._cache_file._index_path}.{_digest([str(signature)])[:16]}.lock")
            # A progress bar shows that it waits as that it compiles.
            waiting = event.trigger_event("numba:compile", {"dispatcher": compiled})
            with suppress(OSError), ExitStack() as stack, waiting:
                stack.enter_context(alone(lock, is_needed=True))
                found = load(signature, context)
                held[signature] = stack.pop_all()
        return found

    def compile_once(signature: Any) -> Any:
        """Compile for a signature, unless its code is stored."""
        collects = gc.isenabled()
        gc.disable()  # or a tenth of the time goes into looking through the compiler's objects, which stay
        try:
            return compile_(signature)
        finally:
            if collects:
                gc.enable()
            held.pop(signature, ExitStack()).close()

    stored.load_overload = load_overload
    compiled.compile = compile_once
