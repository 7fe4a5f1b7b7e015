"""Projections of token states as a device holds them, and the bounds on scores that products of them give.

The README of this folder proves the bounds.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, gamma, product_error
from metric_oracle.kernels.bertscore.bounds import LONGEST, WIDEST
from metric_oracle.kernels.bertscore.score import F1, PRECISION

EXACT = gamma(2 * WIDEST + 4 * LONGEST, FLOAT64)  # of scores in float64, and far above what bounds lose in it
REACH = 1.0 + 2.0**-8  # a code's length at most: 1, but for rounding to float16


@dataclass
class Piece:
    """Consecutive documents on a device, or on the host until needed; T tokens, D documents, codes of width K.

    Attributes
    ----------
    first : int
        The corpus document with which the piece begins.
    lengths : int64[D] on the host, falling
    codes : float16[T, K]
    ids : int32[T]
    document : int64[T]
        Position of each token's document in the piece.
    ptr : int64[D + 1]
    """

    first: int
    lengths: np.ndarray
    codes: Any
    ids: Any
    document: Any
    ptr: Any

    def to(self, device):
        """Return the piece on a device."""
        moved = (x.to(device) for x in (self.codes, self.ids, self.document, self.ptr))
        return Piece(self.first, self.lengths, *moved)


@dataclass
class Weighed:
    """Values of a piece that depend on the weights of tokens but not on queries, on its device.

    Attributes
    ----------
    share : float32[T]
        Weights of tokens. They add up to 1 in a document, or are all 0.
    mean, most : float64[D]
        Weighted mean and maximum of the last coordinates of a document's codes.
    """

    share: Any
    mean: Any
    most: Any

    def to(self, device):
        """Return the values on a device."""
        return Weighed(self.share.to(device), self.mean.to(device), self.most.to(device))


@dataclass
class Resident:
    """The data of a corpus for one device.

    Attributes
    ----------
    basis : float64[d, K - 1]
        Columns of length 1 or 0.
    pieces : list of Piece
    error : float
        Maximum error of the coordinates in float16.
    cells : int
        Number of bounds that are computed at once.
    weight_of_id : float64[ids] on the host, or None
        The token weights with which `weighed` was computed.
    weighed : list of Weighed
        One for each piece.
    """

    basis: Any
    pieces: list[Piece]
    error: float
    cells: int
    weight_of_id: np.ndarray | None = None
    weighed: list[Weighed] = field(default_factory=list)


@dataclass
class Block:
    """A batch of queries on the device; B queries, N tiles.

    Attributes
    ----------
    codes : float16[N COLUMNS, K]
        The last token of a query pads its last tile.
    weights : float32[N COLUMNS]
        The weights of a query add up to 1; padding has weight 0.
    tiles : int32[3, N]
        For each tile: its query, whether it is the query's first tile, and whether it is the last.
    lengths : int64[B]
    longest : int
    most, mean : float64[B, 1]
        Maximum and mean of the last coordinates of a query's codes.
    error : float, as in Resident
    """

    codes: Any
    weights: Any
    tiles: Any
    lengths: Any
    longest: int
    most: Any
    mean: Any
    error: float


def code_error(corpus_error, query_error, width, n_tokens):
    """Bound the error of a mean of products of codes, without the products of the remainders; see the README.

    Parameters
    ----------
    corpus_error, query_error : float
        Maximum distance between coordinates and the exact projection.
    width : int
        Number of coordinates of a code.
    n_tokens : int
        Number of tokens over which the mean is taken.
    """
    crossed = REACH * (corpus_error + query_error)
    # A tensor core may cut products and sums to 24 bits instead of rounding them, which counts twice.
    sums = product_error(4 * width, REACH**2) + gamma(2 * (n_tokens + 8)) * REACH**2
    return crossed + sums + EXACT


def upper_bounds(precision, recall, slack, spread, part):
    """Return upper bounds on scores, from means of the greatest products of codes.

    F1 increases with precision and recall if the sign of their sum is certain; otherwise the bound is infinite.

    Parameters
    ----------
    precision, recall : float64[B, D]
        Precision and recall of the codes. With `slack` added, they are upper bounds on those of the token states.
    slack : float
    spread : float64[B, D]
        How far the sum of both bounds may exceed the exact sum.
    part : {PRECISION, RECALL, F1}
    """
    precision, recall = precision + slack, recall + slack
    if part != F1:
        return precision if part == PRECISION else recall
    both = precision + recall
    is_sure = (both - spread - 4 * slack >= EXACT) | (both <= -EXACT)
    return (2 * precision * recall / both).where(is_sure, np.inf)
