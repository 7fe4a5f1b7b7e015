"""Bounds on precision and recall by cells and codes of a report's tokens; the README of this folder proves them.

Every function here returns a bound that holds for the score as float64 computes it: the margins for rounding are in it.
"""

import math
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT32, FLOAT64, gamma, product_error
from metric_oracle.kernels._jit import inlined, jit
from metric_oracle.kernels._simd import LANES, prefetch
from metric_oracle.kernels._simd_codes import lowest_angles, make_bounds
from metric_oracle.kernels.bertscore.exact import length_of, mean_of_maxima
from metric_oracle.kernels.bertscore.query import lanes_of

STEPS = 255  # steps of an angle byte
STEP = np.pi / 360  # half a degree
UNIT = 1 << 14  # one in a table of cosines
# What the margins are proven for: dimensions of a state, tokens of a report.
WIDEST, LONGEST = 1 << 13, 1 << 14
# The terms of a bound by codes have absolute values of at most 1.002, 1.1, 1.1 and 0.1: products of unit vectors, with
# codes of 6 bits and more a side.
REACH = 4.0

_bounds2, _bounds4 = make_bounds(2), make_bounds(4)


class Margins(NamedTuple):
    """What rounding may take from each bound, for one width.

    Attributes
    ----------
    rise : int
        Steps of 1 / UNIT by which entries of the table are raised: more than their error.
    error : float
        Error of a float32 cosine of a centre and a query token, in those steps.
    exact : float
        Of a score in float64, and of sums in float64.
    cells : float
        Of a mean that is stored as float32, of float32 weights.
    code, token : float
        Of means of bounds by codes, and more of it for each token of the report.
    below : float
        How far a table's entry lies above its cosine at most.
    means : float
        Of products of mean states.
    product : float
        Of means of float32 products of unit vectors.
    """

    rise: int
    error: float
    exact: float
    cells: float
    code: float
    token: float
    below: float
    means: float
    product: float


def margins_of(width, norm_error):
    """Return the margins for states of a width, whose lengths are from 1 by `norm_error` at most."""
    # Centre and query token are rounded to float32, each component once; the last is for the entry's own arithmetic.
    error = (product_error(width, 1.001) + 4 * FLOAT32) * UNIT + 2.0**-8
    rise = math.ceil(error)
    exact = gamma(2 * width + 4 * LONGEST, FLOAT64)
    return Margins(
        rise=rise,
        error=error,
        exact=exact,
        # Two roundings of the weights move a mean within [-1, 1] by 4 of them, its storage by one more.
        cells=gamma(8) + exact,
        code=REACH * gamma(24) + exact,
        token=REACH * gamma(LONGEST + 24) / (LONGEST + 24),
        below=(rise + 1 + error) / UNIT,
        means=gamma(16) + exact,
        # One rounding of the weights moves a mean within [-1, 1] by 2 of them, that of the query's states by one more.
        product=norm_error + product_error(width, 1.0 + norm_error) * (1.0 + norm_error) + gamma(4) + exact,
    )


class Tables(NamedTuple):
    """Angle of a table's entry (down and up, by (UNIT + entry) / 4) and cosine of an angle (above and below).

    Attributes
    ----------
    down, up : uint8[2 UNIT / 4 + 1], uint16[...]
    above : float64[STEPS + 1]
    below : float64[3 STEPS]
    """

    down: np.ndarray
    up: np.ndarray
    above: np.ndarray
    below: np.ndarray


