"""The ways to ask a judge: a function, a command, a model that counts errors."""

import inspect
import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import GeneratorType
from typing import Any

from metric_oracle.base.errors import ArgumentError, InputError
from metric_oracle.judges.judge import SCORE, Asked, Pair, Take
from metric_oracle.judges.pair_models import COMPONENTS, ErrorModel, totals

CHUNK = 1024  # pairs that a model gets at a time: a kill loses no more
# Number of the first pair that a command gets. A command that counts from 0 or 1, instead of repeating the number of
# each pair, is refused at its first answer.
FIRST = 1001

LOOK = 0.05  # seconds between two looks at whether a command has ended
GRACE = 2.0  # seconds that a command has to end when it is asked to
MOST_IN_PIPE = 1 << 20  # bytes that a pipe can hold; Linux allows no more to users
LINES_AT_ONCE = 64  # lines that are made for a command before it has read those before
LONGEST = 1000  # lines of an indented object

Ask = Callable[[Sequence[Pair], Take], Asked]


def of_function(function: Callable[[list[Pair]], Any], batch: int) -> Ask:
    """Return the asking of a function, which gets up to `batch` pairs at a time and returns a score for each."""

    def ask(pairs: Sequence[Pair], take: Take) -> Asked:
        for first in range(0, len(pairs), batch):
            asked = [*pairs[first : first + batch]]
            answers = _in_order(function(asked))
            if len(answers) != len(asked):
                raise ArgumentError(
                    "judge",
                    "must return one score for each pair",
                    f"{len(answers):,} for {len(asked):,}",
                    "Return a list.",
                )
            for i, answer in enumerate(answers, first):
                take(i, answer)
        return Asked({})

    return ask


def _in_order(answers: Any) -> list[Any]:
    """Return what a function returned as a list; raise ArgumentError if it has no order, or is no answer yet."""
    if inspect.isawaitable(answers) or inspect.isasyncgen(answers):
        if inspect.iscoroutine(answers):
            answers.close()
        raise ArgumentError(
            "judge",
            "must be a function that returns its scores",
            f"a {type(answers).__name__}",
            "Use asyncio.run in it.",
        )
    if isinstance(answers, Set | bytes | bytearray | memoryview) or (
        isinstance(answers, Iterator) and not isinstance(answers, GeneratorType | map)
    ):
        got = f"a {type(answers).__name__}"
        raise ArgumentError("judge", "must return its scores in the order of the pairs", got, "Return a list.")
    if isinstance(answers, str | Mapping):
        return [answers]
    try:
        return [*answers]
    except TypeError:
        return [answers]


def of_model(model: ErrorModel) -> Ask:
    """Return the asking of a model that counts errors: the score is their sum, and the counts are components."""

    def ask(pairs: Sequence[Pair], take: Take) -> Asked:
        n_cut = 0
        for first in range(0, len(pairs), CHUNK):
            counts, n_more = model.count_errors(pairs[first : first + CHUNK])
            n_cut += n_more
            for i, (total, errors) in enumerate(zip(totals(counts).tolist(), counts.tolist(), strict=True), first):
                take(i, {SCORE: total, **dict(zip(COMPONENTS, errors, strict=True))})
        return Asked({"truncated_pairs": n_cut} if n_cut else {})

    return ask


def of_command(words: Sequence[str], timeout: float | None, folder: Path | None = None) -> Ask:
    """Return the asking of a command: it reads a line of JSON for each pair, and writes one for each answer.

    Its input ends after the last pair, and its answers may come in any order. It is stopped if no line came for
    `timeout` seconds, or if an answer has the number of no pair or of one that was answered: then numbers are mixed up.
    All that it started is stopped at the end. It runs in `folder`, by default the working folder.
    """

    def ask(pairs: Sequence[Pair], take: Take) -> Asked:
        with _started(words, folder) as process:
            return Asked({}, _answers(process, pairs, take, timeout))

    return ask


def _name(words: Sequence[str]) -> str:
    """Return the program of a command for a message."""
    return words[0].replace("\0", "\\0")


@contextmanager
def _started(words: Sequence[str], folder: Path | None) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a command, and end it after the body; an interruption waits until there is a process that can be ended."""
    interrupted: list[int] = []
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if before is not None:
        signal.signal(signal.SIGINT, lambda *_: interrupted.append(1))
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0, cwd=folder
        )
    except (OSError, ValueError) as error:  # ValueError for a word with NUL
        if before is not None:
            signal.signal(signal.SIGINT, before)
        reason = error.strerror if isinstance(error, OSError) else "it has a NUL character"
        raise InputError("command", "must be one that starts", f"{_name(words)} ({reason})", "Check it.") from None
    with process, _ending(process):
        if before is not None:
            signal.signal(signal.SIGINT, before)
        if interrupted:
            raise KeyboardInterrupt
        yield process


@contextmanager
def _ending(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """End the group of a process, whatever ends the body: first by asking, so that a wrapper ends what it runs."""
    try:
        yield
    finally:
        try:
            _signal(process, signal.SIGTERM)
            end = time.monotonic() + GRACE
            while _signal(process, 0) and time.monotonic() < end:
                process.poll()
                time.sleep(LOOK)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: "subprocess.Popen[bytes]", number: int) -> bool:
    """Send a signal to the group of a process, 0 to look only; return whether the group has a process."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # PermissionError on macOS if all are about to end
        return False
    return True


