"""The records of metrics, of the representations that they read, and of the sources that these are made from.

Records are data: names, citations, properties, and where the code is. They stand beside their kernels, in the
``__init__.py`` of a folder, and `metrics.py` collects them. They are apart from the code so that the command line can
list and check them without loading it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

# Commands that use most metrics by default; see `Metric.shown_in`.
USUAL = ("score", "study", "bench")
COMPOSITE = "composite"  # name of metrics that are not in the registry, because their weights are in a file


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
    option: str = ""  # options to name in advice, for one set of reports; see `errors.option`
    both_sides: str = ""  # the same for references and predictions
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

    @property
    def is_attached(self) -> bool:
        """Whether its source is joined to the reports; a report without an entry in the source has no score."""
        return self.source is not None and self.source.made == "attached"

    @property
    def is_encoded(self) -> bool:
        """Whether an encoder makes the representation from the texts, of an index and of each batch of queries."""
        return self.source is not None and self.source.made == "encoded"

    @property
    def is_pair(self) -> bool:
        """Whether a model reads both reports together, so that an index stores nothing and no bound exists."""
        return self.source is not None and self.source.made == "pairs"

    @property
    def is_of_texts(self) -> bool:
        """Whether it is made from the texts alone."""
        return self.source is None and not self.parts

    @property
    def stored(self) -> tuple["RepresentationRecord", ...]:
        """The representations whose files are in an index: its parts, or itself."""
        return self.parts or (self,)


@dataclass(frozen=True)
class Metric:
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

    @property
    def terms(self) -> "Mapping[str, Term]":
        """The terms of a composite by name of their metrics; empty for any other metric."""
        return self.options.get("terms", {})  # type: ignore[return-value]

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
        return not any(kind.is_pair for kind in self.reads.stored)

    @property
    def recorded(self) -> dict[str, Any]:
        """The options as a signature records them."""
        if not self.terms:
            return dict(self.options)
        ordered: Any = self.options.get("ordered")
        if ordered is not None:  # of a sum, or of a search under conditions, which the signature has under "where"
            recorded = {name: self.terms[name].metric.recorded for name in ordered}
            return recorded if len(recorded) > 1 else recorded[ordered[0]]
        numbers = {name: {"mean": t.mean, "scale": t.scale, "weight": t.weight} for name, t in self.terms.items()}
        return {"terms": numbers, "intercept": self.options["intercept"]}


@dataclass(frozen=True)
class Term:
    """A term of a composite: a metric with the mean and scale that standardise it, and its weight."""

    metric: Metric
    mean: float
    scale: float
    weight: float


def joined(terms: Sequence[Term]) -> RepresentationRecord:
    """Return the record of what the metrics of several terms read together."""
    parts = {kind.name: kind for term in terms for kind in term.metric.reads.stored}
    return RepresentationRecord(
        COMPOSITE,
        "metric_oracle.retrieval.composite.representation:CompositeIndex",
        parts=tuple(parts.values()),
        counts_corpus=any(term.metric.counts_corpus for term in terms),
        settings=tuple(name for kind in parts.values() for name in kind.settings),
    )


def linear(name: str, terms: Sequence[Term], intercept: float, citation: str, **described: Any) -> Metric:
    """Return the record of a linear composite that predicts errors: lower is better.

    Score = intercept + sum over terms, in their order, of weight (value - mean) / scale. `citation` is the paper or
    file that the numbers come from, and `described` are further attributes of the record.
    """
    return Metric(
        name,
        joined(terms),
        COMPOSITE,
        citation,
        {"terms": {term.metric.name: term for term in terms}, "intercept": intercept},
        higher_is_better=False,
        cheap=False,
        composable=False,
        **described,
    )
