"""A search by brute force that shares nothing with the kernels: every distinct candidate is scored for every query.

The plain scorers do it, but for two metrics of vectors, of which a pair costs them milliseconds: BERTScore and the
cosine of embeddings are first approximated by float64 matrix products, each with a bound of its error, and the plain
scorers then decide between all candidates that may be among the answers. Both ways to a cosine err by two products of
its width at most, one for the product and one for the lengths: hence four times gamma.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metric_oracle.indexes.bertscore import TokenStateIndex
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.embeddings import EmbeddingIndex
from metric_oracle.indexes.token_queries import TokenQueries
from metric_oracle.indexes.vectors import VectorQueries
from metric_oracle.kernels._errors import FLOAT64, gamma
from metric_oracle.kernels.bertscore.score import F1, PRECISION
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import Metric
from metric_oracle.progress import Count
from metric_oracle.retrieval.composite.representation import CompositeIndex, CompositeQueries
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.retrieval.sharded import ShardedIndex

CELLS = 1 << 22  # float64 numbers of a block: 32 MB


def search(
    record: Metric,
    representation: Representation,
    encoded: EncodedQueries,
    chosen: Sequence[int],
    k: int,
    plain: Callable[[int, int], float],
    tell: Count,
) -> Answers:
    """Return the k best rows of some distinct queries, float64 scores to the last bit as the plain scorer has them.

    Parameters
    ----------
    record : Metric
    representation : Representation
    encoded : EncodedQueries
    chosen : sequence of int
        Distinct queries.
    k : int
    plain : function
        The plain score of a distinct query and a unit.
    tell : function
        Called with the number of new pairs of a query and a unit, `n_pairs` in all.
    """
    n = len(chosen)
    found = Answers(np.empty((n, k), np.int64), np.empty((n, k)), np.empty((n, k), np.int64), np.empty(0))
    scores, error = _scores(record, representation, encoded, chosen, tell)
    sign = 1.0 if record.higher_is_better else -1.0
    for place, q in enumerate(chosen):
        signed = sign * scores[place]
        # k units stand for k rows or more: what is surely below the k-th best unit is not listed.
        last = np.partition(signed, max(len(signed) - k, 0))[max(len(signed) - k, 0)]
        units = np.flatnonzero(signed >= last - 2 * error)
        exact = signed[units]
        if error:
            exact = sign * np.array([plain(q, unit) for unit in units.tolist()])
        rows, best, ties = select(units, exact, representation.row_ptr, representation.row_id, k)
        found.rows[place], found.scores[place], found.ties[place] = rows, sign * best, ties
    return found


def n_pairs(record: Metric, representation: Any, encoded: Any, chosen: Sequence[int]) -> int:
    """Return how many pairs a search makes, those of each part of a composite counted by themselves."""
    if isinstance(representation, ShardedIndex):
        parts = zip(representation.parts, encoded.parts, encoded.places, strict=True)
        return sum(n_pairs(record, part, of_part, places[list(chosen)].tolist()) for part, of_part, places in parts)
    found = 0
    for term in record.terms.values():
        kind = term.metric.representation
        asked = np.unique(encoded.place[kind][list(chosen)]).tolist()
        found += n_pairs(term.metric, representation.parts[kind], encoded.parts[kind], asked)
    return found if record.terms else len(chosen) * (len(representation.row_ptr) - 1)


def _scores(
    record: Metric, representation: Any, encoded: Any, chosen: Sequence[int], tell: Count
) -> tuple[np.ndarray, float]:
    """Return the scores of some distinct queries with all units, float64[n, D], and a bound of their error."""
    if isinstance(representation, ShardedIndex):
        of_shards = [
            _scores(record, part, of_part, places[list(chosen)].tolist(), tell)
            for part, of_part, places in zip(representation.parts, encoded.parts, encoded.places, strict=True)
        ]
        return np.concatenate([found for found, _ in of_shards], axis=1), max(error for _, error in of_shards)
    if isinstance(representation, CompositeIndex):
        return _composites(record, representation, encoded, chosen, tell)
    if isinstance(representation, TokenStateIndex):
        return _bertscores(record, representation, encoded, chosen, tell)
    if isinstance(representation, EmbeddingIndex):
        return _cosines(representation, encoded, chosen, tell)
    score = load_reference(record)
    n_units = len(representation.row_ptr) - 1
    items = [encoded.item(q) for q in chosen]
    scores = np.empty((len(items), n_units))
    for unit in range(n_units):
        candidate = representation.candidate(unit, encoded)
        for place, item in enumerate(items):
            scores[place, unit] = score(candidate, item)[0]
        tell(len(items))
    return scores, 0.0


def _composites(
    record: Metric, index: CompositeIndex, encoded: CompositeQueries, chosen: Sequence[int], tell: Count
) -> tuple[np.ndarray, float]:
    values, error, size = [], 0.0, abs(float(record.options["intercept"]))  # type: ignore[arg-type]
    for term in record.terms.values():
        kind = term.metric.representation
        asked, which = np.unique(encoded.place[kind][list(chosen)], return_inverse=True)
        found, of_part = _scores(term.metric, index.parts[kind], encoded.parts[kind], asked.tolist(), tell)
        values.append(found[which][:, index.unit[kind]])
        slope = abs(term.weight / term.scale)
        error += slope * of_part
        size += slope * (1.0 + abs(term.mean))
    total = composite(values, record.terms.values(), record.options["intercept"])
    return total, error + gamma(8 * len(values), FLOAT64) * size if error else 0.0


def _cosines(
    index: EmbeddingIndex, encoded: VectorQueries, chosen: Sequence[int], tell: Count
) -> tuple[np.ndarray, float]:
    asked = _directions(encoded.vectors[list(chosen)])
    n_units, width = index.vectors.shape
    scores = np.empty((len(asked), n_units))
    step = max(CELLS // width, 1)
    for first in range(0, n_units, step):
        some = slice(first, first + step)
        scores[:, some] = asked @ _directions(index.vectors[some]).T
        tell(len(asked) * len(index.vectors[some]))
    return scores, 4 * gamma(width + 8, FLOAT64)


def _bertscores(
    record: Metric, index: TokenStateIndex, encoded: TokenQueries, chosen: Sequence[int], tell: Count
) -> tuple[np.ndarray, float]:
    """Multiply the states of all chosen queries at once with those of a block of the corpus.

    The corpus is read once for any number of queries. Where the signs of precision and recall are not sure, F1 may
    lie near its pole: there the plain scorer decides.
    """
    part = int(record.options["part"])  # type: ignore[call-overload]
    score, batch = load_reference(record), encoded.batch
    counts = [len(batch.states_of(q)) for q in chosen]
    asked = _directions(np.concatenate([batch.states_of(q) for q in chosen]))
    stops = np.cumsum(counts)
    lengths, width = np.diff(index.ptr), index.states.shape[1]
    longest = int(max(lengths.max(), *counts))
    error = 4 * gamma(width + longest + 16, FLOAT64)
    base = 0.0 if batch.baseline is None else batch.baseline[part]
    scores = np.empty((len(counts), len(lengths)))
    at_once = max(CELLS // max(len(asked), width), 1)
    first = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(index.ptr, index.ptr[first] + at_once, "right")) - 1, first + 1)
        tokens = slice(index.ptr[first], index.ptr[last])
        starts = index.ptr[first:last] - index.ptr[first]
        cosines = asked @ _directions(index.states[tokens]).T
        weights = encoded.corpus.weight_of_id[index.ids[tokens]]
        total = np.add.reduceat(weights, starts)
        for place, q in enumerate(chosen):
            own = cosines[stops[place] - counts[place] : stops[place]]
            precision = _ratio(np.add.reduceat(weights * own.max(axis=0), starts), total)
            of_query = batch.weights_of(q)
            recall = _ratio(of_query @ np.maximum.reduceat(own, starts, axis=1), of_query.sum())
            wordless = (lengths[first:last] == 2) | (counts[place] == 2)
            precision[wordless] = recall[wordless] = 0.0
            found = precision if part == PRECISION else recall
            unsure = np.zeros(last - first, bool)
            if part == F1:
                both = precision + recall
                found = _ratio(2.0 * precision * recall, both)
                least, most = np.minimum(precision, recall), np.maximum(precision, recall)
                unsure = ~wordless & ~((least >= error) | (most <= -error))
            found = (found - base) / (1.0 - base)
            for unit in np.flatnonzero(unsure):
                found[unit] = score(index.candidate(first + int(unit), encoded), encoded.item(q))[0]
            scores[place, first:last] = found
        tell(len(counts) * (last - first))
        first = last
    # Where both have one sign, the derivatives of F1 add up to at most 2.
    return scores, 2 * error / (1.0 - base)


def _directions(vectors: np.ndarray) -> np.ndarray:
    """Return vectors in float64, divided by their lengths; zero stays zero."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", wide, wide))
    return _ratio(wide, lengths[:, None])


def _ratio(numerator: np.ndarray, denominator: Any) -> np.ndarray:
    """Return a quotient, 0 where nothing is divided by."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)
