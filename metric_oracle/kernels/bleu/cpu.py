"""BLEU search on CPUs: bounds from shared bigrams and unigrams, for the search function of `_overlap_search.py`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._overlap import SLACK, Features, count_marked, features_of
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels._pairs import score_of
from metric_oracle.kernels.bleu.score import bleu, brevity, geometric_mean, precision
from metric_oracle.kernels.topk.cpu import threshold

RUN = 16  # neighbouring length buckets that a first bound drops together


class BleuForm(NamedTuple):
    """The options of BLEU, see `_overlap_search.py` and `_pairs.py`."""

    order: int  # maximum order of n-grams, 1 to 4
    coco: bool  # compute pycocoevalcap's form instead of fast_bleu's, see `score.py`


class Reference(NamedTuple):
    """What a bound on the BLEU of any document with one query is computed from."""

    order: int  # as in `BleuForm`
    coco: bool  # as in `BleuForm`
    unigrams: int  # number of unigrams of the query that occur in the corpus
    length: int | np.integer  # number of words of the query
    penalty: np.ndarray  # float64[length + 1], brevity penalty of each candidate length; longer candidates have none


class Bleu(NamedTuple):
    """The scorer (see `_overlap_search.py`): BLEU of documents against one query, counting bigrams, or unigrams."""

    # family n - 1 holds the n-grams of order n
    index: Features  # type: ignore[assignment]
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length, see `SetCorpus`
    query: Reference
    size: int | np.integer  # number of words of the query
    family: int  # 1 or 2: the order of the n-grams that are counted
    mark: np.ndarray  # uint8[V], query bitmap: 1 for the n-grams of the query


@compiled_for(driver.scorer_of, BleuForm)
def _(form, found, corpus, batch, q):
    mark, sizes = found
    order, length = form.order, np.int64(sizes[0])
    penalty = np.zeros(length + 1)
    for i in range(1, length + 1):
        penalty[i] = brevity(i, length, form.coco)
    every, unigrams = features_of(batch.queries, q, 0, order), features_of(batch.queries, q, 0, 1)
    bigrams = features_of(batch.queries, q, 1, min(order, 2))  # none for BLEU-1
    query = Reference(order, form.coco, len(unigrams), length, penalty)
    scorer = Bleu(corpus.features, corpus.buckets, query, length, min(order, 2), mark)
    return scorer, (every, unigrams, bigrams)


@inner
def _bound(query, m1, m2, length, longest):
    """Return an upper bound on BLEU of a document of `length` words with m1 clipped unigram and m2 bigram matches.

    The brevity penalty is that of `longest` words. An n-gram of order 3 or 4 that matches contains a bigram that
    matches, so m2 also bounds the matches of these orders.
    """
    m1 = min(m1, length)
    if m1 <= 0:
        return 0.0
    m2 = max(min(m2, length - 1), 0)
    m3, m4 = max(min(m2, length - 2), 0), max(min(m2, length - 3), 0)
    value = geometric_mean(m1, m2, m3, m4, length, query.order, query.coco)
    return value * query.penalty[longest] if longest < len(query.penalty) else value


@compiled_for(bound, Bleu)
def _(scorer, j, a, b):
    length = scorer.buckets[j, 2]
    if scorer.family == 2:
        return _bound(scorer.query, scorer.query.unigrams, a, length, length)
    return _bound(scorer.query, a, 0, length, length)  # without a bigram, or of order 1


@inner
def _score(d, j, order, coco, reference_length, index, buckets, mark):
    """Return BLEU of document d, which lies in bucket j, with the query whose n-grams are marked in `mark`.

    All documents of a bucket have one length; the other parameters are fields of `Reference` and of `Bleu`.
    """
    first, length = buckets[j, 0], buckets[j, 2]
    begin = index.fwd_ptr[first] + (d - first) * (index.fwd_ptr[first + 1] - index.fwd_ptr[first])
    end = begin + length
    m1 = count_marked(index.fwd_id, begin, end, mark)
    m2 = m3 = m4 = 0
    if order > 1:
        begin, end = end, end + max(length - 1, 0)
        m2 = count_marked(index.fwd_id, begin, end, mark)
    if order > 2:
        begin, end = end, end + max(length - 2, 0)
        m3 = count_marked(index.fwd_id, begin, end, mark)
    if order > 3:
        begin, end = end, end + max(length - 3, 0)
        m4 = count_marked(index.fwd_id, begin, end, mark)
    return bleu(m1, m2, m3, m4, length, reference_length, order, coco)


@compiled_for(driver.score, Bleu)
def _(scorer, d, j):
    query = scorer.query
    return _score(d, j, query.order, query.coco, query.length, scorer.index, scorer.buckets, scorer.mark)


@inner
def _is_reachable(scorer, k, work):
    """Return whether any document that shares unigrams but no bigram with the query can reach the threshold.

    The lengths of the buckets ascend, and with them the precisions fall and the penalty rises: the precisions of the
    first and the penalty of the last bucket of a run bound the whole run.
    """
    query, buckets = scorer.query, scorer.buckets
    theta = max(threshold(work.best, k), 0.0)
    for first in range(0, len(buckets), RUN):
        end = min(first + RUN, len(buckets))
        if _bound(query, query.unigrams, 0, max(buckets[first, 2], 1), buckets[end - 1, 2]) < theta * SLACK:
            continue
        for j in range(first, end):
            most = _bound(query, query.unigrams, 0, buckets[j, 2], buckets[j, 2])
            if most > 0.0 and most >= theta * SLACK:
                return True
    return False


@compiled_for(driver.find, Bleu)
def _(scorer, of_orders, k, work):
    every, unigrams, bigrams = of_orders
    index, most = scorer.index, scorer.family
    # Beyond order 1 first the documents that share a bigram with the query, then the others, if any can reach a list.
    for family in range(most, 0, -1):
        if family < most and not _is_reachable(scorer, k, work):
            break
        met = work.counts[1] if family < most else work.counts[1, :0]
        ids = driver.rarest_first(bigrams if family == 2 else unigrams, index.post_ptr)
        of_family = Bleu(index, scorer.buckets, scorer.query, scorer.size, family, scorer.mark)
        driver.find_by_family(of_family, family - 1, met, ids, k, work)
        if family == 1:
            work.counts[0] = 0
    if most == 2:
        work.counts[1] = 0
    of_most = bigrams if most == 2 else unigrams
    return driver.Shared(every, of_most, of_most[:0])


@jit
def _write_components(coco, counts, parts):
    """Write the precisions of each order and the brevity penalty of pairs into `parts`, float64[order + 1, n].

    `coco` is as in `Reference`, and `counts` is what `Backend.counts` returns. Values without a match or a word stay.
    """
    for i in range(counts.shape[1]):
        if counts[0, i] > 0:
            for n in range(len(parts) - 1):
                parts[n, i] = precision(counts[3 * n, i], counts[3 * n + 1, i], coco)
        if counts[1, i] > 0:
            parts[-1, i] = brevity(counts[1, i], counts[2, i], coco)


@compiled_for(score_of, BleuForm)
def _(form, counts):
    # counts of each order: matches, n-grams of the candidate and of the reference
    m2 = counts[3] if form.order > 1 else 0
    m3 = counts[6] if form.order > 2 else 0
    m4 = counts[9] if form.order > 3 else 0
    return bleu(counts[0], m2, m3, m4, counts[1], counts[2], form.order, form.coco)


@dataclass(frozen=True)
class Backend(driver.SetKernel):
    """BLEU on CPUs."""

    order: int  # maximum order of n-grams, 1 to 4
    coco: bool  # compute pycocoevalcap's form instead of fast_bleu's, see `score.py`

    @property
    def form(self):
        """Return the options for which the search is compiled."""
        return BleuForm(self.order, self.coco)

    @property
    def families(self):
        """Return the range of the families of n-grams that are compared: its first family, and its end."""
        return 0, self.order

    def components(self, counts):
        """Return the precisions and the brevity penalty of pairs by name: float64[n] each."""
        parts = np.zeros((self.order + 1, counts.shape[1]))
        _write_components(self.coco, counts, parts)
        names = [*(f"precision_{n}" for n in range(1, self.order + 1)), "brevity_penalty"]
        return dict(zip(names, parts, strict=True))
