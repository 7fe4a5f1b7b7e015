"""Chooses and computes the evidence of a pair under a metric, from the result files, the index and the test reports."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import MetricOracleError
from metric_oracle.explorer import evidence
from metric_oracle.explorer.cases import Cases
from metric_oracle.explorer.evidence import Evidence
from metric_oracle.explorer.opposites import (
    Opposite,
    mark,
    of_graphs,
    of_texts,
    places_of_graphs,
    places_of_labels,
    places_of_words,
)
from metric_oracle.explorer.scores import cross_scores
from metric_oracle.indexes.ngrams import Span
from metric_oracle.indexes.radgraph import FAMILIES, Graph, spell_graph
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import compared

_OF_TEXTS: dict[str, Callable[[str, str, Metric], Evidence]] = {
    "bleu": evidence.bleu,
    "rouge_l": evidence.rouge_l,
    "temporal": evidence.temporal,
}
DIFF = "diff"
_NO_GRAPH = Graph(*(frozenset() for _ in FAMILIES))


def kinds_of(cases: Cases) -> list[str]:
    """Return the kinds of evidence that a page offers: the files' metrics, BLEU and ROUGE-L, and "diff"."""
    names = [column.metric for column in cases.columns if cases.metric(column.metric) is not None]
    usual = [name for name in ("bleu-2", "rouge-l") if name not in names]
    return list(dict.fromkeys([*names, *usual, DIFF]))


def exhibit_texts(reference: str, text: str, metric: Metric) -> Evidence | str:
    """Return the evidence of a metric that reads only texts; for another metric, a sentence that there is none."""
    if metric.kernel not in _OF_TEXTS:
        return f"{metric.name} has no evidence in words here."
    return _OF_TEXTS[metric.kernel](reference, text, metric)


def exhibit(cases: Cases, q: int, text: str | None, row: int, name: str) -> Evidence | str:
    """Return the evidence of the metric `name`, or of "diff", for test report `q` and a candidate, or why there is not.

    `text` of the candidate is None if it is not known, and `row` is -1 if it is not from the corpus.
    """
    reference = cases.reference(q)
    if reference is None:
        return "The text of the test report is not known, because the page was made without the test reports."
    if text is None:
        if row < 0:
            return "The text of this candidate is not in the file; --with-text of oracle score keeps it."
        return (
            "The text of this candidate is not known: the result has no texts, and the page was made without the index."
        )
    if name == DIFF:
        return evidence.diff(reference, text)
    metric = cases.metric(name)
    if metric is None:
        return f"{name} has no evidence here, because its scores are from another tool."
    if len(metric.terms) == 1 and all(REPRESENTATIONS[kind].is_of_texts for kind in metric.representations):
        return exhibit_texts(reference, text, metric)
    position = cases.query(q)
    if cases.index is None or cases.queries is None or position is None or row < 0:
        return f"{name} is shown for rows of the corpus, if the page is made with the index and the test reports."
    attached = cases.queries.attached
    if len(metric.terms) > 1:
        values = cross_scores(cases, q, [row]).get(row, {})
        parts = {part: values.get(part) for part in metric.terms}
        scored = {part: value for part, value in parts.items() if value is not None}
        if len(scored) < len(parts):
            return f"{name} needs {', '.join(part for part in parts if part not in scored)} of both sides, prepared."
        return evidence.composite(scored, metric)
    kind = metric.representations[0]
    if not metric.is_searched:
        return f"{name} has no evidence in words: its model reads both reports at once."
    if (kind, metric.kernel) not in _STORED:
        return f"{name} has no evidence in words here."
    if kind not in attached or kind not in cases.index.content["representations"]:
        return f"{name} is shown where test reports and index are prepared with {kind}."
    return _STORED[kind, metric.kernel](cases, metric, position, row, reference, text)


class Opposites(NamedTuple):
    """The contradictions between a test report and a candidate."""

    # Each with its origin: "RadGraph" for presence, side, severity and change, "CheXbert" for positive and negative
    # findings, "words" for the texts where neither is known.
    pairs: list[tuple[str, Opposite]]
    # Of reference and candidate: spans in the text, and what the other one says there. None if a text is not known.
    places: list[dict[Span, str]] | None = None

    def mark(self, exhibit: Evidence | str) -> Evidence | str:
        """Return evidence with the words marked that the other text contradicts; a sentence is returned unchanged."""
        if isinstance(exhibit, str) or self.places is None or not any(self.places):
            return exhibit
        return mark(exhibit, self.places)


