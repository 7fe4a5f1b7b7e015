"""METEOR 1.5 (Denkowski and Lavie, WMT 2014), which R2Gen and the papers that follow it report.

METEOR 1.5 is a Java program in the package pycocoevalcap. It matches stems, synonyms of WordNet and the paraphrases of
a table, and normalises the texts itself. Its scores are not comparable with those of NLTK's METEOR.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import BackendError
from metric_oracle.base.files import sha256
from metric_oracle.base.locks import let_interrupts_end_waits
from metric_oracle.base.progress import Advance

JAR = "meteor-1.5.jar"
# The call of pycocoevalcap, with a fixed encoding, which otherwise depends on the locale.
_CALL = ("-Dfile.encoding=UTF-8", "-Xmx2G", "-jar", JAR, "-", "-", "-stdio", "-l", "en", "-norm")
_SEPARATOR = "|||"  # between the fields of a line that the program reads
_LINE_BREAK = re.compile("[\r\n]+")  # line ends in Java


class MeteorJar:
    """METEOR 1.5, started for each call of `score_pairs`; BackendError if Java or pycocoevalcap is not installed."""

    def __init__(self) -> None:
        package = find_spec("pycocoevalcap")
        locations = package.submodule_search_locations if package is not None else None
        folders = [Path(location) / "meteor" for location in locations or ()]
        folder = next((path for path in folders if (path / JAR).is_file()), None)
        java = shutil.which("java")
        if folder is None or java is None:
            lacking, step = "java on the PATH", "a Java runtime, such as Debian's default-jre-headless"
            if folder is None:
                lacking, step = f"{JAR} of pycocoevalcap", "it: pip install --no-deps pycocoevalcap"
            raise BackendError(
                "meteor:1.5",
                "must have Java and pycocoevalcap installed",
                f"no {lacking}",
                f"Install {step}. meteor:nltk is another metric.",
            )
        self._java, self._folder = java, folder

    @property
    def signature(self) -> dict[str, str]:
        """Name and SHA-256 of the program, which determine the scores."""
        return {"model": JAR, "sha256": sha256(self._folder / JAR)}

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, progress: Advance | None = None
    ) -> tuple[list[tuple[float, dict[str, float]]], dict[str, Any]]:
        """Return the score of each pair (reference, candidate), and the notes on all, whose ``corpus`` is their score.

        The score of all pairs is that of the sums of their counts of matches, as papers print it. A score is (float,
        {}): METEOR has no components. Each distinct pair is scored once; line breaks are read as blanks, and ``|||`` is
        removed. `progress` is called with the number of distinct pairs finished since the last call. Raise BackendError
        if the program ends early, or its answer is not a number.
        """
        counts: dict[tuple[str, str], str] = {}
        lines = [(_clean(reference), _clean(candidate)) for reference, candidate in pairs]
        try:
            with self._started() as ask:
                for pair in dict.fromkeys(lines):
                    counts[pair] = ask(f"SCORE {_SEPARATOR} {pair[0]} {_SEPARATOR} {pair[1]}", 1)[0]
                    if progress is not None:
                        progress(1)
                answers = ask(f" {_SEPARATOR} ".join(["EVAL", *(counts[pair] for pair in lines)]), len(lines) + 1)
            *values, corpus = map(float, answers)
        except (OSError, EOFError, ValueError) as error:
            event = "another answer" if isinstance(error, ValueError) else "an end"
            raise BackendError(
                JAR,
                "must print numbers for each pair",
                f"{event} before the last pair",
                f"Run it by hand: java -Xmx2G -jar {JAR} in {self._folder}.",
            ) from None
        return [(value, {}) for value in values], {"corpus": corpus}

    @contextmanager
    def _started(self) -> Iterator[Callable[[str, int], list[str]]]:
        """Run the program within the block; yield a function (line, n) that sends a line and returns n lines of answer.

        The function raises EOFError if the program has ended.
        """
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [self._java, *_CALL], cwd=self._folder, encoding="utf-8", stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as program:

            def ask(line: str, n_answers: int) -> list[str]:
                assert program.stdin is not None
                assert program.stdout is not None
                program.stdin.write(f"{line}\n")
                program.stdin.flush()
                let_interrupts_end_waits()
                answers = [program.stdout.readline().strip() for _ in range(n_answers)]
                if not all(answers):
                    raise EOFError
                return answers

            try:
                yield ask
            finally:
                program.kill()


def _clean(text: str) -> str:
    """Return a text as one field of one line. pycocoevalcap, in contrast, leaves line breaks in the text."""
    return _LINE_BREAK.sub(" ", text.replace(_SEPARATOR, ""))
