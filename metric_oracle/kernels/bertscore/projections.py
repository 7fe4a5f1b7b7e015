"""Codes of token states in GPU memory, and the bounds on scores that products of codes give.

Codes are projections to a space of few dimensions. The README of this folder proves the bounds.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, gamma, product_error
from metric_oracle.kernels.bertscore.bounds import LONGEST, WIDEST
from metric_oracle.kernels.bertscore.score import F1, PRECISION

EXACT = gamma(2 * WIDEST + 4 * LONGEST, FLOAT64)  # of scores in float64, and far above what bounds lose in it
COLUMNS = 32  # query tokens of a product; the codes of a query are padded to a multiple of it
REACH = 1.0 + 2.0**-8  # a code's length at most: 1, but for rounding to float16


@dataclass
class Piece:
    """Codes of consecutive documents, on a device or on the host until needed.

    T is the number of tokens, D that of documents, K the width of a code.
    """

    first: int  # number of the first document
    lengths: np.ndarray  # int64[D] on the host, number of tokens of each document, descending
    codes: Any  # float16[T, K]
    ids: Any  # int32[T], token ids, by which tokens are weighted
    document: Any  # int64[T], for each token, the index of its document within the piece
    ptr: Any  # int64[D + 1], offset of each document's tokens

    def to(self, device):
        """Return a copy of the piece whose arrays are on a device."""
        moved = (x.to(device) for x in (self.codes, self.ids, self.document, self.ptr))
        return Piece(self.first, self.lengths, *moved)


@dataclass
class Weighed:
    """Arrays of a piece that depend on the weights of tokens but not on queries, on the piece's device."""

    share: Any  # float32[T], weight of each token: they add up to 1 in a document, or are all 0
    mean: Any  # float64[D], weighted mean of the last coordinates of a document's codes
    most: Any  # float64[D], their maximum

    def to(self, device):
        """Return a copy whose arrays are on a device."""
        return Weighed(self.share.to(device), self.mean.to(device), self.most.to(device))


@dataclass
class Resident:
    """The arrays of a corpus that are kept for one device."""

    basis: Any  # float64[d, K - 1], columns of length 1 or 0, onto which states are projected
    pieces: list[Piece]
    error: float  # maximum error of the coordinates in float16
    cells: int  # number of bounds (pairs of a query and a document) that are computed at once
    # float64[ids] on the host, the token weights from which `weighed` was computed; None before the first search
    weight_of_id: np.ndarray | None = None
    weighed: list[Weighed] = field(default_factory=list)  # one for each piece


@dataclass
class QueryTiles:
    """A batch of B queries on the device, in N tiles of COLUMNS tokens."""

    # float16[N COLUMNS, K], codes of the queries' tokens; the last of a query is repeated to fill its last tile
    codes: Any
    weights: Any  # float32[N COLUMNS], weight of each token: they add up to 1 in a query; repeated tokens have weight 0
    tiles: Any  # int32[3, N], for each tile its query, whether it is the query's first, and whether it is the last
    lengths: Any  # int64[B], tokens of each query
    longest: int  # maximum of `lengths`
    most: Any  # float64[B, 1], maximum of the last coordinates of a query's codes
    mean: Any  # float64[B, 1], their weighted mean
    error: float  # maximum error of the coordinates in float16


def code_error(corpus_error, query_error, width, n_tokens):
    """Bound the error of a mean of products of codes, without the products of the remainders; see the README.

    `corpus_error` and `query_error` are the most by which coordinates differ from the exact projection; a code has
    `width` coordinates, and the mean is taken over `n_tokens` tokens.
    """
    crossed = REACH * (corpus_error + query_error)
    # A tensor core may cut products and sums to 24 bits instead of rounding them, which counts twice.
    sums = product_error(4 * width, REACH**2) + gamma(2 * (n_tokens + 8)) * REACH**2
    return crossed + sums + EXACT


def upper_bounds(precision, recall, slack, spread, part):
    """Return upper bounds on scores, a tensor float64[B, D], from means of the greatest products of codes.

    F1 increases with precision and recall if the sign of their sum is certain; otherwise the bound is infinite.

    Parameters
    ----------
    precision, recall : tensors float64[B, D]
        Precision and recall of the codes. With `slack` added, they are upper bounds on those of the token states.
    slack : float
        Maximum error of both.
    spread : tensor float64[B, D]
        How far the sum of both bounds may exceed the exact sum.
    part : {PRECISION, RECALL, F1}
    """
    precision, recall = precision + slack, recall + slack
    if part != F1:
        return precision if part == PRECISION else recall
    both = precision + recall
    is_sure = (both - spread - 4 * slack >= EXACT) | (both <= -EXACT)
    return (2 * precision * recall / both).where(is_sure, np.inf)
