"""Metrics whose model reads reference and candidate at once: no index holds anything of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.metrics import REPRESENTATIONS, Metric
from metric_oracle.progress import Count

COMPONENTS = ("nA", "nB", "nC", "nD", "nE", "nF")


@runtime_checkable
class ErrorModel(Protocol):
    """A model that counts the errors of pairs, such as `encoders.crepe.Crepe`: fewer are better, none is the best."""

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the model."""

    def count_errors(
        self, pairs: Sequence[tuple[str, str]], *, progress: Count | None = None
    ) -> tuple[np.ndarray, int]:
        """Return the errors of (reference, candidate) by category, float64[n, 6], and how many pairs were cut."""


class ScoreModel(Protocol):
    """A model that scores pairs, such as `encoders.meteor_jar.MeteorJar`."""

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the model."""

    def score_pairs(
        self, pairs: Sequence[tuple[str, str]], *, progress: Count | None = None
    ) -> tuple[list[tuple[float, dict[str, float]]], dict[str, Any]]:
        """Return score and components of each (reference, candidate), and what is to be noted of all together."""


PairModel: TypeAlias = ErrorModel | ScoreModel


def reads_pairs(record: Metric) -> bool:
    """Tell whether a metric's model reads both reports at once."""
    return not record.terms and not record.is_searched


def with_pair_models(
    records: Sequence[Metric], models: Mapping[str, PairModel], function: str
) -> Mapping[str, PairModel]:
    """Return the models with those that metrics need and nobody gives; raise where one must be given."""
    found = dict(models)
    for record in records:
        if not reads_pairs(record) or record.representation in found:
            continue
        needs = REPRESENTATIONS[record.representation]
        if needs.source is not None and needs.source.arguments:
            msg = (
                f"{function}: {needs.source.arguments[0]} must be given for metric {record.name!r}; got None. "
                f"Add {needs.source.option}."
            )
            raise InputError(msg)
        found[needs.name] = needs.load_class()(function)
    return found


def score_pairs(
    model: PairModel, pairs: Sequence[tuple[str, str]], progress: Count | None = None
) -> tuple[list[tuple[float, dict[str, float]] | None], dict[str, Any]]:
    """Return score and components of pairs of texts, and what is noted of the run.

    The score of a model that counts errors is the sum of the components.
    """
    if not isinstance(model, ErrorModel):
        scored, noted = model.score_pairs(pairs, progress=progress)
        return list(scored), noted
    counts, n_cut = model.count_errors(pairs, progress=progress)
    rows = zip(totals(counts).tolist(), counts.tolist(), strict=True)
    found: list[tuple[float, dict[str, float]] | None] = [
        (total, dict(zip(COMPONENTS, row, strict=True))) for total, row in rows
    ]
    return found, {"truncated_pairs": n_cut} if n_cut else {}


def totals(counts: np.ndarray) -> np.ndarray:
    """Return the scores of counts: float64[n, 6] -> float64[n], added up from nA to nF."""
    return np.add.accumulate(counts, axis=1)[:, -1]
