"""The options of a judge, declared once for all functions and commands, and the judge that they describe."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

from annotated_doc import Doc
from annotated_types import Gt

from metric_oracle.base import choices
from metric_oracle.base.arguments import check_given, check_left_out, given_of
from metric_oracle.base.declared import IN_PYTHON, Flag
from metric_oracle.base.errors import InputError, as_called, if_taken, option, shown
from metric_oracle.base.files import checksum, identify
from metric_oracle.corpora.tables import existing_file, read_table
from metric_oracle.findings.score_names import direction_of
from metric_oracle.judges.judge import COLUMNS, SCORE, Judge, numbers_in
from metric_oracle.judges.judgements import DIGITS, Judgements
from metric_oracle.judges.pair_models import ErrorModel
from metric_oracle.judges.ways import of_command, of_function, of_model
from metric_oracle.metrics import find_metric
from metric_oracle.records import COMPOSITE

RANK = "rank."  # before the name of a metric: a column of a file of pairs
BATCH = 64
_PAIR = re.compile(rf"[0-9a-f]{{{2 * DIGITS}}}")
_COST = ("most", "seconds_per_pair")
JUDGE = "judge"  # name of a judge that was given none


Version: TypeAlias = Annotated[
    str,
    Doc(
        "Version of the judge, such as that of its model and prompt. Judgements of another version in `keep` are not "
        "used."
    ),
]
Keep: TypeAlias = Annotated[
    str | Path,
    Doc(
        "Folder in which judgements are kept, by checksums of both texts, also those of `judged`: no pair of it is "
        "judged again, after an interruption or in another study. No text is stored. Needs `name`."
    ),
    Flag(metavar="FOLDER"),
]


class JudgeOptions(TypedDict, total=False):
    """What describes a judge, and what it may cost."""

    judge: Annotated[
        Callable[[list[tuple[str, str]]], Any] | str | None,
        Doc(
            "Judge of pairs: a command, which reads a line of JSON for each pair, with pair (a number), reference and "
            "candidate, and writes one for each answer, with pair, score and any other numbers. In Python also a "
            "function that takes a list of pairs (reference, candidate) and returns a score, or a dict with score and "
            "other numbers, for each."
        ),
        Flag(metavar="COMMAND"),
    ]
    judged: Annotated[
        str | Path | Sequence[str | Path] | None,
        Doc(
            "Scores that a judge gave to the pairs of files of [`pool`][metric_oracle.pool]: tables with the columns "
            "pair and score, or the `name` of the judge instead of score."
        ),
        Flag(metavar="FILE", kind=list[Path]),
    ]
    higher_is_better: Annotated[
        bool | None,
        Doc(
            "Whether higher scores of the judge are better. Needed unless `name` is that of a known tool, such as "
            "green_score."
        ),
        Flag("--direction", metavar="higher|lower", kind=Literal["higher", "lower"]),
    ]
    best: Annotated[
        Annotated[float, "Choose another."] | None,
        Doc(
            "Best possible score of the judge: an answer that reaches it is certified, as no report can be better. By "
            "default it is not known."
        ),
    ]
    name: Annotated[
        str | None, Doc(f"Name of the judge in results and in `keep`. By default {JUDGE}, or that of the function.")
    ]
    judge_version: Version | None
    keep: Keep | None
    timeout: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("Seconds after which a command that wrote no line is stopped. By default it is waited for."),
        Flag(metavar="S"),
    ]
    batch: Annotated[
        choices.Positive | None, Doc(f"Pairs that a function gets at a time. By default {BATCH}."), IN_PYTHON
    ]
    most: Annotated[
        choices.Positive | None,
        Doc("Most pairs to judge; it is an error if there are more. By default there is no limit."),
    ]
    seconds_per_pair: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("Seconds that the judge takes for a pair; the time of all pairs is then told before the first."),
        Flag(metavar="S"),
    ]


@contextmanager
def opened_judge(given: JudgeOptions, model: ErrorModel | None = None) -> Iterator[Judge]:
    """Yield the judge that options describe, or CREPE's `model`; its folder of judgements is locked in the body.

    Raise InputError if an option is wrong, or the direction of the scores is not known.
    """
    judge = _of_model(given, model) if model is not None else _of_options(given)
    keep = given.get("keep")
    if keep is None:
        yield judge
        return
    if model is None:
        _check_named(given.get("name"))
    with Judgements.open(Path(keep), judge.name, judge.version) as kept:
        for pair, numbers in judge.known.items():  # those of files
            if pair not in kept.of:
                kept.add(pair, numbers)
            elif kept.of[pair][SCORE] != numbers[SCORE]:
                raise InputError("judged", "must have one score for a pair", f"another in {keep}", "Leave one out.")
        yield replace(judge, known=kept.of, keep=kept.add)


def known_pairs(
    judged: str | Path | Sequence[str | Path] | None, keep: str | Path | None, name: str | None, version: str | None
) -> set[str]:
    """Return the ids of the pairs that a judge has scored: those of files, and those that a folder keeps."""
    pairs = set[str]() if judged is None else {*read_judged(judged, name or SCORE)}
    if keep is not None:
        with Judgements.open(Path(keep), _check_named(name), version or "") as kept:
            pairs.update(kept.of)
    return pairs


def _check_named(name: str | None) -> str:
    """Return the name of a judge whose judgements are kept; raise InputError if it has none."""
    return check_given("name", name, f"with {option('keep')}", "It says whose judgements they are.")


@contextmanager
def asked_judge(given: JudgeOptions) -> Iterator[Judge | None]:
    """Yield the judge that options describe, or None if none of them was given; see `opened_judge`."""
    if not given_of(given):
        yield None
        return
    with opened_judge(given) as judge:
        yield judge


def _of_model(given: JudgeOptions, model: ErrorModel) -> Judge:
    """Return CREPE as a judge: fewer errors are better, and none are best."""
    own = ("judge", "judged", "higher_is_better", "best", "name", "judge_version", "timeout", "batch")
    check_left_out(given_of(given, own), "for CREPE")
    version = checksum(model.signature)
    return Judge("crepe", version, False, 0.0, of_model(model), model.signature, **given_of(given, _COST))


def _of_options(given: JudgeOptions) -> Judge:
    """Return the judge that is a function, a command or files."""
    judge, judged = given.get("judge"), given.get("judged")
    if (judge is None) == (judged is None):
        of_crepe = if_taken("crepe", f"{option('crepe')}, ")
        raise InputError(
            f"give {of_crepe}{option('judge')} or {option('judged')}, and one of them; got "
            f"{'none' if judge is None else 'two'}.",
            f"{option('judge')} is asked, {option('judged')} has its scores.",
        )
    own = str(getattr(judge, "__name__", ""))
    name = given.get("name") or (own if own.isidentifier() else JUDGE)  # that of a lambda is no name
    is_taken = name in (*COLUMNS, COMPOSITE) or any(find_metric(one) is not None for one in (name, name.split(".")[0]))
    if is_taken or not name.isprintable():
        rule = "must be printable, and that of no metric and no column of this tool"
        raise InputError("name", rule, shown(name), "Choose another.")
    higher = given.get("higher_is_better")
    usual = direction_of(name)
    direction = usual if higher is None else {True: "higher", False: "lower"}.get(higher, higher)
    if usual not in (None, direction):
        raise InputError(
            "higher_is_better",
            "must be that of the known tool whose name the judge has",
            f"{direction} for {shown(name)}, of which {usual} is better",
            "Correct it, or choose another name.",
        )
    if direction is None:
        raise InputError(
            "higher_is_better",
            "must be given for a judge whose name is not known",
            shown(name),
            f"Pass {option('higher_is_better', 'higher', python='higher_is_better=True')} or "
            f"{option('higher_is_better', 'lower', python='higher_is_better=False')}.",
        )
    if not isinstance(judge, str):
        check_left_out({"timeout": given.get("timeout")}, "for a judge that is no command")
    if not callable(judge):
        check_left_out({"batch": given.get("batch")}, "for a judge that is no function")
    signature: dict[str, Any] = {}
    known: dict[str, dict[str, float]] = {}
    ask = None
    if judged is not None:
        signature["judged"] = [identify(existing_file(path)) for path in paths_of(judged)]
        known = read_judged(judged, name)
    elif isinstance(judge, str):
        try:
            words = shlex.split(judge)
        except ValueError:  # a quote is not closed
            words = []
        if not words:
            raise InputError("judge", "must be a command, with each quote closed", "none", "Check it.")
        ask, signature["judge"] = of_command(words, given.get("timeout")), "command"
    elif judge is not None:
        ask, signature["judge"] = of_function(judge, given.get("batch") or BATCH), "function"
    return Judge(
        name,
        given.get("judge_version") or "",
        direction == "higher",
        given.get("best"),
        ask,
        signature,
        known,
        **given_of(given, _COST),
    )


def paths_of(given: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the paths of one file or several."""
    return [Path(given)] if isinstance(given, str | Path) else [Path(path) for path in given]


