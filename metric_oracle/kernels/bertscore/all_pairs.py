"""BERTScore of all reports with some queries, fast and without dropping any report.

Products of bytes select the pairs of tokens that may match best, and float32 products score them.

Let q and c be unit vectors of a query's and a report's token, rotated by one orthogonal map that spreads their
components evenly, and q', c' the vectors that their codes represent (bytes times a step). Then (Cauchy-Schwarz) |q . c
- q' . c'| <= |q - q'| |c'| + |c - c'| <= margin of c. A pair of tokens is not a best match if its product of codes is
two margins below the greatest one of its row and its upper bound is below the greatest lower bound of its column. The
other pairs, one in fifteen, are multiplied.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _target
from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma
from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels._simd import LANES, dot, dot_error, widen
from metric_oracle.kernels._simd_codes import candidates, code_tokens, make_near
from metric_oracle.kernels.bertscore.bounds import LONGEST
from metric_oracle.kernels.bertscore.cascade import part_of
from metric_oracle.kernels.bertscore.exact import length_of
from metric_oracle.kernels.bertscore.query import lanes_of, pack_codes
from metric_oracle.kernels.bertscore.score import F1, rescale

QUERIES = 32  # for which the codes of a report are made at once
_LANE = 16
_SIZE = 8 * _LANE  # widths are padded to multiples of it, so that eight groups of lanes can be rotated
# In float32: the rotation (at most 13 additions a number), steps and their product, the remainder and its length.
SLACK = gamma(64)
_near = make_near()


class QueryGroup(NamedTuple):
    """A group of G queries, one row each, whose tokens are multiplied in passes of LANES; w is the padded width."""

    n: np.ndarray  # int64[G], number of tokens
    codes: np.ndarray  # int8[G, passes, w * LANES], codes of the tokens in lanes, as `pack_codes` lays them out
    lanes: np.ndarray  # int32[G, passes, 2 LANES], see `_simd_codes.make_near`
    margin: np.ndarray  # float64[G], greatest length of what the codes of a query leave out of its unit vectors
    states: np.ndarray  # float32[G, longest, w], token states
    inverse: np.ndarray  # float64[G, longest], 1 / length of each state
    weights: np.ndarray  # float64[G, longest], weight of each token


class PairScratch(NamedTuple):
    """Scratch arrays of one thread, for a report of up to R tokens and queries of up to S tokens."""

    wide: np.ndarray  # float32[R, w], token states of the report
    turned: np.ndarray  # float32[R, w], the same rotated
    codes: np.ndarray  # uint8[R, w], their codes
    # float64[R, 3], 1 / length of each state; of its unit vector the step of the code, and the length that this leaves
    # out
    measured: np.ndarray
    weights: np.ndarray  # float64[R], weight of each token
    terms: np.ndarray  # float32[R, 2], step and margin of each token
    near: np.ndarray  # float32[passes, R * LANES], products of codes of the report and of a query
    row: np.ndarray  # float32[R], greatest of each token of the report
    column: np.ndarray  # float32[passes, LANES], greatest of each token of the query, less the margin
    lanes: np.ndarray  # int64[LANES], lanes that `candidates` returns
    later: np.ndarray  # int32[R * S, 2], pairs of tokens that may be best matches: of the report, of the query
    product: np.ndarray  # float32[R * S], product of the codes of each pair
    cosine: np.ndarray  # float64[R * S], cosine of each pair
    best_row: np.ndarray  # float64[R], greatest cosine of each token of the report
    best: np.ndarray  # float64[S], greatest cosine of each token of the query
    closest: np.ndarray  # float64[1], minimum of bound - cosine
    missed: np.ndarray  # int64[1], pairs of a sample that were dropped but exceed the best matches


def error_of(width, part):
    """Bound the error of a score before rescaling, for states of `width` numbers; `part` says which score it is.

    The error of a mean of maxima is at most that of a cosine. If precision and recall have one sign, the derivatives of
    F1 add up to at most 2.
    """
    cosine = dot_error(width, 1.0) * 1.001 + gamma(2 * width + 4 * LONGEST, FLOAT64)
    return cosine * (2.0 if part == F1 else 1.0)


def pack(batch, places):
    """Lay out the distinct queries of a `TokenBatch` that are numbered in `places` as a `QueryGroup`."""
    each = [batch.states_of(q).astype(np.float64) for q in places]
    width = -(-each[0].shape[1] // _SIZE) * _SIZE
    n = np.array([len(x) for x in each])
    passes = -(-int(n.max()) // LANES)
    queries = QueryGroup(
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


def _new_scratch(corpus, queries):
    """Allocate the scratch arrays of one thread, for the documents of `corpus` and the `QueryGroup` of a group."""
    longest = int(np.diff(corpus.ptr[:2]).max(initial=1))  # longest first
    width = queries.states.shape[2]
    passes = queries.codes.shape[1]
    return PairScratch(
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
    """Return how many groups of 16 components are rotated together: the largest power of two that divides their number.

    `width` is the number of components of a vector.
    """
    groups = width // _LANE
    return groups & -groups


def _turn(vectors):
    """Rotate vectors float64[n, w] by the map that `_simd_codes.code_tokens` applies, scaled to keep their lengths."""
    size = _LANE * _n_turned(vectors.shape[1])
    apart = 1
    turned = vectors
    while apart < size:
        low, high = np.moveaxis(turned.reshape(-1, 2, apart), 1, 0)
        turned = np.stack([low + high, low - high], axis=1)
        apart *= 2
    return turned.reshape(vectors.shape) / np.sqrt(size)


@jit
def _prepare(u, corpus, n_turned, scratch):
    """Write the token states of document u as float32, and their codes, lengths and weights, into `scratch`.

    `n_turned` is what `_n_turned` returns for the padded width.
    """
    first = corpus.ptr[u]
    n_tokens = length_of(u, corpus)
    width = corpus.states.shape[1]
    filled = scratch.wide.shape[1]
    size = corpus.states.itemsize
    source = corpus.states.ctypes.data + first * width * size
    if size == 2:
        for t in range(n_tokens):
            widen(source + 2 * t * width, scratch.wide.ctypes.data + 4 * t * filled, width)
    else:
        for t in range(n_tokens):
            for d in range(width):
                scratch.wide[t, d] = corpus.states[first + t, d]
    scratch.turned[:n_tokens] = scratch.wide[:n_tokens]
    code_tokens(
        scratch.turned.ctypes.data,
        filled // _LANE,
        n_turned,
        n_tokens,
        scratch.codes.ctypes.data,
        scratch.measured.ctypes.data,
    )
    for t in range(n_tokens):
        inverse = 1.0 / np.sqrt(scratch.measured[t, 0])
        turned = inverse / np.sqrt(np.float64(_LANE * n_turned))
        scratch.measured[t, 0] = inverse
        scratch.measured[t, 1] *= turned
        scratch.measured[t, 2] = np.sqrt(scratch.measured[t, 2]) * turned
        scratch.weights[t] = corpus.weight_of_id[corpus.ids[first + t]]


@jit
def _multiply(n_pairs, g, queries, scratch):
    """Write the cosines of the first `n_pairs` pairs of tokens in `scratch.later`, and compare each with its bounds.

    `g` is the number of the query within the group. There is no branch between pairs, so that the processor works on
    several at once.
    """
    filled = scratch.wide.shape[1]
    tokens = scratch.wide.ctypes.data
    states = queries.states.ctypes.data + 4 * filled * g * queries.states.shape[1]
    closest = scratch.closest[0]
    for c in range(n_pairs):
        t = scratch.later[c, 0]
        i = scratch.later[c, 1]
        cosine = dot(tokens + 4 * filled * t, states + 4 * filled * i, filled)
        cosine *= queries.inverse[g, i] * scratch.measured[t, 0]
        scratch.cosine[c] = cosine
        closest = min(closest, scratch.terms[t, 1] - abs(cosine - scratch.product[c]))
    scratch.closest[0] = closest


@inner
def _mean(weights, values):
    """Return the mean of the first values, as many as there are weights, weighted; 0 if the weights add up to 0."""
    total = 0.0
    weight = 0.0
    for i in range(len(weights)):
        total += weights[i] * values[i]
        weight += weights[i]
    return total / weight if weight != 0.0 else 0.0


@jit
def _score(g, n_tokens, queries, scratch):
    """Return precision and recall of the document in `scratch` (see `_prepare`) with query g of a group.

    The document has `n_tokens` tokens.
    """
    n = queries.n[g]
    filled = scratch.wide.shape[1]
    passes = (n + LANES - 1) // LANES
    away = queries.margin[g]
    for t in range(n_tokens):
        rest = scratch.measured[t, 2]
        scratch.terms[t, 0] = scratch.measured[t, 1]
        scratch.terms[t, 1] = away * (1.0 + rest) + rest + SLACK
        scratch.row[t] = -1e30
    for p in range(passes):
        for lane in range(LANES):
            scratch.column[p, lane] = -1e30 if p * LANES + lane < n else 1e30  # unused lanes have no candidates
        code, lanes = queries.codes[g, p].ctypes.data, queries.lanes[g, p].ctypes.data
        near, column = scratch.near[p].ctypes.data, scratch.column[p].ctypes.data
        codes, terms, row = scratch.codes.ctypes.data, scratch.terms.ctypes.data, scratch.row.ctypes.data
        _near(lanes_of(n, p), code, filled // 4, lanes, codes, terms, n_tokens, near, row, column)
    # The best product of each row comes first, because it excludes most others; these follow in `later`.
    n_later = n_tokens
    for t in range(n_tokens):
        margin = scratch.terms[t, 1]
        low = scratch.row[t] - np.float32(2.0) * margin
        is_first = True
        for p in range(passes):
            near, column, out = scratch.near[p].ctypes.data, scratch.column[p].ctypes.data, scratch.lanes.ctypes.data
            used = lanes_of(n, p)
            n_candidates = candidates(used, near + 4 * used * t, low, margin, column, out)
            for c in range(n_candidates):
                lane = scratch.lanes[c]
                product = scratch.near[p, used * t + lane]
                at = n_later
                if product == scratch.row[t] and is_first:
                    is_first = False
                    at = t
                else:
                    n_later += 1
                scratch.later[at, 0] = t
                scratch.later[at, 1] = p * LANES + lane
                scratch.product[at] = product
    _multiply(n_tokens, g, queries, scratch)
    scratch.best[:n] = -np.inf
    for t in range(n_tokens):
        i = scratch.later[t, 1]
        scratch.best_row[t] = scratch.cosine[t]
        scratch.best[i] = max(scratch.best[i], scratch.cosine[t])
    n_left = 0
    for c in range(n_tokens, n_later):
        t = scratch.later[c, 0]
        i = scratch.later[c, 1]
        product = scratch.product[c]
        upper = product + scratch.terms[t, 1]
        if upper >= scratch.best_row[t] or upper >= scratch.best[i]:
            scratch.later[n_left, 0] = t
            scratch.later[n_left, 1] = i
            scratch.product[n_left] = product
            n_left += 1
    _multiply(n_left, g, queries, scratch)
    for c in range(n_left):
        t = scratch.later[c, 0]
        i = scratch.later[c, 1]
        scratch.best_row[t] = max(scratch.best_row[t], scratch.cosine[c])
        scratch.best[i] = max(scratch.best[i], scratch.cosine[c])
    return _mean(scratch.weights[:n_tokens], scratch.best_row), _mean(queries.weights[g, :n], scratch.best)


def score(part, corpus, queries, documents, error, base, out):
    """Write the scores of documents with a group of queries into `out`, float64[G, n].

    An F1 is NaN if the sign of precision + recall is uncertain, so that the pair must be scored exactly. Raise
    ExactnessError if a cosine is outside its bounds, or one of a sample exceeds the best match.

    Parameters
    ----------
    part : {PRECISION, RECALL, F1, MEAN}
    corpus : TokenCorpus
    queries : QueryGroup
    documents : int64[n]
    error : float
        Maximum error of precision and recall; that of F1 grows near its pole, precision + recall = 0.
    base : float
        Baseline that scores are relative to, 0 for none.
    out : float64[G, n]
    """
    scratch = _new_scratch(corpus, queries)
    _score_documents(part, corpus, queries, documents, _n_turned(queries.states.shape[2]), error, base, scratch, out)
    check_bounds({"codes": float(scratch.closest[0])}, int(scratch.missed[0]))


@jit
def _check(u, g, n_tokens, queries, scratch):
    """Check one pair of tokens, which u and g choose: its cosine must not exceed the best matches found.

    If it does, `scratch.missed` is raised by one. `scratch` holds document u, of `n_tokens` tokens, after `_score` with
    query g of the group.
    """
    n = queries.n[g]
    t = u % n_tokens
    i = (7919 * u + g) % n
    used = lanes_of(n, i // LANES)
    scratch.later[0, 0] = t
    scratch.later[0, 1] = i
    scratch.product[0] = scratch.near[i // LANES, used * t + i % LANES]
    _multiply(1, g, queries, scratch)
    if scratch.cosine[0] > scratch.best_row[t] or scratch.cosine[0] > scratch.best[i]:
        scratch.missed[0] += 1


@jit
def _score_documents(part, corpus, queries, documents, n_turned, error, base, scratch, out):
    """Write the scores of documents with all queries of a group into `out`; see `score` and `_prepare`."""
    for i in range(len(documents)):
        u = np.int64(documents[i])
        n_tokens = length_of(u, corpus)
        _prepare(u, corpus, n_turned, scratch)
        for g in range(out.shape[0]):
            precision = recall = 0.0
            if queries.n[g] != 2 and n_tokens != 2:
                precision, recall = _score(g, n_tokens, queries, scratch)
                if g == u % out.shape[0]:
                    _check(u, g, n_tokens, queries, scratch)
                if part == F1 and not (min(precision, recall) >= error or max(precision, recall) <= -error):
                    out[g, i] = np.nan
                    continue
            out[g, i] = rescale(part_of(part, precision, recall), base)
