"""Baselines beside the oracle."""

from importlib import import_module

import numpy as np

from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.search import candidates, check_queries


def random_scores(index: Index, queries: Inputs, metric: str, *, seed: int = 0) -> np.ndarray:
    """Score one random corpus report against each query, as the random baseline of Yu et al. does.

    Parameters
    ----------
    index : Index
    queries : Inputs
    metric : str
    seed : int

    Returns
    -------
    float64[Q]
    """
    record = get_metric(metric)
    check_queries(queries, record, index)
    representation = index.representation(record)
    encoded = representation.encode(queries)
    candidate = candidates(representation, encoded)
    score = import_module(f"metric_oracle.kernels.{record.kernel}.reference").score
    drawn = np.random.default_rng(seed).choice(np.sort(representation.row_id), len(queries.ids))
    return np.array(
        [
            score(candidate(int(representation.unit_of_row[row])), encoded.item(int(q)), **record.options)[0]
            for row, q in zip(drawn, encoded.which, strict=True)
        ]
    )
