"""Scores of rows of the corpus with a test report, under every metric that the index and the test reports allow."""

from collections.abc import Sequence

import numpy as np

from metric_oracle.explorer.cases import Cases
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.records import COMPOSITE
from metric_oracle.scores.pair_scores import score_rows


def cross_scores(cases: Cases, q: int, rows: Sequence[int]) -> dict[int, dict[str, float | None]]:
    """Return the scores of corpus rows with test report `q`: row -> metric of `scored_metrics` -> score or None.

    The dict is empty without the index or the test report's text. BERTScore is computed without idf weights.
    """
    position = cases.query(q)
    if cases.index is None or cases.queries is None or position is None or not rows:
        return {}
    names = scored_metrics(cases)
    batch = cases.queries.take(np.full(len(rows), position))
    scores = score_rows(cases.index, batch, list(rows), names, system="pages").table
    return {row: {name: scores[name][i].as_py() for name in names} for i, row in enumerate(rows)}


def scored_metrics(cases: Cases) -> list[str]:
    """Return metrics under which any corpus row can be scored: defaults of `score`, and the metrics of the files."""
    if cases.index is None or cases.queries is None:
        return []
    attached = cases.queries.attached
    usual = {column.metric for column in cases.columns} | {
        name for name, metric in METRICS.items() if "score" in metric.shown_in
    }
    composite = cases.metric(COMPOSITE)
    usual |= set() if composite is None else set(composite.terms)
    weighted = any(signature.get("idf") not in (None, "off") for signature in cases.signatures)
    return [
        name
        for name in cases.index.metrics
        if name in usual
        and all(REPRESENTATIONS[kind].is_of_texts or kind in attached for kind in METRICS[name].representations)
        and not (weighted and "bertscore" in METRICS[name].representations)
    ]
