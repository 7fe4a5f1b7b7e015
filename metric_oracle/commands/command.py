"""The decorator that makes commands from the declarations of public functions, and helpers to read values.

A command has the options of its public function, which are declared there, and those of its body in the same form. The
body gets the arguments for the function as a `Call`, and where its result goes as a `Destination`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer

import metric_oracle
from metric_oracle.base.argument_checks import check_path
from metric_oracle.base.declarations import (
    IN_PYTHON,
    OBJECTS,
    PANELS,
    SEARCH,
    Declaration,
    declaration,
    declarations,
    introduction,
)
from metric_oracle.base.validation import check_declared
from metric_oracle.commands import shared_options
from metric_oracle.commands.groups import Command
from metric_oracle.commands.inputs import Inputs, Names
from metric_oracle.commands.option import METRIC, Option
from metric_oracle.commands.output import Destination, be_quiet, progress
from metric_oracle.commands.wording import Wording

REQUIRED = inspect.Parameter.empty  # as the default of an argument that Python can leave out


@dataclass
class Call:
    """The call of a public function that a command line stands for."""

    function: Callable[..., Any]
    values: dict[str, Any]  # by the names of its arguments; those that were not given are missing
    attach: Mapping[str, Callable[[Any], Any]]  # by the argument for reports: attaches what was given for it to a file
    project: Path | None = None  # value of --project

    def __call__(self, **own: Any) -> Any:
        """Call the function with the values and, before them, `own`."""
        return self.function(**{**self.values, **own})

    def tracked(self, task: str, **own: Any) -> Any:
        """Call the function, and show under the name of the task that it runs, and its progress if it tells it."""
        with progress(task) as step:
            if "progress" in declarations(self.function):
                own["progress"] = step
            return self(**own)


def command(
    app: typer.Typer,
    *examples: str,
    name: str = "",
    of: Callable[[], Callable[..., Any]] | None = None,
    panel: str = SEARCH,
    endings: Sequence[str] = (),
    formats: Sequence[str] = (),
    plot: bool = False,
    needs_out: bool = False,
    reports: Mapping[str, Inputs] = MappingProxyType({}),
    fixed: Mapping[str, Any] = MappingProxyType({}),
    **defaults: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    r"""Register a function, the body, as a command.

    A body with the argument `call` stands for the public function of its own name, or for that which `of` returns. The
    command has the name of the body, with hyphens, or `name`. The help has the function's docstring up to the first
    section, or that of the body if the function is not public, and the command lines in `examples`, those over 78
    characters broken after ``\``. Options are listed under `panel` unless they say another. Added are --quiet; --out,
    which accepts `endings`, and --format, which accepts `formats`, where there are any; --plot and --width if `plot`.
    With `needs_out` the help says that --out must be given, otherwise that the result is printed without it. `reports`
    says how the arguments for reports are read; `fixed` has the values of arguments of the function that the command
    does not have, and `defaults` are those of the command line alone. With `fixed`, which the function's docstring does
    not know, the help has the body's.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        lines = [line.strip() for example in examples for line in example.split("\n")]
        epilog = "\n".join(lines).replace("[", r"\[")  # brackets escaped for Rich
        made = Registered(body, of, panel, tuple(endings), tuple(formats), plot, needs_out, reports, fixed, defaults)
        app.command(name or body.__name__.replace("_", "-"), cls=Command, epilog=epilog)(made)  # type: ignore[type-var]
        return body

    return register