def opposites(cases: Cases, q: int, row: int, text: str | None) -> Opposites:
    """Return the contradictions between test report `q` and a row of the corpus, whose text may be unknown (None).

    Where neither graphs nor labels of both are known, opposite words of the texts are taken.
    """
    position = cases.query(q)
    reference = cases.reference(q)
    texts = None if text is None or reference is None else (reference, text)
    contradictions: list[tuple[str, Opposite]] = []
    by_labels: list[dict[Span, str]] = [{}, {}]
    by_graph: list[dict[Span, str]] = [{}, {}]
    both, is_known = set[str](), False
    if cases.index is not None and cases.queries is not None and position is not None and row >= 0:
        both = set(cases.queries.attached) & set(cases.index.content["representations"])
    if "labels" in both and position is not None:
        labels = _labels(cases, METRICS["chexbert:labels"], position, row, "", "")
        rows = [] if isinstance(labels, str) else labels.rows
        is_known = not isinstance(labels, str)
        contradictions += [("CheXbert", Opposite(*one[:3])) for one in rows if one[3] == "opposite"]
        by_labels = by_labels if texts is None else places_of_labels(texts, rows)
    if "radgraph" in both and position is not None:
        graphs = _graphs(cases, METRICS["radgraph"], position, row)
        contradictions, is_known = [("RadGraph", opposite) for opposite in of_graphs(*graphs)] + contradictions, True
        by_graph = by_graph if texts is None else places_of_graphs(texts, graphs)
    if texts is None:
        return Opposites(contradictions)
    if not is_known:
        by_words = of_texts(*texts)
        of_words = [places_of_words(texts, opposite) for opposite in by_words]
        places = [{at: other for one in of_words for at, other in one[side].items()} for side in (0, 1)]
        return Opposites([("words", opposite) for opposite in by_words], places)
    # A graph names the words themselves: where both sources know a place, its mark is the one.
    places = [
        {**{at: other for at, other in side.items() if not _overlaps(at, first)}, **first}
        for side, first in zip(by_labels, by_graph, strict=True)
    ]
    return Opposites(contradictions, places)


def _overlaps(span: Span, others: Iterable[Span]) -> bool:
    return any(span[0] < end and begin < span[1] for begin, end in others)


def _document(cases: Cases, metric: Metric, row: int) -> tuple[Any, int]:
    """Return the representation of the shard that has a corpus row, and the row's document in it, -1 for none."""
    parts = compared(cases.index, metric)  # type: ignore[arg-type]
    for shard, part in parts:
        own = row - shard.first_row
        if 0 <= own < len(part.document_of_row):
            return part, int(part.document_of_row[own])
    return parts[0][1], -1


def _graphs(cases: Cases, metric: Metric, position: int, row: int) -> tuple[Graph, Graph]:
    graphs, of_row = cases.queries.attached["radgraph"].both  # type: ignore[union-attr]
    part, document = _document(cases, metric, row)
    graphs = part.as_compared(graphs)
    return (
        spell_graph(graphs, int(of_row[position])) if of_row[position] >= 0 else _NO_GRAPH,
        part.item(document) if document >= 0 else _NO_GRAPH,
    )


def _radgraph(cases: Cases, metric: Metric, position: int, row: int, reference: str, text: str) -> Evidence | str:
    return evidence.radgraph(reference, text, metric, _graphs(cases, metric, position, row))


def _encoded(cases: Cases, metric: Metric, position: int, row: int, **settings: Any) -> tuple[Any, Any] | None:
    """Return test report and candidate in the form that the metric's reference scorer takes.

    Return None if either has no representation. `position` is that of the test report in `Cases.queries`, `row` the
    corpus row of the candidate.
    """
    part, document = _document(cases, metric, row)
    queries = cases.queries.take(np.array([position]))  # type: ignore[union-attr]
    if document < 0 or int(queries.attached[metric.representations[0]].of_row[0]) < 0:
        return None
    encoded = part.encode(queries, **settings)
    return encoded.item(int(encoded.document_of_row[0])), part.item(document)


def _labels(cases: Cases, metric: Metric, position: int, row: int, reference: str, text: str) -> Evidence | str:
    pair = _encoded(cases, metric, position, row)
    display = evidence.labels if metric.representation == "labels" else evidence.agreement
    return "A side has no labels." if pair is None else display(*pair, metric)


def _bertscore(cases: Cases, metric: Metric, position: int, row: int, reference: str, text: str) -> Evidence | str:
    pair = _encoded(cases, metric, position, row, wordless=True)
    if pair is None:
        return "A side has no token states."
    spans, note = None, ""
    try:
        spans = _word_pieces(cases, metric, (reference, text))
    except MetricOracleError as error:
        note = cases.say(error)
    if spans is not None and [len(side) for side in spans] != [len(item.states) for item in pair]:
        spans = None  # another tokenizer than the one that made the states
    exhibit = evidence.bertscore(reference, text, pair, spans, int(str(metric.options["part"])))
    is_weighted = any(signature.get("idf") not in (None, "off") for signature in cases.signatures)
    weights = "The score of the file has idf weights, the counts here have none." if is_weighted else ""
    return replace(exhibit, note=" ".join(filter(None, [note or exhibit.note, weights])))


def _word_pieces(cases: Cases, metric: Metric, texts: tuple[str, str]) -> tuple[Any, Any] | None:
    """Return the spans of the encoder's tokens in `texts`, reference and candidate; None if they are not known.

    An encoder that would have to be downloaded is not opened.
    """
    part, _ = _document(cases, metric, 0)
    queries: Any = cases.queries
    is_given = queries.encoder is not None or queries.opened_encoder is not None
    if not is_given and not Path(part.description["encoder"]["model"]).is_dir():
        return None
    encoder = part.open_encoder(queries)
    of_reference, of_candidate = (encoder.spans(text) for text in texts)
    return None if of_reference is None or of_candidate is None else (of_reference, of_candidate)


_STORED: dict[tuple[str, str], Callable[..., Evidence | str]] = {
    ("radgraph", "radgraph"): _radgraph,
    ("labels", "chexbert_labels"): _labels,
    ("bertscore", "bertscore"): _bertscore,
}
