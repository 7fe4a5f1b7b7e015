"""The evidence of a test report and a candidate under a metric, from what the files, the index and the queries have."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.errors import MetricOracleError
from metric_oracle.explorer import evidence
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.evidence import Evidence
from metric_oracle.indexes.radgraph import FAMILIES, Graph, spell_graph
from metric_oracle.metrics import METRICS, REPRESENTATIONS, Metric
from metric_oracle.retrieval.composite.representation import representation_of

_OF_TEXTS: dict[str, Callable[[str, str, Metric], Evidence]] = {
    "bleu": evidence.bleu,
    "rouge_l": evidence.rouge_l,
    "temporal": evidence.temporal,
}
DIFF = "diff"
_NO_GRAPH = Graph(*(frozenset() for _ in FAMILIES))


def kinds_of(cases: Cases) -> list[str]:
    """Return what can be shown beside the plain comparison of words: the metrics of the files, then those of texts."""
    names = [column.metric for column in cases.columns if column.metric in METRICS]
    usual = [name for name in ("bleu-2", "rouge-l") if name not in names]
    return list(dict.fromkeys([*names, *usual, DIFF]))


def exhibit_texts(reference: str, text: str, metric: Metric) -> Evidence | str:
    """Return the evidence of a metric that reads nothing but the texts, or that there is none."""
    if metric.kernel not in _OF_TEXTS:
        return f"{metric.name} has no evidence in words here."
    return _OF_TEXTS[metric.kernel](reference, text, metric)


def exhibit(cases: Cases, q: int, text: str | None, row: int, name: str) -> Evidence | str:
    """Return the evidence of a pair, or why there is none.

    Parameters
    ----------
    cases : Cases
    q : int
        The test report.
    text : str or None
        Of the candidate.
    row : int
        Of the candidate in the corpus, -1 if it is no row.
    name : str
        A metric, or "diff".
    """
    reference = cases.reference(q)
    if reference is None:
        return "The text of the test report is not known here: give the test reports (--queries)."
    if text is None:
        return "The text of this candidate is not in the file: give the index (--index), or write the file with texts."
    if name == DIFF:
        return evidence.diff(reference, text)
    metric = METRICS[name]
    if not metric.terms and all(REPRESENTATIONS[kind].is_of_texts for kind in metric.representations):
        return exhibit_texts(reference, text, metric)
    place = cases.query(q)
    if cases.index is None or cases.queries is None or place is None or row < 0:
        return f"{name} is shown for corpus rows, with the index (--index) and the test reports (--queries)."
    held = cases.queries.attached
    if metric.terms:
        values = cases.cross_scores(q, [row]).get(row, {})
        parts = {part: values.get(part) for part in metric.terms}
        known = {part: value for part, value in parts.items() if value is not None}
        if len(known) < len(parts):
            return f"{name} needs {', '.join(part for part in parts if part not in known)} of both sides, prepared."
        return evidence.composite(known, metric)
    kind = metric.representations[0]
    if not metric.is_searched:
        return f"{name} has no evidence in words: its model reads both reports at once."
    if (kind, metric.kernel) not in _STORED:
        return f"{name} has no evidence in words here."
    if kind not in held or kind not in cases.index.content["representations"]:
        return f"{name} is shown where test reports and index are prepared with {kind}."
    return _STORED[kind, metric.kernel](cases, metric, place, row, reference, text)


def _radgraph(cases: Cases, metric: Metric, place: int, row: int, reference: str, text: str) -> Evidence | str:
    graphs, of_row = cases.queries.attached["radgraph"].both  # type: ignore[union-attr]
    part: Any = representation_of(cases.index, metric)  # type: ignore[arg-type]
    graphs = part.as_compared(graphs)
    unit = int(part.unit_of_row[row]) if row < len(part.unit_of_row) else -1
    pair = (
        spell_graph(graphs, int(of_row[place])) if of_row[place] >= 0 else _NO_GRAPH,
        part.item(unit) if unit >= 0 else _NO_GRAPH,
    )
    return evidence.radgraph(reference, text, metric, pair)


def _encoded(cases: Cases, metric: Metric, place: int, row: int, **settings: Any) -> tuple[Any, Any] | None:
    """Return what the plain scorer takes of both sides, None where one has nothing."""
    part: Any = representation_of(cases.index, metric)  # type: ignore[arg-type]
    queries = cases.queries.take(np.array([place]))  # type: ignore[union-attr]
    unit = int(part.unit_of_row[row]) if row < len(part.unit_of_row) else -1
    if unit < 0 or int(queries.attached[metric.representations[0]].of_row[0]) < 0:
        return None
    encoded = part.encode(queries, **settings)
    return encoded.item(int(encoded.which[0])), part.candidate(unit, encoded)


def _labels(cases: Cases, metric: Metric, place: int, row: int, reference: str, text: str) -> Evidence | str:
    pair = _encoded(cases, metric, place, row)
    shown = evidence.labels if metric.representation == "labels" else evidence.agreement
    return "A side has no labels." if pair is None else shown(*pair, metric)


def _bertscore(cases: Cases, metric: Metric, place: int, row: int, reference: str, text: str) -> Evidence | str:
    pair = _encoded(cases, metric, place, row, wordless=True)
    if pair is None:
        return "A side has no token states."
    spans, note = None, ""
    try:
        spans = _word_pieces(cases, metric, (reference, text))
    except MetricOracleError as error:
        note = str(error)
    if spans is not None and [len(side) for side in spans] != [len(item.states) for item in pair]:
        spans = None  # another tokenizer than the one that made the states
    found = evidence.bertscore(reference, text, pair, spans, int(str(metric.options["part"])))
    is_weighted = any(signature.get("idf") not in (None, "off") for signature in cases.signatures)
    weights = "The score of the file has idf weights, the counts here have none." if is_weighted else ""
    return replace(found, note=" ".join(filter(None, [note or found.note, weights])))


def _word_pieces(cases: Cases, metric: Metric, texts: tuple[str, str]) -> tuple[Any, Any] | None:
    """Return where the tokens of both texts are, by an encoder that is on this disk; None where there is none."""
    part: Any = representation_of(cases.index, metric)  # type: ignore[arg-type]
    queries: Any = cases.queries
    is_given = queries.encoder is not None or queries.encoding is not None
    if not is_given and not Path(part.description["encoder"]["model"]).is_dir():
        return None
    encoder = part.open_encoder(queries)
    one, other = (encoder.spans(text) for text in texts)
    return None if one is None or other is None else (one, other)


_STORED: dict[tuple[str, str], Callable[..., Evidence | str]] = {
    ("radgraph", "radgraph"): _radgraph,
    ("labels", "chexbert_labels"): _labels,
    ("bertscore", "bertscore"): _bertscore,
}
