"""The wrapper of public functions, methods and constructors: it checks the types of arguments and names the call."""

import inspect
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from metric_oracle.base.argument_checks import check_declared, check_path
from metric_oracle.base.declarations import OBJECTS, alternatives, bare, documented, signature_of
from metric_oracle.base.errors import ArgumentError, called, is_under_way, kind_of, shown, with_article

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
    """Return a public function that checks the types of its arguments and whose errors begin with `name`.

    `homes` has, for advice in messages, the arguments that belong to another public function and the form of that call,
    such as ``"mo.reports(..., {})"``.
    """
    for annotation in (*_known(function).values(), signature_of(function).return_annotation):
        guard(annotation)

    @wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        """Check the arguments and call the function."""
        args, keywords = _listed(function, args, keywords)
        with called(name, tuple(_known(function)), homes):
            _check(name, function, args, keywords, homes)
            return function(*args, **keywords)

    run.__module__, run.__qualname__ = "metric_oracle", name  # where another process finds it
    run.__doc__ = documented(function)
    signature = signature_of(function)
    shown = [p.replace(annotation=bare(p.annotation)) for p in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def guard(annotation: Any) -> None:
    """Let the classes of this package that an annotation names check their methods' arguments, as functions do.

    What a public function takes or returns is public. Dataclasses check the arguments of their constructor too. Inside
    a public function or a command nothing is checked again.
    """
    for inner in typing.get_args(annotation):
        guard(inner)
    if not isinstance(annotation, type) or issubclass(annotation, Exception):
        return
    if is_dataclass(annotation) and "_is_guarded" not in vars(annotation):
        annotation.__doc__ = documented(annotation)
    for kind in annotation.__mro__:
        if not kind.__module__.startswith("metric_oracle.") or "_is_guarded" in vars(kind) or issubclass(kind, tuple):
            continue
        for name, method in [*vars(kind).items()]:
            function = getattr(method, "__func__", method)
            is_made = name == "__init__" and is_dataclass(kind)
            if isinstance(function, types.FunctionType) and (is_made or not name.startswith("_")):
                checked = _guarded(function, is_made)
                setattr(kind, name, classmethod(checked) if isinstance(method, classmethod) else checked)
        kind._is_guarded = True


def _guarded(method: Callable[..., Any], is_made: bool) -> Callable[..., Any]:
    """Return a method that checks its arguments, if a user calls it; `is_made` for a constructor."""

    @wraps(method)
    def run(self: Any, *args: Any, **keywords: Any) -> Any:
        """Check the arguments and call the method."""
        if is_under_way():
            return method(self, *args, **keywords)
        kind = self if isinstance(self, type) else type(self)
        name = kind.__name__ if is_made else f"{kind.__name__}.{method.__name__}"
        args, keywords = _listed(method, args, keywords)
        with called(name, tuple(_known(method))):
            _check(name, method, args, keywords, {})
        with called("", tuple(_known(method))):
            return method(self, *args, **keywords)

    return run


def _check(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], homes: Mapping[str, str]
) -> None:
    """Raise ArgumentError unless a call of `name` fits the function's signature: names, positions, types of arguments.

    Raise InputError for a value out of its declared range or choices, and for a text in the place of a path. `homes` is
    that of `public`.
    """
    known, signature = _known(function), signature_of(function)
    takes_any = any(p.kind is p.VAR_KEYWORD and p.name not in known for p in signature.parameters.values())
    unknown = None if takes_any else next((keyword for keyword in keywords if keyword not in known), None)
    if unknown is not None:
        similar = get_close_matches(unknown, known, n=1)
        step = f"Did you mean {similar[0]!r}?" if similar else f"Its arguments are {', '.join(known)}."
        counterpart = unknown.removeprefix("predicted_")
        if counterpart in homes:
            step = f"Write {homes[counterpart].format(f'{counterpart}=...')}."
        raise ArgumentError(f"there is no argument {shown(unknown)}.", step)
    step = f"The call is {name}({_call(function)})."
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        raise ArgumentError(f"{error}.", step) from None
    checked: dict[str, tuple[Any, Any]] = {}
    for argument, value in bound.arguments.items():
        values, kinds, other = {argument: value}, known, Any
        if signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD:
            values, other = value, signature.parameters[argument].annotation
        elif argument in OBJECTS and is_dataclass(value) and not isinstance(value, type):
            fields = typing.get_type_hints(type(value), include_extras=True)
            kinds = {f"{argument}.{field}": kind for field, kind in fields.items()}
            values = {key: getattr(value, key.partition(".")[2]) for key in kinds}
        checked |= {key: (content, kinds.get(key, other)) for key, content in values.items()}
    for key, (content, kind) in checked.items():
        if not _fits(content, kind):
            raise ArgumentError(key, f"must be {_named(kind)}", kind_of(content), step)
    for key, (content, kind) in checked.items():
        check_declared(key.rpartition(".")[2], content, kind)
    for key, (content, kind) in checked.items():
        is_new = key == "out" or name.rpartition(".")[2].startswith(("write", "plot"))
        for path in _paths(content, kind):
            check_path(key, path, is_new=is_new)


