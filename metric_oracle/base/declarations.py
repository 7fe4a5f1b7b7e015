"""Declarations of options: each stands once, at the parameter of a public function or the field of an options object.

The command line, the checks of both doors, the help of Python and the reference pages are made from that declaration:

    k: Annotated[Positive, Doc("Number of best reports to return for each test report."), Flag("-k", "--top-k")] = 1

In a text, other arguments stand in backticks with their names in Python, which the command line shows as its options;
``{}`` stands for the choices. A parameter without a text is declared elsewhere, or no user gives it.
"""

import functools
import inspect
import operator
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from annotated_doc import Doc

# Panels of the help, in its order.
OUTPUT, SEARCH, ROWS = "Options", "Metric and search", "Rows, intervals and tests"
PREDICTED, FILES, BERTSCORE, READING = "The predictions", "Files and models", "BERTScore", "How to read the reports"
PRINTED = "The table for a paper"
PANELS = (OUTPUT, PRINTED, SEARCH, ROWS, PREDICTED, FILES, BERTSCORE, READING)
OBJECTS = (
    "options",
    "selection",
    "read",
    "layout",
)  # parameters whose value is an object, each field of it an option


class Flag:
    """How the command line shows an option: what its name and its type in Python do not say."""

    def __init__(self, *names: str, metavar: str = "", panel: str = "", kind: Any = None) -> None:
        self.names = names  # such as "-k", "--top-k"; empty for "--" and the name in Python
        self.metavar = metavar  # name of the value, such as "COLUMN"; empty for the usual one of the type
        self.panel = panel  # heading under which the help lists it; empty for that of the command
        self.kind = kind  # type of the value on the command line; None for the usual one of the type in Python


IN_PYTHON: Final = Flag("")  # of a parameter that the command line does not have


class Uses:
    """The fields that a function uses of an options object."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields


class Declaration(NamedTuple):
    """An option as it was declared."""

    name: str
    annotation: Any  # its type with ranges and choices
    default: Any  # `inspect.Parameter.empty` if it must be given
    text: str
    flag: Flag
    uses: tuple[str, ...]  # of an options object: the fields that the function uses, all if empty
    is_positional: bool

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that a value may have, without ranges and without None."""
        return tuple(kind for kind in alternatives(self.annotation) if kind is not type(None))

    @property
    def object(self) -> Any:
        """The class of an options object."""
        return next(kind for kind in self.kinds if is_dataclass(kind))

    @property
    def said(self) -> str:
        """The text, with the choices."""
        literals = [kind for kind in self.kinds if typing.get_origin(kind) is typing.Literal]
        return self.text.replace("{}", listed(map(str, typing.get_args(literals[0])))) if literals else self.text


@cache
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, or of a method without `self` or `cls`, with its annotations as types.

    Keywords that a TypedDict lists, as in ``**sources: Unpack[Sources]``, are parameters of their own.
    """
    function = inspect.unwrap(function)  # a public function shows its annotations without what is said of them
    signature = inspect.signature(function)
    hints = (
        typing.get_type_hints(function, include_extras=True)
        if any(isinstance(p.annotation, str) for p in signature.parameters.values())
        else {}
    )
    parameters = [p.replace(annotation=hints.get(p.name, p.annotation)) for p in signature.parameters.values()]
    is_method = parameters[:1] and parameters[0].name in ("self", "cls")
    last = parameters[-1] if parameters else None
    if last is not None and typing.get_origin(last.annotation) is typing.Unpack:
        keywords = typing.get_type_hints(typing.get_args(last.annotation)[0], include_extras=True)
        of_keywords = (
            last.replace(name=name, kind=last.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in keywords.items()
        )
        parameters = [*parameters[:-1], *of_keywords]
    return signature.replace(parameters=parameters[1:] if is_method else parameters)


@cache
def declarations(declarer: Callable[..., Any]) -> dict[str, Declaration]:
    """Return the declaration of each parameter of a function, or of each field of a dataclass or TypedDict, by name."""
    if isinstance(declarer, type):
        absent = None if typing.is_typeddict(declarer) else inspect.Parameter.empty
        hints = typing.get_type_hints(declarer, include_extras=True)
        return {name: declaration(name, hint, vars(declarer).get(name, absent)) for name, hint in hints.items()}
    return {
        p.name: declaration(p.name, p.annotation, p.default, is_positional=p.kind is not p.KEYWORD_ONLY)
        for p in signature_of(declarer).parameters.values()
    }


def declaration(name: str, annotation: Any, default: Any, *, is_positional: bool = False) -> Declaration:
    """Return the declaration that an annotation makes."""
    said = [*_metadata(annotation)]
    text = next((item.documentation for item in said if isinstance(item, Doc)), "")
    flag = next((item for item in said if isinstance(item, Flag)), Flag())
    uses = next((item.fields for item in said if isinstance(item, Uses)), ())
    return Declaration(name, annotation, default, text, flag, uses, is_positional)


def _metadata(annotation: Any) -> Iterator[Any]:
    """Yield what is said of a type, the outermost first, and after it what is said of its alternatives."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *said = typing.get_args(annotation)
        yield from reversed(said)
        yield from _metadata(inner)
    elif typing.get_origin(annotation) in (types.UnionType, typing.Union):
        for part in typing.get_args(annotation):
            yield from _metadata(part)


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, or the type itself, each without what is said of it."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from alternatives(inner[0])
    elif origin in (types.UnionType, typing.Union):
        for part in inner:
            yield from alternatives(part)
    else:
        yield annotation


