"""The process of a command: its streams, signals and terminal.

By the standard library alone: the list of commands is shown before anything is imported.
"""

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer, main_thread
from typing import Any, NoReturn


def prepare() -> None:
    """Make stdout fit what is printed: UTF-8 for programs whatever the locale, and what a terminal can show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


@contextmanager
def interruptible() -> Iterator[None]:
    """Repeat an interruption that Python drops because it arrives in a callback of LLVM or in a finalizer."""
    before = sys.unraisablehook

    def repeat(dropped: Any) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            # At once, it would arrive in the same callback.
            again = Timer(0.05, signal.pthread_kill, [main_thread().ident, signal.SIGINT])
            again.daemon = True
            again.start()
        else:
            before(dropped)

    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = before


def own_process() -> None:
    """Give a process the streams that a command expects, and let a termination end it like an error.

    A stream that was closed, as by ``>&-``, is reopened, so that no file of the command takes its number: writing to
    such a stdout is an error, notes on such a stderr are dropped.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, flags), number)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for number in (signal.SIGTERM, signal.SIGHUP):
        with suppress(ValueError):  # not in the main thread
            if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP
                signal.signal(number, _end)


def _end(number: int, frame: Any) -> NoReturn:
    """End at a signal; whatever is being written beside its place is removed on the way. A second one ends at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


class _Closed(io.TextIOBase):
    """The stdout of a process that was started without one."""

    def write(self, text: str) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")


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
    is_plain = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not is_plain


def shows_lines() -> bool:
    """Tell whether stdout has characters that draw boxes."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
