"""Cells and codes: short descriptions of token states, from which cosines are bounded.

The *cell* of a token is the nearest of a few thousand centres, and its *code* a vector of bytes that describes the
remainder. For a token's unit vector c, the centre m of its cell and a basis B of nearly orthonormal columns, c = v m +
s B b + e with v = max(c . m, 0) and bytes b, so that for any unit vector q and p = B'q q . c = v (q . m) + s p . b + (q
- B p) . (e - B B'e) + (p + (I - B'B) p) . B'e. `terms` of a token holds v / UNIT, s, |e - B B'e|, |B'e| (with the loss
of orthonormality of the basis) and |s b|, from which the kernel bounds the last two products and the rounding of p to
bytes. All are computed in float64 from the stored numbers and rounded up. The README of this folder has the proof.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, gamma, length_error
from metric_oracle.kernels.bertscore.bounds import STEP, STEPS, UNIT
from metric_oracle.kernels.bertscore.query import up

CODE = 64  # bytes of a token's code: one cache line
SAMPLE = 1 << 17  # tokens from which centres and basis are made
TOKENS_A_CELL = 512
MOST_CELLS = 1 << 14
ROUNDS = 4  # of k-means
BLOCK = 1 << 14  # tokens at once
PER_TOKEN = ("cell", "radius", "codes", "terms")  # arrays with a row for each token, by descending radius


def n_cells(n_tokens: int) -> int:
    """Return the number of cells for a corpus of `n_tokens` tokens."""
    return int(np.clip(1 << int(np.log2(max(n_tokens // TOKENS_A_CELL, 1))), 1, MOST_CELLS))


def screen(
    states: np.ndarray,
    ptr: np.ndarray,
    at_once: int = BLOCK,
    seed: int = 0,
    *,
    release: Callable[[], Any] = lambda: None,
) -> dict[str, np.ndarray]:
    """Compute cells, codes and bounds on their errors for the token states of a corpus.

    Parameters
    ----------
    states : float16 or float32[T, d]
    ptr : int64[D + 1]
        Offset of each document's tokens.
    at_once : int
        Number of tokens that are coded at a time.
    seed : int
        Seed of the sample from which centres and basis are computed.
    release : function
        Called after each block of tokens. States are read once, in order, so the memory of the block may be released.

    Returns
    -------
    dict
        Arrays by name: those of `kernels.bertscore.query.TokenCorpus` from `cell` to `norm_error`, from `centers` to
        `direction`, and `order`, see `in_order`.
    """
    n_tokens = len(states)
    rng = np.random.default_rng(seed)
    sample = _unit(states[np.sort(rng.permutation(n_tokens)[:SAMPLE])]).astype(np.float32)
    leading = np.linalg.eigh((sample.T @ sample).astype(np.float64))[1][:, ::-1][:, :CODE]
    narrow = np.ascontiguousarray(leading).astype(np.float32)
    centers = _centers(sample, narrow, n_cells(n_tokens), at_once, rng)
    direction = sample.mean(axis=0, dtype=np.float64)
    direction = (direction / max(float(np.linalg.norm(direction)), 1e-12)).astype(np.float32)
    del sample
    out = {
        "centers": centers, "basis": narrow, "direction": direction,
        "cell": np.empty(n_tokens, np.uint16), "radius": np.empty(n_tokens, np.uint8),
        "codes": np.full((n_tokens, -(-narrow.shape[1] // 4) * 4), 128, np.uint8),
        "terms": np.empty((n_tokens, 5), np.float32),
    }  # fmt: skip
    norm_error = 0.0
    narrow_centers = centers @ narrow
    for first in range(0, n_tokens, at_once):
        block = slice(first, first + at_once)
        lengths = np.linalg.norm(states[block].astype(np.float64), axis=1)
        norm_error = max(norm_error, float(np.abs(lengths - 1).max()))
        c = _unit(states[block])
        nearest = np.argmax((c.astype(np.float32) @ narrow) @ narrow_centers.T, axis=1)
        _encode(c, nearest, block, out)
        release()
    out["mean_along"], out["mean_off"] = _means(states, ptr, direction)
    out["order"] = _sort_by_radius(out, ptr)
    lost = length_error(states.shape[1])
    return {**out, "norm_error": np.array([norm_error * (1 + lost) + 2 * lost])}


def _encode(unit: np.ndarray, nearest: np.ndarray, block: slice, out: dict[str, np.ndarray]) -> None:
    """Write cell, radius, code and terms of a block of tokens into `out`, the arrays of `screen`.

    `unit`, float64[n, d], are their unit vectors, and `nearest`, int64[n], their cells.
    """
    width = unit.shape[1]
    basis = out["basis"].astype(np.float64)
    m = out["centers"][nearest].astype(np.float64)
    cosine = np.einsum("td,td->t", unit, m)
    # The centre need not have length 1; the margin is the error of the cosine in float64.
    lengths = np.maximum(np.linalg.norm(m, axis=1), 1e-300)
    angle = np.arccos(np.clip(cosine / lengths - gamma(2 * width + 8, FLOAT64), -1, 1))
    along = (np.clip(cosine, 0, 1) / UNIT).astype(np.float32)
    rest = unit - along.astype(np.float64)[:, None] * UNIT * m
    inside = rest @ basis
    scale = np.maximum(np.abs(inside).max(axis=1) / 127, 1e-12).astype(np.float32)
    steps = scale.astype(np.float64)[:, None]
    code = np.clip(np.rint(inside / steps), -127, 127)
    coded = steps * code
    tail = rest - coded @ basis.T
    tail_inside = tail @ basis
    skew = float(np.linalg.norm(np.eye(basis.shape[1]) - basis.T @ basis))
    lost = gamma(4 * width, FLOAT64)  # for vectors of length 4 at most, in every step above
    out["cell"][block] = nearest
    out["radius"][block] = np.minimum(np.ceil(angle / STEP), STEPS)
    out["codes"][block, : basis.shape[1]] = code + 128
    terms = out["terms"][block]
    terms[:, 0] = along
    terms[:, 1] = scale
    terms[:, 2] = up(np.linalg.norm(tail - tail_inside @ basis.T, axis=1) + lost)
    terms[:, 3] = up(np.linalg.norm(tail_inside, axis=1) * (1.0 + 2.0 * skew) + lost)
    terms[:, 4] = up(np.linalg.norm(coded, axis=1) + lost)


def in_order(values: np.ndarray, ptr: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Reorder an array with one value for each token from the order in the reports to the order of the codes.

    `ptr`, int64[D + 1], has the offset of each document's tokens, and `order` is an array that `screen` returns. None
    means that both orders are the same, as in indexes of version 0.2.
    """
    return values if order is None else values[np.repeat(ptr[:-1], np.diff(ptr)) + order]


