"""BERTScore of all reports: products of bytes tell which tokens may match best, products of float32 how well.

Let q and c be unit vectors of a query's and a report's token, turned by one orthogonal map that spreads what lies in
few dimensions, and q', c' what their codes stand for, bytes times a step. Then (Cauchy-Schwarz)
|q . c - q' . c'| <= |q - q'| |c'| + |c - c'| <= margin of c.
A pair of tokens whose product of codes lies two margins below the greatest one of its row, and whose upper bound lies
below the greatest lower bound of its column, is nobody's best match. The others, one in fifteen, are multiplied.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _target
from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma
from metric_oracle.kernels._jit import inlined, jit
from metric_oracle.kernels._simd import LANES, dot, dot_error, widen
from metric_oracle.kernels._simd_codes import code_tokens, make_candidates, make_near
from metric_oracle.kernels.bertscore.bounds import LONGEST
from metric_oracle.kernels.bertscore.cascade import part_of
from metric_oracle.kernels.bertscore.exact import length_of
from metric_oracle.kernels.bertscore.query import lanes_of, pack_codes
from metric_oracle.kernels.bertscore.score import F1, rescale

QUERIES = 32  # that a report's codes are made for at once
_LANE = 16
_SIZE = 8 * _LANE  # widths are filled up to multiples of it, so that eight groups of lanes can be turned
# Of float32: turning (at most 13 additions a number), steps and their product, what is left of a vector and its length.
SLACK = gamma(64)
_near2, _near4 = make_near(2), make_near(4)
_candidates2, _candidates4 = make_candidates(2), make_candidates(4)


class Queries(NamedTuple):
    """Some queries with a line for each: n tokens of width w, filled up, in passes of LANES."""

    n: np.ndarray  # int64
    codes: np.ndarray  # int8[passes, w / 4 * LANES * 4]
    lanes: np.ndarray  # int32[passes, 2 LANES], see `_simd.make_near`
    margin: np.ndarray  # float64, greatest length of what the codes leave out
    states: np.ndarray  # float32[longest, w]
    inverse: np.ndarray  # float64[longest], 1 / length
    weights: np.ndarray  # float64[longest]


class Room(NamedTuple):
    """Scratch of one thread."""

    wide: np.ndarray  # float32[longest report, w]
    turned: np.ndarray  # float32[longest report, w]
    codes: np.ndarray  # uint8[longest report, w]
    measured: np.ndarray  # float64[longest report, 3]
    weights: np.ndarray  # float64[longest report]
    terms: np.ndarray  # float32[longest report, 2]
    near: np.ndarray  # float32[passes, longest report * LANES]
    row: np.ndarray  # float32[longest report]
    column: np.ndarray  # float32[passes, LANES]
    lanes: np.ndarray  # int64[LANES], of candidates
    later: np.ndarray  # int32[longest report * longest query, 2], pairs of tokens that may still matter
    product: np.ndarray  # float32[longest report * longest query], of their codes
    cosine: np.ndarray  # float64[longest report * longest query], of themselves
    best_row: np.ndarray  # float64[longest report], greatest cosine of each of its tokens
    best: np.ndarray  # float64[longest query], the same
    closest: np.ndarray  # float64[1], least distance of the codes' bounds from a cosine that became known
    missed: np.ndarray  # int64[1], pairs of a sample that were dropped and are best matches


def error_of(width, part):
    """Bound the error of a score before it is rescaled, for states of a width.

    A mean of maxima errs by no more than a cosine. Where precision and recall have one sign, the derivatives of F1 add
    up to at most 2.
    """
    cosine = dot_error(width, 1.0) * 1.001 + gamma(2 * width + 4 * LONGEST, FLOAT64)
    return cosine * (2.0 if part == F1 else 1.0)


def pack(batch, places):
    """Lay out distinct queries side by side."""
    each = [batch.states_of(q).astype(np.float64) for q in places]
    width = -(-each[0].shape[1] // _SIZE) * _SIZE
    n = np.array([len(x) for x in each])
    passes = -(-int(n.max()) // LANES)
    queries = Queries(
        n,
        np.zeros((len(n), passes, width * LANES), np.int8),
        np.zeros((len(n), passes, 2 * LANES), np.int32),
        np.zeros(len(n)),
        np.zeros((len(n), int(n.max()), width), np.float32),
        np.zeros((len(n), int(n.max()))),
        np.zeros((len(n), int(n.max()))),
    )
    most = _target.path().query_range
    for g, (q, states) in enumerate(zip(places, each, strict=True)):
        lengths = np.linalg.norm(states, axis=1)
        unit = _turn(np.pad(states / lengths[:, None], ((0, 0), (0, width - states.shape[1]))))
        step = (np.abs(unit).max(axis=1) / most).astype(np.float32)
        steps = step.astype(np.float64)[:, None]
        code = np.clip(np.rint(unit / steps), -most, most)
        queries.margin[g] = np.linalg.norm(unit - steps * code, axis=1).max()
        codes, lanes = pack_codes(code)
        for p in range(len(codes)):
            used = lanes_of(n[g], p)
            of_pass = step[p * LANES : (p + 1) * LANES]
            lanes[p, used : 2 * used] = np.pad(of_pass, (0, used - len(of_pass)), constant_values=1).view(np.int32)
        queries.codes[g, : len(codes)] = codes
        queries.lanes[g, : len(codes)] = lanes
        queries.states[g, : n[g], : states.shape[1]] = states
        queries.inverse[g, : n[g]] = 1.0 / lengths
        queries.weights[g, : n[g]] = batch.weights_of(q)
    return queries


def _room(corpus, queries):
    """Allocate the scratch of one thread."""
    longest = int(np.diff(corpus.ptr[:2]).max(initial=1))  # longest first
    width = queries.states.shape[2]
    passes = queries.codes.shape[1]
    return Room(
        np.zeros((longest, width), np.float32),
        np.empty((longest, width), np.float32),
        np.empty((longest, width), np.uint8),
        np.empty((longest, 3)),
        np.empty(longest),
        np.empty((longest, 2), np.float32),
        np.empty((passes, longest * LANES), np.float32),
        np.empty(longest, np.float32),
        np.empty((passes, LANES), np.float32),
        np.empty(LANES, np.int64),
        np.empty((longest * queries.states.shape[1], 2), np.int32),
        np.empty(longest * queries.states.shape[1], np.float32),
        np.empty(longest * queries.states.shape[1]),
        np.empty(longest),
        np.empty(queries.states.shape[1]),
        np.full(1, np.inf),
        np.zeros(1, np.int64),
    )


def _n_turned(width):
    """Return how many groups of lanes are turned together: the greatest power of two that divides their number."""
    groups = width // _LANE
    return groups & -groups


def _turn(vectors):
    """Turn vectors float64[n, w] as `_simd_codes.code_tokens` does, but keep their lengths."""
    size = _LANE * _n_turned(vectors.shape[1])
    apart = 1
    turned = vectors
    while apart < size:
        low, high = np.moveaxis(turned.reshape(-1, 2, apart), 1, 0)
        turned = np.stack([low + high, low - high], axis=1)
        apart *= 2
    return turned.reshape(vectors.shape) / np.sqrt(size)


@jit
def _prepare(u, corpus, groups, room):
    """Widen the states of a unit and make their codes."""
    first = corpus.ptr[u]
    n_tokens = length_of(u, corpus)
    width = corpus.states.shape[1]
    filled = room.wide.shape[1]
    size = corpus.states.itemsize
    source = corpus.states.ctypes.data + first * width * size
    if size == 2:
        for t in range(n_tokens):
            widen(source + 2 * t * width, room.wide.ctypes.data + 4 * t * filled, width)
    else:
        for t in range(n_tokens):
            for d in range(width):
                room.wide[t, d] = corpus.states[first + t, d]
    room.turned[:n_tokens] = room.wide[:n_tokens]
    code_tokens(
        room.turned.ctypes.data, filled // _LANE, groups, n_tokens, room.codes.ctypes.data, room.measured.ctypes.data
    )
    for t in range(n_tokens):
        inverse = 1.0 / np.sqrt(room.measured[t, 0])
        turned = inverse / np.sqrt(np.float64(_LANE * groups))
        room.measured[t, 0] = inverse
        room.measured[t, 1] *= turned
        room.measured[t, 2] = np.sqrt(room.measured[t, 2]) * turned
        room.weights[t] = corpus.weight_of_id[corpus.ids[first + t]]


@jit
def _multiply(n_pairs, g, queries, room):
    """Write the cosines of the first pairs of tokens in `room.later`, which their codes must not deny.

    One after another without a branch between them: the processor works on several at once.
    """
    filled = room.wide.shape[1]
    tokens = room.wide.ctypes.data
    states = queries.states.ctypes.data + 4 * filled * g * queries.states.shape[1]
    closest = room.closest[0]
    for c in range(n_pairs):
        t = room.later[c, 0]
        i = room.later[c, 1]
        cosine = dot(tokens + 4 * filled * t, states + 4 * filled * i, filled)
        cosine *= queries.inverse[g, i] * room.measured[t, 0]
        room.cosine[c] = cosine
        closest = min(closest, room.terms[t, 1] - abs(cosine - room.product[c]))
    room.closest[0] = closest


@inlined
def _mean(weights, values):
    total = 0.0
    weight = 0.0
    for i in range(len(weights)):
        total += weights[i] * values[i]
        weight += weights[i]
    return total / weight if weight != 0.0 else 0.0


@jit
def _score(g, n_tokens, queries, room):
    """Return precision and recall of the prepared unit for a query."""
    n = queries.n[g]
    filled = room.wide.shape[1]
    passes = (n + LANES - 1) // LANES
    away = queries.margin[g]
    for t in range(n_tokens):
        rest = room.measured[t, 2]
        room.terms[t, 0] = room.measured[t, 1]
        room.terms[t, 1] = away * (1.0 + rest) + rest + SLACK
        room.row[t] = -1e30
    for p in range(passes):
        for lane in range(LANES):
            room.column[p, lane] = -1e30 if p * LANES + lane < n else 1e30  # no candidate without a token
        code, lanes = queries.codes[g, p].ctypes.data, queries.lanes[g, p].ctypes.data
        near, column = room.near[p].ctypes.data, room.column[p].ctypes.data
        codes, terms, row = room.codes.ctypes.data, room.terms.ctypes.data, room.row.ctypes.data
        if lanes_of(n, p) == 32:
            _near2(code, filled // 4, lanes, codes, terms, n_tokens, near, row, column)
        else:
            _near4(code, filled // 4, lanes, codes, terms, n_tokens, near, row, column)
    # The best product of each row first, which says much of the others; they follow it in `later`.
    n_later = n_tokens
    for t in range(n_tokens):
        margin = room.terms[t, 1]
        low = room.row[t] - np.float32(2.0) * margin
        is_first = True
        for p in range(passes):
            near, column, out = room.near[p].ctypes.data, room.column[p].ctypes.data, room.lanes.ctypes.data
            used = lanes_of(n, p)
            if used == 32:
                found = _candidates2(near + 4 * used * t, low, margin, column, out)
            else:
                found = _candidates4(near + 4 * used * t, low, margin, column, out)
            for c in range(found):
                lane = room.lanes[c]
                product = room.near[p, used * t + lane]
                at = n_later
                if product == room.row[t] and is_first:
                    is_first = False
                    at = t
                else:
                    n_later += 1
                room.later[at, 0] = t
                room.later[at, 1] = p * LANES + lane
                room.product[at] = product
    _multiply(n_tokens, g, queries, room)
    room.best[:n] = -np.inf
    for t in range(n_tokens):
        i = room.later[t, 1]
        room.best_row[t] = room.cosine[t]
        room.best[i] = max(room.best[i], room.cosine[t])
    n_left = 0
    for c in range(n_tokens, n_later):
        t = room.later[c, 0]
        i = room.later[c, 1]
        product = room.product[c]
        upper = product + room.terms[t, 1]
        if upper >= room.best_row[t] or upper >= room.best[i]:
            room.later[n_left, 0] = t
            room.later[n_left, 1] = i
            room.product[n_left] = product
            n_left += 1
    _multiply(n_left, g, queries, room)
    for c in range(n_left):
        t = room.later[c, 0]
        i = room.later[c, 1]
        room.best_row[t] = max(room.best_row[t], room.cosine[c])
        room.best[i] = max(room.best[i], room.cosine[c])
    return _mean(room.weights[:n_tokens], room.best_row), _mean(queries.weights[g, :n], room.best)


def score(part, corpus, queries, error, base, out):
    """Score all units with some queries; NaN where the sign of precision + recall is not sure.

    Parameters
    ----------
    error : float
        Of precision and recall: near the pole of F1 it would grow.
    base : float
        What scores are relative to.

    Writes
    ------
    out : float64[G, D]

    Raises
    ------
    ExactnessError
        If a cosine lies outside its bounds, or one of a sample is greater than the best match that was found.
    """
    room = _room(corpus, queries)
    _score_all(part, corpus, queries, _n_turned(queries.states.shape[2]), error, base, room, out)
    check_bounds({"codes": float(room.closest[0])}, int(room.missed[0]), "expectation")


@jit
def _check(u, g, n_tokens, queries, room):
    """Multiply a pair of tokens of a scored unit and query whatever their codes say: no best match is less."""
    n = queries.n[g]
    t = u % n_tokens
    i = (7919 * u + g) % n
    used = lanes_of(n, i // LANES)
    room.later[0, 0] = t
    room.later[0, 1] = i
    room.product[0] = room.near[i // LANES, used * t + i % LANES]
    _multiply(1, g, queries, room)
    if room.cosine[0] > room.best_row[t] or room.cosine[0] > room.best[i]:
        room.missed[0] += 1


@jit
def _score_all(part, corpus, queries, groups, error, base, room, out):
    for u in range(out.shape[1]):
        n_tokens = length_of(u, corpus)
        _prepare(u, corpus, groups, room)
        for g in range(out.shape[0]):
            precision = recall = 0.0
            if queries.n[g] != 2 and n_tokens != 2:
                precision, recall = _score(g, n_tokens, queries, room)
                if g == u % out.shape[0]:
                    _check(u, g, n_tokens, queries, room)
                if part == F1 and not (min(precision, recall) >= error or max(precision, recall) <= -error):
                    out[g, u] = np.nan
                    continue
            out[g, u] = rescale(part_of(part, precision, recall), base)
