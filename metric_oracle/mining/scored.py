"""Scores of anchors with corpus rows, pair by pair, and how many candidates of a sample each rule left out."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from metric_oracle.base.locks import let_interrupts_end_waits
from metric_oracle.base.operating_system import n_threads
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.mining.selection import Selection, allowed
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.plan import Plan
from metric_oracle.retrieval.restrictions import Restrictions

PAIRS = 1_000_000  # pairs that a sample has at most, but for its least number of anchors
LEAST = 10


def worst_positive(pairs: Pairs, anchor: np.ndarray, row: np.ndarray, sign: float) -> np.ndarray:
    """Return the score of the worst positive of each anchor, multiplied by `sign`: float64[n].

    `pairs` are those of the anchors with the corpus; `anchor` has the index of each positive's anchor, `row` its corpus
    row. `sign` is -1.0 where lower scores are better. An anchor without a positive has infinity.
    """
    worst = np.full(len(pairs.which), np.inf)
    np.minimum.at(worst, anchor, sign * pairs.score(pairs.which[anchor], pairs.document_of_row[row]))
    return worst


def sampled(rows: np.ndarray, n_candidates: int) -> np.ndarray:
    """Return a sample of anchors, evenly spread over `rows`.

    It is as large as possible with about `PAIRS` pairs of an anchor and one of `n_candidates` candidates, and has at
    least `LEAST` anchors.
    """
    n = min(len(rows), max(LEAST, PAIRS // max(n_candidates, 1)))
    return rows[np.linspace(0, len(rows) - 1, n).astype(np.int64)]


def left_out(
    planned: Plan, selection: Selection, k: int, rows: np.ndarray, positives: tuple[np.ndarray, np.ndarray]
) -> dict[str, int]:
    """Count the candidates of anchors by the first rule that leaves them out, in the order in which rules apply.

    `rows` are the anchors, ascending, and `positives` the rows of anchors, ascending, and of their positives. The
    counts are ``candidates``, one for each rule, ``after the k best`` (``not drawn`` at random), and ``listed``.
    """
    counts: dict[str, int] = {}
    for shard in planned.index.shards():
        first, last = np.searchsorted(rows, [shard.first_row, shard.first_row + shard.n_reports])
        if first == last:
            continue
        of_shard = rows[first:last]
        reports = prepared_reports(shard).take(of_shard - shard.first_row)
        for counts_of_anchor in _of_shard(planned, selection, k, of_shard, reports, positives):
            for name, n in counts_of_anchor.items():
                counts[name] = counts.get(name, 0) + n
    return counts


def _of_shard(
    planned: Plan,
    selection: Selection,
    k: int,
    rows: np.ndarray,
    reports: Reports,
    positives: tuple[np.ndarray, np.ndarray],
) -> Iterator[dict[str, int]]:
    """Yield the counts of each anchor of a shard; `rows` are these anchors, ascending, and `reports` their reports."""
    options, metric = planned.options, planned.metric
    sign = metric.sign
    pairs = Pairs.of(planned.index, metric, reports, options.settings)
    row_id, sizes = pairs.row_id, np.diff(pairs.row_ptr)
    restrictions = Restrictions(planned.index, reports, metric, options.restrictions)
    groups = {
        name: [rule.groups(shard) for shard in planned.index.shards()] for name, rule in restrictions.rules.items()
    }
    begin, end = np.searchsorted(positives[0], [rows[0], rows[-1] + 1])
    of_sample = np.flatnonzero(np.isin(positives[0][begin:end], rows)) + begin
    anchor = np.searchsorted(rows, positives[0][of_sample])
    worst = worst_positive(pairs, anchor, positives[1][of_sample], sign)

    def counted(number: int) -> dict[str, int]:
        """Return, for one anchor, the number of candidates and how many each rule left out."""
        query = np.full(len(sizes), pairs.which[number])
        of_documents, components = pairs.score_with_components(query, np.arange(len(sizes)))
        values = np.repeat(of_documents, sizes)  # of all rows, in the order of `row_id`
        left = np.ones(len(row_id), bool)
        counts = {"candidates": len(row_id)}

        def leave_out(name: str, out: np.ndarray) -> None:
            """Leave out the candidates of the mask `out`; record under `name` how many no earlier rule left out."""
            counts[name] = int((left & out).sum())
            left[out] = False

        for name, of_shards in groups.items():
            out = [(of_query[number] >= 0) & (of_row == of_query[number]) for of_query, of_row, _ in of_shards]
            leave_out(name, np.concatenate(out)[row_id])
        for name, of_documents_out in restrictions.of_scores(of_documents, components):
            leave_out(name, np.repeat(of_documents_out, sizes))
        signed = sign * values
        ranked = np.sort(signed[left])[::-1]
        last = len(ranked) if selection.range_max is None else selection.range_max
        window = ranked[selection.range_min : last]
        if selection.range_min:
            counts["range_min"] = min(selection.range_min, len(ranked))
        if selection.range_max is not None:
            counts["range_max"] = max(len(ranked) - last, 0)
        fits = np.ones(len(window), bool)
        for name, fits_rule in allowed(selection, worst[number], window, sign).items():
            counts[name] = int((fits & ~fits_rule).sum())
            fits &= fits_rule
        window = window[fits]
        counts["not drawn" if selection.sampling_strategy == "random" else "after the k best"] = max(len(window) - k, 0)
        counts["listed"] = min(len(window), k)
        return counts

    let_interrupts_end_waits()
    with ThreadPoolExecutor(options.threads or n_threads()) as executor:
        yield from executor.map(counted, range(len(rows)))
