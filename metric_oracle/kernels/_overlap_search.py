"""One exact search over sets of features, for every metric whose score rises with the sizes of intersections.

The driver, `search`, goes through the queries: it prepares a query, finds its best documents, checks the bounds, writes
the rows and clears up. It is compiled once for each metric, a NamedTuple class of options, with functions of the metric
inlined. Two of them, `begin_query` and `end_query` of `_pairs.py`, prepare and clear the metric's scratch arrays, as
they do for given pairs; the others are

    scorer_of(metric, found, corpus, batch, q)   the scorer of query q and the ids of its features, from what
                               `begin_query` returned
    find(scorer, ids, k, work) the search itself: one `find_best` or two; it returns what bounds the other documents
    bound(scorer, j, a, b)     the most that a document of length bucket j can score with at most a matches in the first
                               family counted and b in the second; it never falls as a or b rises
    score(scorer, d, j)        the exact score of document d, which lies in bucket j

A *scorer* is a NamedTuple of arrays and numbers of one query. Each has the fields `index`, the `Features` of the
corpus, whose forward index holds what `score` reads of each document, and `buckets`. A match is a feature that query
and document share. The matches in the posting lists that were read so far are counted for one family of features or for
two, see `_overlap_counts.py`.

Why it is exact: a document that holds none of the features read so far can only match the features still unread. Once
its bound is below the threshold, the score of the k-th best row, no such document can be listed (the prefix filter of
exact set-similarity search: Chaudhuri et al., ICDE 2006; Bayardo et al., WWW 2007). Other documents are dropped by the
same bound with their own counts and sizes, or scored from the forward index.

A *length bucket* is a run of documents of equal sizes: documents are sorted by size, and a bound holds for a whole
bucket. The *warm start* scores a few promising documents exactly as soon as some lists have been read, to have a
threshold early.
"""

from collections.abc import Sequence
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import ExactnessError
from metric_oracle.kernels._bitmaps import WORD, Bitmaps, n_words, new_bitmaps
from metric_oracle.kernels._errors import sample_of
from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._overlap import (
    FULL,
    SLACK,
    Features,
    bucket_of,
    by_rarity,
    compiled_scan,
    count_shared,
    lower_bound,
    new_marks,
    runs_of,
)
from metric_oracle.kernels._overlap_counts import (
    Lists,
    OneFamily,
    bound,
    bucket_weights,
    filter_reach,
    is_met,
    is_out_of_reach,
    least_passing,
    most_promising,
    n_passing,
    next_passing,
    part_of_list,
    reach,
    read_postings,
    set_count,
)
from metric_oracle.kernels._pairs import begin_query, end_query, scores_of
from metric_oracle.kernels._simd import prefetch
from metric_oracle.kernels.contract import Kernel
from metric_oracle.kernels.topk.cpu import Best, begin, expand, insert, new_best, threshold

# Tuned on 2,192 x 185,538 synthetic impressions; any values give the same answers.
SCORE_COST = 256  # postings that take as long to read as one document takes to score
LIST_COST = 128  # postings that take as long to read as a list takes to find, and its bucket's counts to compare
COUNT_COST = 32  # postings to read for each bucket before counts are compared again; tuned on 100,000 reports
GROUP = 4096  # documents of neighbouring buckets for which lists are read together, at least
FIRST_START = 1000  # postings read before the first document is scored
LATER_START = 64_000  # the same where a threshold is known
START_GROWTH = 8
MAX_STARTS = 16
DRAWS = 4  # for each document outside the list that a check looks for, at most
# Where an exact score meets what would have dropped its document.
STAGES = ("warm start", "filter", "dropped")
WARM_START, FILTER, DROPPED = 0, 1, 2


class Visits(NamedTuple):
    """The order in which a search goes through the length buckets, and scratch for each bucket."""

    sizes: np.ndarray  # int64[C], size of the documents of each bucket
    ascending: np.ndarray  # int64[C], buckets by ascending size
    # int64[C], scratch: buckets in the order in which their documents are scored; any order gives the same results
    order: np.ndarray
    # int64[C], scratch: lists that were read for each bucket, -1 once its documents are scored or dropped
    stop: np.ndarray
    minimum: np.ndarray  # int64[C], scratch: `OneFamily.minimum`
    demanded: np.ndarray  # float64[C], scratch: `OneFamily.demanded`
    # int32[C], scratch: least weighted count that passes (`least_passing`), 0 for buckets out of reach
    least: np.ndarray


