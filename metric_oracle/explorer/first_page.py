"""Summaries for the explorer's first page: the systems of each metric on one axis, and notable test reports.

Means, intervals and differences are those of `oracle table` on the files that have the metric.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import MetricOracleError
from metric_oracle.corpora.label_tables import LABELS
from metric_oracle.corpora.texts import folded
from metric_oracle.explorer.cases import MODEL, ORACLE, OTHER, Cases
from metric_oracle.explorer.exhibits import Opposites, opposites
from metric_oracle.explorer.opposites import of_texts
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.ngrams import Span
from metric_oracle.metrics import METRICS
from metric_oracle.records import Directed
from metric_oracle.statistics import Interval, interval
from metric_oracle.tables.compare import compare
from metric_oracle.tables.systems import ReadResults
from metric_oracle.tables.table_cells import Difference, title


@dataclass(frozen=True)
class Mark:
    """One system under one metric."""

    name: str
    role: str  # `ScoreColumn.role`
    column: int  # position in `Cases.columns`
    mean: float  # NaN if the file has no score
    ends: Interval | None = None  # 95 % interval of the mean; None if the files make no table
    # The system minus the metric's oracle on the same test reports; None for oracles and baselines.
    difference: Difference | None = None


@dataclass(frozen=True)
class Strip(Directed):
    """The systems of one metric."""

    metric: str
    higher_is_better: bool
    n: int  # number of test reports that all of its systems can score
    marks: list[Mark]  # from the worst mean to the best
    low: float  # ends of the axis: 0 and 1, or further out where a system is
    high: float
    # The oracle over the test reports that have no copy in the corpus; None if there are no copies.
    without_copies: Mark | None = None
    reason: str = ""  # why there are no intervals; "" if there are

    @property
    def title(self) -> str:
        """Name of the metric as papers print it."""
        return title(self.metric)

    @property
    def oracle(self) -> Mark | None:
        """The metric's own oracle."""
        return next((mark for mark in self.marks if mark.role == ORACLE), None)

    @property
    def models(self) -> list[Mark]:
        """Systems that are no yardstick, in the order of the files."""
        return sorted((mark for mark in self.marks if mark.role == MODEL), key=lambda mark: mark.column)


class Telling(NamedTuple):
    """A notable test report of the first page, which was chosen by a rule; see `telling`."""

    rule: str  # heading that says what is special about it
    q: int  # its position among the test reports
    texts: list[tuple[str, str | None]]  # heading and text of each candidate to show, None for a text that is not known
    # Of the test report and of the first text: spans that contradict each other, and what the other text says.
    places: list[dict[Span, str]] | None = None


def strips(cases: Cases, copies: np.ndarray | None) -> list[Strip]:
    """Return the systems of each metric, in the order of the files; `copies` is that of `copies_of`."""
    return [_strip(cases, metric, copies) for metric in dict.fromkeys(column.metric for column in cases.columns)]


def _strip(cases: Cases, metric: str, copies: np.ndarray | None) -> Strip:
    columns = [i for i, column in enumerate(cases.columns) if column.metric == metric]
    marks: dict[str, Mark] = {}
    values = [cases.columns[i].values for i in columns]
    for i in columns:
        column = cases.columns[i]
        name, number = column.system, 1
        while name in marks:
            number += 1
            name = f"{column.system} ({number})"
        scored = column.values[np.isfinite(column.values)]
        marks[name] = Mark(name, column.role, i, float(scored.mean()) if len(scored) else np.nan)
    n, reason = int(np.isfinite(values).all(axis=0).sum()), ""
    oracle = next((name for name, mark in marks.items() if mark.role == ORACLE), None)
    paired = [(name, oracle) for name, mark in marks.items() if mark.role == MODEL] if oracle else []
    try:
        files = {name: _only(cases.files[cases.columns[mark.column].file], metric) for name, mark in marks.items()}
        comparison = compare(files, paired=paired)
        differences = {one.a: one for one in comparison.differences}
        n = comparison.columns[0].n
        for name, mark in marks.items():
            cell = comparison.cells[name, metric]
            marks[name] = replace(mark, mean=cell.mean, ends=cell.interval, difference=differences.get(name))
    except MetricOracleError as error:
        reason = cases.say(error)
    without_copies = None
    if oracle and copies is not None and copies.any():
        at = marks[oracle].column
        rest = cases.columns[at].values[~copies & np.isfinite(cases.columns[at].values)]
        if len(rest) > 1:
            without_copies = Mark("oracle without copies", OTHER, at, float(rest.mean()), interval(rest))
    column = cases.columns[columns[0]]
    on_axis = [mark for mark in marks.values() if np.isfinite(mark.mean)]
    reach = [end for mark in on_axis for end in (mark.mean, *(mark.ends[:2] if mark.ends else ()))]
    return Strip(
        metric,
        column.higher_is_better,
        n,
        sorted(on_axis, key=lambda mark: column.sign * mark.mean),
        min([0.0, *reach]),
        max([1.0, *reach]),
        without_copies,
        reason,
    )