def _listed(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, with a list in place of an iterator, which can be read only once.

    What may be anything is left as it is: the function says how it reads it.
    """
    known = _known(function)

    def listed(name: str, value: Any) -> Any:
        """Return the list of an iterator that is given for several values."""
        kinds = map(typing.get_origin, alternatives(known.get(name, Any)))
        return [*value] if isinstance(value, Iterator) and not {Sequence, Iterable}.isdisjoint(kinds) else value

    names = [*known, *[""] * len(args)]
    return tuple(map(listed, names, args)), {name: listed(name, value) for name, value in keywords.items()}


def _paths(value: Any, annotation: Any) -> Iterator[str]:
    """Yield the strings in a value that are given where a path can be."""
    kinds = [*alternatives(annotation)]
    if isinstance(value, str | Path):
        if Any in kinds or Path in kinds:
            yield str(value)
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
    """Return the annotation of each argument of a function, without that of its ``**`` parameter."""
    annotations: dict[str, Any] = {}
    for name, parameter in signature_of(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            annotations[name] = parameter.annotation
    return annotations


def _call(function: Callable[..., Any]) -> str:
    """Return the arguments of a function as a message shows them, such as "index, queries, metric, ...".

    These are the positional and the required ones, of optional ones at most five; dots stand for the others.
    """
    listed, parameters = [], [*signature_of(function).parameters.values()]
    few = sum(p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) <= 5
    for p in parameters:
        if p.kind is p.POSITIONAL_OR_KEYWORD and (few or p.default is p.empty):
            listed.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            listed.append(f"{p.name}=...")
    return ", ".join(listed + ["..."] * (len(listed) < len(parameters)))


def _fits(value: Any, annotation: Any) -> bool:
    """Return whether a value is of an annotated type. NumPy numbers are numbers, and iterables but texts sequences."""
    if annotation is Any or annotation is inspect.Parameter.empty:
        return True
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _fits(value, inner[0])
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, alternative) for alternative in inner)
    if annotation is None or annotation is type(None):
        return value is None
    if origin is Callable or annotation is Callable:
        return callable(value) and _takes(value, inner[0] if inner else ...)
    if origin is tuple and inner[-1] is not ...:
        return isinstance(value, list | tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin in (Sequence, Iterable, Container, list, tuple):
        is_listed = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        return is_listed and (not isinstance(value, Sequence) or all(_fits(item, inner[0]) for item in value))
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(content, inner[1]) for key, content in value.items()
        )
    if origin is typing.Literal:  # which text it is, `check_declared` looks at
        return isinstance(value, type(inner[0]))
    wider = {int: Integral, float: Real, Path: PathLike}.get(annotation, origin or annotation)
    return (
        not isinstance(wider, type)
        or isinstance(value, wider)
        or (annotation is bool and type(value).__name__ == "bool_")
    )


def _takes(function: Callable[..., Any], kinds: Any) -> bool:
    """Return whether a function can be called with as many arguments as `kinds` has; any can if that is no list."""
    if not isinstance(kinds, list):
        return True
    try:
        inspect.signature(function).bind(*kinds)
    except TypeError:
        return False
    except ValueError:  # a function of C without a signature
        return True
    return True


def _named(annotation: Any) -> str:
    """Return how a message describes an annotated type, such as "a list of strings or None"."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _named(inner[0])
    if origin in (types.UnionType, typing.Union):
        names = [_named(alternative) for alternative in inner if not (alternative is str and Path in inner)]
        names = list(dict.fromkeys(names))
        return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    if origin is Callable:
        kinds = inner[0] if inner else ...
        return (
            f"a function of {len(kinds)} argument{'s' * (len(kinds) > 1)}" if isinstance(kinds, list) else "a function"
        )
    if origin is tuple and inner[-1] is not ...:
        return "a pair" if len(inner) == 2 else f"{len(inner)} values"
    if origin in (Sequence, Iterable, Container, list, tuple):
        item = _named(inner[0])
        return "a list" if inner[0] is Any or " or " in item else f"a list of {item.partition(' ')[2]}s"
    if origin in (Mapping, dict):
        return f"a dict from {_named(inner[0])} to {_named(inner[1])}"
    if origin is typing.Literal:
        return _named(type(inner[0]))
    annotation = origin or annotation
    return _NAMES.get(annotation) or with_article(annotation.__name__.replace("ndarray", "array"))
