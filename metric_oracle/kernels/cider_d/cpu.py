"""CIDEr-D search on CPUs: lists of rare n-grams are read first, the others bounded by Cauchy and Schwarz.

For one order let x be the weights of the query's n-grams and y those of a document. When the posting lists of some
n-grams were read, a document's sum over them is known, and the sum over the others is at most |x over the others| |y|.
Divided by |x| |y| this depends on the query alone: the *remainder*. A document that was in no list read so far scores
at most the remainder times the penalty for its length; any other document at most its sum so far plus the remainder.

The sums so far are float32, of positive terms: the factor `slack` covers the rounding of n terms and their factors. The
penalty for length falls below every normal number if texts differ by 226 words; `LOST` covers the underflow of products
with it. In parameters, `total` is the array of the sums so far, `buckets` the length buckets (runs of documents of
equal length), and `theta` the threshold, the score of the k-th best row so far.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._errors import FLOAT64, underflow
from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._overlap import ROWS, Features, postings
from metric_oracle.kernels._overlap_counts import count_at_least, largest
from metric_oracle.kernels._pairs import begin_query, count_pairs, count_run, end_query, score_of
from metric_oracle.kernels._sort import order_of
from metric_oracle.kernels.cider_d.score import ORDERS, cider_d, length_penalty, similarity, split
from metric_oracle.kernels.topk.cpu import insert, threshold

# Tuned on synthetic impressions; any values give the same answers.
SCORE_COST = 300  # postings that take as long to read as one document takes to score
FIRST_START = 2000  # postings read before the first document is scored
START_GROWTH = 4
LOST = underflow(5, FLOAT64)  # two products of a score, three of a bound


class WeightedCorpus(NamedTuple):
    """Arrays of a corpus for a search under CIDEr-D."""

    features: Features  # family n - 1 holds the n-grams of order n, of each document in text order
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length, ascending
    squares: np.ndarray  # float64[4, D], squared length of each document's vector of weights, by order
    inverse: np.ndarray  # float32[4, D], one over that length, 0 if the length is 0

    row_ptr, row_id = ROWS  # type: ignore[misc]


class WeightedBatch(NamedTuple):
    """Arrays of Q distinct queries with G distinct n-grams in all."""

    # int64[Q + 1], offset of each query's n-grams: those that occur in the corpus, with a weight other than 0
    ptr: np.ndarray
    # int64[G + 1], offset in `id` of each n-gram's features (its first, second, ... occurrence in a text)
    gram_ptr: np.ndarray
    id: np.ndarray  # int32[...], feature ids
    order: np.ndarray  # int64[G], order of each n-gram minus 1: 0 to 3
    weight: np.ndarray  # float64[G], what a match of a feature adds to the sum of its order
    mass: np.ndarray  # float64[G], the n-gram's share of the squared length of the query's weights of its order
    squares: np.ndarray  # float64[Q, 4], squared length of the query's weights of each order
    lengths: np.ndarray  # int64[Q], number of words
    slack: np.ndarray  # float64[Q], factor of each bound, slightly above 1, that covers rounding


class Weights(NamedTuple):
    """Scratch arrays of one thread."""

    mark: np.ndarray  # uint8[V], query bitmap: 1 for the features of the query; 0 between queries
    weight: np.ndarray  # float64[V], weights of the features that are marked in the query bitmap
    total: np.ndarray  # float32[D], sum of the similarities of a document so far; -inf for documents that were scored


class ReadingOrder(NamedTuple):
    """The n-grams of a query in the order in which their posting lists are read."""

    gram: np.ndarray  # int64[n], indices of the n-grams in the batch
    factor: np.ndarray  # float32[n], weight of the n-gram divided by the length of the query's weights of that order
    # float64[n + 1], `remainder[i]` is the most that the n-grams from i on add to the sum of a document's similarities
    remainder: np.ndarray


class CiderForm(NamedTuple):
    """Says that a search or counts of pairs are those of CIDEr-D, see `_overlap_search.py` and `_pairs.py`."""


class CiderD(NamedTuple):
    """The scorer (see `_overlap_search.py`): CIDEr-D of documents against one query."""

    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length, ascending
    inverse: np.ndarray  # float32[4, D], as in `WeightedCorpus`
    batch: WeightedBatch
    reading: ReadingOrder
    slack: float  # that of `WeightedBatch`
    total: np.ndarray  # float32[D], as in `Weights`
    squares: np.ndarray  # float64[4, D], as in `WeightedCorpus`
    reference_squares: np.ndarray  # float64[4], squared length of the query's weights of each order
    penalty: np.ndarray  # float64[C], factor for the length of the documents of each bucket
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the features of the query
    weight: np.ndarray  # float64[V], weight of each marked feature


@inner
def _similarity(index, squares, reference_squares, mark, weight, d, order, begin):
    """Return the similarity of document d and the query for one order, 0 to 3 for n-grams of 1 to 4 words.

    The document's features of this order begin at `begin` in the forward index; `squares` to `weight` are fields of
    `CiderD`.
    """
    sum1 = sum2 = sum3 = sum4 = 0.0
    for p in range(begin, begin + index.sizes[order, d]):
        v = index.fwd_id[p]
        if mark[v]:
            part1, part2, part3, part4 = split(weight[v])
            sum1, sum2, sum3, sum4 = sum1 + part1, sum2 + part2, sum3 + part3, sum4 + part4
    return similarity(sum1 + sum2 + sum3 + sum4, squares[order, d], reference_squares[order])


@jit
def _similarities(index, squares, reference_squares, mark, weight, d):
    """Return the four similarities of document d and the query, by order; the other parameters are as in `CiderD`."""
    begin = index.fwd_ptr[d]
    s1 = _similarity(index, squares, reference_squares, mark, weight, d, 0, begin)
    begin += index.sizes[0, d]
    s2 = _similarity(index, squares, reference_squares, mark, weight, d, 1, begin)
    begin += index.sizes[1, d]
    s3 = _similarity(index, squares, reference_squares, mark, weight, d, 2, begin)
    s4 = _similarity(index, squares, reference_squares, mark, weight, d, 3, begin + index.sizes[2, d])
    return s1, s2, s3, s4


@compiled_for(driver.score, CiderD)
def _(scorer, d, j):
    s1, s2, s3, s4 = _similarities(
        scorer.index, scorer.squares, scorer.reference_squares, scorer.mark, scorer.weight, d
    )
    return cider_d(s1, s2, s3, s4, scorer.penalty[j])


@jit
def _limit(penalty, similarities, slack):
    """Return an upper bound on the score of a document whose four similarities add up to at most `similarities`.

    `penalty` is the factor for its length, and `slack` that of `WeightedBatch`.
    """
    return 2.5 * penalty * min(4.0, similarities) * slack + LOST


@jit
def _least(theta, penalty, remainder, slack):
    """Return the least sum of similarities so far, rounded down, with which a document can reach theta; it is above 0.

    `penalty` is the factor for the document's length, `remainder` the most that the unread n-grams can add, and `slack`
    that of `WeightedBatch`.
    """
    if penalty <= 0.0:
        return np.float32(np.inf)
    least = np.float32(((theta - LOST) / (2.5 * penalty) / slack - remainder) * (1.0 - 2.0**-23))
    return max(least, np.float32(2.0**-126))


@inner
def _score_start(scorer, lo, hi, remainder, k, work):
    """Score the most promising document exactly, to get a threshold early, and insert it into `work.best`.

    It has the largest sum so far times its penalty for length, of the length buckets lo .. hi - 1. Nothing is done if
    no sum is above 0. `remainder` is the most that the unread n-grams can add to a sum.
    """
    buckets, total = scorer.buckets, scorer.total
    bucket, value = np.int64(-1), 0.0
    for j in range(lo, hi):
        v = scorer.penalty[j] * largest(total, buckets[j, 0], buckets[j, 1])
        if v > value:
            bucket, value = np.int64(j), v
    if bucket < 0:
        return
    top = largest(total, buckets[bucket, 0], buckets[bucket, 1])
    d = buckets[bucket, 0]
    while total[d] != top:
        d += 1
    _insert(scorer, d, bucket, remainder, driver.WARM_START, k, work)


@inner
def _insert(scorer, d, j, remainder, stage, k, work):
    """Score document d of bucket j, compare the score with its bound, and insert it if it is among the k best.

    `remainder` is the most that the unread n-grams can add to the sum so far, ``total[d]``, which becomes -inf; `stage`
    is an index into `STAGES`.
    """
    value = driver.score(scorer, d, j)
    limit = _limit(scorer.penalty[j], np.float64(scorer.total[d]) + remainder, scorer.slack)
    driver.note_bound(limit, value, stage, work.closest)
    work.n_pairs[0] += 1
    if value > 0.0:
        insert(d, value, scorer.index.row_ptr, k, work.best)
    scorer.total[d] = -np.inf


@jit
def order_grams(batch, q, index):
    """Return the n-grams of query q, by their `mass` per posting to read, greatest first, as a `ReadingOrder`.

    `index` holds the `Features` of the corpus, `batch` is a `WeightedBatch`.
    """
    first = batch.ptr[q]
    n = batch.ptr[q + 1] - first
    gain, left = np.empty(n), np.zeros(ORDERS)
    for i in range(n):
        n_postings = np.int64(0)
        for p in range(batch.gram_ptr[first + i], batch.gram_ptr[first + i + 1]):
            n_postings += index.post_ptr[batch.id[p] + 1] - index.post_ptr[batch.id[p]]
        gain[i] = -batch.mass[first + i] / n_postings
    gram = order_of(gain) + first
    factor, remainder = np.empty(n, np.float32), np.zeros(n + 1)
    for i in range(n - 1, -1, -1):  # summed from the end: nothing cancels
        g = gram[i]
        factor[i] = batch.weight[g] / np.sqrt(batch.squares[q, batch.order[g]])
        left[batch.order[g]] += batch.mass[g]
        for order in range(ORDERS):
            remainder[i] += min(np.sqrt(left[order]), 1.0)
    return ReadingOrder(gram, factor, remainder)


@inner
def _read(factor, of_order, index, begin, end, total):
    """Add the contribution of one feature to the sums, `total`, of the documents of ``index.post_unit[begin:end]``.

    It is `factor`, see `ReadingOrder`, times ``of_order[d]``, one over the length of the weights of that order.
    """
    for p in range(np.uint64(begin), np.uint64(end)):
        d = np.uint32(index.post_unit[p])
        total[d] += factor * of_order[d]


@inner
def _is_settled(scorer, lo, hi, remainder, theta, to_read):
    """Return whether to stop reading posting lists and to score the documents that are left.

    That is so if documents outside all lists read are out of reach, and if the others are cheaper to score than
    `to_read` postings are to read. lo .. hi - 1 are the buckets that are left, `theta` is the score to reach, and
    `remainder` is the most that the unread n-grams can add to a sum.
    """
    buckets, slack = scorer.buckets, scorer.slack
    n_passing = np.int64(0)
    for j in range(lo, hi):
        if _limit(scorer.penalty[j], remainder, slack) >= theta:
            return False
        least = _least(theta, scorer.penalty[j], remainder, slack)
        n_passing += count_at_least(scorer.total, buckets[j, 0], buckets[j, 1], least)
    return n_passing * SCORE_COST <= to_read


@inner
def _find_best(scorer, k, work):
    """Insert every document that may be listed and shares an n-gram with the query into `work.best`.

    Return the remainder and the first and end of the buckets that are left: no document of these scores more than its
    sum plus the remainder allow. The sum of each document's similarities over the n-grams that were read is left in
    ``scorer.total``, -inf if the document was scored.

    Exactness
    ---------
    A bucket leaves [lo, hi) when no document of its length can reach the threshold, which only rises. A document of the
    other buckets that occurs in a list is inserted unless its sum plus the remainder is too low; reading goes on until
    the remainder alone is too low, or no list is left.
    """
    index, buckets, total = scorer.index, scorer.buckets, scorer.total
    batch, reading, slack = scorer.batch, scorer.reading, scorer.slack
    n = len(reading.gram)
    lo, hi = 0, len(buckets)
    for d in range(len(total)):
        total[d] = np.float32(0.0)
    theta = 0.0
    i = n_read = np.int64(0)
    next_stop = np.int64(FIRST_START)
    while True:
        while i < n and n_read <= next_stop:
            g = reading.gram[i]
            for f in range(batch.gram_ptr[g], batch.gram_ptr[g + 1]):
                begin, end = postings(batch.id[f], buckets, lo, hi, index)
                _read(reading.factor[i], scorer.inverse[batch.order[g]], index, begin, end, total)
                n_read += end - begin
            i += 1
        _score_start(scorer, lo, hi, reading.remainder[i], k, work)
        theta = max(threshold(work.best, k), 0.0)
        while lo < hi and _limit(scorer.penalty[lo], 4.0, slack) < theta:
            lo += 1
        while lo < hi and _limit(scorer.penalty[hi - 1], 4.0, slack) < theta:
            hi -= 1
        if i == n or lo == hi:
            break
        next_stop = max(next_stop, n_read) * START_GROWTH
        if _is_settled(scorer, lo, hi, reading.remainder[i], theta, next_stop - n_read):
            break
    for j in range(lo, hi):
        least = _least(theta, scorer.penalty[j], reading.remainder[i], slack)
        if count_at_least(total, buckets[j, 0], buckets[j, 1], least) == 0:
            continue
        for d in range(buckets[j, 0], buckets[j, 1]):
            if total[d] >= least:
                _insert(scorer, d, j, reading.remainder[i], driver.FILTER, k, work)
                if threshold(work.best, k) > theta:
                    theta = threshold(work.best, k)
                    least = _least(theta, scorer.penalty[j], reading.remainder[i], slack)
    return reading.remainder[i], lo, hi


class Reached(NamedTuple):
    """What bounds the documents that a search did not score."""

    ids: np.ndarray  # int32[...], features of the query
    remainder: float  # the most that the unread n-grams can add to a sum
    lo: int  # first of the length buckets for which lists were read to the end
    hi: int  # and the bucket after the last one


@compiled_for(driver.find, CiderD)
def _(scorer, ids, k, work):
    remainder, lo, hi = _find_best(scorer, k, work)
    return Reached(ids, remainder, lo, hi)


@compiled_for(driver.limit_of, Reached)
def _(left, scorer, d, j):
    if scorer.total[d] < 0.0:  # it was scored
        return -1.0
    similarities = np.float64(scorer.total[d]) + left.remainder if left.lo <= j < left.hi else 4.0
    return _limit(scorer.penalty[j], similarities, scorer.slack)


@inner
def _mark_query(batch, q, mark, weight, value):
    """Write, for the features of query q, `value` (1 or 0) into the query bitmap `mark`, and weights into `weight`."""
    for g in range(batch.ptr[q], batch.ptr[q + 1]):
        for p in range(batch.gram_ptr[g], batch.gram_ptr[g + 1]):
            mark[batch.id[p]] = value
            weight[batch.id[p]] = batch.weight[g]


@jit
def _penalties(buckets, reference_length):
    """Return the penalty for the length of each bucket against a query of `reference_length` words: float64[C]."""
    out = np.empty(len(buckets))
    for j in range(len(buckets)):
        out[j] = length_penalty(buckets[j, 2], reference_length)
    return out


@compiled_for(driver.scorer_of, CiderForm)
def _(form, found, corpus, batch, q):
    space, squares, length = found
    index, buckets = corpus.features, corpus.buckets
    reading = order_grams(batch, q, index)
    ids = batch.id[batch.gram_ptr[batch.ptr[q]] : batch.gram_ptr[batch.ptr[q + 1]]]
    penalty = _penalties(buckets, length)
    scorer = CiderD(
        index,
        buckets,
        corpus.inverse,
        batch,
        reading,
        batch.slack[q],
        space.total,
        corpus.squares,
        squares,
        penalty,
        space.mark,
        space.weight,
    )
    return scorer, ids


@compiled_for(begin_query, Weights)
def _(space, batch, q):
    _mark_query(batch, q, space.mark, space.weight, np.uint8(1))
    return space, batch.squares[q], batch.lengths[q]


@compiled_for(count_run, Weights)
def _(space, found, corpus, documents, counts):
    _, squares, length = found
    index = corpus.features
    for i, d in enumerate(documents):
        s1, s2, s3, s4 = _similarities(index, corpus.squares, squares, space.mark, space.weight, d)
        counts[0, i], counts[1, i], counts[2, i], counts[3, i] = s1, s2, s3, s4
        counts[4, i] = length_penalty(np.int64(index.sizes[0, d]), length)


@compiled_for(end_query, Weights)
def _(space, batch, q):
    _mark_query(batch, q, space.mark, space.weight, np.uint8(0))


@compiled_for(score_of, CiderForm)
def _(form, counts):
    return cider_d(counts[0], counts[1], counts[2], counts[3], counts[4])


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """CIDEr-D on CPUs."""

    form = CiderForm()

    def new_space(self, corpus):
        """Allocate the scratch arrays that `begin_query` takes."""
        n_documents, n_features = len(corpus.features.fwd_ptr) - 1, len(corpus.features.post_ptr) - 1
        return Weights(np.zeros(n_features, np.uint8), np.zeros(n_features), np.empty(n_documents, np.float32))

    def counts(self, corpus, batch, query, document, known=None):
        """Return the similarities of the four orders and the penalty for length of pairs: float64[5, n]."""
        counts = np.empty((ORDERS + 1, len(query)))
        count_pairs(self.new_space(corpus), batch, corpus, query, document, counts)
        return counts

    def components(self, counts):
        """Return the four similarities by n-gram order and the length penalty of pairs by name: float64[n] each."""
        return {**{f"similarity_{n + 1}": counts[n] for n in range(ORDERS)}, "length_penalty": counts[ORDERS]}


@jit
def square_weights(index, gram, squared, out):
    """Write the squared length of each document's vector of weights, by order, into `out`, float64[4, D].

    `gram`, int32[V], has for each feature the first feature of its n-gram, where feature (g, t) is the t-th occurrence
    of n-gram g; `squared`, float64[V], has the squared weight of each n-gram, at its first feature.
    """
    times = np.zeros(len(gram), np.int32)
    for d in range(out.shape[1]):
        begin = index.fwd_ptr[d]
        for order in range(ORDERS):
            end = begin + index.sizes[order, d]
            for p in range(begin, end):
                times[gram[index.fwd_id[p]]] += 1
            sum1 = sum2 = sum3 = sum4 = 0.0
            for p in range(begin, end):
                g = gram[index.fwd_id[p]]
                part1, part2, part3, part4 = split(times[g] * squared[g])
                sum1, sum2, sum3, sum4 = sum1 + part1, sum2 + part2, sum3 + part3, sum4 + part4
            out[order, d] = sum1 + sum2 + sum3 + sum4
            for p in range(begin, end):
                times[gram[index.fwd_id[p]]] = 0
            begin = end
