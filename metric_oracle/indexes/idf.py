"""Weights of tokens that a user gives to BERTScore, as an array or a table, instead of counting them."""

import hashlib
from pathlib import Path

import numpy as np

from metric_oracle.corpora.tables import read_table
from metric_oracle.errors import InputError

# Weights that float32 holds in full; below and beyond, a token's share would be lost.
LEAST_WEIGHT, GREATEST_WEIGHT = 1e-30, 1e30


def _are_weights(weight: np.ndarray) -> bool:
    """Tell whether all weights are 0 or numbers that float32 holds in full."""
    return bool(np.all((weight == 0) | ((weight >= LEAST_WEIGHT) & (weight <= GREATEST_WEIGHT))))


def checked(weight: np.ndarray, n_ids: int) -> np.ndarray:
    """Return weights that were given as an array, float64[ids]."""
    rule = f"must be a one-dimensional array of at least {n_ids:,} weights, each 0 or from 1e-30 to 1e30"
    if weight.ndim != 1 or weight.dtype.kind not in "fiu" or len(weight) < n_ids:
        msg = f"retrieve: idf {rule}; got {weight.dtype}{list(weight.shape)}. Give one weight for each token id."
        raise InputError(msg)
    wide = weight.astype(np.float64)
    if not _are_weights(wide):
        place = int(np.flatnonzero(~((wide == 0) | ((wide >= LEAST_WEIGHT) & (wide <= GREATEST_WEIGHT))))[0])
        msg = f"retrieve: idf {rule}; got {wide[place]} for token {place}. Repair it."
        raise InputError(msg)
    return wide


def name_of(idf: str | Path | np.ndarray) -> str:
    """Return what the signature says of the weights; arrays are told apart by a hash."""
    if isinstance(idf, np.ndarray):
        return f"array {hashlib.sha256(idf.astype('<f8').tobytes()).hexdigest()}"
    return str(idf)


def read(path: Path, n_ids: int) -> np.ndarray:
    """Return the weights of a table of token_id and idf, float64[ids]."""
    table = read_table(path, "retrieve")
    columns = [table.column(name, "retrieve", "idf") for name in ("token_id", "idf")]
    try:
        ids, values = np.array([int(i) for i in columns[0]]), np.array([float(v) for v in columns[1]])
    except (TypeError, ValueError):
        ids = values = np.array([-1.0])
    if not len(ids) or ids.min() < 0 or not _are_weights(values):
        msg = (
            f"retrieve: idf must have ids and weights that are 0 or from 1e-30 to 1e30; got others in {path}. "
            "Repair the table."
        )
        raise InputError(msg)
    numbers, times = np.unique(ids, return_counts=True)
    if (times > 1).any():
        msg = (
            f"retrieve: idf must have each token id once; got {numbers[times > 1][0]} more than once in {path}. "
            "Keep one row of each."
        )
        raise InputError(msg)
    # A token that the table lacks is as rare as the rarest, as in bert_score.
    weight = np.full(max(n_ids, int(ids.max()) + 1), values.max())
    weight[ids] = values
    return weight
