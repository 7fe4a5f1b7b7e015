"""Turn the arrays that a kernel returns into the table of results.

Lists are completed with rows of score 0, and ids and texts are added.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.index import Index
from metric_oracle.indexes.store import take_strings, to_arrow, to_numpy
from metric_oracle.kernels.contract import Answers
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import scorable_rows
from metric_oracle.retrieval.merge import BestRows
from metric_oracle.retrieval.restrictions import ResultLists


def fill_zeros(answers: Answers, row_id: np.ndarray, lists: ResultLists) -> None:
    """Fill up lists with fewer than k positive scores in place: with the lowest other rows of `row_id`, int64[N].

    Their scores are 0 already; rows and ties are written.

    A list stays short if the limit of its query is above 0, or too few rows are left that it does not exclude.
    """
    short = np.flatnonzero((answers.rows[:, -1] < 0) & (answers.limit[lists.query] <= 0.0))
    if not len(short):
        return
    k = answers.rows.shape[1]
    lowest = np.sort(row_id) if len(lists.exclusion.row) else np.sort(np.partition(row_id, k - 1)[:k])
    for place in short.tolist():
        m = int(np.count_nonzero(answers.rows[place] >= 0))
        excluded = lists.exclusion.rows_of(place)
        left_out = np.concatenate([answers.rows[place, :m], excluded])
        of_zero = lowest[: k + len(excluded)]  # so many that k - m are left
        of_zero = of_zero[~np.isin(of_zero, left_out)][: k - m]
        answers.rows[place, m : m + len(of_zero)] = of_zero
        answers.ties[place, m : m + len(of_zero)] = len(row_id) - m - len(excluded)


def n_scorable(index: Index, metric: Metric) -> int:
    """Return the number of corpus rows that a metric can score."""
    if len(metric.representations) > 1:
        return len(scorable_rows(index, metric))
    return index.content["representations"][metric.representations[0]]["rows"]


def with_strings(best: BestRows, index: Index, text: bool) -> BestRows:
    """Return best rows with their study ids, and with their texts if `text` is true.

    Row -1, an unused place of a list, gets the strings of an arbitrary row; `listed` removes such lines later.
    """
    rows = best.rows.ravel()
    rows = np.where(rows >= 0, rows, best.rows.max(initial=0))
    ids, texts = strings(index.take("study_id", rows)), strings(index.take("text", rows)) if text else None
    reserve = best.reserve and with_strings(best.reserve, index, text)
    return replace(best, ids=ids, texts=texts, reserve=reserve)


def strings(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of strings as one array, without chunks."""
    return pa.concat_arrays([to_arrow([]), *column.chunks])


def layout(query_ids: Sequence[str], best: BestRows, fallback: np.ndarray, exact: bool) -> pa.Table:
    """Return the table of results, one line per place of each query's list, also where the row is -1.

    `fallback`, bool[Q, m], says which rows are fall-back reports; `exact` is the value of that column in every line.
    """
    n, k = best.rows.shape
    columns: dict[str, Any] = {
        "query_id": strings(take_strings(pa.chunked_array([to_arrow(query_ids)]), np.repeat(np.arange(n), k))),
        "rank": np.tile(np.arange(1, k + 1), n),
        "row": best.rows.ravel(),
        "candidate_id": best.ids,
        "score": best.scores.ravel(),
        **{name: values.ravel() for name, values in best.components.items()},
        "n_ties": best.ties.ravel(),
        "fallback": fallback.ravel(),
        "exact": np.full(n * k, exact),
    }
    if best.texts is not None:
        columns["text"] = best.texts
    return pa.table(
        {name: column if isinstance(column, pa.Array) else to_arrow(column) for name, column in columns.items()}
    )


def listed(table: pa.Table) -> pa.Table:
    """Return a table of results without unused lines (row -1).

    They exist if exclusions or a minimum score leave a query with fewer than k rows.
    """
    has_row = to_numpy(table["row"]) >= 0
    return table if has_row.all() else table.filter(pa.array(has_row))
