"""The Triton kernel behind BERTScore on a GPU: product of token codes, maxima both ways and their means in one pass.

Imported when a search runs: where there is no GPU, Triton need not be there.
"""

import numpy as np
import triton
import triton.language as tl

from metric_oracle.kernels.bertscore.cuda import COLUMNS

LEAST_ROWS = 16  # of a product on tensor cores
MOST_ROWS = 1 << 10  # of a unit; beyond, registers spill, and shared memory exceeds what some devices have
NUMBERS = 1 << 14  # of a unit's codes at once, 32 KB; units of more tokens take their codes in slices
LEAST_SLICE = 16


@triton.jit(do_not_specialize=["first", "n_tiles", "n_units"])  # one compilation for each size of units
def _segment_maxima(
    codes,
    ptr,
    weights,
    first,
    query_codes,
    query_weights,
    tiles,
    n_tiles,
    precision,
    recall,
    n_units,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    SLICE: tl.constexpr,
    N: tl.constexpr,
):
    """Write the weighted means of the greatest products, of one unit of up to ROWS tokens with each query.

    Parameters
    ----------
    codes : float16[T, WIDTH]
    ptr : int64[D + 1]
        Tokens of the units.
    weights : float32[T]
        They add up to 1 in a unit, or are all 0.
    first : int
        Unit of the first program.
    query_codes : float16[n_tiles N, WIDTH]
        Every query fills whole tiles of N tokens; its last token is repeated.
    query_weights : float32[n_tiles N]
        They add up to 1 in a query; 0 for what is repeated.
    tiles : int32[3, n_tiles]
        Query of a tile; whether it is the query's first one; whether it is the last one.

    Writes
    ------
    precision, recall : float32[B, D], the unit's column

    Cost
    ----
    2 WIDTH floating-point operations a pair of tokens on tensor cores; a unit's codes are read once, those of the
    queries lie in the cache.
    """
    unit = first + tl.program_id(0)
    begin = tl.load(ptr + unit)
    n = tl.load(ptr + unit + 1) - begin
    row = tl.arange(0, ROWS)
    token = begin + tl.minimum(row, n - 1)  # a token twice changes no maximum
    weight = tl.where(row < n, tl.load(weights + token), 0.0)
    depth = tl.arange(0, SLICE)
    column = tl.arange(0, N)
    code = tl.load(codes + token[:, None] * WIDTH + depth[None, :])
    best = tl.full([ROWS], float("-inf"), tl.float32)
    mean = 0.0
    for tile in range(n_tiles):
        source = query_codes + (tile * N + column)[None, :] * WIDTH + depth[:, None]
        product = tl.dot(code, tl.load(source), out_dtype=tl.float32)
        for d in tl.static_range(SLICE, WIDTH, SLICE):
            more = tl.load(codes + token[:, None] * WIDTH + d + depth[None, :])
            product = tl.dot(more, tl.load(source + d), product, out_dtype=tl.float32)
        is_first = tl.load(tiles + n_tiles + tile) != 0
        best = tl.maximum(tl.where(is_first, float("-inf"), best), tl.max(product, 1))
        part = tl.sum(tl.max(product, 0) * tl.load(query_weights + tile * N + column), 0)
        mean = tl.where(is_first, 0.0, mean) + part
        if tl.load(tiles + 2 * n_tiles + tile) != 0:
            place = tl.load(tiles + tile).to(tl.int64) * n_units + unit
            tl.store(precision + place, tl.sum(best * weight, 0))
            tl.store(recall + place, mean)


def launches(lengths, width):
    """Yield first unit, end, constants and options of each launch: units of up to 16, 32, 64 ... tokens go together.

    Units of more than `MOST_ROWS` tokens are in none.

    Parameters
    ----------
    lengths : int64[D], falling
    width : int, of a code
    """
    last = n_beyond(lengths)
    while last < len(lengths):
        first = last
        rows = max(LEAST_ROWS, 1 << int(lengths[first] - 1).bit_length())
        fewer = rows // 2 if rows > LEAST_ROWS else 0
        last = int(np.searchsorted(-lengths, -fewer))
        a_slice = min(width, max(NUMBERS // rows, LEAST_SLICE))
        constants = {"WIDTH": width, "ROWS": rows, "SLICE": a_slice, "N": COLUMNS}
        # Sums lie in registers. Triton warns of another default to come unless the fusion is chosen.
        options = {"num_warps": 4 if rows <= 128 else 8, "enable_fp_fusion": True}
        # The slices of a unit's codes are loads of the loop too: more stages would keep a copy of all of them for each.
        yield first, last, constants, options | {"num_stages": 3 if a_slice == width else 1}


def n_beyond(lengths):
    """Return how many units, the first ones, have more than `MOST_ROWS` tokens; `lengths` fall."""
    return int(np.searchsorted(-lengths, -MOST_ROWS))


def segment_maxima(codes, ptr, lengths, weights, query_codes, query_weights, tiles, precision, recall):
    """Fill `precision` and `recall`, float32[B, D], of the units that `launches` takes.

    See `_segment_maxima` for the parameters.

    Parameters
    ----------
    lengths : int64[D] on the host, falling
    """
    for first, last, constants, options in launches(lengths, codes.shape[1]):
        _segment_maxima[(last - first,)](
            codes,
            ptr,
            weights,
            first,
            query_codes,
            query_weights,
            tiles,
            tiles.shape[1],
            precision,
            recall,
            len(lengths),
            **constants,
            **options,
        )
