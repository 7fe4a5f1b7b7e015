"""Exact search: for every query, the best rows of a corpus under a metric.

A search goes through the shards of an index; an index without shards is its only shard. For each shard

1. the queries, which are encoded once, equal ones as one distinct query, are translated for its kernel (`Pairs`);
2. `Restrictions` say which rows each list of results leaves out, `Limit` which scores are too bad to be listed;
3. a kernel finds the best rows of each distinct query, block by block (`answer_blocks`);
4. lists that are short are completed, and `FallBack` says which of them need the most frequent report;
5. the plain scorer scores a sample of the listed pairs again (`SampleCheck`);

and `merge_best` joins the lists with those of the shards before. The k-th best score so far is the limit of the shards
that follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metric_oracle.base.progress import Advance
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.kernels.contract import Answers
from metric_oracle.records import Metric
from metric_oracle.retrieval.blocks import answer_blocks
from metric_oracle.retrieval.document_pairs import CHECKED, Pairs, batches, scorable
from metric_oracle.retrieval.fall_back import FallBack, fall_back
from metric_oracle.retrieval.limit import Limit
from metric_oracle.retrieval.merge import BestRows, ShardWork, merge_best
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.restrictions import Restrictions
from metric_oracle.retrieval.result_lines import ResultLines
from metric_oracle.retrieval.result_table import fill_zeros, layout, listed, with_strings
from metric_oracle.retrieval.sample_check import SampleCheck
from metric_oracle.retrieval.search_signature import digest, joined_stages, signature


@dataclass(frozen=True)
class Search:
    """The search of an index for the best rows of some queries, under options that are checked."""

    index: Index
    queries: Reports
    metric: Metric
    options: SearchOptions  # with a backend other than "auto"

    def results(self, progress: Advance | None = None) -> Results:
        """Return the results of the queries; `progress` is as in `best_rows`."""
        return self.table_of(self.best_rows(progress=progress))

    def best_rows(
        self,
        shards: Sequence[int] | None = None,
        limit: np.ndarray | None = None,
        encoded: Documents | None = None,
        progress: Advance | None = None,
    ) -> BestRows:
        """Return the best rows in the shards with these numbers, by default in all.

        `limit`, float64[Q], has the k-th best scores of shards that were searched elsewhere: rows that score worse are
        left out. If fewer than k rows are found, a list ends with row -1. `encoded` holds queries that were encoded in
        another process, None if they were not. `progress` is called with 0 once the queries are encoded, then with
        numbers of queries that were answered.
        """
        k, metric = self.options.k, self.metric
        restrictions = Restrictions(self.index, self.queries, metric, self.options.restrictions)
        fallback = FallBack(self.index, metric, not restrictions.is_empty)
        reached = Limit(metric.sign, limit).at_least(restrictions.limit)
        # A set whose documents are joined is searched like an index, unless rules read what only its shards have.
        is_whole = shards is None and not restrictions.rules and self.index.is_joined(metric)
        searched = [self.index] if is_whole else self.index.shards(shards)
        n_parts = 1 if is_whole else self.index.n_shards
        n_searched = n_parts if shards is None else len(shards)
        # Each shard checks its share of the sample, whichever shards this process searches.
        n_checked = -(-CHECKED // n_parts)
        tell = None if progress is None else _shared(progress, n_searched)
        best, is_only = BestRows.none(len(self.queries.ids)), n_searched == 1
        opened = scorable(searched, metric)
        for part in batches(opened, metric, self.queries, self.options.settings, encoded, is_only=is_only):
            if progress is not None and not best.work:
                progress(0)
            of_shard = _ShardSearch(
                Pairs(metric, [part], self.options.backend), restrictions, reached, fallback, self.options
            )
            best = merge_best([best, of_shard.best_rows(self.queries.ids, n_checked, tell)], k, metric.sign)
            reached = reached.after(best, k)
        return with_strings(best, self.index, self.options.text)

    def table_of(self, best: BestRows) -> Results:
        """Return the results of which these are the best rows of all shards, with the fall-back report first."""
        first, is_fallback = fall_back(best)
        return Results(listed(layout(self.queries.ids, first, is_fallback, best.exact)), self.signature_of(best))

    def signature_of(self, best: BestRows) -> dict[str, Any]:
        """Return everything that is needed to reproduce a result of which these are the best rows."""
        work = sorted(best.work, key=lambda one: one.first_row)
        return {
            **signature(self.index, self.queries, self.metric, self.options.backend, self.options.k),
            **(work[-1].settings if work else {}),
            "references": digest(self.queries),
            **joined_stages([(one.documents, one.entries) for one in work]),
            **self.options.restrictions,
        }


@dataclass(frozen=True)
class _ShardSearch:
    """The search of one shard."""

    pairs: Pairs  # of the queries and the documents of the shard, its only part
    restrictions: Restrictions
    limit: Limit
    fallback: FallBack
    options: SearchOptions

    def best_rows(self, ids: Sequence[str], n_checked: int, progress: Advance | None) -> BestRows:
        """Return the k best rows of the shard, or fewer if it has fewer that the metric can score.

        `ids` are those of the queries, for messages; the plain scorer scores `n_checked` listed pairs again.
        """
        (part,) = self.pairs.parts
        shard, representation = part.shard, part.representation
        lists = self.restrictions.lists(part)
        limits = self.limit.of_distinct(self.pairs.which, len(part.encoded.row_ptr) - 1)
        answers = Answers.to_fill(len(lists.query), min(self.options.k, len(representation.row_id)), limits)
        sample = SampleCheck(self.pairs, lists, answers, n_checked)

        kernel, (arrays,) = self.pairs.on(self.options.backend)
        entries = answer_blocks(self.pairs, lists.rounds(answers), self.options, progress, sample.score_ahead)
        if not kernel.capabilities.signed:
            fill_zeros(answers, representation.row_id, lists)
        self._end_lists(answers)

        unmatched = self.fallback.lists(answers.scores, shard)
        lines = ResultLines(answers, lists, unmatched, self.fallback.row - shard.first_row if len(unmatched) else -1)
        listed_pairs = lines.pairs(representation.document_of_row)
        components = kernel.components(kernel.counts(*arrays, *listed_pairs))
        sample.compare(ids, listed_pairs, components)

        n_documents = len(representation.row_ptr) - 1
        work = ShardWork(shard.first_row, n_documents, kernel.capabilities.exact, entries, self.pairs.settings)
        return replace(lines.best_rows(components, shard.first_row), work=(work,))

    def _end_lists(self, answers: Answers) -> None:
        """End each list, in place, before the rows whose scores may not be listed: with row -1 and the worst score."""
        answers.rows[~self.restrictions.reached(answers.scores)] = -1
        answers.scores[answers.rows < 0] = -self.limit.sign * np.inf
        answers.ties[answers.rows < 0] = 0


def _shared(progress: Advance, n_shards: int) -> Callable[[int], None]:
    """Return a progress function for several shards: a query counts once all `n_shards` shards have answered it."""
    done = reported = 0

    def tell(n: int) -> None:
        """Add n answered queries of one shard."""
        nonlocal done, reported
        done += n
        if done // n_shards > reported:
            progress(done // n_shards - reported)
            reported = done // n_shards

    return tell
