"""BERTScore search: cells bound every candidate, codes bound what is left, float32 and float64 products the finalists.

The README of this folder proves the bounds.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _target
from metric_oracle.kernels._jit import inlined, jit, scalar
from metric_oracle.kernels._simd import LANES, lowest_angles, make_bounds, make_dots, prefetch, widen
from metric_oracle.kernels.bertscore.score import F1, PRECISION, RECALL, f1, rescale
from metric_oracle.kernels.chexbert.score import cosine
from metric_oracle.kernels.topk.reference import select

STEPS = 255  # steps of an angle byte
STEP = np.pi / 360  # half a degree
UNIT = 1 << 14  # one in a table of cosines
SLACK = 1e-5  # for the rounding of sums of float32 numbers: far above it, far below what bounds are worth
SEEDS = 64  # candidates that are bounded by their codes first, 8 k more for k answers
FIRST = 4  # of which the best 4 k are scored first
AHEAD = 2  # candidates whose codes are asked for in advance
STAGES = ("cells", "codes", "float32")

# Passes of up to 32 and of up to LANES query tokens. Two more forms, for 16 and 48, would save a fifth of the products
# of a middling query and double the time to compile.
_dots2, _dots4 = make_dots(2), make_dots(4)
_bounds2, _bounds4 = make_bounds(2), make_bounds(4)


class Corpus(NamedTuple):
    """Token states of the corpus and what bounds them; T tokens, D units, M cells, width d, codes of K bytes.

    Attributes
    ----------
    states : float32[T, d], or float16 seen as uint16
    ptr : int64[D + 1]
    weights : float32[T + 16], weight of each token, and room that is read and not used
    unit_weight : float64[D], sums of a unit's weights
    weight_of_id : float64[ids], for the exact score
    ids : int32[T]
    cell : uint16[T]
    radius : uint8[T], angle to the centre of the cell in half degrees, rounded up
    codes : uint8[T, K]
    terms : float32[T, 5], see `indexes/bertscore.py`
    mean_along, mean_off : float32[D]
        Of the unweighted mean of a unit's states: part along `direction`, length of the rest.
    norm_error : float64, how far the length of a stored state is from 1 at most
    """

    states: np.ndarray
    ptr: np.ndarray
    weights: np.ndarray
    unit_weight: np.ndarray
    weight_of_id: np.ndarray
    ids: np.ndarray
    cell: np.ndarray
    radius: np.ndarray
    codes: np.ndarray
    terms: np.ndarray
    mean_along: np.ndarray
    mean_off: np.ndarray
    norm_error: float
    row_ptr: np.ndarray


class Query(NamedTuple):
    """One query, packed for the inner loops; n tokens in ceil(n / LANES) passes of LANES.

    Attributes
    ----------
    states : float64[d, n]
    squares : float64[n]
    weights : float64[n]
    packed : float32[passes, d, LANES]
        Unit vectors; a pass of 32 lanes packs its 32 columns tightly.
    codes : int8[passes, K / 4, LANES, 4], packed likewise
    pads : float32[passes, LANES]
    lanes, lanes_below : float32[passes, 2 LANES]
        Integers and floats, see `_simd.make_bounds`; for bounds from above and from below.
    scalars : float32[4]
        Unit of the codes, slack of the codes, mean of the states along `direction`, length of its rest.
    """

    states: np.ndarray
    squares: np.ndarray
    weights: np.ndarray
    packed: np.ndarray
    codes: np.ndarray
    pads: np.ndarray
    lanes: np.ndarray
    lanes_below: np.ndarray
    scalars: np.ndarray


class Work(NamedTuple):
    """Scratch of one thread."""

    table: np.ndarray  # int16[passes, M, LANES], cosines with the centres, rounded up
    angle: np.ndarray  # uint8[passes, M, LANES], the same as angles, rounded down
    nearest: np.ndarray  # uint8[M], least angle of any lane, rounded down
    farthest: np.ndarray  # uint16[M], the same rounded up
    upper: np.ndarray  # float32[I], bound on precision
    lower: np.ndarray  # float32[I], the same from below
    row: np.ndarray  # float32[1 + longest report + 16]
    column: np.ndarray  # float32[passes, LANES]
    lowest: np.ndarray  # uint8[passes, LANES]
    wide: np.ndarray  # float32[longest report, d]
    turned: np.ndarray  # float64[d, longest report]
    sums: np.ndarray  # float64[longest query, longest report]
    kept: np.ndarray  # int32[I], items that are left
    kept_bound: np.ndarray  # float64[I], their bounds; near the pole of F1 float32 would round by more than SLACK
    seed: np.ndarray  # int32[seeds], items with the best bounds
    seed_bound: np.ndarray  # float64[seeds]


def angle_tables():
    """Return angle of a cosine (down and up, by (UNIT + cosine) / 4) and cosine of an angle (up and down).

    Returns
    -------
    down, up : uint8[2 UNIT / 4 + 1], uint16[...]
    above : float64[STEPS + 1]
    below : float64[3 STEPS]
    """
    bins = np.arange(2 * UNIT // 4 + 1) * 4.0 - UNIT
    # A table's entry is 2 to 4 units above the cosine.
    high, low = np.minimum((bins + 3) / UNIT, 1.0), np.maximum((bins - 5) / UNIT, -1.0)
    down = np.minimum(np.floor(np.arccos(high) / STEP), STEPS).astype(np.uint8)
    up = np.ceil(np.arccos(low) / STEP).astype(np.uint16)
    above = np.cos(np.arange(STEPS + 1) * STEP)
    # A radius of STEPS stands for any greater one too.
    below = np.cos(np.minimum(np.arange(3 * STEPS) * STEP, np.pi))
    return down, up, above, below


_DOWN, _UP, _ABOVE, _BELOW = angle_tables()


@jit
def _fill_tables(cosines, work, down, up):
    """Turn cosines of centres and query tokens, float32[M, n], into the tables of one query."""
    n_cells, n = cosines.shape
    passes = (n + LANES - 1) // LANES
    for m in range(n_cells):
        best = np.int32(-UNIT)
        for p in range(passes):
            first = p * LANES
            for lane in range(min(LANES, n - first)):
                # Rounded up by 2 units and more: a float32 product of unit vectors errs by less.
                value = np.int32(cosines[m, first + lane] * np.float32(UNIT) + np.float32(3.0 + UNIT)) - UNIT
                value = min(max(value, np.int32(-UNIT)), np.int32(UNIT))
                best = max(best, value)
                work.table[p, m, lane] = value
                work.angle[p, m, lane] = down[(value + UNIT) >> 2]
            for lane in range(min(LANES, n - first), LANES):
                work.table[p, m, lane] = 0
                work.angle[p, m, lane] = STEPS
        work.nearest[m] = down[(best + UNIT) >> 2]
        work.farthest[m] = up[(best + UNIT) >> 2]


@jit
def _bound_precision(items, corpus, work, above, below):
    """Bound the precision of every item from above and below by the cells of its tokens."""
    for i in range(len(items.unit)):
        u = items.unit[i]
        if i > 0 and items.unit[i - 1] == u:
            work.upper[i] = work.upper[i - 1]
            work.lower[i] = work.lower[i - 1]
            continue
        high = 0.0
        low = 0.0
        for t in range(np.uint64(corpus.ptr[u]), np.uint64(corpus.ptr[u + 1])):
            w = np.float64(corpus.weights[t])
            m = np.uint64(corpus.cell[t])
            r = np.int64(corpus.radius[t])
            high += w * above[max(np.int64(work.nearest[m]) - r, 0)]
            low += w * (below[np.int64(work.farthest[m]) + r] if r < STEPS else -1.0)
        total = np.float64(corpus.unit_weight[u])
        work.upper[i] = high / total if total > 0 else 0.0
        work.lower[i] = low / total if total > 0 else 1.0


@scalar
def _lanes(n, p):
    """Return how many lanes pass `p` of `n` query tokens takes."""
    return 32 if n - p * LANES <= 32 else LANES


@inlined
def _bound_recall(u, corpus, query, work, above):
    """Bound the recall of a unit by the cells of its tokens."""
    n = len(query.weights)
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    total = 0.0
    weight = 0.0
    for p in range(work.lowest.shape[0]):
        work.lowest[p, :] = STEPS
        lowest_angles(
            work.angle[p].ctypes.data, corpus.cell.ctypes.data + 2 * first, corpus.radius.ctypes.data + first,
            n_tokens, work.lowest[p].ctypes.data,
        )  # fmt: skip
        for lane in range(min(LANES, n - p * LANES)):
            w = query.weights[p * LANES + lane]
            total += w * above[work.lowest[p, lane]]
            weight += w
    return total / weight


@jit
def _reset_maxima(n_tokens, work):
    work.row[:n_tokens] = -1e30
    work.column[:] = -1e30


@jit
def _means(u, corpus, query, work):
    """Return the weighted means of the maxima in `work`: precision and recall."""
    first = corpus.ptr[u]
    total = 0.0
    weight = 0.0
    for t in range(corpus.ptr[u + 1] - first):
        w = corpus.weights[first + t]
        total += w * work.row[t]
        weight += w
    return total / weight if weight > 0 else 0.0, _recall_of_maxima(query, work)


@inlined
def _run_codes(u, corpus, query, lanes, slack, work):
    """Write the maxima both ways of what :func:`_simd.make_bounds` computes for a unit."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n_steps = corpus.codes.shape[1] // 4
    codes = corpus.codes.ctypes.data + 4 * n_steps * first
    cell = corpus.cell.ctypes.data + 2 * first
    terms = corpus.terms.ctypes.data + 20 * first
    weights = corpus.weights.ctypes.data + 4 * first
    unit = query.scalars[0]
    row = work.row.ctypes.data
    work.column[:] = -1e30
    for p in range(query.codes.shape[0]):
        q = query.codes[p].ctypes.data
        lane = lanes[p].ctypes.data
        table = work.table[p].ctypes.data
        column = work.column[p].ctypes.data
        fresh = 1 if p == 0 else 0
        if _lanes(len(query.weights), p) == 32:
            _bounds2(q, n_steps, lane, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)
        else:
            _bounds4(q, n_steps, lane, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)


