"""How a long call reports its progress: one kind of function, for every public function and for the terminal."""

import sys
import warnings
from collections.abc import Callable
from typing import Annotated

from annotated_doc import Doc

from metric_oracle.base.declarations import IN_PYTHON

# Called with the name of the step ("" if there is one step only), how much of it is done, and its size; both numbers
# are None where they are not known.
Progress = Annotated[
    Callable[[str, int | None, int | None], object],
    Doc("Called as ``progress(step, done, total)``; the numbers are None where they are not known."),
    IN_PYTHON,
]
# Called below with the number of items that were finished since the last call.
Advance = Callable[[int], object]


def silent(step: str, done: int | None, total: int | None) -> None:
    """Report nothing."""


def counter(progress: Progress | None, step: str, total: int) -> Advance:
    """Return a function that adds up finished items and reports their number as `step`, about a hundred times in all.

    That nothing is finished is reported at once. It does nothing if `progress` is None.
    """
    if progress is None:
        return lambda n: None
    done = reported = 0
    progress(step, 0, total)

    def add(n: int) -> None:
        """Add n finished items."""
        nonlocal done, reported
        done += n
        if done - reported >= total / 100 or done == total:
            reported = done
            progress(step, done, total)

    return add


def say(line: str, tell: Callable[[str], None] | None) -> None:
    """Pass a note to `tell`; without it, issue a UserWarning that points at the call of the public function."""
    if tell is not None:
        tell(line)
        return
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("metric_oracle", "contextlib")):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(line, stacklevel=depth)
