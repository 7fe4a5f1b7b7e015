"""What stdout can show, by the standard library alone: the list of commands is shown before anything is imported."""

import io
import os
import sys
from typing import NoReturn


def prepare() -> None:
    """Make stdout fit what is printed: UTF-8 for programs whatever the locale, and what a terminal can show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def leave() -> NoReturn:
    """End because who reads has enough: what is left unsaid must not fail either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(1) from None


def width() -> int:
    """Return the columns of the terminal, 80 where there is none; COLUMNS says otherwise."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):  # no terminal, or no file at all
        return 80


def shows_styles() -> bool:
    """Tell whether stdout is a terminal that understands escape sequences, and wants them."""
    is_plain = sys.platform == "win32" or os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not is_plain


def shows_lines() -> bool:
    """Tell whether stdout has characters that draw boxes."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