@inlined
def _recall_of_maxima(query, work):
    """Return the weighted mean of the query tokens' maxima."""
    total = 0.0
    weight = 0.0
    for i in range(len(query.weights)):
        w = query.weights[i]
        total += w * work.column[i // LANES, i % LANES]
        weight += w
    return total / weight


@inlined
def _prefetch_codes(u, corpus):
    """Ask for what :func:`_run_codes` reads of a unit; units that are left lie too far apart to be foreseen."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    width = corpus.codes.shape[1]
    prefetch(corpus.codes.ctypes.data + width * first, width * n_tokens)
    prefetch(corpus.terms.ctypes.data + 20 * first, 20 * n_tokens)
    prefetch(corpus.cell.ctypes.data + 2 * first, 2 * n_tokens)


@inlined
def _bound_codes(u, corpus, query, work):
    """Return upper bounds on precision and recall of a unit from its tokens' codes."""
    _run_codes(u, corpus, query, query.lanes, query.scalars[1], work)
    weight = np.float64(corpus.unit_weight[u])
    return work.row[0] / weight if weight > 0 else 0.0, _recall_of_maxima(query, work)


@inlined
def _bound_codes_below(u, corpus, query, work):
    """Return lower bounds on precision and recall of a unit: the same terms taken away.

    The loop adds |B'e|, which is small: it is taken away twice afterwards, from each token for precision, the greatest
    one for recall.
    """
    _run_codes(u, corpus, query, query.lanes_below, -query.scalars[1], work)
    first = corpus.ptr[u]
    weight = np.float64(corpus.unit_weight[u])
    most = 0.0
    total = np.float64(work.row[0])
    for t in range(corpus.ptr[u + 1] - first):
        less = 2.0 * corpus.terms[first + t, 3]
        most = max(most, less)
        total -= corpus.weights[first + t] * less
    above = 4.0 / UNIT + SLACK  # of the table's entries, and for rounding
    precision = total / weight - above if weight > 0 else 0.0
    return precision, _recall_of_maxima(query, work) - most - above


@jit
def _widen(u, corpus, work):
    """Copy the states of a unit as float32."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    width = corpus.states.shape[1]
    size = corpus.states.itemsize
    source = corpus.states.ctypes.data + first * width * size
    if size == 2:
        widen(source, work.wide.ctypes.data, n_tokens * width)
    else:
        for t in range(n_tokens):
            for d in range(width):
                work.wide[t, d] = corpus.states[first + t, d]


@jit
def _approximate(u, corpus, query, work):
    """Return precision and recall of a unit from float32 products; its states are widened."""
    n_tokens = corpus.ptr[u + 1] - corpus.ptr[u]
    _reset_maxima(n_tokens, work)
    width = corpus.states.shape[1]
    for p in range(query.packed.shape[0]):
        q = query.packed[p].ctypes.data
        pads = query.pads[p].ctypes.data
        row = work.row.ctypes.data
        column = work.column[p].ctypes.data
        tokens = work.wide.ctypes.data
        if _lanes(len(query.weights), p) == 32:
            _dots2(q, width, pads, tokens, n_tokens, row, column)
        else:
            _dots4(q, width, pads, tokens, n_tokens, row, column)
    return _means(u, corpus, query, work)


@jit
def _exact(u, corpus, query, work):
    """Return precision and recall of a unit in float64, in the order of the reference; its states are widened."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n = len(query.weights)
    if n_tokens == 2 or n == 2:
        return 0.0, 0.0
    width = corpus.states.shape[1]
    for t in range(n_tokens):
        for d in range(width):
            work.turned[d, t] = work.wide[t, d]
    for i in range(n):
        work.sums[i, :n_tokens] = 0.0
    for d in range(width):
        tokens = work.turned[d, :n_tokens]
        for i in range(n):
            x = query.states[d, i]
            sums = work.sums[i, :n_tokens]
            for t in range(n_tokens):
                sums[t] += tokens[t] * x
    recall = np.full(n, -np.inf)
    total = 0.0
    weight = 0.0
    for t in range(n_tokens):
        square = 0.0
        for d in range(width):
            square += work.turned[d, t] * work.turned[d, t]
        most = -np.inf
        for i in range(n):
            c = cosine(work.sums[i, t], square, query.squares[i])
            most = max(most, c)
            recall[i] = max(recall[i], c)
        w = corpus.weight_of_id[corpus.ids[first + t]]
        total += w * most
        weight += w
    precision = total / weight if weight != 0.0 else 0.0
    total = 0.0
    weight = 0.0
    for i in range(n):
        total += query.weights[i] * recall[i]
        weight += query.weights[i]
    return precision, total / weight if weight != 0.0 else 0.0


@jit
def _is_sure(part, low, high):
    """Tell whether precision + recall, between `low` and `high`, keeps its sign: there F1 rises with both."""
    return part != F1 or low >= SLACK or high <= -SLACK


@jit
def _part(part, precision, recall):
    """Return a score from its parts, or a bound on it from bounds on them."""
    if part == PRECISION:
        return precision
    if part == RECALL:
        return recall
    return f1(precision, recall)


@jit
def _finish(i, part, k, items, corpus, query, work, found):
    """Score an item exactly, once, and raise the threshold to the k-th best row's score."""
    n = found.state[0]
    for j in range(n):
        if found.item[j] == i:
            return
    u = items.unit[i]
    _widen(u, corpus, work)
    precision, recall = _exact(u, corpus, query, work)
    found.item[n] = i
    found.precision[n] = precision
    found.recall[n] = recall
    found.state[0] = n + 1
    # The best scores in order, until they stand for k rows.
    score = _part(part, precision, recall) + items.bonus[i] - items.error
    n = found.state[1]
    j = n
    while j > 0 and found.best[j - 1] < score:
        found.best[j] = found.best[j - 1]
        found.best_rows[j] = found.best_rows[j - 1]
        j -= 1
    found.best[j] = score
    found.best_rows[j] = items.row_ptr[i + 1] - items.row_ptr[i]
    rows = found.state[2] + found.best_rows[j]
    n += 1
    while rows - found.best_rows[n - 1] >= k:
        n -= 1
        rows -= found.best_rows[n]
    found.state[1] = n
    found.state[2] = rows
    if rows >= k:
        found.threshold[0] = found.best[n - 1]


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
def _finish_best(n, part, k, items, corpus, query, work, found):
    """Bound the first `n` seeds by their codes and score the most promising ones."""
    for j in range(n):
        i = work.seed[j]
        precision, recall = _bound_codes(items.unit[i], corpus, query, work)
        work.seed_bound[j] = -(_part(part, precision, recall) + items.bonus[i])
    order = np.argsort(work.seed_bound[:n], kind="mergesort")
    for j in order[: FIRST * k]:
        if -work.seed_bound[j] + SLACK < found.threshold[0]:
            break
        _finish(work.seed[j], part, k, items, corpus, query, work, found)


@jit
def _like_length(n, items, corpus):
    """Return the items whose reports have two thirds to three halves of `n` tokens; units fall in length."""
    n_items = len(items.unit)
    first = 0
    while first < n_items and 2 * _length(items.unit[first], corpus) > 3 * n:
        first += 1
    last = first
    while last < n_items and 3 * _length(items.unit[last], corpus) >= 2 * n:
        last += 1
    return first, last


@jit
def _length(u, corpus):
    return corpus.ptr[u + 1] - corpus.ptr[u]


@jit
def answer(part, k, items, corpus, query, work, above, below, found):
    """Score every item that may be among the k best rows of one query; `found` has them.

    Parameters
    ----------
    part : {PRECISION, RECALL, F1}
    items : Items
    above, below : float64[...], see :func:`angle_tables`
    """
    n_items = len(items.unit)
    n = len(query.weights)
    threshold = found.threshold
    found.state[:] = 0
    threshold[0] = -np.inf
    _bound_precision(items, corpus, work, above, below)

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
    _finish_best(n_seeds, part, k, items, corpus, query, work, found)

    # Cells. The mean of a query's states and that of a unit's bound the recall from below.
    along = query.scalars[2]
    off = query.scalars[3]
    n_kept = 0
    n_seeds = 0
    for i in range(n_items):
        u = items.unit[i]
        bonus = np.float64(items.bonus[i])
        bound = np.inf
        precision = np.float64(work.upper[i])
        if n == 2 or _length(u, corpus) == 2:
            bound = bonus  # precision and recall are 0 by definition
        elif part == PRECISION:
            bound = precision + bonus
        else:
            low = work.lower[i] + along * corpus.mean_along[u] - off * corpus.mean_off[u]
            if part == F1 and low >= SLACK and f1(precision, 1.0) + bonus + SLACK < threshold[0]:
                continue
            recall = _bound_recall(u, corpus, query, work, above)
            if _is_sure(part, low, precision + recall):
                bound = _part(part, precision, recall) + bonus
        if bound + SLACK < threshold[0]:
            continue
        work.kept[n_kept] = i
        work.kept_bound[n_kept] = bound + SLACK
        n_kept += 1
        if bound != np.inf:
            n_seeds = _offer(i, bound, n_seeds, work.seed, work.seed_bound)
    found.counts[0] += n_items - n_kept
    _finish_best(n_seeds, part, k, items, corpus, query, work, found)

    # Codes.
    n_left = 0
    for j in range(n_kept):
        if j + AHEAD < n_kept:
            _prefetch_codes(items.unit[work.kept[j + AHEAD]], corpus)
        i = work.kept[j]
        u = items.unit[i]
        bound = np.float64(work.kept_bound[j])
        if bound < threshold[0]:
            continue
        if n != 2 and _length(u, corpus) != 2:
            is_sure = bound != np.inf
            precision, recall = _bound_codes(u, corpus, query, work)
            if not is_sure:
                low_precision, low_recall = _bound_codes_below(u, corpus, query, work)
                is_sure = _is_sure(part, low_precision + low_recall, precision + recall)
            bound = _part(part, precision, recall) + items.bonus[i] + SLACK if is_sure else np.inf
            if bound < threshold[0]:
                continue
        work.kept[n_left] = i
        work.kept_bound[n_left] = -bound
        n_left += 1
    found.counts[1] += n_kept - n_left

    order = np.argsort(work.kept_bound[:n_left], kind="mergesort")
    _, n_scored = finish_in_order(order, part, k, items, corpus, query, work, found)
    found.counts[2] += n_left - n_scored
    found.counts[3] += n_scored


@jit
def finish_in_order(order, part, k, items, corpus, query, work, found):
    """Score items until their bounds fall below the k-th best: float32 products first, then float64.

    Parameters
    ----------
    order : int64[n]
        Places in `work.kept` and `work.kept_bound`, whose bounds are negated: the greatest first.

    Returns
    -------
    n_seen, n_scored : int
        Items whose bounds did not suffice, and those of them that were scored.
    """
    n = len(query.weights)
    error = corpus.norm_error + (query.states.shape[0] + 8) * 2.0**-24 * 1.01
    n_seen = n_scored = 0
    for j in order:
        if -work.kept_bound[j] < found.threshold[0]:
            break
        n_seen += 1
        i = work.kept[j]
        u = items.unit[i]
        if n != 2 and _length(u, corpus) != 2:
            _widen(u, corpus, work)
            precision, recall = _approximate(u, corpus, query, work)
            both = precision + recall
            is_sure = _is_sure(part, both - 2 * error, both + 2 * error)
            bound = _part(part, precision + error, recall + error) + items.bonus[i] + SLACK
            if is_sure and bound < found.threshold[0]:
                continue
        _finish(i, part, k, items, corpus, query, work, found)
        n_scored += 1
    return n_seen, n_scored


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
    """

    unit: np.ndarray
    bonus: np.ndarray
    error: float
    alone: bool
    row_ptr: np.ndarray


class Answers(NamedTuple):
    """Exactly scored items of one query."""

    item: np.ndarray  # int32[I]
    precision: np.ndarray  # float64[I]
    recall: np.ndarray  # float64[I]
    best: np.ndarray  # float64[I], the best scores in order, until they stand for k rows
    best_rows: np.ndarray  # int64[I], rows of each
    threshold: np.ndarray  # float64[1], score of the k-th best row, -inf before there are k
    state: np.ndarray  # int64[3]: items scored; best scores; their rows
    counts: np.ndarray  # int64[4]: items dropped by each of STAGES, and scored, over all queries


def pack_query(states, weights, basis, direction):
    """Lay out one query for the inner loops.

    Parameters
    ----------
    states : float16 or float32[n, d]
    weights : float64[n]
    basis : float32[d, K]
    direction : float32[d]

    Returns
    -------
    Query
    unit : float32[n, d]
        Unit vectors.
    """
    n, width = states.shape
    wide = states.astype(np.float64)
    squares = np.cumsum(wide * wide, axis=1)[:, -1]  # in the order of the reference
    unit = wide / np.sqrt(squares)[:, None]
    inside = unit @ basis.astype(np.float64)
    path = _target.path()
    step = max(float(np.abs(inside).max()) / path.query_range, 1e-12)
    code = np.rint(inside / step)
    slack = np.linalg.norm(inside - step * code, axis=1).max()
    # The basis is orthonormal but for float32 rounding.
    rest = np.linalg.norm(unit - inside @ basis.T.astype(np.float64), axis=1)
    code = np.pad(code, ((0, 0), (0, -code.shape[1] % 4)))
    steps = code.shape[1] // 4
    passes = -(-n // LANES)
    packed = np.zeros((passes, width * LANES), np.float32)
    codes = np.zeros((passes, steps * LANES * 4), np.int8)
    pads = np.full((passes, LANES), -1e30, np.float32)
    lanes = np.zeros((2, passes, 2 * LANES), np.int32)
    for p in range(passes):
        some = slice(p * LANES, min((p + 1) * LANES, n))
        m = some.stop - some.start
        used = _lanes(n, p)
        packed[p, : width * used].reshape(width, used)[:, :m] = unit[some].T
        codes[p, : steps * used * 4].reshape(steps, used, 4)[:, :m] = code[some].reshape(m, steps, 4).swapaxes(0, 1)
        pads[p, :m] = 0
        lanes[:, p, :used] = -(1 << 29)  # no token: far below any sum
        lanes[:, p, :m] = 0 if path.is_signed else -128 * code[some].sum(axis=1)
        lanes[0, p, used : used + m] = _up(rest[some]).astype(np.float32).view(np.int32)
        lanes[1, p, used : used + m] = (-_up(rest[some])).astype(np.float32).view(np.int32)
        lanes[:, p, used + m : 2 * used] = np.float32(-1e30).view(np.int32)  # where codes are tiny, sums weigh nothing
    total = weights.sum()
    mean = weights @ unit / total if total else np.zeros(width)
    along = float(mean @ direction)
    off = np.linalg.norm(mean - along * direction)
    scalars = np.array([step, _up(slack), along, _up(off)], np.float32)
    above, below = lanes.view(np.float32)
    turned = np.ascontiguousarray(wide.T)
    query = Query(turned, squares, weights, packed, codes, pads, above, below, scalars)
    return query, unit.astype(np.float32)


def pack(index, encoded, q):
    """Lay out a distinct query; see :func:`pack_query`."""
    return pack_query(encoded.states_of(q), encoded.weights_of(q), index.basis, index.direction)


def _up(x):
    """Round a length up by more than float32 rounding."""
    return x * (1 + 1e-5) + 1e-5


def new_work(index):
    """Return room for the scratch of one thread, made at its first query."""
    return {}


def _room(work, corpus, n_items, n_cells, longest_query, k):
    """Allocate the scratch of one thread; pages that no query needs are never touched."""
    if work:
        return work["scratch"], work["answers"]
    longest = int(np.diff(corpus.ptr).max(initial=1))
    width = corpus.states.shape[1]
    passes = -(-longest_query // LANES)
    n_seeds = min(SEEDS + 8 * k, n_items)
    scratch = Work(
        table=np.empty((passes, n_cells, LANES), np.int16),
        angle=np.empty((passes, n_cells, LANES), np.uint8),
        nearest=np.empty(n_cells, np.uint8),
        farthest=np.empty(n_cells, np.uint16),
        upper=np.empty(n_items, np.float32),
        lower=np.empty(n_items, np.float32),
        row=np.empty(1 + longest + 16, np.float32),
        column=np.empty((passes, LANES), np.float32),
        lowest=np.empty((passes, LANES), np.uint8),
        wide=np.empty((longest, width), np.float32),
        turned=np.empty((width, longest)),
        sums=np.empty((longest_query, longest)),
        kept=np.empty(n_items, np.int32),
        kept_bound=np.empty(n_items),
        seed=np.empty(n_seeds, np.int32),
        seed_bound=np.empty(n_seeds),
    )
    answers = Answers(
        item=np.empty(n_items, np.int32),
        precision=np.empty(n_items),
        recall=np.empty(n_items),
        best=np.empty(n_items + 1),
        best_rows=np.empty(n_items + 1, np.int64),
        threshold=np.empty(1),
        state=np.zeros(3, np.int64),
        counts=np.zeros(4, np.int64),
    )
    work.update(scratch=scratch, answers=answers)
    return scratch, answers


def search(index, encoded, first, last, k, found, work, part=F1):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
    n = len(index.row_ptr) - 1
    items = Items(np.arange(n, dtype=np.int32), np.zeros(n, np.float32), 0.0, True, index.row_ptr)
    for q in range(first, last):
        item, precision, recall = find(index, encoded, q, k, items, work, part)
        scores = final_scores(precision, recall, encoded.baseline)[part]
        found.rows[q], found.scores[q], found.ties[q] = select(item, scores, index.row_ptr, index.row_id, k)


def find(index, encoded, q, k, items, work, part):
    """Return the items that may be among the k best rows of a distinct query, and their exact precision and recall.

    Returns
    -------
    item : int64[n]
    precision, recall : float64[n]
    """
    corpus = encoded.corpus
    query, unit = pack(index, encoded, q)
    scratch, answers = _room(work, corpus, len(items.unit), len(index.centers), encoded.longest, k)
    passes = query.pads.shape[0]
    scratch = scratch._replace(
        table=scratch.table[:passes], angle=scratch.angle[:passes], column=scratch.column[:passes],
        lowest=scratch.lowest[:passes],
    )  # fmt: skip
    _fill_tables(index.centers @ unit.T, scratch, _DOWN, _UP)
    answer(part, k, items, corpus, query, scratch, _ABOVE, _BELOW, answers)
    return taken(encoded, q, items, answers)


def taken(encoded, q, items, answers):
    """Return what :func:`find` returns from the scratch; :func:`components` will ask for the parts of pairs again."""
    n = answers.state[0]
    item, precision, recall = (x[:n].copy() for x in (answers.item, answers.precision, answers.recall))
    for u, *parts in zip(items.unit[item].tolist(), precision.tolist(), recall.tolist(), strict=True):
        encoded.scored[q, u] = parts
    return item.astype(np.int64), precision, recall


def final_scores(precision, recall, baseline):
    """Return precision, recall and f1 on the scale of the results, float64[n] each."""
    values = precision, recall, np.array([f1(p, r) for p, r in zip(precision, recall, strict=True)])
    if baseline is None:
        return values
    return tuple(np.array([rescale(v, b) for v in x]) for x, b in zip(values, baseline, strict=True))


def stages(works):
    """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
    counts = sum((work["answers"].counts for work in works if work), np.zeros(4, np.int64))
    total = int(counts.sum())
    if not total:  # a composite without BERTScore: nothing was bounded
        return {"scored": 1.0}
    return {name: float(n / total) for name, n in zip((*STAGES, "scored"), counts, strict=True)}


@jit
def _exact_pair(u, corpus, query, work):
    _widen(u, corpus, work)
    return _exact(u, corpus, query, work)


def components(index, encoded, query, unit, scores, part=F1):
    """Return precision, recall and f1 of pairs of distinct query and unit."""
    parts = np.zeros((len(unit), 2))
    scratch, _ = _room({}, encoded.corpus, 1, 1, encoded.longest, 1)
    packed: dict[int, Query] = {}
    for i, (q, u) in enumerate(zip(query.tolist(), unit.tolist(), strict=True)):
        if (q, u) in encoded.scored:
            parts[i] = encoded.scored[q, u]
            continue
        if q not in packed:
            packed = {q: pack(index, encoded, q)[0]}
        parts[i] = _exact_pair(u, encoded.corpus, packed[q], scratch)
    return dict(
        zip(("precision", "recall", "f1"), final_scores(parts[:, 0], parts[:, 1], encoded.baseline), strict=True)
    )


@jit
def _direct(n_tokens, first, inverse, work):
    """Divide the widened states of a unit by their lengths."""
    for t in range(n_tokens):
        x = inverse[first + t]
        for d in range(work.wide.shape[1]):
            work.wide[t, d] *= x


@jit
def _score_all(part, corpus, query, inverse, error, base, work, out):
    n = len(query.weights)
    for u in range(len(out)):
        n_tokens = _length(u, corpus)
        precision = recall = 0.0
        if n != 2 and n_tokens != 2:
            _widen(u, corpus, work)
            _direct(n_tokens, corpus.ptr[u], inverse, work)
            precision, recall = _approximate(u, corpus, query, work)
            if part == F1 and not (min(precision, recall) >= error or max(precision, recall) <= -error):
                precision, recall = _exact_pair(u, corpus, query, work)  # near the pole an error would grow
        out[u] = rescale(_part(part, precision, recall), base)


def score_all(index, encoded, chosen, part=F1):
    """Yield BERTScore of every unit against each of some distinct queries.

    float64[D], right within `all_error` and overwritten by the next. Float32 products; in float64 only where precision
    and recall may differ in sign.
    """
    out = np.empty(len(index.row_ptr) - 1)
    scratch, _ = _room({}, encoded.corpus, 1, 1, encoded.longest, 1)
    base = 0.0 if encoded.baseline is None else encoded.baseline[part]
    for q in chosen:
        query, _ = pack(index, encoded, q)
        _score_all(part, encoded.corpus, query, index.inverse_lengths, _product_error(index), base, scratch, out)
        yield out


def _product_error(index):
    """Bound the error of precision and recall from float32 products of vectors that float32 made unit vectors.

    A product of d dimensions errs by at most gamma_d (Higham, section 3.1); eight more roundings are for the vectors,
    their lengths and the weights.
    """
    n_u = (index.states.shape[1] + 8) * 2.0**-24
    return n_u / (1.0 - n_u)


def all_error(index, encoded, part=F1):
    """Bound the error of what :func:`score_all` yields.

    Where precision and recall have one sign, the derivatives of F1 add up to at most 2.
    """
    error = _product_error(index) * (2.0 if part == F1 else 1.0)
    return error if encoded.baseline is None else error / (1.0 - encoded.baseline[part])


def score_pairs(index, encoded, query, unit, part=F1):
    """Return the score of pairs of a distinct query and a unit, float64[n], and their components."""
    values = components(index, encoded, query, unit, None, part)
    return list(values.values())[part], values
