"""Every error that a user can cause, each one line.

The form: *function: argument must be rule; got value. Next step.* The command line turns any :class:`MetricOracleError`
into that line and exit code 2; an :class:`ExactnessError`, which is a finding and no misuse, into exit code 1. Report
text is patient data and never part of a message: messages name files, lines, columns and ids. *function* is the called
one: see :func:`called`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Those of readers stay, whoever calls them: their argument is the file that the message names.
_OF_SHARED_CODE = re.compile(r"(?!read_|open_index|align_graphs)[A-Za-z][\w.]*(?=: )")


class MetricOracleError(Exception):
    """Base of all errors raised on purpose."""


@contextmanager
def called(function: str) -> Iterator[None]:
    """Let the errors of code that several public functions share begin with the one that was called."""
    try:
        yield
    except MetricOracleError as error:
        own = _OF_SHARED_CODE.match(str(error))
        if own:
            error.args = (function + str(error)[own.end() :],)
        raise


class InputError(MetricOracleError, ValueError):
    """An argument or an input file breaks a rule."""


class ArgumentError(InputError, TypeError):
    """A call does not fit the function: an unknown keyword, or an argument of a wrong type or in a wrong place."""


class InUseError(InputError):
    """A folder is held by another process that works in it."""


class DtypeError(MetricOracleError, TypeError):
    """An array has the wrong dtype or shape."""


class IndexFormatError(MetricOracleError):
    """An index is absent, incomplete, altered, foreign or of another format version."""


class DamagedIndexError(IndexFormatError):
    """A file of an index is not the one that was written."""


class BackendError(MetricOracleError):
    """A named backend, extra or device cannot be used here."""


class ExactnessError(MetricOracleError):
    """An answer is not exact: a proven bound was broken, or a value differs from what it must be."""


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, as the metadata of this package names them."""
    from importlib.metadata import requires

    listed = (requirement.partition(";") for requirement in requires("metric-oracle") or ())
    packages = [name.strip() for name, _, marker in listed if re.search(rf"extra == .{extra}['\"]", marker)]
    # A checkout may have an extra that its metadata, from an earlier installation, lacks.
    return " ".join(["pip install", *(f'"{package}"' for package in packages or [f".[{extra}]"])])


def not_installed(function: str, subject: str, module: str | None, extra: str) -> BackendError:
    """Return the error for an optional package that is missing.

    Parameters
    ----------
    function : str
        The public function that was called.
    subject : str
        What needs the package, as the subject of a sentence.
    module : str or None
        The missing module, as `ImportError.name` has it.
    extra : str
        The extra of this project that lists the package.
    """
    package, command = (module or extra).partition(".")[0], install_command(extra)
    return BackendError(
        f"{function}: {subject} needs the Python package {package}, which is not installed. Run: {command}"
    )
