"""Output of commands: results on standard output; notes, progress and errors on standard error.

Every command follows one rule. A result is printed as a table on a terminal and as JSON Lines in a pipe, or in the
format of --format. With --out it is written to that file, and one line on standard error summarizes it.
"""

import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

from metric_oracle.base.argument_checks import check_given, check_left_out, check_one_of
from metric_oracle.base.errors import DamagedIndexError, ExactnessError
from metric_oracle.base.progress import Progress, silent
from metric_oracle.commands import wording

EVERY = 30.0  # seconds between two lines of progress in a file, unless ORACLE_PROGRESS says others
_COMPILING = " (compiling, once)"


class DifferenceFoundError(ExactnessError):
    """A check found a damaged or different file; the command ends with exit code 1."""


@contextmanager
def checking() -> Iterator[None]:
    """Turn errors about a damaged index into the result of a check, which has exit code 1 instead of 2."""
    try:
        yield
    except DamagedIndexError as error:
        raise DifferenceFoundError(*error.args) from error


_state: dict[str, bool] = {"quiet": False}  # of the command that is running


def be_quiet(quiet: bool) -> None:
    """Switch notes and progress bars of the running command off or on."""
    _state["quiet"] = quiet


def is_quiet() -> bool:
    """Return whether the running command was called with --quiet."""
    return _state["quiet"]


