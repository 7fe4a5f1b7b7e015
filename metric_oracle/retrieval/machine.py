"""Facts that a measured time depends on in addition to the program: the machine, and the versions of packages."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from metric_oracle.base.operating_system import n_threads, processor_name

_PACKAGES = ("metric-oracle", "numpy", "numba", "pyarrow", "polars", "faiss-cpu", "faiss-gpu", "torch", "transformers")


def machine() -> dict[str, Any]:
    """Return the facts of this machine: processor, instruction set, usable cores, memory in GB, operating system."""
    from metric_oracle.kernels import _target  # imports Numba

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": processor_name(),
        "simd": _target.path().name,
        "cores": n_threads(),
        "ram_gb": round(memory / 1e9, 1),
        "os": platform.platform(),
    }


def versions(packages: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the versions of Python, of what matters for a timing and of `packages`, by name; None if not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in (*_PACKAGES, *packages)}}


def _version(name: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