def _only(file: ReadResults, metric: str) -> ReadResults:
    """Return a result file restricted to the columns of one metric, among them the counts from which CRG is computed.

    A file of `retrieve` or of a baseline has one metric and is returned as it is.
    """
    if not isinstance(file, Scores):
        return file
    names = [name for name in file.table.column_names if name in ("query_id", metric) or name.startswith(f"{metric}.")]
    metrics = {metric: file.signature["metrics"][metric]}
    return replace(file, table=file.table.select(names), signature={**file.signature, "metrics": metrics})


def copies_of(cases: Cases) -> np.ndarray | None:
    """Return whether the corpus has the text of each test report, bool[Q]: equal but for case and white space.

    Without the index or the test reports, the texts of the oracles are compared, which may overlook a copy. None if
    these are not known either.
    """
    references = [cases.reference(q) for q in range(len(cases.ids))]
    if cases.index is not None and cases.queries is not None:
        corpus = {folded(text) for shard in cases.index.shards() for text in shard.distinct["text"].to_pylist()}
        return np.array([text is not None and folded(text) in corpus for text in references])
    texts_of_oracles = [texts for _, texts in oracle_texts(cases)]
    if (
        not texts_of_oracles
        or all(text is None for text in references)
        or not any(text is not None for texts in texts_of_oracles for text in texts)
    ):
        return None
    return np.array(
        [
            reference is not None and any(text is not None and folded(text) == folded(reference) for text in texts)
            for reference, *texts in zip(references, *texts_of_oracles, strict=True)
        ]
    )


def oracle_texts(cases: Cases) -> list[tuple[int, list[str | None]]]:
    """Return, for each oracle with reports, its column and the text that it chose for each test report."""
    return [
        (i, cases.best_texts(cases.joined[column.file]))
        for i, column in enumerate(cases.columns)
        if column.role == ORACLE and "row" in cases.joined[column.file].table.column_names
    ]


def alone(cases: Cases) -> list[tuple[str, int]]:
    """Return, for each oracle, its metric and for how many test reports no other oracle chose the same text.

    The list is empty if there is only one oracle.
    """
    of_oracles = oracle_texts(cases)
    counts = []
    for place, (i, texts) in enumerate(of_oracles):
        others = [other for at, (_, other) in enumerate(of_oracles) if at != place]
        counts.append(
            (cases.columns[i].metric, sum(text not in rest for text, *rest in zip(texts, *others, strict=True)))
        )
    return counts if len(counts) > 1 else []


# Test reports that tell most


def telling(cases: Cases, axes: Sequence[Strip]) -> list[Telling]:
    """Return up to four test reports, each chosen by a rule; a test report is chosen once.

    The rules: the oracles chose the most different reports; an oracle says the opposite of its test report; a model is
    furthest below its oracle, and furthest above it, as a share of the metric's axis.
    """
    of_oracles = oracle_texts(cases)
    first = _disagreement(cases, of_oracles)
    cards = [] if first is None else [first]
    contradiction = partial(_contradiction, cases, of_oracles)
    below, above = partial(_furthest, cases, axes, -1), partial(_furthest, cases, axes, 1)
    for rule in (contradiction, below, above):
        card = rule({card.q for card in cards})
        if card is not None:
            cards.append(card)
    return cards


OracleTexts = list[tuple[int, list[str | None]]]


def _words(text: str | None) -> frozenset[str]:
    return frozenset((text or "").lower().replace(".", " ").replace(",", " ").split())


def _oracle(cases: Cases, i: int, q: int) -> str:
    return f"{cases.columns[i].system} {cases.columns[i].values[q]:z.2f}"


def _disagreement(cases: Cases, of_oracles: OracleTexts) -> Telling | None:
    """Return the test report for which the oracles chose the most different reports, None if they agree on all.

    Among several, choose the one whose chosen reports share the fewest words. `of_oracles` is that of `oracle_texts`.
    """
    differ = cases.frame["differ"].to_numpy()
    most = int(differ.max(initial=0))
    if most < 2 or len(of_oracles) < 2:
        return None

    def shared(q: int) -> float:
        words = [_words(texts[q]) for _, texts in of_oracles]
        return len(frozenset.intersection(*words)) / max(1, len(frozenset.union(*words)))

    q = min(np.flatnonzero(differ == most).tolist(), key=shared)
    metrics_of: dict[str | None, list[str]] = {}
    for i, texts in of_oracles:
        metrics_of.setdefault(texts[q], []).append(_oracle(cases, i, q))
    shown_texts = [(", ".join(names), text) for text, names in metrics_of.items()]
    return Telling("Metrics disagree most", q, shown_texts[:3])


