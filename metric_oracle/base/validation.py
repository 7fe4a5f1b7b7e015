"""The door of public functions: it checks the arguments of a call by their annotations, and names itself in errors.

An annotation says the type, the range (annotated-types), the choices (`Literal`) and, in a text after a range, the next
step of the message. pydantic, beartype and typeguard were measured for this (2026-11-28, a signature of ten arguments,
Zen 4): they add 70 to 140 ms to the first import. pydantic shows the values, which may be reports, in its messages, and
refuses NumPy's numbers or converts texts to numbers; beartype and typeguard look at one item of a list and know no
range. With each of them the names of types, the ranges and the messages below would remain.
"""

import inspect
import re
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from annotated_types import BaseMetadata, Ge, GroupedMetadata, Gt, Le, Lt, MultipleOf, Unit

from metric_oracle.base.argument_checks import REPORTS, check_in_range, check_one_of, check_path, range_of
from metric_oracle.base.declarations import alternatives, bare, documented, signature_of
from metric_oracle.base.errors import (
    ArgumentError,
    MetricOracleError,
    errors_of,
    kind_of,
    shown,
    with_article,
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_is_inside: ContextVar[bool] = ContextVar("_is_inside", default=False)  # of a public function
_NAMES = {
    bool: "True or False",
    int: "an int",
    float: "a number",
    str: "a string",
    Path: "a path",
    type(None): "None",
    Any: "anything",
}
_BOUNDS = {Ge: "ge", Gt: "gt", Le: "le", Lt: "lt", MultipleOf: "multiple_of", Unit: "unit"}  # those of `check_in_range`
# Arguments of other calls, with the class that has them (None for sources of reports) and the form of such a call:
# "options=mo.SearchOptions({})".
_elsewhere: dict[str, list[tuple[type | None, str]]] = {}


def say_elsewhere(arguments: Iterable[str], call: str, owner: type | None = None) -> None:
    """Let a function that lacks one of the arguments say which call takes it, if it takes reports or an `owner`."""
    for name in arguments:
        _elsewhere.setdefault(name, []).append((owner, call))


def public(function: _Function) -> _Function:
    """Return a function or method for users: it checks its arguments, and its errors begin with its name.

    Nothing is checked in a call from inside of another public function, whose name the errors have.
    """
    is_method = "." in function.__qualname__

    @wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        """Check the arguments and call the function."""
        if _is_inside.get():
            return function(*args, **keywords)
        name, own = function.__name__, args[:is_method]
        if own:
            kind = own[0] if isinstance(own[0], type) else type(own[0])
            name = f"{kind.__name__}.{name}"
        token = _is_inside.set(True)
        try:
            with errors_of(name):
                args, keywords = check_call(name, function, args[is_method:], keywords)
                return function(*own, *args, **keywords)
        except MetricOracleError as error:
            if "read" in _known(function):
                _advise_read_alone(error)
            raise
        finally:
            _is_inside.reset(token)

    if not is_method:
        run.__doc__ = documented(function)
        signature = signature_of(function)
        parameters = [p.replace(annotation=bare(p.annotation)) for p in signature.parameters.values()]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _advise_read_alone(error: MetricOracleError) -> None:
    """Let an error of a function that takes `mo.Read` itself advise it without `mo.reports` around it."""
    for part in ("sentence", "rule", "step"):
        text = re.sub(r"`mo\.reports\([^`]*?(mo\.Read\([^`]*\))\)`", r"`\1`", getattr(error, part))
        setattr(error, part, text)


class _CheckedClass(type):
    """The class of `Checked`: a call of it is checked, other than the copies and pickled objects that Python makes."""

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        if not _is_inside.get():
            with errors_of(cls.__name__):
                args, keywords = check_call(cls.__name__, cls, args, keywords)
        return super().__call__(*args, **keywords)

    @property
    def __signature__(cls) -> inspect.Signature:
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        return signature.replace(parameters=[*signature.parameters.values()][1:])


class Checked(metaclass=_CheckedClass):
    """Base of a dataclass that users make: its constructor checks its arguments as a public function does.

    `call` is how a call of another function gives an option, such as "options=mo.SearchOptions({})".
    """

    def __init_subclass__(cls, call: str = "") -> None:
        cls.__doc__ = documented(cls)
        if call:
            say_elsewhere(cls.__annotations__, call, cls)


def check_call(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call of `name`, with lists in place of iterators, which can be read only once.

    Raise ArgumentError unless the call fits the signature: names, positions, types of arguments. Raise InputError for a
    value out of its range or choices, and for a text in the place of a path.
    """
    known, signature = _known(function), signature_of(function)
    args = tuple(map(_listed, args, [*known.values(), *[Any] * len(args)]))
    keywords = {key: _listed(value, known.get(key, Any)) for key, value in keywords.items()}
    takes_any = any(p.kind is p.VAR_KEYWORD and p.name not in known for p in signature.parameters.values())
    unknown = None if takes_any else next((keyword for keyword in keywords if keyword not in known), None)
    if unknown is not None:
        similar = get_close_matches(unknown, known, n=1)
        step = f"Did you mean {similar[0]!r}?" if similar else f"Its arguments are {', '.join(known)}."
        name_there = unknown.removeprefix("predicted_")
        kinds = {kind for annotation in known.values() for kind in alternatives(annotation)}
        takes_reports = not known.keys().isdisjoint(REPORTS)
        for owner, form in _elsewhere.get(name_there, ()):
            if owner in kinds or (form.startswith("mo.reports") and takes_reports):
                step = f"Write `{form.format(f'{name_there}=...')}`."
        raise ArgumentError(f"there is no argument {shown(unknown)}.", step)
    step = f"The call is {name}({_call(function)})."
    try:
        bound = signature.bind(*args, **keywords)
    except TypeError as error:
        raise ArgumentError(f"{error}.", step) from None
    checked: dict[str, tuple[Any, Any]] = {}
    for argument, value in bound.arguments.items():
        if signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD:
            other = signature.parameters[argument].annotation
            checked |= {key: (content, known.get(key, other)) for key, content in value.items()}
        else:
            checked[argument] = value, known[argument]
    for argument, (value, annotation) in checked.items():
        if not _fits(value, annotation):
            raise ArgumentError(argument, f"must be {name_of_type(annotation)}", kind_of(value), step)
    for argument, (value, annotation) in checked.items():
        check_declared(argument, value, annotation)
    for argument, (value, annotation) in checked.items():
        for path in _paths(value, annotation):
            check_path(argument, path, is_new=argument in ("out", "path"))
    return args, keywords


def check_declared(argument: str, value: Any, annotation: Any) -> None:
    """Raise InputError unless a value of an annotated type is within its range and among its choices."""
    if value is None:
        return
    inner, *metadata = typing.get_args(annotation) if _is_annotated(annotation) else (annotation,)
    steps = [item for item in metadata if isinstance(item, str)]
    step: dict[str, Any] = {"step": steps[0]} if steps else {}  # without one, the checks below have their own
    if typing.get_origin(inner) in (types.UnionType, typing.Union):
        for part in typing.get_args(inner):
            if _fits(value, part):
                check_declared(argument, value, part)
    elif typing.get_origin(inner) is typing.Literal:
        check_one_of(argument, value, typing.get_args(inner), **step)
    elif inner in (int, float) and metadata:
        check_in_range(argument, value, kind=inner, **step, **_bounds(metadata))


def _bounds(metadata: Iterable[Any]) -> dict[str, Any]:
    """Return the range that the metadata of an annotated number states, as arguments of `check_in_range`.

    Raise KeyError for a bound of annotated-types that it does not know.
    """
    bounds = {}
    for item in metadata:
        for one in item if isinstance(item, GroupedMetadata) else [item]:
            if isinstance(one, BaseMetadata):
                bounds[_BOUNDS[type(one)]] = getattr(one, _BOUNDS[type(one)])
    return bounds


def _is_annotated(annotation: Any) -> bool:
    """Return whether something is said of a type."""
    return typing.get_origin(annotation) is typing.Annotated


def _listed(value: Any, annotation: Any) -> Any:
    """Return the list of an iterator that is given for several values. What may be anything is left as it is."""
    kinds = map(typing.get_origin, alternatives(annotation))
    return [*value] if isinstance(value, Iterator) and not {Sequence, Iterable, list}.isdisjoint(kinds) else value


def _paths(value: Any, annotation: Any) -> Iterator[str]:
    """Yield each text in a value that stands where the annotation allows a path."""
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
    if _is_annotated(annotation):
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


def name_of_type(annotation: Any) -> str:
    """Return how a message describes an annotated type, such as "a list of strings or None"."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_annotated(annotation):
        bounds = _bounds(inner[1:]) if inner[0] in (int, float) else {}
        return f"{name_of_type(inner[0])}{range_of(**bounds)}"
    if origin in (types.UnionType, typing.Union):
        names = [name_of_type(alternative) for alternative in inner if not (alternative is str and Path in inner)]
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
        item = name_of_type(inner[0])
        return "a list" if inner[0] is Any or " or " in item else f"a list of {item.partition(' ')[2]}s"
    if origin in (Mapping, dict):
        return f"a dict from {name_of_type(inner[0])} to {name_of_type(inner[1])}"
    if origin is typing.Literal:
        return name_of_type(type(inner[0]))
    annotation = origin or annotation
    return _NAMES.get(annotation) or with_article(annotation.__name__.replace("ndarray", "array"))
