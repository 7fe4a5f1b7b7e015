"""Scores of given pairs of reports: queries with chosen corpus rows, or references with the predictions of a model.

A *source* is what a metric reads in addition to the text, such as a graph, an embedding or labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import package_version
from metric_oracle.base.progress import Progress, counter
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings import corpus_bleu
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.judges.judge import Judge
from metric_oracle.judges.pair_models import PairScorer, opened_models
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric, shown_in
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_queries, counted_entry, section_entry
from metric_oracle.retrieval.document_pairs import Pairs, scorable_rows
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.search_signature import digest

DEFAULT_METRICS = shown_in("score")
# Entries of the manifest that describe how a representation was made, independent of the texts.
MADE = ("encoder", "schema", "storage", "baseline", "uncertain")
# Settings of a search that the signature of a metric records.
SETTINGS = ("idf", "rescaled", "truncated_queries", "prevalence")


class _Scored(NamedTuple):
    """The scores of all pairs under one metric, and their components by name, all float64[n]."""

    is_known: np.ndarray  # bool[n], whether both reports have what the metric reads; other values stand for nothing
    scores: np.ndarray
    components: dict[str, np.ndarray]

    def column(self, values: np.ndarray) -> pa.Array:
        """Return scores or a component as a column of a table, null where nothing is known."""
        return pa.array(values, pa.float64(), mask=~self.is_known)


def score_rows(
    index: Index,
    queries: Reports,
    rows: Sequence[int] | np.ndarray,
    names: Sequence[str] | None = None,
    *,
    system: str,
    options: SearchOptions = DEFAULTS,
    text: bool = False,
    progress: Progress | None = None,
    pair_models: Mapping[str, PairScorer] | None = None,
) -> Scores:
    """Score the pairs of query i and corpus row ``rows[i]``, each distinct pair once, equal to the plain scorers.

    Queries are the references of the metrics, by default those of `DEFAULT_METRICS` for which both sides have the
    sources. A score is null if one report of the pair lacks the source, and a composite's is null if one of its terms
    is. A blank text needs no graph: its RadGraph F1 is 0, as are BLEU and ROUGE-L; BERTScore is 0 before rescaling.

    `system` names in the signature what chose the rows. Of the options only `idf` and `rescale` are used. With `text`
    the table also has the texts of both sides. `pair_models` are by representation; by default the models of the
    metrics are opened. Raise InputError if rows, metrics or queries do not fit the index.
    """
    pairs = _RowPairs(index, queries, _checked_rows(rows, index, queries))
    metrics = _requested_metrics(index, queries, names, pair_models or {})
    pair_models = opened_models(metrics) if pair_models is None else pair_models
    settings = options.settings
    if not any(set(settings) <= set(metric.settings) for metric in metrics):
        check_left_out(settings, "without BERTScore among the metrics")
    single = {name: METRICS[name] for metric in metrics for name in metric.terms}
    for kind in dict.fromkeys(metric.representation for metric in single.values()):
        if progress is not None:
            progress(kind, None, None)
        of_kind = [metric for metric in single.values() if metric.representation == kind]
        if kind in pair_models:
            pairs.judge(of_kind[0], pair_models[kind])
        else:
            pairs.score(of_kind, settings)
    for metric in metrics:
        if metric.name not in pairs.scored:
            pairs.add_up(metric)
    entries = {metric.name: _signature(metric, index, pairs.used) for metric in metrics}
    signature = {
        "kind": "scores",
        "system": system,
        "metrics": entries,
        "references": digest(queries),
        **section_entry(index, queries),
        "n": len(queries.ids),
        "version": package_version(),
        # Of these very predictions, so that it is no part of what systems of one table share.
        **({"noted": pairs.noted} if pairs.noted else {}),
    }
    columns = pairs.columns(list(entries))
    if text:
        columns["reference"] = pa.array(queries.texts, pa.large_string())
        columns["prediction"] = index.take("text", pairs.rows)
    return Scores(pa.table(columns), signature)


def _checked_rows(rows: Sequence[int] | np.ndarray, index: Index, queries: Reports) -> np.ndarray:
    """Return corpus rows, one for each query, as int64[n]; raise InputError if they are not."""
    rows = np.asarray(rows)
    n = len(queries.ids)
    if rows.shape != (n,) or rows.dtype.kind not in "iu" or not n or rows.min() < 0 or rows.max() >= index.n_reports:
        is_array = rows.dtype.kind in "iu" and rows.shape == (n,) and n
        got = f"{rows.min()} to {rows.max()}" if is_array else f"{rows.dtype} of shape {rows.shape}"
        raise InputError(
            "rows",
            f"must be an int from 0 to {index.n_reports - 1} for each of {n} queries",
            got,
            "Pass rows of this index.",
        )
    return rows.astype(np.int64)


class _RowPairs:
    """The pairs of query i and corpus row `rows[i]`, and their scores by metric as they become known."""

    def __init__(self, index: Index, queries: Reports, rows: np.ndarray) -> None:
        self.index, self.queries, self.rows = index, queries, rows
        self.scored: dict[str, _Scored] = {}
        self.used: dict[str, Any] = {}  # by representation, what the signature of a metric records
        self.noted: dict[str, Any] = {}  # by metric, what a model that reads both reports says of these pairs

    def judge(self, metric: Metric, model: PairScorer) -> None:
        """Score the pairs by a model that reads both reports."""
        both = list(zip(self.queries.texts, self.index.take("text", self.rows).to_pylist(), strict=True))
        judged = model.score(both)
        self.scored[metric.name] = _Scored(np.ones(len(both), bool), judged.scores, judged.components)
        if judged.notes:
            self.noted[metric.name] = judged.notes
        self.used[metric.representation] = {"encoder": model.signature}

    def score(self, metrics: list[Metric], settings: dict[str, Any]) -> None:
        """Score the pairs by the metrics of one representation."""
        used = _score_kind(self.index, self.queries, self.rows, metrics, settings, self.scored)
        self.used[metrics[0].representation] = used

    def add_up(self, metric: Metric) -> None:
        """Add up the scores of the terms of a sum, which were computed before, into the scores of the sum."""
        parts_of = {name: self.scored[name] for name in metric.terms}
        is_known = np.all([part.is_known for part in parts_of.values()], axis=0)
        values = {name: part.scores for name, part in parts_of.items()}
        total = composite(values.values(), metric.terms.values(), metric.intercept)
        self.scored[metric.name] = _Scored(is_known, total, values)

    def columns(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the columns of the table: ids, the scores of each metric, then all components."""
        columns: dict[str, Any] = {"query_id": pa.array(self.queries.ids, pa.large_string())}
        columns |= {name: self.scored[name].column(self.scored[name].scores) for name in names}
        for name in names:
            of_metric = self.scored[name]
            if of_metric.is_known.any():
                columns |= {f"{name}.{part}": of_metric.column(of) for part, of in of_metric.components.items()}
        return columns


