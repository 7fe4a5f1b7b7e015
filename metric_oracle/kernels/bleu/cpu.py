"""BLEU search with Numba: prefix-filtered n-gram postings, exact scores, one thread a call."""

from dataclasses import dataclass

import numpy as np

from metric_oracle.kernels._jit import inlined, jit
from metric_oracle.kernels._overlap import (
    FIRST_SEED,
    FULL,
    MAX_SEEDS,
    SEED_GROWTH,
    SLACK,
    by_rarity,
    close_cells,
    contains,
    count_all,
    count_marked,
    deepen,
    matches,
    new_matched,
    new_scratch,
    next_at_least,
    outward,
    postings,
    promising,
    read,
    set_marks,
)
from metric_oracle.kernels.bleu.score import bleu, brevity, geometric_mean, precision
from metric_oracle.kernels.contract import Kernel
from metric_oracle.kernels.topk.cpu import expand, new_best, offer, reset, threshold


@jit
def _bound(m1, m2, length, penalty, order, coco):
    """Bound BLEU by its clipped unigram and bigram matches.

    A match of order n > 2 holds a match of order n - 1, so the bigram matches bound those of orders 3 and 4.
    `penalty` holds the brevity penalty of the lengths up to the reference's; longer candidates have none.
    """
    m1 = min(m1, length)
    if m1 <= 0:
        return 0.0
    m2 = max(min(m2, length - 1), 0)
    value = geometric_mean(m1, m2, max(min(m2, length - 2), 0), max(min(m2, length - 3), 0), length, order, coco)
    return value * penalty[length] if length < len(penalty) else value


@jit
def _raise_need(theta, family, known1, known, lengths, penalty, order, coco, need):
    """Raise, for each length, the least number of matches of the counted family with which a unit reaches theta.

    ``known + 1`` where no number does. Comparing counts with these integers drops most units.
    """
    limit = theta * SLACK
    for i in range(len(lengths)):
        while need[i] <= known:
            m1, m2 = (known1, need[i]) if family == 2 else (need[i], need[i] if order == 1 else 0)
            if _bound(m1, m2, lengths[i], penalty, order, coco) >= limit:
                break
            need[i] += 1


@jit
def _reachable(theta, known1, lengths, penalty, order, coco):
    """Return whether a unit that matches unigrams but no bigram can reach theta."""
    for i in range(len(lengths)):
        bound = _bound(known1, 0, lengths[i], penalty, order, coco)
        if bound > 0.0 and bound >= theta * SLACK:
            return True
    return False


@jit
def _pass(
    family, ids, known1, reference_length, lengths, penalty, order, coco, index, cells, k, scratch, best, need, stop
):
    """Score every unit that may enter the list and shares a bigram (family 2), or a unigram but no bigram (family 1).

    Lists are read from the rarest on. A unit of some length that was in none of the lists read so far can match only
    the lists to come; where those are fewer than the length needs, the length is closed and later lists are skipped.
    """
    count = scratch.counts[family - 1]
    known = len(ids)
    lo, hi = 0, len(cells)
    theta = threshold(best, k)
    need[:] = 0
    _raise_need(theta, family, known1, known, lengths, penalty, order, coco, need)
    n_read = np.int64(0)
    next_seed = np.int64(FIRST_SEED)
    seeds = np.full(MAX_SEEDS, -1, np.int64)
    n_seeds = 0
    for i in range(known + 1):
        if i == known or n_read + index.post_ptr[ids[i] + 1] - index.post_ptr[ids[i]] > next_seed:
            # Score the most promising unit, so that theta rises before the long lists are reached.
            u = promising(count, cells, lo, hi, reference_length)
            if u >= 0 and n_seeds < len(seeds):
                if not contains(seeds, u) and (family == 2 or order == 1 or scratch.counts[1, u] == 0):
                    _score_unit(u, order, coco, reference_length, index, k, scratch, best)
                seeds[n_seeds] = u
                n_seeds += 1
                count[u] = 0
                if threshold(best, k) > theta:
                    theta = threshold(best, k)
                    _raise_need(theta, family, known1, known, lengths, penalty, order, coco, need)
            next_seed = max(next_seed, n_read) * SEED_GROWTH
        lo, hi = close_cells(need, stop, known, i, lo, hi)
        if lo == hi or i == known:
            break
        begin, end = postings(ids[i], cells, lo, hi, index)
        read(begin, end, index, count, known > FULL)
        n_read += end - begin
    stop[lo:hi] = known
    nearest = np.empty(len(cells), np.int64)
    outward(lengths, reference_length, nearest)
    for j in nearest:
        if need[j] > known:
            continue
        least = deepen(j, ids, need, stop, cells, index, count)
        u = cells[j, 0]
        while need[j] <= known:
            u = next_at_least(count, u, cells[j, 1], min(max(need[j] - (known - stop[j]), least), FULL))
            if u == cells[j, 1]:
                break
            if not contains(seeds, u) and (family == 2 or order == 1 or scratch.counts[1, u] == 0):
                _score_unit(u, order, coco, reference_length, index, k, scratch, best)
                if threshold(best, k) > theta:
                    theta = threshold(best, k)
                    _raise_need(theta, family, known1, known, lengths, penalty, order, coco, need)
            u += 1
    for i in range(n_seeds):  # a later pass asks which units this one saw
        count[seeds[i]] = 1


