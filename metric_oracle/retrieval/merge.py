"""Merge the best rows of the shards of a corpus into those of the whole corpus, exactly.

Each shard lists its k best rows by score, then row, with the number of its rows that have the same score. The first k
of all lists, by score, then row, are those of the whole corpus. The n_ties of a score is the sum over the shards that
list it. No row is missed: if a shard has rows with that score and lists none, it has k better rows, so the score is not
among the best. Merged lists can be merged again, in any grouping.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.store import to_arrow


@dataclass(frozen=True)
class BestRows:
    """The best rows of one or several shards for each query, by score, then by row."""

    rows: np.ndarray  # int64[Q, m], corpus rows, -1 behind the end of a list; m is k, or fewer if there are fewer
    scores: np.ndarray  # float64[Q, m]
    ties: np.ndarray  # int64[Q, m], number of rows of these shards with the same score
    components: dict[str, np.ndarray]  # components of the scores by name, such as precision: [Q, m] each
    ids: pa.Array | None = None  # study ids of the rows, Q * m strings; None until all shards were searched
    texts: pa.Array | None = None  # their texts, Q * m strings; None likewise, and if texts are not wanted
    reserve: "BestRows | None" = None  # fall-back report, m = 1; None if no query needs it or another shard has it

    def take(self, positions: np.ndarray) -> "BestRows":
        """Return the answers at `positions` of each query's list, int64[Q, n] below m, without `reserve`."""
        flat = to_arrow((np.arange(len(positions))[:, None] * self.rows.shape[1] + positions).ravel())
        rows, scores, ties = (
            np.take_along_axis(column, positions, 1) for column in (self.rows, self.scores, self.ties)
        )
        return BestRows(
            rows,
            scores,
            ties,
            {name: np.take_along_axis(column, positions, 1) for name, column in self.components.items()},
            _strings_at(flat, [self.ids]),
            _strings_at(flat, [self.texts]),
        )


def side_by_side(parts: Sequence[BestRows]) -> BestRows:
    """Join the lists of several answers to the same queries, one after another, without their fall-back reports."""
    widths = [part.rows.shape[1] for part in parts]
    begin = np.repeat(np.cumsum([0, *widths[:-1]]) * len(parts[0].rows), widths)
    step = np.repeat(widths, widths)
    within = np.concatenate([np.arange(width) for width in widths])
    flat = to_arrow((begin + within + np.arange(len(parts[0].rows))[:, None] * step).ravel())
    columns = zip(*((part.rows, part.scores, part.ties) for part in parts), strict=True)
    rows, scores, ties = (np.concatenate(column, axis=1) for column in columns)
    return BestRows(
        rows,
        scores,
        ties,
        {name: np.concatenate([part.components[name] for part in parts], axis=1) for name in parts[0].components},
        _strings_at(flat, [part.ids for part in parts]),
        _strings_at(flat, [part.texts for part in parts]),
    )


def _strings_at(positions: pa.Array, columns: Sequence[pa.Array | None]) -> pa.Array | None:
    """Return the strings at the given positions of the concatenated columns; None if all columns are None."""
    present = [column for column in columns if column is not None]
    return pa.concat_arrays(present).take(positions) if present else None


def merge_best(parts: Sequence[BestRows], k: int, sign: float) -> BestRows:
    """Return the k best rows of all shards together, or fewer if there are fewer; ties are added up.

    The fall-back report is that of the first part which has one. A single part is returned as it is.
    """
    reserve = next((part.reserve for part in parts if part.reserve is not None), None)
    if len(parts) == 1:
        return parts[0]
    # The ties of a score are counted once per shard, at the first row with this score.
    counted = np.concatenate([np.where(_begins(part.scores), part.ties, 0) for part in parts], axis=1)
    whole = side_by_side(parts)
    order = np.lexsort((whole.rows, -sign * whole.scores), axis=1)
    begins = _begins(np.take_along_axis(whole.scores, order, 1)).ravel()
    counted = np.take_along_axis(counted, order, 1)
    sums = np.add.reduceat(counted.ravel(), np.flatnonzero(begins))
    best = replace(whole.take(order), ties=sums[np.cumsum(begins) - 1].reshape(order.shape))
    first = np.broadcast_to(np.arange(min(k, order.shape[1])), (len(order), min(k, order.shape[1])))
    return replace(best.take(first), reserve=reserve)


def _begins(scores: np.ndarray) -> np.ndarray:
    """Return which of the ranked scores, float64[Q, m], are the first of their value in their row: bool[Q, m]."""
    begins = np.ones(scores.shape, bool)
    begins[:, 1:] = scores[:, 1:] != scores[:, :-1]
    return begins


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
    # All rows of such a query have score 0, and the same ties.
    reserve = replace(reserve, scores=best.scores[:, :1], ties=best.ties[:, :1])
    order = np.tile(np.arange(m), (len(best.rows), 1))
    others = np.argsort(best.rows[nothing] == reserve.rows[nothing], axis=1, kind="stable")  # the reserve's row last
    order[nothing, 0], order[nothing, 1:] = m, others[:, : m - 1]
    is_fallback[nothing, 0] = True
    return side_by_side([replace(best, reserve=None), reserve]).take(order), is_fallback
