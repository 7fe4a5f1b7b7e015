"""The fall-back report: the most frequent one, which RadGraph lists for a query that matches no report (Yu et al.)."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import most_frequent
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import scorable_rows
from metric_oracle.retrieval.merge import BestRows, side_by_side


@dataclass(frozen=True)
class FallBack:
    """The fall-back report of a search. A search that leaves rows out has none, nor have most metrics."""

    index: Index
    metric: Metric
    is_restricted: bool  # whether the search leaves rows out

    @cached_property
    def row(self) -> int:
        """Its corpus row: that of the most frequent report that the metric can score."""
        row_of: dict[str, int] = self.index.content.get("most_frequent", {})  # of a set
        kind = self.metric.representation
        return row_of[kind] if kind in row_of else most_frequent_row(self.index, scorable_rows(self.index, self.metric))

    def lists(self, scores: np.ndarray, shard: Index) -> np.ndarray:
        """Return the lists of a shard that need the report, as the shard has it and their best score is 0: int64[n].

        `scores`, float64[L, k], are those of the lists.
        """
        unmatched = np.flatnonzero(scores[:, 0] == 0.0)
        has_report = (
            self.metric.fallback
            and not self.is_restricted
            and len(unmatched)
            and 0 <= self.row - shard.first_row < shard.n_reports
        )
        return unmatched if has_report else unmatched[:0]


def most_frequent_row(index: Index, row_id: np.ndarray) -> int:
    """Return the lowest row of the most frequent text among the rows `row_id`, those that a metric can score."""
    rows = np.sort(row_id)
    bounds = [
        (shard, np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])) for shard in index.shards()
    ]
    return most_frequent([(shard, shard.first_row, rows[a:b] - shard.first_row) for shard, (a, b) in bounds])


def fall_back(best: BestRows) -> tuple[BestRows, np.ndarray]:
    """Return best rows with their fall-back report, `reserve`, first in the lists of queries whose best score is 0.

    Also return which entries are fall-back reports: bool[Q, m].
    """
    is_fallback = np.zeros(best.rows.shape, bool)
    reserve = best.reserve
    nothing = np.flatnonzero(best.scores[:, 0] == 0.0)
    if reserve is None or not len(nothing):
        return replace(best, reserve=None), is_fallback
    m = best.rows.shape[1]
    # If the best score is 0, all scores are: each row ties with every other, and the fall-back report does too.
    reserve = replace(reserve, scores=best.scores[:, :1], ties=best.ties[:, :1])
    order = np.tile(np.arange(m), (len(best.rows), 1))
    others = np.argsort(best.rows[nothing] == reserve.rows[nothing], axis=1, kind="stable")  # the reserve's row last
    order[nothing, 0], order[nothing, 1:] = m, others[:, : m - 1]
    is_fallback[nothing, 0] = True
    return side_by_side([replace(best, reserve=None), reserve]).take(order), is_fallback
