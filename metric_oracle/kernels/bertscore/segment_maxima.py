"""The Triton kernel of BERTScore on a GPU: products of token codes, their maxima both ways and the means in one pass.

The module is imported when a search runs on a GPU, so Triton is not needed elsewhere.
"""

import numpy as np
import triton
import triton.language as tl

from metric_oracle.kernels.bertscore.projections import COLUMNS

LEAST_ROWS = 16  # fewest rows of a product on tensor cores
MOST_ROWS = 1 << 10  # most tokens of a document; with more, registers spill and shared memory is too small
NUMBERS = 1 << 14  # numbers of a document's codes in memory at once, 32 KB; longer documents are read in slices
LEAST_SLICE = 16


@triton.jit(do_not_specialize=["first", "n_tiles", "n_documents"])  # one compilation per document size
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
    n_documents,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    SLICE: tl.constexpr,
    N: tl.constexpr,
):
    """Write the weighted means of the greatest products, of one document of up to ROWS tokens with each query.

    `codes`, `ptr` and `weights` are those of the documents, `first` is the document of the first program, and the
    others are as in `segment_maxima`, with `n_tiles` tiles of N tokens and `n_documents` documents. The products take 2
    WIDTH floating-point operations per pair of tokens, on tensor cores; a document's codes are read once, SLICE
    coordinates at a time, and those of the queries stay in the cache.
    """
    document = first + tl.program_id(0)
    begin = tl.load(ptr + document)
    n = tl.load(ptr + document + 1) - begin
    row = tl.arange(0, ROWS)
    token = begin + tl.minimum(row, n - 1)  # a repeated token changes no maximum
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
            cell = tl.load(tiles + tile).to(tl.int64) * n_documents + document
            tl.store(precision + cell, tl.sum(best * weight, 0))
            tl.store(recall + cell, mean)


def launches(lengths, width):
    """Yield the first document, the end, the constants and the options of each launch.

    A launch has the documents of up to 16, 32, 64, ... tokens; those of more than `MOST_ROWS` are in none. `lengths`,
    int64[D], are their numbers of tokens, descending, and `width` is the number of coordinates of a code.
    """
    last = n_beyond(lengths)
    while last < len(lengths):
        first = last
        rows = max(LEAST_ROWS, 1 << int(lengths[first] - 1).bit_length())
        fewer = rows // 2 if rows > LEAST_ROWS else 0
        last = int(np.searchsorted(-lengths, -fewer))
        a_slice = min(width, max(NUMBERS // rows, LEAST_SLICE))
        constants = {"WIDTH": width, "ROWS": rows, "SLICE": a_slice, "N": COLUMNS}
        # Sums are kept in registers. Fusion is set, as Triton warns that its default will change.
        options = {"num_warps": 4 if rows <= 128 else 8, "enable_fp_fusion": True}
        # The loop also loads the slices of a document's codes: each further stage would keep a copy of all of them.
        yield first, last, constants, options | {"num_stages": 3 if a_slice == width else 1}


def n_beyond(lengths):
    """Return how many documents have more than `MOST_ROWS` tokens; `lengths` is descending, so they come first."""
    return int(np.searchsorted(-lengths, -MOST_ROWS))


def segment_maxima(codes, ptr, lengths, weights, query_codes, query_weights, tiles, precision, recall):
    """Fill `precision` and `recall`, float32[B, D], for the documents that `launches` includes.

    Parameters
    ----------
    codes : float16[T, WIDTH]
    ptr : int64[D + 1]
        Offsets of the documents' tokens.
    lengths : int64[D] on the host, descending
        Numbers of tokens.
    weights : float32[T]
        The weights of a document add up to 1, or are all 0.
    query_codes : float16[n_tiles N, WIDTH]
        Every query fills whole tiles of N tokens; its last token is repeated.
    query_weights : float32[n_tiles N]
        The weights of a query add up to 1; repeated tokens have weight 0.
    tiles : int32[3, n_tiles]
        For each tile: its query, whether it is the query's first tile, and whether it is the last.
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