def _lines_of(pairs: Sequence[Pair]) -> Iterator[bytes]:
    """Yield the line of each pair that a command reads."""
    for number, (reference, candidate) in enumerate(pairs, FIRST):
        content = {"pair": number, "reference": reference, "candidate": candidate}
        yield json.dumps(content).encode() + b"\n"


class _Exchange:
    """Writes lines to a process and reads its lines; Ctrl-C ends a wait at once.

    The end of the process is the end of its lines, even if a child of it holds its output. Waits are short, because
    Polars lets a wait go on after SIGINT, of which Python then learns too late.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", lines: Iterator[bytes]) -> None:
        self._process, self._lines = process, lines
        self._rest, self._read, self._has_ended = b"", b"", False
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def lines(self, timeout: float | None) -> Iterator[bytes]:
        """Yield lines until the end; raise TimeoutError if none came for `timeout` seconds."""
        begun = time.monotonic()
        while True:
            *whole, self._read = self._read.split(b"\n")
            for line in whole:
                yield line
                begun = time.monotonic()
            if self._has_ended:
                if self._read:
                    yield self._read
                return
            if timeout is not None and time.monotonic() - begun > timeout:
                raise TimeoutError
            self._exchange()

    def _exchange(self) -> None:
        """Write and read what can be written and read within a short time."""
        written, read = self._process.stdin, self._process.stdout
        assert written is not None
        assert read is not None
        has_exited = self._process.poll() is not None
        waiting = select.poll()
        waiting.register(read, select.POLLIN)
        if not written.closed:
            waiting.register(written, select.POLLOUT)
        ready = {number for number, _ in waiting.poll(0 if has_exited else 1000 * LOOK)}
        if read.fileno() in ready:
            block = os.read(read.fileno(), MOST_IN_PIPE)
            self._read += block
            self._has_ended = not block
        if has_exited:  # what it wrote was in the pipe, and is read now
            self._has_ended = True
        if not written.closed and written.fileno() in ready:
            self._write()

    def _write(self) -> None:
        """Write what the pipe takes, and close it after the last line, or if the process reads no more."""
        written = self._process.stdin
        assert written is not None
        try:
            if not self._rest:
                self._rest = b"".join(islice(self._lines, LINES_AT_ONCE))
            if self._rest:
                self._rest = self._rest[os.write(written.fileno(), self._rest) :]
                return
        except BlockingIOError:
            return
        except OSError:  # it reads no more
            self._rest = b""
        written.close()


def _answers(process: "subprocess.Popen[bytes]", pairs: Sequence[Pair], take: Take, timeout: float | None) -> str:
    """Take the answers of a command to pairs; return why no more came, empty if it ended as it should."""
    open_, n_other = {*range(len(pairs))}, 0
    try:
        for answer in _objects(_Exchange(process, _lines_of(pairs)).lines(timeout)):
            place = answer.get("pair") if answer is not None else None
            if not isinstance(place, float | int):
                n_other += 1  # what a library of the judge prints
                continue
            place -= FIRST
            if place not in open_:
                return "an answer with the number of no pair, or of one that was answered before"
            open_.remove(int(place))
            take(int(place), answer)
        end = time.monotonic() + (timeout or 0)
        while process.poll() is None:  # it has closed its output
            if timeout is not None and time.monotonic() > end:
                raise TimeoutError
            time.sleep(LOOK)
    except TimeoutError:
        return f"no line within {timeout:g} s"
    if process.returncode:
        return f"an end with exit code {process.returncode}"
    return f"lines that are no answers: {n_other:,}" if open_ and n_other else ""


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON objects in lines, None for a line that is in none; an indented object has several lines."""
    begun: list[bytes] = []  # lines of an object that has not ended
    for line in lines:
        alone = _parsed(line)
        if alone is not None and (not begun or "pair" in alone):
            yield from [None] * len(begun)
            begun = []
            yield alone
        elif begun or line.lstrip().startswith(b"{"):
            begun.append(line)
            whole = _parsed(b"\n".join(begun)) if line.rstrip().endswith(b"}") else None
            if whole is not None:
                begun = []
                yield whole
            elif len(begun) > LONGEST:
                yield from [None] * len(begun)
                begun = []
        elif line.strip():
            yield None
    yield from [None] * len(begun)


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for another text."""
    try:
        content = json.loads(text, parse_int=float)  # of a whole number too great for a float an infinite one
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
