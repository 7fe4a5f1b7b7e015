"""Scores of anchors with corpus rows, pair by pair, and how many candidates of a sample each rule left out."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.mining.selection import Selection, best_allowed
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.exclusion import Excluded
from metric_oracle.retrieval.joint.conditions import OPERATORS
from metric_oracle.retrieval.plan import SearchPlan
from metric_oracle.retrieval.pool import n_threads
from metric_oracle.retrieval.search import encode_for
from metric_oracle.retrieval.sharded import ShardedIndex, score_pairs

PAIRS = 1_000_000  # pairs that a sample has at most, but for its least number of anchors
LEAST = 10


def anchors_of(index: Index, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Reports]]:
    """Yield the given corpus rows (ascending), shard by shard: their rows in it, and their reports."""
    for shard in index.shards():
        first, last = np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])
        if last > first:
            yield rows[first:last], prepared_reports(shard).take(rows[first:last] - shard.first_row)


class RowScores:
    """Scores of anchors, reports of one shard, with corpus rows, by the metric of a search."""

    def __init__(self, planned: SearchPlan, anchors: Reports) -> None:
        self._planned, self.representation = planned, planned.representation
        settings = planned.options.settings
        if isinstance(self.representation, ShardedIndex):
            self.encoded = self.representation.encode(anchors, **settings)
        else:
            self.encoded = encode_for(planned.index, self.representation, anchors, settings)

    def of(self, anchor: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the scores of pairs, float64[n].

        `anchor` has the index of each pair's anchor in `anchors`, `row` its corpus row.
        """
        document = self.representation.document_of_row[row].astype(np.int64)
        query = self.encoded.which[anchor].astype(np.int64)
        return score_pairs(self._planned.metric, self.representation, self.encoded, query, document)[0]

    def whole(self, anchor: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the scores of anchor number `anchor` with all rows that the metric can score, and components by name.

        The arrays, float64[n], are in the order of the representation's `row_id`.
        """
        sizes = np.diff(self.representation.row_ptr)
        query = np.full(len(sizes), int(self.encoded.which[anchor]))
        scores = score_pairs(self._planned.metric, self.representation, self.encoded, query, np.arange(len(sizes)))
        return np.repeat(scores[0], sizes), {name: np.repeat(values, sizes) for name, values in scores[1].items()}


def worst_positive(scores: RowScores, n: int, anchor: np.ndarray, row: np.ndarray, sign: float) -> np.ndarray:
    """Return the score of the worst positive of each of n anchors, multiplied by `sign`: float64[n].

    `anchor` has the index of each positive's anchor, `row` its corpus row. `sign` is -1.0 where lower scores are
    better. An anchor without a positive has infinity.
    """
    worst = np.full(n, np.inf)
    np.minimum.at(worst, anchor, sign * scores.of(anchor, row))
    return worst


def sampled(rows: np.ndarray, n_candidates: int) -> np.ndarray:
    """Return a sample of anchors, evenly spread over `rows`.

    It is as large as possible with about `PAIRS` pairs of an anchor and one of `n_candidates` candidates, and has at
    least `LEAST` anchors.
    """
    n = min(len(rows), max(LEAST, PAIRS // max(n_candidates, 1)))
    return rows[np.linspace(0, len(rows) - 1, n).astype(np.int64)]


def left_out(
    planned: SearchPlan, selection: Selection, k: int, rows: np.ndarray, positives: tuple[np.ndarray, np.ndarray]
) -> dict[str, int]:
    """Count the candidates of anchors by the first rule that leaves them out, in the order in which rules apply.

    `rows` are the anchors, ascending, and `positives` the rows of anchors, ascending, and of their positives. The
    counts are ``candidates``, one for each rule, ``after the k best`` (``not drawn`` at random), and ``listed``.
    """
    counts: dict[str, int] = {}
    for of_shard, reports in anchors_of(planned.index, rows):
        for found in _of_shard(planned, selection, k, of_shard, reports, positives):
            for name, n in found.items():
                counts[name] = counts.get(name, 0) + n
    return counts


def _of_shard(
    planned: SearchPlan,
    selection: Selection,
    k: int,
    rows: np.ndarray,
    reports: Reports,
    positives: tuple[np.ndarray, np.ndarray],
) -> Iterator[dict[str, int]]:
    """Yield the counts of each anchor of a shard; `rows` are these anchors, ascending, and `reports` their reports."""
    options, record = planned.options, planned.metric
    sign = 1.0 if record.higher_is_better else -1.0
    scores = RowScores(planned, reports)
    n_rows, row_id = planned.index.n_reports, scores.representation.row_id
    groups = {
        name: _excluded(Excluded(planned.index, reports, record, [name]), planned, len(rows))
        for name in options.exclude
    }
    begin, end = np.searchsorted(positives[0], [rows[0], rows[-1] + 1])
    of_sample = np.flatnonzero(np.isin(positives[0][begin:end], rows)) + begin
    anchor = np.searchsorted(rows, positives[0][of_sample])
    worst = worst_positive(scores, len(rows), anchor, positives[1][of_sample], sign)
    allowed = best_allowed(selection, worst, sign)
    conditions: Any = record.options.get("conditions", ())

    def counted(number: int) -> dict[str, int]:
        """Return, for one anchor, the number of candidates and how many each rule left out."""
        values, components = scores.whole(number)
        left = np.ones(len(row_id), bool)
        counts = {"candidates": len(row_id)}

        def leave_out(name: str, out: np.ndarray) -> None:
            """Leave out the candidates of the mask `out`; record under `name` how many no earlier rule left out."""
            counts[name] = int((left & out).sum())
            left[out] = False

        for name, of_anchors in groups.items():
            out = np.zeros(n_rows, bool)
            out[of_anchors[number]] = True
            leave_out(f"exclude {name}", out[row_id])
        for name, symbol, limit in conditions:
            leave_out(f"where {name}{symbol}{limit:g}", ~OPERATORS[symbol](components[name], limit))
        signed = sign * values
        if options.min_score is not None:
            leave_out("min_score", signed < sign * options.min_score)
        ranked = np.sort(signed[left])[::-1]
        last = len(ranked) if selection.range_max is None else selection.range_max
        window = ranked[selection.range_min : last]
        if selection.range_min:
            counts["range_min"] = min(selection.range_min, len(ranked))
        if selection.range_max is not None:
            counts["range_max"] = max(len(ranked) - last, 0)
        for name, most in allowed.items():
            fits = window <= most[number]
            counts[name] = len(window) - int(fits.sum())
            window = window[fits]
        counts["not drawn" if selection.sampling_strategy == "random" else "after the k best"] = max(len(window) - k, 0)
        counts["listed"] = min(len(window), k)
        return counts

    with ThreadPoolExecutor(options.threads or n_threads()) as pool:
        yield from pool.map(counted, range(len(rows)))


def _excluded(excluded: Excluded, planned: SearchPlan, n: int) -> list[np.ndarray]:
    """Return, for each of the n anchors of `excluded`, the corpus rows that it excludes: a list of int64[...]."""
    rows_of_anchor: list[list[np.ndarray]] = [[] for _ in range(n)]
    for shard in planned.index.shards():
        lists = excluded.of(shard, representation_of(shard, planned.metric), np.arange(n))
        for number, place in enumerate(lists.of_query.tolist()):
            rows_of_anchor[number].append(lists.exclusion.rows_of(place) + shard.first_row)
    return [np.concatenate(rows) for rows in rows_of_anchor]
