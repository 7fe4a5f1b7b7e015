"""Four ways to search under conditions. All give the same result; each query is answered by the first that can do it.

The *order* is the metric, or the sum of metrics without weights, by which documents are ranked. A document is a
distinct combination of the documents of all metrics' representations. A metric *of few documents*, such as one of
labels, has so few distinct documents that its scores with a query are computed for all of them and kept. The numbers
are those of the methods below:

(1) `_of_few`: metrics of few documents tell which documents fulfil their conditions. If these are few, they are scored
pair by pair.

(2) `_of_condition`: a search by the metric of a condition lists all documents that fulfil it, if these are few.

(3) `_of_order`: a search by the metric of the order lists the best documents, then more of them, until k rows fulfil
all conditions. In a sum, the search goes by the metric of many documents; the most that the others can add is known.

(4) `_of_all`: all documents are scored.

A list of way 2 or 3 is final if no other document can be in it: a document that the search did not list scores no more
than the last one that it listed. A *signed* score is one multiplied by -1 if lower is better.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from metric_oracle.kernels._errors import FLOAT64, gamma
from metric_oracle.kernels.contract import Answers, read_only
from metric_oracle.kernels.sum.terms import Combined, Terms
from metric_oracle.kernels.topk.candidates import Candidates, put_best
from metric_oracle.kernels.topk.cpu import new_best
from metric_oracle.kernels.topk.exclusion import NOTHING
from metric_oracle.records import Condition

FEW = 1024  # most candidates of a query that are scored pair by pair without a search
DISTINCT = 4096  # most documents of a metric whose scores with a query are kept
RANGE = 64  # most documents that a condition lists
SAMPLE = 100  # queries by which it is decided whether a condition lists its documents
DEPTH, DEEPER = 16, 4  # documents that the metric of the order lists first; how many times as many it lists next
ALL = 1 << 62  # more than any number of candidates
SHARE = 8  # a list has at most this part of the documents, and so has a metric of few documents


class ConditionalSearch:
    """A search under conditions, whose queries are answered in blocks; results are written to `answers`."""

    def __init__(
        self, sums: Terms, corpus: Combined, batch: Combined, k: int, answers: Answers, workspace: dict[str, Any]
    ) -> None:
        self.sums, self.corpus, self.batch, self.k, self.workspace = sums, corpus, batch, k, workspace
        self.metrics, self.ordered = sums.metric.metrics, [*sums.metric.terms]
        self.sign = sums.metric.sign
        self.answers = answers._replace(limit=self.sign * answers.limit)
        self.n_documents = len(corpus.row_ptr) - 1
        self.few = [name for name in self.metrics if self._is_of_few(name)]  # metrics of few documents
        self.conditions = sorted(sums.metric.conditions, key=lambda one: one.metric.name not in self.few)

    def search(self, queries: range) -> None:
        """Write the k best rows of the distinct queries numbered in `queries` into `self.answers`."""
        left = np.arange(queries.start, queries.stop)
        for way in (self._of_few, self._of_condition, self._of_order, self._of_all):
            if len(left):
                left = way(left)
        if self.sign < 0:
            for q in queries:
                for place in self.answers.exclusion.lists(q):
                    self.answers.scores[place] *= -1.0

    def _of_few(self, queries: np.ndarray) -> np.ndarray:
        """Write the results of those queries for which metrics of few documents leave few candidates (way 1).

        Return the numbers of the other queries.
        """
        candidates = [self._fulfilling(q) for q in queries.tolist()]
        has_few = np.array([n <= FEW for n, *_ in candidates])
        if not has_few.any():
            return queries
        documents = []
        for q, (_, name, fulfilling), is_few in zip(queries.tolist(), candidates, has_few, strict=True):
            if is_few:
                key = "candidates", name, int(self.batch.of(name, q))  # many queries have the same labels
                if key not in self.sums.cache:
                    self.sums.cache[key] = self._combinations(name, fulfilling)[1]
                documents.append(self.sums.cache[key])
        query = np.repeat(queries[has_few], [len(one) for one in documents])
        self._write_best(queries[has_few], query, np.concatenate(documents), np.full(len(documents), -np.inf))
        return queries[~has_few]

    def _of_condition(self, queries: np.ndarray) -> np.ndarray:
        """Write the results of queries for which a search by a condition's metric lists all that fulfil it (way 2).

        Return the numbers of the other queries.
        """
        for condition in self.sums.metric.conditions:
            name, better = condition.metric.name, ">" if condition.metric.sign > 0 else "<"
            if condition.symbol[0] != better or name in self.ordered or not self._may_list(name, RANGE):
                continue
            n, n_whole = tried = self.sums.cache.setdefault(("tried", name), [0, 0])
            if len(queries) and (n < SAMPLE or 2 * n_whole >= n):
                query, document, last = self._search_metric(
                    name, queries, RANGE, np.full(len(queries), condition.value)
                )
                whole = ~np.isfinite(last)
                tried[0], tried[1] = n + len(queries), n_whole + int(whole.sum())
                is_listed = np.isin(query, queries[whole])
                self._write_best(
                    queries[whole], query[is_listed], document[is_listed], np.full(int(whole.sum()), -np.inf)
                )
                queries = queries[~whole]
        return queries

    def _of_order(self, queries: np.ndarray) -> np.ndarray:
        """Write the results of queries from longer and longer lists by the metric of the order (way 3).

        Return the numbers of the queries whose results would need too long a list.
        """
        many = [name for name in self.ordered if name not in self.few]
        if len(many) != 1:
            return queries
        (name,) = many
        own = [one.value for one in self._conditions_on(name) if (one.symbol[0] == ">") == (self.sign > 0)]
        least = max((self.sign * value for value in own), default=-np.inf)
        depth = max(DEPTH, 2 * self.k)
        while len(queries) and self._may_list(name, depth):
            limit = self.answers.limit[queries] if len(self.ordered) == 1 else -np.inf
            limit = np.broadcast_to(self.sign * np.maximum(limit, least), queries.shape)
            query, document, last = self._search_metric(name, queries, depth, limit)
            unseen = np.zeros(len(queries))
            for part in self.ordered:
                unseen += self.sign * last if part == name else self._best_scores(part, queries)
            queries = queries[~self._write_best(queries, query, document, unseen)]
            depth *= DEEPER
        return queries

    def _of_all(self, queries: np.ndarray) -> np.ndarray:
        """Write the results of queries by scoring all documents (way 4).

        Return an empty array, because no query is left.
        """
        for q in queries.tolist():
            n, name, documents = self._fulfilling(q)
            if n * SHARE <= self.n_documents:
                documents = self._combinations(name, documents)[1]
            else:
                documents = self._best_of_all(q)
            self._write_best(np.array([q]), np.full(len(documents), q), documents, np.full(1, -np.inf))
        return queries[:0]

    def _best_of_all(self, q: int) -> np.ndarray:
        """Return the documents that fulfil all conditions and may be among the k best of query q.

        Every document is tested, as way 4 does.
        """
        documents = np.arange(self.n_documents)
        for condition in self.conditions:
            name = condition.metric.name
            scores, error = self._bounded(name, q)
            if error:
                unsure = np.flatnonzero(np.abs(scores - condition.value) <= error)
                scores[unsure] = self.sums.exact(name, self.corpus, self.batch, q, unsure)
            own = self.corpus.document_of[name][documents]
            documents = documents[condition.holds(scores[own])]
        sums, size, error = np.zeros(len(documents)), 0.0, 0.0
        for name in self.ordered:
            scores, of_scores = self._bounded(name, q)
            sums += scores[self.corpus.document_of[name][documents]]
            size, error = size + float(np.abs(scores).max(initial=0.0)), error + of_scores
        n = self.answers.exclusion.n_documents(q, self.k)
        if len(documents) <= n:
            return documents
        if error:
            error += gamma(2 * len(self.ordered), FLOAT64) * size
        sums *= self.sign
        return documents[sums >= np.partition(sums, len(sums) - n)[len(sums) - n] - 2.0 * error]

    def _write_best(
        self, queries: np.ndarray, query: np.ndarray, document: np.ndarray, unseen: np.ndarray
    ) -> np.ndarray:
        """Write the k best rows of each of `queries` among the pairs that fulfil the conditions; say whose are final.

        The pairs, `query` and `document`, are in the order of the queries. `unseen`, float64[Q], bounds the signed
        score of every other document that fulfils the conditions. Rows are final, bool[Q], if none of these can be
        among them.
        """
        for condition in self.conditions:
            holds = condition.holds(self._scores(condition.metric.name, query, document))
            query, document = query[holds], document[holds]
        scores = np.zeros(len(query))
        for name in self.ordered:
            scores += self._scores(name, query, document)
        ptr = np.append(np.searchsorted(query, queries), len(query))
        is_final = unseen == -np.inf
        if "best" not in self.workspace:
            self.workspace["best"] = new_best(self.n_documents)
        candidates = Candidates(queries, ptr, document, self.sign * scores, unseen, is_final.copy())
        put_best(candidates, self.corpus.row_ptr, self.corpus.row_id, self.k, self.workspace["best"], self.answers)
        return is_final | candidates.is_final

    def _scores(self, name: str, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the scores under the metric `name` of pairs that are sorted by query: float64[n]."""
        if name not in self.few:
            return self.sums.of_metric(name, self.corpus, self.batch, query, document)
        own = self.corpus.document_of[name][document]
        scores = np.empty(len(query))
        starts = np.flatnonzero(np.diff(query, prepend=-1)) if len(query) else query
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(query)], strict=False):
            scores[begin:end] = self._scores_of_all(name, int(query[begin]))[own[begin:end]]
        return scores

    def _is_of_few(self, name: str) -> bool:
        """Return whether a metric has few distinct documents; see the docstring of the module."""
        n = len(self.corpus.parts[name].row_ptr) - 1
        error = self.sums.parts[name].score_error(self.corpus.parts[name], self.batch.parts[name])
        return not error and n <= DISTINCT and n * SHARE <= self.n_documents

    def _scores_of_all(self, name: str, q: int) -> np.ndarray:
        """Return the scores of query q with all documents of a metric of few documents, computed once: float64[D]."""
        key = "scores", name, int(self.batch.of(name, q))
        if key not in self.sums.cache:
            self.sums.cache[key] = self._bounded(name, q)[0]
        return self.sums.cache[key]

    def _fulfilling(self, q: int) -> tuple[int, str, np.ndarray]:
        """Find the representation whose conditions on metrics of few documents leave query q the fewest candidates.

        Return the number of these candidates, the name of a metric that reads the representation, and those of its
        documents that fulfil the conditions. The number is `ALL` if no condition is on a metric of few documents.
        """
        least = ALL, "", np.empty(0, np.int64)
        of_kind: dict[str, list[Condition]] = {}
        for condition in self.conditions:
            if condition.metric.name in self.few:
                of_kind.setdefault(condition.metric.representation, []).append(condition)
        for kind, conditions in of_kind.items():
            name = conditions[0].metric.name
            key = "fulfilling", kind, int(self.batch.of(name, q))
            if key not in self.sums.cache:
                holds = [condition.holds(self._scores_of_all(condition.metric.name, q)) for condition in conditions]
                documents = np.flatnonzero(np.logical_and.reduce(holds))
                ptr, _ = self._of_document(name)
                self.sums.cache[key] = int((ptr[documents + 1] - ptr[documents]).sum()), name, documents
            least = min(least, self.sums.cache[key], key=lambda one: one[0])
        return least

    def _conditions_on(self, name: str) -> list[Condition]:
        """Return the conditions on the metric `name`."""
        return [condition for condition in self.conditions if condition.metric.name == name]

    def _best_scores(self, name: str, queries: np.ndarray) -> np.ndarray:
        """Return the best signed score of each query under a metric of few documents: float64[Q], -inf for none.

        Only documents that fulfil the metric's conditions count.
        """
        most = np.empty(len(queries))
        for i, q in enumerate(queries.tolist()):
            scores = self._scores_of_all(name, q)
            holds = [condition.holds(scores) for condition in self._conditions_on(name)]
            most[i] = (self.sign * scores[np.logical_and.reduce(holds)] if holds else self.sign * scores).max(
                initial=-np.inf
            )
        return most

    def _may_list(self, name: str, depth: int) -> bool:
        """Return whether `depth` is few enough, compared with a metric's number of documents, for a search to list."""
        return depth * SHARE <= len(self.corpus.parts[name].row_ptr) - 1

    def _search_metric(
        self, name: str, queries: np.ndarray, depth: int, limit: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Search by the metric `name` for its `depth` best documents for each query; return query, document and last.

        Documents that score worse than `limit`, float64[Q], may be left out. The pairs, int64[n] each, are sorted by
        query, and documents are combinations. Others than those listed and those below the limit score no better than
        `last`, float64[Q]: the worst possible score if there are none.
        """
        kernel, sign = self.sums.parts[name], self.metrics[name].sign
        places, which = np.unique(self.batch.of(name, queries), return_inverse=True)
        n = self._n_queries(name)
        least = np.full(len(places), np.inf)  # of queries that are the same for the metric the least demanding
        np.minimum.at(least, which, sign * limit)
        limits = np.full(n, sign * np.inf)
        limits[places] = sign * least
        first = np.searchsorted(places, np.arange(n + 1)).astype(np.int64)
        rows, scores = np.full((len(places), depth), -1, np.int64), np.zeros((len(places), depth))
        lists = NOTHING._replace(first=first, wanted=np.empty((len(places), 0), np.int64))  # they exclude no rows
        answers = Answers(rows, scores, np.zeros_like(rows), limits, lists, self.answers.threads)
        corpus = self._by_document(name)
        if name not in self.workspace:
            self.workspace[name] = kernel.new_workspace(corpus)
        edges = np.flatnonzero(np.diff(places, prepend=-2, append=n + 1) != 1)
        for begin, end in pairwise(edges.tolist()):
            run = range(int(places[begin]), int(places[end - 1]) + 1)
            kernel.search(corpus, self.batch.parts[name], run, depth, answers, self.workspace[name])
        # A kernel without negative scores leaves out those of 0.
        is_full = rows[:, -1] >= 0
        has_zeros = ~is_full & (least <= 0.0) & (not kernel.capabilities.signed)
        last = np.where(is_full, scores[:, -1], np.where(has_zeros, 0.0, -sign * np.inf))
        number = (rows >= 0).sum(axis=1)[which]
        listed = rows[which][np.arange(depth) < number[:, None]]
        of_list, document = self._combinations(name, listed)
        return np.repeat(queries, number)[of_list], document, last[which]

    def _n_queries(self, name: str) -> int:
        """Return the number of distinct queries of a metric."""
        key = "queries", name
        if key not in self.sums.cache:
            self.sums.cache[key] = int(self.batch.document_of[name].max()) + 1
        return self.sums.cache[key]

    def _of_document(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets, int64[n + 1], and the combinations, int64[D], grouped by the n documents of a metric.

        Document u is in the combinations from offset u to offset u + 1.
        """
        key = "combinations", self.metrics[name].representation
        if key not in self.sums.cache:
            own, n = self.corpus.document_of[name], len(self.corpus.parts[name].row_ptr) - 1
            ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(own, minlength=n))])
            self.sums.cache[key] = ptr, np.argsort(own, kind="stable")
        return self.sums.cache[key]

    def _combinations(self, name: str, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positions in `documents`, of the metric `name`, and combinations that contain the document there.

        Both are int64[n], in the order of the documents.
        """
        ptr, combination = self._of_document(name)
        sizes = ptr[documents + 1] - ptr[documents]
        place = np.repeat(np.arange(len(documents)), sizes)
        offset = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return place, combination[ptr[documents][place] + offset]

    def _by_document(self, name: str) -> Any:
        """Return the arrays of a metric's corpus with one row per document, so that a search lists documents."""
        key = "by document", name
        if key not in self.sums.cache:
            corpus = self.corpus.parts[name]
            features = corpus.features if hasattr(corpus, "features") else corpus
            ptr = np.arange(len(features.row_ptr), dtype=np.int64)
            row = ptr[:-1].copy()
            changed = features._replace(row_ptr=ptr, row_id=row)
            self.sums.cache[key] = read_only(corpus._replace(features=changed) if features is not corpus else changed)
        return self.sums.cache[key]

    def _bounded(self, name: str, q: int) -> tuple[np.ndarray, float]:
        """Return the scores of all documents of a metric with query q, float64[D], and a bound of their error."""
        error = self.sums.parts[name].score_error(self.corpus.parts[name], self.batch.parts[name])
        return next(self.sums.stream(name, self.corpus, self.batch, [q])), error
