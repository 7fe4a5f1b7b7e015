"""What makes a command of a function: its options in groups, its checks before the first file, its examples."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from metric_oracle.commands import options
from metric_oracle.commands.groups import Command
from metric_oracle.commands.options import OneOf
from metric_oracle.commands.output import Destination, be_quiet
from metric_oracle.errors import InputError, called
from metric_oracle.metrics import COMPOSITE, find_metric, get_metric

REPORTS = ("queries", "reports", "references", "predictions")  # arguments where a text may be typed by mistake
OUTPUTS = ("out", "plot", "format", "quiet", "folder", "text")
_ENDING = re.compile(r"\.(csv|tsv|parquet|jsonl?|zip|gz|tgz|npy|npz|pt|pth|txt|md|tex)$", re.IGNORECASE)


def command(
    app: typer.Typer,
    name: str,
    *examples: str,
    endings: Sequence[str] = (),
    formats: Sequence[str] = (),
    plot: bool = False,
    function: str = "",
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    r"""Register a function as a command.

    Parameters
    ----------
    app : Typer
    name : str
    *examples : str
        Command lines below the help; one that is longer than a line of 78 goes on after ``\\`` and a line break.
    endings, formats : sequences of str
        Of --out and of --format, which are added, like --quiet; the function gets them as `to`, a `Destination`.
    plot : bool
        Whether it draws: adds --plot.
    function : str
        Begin of the error lines of these checks; by default the name.
    """
    function = function or name.replace("-", "_")

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(body).parameters
        added = _added(endings, formats, plot)
        parameters = sorted([*_flat(own.values()), *added], key=_panel)

        def run(**given: Any) -> Any:
            given = {name: _without_dots(value) for name, value in given.items()}
            of_output = {p.name: given.pop(p.name) for p in added}
            be_quiet(of_output["quiet"])
            inputs = [*_inputs(given)]
            _check_texts(name, parameters, given)
            destination = Destination(
                function, of_output.get("out"), of_output.get("plot"), of_output.get("format"), inputs
            )
            destination.check(endings, formats)
            passed = {
                name: _gathered(p.annotation, given) if _is_group(p) else given[name]
                for name, p in own.items()
                if name != "to"
            }
            with called(function):
                return body(**passed, **({"to": destination} if "to" in own else {}))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__doc__, run.__name__ = _paragraphs(body.__doc__ or ""), body.__name__
        app.command(name, cls=Command, epilog=_epilog(examples))(run)
        return body

    return register


def _without_dots(value: Any) -> Any:
    """Return paths such as "." and ".." in full: in a message they would run into its full stop."""
    if isinstance(value, list):
        return [_without_dots(one) for one in value]
    return value.resolve() if isinstance(value, Path) and value.name in ("", "..") else value


def _added(endings: Sequence[str], formats: Sequence[str], plot: bool) -> list[inspect.Parameter]:
    kinds: list[tuple[str, Any, Any]] = []
    if endings:
        kinds.append(("out", Annotated[Path | None, options.out(*endings)], None))
    if plot:
        kinds.append(("plot", options.Plot, None))
    if formats:
        kinds.append(("format", options.print_format(formats), None))
    kinds.append(("quiet", options.Quiet, False))
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(name, keyword, annotation=_resolved(kind), default=default) for name, kind, default in kinds
    ]


def _panel(parameter: inspect.Parameter) -> int:
    """Return the place of an option's panel in the help; arguments come first."""
    (panel,) = {getattr(one, "rich_help_panel", None) for one in get_args(parameter.annotation)[1:]} - {None} or {None}
    return -1 if panel is None else options.PANELS.index(panel)


def _is_group(parameter: inspect.Parameter) -> bool:
    return inspect.isclass(parameter.annotation) and is_dataclass(parameter.annotation)


