"""One exact search over sets of features, for every metric that rises with the sizes of intersections.

A *policy*, a NamedTuple of arrays and numbers of one query, says what a metric is; the driver :func:`find_best` is
compiled once for each class of policies, with these functions in place:

    bound(policy, j, a, b)     the most that a document of length bucket j can score with at most a matches in the first
                               family counted and b in the second; it never falls as a or b rises
    score(policy, d, j)        the exact score of document d, which lies in bucket j
    is_excluded(policy, d)     whether d is none of this search's business

The matches that were read so far are counted for one family (:class:`OneFamily`) or for two (:class:`TwoFamilies`).

Why it is exact: a document that holds none of the features read so far can only match the features still unread. Once
the bound of that is below the threshold, the score of the k-th best row, no such document can be listed (the prefix
filter of exact set-similarity search: Chaudhuri et al., ICDE 2006; Bayardo et al., WWW 2007). Documents that were met
are dropped by the same bound with their own counts and sizes, or scored from the forward index.

A *length bucket* is a run of documents of equal sizes: documents are sorted by size, and a bound holds for a whole
bucket.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.errors import ExactnessError
from metric_oracle.kernels._jit import compiled_for, jit, jit_borrowing
from metric_oracle.kernels._overlap import FULL, SLACK, Features, lower_bound, postings
from metric_oracle.kernels.topk.cpu import Best, insert, new_best, threshold

ONE = 1 << 16  # fixed-point one: weighted counts stay within int32
# Tuned on 2,192 x 185,538 synthetic impressions; any values give the same answers.
SCORE_COST = 256  # postings that take as long to read as one document takes to score
FIRST_START = 1000  # postings read before the first document is scored
START_GROWTH = 8
MAX_STARTS = 16
BLOCK = 64  # one AVX-512 register of counts
# Where an exact score meets what would have dropped its document.
STAGES = ("warm start", "filter", "dropped")
WARM_START, FILTER, DROPPED = 0, 1, 2


class Workspace(NamedTuple):
    """Work space of one thread.

    Attributes
    ----------
    counts : uint8[2, D]
        Matches found so far in one or two families, saturated at `FULL`; all zero between queries.
    mark : uint8[V]
        Query bitmap: 1 for the features of the query; all zero between queries.
    best : Best
    started : int64[MAX_STARTS]
        Documents of the warm start.
    closest : float64[3]
        For each of `STAGES` the least ratio, so far, of what would have dropped a document to its exact score.
    n_pairs : int64[2]
        Pairs of a query and a document that were scored, and all.
    """

    counts: np.ndarray
    mark: np.ndarray
    best: Best
    started: np.ndarray
    closest: np.ndarray
    n_pairs: np.ndarray


class Visits(NamedTuple):
    """The buckets at the end of a search.

    Attributes
    ----------
    order : int64[C]
        In which they are visited; any order gives the same answers.
    stop : int64[C]
        Room for the number of lists that were read for each.
    """

    order: np.ndarray
    stop: np.ndarray


class OneFamily(NamedTuple):
    """Counts of one family.

    Attributes
    ----------
    count : uint8[D]
        A row of `Workspace.counts`.
    minimum : int64[C]
        Minimum overlap: the least number of matches with which a document of each bucket reaches the threshold,
        ``n_lists + 1`` where none does. Comparing counts with integers drops most documents.
    n_lists : int
    size : int
        Of the query; the warm start looks for many matches relative to the summed sizes.
    """

    count: np.ndarray
    minimum: np.ndarray
    n_lists: int
    size: int


class TwoFamilies(NamedTuple):
    """Counts of two families, whose lists are read in one order.

    Attributes
    ----------
    count : uint8[2, D]
    second : int
        First feature id of the second family.
    unread : int64[2, n_lists + 1]
        Lists of each family that are unread after the first i.
    hidden : int64[2]
        Matches beyond `FULL` that a saturated count may hide.
    weight : int32[2, C]
        What a match of each family adds to the score of a document of each bucket, at most, in 1 / ONE.
    """

    count: np.ndarray
    second: int
    unread: np.ndarray
    hidden: np.ndarray
    weight: np.ndarray


def new_workspace(features: Features) -> Workspace:
    """Allocate the work space of one thread for `features`."""
    n = len(features.fwd_ptr) - 1
    return Workspace(
        np.zeros((2, n), np.uint8), np.zeros(len(features.post_ptr) - 1, np.uint8), new_best(n),
        np.empty(MAX_STARTS, np.int64), np.full(len(STAGES), np.inf), np.zeros(2, np.int64),
    )  # fmt: skip


# ---- what a policy answers -------------------------------------------------------------------------------------------


def bound(policy: Any, j: int, a: int, b: int) -> float:
    """Return the most that a document of bucket j can score with a and b matches; see the head of the module."""
    raise NotImplementedError


def score(policy: Any, d: int, j: int) -> float:
    """Return the exact score of document d of bucket j."""
    raise NotImplementedError


def is_excluded(policy: Any, d: int) -> bool:
    """Return whether document d is not to be scored in this search."""
    raise NotImplementedError


# ---- vectorised passes over bytes ------------------------------------------------------------------------------------


@jit
def _read(begin, end, index, count, saturate):
    """Count one more match for the documents of ``post_unit[begin:end]``.

    A plain increment is three times as fast; only queries of more than `FULL` features can pass a byte's range and have
    to `saturate`. Unsigned indices spare a test for negative ones.
    """
    if saturate:
        for p in range(np.uint64(begin), np.uint64(end)):
            d = np.uint32(index.post_unit[p])
            c = count[d]
            count[d] = c + np.uint8(c < FULL)
    else:
        for p in range(np.uint64(begin), np.uint64(end)):
            count[np.uint32(index.post_unit[p])] += np.uint8(1)


@jit
def _count_at_least(count, begin, end, least):
    """Return how many documents of ``[begin, end)`` have a count of at least `least` (1 to 255)."""
    limit = np.uint8(least)
    n = np.int64(0)
    for d in range(np.uint64(begin), np.uint64(end)):  # vectorised
        n += count[d] >= limit
    return n


@jit
def _next_at_least(count, begin, end, least):
    """Return the first document of ``[begin, end)`` whose count is at least `least` (1 to 255), else `end`."""
    limit = np.uint8(least)
    while begin + BLOCK <= end:
        block = count[begin : begin + BLOCK]
        hit = np.uint8(0)
        for i in range(BLOCK):  # vectorised: one comparison for the whole block
            hit |= np.uint8(block[i] >= limit)
        if hit:
            break
        begin += BLOCK
    while begin < end and count[begin] < limit:
        begin += 1
    return begin


@jit
def _largest(count, begin, end):
    """Return the largest count of ``[begin, end)``."""
    top = np.uint8(0)
    for d in range(np.uint64(begin), np.uint64(end)):  # unsigned index and plain choice: LLVM vectorises this form
        c = count[d]
        top = c if c > top else top
    return top


@jit
def _count_weighted(count_a, count_b, begin, end, weight_a, weight_b, least):
    """Return how many documents of ``[begin, end)`` have a weighted count of at least `least`."""
    n = np.int64(0)
    for d in range(np.uint64(begin), np.uint64(end)):  # vectorised
        n += np.int32(count_a[d]) * weight_a + np.int32(count_b[d]) * weight_b >= least
    return n


@jit
def _next_weighted(count_a, count_b, begin, end, weight_a, weight_b, least):
    """Return the first document of ``[begin, end)`` whose weighted count is at least `least`, else `end`."""
    while begin + BLOCK <= end:
        block_a, block_b = count_a[begin : begin + BLOCK], count_b[begin : begin + BLOCK]
        hit = np.uint8(0)
        for i in range(BLOCK):  # vectorised
            hit |= np.uint8(np.int32(block_a[i]) * weight_a + np.int32(block_b[i]) * weight_b >= least)
        if hit:
            break
        begin += BLOCK
    while begin < end and np.int32(count_a[begin]) * weight_a + np.int32(count_b[begin]) * weight_b < least:
        begin += 1
    return begin


@jit
def _largest_weighted(count_a, count_b, begin, end, weight_a, weight_b):
    """Return the largest weighted count of ``[begin, end)``."""
    top = np.int32(0)
    for d in range(np.uint64(begin), np.uint64(end)):
        value = np.int32(count_a[d]) * weight_a + np.int32(count_b[d]) * weight_b
        top = value if value > top else top
    return top


@jit
def _most(count, n_lists, i):
    """Return the matches that a document with a count may have in all after i of the lists were read."""
    return np.int64(count) + n_lists - i if count < FULL else n_lists


@jit
def _best_ratio(count, buckets, lo, hi, query_size):
    """Return the document of the buckets [lo, hi) with the most matches for the summed sizes, and its bucket."""
    bucket, matched, size = np.int64(-1), np.int64(0), np.int64(1)
    for j in range(lo, hi):
        c = np.int64(_largest(count, buckets[j, 0], buckets[j, 1]))
        if c * size > matched * (buckets[j, 2] + query_size):
            bucket, matched, size = j, c, buckets[j, 2] + query_size
    if bucket < 0:
        return bucket, bucket
    return np.int64(_next_at_least(count, buckets[bucket, 0], buckets[bucket, 1], matched)), bucket


@jit
def _best_weighted(count_a, count_b, buckets, lo, hi, weight):
    """Return the document of the buckets [lo, hi) with the largest weighted count, and its bucket."""
    bucket, value = np.int64(-1), np.int32(0)
    for j in range(lo, hi):
        v = _largest_weighted(count_a, count_b, buckets[j, 0], buckets[j, 1], weight[0, j], weight[1, j])
        if v > value:
            bucket, value = j, v
    if bucket < 0:
        return bucket, bucket
    begin, end = buckets[bucket, 0], buckets[bucket, 1]
    d = _next_weighted(count_a, count_b, begin, end, weight[0, bucket], weight[1, bucket], value)
    return np.int64(d), bucket


# ---- counts of one family and of two ---------------------------------------------------------------------------------
# Each function once for either kind of counts. j is a bucket, i the number of lists that were read for it.


def _raise_minimum(counts, policy, theta):
    """Take notice of a higher threshold."""
    raise NotImplementedError


def _is_out_of_reach(counts, policy, j, i, theta):
    """Return whether no document of bucket j that lies in none of the first i lists can reach the threshold."""
    raise NotImplementedError


def _reach(counts, policy, d, j, i):
    """Return the bound of document d by its count."""
    raise NotImplementedError


def _bucket_weights(counts, j):
    """Return what makes up the weighted count of a document of bucket j."""
    raise NotImplementedError


def _filter_reach(counts, policy, d, j, i, of_bucket):
    """Return the bound by which :func:`_next_passing` lets document d pass."""
    raise NotImplementedError


def _least_passing(counts, j, i, of_bucket, theta):
    """Return the least weighted count, 1 at least, with which a document of bucket j may reach the threshold."""
    raise NotImplementedError


def _n_passing(counts, begin, end, of_bucket, least):
    """Return how many documents of ``[begin, end)`` have a weighted count of at least `least`."""
    raise NotImplementedError


def _next_passing(counts, begin, end, of_bucket, least):
    """Return the first document of ``[begin, end)`` whose weighted count is at least `least`, else `end`."""
    raise NotImplementedError


def _most_promising(counts, buckets, lo, hi):
    """Return the document of the buckets [lo, hi) with the best score by its count, and its bucket; -1 without any."""
    raise NotImplementedError


def _set_count(counts, d, value):
    """Set what was counted for a document."""
    raise NotImplementedError


def _read_postings(counts, feature, begin, end, index, saturate):
    """Count one more match for the documents of ``post_unit[begin:end]``, postings of a feature."""
    raise NotImplementedError


@compiled_for(_raise_minimum, OneFamily)
def _(counts, policy, theta):
    for j in range(len(counts.minimum)):
        while counts.minimum[j] <= counts.n_lists and bound(policy, j, counts.minimum[j], 0) < theta * SLACK:
            counts.minimum[j] += 1


@compiled_for(_raise_minimum, TwoFamilies)
def _(counts, policy, theta):
    pass


@compiled_for(_is_out_of_reach, OneFamily)
def _(counts, policy, j, i, theta):
    return counts.minimum[j] > counts.n_lists - i


@compiled_for(_is_out_of_reach, TwoFamilies)
def _(counts, policy, j, i, theta):
    return bound(policy, j, counts.unread[0, i], counts.unread[1, i]) < theta * SLACK


@compiled_for(_reach, OneFamily)
def _(counts, policy, d, j, i):
    return bound(policy, j, _most(counts.count[d], counts.n_lists, i), 0)


@compiled_for(_reach, TwoFamilies)
def _(counts, policy, d, j, i):
    a = counts.unread[0, i] + counts.hidden[0] + np.int64(counts.count[0, d])
    return bound(policy, j, a, counts.unread[1, i] + counts.hidden[1] + np.int64(counts.count[1, d]))


@compiled_for(_bucket_weights, OneFamily)
def _(counts, j):
    return np.int32(1), np.int32(0)


@compiled_for(_bucket_weights, TwoFamilies)
def _(counts, j):
    return counts.weight[0, j], counts.weight[1, j]


@compiled_for(_filter_reach, OneFamily)
def _(counts, policy, d, j, i, of_bucket):
    return _reach(counts, policy, d, j, i)


@compiled_for(_filter_reach, TwoFamilies)
def _(counts, policy, d, j, i, of_bucket):
    a = counts.unread[0, i] + counts.hidden[0] + np.int64(counts.count[0, d])
    b = counts.unread[1, i] + counts.hidden[1] + np.int64(counts.count[1, d])
    return (a * of_bucket[0] + b * of_bucket[1]) * (1.0 / ONE)


@compiled_for(_least_passing, OneFamily)
def _(counts, j, i, of_bucket, theta):
    return min(max(counts.minimum[j] - (counts.n_lists - i), 1), FULL)


@compiled_for(_least_passing, TwoFamilies)
def _(counts, j, i, of_bucket, theta):
    to_come = (counts.unread[0, i] + counts.hidden[0]) * of_bucket[0]
    to_come += (counts.unread[1, i] + counts.hidden[1]) * of_bucket[1]
    return np.int32(max(np.int64(theta * SLACK * ONE) - to_come, 1))


@compiled_for(_n_passing, OneFamily)
def _(counts, begin, end, of_bucket, least):
    return _count_at_least(counts.count, begin, end, least)


@compiled_for(_n_passing, TwoFamilies)
def _(counts, begin, end, of_bucket, least):
    return _count_weighted(counts.count[0], counts.count[1], begin, end, of_bucket[0], of_bucket[1], least)


@compiled_for(_next_passing, OneFamily)
def _(counts, begin, end, of_bucket, least):
    return _next_at_least(counts.count, begin, end, least)


@compiled_for(_next_passing, TwoFamilies)
def _(counts, begin, end, of_bucket, least):
    return _next_weighted(counts.count[0], counts.count[1], begin, end, of_bucket[0], of_bucket[1], least)


@compiled_for(_most_promising, OneFamily)
def _(counts, buckets, lo, hi):
    return _best_ratio(counts.count, buckets, lo, hi, counts.size)


@compiled_for(_most_promising, TwoFamilies)
def _(counts, buckets, lo, hi):
    return _best_weighted(counts.count[0], counts.count[1], buckets, lo, hi, counts.weight)


@compiled_for(_set_count, OneFamily)
def _(counts, d, value):
    counts.count[d] = value


@compiled_for(_set_count, TwoFamilies)
def _(counts, d, value):
    counts.count[0, d] = value
    counts.count[1, d] = value


@compiled_for(_read_postings, OneFamily)
def _(counts, feature, begin, end, index, saturate):
    _read(begin, end, index, counts.count, saturate)


@compiled_for(_read_postings, TwoFamilies)
def _(counts, feature, begin, end, index, saturate):
    _read(begin, end, index, counts.count[np.int64(feature >= counts.second)], saturate)


# ---- the driver ------------------------------------------------------------------------------------------------------


@jit
def by_size_difference(sizes, ascending, size, order):
    """Order the buckets by the difference of their size from `size`: those nearest hold the best documents.

    Parameters
    ----------
    sizes : int64[C]
    ascending : int64[C]
        Order in which `sizes` ascends.
    size : int

    Writes
    ------
    order : int64[C]
    """
    above = np.int64(0)
    while above < len(sizes) and sizes[ascending[above]] < size:
        above += 1
    below = above - 1
    for i in range(len(sizes)):
        if above == len(sizes) or (below >= 0 and size - sizes[ascending[below]] < sizes[ascending[above]] - size):
            order[i] = ascending[below]
            below -= 1
        else:
            order[i] = ascending[above]
            above += 1


@jit
def _contains(values, n, x):
    """Return whether x is among the first n values."""
    for i in range(n):  # noqa: SIM110 - numba compiles no generator expressions
        if values[i] == x:
            return True
    return False


@jit
def _compare(limit, value, stage, closest):
    """Note how near a score came to what would have dropped its document."""
    if limit < value * closest[stage]:
        closest[stage] = limit / value


@jit_borrowing
def find_best(policy, counts, ids, visits, index, buckets, k, work):
    """Insert every document that may be listed and shares a feature with the query.

    Parameters
    ----------
    policy : NamedTuple
        The metric and its query, see the head of the module.
    counts : OneFamily or TwoFamilies
        All zero before.
    ids : int32[n]
        Features of the query by :func:`metric_oracle.kernels._overlap.by_rarity`.
    visits : Visits
    index : Features
    buckets : int64[C, 8]
        First and end document, least and greatest size in the first family and in the second, first and end of the
        finest buckets.
    k : int
    work : Workspace

    Writes
    ------
    work.best, work.closest, work.n_pairs, the counts (`Workspace.counts` is not zero afterwards)

    Exactness
    ---------
    Invariant: a document that was not inserted so far scores below the threshold, or shares no feature with the query,
    or is excluded, or lies in a list that is still to be read for its bucket, or has a count above 0. The first loop
    keeps it, because a bucket leaves [lo, hi) only when its documents without a count are out of reach; the second
    loop ends the last case, bucket by bucket. The threshold only rises, so what once was below it stays there.
    """
    n_lists = len(ids)
    best = work.best
    theta = max(threshold(best, k), 0.0)
    _raise_minimum(counts, policy, theta)
    stop, started = visits.stop, work.started
    n_started = n_scored = 0
    n_read = np.int64(0)
    next_start = np.int64(FIRST_START)
    lo, hi = 0, len(buckets)
    for i in range(n_lists + 1):
        if i == n_lists or n_read + index.post_ptr[ids[i] + 1] - index.post_ptr[ids[i]] > next_start:
            # Warm start: score the most promising document, so that the threshold rises before the long lists.
            d, j = _most_promising(counts, buckets, lo, hi)
            if d >= 0 and n_started < MAX_STARTS:
                # Later lists may make a scored document the most promising one again.
                if not _contains(started, n_started, d) and not is_excluded(policy, d):
                    value = score(policy, d, j)
                    _compare(_reach(counts, policy, d, j, i), value, WARM_START, work.closest)
                    n_scored += 1
                    if value > 0.0:
                        insert(d, value, index.row_ptr, k, best)
                started[n_started] = d
                n_started += 1
                _set_count(counts, d, np.uint8(0))
                if threshold(best, k) > theta:
                    theta = threshold(best, k)
                    _raise_minimum(counts, policy, theta)
            next_start = max(next_start, n_read) * START_GROWTH
        # Early termination: where the unread lists are too few, documents without a count are out of reach.
        while lo < hi and _is_out_of_reach(counts, policy, lo, i, theta):
            stop[lo] = i
            lo += 1
        while lo < hi and _is_out_of_reach(counts, policy, hi - 1, i, theta):
            hi -= 1
            stop[hi] = i
        if lo == hi or i == n_lists:
            break
        begin, end = postings(ids[i], buckets, lo, hi, index)
        _read_postings(counts, ids[i], begin, end, index, n_lists > FULL)
        n_read += end - begin
    stop[lo:hi] = n_lists
    for j in visits.order:
        if _is_out_of_reach(counts, policy, j, 0, theta):
            continue
        first, last = buckets[j, 0], buckets[j, 1]
        of_bucket = _bucket_weights(counts, j)
        # Extend the traversal of lists for this bucket while that is cheaper than scoring what would be left.
        least = _least_passing(counts, j, stop[j], of_bucket, theta)
        while stop[j] < n_lists:
            begin, end = postings(ids[stop[j]], buckets, j, j + 1, index)
            if _n_passing(counts, first, last, of_bucket, least) * SCORE_COST <= end - begin:
                break
            _read_postings(counts, ids[stop[j]], begin, end, index, n_lists > FULL)
            stop[j] += 1
            least = _least_passing(counts, j, stop[j], of_bucket, theta)
        d = first
        while True:
            d = _next_passing(counts, d, last, of_bucket, least)
            if d == last:
                break
            if not _contains(started, n_started, d) and not is_excluded(policy, d):
                value = score(policy, d, j)
                _compare(_filter_reach(counts, policy, d, j, stop[j], of_bucket), value, FILTER, work.closest)
                n_scored += 1
                if value > 0.0:
                    insert(d, value, index.row_ptr, k, best)
                if threshold(best, k) > theta:
                    theta = threshold(best, k)
                    _raise_minimum(counts, policy, theta)
                    if _is_out_of_reach(counts, policy, j, 0, theta):
                        break
                    least = max(least, _least_passing(counts, j, stop[j], of_bucket, theta))
            d += 1
    for i in range(n_started):  # a later search may ask which documents this one met
        _set_count(counts, started[i], np.uint8(1))
    work.n_pairs[0] += n_scored


@jit_borrowing
def check_dropped(policy, q, ids, index, buckets, k, work):
    """Score a document that shares a feature with query q, and that was probably dropped, against the threshold.

    Parameters
    ----------
    policy : NamedTuple
    q : int
        Seed of the choice: a random feature of the query, a random document of its posting list.
    ids : int32[n]
        Features of the query, of all families.
    index, buckets, k, work : as for :func:`find_best`

    Writes
    ------
    work.closest[DROPPED], work.n_pairs
    """
    work.n_pairs[1] += len(index.fwd_ptr) - 1
    if len(ids) == 0:
        return
    # SplitMix64 (Steele et al., OOPSLA 2014)
    z = (np.uint64(q) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    v = ids[(z >> np.uint64(40)) % np.uint64(len(ids))]
    n_postings = index.post_ptr[v + 1] - index.post_ptr[v]
    d = np.int64(index.post_unit[index.post_ptr[v] + np.int64((z & np.uint64(0xFFFFFFFF)) % np.uint64(n_postings))])
    value = score(policy, d, lower_bound(buckets[:, 0], 0, len(buckets), d + 1) - 1)
    limit = max(threshold(work.best, k), 0.0)
    if limit < value * work.closest[DROPPED] and not _contains(work.best.unit, work.best.state[0], d):
        work.closest[DROPPED] = limit / value


# ---- what the checks found -------------------------------------------------------------------------------------------


def require_bounds(work: Workspace) -> None:
    """Raise unless every bound was kept wherever an exact score became known.

    Raises
    ------
    ExactnessError
        If a document scored above the bound that let it pass, or one that was dropped belongs in the list.
    """
    warm_start, passed, dropped = work.closest.tolist()
    for stage, ratio in zip(STAGES, (warm_start, passed), strict=False):
        if ratio < SLACK:
            msg = (
                f"search: the bound of a document must be at least its score; got {ratio:.12g} of it ({stage}). "
                "This is a defect: please report it with the index fingerprint."
            )
            raise ExactnessError(msg)
    if dropped <= 1.0:
        msg = (
            f"search: a dropped document must score below the last one listed; got {dropped:.12g} of its score there. "
            "This is a defect: please report it with the index fingerprint."
        )
        raise ExactnessError(msg)


def stages(workspaces: Sequence[Workspace]) -> dict[str, Any]:
    """Return the shares of the pairs that were filtered out and scored, and the closest call of each stage.

    The closest call is the least relative distance, over all documents whose exact score became known, between that
    score and what would have dropped them: 0 where a bound was met exactly.
    """
    if not workspaces:  # a GPU took all queries
        return {}
    n_scored, n_pairs = np.sum([work.n_pairs for work in workspaces], axis=0).tolist()
    scored = n_scored / max(n_pairs, 1)
    closest = np.min([work.closest for work in workspaces], axis=0).tolist()
    calls = {stage: ratio - 1.0 for stage, ratio in zip(STAGES, closest, strict=True) if ratio < np.inf}
    return {"filtered": 1.0 - scored, "scored": scored, "closest_call": calls}
