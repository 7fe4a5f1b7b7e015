"""Short codes of unit vectors, whose products bound cosines. README.md has the proof.

A code consists of the coordinates of a vector along the principal directions of the corpus and the length of the
residual. The deviation of the directions from orthonormality and the rounding errors are measured in float64 when the
codes are made; the errors of these measurements come from `_errors`.
"""

import math
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT32, FLOAT64, gamma, length_error, product_error, rounding
from metric_oracle.kernels._simd import LANES

BLOCK = LANES  # documents whose codes are stored together, by coordinate
WIDTH = 64  # numbers of a code
SAMPLE = 1 << 14  # vectors from which the directions are made
FEW, WIDE = 1 << 11, 1 << 11  # fewer of wide vectors, because their Gram matrix is smaller
CHUNK = 1 << 14  # vectors that are widened at once: 96 MiB at 768 dimensions; whole blocks
WIDEST = 1 << 16  # numbers of a vector: the float32 bound is 0.004 there, and useless far beyond


class CodeBounds(NamedTuple):
    """Upper bounds on properties of the codes of a set of vectors."""

    leak: float  # maximum length of the coordinates of a residual along the directions, 0 in exact arithmetic
    length: float  # maximum Euclidean length of a code


def unit_vectors(values: np.ndarray) -> np.ndarray:
    """Return the rows scaled to length 1, in float32; -0.0 becomes 0.0, so that equal vectors have equal bytes.

    `values` are numbers[n, d], of which no row is all zero.
    """
    out = np.empty(values.shape, np.float32)
    for first in range(0, len(values), CHUNK):
        block = slice(first, first + CHUNK)
        wide = values[block].astype(np.float64)
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        out[block] = wide
        out[block] += np.float32(0)
    return out


def off_unit(width: int) -> float:
    """Bound how far the length of a row of `unit_vectors` is from 1.

    A row of `width` = d numbers meets d + 3 roundings, one of them to float32.
    """
    computed = gamma(width + 3, FLOAT64)
    return computed + rounding(1.0 + computed, width, FLOAT32)


def principal_directions(vectors: np.ndarray) -> np.ndarray:
    """Return the leading eigenvectors of the second moments of unit vectors, float32[n, d], as columns: float32[d, m].

    m is at most WIDTH - 1, n and d. Any directions give correct answers; these leave the shortest residuals.
    """
    n, width = vectors.shape
    sample = vectors[np.linspace(0, n - 1, min(SAMPLE if width <= WIDE else FEW, n)).astype(np.int64)]
    sample = sample.astype(np.float64)
    if len(sample) >= width:
        return np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, : WIDTH - 1].astype(np.float32)
    leading = np.linalg.eigh(sample @ sample.T)[1][:, ::-1][:, : WIDTH - 1]
    return np.linalg.qr(sample.T @ leading)[0].astype(np.float32)


def make_codes(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, CodeBounds]:
    """Return the codes of unit vectors, float32[n, d], as float32[n, m + 1], and their `CodeBounds`.

    A code has the coordinates along the directions, the columns of `basis`, float32[d, m], and the length of the
    residual, rounded up.
    """
    codes = np.empty((len(vectors), basis.shape[1] + 1), np.float32)
    measured = [CodeBounds(0.0, 0.0)]
    for first in range(0, len(vectors), CHUNK):
        codes[first : first + CHUNK], measurement = _codes_of(vectors[first : first + CHUNK], basis)
        measured.append(measurement)
    return codes, CodeBounds(*map(max, zip(*measured, strict=True)))


def pack_codes(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, CodeBounds]:
    """Return the codes of `make_codes` in blocks of BLOCK vectors, float32[C, m + 1, BLOCK], padded with zeros.

    The second result is their `CodeBounds`.
    """
    packed = np.zeros((-(-len(vectors) // BLOCK), basis.shape[1] + 1, BLOCK), np.float32)
    measured = [CodeBounds(0.0, 0.0)]
    for first in range(0, len(vectors), CHUNK):
        codes, measurement = _codes_of(vectors[first : first + CHUNK], basis)
        measured.append(measurement)
        n_whole = len(codes) // BLOCK * BLOCK
        block = first // BLOCK
        packed[block : block + n_whole // BLOCK] = codes[:n_whole].reshape(-1, BLOCK, codes.shape[1]).transpose(0, 2, 1)
        if n_whole < len(codes):
            packed[-1, :, : len(codes) - n_whole] = codes[n_whole:].T
    return packed, CodeBounds(*map(max, zip(*measured, strict=True)))


def _codes_of(vectors: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, CodeBounds]:
    """Return what `make_codes` does, for vectors that are few enough to be widened at once."""
    width, n = basis.shape
    wide, wide_basis = vectors.astype(np.float64), basis.astype(np.float64)
    codes = np.empty((len(vectors), n + 1), np.float32)
    codes[:, :n] = wide @ wide_basis
    residual = wide - codes[:, :n].astype(np.float64) @ wide_basis.T
    # Each number of the computed residual errs by gamma of (the vector's own + its share of basis and code). The
    # lengths of vector and code are below 1.01, that of the basis, all columns together, below 1.01 times root n.
    away = 1.1 * gamma(n + 2, FLOAT64) * (1.0 + math.sqrt(n))
    length = np.linalg.norm(residual, axis=1) * (1.0 + length_error(width)) + away
    codes[:, n] = np.nextafter(length.astype(np.float32), np.float32(np.inf))
    leak = np.linalg.norm(residual @ wide_basis, axis=1).max(initial=0.0)
    leak = leak * (1.0 + length_error(n)) + math.sqrt(n) * product_error(width, 1.1 * length.max(initial=0.0), FLOAT64)
    longest = np.linalg.norm(codes.astype(np.float64), axis=1).max(initial=0.0) * (1.0 + length_error(n + 1))
    return codes, CodeBounds(float(leak + 1.1 * away), float(longest))


def skew_of(basis: np.ndarray) -> float:
    """Return an upper bound on the norm of B'B - I: how far the columns of `basis`, B, are from orthonormal."""
    width, n = basis.shape
    wide = basis.astype(np.float64)
    skew = np.linalg.norm(wide.T @ wide - np.eye(n)) * (1.0 + length_error(n * n))
    return float(skew + n * product_error(width + 1, 1.1, FLOAT64))


def code_error(skew: float, corpus: CodeBounds, queries: CodeBounds) -> float:
    """Return an upper bound on the inner product of two vectors minus the exact product of their codes.

    The difference is at most p'(B'B - I)c + p'B's + c'B'r, with the basis B, coordinates p and c, and residuals r and
    s; see README.md. `skew` is that of `skew_of` for B; `corpus` and `queries` are the maxima of all their codes.
    """
    return skew * corpus.length * queries.length + queries.length * corpus.leak + corpus.length * queries.leak