@dataclass(frozen=True)
class Registered:
    """A command as it was registered; its public function is imported when the command is typed."""

    body: Callable[..., Any]
    of: Callable[[], Callable[..., Any]] | None
    panel: str
    endings: tuple[str, ...]
    formats: tuple[str, ...]
    plot: bool
    needs_out: bool
    reports: Mapping[str, Inputs]
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def make(self) -> Callable[..., Any]:
        """Return the function that Typer makes a command of."""
        function = self._function()
        own = [*self._of_body()]
        options = [*([] if function is None else self._of_function(function)), *own]
        options += self._added(any(option.name == "out" and option.declared.default is None for option in options))
        names = {option.name: option.typed for option in options}
        typed = sorted(options, key=lambda option: -1 if option.is_argument else PANELS.index(option.panel))

        def run(**values: Any) -> Any:
            Path.cwd()  # an error if it was deleted, before a file is missed in it
            values = {name: _without_dots(value) for name, value in values.items()}
            _check([option for option in options if option.name not in self.reports], values)
            _check_indexes(options, values)
            be_quiet(values["quiet"])
            files = [*_files(options, values)]
            to = Destination(
                values.get("out") if self.endings else None,
                values.get("plot"),
                values.get("width"),
                values.get("format"),
                files,
            )
            to.check(self.endings, self.formats)
            passed: dict[str, Any] = {option.name: option.value(values[option.name]) for option in own}
            if "to" in inspect.signature(self.body).parameters:
                passed["to"] = to
            if function is not None:
                passed["call"] = self._call(function, options, values, to)
            return self.body(**passed)

        run.__signature__ = inspect.Signature([option.parameter(Wording(names)) for option in typed])  # type: ignore[attr-defined]
        is_whole = function is not None and function.__name__ in metric_oracle.MODULES and not self.fixed
        documented = function if function is not None and is_whole else self.body
        text = inspect.cleandoc(Wording(names).text(introduction(documented)))
        # Each paragraph on one line, so that the help wraps it to the width of the terminal.
        run.__doc__ = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
        run.__name__ = self.body.__name__
        return run

    def _function(self) -> Callable[..., Any] | None:
        """Return the function whose options the command has; None for a body that does all by itself."""
        if self.of is not None:
            return self.of()
        if "call" not in inspect.signature(self.body).parameters:
            return None
        function: Callable[..., Any] = getattr(metric_oracle, self.body.__name__)
        return function

    def _of_function(self, function: Callable[..., Any]) -> Iterator[Option]:
        """Yield the options of the public function, with those of its objects and its reports."""
        hidden = {*self.fixed, *(["out"] if self.endings else [])}
        declared = {
            name: one
            for name, one in declarations(function).items()
            if one.text and one.flag is not IN_PYTHON and name not in hidden
        }
        for name, one in declared.items():
            if name in OBJECTS:
                object_ = one.object
                for field, of_field in declarations(object_).items():
                    is_used = not one.uses or field in one.uses
                    if is_used and field not in declared and of_field.flag is not IN_PYTHON:
                        yield self._option(of_field, name, field)
            else:
                yield self._option(one, name)
        names = set()
        for argument, inputs in self.reports.items():
            for option in inputs.options_of(argument):
                if option.name not in names:
                    names.add(option.name)
                    yield option

    def _option(self, one: Declaration, *keys: str) -> Option:
        """Return an option under its panel, with the default of this command if it has one of its own."""
        one = one._replace(default=self.defaults.get(one.name, one.default))
        return Option(one.name, one, one.flag.panel or self.panel, keys)

    def _of_body(self) -> Iterator[Option]:
        """Yield the options of the body."""
        for name, one in declarations(self.body).items():
            if name not in ("call", "to"):
                yield self._option(one)

    def _added(self, has_out: bool) -> Iterator[Option]:
        """Yield --out, --plot, --width, --format and --quiet; `has_out` if an --out of the command can be left out."""
        kinds: dict[str, Any] = {}
        if self.endings:
            kinds["out"] = shared_options.out(self.endings, is_needed=self.needs_out)
        if self.plot:
            kinds |= {"plot": shared_options.Plot, "width": shared_options.Width}
        if self.formats:
            is_printed = has_out or (bool(self.endings) and not self.needs_out)
            kinds["format"] = shared_options.print_format(self.formats, has_out=is_printed)
        if self.reports:
            kinds["project"] = shared_options.Project
        kinds["quiet"] = shared_options.Quiet
        for name, kind in kinds.items():
            yield self._option(declaration(name, kind, False if name == "quiet" else None))

    def _call(
        self, function: Callable[..., Any], options: Sequence[Option], values: Mapping[str, Any], to: Destination
    ) -> Call:
        """Return the call of the function with the values of the command line."""
        declared = declarations(function)
        arguments: dict[str, Any] = {**self.fixed}
        of_reports: dict[str, Any] = {}
        objects: dict[str, dict[str, Any]] = {}
        for option in options:
            if not option.keys or values[option.name] is None:
                continue
            argument, *field = option.keys
            value = option.value(values[option.name])
            if field and argument in self.reports:
                of_reports[option.declared.name] = value
            elif field:
                objects.setdefault(argument, {})[option.declared.name] = value
            else:
                arguments[argument] = value
        for argument, fields in objects.items():
            arguments[argument] = declared[argument].object(**fields)
        if self.endings and "out" in declared:
            arguments["out"] = to.file()
        if not self.reports:
            return Call(function, arguments, {})
        from metric_oracle.judges.given import GivenJudge
        from metric_oracle.projects import current

        names = Names(current(values["project"]), of_reports)
        for option in options:
            if option.declared.flag.names == METRIC and option.keys and option.keys[0] in arguments:
                arguments[option.keys[0]] = names.with_judges(
                    arguments[option.keys[0]], may_be=GivenJudge in option.declared.kinds
                )
        attach = {name: partial(names.attach, name, inputs) for name, inputs in self.reports.items()}
        for argument in self.reports:
            if argument in arguments:
                arguments[argument] = attach[argument](arguments[argument])
        if any(argument in arguments for argument in self.reports):
            names.check_used()
        return Call(function, arguments, attach, values["project"])


def _without_dots(value: Any) -> Any:
    """Return a value or a list of values; paths such as ".." are made absolute, since a message would end in dots."""
    if isinstance(value, list):
        return [_without_dots(item) for item in value]
    return value.resolve() if isinstance(value, Path) and value.name in ("", "..") else value


def _files(options: Sequence[Option], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield each value that may be an input file, as text, and the part behind its "=" if it has one."""
    for option in options:
        value = values[option.name]
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str | Path) and not option.is_output:
                yield str(item)
                if "=" in str(item):
                    yield str(item).partition("=")[2]


def _check(options: Sequence[Option], values: Mapping[str, Any]) -> None:
    """Raise InputError for a value that is out of its declared range or choices, or a text in the place of a path."""
    for option in options:
        value = values[option.name]
        check_declared(option.name, value, option.declared.annotation)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Path):
                check_path(option.name, str(item), is_new=option.is_output)


def _check_indexes(options: Sequence[Option], values: Mapping[str, Any]) -> None:
    """Raise IndexFormatError for a file where an index is wanted.

    In Python a file there is one of reports. A command with INDEX and QUERIES exchanged would search the test reports.
    """
    for option in options:
        value = values[option.name]
        if option.is_index and isinstance(value, Path) and value.is_file():
            from metric_oracle.indexes.manifest import no_index

            raise no_index(value)