def read_judged(given: str | Path | Sequence[str | Path], name: str) -> dict[str, dict[str, float]]:
    """Return what a judge gave to the pairs of files: score and components by the id of the pair.

    A pair without a number is left out. Raise InputError for a table without the columns, for text among the scores,
    and for a pair that has different scores.
    """
    found: dict[str, dict[str, float]] = {}
    for path in paths_of(given):
        table = read_table(path)
        ids = table.texts("pair")
        wrong = next((row for row, pair in enumerate(ids) if not _PAIR.fullmatch(pair or "")), None)
        if wrong is not None:
            raise InputError(
                "pair",
                f"must be an id of 64 digits, as {as_called('pool')} writes it",
                f"another in {table.place_of(wrong)}",
                "Leave that column as it was.",
            )
        scores = table.scores(name if name in table.names else SCORE)
        others = {
            other: table.scores(other, may_be_words=True)
            for other in {*table.names} - {name, SCORE, "pair"}
            if not other.startswith(RANK)
        }
        columns = {
            column: [None] * table.n_rows if numbers is None else numbers.to_list()
            for column, numbers in {SCORE: scores, **others}.items()
        }
        for row, pair in enumerate(ids):
            numbers = numbers_in({column: cells[row] for column, cells in columns.items()})
            if numbers is not None and found.setdefault(str(pair), numbers)[SCORE] != numbers[SCORE]:
                raise InputError(
                    "judged", "must have one score for a pair", f"another in {table.place_of(row)}", "Leave one out."
                )
    return found
