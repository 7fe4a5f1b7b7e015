"""The output of `oracle --help`, which looks like Typer's help without importing Typer and Rich."""

import json
import textwrap
from pathlib import Path
from typing import NamedTuple

from metric_oracle.commands import terminal


class Listed(NamedTuple):
    """A command or a group of commands, as `listed.json` has it."""

    heading: str
    module: str  # of this package, which defines it
    text: str  # first paragraph of its own help


_LISTED = json.loads(Path(__file__).with_name("listed.json").read_bytes())
COMMANDS = {name: Listed(**entry) for name, entry in _LISTED["commands"].items()}
FUNCTIONS: dict[str, str] = _LISTED["functions"]  # the command of each public function, such as "survey create"

HELP = "Find, for every test radiology report, the training report that scores best under a metric, exactly."
EPILOG = (
    "Start with oracle demo or oracle example. Exit codes: 0 success, 1 a check found a difference, 2 usage "
    "error, 130 interrupted. ORACLE_DEBUG=1 shows tracebacks."
)
OPTIONS = {
    "--version": "Show the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "--help": "Show this message and exit.",
}
_BOLD, _DIM, _NAME, _USAGE, _END = (f"\033[{code}m" for code in ("1", "2", "1;36", "1;33", "0"))
_NARROWEST = 40  # columns, the smallest width that the page is laid out for


def show() -> None:
    """Print the list of options and commands."""
    width = max(terminal.width(), _NARROWEST)
    panels: dict[str, dict[str, str]] = {"Options": OPTIONS}
    for name, entry in COMMANDS.items():
        panels.setdefault(entry.heading, {})[name] = entry.text
    lines = ["", f" {_USAGE}Usage:{_END}{_BOLD} oracle [OPTIONS] COMMAND [ARGS]...{_END}", ""]
    lines += [f" {line}" for line in textwrap.wrap(HELP, width - 2)] + [""]
    for title, texts in panels.items():
        lines += _panel(title, texts, max(map(len, OPTIONS if texts is OPTIONS else COMMANDS)), width)
    lines += ["", *(f" {line}" for line in textwrap.wrap(EPILOG, width - 2)), ""]
    page = "\n".join(lines)
    if not terminal.shows_styles():
        for style in (_BOLD, _DIM, _NAME, _USAGE, _END):
            page = page.replace(style, "")
    if not terminal.shows_lines():
        page = page.translate(str.maketrans("╭╮╰╯─│", "++++-|"))
    print(page, flush=True)


def _panel(title: str, texts: dict[str, str], longest: int, width: int) -> list[str]:
    """Return the lines of a box with names, of up to `longest` characters, and their descriptions."""
    inside = width - 4 - longest - 2
    lines = [f"{_DIM}╭─{_END} {title} {_DIM}{'─' * (width - len(title) - 5)}╮{_END}"]
    for name, text in texts.items():
        for i, line in enumerate(textwrap.wrap(text, inside)):
            shown = f"{'' if i else name:<{longest}}"
            lines.append(f"{_DIM}│{_END} {_NAME}{shown}{_END}  {line:<{inside}} {_DIM}│{_END}")
    return [*lines, f"{_DIM}╰{'─' * (width - 2)}╯{_END}"]
