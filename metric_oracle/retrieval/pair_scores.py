"""Scores of given pairs of reports: queries with chosen corpus rows, or references with the predictions of a model.

A *source* is what a metric reads in addition to the text, such as a graph, an embedding or labels.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.arguments import check_left_out
from metric_oracle.corpora.reports import Reports
from metric_oracle.errors import InputError
from metric_oracle.files import package_version
from metric_oracle.findings import corpus_bleu
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import METRICS, REPRESENTATIONS, get_metric, shown_in
from metric_oracle.progress import Progress
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_queries, counted_entry, section_entry
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_scorer
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.pair_models import PairModel, reads_pairs, score_pairs, with_pair_models
from metric_oracle.retrieval.search import digest

DEFAULT_METRICS = shown_in("score")
# Document of a blank report that has no entry in a source: no entities, so F1 is 0, as in F1RadGraph and Yu et al.
# Entries of the manifest that describe how a representation was made, independent of the texts.
MADE = ("encoder", "schema", "storage", "baseline", "uncertain")
# Settings of a search that the signature of a metric records.
SETTINGS = ("idf", "rescaled", "truncated_queries", "prevalence")

_Pair = tuple[float, dict[str, float]] | None
NO_MODELS: Mapping[str, PairModel] = MappingProxyType({})


def score_rows(
    index: Index,
    queries: Reports,
    rows: Sequence[int] | np.ndarray,
    metrics: Sequence[str] | None = None,
    *,
    system: str,
    options: SearchOptions = DEFAULTS,
    text: bool = False,
    progress: Progress | None = None,
    pair_models: Mapping[str, PairModel] = NO_MODELS,
) -> Scores:
    """Score the pairs of query i and corpus row ``rows[i]``, each distinct pair once, equal to the plain scorers.

    Queries are the references of the metrics, by default those of `DEFAULT_METRICS` for which both sides have the
    sources. A score is null if one report of the pair lacks the source, and a composite's is null if one of its terms
    is. A blank text needs no graph: its RadGraph F1 is 0, as are BLEU and ROUGE-L; BERTScore is 0 before rescaling.

    `system` names in the signature what chose the rows. Of the options only `idf` and `rescale` are used. With `text`
    the table also has the texts of both sides. `pair_models` are by representation. Raise InputError if rows, metrics
    or queries do not fit the index.
    """
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
    records = _chosen(index, queries, metrics, pair_models)
    pair_models = with_pair_models(records, pair_models)
    parts = [METRICS[part] for record in records for part in record.terms]
    single = list(dict.fromkeys(record.name for record in (*records, *parts) if not record.terms))
    settings = options.settings
    if not any(set(settings) <= set(record.settings) for record in records):
        check_left_out(settings, "without BERTScore among the metrics")
    pairs: dict[str, list[_Pair]] = {}
    used: dict[str, Any] = {}
    noted: dict[str, Any] = {}
    for kind in dict.fromkeys(METRICS[name].representation for name in single):
        if progress is not None:
            progress(kind, None, None)
        of_kind = [METRICS[name] for name in single if METRICS[name].representation == kind]
        if reads_pairs(of_kind[0]):
            both = list(zip(queries.texts, index.take("text", rows).to_pylist(), strict=True))
            pairs[of_kind[0].name], described = score_pairs(pair_models[kind], both)
            noted |= {of_kind[0].name: described} if described else {}
            used[kind] = {"encoder": pair_models[kind].signature}
            continue
        used[kind] = _score_kind(index, queries, rows.astype(np.int64), of_kind, settings, pairs)
    for record in records:
        if record.terms:
            pairs[record.name] = _compose(record, pairs)
    signature = {
        "kind": "scores",
        "system": system,
        "metrics": {record.name: _signature(record, index, used) for record in records},
        "references": digest(queries),
        **section_entry(index, queries),
        "n": n,
        "version": package_version(),
        # Of these very predictions, so that it is no part of what systems of one table share.
        **({"noted": noted} if noted else {}),
    }
    columns: dict[str, Any] = {"query_id": pa.array(queries.ids, pa.large_string())}
    for record in records:
        values = [None if pair is None else pair[0] for pair in pairs[record.name]]
        columns[record.name] = pa.array(values, pa.float64())
    for record in records:
        for name in next((pair[1] for pair in pairs[record.name] if pair is not None), {}):
            values = [None if pair is None else pair[1][name] for pair in pairs[record.name]]
            columns[f"{record.name}.{name}"] = pa.array(values, pa.float64())
    if text:
        columns["reference"] = pa.array(queries.texts, pa.large_string())
        columns["prediction"] = index.take("text", rows)
    return Scores(pa.table(columns), signature)


def _chosen(
    index: Index, queries: Reports, metrics: Sequence[str] | None, pair_models: Mapping[str, PairModel]
) -> list[Metric]:
    """Return the records of the requested metrics, each once; by default of those for which all sources are there.

    Raise InputError if a name is unknown, or an empty sequence was given.
    """
    if metrics is not None:
        names = list(dict.fromkeys(get_metric(name, for_scores=True).name for name in metrics))
        if not names:
            raise InputError(
                "metrics",
                "must be at least one",
                "none",
                "Name at least one, or leave the argument out for the default metrics.",
            )
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
    records: list[Metric],
    settings: dict[str, Any],
    pairs: dict[str, list[_Pair]],
) -> dict[str, Any]:
    """Score query i with corpus row ``rows[i]`` by the metrics of one representation.

    The scores are put into `pairs`, by the names of the metrics; None for a pair that lacks the source. Return the
    settings of the encoded queries, which the signature records.
    """
    kind = records[0].representations[0]
    representation, complete, encoded = _encoded(index, queries, records[0], settings)
    which = np.full(len(queries.ids), -1, np.int64)
    if encoded is not None:
        which[complete] = encoded.which
    document_of_row = np.full(index.n_reports, -1, np.int64)
    document_of_row[: len(representation.document_of_row)] = representation.document_of_row
    empty = REPRESENTATIONS[kind].load_class().empty
    scorers = [load_scorer(record) for record in records]
    predictions = index.take("text", rows).to_pylist()
    scored: dict[tuple[int, int], list[_Pair]] = {}
    nothing: list[_Pair] = [None] * len(records)
    values_of_pairs = []
    for q, document, reference, prediction in zip(
        which.tolist(), document_of_row[rows].tolist(), queries.texts, predictions, strict=True
    ):
        if (q < 0 and (empty is None or reference.strip())) or (document < 0 and (empty is None or prediction.strip())):
            values_of_pairs.append(nothing)
            continue
        if (q, document) not in scored:
            a = empty if document < 0 else representation.candidate(document, encoded)
            b = empty if q < 0 or encoded is None else encoded.item(q)
            scored[q, document] = _scores(records, scorers, a, b)
        values_of_pairs.append(scored[q, document])
    for i, record in enumerate(records):
        pairs[record.name] = [values[i] for values in values_of_pairs]
    return {} if encoded is None else encoded.settings


def _encoded(
    index: Index, queries: Reports, record: Metric, settings: Mapping[str, Any]
) -> tuple[Any, np.ndarray, Any | None]:
    """Return the representation that a metric of no terms reads, positions of queries, int64[n], and these encoded.

    They are the queries that have the source of the representation; if there are none, the last value is None. Raise
    InputError if the index does not hold the representation, or its model is another.
    """
    kind = record.representations[0]
    index.check_holds(record)
    representation = representation_of(index, record)
    positions = places_of(queries, kind)
    complete = np.arange(len(queries.ids)) if positions is None else np.flatnonzero(positions >= 0)
    if not len(complete):
        return representation, complete, None
    complete_queries = queries.take(complete)
    check_queries(complete_queries, record, index)
    of_kind = {**settings, "wordless": True} if REPRESENTATIONS[kind].is_encoded else {}
    return representation, complete, representation.encode(complete_queries, **of_kind)


def metric_entries(
    index: Index, queries: Reports, records: Sequence[Metric], options: SearchOptions = DEFAULTS
) -> dict[str, dict[str, Any]]:
    """Return the signature entry of each metric by name, as `score_rows` records it, without scoring.

    The index has at least one candidate, with sources made as those of all candidates are. No metric may have a model
    that reads both reports of a pair. Of the options only `idf` and `rescale` are used.
    """
    used: dict[str, Any] = {}
    for record in records:
        for part in [term.metric for term in record.terms.values()] or [record]:
            if part.representation not in used:
                *_, encoded = _encoded(index, queries, part, options.settings)
                used[part.representation] = {} if encoded is None else encoded.settings
    return {record.name: _signature(record, index, used) for record in records}


def _scores(
    records: list[Metric], scorers: list[Callable[..., tuple[float, Any]]], candidate: Any, reference: Any
) -> list[_Pair]:
    """Return score and components of one pair under each metric of one representation, by the scorer of each."""
    scored: list[_Pair] = []
    for record, scorer in zip(records, scorers, strict=True):
        if record.kernel == "bertscore" and scored and scored[0] is not None:
            # Each of these metrics has precision, recall and F1 as components, so one call gives all three scores.
            components = scored[0][1]
            part = ("precision", "recall", "f1")[int(str(record.options["part"]))]
            scored.append((components[part], components))
        else:
            score, components = scorer(candidate, reference)
            if corpus_bleu.order_of(record.name):
                components = {**components, **corpus_bleu.counts_of(record.name, candidate, reference, components)}
            scored.append((score, components))
    return scored


def _compose(record: Metric, pairs: dict[str, list[_Pair]]) -> list[_Pair]:
    """Return score and terms of a composite for each pair, None where a term is None; `pairs` is by name of a term."""
    terms = record.terms
    scored: list[_Pair] = []
    for values in zip(*(pairs[part] for part in terms), strict=True):
        by_part = {part: pair[0] for part, pair in zip(terms, values, strict=True) if pair is not None}
        if len(by_part) < len(values):
            scored.append(None)
        else:
            scored.append((composite(by_part.values(), terms.values(), record.options["intercept"]), by_part))
    return scored


def _signature(record: Metric, index: Index, used: dict[str, Any]) -> dict[str, Any]:
    """Return the signature entry of a metric: what reproduces its scores, whatever the system.

    `used` has, by representation, what `_score_kind` returned, or the signature of a model that reads pairs.
    """
    content, settings = index.content["representations"], used.get(record.representation, {})
    made = {
        kind: {name: of_kind[name] for name in MADE if of_kind.get(name) is not None}
        for kind in record.representations
        for of_kind in [content.get(kind, settings)]
    }
    for kind in record.representations:
        settings = settings | used.get(kind, {})
    return {
        "options": record.recorded,
        "source": record.citation,
        "tool": record.tool,
        "direction": "higher" if record.higher_is_better else "lower",
        "representation": made,
        **{name: settings[name] for name in SETTINGS if name in settings},
        **counted_entry(record, settings.get("idf"), index.counted.fingerprint),
    }
