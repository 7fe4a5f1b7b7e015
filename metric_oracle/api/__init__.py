"""The public functions: reports in memory or in files -> answers. The command line calls these.

Each is imported when it is first used, with what it needs and no more; `__init__.pyi` lists them.
"""

from typing import Any

from metric_oracle.lazy import load


def __getattr__(name: str) -> Any:
    return load(__name__, name)
