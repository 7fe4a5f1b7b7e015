"""Token weights of BERTScore that a user passes as an array or a table, in place of inverse document frequencies."""

import hashlib
from pathlib import Path

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import numbers_of, read_table

# Range in which float32 has its full precision. Outside of it, the weight of a token could be lost.
LEAST_WEIGHT, GREATEST_WEIGHT = 1e-30, 1e30


def _are_weights(values: np.ndarray) -> np.ndarray:
    """Return whether each value is 0 or in the range from `LEAST_WEIGHT` to `GREATEST_WEIGHT`: bool[n]."""
    return (values == 0) | ((values >= LEAST_WEIGHT) & (values <= GREATEST_WEIGHT))


def checked(weight: np.ndarray, n_ids: int) -> np.ndarray:
    """Return weights as float64[ids]; raise InputError unless they are valid and at least `n_ids`, one per token id."""
    rule = f"must be a one-dimensional array of at least {n_ids:,} weights, each 0 or from 1e-30 to 1e30"
    if weight.ndim != 1 or weight.dtype.kind not in "fiu" or len(weight) < n_ids:
        raise InputError(f"idf {rule}; got {weight.dtype}{list(weight.shape)}.", "Give one weight for each token id.")
    wide = weight.astype(np.float64)
    wrong = np.flatnonzero(~_are_weights(wide))
    if len(wrong):
        place = int(wrong[0])
        raise InputError(f"idf {rule}; got {wide[place]} for token {place}.", "Repair it.")
    return wide


def name_of(idf: str | Path | np.ndarray) -> str:
    """Return the name of the weights in the signature: the option, the path, or a hash of the array."""
    if isinstance(idf, np.ndarray):
        return f"array {hashlib.sha256(idf.astype('<f8').tobytes()).hexdigest()}"
    return str(idf)


def read(path: Path, n_ids: int) -> np.ndarray:
    """Return the weights in a table with the columns token_id and idf, for `n_ids` token ids or more: float64[ids].

    An id that the table lacks gets its greatest weight. Raise InputError if an id is given twice, or an id or a weight
    is not valid.
    """
    table = read_table(path)
    ids, values = (numbers_of(table.column(name)).to_numpy() for name in ("token_id", "idf"))
    if not len(ids) or not (ids >= 0).all() or (ids != np.floor(ids)).any() or not _are_weights(values).all():
        raise InputError(
            f"{path} must have token ids from 0, and weights that are 0 or from 1e-30 to 1e30, in every row.",
            "Correct the table.",
        )
    ids = ids.astype(np.int64)
    numbers, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        raise InputError(
            "idf",
            "must have each token id once",
            f"{numbers[times > 1][0]} more than once in {path}",
            "Keep one row of each.",
        )
    # A token that the table lacks gets the greatest weight of the table, as in bert_score.
    weight = np.full(max(n_ids, int(ids.max()) + 1), values.max())
    weight[ids] = values
    return weight