@jit
def _score_unit(u, order, coco, reference_length, index, k, scratch, best):
    """Count the matches of a unit from its forward list and offer its score."""
    length = index.sizes[0, u]
    begin = index.fwd_ptr[u]
    end = begin + length
    m1 = count_marked(index.fwd_id, begin, end, scratch.mark)
    m2 = m3 = m4 = 0
    if order > 1:
        begin, end = end, end + index.sizes[1, u]
        m2 = count_marked(index.fwd_id, begin, end, scratch.mark)
    if order > 2:
        begin, end = end, end + index.sizes[2, u]
        m3 = count_marked(index.fwd_id, begin, end, scratch.mark)
    if order > 3:
        begin, end = end, end + index.sizes[3, u]
        m4 = count_marked(index.fwd_id, begin, end, scratch.mark)
    value = bleu(m1, m2, m3, m4, np.int64(length), reference_length, order, coco)
    if value > 0.0:
        offer(u, value, index.row_ptr, k, best)


@jit
def search_bleu(queries, first, last, order, coco, index, cells, k, scratch, best, rows, scores, ties):
    """Find the k best rows of the corpus, as candidates, for the queries (references) first .. last - 1.

    Parameters
    ----------
    queries : Queries
        Family n - 1 holds the n-grams of order n.
    first, last : int
        Block of queries.
    order : int
        1 to 4.
    coco : bool
        Which published form, see `score.py`.
    index : Features
        Units by ascending length.
    cells : int64[C, 8]
        Runs of units of equal length: first and end unit, then the length.
    k : int
    scratch, best : Scratch, Best
        Work space of this thread.

    Writes
    ------
    rows, scores, ties : int64[Q, k], float64[Q, k], int64[Q, k], rows first .. last - 1

    Exactness
    ---------
    Counts are integers; scores are `score.py` compiled; a unit is dropped only by a bound.

    Source
    ------
    Papineni et al., ACL 2002; BLEU-2 as in Yu et al., Patterns 2023.
    """
    n_families = queries.sizes.shape[1]
    lengths = cells[:, 2].copy()
    need = np.empty(len(cells), np.int64)
    stop = np.empty(len(cells), np.int64)
    for q in range(first, last):
        reset(best)
        reference_length = np.int64(queries.sizes[q, 0])
        base = q * n_families
        known1 = queries.ptr[base + 1] - queries.ptr[base]
        marked = queries.id[queries.ptr[base] : queries.ptr[base + order]]
        set_marks(marked, scratch.mark, 1)
        penalty = np.zeros(reference_length + 1)
        for length in range(1, reference_length + 1):
            penalty[length] = brevity(length, reference_length, coco)
        for family in range(min(order, 2), 0, -1):
            alone = family == 1 and order > 1  # units without a common bigram
            if alone and not _reachable(threshold(best, k), known1, lengths, penalty, order, coco):
                break
            ids = by_rarity(queries.id[queries.ptr[base + family - 1] : queries.ptr[base + family]], index.post_ptr)
            _pass(
                family, ids, known1, reference_length, lengths, penalty, order, coco, index, cells, k, scratch, best,
                need, stop,
            )  # fmt: skip
        scratch.counts[:] = 0
        set_marks(marked, scratch.mark, 0)
        expand(best, index.row_ptr, index.row_id, k, rows[q], scores[q], ties[q])


