"""BERTScore search on CPUs: the cascade of bounds, one query at a time.

The README proves the bounds; `cascade.py` explains items.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from metric_oracle.kernels._errors import check_bounds, sample_size
from metric_oracle.kernels._simd import LANES
from metric_oracle.kernels.bertscore import all_pairs
from metric_oracle.kernels.bertscore.bounds import angle_tables, fill_tables, margins_of
from metric_oracle.kernels.bertscore.cascade import (
    STAGES,
    ItemScores,
    Work,
    check,
    every_document,
    finish,
    forget_items,
    reset,
    search_cells,
    search_codes,
)
from metric_oracle.kernels.bertscore.exact import exact_pair
from metric_oracle.kernels.bertscore.query import Query, pack_query
from metric_oracle.kernels.bertscore.score import F1, f1, rescale
from metric_oracle.kernels.contract import Capabilities, Kernel

STARTS = 64  # candidates of a warm start, and 8 k more for k answers
MOST_STARTS = 256  # answers beyond which a warm start is not enlarged
ROUNDING = 1e-12  # of rescaling a score and back
SAMPLED = 500_000  # a large search checks one dropped item in so many
CHECKED = 8  # and always items of one query in so many, unless the cells drop all of its items
TILE = 1 << 18  # items that are searched together, which limits the memory of a thread


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
    longest = int(np.diff(corpus.ptr).max(initial=1))
    width = corpus.states.shape[1]
    passes = -(-longest_query // LANES)
    n_starts = min(STARTS + 8 * min(k, MOST_STARTS), n_items)
    scratch = Work(
        table=np.empty((passes, n_cells * LANES), np.int16),
        angle=np.empty((passes, n_cells * LANES), np.uint8),
        ends=np.empty((n_cells, 2), np.float32),
        upper=np.empty(n_items, np.float32),
        lower=np.empty(n_items, np.float32),
        kept=np.empty(n_items, np.int32),
        kept_bound=np.empty(n_items),
        kept_recall=np.empty(n_items, np.float32),
        means=np.empty(2, np.float32),
        row=np.empty(1 + longest + 16, np.float32),
        column=np.empty((passes, LANES), np.float32),
        lowest=np.empty((passes, LANES), np.uint8),
        wide=np.empty((longest, width), np.float32),
        turned=np.empty((width, longest)),
        sums=np.empty((longest_query, longest)),
        start=np.empty(n_starts, np.int32),
        start_bound=np.empty(n_starts),
    )
    counts, closest = np.zeros(len(STAGES) + 2, np.int64), np.full(len(STAGES), np.inf)
    answers = ItemScores(
        item=np.empty(n_items, np.int32),
        precision=np.empty(n_items),
        recall=np.empty(n_items),
        is_scored=np.zeros(n_items, bool),
        best=np.empty(k + 1),
        best_rows=np.empty(k + 1, np.int64),
        threshold=np.full(1, -np.inf),
        state=np.array([0, 0, 0, 0, -1]),
        counts=counts,
        closest=closest,
    )
    work.update(scratch=scratch, answers=answers, counts=counts, closest=closest)
    return scratch, answers


_tables_of = lru_cache(4)(angle_tables)  # they are the same for all queries of a corpus


def find(corpus, batch, q, k, items, work, part, scored):
    """Return the items that may be among the k best rows of distinct query q, with their exact precision and recall.

    They are int64[n], float64[n] and float64[n]. Raise ExactnessError if a bound is below an exact score, or a dropped
    candidate belongs in the list. `items` are the `Items` to choose from, `work` is a dict for the scratch arrays of
    the thread, allocated by the first call, and the dict `scored` gets precision and recall of each scored pair of a
    query and a document. `part` is the score that ranks: PRECISION, RECALL, F1 or MEAN.
    """
    n_items, n_sampled = len(items.document), sample_size(len(batch.ptr) - 1)
    scratch, answers = new_scratch(work, corpus, min(n_items, TILE), len(corpus.centers), batch.longest, k)
    margins = margins_of(corpus.states.shape[1], corpus.norm_error)
    tables = _tables_of(margins)
    query, document = pack(corpus, batch, q)
    fill_tables(corpus.centers @ document.T, margins.rise, scratch, tables)
    reset(answers, items.least)
    results: list[Any] = []
    for first in _tiles(n_items, len(query.weights), items.document, corpus):
        tile = _part_of(items, first)
        forget_items(answers)
        search_cells(part, k, tile, corpus, query, margins, tables, scratch, answers)
        sample = _sample(q, n_sampled, tile, scratch, answers)
        search_codes(part, tile, corpus, query, margins, tables, scratch, answers)
        finish(part, k, tile, corpus, query, margins, scratch, answers)
        check(part, tile, corpus, query, margins, tables, sample, scratch, answers)
        item, *parts = collect_scores(scored, q, tile, answers)
        results.append((item + first, *parts))
    check_bounds(_closest([work]), int(work["counts"][4]))
    return tuple(map(np.concatenate, zip(*results, strict=True)))


def _tiles(n_items, n_tokens, document, corpus):
    """Return the first item of each tile, a run of documents that is searched at a time.

    `document` is that of `Items`. Tiles with reports of the query's length, `n_tokens`, come first, because they score
    best.
    """
    firsts = np.arange(0, n_items, TILE)
    middle = document[(firsts + np.minimum(firsts + TILE, n_items)) // 2]
    return firsts[np.argsort(np.abs(corpus.ptr[middle + 1] - corpus.ptr[middle] - n_tokens), kind="stable")]


def _part_of(items, first):
    """Return the items of the tile that begins with item `first`."""
    last = min(first + TILE, len(items.document))
    return items._replace(
        document=items.document[first:last], offset=items.offset[first:last], row_ptr=items.row_ptr[first : last + 1]
    )


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
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, queries_at_once=all_pairs.QUERIES)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries first .. last - 1 into `answers`."""
        items = every_document(corpus.row_ptr)
        places = range(first, last)
        every = items_of(items, places, least_of(answers.limit[places], batch.baseline, self.part), answers)
        for q, of_query in zip(places, every, strict=True):
            item, precision, recall = find(corpus, batch, q, k, of_query, workspace, self.part, self.scored)
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
