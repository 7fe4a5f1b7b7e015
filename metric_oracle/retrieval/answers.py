"""From the answers of a kernel to the table of results: zeros, fall-back, columns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import most_frequent
from metric_oracle.indexes.store import to_arrow
from metric_oracle.kernels.contract import Answers
from metric_oracle.metrics import Metric
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.merge import Answer


def fill_zeros(answers: Answers, row_id: np.ndarray) -> None:
    """Where fewer than k rows have a positive score, the others follow with score 0 in row order if that is enough."""
    short = np.flatnonzero((answers.rows[:, -1] < 0) & (answers.limit <= 0.0))
    if not len(short):
        return
    k = answers.rows.shape[1]
    lowest = np.sort(np.partition(row_id, k - 1)[:k])
    for q in short:
        m = int(np.count_nonzero(answers.rows[q] >= 0))
        listed = answers.rows[q, :m]
        answers.rows[q, m:] = lowest[~np.isin(lowest, listed)][: k - m]
        answers.ties[q, m:] = len(row_id) - m


def put_most_frequent_first(answers: Answers, fallback: np.ndarray, row: int) -> None:
    """Give queries without any positive match the most frequent report, as Yu et al. do, marked as such.

    A second implementation of `merge.fall_back`, by which `verify` checks results.
    """
    for q in np.flatnonzero(answers.scores[:, 0] == 0.0):
        others = answers.rows[q][answers.rows[q] != row]
        answers.rows[q] = np.r_[row, others][: answers.rows.shape[1]]
        fallback[q, 0] = True


def fallback_row(index: Index, record: Metric) -> int:
    """Return the row that queries get which nothing matches, under a metric that has one."""
    known: dict[str, int] = index.content.get("most_frequent", {})  # of a set
    kind = record.representation
    return known[kind] if kind in known else most_frequent_row(index, representation_of(index, record).row_id)


def most_frequent_row(index: Index, row_id: np.ndarray) -> int:
    """Return the lowest of the scorable rows `row_id` of the most frequent text that has one."""
    rows = np.sort(row_id)
    bounds = [
        (shard, np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])) for shard in index.shards()
    ]
    return most_frequent([(shard, shard.first_row, rows[a:b] - shard.first_row) for shard, (a, b) in bounds])


def n_scorable(index: Index, record: Metric) -> int:
    """Return how many rows a metric can score."""
    if record.terms:
        return sum(len(representation_of(shard, record).row_id) for shard in index.shards())
    return index.content["representations"][record.representations[0]]["rows"]


def with_strings(answer: Answer, index: Index, text: bool) -> Answer:
    """Add the ids of the rows of an answer, and their texts where wanted; row -1 has those of another."""
    rows = answer.rows.ravel()
    rows = np.where(rows >= 0, rows, answer.rows.max(initial=0))
    ids, texts = strings(index.take("study_id", rows)), strings(index.take("text", rows)) if text else None
    reserve = answer.reserve and with_strings(answer.reserve, index, text)
    return replace(answer, ids=ids, texts=texts, reserve=reserve)


def strings(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return pa.concat_arrays([to_arrow([]), *column.chunks])


def no_answer(n_queries: int, text: bool) -> Answer:
    """Return the answers of shards without a row that can be scored."""
    nothing, none = np.empty((n_queries, 0), np.int64), to_arrow([])
    return Answer(nothing, np.empty((n_queries, 0)), nothing, {}, none, none if text else None)


def layout(query_ids: Sequence[str], answer: Answer, fallback: np.ndarray, exact: bool) -> pa.Table:
    """Lay out answers, a line each."""
    n, k = answer.rows.shape
    columns: dict[str, Any] = {
        "query_id": [query_id for query_id in query_ids for _ in range(k)],
        "rank": np.tile(np.arange(1, k + 1), n),
        "row": answer.rows.ravel(),
        "candidate_id": answer.ids,
        "score": answer.scores.ravel(),
        **{name: values.ravel() for name, values in answer.components.items()},
        "n_ties": answer.ties.ravel(),
        "fallback": fallback.ravel(),
        "exact": np.full(n * k, exact),
    }
    if answer.texts is not None:
        columns["text"] = answer.texts
    return pa.table(
        {name: column if isinstance(column, pa.Array) else to_arrow(column) for name, column in columns.items()}
    )
