"""Cosine search: products of short codes bound every cosine; the remaining documents are scored in float64.

A thread searches for a block of up to QUERIES queries, one tile (run of blocks of documents) after another. Its memory
is that of one tile, whatever the size of the corpus; only documents that are listed take more. In parameters, `screen`
is a `Screen`, `one` a `OneQuery`, and `workspace` a `Workspace`.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma, product_error, sample_size
from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels._simd import dot, make_products, prefetch
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.cosine.codes import BLOCK, CHUNK, CodeBounds, code_error, off_unit
from metric_oracle.kernels.cosine.score import cosine
from metric_oracle.kernels.topk.cpu import Best, begin, best_of, expand, insert, new_bests, threshold

QUERIES = 32  # of a group, which share one pass over the codes
TILE = 64  # blocks of codes, and of their products, that stay in the cache
WAITING = 1 << 10  # candidates of a query that are scored at once, greatest bounds first
AT_ONCE = 16  # documents that are prefetched together
STAGES = ("codes", "float32", "scored")
PAIRS = 1 << 18  # one more document is scored as a check for so many pairs of a query and a document
CELLS = 1 << 23  # float64 scores that `score_all` makes at once: 64 MiB
LEAST_AT_ONCE, MOST_AT_ONCE = 8, 128  # queries that share the widening of all vectors

_products = make_products(BLOCK // 16)


def _not_unit(width: int) -> float:
    """Bound the error |c - x'y| of a computed cosine c of two vectors whose float32 unit vectors are x and y.

    They have `width` = d numbers. The lengths are 1 within `off_unit`; 2 d + 4 roundings make the score, four more
    compare it with a bound.
    """
    return (1.0 + off_unit(width)) ** 2 - 1.0 + gamma(2 * width + 8, FLOAT64)


def screen_error(width: int) -> float:
    """Bound how far a float32 product of unit vectors of `width` numbers, in any order, is from the float64 cosine."""
    return product_error(width, (1.0 + off_unit(width)) ** 2) + _not_unit(width)


def screen_errors(corpus, queries):
    """Return how far products of codes, and float32 products, may lie below the exact scores: float64[2].

    Both are `UnitVectors`.
    """
    skew, *measured = corpus.measured.tolist()
    of_corpus, of_queries = CodeBounds(*measured), CodeBounds(*queries.measured[1:].tolist())
    n = corpus.codes.shape[1]
    width = corpus.vectors.shape[1]
    of_codes = code_error(skew, of_corpus, of_queries) + product_error(n, of_corpus.length * of_queries.length)
    return np.array([of_codes + _not_unit(width), screen_error(width)])


class UnitVectors(NamedTuple):
    """Distinct vectors of a corpus or of queries."""

    vectors: np.ndarray  # float32[D, d], unit vectors
    # of a corpus float32[C, K, BLOCK], codes of blocks of documents, the last padded with zeros, see `pack_codes`; of
    # queries float32[Q, K], see `make_codes`
    codes: np.ndarray
    # float64[3], skew of the codes' directions (see `skew_of`), and the two numbers of `CodeBounds`
    measured: np.ndarray
    row_ptr: np.ndarray  # int64[D + 1], offset of the rows of each document in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows or queries, ascending within a document


class Screen(NamedTuple):
    """What the queries of a search have in common."""

    corpus: UnitVectors
    error: np.ndarray  # float64[2], see `screen_errors`
    n_sampled: int  # dropped documents that are scored as a check for each query; see `PAIRS`
    k: int  # number of rows to list


class OneQuery(NamedTuple):
    """One query of a block, and the best documents for it so far."""

    q: int  # its number
    i: int  # its place in the block
    vector: np.ndarray  # float32[d], unit vector
    code: np.ndarray  # float32[K], see `make_codes`
    best: Best


class Workspace(NamedTuple):
    """Scratch arrays of one thread, for T blocks of documents (a tile), a block of queries, and W waiting documents."""

    bounds: np.ndarray  # float32[QUERIES, T, BLOCK], products of codes of queries and documents
    greatest: np.ndarray  # float32[T, QUERIES], maximum of each block of documents
    most: np.ndarray  # float32[QUERIES], maximum of the tile
    top: np.ndarray  # float32[QUERIES], maximum of all tiles so far
    least: np.ndarray  # float64[QUERIES], score of the k-th best row so far
    document: np.ndarray  # int64[QUERIES, W + BLOCK], documents that wait to be scored
    bound: np.ndarray  # float32[QUERIES, W + BLOCK], their products of codes
    n_waiting: np.ndarray  # int64[QUERIES], number of waiting documents
    dropped: np.ndarray  # int64[QUERIES, 2], number of documents that float32 products dropped, and one of them
    counts: np.ndarray  # int64[3], number of all pairs, of those multiplied in float32, and of those scored in float64
    # float64[2], minimum of bound - score, for bounds by codes and by float32 products; negative: a broken bound
    closest: np.ndarray
    missed: np.ndarray  # int64[1], number of dropped documents that belong in the result


def new_workspace(n_documents: int, tile: int = TILE, waiting: int = WAITING) -> tuple[Workspace, Best]:
    """Allocate the scratch arrays of one thread, and the best documents of all queries, whose memory grows with use.

    `tile` is the number of blocks of documents that are multiplied at once, `waiting` the number of documents of a
    query that are scored at once.
    """
    workspace = Workspace(
        np.empty((QUERIES, tile, BLOCK), np.float32),
        np.empty((tile, QUERIES), np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES, np.float32),
        np.empty(QUERIES),
        np.empty((QUERIES, waiting + BLOCK), np.int64),
        np.empty((QUERIES, waiting + BLOCK), np.float32),
        np.empty(QUERIES, np.int64),
        np.empty((QUERIES, 2), np.int64),
        np.zeros(3, np.int64),
        np.full(2, np.inf),
        np.zeros(1, np.int64),
    )
    return workspace, new_bests(QUERIES, n_documents)


@jit
def exact_cosine(document, query, vectors):
    """Return the cosine of ``vectors[document]`` and a query, float32[d], with the bits of the reference."""
    total = 0.0
    square_a = 0.0
    square_b = 0.0
    for j in range(len(query)):
        x = np.float64(vectors[document, j])
        y = np.float64(query[j])
        total += x * y
        square_a += x * x
        square_b += y * y
    return cosine(total, square_a, square_b)


@jit
def score_documents(documents, query, vectors, out):
    """Write the exact cosines of `query`, float32[d], and of ``vectors[documents]``, float32[n, d], into `out`."""
    for i in range(len(documents)):
        out[i] = exact_cosine(documents[i], query, vectors)


@jit
def multiply_codes(codes, queries, bounds, greatest):
    """Multiply the codes of blocks of documents, float32[C, K, BLOCK], with those of queries, float32[Q, K].

    The products are written to the first queries and blocks of `bounds`, float32[>= Q, >= C, BLOCK], and the maximum of
    each block to those of `greatest`, float32[>= C, >= Q].
    """
    stride = 4 * BLOCK * bounds.shape[1]
    for c in range(len(codes)):
        _products(
            codes[c].ctypes.data,
            codes.shape[1],
            queries.ctypes.data,
            len(queries),
            bounds[0, c].ctypes.data,
            stride,
            greatest[c].ctypes.data,
        )


@jit
def search_cosine(screen, queries, codes, first, scratch, answers):
    """Write the k best rows for the queries of one block into their lists of `answers`.

    No document of the result is lost: a document is dropped only if k rows score higher than its bound, and the k-th
    best score never falls. The counts, closest calls and missed documents of the workspace are raised or lowered.

    Parameters
    ----------
    screen : Screen
    queries : float32[Q, d], Q <= QUERIES
    codes : float32[Q, K]
    first : int
        Number of the first query.
    scratch : (Workspace, Best)
        What `new_workspace` returned.
    answers : Answers
    """
    corpus, error = screen.corpus, screen.error
    workspace, bests = scratch
    workspace.counts[0] += len(queries) * len(corpus.vectors)
    for i in range(len(queries)):
        begin(best_of(bests, i), answers, first + i)
        workspace.n_waiting[i] = 0
        workspace.top[i] = -np.inf
        workspace.least[i] = answers.limit[first + i]
        workspace.dropped[i] = 0
    most, least = workspace.most, workspace.least
    n_blocks = workspace.bounds.shape[1]
    for block in range(0, len(corpus.codes), n_blocks):
        tile = corpus.codes[block : block + n_blocks]
        multiply_codes(tile, codes, workspace.bounds, workspace.greatest)
        _greatest_of_all(workspace.greatest[: len(tile)], most)
        for i in range(len(queries)):
            if most[i] + error[0] >= least[i]:
                one = OneQuery(first + i, i, queries[i], codes[i], best_of(bests, i))
                _screen_tile(one, block, len(tile), screen, workspace)
    for i in range(len(queries)):
        one = OneQuery(first + i, i, queries[i], codes[i], best_of(bests, i))
        _score_waiting(one, screen, workspace)
        _check_dropped(one, screen, workspace)
        expand(one.best, corpus.row_ptr, corpus.row_id, screen.k, answers, one.q)


@inner
def _greatest_of_all(greatest, most):
    """Write, for each query, the maximum of the products of codes over all blocks of a tile into `most`.

    `greatest` has the maximum of each block.
    """
    for i in range(len(most)):
        most[i] = greatest[0, i]
    for c in range(1, len(greatest)):
        for i in range(len(most)):
            most[i] = max(most[i], greatest[c, i])


@inner
def _screen_tile(one, begin, n_blocks, screen, workspace):
    """Queue the documents of a tile whose bounds reach the k-th best score of a query; score the queue when it is full.

    The tile consists of `n_blocks` blocks of documents from block `begin` on.
    """
    i, error = one.i, screen.error
    greatest, least = workspace.greatest[:n_blocks, i], workspace.least
    first = -1
    if workspace.most[i] > workspace.top[i]:  # the block raises the threshold, which excludes most others
        workspace.top[i] = workspace.most[i]
        first = _place_of_greatest(greatest)
        _let_wait(one, first, begin, screen, workspace)
        _score_waiting(one, screen, workspace)
    for c in range(n_blocks):
        if greatest[c] + error[0] >= least[i] and c != first:
            _let_wait(one, c, begin, screen, workspace)
            if workspace.n_waiting[i] > workspace.document.shape[1] - BLOCK:
                _score_waiting(one, screen, workspace)


@inner
def _let_wait(one, c, begin, screen, workspace):
    """Append to the queue of a query the documents of block c of the tile whose bounds reach the k-th best score.

    `begin` is the first block of the tile.
    """
    i, error = one.i, screen.error
    bounds, document, bound = workspace.bounds[i, c], workspace.document[i], workspace.bound[i]
    n = workspace.n_waiting[i]
    first = (begin + c) * BLOCK
    least = workspace.least[i]
    for j in range(min(BLOCK, len(screen.corpus.vectors) - first)):
        if bounds[j] + error[0] >= least:
            document[n] = first + j
            bound[n] = bounds[j]
            n += 1
    workspace.n_waiting[i] = n


@inner
def _score_waiting(one, screen, workspace):
    """Score the queued documents of a query whose bounds still reach the k-th best score, and empty the queue.

    The document with the greatest bound comes first, because its score may drop others.
    """
    i, error = one.i, screen.error
    n = workspace.n_waiting[i]
    workspace.n_waiting[i] = 0
    if n == 0:
        return
    bound, document, least = workspace.bound[i], workspace.document[i], workspace.least
    address = screen.corpus.vectors.ctypes.data
    size = 4 * len(one.vector)
    first = _place_of_greatest(bound[:n])
    _score(one, document[first], bound[first], screen, workspace)
    document[first], bound[first] = document[0], bound[0]
    p = 1
    while p < n:
        # Prefetched documents move to the front, where the earlier ones are done.
        n_left = 0
        while p < n and n_left < AT_ONCE:
            if bound[p] + error[0] >= least[i]:
                document[n_left], bound[n_left] = document[p], bound[p]
                prefetch(address + size * document[p], size)
                n_left += 1
            p += 1
        for s in range(n_left):
            _score(one, document[s], bound[s], screen, workspace)


@inner
def _score(one, document, bound, screen, workspace):
    """Compute the float32 product of a query and a document; insert the exact score into `best` unless it is too low.

    It is too low if the product plus its error is below ``workspace.least[i]``, which is raised to the k-th best score.
    `bound`, the product of their codes, only enters the closest call. The pair is counted in `workspace`.
    """
    i, query, corpus, error = one.i, one.vector, screen.corpus, screen.error
    workspace.counts[1] += 1
    product = dot(corpus.vectors.ctypes.data + 4 * len(query) * document, query.ctypes.data, len(query))
    if product + error[1] < workspace.least[i]:
        workspace.dropped[i, 0] += 1
        if workspace.dropped[i, 0] == 1 or _random(document) % 8 == 0:
            workspace.dropped[i, 1] = document
        return
    workspace.counts[2] += 1
    exact = exact_cosine(document, query, corpus.vectors)
    _compare(bound, product, exact, error, workspace.closest)
    insert(document, exact, corpus.row_ptr, screen.k, one.best)
    workspace.least[i] = threshold(one.best, screen.k)


@jit
def _check_dropped(one, screen, workspace):
    """Check a query: score random documents, and compare the scores with their bounds.

    `Screen.n_sampled` documents are scored, and one more for every `PAIRS` pairs. The number of the query is the seed.
    The least bound minus score goes into `workspace.closest`. A document that was dropped and does not score below the
    k-th best is counted in `workspace.missed`. One document that a float32 product dropped is added.
    """
    q, i, query, code, best = one
    corpus, error = screen.corpus, screen.error
    n_documents = len(corpus.vectors)
    n = (q + 1) * n_documents // PAIRS - q * n_documents // PAIRS + screen.n_sampled
    least = workspace.least[i]
    for s in range(n):
        document = _random(q * (PAIRS + 1) + s) % n_documents
        bound = _multiply_code(corpus.codes, document, code)
        product = dot(corpus.vectors.ctypes.data + 4 * len(query) * document, query.ctypes.data, len(query))
        exact = exact_cosine(document, query, corpus.vectors)
        _compare(bound, product, exact, error, workspace.closest)
        if exact >= least and not _is_kept(document, best):
            workspace.missed[0] += 1
    if n > 0 and workspace.dropped[i, 0] > 0 and exact_cosine(workspace.dropped[i, 1], query, corpus.vectors) >= least:
        workspace.missed[0] += 1


@inner
def _compare(bound, product, exact, error, closest):
    """Lower the minima of bound - score in `closest` to those of one document, by its code and its float32 product.

    A bound is `bound` or `product` plus its entry in `error`, which `screen_errors` returns; `exact` is the score.
    """
    closest[0] = min(closest[0], bound + error[0] - exact)
    closest[1] = min(closest[1], product + error[1] - exact)


@inner
def _multiply_code(codes, document, code):
    """Return the product of a document's code, in `codes`, with `code`, that of a query."""
    total = np.float32(0)
    for j in range(len(code)):
        total += codes[document // BLOCK, j, document % BLOCK] * code[j]
    return total


@jit
def _random(seed):
    """Return a pseudo-random number from 0 to 2**63 - 1."""
    x = (np.uint64(seed) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64((x ^ (x >> np.uint64(32))) >> np.uint64(1))


@inner
def _is_kept(document, best):
    """Return whether a document is among the best documents so far."""
    for i in range(best.state[0]):  # noqa: SIM110 - numba compiles no generator expressions
        if best.document[i] == document:
            return True
    return False


@inner
def _place_of_greatest(values):
    """Return the first index of the greatest of the values, of which there is at least one."""
    place = 0
    for i in range(1, len(values)):
        if values[i] > values[place]:
            place = i
    return place


@dataclass(frozen=True)
class Backend(Kernel):
    """Cosine of embeddings on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, queries_at_once=MOST_AT_ONCE)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`.

        Raise ExactnessError if a bound is below an exact score, or a document that was dropped belongs in a list.
        """
        screen = Screen(corpus, screen_errors(corpus, batch), sample_size(len(batch.vectors)), k)
        for q in queries[::QUERIES]:
            block = slice(q, min(q + QUERIES, queries.stop))
            search_cosine(screen, batch.vectors[block], batch.codes[block], q, workspace, answers)
        check_bounds(_closest([workspace]), int(workspace[0].missed[0]))

    def stages(self, workspaces):
        """Return the shares of pairs that each stage dropped and that were scored, and each least bound - score."""
        counts = sum((workspace.counts for workspace, _ in workspaces), np.zeros(3, np.int64))
        total, multiplied, scored = counts.tolist()
        shares = zip(STAGES, (total - multiplied, multiplied - scored, scored), strict=True)
        return {**{name: n / max(total, 1) for name, n in shares}, "closest_call": _closest(workspaces)}

    def score_all(self, corpus, batch, chosen):
        """Yield the cosines of all documents with each of the chosen queries, within `score_error`: float64[D]."""
        vectors = corpus.vectors
        size = min(max(CELLS // max(len(vectors), 1), LEAST_AT_ONCE), MOST_AT_ONCE)
        for place in range(0, len(chosen), size):
            wide = batch.vectors[chosen[place : place + size]].astype(np.float64)
            wide /= np.linalg.norm(wide, axis=1, keepdims=True)
            out = np.empty((len(wide), len(vectors)))
            for first in range(0, len(vectors), CHUNK):
                block = vectors[first : first + CHUNK].astype(np.float64)
                np.divide(wide @ block.T, np.linalg.norm(block, axis=1), out=out[:, first : first + CHUNK])
            yield from out

    def score_error(self, corpus, batch):
        """Return an upper bound on the absolute error of `score_all`.

        Two lengths of d + 1 roundings, two divisions and a product of d terms in float64; 2 d + 4 roundings of the
        reference.
        """
        return gamma(5 * corpus.vectors.shape[1] + 8, FLOAT64)

    def counts(self, corpus, batch, query, document, known=None):
        """Return the exact cosines of pairs of a distinct query and a document, float64[n]: nothing is counted."""
        if known is not None:
            return known
        pairs = zip(query, document, strict=True)
        return np.array([exact_cosine(d, batch.vectors[q], corpus.vectors) for q, d in pairs], np.float64)

    def scores(self, counts):
        """Return the cosines of pairs."""
        return counts

    def new_workspace(self, corpus):
        """Allocate the scratch arrays of one thread."""
        return new_workspace(len(corpus.vectors))


def _closest(workspaces):
    """Return, for each stage, the minimum of bound - score over all exactly scored pairs of all threads.

    `workspaces` are pairs, of which the first is a workspace. Stages without a scored pair are left out.
    """
    least = np.min(np.reshape([workspace.closest for workspace, _ in workspaces], (-1, 2)), axis=0, initial=np.inf)
    return {name: float(x) for name, x in zip(STAGES, least, strict=False) if x < np.inf}
