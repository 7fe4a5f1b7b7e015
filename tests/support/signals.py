"""A command that sends itself a signal at a file: at the same moment on every machine."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from support import HANG

_SIGNALLED = """
import os, runpy, sys
number, at, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]

def hook(event, arguments):
    if event == at and any(str(one).endswith(name) for one in arguments):
        os.kill(os.getpid(), number)

sys.addaudithook(hook)
sys.argv = ["oracle", *sys.argv[4:]]
runpy.run_module("metric_oracle", run_name="__main__")
"""


def signalled(number: int, at: str, name: str, *arguments: Any, cwd: Any = None, under: Sequence[str] = ()) -> Any:
    """Run a command that gets a signal before each event `at`, "open" or "os.rename", of files whose names so end.

    `under` is a command that begins this one, such as nohup.
    """
    child = [*under, sys.executable, "-c", _SIGNALLED, str(int(number)), at, name, *map(str, arguments)]
    return subprocess.run(child, check=False, capture_output=True, text=True, timeout=HANG, cwd=cwd)
