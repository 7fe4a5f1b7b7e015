"""Checks of arguments that functions of several packages share."""

from collections.abc import Container, Iterable
from difflib import get_close_matches
from typing import Any

from metric_oracle.errors import ArgumentError, InputError
from metric_oracle.typed import is_possible_path, is_text


def check_int(
    argument: str,
    value: Any,
    least: int,
    step: str = "Choose another number.",
    *,
    why: str = "",
    kind: Any = int,
    most: int | None = None,
) -> int:
    """Return a value that is an integer from `least` to `most`; raise InputError for any other, also for a bool.

    Parameters
    ----------
    argument : str
    value : any
    least : int
    step : str
        What to do next.
    why : str
        What follows the least value in the message.
    kind : type
        `int`, or `numbers.Integral`, to which NumPy's integers belong as well.
    most : int, optional
    """
    if isinstance(value, bool) or not isinstance(value, kind) or value < least:
        raise InputError(argument, f"must be an int of at least {least}{why}", repr(value), step)
    if most is not None and value > most:
        raise InputError(argument, f"must be an int of at most {most}", repr(value), step)
    checked: int = value
    return checked


# Arguments for reports: the place where a text is most often given by mistake, a single word too.
REPORTS = ("queries", "reports", "references", "predictions", "candidates", "data", "groups")


def check_path(argument: str, value: str, *, is_new: bool = False) -> None:
    """Raise InputError if a text was given where a file or folder belongs; `is_new` for one that will be written.

    A path that does not exist passes if it is a name: who reads it says so, and shows it.
    """
    may_be_report = argument in REPORTS
    if not is_possible_path(value) or (not is_new and is_text(value, may_be_report=may_be_report)):
        raise InputError(
            argument,
            "must be a path that a file can have" if is_new else "must be an existing file or folder",
            "another text, not shown here",
            f"Check the name{': it is never read as text' if may_be_report else ''}.",
        )


def check_options(options: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError if an option does not exist."""
    for name in options:
        if name not in known:
            similar = get_close_matches(name, known, n=1)
            step = f"Did you mean {similar[0]!r}?" if similar else f"Its arguments are {', '.join(known)}."
            raise ArgumentError(f"there is no argument {name!r}.", step)


def check_left_out(given: Iterable[str], allowed: Container[str], what: str) -> None:
    """Raise InputError if an option was given that does not apply to `what`, for example a kind of file."""
    foreign = [name for name in given if name not in allowed]
    if foreign:
        raise InputError(", ".join(foreign), f"must be left out for {what}", "a value", "Drop it.")
