"""Classes of Typer commands and groups: flags without a type in the help, and families imported when needed."""

from copy import copy
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from metric_oracle.base.errors import errors_of
from metric_oracle.commands import listing, wording
from metric_oracle.commands.listing import COMMANDS


class _WithoutTypes:
    """Show flags without the type <bool> in the help, including those that Typer adds."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; those of flags have a blank instead of the name of a value."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = " "
        return parameters


class Command(_WithoutTypes, TyperCommand):
    """A command, which errors name as it was typed after "oracle", such as "build-index" or "survey create"."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        wording.current.flags = flags_of(self)
        with errors_of(ctx.command_path.partition(" ")[2]):
            return super().invoke(ctx)


def flags_of(command: Any) -> dict[str, str]:
    """Return, of a command of Typer, argument in Python -> option as messages show it, or the name of its value."""
    flags: dict[str, str] = {}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            off = "".join(f"/{flag}" for flag in parameter.secondary_opts)
            flags |= {flag[2:].replace("-", "_"): flag + off for flag in parameter.opts if flag.startswith("--")}
            flags.setdefault(parameter.name, parameter.opts[0])
        else:
            flags.setdefault(parameter.name, parameter.metavar)
    return flags


class Group(_WithoutTypes, TyperGroup):
    """A group of commands, such as `oracle baseline`."""


class Families(Group):
    """All commands; a family of commands is imported when one of its commands is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, made of its public function, which is imported for it; None if there is no such command."""
        if cmd_name not in COMMANDS:
            self.commands = dict.fromkeys(COMMANDS, Group())  # names among which Typer finds the nearest one
            return None
        return made(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the list of commands without importing any family."""
        listing.show()


@cache
def made(name: str) -> Any:
    """Return a command, or a group of commands, by the name of either; it is made once in a process."""
    family = import_module(f"metric_oracle.commands.{COMMANDS[name].module}").app
    if family.info.name == name:
        group = copy(family)
        group.registered_commands = [*map(_with_function, family.registered_commands)]
        return typer.main.get_group(group)
    info = _with_function(next(info for info in family.registered_commands if info.name == name))
    return typer.main.get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")


def _with_function(info: Any) -> Any:
    """Return what Typer knows of a command, with the function that is made of its declarations."""
    info = copy(info)
    info.callback = info.callback.make()
    return info
