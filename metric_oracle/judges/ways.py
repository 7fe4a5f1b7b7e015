"""The ways to ask a judge: a function, a command, a model that counts errors."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from metric_oracle.base.errors import ArgumentError, InputError
from metric_oracle.judges.judge import SCORE, Asked, Pair, Take
from metric_oracle.judges.pair_models import COMPONENTS, ErrorModel, totals

CHUNK = 1024  # pairs that a model gets at a time: a kill loses no more
# Number of the first pair that a command gets. A command that counts from 0 or 1, instead of repeating the number of
# each pair, is refused at its first answer.
FIRST = 1001

Ask = Callable[[Sequence[Pair], Take], Asked]


def of_function(function: Callable[[list[Pair]], Any], batch: int) -> Ask:
    """Return the asking of a function, which gets up to `batch` pairs at a time and returns a score for each."""

    def ask(pairs: Sequence[Pair], take: Take) -> Asked:
        for first in range(0, len(pairs), batch):
            given = [*pairs[first : first + batch]]
            answers = function(given)
            try:
                answers = [answers] if isinstance(answers, str | Mapping) else [*answers]
            except TypeError:
                answers = [answers]
            if len(answers) != len(given):
                raise ArgumentError(
                    "judge",
                    "must return one score for each pair",
                    f"{len(answers):,} for {len(given):,}",
                    "Return a list.",
                )
            for i, answer in enumerate(answers, first):
                take(i, answer)
        return Asked({})

    return ask


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


def of_command(words: Sequence[str], timeout: float | None) -> Ask:
    """Return the asking of a command: it reads a line of JSON for each pair, and writes one for each answer.

    Its input ends after the last pair, and its answers may come in any order. It is stopped if no line came for
    `timeout` seconds, or if an answer has the number of no pair or of one that was answered: then numbers are mixed up.
    """

    def ask(pairs: Sequence[Pair], take: Take) -> Asked:
        try:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise InputError(
                "judge", "must be a command that starts", f"{words[0]} ({error.strerror})", "Check it."
            ) from None
        lines: SimpleQueue[bytes] = SimpleQueue()
        for run, pipe in ((_write, process.stdin), (_read, process.stdout)):
            Thread(target=run, args=(pipe, pairs if run is _write else lines), daemon=True).start()
        try:
            return Asked({}, _answers(process, lines, {*range(len(pairs))}, take, timeout))
        finally:
            process.kill()
            process.wait()

    return ask


def _write(pipe: IO[bytes], pairs: Sequence[Pair]) -> None:
    """Write the pairs to a command and end its input; one that has ended reads no more."""
    with suppress(BrokenPipeError), pipe:
        for number, (reference, candidate) in enumerate(pairs, FIRST):
            content = {"pair": number, "reference": reference, "candidate": candidate}
            pipe.write(json.dumps(content).encode() + b"\n")
            pipe.flush()


def _read(pipe: IO[bytes], lines: "SimpleQueue[bytes]") -> None:
    """Put the lines that a command writes into a queue, and an empty one at their end."""
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put(b"")


def _answers(
    process: "subprocess.Popen[bytes]", lines: "SimpleQueue[bytes]", open_: set[int], take: Take, timeout: float | None
) -> str:
    """Take the answers of a command to the pairs `open_`; return why no more came, empty if it ended as it should."""
    n_other = 0
    try:
        while line := lines.get(timeout=timeout):
            try:
                answer = json.loads(line, parse_int=float)  # of a whole number too great for a float an infinite one
                place = answer["pair"] - FIRST
            except (ValueError, TypeError, KeyError, RecursionError):
                n_other += 1  # what a library of the judge prints
                continue
            if place not in open_:
                return "an answer with the number of no pair, or of one that was answered before"
            open_.remove(place)
            take(int(place), answer)
        code = process.wait(timeout)
    except (Empty, subprocess.TimeoutExpired):
        return f"no line within {timeout:g} s"
    if code:
        return f"an end with exit code {code}"
    return f"lines that are no answers: {n_other:,}" if open_ and n_other else ""
