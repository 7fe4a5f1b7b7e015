"""The cascade of a search: cells bound every candidate, codes what is left, float32 and float64 products the finalists.

What makes dropping safe: an item is dropped only where a bound on its score, proven in the README, lies below the
threshold, and the threshold is at any time the score of the k-th best row among those scored so far, so never above the
final one. Ties stay, since a bound that equals the threshold drops nothing.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit, jit_borrowing
from metric_oracle.kernels._sort import order_of
from metric_oracle.kernels.bertscore.bounds import (
    Known,
    bound_by_codes,
    bound_codes,
    bound_codes_below,
    bound_means,
    bound_of,
    bound_precisions,
    bound_recall,
    part_of,
    prefetch_codes,
)
from metric_oracle.kernels.bertscore.exact import approximate, exact, exact_pair, length_of, widen
from metric_oracle.kernels.bertscore.query import Coded
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL

FIRST = 4  # of the seeds, the best 4 k are scored first
AHEAD = 2  # candidates whose codes are asked for in advance
ROUND = 2.0**-23  # more than rounding to float32 takes
VISIT = 1 << 15  # tokens whose codes serve all queries of a group before the next ones come: 3 MB
STAGES = ("cells", "codes", "float32")


class Work(NamedTuple):
    """Scratch of one thread: arrays with a line for each query of a group, then what they share."""

    table: np.ndarray  # int16[passes, M, LANES], cosines with the centres, rounded up
    angle: np.ndarray  # uint8[passes, M, LANES], the same as angles, rounded down
    ends: np.ndarray  # float32[M, 2], pi / 2 less the least angle of any lane: from above, and from below
    upper: np.ndarray  # float32[I], bound on precision
    lower: np.ndarray  # float32[I], the same from below
    kept: np.ndarray  # int32[I], items that are left
    kept_bound: np.ndarray  # float64[I], bounds on their scores
    kept_recall: np.ndarray  # float32[I], the same on their recall, by cells
    means: np.ndarray  # float32[2], see `bounds.bound_precisions`
    row: np.ndarray  # float32[1 + longest report + 16]
    column: np.ndarray  # float32[passes, LANES]
    lowest: np.ndarray  # uint8[passes, LANES]
    wide: np.ndarray  # float32[longest report, d]
    turned: np.ndarray  # float64[d, longest report]
    sums: np.ndarray  # float64[longest query, longest report]
    seed: np.ndarray  # int32[seeds], items with the best bounds
    seed_bound: np.ndarray  # float64[seeds]


OF_QUERY = 8  # the first fields


class Items(NamedTuple):
    """What is ranked: units, or in a composite units with something added to their score.

    Attributes
    ----------
    unit : int32[I], ascending
    bonus : float32[I]
        Upper bound on what is added to an item's score.
    error : float
        How far `bonus` may lie above it.
    alone : bool
        Whether nothing is added.
    row_ptr : int64[I + 1]
        Corpus rows of each item.
    least : float
        Items whose score with its bonus is surely below may be left out.
    """

    unit: np.ndarray
    bonus: np.ndarray
    error: float
    alone: bool
    row_ptr: np.ndarray
    least: float = -np.inf


class Answers(NamedTuple):
    """Exactly scored items of one query."""

    item: np.ndarray  # int32[I]
    precision: np.ndarray  # float64[I]
    recall: np.ndarray  # float64[I]
    is_scored: np.ndarray  # bool[I]
    best: np.ndarray  # float64[k + 1], a heap of the best scores, the least on top, that stand for k rows
    best_rows: np.ndarray  # int64[k + 1], rows of each
    threshold: np.ndarray  # float64[1], score of the k-th best row, `Items.least` before there are k
    state: np.ndarray  # int64[5]: items scored; best scores; their rows; items kept; item dropped by float32, or -1
    counts: np.ndarray  # int64[5]: items dropped by each of STAGES, scored, and of a sample dropped wrongly
    closest: np.ndarray  # float64[3], least distance of each stage's bounds from a score that became known


@jit
def is_sure(part, low, high):
    """Tell whether precision + recall, between `low` and `high`, keeps its sign: there F1 rises with both."""
    return part != F1 or low > 0.0 or high < 0.0


@jit
def _sift(best, rows, n, score, count):
    """Put a score into the place of the top of a heap of n, which then is in order again."""
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


@jit
def score_item(i, part, k, items, corpus, query, work, found):
    """Score an item exactly, once, and raise the threshold to the k-th best row's score."""
    if found.is_scored[i]:
        return
    found.is_scored[i] = True
    u = items.unit[i]
    widen(u, corpus, work)
    precision, recall = exact(u, corpus, query, work)
    n = found.state[0]
    found.item[n] = i
    found.precision[n] = precision
    found.recall[n] = recall
    found.state[0] = n + 1
    score = part_of(part, precision, recall) + items.bonus[i] - items.error
    count = items.row_ptr[i + 1] - items.row_ptr[i]
    n = found.state[1]
    if found.state[2] >= k and score <= found.best[0]:
        return
    j = n
    while j > 0 and found.best[(j - 1) // 2] > score:
        found.best[j] = found.best[(j - 1) // 2]
        found.best_rows[j] = found.best_rows[(j - 1) // 2]
        j = (j - 1) // 2
    found.best[j] = score
    found.best_rows[j] = count
    n += 1
    rows = found.state[2] + count
    while rows - found.best_rows[0] >= k:  # the others stand for k rows
        rows -= found.best_rows[0]
        n -= 1
        _sift(found.best, found.best_rows, n, found.best[n], found.best_rows[n])
    found.state[1] = n
    found.state[2] = rows
    if rows >= k:
        found.threshold[0] = max(found.threshold[0], found.best[0])


@jit
def _offer(i, bound, n, seeds, bounds):
    """Keep the `len(seeds)` items of the greatest bounds, greatest first; return how many there are."""
    if n == len(seeds) and bound <= bounds[n - 1]:
        return n
    j = min(n, len(seeds) - 1)
    while j > 0 and bounds[j - 1] < bound:
        bounds[j] = bounds[j - 1]
        seeds[j] = seeds[j - 1]
        j -= 1
    bounds[j] = bound
    seeds[j] = i
    return min(n + 1, len(seeds))


@jit
def _score_best(n, part, k, items, corpus, query, margins, work, found):
    """Bound the first `n` seeds by their codes and score the most promising ones."""
    for j in range(n):
        i = work.seed[j]
        precision, recall = bound_codes(items.unit[i], corpus, query.coded, work, margins)
        work.seed_bound[j] = -bound_of(part, precision, recall, items.bonus[i])
    order = order_of(work.seed_bound[:n])
    for j in order[: FIRST * k]:
        if -work.seed_bound[j] < found.threshold[0]:
            break
        score_item(work.seed[j], part, k, items, corpus, query, work, found)


@jit
def forget_items(found):
    """Forget the items of the tile before, but neither the best scores nor the threshold."""
    for j in range(found.state[0]):
        found.is_scored[found.item[j]] = False
    found.state[0] = 0
    found.state[3] = 0
    found.state[4] = -1


@jit
def reset(found, least):
    """Forget the query before; scores with their bonus below `least` may be left out."""
    forget_items(found)
    found.state[:4] = 0
    found.threshold[0] = least


@jit
def _like_length(n, items, corpus):
    """Return the items whose reports have two thirds to three halves of `n` tokens; units fall in length."""
    n_items = len(items.unit)
    first = 0
    while first < n_items and 2 * length_of(items.unit[first], corpus) > 3 * n:
        first += 1
    last = first
    while last < n_items and 3 * length_of(items.unit[last], corpus) >= 2 * n:
        last += 1
    return first, last


@jit_borrowing
def _keep_by_cells(part, items, corpus, query, margins, tables, work, threshold):
    """List in `work` the items that their cells do not drop, and the best of them as seeds; return both numbers.

    Borrowed: counting references to the slices of `work` would take a sixth of its time, as in `search_codes`.
    """
    n_items = len(items.unit)
    n = len(query.weights)
    n_kept = 0
    n_seeds = 0
    for i in range(n_items):
        u = items.unit[i]
        bonus = np.float64(items.bonus[i])
        bound = np.inf
        recall = 0.0
        precision = np.float64(work.upper[i])
        if n == 2 or length_of(u, corpus) == 2:
            bound = bonus  # precision and recall are 0 by definition
        elif part == PRECISION:
            bound = bound_of(part, precision, 0.0, bonus)
        else:
            low = work.lower[i] + bound_means(u, corpus, query.coded, margins.means)
            if part == F1 and low > 0.0 and bound_of(part, precision, 1.0 + margins.exact, bonus) < threshold[0]:
                continue
            recall = bound_recall(u, corpus, query.coded, work, tables.above, margins.exact)
            if is_sure(part, low, precision + recall):
                bound = bound_of(part, precision, recall, bonus)
        if bound < threshold[0]:
            continue
        work.kept[n_kept] = i
        work.kept_bound[n_kept] = bound
        work.kept_recall[n_kept] = recall + abs(recall) * ROUND
        n_kept += 1
        if bound != np.inf:
            n_seeds = _offer(i, bound, n_seeds, work.seed, work.seed_bound)
    return n_kept, n_seeds


@jit
def search_cells(part, k, items, corpus, query, margins, tables, work, found):
    """Score a few promising items, and keep those that the cells of their tokens do not drop."""
    n_items = len(items.unit)
    n = len(query.weights)
    threshold = found.threshold
    bound_precisions(items.unit, corpus, work, margins)

    # Seeds: the best precision still possible; for BERTScore alone, among reports of about the query's length.
    first = 0
    last = n_items
    if items.alone:
        first, last = _like_length(n, items, corpus)
        if last - first < len(work.seed):
            first = 0
            last = n_items
    n_seeds = 0
    for i in range(first, last):
        n_seeds = _offer(i, work.upper[i] + items.bonus[i], n_seeds, work.seed, work.seed_bound)
    _score_best(n_seeds, part, k, items, corpus, query, margins, work, found)

    n_kept, n_seeds = _keep_by_cells(part, items, corpus, query, margins, tables, work, threshold)
    found.state[3] = n_kept
    found.counts[0] += n_items - n_kept
    _score_best(n_seeds, part, k, items, corpus, query, margins, work, found)


@jit
def _work_of(group, g):
    """Return the scratch of one query of a group."""
    return Work(
        group.table[g], group.angle[g], group.ends[g], group.upper[g], group.lower[g], group.kept[g],
        group.kept_bound[g], group.kept_recall[g], group.means, group.row, group.column, group.lowest, group.wide,
        group.turned, group.sums, group.seed, group.seed_bound,
    )  # fmt: skip


class Group(NamedTuple):
    """What the codes ask of the queries of a group: a line for each."""

    coded: Coded
    n: np.ndarray  # int64, tokens
    bonus: np.ndarray  # float32[I]
    threshold: np.ndarray  # float64[1]
    n_kept: np.ndarray  # int64, in and out
    place: np.ndarray  # int64, of kept items that were looked at: 0 before
    n_left: np.ndarray  # int64, of them that are left: 0 before


@jit_borrowing
def search_codes(part, unit, corpus, group, margins, scratch):
    """Drop kept items by the codes of their tokens; some tokens of the corpus serve all queries before the next do.

    Writes
    ------
    kept, kept_bound of `scratch`, and `group.n_kept`
        What is left, in its order.
    """
    n_queries = len(group.n)
    place = group.place
    n_left = group.n_left
    first = 0
    while first < len(unit):
        last = first
        while last < len(unit) and corpus.ptr[unit[last]] - corpus.ptr[unit[first]] <= VISIT:
            last += 1
        for g in range(n_queries):
            work = _work_of(scratch, g)
            n = group.n[g]
            c = group.coded
            coded = Coded(c.weights[g, :n], c.codes[g], c.lanes[g], c.lanes_below[g], c.scalars[g])
            threshold = group.threshold[g, 0]
            j = place[g]
            while j < group.n_kept[g] and work.kept[j] < last:
                if j + AHEAD < group.n_kept[g]:
                    prefetch_codes(unit[work.kept[j + AHEAD]], corpus)
                i = work.kept[j]
                u = unit[i]
                bound = work.kept_bound[j]
                recall = np.float64(work.kept_recall[j])
                j += 1
                if bound < threshold:
                    continue
                if n != 2 and length_of(u, corpus) != 2:
                    sure = bound != np.inf
                    enough = threshold if sure and part != RECALL else -np.inf
                    known = Known(np.float64(work.upper[i]), recall, np.float64(group.bonus[g, i]), enough)
                    precision, recall, _ = bound_by_codes(part, u, known, corpus, coded, work, margins)
                    if precision == -np.inf:
                        continue
                    if not sure:
                        low_precision, low_recall = bound_codes_below(u, corpus, coded, work, margins)
                        sure = is_sure(part, low_precision + low_recall, precision + recall)
                    bound = bound_of(part, precision, recall, group.bonus[g, i]) if sure else np.inf
                    if bound < threshold:
                        continue
                work.kept[n_left[g]] = i
                work.kept_bound[n_left[g]] = bound
                n_left[g] += 1
            place[g] = j
        first = last
    for g in range(n_queries):
        group.n_kept[g] = n_left[g]


@jit
def finish_in_order(order, part, k, items, corpus, query, margins, work, found):
    """Score items until their bounds fall below the k-th best: float32 products first, then float64.

    Parameters
    ----------
    order : int64[n]
        Places in `work.kept` and `work.kept_bound`, the greatest bound first.

    Returns
    -------
    n_seen, n_scored : int
        Items whose bounds did not suffice, and those of them that were scored.
    """
    n = len(query.weights)
    n_seen = n_scored = 0
    for j in order:
        if work.kept_bound[j] < found.threshold[0]:
            break
        n_seen += 1
        i = work.kept[j]
        u = items.unit[i]
        has_words = n != 2 and length_of(u, corpus) != 2
        precision = recall = 0.0
        if has_words:
            widen(u, corpus, work)
            precision, recall = approximate(u, corpus, query, work)
            both = precision + recall
            sure = is_sure(part, both - 2 * margins.product, both + 2 * margins.product)
            bound = bound_of(part, precision + margins.product, recall + margins.product, items.bonus[i])
            if sure and bound < found.threshold[0] and corpus.unit_weight[u] > 0:
                if found.state[4] < 0:
                    found.state[4] = i
                continue
        was_scored = found.is_scored[i]
        score_item(i, part, k, items, corpus, query, work, found)
        n_scored += 1
        if has_words and not was_scored:
            last = found.state[0] - 1
            off = max(abs(found.precision[last] - precision), abs(found.recall[last] - recall))
            found.closest[2] = min(found.closest[2], margins.product - off)
    return n_seen, n_scored


@jit
def finish(part, k, items, corpus, query, margins, work, found):
    """Score what is left of the items of a query."""
    n_left = found.state[3]
    order = order_of(-work.kept_bound[:n_left])
    _, n_scored = finish_in_order(order, part, k, items, corpus, query, margins, work, found)
    found.counts[2] += n_left - n_scored
    found.counts[3] += n_scored


@jit
def _compare(i, precision, recall, items, corpus, query, margins, tables, work, found):
    """Compare the exact parts of an item's score with each bound that the cells and the codes had for them."""
    u = items.unit[i]
    if len(query.weights) == 2 or length_of(u, corpus) == 2:
        return
    above = min(
        work.upper[i] - precision, bound_recall(u, corpus, query.coded, work, tables.above, margins.exact) - recall
    )
    low = work.lower[i] + bound_means(u, corpus, query.coded, margins.means)
    below = precision + recall - low if corpus.unit_weight[u] > 0 else np.inf
    found.closest[0] = min(found.closest[0], above, below)
    known = Known(np.float64(work.upper[i]), 0.0, 0.0, -np.inf)
    high_precision, high_recall, mixed = bound_by_codes(F1, u, known, corpus, query.coded, work, margins)
    found.closest[1] = min(found.closest[1], high_precision - precision, high_recall - recall, mixed - precision)
    low_precision, low_recall = bound_codes_below(u, corpus, query.coded, work, margins)
    if corpus.unit_weight[u] > 0:
        found.closest[1] = min(found.closest[1], precision - low_precision)
    found.closest[1] = min(found.closest[1], recall - low_recall)


@jit
def check(part, items, corpus, query, margins, tables, sample, work, found):
    """Compare every score with the bounds that admitted it; score a few dropped items, which must lie below the k-th.

    Parameters
    ----------
    sample : int64[n]
        Items; those that were scored are passed by. The one that float32 products dropped first is taken too.
    """
    for j in range(found.state[0]):
        precision, recall = found.precision[j], found.recall[j]
        _compare(found.item[j], precision, recall, items, corpus, query, margins, tables, work, found)
    for j in range(len(sample) + 1):
        i = sample[j] if j < len(sample) else found.state[4]
        if len(sample) == 0 or i < 0 or found.is_scored[i]:
            continue
        u = items.unit[i]
        precision, recall = exact_pair(u, corpus, query, work)
        if part_of(part, precision, recall) + items.bonus[i] - items.error >= found.threshold[0]:
            found.counts[4] += 1
        _compare(i, precision, recall, items, corpus, query, margins, tables, work, found)
        if j == len(sample):
            near_precision, near_recall = approximate(u, corpus, query, work)
            off = max(abs(near_precision - precision), abs(near_recall - recall))
            found.closest[2] = min(found.closest[2], margins.product - off)
