"""How commands and groups of them show themselves, and when they are imported."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from metric_oracle.commands import COMMANDS, listing


class _WithoutTypes:
    """Shows flags without <bool>, those of Typer itself, too."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with nothing where the value of a flag would be."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = " "
        return found


class Command(_WithoutTypes, TyperCommand):
    """A command."""


class Group(_WithoutTypes, TyperGroup):
    """A command of commands."""


class Families(Group):
    """The commands of all families: a family is imported when one of its commands is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; for a name that is none all are imported, so that the nearest one can be told."""
        listed = [COMMANDS[cmd_name]] if cmd_name in COMMANDS else COMMANDS.values()
        for family in dict.fromkeys(one.family for one in listed):
            group = typer.main.get_group(import_module(f"metric_oracle.commands.{family}").app)
            self.commands.update({group.name: group} if group.name else group.commands)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the list of commands, none of which is imported for it."""
        listing.show()
