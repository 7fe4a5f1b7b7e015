"""BERTScore search on CPUs: the cascade of bounds, one query at a time.

The README proves the bounds; `cascade.py` explains items.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._errors import check_bounds, sample_size
from metric_oracle.kernels._llvm import STEP
from metric_oracle.kernels._simd import LANES
from metric_oracle.kernels.bertscore import all_pairs
from metric_oracle.kernels.bertscore.bounds import (
    Ranking,
    angle_tables,
    bound_precisions,
    fill_tables,
    margins_of,
    part_of,
)
from metric_oracle.kernels.bertscore.cascade import (
    BELOW,
    CELLS,
    CODES,
    SOME,
    STAGES,
    Items,
    ItemScores,
    Work,
    every_document,
    find_starts,
    finish_in_order,
    forget_items,
    reset,
    search_cells,
    search_codes,
    similar_length,
)
from metric_oracle.kernels.bertscore.exact import exact_pair
from metric_oracle.kernels.bertscore.query import Query, pack_query
from metric_oracle.kernels.bertscore.score import F1, MEAN, f1, rescale
from metric_oracle.kernels.contract import Capabilities, Kernel, read_only

STARTS = 64  # candidates of a warm start, and 8 k more for k answers
FIRST = 4  # the best 4 k items of a warm start are scored
MOST_STARTS = 256  # answers beyond which a warm start is not enlarged
ROUNDING = 1e-12  # of rescaling a score and back
SAMPLED = 500_000  # a large search checks one dropped item in so many
CHECKED = 8  # and always items of one query in so many, unless the cells drop all of its items
TILE = 1 << 18  # items that are searched together, which limits the memory of a thread
CENTERS = 2048  # centres that are multiplied at a time, however many threads there are: the same bits
LINE = 64  # bytes of a cache line
PARTS = 3  # of a query's items for each thread, where several share them
MEASURED = 4096  # items whose lengths are added up to find these parts, or up to twice as many


def pack(corpus, batch, q):
    """Lay out distinct query q of a `TokenBatch` for the inner loops; return what `pack_query` does."""
    return pack_query(batch.states_of(q), batch.weights_of(q), corpus.basis, corpus.direction)


def new_scratch(work, corpus, n_items, n_cells, longest_query, k):
    """Return the `Work` and `ItemScores` of one thread, which the dict `work` keeps from the first call on.

    `n_items` is the maximum number of items that are searched together, `n_cells` the number of centres, and
    `longest_query` the maximum number of tokens of a query. Memory pages that are never written are not used, so
    generous maxima cost nothing.
    """
    if work:
        return work["scratch"], work["answers"]
    passes = -(-longest_query // LANES)
    n_starts = min(STARTS + 8 * min(k, MOST_STARTS), n_items)
    scratch = Work(
        table=_in_lines(passes, n_cells * LANES, np.int16),
        angle=_in_lines(passes, n_cells * LANES, np.uint8),
        ends=np.empty((n_cells, 2), np.float32),
        upper=np.empty(n_items, np.float32),
        lower=np.empty(n_items, np.float32),
        kept=np.empty(n_items, np.int32),
        kept_bound=np.empty(n_items),
        kept_recall=np.empty(n_items, np.float32),
        **_of_one_document(corpus, longest_query),
        start=np.empty(n_starts, np.int32),
        start_bound=np.empty(n_starts),
        noted=np.empty((0, 4, 2)),
    )
    answers = _new_scores(n_items, k)
    work.update(scratch=scratch, answers=answers, counts=answers.counts, closest=answers.closest)
    return scratch, answers


def _new_scores(n_items, k):
    """Return the `ItemScores` of a search for k rows among `n_items` items."""
    return ItemScores(
        item=np.empty(n_items, np.int32),
        precision=np.empty(n_items),
        recall=np.empty(n_items),
        is_scored=np.zeros(n_items, bool),
        best=np.empty(k + 1),
        best_rows=np.empty(k + 1, np.int64),
        threshold=np.full(1, -np.inf),
        state=np.array([0, 0, 0, 0, -1]),
        counts=np.zeros(len(STAGES) + 2, np.int64),
        closest=np.full(len(STAGES), np.inf),
    )


def _in_lines(n_rows, n_columns, dtype):
    """Return an array that begins at a cache line; otherwise rows of one or two lines would lie in two or three."""
    n_bytes = n_rows * n_columns * np.dtype(dtype).itemsize
    room = np.empty(n_bytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + n_bytes].view(dtype).reshape(n_rows, n_columns)


def _of_one_document(corpus, longest_query):
    """Return, by name, the scratch arrays of a `Work` in which one document after the other is bounded and scored.

    `longest_query` is the maximum number of tokens of a query.
    """
    longest = int(np.diff(corpus.ptr).max(initial=1))
    width, passes = corpus.states.shape[1], -(-longest_query // LANES)
    return {
        "means": np.empty(2, np.float32),
        "row": np.empty(1 + longest + 16, np.float32),
        "column": np.empty((passes, LANES), np.float32),
        "wide": np.empty((longest, width), np.float32),
        "doubles": np.empty((longest, width)),
        "squares": np.empty(longest),
        "products": np.empty((-(-longest_query // STEP), longest, STEP)),
    }


_tables_of = lru_cache(4)(angle_tables)  # they are the same for all queries of a corpus


def sharing_threads(answers):
    """Return a context manager that gives the executor whose threads share each query of a block, or None."""
    return nullcontext() if answers.threads == 1 else ThreadPoolExecutor(answers.threads)


def find(corpus, batch, q, k, items, work, part, scored, threads, executor):
    """Return the items that may be among the k best rows of distinct query q, with their exact precision and recall.

    They are int64[n], float64[n] and float64[n]. Raise ExactnessError if a bound is below an exact score, or a dropped
    candidate belongs in the list. `items` are the `Items` to choose from, `work` is a dict for the scratch arrays of
    the thread, allocated by the first call, and the dict `scored` gets precision and recall of each scored pair of a
    query and a document. `part` is the score that ranks: PRECISION, RECALL, F1 or MEAN. With several `threads`,
    those of `executor`, each bounds some of the items; thresholds rise between stages alone: the results are those
    of one thread.
    """
    n_items, n_sampled = len(items.document), sample_size(len(batch.ptr) - 1)
    scratch, answers = new_scratch(work, corpus, min(n_items, TILE), len(corpus.centers), batch.longest, k)
    team = work.setdefault("team", [scratch])
    team += [scratch._replace(**_of_one_document(corpus, batch.longest)) for _ in range(len(team), threads)]
    margins = margins_of(corpus.states.shape[1], corpus.norm_error)
    tables = _tables_of(margins)
    query, document = pack(corpus, batch, q)
    ranking = Ranking(part, corpus, query, margins)

    def fill(first):
        products = corpus.centers[first : first + CENTERS] @ document.T
        fill_tables(products, first, margins.rise, scratch, tables)

    reset(answers, items.least)
    results: list[Any] = []
    list((map if executor is None else executor.map)(fill, range(0, len(corpus.centers), CENTERS)))
    for first in _tiles(n_items, len(query.weights), items.document, corpus):
        tile = _part_of(items, first, min(first + TILE, n_items))
        forget_items(answers)
        search = _TileSearch(ranking, k, tile, team[:threads], answers, executor)
        search.find_starts()
        search.bound_by_cells()
        sample = _sample(q, n_sampled, tile, scratch, answers)
        search.bound_by_codes()
        search.finish()
        search.check(sample)
        item, *parts = collect_scores(scored, q, tile, answers)
        results.append((item + first, *parts))
    check_bounds(dict(zip(STAGES, answers.closest.tolist(), strict=True)), int(answers.counts[4]))
    return tuple(map(np.concatenate, zip(*results, strict=True)))


class _TileSearch(NamedTuple):
    """The stages of the search of one tile, whose items the threads of a team share."""

    ranking: Ranking
    k: int
    items: Items
    team: list[Work]  # one for each thread; they share all arrays but those of `_of_one_document`
    answers: ItemScores
    executor: ThreadPoolExecutor | None  # None for a team of one

    def find_starts(self):
        """Bound the precision of all items, and score the best of a warm start.

        It has the items with the best bounds; without offsets, of reports of similar length.
        """
        items, work = self.items, self.team[0]
        _, corpus, query, margins = self.ranking
        n = len(items.document)

        def bound(work, first, last):
            mine = work._replace(upper=work.upper[first:last], lower=work.lower[first:last])
            bound_precisions(items.document[first:last], corpus, mine, margins)

        self._share(bound, items.document)
        first, last = similar_length(len(query.weights), items.document, corpus.ptr) if items.alone else (0, n)
        if last - first < len(work.start):
            first, last = 0, n
        bounds = work.upper[first:last] + items.offset[first:last]
        self._score_starts(np.arange(first, last, dtype=np.int32), bounds.astype(np.float64))

    def bound_by_cells(self):
        """Keep the items that bounds by cells do not drop, and score the best of a second warm start among them."""
        items, work, answers = self.items, self.team[0], self.answers

        def bound(work, first, last):
            mine = _kept(work, first, last)._replace(upper=work.upper[first:last], lower=work.lower[first:last])
            some = _part_of(items, first, last)
            n = search_cells(self.ranking, some, mine, answers.threshold)
            mine.kept[:n] += first
            return first, n

        n = self._close_up(self._share(bound, items.document))
        answers.counts[0] += len(items.document) - n
        self._score_starts(work.kept[:n], work.kept_bound[:n])

    def bound_by_codes(self):
        """Keep, of the items that are kept, those that bounds by codes do not drop."""
        answers, n_kept = self.answers, self.answers.state[3]

        def bound(work, first, last):
            mine = _kept(work, first, last)
            return first, search_codes(self.ranking, last - first, self.items, mine, answers.threshold)

        n = self._close_up(self._share(bound, self.items.document[self.team[0].kept[:n_kept]]))
        answers.counts[1] += n_kept - n

    def finish(self):
        """Score the items that bounds by codes kept, by descending bound, until none can be among the k best."""
        answers, bounds = self.answers, self.team[0].kept_bound[: self.answers.state[3]]
        order = np.argsort(-bounds, kind="stable")
        _, n_scored = self._score(order, self.items, self.team[0], answers, self.k)
        answers.counts[2] += len(order) - n_scored
        answers.counts[3] += n_scored

    def check(self, sample):
        """Compare exact scores with their bounds, and score dropped items, which must be below the k-th best score.

        `sample`, int64[n], are items to score as a check; those that were scored before are left out. If there are any,
        the first item that float32 products dropped is added.
        """
        answers, items = self.answers, self.items
        n = answers.state[0]
        listed, exact = answers.item[:n], [np.stack([answers.precision[:n], answers.recall[:n]], axis=1)]
        if len(sample):
            drawn = sorted({*sample.tolist(), int(answers.state[4])} - {-1})
            dropped = np.array([i for i in drawn if not answers.is_scored[i]], np.int64)
            listed = np.concatenate([listed, dropped])

            def score(work, first, last):
                n = last - first
                mine = _new_scores(n, n + 1)  # one row more than there are: nothing falls below a threshold
                work = work._replace(kept=np.arange(n, dtype=np.int32), kept_bound=np.full(n, np.inf))
                self._score(np.arange(n), _items_at(items, dropped[first:last]), work, mine, n + 1)
                return mine

            for mine in self._share(score, items.document[dropped]):
                exact.append(np.stack([mine.precision, mine.recall], axis=1))
                np.minimum(answers.closest, mine.closest, out=answers.closest)
            score_of = [part_of(self.ranking.part, *pair) for pair in np.concatenate(exact[1:]).tolist()]
            reached = score_of + items.offset[dropped] - items.error >= answers.threshold[0]
            answers.counts[4] += np.count_nonzero(reached)
        self._compare(listed, np.concatenate(exact))

    def _compare(self, listed, exact):
        """Note the least differences of bounds from the precision and recall, float64[n, 2], of items, int[n]."""
        corpus, query = self.ranking.corpus, self.ranking.query
        lengths = corpus.ptr[self.items.document[listed] + 1] - corpus.ptr[self.items.document[listed]]
        has_words = (lengths != 2) & (len(query.weights) != 2)  # otherwise both are 0 by definition
        listed, exact = listed[has_words], exact[has_words]
        document = self.items.document[listed]
        upper, lower = self.team[0].upper[listed], self.team[0].lower[listed]
        nothing = np.full(1, -np.inf)

        def bound(work, first, last):
            n = last - first
            some = _items_at(self.items, listed[first:last])
            mine = work._replace(
                upper=upper[first:last],
                lower=lower[first:last],
                kept=np.empty(n, np.int32),
                kept_bound=np.empty(n),
                kept_recall=np.empty(n, np.float32),
                noted=np.empty((n, 4, 2)),
            )
            # Without a threshold both stages keep all items; they bound precision and recall for these scores.
            search_cells(self.ranking._replace(part=MEAN), some, mine, nothing)
            search_codes(self.ranking._replace(part=F1), n, some, mine, nothing)
            return mine.noted

        noted = np.concatenate(self._share(bound, document))
        has_weight = corpus.document_weight[document] > 0
        low = np.where(has_weight, exact.sum(axis=1) - noted[:, CELLS, 1], np.inf)
        below = exact - noted[:, BELOW]
        below[~has_weight, 0] = np.inf
        of_cells = upper - exact[:, 0], noted[:, CELLS, 0] - exact[:, 1], low
        of_codes = noted[:, CODES] - exact, noted[:, SOME] - exact, below
        for stage, differences in enumerate((of_cells, of_codes)):
            every = np.concatenate([x.ravel() for x in differences])
            self.answers.closest[stage] = np.fmin.reduce(every, initial=self.answers.closest[stage])

    def _score_starts(self, listed, bounds):
        """Score the best of a warm start: of the items that are `listed`, int32[n], those with the best `bounds`.

        They are bounded by their codes first.
        """
        work, answers = self.team[0], self.answers
        n = find_starts(listed, bounds, work.start, work.start_bound)
        mine = work._replace(kept=work.start, kept_bound=work.start_bound, kept_recall=np.full(n, np.inf, np.float32))
        n = search_codes(self.ranking, n, self.items, mine, answers.threshold)
        order = np.argsort(-work.start_bound[:n], kind="stable")[: FIRST * self.k]
        self._score(order, self.items, mine, answers, self.k)
        answers.state[4] = -1  # what was left out here may be scored later

    def _score(self, order, items, work, answers, k):
        """Score the items of `work.kept` in an `order`; return what `finish_in_order` returns."""
        return finish_in_order(order, self.ranking, k, items, work, answers)

    def _share(self, run, documents):
        """Return what ``run(work, first, last)`` returns for each part of a list; the team takes the parts in turn.

        The parts, from place `first` to `last` of the list, have about as many tokens. The list has `documents`; the
        lengths of some of them tell.
        """
        if self.executor is None or not len(documents):
            return [run(self.team[0], 0, len(documents))]
        ptr, idle = self.ranking.corpus.ptr, list(self.team)

        def run_part(first, last):
            work = idle.pop()
            result = run(work, first, last)
            idle.append(work)
            return result

        apart = max(len(documents) // MEASURED, 1)
        some = documents[::apart]
        tokens = np.cumsum(ptr[some + 1] - ptr[some])
        edges = apart * np.searchsorted(tokens, np.linspace(0, tokens[-1], PARTS * len(self.team) + 1))
        edges[-1] = len(documents)
        parts = np.unique(edges).tolist()
        return list(self.executor.map(run_part, parts[:-1], parts[1:]))

    def _close_up(self, parts):
        """Move together what is left of the kept items in each part; return, and note, how many there are.

        A part is its first place and how many items are left from there on.
        """
        work, n = self.team[0], 0
        for first, size in parts:
            if first > n:
                for values in (work.kept, work.kept_bound, work.kept_recall):
                    values[n : n + size] = values[first : first + size]
            n += size
        self.answers.state[3] = n
        return n


def _kept(work, first, last):
    """Return a `Work` that has the places from `first` to `last` of the kept items alone."""
    kept, bound, recall = (x[first:last] for x in (work.kept, work.kept_bound, work.kept_recall))
    return work._replace(kept=kept, kept_bound=bound, kept_recall=recall)


def _tiles(n_items, n_tokens, document, corpus):
    """Return the first item of each tile, a run of documents that is searched at a time.

    `document` is that of `Items`. Tiles with reports of the query's length, `n_tokens`, come first, because they score
    best.
    """
    firsts = np.arange(0, n_items, TILE)
    middle = document[(firsts + np.minimum(firsts + TILE, n_items)) // 2]
    return firsts[np.argsort(np.abs(corpus.ptr[middle + 1] - corpus.ptr[middle] - n_tokens), kind="stable")]


def _part_of(items, first, last):
    """Return the items from `first` to `last` - 1."""
    return items._replace(
        document=items.document[first:last], offset=items.offset[first:last], row_ptr=items.row_ptr[first : last + 1]
    )


def _items_at(items, places):
    """Return the items at some places, as if each stood for one row."""
    row_ptr = np.arange(len(places) + 1)
    return read_only(items._replace(document=items.document[places], offset=items.offset[places], row_ptr=row_ptr))


def _sample(q, n_sampled, items, work, scores):
    """Return random items of query q, int64[...], that are scored exactly to check the bounds.

    They are `n_sampled` of all items, and a quarter as many (rounded up) of the items that the first bound, that of the
    cells, did not drop. If `n_sampled` is 1, some queries get no items, so that the cost stays small: those of which
    the cells drop all items, and a random part of the others. One query in CHECKED always gets some, and so do all
    queries of a composite.
    """
    n_items = len(items.document)
    rng = np.random.default_rng(q)
    n_kept = int(scores.state[3])
    if n_sampled == 1 and (not n_kept or (items.alone and q % CHECKED and rng.random() * SAMPLED > n_items)):
        return np.empty(0, np.int64)
    kept = work.kept[rng.integers(n_kept, size=-(-n_sampled // 4))] if n_kept else []
    return np.concatenate([rng.integers(n_items, size=n_sampled), kept]).astype(np.int64)


def collect_scores(scored, q, items, answers):
    """Return the scored items of query q with precision and recall, from `answers`, and store both in `scored`.

    They are int64[n], float64[n] and float64[n]; `scored` has the query and the document of a pair as keys.
    """
    n = answers.state[0]
    item, precision, recall = (x[:n].copy() for x in (answers.item, answers.precision, answers.recall))
    for u, *parts in zip(items.document[item].tolist(), precision.tolist(), recall.tolist(), strict=True):
        scored[q, u] = parts
    return item.astype(np.int64), precision, recall


def final_scores(precision, recall, baseline):
    """Return precision, recall and f1 as reported, float64[n] each: relative to the baseline unless it is None.

    `baseline` is that of `TokenBatch`.
    """
    values = precision, recall, np.array([f1(p, r) for p, r in zip(precision, recall, strict=True)])
    if baseline is None:
        return values
    return tuple(np.array([rescale(v, b) for v in x]) for x, b in zip(values, baseline, strict=True))


def least_of(limit, baseline, part):
    """Convert limits on reported scores, float64[n], to limits before rescaling with the baseline: a list of float.

    They are lowered by a margin for rounding. `baseline` is that of `TokenBatch`, `part` that of `Backend`.
    """
    if baseline is None:
        return limit.tolist()
    return (limit * (1.0 - baseline[part]) + baseline[part] - ROUNDING).tolist()


def items_of(items, places, least, answers):
    """Return, for each query, `items` with its least score to be listed and the rows that its lists do not exclude.

    `places` holds the numbers of the queries, `least` the least score of each.
    """
    rows = [answers.exclusion.row_ptr(q, items.row_ptr) for q in places]
    return [items._replace(least=x, row_ptr=row_ptr) for x, row_ptr in zip(least, rows, strict=True)]


def _closest(works):
    """Return, for each stage, the minimum of bound - score over all exactly scored pairs of all threads.

    `works` are the dicts that `new_scratch` filled; stages without such a pair are left out.
    """
    least = np.min([work["closest"] for work in works if work], axis=0, initial=np.inf)
    return {name: float(x) for name, x in zip(STAGES, np.broadcast_to(least, len(STAGES)), strict=True) if x < np.inf}


def stages(works):
    """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

    A closest call is a stage's least bound - score. `works` are the dicts that `new_scratch` filled. Without a pair all
    were "scored".
    """
    counts = sum((work["counts"] for work in works if work), np.zeros(len(STAGES) + 2, np.int64))[:4]
    total = int(counts.sum())
    if not total:  # a composite without BERTScore has no bounds
        return {"scored": 1.0}
    shares = {name: float(n / total) for name, n in zip((*STAGES, "scored"), counts, strict=True)}
    return {**shares, "closest_call": _closest(works)}


@dataclass(frozen=True)
class Backend(Kernel):
    """BERTScore on CPUs."""

    part: int = F1  # PRECISION, RECALL or F1 (MEAN for sentences): which of them is the score
    # precision and recall of pairs that a search scored, by query and document
    scored: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, splits=True, queries_at_once=all_pairs.QUERIES)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`."""
        items = every_document(corpus.row_ptr)
        every = items_of(items, queries, least_of(answers.limit[queries], batch.baseline, self.part), answers)
        with sharing_threads(answers) as executor:
            for q, of_query in zip(queries, every, strict=True):
                item, precision, recall = find(
                    corpus, batch, q, k, of_query, workspace, self.part, self.scored, answers.threads, executor
                )
                scores = final_scores(precision, recall, batch.baseline)[self.part]
                answers.put(q, item, scores, corpus, k)

    def score_all(self, corpus, batch, chosen):
        """Yield BERTScore of every document with each of the chosen queries: float64[D], a row of one array of all.

        Scores are within `score_error` of the exact ones, and exact if precision and recall may differ in sign.
        """
        return self.score_some(corpus, batch, chosen, np.arange(len(corpus.row_ptr) - 1))

    def score_some(self, corpus, batch, chosen, documents):
        """Yield BERTScore of `documents`, int64[n], with each of the chosen queries, as `score_all`: float64[n]."""
        queries = all_pairs.pack(batch, chosen)
        out = np.empty((len(chosen), len(documents)))
        base = 0.0 if batch.baseline is None else batch.baseline[self.part]
        all_pairs.score(self.part, corpus, queries, documents, self._error(corpus), base, out)
        for q, scores in zip(chosen, out, strict=True):
            unsure = np.flatnonzero(np.isnan(scores))
            scores[unsure] = self.scores(self.counts(corpus, batch, np.full(len(unsure), q), documents[unsure]))
            yield scores

    def _error(self, corpus):
        """Bound the error of a score before rescaling."""
        return all_pairs.error_of(corpus.states.shape[1], self.part)

    def score_error(self, corpus, batch):
        """Return an upper bound on the absolute error of the scores of `score_all`."""
        error = self._error(corpus)
        return error if batch.baseline is None else error / (1.0 - batch.baseline[self.part])

    def counts(self, corpus, batch, query, document, known=None):
        """Return precision and recall of pairs before rescaling, float64[n] each, and the batch's baseline."""
        parts = np.zeros((len(document), 2))
        scratch, _ = new_scratch({}, corpus, 1, 1, batch.longest, 1)
        packed: dict[int, Query] = {}
        for i, (q, u) in enumerate(zip(query.tolist(), document.tolist(), strict=True)):
            if (q, u) in self.scored:
                parts[i] = self.scored[q, u]
                continue
            if q not in packed:
                packed = {q: pack(corpus, batch, q)[0]}
            parts[i] = exact_pair(u, corpus, packed[q], scratch)
        return *parts.T, batch.baseline

    def scores(self, counts):
        """Return the score of pairs: float64[n]."""
        return final_scores(*counts)[self.part]

    def components(self, counts):
        """Return precision, recall and f1 of pairs by name: float64[n] each."""
        return dict(zip(("precision", "recall", "f1"), final_scores(*counts), strict=True))

    def new_workspace(self, corpus):
        """Return an empty dict, to which the first query adds the scratch arrays."""
        return {}

    def stages(self, workspaces):
        """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

        `workspaces` are the dicts of the threads.
        """
        return stages(workspaces)
