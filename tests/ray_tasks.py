"""Tasks for `test_cluster.py`, which workers import, and little else: each attempt leaves a line in a folder."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.cluster import WorkerProgress


def _begin(folder: str, name: str) -> int:
    """Note an attempt with its process; return how many there were before."""
    path = Path(folder) / name
    n = len(path.read_text().split()) if path.exists() else 0
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return n


def double(shared: dict, progress: WorkerProgress, folder: str, name: str, how: str, x: int) -> int:
    """Return shared + 2 x, in one of several ways."""
    n = _begin(folder, name)
    if how == "dies once" and n == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "always dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stops once" and n == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "refuses":
        raise InputError(name, "must be whole", "a damaged one", "Build it again.")
    if how == "breaks":
        raise ValueError(shared["secret"])
    if how == "waits once" and n == 0:
        while True:
            time.sleep(0.1)
    if how == "slow":
        time.sleep(8)
    progress.add(1)
    return shared["base"] + 2 * x


def arrays(shared: np.ndarray, progress: WorkerProgress, given: np.ndarray) -> tuple[bool, bool, np.ndarray]:
    """Return whether the arrays that came can be written to, and one that goes back."""
    return shared.flags.writeable, given.flags.writeable, shared + given
