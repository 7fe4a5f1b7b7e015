"""No timing of wrong answers: a sample of queries must be answered as the reference backend answers them."""

from collections.abc import Iterator, Sequence

import numpy as np

import metric_oracle as mo
from metric_oracle.base.option_types import Backend
from metric_oracle.bench.timing import check_answers
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.kernels.radgraph import reference as radgraph
from metric_oracle.metrics import get_metric

SEED = 0
PIECE = 1 << 16  # tokens of the corpus at once
ERROR, LOSS = 1e-5, 1e-6  # how far a listed score may be from float32's, and the best below it


class GateError(Exception):
    """An answer is not the reference's."""


def check(
    index: Index,
    queries: Reports,
    metrics: Sequence[str],
    *,
    n_queries: int,
    k: int,
    backends: Sequence[Backend] = ("cpu",),
) -> None:
    """Compare ids, scores, ties and order with the reference backend, and of backends with one another.

    Parameters
    ----------
    index, queries : what will be timed
    metrics : names
    n_queries : random queries that the reference searches by brute force; it scores all listed pairs
    k : answers a query
    backends : that will be timed

    Raises
    ------
    GateError
        On the first difference, or if an answer lists a report twice.
    """
    for metric in metrics:
        try:
            check_answers(index, queries, metric, backends, k=k, sample=n_queries)
        except mo.MetricOracleError as error:
            msg = f"gate: {metric}: {error}"
            raise GateError(msg) from error


def check_states(index: Index, queries: Reports, metrics: Sequence[str], *, n_queries: int = 5, k: int = 5) -> None:
    """Compare a sample of queries with scores of all candidates, made here with plain float32 products.

    The reference backend would take days. Listed pairs are scored again by the reference scorer.

    Parameters
    ----------
    index, queries : what will be timed
    metrics : of "bertscore" and "radcliq"
    n_queries : size of the sample, drawn at random
    k : answers a query

    Raises
    ------
    GateError
        On the first difference, or if an answer lists a report twice.
    """
    batch = queries.take(np.sort(np.random.default_rng(SEED).permutation(len(queries.ids))[:n_queries]))
    bertscores = _bertscores(index, batch)
    for metric in metrics:
        try:
            results = mo.retrieve(index, batch, metric, k=k)
            mo.verify(index, results, batch, sample=0)
        except mo.MetricOracleError as error:
            msg = f"gate: {metric}: {error}"
            raise GateError(msg) from error
        sign = 1.0 if get_metric(metric).higher_is_better else -1.0
        found = sign * results.table["score"].to_numpy().reshape(-1, k)
        expected = bertscores if metric == "bertscore" else _radcliqs(index, batch, bertscores)
        for query, scores in zip(found, expected, strict=True):
            best = -np.sort(-sign * scores)[:k]
            if np.abs(query - best).max() > ERROR or query[0] < best[0] - LOSS:
                msg = f"gate: {metric}: scores of {n_queries} sampled queries must be the best; got others."
                raise GateError(msg)


def _bertscores(index: Index, batch: Reports) -> np.ndarray:
    """Return BERTScore F1 of each query with each row."""
    import torch

    representation = index.part("bertscore")
    encoded = representation.encode(batch)
    queries = [encoded.item(which) for which in encoded.document_of_row.tolist()]
    stacked = torch.from_numpy(np.concatenate([query.states for query in queries]))
    stacked /= stacked.norm(dim=1, keepdim=True)
    bounds = np.cumsum([len(query.states) for query in queries])[:-1]
    ptr, special = representation.ptr, representation.description["special_ids"]
    out = np.empty((len(queries), len(ptr) - 1))
    first = 0
    while first < len(ptr) - 1:
        last = max(int(np.searchsorted(ptr, ptr[first] + PIECE, side="right")) - 1, first + 1)
        tokens, starts = slice(ptr[first], ptr[last]), ptr[first:last] - ptr[first]
        states = torch.from_numpy(representation.states[tokens].astype(np.float32))
        cosines = ((states / states.norm(dim=1, keepdim=True)) @ stacked.T).numpy()
        maxima = np.maximum.reduceat(cosines, starts, axis=0)
        weights = ~np.isin(representation.ids[tokens], special) * 1.0
        totals = np.add.reduceat(weights, starts)
        parts = zip(out, queries, np.split(cosines, bounds, axis=1), np.split(maxima, bounds, axis=1), strict=True)
        for scores, query, of_tokens, of_units in parts:
            recall = of_units @ query.weights / query.weights.sum()
            with np.errstate(invalid="ignore"):  # reports of special tokens alone
                precision = np.add.reduceat(weights * of_tokens.max(axis=1), starts) / totals
                scores[first:last] = 2 * precision * recall / (precision + recall)
        first = last
    out[:, np.diff(ptr) == 2] = 0.0  # by definition
    return out[:, representation.document_of_row]


def _radcliqs(index: Index, batch: Reports, bertscores: np.ndarray) -> Iterator[np.ndarray]:
    """Return RadCliQ v1 of each query with all rows, from the definitions of its parts."""
    metric = get_metric("radcliq")
    graphs, vectors = index.part("radgraph"), index.part("chexbert")
    items = [graphs.item(unit) for unit in range(len(graphs.row_ptr) - 1)]
    of_graphs, of_vectors = graphs.encode(batch), vectors.encode(batch)
    for place, of_bertscore in enumerate(bertscores):
        item = of_graphs.item(int(of_graphs.document_of_row[place]))
        overlaps = np.array([radgraph.score(other, item, family_a=0, family_b=1)[0] for other in items])
        cosines = vectors.vectors @ of_vectors.vectors[of_vectors.document_of_row[place]]
        values = {
            "radgraph": overlaps[graphs.document_of_row],
            "bertscore": of_bertscore,
            "chexbert": cosines[vectors.document_of_row],
        }
        terms = metric.recorded["terms"].items()
        yield metric.recorded["intercept"] + sum(
            t["weight"] * (values[part] - t["mean"]) / t["scale"] for part, t in terms
        )
