"""Search under a composite on CPUs. All terms but BERTScore are computed for every candidate; BERTScore has bounds.

A composite is a weighted sum of metrics, its *terms*; lower is better. If the composite falls as BERTScore rises, the
smallest composite is the greatest sum of BERTScore and a *bonus*: what the other terms contribute, in units of
BERTScore. The README of this folder explains the search for other signs. *Cheap* terms are those other than BERTScore
and the cosines of embeddings. A candidate, or item, is a distinct combination of documents of the terms'
representations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma, sample_size
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.cascade import Items
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.contract import Capabilities, Kernel, read_only
from metric_oracle.kernels.cosine.cpu import screen_error
from metric_oracle.records import Term
from metric_oracle.retrieval.composite.score import composite, term
from metric_oracle.retrieval.kernels import load_kernel

SIMILARITIES = 1 << 24  # most float32 cosines that a thread keeps, 64 MB
STEEPEST = 1e30  # greatest ratio of composite and slope for which a bonus is in the range of float32
COSINE, BERTSCORE = "cosine", "bertscore"  # kernels of the terms that are not cheap
BONUS = "bonus"


class Bonuses(NamedTuple):
    """Bonuses: what the other terms add to BERTScore F1 in the search, (least - their sum) / slope."""

    items: Items  # candidates with their bonuses, each enlarged by the error margin, for BERTScore's search
    least: float  # the least sum of the other terms
    slope: float  # by how much the composite falls as BERTScore rises


@dataclass(frozen=True)
class Backend(Kernel):
    """Composites on CPUs."""

    terms: Mapping[str, Term]  # terms by name, in the order in which they are summed
    intercept: float  # added to the sum of the terms
    # Values of the terms for pairs of a distinct query and a document, as a search computed them; see `rank`.
    scored: dict[tuple[int, int], list[float]] = field(default_factory=dict, compare=False, repr=False)
    # Smallest distance between an error margin and a measured error, for float32 cosines and for bonuses.
    closest: dict[str, float] = field(default_factory=dict, compare=False, repr=False)
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernel of each term, by its name."""
        return {name: load_kernel(t.metric, "cpu") for name, t in self.terms.items()}

    def part(self, kernel: str) -> str | None:
        """Return the name of the term with this kernel, None if there is none. At most one term has it."""
        return next((name for name, t in self.terms.items() if t.metric.kernel == kernel), None)

    def search(self, corpus, batch, first, last, k, answers, workspace):
        """Write the k rows with the least composite for the distinct queries first .. last - 1 to `answers`."""
        name = self.part(BERTSCORE)
        for q, similar in zip(range(first, last), self._similarities(corpus, batch, first, last), strict=True):
            values = self.known_values(corpus, batch, q, similar)
            added = self.bonuses(corpus, batch, q, values, answers)
            if added is None:
                item, f1 = self._least(corpus, batch, q, answers.exclusion.n_documents(q, k), values)
            else:
                part = batch.parts[BERTSCORE]
                item, precision, recall = bertscore.find(
                    corpus.parts[name], part, batch.of(q, BERTSCORE), k, added.items, workspace, F1, {}
                )
                f1 = bertscore.final_scores(precision, recall, part.baseline)[F1]
            worst = self.rank(corpus, batch, q, k, item, values, added, f1, answers)
            self.check_dropped(corpus, batch, q, q == first, worst, item, values, added)

    def known_values(self, corpus, batch, q, similar):
        """Return, by name, the values of the cheap terms and of the cosine term for query q and all their documents.

        `similar` are the float32 cosines of query q with all distinct embeddings, or None if no term is a cosine.
        """
        values = self._cheap(corpus, batch, q)
        if similar is not None:
            values[self.part(COSINE)] = similar.astype(np.float64)
        return values

    def bonuses(self, corpus, batch, q, values, answers):
        """Return `Bonuses` for BERTScore's search with query q; None where its bounds are of no use.

        `values` are those of `known_values`. Composites above the limit of the query in `answers` may be left out.
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
        # The last summand covers the rounding of the bonus to float32.
        error = ((error + self._rounding * size) / slope - bonus.min() * 2.0**-23) * (1.0 + 1e-6)
        wide = 2 * error + 1e-5
        least = float(mean + (others.min() - answers.limit[q]) / slope - wide)
        row_ptr = answers.exclusion.row_ptr(q, corpus.row_ptr)
        items = Items(corpus.document_of[BERTSCORE], (bonus + error).astype(np.float32), wide, False, row_ptr, least)
        return Bonuses(read_only(items), float(others.min()), slope)

    def _least(self, corpus, batch, q, n, values):
        """Return the items that may be among the n best for query q, and their BERTScore, None if it is no term.

        This is used if a high BERTScore does not lower the composite, so that BERTScore's upper bounds do not help: all
        pairs are scored, and the scores are added to `values`.
        """
        name = self.part(BERTSCORE)
        if name is not None:
            values[name] = self._f1(corpus, batch, q, np.arange(len(corpus.parts[name].row_ptr) - 1))
        sums, size = self._sums(corpus, values)
        error = self._cosine_error(corpus)
        if error:  # otherwise the sums equal those of the plain scorer
            error += self._rounding * size
        m = min(n, len(sums))
        item = np.flatnonzero(sums <= np.partition(sums, m - 1)[m - 1] + 2 * error)
        return item, None if name is None else values[name][corpus.document_of[BERTSCORE][item]]

    def _cosine_error(self, corpus):
        """Return a bound of the error that cosines of embeddings in float32, not float64, cause in a composite."""
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
        """Compare float32 cosines and bonuses of items with their exact values, and record the closest in `closest`.

        Raise ExactnessError beyond a margin.

        A bonus must be at least the exact value, and exceed it by at most the error of the items. `values` are those of
        `known_values`, `added` those of `bonuses`, `exact` those of `_exact`.
        """
        name, margins = self.part(COSINE), {}
        if name is not None and len(item):
            screen = values[name][corpus.document_of[self.terms[name].metric.representation][item]]
            margins[COSINE] = screen_error(corpus.parts[name].vectors.shape[1]) - float(
                np.abs(screen - exact[name]).max()
            )
        if added is not None and len(item):
            others = np.full(len(item), self.intercept)
            for part, t in self.terms.items():
                if t.metric.kernel != BERTSCORE:
                    others += term(exact[part], t.mean, t.scale, t.weight)
            above = added.items.offset[item] - (added.least - others) / added.slope
            margins[BONUS] = float(min(above.min(), added.items.error - above.max()))
        check_bounds(margins)
        for stage, distance in margins.items():
            self.closest[stage] = min(self.closest.get(stage, np.inf), distance)

    def check_dropped(self, corpus, batch, q, is_first, worst, item, values, added):
        """Score random items other than `item`, and raise ExactnessError if one scores `worst` or better.

        These the search dropped. The number of the query seeds the choice. In a large search the first query of a block
        always gets a check, and others only if the corpus is so large that the cost of the check is hidden.
        """
        n, rng = len(corpus.row_ptr) - 1, np.random.default_rng(q)
        size = sample_size(len(next(iter(batch.place.values()))))
        drawn = np.setdiff1d(rng.choice(n, min(size, n), replace=False), item)
        if not len(drawn) or (size == 1 and not is_first and rng.random() * bertscore.SAMPLED > n):
            return
        f1 = None if self.part(BERTSCORE) is None else self._f1(corpus, batch, q, corpus.document_of[BERTSCORE][drawn])
        exact = self._exact(corpus, batch, q, drawn, values, f1)
        self._check(corpus, drawn, values, added, exact)
        check_bounds({}, int(np.count_nonzero(self._scores(exact) <= worst)))

    def rank(self, corpus, batch, q, k, item, values, added, f1, answers):
        """Score items by the exact values of all terms, and write the k best rows of query q to `answers`.

        `f1` is their BERTScore, None if it is no term. Return the score that all dropped items must be worse than. The
        values of items that score no worse are kept in `scored`.
        """
        exact = self._exact(corpus, batch, q, item, values, f1)
        self._check(corpus, item, values, added, exact)
        scores = self._scores(exact)
        worst = min(answers.put(q, item, scores, corpus, k, -1.0), answers.limit[q])
        listed = np.flatnonzero(scores <= worst)[: 4 * k]  # the rest of a long tie is scored again if needed
        for i, *parts in zip(item[listed].tolist(), *(x[listed].tolist() for x in exact.values()), strict=True):
            self.scored[q, i] = parts
        return worst

    def _sums(self, corpus, values):
        """Return the sum of the terms in `values` for every candidate, float64[D], and a bound on its partial sums.

        The intercept is added. The bound is on the absolute values of all partial sums, of all candidates.
        """
        total = np.full(len(corpus.row_ptr) - 1, self.intercept)
        size = abs(self.intercept)
        for part, t in self.terms.items():
            if part in values:
                of_document = term(values[part], t.mean, t.scale, t.weight)
                total += of_document[corpus.document_of[t.metric.representation]]
                size += np.abs(of_document).max()
        return total, size

    def _cheap(self, corpus, batch, q):
        """Return, by name, the exact values of the cheap terms for query q and all their documents: float64[...]."""
        return {
            part: next(self._score_part(part, corpus, batch, [q])) for part, t in self.terms.items() if t.metric.cheap
        }

    def _score_part(self, part: str, corpus, batch, chosen):
        """Yield the values of the term `part` for all its documents, float64[...], for each chosen distinct query."""
        kind = self.terms[part].metric.representation
        places = [batch.of(q, kind) for q in chosen]
        return self.kernels[part].score_all(corpus.parts[part], batch.parts[kind], places)

    def _similarities(self, corpus, batch, first, last):
        """Yield the cosines of each query with all distinct embeddings, float32[...]; None without such a term."""
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

    def _f1(self, corpus, batch, q, documents):
        """Return the exact BERTScore of query q with documents of its representation, int64[n]: float64[n]."""
        name = str(self.part(BERTSCORE))
        which = np.full(len(documents), batch.of(q, BERTSCORE))
        return self.kernels[name].score_pairs(corpus.parts[name], batch.parts[BERTSCORE], which, documents)[0]

    def _exact(self, corpus, batch, q, item, values, f1):
        """Return, by name, the exact values of the terms for query q and the candidates `item`: float64[n] each.

        Those of cheap terms are in `values`; `f1` is the BERTScore of the candidates.
        """
        exact = {}
        for part, t in self.terms.items():
            kind = t.metric.representation
            documents = corpus.document_of[kind][item].astype(np.int64)
            if t.metric.kernel == BERTSCORE:
                exact[part] = f1
            elif t.metric.cheap:
                exact[part] = values[part][documents]
            else:
                which = np.full(len(documents), batch.of(q, kind))
                exact[part] = self.kernels[part].score_pairs(corpus.parts[part], batch.parts[kind], which, documents)[0]
        return exact

    def _scores(self, exact):
        """Return the composite of candidates from the exact values of their terms: float64[n]."""
        rows = zip(*(column.tolist() for column in exact.values()), strict=True)
        return np.array([composite(row, self.terms.values(), self.intercept) for row in rows])

    def score_all(self, corpus, batch, chosen):
        """Yield the composite of all candidates, float64[D], for each chosen query, within `score_error`.

        Each array overwrites the one before.
        """
        streams = [self._score_part(part, corpus, batch, chosen) for part in self.terms]
        return self._composites(streams, [corpus.document_of[t.metric.representation] for t in self.terms.values()])

    def score_some(self, corpus, batch, chosen, documents):
        """Yield the composite of some documents, int64[n], for each chosen query: float64[n], see `score_all`."""
        streams, places = [], []
        for part, t in self.terms.items():
            kind = t.metric.representation
            own, place = np.unique(corpus.document_of[kind][documents].astype(np.int64), return_inverse=True)
            which = [batch.of(q, kind) for q in chosen]
            streams.append(self.kernels[part].score_some(corpus.parts[part], batch.parts[kind], which, own))
            places.append(place)
        return self._composites(streams, places)

    def _composites(self, streams, places):
        """Yield the composite of candidates, float64[n], for each query; each array overwrites the one before.

        There is a stream for each term, which yields the values of its documents for each query, and an array in
        `places` with the document of each candidate among these.
        """
        out = np.empty(len(places[0]))
        for values in zip(*streams, strict=True):
            out[:] = self.intercept
            for t, value, place in zip(self.terms.values(), values, places, strict=True):
                out += term(value, t.mean, t.scale, t.weight)[place]
            yield out

    def score_error(self, corpus, batch):
        """Return an upper bound on the error of any score of `score_all`.

        It is the sum of the bounds of the terms, each times |weight / scale|.
        """
        error = 0.0
        for part, t in self.terms.items():
            of_part = self.kernels[part].score_error(corpus.parts[part], batch.parts[t.metric.representation])
            error += abs(t.weight / t.scale) * of_part
        return error

    def score_pairs(self, corpus, batch, query, document):
        """Return the scores of pairs of a distinct query and a document, float64[n], and the terms' values by name."""
        values = self.components(corpus, batch, query, document, None)
        return self._scores(values), values

    def new_workspace(self, corpus):
        """Return an empty workspace of BERTScore's search for one thread; it is filled at the first query."""
        return {}

    def stages(self, workspaces):
        """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

        `workspaces` are the dicts of the threads.
        """
        return self.with_closest(bertscore.stages(workspaces))

    def with_closest(self, stages):
        """Return `stages`, what the signature records of BERTScore's search, with closest calls of cosines and bonuses.

        A closest call is the least difference between an error margin and a measured error.
        """
        closest = {**stages.get("closest_call", {}), **self.closest}
        return {**stages, "closest_call": closest} if closest else stages

    def components(self, corpus, batch, query, document, scores):
        """Return the values of the terms for pairs of a distinct query and a document, by name: float64[n] each.

        Those in `scored` are taken from there; `scores` is not read.
        """
        out = {part: np.empty(len(query)) for part in self.terms}
        pairs = list(zip(query.tolist(), document.tolist(), strict=True))
        is_scored = np.array([pair in self.scored for pair in pairs], np.bool_)
        scored = np.array([self.scored[pair] for pair in pairs if pair in self.scored]).reshape(-1, len(out))
        for column, values in zip(out.values(), scored.T, strict=True):
            column[is_scored] = values
        for q in np.unique(query[~is_scored]).tolist():
            missing = np.flatnonzero((query == q) & ~is_scored)
            f1 = None
            if self.part(BERTSCORE) is not None:
                f1 = self._f1(corpus, batch, q, corpus.document_of[BERTSCORE][document[missing]].astype(np.int64))
            exact = self._exact(corpus, batch, q, document[missing], self._cheap(corpus, batch, q), f1)
            for part, column in out.items():
                column[missing] = exact[part]
        return out
