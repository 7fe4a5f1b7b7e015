"""The decorator that turns a function into a command, and helpers to read the values of options."""

import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from metric_oracle.arguments import check_declared, check_path
from metric_oracle.commands import old_options as options
from metric_oracle.commands.groups import Command
from metric_oracle.commands.output import Destination, be_quiet
from metric_oracle.errors import InputError
from metric_oracle.metrics import COMPOSITE, find_metric, get_metric

OUTPUTS = ("out", "plot", "scatter", "pairs", "format", "quiet", "folder", "text", "utilities", "matrix", "best_scores")


def command(
    app: typer.Typer,
    name: str,
    *examples: str,
    endings: Sequence[str] = (),
    formats: Sequence[str] = (),
    plot: bool = False,
    needs_out: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    r"""Register a function as the command `name`.

    The help shows the command lines in `examples`, those over 78 characters broken after ``\``. Options are added to
    those of the function, which gets them as its parameter `to`, a `Destination`: --quiet; --out, which accepts
    `endings`, and --format, which accepts `formats`, where there are any; --plot if `plot`. With `needs_out` the help
    says that --out must be given, otherwise that the result is printed without it.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        declared = inspect.signature(body).parameters
        has_folder = "out" in declared and declared["out"].default is None
        added = _added(endings, formats, plot, needs_out, has_folder)
        parameters = sorted([*_flat(declared.values()), *added], key=_panel)

        def run(**given: Any) -> Any:
            given = {name: _without_dots(value) for name, value in given.items()}
            _check_values(parameters, given)
            of_output = {p.name: given.pop(p.name) for p in added}
            be_quiet(of_output["quiet"])
            inputs = [*_inputs(given)]
            destination = Destination(of_output.get("out"), of_output.get("plot"), of_output.get("format"), inputs)
            destination.check(endings, formats)
            passed = {
                name: _gathered(p.annotation, given) if _is_group(p) else given[name]
                for name, p in declared.items()
                if name != "to"
            }
            return body(**passed, **({"to": destination} if "to" in declared else {}))

        typed = [p.replace(annotation=_without_bounds(p.annotation)) for p in parameters]
        run.__signature__ = inspect.Signature(typed)  # type: ignore[attr-defined]
        run.__doc__, run.__name__ = _paragraphs(body.__doc__ or ""), body.__name__
        lines = [line.strip() for example in examples for line in example.split("\n")]
        app.command(name, cls=Command, epilog="\n".join(lines).replace("[", r"\["))(run)  # brackets escaped for Rich
        return body

    return register


def _without_dots(value: Any) -> Any:
    """Return a value or a list of values; paths such as ".." are made absolute, since a message would end in dots."""
    if isinstance(value, list):
        return [_without_dots(item) for item in value]
    return value.resolve() if isinstance(value, Path) and value.name in ("", "..") else value


def _added(
    endings: Sequence[str], formats: Sequence[str], plot: bool, needs_out: bool, has_folder: bool
) -> list[inspect.Parameter]:
    """Return the parameters for the options that `command` adds; with `has_folder` the function has an own --out."""
    kinds: list[tuple[str, Any, Any]] = []
    if endings:
        kinds.append(("out", Annotated[Path | None, options.out(endings, is_needed=needs_out)], None))
    if plot:
        kinds.append(("plot", options.Plot, None))
    if formats:
        has_out = has_folder or (bool(endings) and not needs_out)
        kinds.append(("format", options.print_format(formats, has_out=has_out), None))
    kinds.append(("quiet", options.Quiet, False))
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, keyword, annotation=kind, default=default) for name, kind, default in kinds]


def _panel(parameter: inspect.Parameter) -> int:
    """Return the position of an option's panel in the help; arguments come first."""
    metadata = get_args(parameter.annotation)[1:]
    (panel,) = {getattr(item, "rich_help_panel", None) for item in metadata} - {None} or {None}
    return -1 if panel is None else options.PANELS.index(panel)


def _is_group(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is an option group: a dataclass whose fields are options."""
    return inspect.isclass(parameter.annotation) and is_dataclass(parameter.annotation)


def _flat(parameters: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters but `to`, with each option group replaced by its fields."""
    for p in parameters:
        if p.name == "to":
            continue
        if _is_group(p):
            yield from _flat(inspect.signature(p.annotation).parameters.values())
        else:
            yield p.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _without_bounds(annotation: Any) -> Any:
    """Return the annotation of an option without the bounds of types in a union, which Typer does not understand."""
    kind, *metadata = get_args(annotation)
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        bare = [get_args(part)[0] if get_origin(part) is Annotated else part for part in get_args(kind)]
        kind = functools.reduce(operator.or_, bare)
    return Annotated[(kind, *metadata)]


def _gathered(group: Any, given: Mapping[str, Any]) -> Any:
    """Return an instance of the dataclass `group`, each field from `given` by its name; a field may be a group, too."""
    return group(
        **{
            f.name: _gathered(f.type, given) if inspect.isclass(f.type) and is_dataclass(f.type) else given[f.name]
            for f in fields(group)
        }
    )


def _inputs(given: Mapping[str, Any]) -> Iterator[Any]:
    """Yield each value in `given` that may be an input file, as text, and after it the part behind its "=", or None.

    Both are items of one flat sequence. Items of a list are values; arguments in `OUTPUTS` are left out.
    """
    for name, value in given.items():
        if name not in OUTPUTS:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, str | Path):
                    yield str(item)
                    yield str(item).partition("=")[2] or None


def _check_values(parameters: Sequence[inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise InputError for a value that is out of its declared range or choices, or a text in the place of a path."""
    for p in parameters:
        values = given.get(p.name)
        check_declared(p.name, values, p.annotation)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, Path):
                check_path(p.name, str(value), is_new=p.name in OUTPUTS)


def metric_names(metrics: Sequence[str] | None) -> list[str] | None:
    """Return the names given with --metric, repeated or separated by commas; None if the option was not given.

    Raise InputError if a name is not in the registry.
    """
    if metrics is None:
        return None
    names = split_names(metrics)
    for name in names:
        if name != COMPOSITE and find_metric(name) is None and not re.fullmatch(r"[\w:.-]{1,40}", name):
            raise InputError("metric", "must be a name that oracle metrics lists", "another text", "Choose one.")
        if name != COMPOSITE:
            get_metric(name)
    return names


def split_names(given: Sequence[str]) -> list[str]:
    """Return names that were given by repeating an option or separated by commas."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def one_metric(metrics: Sequence[str]) -> str:
    """Return the metric given with --metric, or the names of a sum joined by +.

    Raise InputError if there are several or none, or a name is not in the registry.
    """
    names = split_names(metrics)
    metric_names([part for name in names for part in name.split("+")])
    if len(names) != 1:
        raise InputError("metric", "must be a single one", len(names), "Run the command once for each metric.")
    return names[0]


def named(
    texts: Sequence[str] | None, argument: str, form: str = "NAME=FILE", mark: str = "=", *, repeatable: bool = False
) -> list[tuple[str, str]]:
    """Return values such as NAME=FILE of the option `argument` as pairs, split at the first `mark`; None has no pair.

    Raise InputError unless each value has the form, and each name comes once or is `repeatable`.
    """
    pairs: list[tuple[str, str]] = []
    for text in texts or ():
        name, separator, value = text.partition(mark)
        if not (name and separator and value):
            raise InputError(
                argument,
                f"must be {form}",
                repr(text),
                "Write both parts, and quote the argument if it contains spaces.",
            )
        if not repeatable and name in dict(pairs):
            raise InputError(
                argument, "must have each name once", f"{name!r} twice", "Leave one out, or give it another name."
            )
        if "FILE" in form:
            check_path(argument, value)
        pairs.append((name, value))
    return pairs


def named_files(texts: Sequence[str], argument: str) -> list[tuple[str, str]]:
    """Return values [NAME=]FILE of `argument` as pairs; by default the name is that of the file without its ending.

    A file whose name has "=" counts as FILE if it exists. Raise InputError if the name or the file is empty.
    """
    pairs = []
    for text in texts:
        name, mark, path = text.partition("=")
        name, path = (name, path) if mark and not Path(text).exists() else (Path(text).stem, text)
        if not name or not path:
            raise InputError(argument, "must be FILE or NAME=FILE", repr(text), "Write both parts.")
        pairs.append((name, path))
    return pairs


def given(group: Any) -> dict[str, Any]:
    """Return the values of an option group by the names of its fields."""
    return {f.name: getattr(group, f.name) for f in fields(group)}


def _paragraphs(text: str) -> str:
    """Return a docstring with each paragraph on one line, so that the help wraps it to the width of the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def used(group: Any, usual: Any = None) -> dict[str, Any]:
    """Return name -> value of an option group, without those as in the group `usual`, by default None."""
    return {name: value for name, value in given(group).items() if value != getattr(usual, name, None)}
