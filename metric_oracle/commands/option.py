"""An option or argument of a command, made from its declaration: how it is typed, and what the function gets."""

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer

from metric_oracle.base.declared import OUTPUT, Declaration, alternatives
from metric_oracle.base.errors import TOOLS, InputError
from metric_oracle.commands.values import (
    METRIC,
    complete_metric,
    named,
    named_files,
    one_metric,
    split_names,
)

# The forms of reports on the command line.
_FORMS = (
    "as a table with ids and texts (CSV, TSV, Parquet, JSON, JSON Lines or Excel), the folder or zip file of MIMIC-CXR "
    "or a folder that oracle build-index wrote"
)

NAMED_FILE = "[NAME=]FILE"  # of options for files by name


class Option(NamedTuple):
    """An option or argument of a command, made from its declaration."""

    name: str  # as the command line calls its value
    declared: Declaration
    panel: str
    keys: tuple[str, ...] = ()  # argument of the function and the field of its object; empty for the body's own

    def parameter(self, names: Mapping[str, str]) -> inspect.Parameter:
        """Return the parameter that Typer reads; `names` has the options as they are typed, by argument."""
        one, kind = self.declared, _kind(self.declared)
        usual = {int: "N", float: "X", bool: " ", Path: "FILE", list[Path]: "FILE"}.get(kind, "NAME")
        text = in_words_of(one.said, names)
        if not self.is_argument and get_origin(kind) is list and one.kinds != (str,):
            text += " Repeatable."
        if self.is_argument and one.flag.metavar == NAMED_FILE:
            text += " By default NAME is that of the file without its ending."
        settings: dict[str, Any] = {"help": text, "metavar": one.flag.metavar or usual}
        if self.is_argument:
            settings["metavar"] = one.flag.metavar or self.name.upper()
            info = typer.Argument(**settings)
        else:
            if kind is bool:
                settings["show_default"] = "/" in self.flags[0]
            if one.flag.names == METRIC:
                settings["autocompletion"] = complete_metric
            info = typer.Option(*self.flags, rich_help_panel=self.panel, **settings)
        is_needed = one.default is inspect.Parameter.empty
        default = one.default if is_needed or one.default not in ((), "") else None
        if kind == list[str] and isinstance(default, str):
            default = (default,)
        annotation: Any = Annotated[kind if is_needed or default is not None else kind | None, info]
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    @property
    def is_argument(self) -> bool:
        """Whether the value is typed without the name of an option."""
        return self.declared.is_positional and not self.declared.flag.names

    @property
    def typed(self) -> str:
        """The option or argument as a text of the help names it, such as -k or QUERIES."""
        if self.is_argument:
            return self.declared.flag.metavar or self.name.upper()
        return self.flags[0] if len(self.name) == 1 else next(flag for flag in self.flags if flag.startswith("--"))

    @property
    def is_output(self) -> bool:
        """Whether a path given for it is written."""
        return self.panel == OUTPUT

    @property
    def flags(self) -> tuple[str, ...]:
        """The names of the option as they are typed."""
        return self.declared.flag.names or (f"--{self.name.replace('_', '-')}",)

    def value(self, given: Any) -> Any:
        """Return what was given in the form that the function takes."""
        kinds = self.declared.kinds
        if not isinstance(given, list) or self.declared.flag.kind is not None:
            return given
        if self.declared.flag.names == METRIC:
            return one_metric(given) if kinds == (str,) else split_names(given)
        mapped = next((get_args(kind)[1] for kind in kinds if get_origin(kind) is Mapping), None)
        if mapped is not None:
            return self._by_name(given, mapped)
        if any(get_origin(kind) is Sequence and get_origin(get_args(kind)[0]) is tuple for kind in kinds):
            return named(given, self.name, self.declared.flag.metavar, ",", repeatable=True)
        return split_names(given) if _kind(self.declared) == list[str] else given

    def _by_name(self, given: Sequence[str], kind: Any) -> dict[str, Any]:
        """Return what was given as NAME=VALUE in a dict; with lists of values if `kind`, its type, allows them."""
        is_many = any(get_origin(one) is Sequence for one in alternatives(kind))
        form = self.declared.flag.metavar or "NAME=FILE"
        is_file = form == NAMED_FILE
        pairs = named_files(given, self.name) if is_file else named(given, self.name, form, repeatable=is_many)
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).extend([value] if "FILE" in form else split_names([value]))
        if is_many:
            return values
        twice = [name for name, of_name in values.items() if is_file and len(of_name) > 1]
        if twice:
            raise InputError(f"two files have the name {twice[0]!r}.", "Write NAME=FILE with another name.")
        return dict(pairs)


def _kind(one: Declaration) -> Any:
    """Return the type that Typer reads for an option."""
    kinds = {get_origin(kind) or kind: kind for kind in one.kinds}
    if one.flag.kind is not None:
        return one.flag.kind
    if one.flag.names == METRIC or Mapping in kinds:
        return list[str]
    if Path in kinds or not kinds.keys() - {Any}:
        return Path
    for plain in (Literal, bool, int, float):
        if plain in kinds:
            return kinds[plain]
    if Sequence in kinds:
        return list[Path] if Path in alternatives(get_args(kinds[Sequence])[0]) else list[str]
    return str


def in_words_of(text: str, names: Mapping[str, str]) -> str:
    """Return a text of a declaration for the command line: arguments as they are typed, functions as commands."""
    text = text.replace("in any form that [`reports`][metric_oracle.reports] takes", _FORMS)
    commands = {function: command for command, function in TOOLS.items()}
    text = re.sub(
        r"\[`(\w+)`\]\[metric_oracle\.\w+\]",
        lambda found: f"oracle {commands.get(found[1], found[1].replace('_', '-'))}",
        text,
    )
    text = re.sub(r'``"?(.*?)"?``', r"\1", text)
    return re.sub(r"`(\w+)`", lambda found: names.get(found[1], f"--{found[1].replace('_', '-')}"), text)
