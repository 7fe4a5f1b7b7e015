"""BERTScore search: cells bound every candidate, codes bound what is left, float32 and float64 products the finalists.

Several queries go through the codes together, so that these come from memory once for all of them. The README of this
folder proves the bounds.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from metric_oracle.kernels._errors import check_bounds, sample_size
from metric_oracle.kernels._simd import LANES
from metric_oracle.kernels.bertscore import all_pairs
from metric_oracle.kernels.bertscore.bounds import angle_tables, fill_tables, margins_of
from metric_oracle.kernels.bertscore.cascade import (
    OF_QUERY,
    STAGES,
    Answers,
    Group,
    Items,
    Work,
    check,
    finish,
    forget_items,
    reset,
    search_cells,
    search_codes,
)
from metric_oracle.kernels.bertscore.exact import exact_pair
from metric_oracle.kernels.bertscore.query import Coded, Query, pack_query
from metric_oracle.kernels.bertscore.score import F1, f1, rescale
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.topk.reference import select

SEEDS = 64  # candidates that are bounded by their codes first, 8 k more for k answers
MOST_SEEDED = 256  # answers beyond which no more seeds are taken
ROUNDING = 1e-12  # of a score that is rescaled and back
QUERIES = 8  # that go through the corpus together
SAMPLED = 500_000  # items for each of which a large search scores one dropped item as a check
TILE = 1 << 18  # items that are searched together: a thread's memory does not grow beyond them


def pack(corpus, batch, q):
    """Lay out a distinct query; see `pack_query`."""
    return pack_query(batch.states_of(q), batch.weights_of(q), corpus.basis, corpus.direction)


def room(work, corpus, n_items, n_cells, longest_query, k, n_queries=1):
    """Allocate the scratch of one thread for up to `n_items` at once; pages that no query needs are never touched.

    Returns
    -------
    scratch : Work, of a group
    answers : list of Answers, one for each query of a group
    """
    if work:
        return work["scratch"], work["answers"]
    longest = int(np.diff(corpus.ptr).max(initial=1))
    width = corpus.states.shape[1]
    passes = -(-longest_query // LANES)
    n_seeds = min(SEEDS + 8 * min(k, MOST_SEEDED), n_items)
    scratch = Work(
        table=np.empty((n_queries, passes, n_cells, LANES), np.int16),
        angle=np.empty((n_queries, passes, n_cells, LANES), np.uint8),
        ends=np.empty((n_queries, n_cells, 2), np.float32),
        upper=np.empty((n_queries, n_items), np.float32),
        lower=np.empty((n_queries, n_items), np.float32),
        kept=np.empty((n_queries, n_items), np.int32),
        kept_bound=np.empty((n_queries, n_items)),
        kept_recall=np.empty((n_queries, n_items), np.float32),
        means=np.empty(2, np.float32),
        row=np.empty(1 + longest + 16, np.float32),
        column=np.empty((passes, LANES), np.float32),
        lowest=np.empty((passes, LANES), np.uint8),
        wide=np.empty((longest, width), np.float32),
        turned=np.empty((width, longest)),
        sums=np.empty((longest_query, longest)),
        seed=np.empty(n_seeds, np.int32),
        seed_bound=np.empty(n_seeds),
    )
    counts, closest = np.zeros(len(STAGES) + 2, np.int64), np.full(len(STAGES), np.inf)
    answers = [
        Answers(
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
        for _ in range(n_queries)
    ]
    work.update(scratch=scratch, answers=answers, counts=counts, closest=closest)
    return scratch, answers


def line_of(scratch, g):
    """Return the scratch of one query of a group."""
    return Work(*(x[g] for x in scratch[:OF_QUERY]), *scratch[OF_QUERY:])


def find(corpus, batch, q, k, items, work, part, scored):
    """Return what `find_all` returns of a distinct query."""
    return find_all(corpus, batch, [q], k, [items], work, part, scored)[0]


def find_all(corpus, batch, places, k, items, work, part, scored, n_queries=1):
    """Return for each distinct query the items that may be among its k best rows, and their exact precision and recall.

    Parameters
    ----------
    places : sequence of int
        At most as many as `n_queries`, which the scratch is made for.
    items : list of Items
        For each query: the same units and rows, and what is added to their scores.

    Returns
    -------
    list of (int64[n], float64[n], float64[n])

    Raises
    ------
    ExactnessError
        If a bound lies below a score that became known, or a dropped candidate should have been listed.
    """
    n_items, n_sampled = len(items[0].unit), sample_size(len(batch.ptr) - 1)
    scratch, answers = room(work, corpus, min(n_items, TILE), len(corpus.centers), batch.longest, k, n_queries)
    margins = margins_of(corpus.states.shape[1], corpus.norm_error)
    tables = angle_tables(margins)
    queries, lines = [], []
    for g, q in enumerate(places):
        query, unit = pack(corpus, batch, q)
        queries.append(query)
        lines.append(line_of(scratch, g))
        fill_tables(corpus.centers @ unit.T, margins.rise, lines[g], tables)
        reset(answers[g], items[g].least)
    found: list[list[Any]] = [[] for _ in places]
    for first in _tiles(n_items, queries, items[0].unit, corpus):
        tile = [_part_of(x, first) for x in items]
        samples = []
        for g, query in enumerate(queries):
            forget_items(answers[g])
            search_cells(part, k, tile[g], corpus, query, margins, tables, lines[g], answers[g])
            samples.append(_sample(places[g], n_sampled, g == 0, lines[g], answers[g], len(tile[g].unit)))
        group = _group(queries, tile, answers)
        before = int(group.n_kept.sum())
        search_codes(part, tile[0].unit, corpus, group, margins, scratch)
        work["counts"][1] += before - int(group.n_kept.sum())
        for g, query in enumerate(queries):
            answers[g].state[3] = group.n_kept[g]
            finish(part, k, tile[g], corpus, query, margins, lines[g], answers[g])
            check(part, tile[g], corpus, query, margins, tables, samples[g], lines[g], answers[g])
            item, *parts = taken(scored, places[g], tile[g], answers[g])
            found[g].append((item + first, *parts))
    check_bounds(_closest([work]), int(work["counts"][4]))
    return [tuple(map(np.concatenate, zip(*tiles, strict=True))) for tiles in found]


def _tiles(n_items, queries, unit, corpus):
    """Return where the tiles of the items begin: first those with reports of the queries' length, which score best."""
    n = np.median([len(query.weights) for query in queries])
    firsts = np.arange(0, n_items, TILE)
    middle = unit[(firsts + np.minimum(firsts + TILE, n_items)) // 2]
    return firsts[np.argsort(np.abs(corpus.ptr[middle + 1] - corpus.ptr[middle] - n), kind="stable")]


def _part_of(items, first):
    """Return the items of a tile."""
    last = min(first + TILE, len(items.unit))
    return items._replace(
        unit=items.unit[first:last], bonus=items.bonus[first:last], row_ptr=items.row_ptr[first : last + 1]
    )


def _group(queries, items, answers):
    """Lay the codes of some queries side by side."""
    passes = max(len(query.pads) for query in queries)
    n = np.array([len(query.weights) for query in queries])

    def stacked(name, shape):
        first = getattr(queries[0].coded, name)
        out = np.zeros((len(queries), *shape, *first.shape[1:]), first.dtype)
        for line, query in zip(out, queries, strict=True):
            line[: len(getattr(query.coded, name))] = getattr(query.coded, name)
        return out

    coded = Coded(
        stacked("weights", (int(n.max()),)),
        stacked("codes", (passes,)),
        stacked("lanes", (passes,)),
        stacked("lanes_below", (passes,)),
        np.stack([query.coded.scalars for query in queries]),
    )
    answers = answers[: len(queries)]
    bonus = items[0].bonus[None] if len(queries) == 1 else np.stack([x.bonus for x in items])
    threshold = np.stack([x.threshold for x in answers])
    n_kept = np.array([x.state[3] for x in answers])
    return Group(coded, n, bonus, threshold, n_kept, *np.zeros((2, len(queries)), np.int64))


def _sample(q, n, is_first, work, found, n_items):
    """Return items of a query that are scored in any case: n of all, and a quarter as many that the cells keep.

    Where n is 1, the first query of a group has both items always, others where so many items hide the cost.
    """
    rng = np.random.default_rng(q)
    n_kept = int(found.state[3])
    if n == 1 and (not n_kept or (not is_first and rng.random() * SAMPLED > n_items)):
        return np.empty(0, np.int64)
    kept = work.kept[rng.integers(n_kept, size=-(-n // 4))] if n_kept else []
    return np.concatenate([rng.integers(n_items, size=n), kept]).astype(np.int64)


def taken(scored, q, items, answers):
    """Return what `find` returns from the scratch, and note it in `scored`: components are asked for later."""
    n = answers.state[0]
    item, precision, recall = (x[:n].copy() for x in (answers.item, answers.precision, answers.recall))
    for u, *parts in zip(items.unit[item].tolist(), precision.tolist(), recall.tolist(), strict=True):
        scored[q, u] = parts
    return item.astype(np.int64), precision, recall


def final_scores(precision, recall, baseline):
    """Return precision, recall and f1 on the scale of the results, float64[n] each."""
    values = precision, recall, np.array([f1(p, r) for p, r in zip(precision, recall, strict=True)])
    if baseline is None:
        return values
    return tuple(np.array([rescale(v, b) for v in x]) for x, b in zip(values, baseline, strict=True))


def least_of(limit, baseline, part):
    """Return the scores below which none reaches the limits on the scale of the results: a list of float."""
    if baseline is None:
        return limit.tolist()
    return (limit * (1.0 - baseline[part]) + baseline[part] - ROUNDING).tolist()


def _closest(works):
    """Return the least distance of the bounds of each stage from a score that became known."""
    least = np.min([work["closest"] for work in works if work], axis=0, initial=np.inf)
    return {name: float(x) for name, x in zip(STAGES, np.broadcast_to(least, len(STAGES)), strict=True) if x < np.inf}


def stages(works):
    """Return the share of pairs that each stage dropped, that scored in float64, and the closest call of each bound."""
    counts = sum((work["counts"] for work in works if work), np.zeros(len(STAGES) + 2, np.int64))[:4]
    total = int(counts.sum())
    if not total:  # a composite without BERTScore: nothing was bounded
        return {"scored": 1.0}
    shares = {name: float(n / total) for name, n in zip((*STAGES, "scored"), counts, strict=True)}
    return {**shares, "closest_call": _closest(works)}


@dataclass(frozen=True)
class Backend(Kernel):
    """BERTScore on CPUs."""

    part: int = F1
    scored: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, queries_at_once=all_pairs.QUERIES)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k best rows of the corpus for the distinct queries first .. last - 1."""
        n = len(corpus.row_ptr) - 1
        items = Items(np.arange(n, dtype=np.int32), np.zeros(n, np.float32), 0.0, True, corpus.row_ptr)
        for begin in range(first, last, QUERIES):
            places = range(begin, min(begin + QUERIES, last))
            every = [items._replace(least=x) for x in least_of(answers.limit[places], batch.baseline, self.part)]
            found = find_all(corpus, batch, places, k, every, workspace, self.part, self.scored, QUERIES)
            for q, (item, precision, recall) in zip(places, found, strict=True):
                scores = final_scores(precision, recall, batch.baseline)[self.part]
                answers.put(q, select(item, scores, corpus.row_ptr, corpus.row_id, k))

    def score_all(self, corpus, batch, chosen):
        """Yield BERTScore of every unit against each of some distinct queries.

        float64[D], right within `score_error` and overwritten by the next; exact where precision and recall may differ
        in sign.
        """
        queries = all_pairs.pack(batch, chosen)
        out = np.empty((len(chosen), len(corpus.row_ptr) - 1))
        base = 0.0 if batch.baseline is None else batch.baseline[self.part]
        all_pairs.score(self.part, corpus, queries, self._error(corpus), base, out)
        for q, scores in zip(chosen, out, strict=True):
            unsure = np.flatnonzero(np.isnan(scores))
            scores[unsure] = self.score_pairs(corpus, batch, np.full(len(unsure), q), unsure)[0]
            yield scores

    def _error(self, corpus):
        return all_pairs.error_of(corpus.states.shape[1], self.part)

    def score_error(self, corpus, batch):
        """Bound the error of what `score_all` yields."""
        error = self._error(corpus)
        return error if batch.baseline is None else error / (1.0 - batch.baseline[self.part])

    def score_pairs(self, corpus, batch, query, unit):
        """Return the score of pairs of a distinct query and a unit, float64[n], and their components."""
        values = self.components(corpus, batch, query, unit, None)
        return list(values.values())[self.part], values

    def components(self, corpus, batch, query, unit, scores):
        """Return precision, recall and f1 of pairs of distinct query and unit."""
        parts = np.zeros((len(unit), 2))
        scratch = line_of(room({}, corpus, 1, 1, batch.longest, 1)[0], 0)
        packed: dict[int, Query] = {}
        for i, (q, u) in enumerate(zip(query.tolist(), unit.tolist(), strict=True)):
            if (q, u) in self.scored:
                parts[i] = self.scored[q, u]
                continue
            if q not in packed:
                packed = {q: pack(corpus, batch, q)[0]}
            parts[i] = exact_pair(u, corpus, packed[q], scratch)
        return dict(
            zip(("precision", "recall", "f1"), final_scores(parts[:, 0], parts[:, 1], batch.baseline), strict=True)
        )

    def new_workspace(self, corpus):
        """Return room for the scratch of one thread, made at its first query."""
        return {}

    def stages(self, workspaces):
        """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
        return stages(workspaces)