def with_judge(
    scores: Scores, judge: Judge, pairs: Sequence[tuple[str, str]], progress: Progress | None = None
) -> Scores:
    """Return scores with one more metric, those of a judge; `pairs` are the texts (reference, candidate) of each row.

    Its column stands after those of the other metrics, its components after all components.
    """
    judgements = judge.score(pairs, counter(progress, judge.name, len({*pairs})))
    components = {f"{judge.name}.{part}": values for part, values in judgements.components.items()}
    new = {
        name: pa.array(values, pa.float64()) for name, values in {judge.name: judgements.scores, **components}.items()
    }
    columns = {name: scores.table[name] for name in scores.table.column_names}
    texts = [name for name in ("reference", "prediction") if name in columns]
    names = ["query_id", *scores.metrics, judge.name]
    names += [name for name in columns if name not in (*names, *texts)]
    signature = {
        **scores.signature,
        "metrics": {**scores.signature["metrics"], judge.name: judge.entry},
        "noted": {**scores.signature.get("noted", {}), judge.name: {**judge.signature, **judgements.notes}},
    }
    table = pa.table({name: (columns | new)[name] for name in [*names, *components, *texts]})
    return replace(scores, table=table, signature=signature)


def _requested_metrics(
    index: Index, queries: Reports, metrics: Sequence[str] | None, pair_models: Mapping[str, PairScorer]
) -> list[Metric]:
    """Return the requested metrics, each once; by default of those for which all sources are there.

    Raise InputError if a name is unknown.
    """
    if metrics is not None:
        names = dict.fromkeys(get_metric(name, for_scores=True).name for name in metrics)
        return [METRICS[name] for name in names]
    available = [*index.metrics, *pair_models]
    return [
        METRICS[name]
        for name in DEFAULT_METRICS
        if name in available and all(places_of(queries, kind) is not None for kind in METRICS[name].representations)
    ]


def places_of(reports: Reports, kind: str) -> np.ndarray | None:
    """Return the place of each report's entry in the source that a representation reads: int64[N], -1 without an entry.

    It is 0 for every report if the representation `kind` reads only texts. Return None if the reports lack the source.
    """
    if not REPRESENTATIONS[kind].is_attached:
        return np.zeros(len(reports.ids), np.int64)
    return reports.attached[kind].of_row if kind in reports.attached else None


