"""Whether code may be compiled now, for callers that can do without machine code."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MAY_COMPILE = ContextVar("may_compile", default=True)


class NotStoredError(Exception):
    """Machine code that a call needs is not stored on this machine, and the caller asked not to compile it."""


@contextmanager
def only_stored() -> Iterator[None]:
    """Let compiled functions that are called in the block load stored machine code, but not compile.

    One that would have to be compiled raises NotStoredError before anything of it has run.
    """
    token = _MAY_COMPILE.set(False)
    try:
        yield
    finally:
        _MAY_COMPILE.reset(token)


def check_may_compile() -> None:
    """Raise NotStoredError within `only_stored`."""
    if not _MAY_COMPILE.get():
        raise NotStoredError
