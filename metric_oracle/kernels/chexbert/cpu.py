"""CheXbert search: products of short codes bound every cosine, finalists are scored in float64 in index order."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._simd import LANES, dot, make_products, prefetch
from metric_oracle.kernels.chexbert.score import cosine
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.topk.cpu import Best, expand, insert, new_best, reset, threshold

RUN = LANES  # units whose codes lie together, each coordinate side by side
AT_ONCE = 16  # units, and more, that are asked of memory together
STAGES = ("codes", "float32", "scored")
CHUNK = 1 << 14  # vectors that are widened at once: 96 MiB at 768 dimensions
SCORED_AT_ONCE = 128  # queries that share the widening of all vectors

_products = make_products(RUN // 16)


class VectorCorpus(NamedTuple):
    """Distinct vectors of a corpus.

    Attributes
    ----------
    vectors : float32[D, d], unit vectors, or int8[D, 14], labels
    row_ptr, row_id : int64[D + 1], int64[...]
    codes : float32[C, K, RUN], of runs of units, zeros at the end
    code_error : float
        How far a product of codes may lie below the cosine because of the basis and both sides' codes.
    faiss_index : IndexFlatIP over `vectors`, for GPUs
    """

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    codes: np.ndarray | None = None
    code_error: float = 0.0
    faiss_index: Any = None


class VectorBatch(NamedTuple):
    """Distinct vectors of a batch of queries: float32[Q, d] or int8[Q, 14], and float32[Q, K] codes of the former."""

    vectors: np.ndarray
    codes: np.ndarray | None = None


def screen_error(width: int) -> float:
    """Bound the error of a float32 inner product of unit vectors of `width` dimensions, in any order of summation.

    gamma_n = n u / (1 - n u) with u = 2**-24 times the sum of the absolute products, at most the product of the lengths
    (Higham, Accuracy and Stability, section 3.1); the lengths are 1 within 2**-23 after rounding. The exact cosine
    divides by those lengths, hence the added 2**-21.
    """
    n_u = (width + 2) * 2.0**-24
    return n_u / (1.0 - n_u) * (1.0 + 2.0**-21) + 2.0**-21


@jit
def score_units(units, query, vectors, out):
    """Write the exact cosine of the query and each of the units.

    Parameters
    ----------
    units : int64[n]
    query : float32[d]
    vectors : float32[D, d]

    Writes
    ------
    out : float64[n]
    """
    for i in range(len(units)):
        u = units[i]
        total = 0.0
        square_a = 0.0
        square_b = 0.0
        for j in range(len(query)):
            x = np.float64(vectors[u, j])
            y = np.float64(query[j])
            total += x * y
            square_a += x * x
            square_b += y * y
        out[i] = cosine(total, square_a, square_b)


@jit
def _bound(codes, queries, bounds, greatest):
    """Multiply the codes of all units with those of some queries.

    Parameters
    ----------
    codes : float32[C, K, RUN]
    queries : float32[B, K]

    Writes
    ------
    bounds : float32[B, C, RUN]
    greatest : float32[C, B]
    """
    n_runs, n_steps, _ = codes.shape
    for c in range(n_runs):
        _products(
            codes[c].ctypes.data, n_steps, queries.ctypes.data, len(queries),
            bounds[0, c].ctypes.data, 4 * RUN * n_runs, greatest[c].ctypes.data,
        )  # fmt: skip


class Scratch(NamedTuple):
    """Room of one thread for :func:`_finish`; C runs."""

    run: np.ndarray  # int64[C], runs whose bounds reach far enough
    greatest: np.ndarray  # float32[C], their greatest bounds, negated
    unit: np.ndarray  # int64[AT_ONCE + RUN], units whose bounds do
    exact: np.ndarray  # float64[1]
    best: Best


@jit
def _finish(bounds, greatest, error, k, vectors, row_ptr, query, scratch):
    """Score units, runs with the greatest bounds first, until no bound reaches the k-th best row.

    Parameters
    ----------
    bounds : float32[C, RUN]
    greatest : float32[C]
    error : float64[2]
        How far bounds and float32 products may lie below cosines.

    Returns
    -------
    n_bound, n_multiplied, n_scored : int
        Units that were dropped by their bounds, by float32 products, and not at all.
    """
    reset(scratch.best)
    # The first run leaves most others out before they are put in order.
    first = np.argmax(greatest)
    scratch.run[0] = first
    n_left, n_scored = _score_runs(scratch.run[:1], bounds, greatest, error, k, vectors, row_ptr, query, scratch)
    least = threshold(scratch.best, k) - error[0]
    n = 0
    for c in range(len(greatest)):
        if greatest[c] >= least and c != first:
            scratch.run[n] = c
            scratch.greatest[n] = -greatest[c]
            n += 1
    order = scratch.run[:n][np.argsort(scratch.greatest[:n])]
    more = _score_runs(order, bounds, greatest, error, k, vectors, row_ptr, query, scratch)
    n_left, n_scored = n_left + more[0], n_scored + more[1]
    return len(vectors) - n_left, n_left - n_scored, n_scored


@jit
def _score_runs(order, bounds, greatest, error, k, vectors, row_ptr, query, scratch):
    """Score the units of some runs that may be among the best; return how many bounds and products did not drop."""
    n = n_left = n_scored = 0
    size = 4 * len(query)
    for c in order:
        least = threshold(scratch.best, k)
        if greatest[c] + error[0] < least:
            break
        for i in range(min(RUN, len(vectors) - c * RUN)):
            if bounds[c, i] + error[0] >= least:
                scratch.unit[n] = c * RUN + i
                prefetch(vectors.ctypes.data + size * scratch.unit[n], size)
                n += 1
        if n >= AT_ONCE:
            n_left += n
            n_scored += _score(scratch.unit[:n], error, k, vectors, row_ptr, query, scratch)
            n = 0
    return n_left + n, n_scored + _score(scratch.unit[:n], error, k, vectors, row_ptr, query, scratch)


@jit
def _score(units, error, k, vectors, row_ptr, query, scratch):
    """Score units by a float32 product, and in float64 where that may be among the best; return how many were."""
    n_scored = 0
    for i in range(len(units)):
        product = dot(vectors.ctypes.data + 4 * len(query) * units[i], query.ctypes.data, len(query))
        if product + error[1] >= threshold(scratch.best, k):
            score_units(units[i : i + 1], query, vectors, scratch.exact)
            insert(units[i], scratch.exact[0], row_ptr, k, scratch.best)
            n_scored += 1
    return n_scored


@dataclass(frozen=True)
class Backend(Kernel):
    """Cosine of embeddings on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, queries_at_once=SCORED_AT_ONCE)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
        n_runs, n_steps, _ = corpus.codes.shape
        n = last - first
        if not workspace:
            workspace["bounds"] = np.empty((n, n_runs, RUN), np.float32)  # no later block is larger
            workspace["scratch"] = Scratch(
                np.empty(n_runs, np.int64), np.empty(n_runs, np.float32), np.empty(AT_ONCE + RUN, np.int64),
                np.empty(1), new_best(len(corpus.vectors)),
            )  # fmt: skip
            workspace["counts"] = np.zeros(3, np.int64)
        error = 1.01 * (corpus.code_error + screen_error(n_steps))
        errors = np.array([error, screen_error(corpus.vectors.shape[1])])
        bounds, scratch = workspace["bounds"], workspace["scratch"]
        greatest = np.empty((n_runs, n), np.float32)
        _bound(corpus.codes, batch.codes[first:last], bounds, greatest)
        for i, (q, of_run) in enumerate(zip(range(first, last), np.ascontiguousarray(greatest.T), strict=True)):
            workspace["counts"] += _finish(
                bounds[i], of_run, errors, k, corpus.vectors, corpus.row_ptr, batch.vectors[q], scratch
            )
            expand(scratch.best, corpus.row_ptr, corpus.row_id, k, answers.rows[q], answers.scores[q], answers.ties[q])

    def stages(self, workspaces):
        """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
        counts = sum((workspace["counts"] for workspace in workspaces if workspace), np.zeros(3, np.int64))
        return {name: float(n / max(counts.sum(), 1)) for name, n in zip(STAGES, counts, strict=True)}

    def score_all(self, corpus, batch, chosen):
        """Yield the cosine of every unit with each of some distinct queries: float64[D], right within `all_error`."""
        wide = batch.vectors[chosen].astype(np.float64)
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
        n_units = len(corpus.vectors)
        out, lengths = np.empty((len(wide), n_units)), np.empty(n_units)
        for first in range(0, n_units, CHUNK):
            some = slice(first, first + CHUNK)
            vectors = corpus.vectors[some].astype(np.float64)
            np.matmul(wide, vectors.T, out=out[:, some])
            lengths[some] = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        for cosines in out:
            cosines /= lengths
            yield cosines

    def score_error(self, corpus, batch):
        """Bound the error of what :func:`score_all` yields.

        As for :func:`screen_error`, in float64; eight more roundings for lengths and divisions.
        """
        n_u = (corpus.vectors.shape[1] + 8) * 2.0**-53
        return n_u / (1.0 - n_u)

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n]; a cosine has no components."""
        scores = np.empty(len(query))
        for i, (q, u) in enumerate(zip(query, unit, strict=True)):
            score_units(np.array([u]), batch.vectors[q], corpus.vectors, scores[i : i + 1])
        return scores, {}

    def new_workspace(self, corpus):
        """Return room for the scratch of one thread, made at its first queries."""
        return {}
