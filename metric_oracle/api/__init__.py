"""The public functions, which the command line calls.

A function and its dependencies are imported when the function is first used; `__init__.pyi` lists all of them.
"""

from typing import Any

from metric_oracle.lazy import load


def __getattr__(name: str) -> Any:
    return load(__name__, name)
