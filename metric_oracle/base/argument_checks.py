"""Checks of arguments that functions of several packages share."""

import math
import operator as op
import os
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.base.errors import ArgumentError, InputError, absent_part, is_like_report, shown

_Value = TypeVar("_Value")


def check_in_range(
    argument: str,
    value: Any,
    *,
    kind: type = int,
    unit: str = "",
    note: str = "",
    step: str = "Choose another number.",
    **bounds: float | None,
) -> Any:
    """Return a number of the kind, `int` or `float`, that is finite and within its bounds; otherwise raise InputError.

    A bool is no number. `bounds` are those of `range_of`. `note` follows them in the message.
    """
    is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if (
        is_number
        and math.isfinite(value)
        and all(bound is None or _HOLDS[name](value, bound) for name, bound in bounds.items())
    ):
        return value
    noun = f"{'an int' if kind is int else 'a number'}"
    raise InputError(argument, f"must be {noun}{range_of(unit=unit, **bounds)}{note}", shown(value), step)


_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "ge": op.ge,
    "gt": op.gt,
    "le": op.le,
    "lt": op.lt,
    "multiple_of": lambda value, step: value % step == 0,
}


def range_of(
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    multiple_of: float | None = None,
    unit: str = "",
) -> str:
    """Return the words for a range, such as " of at least 1"; the bounds have the names of annotated-types."""
    if ge is not None:
        text = f" of at least {ge}" if le is None else f" from {ge} to {le}"
    elif gt is not None:
        text = f" above {gt}" if lt is None else f" between {gt} and {lt}"
    else:
        text = f" of at most {le}" if le is not None else f" below {lt}" if lt is not None else ""
    text += f" and a multiple of {multiple_of}" if multiple_of is not None else ""
    return f" of {unit}{text}" if unit else text


def check_one_of(argument: str, value: Any, known: Iterable[str], step: str = "Choose one.", *, note: str = "") -> None:
    """Raise InputError unless a value is one of the known ones; `note` follows them in the message."""
    names = [*known]
    if value not in names:
        listed = ", ".join(names) or "none"
        raise InputError(argument, f"must be one of {listed}{note}", shown(value), step)


def check_given(argument: str, value: _Value | None, where: str, step: str, *, got: str = "None") -> _Value:
    """Return the value of an argument; raise InputError if it is None. `where` says what needs it: "for metric 'x'"."""
    if value is None:
        raise InputError(argument, f"must be given {where}".rstrip(), got, step)
    return value


def check_left_out(
    given: Mapping[str, Any], where: str, step: str = "", *, allowed: Container[str] = (), got: str = "a value"
) -> None:
    """Raise InputError if an argument was given that does not apply: one whose value is not None.

    `where` says to what it does not apply: "for metric 'bleu'". Arguments in `allowed` apply.
    """
    foreign = [name for name, value in given.items() if value is not None and name not in allowed]
    if foreign:
        step = step or f"Leave out {', '.join(f'`{name}`' for name in foreign)}."
        raise InputError(", ".join(foreign), f"must be left out {where}", got, step)


def check_new_folder(argument: str, folder: Path, *, may_be_empty: bool = False) -> None:
    """Raise InputError if there is something at the path of a folder that will be made; an empty folder may pass."""
    if may_be_empty:
        if folder.is_dir() and folder.samefile(Path.cwd()):
            raise InputError(argument, "must be a new or empty folder", "the current folder", "Name another folder.")
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(argument, "must be a new or empty folder", folder, "Name another folder.")
    elif folder.exists() or folder.is_symlink():
        raise InputError(argument, "must be a new folder", f"{folder}, which exists", "Remove it or name another.")


_NAME_BYTES, _PATH_BYTES = 255, 4095  # of Linux and macOS
# Arguments for reports: the place where a text is most often given by mistake.
REPORTS = ("queries", "reports", "references", "predictions", "candidates", "data", "groups")


def check_path(argument: str, value: str, *, is_new: bool = False) -> None:
    """Raise InputError if a text was given where a file or folder belongs; `is_new` for one that will be written.

    A path that does not exist passes if it is a name: who reads it says so, and shows it.
    """
    if not _is_possible(value) or is_like_report(absent_part(value)):
        raise InputError(
            argument,
            "must be a path that a file can have" if is_new else "must be an existing file or folder",
            shown(Path(value)),
            f"Check the name{': it is never read as text' if argument in REPORTS else ''}.",
        )


def _is_possible(path: str) -> bool:
    """Return whether the system could have a file at this path."""
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return b"\0" not in raw and len(raw) <= _PATH_BYTES and max(map(len, raw.split(b"/"))) <= _NAME_BYTES


def check_options(options: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError if an option does not exist."""
    for name in options:
        if name not in known:
            similar = get_close_matches(name, known, n=1)
            step = f"Did you mean {similar[0]!r}?" if similar else f"Its arguments are {', '.join(known)}."
            raise ArgumentError(f"there is no argument {shown(name)}.", step)


def given_of(arguments: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return those arguments, by name, that are not None: of `names`, or of all if that is None."""
    return {
        name: arguments[name] for name in (arguments if names is None else names) if arguments.get(name) is not None
    }
