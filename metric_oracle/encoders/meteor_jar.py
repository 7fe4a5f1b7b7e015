"""METEOR 1.5 (Denkowski and Lavie, WMT 2014), as papers after R2Gen print it: a Java program that pycocoevalcap brings.

It matches stems, WordNet's synonyms and a table of paraphrases, and normalises the texts itself, so that its numbers
are far from those of nltk's METEOR, which is another metric.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from metric_oracle.errors import BackendError
from metric_oracle.files import sha256
from metric_oracle.progress import Count

JAR = "meteor-1.5.jar"
# As pycocoevalcap calls it, but for the encoding, which is not left to the language of the terminal.
_CALL = ("-Dfile.encoding=UTF-8", "-Xmx2G", "-jar", JAR, "-", "-", "-stdio", "-l", "en", "-norm")
_BETWEEN = "|||"  # between the fields of a line that the program reads
_LINE_BREAK = re.compile("[\r\n]+")  # what ends a line for Java


class MeteorJar:
    """METEOR 1.5, ready to be started.

    Parameters
    ----------
    function : str
        Name for error messages.

    Raises
    ------
    BackendError
        If Java or pycocoevalcap is not installed.
    """

    def __init__(self, function: str = "score") -> None:
        self._function = function
        package = find_spec("pycocoevalcap")
        places = package.submodule_search_locations if package is not None else None
        folders = [Path(place) / "meteor" for place in places or ()]
        folder = next((one for one in folders if (one / JAR).is_file()), None)
        java = shutil.which("java")
        if folder is None or java is None:
            lacking, step = "java on the PATH", "a Java runtime, such as Debian's default-jre-headless"
            if folder is None:
                lacking, step = f"{JAR} of pycocoevalcap", "it: pip install --no-deps pycocoevalcap"
            msg = (
                f"{function}: meteor:1.5 must have Java and pycocoevalcap installed; got no {lacking}. Install {step}. "
                "meteor:nltk is another metric."
            )
            raise BackendError(msg)
        self._java, self._folder = java, folder

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the scores: the program by its SHA-256."""
        return {"model": JAR, "sha256": sha256(self._folder / JAR)}

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, progress: Count | None = None
    ) -> tuple[list[tuple[float, dict[str, float]]], dict[str, Any]]:
        """Score candidates, each distinct pair once.

        Parameters
        ----------
        pairs : sequence of (reference, candidate)
            A line break counts as a blank, and ``|||`` as nothing.
        progress : function
            Called with the number of distinct pairs finished since the last call.

        Returns
        -------
        found : list of (score, no components)
        noted : dict
            ``corpus``, what the program gives for all pairs together, from the added counts of their matches: papers
            print this number.

        Raises
        ------
        BackendError
            If the program ends early, or answers with anything but numbers.
        """
        counts: dict[tuple[str, str], str] = {}
        lines = [(_clean(reference), _clean(candidate)) for reference, candidate in pairs]
        try:
            with self._started() as ask:
                for pair in dict.fromkeys(lines):
                    counts[pair] = ask(f"SCORE {_BETWEEN} {pair[0]} {_BETWEEN} {pair[1]}", 1)[0]
                    if progress is not None:
                        progress(1)
                answers = ask(f" {_BETWEEN} ".join(["EVAL", *(counts[pair] for pair in lines)]), len(lines) + 1)
            *values, whole = map(float, answers)
        except (OSError, EOFError, ValueError) as error:
            got = "another answer" if isinstance(error, ValueError) else "an end"
            msg = (
                f"{self._function}: {JAR} must answer each pair with numbers; got {got} before the last one. Run it by "
                f"hand: java -Xmx2G -jar {JAR} in {self._folder}."
            )
            raise BackendError(msg) from None
        return [(value, {}) for value in values], {"corpus": whole}

    @contextmanager
    def _started(self) -> Iterator[Callable[[str, int], list[str]]]:
        """Start the program; yield a function that sends a line and returns so many lines of its answer."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [self._java, *_CALL], cwd=self._folder, encoding="utf-8", stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        ) as program:

            def ask(line: str, n_answers: int) -> list[str]:
                assert program.stdin is not None
                assert program.stdout is not None
                program.stdin.write(f"{line}\n")
                program.stdin.flush()
                found = [program.stdout.readline().strip() for _ in range(n_answers)]
                if not all(found):
                    raise EOFError
                return found

            try:
                yield ask
            finally:
                program.kill()


def _clean(text: str) -> str:
    """Return a text as one field of one line, as pycocoevalcap does; it lets a line break end the line."""
    return _LINE_BREAK.sub(" ", text.replace(_BETWEEN, ""))