def _score_kind(
    index: Index,
    queries: Reports,
    rows: np.ndarray,
    metrics: list[Metric],
    settings: dict[str, Any],
    scored: dict[str, _Scored],
) -> dict[str, Any]:
    """Score query i with corpus row ``rows[i]`` by the metrics of one representation.

    The scores are put into `scored`, by the names of the metrics. A sample of them is compared with the plain scorers',
    see `Pairs.check`. Return the settings of the encoded queries, which the signature records.
    """
    anew = replace(queries, stored=None)  # encoded from texts and sources, also rows of the index
    complete, pairs = complete_pairs(index, anew, metrics[0], settings)
    n = len(rows)
    lacks_query, lacks_document = np.ones(n, bool), ~np.isin(rows, scorable_rows(index, metrics[0]))
    lacks_query[complete] = False
    is_pair = ~(lacks_query | lacks_document)
    is_known = is_pair.copy()
    empty = REPRESENTATIONS[metrics[0].representation].load_class().empty
    if empty is not None:  # a blank report needs no entry in the source
        predictions = index.take("text", rows).to_pylist()
        for i in np.flatnonzero(~is_pair).tolist():
            lacks = (lacks_query[i] and queries.texts[i].strip()) or (lacks_document[i] and predictions[i].strip())
            is_known[i] = not lacks
    query, document, of_pair = np.empty((3, 0), np.int64)
    if pairs is not None:
        of_query = np.full(n, -1, np.int64)
        of_query[complete] = pairs.which
        query, document, of_pair = pairs.distinct(of_query[is_pair], pairs.document_of_row[rows[is_pair]])
    parts: dict[str, np.ndarray] = {}  # precision, recall and F1 of BERTScore, whichever is the score
    for metric in metrics:
        # A blank report without an entry has no entity, so F1 is 0 with every other, as in F1RadGraph and Yu et al.
        blank, of_blank = (np.nan, {}) if empty is None else load_reference(metric)(empty, empty)
        values, components = np.empty(0), dict.fromkeys(of_blank, np.empty(0))
        if metric.kernel == "bertscore" and parts:
            values, components = list(parts.values())[int(str(metric.options["part"]))], parts
        elif pairs is not None and len(query):
            of_metric = replace(pairs, metric=metric)
            values, components = of_metric.score_with_components(query, document)
            of_metric.check([queries.ids[i] for i in complete.tolist()], query, document, values, components)
            parts = components if metric.kernel == "bertscore" else {}
            if corpus_bleu.order_of(metric.name):
                items = [of_metric.items(*pair) for pair in zip(query.tolist(), document.tolist(), strict=True)]
                lengths = np.array([[len(side) for side in item] for item in items]).T
                components = {**components, **corpus_bleu.counts_of(metric.name, lengths, components)}
        columns = [np.full(n, value) for value in (blank, *(of_blank.get(name, np.nan) for name in components))]
        for column, of_pairs in zip(columns, (values, *components.values()), strict=True):
            column[is_pair] = of_pairs[of_pair]
        scored[metric.name] = _Scored(is_known, columns[0], dict(zip(components, columns[1:], strict=True)))
    return {} if pairs is None else pairs.settings


def complete_pairs(
    index: Index, queries: Reports, metric: Metric, settings: Mapping[str, Any]
) -> tuple[np.ndarray, Pairs | None]:
    """Return the positions of the queries that have what a metric of no terms reads, int64[n], and the pairs of these.

    Without such a query, the second value is None. Raise InputError if the index does not hold the representation, or
    its model is another.
    """
    kind = metric.representations[0]
    index.check_holds(metric)
    places = places_of(queries, kind)
    complete = np.arange(len(queries.ids)) if places is None else np.flatnonzero(places >= 0)
    if not len(complete):
        return complete, None
    complete_queries = queries if len(complete) == len(queries.ids) else queries.take(complete)
    check_queries(complete_queries, metric, index)
    of_kind = {**settings, "wordless": True} if REPRESENTATIONS[kind].is_encoded else {}
    return complete, Pairs.of(index, metric, complete_queries, of_kind)


def metric_entries(
    index: Index, queries: Reports, metrics: Sequence[Metric], options: SearchOptions = DEFAULTS
) -> dict[str, dict[str, Any]]:
    """Return the signature entry of each metric by name, as `score_rows` records it, without scoring.

    The index has at least one candidate, with sources made as those of all candidates are. No metric may have a model
    that reads both reports of a pair. Of the options only `idf` and `rescale` are used.
    """
    used: dict[str, Any] = {}
    for metric in metrics:
        for part in metric.metrics.values():
            if part.representation not in used:
                _, pairs = complete_pairs(index, queries, part, options.settings)
                used[part.representation] = {} if pairs is None else pairs.settings
    return {metric.name: _signature(metric, index, used) for metric in metrics}


def _signature(metric: Metric, index: Index, used: dict[str, Any]) -> dict[str, Any]:
    """Return the signature entry of a metric: what reproduces its scores, whatever the system.

    `used` has, by representation, what `_score_kind` returned, or the signature of a model that reads pairs.
    """
    content, settings = index.content["representations"], used.get(metric.representation, {})
    representations = {
        kind: {name: of_kind[name] for name in MADE if of_kind.get(name) is not None}
        for kind in metric.representations
        for of_kind in [content.get(kind, settings)]
    }
    for kind in metric.representations:
        settings = settings | used.get(kind, {})
    return {
        "options": metric.recorded,
        "source": metric.citation,
        "tool": metric.tool,
        "direction": metric.direction,
        "representation": representations,
        **{name: settings[name] for name in SETTINGS if name in settings},
        **counted_entry(metric, settings.get("idf"), index.counted.fingerprint),
    }
