"""A judge: whatever reads a reference and a candidate together and gives a score.

No bound can skip a pair of a judge, and a pair may take seconds. So each distinct pair is judged once, and an answer is
kept as soon as it came.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Advance, say
from metric_oracle.findings.results import AFTER, FIXED, OF_POOL
from metric_oracle.findings.score_names import FOREIGN
from metric_oracle.judges.judgements import pair_ids
from metric_oracle.records import Directed

SCORE = "score"
# Fields of an answer that repeat the pair, and columns of results: components and judges have other names.
COLUMNS = {"pair", "reference", "candidate", "prediction", "text", *FIXED, *AFTER, *OF_POOL} - {SCORE}
_WORD = re.compile(r"[\w.()/%+:-]{1,40}")  # the name of a number; others may be a report's text
_NUMERAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")

Pair = tuple[str, str]  # reference and candidate
Take = Callable[[int, Any], None]  # called with the place of a pair and the answer, as soon as that came


class Asked(NamedTuple):
    """How the asking of a judge ended."""

    notes: Mapping[str, Any]  # for the signature
    end: str = ""  # why no more answers came, such as "exit code 3"; empty if it ended as it should


class Judged(NamedTuple):
    """What a judge makes of n pairs."""

    scores: np.ndarray  # float64[n]
    components: dict[str, np.ndarray]  # float64[n] by name: the numbers that each answer has beside the score
    notes: Mapping[str, Any]  # for the signature, of the pairs that were judged now


@dataclass(frozen=True)
class Judge(Directed):
    """Scores pairs of texts. Made by `GivenJudge.opened`."""

    name: str
    version: str
    higher_is_better: bool
    best: float | None  # the best possible score, if it is known
    ask: Callable[[Sequence[Pair], Take], Asked] | None  # None if it has only what files have
    signature: Mapping[str, Any]  # what answers: a function, a command, files or a model
    answers: Mapping[str, dict[str, float]] = field(default_factory=dict)  # score and components by `pair_ids`
    keep: Callable[[str, dict[str, float]], None] | None = None  # called with each new answer; `answers` then has it
    most: int | None = None  # number of pairs that it may judge
    seconds_per_pair: float | None = None

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a metric in a signature: what must be equal for scores of one column, whatever the system."""
        return judge_entry(self.direction, self.version)

    @property
    def recorded(self) -> dict[str, Any]:
        """The entry of a signature."""
        return {
            "name": self.name,
            "version": self.version,
            "direction": self.direction,
            "best": self.best,
            **self.signature,
        }

    def is_best(self, scores: np.ndarray) -> np.ndarray:
        """Return which scores are the best possible ones: bool, in the form of `scores`."""
        return np.zeros(scores.shape, bool) if self.best is None else scores == self.best

    def n_kept(self, pairs: Iterable[Pair]) -> int:
        """Return how many of some distinct pairs were judged before."""
        return sum(pair in self.answers for pair in pair_ids(pairs)) if self.answers else 0

    def check_cost(self, n_pairs: int, n_kept: int, tell: Callable[[str], None] | None) -> None:
        """Tell, before the first pair is judged, how many will be, and the time; raise InputError if they are too many.

        `n_pairs` is the number of distinct pairs, `n_kept` how many of them were judged before.
        """
        n = n_pairs - n_kept
        if self.most is not None and n > self.most:
            rule = f"must be at least {n:,}, the pairs to judge"
            raise InputError(f"most of the judge {self.name}", rule, self.most, "Judge fewer, or allow more.")
        if tell is not None and self.ask is not None:
            of_before = f", and {n_kept:,} that are kept" if n_kept else ""
            seconds = None if self.seconds_per_pair is None else n * self.seconds_per_pair
            time = "" if seconds is None else f"; about {_time(seconds)}"
            say(f"{self.name}: {n:,} distinct pairs to judge{of_before}{time}", tell)

    def score(self, pairs: Sequence[Pair], progress: Advance | None = None) -> Judged:
        """Return the scores of pairs; each distinct one is judged once, and not at all if it is kept.

        `progress` is called with the number of distinct pairs judged since the last call. Raise InputError if a pair
        has no answer or one without a finite number, after all others were judged and kept, or if a score is better
        than the best possible one.
        """
        place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        ids, distinct = pair_ids(place), [*place]
        asked = [i for i, pair in enumerate(ids) if pair not in self.answers]
        new: dict[str, dict[str, float]] = {}
        wrong: dict[str, str] = {}  # what came instead of a number

        def take(i: int, answer: Any) -> None:
            """Keep the answer to the i-th of the pairs that are asked."""
            numbers, pair = numbers_in(answer), ids[asked[i]]
            if numbers is None:
                wrong[pair] = described(answer)
            else:
                texts = {text.strip() for text in distinct[asked[i]]}
                numbers = {name: value for name, value in numbers.items() if name == SCORE or name not in texts}
                new[pair] = numbers
                self._keep(pair, numbers)
            if progress is not None:
                progress(1)

        notes, end = Asked({})
        if asked and self.ask is not None:
            notes, end = self.ask([distinct[i] for i in asked], take)
        lacking = [ids[i] for i in asked if ids[i] not in new]
        if lacking or end:
            raise self._unanswered(len(ids if self.ask is None else asked), lacking, wrong, end)
        answers = [new[pair] if pair in new else self.answers[pair] for pair in ids]
        which = np.array([place[pair] for pair in pairs], np.int64)
        scores = np.array([answer[SCORE] for answer in answers], np.float64)
        self._check_best(scores)
        names = [*answers[0]] if answers else []
        shared = [name for name in names if name != SCORE and all(name in answer for answer in answers)]
        components = {name: np.array([answer[name] for answer in answers])[which] for name in shared}
        return Judged(scores[which], components, notes)

    def _keep(self, pair: str, numbers: dict[str, float]) -> None:
        """Keep an answer, if answers are kept; raise InputError if it cannot be written."""
        if self.keep is None:
            return
        try:
            self.keep(pair, numbers)
        except OSError as error:
            raise InputError(
                f"{error.filename} cannot be written ({error.strerror or error}).",
                "Make room there: the same call then goes on, and no answer that was kept is lost.",
            ) from error

    def answered(self, pairs: Sequence[Pair], progress: Advance | None = None) -> "Judge":
        """Judge distinct pairs; return a judge that looks their scores up and scores no other pair."""
        judged = self.score(pairs, progress)
        columns = {SCORE: judged.scores.tolist(), **{name: part.tolist() for name, part in judged.components.items()}}
        answers = (dict(zip(columns, numbers, strict=True)) for numbers in zip(*columns.values(), strict=True))
        answer_of = dict(zip(pair_ids(pairs), answers, strict=True))
        return replace(self, ask=None, answers=answer_of, signature={**self.signature, **judged.notes})

    def _check_best(self, scores: np.ndarray) -> None:
        """Raise InputError if a score is better than the best possible one."""
        if self.best is None or not len(scores):
            return
        best = self.best_of(scores)
        if self.sign * best > self.sign * self.best:
            raise InputError(
                "best", f"must be a score that none is better than, as {best:g} is", f"{self.best:g}", "Name another."
            )

    def _unanswered(self, n: int, lacking: Sequence[str], wrong: Mapping[str, str], end: str) -> InputError:
        """Return the error for pairs without a number: `lacking`, with what `wrong` ones answered, of `n` in all."""
        if self.ask is None:
            return InputError(
                f"files of the judge {self.name}",
                "must have a score for each pair",
                f"none for {len(lacking):,} of {n:,}, such as pair {lacking[0]}",
                "Have the others judged, and add their file: `mo.pool` with the judge as metric writes "
                "those of a pool, `mo.study_pairs` those of a study.",
            )
        without = [
            f"{count:,} of {n:,} pairs {what}"
            for count, what in (
                (len(wrong), "with an answer that has no number"),
                (len(lacking) - len(wrong), "without an answer"),
            )
            if count
        ]
        got = "; ".join(filter(None, [end, *without]))
        such = f", such as pair {lacking[0]}" if lacking else ""
        if wrong:
            pair, what = next(iter(wrong.items()))
            such = f", such as pair {pair}: {what}"
        step = 'Give the judge keep = "FOLDER" and run it again, so that no answer is lost.'
        if self.keep is not None:
            step = "A pair that cannot be scored needs the number that is to count for it. " if wrong else ""
            step += f"The answers to the other {n - len(lacking):,} are kept: the same call asks for the rest."
        return InputError("judge", "must answer each pair with a number", f"{got}{such}", step)


