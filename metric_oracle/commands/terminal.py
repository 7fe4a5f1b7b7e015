"""The process of a command: standard streams, signals, and the properties of the terminal.

Only the standard library is imported here, because the list of commands is shown before any other import.
"""

import errno
import io
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer, main_thread
from typing import Any, NoReturn


def prepare() -> None:
    """Set the encoding of standard output: UTF-8 in a pipe or file; a terminal shows what it can."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


@contextmanager
def interruptible() -> Iterator[None]:
    """End as SIGINT, SIGTERM or SIGHUP demands, whatever becomes of the exception that its handler raised.

    Python drops exceptions in callbacks of LLVM and of weak references, and in finalizers; the signal is repeated then.
    It puts others in their place while it makes a class, as compiled code does; these end as the signal does.
    """
    before = sys.unraisablehook

    def repeat(dropped: Any) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            number: int = signal.SIGINT
        elif dropped.exc_type is _Ended:
            number = dropped.exc_value.number
            signal.signal(number, _end)
        else:
            before(dropped)
            return
        # A signal sent at once would be handled in the same callback, and dropped again.
        again = Timer(0.05, signal.pthread_kill, [main_thread().ident, number])
        again.daemon = True
        again.start()

    sys.unraisablehook = repeat
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        if not _received:
            raise
        raise KeyboardInterrupt if _received[-1] == signal.SIGINT else _Ended(_received[-1]) from None
    finally:
        sys.unraisablehook = before


def own_process() -> None:
    """Prepare the standard streams and the signal handlers of a process that runs commands.

    A stream that was closed, as by ``>&-``, is reopened, so that no file of the command gets its number. Writing to
    such a standard output is an error; notes on such a standard error are dropped. A termination signal ends the
    process as an error does, so that temporary files are removed. Values of the environment are dropped on which Rich,
    Numba and lines of progress end in a traceback: Rich takes "²" for a digit.
    """
    rules = {
        "COLUMNS": "[0-9]{1,5}",
        "LINES": "[0-9]{1,5}",
        "NUMBA_OPT": "[0-3]|max",
        "ORACLE_PROGRESS": "[1-9][0-9]{0,8}",
    }
    for name, rule in rules.items():
        if name in os.environ and not re.fullmatch(rule, os.environ[name]):
            del os.environ[name]
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, flags), number)
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with suppress(ValueError):  # not in the main thread
            # nohup ignores SIGHUP, and a shell SIGINT in the background
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, _interrupt if number == signal.SIGINT else _end)


_received: list[int] = []  # the signals that this process got


class _Ended(SystemExit):
    """Raised by the handler of a signal, to end the command."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


def _end(number: int, frame: Any) -> NoReturn:
    """End at a signal, so that temporary files are removed; a second signal ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    _received.append(number)
    raise _Ended(number)


def _interrupt(number: int, frame: Any) -> NoReturn:
    """Interrupt as Python does."""
    _received.append(number)
    raise KeyboardInterrupt


class _Closed(io.TextIOBase):
    """Standard output of a process that was started without one: writing to it is an error."""

    def write(self, text: str) -> NoReturn:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "standard output")


def leave() -> NoReturn:
    """End after a broken pipe; pending output is discarded, so that flushing it does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    raise SystemExit(1) from None


def width() -> int:
    """Return the number of columns: that of the variable COLUMNS, or of the terminal, or 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):  # no terminal, or no file at all
        return 80


def shows_styles() -> bool:
    """Return whether standard output is a terminal with colours, which NO_COLOR and TERM=dumb switch off."""
    is_plain = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return sys.stdout.isatty() and not is_plain


def shows_lines() -> bool:
    """Return whether standard output can show the characters that draw boxes."""
    return (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
