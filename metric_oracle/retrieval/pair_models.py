"""Metrics whose model reads reference and candidate at once: no index holds anything of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.metrics import REPRESENTATIONS, Metric

COMPONENTS = ("nA", "nB", "nC", "nD", "nE", "nF")


class PairModel(Protocol):
    """A model of pairs, such as `encoders.crepe.Crepe`."""

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the model."""

    def count_errors(
        self, pairs: Sequence[tuple[str, str]], *, progress: Callable[[int], None] | None = None
    ) -> tuple[np.ndarray, int]:
        """Return the errors of (reference, candidate) by category, float64[n, 6], and how many pairs were cut."""


def reads_pairs(record: Metric) -> bool:
    """Tell whether a metric's model reads both reports at once."""
    return not record.terms and not record.is_searched


def check_pair_models(records: Sequence[Metric], models: Mapping[str, PairModel], function: str) -> None:
    """Raise unless each metric whose model reads pairs has it."""
    for record in records:
        if reads_pairs(record) and record.representation not in models:
            needs = REPRESENTATIONS[record.representation]
            msg = (
                f"{function}: {needs.arguments[0]} must be given for metric {record.name!r}; got None. "
                f"Add {needs.option}."
            )
            raise InputError(msg)


def score_pairs(
    model: PairModel, pairs: Sequence[tuple[str, str]], progress: Callable[[int], None] | None = None
) -> tuple[list[tuple[float, dict[str, float]] | None], dict[str, Any]]:
    """Return score and components of pairs of texts, and what the signature records of the run.

    The score is the sum of the components.
    """
    counts, n_cut = model.count_errors(pairs, progress=progress)
    rows = zip(totals(counts).tolist(), counts.tolist(), strict=True)
    found: list[tuple[float, dict[str, float]] | None] = [
        (total, dict(zip(COMPONENTS, row, strict=True))) for total, row in rows
    ]
    return found, {"truncated_pairs": n_cut} if n_cut else {}


def totals(counts: np.ndarray) -> np.ndarray:
    """Return the scores of counts: float64[n, 6] -> float64[n], added up from nA to nF."""
    return np.add.accumulate(counts, axis=1)[:, -1]
