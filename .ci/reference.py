"""An extension of griffe: the reference shows the docstrings and signatures that `help` shows.

griffe reads sources without running them, whereas the section on parameters is made from the declarations of options
when the package is imported, see `metric_oracle.base.declarations`.
"""

import inspect
import re
import typing
from typing import Any

import griffe

import metric_oracle as mo
from metric_oracle.base.declarations import alternatives, declarations, signature_of

# The public functions and classes, by where they are defined.
PUBLIC = {
    f"{source.__module__}.{source.__qualname__}": shown
    for shown in (getattr(mo, name) for name in mo.__all__)
    for source in [inspect.unwrap(shown)]
}


class Declared(griffe.Extension):
    """Takes docstrings and types of the public functions and classes from the imported package."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace docstring and types of a public function."""
        if func.path in PUBLIC:
            replace_docstring(func)
            signature = signature_of(PUBLIC[func.path])
            for parameter in func.parameters:
                if parameter.name in signature.parameters:  # `**sources` stand there one by one
                    parameter.annotation = plain(signature.parameters[parameter.name].annotation)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstring of a public class."""
        if cls.path in PUBLIC:
            replace_docstring(cls)


def replace_docstring(obj: griffe.Object) -> None:
    """Let a function or class have the docstring that `help` shows."""
    assert obj.docstring is not None
    obj.docstring.value = inspect.getdoc(PUBLIC[obj.path]) or ""
    declared = declarations(inspect.unwrap(PUBLIC[obj.path]))
    for section in obj.docstring.parsed:
        if section.kind is not griffe.DocstringSectionKind.parameters:
            continue
        for parameter in section.value:
            one = declared.get(parameter.name.lstrip("*"))
            literals = [] if one is None else [kind for kind in one.kinds if typing.get_origin(kind) is typing.Literal]
            if one is not None and literals:  # griffe would read "n-tuple" as a difference, the first as the default
                parameter.annotation = " or ".join(map(repr, typing.get_args(literals[0])))
                parameter.value = None if one.default is inspect.Parameter.empty else repr(one.default)


def plain(annotation: Any) -> str:
    """Return a type as a signature shows it: without ranges, texts and the modules of names."""
    kinds = [inspect.formatannotation(kind) for kind in alternatives(annotation)]
    joined = " | ".join("None" if kind == "NoneType" else kind for kind in kinds)
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", joined)
