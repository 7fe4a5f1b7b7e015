"""Entry point of the command line: the Typer app, error messages of one line, and exit codes."""

import inspect
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer

from metric_oracle.base.errors import ExactnessError, MetricOracleError, refusal
from metric_oracle.base.typed import is_text
from metric_oracle.commands import listing, output, terminal
from metric_oracle.commands.groups import Families

app = typer.Typer(
    name="oracle",
    cls=Families,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help=listing.HELP,
    epilog=listing.EPILOG,
)

# Base class of Typer's errors; the library that defines it depends on Typer's version.
_UsageError = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line; an expected error prints one line and sets the exit code."""
    terminal.prepare()
    try:
        with terminal.interruptible():
            code = app(prog_name="oracle", standalone_mode=False)
        sys.stdout.flush()
    except (MetricOracleError, OSError, MemoryError, KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error, BrokenPipeError):
            terminal.leave()
        if os.environ.get("ORACLE_DEBUG"):
            raise
        _fail(error)
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            raise SystemExit(2) from None
        output.error(usage_line(error))
        raise SystemExit(2) from None
    if code == 130:  # the code that Typer returns after Ctrl-C
        _fail(KeyboardInterrupt())
    if code:
        raise SystemExit(code)


def _fail(error: BaseException) -> NoReturn:
    """Print one line about an error and end: with code 130 after Ctrl-C, 1 for an ExactnessError, 2 for others."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        line = "oracle: the command must run to its end; got an interruption. Run it again: a build resumes."
    elif isinstance(error, MemoryError):
        line = "oracle: the data must fit into memory; got more. Use fewer reports, or a machine with more memory."
    elif isinstance(error, OSError):
        line = f"oracle: {refusal(error)} Check it and run the command again."
    else:
        line = str(error)
    output.error(line)
    interrupted = isinstance(error, KeyboardInterrupt | typer.Abort)
    raise SystemExit(130 if interrupted else 1 if isinstance(error, ExactnessError) else 2) from None


def usage_line(error: Any) -> str:
    """Return the one-line message for an error of a wrong command line.

    Of values, only those of options are shown, and not if they may be report text.
    """
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "oracle"
    parameter = getattr(error, "param", None)
    option = str(getattr(error, "option_name", "") or "")
    step = f'See "{command} --help".'
    kind = type(error).__name__
    if kind == "MissingParameter":
        return f"{command}: {_shown(parameter)} is missing. {step}"
    if parameter is not None:
        return f"{command}: {_shown(parameter)} must be {_rule(error)}; got {_typed(parameter)}. {step}"
    if kind == "NoSuchOption":
        name = f" {option}" if re.fullmatch(r"--?[a-z][a-z-]*", option) else ""
        near = getattr(error, "possibilities", None)
        return f"{command}: no such option{name}. " + (f"Did you mean {near[0]}?" if near else step)
    if kind == "BadOptionUsage":
        rule = "needs a value" if "requires" in error.message else "takes no value"
        return f"{command}: {option} {rule}. {step}"
    if "No such command" in str(error.message):
        near = re.findall(r"Did you mean '([a-z-]+)'", error.message)
        typed = re.search(r"(?a)No such command( '[\w-]{1,20}')", error.message)
        name = typed[1] if typed else ""
        return f"{command}: no such command{name}. " + (f"Did you mean {near[0]}?" if near else step)
    takes = sum(p.param_type_name == "argument" for p in context.command.params) if context is not None else 0
    return f"{command}: too many arguments; it takes {takes}. Put a text with blanks in quotes. {step}"


def _shown(parameter: Any) -> str:
    """Return a parameter as it is typed: the name of an option, or the placeholder of an argument."""
    return parameter.opts[-1] if parameter.param_type_name == "option" else parameter.metavar or parameter.name


def _typed(parameter: Any) -> str:
    """Return the value that was typed for an option, in quotes; "another value" if it may be report text.

    It is that for an argument too.
    """
    values = [word for before, word in pairwise(sys.argv) if before in parameter.opts]
    if not values or is_text(values[0]):
        return "another value"
    is_named = re.fullmatch(r"[\w.+-]{1,20}", values[0]) or not is_text(values[0], may_be_report=True)
    return repr(values[0]) if is_named else "another value"


def _rule(error: Any) -> str:
    """Return what the parameter of an error must be, such as "an integer", by the annotation of the function."""
    kind = inspect.signature(error.ctx.command.callback).parameters[error.param.name].annotation
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    kinds = [part for part in (get_args(kind) or (kind,)) if part is not type(None)]
    if get_origin(kind) is Literal or any(get_origin(part) is Literal for part in kinds):
        values = get_args(kind) if get_origin(kind) is Literal else get_args(kinds[0])
        return f"one of {', '.join(values)}"
    if kinds[0] in (int, float):
        return "an integer" if kinds[0] is int else "a number"
    return "a file or folder that this user can read" if kinds[0] is Path else "as its help says"


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"metric-oracle {version('metric-oracle')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
