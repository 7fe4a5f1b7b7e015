"""The instruction set of the inner loops: that of the compiler's target, not that of the host.

Numba compiles for the processor it runs on unless NUMBA_CPU_NAME or NUMBA_CPU_FEATURES are set, as where different
machines share one cache of compiled code. ORACLE_SIMD selects a lesser path; the compiler's target is then that path
and nothing more. Imported before anything is compiled.
"""

import os
import platform
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from numba import config as _config
from numba.core.codegen import get_host_cpu_features

config: Any = _config
VARIABLE = "ORACLE_SIMD"


class TargetError(ValueError):
    """ORACLE_SIMD names a path that the compiler's target lacks; one line."""


class Path(NamedTuple):
    """An implementation of the inner loops for a family of processors.

    Attributes
    ----------
    name : str
    cpu : str
        LLVM's name of the least processor.
    needs : tuple of str
        LLVM's names of what the target must have.
    registers : int
        Vector registers.
    register_bytes : int
    query_range : int
        Greatest code of a query's token. Sums of two products with a byte stay below 2^15 up to 63.
    is_signed : bool
        Whether a product takes both bytes as signed; otherwise those of the corpus have 128 added.
    """

    name: str
    cpu: str
    needs: tuple[str, ...]
    registers: int
    register_bytes: int
    query_range: int = 63
    is_signed: bool = False


_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
PORTABLE = Path("portable", "generic", (), 16, 16)
# Of each processor family, best first.
_X86 = (
    Path("avx512-vnni", "x86-64-v4", (*_AVX512, "avx512vnni"), 32, 64, 127),
    Path("avx512", "x86-64-v4", _AVX512, 32, 64),
    Path("avx-vnni", "x86-64-v3", (*_AVX2, "avxvnni"), 16, 32, 127),
    Path("avx2", "x86-64-v3", _AVX2, 16, 32),
    PORTABLE,
)
_ARM = (
    Path("neon-dotprod", "generic", ("neon", "dotprod"), 32, 16, 127, True),
    Path("neon", "generic", ("neon",), 32, 16),
    PORTABLE,
)
PATHS = tuple(dict.fromkeys(path.name for path in (*_X86[::-1], *_ARM[::-1])))


def parse_features(cpu: str, features: str, machine: str) -> set[str]:
    """Return the features of a target: those listed, and those that all processors of its name have."""
    has = {word[1:] for word in features.split(",") if word.startswith("+")}
    if machine in ("aarch64", "arm64"):
        has.add("neon")
        if cpu.startswith("apple-"):  # LLVM reads no features of these
            has.add("dotprod")
        has -= {word[1:] for word in features.split(",") if word.startswith("-")}
    return has


def usable(cpu: str, features: str, machine: str) -> tuple[Path, ...]:
    """Return the paths of a target, best first."""
    has = parse_features(cpu, features, machine)
    family = _ARM if machine in ("aarch64", "arm64") else _X86 if machine in ("x86_64", "AMD64") else (PORTABLE,)
    return tuple(path for path in family if has.issuperset(path.needs))


@cache
def _of_compiler() -> tuple[Path, ...]:
    """Return the paths of the target that Numba takes by itself, best first."""
    cpu = llvm.get_host_cpu_name() if config.CPU_NAME is None else config.CPU_NAME
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    return usable(cpu, features, platform.machine())


def usable_names() -> tuple[str, ...]:
    """Return the names of the paths that ORACLE_SIMD may take here, best first."""
    return tuple(path.name for path in _of_compiler())


def _choose(wanted: str | None) -> Path:
    here = _of_compiler()
    if not wanted:
        return here[0]
    for path in here:
        if path.name == wanted:
            return path
    known = f"one that this processor has, {', '.join(usable_names())}" if wanted in PATHS else f"{', '.join(PATHS)}"
    msg = f"{VARIABLE} must be {known}; got {wanted!r}. Choose one, or unset the variable."
    raise TargetError(msg)


def _force() -> Path | TargetError:
    """Choose the path. If ORACLE_SIMD names one, make it the target of Numba."""
    wanted = os.environ.get(VARIABLE)
    try:
        chosen = _choose(wanted)
    except TargetError as error:  # raised when the path is used: an import must not fail
        return error
    if wanted:
        config.CPU_NAME = chosen.cpu
        config.CPU_FEATURES = ",".join(f"+{name}" for name in chosen.needs)
    return chosen


_of_compiler()  # before the target is changed
_CHOSEN = _force()


def path() -> Path:
    """Return the path that the inner loops take in this process.

    Raises
    ------
    TargetError
        If ORACLE_SIMD names a path that is not there.
    """
    if isinstance(_CHOSEN, TargetError):
        raise _CHOSEN
    return _CHOSEN


def name_for_cache() -> str:
    """Return the name of the path in the names of stored machine code."""
    return "none" if isinstance(_CHOSEN, TargetError) else _CHOSEN.name
