"""RaTEScore, slow and obvious."""

from typing import Any

import numpy as np

from metric_oracle.kernels.ratescore.score import FACTORS, NOTHING, WEIGHTS, cosines, join, norms


def score(candidate: Any, reference: Any, *, matrix: str) -> tuple[float, dict[str, float]]:
    """Return RaTEScore of a pair and its two sides.

    Parameters
    ----------
    candidate, reference : (kinds uint8[n], vectors float32[n, d])
    matrix : {"long", "short"}
        Weights, fitted to ratings of reports or of sentences.
    """
    if not len(candidate[0]) or not len(reference[0]):
        return NOTHING, {"precision": NOTHING, "recall": NOTHING}
    table = cosines(reference[1], candidate[1], norms(reference[1]), norms(candidate[1]))
    # As the published code names them: what the reference's entities find is the precision.
    precision = _side(reference[0].tolist(), candidate[0].tolist(), table, matrix)
    recall = _side(candidate[0].tolist(), reference[0].tolist(), table.T, matrix)
    value = float(join(np.array([precision]), np.array([recall]))[0])
    return value, {"precision": precision, "recall": recall}


def _side(kinds: list[int], others: list[int], table: np.ndarray, matrix: str) -> float:
    """Return the weighted mean, over the entities of one side, of the cosine with the nearest one of the other."""
    total = weights = 0.0
    for kind, row in zip(kinds, table, strict=True):
        nearest = int(row.argmax())  # the first of equals
        weight = float(WEIGHTS[matrix][kind, others[nearest]])
        total += float(row[nearest]) * weight * float(FACTORS[matrix][kind, others[nearest]])
        weights += weight
    return total / weights
