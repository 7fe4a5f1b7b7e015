"""The page of `oracle --help`: in the form of Typer's pages, without Typer, whose import takes longer than the page."""

from metric_oracle.commands import COMMANDS

HELP = "Find, for every test radiology report, the training report that scores best under a metric: exactly."
EPILOG = (
    "Start with [bold]oracle demo[/] or [bold]oracle example[/]. Exit codes: 0 well, 1 a check found a "
    "difference, 2 wrong use, 130 interrupted. ORACLE_DEBUG=1 shows tracebacks."
)
OPTIONS = {
    "--version": "Show the version and exit.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "--help": "Show this message and exit.",
}


def show() -> None:
    """Print the page."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table

    console = Console(highlight=False)
    console.print(Padding("[bold][yellow]Usage:[/] oracle \\[OPTIONS] COMMAND \\[ARGS]...[/]", 1))
    console.print(Padding(HELP, (0, 1, 1, 1)))
    panels: dict[str, dict[str, str]] = {"Options": OPTIONS}
    for name, one in COMMANDS.items():
        panels.setdefault(one.panel, {})[name] = one.text
    for title, lines in panels.items():
        table = Table(show_header=False, expand=True, box=None, pad_edge=False)
        width = max(map(len, OPTIONS if lines is OPTIONS else COMMANDS))
        table.add_column(style="bold cyan", no_wrap=True, width=width)
        table.add_column(ratio=1)
        for name, text in lines.items():
            table.add_row(name, text)
        console.print(Panel(table, border_style="dim", title=title, title_align="left"))
    console.print(Padding(EPILOG, 1))