def judge_entry(direction: str, version: str) -> dict[str, Any]:
    """Return `Judge.entry`. A judge without a version has that of a foreign column, so that both join in a table."""
    return {"source": FOREIGN, "direction": direction, **({"version": version} if version else {})}


def numbers_in(answer: Any) -> dict[str, float] | None:
    """Return the score and the components of an answer, a number or a dict; None if it has no finite score.

    They are in one dict, the score as "score". Without that, the only number is the score if its name says so, as
    "green_score" does. Components are the other finite numbers, except those with the name of a column of results, or
    with one that is no single word. Texts, which may quote a report, are left out.
    """
    fields = answer if isinstance(answer, Mapping) else {SCORE: answer}
    values = {str(name): _number(value) for name, value in fields.items() if name not in COLUMNS}
    numbers = {name: value for name, value in values.items() if value is not None and _WORD.fullmatch(name)}
    if SCORE not in fields and len(numbers) == 1 and next(iter(numbers)).lower().endswith(SCORE):
        numbers = dict.fromkeys([SCORE], next(iter(numbers.values())))
    return numbers if SCORE in numbers else None


def _number(value: Any) -> float | None:
    """Return the finite number that a value is, also as a text or as the only one of a list, array or tensor."""
    if isinstance(value, str):
        value = float(value) if _NUMERAL.fullmatch(value.strip()) else None
    elif isinstance(value, list | tuple) and len(value) == 1:
        return _number(value[0])
    elif hasattr(value, "item") and hasattr(value, "shape") and math.prod(value.shape) == 1:
        value = value.item()
    if not isinstance(value, Real | Decimal) or isinstance(value, bool | np.bool_):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return number if math.isfinite(number) else None


def described(answer: Any) -> str:
    """Return what an answer is, without its content, which may quote a report: its type, and shape, size or keys."""
    if isinstance(answer, Mapping):
        names = [name for name in answer if isinstance(name, str) and _WORD.fullmatch(name) and name != "pair"]
        if _number(answer.get(SCORE, 0)) is None:
            return f"{SCORE}: {described(answer[SCORE])}"
        return f"a dict with {', '.join(names[:5]) or 'no names of numbers'}"
    if answer is None or (isinstance(answer, float) and not math.isfinite(answer)):
        return str(answer)
    kind = type(answer).__name__
    if isinstance(answer, str | bytes):
        return f"a {kind} of {len(answer):,} characters"
    if hasattr(answer, "shape"):
        return f"a {kind} of shape {tuple(answer.shape)}"
    return f"a {kind} of {len(answer):,} items" if isinstance(answer, Sized) else f"a {kind}"


def _time(seconds: float) -> str:
    """Return a time as a text such as "3.5 h"."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
