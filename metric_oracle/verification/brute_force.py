"""A brute-force search that shares no code with the kernels: every document is scored for every query.

Plain scorers score the pairs. For two metrics of vectors a pair would take them milliseconds: BERTScore and the cosine
of embeddings. These are first approximated by float64 matrix products with a bound of the error, and the plain scorers
then score all candidates that may be among the k best. Each way to compute a cosine has at most the rounding error of
two sums as long as the vectors are wide, one for the product and one for the lengths; hence the factor 4 before gamma.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.progress import Advance
from metric_oracle.indexes.bertscore import StateDocuments
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.embeddings import EmbeddingDocuments
from metric_oracle.kernels._errors import FLOAT64, gamma
from metric_oracle.kernels.bertscore.score import F1, PRECISION
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.sum.score import composite
from metric_oracle.kernels.topk.reference import select
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import Pairs, Part
from metric_oracle.retrieval.kernels import load_reference

CELLS = 1 << 22  # float64 numbers per block, 32 MB


class WantedList(NamedTuple):
    """A list of results to compute."""

    place: int  # query of the list, as an index into `chosen` of `answers_of`
    excluded: np.ndarray  # int64[n], corpus rows that are neither listed nor counted among the ties


def answers_of(
    pairs: Pairs,
    query_numbers: Sequence[int],
    k: int,
    tell: Advance,
    *,
    lists: Sequence[WantedList] | None = None,
    min_score: float | None = None,
) -> Answers:
    """Return, as `Answers`, the k best rows for the distinct queries `query_numbers`, with scores of the plain scorer.

    There is one list for each of `lists`, by default one for each query, which excludes nothing. Rows that score worse
    than `min_score` are not listed. Lists with fewer than k rows end with row -1. `tell` gets `n_pairs` scored pairs in
    all.
    """
    lists = (
        [WantedList(place, np.empty(0, np.int64)) for place in range(len(query_numbers))] if lists is None else lists
    )
    metric = pairs.metric
    n, sign = len(lists), metric.sign
    answers = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), np.empty(0))
    values = _scores_by_metric(pairs, query_numbers, tell)
    scores, error = _sum_of_scores(metric, values)
    for i, (place, excluded) in enumerate(lists):
        q, signed = query_numbers[place], sign * scores[place]
        documents = np.arange(len(signed))
        for condition in metric.conditions:
            own, of_own = values[condition.metric.name]
            holds = condition.holds(own[place])
            for document in np.flatnonzero(np.abs(own[place] - condition.value) <= of_own) if of_own else ():
                holds[document] = condition.holds(pairs.plain(q, int(document))[1][condition.metric.name])
            documents = documents[holds[documents]]
        # So many documents have at least k rows that are not excluded; those surely below the last are not listed.
        least = max(len(documents) - k - len(excluded), 0)
        if len(documents):
            last = np.partition(signed[documents], least)[least]
            documents = documents[signed[documents] >= last - 2 * error]
        exact = signed[documents]
        if error:
            exact = sign * np.array([pairs.plain(q, document)[0] for document in documents.tolist()])
        if min_score is not None:
            fits = exact >= sign * min_score
            documents, exact = documents[fits], exact[fits]
        rows, best, ties = select(documents, exact, pairs.row_ptr, pairs.row_id, k, excluded)
        for column, answer in zip(answers[:3], (rows, sign * best, ties), strict=True):
            column[i, : len(answer)] = answer
    return answers


def _scores_by_metric(pairs: Pairs, query_numbers: Sequence[int], tell: Advance) -> dict[str, tuple[np.ndarray, float]]:
    """Return, by name of each metric of a sum, scores float64[n, D] and a bound of their error.

    Rows are those of the distinct queries `query_numbers`, columns all documents; see `_scores`.
    """
    values = {}
    for name, metric in pairs.metric.metrics.items():
        of_parts = [_of_metric(metric, part, pairs.encoded, query_numbers, tell) for part in pairs.parts]
        values[name] = np.concatenate([scores for scores, _ in of_parts], axis=1), max(error for _, error in of_parts)
    return values


def _of_metric(
    metric: Metric, part: Part, asked: Documents, query_numbers: Sequence[int], tell: Advance
) -> tuple[np.ndarray, float]:
    """Return what `_scores_by_metric` does for one of the metrics and the documents of one part."""
    (representation, own), (encoded, of_query) = part.representation.of_metric(metric), asked.of_metric(metric)
    queries, which = np.unique(of_query[list(query_numbers)], return_inverse=True)
    scores, error = _scores(metric, representation, encoded, queries.tolist(), tell)
    return scores[which][:, own], error


def _sum_of_scores(metric: Metric, values: Mapping[str, tuple[np.ndarray, float]]) -> tuple[np.ndarray, float]:
    """Return a sum of scores, float64[n, D], with a bound of its error; `values` has both for each metric by name."""
    terms = metric.terms
    total = composite([values[name][0] for name in terms], terms.values(), metric.intercept)
    error, size = 0.0, abs(metric.intercept)
    for name, term in terms.items():
        scores, of_term = values[name]
        slope = abs(term.weight / term.scale)
        error += slope * of_term
        size += slope * (float(np.abs(scores).max(initial=0.0)) + abs(term.mean))
    return total, error + gamma(8 * len(terms), FLOAT64) * size if error else 0.0


def n_pairs(pairs: Pairs, query_numbers: Sequence[int]) -> int:
    """Return the number of pairs that a search for distinct queries scores, added up over the metrics of a sum."""
    total = 0
    for metric in pairs.metric.metrics.values():
        _, of_query = pairs.encoded.of_metric(metric)
        queries = np.unique(of_query[list(query_numbers)])
        for part in pairs.parts:
            representation, _ = part.representation.of_metric(metric)
            total += len(queries) * (len(representation.row_ptr) - 1)
    return total


def _scores(
    metric: Metric, representation: Any, encoded: Any, query_numbers: Sequence[int], tell: Advance
) -> tuple[np.ndarray, float]:
    """Return the scores of the queries `query_numbers` with all documents, float64[n, D], and a bound of their error.

    `query_numbers` has numbers of distinct queries. `tell` gets the numbers of pairs as they are scored.
    """
    if isinstance(representation, StateDocuments):
        return _bertscores(metric, representation, encoded, query_numbers, tell)
    if isinstance(representation, EmbeddingDocuments):
        return _cosines(representation, encoded, query_numbers, tell)
    score = load_reference(metric)
    n_documents = len(representation.row_ptr) - 1
    items = [encoded.item(q) for q in query_numbers]
    scores = np.empty((len(items), n_documents))
    for document in range(n_documents):
        candidate = representation.item(document)
        for i, item in enumerate(items):
            scores[i, document] = score(candidate, item)[0]
        tell(len(items))
    return scores, 0.0


def _cosines(
    index: EmbeddingDocuments, encoded: EmbeddingDocuments, query_numbers: Sequence[int], tell: Advance
) -> tuple[np.ndarray, float]:
    """Return the cosines of the queries `query_numbers` with all vectors, float64[n, D], and a bound of their error.

    The arguments are those of `_scores`.
    """
    queries = _directions(encoded.vectors[list(query_numbers)])
    n_documents, width = index.vectors.shape
    scores = np.empty((len(queries), n_documents))
    step = max(CELLS // width, 1)
    for first in range(0, n_documents, step):
        block = slice(first, first + step)
        scores[:, block] = queries @ _directions(index.vectors[block]).T
        tell(len(queries) * len(index.vectors[block]))
    return scores, 4 * gamma(width + 8, FLOAT64)


def _bertscores(
    metric: Metric, index: StateDocuments, encoded: StateDocuments, query_numbers: Sequence[int], tell: Advance
) -> tuple[np.ndarray, float]:
    """Return the BERTScore of the queries `query_numbers` with all documents, float64[n, D], and a bound of its error.

    The arguments are those of `_scores`. The token states of all queries are multiplied with those of one block of the
    corpus at a time, so that the corpus is read once for any number of queries. If the signs of precision and recall
    are uncertain, F1 may be near its pole; the plain scorer scores these pairs.
    """
    part = int(metric.options["part"])  # type: ignore[call-overload]
    batch = index.translate(metric, encoded)
    score = load_reference(metric)
    counts = [len(batch.states_of(q)) for q in query_numbers]
    directions = _directions(np.concatenate([batch.states_of(q) for q in query_numbers]))
    stops = np.cumsum(counts)
    lengths, width = np.diff(index.ptr), index.states.shape[1]
    longest = int(max(lengths.max(), *counts))
    error = 4 * gamma(width + longest + 16, FLOAT64)
    base = 0.0 if batch.baseline is None else batch.baseline[part]
    scores = np.empty((len(counts), len(lengths)))
    at_once = max(CELLS // max(len(directions), width), 1)
    first = 0
    while first < len(lengths):
        last = max(int(np.searchsorted(index.ptr, index.ptr[first] + at_once, "right")) - 1, first + 1)
        tokens = slice(index.ptr[first], index.ptr[last])
        starts = index.ptr[first:last] - index.ptr[first]
        cosines = directions @ _directions(index.states[tokens]).T
        weights = encoded.weight_of_id[index.ids[tokens]]
        total = np.add.reduceat(weights, starts)
        wordless = lengths[first:last] == 2  # documents of the two special tokens; a query of these is refused
        for i, q in enumerate(query_numbers):
            own = cosines[stops[i] - counts[i] : stops[i]]
            precision = _ratio(np.add.reduceat(weights * own.max(axis=0), starts), total)
            of_query = batch.weights_of(q)
            recall = _ratio(of_query @ np.maximum.reduceat(own, starts, axis=1), of_query.sum())
            precision[wordless] = recall[wordless] = 0.0
            block_scores = precision if part == PRECISION else recall
            unsure = np.zeros(last - first, bool)
            if part == F1:
                both = precision + recall
                block_scores = _ratio(2.0 * precision * recall, both)
                least, most = np.minimum(precision, recall), np.maximum(precision, recall)
                unsure = ~wordless & ~((least >= error) | (most <= -error))
            block_scores = (block_scores - base) / (1.0 - base)
            for document in np.flatnonzero(unsure):
                block_scores[document] = score(index.item(first + int(document)), encoded.item(q))[0]
            scores[i, first:last] = block_scores
        tell(len(counts) * (last - first))
        first = last
    # If both have the same sign, the derivatives of F1 add up to at most 2.
    return scores, 2 * error / (1.0 - base)


def _directions(vectors: np.ndarray) -> np.ndarray:
    """Return vectors in float64, divided by their lengths; vectors of zeros stay zero."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", wide, wide))
    return _ratio(wide, lengths[:, None])


def _ratio(numerator: np.ndarray, denominator: Any) -> np.ndarray:
    """Return a quotient, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)
