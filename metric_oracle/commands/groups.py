"""Classes of Typer commands and groups: flags without a type in the help, and families imported when needed."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from metric_oracle.base.errors import called
from metric_oracle.commands import COMMANDS, listing


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
        flags = flags_of(self)
        with called(ctx.command_path.partition(" ")[2], homes=entry_homes(flags), flags=flags):
            return super().invoke(ctx)


def entry_homes(flags: Mapping[str, str]) -> dict[str, str]:
    """Return, of a command that reads reports, the options that an entry of oracle.toml has and it has not.

    The values are the forms in which messages show them; `flags` has the options of the command.
    """
    if "project" not in flags:
        return {}
    from metric_oracle.base.errors import OF_ENTRY
    from metric_oracle.commands.inputs import ENTRY
    from metric_oracle.sources.keywords import OF_ENCODER

    homes = dict.fromkeys(ENTRY.options, OF_ENTRY)
    homes |= dict.fromkeys(OF_ENCODER, "{} in [encoders.NAME] of oracle.toml")
    return {name: form for name, form in homes.items() if name not in flags}


def flags_of(command: Any) -> dict[str, str]:
    """Return, of a command of Typer, argument in Python -> option as messages show it."""
    flags: dict[str, str] = {}
    for parameter in command.params:
        if parameter.param_type_name == "option":
            flags |= {flag[2:].replace("-", "_"): flag for flag in parameter.opts if flag.startswith("--")}
            flags.setdefault(parameter.name, parameter.opts[0])
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
        with called(cmd_name):  # kernels, which are imported with the function, may refuse the settings of Numba
            app = import_module(f"metric_oracle.commands.{COMMANDS[cmd_name].family}").app
            made = [info for info in app.registered_commands if app.info.name == cmd_name or info.name == cmd_name]
            for info in made:
                info.callback = getattr(info.callback, "make", lambda callback=info.callback: callback)()
        if app.info.name == cmd_name:
            return typer.main.get_group(app)
        return typer.main.get_command_from_info(made[0], pretty_exceptions_short=False, rich_markup_mode="rich")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the list of commands without importing any family."""
        listing.show()
