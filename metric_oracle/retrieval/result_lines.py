"""From the answers of a kernel, list by list, to the best rows of each query."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from metric_oracle.kernels.contract import Answers
from metric_oracle.retrieval.merge import BestRows
from metric_oracle.retrieval.restrictions import ResultLists


class ResultLines:
    """The places of all lists of a shard, one after another, and behind them the fall-back report of some lists."""

    def __init__(self, answers: Answers, lists: ResultLists, unmatched: np.ndarray, fallback_row: int) -> None:
        """Take the finished answers; `unmatched` are the lists that need the fall-back report, a row of the shard."""
        n = len(unmatched)
        self._lists, self._unmatched, self._shape = lists, unmatched, answers.rows.shape
        self._query = np.concatenate([np.repeat(lists.query, self._shape[1]), lists.query[unmatched]])
        self._rows = np.concatenate([answers.rows.ravel(), np.full(n, fallback_row)])
        self._scores = np.concatenate([answers.scores.ravel(), np.zeros(n)])
        self._ties = np.concatenate([answers.ties.ravel(), np.zeros(n, np.int64)])
        self._used = np.flatnonzero(self._rows >= 0)  # a place behind the end of a list has row -1

    def pairs(self, document_of_row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the distinct query, the document and the score of each used place: an array[n] each."""
        used = self._used
        return self._query[used], document_of_row[self._rows[used]], self._scores[used]

    def best_rows(self, components: Mapping[str, np.ndarray], first_row: int) -> BestRows:
        """Return the best rows of each query, with the fall-back report where a query has such a list.

        `components` are those of the used places by name, an array[n] each; the others get 0. `first_row` is the corpus
        row of the shard's first report.
        """
        of_lines = {name: np.zeros(len(self._rows), values.dtype) for name, values in components.items()}
        for name, values in components.items():
            of_lines[name][self._used] = values
        n_lists, k = self._shape
        of_query = self._lists.of_query
        best = self._taken((np.arange(n_lists)[:, None] * k + np.arange(k))[of_query], of_lines, first_row)
        if not len(self._unmatched):
            return best
        line = np.zeros(n_lists, np.int64)
        line[self._unmatched] = n_lists * k + np.arange(len(self._unmatched))
        return replace(best, reserve=self._taken(line[of_query][:, None], of_lines, first_row))

    def _taken(self, lines: np.ndarray, components: Mapping[str, np.ndarray], first_row: int) -> BestRows:
        """Return the lines with these numbers, int64[Q, m], as best rows."""
        rows = np.where(self._rows >= 0, self._rows + first_row, -1)
        of_lines = {name: values[lines] for name, values in components.items()}
        return BestRows(rows[lines], self._scores[lines], self._ties[lines], of_lines)
