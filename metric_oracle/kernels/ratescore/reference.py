"""RaTEScore in plain, slow Python."""

from typing import Any

import numpy as np

from metric_oracle.kernels.ratescore.score import FACTORS, NOTHING, WEIGHTS, cosines, join, norms


def score(candidate: Any, reference: Any, *, matrix: str) -> tuple[float, dict[str, float]]:
    """Return RaTEScore of a pair, and its precision and recall by name.

    `candidate` and `reference` have type and vector of each entity, uint8[n] and float32[n, d]. `matrix` names the
    table of weights for pairs of entity types: that fitted to ratings of whole reports ("long") or of sentences
    ("short"). All three numbers are 0.5 if a side has no entity.
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
    """Return the weighted mean, over one report's entities, of the cosine with the most similar entity of the other.

    `kinds` and `others` are the types of their entities, `table` has the cosines, a row for each of the first, and
    `matrix` is that of `score`. At least one entity is on either side.
    """
    total = weights = 0.0
    for kind, row in zip(kinds, table, strict=True):
        nearest = int(row.argmax())  # the first of equals
        weight = float(WEIGHTS[matrix][kind, others[nearest]])
        total += float(row[nearest]) * weight * float(FACTORS[matrix][kind, others[nearest]])
        weights += weight
    return total / weights
