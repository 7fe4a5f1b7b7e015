"""Metrics whose model reads reference and candidate together; an index stores nothing for them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Advance
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


PairModel: TypeAlias = ErrorModel | ScoreModel


def reads_pairs(metric: Metric) -> bool:
    """Return whether a metric has a model that reads both reports of a pair together."""
    return not metric.is_searched


def with_pair_models(metrics: Sequence[Metric], models: Mapping[str, PairModel]) -> Mapping[str, PairModel]:
    """Return `models`, by representation, and the default models of metrics that read pairs and have none in it.

    Raise InputError if a metric has no default.
    """
    opened = dict(models)
    for metric in metrics:
        if not reads_pairs(metric) or metric.representation in opened:
            continue
        needs = metric.reads
        if needs.source is not None and needs.source.arguments:
            raise InputError(
                needs.source.arguments[0],
                f"must be given for metric {metric.name!r}",
                "None",
                f"Add {needs.source.option}.",
            )
        opened[needs.name] = needs.load_class()()
    return opened


def score_pairs(
    model: PairModel, pairs: Sequence[tuple[str, str]]
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, Any]]:
    """Return the scores of (reference, candidate) pairs of texts, float64[n], their components by name, and notes.

    The model reads each distinct pair once. The notes are for the signature. If the model counts errors, the score is
    the sum of its components.
    """
    if isinstance(model, ErrorModel):
        counts, n_cut = model.count_errors(pairs)
        components = dict(zip(COMPONENTS, counts.T, strict=True))
        return totals(counts), components, {"truncated_pairs": n_cut} if n_cut else {}
    answers, noted = model.score_pairs(pairs)
    names = answers[0][1] if answers else {}
    scores = np.array([score for score, _ in answers], np.float64)
    return scores, {name: np.array([parts[name] for _, parts in answers]) for name in names}, noted


def totals(counts: np.ndarray) -> np.ndarray:
    """Return the sums of error counts, float64[n, 6], over the categories nA to nF: float64[n]."""
    return np.add.accumulate(counts, axis=1)[:, -1]
