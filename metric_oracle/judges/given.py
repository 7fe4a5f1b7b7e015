"""Judges as they are given among the metrics: how each is called, declared once for Python and oracle.toml."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from annotated_doc import Doc
from annotated_types import Gt

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_left_out
from metric_oracle.base.declarations import IN_PYTHON, Flag
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import checksum, identify
from metric_oracle.base.job import Job
from metric_oracle.base.validation import public
from metric_oracle.corpora.tables import existing_file
from metric_oracle.findings.score_names import direction_of
from metric_oracle.judges.judge import COLUMNS, SCORE, Judge
from metric_oracle.judges.judged_files import read_judged
from metric_oracle.judges.judgements import Judgements
from metric_oracle.judges.pair_models import ErrorModel
from metric_oracle.judges.ways import of_command, of_function, of_model
from metric_oracle.metrics import find_metric, names_of
from metric_oracle.records import COMPOSITE

BATCH = 64
JUDGE = "judge"  # name of a judge that was given none

Keep: TypeAlias = Annotated[
    str | Path,
    Doc(
        "Folder in which judgements are kept, by checksums of both texts, also those of `files`: no pair of it is "
        "judged again, after an interruption or in another study. No text is stored. Needs `name`."
    ),
    Flag(metavar="FOLDER"),
]


@dataclass(frozen=True, repr=False)
class GivenJudge:
    """A judge as it was described, which nothing was asked yet. Made by [`judge`][metric_oracle.judge]."""

    name: str
    direction: str  # "higher" or "lower"
    command: Callable[..., Any] | Sequence[str] | None  # a function, or the words of a command
    files: tuple[Path, ...]
    best: float | None
    version: str
    keep: Path | None
    timeout: float | None
    batch: int
    most: int | None
    seconds_per_pair: float | None
    folder: Path | None = None  # in which a command runs; None for the working folder

    def __repr__(self) -> str:
        return f"<judge {self.name}>"

    @contextmanager
    def opened(self, job: Job | None = None) -> Iterator[Judge]:
        """Yield the judge, ready to be asked; its folder of judgements is locked in the body, if not by `job`."""
        if self.command is None and not self.files:
            raise InputError(
                f"the judge {self.name} has neither a command nor files.",
                "A command is asked; files have the scores that it gave.",
            )
        signature: dict[str, Any] = {}
        ask = None
        if callable(self.command):
            ask, signature["judge"] = of_function(self.command, self.batch), "function"
        elif self.command is not None:
            ask, signature["judge"] = of_command(self.command, self.timeout, self.folder), "command"
        else:
            signature["judged"] = [identify(existing_file(path)) for path in self.files]
        judge = Judge(
            self.name,
            self.version,
            self.direction == "higher",
            self.best,
            ask,
            signature,
            read_judged(self.files, self.name),
            most=self.most,
            seconds_per_pair=self.seconds_per_pair,
        )
        with keep_answers(judge, self.keep, job) as judge:
            yield judge

    def known_pairs(self) -> set[str]:
        """Return the ids of the pairs that have a score already, in the files or in the folder `keep`."""
        pairs = {*read_judged(self.files, self.name)}
        if self.keep is not None:
            with Judgements.open(self.keep, self.name, self.version) as before:
                pairs.update(before.of)
        return pairs


@public
def judge(
    command: Annotated[
        Callable[[list[tuple[str, str]]], Any] | str | None,
        Doc(
            "What is asked: a command, which reads a line of JSON for each pair, with pair (a number), reference and "
            "candidate, and writes one for each answer, with pair, score and any other numbers. In Python also a "
            "function that takes a list of pairs (reference, candidate) and returns a score, or a dict with score and "
            "other numbers, for each."
        ),
    ] = None,
    *,
    files: Annotated[
        str | Path | Sequence[str | Path] | None,
        Doc(
            "In the place of a command, scores that it gave to the pairs of files of [`pool`][metric_oracle.pool]: "
            "tables with the columns pair and score, or the `name` of the judge instead of score."
        ),
    ] = None,
    name: Annotated[
        str | None,
        Doc(
            f"Name of the judge in results and in `keep`, which needs it. By default that of the function, or {JUDGE}."
        ),
    ] = None,
    direction: Annotated[
        Literal["higher", "lower"] | None,
        Doc("Which scores are better. Needed unless `name` is that of a known tool, such as green_score."),
    ] = None,
    best: Annotated[
        Annotated[float, "Choose another."] | None,
        Doc(
            "Best possible score: an answer that reaches it is certified, as no report can be better. By default it "
            "is not known."
        ),
    ] = None,
    version: Annotated[
        str,
        Doc(
            "Version of the judge, such as that of its model and prompt. Judgements of another version in `keep` are "
            "not used."
        ),
    ] = "",
    keep: Keep | None = None,
    timeout: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("Seconds after which a command that wrote no line is stopped. By default it is waited for."),
    ] = None,
    batch: Annotated[
        option_types.Positive | None, Doc(f"Pairs that a function gets at a time. By default {BATCH}."), IN_PYTHON
    ] = None,
    most: Annotated[
        option_types.Positive | None,
        Doc("Most pairs to judge in a call; it is an error if there are more. By default there is no limit."),
    ] = None,
    seconds_per_pair: Annotated[
        Annotated[float, Gt(0)] | None,
        Doc("Seconds that the judge takes for a pair; the time of all pairs is then told before the first."),
    ] = None,
) -> GivenJudge:
    """Describe a judge, such as GREEN or an LLM: whatever reads a reference and a candidate together.

    The judge is then given among the metrics. In oracle.toml it has a name, and is asked when this name is given.

    Returns
    -------
    GivenJudge
        The judge. A value for `metrics` of [`score`][metric_oracle.score], [`study`][metric_oracle.study] and others.

    Raises
    ------
    InputError
        If a value is wrong, or the direction of the scores is not known.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> def differing(pairs):
    ...     return [abs(len(reference) - len(candidate)) for reference, candidate in pairs]
    >>> length = mo.judge(differing, direction="lower", best=0)
    >>> mo.score(["no acute process"], ["no acute disease"], ["rouge-l", length]).mean()
    {'rouge-l': 0.6666666666666666, 'differing': 0.0}
    """
    if command is not None and files is not None:
        raise InputError("give command or files, and not both.", "A command is asked, files have its scores.")
    own = str(getattr(command, "__name__", ""))
    known_as = name or (own if own.isidentifier() else JUDGE)  # that of a lambda is no name
    _check_name(known_as)
    if keep is not None:
        check_given("name", name, "with keep", "It says whose judgements they are.")
    if not isinstance(command, str):
        check_left_out({"timeout": timeout}, "for a judge that is no command")
    if not callable(command):
        check_left_out({"batch": batch}, "for a judge that is no function")
    return GivenJudge(
        known_as,
        _direction(known_as, direction),
        _words(command) if isinstance(command, str) else command,
        paths_of(files),
        best,
        version,
        None if keep is None else Path(keep).resolve(),
        timeout,
        batch or BATCH,
        most,
        seconds_per_pair,
    )


def _check_name(name: str) -> None:
    """Raise InputError unless a name is a judge's: that of no metric and no column."""
    is_taken = name in (*COLUMNS, COMPOSITE) or any(find_metric(one) is not None for one in (name, name.split(".")[0]))
    if is_taken or not name.isprintable() or "," in name:
        rule = "must be printable, without a comma, and that of no metric and no column of this tool"
        raise InputError("name", rule, shown(name), "Choose another.")


