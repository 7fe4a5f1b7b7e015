"""The records of metrics, of the representations that they read, and of the sources that these are made from.

Records are data: names, citations, properties, and where the code is. They stand beside their kernels, in the
``__init__.py`` of a folder, and `metrics.py` collects them. They are apart from the code so that the command line can
list and check them without loading it.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, Literal

# Commands that use most metrics by default; see `Metric.shown_in`.
USUAL = ("score", "study", "bench")
COMPOSITE = "composite"  # name of metrics that are not in the registry, because their weights are in a file
SUM = "sum"  # kernel of metrics that add up the scores of others
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


Direction = Literal["higher", "lower"]


def sign_of(direction: str) -> float:
    """Return the number by which scores are multiplied so that greater ones are better: 1.0 for "higher", else -1.0."""
    return 1.0 if direction == "higher" else -1.0


class Directed:
    """What has scores of which the higher ones are better, or the lower ones: a metric, a judge, a column.

    Nothing else says which; whatever compares or sorts scores multiplies them by `sign`.
    """

    higher_is_better: bool

    @property
    def direction(self) -> Direction:
        """Whether "higher" or "lower" scores are better, as signatures have it."""
        return "higher" if self.higher_is_better else "lower"

    @property
    def sign(self) -> float:
        """See `sign_of`."""
        return sign_of(self.direction)

    def best_of(self, scores: Any) -> float:
        """Return the best of the scores in an array."""
        return float(self.sign * (self.sign * scores).max())


@dataclass(frozen=True)
class _Implemented:
    """What a class implements."""

    name: str  # of a representation, also the name of its folder in an index; that of a source is the same
    home: str  # module and class, as `module:Class`, imported when needed

    def load_class(self) -> Any:
        """Import and return the class that `home` names."""
        module, name = self.home.split(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class SourceRecord(_Implemented):
    """A source: data that metrics read in addition to the text. Its class reads files, models and prepared folders.

    What the class does is in `sources.contract`.
    """

    noun: str  # what one report has, such as "a graph", for messages
    plural: str  # what several reports have, such as "graphs"
    arguments: tuple[str, ...]  # arguments of public functions: the values and, if their files may lack ids, the ids
    option: str = ""  # what to give for it, for advice; see `errors`
    model: str = ""  # model that can be given in place of a file, for the help of options; empty if there is none
    made_by: str = ""  # name of another source whose model also makes this one
    model_arguments: tuple[str, ...] = ()  # arguments for further files of the model
    settings: tuple[str, ...] = ()  # arguments that change the meaning of the values, such as `uncertain`
    # "attached": joined to the reports on their ids, from files, from memory or by a model. "encoded": made by an
    # encoder when an index is built or searched. "pairs": not stored, because a model reads both reports together.
    made: str = "attached"


@dataclass(frozen=True)
class RepresentationRecord(_Implemented):
    """A representation: the form of reports that a metric reads from an index. Its class is in `indexes.contract`."""

    source: SourceRecord | None = None  # that it is made from; None if made from texts or other representations alone
    parts: tuple["RepresentationRecord", ...] = ()  # stored ones that it is made from; it then has no files of its own
    counts_corpus: bool = False  # whether document frequencies of the whole corpus, added up over shards, weight scores
    counts_queries: bool = False  # whether counts over all queries of a call weight scores, which then depend on these
    settings: tuple[str, ...] = ()  # names of the search options that change how queries are encoded
    by_default: bool = False  # whether an index for which no metrics are named has it, if the reports have the source

    @property
    def is_attached(self) -> bool:
        """Whether its source is joined to the reports; a report without an entry in the source has no score."""
        return self.source is not None and self.source.made == "attached"

    @property
    def is_encoded(self) -> bool:
        """Whether an encoder makes the representation from the texts, of an index and of each batch of queries."""
        return self.source is not None and self.source.made == "encoded"

    @property
    def is_stored(self) -> bool:
        """Whether an index has files of it: not if it is made from others, or a model reads both reports together."""
        return not self.parts and (self.source is None or self.source.made != "pairs")

    @property
    def is_of_texts(self) -> bool:
        """Whether it is made from the texts alone."""
        return self.source is None and not self.parts

    @property
    def stored(self) -> tuple["RepresentationRecord", ...]:
        """The representations whose files are in an index: its parts, or itself."""
        return self.parts or (self,)


@dataclass(frozen=True, repr=False)
class Metric(Directed):
    """A metric or a variant of one."""

    name: str  # that users type: the metric and, after a colon, its variant
    reads: RepresentationRecord
    kernel: str  # name of the folder of its kernel; empty if a model reads both reports
    citation: str  # paper or published tool whose scores it reproduces
    options: Mapping[str, object] = field(default_factory=dict)  # attributes of its kernel that distinguish variants
    higher_is_better: bool = True  # direction; values are never inverted
    # whether a query without any positive match gets the most frequent report, as Yu et al. do for RadGraph
    fallback: bool = False
    # whether the exact scores of one query with all documents are fast to compute; a composite then computes all
    cheap: bool = True
    composable: bool = True  # whether it can be a term of a composite
    is_symmetric: bool = False  # whether the score is the same, bit for bit, if candidate and reference are exchanged
    shown_in: tuple[str, ...] = ()  # commands that use it by default: "score", "study", "bench"
    # published program whose numbers it equals, with its version where it matters, in lower case and without blanks, as
    # it is in the one-line signature; empty if no program is the reference
    tool: str = ""
    title: str = ""  # name in tables for papers; by default `name`
    column: str = ""  # name of the column in report_scores.csv of CXR-Report-Metric

    # A metric adds up one term, itself, as it is; the fields of a `Sum` replace these.
    intercept = 0.0
    is_weighted = False
    conditions = tuple["Condition", ...]()

    def __repr__(self) -> str:
        return f"<Metric {self.name}: {self.direction} is better>"

    @property
    def terms(self) -> "Mapping[str, Term]":
        """The terms that are added up, by name of their metrics."""
        return {self.name: Term(self)}

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics whose scores are computed, by name."""
        return {self.name: self}

    @property
    def named(self) -> "tuple[Metric, ...]":
        """The metrics that a person named to have this one."""
        return (self,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metrics whose scores stand beside that of a sum."""
        return ()

    @property
    def order(self) -> "Metric":
        """The metric by which reports are ranked, without conditions that they fulfil."""
        return self

    def called(self, function: Callable[..., Any], of_metric: "Callable[[Metric], Any]") -> Callable[..., Any]:
        """Return a function of the metric's kernel with the options of the metric.

        That of a sum gets the metric instead, and what `of_metric` returns for each of its metrics, by name.
        """
        return partial(function, **self.options)

    @property
    def representation(self) -> str:
        """Name of the representation that it reads; "composite" for a composite."""
        return self.reads.name

    @property
    def representations(self) -> tuple[str, ...]:
        """Names of the stored representations that the metric reads from an index."""
        return tuple(kind.name for kind in self.reads.stored)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the search options that change its scores."""
        return self.reads.settings

    @property
    def counts_corpus(self) -> bool:
        """Whether scores are weighted by document frequencies in a corpus, whatever the settings."""
        return self.reads.counts_corpus

    @property
    def needs_encoder(self) -> bool:
        """Whether an encoder must run on the queries."""
        return any(kind.is_encoded for kind in self.reads.stored)

    @property
    def is_searched(self) -> bool:
        """Whether an exact search exists: the best candidates of a corpus are found without scoring every pair."""
        return all(kind.is_stored for kind in self.reads.stored)

    @property
    def recorded(self) -> dict[str, Any]:
        """The options as a signature records them."""
        return dict(self.options)


@dataclass(frozen=True, kw_only=True, repr=False)
class Sum(Metric):
    """The sum of the scores of several metrics, or a metric whose listed reports fulfil conditions on others."""

    added: "tuple[Term, ...]"  # its terms, in the order in which they are added
    intercept: float = 0.0  # what is added to the terms
    is_weighted: bool = False  # whether a signature records intercept and weights
    conditions: "tuple[Condition, ...]" = ()  # all of which a listed report fulfils

    @property
    def terms(self) -> "Mapping[str, Term]":
        """The terms that are added up, by name of their metrics."""
        return {term.metric.name: term for term in self.added}

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics whose scores are computed, by name: those of the terms, then those of the conditions."""
        conditions = {condition.metric.name: condition.metric for condition in self.conditions}
        return {name: term.metric for name, term in self.terms.items()} | conditions

    @property
    def named(self) -> tuple[Metric, ...]:
        """The metrics that a person named: those of the sum and of its conditions; a composite has one name."""
        return (self,) if self.is_weighted else tuple(self.metrics.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the metrics whose scores stand beside that of the sum: of its terms, then of its conditions.

        The score of the only term of a sum without weights does not: it is that of the sum.
        """
        terms = [*self.terms] if len(self.terms) > 1 or self.is_weighted else []
        return tuple(dict.fromkeys([*terms, *(condition.metric.name for condition in self.conditions)]))

    @property
    def order(self) -> Metric:
        """The metric by which reports are ranked: its only term, if it is that, or the sum without conditions."""
        if len(self.added) == 1 and not self.is_weighted:
            return self.added[0].metric
        return replace(self, conditions=())

    def called(self, function: Callable[..., Any], of_metric: Callable[[Metric], Any]) -> Callable[..., Any]:
        """Return a function of the sum's kernel with this sum, and what `of_metric` returns for each metric by name."""
        return partial(function, metric=self, parts={name: of_metric(one) for name, one in self.metrics.items()})

    @property
    def recorded(self) -> dict[str, Any]:
        """The options as a signature records them; conditions are in the signature under "where"."""
        if self.is_weighted:
            numbers = {name: {"mean": t.mean, "scale": t.scale, "weight": t.weight} for name, t in self.terms.items()}
            return {"terms": numbers, "intercept": self.intercept}
        recorded = {name: term.metric.recorded for name, term in self.terms.items()}
        return recorded if len(recorded) > 1 else next(iter(recorded.values()))


@dataclass(frozen=True)
class Term:
    """A term of a sum: a metric with the mean and scale that standardise its score, and its weight."""

    metric: Metric
    mean: float = 0.0
    scale: float = 1.0
    weight: float = 1.0


@dataclass(frozen=True)
class Condition:
    """A condition that every listed report fulfils: how its score under a metric compares with a number."""

    metric: Metric
    symbol: str  # one of `_OPERATORS`
    value: float

    def __str__(self) -> str:
        return f"{self.metric.name}{self.symbol}{self.value!r}"

    def holds(self, scores: Any) -> Any:
        """Return whether a score, or each score of an array, fulfils the condition."""
        return _OPERATORS[self.symbol](scores, self.value)


def joined(metrics: Iterable[Metric]) -> RepresentationRecord:
    """Return the representation that several metrics read together."""
    metrics = tuple(metrics)
    parts = {kind.name: kind for metric in metrics for kind in metric.reads.stored}
    return RepresentationRecord(
        COMPOSITE,
        "metric_oracle.indexes.combined:CombinedDocuments",
        parts=tuple(parts.values()),
        counts_corpus=any(metric.counts_corpus for metric in metrics),
        settings=tuple(name for kind in parts.values() for name in kind.settings),
    )


def linear(name: str, terms: Sequence[Term], intercept: float, citation: str, **described: Any) -> Sum:
    """Return a linear composite that predicts errors: lower is better.

    Score = intercept + sum over terms, in their order, of weight (value - mean) / scale. `citation` is the paper or
    file that the numbers come from, and `described` are further attributes of the metric.
    """
    return Sum(
        name,
        joined(term.metric for term in terms),
        SUM,
        citation,
        added=tuple(terms),
        intercept=intercept,
        is_weighted=True,
        higher_is_better=False,
        cheap=False,
        composable=False,
        **described,
    )