class Workspace(NamedTuple):
    """Scratch arrays and results of one thread."""

    # uint8[2, D or more], matches counted so far in one or two families, at most `FULL`; 0 between queries. Those past
    # the last document stay 0; they make the number a multiple of `WORD`.
    counts: np.ndarray
    visits: Visits
    best: Best  # the best documents so far
    started: np.ndarray  # int64[MAX_STARTS], documents that the warm start scored
    # float64[3], least bound / exact score of the scored documents for each of `STAGES`; below 1: a broken bound
    closest: np.ndarray
    n_pairs: np.ndarray  # int64[2], how many pairs of a query and a document were scored, and how many there are
    bitmaps: Bitmaps  # posting lists that this thread reads often
    space: Any  # the metric's scratch arrays, for `begin_query`


def new_visits(sizes: np.ndarray) -> Visits:
    """Allocate a `Visits` for length buckets whose documents have these sizes, int64[C]."""
    n = len(sizes)
    ascending = np.argsort(sizes, kind="stable")  # documents may be sorted by the sizes of other families
    order, stop, minimum = np.empty((3, n), np.int64)
    return Visits(sizes, ascending, order, stop, minimum, np.empty(n), np.empty(n, np.int32))


def new_workspace(features: Features, sizes: np.ndarray, space: Any) -> Workspace:
    """Allocate the `Workspace` of one thread for a corpus with these features.

    `sizes` are the sizes of the documents of each length bucket, int64[C], and `space` the metric's scratch arrays.
    """
    n = len(features.fwd_ptr) - 1
    return Workspace(
        np.zeros((2, WORD * n_words(n)), np.uint8),
        new_visits(sizes),
        new_best(n),
        np.empty(MAX_STARTS, np.int64),
        np.full(len(STAGES), np.inf),
        np.zeros(2, np.int64),
        new_bitmaps(features),
        space,
    )


# ---- functions of a metric -------------------------------------------------------------------------------------------
# Each metric registers its own version; see the docstring of the module.


def scorer_of(metric: Any, found: Any, corpus: Any, batch: Any, q: int) -> Any:
    """Return the scorer of query `q` of `batch`, for which `begin_query` returned `found`, and the ids of its features.

    The ids, int32[n] for one family, else a tuple of such arrays, are apart because a scorer is handed to functions
    that are called for each bucket: a few arrays more took a fifth of BLEU's search.
    """
    raise NotImplementedError


def find(scorer: Any, ids: Any, k: int, work: Workspace) -> Any:
    """Put the k best documents of the query of `scorer` into `work.best`, and set the counts back to 0.

    `scorer` and `ids` are what `scorer_of` returned. Return what bounds the others, a NamedTuple for whose class
    `limit_of` is compiled: `Shared`, or the metric's own. Documents of the posting lists of its `ids`, int32[...], are
    checked.
    """
    raise NotImplementedError


def limit_of(left: Any, scorer: Any, d: int, j: int) -> float:
    """Return an upper bound on the score of document `d` of bucket `j`, or -1.0 if it need not be checked.

    `left` is what `find` returned.
    """
    raise NotImplementedError


def score(scorer: Any, d: Any, j: int) -> float:
    """Return the exact score of document `d`, which lies in length bucket `j`, with the query of `scorer`."""
    raise NotImplementedError


# ---- the driver ------------------------------------------------------------------------------------------------------


@inner
def by_size_difference(visits, size):
    """Write, into `visits.order`, the buckets by the difference of their size from `size`, the query's.

    Similar sizes score best.
    """
    sizes, ascending, order = visits.sizes, visits.ascending, visits.order
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


@inner
def _contains(values, n, x):
    """Return whether x is among the first n of the values."""
    for i in range(n):  # noqa: SIM110 - numba compiles no generator expressions
        if values[i] == x:
            return True
    return False


@inner
def note_bound(limit, value, stage, closest):
    """Lower ``closest[stage]`` to `limit` / `value`, a bound divided by the exact score, unless it is less already.

    A score of 0 or less is not noted. A ratio below 1 is a broken bound.
    """
    if value > 0.0:
        closest[stage] = min(closest[stage], limit / value)


