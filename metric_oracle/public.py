"""The calls of public functions: arguments are compared with the annotations, and advice is given in Python's terms.

The messages of the package name options of the command line. For a caller in Python, ``--text-column NAME`` becomes
``text_column=NAME``.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.errors import ArgumentError, MetricOracleError

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
# What stays as it is; an option with what looks like its value; an option.
_OPTION = re.compile(
    r'(?P<command>"oracle [^"]*"|pip install [^;.]*|\b(?:retrieve|score|baseline expectation) --[a-z-]+)'
    r"|--model-(?P<reading>ids|metadata|section) [^ ,;]+"
    r"|--(?P<metric>metrics?) (?P<names>[a-z][\w:,-]*)"
    r"|--(?P<name>[a-z][a-z-]*)(?: (?P<value>[A-Z0-9][^ ,;]*[^ ,;.]|[A-Z]|\w+(?:\|\w+)+"
    r"|(?:findings\+)?impression|findings|corpus|ray)(?![\w+]))?"
)
_FLAGS = {
    **{name: f"{name}=True" for name in ("inner", "partial", "unequal", "after_impression")},
    **{"no_text": "text=False", "repeated": "repeated="},
}


def public(function: _Function) -> _Function:
    """Return a function that refuses calls which do not fit its signature, and gives advice in Python's terms."""
    name = function.__name__.removeprefix("run_")

    @wraps(function)
    def run(*args: Any, **given: Any) -> Any:
        _check(name, function, args, given)
        try:
            return function(*args, **given)
        except MetricOracleError as error:
            if error.args and isinstance(error.args[0], str):
                error.args = (_in_python(error.args[0], _known(function)), *error.args[1:])
            raise

    return run  # type: ignore[return-value]


def _check(name: str, function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> None:
    """Raise unless a call fits the signature of a function: names, places and types."""
    known = _known(function)
    unknown = next((one for one in given if one not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Its arguments are {', '.join(known)}."
        msg = f"{name}: there is no argument {unknown!r}. {hint}"
        raise ArgumentError(msg)
    step = f"The call is {name}({_call(function)})."
    try:
        bound = inspect.signature(function).bind(*args, **given)
    except TypeError as error:
        msg = f"{name}: {error}. {step}"
        raise ArgumentError(msg) from None
    for argument, value in bound.arguments.items():
        of_each = (
            value if inspect.signature(function).parameters[argument].kind is inspect.Parameter.VAR_KEYWORD else None
        )
        for one, content in (of_each or {argument: value}).items():
            kind = known.get(one, Any)
            if not _fits(content, kind):
                msg = f"{name}: {one} must be {_named(kind)}; got {_shown(content)}. {step}"
                raise ArgumentError(msg)


@cache
def _known(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the annotation of each argument of a function, those of its keywords included."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = parameter.annotation
        else:
            keywords = typing.get_type_hints(typing.get_args(parameter.annotation)[0])
            found |= {key: kind | None for key, kind in keywords.items()}
    return found


def _call(function: Callable[..., Any]) -> str:
    """Return the arguments of a function that have a place or must be given, and dots for the others."""
    shown, parameters = [], inspect.signature(function).parameters.values()
    for p in parameters:
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            shown.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            shown.append(f"{p.name}=...")
    return ", ".join(shown + ["..."] * (len(shown) < len(parameters)))


def _fits(value: Any, kind: Any) -> bool:
    """Tell whether a value is of an annotated type; numbers of NumPy are numbers, and any iterable is a sequence."""
    if kind is Any or kind is inspect.Parameter.empty:
        return True
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, one) for one in inner)
    if kind is None or kind is type(None):
        return value is None
    if origin is Callable or kind is Callable:
        return callable(value)
    if origin in (Sequence, list, tuple):
        is_listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return is_listed and (not isinstance(value, Sequence) or all(_fits(one, inner[0]) for one in value))
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(
            _fits(one, key) and _fits(other, content) for key, content in [inner] for one, other in value.items()
        )
    alike = {int: Integral, float: Real, Path: PathLike}.get(kind, kind)
    return isinstance(value, alike) or (kind is bool and type(value).__name__ == "bool_")


def _named(kind: Any) -> str:
    """Return what an annotated type is called in a message."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        names = [_named(one) for one in inner if not (one is str and Path in inner)]
        names = list(dict.fromkeys(names))
        return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    if origin is Callable:
        return "a function"
    if origin in (Sequence, list, tuple):
        one = _named(inner[0])
        return "a list" if " or " in one else f"a list of {one.partition(' ')[2]}s"
    if origin in (Mapping, dict):
        return f"a dict from {_named(inner[0])} to {_named(inner[1])}"
    return _NAMES.get(kind) or _with_article(kind.__name__.replace("ndarray", "array"))


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


def _shown(value: Any) -> str:
    """Return a truth value, a number or None as it is; of anything else, which may be a report, the type."""
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, Mapping | list | tuple) and value:
        inside = [[*value.keys()], [*value.values()]] if isinstance(value, Mapping) else [value]
        of_each = [" or ".join(sorted({type(one).__name__ for one in some})) for some in inside]
        return f"a {type(value).__name__} {'from' if len(of_each) > 1 else 'of'} {' to '.join(of_each)}"
    return _with_article(type(value).__name__)


def _in_python(message: str, known: Mapping[str, Any]) -> str:
    """Return a message with options of the command line as arguments of a function."""

    def written(found: re.Match[str]) -> str:
        if found["command"]:
            return found[0]
        if found["reading"]:
            return f'reading={{"{found["reading"]}": ...}} of its Model'
        name = (found["metric"] or found["name"]).replace("-", "_")
        near = [name, f"{name}s", name.removeprefix("predicted_"), name.removeprefix("model_")]
        name = next((one for one in near if one in known), name)
        value = found["names"] or found["value"]
        return f"{name}={value}" if value else _FLAGS.get(name, name)

    return _OPTION.sub(written, message)
