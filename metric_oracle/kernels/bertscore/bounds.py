"""Upper and lower bounds on precision and recall from short descriptions of a report's tokens. The README proves them.

Each token of the corpus is described by its *cell* (the nearest of M centres, and the angle to it) and by its *code* (a
vector of bytes in a space of fewer dimensions). An *item* is a document, or in a composite metric a document with a
number added to its score. Every bound holds for the score as computed in float64: it includes the margins for rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT32, FLOAT64, gamma, product_error
from metric_oracle.kernels._jit import inner, jit
from metric_oracle.kernels._simd import LANES, prefetch
from metric_oracle.kernels._simd_codes import SINE_ERROR, add_sines, make_bounds, mean_recall
from metric_oracle.kernels.bertscore.exact import length_of, mean_of_maxima
from metric_oracle.kernels.bertscore.query import Query, TokenCorpus, lanes_of
from metric_oracle.kernels.bertscore.score import MEAN, PRECISION, RECALL, f1, mean

STEPS = 255  # steps of an angle byte
STEP = np.pi / 360  # half a degree
UNIT = 1 << 14  # 1.0 in a table of cosines
# Limits of the proofs: dimensions of a state, tokens of a report.
WIDEST, LONGEST = 1 << 13, 1 << 14
# The terms of a bound by codes have absolute values of at most 1.002, 1.1, 1.1 and 0.1: products of unit vectors, with
# codes of 6 bits and more a side.
REACH = 4.0

TINY = 2.0**-48  # rounding of a score that is computed from precision and recall
_bounds = make_bounds()


class Margins(NamedTuple):
    """Maximum rounding error of each bound, for token states of one width."""

    rise: int  # steps of 1 / UNIT by which entries of a query's table of cosines are raised: more than their error
    error: float  # error of a float32 cosine of a centre and a query token, in those steps
    exact: float  # error of a score in float64, and of sums in float64
    cells: float  # error of a mean of sines or cosines with float32 weights, stored as float32
    code: float  # error of a mean of bounds by codes
    token: float  # what each token of the report adds to it and to `cells`
    below: float  # maximum of an entry of the table minus its cosine
    means: float  # error of products of mean states
    product: float  # error of means of float32 products of unit vectors


def margins_of(width, norm_error):
    """Return the margins for token states of `width` numbers whose lengths differ from 1 by at most `norm_error`."""
    # Centre and query token are rounded to float32, each component once; the last is for the entry's own arithmetic.
    error = (product_error(width, 1.001) + 4 * FLOAT32) * UNIT + 2.0**-8
    rise = math.ceil(error)
    exact = gamma(2 * width + 4 * LONGEST, FLOAT64)
    return Margins(
        rise=rise,
        error=error,
        exact=exact,
        # Two roundings of the weights move a mean within [-1, 1] by 4 of them, its storage by one more.
        cells=gamma(8) + SINE_ERROR + exact,
        code=REACH * gamma(24) + exact,
        token=REACH * gamma(LONGEST + 24) / (LONGEST + 24),
        below=(rise + 1 + error) / UNIT,
        means=gamma(16) + exact,
        # Rounding the query's states to float32 moves a cosine by one step; weights are not rounded.
        product=norm_error + product_error(width, 1.0 + norm_error) * (1.0 + norm_error) + gamma(4) + exact,
    )


class Ranking(NamedTuple):
    """The ranking of the documents of a corpus for one query, by one of the scores."""

    part: int  # the score that ranks: PRECISION, RECALL, F1 or MEAN
    corpus: TokenCorpus
    query: Query
    margins: Margins


class Tables(NamedTuple):
    """Look-up tables from cosines, stored as integers in steps of 1 / UNIT, to angles."""

    down: np.ndarray  # uint8[2 UNIT / 4 + 1], angle in steps, rounded down; the index is (UNIT + cosine) / 4
    ends: np.ndarray  # float32[2 UNIT + 1, 2], pi / 2 minus the angle, rounded up and down; the index is UNIT + cosine


def angle_tables(margins):
    """Return the look-up tables from cosines to angles, for these `Margins`."""
    entries = np.arange(-UNIT, UNIT + 1.0)
    # The last entry stands for any greater one too.
    high = np.where(entries < UNIT, np.clip((entries - margins.rise + margins.error) / UNIT, -1.0, 1.0), 1.0)
    low = np.clip((entries - margins.rise - 1 - margins.error) / UNIT, -1.0, 1.0)
    # Far above the rounding errors of an angle in float32 and float64.
    ends = np.stack([np.arcsin(high) + 1e-6, np.arcsin(low) - 1e-6], axis=1).astype(np.float32)
    # A ten-thousandth of a step is far above its rounding error in float64.
    steps = np.arccos(np.append(high[3::4], 1.0)) / STEP
    down = np.clip(np.floor(steps - 1e-4), 0, STEPS).astype(np.uint8)
    return Tables(down, ends)


@inner
def part_of(part, precision, recall):
    """Return precision, recall, F1 or their mean, as `part` says; from bounds on precision and recall a bound on it."""
    if part == PRECISION:
        return precision
    if part == RECALL:
        return recall
    if part == MEAN:
        return mean(precision, recall)
    return f1(precision, recall)


@inner
def bound_of(part, precision, recall, offset):
    """Return an upper bound on a score plus `offset`, from upper bounds on precision and recall.

    `part` says which score it is. The sign of precision + recall must be certain; see `cascade.is_sure`.
    """
    value = part_of(part, precision, recall)
    return value + offset + TINY * (abs(value) + abs(offset))


@jit
def fill_tables(cosines, first_cell, rise, work, tables):
    """Write, into `work`, the cosines of one query's tokens with the centres of some cells, and their angles.

    `cosines` is float32[M, n] for n tokens and the centres of M cells from `first_cell` on; `rise` is that of
    `Margins`, `tables` a `Tables`.
    """
    n_cells, n = cosines.shape
    passes = (n + LANES - 1) // LANES
    for i in range(n_cells):
        m = first_cell + i
        best = np.int32(-UNIT)
        for p in range(passes):
            first = p * LANES
            lanes = lanes_of(n, p)
            at = m * lanes
            for lane in range(min(LANES, n - first)):
                value = np.int32(cosines[i, first + lane] * np.float32(UNIT) + np.float32(1.0 + rise + UNIT)) - UNIT
                value = max(value, np.int32(-UNIT))
                inside = min(value, np.int32(UNIT))
                best = max(best, inside)
                work.table[p, at + lane] = value
                work.angle[p, at + lane] = tables.down[(inside + UNIT) >> 2]
            for lane in range(min(LANES, n - first), lanes):
                work.table[p, at + lane] = 0
                work.angle[p, at + lane] = STEPS
        work.ends[m, 0] = tables.ends[best + UNIT, 0]
        work.ends[m, 1] = tables.ends[best + UNIT, 1]


@inner
def _add_cells(u, begin, n_tokens, corpus, work):
    """Write to `work.means` the weighted sums of upper and lower bounds on each token's best cosine, by cells.

    The tokens are `n_tokens` of document u, from its token `begin` on.
    """
    first = corpus.ptr[u] + begin
    add_sines(
        work.ends.ctypes.data,
        corpus.cell.ctypes.data + 2 * first,
        corpus.radius.ctypes.data + first,
        corpus.weights.ctypes.data + 4 * first,
        n_tokens,
        work.means.ctypes.data,
    )


@jit
def bound_precisions(documents, corpus, work, margins):
    """Write upper and lower bounds on the precision of documents, by the cells of their tokens.

    `work.upper` and `work.lower`, float32[I], get those of `documents`, int[I], ascending. Those of a document whose
    tokens have no weight are 0 and 2.
    """
    for i in range(len(documents)):
        u = np.int64(documents[i])
        if i > 0 and documents[i - 1] == u:
            work.upper[i] = work.upper[i - 1]
            work.lower[i] = work.lower[i - 1]
            continue
        n_tokens = length_of(u, corpus)
        _add_cells(u, 0, n_tokens, corpus, work)
        total = np.float64(corpus.document_weight[u])
        margin = margins.cells + margins.token * n_tokens
        # Without any weight the precision is 0 by definition, and so is F1, whatever the sign of the recall.
        work.upper[i] = work.means[0] / total + margin if total > 0 else 0.0
        work.lower[i] = work.means[1] / total - margin if total > 0 else 2.0


@inner
def _mix_recall(u, begin, ranking, work):
    """Bound the recall of document u from above, by the codes of its first `begin` tokens and the cells of the rest.

    `work.column` holds the bounds by codes, for which the margin `code` must be added to the result.
    """
    corpus, coded, margins = ranking.corpus, ranking.query.coded, ranking.margins
    first = corpus.ptr[u] + begin
    n_tokens = corpus.ptr[u + 1] - first
    cell, radius = corpus.cell.ctypes.data + 2 * first, corpus.radius.ctypes.data + first
    n = len(coded.weights)
    recall = margins.cells + margins.token * n
    for p in range((n + LANES - 1) // LANES):
        angle, column, share = work.angle[p].ctypes.data, work.column[p].ctypes.data, coded.shares[p].ctypes.data
        recall += mean_recall(lanes_of(n, p), angle, cell, radius, n_tokens, column, share)
    return recall


@inner
def bound_recall(u, ranking, work):
    """Return an upper bound on the recall of document u, from the cells of its tokens."""
    work.column[:] = -1e30
    return _mix_recall(u, 0, ranking, work)


@inner
def bound_means(u, ranking):
    """Return a lower bound on the recall of document u from mean states, because a maximum is at least a mean."""
    corpus, scalars = ranking.corpus, ranking.query.coded.scalars
    along = np.float64(scalars[2]) * corpus.mean_along[u]
    return along - np.float64(scalars[3]) * corpus.mean_off[u] - ranking.margins.means


@inner
def _run_codes(u, begin, n_tokens, from_above, ranking, work):
    """Write the maxima of the bounds by codes for `n_tokens` tokens of document u from `begin` on, both ways.

    Those of the document's tokens are written to `work.row`; those of the query's to `work.column`, which is reset
    where `begin` is 0. They are upper bounds with `from_above`, else lower ones.
    """
    corpus, coded = ranking.corpus, ranking.query.coded
    heads = coded.lanes if from_above else coded.lanes_below
    slack = coded.scalars[1] if from_above else -coded.scalars[1]
    first = corpus.ptr[u] + begin
    n_steps = corpus.codes.shape[1] // 4
    codes = corpus.codes.ctypes.data + 4 * n_steps * first
    cell = corpus.cell.ctypes.data + 2 * first
    terms = corpus.terms.ctypes.data + 20 * first
    weights = corpus.weights.ctypes.data + 4 * first
    unit = coded.scalars[0]
    row = work.row.ctypes.data
    if begin == 0:
        work.column[:] = -1e30
    n = len(coded.weights)
    for p in range((n + LANES - 1) // LANES):
        q = coded.codes[p].ctypes.data
        head = heads[p].ctypes.data
        table = work.table[p].ctypes.data
        column = work.column[p].ctypes.data
        fresh = 1 if p == 0 else 0
        used = lanes_of(n, p)
        _bounds(used, q, n_steps, head, unit, slack, table, codes, cell, terms, weights, n_tokens, fresh, row, column)


@inner
def prefetch_codes(u, chunk, corpus):
    """Prefetch codes and weights of the first chunk of document u, and the cells of all its tokens.

    The processor cannot predict which document is read next. `chunk` is that of `Coded`.
    """
    first = corpus.ptr[u]
    n_tokens = corpus.ptr[u + 1] - first
    n_read = min(n_tokens, chunk)
    width = corpus.codes.shape[1]
    prefetch(corpus.codes.ctypes.data + width * first, width * n_read)
    prefetch(corpus.terms.ctypes.data + 20 * first, 20 * n_read)
    prefetch(corpus.weights.ctypes.data + 4 * first, 4 * n_read)
    prefetch(corpus.cell.ctypes.data + 2 * first, 2 * n_tokens)
    prefetch(corpus.radius.ctypes.data + first, n_tokens)


class Known(NamedTuple):
    """What is known of an item before its codes are read."""

    precision: float  # upper bound on its precision, by cells
    recall: float  # upper bound on its recall, by cells; any number if the score is the precision
    offset: float  # number that is added to the item's score
    threshold: float  # the item may be dropped if its score plus offset is below this
    # all tokens are read at once, because it is not certain that the score rises with precision and recall
    is_whole: bool


@inner
def bound_by_codes(u, known, ranking, work):
    """Return upper bounds on precision and recall of document u by the codes of its tokens, read chunk after chunk.

    Tokens that are not yet read are bounded by their cells. If the bounds suffice after a chunk, other than the last,
    to drop the item, reading ends, and both bounds are minus infinity. The third and fourth result are the least of
    these mixed bounds on precision and on recall, infinity if there are none. `known` is a `Known`; `work` has scratch
    arrays.
    """
    part, corpus, margins, coded = ranking.part, ranking.corpus, ranking.margins, ranking.query.coded
    n_tokens = length_of(u, corpus)
    weight = np.float64(corpus.document_weight[u])
    margin = margins.code + margins.token * n_tokens
    by_codes = by_cells = 0.0
    mixed_precision = mixed_recall = np.inf
    chunk = n_tokens if known.is_whole else coded.chunk
    begin = 0
    while begin < n_tokens:
        n_some = min(chunk, n_tokens - begin)
        _run_codes(u, begin, n_some, True, ranking, work)
        by_codes += work.row[0]
        if begin + n_some < n_tokens and weight > 0:
            _add_cells(u, begin, n_some, corpus, work)
            by_cells += work.means[0]
            mixed = known.precision + (by_codes - by_cells) / weight + 2.0 * (margin + margins.cells)
            mixed_precision = min(mixed_precision, mixed)
            precision = min(mixed, known.precision)
            if bound_of(part, precision, known.recall, known.offset) < known.threshold:
                return -np.inf, -np.inf, mixed_precision, mixed_recall
            if part != PRECISION:
                mixed = _mix_recall(u, begin + n_some, ranking, work) + margins.code
                mixed_recall = min(mixed_recall, mixed)
                if bound_of(part, precision, min(mixed, known.recall), known.offset) < known.threshold:
                    return -np.inf, -np.inf, mixed_precision, mixed_recall
        begin += n_some
    precision = by_codes / weight + margin if weight > 0 else 0.0
    return precision, mean_of_maxima(coded.weights, work.column) + margins.code, mixed_precision, mixed_recall


@inner
def bound_codes_below(u, ranking, work):
    """Return lower bounds on precision and recall of document u, from the codes of its tokens.

    The terms of the upper bound are subtracted instead of added. The loop adds |B'e| (see `codec.py`), which is small.
    It is subtracted twice afterwards: from each token for precision, and the greatest one for recall. Without any
    weight the bound on the precision is 2, as in `bound_precisions`.
    """
    corpus, margins = ranking.corpus, ranking.margins
    first = corpus.ptr[u]
    n_tokens = length_of(u, corpus)
    _run_codes(u, 0, n_tokens, False, ranking, work)
    weight = np.float64(corpus.document_weight[u])
    most = 0.0
    total = np.float64(work.row[0])
    for t in range(n_tokens):
        less = 2.0 * corpus.terms[first + t, 3]
        most = max(most, less)
        total -= corpus.weights[first + t] * less
    less = margins.below * 1.001 + margins.code
    precision = total / weight - less - margins.token * n_tokens if weight > 0 else 2.0
    return precision, mean_of_maxima(ranking.query.weights, work.column) - most - less