@inner
def _group(counts, scorer, j, theta, stop, buckets):
    """Return the first and the end of a run of buckets around bucket j whose documents are neither scored nor dropped.

    It holds `GROUP` documents if its neighbours have as many. Its first and last buckets are within reach of theta, as
    j is. `stop` is that of `Visits`.
    """
    lo, hi = j, j + 1
    has_grown = True
    while has_grown and buckets[hi - 1, 1] - buckets[lo, 0] < GROUP:
        has_grown = False
        if hi < len(buckets) and stop[hi] >= 0:
            hi += 1
            has_grown = True
        if lo > 0 and stop[lo - 1] >= 0:
            lo -= 1
            has_grown = True
    while is_out_of_reach(counts, scorer, lo, 0, theta):
        lo += 1
    while is_out_of_reach(counts, scorer, hi - 1, 0, theta):
        hi -= 1
    return lo, hi


@inner
def _read_up(counts, lists, lo, hi, stop):
    """Read, for the buckets lo .. hi - 1, every list that was read for one of them; return how many lists that are.

    `lists` is a `Lists`, and `stop` that of `Visits`. Buckets leave the first loop of `find_best` from both ends, so
    those that lack a list are at the ends of the run.
    """
    buckets = lists.buckets
    i, n_lists = stop[lo], stop[lo]
    for j in range(lo, hi):
        i, n_lists = min(i, stop[j]), max(n_lists, stop[j])
    while i < n_lists:
        first = lo
        while first < hi and stop[first] <= i:
            first += 1
        end = hi
        while end > first and stop[end - 1] <= i:
            end -= 1
        for a, b in ((lo, first), (end, hi)):
            if a < b:
                documents = buckets[a, 0], buckets[b - 1, 1]
                read_postings(counts, lists, part_of_list(lists, i, a, b), documents)
        i += 1
    return n_lists


