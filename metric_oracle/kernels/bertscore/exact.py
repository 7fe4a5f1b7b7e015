"""Precision and recall of a pair from all dimensions of the token states.

In float32 they are within a proven error. In float64 sums are added in the same order as in the reference
implementation, so that every bit agrees.
"""

import numpy as np

from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels._llvm import STEP
from metric_oracle.kernels._simd import LANES, exact_products, exact_squares, make_dots
from metric_oracle.kernels._simd import widen as widen_halves
from metric_oracle.kernels.bertscore.query import lanes_of
from metric_oracle.kernels.cosine.score import cosine

_dots = make_dots()


@inner
def length_of(u, corpus):
    """Return the number of tokens of document u."""
    return corpus.ptr[u + 1] - corpus.ptr[u]


@inner
def widen(u, corpus, work):
    """Copy the token states of document u to ``work.wide`` as float32."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    width = corpus.states.shape[1]
    size = corpus.states.itemsize
    source = corpus.states.ctypes.data + first * width * size
    if size == 2:
        widen_halves(source, work.wide.ctypes.data, n_tokens * width)
    else:
        for t in range(n_tokens):
            for d in range(width):
                work.wide[t, d] = corpus.states[first + t, d]


@inner
def mean_of_maxima(weights, column):
    """Return the weighted mean of the best cosines of a query's tokens: those in `column`, float32[passes, LANES].

    It is NaN if the weights add up to 0.
    """
    total = other = weight = rest = 0.0
    n = len(weights)
    for i in range(0, n - 1, 2):  # two independent sums, which run in parallel
        total += weights[i] * column[i // LANES, i % LANES]
        other += weights[i + 1] * column[(i + 1) // LANES, (i + 1) % LANES]
        weight += weights[i]
        rest += weights[i + 1]
    if n % 2:
        total += weights[n - 1] * column[(n - 1) // LANES, (n - 1) % LANES]
        weight += weights[n - 1]
    return (total + other) / (weight + rest)


@inner
def approximate(u, corpus, query, work):
    """Return precision and recall of document u with a `Query` from float32 products. Call `widen` before."""
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n = len(query.weights)
    work.row[:n_tokens] = -1e30
    work.column[:] = -1e30
    width = corpus.states.shape[1]
    for p in range(query.packed.shape[0]):
        q = query.packed[p].ctypes.data
        pads = query.pads[p].ctypes.data
        row = work.row.ctypes.data
        column = work.column[p].ctypes.data
        tokens = work.wide.ctypes.data
        _dots(lanes_of(n, p), q, width, pads, tokens, n_tokens, row, column)
    total = 0.0
    weight = 0.0
    for t in range(n_tokens):
        w = corpus.weight_of_id[corpus.ids[first + t]]
        total += w * work.row[t]
        weight += w
    return total / weight if weight > 0 else 0.0, mean_of_maxima(query.weights, work.column)


@jit
def exact(u, corpus, query, work):
    """Return precision and recall of document u with a `Query` in float64, with the bits of the reference.

    Both are 0 if a side has only the two special tokens. Call `widen` before.
    """
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n = len(query.weights)
    if n_tokens == 2 or n == 2:
        return 0.0, 0.0
    width = corpus.states.shape[1]
    for t in range(n_tokens):
        for d in range(width):
            work.doubles[t, d] = work.wide[t, d]
    tokens = work.doubles.ctypes.data
    exact_squares(tokens, width, n_tokens, work.squares.ctypes.data)
    for g in range(query.states.shape[0]):
        exact_products(query.states[g].ctypes.data, width, tokens, n_tokens, work.products[g].ctypes.data)
    recall = np.full(n, -np.inf)
    total = 0.0
    weight = 0.0
    for t in range(n_tokens):
        most = -np.inf
        for g in range(query.states.shape[0]):
            cosines = work.products[g, t]
            for lane in range(min(STEP, n - STEP * g)):
                i = STEP * g + lane
                cosines[lane] = cosine(cosines[lane], work.squares[t], query.squares[i])
                recall[i] = max(recall[i], cosines[lane])
            for lane in range(min(STEP, n - STEP * g)):  # apart, so that the loop above is vectorised
                most = max(most, cosines[lane])
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
def exact_pair(u, corpus, query, work):
    """Return precision and recall of document u in float64, as `exact`, after calling `widen`."""
    widen(u, corpus, work)
    return exact(u, corpus, query, work)