def _direction(name: str, direction: str | None) -> str:
    """Return which scores of a judge are better, by what was given or by its name."""
    usual = direction_of(name)
    better = direction or usual
    if better is None:
        raise InputError(
            "direction",
            "must be given for a judge whose name is not that of a known tool",
            f"none for {shown(name)}",
            'Add direction = "higher" or direction = "lower".',
        )
    if usual not in (None, better):
        raise InputError(
            "direction",
            "must be that of the known tool whose name the judge has",
            f"{better} for {shown(name)}, of which {usual} is better",
            "Correct it, or choose another name.",
        )
    return better


def _words(command: str) -> list[str]:
    """Return the words of a command."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote is not closed
        words = []
    if not words:
        raise InputError("command", "must name a program, with each quote closed", "none", "Check it.")
    return words


def paths_of(files: str | Path | Sequence[str | Path] | None) -> tuple[Path, ...]:
    """Return the paths of one file or several, or of none."""
    if files is None:
        return ()
    return (Path(files),) if isinstance(files, str | Path) else tuple(Path(path) for path in files)


@contextmanager
def keep_answers(judge: Judge, folder: Path | None, job: Job | None = None) -> Iterator[Judge]:
    """Yield a judge whose answers are kept in a folder, which is locked in the body; without one, the judge.

    `job` is the lock of the folder, if the caller holds it for several judges.
    """
    if folder is None:
        yield judge
        return
    with Judgements.open(folder, judge.name, judge.version, job) as before:
        for pair, numbers in judge.answers.items():  # those of files
            if pair not in before.of:
                before.add(pair, numbers)
            elif before.of[pair][SCORE] != numbers[SCORE]:
                raise InputError("files", "must have one score for a pair", f"another in {folder}", "Leave one out.")
        yield replace(judge, answers=before.of, keep=before.add)


def crepe_judge(model: ErrorModel) -> Judge:
    """Return CREPE as a judge: fewer errors are better, and none are best."""
    return Judge("crepe", checksum(model.signature), False, 0.0, of_model(model), model.signature)


# Among the metrics

MetricsOrJudges: TypeAlias = Annotated[
    str | GivenJudge | Sequence[str | GivenJudge],
    Doc(
        "Metrics, such as bleu, rouge-l or radgraph, see [`list_metrics`][metric_oracle.list_metrics], and judges: the "
        "name of one in oracle.toml, in Python what ``judge`` returns. Several with commas. By default the usual "
        "metrics whose inputs are all given."
    ),
    option_types.METRIC,
]


def parted(
    metrics: str | GivenJudge | Sequence[str | GivenJudge] | None, argument: str = "metrics"
) -> tuple[list[str] | None, list[GivenJudge]]:
    """Return the names of metrics, and the judges that were given among them; None for the names if nothing was."""
    if metrics is None or isinstance(metrics, str):
        return names_of(metrics), []
    listed = [metrics] if isinstance(metrics, GivenJudge) else [*metrics]
    judges = [one for one in listed if isinstance(one, GivenJudge)]
    names = [one.name for one in judges]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(argument, "must have each judge once", shown(twice), "Leave one out, or name it otherwise.")
    return names_of([one for one in listed if not isinstance(one, GivenJudge)]), judges


@contextmanager
def opened_judges(judges: Sequence[GivenJudge]) -> Iterator[list[Judge]]:
    """Yield the judges, ready to be asked."""
    folders = dict.fromkeys(one.keep for one in judges if one.keep is not None)
    with ExitStack() as stack:
        jobs = {folder: stack.enter_context(Judgements.locked(folder)) for folder in folders}
        yield [stack.enter_context(one.opened(None if one.keep is None else jobs[one.keep])) for one in judges]


def one_judge(
    metrics: str | GivenJudge | Sequence[str | GivenJudge] | None, argument: str
) -> tuple[list[str] | None, GivenJudge | None]:
    """Return the names of metrics and the judge among them, or None; raise InputError if there are several judges."""
    names, judges = parted(metrics, argument)
    if len(judges) > 1:
        raise InputError(argument, "must have one judge", len(judges), "Make one call for each judge.")
    return names, next(iter(judges), None)
