"""What a command says: results on stdout, notes, progress and errors on stderr.

Nothing else knows a terminal but `terminal`. One rule for every command: a result is printed as a table on a terminal
and as JSON Lines in a pipe, or as --format says; with --out it goes to that file, and one line on stderr sums it up.
"""

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metric_oracle.errors import DamagedIndexError, ExactnessError, InputError
from metric_oracle.progress import Progress, silent

LONG = 1.0  # seconds of compiling that are worth a word


class DifferenceFoundError(ExactnessError):
    """A check of files found that they are not what they should be, which ends a command with exit code 1."""


@contextmanager
def checking() -> Iterator[None]:
    """Let damage of an index be what a check found, and no wrong use."""
    try:
        yield
    except DamagedIndexError as error:
        raise DifferenceFoundError(str(error)) from error


_said: dict[str, bool] = {"quiet": False}


def be_quiet(quiet: bool) -> None:
    """Let notes and progress of the command under way be heard, or not."""
    _said["quiet"] = quiet


def spelled_out(text: str, kept: str = "") -> str:
    """Return a text with its control characters as escapes, because a terminal would obey them; `kept` ones stay."""
    if text.isprintable():
        return text

    def is_harmless(character: str) -> bool:
        return character.isprintable() or character in kept or unicodedata.category(character) == "Zs"

    return "".join(c if is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def put(text: str, *, flush: bool = False) -> None:
    """Print lines of a result: as they are into a pipe or a file, without control characters on a terminal."""
    print(spelled_out(text, "\n\t") if sys.stdout.isatty() else text, flush=flush)


def note(line: str) -> None:
    """Print a line beside the result."""
    if not _said["quiet"]:
        print(spelled_out(line), file=sys.stderr)


def error(line: str) -> None:
    """Print the one line that ends a command."""
    print(f"error: {spelled_out(line)}", file=sys.stderr)


@dataclass
class Destination:
    """Where the result of a command goes, checked before the work.

    Attributes
    ----------
    function : str
        Begin of error lines.
    out, plot : path or None
    form : str or None
        What --format says.
    """

    function: str
    out: Path | None = None
    plot: Path | None = None
    form: str | None = None
    inputs: Sequence[Any] = ()

    def check(self, endings: Sequence[str], formats: Sequence[str]) -> None:
        """Raise unless the result can be written and printed so, without harm to the inputs."""
        if self.form is not None and self.form not in formats:
            msg = f"{self.function}: format must be one of {', '.join(formats)} here; got {self.form!r}. Choose one."
            raise InputError(msg)
        if self.out is not None and endings:
            from metric_oracle.retrieval.results import check_out

            check_out(self.out, self.inputs, function=self.function, endings=endings)
        if self.plot is not None:
            from metric_oracle.presentation.matplotlib_io import check_plot

            check_plot(self.plot, self.function, [Path(given) for given in self.inputs if given])

    def deliver(
        self,
        view: Callable[[], Iterable[Any]],
        texts: Mapping[str, Callable[[], Iterable[str]]],
        summary: str = "",
        write: Callable[[Path], object] | None = None,
        brief: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        """Write a result, or print it.

        Parameters
        ----------
        view : function
            Returns what Rich prints on a terminal.
        texts : mapping
            Format -> what returns its lines, without line ends.
        summary : str
            One line, told where the result is not shown.
        write : function
            Writes the result to a path.
        brief : function
            Returns what Rich prints where the result is written, and neither --format nor --quiet is given.
        """
        if self.out is not None and write is not None:
            write(self.out)
            note(f"{self.out}: {summary}")
            if self.form is None:
                show(brief() if brief is not None and not _said["quiet"] else ())
                return
        form = self.form or ("table" if sys.stdout.isatty() else "jsonl")
        if form == "table":
            show(view())
        else:
            for line in texts[form]():
                put(line)


def show(parts: Iterable[Any]) -> None:
    """Print what Rich lays out for the width of the terminal."""
    console = _console()
    for part in parts:
        console.print(part)


def _console(**settings: Any) -> Any:
    """Return a console of Rich that shows no control character of what it lays out."""
    from rich.console import Console
    from rich.segment import Segment

    class Harmless(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(spelled_out(segment.text, "\n"), segment.style)

    return Harmless(**settings)


def signed(signature: Mapping[str, Any]) -> Any:
    """Return the line under a table that tells its result from others."""
    from rich.text import Text

    from metric_oracle.presentation.short_signature import short_signature

    return Text(f"signature: {short_signature(signature)}", style="dim", overflow="fold")


def csv_lines(table: Any) -> Iterator[str]:
    """Yield the lines of an Arrow table as CSV."""
    from pyarrow import BufferOutputStream, csv

    held = BufferOutputStream()
    csv.write_csv(table, held)
    yield held.getvalue().to_pybytes().decode("utf-8", "surrogateescape").removesuffix("\n")


def deliver_results(
    to: Destination,
    results: Any,
    view: Callable[[], Iterable[Any]],
    summary: str,
    write: Callable[[Path], object] | None = None,
) -> None:
    """Deliver what has a table, a signature and files of its own: the answers of a search, scores."""
    texts = {"jsonl": results.json_lines, "csv": lambda: csv_lines(results.table)}
    to.deliver(view, texts, summary, write or results.write)


@contextmanager
def progress(task: str) -> Iterator[Progress]:
    """Show a bar with the time left on stderr, on a terminal; yield a function for `progress`.

    While the machine code of a kernel is made for the first time, the bar says so.
    """
    if _said["quiet"] or not sys.stderr.isatty():
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    class Counts(MofNCompleteColumn):
        """How many of how many, where that is known."""

        def render(self, task: Any) -> Any:
            return super().render(task) if task.total is not None else ""

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Counts())
    with Progress(*columns, TimeRemainingColumn(), console=_console(stderr=True), transient=True) as shown:
        under_way = shown.add_task(task, total=None)
        said = task

        def step(name: str, done: int | None, total: int | None) -> None:
            nonlocal said
            said = f"{task}: {name}" if name else task
            shown.update(under_way, description=said, completed=done or 0, total=total)

        def compiling(begun: bool) -> None:
            shown.update(under_way, description=f"{said} (compiling, once)" if begun else said)

        with _compilations(compiling):
            yield step


@contextmanager
def _compilations(tell: Callable[[bool], None]) -> Iterator[None]:
    """Call `tell` when machine code has been made for a while, and when that ends; code that was kept is not made."""
    from threading import Timer

    from numba.core import event

    class Listener(event.Listener):
        """Counts nested compilations: one tells of itself when it takes long."""

        depth, timer = 0, Timer(0, tell)

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                self.timer = Timer(LONG, tell, [True])
                self.timer.daemon = True
                self.timer.start()

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                self.timer.cancel()
                tell(False)

    with event.install_listener("numba:compile", Listener()):
        yield
