"""Metrics whose model reads reference and candidate together; an index stores nothing for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Advance
from metric_oracle.judges.judge import Judged, Pair
from metric_oracle.records import Metric

COMPONENTS = ("nA", "nB", "nC", "nD", "nE", "nF")


@runtime_checkable
class ErrorModel(Protocol):
    """A model that counts the errors of pairs, such as `encoders.crepe.Crepe`; fewer errors are better."""

    @property
    def signature(self) -> dict[str, str]:
        """The dict of names and checksums by which the same model can be loaded again."""

    def count_errors(
        self, pairs: Sequence[tuple[str, str]], *, progress: Advance | None = None
    ) -> tuple[np.ndarray, int]:
        """Return the errors of (reference, candidate) pairs, float64[n, 6], and the number of truncated pairs."""


class ScoreModel(Protocol):
    """A model that scores pairs, such as `encoders.meteor_jar.MeteorJar`."""

    @property
    def signature(self) -> dict[str, str]:
        """The dict of names and checksums by which the same model can be loaded again."""

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, progress: Advance | None = None
    ) -> tuple[list[tuple[float, dict[str, float]]], dict[str, Any]]:
        """Return (score, components by name) of each (reference, candidate) pair, and a dict of notes on the run."""


class PairScorer(Protocol):
    """What scores pairs of texts without a bound: a judge, or the model of a metric."""

    @property
    def signature(self) -> Mapping[str, Any]:
        """What answers, for the signature."""

    def score(self, pairs: Sequence[Pair], progress: Advance | None = None) -> Judged:
        """Return the scores of (reference, candidate) pairs, their components, and notes."""


@dataclass(frozen=True)
class ModelScorer:
    """The model of a metric as a scorer of pairs. The model reads each distinct pair once."""

    model: ErrorModel | ScoreModel

    @property
    def signature(self) -> dict[str, str]:
        """The dict of names and checksums by which the same model can be loaded again."""
        return self.model.signature

    def score(self, pairs: Sequence[Pair], progress: Advance | None = None) -> Judged:
        """Return the scores, see `PairScorer`. If the model counts errors, the score is the sum of its components."""
        if isinstance(self.model, ErrorModel):
            counts, n_cut = self.model.count_errors(pairs, progress=progress)
            components = dict(zip(COMPONENTS, counts.T, strict=True))
            return Judged(totals(counts), components, {"truncated_pairs": n_cut} if n_cut else {})
        answers, noted = self.model.score_pairs(pairs, progress=progress)
        names = answers[0][1] if answers else {}
        scores = np.array([score for score, _ in answers], np.float64)
        return Judged(scores, {name: np.array([parts[name] for _, parts in answers]) for name in names}, noted)


def opened_models(
    metrics: Sequence[Metric], models: Mapping[str, ErrorModel | ScoreModel] = MappingProxyType({})
) -> dict[str, PairScorer]:
    """Return the scorer of each metric that has no exact search, by its representation.

    Its model is that in `models`, by representation, or its default model. Raise InputError if it has no default.
    """
    scorers: dict[str, PairScorer] = {kind: ModelScorer(model) for kind, model in models.items()}
    for metric in metrics:
        if metric.is_searched or metric.representation in scorers:
            continue
        needs = metric.reads
        if needs.source is not None and needs.source.arguments:
            raise InputError(
                needs.source.arguments[0],
                f"must be given for metric {metric.name!r}",
                "None",
                f"Add {needs.source.option}.",
            )
        scorers[needs.name] = ModelScorer(needs.load_class()())
    return scorers


def totals(counts: np.ndarray) -> np.ndarray:
    """Return the sums of error counts, float64[n, 6], over the categories nA to nF: float64[n]."""
    return np.add.accumulate(counts, axis=1)[:, -1]