def _flat(parameters: Any) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a function, a group as those of its fields, choices as types."""
    for p in parameters:
        if p.name == "to":
            continue
        if _is_group(p):
            yield from _flat(inspect.signature(p.annotation).parameters.values())
        else:
            yield p.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_resolved(p.annotation))


def _resolved(annotation: Any) -> Any:
    """Return an annotation with its choices as a type, which help, completion and check are made from."""
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, *beside = get_args(annotation)
    choices = [one for one in beside if isinstance(one, OneOf)]
    if not choices:
        return annotation
    literal = Literal[choices[0].values]  # type: ignore[valid-type]
    found = literal | None if type(None) in get_args(kind) else literal
    return Annotated[(found, *(one for one in beside if one is not choices[0]))]


def _gathered(group: Any, given: Mapping[str, Any]) -> Any:
    """Return a group with what was given for its fields."""
    return group(
        **{
            f.name: _gathered(f.type, given) if inspect.isclass(f.type) and is_dataclass(f.type) else given[f.name]
            for f in fields(group)
        }
    )


def _inputs(given: Mapping[str, Any]) -> Iterator[Any]:
    """Yield every file that a command is given, whatever the option: what follows the mark of NAME=FILE, too."""
    for name, value in given.items():
        if name not in OUTPUTS:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | Path):
                    yield str(one)
                    yield str(one).partition("=")[2] or None


def _check_texts(name: str, parameters: Sequence[inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise where a report's text stands in the place of a file: the readers would print it as a name."""
    for p in parameters:
        values = given.get(p.name)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, Path) and not _is_printable(str(value), p.name in REPORTS) and not value.exists():
                msg = (
                    f"{name}: {p.name} must be an existing file or folder; got another text, not shown here. Check the "
                    "name; a report goes with retrieve --text, in quotes."
                )
                raise InputError(msg)


def _is_printable(text: str, may_be_report: bool) -> bool:
    """Tell whether what was typed for a path is no report: it has an ending, or no blanks and a folder."""
    return bool(_ENDING.search(text)) or (not re.search(r"\s", text) and (not may_be_report or "/" in text))


def metric_names(metrics: Sequence[str] | None, function: str) -> list[str] | None:
    """Return the metrics that were asked for, repeated or with commas, each a known one; None for the usual ones."""
    if metrics is None:
        return None
    names = split_names(metrics)
    for name in names:
        if name != COMPOSITE and find_metric(name) is None and not re.fullmatch(r"[\w:.-]{1,40}", name):
            msg = f"{function}: metric must be a name that oracle metrics lists; got another text. Choose one."
            raise InputError(msg)
        if name != COMPOSITE:
            get_metric(name, function)
    return names


def split_names(given: Sequence[str]) -> list[str]:
    """Return names that were repeated or typed with commas."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def one_metric(metrics: Sequence[str], function: str) -> str:
    """Return the only metric that was asked for."""
    names = metric_names(metrics, function) or []
    if len(names) != 1:
        msg = f"{function}: metric must be one for each search; got {len(names)}. Run it once for each."
        raise InputError(msg)
    return names[0]


def named(
    texts: Sequence[str] | None,
    argument: str,
    form: str,
    mark: str,
    *,
    repeatable: bool = False,
    function: str = "table",
) -> list[tuple[str, str]]:
    """Split arguments such as NAME=FILE at the first mark; a name may come once unless it is repeatable."""
    pairs: list[tuple[str, str]] = []
    for text in texts or ():
        name, found, value = text.partition(mark)
        if not (name and found and value):
            msg = (
                f"{function}: {argument} must be {form}; got {text!r}. "
                "Put both sides, in quotes where there are blanks."
            )
            raise InputError(msg)
        if not repeatable and name in dict(pairs):
            msg = f"{function}: {argument} must have each name once; got {name!r} twice. Give one of them another name."
            raise InputError(msg)
        pairs.append((name, value))
    return pairs


def given(group: Any) -> dict[str, Any]:
    """Return the fields of a group by name."""
    return {f.name: getattr(group, f.name) for f in fields(group)}


def _paragraphs(text: str) -> str:
    """Return a docstring with each paragraph on one line, for a terminal to wrap."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _epilog(examples: Sequence[str]) -> str:
    """Return examples as lines that can be pasted."""
    lines = [line.strip() for example in examples for line in example.split("\n")]
    return "\n".join(lines).replace("[", r"\[")


def used(group: Any, usual: Any = None) -> dict[str, Any]:
    """Return the fields of a group that were given, those that differ from `usual`."""
    return {name: value for name, value in given(group).items() if value != getattr(usual, name, None)}
