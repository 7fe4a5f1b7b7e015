"""Search by a weighted sum. All terms but BERTScore are computed for every candidate; BERTScore has bounds.

Lower is better. If the sum falls as BERTScore rises, the smallest sum is the greatest one of BERTScore and a *bonus*:
what the other terms contribute, in units of BERTScore. The README of this folder explains the search for other signs.
*Cheap* terms are those other than BERTScore and the cosines of embeddings. A candidate, or item, is a distinct
combination of documents of the terms' representations.
"""

from typing import NamedTuple

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, check_bounds, gamma, sample_size
from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.bertscore.cascade import Items
from metric_oracle.kernels.bertscore.score import F1
from metric_oracle.kernels.contract import read_only
from metric_oracle.kernels.cosine.cpu import screen_error
from metric_oracle.kernels.sum.score import term

SIMILARITIES = 1 << 24  # most float32 cosines that a thread keeps, 64 MB
STEEPEST = 1e30  # greatest ratio of sum and slope for which a bonus is in the range of float32
COSINE, BERTSCORE = "cosine", "bertscore"  # kernels of the terms that are not cheap; at most one term has each
BONUS = "bonus"


class Bonuses(NamedTuple):
    """Bonuses: what the other terms add to BERTScore F1 in the search, (least - their sum) / slope."""

    items: Items  # candidates with their bonuses, each enlarged by the error margin, for BERTScore's search
    least: float  # the least sum of the other terms
    slope: float  # by how much the sum falls as BERTScore rises


