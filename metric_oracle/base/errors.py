"""The errors that a user can cause. Each has fields, and `str(error)` is one line made of them.

Raise an error in one of two forms::

    raise InputError("k", "must be an int of at least 1", k, "Choose another number.")
    raise InputError(f"{path} is not a whole gzip file.", "Fetch it again.")

The first form, of an argument, a rule, a value and a next step, reads "k must be an int of at least 1; got 0. Choose
another number." Use the second form, a plain sentence and a next step, where they would not make a sentence. In both:

- *No function name.* `called` and `public.public` put the name of the command or of the
  public function in front, once: "retrieve: k must be ...". Code below them takes no parameter for it.
- *Options go through* `option`, commands through `as_called`, and advice that not every caller can follow through
  `if_taken`. ``f"Pass {option('text_column', 'NAME')}."`` reads "Pass --text-column NAME." on
  the command line and "Pass text_column=NAME." in Python. Of what an entry of oracle.toml says, it is the command that
  writes the entry. `argument` is Python's name, too, and is shown as the command's option where it has one.
- *No report text.* Reports are patient data. A message shows names of files, columns, metrics and models, ids, lines,
  counts and types. `shown` writes what a person typed or named: ``f"there is no column {shown(name)}."``

The command line prints the line and exits with code 2; with code 1 for an `ExactnessError`, which is a finding
and not a misuse.
"""

import ast
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Number
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, overload

OF_ENTRY = "{} by oracle reports NAME FILE"  # an option that only an entry of oracle.toml has
LONGEST_NAME = 80  # characters of a name that a message shows
LONGEST = 200  # characters; a longer text may be a report
_MARKED = re.compile(
    "\x02(?P<name>[^\x02\x03\x1f]+)\x1f(?P<value>[^\x02\x03\x1f]*)\x1f(?P<python>[^\x02\x03\x1f]*)\x03"
)

_CLAUSE = re.compile("\x04(?P<name>[a-z_0-9]+)\x1f(?P<text>[^\x04\x05]*)\x05")
# Commands whose function has another name.
TOOLS = {
    "metrics": "list_metrics",
    "crg": "score_crg",
    "f1-chexbert": "score_f1_chexbert",
    "f1-srr-bert": "score_f1_srr",
    "survey create": "create_survey",
    "survey status": "survey_status",
    "survey export": "export_survey",
}
_OF_REPORTS = {"reports", "references", "predictions", "queries", "candidates", "groups", "sets"}  # arguments
_NAMES = re.compile("[a-z_]+(?:(?:, | and | or )[a-z_]+)*")  # of one argument or of several


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
        The command or public function that was called; empty until `called` sets it.
    keywords : collection of str or None
        The arguments of the public function where it was called from Python; None on the command line.
    homes : mapping of str to str
        Arguments that other calls take, and the form of those calls, such as ``"mo.reports(..., {})"``.
    flags : mapping of str to str
        The options of the command that was called, by their arguments: ``{"k": "-k", "id_column": "--id-column"}``.

    Examples
    --------
    >>> try:
    ...     mo.read_reports("absent.csv")
    ... except mo.MetricOracleError as error:
    ...     print(error)
    read_reports: there is no file or folder absent.csv. Check the name: it is never read as text.
    """

    function: str = ""
    keywords: Collection[str] | None = None
    homes: Mapping[str, str] = MappingProxyType({})
    flags: Mapping[str, str] = MappingProxyType({})

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

    def __str__(self) -> str:
        argument = self.argument
        if _NAMES.fullmatch(argument):
            argument = re.sub("[a-z_]+", lambda name: self.flags.get(name[0], name[0]), argument)
        value = "none" if self.value == "None" and self.flags else self.value
        sentence = self.sentence or f"{argument} {self.rule}; got {value}."
        line = _written(f"{sentence} {self.step}".rstrip(), _Call(self.keywords, self.homes, self.flags))
        return f"{self.function}: {line}" if self.function else line


class _Call(NamedTuple):
    """What the outermost call of a public function sets in the errors raised in it; see `MetricOracleError`."""

    keywords: Collection[str] | None = None
    homes: Mapping[str, str] = MappingProxyType({})
    flags: Mapping[str, str] = MappingProxyType({})


_CALL: ContextVar[_Call | None] = ContextVar("_CALL", default=None)


def is_under_way() -> bool:
    """Return whether this code runs inside a public function or a command."""
    return _CALL.get() is not None


@contextmanager
def called(
    function: str,
    keywords: Collection[str] | None = None,
    homes: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Put the name of a command or public function in front of the errors raised inside; the outermost call counts.

    With an empty name, of a method, errors stay without one. Notes and warnings inside are written in the terms of the
    call, too, see `in_terms_of_caller`: in Python's if it has `keywords`. `keywords`, `homes` and `flags` are those of
    `MetricOracleError`. An error of the system becomes an InputError where the outermost call has `keywords`.
    """
    call = _Call(keywords, homes or {}, flags or {})
    is_outermost = _CALL.get() is None
    if is_outermost:
        _CALL.set(call)
    try:
        yield
    except MetricOracleError as error:
        if function or not error.function:
            error.function, error.keywords, error.homes, error.flags = function, *call
        raise
    except OSError as error:
        if error.filename is not None and is_outermost and keywords is not None:
            refused = InputError(refusal(error), "Check it and call it again.")
            refused.function = function
            raise refused from (None if is_like_report(str(error.filename)) else error)
        raise
    finally:
        if is_outermost:
            _CALL.set(None)


