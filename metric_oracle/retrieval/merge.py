"""Merge the best rows of the shards of a corpus into those of the whole corpus, exactly.

Each shard lists its k best rows by score, then row, with the number of its rows that have the same score. The first k
of all lists, by score, then row, are those of the whole corpus. The n_ties of a score is the sum over the shards that
list it. No row is missed: if a shard has rows with that score and lists none, it has k better rows, so the score is not
among the best. Merged lists can be merged again, in any grouping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.store import to_arrow


class ShardWork(NamedTuple):
    """What is recorded of the search of a shard."""

    first_row: int  # corpus row of its first report
    documents: int  # number of its documents
    exact: bool  # whether each list is proven to have the best rows
    entries: Mapping[str, Any]  # of the signature: shares of the pairs that each stage dropped, and closest calls
    settings: Mapping[str, Any]  # of the signature: how the queries were encoded


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
    work: tuple[ShardWork, ...] = ()  # of the shards that were searched, in any order

    @classmethod
    def none(cls, n: int) -> "BestRows":
        """Return no rows for n queries: those of shards none of whose rows the metric can score."""
        nothing = np.empty((n, 0), np.int64)
        return cls(nothing, np.empty((n, 0)), nothing, {})

    @property
    def exact(self) -> bool:
        """Whether each list is proven to have the best rows."""
        return all(one.exact for one in self.work)

    @property
    def documents(self) -> int:
        """The number of documents of the shards that were searched."""
        return sum(one.documents for one in self.work)

    def take(self, positions: np.ndarray) -> "BestRows":
        """Return the rows at `positions` of each query's list, int64[Q, n] below m, without `reserve` and `work`."""
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
    """Join the lists of several answers to the same queries, one after another, without `reserve` and `work`."""
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

    The fall-back report is that of the first part which has one. A single part with rows is returned as it is.
    """
    parts = [part for part in parts if part.rows.shape[1]] or parts[:1]
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
    return replace(best.take(first), reserve=reserve, work=tuple(one for part in parts for one in part.work))


def _begins(scores: np.ndarray) -> np.ndarray:
    """Return which of the ranked scores, float64[Q, m], are the first of their value in their row: bool[Q, m]."""
    begins = np.ones(scores.shape, bool)
    begins[:, 1:] = scores[:, 1:] != scores[:, :-1]
    return begins
