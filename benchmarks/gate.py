"""No timing of wrong answers: a sample of queries must be answered as the reference backend answers them."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

import metric_oracle as mo
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.retrieval.search import subset

SEED = 0
_COLUMNS = ("query_id", "rank", "row", "score", "n_ties", "fallback")


class GateError(Exception):
    """An answer is not the reference's."""


def check(index: Index, queries: Inputs, metrics: Sequence[str], *, n_queries: int, k: int) -> None:
    """Compare ids, scores, ties and order of a sample of queries with the reference backend.

    Parameters
    ----------
    index, queries : what will be timed
    metrics : names
    n_queries : size of the sample, drawn at random
    k : answers a query

    Raises
    ------
    GateError
        On the first difference, or if an answer lists a report twice.
    """
    chosen = np.sort(np.random.default_rng(SEED).permutation(len(queries.ids))[:n_queries])
    batch = subset(queries, chosen)
    for metric in metrics:
        try:
            found = mo.retrieve(index, queries, metric, k=k, text=False).table
        except mo.MetricOracleError as error:
            msg = f"gate: {metric}: {error}"
            raise GateError(msg) from error
        _reject_duplicates(found, metric, k)
        found = found.filter(pa.compute.is_in(found["query_id"], pa.array(batch.ids, pa.large_string())))
        expected = mo.retrieve(index, batch, metric, k=k, backend="reference", text=False).table
        for column in _COLUMNS:
            if found[column].to_pylist() != expected[column].to_pylist():
                msg = f"gate: {metric}: column {column} of {n_queries} sampled queries must equal the reference's."
                raise GateError(msg)


def _reject_duplicates(found: pa.Table, metric: str, k: int) -> None:
    rows = np.sort(found["row"].to_numpy().reshape(-1, k), axis=1)
    if (rows[:, 1:] == rows[:, :-1]).any():
        msg = f"gate: {metric}: an answer must list a report once; got duplicate ids."
        raise GateError(msg)