def _sort_by_radius(out: dict[str, np.ndarray], ptr: np.ndarray) -> np.ndarray:
    """Sort the rows of each document by descending radius, in place, in the arrays of `PER_TOKEN` in `out`.

    Return, for each row, the place of its token in the document, uint16[T]; `ptr` has the offset of each document. The
    cells bound tokens of large radius worst, so a search reads the codes of these tokens first.
    """
    order = np.empty(len(out["radius"]), np.uint16)
    for u, end in _blocks(ptr):
        block = slice(ptr[u], ptr[end])
        length = np.diff(ptr[u : end + 1])
        key = np.repeat(np.arange(len(length)) * (STEPS + 1), length) + (STEPS - out["radius"][block].astype(np.int64))
        by_radius = np.argsort(key, kind="stable")
        order[block] = by_radius - np.repeat(ptr[u:end] - ptr[u], length)
        for name in PER_TOKEN:
            out[name][block] = out[name][block][by_radius]
    return order


def _blocks(ptr: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the first document and the end of each block: documents of at most BLOCK tokens, or one longer document.

    `ptr`, int64[D + 1], has the offset of each document's tokens.
    """
    u = 0
    while u < len(ptr) - 1:
        end = max(int(np.searchsorted(ptr, ptr[u] + BLOCK, side="right")) - 1, u + 1)
        yield u, end
        u = end


def _unit(states: np.ndarray) -> np.ndarray:
    """Return token states scaled to length 1, float64[n, d]."""
    wide = states.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


def _centers(
    sample: np.ndarray, narrow: np.ndarray, n_centers: int, at_once: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the centres of the cells, at most `n_centers`, by k-means over the unit vectors `sample`, float32[n, d].

    They are unit vectors, float32[m, d]. Distances are computed from the coordinates of `sample` along the columns of
    `narrow`, float32[d, K], for `at_once` vectors at a time.
    """
    low = sample @ narrow
    centers = low[rng.permutation(len(low))[:n_centers]]
    for _ in range(ROUNDS):
        nearest = np.concatenate(
            [np.argmax(x @ centers.T, axis=1) for x in np.array_split(low, max(len(low) // at_once, 1))]
        )
        order = np.argsort(nearest, kind="stable")
        used, start = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(low[order], start)
        centers = centers.copy()
        centers[used] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    full = np.add.reduceat(sample[order], start).astype(np.float64)
    return (full / np.maximum(np.linalg.norm(full, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def _means(states: np.ndarray, ptr: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the component of each document's mean unit vector along a direction, and the length of what is left.

    Both are float32[D]; `ptr` has the offset of each document's tokens in `states`, and `direction` is float32[d].
    """
    along = np.empty(len(ptr) - 1, np.float32)
    off = np.empty(len(ptr) - 1, np.float32)
    wide = direction.astype(np.float64)
    for u, end in _blocks(ptr):
        c = _unit(states[ptr[u] : ptr[end]])
        mean = np.add.reduceat(c, ptr[u:end] - ptr[u]) / np.diff(ptr[u : end + 1])[:, None]
        part = mean @ wide
        along[u:end] = part
        off[u:end] = up(np.linalg.norm(mean - part[:, None] * wide, axis=1))
    return along, off
