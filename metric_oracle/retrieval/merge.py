"""Answers of the shards of a corpus -> those of the whole, exactly: rows, scores, ties and what they are made of.

A shard gives its k best rows by score, then row, and of each how many of its rows have that very score. Of all lists
the first k by score, then row, are the answers of the whole; n_ties of a score is the sum over the shards that list it.
Nothing is missed: a shard with rows of that score that lists none of them has k rows that are better, and then the
score is not among the answers. So merged lists can be merged again, in any grouping.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from metric_oracle.indexes.store import to_arrow


@dataclass(frozen=True)
class Answer:
    """The best rows of some shards for each query, best score first, then by row.

    Attributes
    ----------
    rows : int64[Q, m]
        Of the whole corpus; m is k, or fewer where the shards have fewer rows.
    scores : float64[Q, m]
    ties : int64[Q, m]
        Rows of these shards with that very score.
    components : dict of str to array[Q, m]
        What the scores are made of.
    ids, texts : pa.Array of Q * m strings
        Of the rows; none before all shards were searched, and no texts where they are not wanted.
    reserve : Answer or None
        With m = 1, the row that queries get which no row of the whole matches; None where these shards lack it.
    """

    rows: np.ndarray
    scores: np.ndarray
    ties: np.ndarray
    components: dict[str, np.ndarray]
    ids: pa.Array | None = None
    texts: pa.Array | None = None
    reserve: "Answer | None" = None

    def take(self, place: np.ndarray) -> "Answer":
        """Return the answers at some places of the lists of each query: int64[Q, n], below m."""
        flat = to_arrow((np.arange(len(place))[:, None] * self.rows.shape[1] + place).ravel())
        rows, scores, ties = (np.take_along_axis(column, place, 1) for column in (self.rows, self.scores, self.ties))
        return Answer(
            rows,
            scores,
            ties,
            {name: np.take_along_axis(column, place, 1) for name, column in self.components.items()},
            _strings_at(flat, [self.ids]),
            _strings_at(flat, [self.texts]),
        )


def beside(parts: Sequence[Answer]) -> Answer:
    """Lay lists of the same queries side by side."""
    widths = [part.rows.shape[1] for part in parts]
    begin = np.repeat(np.cumsum([0, *widths[:-1]]) * len(parts[0].rows), widths)
    step = np.repeat(widths, widths)
    within = np.concatenate([np.arange(width) for width in widths])
    flat = to_arrow((begin + within + np.arange(len(parts[0].rows))[:, None] * step).ravel())
    columns = zip(*((part.rows, part.scores, part.ties) for part in parts), strict=True)
    rows, scores, ties = (np.concatenate(column, axis=1) for column in columns)
    return Answer(
        rows,
        scores,
        ties,
        {name: np.concatenate([part.components[name] for part in parts], axis=1) for name in parts[0].components},
        _strings_at(flat, [part.ids for part in parts]),
        _strings_at(flat, [part.texts for part in parts]),
    )


def _strings_at(places: pa.Array, columns: Sequence[pa.Array | None]) -> pa.Array | None:
    """Return the strings at some places of columns behind one another; None where there are none yet."""
    known = [column for column in columns if column is not None]
    return pa.concat_arrays(known).take(places) if known else None


def merge(parts: Sequence[Answer], k: int, higher_is_better: bool) -> Answer:
    """Return the k best rows of all shards together, fewer where they have fewer; the reserve is kept beside them."""
    reserve = next((part.reserve for part in parts if part.reserve is not None), None)
    if len(parts) == 1:
        return parts[0]
    # Ties of a score once for each shard that lists it.
    counted = np.concatenate([np.where(_begins(part.scores), part.ties, 0) for part in parts], axis=1)
    whole = beside(parts)
    order = np.lexsort((whole.rows, -whole.scores if higher_is_better else whole.scores), axis=1)
    begins = _begins(np.take_along_axis(whole.scores, order, 1)).ravel()
    counted = np.take_along_axis(counted, order, 1)
    sums = np.add.reduceat(counted.ravel(), np.flatnonzero(begins))
    best = replace(whole.take(order), ties=sums[np.cumsum(begins) - 1].reshape(order.shape))
    first = np.broadcast_to(np.arange(min(k, order.shape[1])), (len(order), min(k, order.shape[1])))
    return replace(best.take(first), reserve=reserve)


def _begins(scores: np.ndarray) -> np.ndarray:
    """Return where another score begins in the ranked list of a query: bool[Q, m]."""
    begins = np.ones(scores.shape, bool)
    begins[:, 1:] = scores[:, 1:] != scores[:, :-1]
    return begins


def fall_back(answer: Answer) -> tuple[Answer, np.ndarray]:
    """Give queries that no row matches the reserve as their first answer; return which lines are such, bool[Q, m]."""
    is_fallback = np.zeros(answer.rows.shape, bool)
    reserve = answer.reserve
    nothing = np.flatnonzero(answer.scores[:, 0] == 0.0)
    if reserve is None or not len(nothing):
        return replace(answer, reserve=None), is_fallback
    m = answer.rows.shape[1]
    # All rows of such a query have score 0, and the same ties.
    reserve = replace(reserve, scores=answer.scores[:, :1], ties=answer.ties[:, :1])
    place = np.tile(np.arange(m), (len(answer.rows), 1))
    for q in nothing.tolist():
        others = np.flatnonzero(answer.rows[q] != reserve.rows[q, 0])
        place[q] = np.r_[m, others][:m]
        is_fallback[q, 0] = True
    return beside([replace(answer, reserve=None), reserve]).take(place), is_fallback
