"""The errors that a user can cause. Each has fields, and `str(error)` is one line made of them.

Raise an error in one of two forms::

    raise InputError("k", "must be an int of at least 1", k, "Choose another number.")
    raise InputError(f"{path} is not a whole gzip file.", "Fetch it again.")

The first form, of an argument, a rule, a value and a next step, reads "k must be an int of at least 1; got 0. Choose
another number." Use the second form, a plain sentence and a next step, where they would not make a sentence. In both:

- *No function name.* `validation.public` puts the name of the public function in front, once: "retrieve: k must be
  ...". The command line does so with the name of the command. Code below them takes no parameter for it.
- *What to type stands in backticks, in Python*: an argument of the function, `k` or `k=5`; what is said of a set of
  reports, `mo.reports(..., mo.Read(text_column=NAME))`; a function, `mo.retrieve`. Words in capitals stand for what
  the user knows. Python shows the text as it is; `commands.wording` writes it for the command line: -k 5,
  --text-column NAME, oracle retrieve. Docstrings and the texts of options are written in the same way.
- *No report text.* Reports are patient data. A message shows names of files, columns, metrics and models, ids, lines,
  counts and types. `shown` writes what a person typed or named: ``f"there is no column {shown(name)}."``

The command line prints the line and exits with code 2; with code 1 for an `ExactnessError`, which is a finding
and not a misuse.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Number
from pathlib import PurePath
from typing import Any, overload

LONGEST_NAME = 80  # characters of a name that a message shows
LONGEST = 200  # characters; a longer text may be a report


class MetricOracleError(Exception):
    """Base of all errors raised on purpose. It is made from a sentence and a step, or from four fields.

    Parameters
    ----------
    *parts : str
        What is wrong, as a full sentence, and what to do next, if there is a step; or argument, rule, value and step.

    Attributes
    ----------
    sentence : str
        What is wrong, as a full sentence; empty where `argument`, `rule` and `value` say it.
    step : str
        What to do next, as a full sentence; may be empty.
    argument : str
        The argument that breaks a rule, or empty.
    rule : str
        What the argument must be, beginning with "must".
    value : str
        What was given. Never report text.
    function : str
        The public function or command that was called; empty until it sets it.

    Examples
    --------
    >>> try:
    ...     mo.read_reports("absent.csv")
    ... except mo.MetricOracleError as error:
    ...     print(error)
    read_reports: there is no file or folder absent.csv. Check the name: it is never read as text.
    """

    function: str = ""

    @overload
    def __init__(self, sentence: str, step: str = "", /) -> None: ...

    @overload
    def __init__(self, argument: str, rule: str, value: object, step: str, /) -> None: ...

    def __init__(self, *parts: Any) -> None:
        parts = tuple(map(str, parts))
        super().__init__(*parts)
        self.sentence = self.argument = self.rule = self.value = ""
        if len(parts) > 2:
            self.argument, self.rule, self.value, self.step = parts
        else:
            self.sentence, self.step = (*parts, "")[:2]

    @property
    def line(self) -> str:
        """The message without the name of the function."""
        sentence = self.sentence or f"{self.argument} {self.rule}; got {self.value}."
        return f"{sentence} {self.step}".rstrip()

    def __str__(self) -> str:
        return f"{self.function}: {self.line}" if self.function else self.line


def _has_folder() -> bool:
    """Return whether the working folder exists."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def refusal(error: OSError) -> "InputError":
    """Return the error that says what the system refused with this one: the file and the reason."""
    step = "Check it, and run this again."
    if error.filename is None and not _has_folder():
        return InputError("the working folder of this terminal was deleted: change to another folder.", step)
    # The errors of Arrow contain the name and the reason in one text.
    named = re.search(r"local file '([^']+)'", str(error))
    name = str(error.filename or (named[1] if named else "one"))
    reason = os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__
    rule = "must be open to this user, with room to write"
    return InputError(f"files and folders {rule}; got {shown(PurePath(name))} ({reason}).", step)


@contextmanager
def errors_of(function: str) -> Iterator[None]:
    """Put the name of a command or public function in front of the errors raised inside; the outermost name counts.

    What the system refuses of a file becomes an InputError.
    """
    try:
        yield
    except MetricOracleError as error:
        error.function = function
        raise
    except OSError as error:
        if error.filename is None and "local file '" not in str(error):  # as Arrow writes it
            raise
        refused = refusal(error)
        refused.function = function
        raise refused from (None if is_like_report(str(error.filename)) else error)


