"""An option or argument of a command, made from its declaration: how it is typed, and what the function gets."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer

from metric_oracle.base.argument_checks import check_path
from metric_oracle.base.declarations import OUTPUT, Declaration, alternatives
from metric_oracle.base.errors import InputError, shown
from metric_oracle.commands.wording import Wording
from metric_oracle.metrics import ALIASES, METRICS, get_metric
from metric_oracle.records import COMPOSITE

NAMED_FILE = "[NAME=]FILE"  # of options for files by name
METRIC = ("-m", "--metric", "--metrics")


class Option(NamedTuple):
    """An option or argument of a command, made from its declaration."""

    name: str  # as the command line calls its value
    declared: Declaration
    panel: str
    keys: tuple[str, ...] = ()  # argument of the function and the field of its object; empty for the body's own

    @property
    def is_index(self) -> bool:
        """Whether it is the folder of an index, which the help calls INDEX."""
        return (self.declared.flag.metavar or self.name.upper()) == "INDEX"

    def parameter(self, wording: Wording) -> inspect.Parameter:
        """Return the parameter that Typer reads; `wording` writes its help for the command line."""
        one, kind = self.declared, _kind(self.declared)
        usual = {int: "N", float: "X", bool: " ", Path: "FILE", list[Path]: "FILE"}.get(kind, "NAME")
        text = wording.text(one.said)
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

    def value(self, typed: Any) -> Any:
        """Return what was given in the form that the function takes."""
        kinds = self.declared.kinds
        if not isinstance(typed, list) or self.declared.flag.kind is not None:
            return typed
        if self.declared.flag.names == METRIC:
            return one_metric(typed) if kinds == (str,) else split_names(typed)
        mapped = next((get_args(kind)[1] for kind in kinds if get_origin(kind) is Mapping), None)
        if mapped is not None:
            return self._by_name(typed, mapped)
        if any(get_origin(kind) is Sequence and get_origin(get_args(kind)[0]) is tuple for kind in kinds):
            return named(typed, self.name, self.declared.flag.metavar, ",", repeatable=True)
        return split_names(typed) if _kind(self.declared) == list[str] else typed

    def _by_name(self, typed: Sequence[str], kind: Any) -> dict[str, Any]:
        """Return what was given as NAME=VALUE in a dict; with lists of values if `kind`, its type, allows them."""
        is_many = any(get_origin(one) is Sequence for one in alternatives(kind))
        form = self.declared.flag.metavar or "NAME=FILE"
        is_file = form == NAMED_FILE
        pairs = named_files(typed, self.name) if is_file else named(typed, self.name, form, repeatable=is_many)
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            values.setdefault(name, []).extend([value] if "FILE" in form else split_names([value]))
        if is_many:
            return values
        twice = [name for name, of_name in values.items() if is_file and len(of_name) > 1]
        if twice:
            raise InputError(f"two files have the name {shown(twice[0])}.", "Write NAME=FILE with another name.")
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


# Several values in one text: names of metrics, NAME=FILE and A,B


def split_names(texts: Sequence[str]) -> list[str]:
    """Return names that were given by repeating an option or separated by commas."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def one_metric(metrics: Sequence[str]) -> str:
    """Return the metric given with --metric, or the names of a sum joined by +.

    Raise InputError if there are several or none, or a name is not in the registry.
    """
    names = split_names(metrics)
    for part in [part for name in names for part in name.split("+")]:
        if part != COMPOSITE:
            get_metric(part)
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
                shown(text),
                "Write both parts, and quote the argument if it contains spaces.",
            )
        if not repeatable and name in dict(pairs):
            raise InputError(
                argument, "must have each name once", f"{shown(name)} twice", "Leave one out, or give it another name."
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
            raise InputError(argument, "must be FILE or NAME=FILE", shown(text), "Write both parts.")
        check_path(argument, path)
        pairs.append((name, path))
    return pairs


def complete_metric(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the completions of a metric's name, or of the last one after a comma, each with a description."""
    before, comma, begun = incomplete.rpartition(",")
    names = {alias: f"short for {name}" for alias, name in ALIASES.items()}
    names |= {name: record.citation for name, record in METRICS.items()}
    yield from ((before + comma + name, text) for name, text in names.items() if name.startswith(begun))