def _has_folder() -> bool:
    """Return whether the working folder exists."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def refusal(error: OSError) -> str:
    """Return the sentence that says what the system refused with this error: the file and the reason."""
    # The errors of Arrow contain the name and the reason in one text.
    if error.filename is None and not _has_folder():
        return "the working folder of this terminal was deleted: change to another folder."
    named = re.search(r"local file '([^']+)'", str(error))
    name = str(error.filename or (named[1] if named else "one"))
    reason = os.strerror(error.errno) if error.errno else error.strerror or type(error).__name__
    return f"files and folders must be open to this user, with room to write; got {shown(PurePath(name))} ({reason})."


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


def option(name: str, value: str | bool = "", *, python: str = "") -> str:
    """Return an option for a message, which is written in the caller's terms: "--ids FILE", or in Python "ids=FILE".

    `name` is the argument in Python, or "predicted_" and that for one that must be said of the predictions alone.
    `value` is what to pass, a name in quotes as `repr` writes it; False is the option ``--no-...`` of a switch, True
    the bare option. `python` says how a caller in Python gives it, where that is not `name` = `value`.
    """
    return f"\x02{name}\x1f{value}\x1f{python}\x03"


def as_called(command: str) -> str:
    """Return a command for a message, such as "oracle build-index"; in Python it is the function, mo.build_index."""
    return f"\x02oracle {command}\x1f\x1fmo.{TOOLS.get(command, command.replace('-', '_'))}\x03"


def entry_line(path: str, columns: Mapping[str, str]) -> str:
    """Return, for a message, the line that says how a file is read: of a command, or in Python.

    `columns` has the names of columns by argument, such as ``{"text_column": "hyp"}``.
    """
    typed = " ".join(f"--{name.replace('_', '-')} {shlex.quote(value)}" for name, value in columns.items())
    in_python = ", ".join(f"{name}={value if value == 'NAME' else repr(value)}" for name, value in columns.items())
    return f"\x02oracle reports NAME {shlex.quote(path)} {typed}\x1f\x1fmo.reports(..., read=mo.Read({in_python}))\x03"


def if_taken(name: str, text: str) -> str:
    """Return `text`, a part of a message, so that it is shown only where the caller takes an option of that name.

    "entry" stands for any option that only an entry of oracle.toml has.
    """
    return f"\x04{name}\x1f{text}\x05"


def in_terms_of_caller(text: str) -> str:
    """Return a note or a warning, made with `option`, with its options written for the outermost call under way.

    Without a call they are written as those of a command: "Pass --section findings."
    """
    return _written(text, _CALL.get() or _Call())


def _written(text: str, call: _Call) -> str:
    """Return a text with its marked options written as options of the command line, or as Python arguments."""

    def taken(clause: re.Match[str]) -> str:
        """Return the text of `if_taken`, empty if the caller does not take its option."""
        name = clause["name"]
        if call.keywords is None:
            is_taken = not call.flags or name in call.flags or name in call.homes
            is_taken |= name == "entry" and OF_ENTRY in call.homes.values()
        else:
            is_taken = name in call.keywords or (name in call.homes and not _OF_REPORTS.isdisjoint(call.keywords))
        return clause["text"] if is_taken else ""

    def written(marked: re.Match[str]) -> str:
        """Return the text for a command of `as_called` or an option of `option`."""
        name, value, python = marked["name"], marked["value"], marked["python"]
        if call.keywords is None and name.startswith("oracle "):
            return name
        bare = name.removeprefix("predicted_")
        if call.keywords is None:
            flag = next((call.flags[form] for form in (bare, f"{bare}s") if form in call.flags), None)
            flag = flag or f"--{bare.replace('_', '-')}"
            flag = flag.replace("--", "--no-", 1) if value == "False" else flag
            if value[:1] in ("'", '"'):
                value = shlex.quote(ast.literal_eval(value))
            said = flag if value in ("", "True", "False") else f"{flag} {value}"
            home = "{}" if bare == name else OF_ENTRY  # of one file of several
            return call.homes.get(bare, home).format(said)
        if python:
            return python
        name = next((one for one in (name, f"{name}s", bare) if one in call.keywords or one in call.homes), name)
        if name in call.keywords or name not in call.homes:
            return f"{name}={value}" if value else name
        return call.homes[name].format(f"{name}={value or '...'}")

    return _MARKED.sub(written, _CLAUSE.sub(taken, text))


class InputError(MetricOracleError, ValueError):
    """An argument or an input file breaks a rule."""


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
