"""The instruction set for which the inner loops are compiled: that of the compiler's target, not that of the host.

A *path* is a version of the inner loops for one family of processors. Numba compiles for the processor it runs on
unless NUMBA_CPU_NAME or NUMBA_CPU_FEATURES are set, for example because different machines share one cache of compiled
code. The environment variable ORACLE_SIMD selects another path that the target can run; the compiler then uses the
instructions of that path only. This module must be imported before anything is compiled.
"""

import os
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
from numba import config as _config
from numba.core.codegen import get_host_cpu_features

from metric_oracle.base.operating_system import cpuinfo, processor_family

config: Any = _config
VARIABLE = "ORACLE_SIMD"


class TargetError(ValueError):
    """ORACLE_SIMD names a path that the compiler's target cannot run; the message has one line."""


class Path(NamedTuple):
    """A version of the inner loops for a family of processors."""

    name: str  # value of ORACLE_SIMD that selects the path
    cpu: str  # LLVM's name of the oldest processor that can run it
    needs: tuple[str, ...]  # LLVM's names of the features that the target must have
    registers: int  # number of vector registers
    register_bytes: int  # size of a vector register
    # greatest absolute code of a query's token; up to 63, sums of two products with a byte stay below 2^15
    query_range: int = 63
    is_signed: bool = False  # bytes are multiplied as signed on both sides; otherwise the corpus's have 128 added


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


def parse_features(cpu: str, features: str, family: str) -> set[str]:
    """Return the names of a target's features: those in `features`, as "+a,-b", and those its processor always has.

    `cpu` is LLVM's name of the processor, and `family` that of `processor_family`.
    """
    has = {word[1:] for word in features.split(",") if word.startswith("+")}
    if family == "arm64":
        has.add("neon")
        if cpu.startswith("apple-"):  # LLVM reads no features of these
            has.add("dotprod")
        has -= {word[1:] for word in features.split(",") if word.startswith("-")}
    return has


def usable(cpu: str, features: str, family: str) -> tuple[Path, ...]:
    """Return the paths that a target can run, fastest first; the parameters are those of `parse_features`."""
    has = parse_features(cpu, features, family)
    paths = {"arm64": _ARM, "x86_64": _X86}.get(family, (PORTABLE,))
    return tuple(path for path in paths if has.issuperset(path.needs))


def complete(features: str, listed: str) -> str:
    """Return LLVM's list of a processor's features, with products of bytes if Linux lists these for all cores.

    `listed` is what `cpuinfo` returns. LLVM reads a part of Linux's list only, which has `asimddp` on most Arm
    servers.
    """
    cores = [line.partition(":")[2].split() for line in listed.splitlines() if line.startswith("Features")]
    return f"{features},+dotprod" if cores and all("asimddp" in core for core in cores) else features


@cache
def _features() -> str:
    """Return the features of Numba's default target, as LLVM's list."""
    if config.CPU_FEATURES is not None:
        return config.CPU_FEATURES
    features = get_host_cpu_features()
    if processor_family() == "arm64" and config.CPU_NAME is None:
        return complete(features, cpuinfo())
    return features


@cache
def _of_compiler() -> tuple[Path, ...]:
    """Return the paths that Numba's default target can run, fastest first."""
    cpu = llvm.get_host_cpu_name() if config.CPU_NAME is None else config.CPU_NAME
    return usable(cpu, _features(), processor_family())


def usable_names() -> tuple[str, ...]:
    """Return the names of the paths to which ORACLE_SIMD may be set on this machine, fastest first."""
    return tuple(path.name for path in _of_compiler())


def _choose(wanted: str | None) -> Path:
    """Return the path named `wanted`, or the fastest one if it is None or empty; raise TargetError if it cannot run."""
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
    """Return the path, and make Numba compile for it if ORACLE_SIMD names one or LLVM does not know that it runs here.

    If the target cannot run it, return the error, which is raised when the path is used: an import must not fail.
    """
    wanted = os.environ.get(VARIABLE)
    try:
        chosen = _choose(wanted)
    except TargetError as error:
        return error
    if wanted:
        config.CPU_NAME = chosen.cpu
        config.CPU_FEATURES = ",".join(f"+{name}" for name in chosen.needs)
    elif "dotprod" in chosen.needs and config.CPU_FEATURES is None:
        config.CPU_FEATURES = _features()
    return chosen


_of_compiler()  # before the target is changed
_CHOSEN = _force()


def path() -> Path:
    """Return the path for which this process compiles the inner loops; TargetError if ORACLE_SIMD's cannot run."""
    if isinstance(_CHOSEN, TargetError):
        raise _CHOSEN
    return _CHOSEN


def name_for_cache() -> str:
    """Return the name of the path, as part of the names of files with stored machine code."""
    return "none" if isinstance(_CHOSEN, TargetError) else _CHOSEN.name