def shown(*values: object) -> str:
    """Return values for a message, joined by commas: names in quotes; paths, numbers and None as they are.

    Names are what a person typed, and ids and names of columns of files. They are cut at `LONGEST_NAME` characters; of
    a path, the part that does not exist is. A text with a line break or above `LONGEST` characters, which may be a
    report, is described, and of anything else the type is named, see `kind_of`.
    """
    return ", ".join(map(_shown, values))


def described(text: str) -> str:
    """Return what stands for a text that a message does not show."""
    return f"a text of {len(text):,} characters"


def is_like_report(text: str) -> bool:
    """Return whether a text is no name by its form: it has a line break or more than `LONGEST` characters."""
    return len(text) > LONGEST or text.splitlines() not in ([text], [])


def absent_part(path: str | PurePath) -> str:
    """Return the part of a path that does not exist, "" if all of it does."""
    path = PurePath(path)
    there = next((folder for folder in (path, *path.parents) if os.path.lexists(folder)), PurePath())
    return "" if there == path else str(path.relative_to(there))


def _shown(value: object) -> str:
    """Return one value as `shown` does."""
    if isinstance(value, str):
        return described(value) if is_like_report(value) else repr(_cut(str(value)))
    if isinstance(value, PurePath):
        absent, path = absent_part(value), str(value)
        path = described(path) if is_like_report(absent) else path.removesuffix(absent) + _cut(absent)
        return path if path.isprintable() else repr(path)
    return kind_of(value)


def kind_of(value: object) -> str:
    """Return a number or None as text, and the type of anything else, which may be a report: "a list of str"."""
    if value is None or isinstance(value, Number):
        return repr(value)
    if isinstance(value, Mapping | list | tuple) and value:
        inside = [[*value.keys()], [*value.values()]] if isinstance(value, Mapping) else [value]
        names = [" or ".join(sorted({type(item).__name__ for item in items})) for items in inside]
        return f"a {type(value).__name__} {'from' if len(names) > 1 else 'of'} {' to '.join(names)}"
    return with_article(type(value).__name__)


def _cut(name: str) -> str:
    """Return a name, or its beginning and dots."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def with_article(name: str) -> str:
    """Return a noun with "a" or "an"."""
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


class InputError(MetricOracleError, ValueError):
    """An argument or an input file breaks a rule."""


class ColumnsError(InputError):
    """The columns of ids or texts cannot be told by their names; `together` joins such errors of several files."""

    path: str = ""
    columns: Mapping[str, str] = {}  # what must be named, by argument, as far as it is known
    header: str = ""  # the names of the columns, see `Table.header`
    more: str = ""  # what is appended to the step


def naming_columns(columns: Mapping[str, str]) -> str:
    """Return arguments that name columns, for a message: ``id_column='nr', text_column=NAME``."""
    return ", ".join(f"{name}={column if column == 'NAME' else repr(column)}" for name, column in columns.items())


def read_call(path: object, columns: Mapping[str, str]) -> str:
    """Return the call that names the columns of a file, for a message; the command line has `oracle reports` for it."""
    return f"`mo.reports({str(path)!r}, mo.Read({naming_columns(columns)}))`"


class ArgumentError(InputError, TypeError):
    """A call does not fit the function: an unknown keyword, or an argument of a wrong type or in a wrong place."""


class InUseError(InputError):
    """Another process is working in the folder and has locked it."""


class DtypeError(MetricOracleError, TypeError):
    """An array has the wrong dtype or shape."""


class IndexFormatError(MetricOracleError):
    """An index does not exist, is incomplete or altered, or has another format version."""


class DamagedIndexError(IndexFormatError):
    """A file of an index was changed after it was written."""


class BackendError(MetricOracleError):
    """A named backend, extra or device cannot be used here."""


class ExactnessError(MetricOracleError):
    """An answer is not exact: a proven bound was broken, or a value differs from what it must be."""


def install_command(extra: str) -> str:
    """Return the pip command that installs the packages of an extra, which the metadata of this package names."""
    from importlib.metadata import requires

    listed = (requirement.partition(";") for requirement in requires("metric-oracle") or ())
    packages = [name.strip() for name, _, marker in listed if re.search(rf"extra == .{extra}['\"]", marker)]
    # A checkout may have an extra that its metadata, from an earlier installation, lacks.
    return " ".join(["pip install", *(f'"{package}"' for package in packages or [f".[{extra}]"])])


def not_installed(subject: str, module: str | None, extra: str) -> BackendError:
    """Return the error for an optional package that is missing; `subject`, what needs it, begins the sentence.

    `module` is the missing module, as `ImportError.name` has it, None for the package of the extra; `extra` is the
    extra of this project that lists it.
    """
    package, command = (module or extra).partition(".")[0], install_command(extra)
    return BackendError(f"{subject} needs the Python package {package}, which is not installed.", f"Run: {command}")