@inlined
def _score_counts(order, coco, reference_length, cells, matched, out):
    """Write the scores of all units from their matches; `order` is a constant, so that the loop is one of few steps."""
    for j in range(len(cells)):
        length = cells[j, 2]
        penalty = brevity(length, reference_length, coco) if length > 0 else 0.0
        for u in range(cells[j, 0], cells[j, 1]):
            m1 = np.int64(matched[0, u])
            m2 = np.int64(matched[1, u]) if order > 1 else 0
            m3 = np.int64(matched[2, u]) if order > 2 else 0
            m4 = np.int64(matched[3, u]) if order > 3 else 0
            # `bleu` with the penalty, an exponential, taken out of the loop: the same operations on the same numbers.
            # Computed without a test first: LLVM vectorises this form, roots and divisions too.
            value = penalty * geometric_mean(m1, m2, m3, m4, length, order, coco)
            out[u] = value if m1 > 0 else 0.0


@jit
def _score_all(queries, q, order, coco, index, cells, matched, out):
    for n in range(order):
        count_all(queries, q, n, index, matched[n])
    reference_length = np.int64(queries.sizes[q, 0])
    if order == 1:
        _score_counts(1, coco, reference_length, cells, matched, out)
    elif order == 2:
        _score_counts(2, coco, reference_length, cells, matched, out)
    elif order == 3:
        _score_counts(3, coco, reference_length, cells, matched, out)
    else:
        _score_counts(4, coco, reference_length, cells, matched, out)


@dataclass(frozen=True)
class Backend(Kernel):
    """BLEU on CPUs."""

    order: int
    coco: bool

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1; see :func:`search_bleu`."""
        search_bleu(
            batch.queries, first, last, self.order, self.coco, corpus.features, corpus.cells, k, *workspace,
            answers.rows, answers.scores, answers.ties,
        )  # fmt: skip

    def score_all(self, corpus, batch, chosen):
        """Yield BLEU of every unit against each of some distinct queries: float64[D], overwritten by the next."""
        out = np.empty(len(corpus.features.fwd_ptr) - 1)
        for q in chosen:
            matched = new_matched(batch.queries, q, self.order, corpus.features)
            _score_all(batch.queries, q, self.order, self.coco, corpus.features, corpus.cells, matched, out)
            yield out

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n], and their components."""
        counts = matches(corpus, batch, query, unit)
        lengths = zip(corpus.features.sizes[0, unit].tolist(), batch.queries.sizes[query, 0].tolist(), strict=True)
        pairs = zip(counts.T.tolist(), lengths, strict=True)
        scores = np.array([bleu(*matched, *both, self.order, self.coco) for matched, both in pairs])
        return scores, self.components(corpus, batch, query, unit, scores)

    def components(self, corpus, batch, query, unit, scores):
        """Return the precisions and the brevity penalty of pairs of a distinct query and a unit.

        Parameters
        ----------
        query, unit : int64[n]
        scores : float64[n]

        Returns
        -------
        dict of str to float64[n]
        """
        matched = matches(corpus, batch, query, unit)
        length = corpus.features.sizes[0, unit].astype(np.int64)
        reference_length = batch.queries.sizes[query, 0].astype(np.int64)
        parts = {}
        for n in range(1, self.order + 1):
            values = [
                precision(m, max(h - n + 1, 0), self.coco) if first else 0.0
                for m, h, first in zip(matched[n - 1].tolist(), length.tolist(), matched[0].tolist(), strict=True)
            ]
            parts[f"precision_{n}"] = np.array(values)
        pairs = zip(length.tolist(), reference_length.tolist(), strict=True)
        parts["brevity_penalty"] = np.array([brevity(h, r, self.coco) if h else 0.0 for h, r in pairs])
        return parts

    def new_workspace(self, corpus):
        """Allocate the work space of one thread."""
        return new_scratch(corpus.features), new_best(len(corpus.features.fwd_ptr) - 1)
