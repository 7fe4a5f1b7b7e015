"""Rewards for training: a metric in the shape that TRL's GRPO trainer calls."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.argument_checks import check_options, given_of
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import say
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.texts import count_marks, is_missing, remarks
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.judges.pair_models import PairScorer, opened_models
from metric_oracle.metrics import REPRESENTATIONS, get_metric
from metric_oracle.reading import MODELS, AttachedReports
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_alone
from metric_oracle.retrieval.corpus_index import counted_of
from metric_oracle.retrieval.options import DEFAULTS
from metric_oracle.scores.groups import expected_scores, score_cells
from metric_oracle.sides import Sides
from metric_oracle.sources.attaching import ARGUMENTS
from metric_oracle.sources.contract import Source, source_of
from metric_oracle.sources.token_states import OpenedEncoder, load_encoder

COLUMNS = ("reference", "ground_truth")  # of a data set: where references are looked for
_NAME = "completions"
KEPT = 1 << 14  # references of which a model's results are kept


@public
def reward(
    metric: str,
    *,
    index: AnyIndex | None = None,
    column: str | None = None,
    sources: Mapping[str, Any] | None = None,
) -> Callable[..., list[float | None]]:
    """Return a reward function for TRL's GRPO trainer: the score of each completion with its reference.

    Parameters
    ----------
    metric : str
        Where lower is better, the reward is the score's negative, because a trainer looks for the greatest reward. A
        metric whose scores depend on the other references of a call, such as ``cider-d``, is refused.
    index : path, Index or reports, optional
        Corpus whose document frequencies count under ``cider-d:corpus``, which needs it.
    column : str, optional
        Column of the data set that holds the references, by default ``reference`` or, where there is none,
        ``ground_truth``.
    sources : dict, optional
        What makes what the metric reads, by the arguments of [`reports`][metric_oracle.reports], opened once: a
        RadGraph archive, ``chexbert.pth``, RaTE-NER's folder, or a function from texts to graphs, vectors or classes in
        their order; the encoder of BERTScore; and `uncertain`, `device` and what else the models need. Each distinct
        text of a call is given once. What is made of the last 16,384 references is kept.

    Returns
    -------
    function
        ``(prompts, completions, **columns) -> list of float or None``. Completions and references are texts or lists of
        chat messages, whose last content counts. A completion whose reference is missing (None) belongs to another task
        and gets None, as the trainer expects. An empty completion scores as the metric says, and so does one that
        consists of a word for a missing report, such as "None".

    Raises
    ------
    InputError
        If the metric is refused, or lacks a model, an encoder or a corpus that it needs.

    See Also
    --------
    consensus_reward : A reward without references.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> rewarded = mo.reward("rouge-l")
    >>> rewarded(completions=["no acute disease", "Paris"], ground_truth=["no acute process", None])
    [0.6666666666666666, None]
    """
    return _Reward(Scorer.open(metric, index, sources), (metric, index, column, sources))


@public
def consensus_reward(
    metric: str,
    *,
    index: AnyIndex | None = None,
    column: str = "prompts",
    sources: Mapping[str, Any] | None = None,
) -> Callable[..., list[float | None]]:
    """Return a reward function for TRL's GRPO trainer: the mean score of each completion with the others of its group.

    No reference is needed. The other completions of the same prompt are the references, each as often as it was
    written; a completion is not compared with itself.

    Parameters
    ----------
    metric : str
        See [`reward`][metric_oracle.reward]. Where lower is better, the reward is the negative mean.
    index : path, Index or reports, optional
        See [`reward`][metric_oracle.reward].
    column : str, default "prompts"
        What is equal for the completions of one group, and only for them: the prompts, or a column of the data set.
        Name a column with the id of the study where studies share a prompt, for example because they differ in their
        images.
    sources : dict, optional
        See [`reward`][metric_oracle.reward].

    Returns
    -------
    function
        ``(prompts, completions, **columns) -> list of float or None``; None for a completion without others, and for
        one whose prompt, or whose value in `column`, is None. Prompts are equal if their messages, texts, arrays and
        images have equal content. Equal completions of a group have equal rewards.

    Raises
    ------
    InputError
        If the metric is refused, or lacks a model, an encoder or a corpus that it needs.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> rewarded = mo.consensus_reward("rouge-l")
    >>> rewarded(prompts=["a", "a", "a", "b"], completions=["no edema", "no edema", "edema", "clear"])
    [0.8333333333333333, 0.8333333333333333, 0.6666666666666666, None]
    """
    return _ConsensusReward(Scorer.open(metric, index, sources), (metric, index, column, sources))


class _Reward:
    """A reward function; another process that gets it makes it again from its arguments and opens its own models.

    `arguments` are metric, index, column and sources, as `reward` takes them.
    """

    def __init__(self, scorer: "Scorer", arguments: tuple[Any, ...]) -> None:
        self._scorer, self._arguments = scorer, arguments
        self._told: set[str] = set()  # kinds of marks
        direction = "" if scorer.metric.sign > 0 else "negative "
        self.__name__ = f"{direction}{self._kind}{scorer.metric.name}"  # which a trainer shows

    _kind = ""
    _make: Callable[..., Any] = staticmethod(reward)

    def __repr__(self) -> str:
        return f"<reward {self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        metric, index, column, sources = self._arguments
        index = Path(index).absolute() if isinstance(index, str | Path) else index
        return partial(self._make, metric, index=index, column=column, sources=sources), ()

    def _tell_marks(self, texts: Sequence[str], what: str) -> None:
        """Tell marks within completions or references, `what`, that count as words: of each kind at its first call."""
        marks = {kind: n for kind, n in count_marks(texts).items() if f"{what} {kind}" not in self._told}
        if marks:
            self._told |= {f"{what} {kind}" for kind in marks}
            say(f"{what}: {remarks(Counter(), Counter(marks))}; pass their text alone", None)

    def __call__(self, prompts: Any = None, completions: Sequence[Any] = (), **columns: Any) -> list[float | None]:
        """Return the score of each completion with its reference, which a column of the data set has."""
        texts, column = _texts_of(completions, "completions"), self._arguments[2]
        name = column or next((name for name in COLUMNS if columns.get(name) is not None), COLUMNS[0])
        truth = [None if is_missing(text) else text for text in _column(columns.get(name), name, len(texts))]
        own = [i for i, text in enumerate(truth) if text is not None]
        references = _texts_of([truth[i] for i in own], name)
        self._tell_marks([texts[i] for i in own], "completions")
        self._tell_marks(references, name)
        rewards: list[float | None] = [None] * len(texts)
        single = np.ones(len(own), np.int64)
        scores = self._scorer.scores([texts[i] for i in own], references, single)
        for i, score in zip(own, scores.tolist(), strict=True):
            rewards[i] = score
        return rewards


class _ConsensusReward(_Reward):
    """A reward function without references; it is made and sent to other processes as `_Reward`."""

    _kind = "consensus "
    _make = staticmethod(consensus_reward)

    def __call__(self, prompts: Any = None, completions: Sequence[Any] = (), **columns: Any) -> list[float | None]:
        """Return the mean score of each completion with the others of its group."""
        texts, column = _texts_of(completions, "completions"), self._arguments[2]
        self._tell_marks(texts, "completions")
        values = prompts if column == "prompts" else columns.get(column)
        groups: dict[Any, list[int]] = {}
        for i, value in enumerate(_column(values, column, len(texts))):
            if isinstance(value, str) or not is_missing(value):
                groups.setdefault(_key_of(value, column), []).append(i)
        rewards: list[float | None] = [None] * len(texts)
        ordered = [texts[i] for positions in groups.values() for i in positions]
        sizes = np.array([len(positions) for positions in groups.values()], np.int64)
        scores = self._scorer.scores(ordered, None, sizes)
        for positions, end in zip(groups.values(), np.cumsum(sizes**2).tolist(), strict=True):
            n = len(positions)
            if n > 1:
                means = expected_scores(scores[end - n * n : end].reshape(n, n))
                for i, mean in zip(positions, means.tolist(), strict=True):
                    rewards[i] = mean
        return rewards


@dataclass(frozen=True)
class Scorer:
    """A metric with the models that it needs, opened once."""

    metric: Metric
    models: dict[str, Any]  # functions from texts to a source's values, by the argument of `reports`
    remembering: dict[str, Any]  # the same functions, which keep the values of earlier texts
    settings: dict[str, Any]  # other options of the sources: `uncertain`
    opened_encoder: OpenedEncoder | None  # encoder of BERTScore; None if the metric reads no token states
    counted: Index | None  # corpus whose document frequencies count, None if there is none
    pair_model: PairScorer | None  # of a metric without an exact search; None for most metrics

    @classmethod
    def open(cls, name: str, index: AnyIndex | None, sources: Mapping[str, Any] | None) -> "Scorer":
        """Return the scorer of a metric, with its models opened; the arguments are those of `reward`.

        Raise InputError if the metric is refused, or lacks a model, an encoder or a corpus.
        """
        arguments = dict(sources or {})
        check_options(arguments, (*ARGUMENTS, *MODELS, "encoder"))
        encoder = arguments.get("encoder")
        metric = get_metric(name)
        check_alone("metric", metric, DEFAULTS.idf, "rewards")
        counted = counted_of(index, [metric], None)
        models = {
            source.argument: _model_of(source, arguments, metric)
            for source in (source_of(kind) for kind in metric.representations if REPRESENTATIONS[kind].is_attached)
        }
        opened_encoder: OpenedEncoder | None = None
        if metric.needs_encoder:
            if encoder is None:
                rule = f"must be given for metric {metric.name!r}"
                raise InputError("encoder", rule, "None", "Add its name or folder: `sources={'encoder': NAME}`.")
            opened_encoder = load_encoder(encoder, **given_of(arguments, ("device",)))
        remembering = {argument: _Remembered(model) for argument, model in models.items()}
        pair_model = opened_models([metric]).get(metric.representation)
        return cls(
            metric, models, remembering, given_of(arguments, ("uncertain",)), opened_encoder, counted, pair_model
        )

    def scores(self, candidates: list[str], references: list[str] | None, sizes: np.ndarray) -> np.ndarray:
        """Return the rewards of all pairs within each group, as one array: group after group, each row by row.

        Candidates are compared with the references of their group, as many as candidates, or with one another if there
        are none. `sizes`, int64[G], has the number of candidates of each group.
        """
        sign = self.metric.sign
        if not candidates:
            return np.zeros(0)
        if self.pair_model is not None:
            return sign * self._read_together(candidates, references or candidates, sizes)
        truth, written = self._inputs(candidates, references)
        return sign * score_cells(truth, written, (sizes, sizes), self.metric, DEFAULTS, self.counted)

    def _read_together(self, candidates: list[str], references: list[str], sizes: np.ndarray) -> np.ndarray:
        """Return the scores by a model that reads reference and candidate together, group after group: float64[...]."""
        ends = np.cumsum(sizes)
        groups = [range(end - size, end) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
        pairs = [(references[j], candidates[i]) for group in groups for i in group for j in group]
        assert self.pair_model is not None
        return self.pair_model.score(pairs).scores

    def _inputs(self, candidates: list[str], references: list[str] | None) -> tuple[Reports, Reports]:
        """Return references and candidates with their sources; one object without references."""
        keys = [str(i) for i in range(len(candidates))]
        written = AttachedReports(
            Reports(keys, candidates, opened_encoder=self.opened_encoder), sources=self.models, models=self.settings
        )
        if references is None:
            loaded = written.with_sources(written.data)
            return loaded, loaded
        truth = AttachedReports(
            Reports(keys, references, opened_encoder=self.opened_encoder),
            sources=self.remembering,
            models=self.settings,
        )
        return Sides.of(truth, {_NAME: written}).load(_NAME, truth.data, written.data)


def _texts_of(values: Sequence[Any], what: str) -> list[str]:
    """Return completions or references as texts, "" for a missing one: each is a text, or the last message of a chat.

    Raise InputError for anything else; `what` names them.
    """
    texts: list[str] = []
    if isinstance(values, str):
        rule = "must be a list of texts, or of lists of chat messages"
        raise InputError(what, rule, "one text", "Put it into a list.")
    try:
        texts.extend(map(_text_of, values))  # up to the first that is none
    except (TypeError, LookupError):
        raise InputError(
            what,
            "must be texts, or lists of chat messages with a content each",
            f"neither at position {len(texts)}" if hasattr(values, "__iter__") else type(values).__name__,
            "Pass what the trainer passes.",
        ) from None
    return ["" if is_missing(text) else text for text in texts]


def _text_of(value: Any) -> Any:
    """Return the text of a completion or prompt: `value` itself, or the content of the last message of a chat.

    Of a content that is a list of parts, those of type "text" are joined. Raise TypeError or LookupError for most other
    values; a content of another type is returned.
    """
    content = value if isinstance(value, str) else value[-1]["content"]
    if isinstance(content, list | tuple):
        return "".join(part["text"] for part in content if part["type"] == "text")
    return content


def _column(values: Any, name: str, n: int) -> list[Any]:
    """Return the column `name` of a data set as a list; raise InputError unless it has a value for each completion."""
    is_column = hasattr(values, "__len__") and not isinstance(values, str)
    if not is_column or len(values) != n:
        got = len(values) if is_column else "none" if values is None else type(values).__name__
        step = "Name the column of the data set with `column=NAME`."
        raise InputError(name, f"must be one value for each of {n} completions", got, step)
    return list(values)


def _key_of(value: Any, name: str) -> Any:
    """Return what is equal for values of equal content, and only for them: texts, numbers, messages, arrays, images.

    A key of a message that is None is one that the message does not have: tables of messages fill such keys. Raise
    InputError for a value without content to compare; `name` is that of its column.
    """
    value = value.as_py() if hasattr(value, "as_py") else value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray) and (value.dtype.hasobject or value.ndim < 2):
        value = value.tolist()
    if isinstance(value, Mapping):
        return frozenset((key, _key_of(part, name)) for key, part in value.items() if part is not None)
    if isinstance(value, list | tuple):
        return tuple(_key_of(part, name) for part in value)
    if hasattr(type(value), "__array_interface__") or hasattr(type(value), "__array__"):
        with suppress(TypeError, ValueError, RuntimeError, OSError, SyntaxError):  # as what cannot be decoded raises
            array, palette = np.ascontiguousarray(value), getattr(value, "getpalette", lambda: None)()
            mode = getattr(value, "mode", "")
            mode = mode if isinstance(mode, str) else ""  # of tensors and Series it is a method
            return (mode, *(palette or ())), array.dtype.str, array.shape, sha256(array.tobytes()).digest()
    elif not isinstance(value, str) and is_missing(value):
        return None, False
    elif type(value).__hash__ is not None and getattr(type(value), "__eq__", None) is not object.__eq__:
        return value, isinstance(value, bool)
    raise InputError(
        name,
        "must hold texts, numbers, messages or arrays, whose content says which completions belong together",
        type(value).__name__,
        "Name a column with the id of the study, with `column=NAME`.",
    )


def _model_of(source: Source, sources: Mapping[str, Any], metric: Metric) -> Callable[[list[str]], Any]:
    """Return a function from texts to a source's values: that of the user in `sources`, or one that runs a model.

    Raise InputError if there is neither.
    """
    value = sources.get(source.argument)
    makers = [source_of(name) for name in (source.name, source.record.made_by) if name]
    if value is None and source.record.made_by:
        value = sources.get(makers[-1].argument)
        value = value if makers[-1].is_model(value) else None
    for maker in makers:
        if maker.is_model(value):
            model = maker.open(value, sources)
            return lambda texts: source.answer(maker.run(model, texts))
    if not callable(value):
        rule = f"must be a model or a function of texts for metric {metric.name!r}"
        step = f"Add it to `sources`: its file, or what returns {source.record.plural} of a list of texts."
        raise InputError(source.argument, rule, type(value).__name__, step)
    return value


class _Remembered:
    """A function from texts to values that keeps the values of the last `KEPT` texts, so that no model runs twice."""

    def __init__(self, model: Callable[[list[str]], Any]) -> None:
        self._model = model
        self._made: dict[str, Any] = {}

    def __call__(self, texts: list[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._made]
        answers: Any = self._model(new) if new else []
        answers = list(answers) if isinstance(answers, Iterator) else answers  # of a generator
        is_by_position = isinstance(answers, Mapping)
        self._made |= {text: answers.get(str(i)) if is_by_position else answers[i] for i, text in enumerate(new)}
        rows = [self._made[text] for text in texts]
        for text in list(self._made)[: max(len(self._made) - KEPT, 0)]:
            del self._made[text]  # those that were made first
        is_graph = any(isinstance(row, Mapping) for row in rows)
        return {str(i): row for i, row in enumerate(rows) if row is not None} if is_graph else rows
