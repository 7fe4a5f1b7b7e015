"""Entry point of the command line: the Typer app, error messages of one line, and exit codes."""

import inspect
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer
from typer.exceptions import TyperException

from metric_oracle.base.errors import ExactnessError, MetricOracleError, refusal, shown
from metric_oracle.commands import listing, output, terminal, wording
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


def main() -> None:
    """Run the command line; an expected error prints one line and sets the exit code."""
    terminal.prepare()
    try:
        with terminal.interruptible(), output.warnings_as_notes():
            code = app(prog_name="oracle", standalone_mode=False)
        sys.stdout.flush()
    except (MetricOracleError, OSError, MemoryError, KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error, BrokenPipeError):
            terminal.leave()
        if os.environ.get("ORACLE_DEBUG"):
            raise
        _fail(error)
    except TyperException as error:
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
        line = f"oracle: {refusal(error)}"
    else:
        line = wording.current.message(error) if isinstance(error, MetricOracleError) else str(error)
        line = " ".join(filter(None, [line, _several_metrics(line)]))
    output.error(line)
    interrupted = isinstance(error, KeyboardInterrupt | typer.Abort)
    raise SystemExit(130 if interrupted else 1 if isinstance(error, ExactnessError) else 2) from None


def usage_line(error: Any) -> str:
    """Return the one-line message for an error of a wrong command line."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "oracle"
    parameter = getattr(error, "param", None)
    option = str(getattr(error, "option_name", "") or "")
    step = f'See "{command} --help".'
    kind = type(error).__name__
    if kind == "MissingParameter":
        return f"{command}: {_name(parameter)} is missing. {step}"
    if parameter is not None:
        return f"{command}: {_name(parameter)} must be {_rule(error)}; got {_value(parameter)}. {step}"
    if kind == "NoSuchOption":
        name = option if re.fullmatch(r"--?[a-z][a-z-]*", option) else shown(option)
        near = getattr(error, "possibilities", None)
        from metric_oracle.commands.former import instead

        known = {opt for one in context.command.params for opt in one.opts} if context is not None else ()
        entry = instead(sys.argv[1:], known)
        if entry:
            return f"{command}: no such option {name}. {entry}"
        return f"{command}: no such option {name}. " + (f"Did you mean {near[0]}?" if near else step)
    if kind == "BadOptionUsage":
        rule = "needs a value" if "requires" in error.message else "takes no value"
        return f"{command}: {option} {rule}. {step}"
    if "No such command" in str(error.message):
        near = re.findall(r"Did you mean '([a-z-]+)'", error.message)
        name = next((f" {shown(word)}" for word in sys.argv[1:] if repr(word) in error.message), "")
        return f"{command}: no such command{name}. " + (f"Did you mean {near[0]}?" if near else step)
    takes = sum(p.param_type_name == "argument" for p in context.command.params) if context is not None else 0
    step = _several_metrics() or f"Put a text with blanks in quotes. {step}"
    return f"{command}: too many arguments; it takes {takes}. {step}"


def _several_metrics(line: str = "") -> str:
    """Return the next step where a metric was typed behind another one and a blank, and `line` speaks of it; or ""."""
    from metric_oracle.metrics import find_metric

    for flag, first, second in zip(sys.argv, sys.argv[1:], sys.argv[2:], strict=False):
        is_metric = second[:1] != "-" and find_metric(second) is not None
        if flag in ("-m", "--metric", "--metrics") and is_metric and second in (line or second):
            return f"Write several metrics with commas: {flag} {first.strip(',')},{second}."
    return ""


def _name(parameter: Any) -> str:
    """Return a parameter as it is typed: the name of an option, or the placeholder of an argument."""
    return parameter.opts[-1] if parameter.param_type_name == "option" else parameter.metavar or parameter.name


def _value(parameter: Any) -> str:
    """Return the value that was typed for an option, as messages show it; "another value" where it is not found."""
    for before, word in pairwise(["", *sys.argv]):
        if before in parameter.opts:
            return shown(word)
        name, mark, value = word.partition("=")
        if mark and name in parameter.opts:
            return shown(value)
    return "another value"


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
