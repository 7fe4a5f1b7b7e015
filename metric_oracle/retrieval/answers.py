"""From the answers of a kernel to the table of results: zeros, fall-back, columns."""

from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.kernels.contract import Answers


def fill_zeros(answers: Answers, row_id: np.ndarray) -> None:
    """Where fewer than k rows have a positive score, the others follow with score 0 in row order."""
    short = np.flatnonzero(answers.rows[:, -1] < 0)
    if not len(short):
        return
    k = answers.rows.shape[1]
    lowest = np.sort(np.partition(row_id, k - 1)[:k])
    for q in short:
        m = int(np.count_nonzero(answers.rows[q] >= 0))
        listed = answers.rows[q, :m]
        answers.rows[q, m:] = lowest[~np.isin(lowest, listed)][: k - m]
        answers.ties[q, m:] = len(row_id) - m


def fall_back(answers: Answers, fallback: np.ndarray, index: Index, row_id: np.ndarray) -> None:
    """Give queries without any positive match the most frequent report, as Yu et al. do, marked as such."""
    nothing = np.flatnonzero(answers.scores[:, 0] == 0.0)
    if not len(nothing):
        return
    row = most_frequent_row(index, row_id)
    for q in nothing:
        others = answers.rows[q][answers.rows[q] != row]
        answers.rows[q] = np.r_[row, others][: answers.rows.shape[1]]
        fallback[q, 0] = True


def most_frequent_row(index: Index, row_id: np.ndarray) -> int:
    """Return the lowest of the scorable rows `row_id` of the most frequent text that has one."""
    scorable = np.sort(row_id)
    multiplicity = index.distinct["multiplicity"].to_numpy()[index.reports["distinct_id"].to_numpy()[scorable]]
    return int(scorable[np.argmax(multiplicity)])


def layout(
    index: Index, queries: Inputs, which: np.ndarray, answers: Answers, fallback: np.ndarray,
    components: dict[str, np.ndarray], exact: bool, text: bool,
) -> pa.Table:  # fmt: skip
    """Lay out the answers, distinct queries expanded to queries."""
    k = answers.rows.shape[1]
    rows = answers.rows[which].ravel()
    reports = index.reports
    columns: dict[str, Any] = {
        "query_id": pa.array(queries.ids, pa.large_string()).take(pa.array(np.repeat(np.arange(len(which)), k))),
        "rank": np.tile(np.arange(1, k + 1), len(which)),
        "row": rows,
        "candidate_id": reports["study_id"].take(pa.array(rows)),
        "score": answers.scores[which].ravel(),
        **{name: values[which].ravel() for name, values in components.items()},
        "n_ties": answers.ties[which].ravel(),
        "fallback": fallback[which].ravel(),
        "exact": np.full(len(rows), exact),
    }
    if text:
        columns["text"] = reports["text"].take(pa.array(rows))
    return pa.table(columns)