def spelled_out(text: str, kept: str = "") -> str:
    """Return a text with control characters replaced by escapes, so that a terminal does not obey them.

    Characters in `kept` are not replaced.
    """
    if text.isprintable():
        return text

    def is_harmless(character: str) -> bool:
        return character.isprintable() or character in kept or unicodedata.category(character) == "Zs"

    return "".join(c if is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def put(text: str, *, flush: bool = False) -> None:
    """Print lines of a result; on a terminal control characters are replaced."""
    print(spelled_out(text, "\n\t") if sys.stdout.isatty() else text, flush=flush)


def note(line: str) -> None:
    """Print a line on standard error, unless --quiet is given, in the terms of the command."""
    if not _state["quiet"]:
        _tell(spelled_out(wording.current.text(line)))


def _tell(line: str) -> None:
    """Print a line on standard error; where that cannot be written, as on a full device, nothing else changes."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what is left in the buffer goes there


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings of the functions that run as notes, in one line."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def as_note(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is UserWarning:
                note(str(message))
            else:
                show(message, category, *where, **more)

        warnings.showwarning = as_note
        yield


def error(line: str) -> None:
    """Print the error message of a command that fails."""
    _tell(f"error: {spelled_out(line)}")


@dataclass
class Destination:
    """Destination of a command's result: the values of --out, --plot, --width and --format."""

    out: Path | None = None  # value of --out
    plot: Path | None = None  # value of --plot
    width: float | None = None  # value of --width
    form: str | None = None  # value of --format
    inputs: Sequence[Any] = ()  # values that may be paths of inputs, or None; no input may be overwritten

    def check(self, endings: Sequence[str], formats: Sequence[str]) -> None:
        """Raise InputError unless --out, --plot and --format suit the command and would overwrite no input."""
        if self.form is not None:
            check_one_of("format", self.form, formats, note=" here")
        if self.out is not None and endings:
            from metric_oracle.findings.writing import check_out

            check_out(self.out, self.inputs, endings=endings)
        if self.plot is None:
            check_left_out({"width": self.width}, "without `plot`")
        else:
            from metric_oracle.findings.figures import check_plot

            check_plot(self.plot, [Path(given) for given in self.inputs if given])

    @property
    def is_piped(self) -> bool:
        """Whether records go into a pipe or a file to which standard output was redirected."""
        return self.out is None and self.form is None and not sys.stdout.isatty()

    def file(self) -> Path:
        """Return the file of --out; raise InputError if it was not given."""
        return check_given("out", self.out, "", "Add `out=FILE`.", got="none")

    def deliver(
        self,
        view: Callable[[], Iterable[Any]],
        texts: Mapping[str, Callable[[], Iterable[str]]],
        summary: str = "",
        write: Callable[[Path], object] | None = None,
        brief: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        """Write a result to the file of --out with `write`, and print `summary`; or print the result.

        `view` returns what Rich shows on a terminal; `texts` has, for each format, a function that returns its lines
        without line ends. With --out the result is also printed if --format is given; otherwise `brief` returns what is
        shown, unless --quiet is given.
        """
        if self.out is not None and write is not None:
            write(self.out)
            note(f"{self.out}: {summary}")
            if self.form is None:
                show(brief() if brief is not None and not _state["quiet"] else ())
                return
        form = self.form or ("table" if sys.stdout.isatty() else "jsonl")
        if form == "table":
            show(view())
        else:
            for line in texts[form]():
                put(line)


def show(parts: Iterable[Any]) -> None:
    """Print renderables of Rich, laid out for the width of the terminal."""
    console = _console()
    for part in parts:
        console.print(part)


def _console(**settings: Any) -> Any:
    """Return a console of Rich that replaces the control characters of the texts that it shows."""
    from rich.console import Console
    from rich.segment import Segment

    class Harmless(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(spelled_out(segment.text, "\n"), segment.style)

    return Harmless(**settings)


def table_lines(results: Any) -> dict[str, Callable[[], Iterable[str]]]:
    """Return the functions that make the lines of a table of results as JSON Lines and as CSV."""

    def csv_lines() -> Iterator[str]:
        from metric_oracle.findings.writing import csv_text

        yield csv_text(results.table).removesuffix("\n")

    return {"jsonl": results.json_lines, "csv": csv_lines}


def deliver_results(
    to: Destination,
    results: Any,
    view: Callable[[], Iterable[Any]],
    summary: str,
    write: Callable[[Path], object] | None = None,
) -> None:
    """Deliver `Results` or `Scores`, see `Destination.deliver`; `write`, if given, replaces their own method."""
    to.deliver(view, table_lines(results), summary, write or results.write)


def deliver_finding(
    to: Destination,
    finding: Any,
    view: Callable[[], Iterable[Any]] | None = None,
    *,
    summary: str = "",
    write: Callable[[Path], object] | None = None,
    brief: Callable[[], Iterable[Any]] | None = None,
) -> None:
    """Deliver a `Finding`: its figure to --plot, the rest to --out or printed.

    `view`, `summary` and `write` replace its own; `brief` is the view beside the file of --out, by default none.
    """
    summary = summary or finding.summary()
    if to.plot is not None:
        finding.write(to.plot, to.width)
        note(f"{to.plot}: {summary}")

    def text(form: str) -> Iterator[str]:
        yield finding.text(form).removesuffix("\n")

    texts = {form: partial(text, form) for form in ("md", "tex", "csv", "jsonl")}
    to.deliver(view or finding.shown, texts, summary, write or finding.write, brief)


@contextmanager
def progress(task: str, every: float = EVERY) -> Iterator[Progress]:
    """Show on standard error how far a task is; yield the function that is told. With --quiet nothing is shown.

    On a terminal it is a bar with the remaining time, elsewhere a line, `every` seconds apart. While a kernel is
    compiled for the first time, both say so.
    """
    if _state["quiet"]:
        yield silent
        return
    with _bar(task) if sys.stderr.isatty() else _lines(task, every) as step:
        yield step


@contextmanager
def _bar(task: str) -> Iterator[Progress]:
    """Show a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    class Description(TextColumn):
        """What is done, and whether it waits for a compiler."""

        def render(self, task: Any) -> Any:
            return super().render(task).append(_COMPILING if is_compiling() else "")

    class Counts(MofNCompleteColumn):
        """Numbers of finished and of all items, shown once the latter is known."""

        def render(self, task: Any) -> Any:
            return super().render(task) if task.total is not None else ""

    columns = (SpinnerColumn(), Description("{task.description}", markup=False), BarColumn(), Counts())
    with Progress(*columns, TimeRemainingColumn(), console=_console(stderr=True), transient=True) as shown:
        bar = shown.add_task(task, total=None)

        def step(name: str, done: int | None, total: int | None) -> None:
            shown.update(bar, description=_described(task, name), completed=done or 0, total=total)

        yield step


@contextmanager
def _lines(task: str, every: float) -> Iterator[Progress]:
    """Print lines, `every` seconds apart, from another thread: a compiler and a model tell nothing while they work."""
    said, ended, every = _described(task, ""), Event(), float(os.environ.get("ORACLE_PROGRESS", every))

    def step(name: str, done: int | None, total: int | None) -> None:
        nonlocal said
        said = _described(task, name) + (f", {done or 0:,} of {total:,}" if total is not None else "")

    def tell() -> None:
        """Print the lines; a standard error that cannot be written does not end the command."""
        seconds = 0.0
        with suppress(OSError, ValueError):
            while not ended.wait(every):
                seconds += every
                note(f"{seconds:g} s: {said}{_COMPILING if is_compiling() else ''}")

    Thread(target=tell, daemon=True).start()
    try:
        yield step
    finally:
        ended.set()


def _described(task: str, name: str) -> str:
    """Return a task with the name of its step, which may have none."""
    return f"{task}: {name}" if name else task


def is_compiling() -> bool:
    """Return whether a thread of this process is in Numba's compiler, or waits for a process that compiles the same."""
    for frame in sys._current_frames().values():
        at: FrameType | None = frame
        waits = frame.f_globals.get("__name__") == "metric_oracle.base.locks"  # for whom, an outer frame says
        while at is not None:
            name = at.f_globals.get("__name__")
            if name == "numba.core.compiler" or (waits and name == "metric_oracle.kernels._cache"):
                return True
            at = at.f_back
    return False