def _contradiction(cases: Cases, of_oracles: OracleTexts, shown_before: set[int]) -> Telling | None:
    """Return a test report, not yet shown, that an oracle's report contradicts, None if there is none.

    Among several, choose the one whose score ranks highest among all scores of its oracle. `of_oracles` is that of
    `oracle_texts`; `shown_before` has positions of test reports.
    """
    contradictions = []
    for i, texts in of_oracles:
        column = cases.columns[i]
        better = column.sign * column.values
        rank = np.argsort(np.argsort(np.nan_to_num(better, nan=-np.inf), kind="stable")) / len(better)
        contradictions += [(-float(rank[q]), i, q, row, text) for q, row, text in _opposed(cases, i, texts)]
    for _, i, q, row, text in sorted(contradictions, key=itemgetter(0)):
        contradicting = opposites(cases, q, row, text)  # what the page of the test report says and marks
        told = _told(contradicting)
        if q not in shown_before and told:
            rule = f"An oracle seems to contradict its test report: {told}"
            return Telling(rule, q, [(_oracle(cases, i, q), text)], contradicting.places)
    return None


def _told(contradicting: Opposites) -> str:
    """Return a sentence on a contradiction that both texts mark, one of the labels if there is any; "" without one."""
    in_reference, in_candidate = ([*of_side.values()] for of_side in contradicting.places or ({}, {}))
    marked = [
        (source, one)
        for source, one in contradicting.pairs
        if one.about != "No Finding" and one.in_candidate in in_reference and one.in_reference in in_candidate
    ]
    for source, (about, there, here) in sorted(marked, key=lambda pair: pair[0] != "CheXbert")[:1]:
        if source == "CheXbert":
            return f"{about} is {there} there and {here} in the oracle, by the labels"
        return f"{about}: “{there}” there, “{here}” in the oracle"
    return ""


def _opposed(cases: Cases, i: int, texts: Sequence[str | None]) -> Iterator[tuple[int, int, str]]:
    """Yield the position of each test report that an oracle's report may contradict, with its row and text.

    If both reports have CheXbert labels, these are compared; otherwise opposite words in the texts, such as "left" and
    "right". `i` is the oracle's column, `texts` the text that it chose for each test report.
    """
    labels = _labels(cases)
    file = cases.joined[cases.columns[i].file]
    rows = file.table["row"].to_numpy()
    for q, text in enumerate(texts):
        reference = cases.reference(q)
        if text is None or reference is None:
            continue
        row = int(rows[file.first[q]])
        if labels is not None and (pair := labels(q, row)) is not None:
            if ((pair[0] * pair[1] == -1) & (np.array(LABELS) != "No Finding")).any():
                yield q, row, text
        elif of_texts(reference, text):
            yield q, row, text


def _labels(cases: Cases) -> Callable[[int, int], tuple[np.ndarray, np.ndarray] | None] | None:
    """Return a function that returns the CheXbert labels of a test report and a corpus row, given their positions.

    Return None instead if the index or the test reports have no labels.
    """
    index, queries = cases.index, cases.queries
    if index is None or queries is None or "labels" not in index.content["representations"]:
        return None
    attached = queries.attached.get("labels")
    if attached is None:
        return None
    classes, of_row = attached.both
    part: Any = index.representation(METRICS["chexbert:labels"])

    def both(q: int, row: int) -> tuple[np.ndarray, np.ndarray] | None:
        position = cases.query(q)
        document = int(part.document_of_row[row]) if 0 <= row < len(part.document_of_row) else -1
        if position is None or of_row[position] < 0 or document < 0:
            return None
        return classes[of_row[position]].astype(np.int64), part.item(document).astype(np.int64)

    return both


def _furthest(cases: Cases, strips: Sequence[Strip], side: int, shown_before: set[int]) -> Telling | None:
    """Return the test report, not yet shown, on which a model's score is furthest from the oracle's; None without any.

    `side` is 1 for scores better than the oracle's, -1 for worse ones. `shown_before` has positions of test reports.
    """
    best: tuple[float, Strip, Mark, int] | None = None
    for strip in strips:
        for model in strip.models if strip.oracle else ():
            away = side * signed_distance(cases, strip, model) / (strip.high - strip.low)
            away[[*shown_before]] = np.nan
            if np.isfinite(away).any():
                q = int(np.nanargmax(away))
                if away[q] > 0 and (best is None or away[q] > best[0]):
                    best = float(away[q]), strip, model, q
    if best is None:
        return None
    _, strip, model, q = best
    text_of = {i: c.text for c in cases.candidates(q) for i in c.columns}
    column = cases.columns[model.column]
    texts = [
        (f"{model.name}, {title(column.metric)} {column.values[q]:z.2f}", text_of.get(model.column)),
        (_oracle(cases, strip.oracle.column, q), text_of.get(strip.oracle.column)),  # type: ignore[union-attr]
    ]
    return Telling(f"{model.name} is furthest {'above' if side > 0 else 'below'} its oracle", q, texts)


def signed_distance(cases: Cases, strip: Strip, mark: Mark) -> np.ndarray:
    """Return how much better a system is than its metric's oracle on each test report, float64[Q]."""
    oracle = strip.oracle
    if oracle is None:
        return np.full(len(cases.ids), np.nan)
    values, best = cases.columns[mark.column].values, cases.columns[oracle.column].values
    return strip.sign * (values - best)
