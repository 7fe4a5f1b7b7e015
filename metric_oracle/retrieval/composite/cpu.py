"""Search under a composite: all parts but BERTScore are cheap for every candidate; its bounds do the rest.

Lower is better. Where the composite falls as BERTScore rises, the least composite is the greatest F1 plus a bonus that
the other parts give. The README of this folder says how it stays exact for other signs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma, sample_size
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.contract import Capabilities, Kernel
from metric_oracle.kernels.cosine.cpu import screen_error
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import Term
from metric_oracle.retrieval.composite.score import composite, term
from metric_oracle.retrieval.kernels import load_kernel

SIMILARITIES = 1 << 24  # float32 cosines that a thread holds at most, 64 MB
STEEPEST = 1e30  # composites over slope beyond which a bonus would leave float32's range
COSINE, BERTSCORE = "cosine", "bertscore"  # kernels of the parts that are not cheap
BONUS = "bonus"


class Bonuses(NamedTuple):
    """What the other parts add to BERTScore, in its units: (least - their sum) / slope.

    Attributes
    ----------
    items : Items
        With the bonuses, enlarged by their margin.
    least : float
        The least sum of the other parts.
    slope : float
        By how much the composite falls as BERTScore rises.
    """

    items: bertscore.Items
    least: float
    slope: float


@dataclass(frozen=True)
class Backend(Kernel):
    """Composites on CPUs.

    Attributes
    ----------
    terms : mapping of str to Term
        Parts in the order of their sum.
    intercept : float
    scored : dict
        Values of the parts of pairs of distinct query and listed combination, as a search found them.
    closest : dict
        The least distance of the margins of float32 cosines and of bonuses from an error that became known.
    """

    terms: Mapping[str, Term]
    intercept: float
    scored: dict[tuple[int, int], list[float]] = field(default_factory=dict, compare=False, repr=False)
    closest: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of the parts."""
        return {name: load_kernel(t.metric, "cpu") for name, t in self.terms.items()}

    def part(self, kernel: str) -> str | None:
        """Return the name of the part with this kernel, of which there is one at most."""
        return next((name for name, t in self.terms.items() if t.metric.kernel == kernel), None)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Find the k rows with the least composite for the distinct queries first .. last - 1."""
        name = self.part(BERTSCORE)
        for q, similar in zip(range(first, last), self._similarities(corpus, batch, first, last), strict=True):
            values = self.known_values(corpus, batch, q, similar)
            added = self.bonuses(corpus, batch, values, answers.limit[q])
            if added is None:
                item, f1 = self._least(corpus, batch, q, k, values)
            else:
                part = batch.parts[BERTSCORE]
                item, precision, recall = bertscore.find(
                    corpus.parts[name], part, batch.of(q, BERTSCORE), k, added.items, workspace, F1, {}
                )
                f1 = bertscore.final_scores(precision, recall, part.baseline)[F1]
            self.rank(corpus, batch, q, k, item, values, added, f1, answers)
            self.check_dropped(corpus, batch, q, q == first, k, item, values, added, answers)

    def known_values(self, corpus, batch, q, similar):
        """Return the values of the cheap parts for every unit of theirs; `similar` holds float32 cosines."""
        values = self._cheap(corpus, batch, q)
        if similar is not None:
            values[self.part(COSINE)] = similar.astype(np.float64)
        return values

    def bonuses(self, corpus, batch, values, limit):
        """Return `Bonuses` for BERTScore's search; None where its bounds are of no use.

        Composites above `limit` may be left out.
        """
        name = self.part(BERTSCORE)
        if name is None:
            return None
        error = self._cosine_error(corpus)
        others, size = self._sums(corpus, values)
        t, baseline = self.terms[name], batch.parts[BERTSCORE].baseline
        slope, mean = -t.weight / t.scale, t.mean  # the composite is the others - slope (f1 - mean)
        if baseline is not None:
            slope /= 1.0 - baseline[F1]
            mean = baseline[F1] + mean * (1.0 - baseline[F1])
        size += abs(t.weight / t.scale) * (1.0 + abs(t.mean))
        if slope <= 0.0 or size >= STEEPEST * slope:
            return None
        bonus = (others.min() - others) / slope
        # The last is for the rounding of the bonus to float32.
        error = ((error + self._rounding * size) / slope - bonus.min() * 2.0**-23) * (1.0 + 1e-6)
        wide = 2 * error + 1e-5
        least = float(mean + (others.min() - limit) / slope - wide)
        items = bertscore.Items(
            corpus.unit[BERTSCORE], (bonus + error).astype(np.float32), wide, False, corpus.row_ptr, least
        )
        return Bonuses(items, float(others.min()), slope)

    def _least(self, corpus, batch, q, k, values):
        """Return the items that may be among the k best by the values of all parts, and their BERTScore if it is one.

        BERTScore's bounds are from above: where a high one is no merit, all pairs are scored. `values` gets them.
        """
        name = self.part(BERTSCORE)
        if name is not None:
            values[name] = self._f1(corpus, batch, q, np.arange(len(corpus.parts[name].row_ptr) - 1))
        sums, size = self._sums(corpus, values)
        error = self._cosine_error(corpus)
        if error:  # otherwise these are the very sums of the reference
            error += self._rounding * size
        m = min(k, len(sums))
        item = np.flatnonzero(sums <= np.partition(sums, m - 1)[m - 1] + 2 * error)
        return item, None if name is None else values[name][corpus.unit[BERTSCORE][item]]

    def _cosine_error(self, corpus):
        """Bound the error of sums that comes from float32 cosines of embeddings."""
        name = self.part(COSINE)
        if name is None:
            return 0.0
        t = self.terms[name]
        return abs(t.weight / t.scale) * screen_error(corpus.parts[name].vectors.shape[1])

    @property
    def _rounding(self):
        """Bound the rounding errors of two sums of the terms, relative to the greatest partial sum."""
        return gamma(2 * (len(self.terms) + 4), FLOAT64)

    def _check(self, corpus, item, values, added, exact):
        """Compare float32 cosines and bonuses of some items with the exact ones, and raise where one is off its margin.

        A bonus lies above what it bounds, and by no more than the error of the items.
        """
        name, found = self.part(COSINE), {}
        if name is not None and len(item):
            screen = values[name][corpus.unit[self.terms[name].metric.representation][item]]
            found[COSINE] = screen_error(corpus.parts[name].vectors.shape[1]) - float(
                np.abs(screen - exact[name]).max()
            )
        if added is not None and len(item):
            others = np.full(len(item), self.intercept)
            for part, t in self.terms.items():
                if t.metric.kernel != BERTSCORE:
                    others += term(exact[part], t.mean, t.scale, t.weight)
            above = added.items.offset[item] - (added.least - others) / added.slope
            found[BONUS] = float(min(above.min(), added.items.error - above.max()))
        check_bounds(found)
        for stage, distance in found.items():
            self.closest[stage] = min(self.closest.get(stage, np.inf), distance)

    def check_dropped(self, corpus, batch, q, is_first, k, item, values, added, answers):
        """Score dropped items, drawn from the number of the query, and raise if one would have been listed.

        Of a large search the first query of a block always has one, others where so many items hide the cost.
        """
        n, rng = len(corpus.row_ptr) - 1, np.random.default_rng(q)
        size = sample_size(len(next(iter(batch.place.values()))))
        drawn = np.setdiff1d(rng.choice(n, min(size, n), replace=False), item)
        if not len(drawn) or (size == 1 and not is_first and rng.random() * bertscore.SAMPLED > n):
            return
        f1 = None if self.part(BERTSCORE) is None else self._f1(corpus, batch, q, corpus.unit[BERTSCORE][drawn])
        exact = self._exact(corpus, batch, q, drawn, values, f1)
        self._check(corpus, drawn, values, added, exact)
        worst = answers.scores[q, k - 1] if answers.rows[q, k - 1] >= 0 else answers.limit[q]
        check_bounds({}, int(np.count_nonzero(self._scores(exact) <= worst)))

    def rank(self, corpus, batch, q, k, item, values, added, f1, answers):
        """Score items by the exact values of all parts and write the k best rows."""
        exact = self._exact(corpus, batch, q, item, values, f1)
        self._check(corpus, item, values, added, exact)
        scores = self._scores(exact)
        rows, best, ties = select(item, -scores, corpus.row_ptr, corpus.row_id, k)
        answers.put(q, (rows, -best, ties))
        if not len(best):  # nothing reaches the limit
            return
        listed = np.flatnonzero(scores <= -best[-1])[: 4 * k]  # the rest of a long tie is scored again if asked for
        for i, *parts in zip(item[listed].tolist(), *(x[listed].tolist() for x in exact.values()), strict=True):
            self.scored[q, i] = parts

    def _sums(self, corpus, values):
        """Sum the terms whose values are there, in their order.

        Returns
        -------
        total : float64[D]
            Of every item.
        size : float
            Bound on the absolute values of all partial sums.
        """
        total = np.full(len(corpus.row_ptr) - 1, self.intercept)
        size = abs(self.intercept)
        for part, t in self.terms.items():
            if part in values:
                of_unit = term(values[part], t.mean, t.scale, t.weight)
                total += of_unit[corpus.unit[t.metric.representation]]
                size += np.abs(of_unit).max()
        return total, size

    def _cheap(self, corpus, batch, q):
        """Return the exact values of the cheap parts for every unit of theirs."""
        return {
            part: next(self._score_part(part, corpus, batch, [q])) for part, t in self.terms.items() if t.metric.cheap
        }

    def _score_part(self, part: str, corpus, batch, chosen):
        """Yield the values of a part for every unit of it: float64[...] for each of some distinct queries."""
        kind = self.terms[part].metric.representation
        places = [batch.of(q, kind) for q in chosen]
        return self.kernels[part].score_all(corpus.parts[part], batch.parts[kind], places)

    def _similarities(self, corpus, batch, first, last):
        """Yield float32 cosines of each query with every distinct embedding, or None where no part has them."""
        name = self.part(COSINE)
        if name is None:
            yield from [None] * (last - first)
            return
        kind, vectors = self.terms[name].metric.representation, corpus.parts[name].vectors
        at_once = max(1, SIMILARITIES // len(vectors))
        for begin in range(first, last, at_once):
            which = [batch.of(q, kind) for q in range(begin, min(begin + at_once, last))]
            queries = batch.parts[kind].vectors[which]
            yield from (vectors @ queries[0])[None] if len(queries) == 1 else queries @ vectors.T

    def _f1(self, corpus, batch, q, units):
        """Return the exact BERTScore of some units."""
        name = str(self.part(BERTSCORE))
        which = np.full(len(units), batch.of(q, BERTSCORE))
        return self.kernels[name].score_pairs(corpus.parts[name], batch.parts[BERTSCORE], which, units)[0]

    def _exact(self, corpus, batch, q, item, values, f1):
        """Return the exact values of the parts for some items: float64[n] each."""
        exact = {}
        for part, t in self.terms.items():
            kind = t.metric.representation
            units = corpus.unit[kind][item].astype(np.int64)
            if t.metric.kernel == BERTSCORE:
                exact[part] = f1
            elif t.metric.cheap:
                exact[part] = values[part][units]
            else:
                which = np.full(len(units), batch.of(q, kind))
                exact[part] = self.kernels[part].score_pairs(corpus.parts[part], batch.parts[kind], which, units)[0]
        return exact

    def _scores(self, exact):
        """Return the composite of items from the exact values of their parts: float64[n]."""
        rows = zip(*(column.tolist() for column in exact.values()), strict=True)
        return np.array([composite(row, self.terms.values(), self.intercept) for row in rows])

    def score_all(self, corpus, batch, chosen):
        """Yield the composite of every item for each of some distinct queries, right within `score_error`."""
        out = np.empty(len(corpus.row_ptr) - 1)
        streams = [self._score_part(part, corpus, batch, chosen) for part in self.terms]
        for values in zip(*streams, strict=True):
            out[:] = self.intercept
            for t, value in zip(self.terms.values(), values, strict=True):
                out += term(value, t.mean, t.scale, t.weight)[corpus.unit[t.metric.representation]]
            yield out

    def score_error(self, corpus, batch):
        """Bound the error of what `score_all` yields: that of its parts, weighted."""
        error = 0.0
        for part, t in self.terms.items():
            of_part = self.kernels[part].score_error(corpus.parts[part], batch.parts[t.metric.representation])
            error += abs(t.weight / t.scale) * of_part
        return error

    def score_pairs(self, corpus, batch, query, document):
        """Return the score of pairs of a distinct query and an item, float64[n], and the values of their parts."""
        values = self.components(corpus, batch, query, document, None)
        return self._scores(values), values

    def new_workspace(self, corpus):
        """Return room for the scratch of one thread, made at its first query."""
        return {}

    def stages(self, workspaces):
        """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
        return self.with_closest(bertscore.stages(workspaces))

    def with_closest(self, found):
        """Return the stages of BERTScore's search with the closest calls of the cosines and the bonuses."""
        closest = {**found.get("closest_call", {}), **self.closest}
        return {**found, "closest_call": closest} if closest else found

    def components(self, corpus, batch, query, document, scores):
        """Return the values of the parts for pairs of a distinct query and an item."""
        out = {part: np.empty(len(query)) for part in self.terms}
        pairs = list(zip(query.tolist(), document.tolist(), strict=True))
        known = np.array([pair in self.scored for pair in pairs])
        kept = np.array([self.scored[pair] for pair in pairs if pair in self.scored]).reshape(-1, len(out))
        for column, values in zip(out.values(), kept.T, strict=True):
            column[known] = values
        for q in np.unique(query[~known]).tolist():
            some = np.flatnonzero((query == q) & ~known)
            f1 = None
            if self.part(BERTSCORE) is not None:
                f1 = self._f1(corpus, batch, q, corpus.unit[BERTSCORE][document[some]].astype(np.int64))
            exact = self._exact(corpus, batch, q, document[some], self._cheap(corpus, batch, q), f1)
            for part, column in out.items():
                column[some] = exact[part]
        return out