class WeightedSearch:
    """A search by a weighted sum, query by query; results are written to `answers`."""

    def __init__(self, sums, corpus, batch, k, answers, workspace):
        self.sums, self.corpus, self.batch, self.k = sums, corpus, batch, k
        self.answers, self.workspace = answers, workspace
        self.terms, self.intercept = sums.metric.terms, sums.metric.intercept
        # Names of the terms whose scores are expensive: cosines of embeddings and BERTScore. None without such a term.
        self.cosine, self.bertscore = (
            next((name for name, t in self.terms.items() if t.metric.kernel == kernel), None)
            for kernel in (COSINE, BERTSCORE)
        )

    def search(self, queries):
        """Write the k rows with the least sum for the distinct queries numbered in `queries`."""
        with bertscore.sharing_threads(self.answers) as executor:
            for q, similar in zip(queries, self._similarities(queries, executor), strict=True):
                values = self.known_values(q, similar)
                added = self.bonuses(q, values)
                if added is None:
                    item, f1 = self._candidates_of(q, self.answers.exclusion.n_documents(q, self.k), values)
                else:
                    corpus, batch = self.corpus.parts[self.bertscore], self.batch.parts[self.bertscore]
                    place, work = int(self.batch.of(self.bertscore, q)), self.workspace.setdefault(BERTSCORE, {})
                    scored = self.sums.parts[self.bertscore].scored
                    threads = self.answers.threads
                    item, precision, recall = bertscore.find(
                        corpus, batch, place, self.k, added.items, work, F1, scored, threads, executor
                    )
                    f1 = bertscore.final_scores(precision, recall, batch.baseline)[F1]
                worst = self.rank(q, item, values, added, f1)
                self.check_dropped(q, q == queries.start, worst, item, values, added)

    def known_values(self, q, similar):
        """Return, by name, the values of the cheap terms and of the cosine term for query q and all their documents.

        `similar` are the float32 cosines of query q with all distinct embeddings, or None if no term is a cosine.
        """
        cheap = [name for name, t in self.terms.items() if t.metric.cheap]
        values = {name: next(self.sums.stream(name, self.corpus, self.batch, [q])) for name in cheap}
        if similar is not None:
            values[self.cosine] = similar.astype(np.float64)
        return values

    def bonuses(self, q, values):
        """Return `Bonuses` for BERTScore's search with query q; None where its bounds are of no use.

        `values` are those of `known_values`. Sums above the limit of the query in `answers` may be left out.
        """
        name = self.bertscore
        if name is None:
            return None
        error = self._cosine_error
        others, size = self._sums(values)
        t, baseline = self.terms[name], self.batch.parts[name].baseline
        slope, mean = -t.weight / t.scale, t.mean  # the whole sum is the others - slope (f1 - mean)
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
        least = float(mean + (others.min() - self.answers.limit[q]) / slope - wide)
        row_ptr = self.answers.exclusion.row_ptr(q, self.corpus.row_ptr)
        offset = (bonus + error).astype(np.float32)
        items = Items(self.corpus.document_of[name], offset, wide, False, row_ptr, least)
        return Bonuses(read_only(items), float(others.min()), slope)

    def _candidates_of(self, q, n, values):
        """Return the items that may be among the n best for query q, and their BERTScore, None if it is no term.

        This is used if a high BERTScore does not lower the sum, so that BERTScore's upper bounds do not help: all pairs
        are scored, and the scores are added to `values`.
        """
        name = self.bertscore
        if name is not None:
            every = np.arange(len(self.corpus.parts[name].row_ptr) - 1)
            values[name] = self.sums.exact(name, self.corpus, self.batch, q, every)
        sums, size = self._sums(values)
        error = self._cosine_error
        if error:  # otherwise the sums equal those of the plain scorer
            error += self._rounding * size
        m = min(n, len(sums))
        item = np.flatnonzero(sums <= np.partition(sums, m - 1)[m - 1] + 2 * error)
        return item, None if name is None else values[name][self.corpus.document_of[name][item]]

    @property
    def _cosine_margin(self):
        """A bound of the difference between cosines of embeddings in float32 and in float64."""
        return screen_error(self.corpus.parts[self.cosine].vectors.shape[1])

    @property
    def _cosine_error(self):
        """A bound of the error that cosines of embeddings in float32, not float64, cause in a sum."""
        if self.cosine is None:
            return 0.0
        t = self.terms[self.cosine]
        return abs(t.weight / t.scale) * self._cosine_margin

    @property
    def _rounding(self):
        """A bound of the rounding errors of two sums of the terms, relative to the greatest partial sum."""
        return gamma(2 * (len(self.terms) + 4), FLOAT64)

    def _note_closest(self, item, values, added, exact):
        """Compare float32 cosines and bonuses of items with their exact values, and record the closest.

        Raise ExactnessError beyond a margin.

        A bonus must be at least the exact value, and exceed it by at most the error of the items. `values` are those of
        `known_values`, `added` those of `bonuses`, `exact` those of `_exact`.
        """
        margins = {}
        if self.cosine is not None and len(item):
            screen = values[self.cosine][self.corpus.document_of[self.cosine][item]]
            margins[COSINE] = self._cosine_margin - float(np.abs(screen - exact[self.cosine]).max())
        if added is not None and len(item):
            others = np.full(len(item), self.intercept)
            for name, t in self.terms.items():
                if name != self.bertscore:
                    others += term(exact[name], t.mean, t.scale, t.weight)
            above = added.items.offset[item] - (added.least - others) / added.slope
            margins[BONUS] = float(min(above.min(), added.items.error - above.max()))
        check_bounds(margins)
        closest = self.sums.closest
        for stage, distance in margins.items():
            closest[stage] = min(closest.get(stage, np.inf), distance)

    def check_dropped(self, q, is_first, worst, item, values, added):
        """Score random items other than `item`, and raise ExactnessError if one scores `worst` or better.

        These the search dropped. The number of the query seeds the choice. In a large search the first query of a block
        always gets a check, and others only if the corpus is so large that the cost of the check is hidden.
        """
        n, rng = len(self.corpus.row_ptr) - 1, np.random.default_rng(q)
        size = sample_size(len(self.batch.row_ptr) - 1)
        drawn = np.setdiff1d(rng.choice(n, min(size, n), replace=False), item)
        if not len(drawn) or (size == 1 and not is_first and rng.random() * bertscore.SAMPLED > n):
            return
        f1 = None
        if self.bertscore is not None:
            f1 = self.sums.exact(self.bertscore, self.corpus, self.batch, q, self.corpus.of(self.bertscore, drawn))
        exact = self._exact(q, drawn, values, f1)
        self._note_closest(drawn, values, added, exact)
        check_bounds({}, int(np.count_nonzero(self.sums.scores(exact) <= worst)))

    def rank(self, q, item, values, added, f1):
        """Score items by the exact values of all terms, and write the k best rows of query q to the answers.

        `f1` is their BERTScore, None if it is no term. Return the score that all dropped items must be worse than.
        """
        exact = self._exact(q, item, values, f1)
        self._note_closest(item, values, added, exact)
        worst = self.answers.put(q, item, self.sums.scores(exact), self.corpus, self.k, -1.0)
        return min(worst, self.answers.limit[q])

    def _sums(self, values):
        """Return the sum of the terms in `values` for every candidate, float64[D], and a bound on its partial sums.

        The intercept is added. The bound is on the absolute values of all partial sums, of all candidates.
        """
        total = np.full(len(self.corpus.row_ptr) - 1, self.intercept)
        size = abs(self.intercept)
        for name, t in self.terms.items():
            if name in values:
                of_document = term(values[name], t.mean, t.scale, t.weight)
                total += of_document[self.corpus.document_of[name]]
                size += np.abs(of_document).max()
        return total, size

    def _similarities(self, queries, executor):
        """Yield the cosines of each query with all distinct embeddings, float32[...]; None without such a term."""
        if self.cosine is None:
            yield from [None] * len(queries)
            return
        vectors = self.corpus.parts[self.cosine].vectors
        at_once = max(1, SIMILARITIES // len(vectors))
        for begin in range(0, len(queries), at_once):
            some = self.vectors(queries[begin : begin + at_once])
            yield from self._of_one(some[0], executor)[None] if len(some) == 1 else some @ vectors.T

    def _of_one(self, query, executor):
        """Return the cosines of one query, float32[width], with all distinct embeddings, computed by `executor`."""
        vectors = self.corpus.parts[self.cosine].vectors
        if executor is None:
            return vectors @ query
        parts = np.array_split(vectors, self.answers.threads)
        return np.concatenate(list(executor.map(lambda some: some @ query, parts)))

    def vectors(self, queries):
        """Return the embeddings of the distinct queries numbered in `queries`: float32[n, width]."""
        return self.batch.parts[self.cosine].vectors[self.batch.of(self.cosine, queries)]

    def _exact(self, q, item, values, f1):
        """Return, by name, the exact values of the terms for query q and the candidates `item`: float64[n] each.

        Those of cheap terms are in `values`; `f1` is the BERTScore of the candidates.
        """
        exact = {}
        for name, t in self.terms.items():
            documents = self.corpus.of(name, item)
            if name == self.bertscore:
                exact[name] = f1
            elif t.metric.cheap:
                exact[name] = values[name][documents]
            else:
                exact[name] = self.sums.exact(name, self.corpus, self.batch, q, documents)
        return exact