@inner
def find_best(scorer, counts, ids, size, k, work):
    """Find the k best documents of one query among those that share a feature with it, and put them into `work.best`.

    A document whose bound is below the threshold is skipped. Written are also `work.closest`, `work.n_pairs` and the
    counts, which are not zero afterwards. The forward index of the scorer is prefetched.

    Parameters
    ----------
    scorer : NamedTuple
        The metric and its query, see the docstring of the module.
    counts : OneFamily or TwoFamilies
        All zero before.
    ids : int32[n]
        Features of the query by `kernels._overlap.by_rarity`.
    size : int
        Of the query; buckets nearest to it are visited first.
    k : int
    work : Workspace

    Exactness
    ---------
    Invariant: a document that was not inserted so far scores below the threshold, or shares no feature with the query,
    or is excluded, or lies in a list that is still to be read for its bucket, or has a count above 0. The first loop
    keeps it, because a bucket leaves [lo, hi) only when its documents with a count of 0 are out of reach; the second
    loop ends the last case, group by group of neighbouring buckets. The threshold only rises, so what once was below it
    stays there.
    """
    index, buckets, visits, best = scorer.index, scorer.buckets, work.visits, work.best
    by_size_difference(visits, size)
    lists, n_lists = Lists(ids, index, buckets, work.bitmaps), len(ids)
    theta = max(threshold(best, k), 0.0)
    stop, started = visits.stop, work.started
    n_started = n_scored = 0
    n_read = np.int64(0)
    # A threshold from other shards is seldom raised by an early warm start, which is a pass over the counts.
    next_start = np.int64(FIRST_START if theta == 0.0 else LATER_START)
    lo, hi = 0, len(buckets)
    for i in range(n_lists + 1):
        if i == n_lists or n_read + index.post_ptr[ids[i] + 1] - index.post_ptr[ids[i]] > next_start:
            # Warm start: score the most promising document, so that the threshold rises before the long lists.
            d, j = most_promising(counts, buckets, lo, hi)
            if d >= 0 and n_started < MAX_STARTS:
                # Later lists may make a scored document the most promising one again.
                if not _contains(started, n_started, d) and not is_met(counts, d):
                    value = score(scorer, d, j)
                    note_bound(reach(counts, scorer, d, j, i), value, WARM_START, work.closest)
                    n_scored += 1
                    if value > 0.0:
                        insert(d, value, index.row_ptr, k, best)
                started[n_started] = d
                n_started += 1
                set_count(counts, d, np.uint8(0))
                if threshold(best, k) > theta:
                    theta = threshold(best, k)
            next_start = max(next_start, n_read) * START_GROWTH
        # Early termination: where the unread lists are too few, documents without a count are out of reach.
        while lo < hi and is_out_of_reach(counts, scorer, lo, i, theta):
            stop[lo] = i
            lo += 1
        while lo < hi and is_out_of_reach(counts, scorer, hi - 1, i, theta):
            hi -= 1
            stop[hi] = i
        if lo == hi or i == n_lists:
            break
        documents = buckets[lo, 0], buckets[hi - 1, 1]
        part = part_of_list(lists, i, lo, hi)
        read_postings(counts, lists, part, documents)
        n_read += part.end - part.begin
    stop[lo:hi] = n_lists
    least = visits.least
    forward, offsets = index.fwd_id.ctypes.data, index.fwd_ptr.ctypes.data
    for near in visits.order:
        if stop[near] < 0 or is_out_of_reach(counts, scorer, near, 0, theta):
            continue
        lo, hi = _group(counts, scorer, near, theta, stop, buckets)
        i = _read_up(counts, lists, lo, hi, stop)
        documents = buckets[lo, 0], buckets[hi - 1, 1]
        for j in range(lo, hi):
            least[j] = 0 if is_out_of_reach(counts, scorer, j, 0, theta) else 1
        # Read further lists for this group while that is cheaper than scoring what would be left. Several short
        # lists are read before the counts are compared again.
        while True:
            n = np.int64(0)
            for j in range(lo, hi):
                if least[j] > 0:
                    of_bucket = bucket_weights(counts, j)
                    least[j] = least_passing(counts, j, i, of_bucket, theta)
                    n += n_passing(counts, buckets[j, 0], buckets[j, 1], of_bucket, least[j])
            if n == 0 or i == n_lists:
                break
            part = part_of_list(lists, i, lo, hi)
            if n * SCORE_COST <= part.end - part.begin + LIST_COST:
                break
            read_postings(counts, lists, part, documents)
            i += 1
            n_new = part.end - part.begin
            while i < n_lists and n_new < COUNT_COST * (hi - lo):
                part = part_of_list(lists, i, lo, hi)
                read_postings(counts, lists, part, documents)
                i += 1
                n_new += part.end - part.begin
        for j in range(lo, hi):
            stop[j] = -1
            if n == 0 or least[j] == 0 or is_out_of_reach(counts, scorer, j, 0, theta):
                continue
            of_bucket = bucket_weights(counts, j)
            passing = max(least[j], least_passing(counts, j, i, of_bucket, theta))
            last = buckets[j, 1]
            d = next_passing(counts, buckets[j, 0], last, of_bucket, passing)
            following = next_passing(counts, d + 1, last, of_bucket, passing)
            while d < last:
                # Prefetched while this document is scored: the features of the next one, and the offset of the features
                # of the one after it.
                after = next_passing(counts, following + 1, last, of_bucket, passing)
                if after < last:
                    prefetch(offsets + 8 * after, 16)
                if following < last:
                    begin = index.fwd_ptr[following]
                    prefetch(forward + 4 * begin, 4 * (index.fwd_ptr[following + 1] - begin))
                if not _contains(started, n_started, d) and not is_met(counts, d):
                    value = score(scorer, d, j)
                    note_bound(filter_reach(counts, scorer, d, j, i, of_bucket), value, FILTER, work.closest)
                    n_scored += 1
                    if value > 0.0:
                        insert(d, value, index.row_ptr, k, best)
                    if threshold(best, k) > theta:
                        theta = threshold(best, k)
                        if is_out_of_reach(counts, scorer, j, 0, theta):
                            break
                        passing = max(passing, least_passing(counts, j, i, of_bucket, theta))
                        following = next_passing(counts, following, last, of_bucket, passing)
                        after = next_passing(counts, max(after, following + 1), last, of_bucket, passing)
                d, following = following, after
    for i in range(n_started):  # a later search may ask which documents this one met
        set_count(counts, started[i], np.uint8(1))
    work.n_pairs[0] += n_scored


@jit
def rarest_first(ids, post_ptr):
    """Return the features of a query, by their ids int32[n], in the order in which `find_best` reads their lists.

    `post_ptr` is that of `Features`.
    """
    return by_rarity(ids.copy(), post_ptr)  # a copy may be written, as what RadGraph F1 passes


@inner
def find_by_family(scorer, row, met, ids, k, work):
    """Run `find_best` with features of one family, counted in row `row` of `work.counts`.

    `ids` are what `rarest_first` returned, `met` is that of `OneFamily`, and the scorer has the `size` of its query.
    """
    minimum, demanded = work.visits.minimum, work.visits.demanded
    minimum[:] = 1
    demanded[:] = -1.0
    counts = OneFamily(work.counts[row], minimum, len(ids), scorer.size, demanded, met)
    find_best(scorer, counts, ids, scorer.size, k, work)


