"""Arrays for the inner loops: the corpus as in its files, and a query whose tokens are the lanes of SIMD vectors.

At most LANES tokens of a query are multiplied at a time; longer queries take several *passes*. The last pass has the
fewest lanes, of the numbers in `_llvm.WIDTHS`, that hold its tokens.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _target
from metric_oracle.kernels._errors import FLOAT32
from metric_oracle.kernels._jit import scalar
from metric_oracle.kernels._llvm import STEP, rows_at_once
from metric_oracle.kernels._simd import LANES, lanes_at_once

FEWEST = 4  # tokens of a report whose codes are read before it may be dropped


class TokenCorpus(NamedTuple):
    """Token states of the corpus with their cells and codes (see `codec.py`).

    T tokens, D documents, M cells, states of width d, codes of K bytes.
    """

    states: np.ndarray  # float32[T, d], or float16 seen as uint16
    ptr: np.ndarray  # int64[D + 1], offset of each document's tokens
    # float32[T + 16], weight of each token in the order of the codes; the last 16 are read but not used
    weights: np.ndarray
    document_weight: np.ndarray  # float64[D], sum of a document's weights
    weight_of_id: np.ndarray  # float64[ids], weight of each token id, for the exact score
    ids: np.ndarray  # int32[T], token ids
    cell: np.ndarray  # uint16[T], cell of each token
    radius: np.ndarray  # uint8[T], angle to the centre of the cell in half degrees, rounded up
    codes: np.ndarray  # uint8[T, K], code of each token, 128 added
    # float32[T, 5], see `codec.py`. These four have the tokens of a document in another order than `states` and `ids`:
    # by descending radius.
    terms: np.ndarray
    # float32[D], component along `direction` of the unweighted mean of a document's unit vectors
    mean_along: np.ndarray
    mean_off: np.ndarray  # float32[D], length of what is left of that mean
    norm_error: float  # maximum of |length - 1| over the stored states
    row_ptr: np.ndarray  # int64[D + 1], offset of the corpus rows of each document in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows
    centers: np.ndarray  # float32[M, d]; this and the next two serve to compute the codes of queries
    basis: np.ndarray  # float32[d, K]
    direction: np.ndarray  # float32[d]


class TokenBatch(NamedTuple):
    """Token states of a batch of Q distinct queries with T tokens in all."""

    states: np.ndarray  # float16 or float32[T, d]
    ptr: np.ndarray  # int64[Q + 1], offset of each query's tokens
    weights: np.ndarray  # float64[T], weight of each token
    # (precision, recall, f1) that scores are relative to; None for no rescaling
    baseline: tuple[float, float, float] | None

    @property
    def longest(self) -> int:
        """Number of tokens of the longest query."""
        return int(np.diff(self.ptr).max(initial=1))

    def states_of(self, q: int) -> np.ndarray:
        """Return the token states of query q, float16 or float32[n, d]."""
        return self.states[self.ptr[q] : self.ptr[q + 1]]

    def weights_of(self, q: int) -> np.ndarray:
        """Return the weights of the tokens of query q, float64[n]."""
        return self.weights[self.ptr[q] : self.ptr[q + 1]]


class Coded(NamedTuple):
    """The codes of the n tokens of one query, in passes of LANES tokens."""

    weights: np.ndarray  # float64[n], weight of each token
    # float32[passes, LANES], share of the weights that each lane has: 0 without a token, NaN if all weights are 0
    shares: np.ndarray
    # int8[passes, K / 4 * LANES * 4]; a last pass of fewer lanes is stored without gaps
    codes: np.ndarray
    # float32[passes, 2 LANES], integers and floats per lane, see `_simd_codes.make_bounds`, for upper bounds
    lanes: np.ndarray
    lanes_below: np.ndarray  # float32[passes, 2 LANES], the same for lower bounds
    # float32[4], step of the codes, their maximum rounding error, component along `direction` of the weighted mean of
    # the unit vectors, and length of what is left of it
    scalars: np.ndarray
    chunk: int  # tokens of a report whose codes are read at a time, see `chunk_of`


class Query(NamedTuple):
    """One query of n tokens, laid out for the inner loops in ceil(n / LANES) passes of LANES tokens."""

    states: np.ndarray  # float64[ceil(n / STEP), d, STEP], of STEP tokens after each other; 0 beyond the last
    squares: np.ndarray  # float64[n], squared length of each state
    weights: np.ndarray  # float64[n], weight of each token
    # float32[passes, d * LANES], unit vectors, laid out as `make_dots` reads them; a last pass of fewer lanes is stored
    # without gaps
    packed: np.ndarray
    pads: np.ndarray  # float32[passes, LANES], 0 for a token, a large negative number for an unused lane
    coded: Coded  # codes of the tokens


@scalar
def lanes_of(n, p):
    """Return the number of lanes in pass p of a query of n tokens: one of `_llvm.WIDTHS`."""
    return min(max(n - p * LANES + STEP - 1, 2 * STEP), LANES) // STEP * STEP


def chunk_of(n):
    """Return the number of tokens of a report whose codes are read at a time for a query of n tokens.

    They are those that the registers hold in the last pass, which may have the fewest lanes, but `FEWEST` at least.
    """
    return max(rows_at_once(_target.path(), lanes_of(n, (n - 1) // LANES) // STEP), FEWEST)


def up(x):
    """Round a float64 number or array of at least 0 up to float32.

    Errors of the numbers themselves are assumed to be far below a step of float32.
    """
    return (x * (1.0 + 4.0 * FLOAT32) + 1e-30).astype(np.float32)


def pack_codes(code):
    """Lay out the codes of a query's tokens, float64[n, K] of whole numbers, in lanes; K is a multiple of 4.

    Return `codes`, int8[passes, K / 4 * LANES * 4], and `lanes`, int32[passes, 2 LANES]: the start of each sum, which
    is minus 128 times the sum of a lane's codes, or 0 if the path multiplies signed bytes, and a large negative number
    for unused lanes. The second half is free for other numbers.
    """
    path = _target.path()
    n, width = code.shape
    steps = width // 4
    passes = -(-n // LANES)
    codes = np.zeros((passes, width * LANES), np.int8)
    lanes = np.zeros((passes, 2 * LANES), np.int32)
    for p in range(passes):
        block = code[p * LANES : (p + 1) * LANES]
        m = len(block)
        used = lanes_of(n, p)
        codes[p, : width * used].reshape(steps, used, 4)[:, :m] = block.reshape(m, steps, 4).swapaxes(0, 1)
        lanes[p, :used] = -(1 << 29)
        lanes[p, :m] = 0 if path.is_signed else -128 * block.sum(axis=1)
    return codes, lanes


def pack_query(states, weights, basis, direction):
    """Lay out one query for the inner loops: return a `Query`, and its unit vectors, float32[n, d].

    `states` are float16 or float32[n, d], `weights` float64[n], and `basis`, float32[d, K], and `direction`,
    float32[d], those of `TokenCorpus`. Without codes, K is 0.
    """
    n, width = states.shape
    path = _target.path()
    wide = states.astype(np.float64)
    squares = np.cumsum(wide * wide, axis=1)[:, -1].copy()  # in the order of the reference
    unit = wide / np.sqrt(squares)[:, None]
    wide_basis = basis.astype(np.float64)
    inside = unit @ wide_basis
    # The codes represent multiples of the rounded step.
    step = float(np.float32(max(float(np.abs(inside).max(initial=0.0)) / path.query_range, 1e-12)))
    code = np.clip(np.rint(inside / step), -path.query_range, path.query_range)
    slack = np.linalg.norm(inside - step * code, axis=1).max()
    rest = up(np.linalg.norm(unit - inside @ wide_basis.T, axis=1))
    codes, head = pack_codes(np.pad(code, ((0, 0), (0, -code.shape[1] % 4))))
    passes = len(codes)
    packed = np.zeros((passes, width * LANES), np.float32)
    pads = np.full((passes, LANES), -1e30, np.float32)
    lanes = np.stack([head, head])
    for p in range(passes):
        block = slice(p * LANES, min((p + 1) * LANES, n))
        m = block.stop - block.start
        used = lanes_of(n, p)
        columns = np.zeros((used, width), np.float32)
        columns[:m] = unit[block]
        at_once = lanes_at_once(used)
        packed[p, : width * used] = columns.reshape(-1, at_once, width).swapaxes(1, 2).ravel()
        pads[p, :m] = 0
        lanes[0, p, used : used + m] = rest[block].view(np.int32)
        lanes[1, p, used : used + m] = (-rest[block]).view(np.int32)
        lanes[:, p, used + m : 2 * used] = np.float32(-1e30).view(
            np.int32
        )  # unused lanes never win, even if all codes are tiny
    total = weights.sum()
    mean = weights @ unit / total if total else np.zeros(width)
    shares = np.zeros(passes * LANES, np.float32)
    shares[:n] = weights / total if total else np.nan
    along = float(mean @ direction.astype(np.float64))
    off = np.linalg.norm(mean - along * direction.astype(np.float64))
    scalars = np.array([step, up(slack), along, up(off)], np.float32)
    above, below = lanes.view(np.float32)
    coded = Coded(weights, shares.reshape(passes, LANES), codes, above, below, scalars, chunk_of(n))
    groups = -(-n // STEP)
    in_groups = np.zeros((groups * STEP, width))
    in_groups[:n] = wide
    turned = np.ascontiguousarray(in_groups.reshape(groups, STEP, width).swapaxes(1, 2))
    query = Query(turned, squares, weights, packed, pads, coded)
    return query, unit.astype(np.float32)