def bare(annotation: Any) -> Any:
    """Return a type without what is said of it, as a signature shows it."""
    return functools.reduce(operator.or_, alternatives(annotation))


def listed(values: Iterable[str], last: str = "or") -> str:
    """Return values as a list in a sentence: ``a, b or c``."""
    *first, end = values
    return f"{', '.join(first)} {last} {end}" if first else end


def documented(declarer: Callable[..., Any]) -> str:
    """Return the docstring of a public function or options class, with a section on its declared parameters."""
    text = inspect.cleandoc(declarer.__doc__ or "")
    lines = []
    for one in declarations(declarer).values():
        if one.text:
            said = textwrap.fill(one.said, 116, initial_indent="    ", subsequent_indent="    ", break_long_words=False)
            lines += [f"{one.name} : {_described(one)}", said]
    if not lines or "Parameters\n----" in text:
        return text
    section = "\n".join(["Parameters", "----------", *lines])
    head, mark, rest = _before_sections(text)
    return f"{head}\n\n{section}{mark}{rest}"


def introduction(declarer: Callable[..., Any]) -> str:
    """Return what the docstring of a function says before its first section."""
    return _before_sections(inspect.cleandoc(declarer.__doc__ or ""))[0]


def _before_sections(text: str) -> tuple[str, str, str]:
    """Return a docstring in three parts: what stands before its first section, what divides them, and the sections."""
    lines = text.split("\n")
    for number, line in enumerate(lines[1:]):
        if line and set(line) == {"-"}:
            return "\n".join(lines[:number]).rstrip(), "\n\n", "\n".join(lines[number:])
    return text, "", ""


def _described(one: Declaration) -> str:
    """Return the type of a parameter as numpydoc writes it, such as ``int, default 1``."""
    names = dict.fromkeys(_name(kind) for kind in one.kinds if not (kind is str and Path in one.kinds))
    described = " or ".join(names)
    if one.default is inspect.Parameter.empty:
        return described
    return f"{described}, optional" if one.default in (None, ()) else f"{described}, default {one.default!r}"


def _name(kind: Any) -> str:
    """Return the name of a type in a docstring."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"{{{', '.join(map(repr, inner))}}}"
    if origin is tuple and inner[-1] is not ...:
        return f"({', '.join(map(_name_within, inner))})"
    if origin in (Sequence, Iterable, list, tuple):
        return f"sequence of {_name_within(inner[0])}"
    if origin in (Mapping, dict):
        return f"dict of {' to '.join(map(_name_within, inner))}"
    if kind is Any:
        return "object"
    plain = origin or kind
    return {Path: "path", Callable: "function"}.get(plain) or str(getattr(plain, "__name__", plain))


def _name_within(annotation: Any) -> str:
    """Return the name of what a sequence or a dict has: of several types that of paths, or else the first."""
    kinds = [*alternatives(annotation)]
    return _name(Path if Path in kinds else kinds[0])