class Shared(NamedTuple):
    """Features of a query, as which `find` returns them where matches bound a score."""

    ids: np.ndarray  # int32[...], features of the query
    of_a: np.ndarray  # int32[a], those of the first of the families whose matches `bound` takes
    of_b: np.ndarray  # int32[b], those of the second one


@compiled_for(limit_of, Shared)
def _(left, scorer, d, j):
    return bound(scorer, j, _count_shared(left.of_a, d, scorer.index), _count_shared(left.of_b, d, scorer.index))


def find_in_family(scorer, ids, k, work):
    """Do what `find` says for a scorer of one family: `ids`, int32[n], are the query's features."""
    find_by_family(scorer, 0, work.counts[1, :0], rarest_first(ids, scorer.index.post_ptr), k, work)
    work.counts[0] = 0
    return Shared(ids, ids, ids[:0])


@inner
def draw(q, i, ids, index):
    """Return the i-th random document of query q: of a random feature of `ids`, a random document of its posting list.

    The numbers q and i seed the choice, so every run draws the same documents.
    """
    # SplitMix64 (Steele et al., OOPSLA 2014)
    z = ((np.uint64(q) << np.uint64(20)) + np.uint64(i) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    v = ids[(z >> np.uint64(40)) % np.uint64(len(ids))]
    n_postings = index.post_ptr[v + 1] - index.post_ptr[v]
    return np.int64(index.post_unit[index.post_ptr[v] + np.int64((z & np.uint64(0xFFFFFFFF)) % np.uint64(n_postings))])


@inner
def is_outside(d, value, k, work):
    """Return whether document `d`, which scores `value`, is not among the best documents of the search, `work.best`.

    For such a document the ratio of the threshold to its score is recorded in `work.closest`: it must exceed 1.
    """
    limit = max(threshold(work.best, k), 0.0)
    if value > 0.0 and value >= limit and _contains(work.best.document, work.best.state[0], d):
        return False
    note_bound(limit, value, DROPPED, work.closest)
    return True


@inner
def _count_shared(ids, d, index):
    """Return how many of the features `ids` document `d` has, found by bisection of their posting lists."""
    n = 0
    for v in ids:
        p = lower_bound(index.post_unit, index.post_ptr[v], index.post_ptr[v + 1], d)
        n += p < index.post_ptr[v + 1] and index.post_unit[p] == d
    return n


@inner
def check_dropped(scorer, q, n_queries, left, k, work):
    """Check the search of query q: score random documents that it did not select, and compare the scores with bounds.

    Each such document must score below the k-th best row, and no more than its bound; `work.closest` and `work.n_pairs`
    are written, and `require_bounds` raises. There are at most `sample_of` documents for q and `n_queries`, the
    distinct queries of the search. `left` is what `find` returned.
    """
    work.n_pairs[1] += len(scorer.index.fwd_ptr) - 1
    n, n_checked, i = sample_of(q, n_queries), 0, 0
    while len(left.ids) > 0 and n_checked < n and i < DRAWS * n:
        d = draw(q, i, left.ids, scorer.index)
        i += 1
        j = bucket_of(d, scorer.buckets)
        limit = limit_of(left, scorer, d, j)
        if limit >= 0.0:
            value = score(scorer, d, j)
            n_checked += is_outside(d, value, k, work)
            note_bound(limit, value, FILTER, work.closest)


def _search(metric, corpus, batch, first, last, k, work, answers):
    """Write the k best rows of the corpus for the queries first .. last - 1 of `batch` into `answers`.

    `metric` has the options of the metric, see the docstring of the module, and `work` is a `Workspace`. Exact, because
    scores come from the compiled functions of `score.py` and a document is dropped only by a bound.
    """
    index = corpus.features
    for q in range(first, last):
        begin(work.best, answers, q)
        scorer, ids = scorer_of(metric, begin_query(work.space, batch, q), corpus, batch, q)
        left = find(scorer, ids, k, work)
        check_dropped(scorer, q, len(answers.limit), left, k, work)
        expand(work.best, index.row_ptr, index.row_id, k, answers, q)
        end_query(work.space, batch, q)


@cache
def compiled_search(form: type) -> Any:
    """Return `_search`, compiled for a class of options.

    Each class has a copy with stored machine code of its own: to find one metric's code in a store of all would load
    the modules of the others.
    """
    copied = FunctionType(_search.__code__, _search.__globals__, f"search_{form.__name__}")
    copied.__qualname__ = copied.__name__
    return jit(copied)


# ---- results of the checks -------------------------------------------------------------------------------------------


def require_bounds(work: Workspace) -> None:
    """Raise ExactnessError if a finished search broke a bound, as recorded in `work.closest`.

    That is: a document scored above its bound, or one that was dropped scored as much as the last one listed.
    """
    warm_start, passed, dropped = work.closest.tolist()
    for stage, ratio in zip(STAGES, (warm_start, passed), strict=False):
        if ratio < SLACK:
            raise ExactnessError(
                "the bound of a document",
                "must be at least its score",
                f"{ratio:.12g} times its score ({stage})",
                "This is a defect: please report it with the index fingerprint.",
            )
    if dropped <= 1.0:
        raise ExactnessError(
            "a dropped document",
            "must score below the last one listed",
            f"one whose score times {dropped:.12g} is that of the last one listed",
            "This is a defect: please report it with the index fingerprint.",
        )


def stages(workspaces: Sequence[Workspace]) -> dict[str, Any]:
    """Return the shares of pairs of a query and a document that were dropped and scored, and each stage's closest call.

    The closest call is the least relative distance, over all exactly scored documents, between a score and the bound by
    which the stage would have dropped it: 0 if a score equals its bound. The dict is empty if there are no workspaces,
    because a GPU did the search.
    """
    if not workspaces:  # a GPU took all queries
        return {}
    n_scored, n_pairs = np.sum([work.n_pairs for work in workspaces], axis=0).tolist()
    scored = n_scored / max(n_pairs, 1)
    closest = np.min([work.closest for work in workspaces], axis=0).tolist()
    calls = {stage: ratio - 1.0 for stage, ratio in zip(STAGES, closest, strict=True) if ratio < np.inf}
    return {"filtered": 1.0 - scored, "scored": scored, "closest_call": calls}


class DrivenKernel(Kernel):
    """Base of the CPU backends over sets of features: search and pairs by the functions of a metric."""

    form: Any  # the NamedTuple of options for whose class these functions are compiled

    def new_space(self, corpus: Any) -> Any:
        """Allocate the scratch arrays that `begin_query` takes."""
        raise NotImplementedError

    def sizes(self, buckets: np.ndarray) -> np.ndarray:
        """Return the sizes of the documents of length buckets, int64[C]."""
        return buckets[:, 2].copy()

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`."""
        search = compiled_search(self.form.__class__)
        search(self.form, corpus, batch, queries.start, queries.stop, k, workspace, answers)
        require_bounds(workspace)

    def scores(self, counts):
        """Return the exact scores of pairs, float64[n], from their counts."""
        return scores_of(self.form, counts)

    def new_workspace(self, corpus: Any) -> Any:
        """Allocate the scratch arrays of one thread."""
        return new_workspace(corpus.features, self.sizes(corpus.buckets), self.new_space(corpus))

    def stages(self, workspaces: Sequence[Any]) -> dict[str, Any]:
        """Return the shares of the pairs that were dropped and scored, and the bounds' closest calls; see `stages`."""
        return stages(workspaces)


class SetKernel(DrivenKernel):
    """Base of the backends whose scores follow from the sizes of sets of features and of their intersections."""

    @property
    def families(self) -> tuple[int, int]:
        """Return the range of the families of features that are compared: its first family, and its end."""
        return 0, 1

    def new_space(self, corpus):
        """Allocate the scratch arrays that `begin_query` takes."""
        return new_marks(corpus, *self.families)

    def counts(self, corpus, batch, query, document, known=None):
        """Return, by family, how many features the reports of pairs share and each has: int64[3 F, n]."""
        return count_shared(corpus, batch, query, document, *self.families)

    def score_all(self, corpus, batch, chosen):
        """Yield the scores of all documents with each of the chosen queries: float64[D], overwritten by the next."""
        first, last = self.families
        scan, runs, queries = compiled_scan(self.form, first, last), runs_of(corpus.buckets), batch.queries
        n_documents = len(corpus.row_ptr) - 1
        out, matched = np.empty(n_documents), np.empty((last - first, n_documents), np.uint8)
        for q in chosen:
            is_long = queries.ptr[(q + 1) * queries.sizes.shape[1]] - queries.ptr[q * queries.sizes.shape[1]] > FULL
            scan(queries, q, corpus.features, runs, matched.astype(np.int32) if is_long else matched, out)
            yield out
