"""A judge: whatever reads a reference and a candidate together and gives a score.

No bound can skip a pair of a judge, and a pair may take seconds. So each distinct pair is judged once, and an answer is
kept as soon as it came.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import InputError, as_called, option
from metric_oracle.base.progress import Advance, say
from metric_oracle.findings.results import AFTER, FIXED, OF_POOL
from metric_oracle.findings.score_names import FOREIGN
from metric_oracle.judges.judgements import pair_ids
from metric_oracle.records import Directed

SCORE = "score"
# Fields of an answer that repeat the pair, and columns of results: components and judges have other names.
COLUMNS = {"pair", "reference", "candidate", "prediction", "text", *FIXED, *AFTER, *OF_POOL} - {SCORE}

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
    """Scores pairs of texts. Made by `opening.opened_judge`."""

    name: str
    version: str
    higher_is_better: bool
    best: float | None  # the best possible score, if it is known
    ask: Callable[[Sequence[Pair], Take], Asked] | None  # None if it has only what files have
    signature: Mapping[str, Any]  # what answers: a function, a command, files or a model
    known: Mapping[str, dict[str, float]] = field(default_factory=dict)  # score and components by `pair_ids`
    keep: Callable[[str, dict[str, float]], None] | None = None  # called with each new answer; `known` then has it
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
        return sum(pair in self.known for pair in pair_ids(pairs)) if self.known else 0

    def check_cost(self, n_pairs: int, n_kept: int, tell: Callable[[str], None] | None) -> None:
        """Tell, before the first pair is judged, how many will be, and the time; raise InputError if they are too many.

        `n_pairs` is the number of distinct pairs, `n_kept` how many of them were judged before.
        """
        n = n_pairs - n_kept
        if self.most is not None and n > self.most:
            raise InputError(
                "most", f"must be at least {n:,}, the pairs to judge", self.most, "Judge fewer, or allow more."
            )
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
        asked = [i for i, pair in enumerate(ids) if pair not in self.known]
        new: dict[str, dict[str, float]] = {}
        n_wrong = 0

        def take(i: int, answer: Any) -> None:
            """Keep the answer to the i-th of the pairs that are asked."""
            nonlocal n_wrong
            numbers, pair = numbers_in(answer), ids[asked[i]]
            if numbers is None:
                n_wrong += 1
            else:
                new[pair] = numbers
                self._keep(pair, numbers)
            if progress is not None:
                progress(1)

        notes, end = Asked({})
        if asked and self.ask is not None:
            notes, end = self.ask([distinct[i] for i in asked], take)
        lacking = [ids[i] for i in asked if ids[i] not in new]
        if lacking or end:
            raise self._unanswered(len(ids if self.ask is None else asked), lacking, n_wrong, end)
        answers = [new[pair] if pair in new else self.known[pair] for pair in ids]
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
        found = self.score(pairs, progress)
        columns = {SCORE: found.scores.tolist(), **{name: part.tolist() for name, part in found.components.items()}}
        answers = (dict(zip(columns, numbers, strict=True)) for numbers in zip(*columns.values(), strict=True))
        known = dict(zip(pair_ids(pairs), answers, strict=True))
        return replace(self, ask=None, known=known, signature={**self.signature, **found.notes})

    def _check_best(self, scores: np.ndarray) -> None:
        """Raise InputError if a score is better than the best possible one."""
        if self.best is None or not len(scores):
            return
        found = self.best_of(scores)
        if self.sign * found > self.sign * self.best:
            raise InputError(
                "best", f"must be a score that none is better than, as {found:g} is", f"{self.best:g}", "Name another."
            )

    def _unanswered(self, n: int, lacking: Sequence[str], n_wrong: int, end: str) -> InputError:
        """Return the error for pairs without a number: `lacking`, of which `n_wrong` have an answer, of `n` in all."""
        if self.ask is None:
            return InputError(
                "judged",
                "must have a score for each pair",
                f"none for {len(lacking):,} of {n:,}, such as pair {lacking[0]}",
                f"Have the others judged, and pass their file too: {as_called('pool')} with {option('judged')} writes "
                f"those of a pool, {option('pairs', 'FILE', python='mo.study_pairs')} those of a study.",
            )
        without = [
            f"{count:,} of {n:,} pairs {what}"
            for count, what in (
                (n_wrong, "with an answer that has no number"),
                (len(lacking) - n_wrong, "without an answer"),
            )
            if count
        ]
        got = "; ".join(filter(None, [end, *without]))
        such = f", such as pair {lacking[0]}" if lacking else ""
        step = f"Run it again with {option('keep', 'FOLDER')}, so that no answer is lost."
        if self.keep is not None:
            step = f"The answers to the other {n - len(lacking):,} are kept: the same call asks for the rest."
        return InputError("judge", "must answer each pair with a number", f"{got}{such}", step)


def judge_entry(direction: str, version: str) -> dict[str, Any]:
    """Return `Judge.entry`. A judge without a version has that of a foreign column, so that both join in a table."""
    return {"source": FOREIGN, "direction": direction, **({"version": version} if version else {})}


def numbers_in(answer: Any) -> dict[str, float] | None:
    """Return the score and the components of an answer, a number or a dict; None if it has no finite score.

    They are in one dict, the score as "score". Components are the other finite numbers, except those with the name of a
    column of results. Texts, which may quote a report, are left out.
    """
    fields = answer if isinstance(answer, Mapping) else {SCORE: answer}
    numbers = {
        str(name): float(value)
        for name, value in fields.items()
        if name not in COLUMNS and isinstance(value, Real) and not isinstance(value, bool | np.bool_)
    }
    numbers = {name: value for name, value in numbers.items() if np.isfinite(value)}
    return numbers if SCORE in numbers else None


def _time(seconds: float) -> str:
    """Return a time as a text such as "3.5 h"."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
