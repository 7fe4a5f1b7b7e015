"""The cascade of a search: bounds by cells, bounds by codes, float32 products, float64 scores of the remaining items.

An *item* is a document, or in a composite metric a document with a number (the offset) added to its score. `bounds.py`
and `codec.py` explain cells and codes.

Dropping is safe: an item is dropped only if a bound on its score, proven in the README, is below the threshold. The
threshold is the score of the k-th best row among those scored so far, so it never exceeds the final one. Ties stay,
because a bound that equals the threshold drops nothing.

In parameters, `ranking` is a `Ranking`, `work` a `Work`, and `scores` an `ItemScores`.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels.bertscore.bounds import (
    Known,
    bound_by_codes,
    bound_codes_below,
    bound_means,
    bound_of,
    bound_recall,
    part_of,
    prefetch_codes,
)
from metric_oracle.kernels.bertscore.exact import approximate, exact, length_of, widen
from metric_oracle.kernels.bertscore.score import F1, MEAN, PRECISION
from metric_oracle.kernels.contract import read_only

AHEAD = 4  # candidates whose codes are prefetched
ROUND = 2.0**-23  # above the error of rounding to float32
STAGES = ("cells", "codes", "float32")
CELLS, CODES, SOME, BELOW = range(4)  # places of bounds in `Work.noted`


class Work(NamedTuple):
    """Scratch arrays of one thread, for M cells, I items, documents of up to R tokens and queries of up to S tokens."""

    # int16[passes, M * LANES], cosines of the query's tokens with the centres, rounded up; a row of as many lanes
    # as the pass has for each centre
    table: np.ndarray
    angle: np.ndarray  # uint8[passes, M * LANES], the same as angles, rounded down
    ends: np.ndarray  # float32[M, 2], pi / 2 less the least angle of any lane: from above, and from below
    upper: np.ndarray  # float32[I], upper bound on precision
    lower: np.ndarray  # float32[I], lower bound on precision
    kept: np.ndarray  # int32[I], items that are left
    kept_bound: np.ndarray  # float64[I], bounds on their scores
    kept_recall: np.ndarray  # float32[I], upper bounds on their recall by cells
    means: np.ndarray  # float32[2], see `bounds._add_cells`
    row: np.ndarray  # float32[1 + R + 16], maximum for each token of a document; by codes as `make_bounds` writes it
    column: np.ndarray  # float32[passes, LANES], maximum for each token of the query
    wide: np.ndarray  # float32[R, d], token states of a document
    doubles: np.ndarray  # float64[R, d], the same
    squares: np.ndarray  # float64[R], their squared lengths
    # float64[ceil(S / STEP), R, STEP], their products with the states of the query, STEP of its tokens after each other
    products: np.ndarray
    start: np.ndarray  # int32[starts], items of the warm start, those with the best bounds
    start_bound: np.ndarray  # float64[starts], bounds on their scores
    # float64[I, 4, 2], bounds on precision and recall of the kept items, which a check asks for; float64[0, 4, 2] in a
    # search. They are CELLS (of recall the upper one, and the lower one of the sum of both), CODES, SOME and BELOW.
    noted: np.ndarray


class Items(NamedTuple):
    """Items to rank for one query: documents, or in a composite documents with a number added to their score."""

    document: np.ndarray  # int32[I], ascending
    offset: np.ndarray  # float32[I], upper bound on the number that is added to an item's score
    error: float  # maximum of `offset` minus that number
    alone: bool  # every document is one item with an offset of 0
    # int64[I + 1], offsets whose differences are the numbers of rows of each item that no list of the query excludes
    row_ptr: np.ndarray
    least: float = -np.inf  # items whose score plus offset is certainly below this may be left out


def every_document(row_ptr, error=0.0):
    """Return all documents of a corpus as `Items` with an offset of 0.

    `row_ptr`, int64[D + 1], has the offsets of their corpus rows; `error` is that of `Items`.
    """
    n = len(row_ptr) - 1
    return read_only(Items(np.arange(n, dtype=np.int32), np.zeros(n, np.float32), error, True, row_ptr))


class ItemScores(NamedTuple):
    """Exact scores of the items of one query, as far as they are computed, and the state of its search."""

    item: np.ndarray  # int32[I], scored items, in the order of scoring
    precision: np.ndarray  # float64[I], precision of each
    recall: np.ndarray  # float64[I], recall of each
    is_scored: np.ndarray  # bool[I], by item
    best: np.ndarray  # float64[k + 1], a heap of the best scores, the least at the root, that stand for k rows
    best_rows: np.ndarray  # int64[k + 1], rows of each
    threshold: np.ndarray  # float64[1], score of the k-th best row, `Items.least` before there are k
    state: np.ndarray  # int64[5]: items scored; best scores; their rows; items kept; item dropped by float32, or -1
    counts: np.ndarray  # int64[5]: items dropped by each of STAGES, scored, and of a sample dropped wrongly
    closest: np.ndarray  # float64[3], least distance of each stage's bounds from a score that became known


@inner
def is_sure(part, low, high):
    """Return whether precision + recall, which is from `low` to `high`, has a certain sign, so that F1 rises with both.

    True for other parts than F1.
    """
    return part != F1 or low > 0.0 or high < 0.0


@inner
def _sift(best, rows, n, score, count):
    """Replace the root of a heap of n scores, the least at the root, by `score`, which stands for `count` rows.

    `best` holds the scores, and `rows` how many corpus rows each stands for.
    """
    i = 0
    while True:
        child = 2 * i + 1
        if child + 1 < n and best[child + 1] < best[child]:
            child += 1
        if child >= n or best[child] >= score:
            break
        best[i] = best[child]
        rows[i] = rows[child]
        i = child
    best[i] = score
    rows[i] = count


@inner
def score_item(i, ranking, k, items, work, scores):
    """Score item i exactly, unless it was scored before, and raise the threshold to the score of the k-th best row.

    The result is added to `scores`.
    """
    if scores.is_scored[i]:
        return
    scores.is_scored[i] = True
    u = np.int64(items.document[i])
    widen(u, ranking.corpus, work)
    precision, recall = exact(u, ranking.corpus, ranking.query, work)
    n = scores.state[0]
    scores.item[n] = i
    scores.precision[n] = precision
    scores.recall[n] = recall
    scores.state[0] = n + 1
    score = part_of(ranking.part, precision, recall) + items.offset[i] - items.error
    count = items.row_ptr[i + 1] - items.row_ptr[i]
    n = scores.state[1]
    if count == 0 or (scores.state[2] >= k and score <= scores.best[0]):  # excluded, or not among the best
        return
    j = n
    while j > 0 and scores.best[(j - 1) // 2] > score:
        scores.best[j] = scores.best[(j - 1) // 2]
        scores.best_rows[j] = scores.best_rows[(j - 1) // 2]
        j = (j - 1) // 2
    scores.best[j] = score
    scores.best_rows[j] = count
    n += 1
    rows = scores.state[2] + count
    while rows - scores.best_rows[0] >= k:  # the other scores stand for k rows
        rows -= scores.best_rows[0]
        n -= 1
        _sift(scores.best, scores.best_rows, n, scores.best[n], scores.best_rows[n])
    scores.state[1] = n
    scores.state[2] = rows
    if rows >= k:
        scores.threshold[0] = max(scores.threshold[0], scores.best[0])


@jit
def find_starts(listed, listed_bounds, starts, bounds):
    """Write the items with the greatest bounds, and these in descending order, into `starts` and `bounds`.

    The items, int32[n], are `listed` with their `listed_bounds`, float64[n]; infinite bounds are left out. Return how
    many items there are, at most as many as `starts` holds.
    """
    n = 0
    for i in range(len(listed)):
        bound = listed_bounds[i]
        if bound == np.inf or (n == len(starts) and bound <= bounds[n - 1]):
            continue
        j = min(n, len(starts) - 1)
        while j > 0 and bounds[j - 1] < bound:
            bounds[j] = bounds[j - 1]
            starts[j] = starts[j - 1]
            j -= 1
        bounds[j] = bound
        starts[j] = listed[i]
        n = min(n + 1, len(starts))
    return n


def forget_items(scores):
    """Reset the scores of the items of the previous tile (run of documents); the best scores and the threshold stay."""
    scores.is_scored[scores.item[: scores.state[0]]] = False
    scores.state[[0, 3, 4]] = 0, 0, -1


def reset(scores, least):
    """Reset the state of a search for a new query; items whose score plus offset is below `least` may be left out."""
    forget_items(scores)
    scores.state[:4] = 0
    scores.threshold[0] = least


def similar_length(n, document, ptr):
    """Return the first item, and the end, of those with two thirds to three halves of n tokens.

    `document` is that of `Items`, `ptr` that of `TokenCorpus`. Documents are sorted by descending length.
    """
    first = bisect_left(document, -3 * n, key=lambda u: 2 * (ptr[u] - ptr[u + 1]))
    return first, bisect_right(document, -2 * n, key=lambda u: 3 * (ptr[u] - ptr[u + 1]))


@jit
def search_cells(ranking, items, work, threshold):
    """Run the first stage: list, in `work`, the items that bounds by cells do not drop, and return their number.

    `bound_precisions` was called before. `threshold`, float64[1], is that of `ItemScores`.
    """
    part, corpus, query, margins = ranking
    n_items = len(items.document)
    n = len(query.weights)
    n_kept = 0
    for i in range(n_items):
        u = np.int64(items.document[i])
        offset = np.float64(items.offset[i])
        bound = np.inf
        recall = low = 0.0
        precision = np.float64(work.upper[i])
        if n == 2 or length_of(u, corpus) == 2:
            bound = offset  # precision and recall are 0 by definition
        elif part == PRECISION:
            bound = bound_of(part, precision, 0.0, offset)
        else:
            low = work.lower[i] + bound_means(u, ranking)
            rises = part == MEAN or (part == F1 and low > 0.0)
            if rises and bound_of(part, precision, 1.0 + margins.exact, offset) < threshold[0]:
                continue
            recall = bound_recall(u, ranking, work)
            if is_sure(part, low, precision + recall):
                bound = bound_of(part, precision, recall, offset)
        if bound < threshold[0]:
            continue
        work.kept[n_kept] = i
        work.kept_bound[n_kept] = bound
        work.kept_recall[n_kept] = recall + abs(recall) * ROUND
        if len(work.noted) > 0:
            work.noted[n_kept, CELLS, 0] = recall
            work.noted[n_kept, CELLS, 1] = low
        n_kept += 1
    return n_kept


@jit
def search_codes(ranking, n_kept, items, work, threshold):
    """Run the second stage: bound the first `n_kept` items of `work.kept` by codes, drop those below the threshold.

    What is left, in order, are the first of `work.kept` and `work.kept_bound`; return their number. `threshold`,
    float64[1], is that of `ItemScores`.
    """
    part, corpus = ranking.part, ranking.corpus
    n = len(ranking.query.weights)
    n_left = 0
    for j in range(n_kept):
        if j + AHEAD < n_kept:
            prefetch_codes(items.document[work.kept[j + AHEAD]], ranking.query.coded.chunk, corpus)
        i = work.kept[j]
        u = np.int64(items.document[i])
        bound = work.kept_bound[j]
        if bound < threshold[0]:
            continue
        if n != 2 and length_of(u, corpus) != 2:
            sure = bound != np.inf
            recall = np.float64(work.kept_recall[j])
            offset = np.float64(items.offset[i])
            known = Known(np.float64(work.upper[i]), recall, offset, threshold[0], not sure)
            precision, recall, mixed_precision, mixed_recall = bound_by_codes(u, known, ranking, work)
            if precision == -np.inf:
                continue
            if not sure or len(work.noted) > 0:
                low_precision, low_recall = bound_codes_below(u, ranking, work)
                sure = sure or is_sure(part, low_precision + low_recall, precision + recall)
                if len(work.noted) > 0:
                    noted = work.noted[n_left]
                    noted[CODES, 0], noted[CODES, 1] = precision, recall
                    noted[SOME, 0], noted[SOME, 1] = mixed_precision, mixed_recall
                    noted[BELOW, 0], noted[BELOW, 1] = low_precision, low_recall
            bound = bound_of(part, precision, recall, offset) if sure else np.inf
            if bound < threshold[0]:
                continue
        work.kept[n_left] = i
        # The bound of a query whose tokens all have weight 0 is NaN; an infinite one drops nothing.
        work.kept_bound[n_left] = np.inf if np.isnan(bound) else bound
        n_left += 1
    return n_left


@jit
def finish_in_order(order, ranking, k, items, work, scores):
    """Score items by descending bound, in float32 and then in float64, until bounds fall below the k-th best score.

    `order`, int64[n], has indices into `work.kept` and `work.kept_bound`, by descending bound. Return how many items
    have a bound that reached the threshold, and how many of these were scored in float64, by `score_item`.
    """
    part, corpus, query, margins = ranking
    n = len(query.weights)
    n_seen = n_scored = 0
    for j in order:
        if work.kept_bound[j] < scores.threshold[0]:
            break
        n_seen += 1
        i = work.kept[j]
        u = np.int64(items.document[i])
        has_words = n != 2 and length_of(u, corpus) != 2
        precision = recall = 0.0
        if has_words:
            widen(u, corpus, work)
            precision, recall = approximate(u, corpus, query, work)
            both = precision + recall
            sure = is_sure(part, both - 2 * margins.product, both + 2 * margins.product)
            bound = bound_of(part, precision + margins.product, recall + margins.product, items.offset[i])
            if sure and bound < scores.threshold[0] and corpus.document_weight[u] > 0:
                if scores.state[4] < 0:
                    scores.state[4] = i
                continue
        was_scored = scores.is_scored[i]
        score_item(i, ranking, k, items, work, scores)
        n_scored += 1
        if has_words and not was_scored:
            last = scores.state[0] - 1
            off = max(abs(scores.precision[last] - precision), abs(scores.recall[last] - recall))
            scores.closest[2] = min(scores.closest[2], margins.product - off)
    return n_seen, n_scored