def angle_tables(margins):
    """Return the tables of angles."""
    bins = np.arange(2 * UNIT // 4 + 1) * 4.0 - UNIT
    high = np.minimum((bins + 3 - margins.rise + margins.error) / UNIT, 1.0)
    low = np.clip((bins - margins.rise - 1 - margins.error) / UNIT, -1.0, 1.0)
    # A ten-thousandth of a step is far above what float64 does to an angle.
    down = np.clip(np.floor(np.arccos(np.maximum(high, -1.0)) / STEP - 1e-4), 0, STEPS).astype(np.uint8)
    up = np.ceil(np.arccos(low) / STEP + 1e-4).astype(np.uint16)
    above = np.cos(np.arange(STEPS + 1) * STEP)
    # A radius of STEPS stands for any greater one too.
    below = np.cos(np.minimum(np.arange(3 * STEPS) * STEP, np.pi))
    return Tables(down, up, above, below)


@jit
def fill_tables(cosines, rise, work, tables):
    """Turn cosines of centres and query tokens, float32[M, n], into the tables of one query."""
    n_cells, n = cosines.shape
    passes = (n + LANES - 1) // LANES
    for m in range(n_cells):
        best = np.int32(-UNIT)
        for p in range(passes):
            first = p * LANES
            for lane in range(min(LANES, n - first)):
                value = np.int32(cosines[m, first + lane] * np.float32(UNIT) + np.float32(1.0 + rise + UNIT)) - UNIT
                value = max(value, np.int32(-UNIT))
                inside = min(value, np.int32(UNIT))
                best = max(best, inside)
                work.table[p, m, lane] = value
                work.angle[p, m, lane] = tables.down[(inside + UNIT) >> 2]
            for lane in range(min(LANES, n - first), LANES):
                work.table[p, m, lane] = 0
                work.angle[p, m, lane] = STEPS
        work.nearest[m] = tables.down[(best + UNIT) >> 2]
        work.farthest[m] = tables.up[(best + UNIT) >> 2]


@jit
def bound_precisions(units, corpus, work, tables, margin):
    """Bound the precision of units, which ascend, from above and below by the cells of their tokens.

    Writes
    ------
    work.upper, work.lower : float32[I]
    """
    nearest = work.nearest
    farthest = work.farthest
    for i in range(len(units)):
        u = units[i]
        if i > 0 and units[i - 1] == u:
            work.upper[i] = work.upper[i - 1]
            work.lower[i] = work.lower[i - 1]
            continue
        high = 0.0
        low = 0.0
        for t in range(np.uint64(corpus.ptr[u]), np.uint64(corpus.ptr[u + 1])):
            w = np.float64(corpus.weights[t])
            m = np.uint64(corpus.cell[t])
            r = np.int64(corpus.radius[t])
            high += w * tables.above[max(np.int64(nearest[m]) - r, 0)]
            low += w * (tables.below[np.int64(farthest[m]) + r] if r < STEPS else -1.0)
        total = np.float64(corpus.unit_weight[u])
        # Without any weight the precision is 0 by definition, and F1 with it, whatever the recall's sign.
        work.upper[i] = high / total + margin if total > 0 else 0.0
        work.lower[i] = low / total - margin if total > 0 else 2.0


@inlined
def bound_recall(u, corpus, coded, work, above, margin):
    """Bound the recall of a unit from above by the cells of its tokens."""
    n = len(coded.weights)
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    total = 0.0
    weight = 0.0
    for p in range((n + LANES - 1) // LANES):
        work.lowest[p, :] = STEPS
        lowest_angles(
            work.angle[p].ctypes.data, corpus.cell.ctypes.data + 2 * first, corpus.radius.ctypes.data + first,
            n_tokens, work.lowest[p].ctypes.data,
        )  # fmt: skip
        for lane in range(min(LANES, n - p * LANES)):
            w = coded.weights[p * LANES + lane]
            total += w * above[work.lowest[p, lane]]
            weight += w
    return total / weight + margin


@inlined
def bound_means(u, corpus, coded, margin):
    """Bound the recall of a unit from below: a maximum is at least a mean, a mean product the product of means."""
    along = np.float64(coded.scalars[2]) * corpus.mean_along[u]
    return along - np.float64(coded.scalars[3]) * corpus.mean_off[u] - margin


@inlined
def _run_codes(u, corpus, coded, lanes, slack, work):
    """Write the maxima both ways of what :func:`_simd.make_bounds` computes for a unit."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n_steps = corpus.codes.shape[1] // 4
    codes = corpus.codes.ctypes.data + 4 * n_steps * first
    cell = corpus.cell.ctypes.data + 2 * first
    terms = corpus.terms.ctypes.data + 20 * first
    weights = corpus.weights.ctypes.data + 4 * first
    unit = coded.scalars[0]
    row = work.row.ctypes.data
    work.column[:] = -1e30
    n = len(coded.weights)
    for p in range((n + LANES - 1) // LANES):
        q = coded.codes[p].ctypes.data
        lane = lanes[p].ctypes.data
        table = work.table[p].ctypes.data
        column = work.column[p].ctypes.data
        fresh = 1 if p == 0 else 0
        if lanes_of(n, p) == 32:
            _bounds2(q, n_steps, lane, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)
        else:
            _bounds4(q, n_steps, lane, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)


@inlined
def prefetch_codes(u, corpus):
    """Ask for what :func:`bound_codes` reads of a unit; units that are left lie too far apart to be foreseen."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    width = corpus.codes.shape[1]
    prefetch(corpus.codes.ctypes.data + width * first, width * n_tokens)
    prefetch(corpus.terms.ctypes.data + 20 * first, 20 * n_tokens)
    prefetch(corpus.cell.ctypes.data + 2 * first, 2 * n_tokens)


@inlined
def bound_by_codes(u, corpus, coded, work, margins):
    """Return upper bounds on precision and recall of a unit from its tokens' codes."""
    _run_codes(u, corpus, coded, coded.lanes, coded.scalars[1], work)
    weight = np.float64(corpus.unit_weight[u])
    precision = work.row[0] / weight + margins.code + margins.token * length_of(u, corpus) if weight > 0 else 0.0
    return precision, mean_of_maxima(coded.weights, work.column) + margins.code


@jit
def bound_codes(u, corpus, coded, work, margins):
    """Return what :func:`bound_by_codes` returns, for where a call costs little."""
    return bound_by_codes(u, corpus, coded, work, margins)


@jit
def bound_codes_below(u, corpus, coded, work, margins):
    """Return lower bounds on precision and recall of a unit: the same terms taken away.

    The loop adds |B'e|, which is small: it is taken away twice afterwards, from each token for precision, the greatest
    one for recall.
    """
    _run_codes(u, corpus, coded, coded.lanes_below, -coded.scalars[1], work)
    first = corpus.ptr[u]
    n_tokens = length_of(u, corpus)
    weight = np.float64(corpus.unit_weight[u])
    most = 0.0
    total = np.float64(work.row[0])
    for t in range(n_tokens):
        less = 2.0 * corpus.terms[first + t, 3]
        most = max(most, less)
        total -= corpus.weights[first + t] * less
    less = margins.below * 1.001 + margins.code
    precision = total / weight - less - margins.token * n_tokens if weight > 0 else 2.0
    return precision, mean_of_maxima(coded.weights, work.column) - most - less
