"""The wrapper of the public functions: it checks the types of the arguments and names the function in errors."""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.arguments import check_path
from metric_oracle.errors import ArgumentError, called

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAMES = {
    bool: "True or False",
    int: "an int",
    float: "a number",
    str: "a string",
    Path: "a path",
    type(None): "None",
    Any: "anything",
}


def public(name: str, function: _Function, homes: Mapping[str, str]) -> _Function:
    """Return a public function that checks the types of its arguments and whose errors begin with its name.

    Parameters
    ----------
    name : str
        Name under which users call it.
    function : callable
    homes : mapping of str to str
        Arguments that belong to another public function, and the form of that call, such as ``"mo.reports(..., {})"``;
        for advice in messages.
    """

    @wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        """Check the arguments and call the function."""
        with called(name, tuple(_known(function)), homes, given=_typed(function, args, keywords)):
            _check(name, function, args, keywords, homes)
            return function(*args, **keywords)

    run.__module__, run.__qualname__ = "metric_oracle", name  # where another process finds it
    return run  # type: ignore[return-value]


def _check(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], homes: Mapping[str, str]
) -> None:
    """Raise ArgumentError unless a call fits the function's signature: names, positions and types of arguments."""
    known, signature = _known(function), inspect.signature(function)
    unknown = next((keyword for keyword in keywords if keyword not in known), None)
    if unknown is not None:
        similar = get_close_matches(unknown, known, n=1)
        step = f"Did you mean {similar[0]!r}?" if similar else f"Its arguments are {', '.join(known)}."
        counterpart = unknown.removeprefix("predicted_")
        if counterpart in homes:
            step = f"Write {homes[counterpart].format(f'{counterpart}=...')}."
        raise ArgumentError(f"there is no argument {unknown!r}.", step)
    step = f"The call is {name}({_call(function)})."
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        raise ArgumentError(f"{error}.", step) from None
    checked: dict[str, tuple[Any, Any]] = {}
    for argument, value in bound.arguments.items():
        values, kinds = {argument: value}, known
        if signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD:
            values = value
        elif argument == "options" and is_dataclass(value) and not isinstance(value, type):
            kinds = {f"options.{field}": kind for field, kind in typing.get_type_hints(type(value)).items()}
            values = {key: getattr(value, key.partition(".")[2]) for key in kinds}
        checked |= {key: (content, kinds.get(key, Any)) for key, content in values.items()}
    for key, (content, kind) in checked.items():
        if not _fits(content, kind):
            raise ArgumentError(argument=key, rule=f"must be {_named(kind)}", value=_shown(content), step=step)
    for key, (content, kind) in checked.items():
        is_new = key == "out" or name.startswith(("write", "plot"))
        for path, may_be_report in _paths(content, kind):
            check_path(key, path, is_new=is_new, may_be_report=may_be_report)


def _typed(function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that a user typed: not the reports in a container, which no message quotes."""
    known = _known(function)
    given = {**dict(zip(known, args, strict=False)), **keywords}
    return {
        name: vars(value) if name == "options" and is_dataclass(value) else value
        for name, value in given.items()
        if isinstance(value, str | Path) or known.get(name, Any) is not Any
    }


def _paths(value: Any, annotation: Any) -> Iterator[tuple[str, bool]]:
    """Yield the strings in a value that are given where a path can be, and whether reports can be there."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    kinds = typing.get_args(annotation) if is_union else (annotation,)
    if isinstance(value, str | Path):
        if Any in kinds or Path in kinds:
            yield str(value), Any in kinds
        return
    for kind in kinds:
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is Mapping and isinstance(value, Mapping):
            for content in value.values():
                yield from _paths(content, inner[1])
        elif origin is Sequence and isinstance(value, list | tuple):
            for item in value:
                yield from _paths(item, inner[0])


@cache
def _known(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotation of each argument of a function, including those that its ``**`` parameter accepts."""
    annotations: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            annotations[name] = parameter.annotation
        else:
            keywords = typing.get_type_hints(typing.get_args(parameter.annotation)[0])
            annotations |= {key: annotation | None for key, annotation in keywords.items()}
    return annotations


def _call(function: Callable[..., Any]) -> str:
    """Return the arguments of a function as a message shows them, such as "index, queries, metric, ...".

    These are the positional and the required ones; dots stand for the others.
    """
    shown, parameters = [], inspect.signature(function).parameters.values()
    for p in parameters:
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            shown.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            shown.append(f"{p.name}=...")
    return ", ".join(shown + ["..."] * (len(shown) < len(parameters)))


def _fits(value: Any, annotation: Any) -> bool:
    """Return whether a value is of an annotated type. NumPy numbers are numbers; any iterable is a sequence."""
    if annotation is Any or annotation is inspect.Parameter.empty:
        return True
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, alternative) for alternative in inner)
    if annotation is None or annotation is type(None):
        return value is None
    if origin is Callable or annotation is Callable:
        return callable(value)
    if origin in (Sequence, list, tuple):
        is_listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return is_listed and (not isinstance(value, Sequence) or all(_fits(item, inner[0]) for item in value))
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(content, inner[1]) for key, content in value.items()
        )
    wider = {int: Integral, float: Real, Path: PathLike}.get(annotation, annotation)
    return isinstance(value, wider) or (annotation is bool and type(value).__name__ == "bool_")


def _named(annotation: Any) -> str:
    """Return how a message describes an annotated type."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        names = [_named(alternative) for alternative in inner if not (alternative is str and Path in inner)]
        names = list(dict.fromkeys(names))
        return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    if origin is Callable:
        return "a function"
    if origin in (Sequence, list, tuple):
        item = _named(inner[0])
        return "a list" if " or " in item else f"a list of {item.partition(' ')[2]}s"
    if origin in (Mapping, dict):
        return f"a dict from {_named(inner[0])} to {_named(inner[1])}"
    return _NAMES.get(annotation) or _with_article(annotation.__name__.replace("ndarray", "array"))


def _with_article(name: str) -> str:
    """Return a noun with "a" or "an"."""
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def _shown(value: Any) -> str:
    """Return a boolean, a number or None as text; for anything else, which may be a report, return only its type."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Mapping | list | tuple) and value:
        inside = [[*value.keys()], [*value.values()]] if isinstance(value, Mapping) else [value]
        names = [" or ".join(sorted({type(item).__name__ for item in items})) for items in inside]
        return f"a {type(value).__name__} {'from' if len(names) > 1 else 'of'} {' to '.join(names)}"
    return _with_article(type(value).__name__)
