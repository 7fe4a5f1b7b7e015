"""Scores of given pairs of reports: queries with chosen corpus rows, or references with the predictions of a model.

A *source* is what a metric reads in addition to the text, such as a graph, an embedding or labels.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.arguments import check_left_out
from metric_oracle.corpora.joining import PLACE, check_joined
from metric_oracle.corpora.reports import ALL_SPLITS, Reports
from metric_oracle.corpora.tables import ids_hint, shown_names
from metric_oracle.errors import InputError, if_taken, option
from metric_oracle.files import package_version
from metric_oracle.findings import corpus_bleu
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.indexes.radgraph import FAMILIES, Graph
from metric_oracle.metrics import ATTACHED, METRICS, REPRESENTATIONS, Metric, get_metric, shown_in
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.checks import check_counted, check_queries, counted_entry, section_entry, with_frequencies
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_scorer
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.pair_models import PairModel, reads_pairs, score_pairs, with_pair_models
from metric_oracle.retrieval.search import digest
from metric_oracle.sources.inputs import Inputs, is_model, load_inputs
from metric_oracle.sources.token_states import Encoding

DEFAULT_METRICS = shown_in("score")
# Document of a blank report that has no entry in a source: no entities, so F1 is 0, as in F1RadGraph and Yu et al.
EMPTY = {"radgraph": Graph(*(frozenset() for _ in FAMILIES))}
# Entries of the manifest that describe how a representation was made, independent of the texts.
MADE = ("encoder", "schema", "storage", "baseline", "uncertain")
# Settings of a search that the signature of a metric records.
SETTINGS = ("idf", "rescaled", "truncated_queries", "prevalence")
# R2Gen's id of an IU X-ray study; the number is its uid in the Kaggle tables.
_IU_XRAY = re.compile(r"CXR(\d+)(?:_IM-.*)?")

_Pair = tuple[float, dict[str, float]] | None
_NO_MODELS: Mapping[str, PairModel] = MappingProxyType({})


def _ignore(*values: Any) -> None:
    """Do nothing; it stands for a missing function that gets notes."""


def score_rows(
    index: Index,
    queries: Inputs,
    rows: Sequence[int] | np.ndarray,
    metrics: Sequence[str] | None = None,
    *,
    system: str,
    options: SearchOptions = DEFAULTS,
    text: bool = False,
    progress: Progress | None = None,
    pair_models: Mapping[str, PairModel] = _NO_MODELS,
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
    index: Index, queries: Inputs, metrics: Sequence[str] | None, pair_models: Mapping[str, PairModel]
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


def places_of(inputs: Inputs, kind: str) -> np.ndarray | None:
    """Return the place of each report's entry in the source that a representation reads: int64[N], -1 without an entry.

    It is 0 for every report if the representation `kind` reads only texts. Return None if the reports lack the source.
    """
    if not REPRESENTATIONS[kind].is_attached:
        return np.zeros(len(inputs.ids), np.int64)
    return inputs.attached[kind].of_row if kind in inputs.attached else None


def _score_kind(
    index: Index,
    queries: Inputs,
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
    empty = EMPTY.get(kind)
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
    index: Index, queries: Inputs, record: Metric, settings: Mapping[str, Any]
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
    index: Index, queries: Inputs, records: Sequence[Metric], options: SearchOptions = DEFAULTS
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


# References and predictions


def score(
    references: Reports,
    predictions: Reports,
    metrics: Sequence[str] | None = None,
    *,
    system: str,
    inner: bool = False,
    files: Mapping[str, Any] | None = None,
    predicted_files: Mapping[str, Any] | None = None,
    prepared: tuple[Inputs | None, Inputs | None] = (None, None),
    models: Mapping[str, Any] | None = None,
    encoding: Encoding | None = None,
    options: SearchOptions = DEFAULTS,
    text: bool = False,
    progress: Progress | None = None,
    pair_models: Mapping[str, PairModel] = _NO_MODELS,
    counted: Index | None = None,
) -> Scores:
    """Score a model's predictions against the reports, joined on ids; empty predictions are scored too.

    The scores are in the order of the references. With `inner` only the ids that both have are scored; otherwise an id
    that only one has is an error. The entry ``left_out`` of the signature has the number of reports left out, by
    reason.

    `files` and `predicted_files` are the sources of each side, keyed by the names of their arguments; a model among
    `files` (a RadGraph archive, chexbert.pth) is run on both. `prepared` has the reports as they are stored in prepared
    folders, see `indexes.prepared`, None for a side from a file. `models` are other keyword arguments of
    `sources.inputs.load_inputs`, such as `uncertain`. Token weights of idf "tests" come from the references, those of
    "corpus", and other document frequencies, from `counted`. The rest is as in `score_rows`.
    """
    own, predicted, models = dict(files or {}), dict(predicted_files or {}), dict(models or {})
    tell = models.get("tell", _ignore)
    held = tuple(set() if side is None else set(side.attached) for side in prepared)
    _check_files(metrics, own, predicted, held, models.get("uncertain"), encoding)
    names = None if metrics is None else [get_metric(name, for_scores=True).name for name in metrics]
    records = [METRICS[name] for name in names or ()]
    check_counted(counted, records, options.idf)
    pair_models = with_pair_models(records, pair_models)
    asked, answered, left_out = join_ids(references, predictions, inner, tell)
    order = sorted(answered)  # so that sources in the order of the predictions still fit
    queries, corpus = load_sides(
        references,
        predictions,
        own,
        predicted,
        prepared=prepared,
        places=(asked, order),
        models=models,
        encoding=encoding,
    )
    row_of = {prediction: row for row, prediction in enumerate(order)}
    rows = np.array([row_of[i] for i in answered], np.int64)
    usual = [name for name in DEFAULT_METRICS if all(map(corpus.has, METRICS[name].representations))]
    built = [name for name in (usual if names is None else names) if METRICS[name].is_searched]
    index = MemoryIndex(corpus, built, progress=silent if progress is None else progress)
    scores = score_rows(
        with_frequencies(index, counted, records, options.idf),
        queries,
        rows,
        names,
        system=system,
        options=options,
        text=text,
        progress=progress,
        pair_models=pair_models,
    )
    n_cut = max(record.get("truncated_queries", 0) for record in scores.signature["metrics"].values())
    if n_cut:
        tell(f"cut off at the encoder's longest input: {n_cut:,} references")
    noted = scores.signature.get("noted", {}).values()
    n_cut = max((described.get("truncated_pairs", 0) for described in noted), default=0)
    if n_cut:
        tell(f"cut off at the longest input of a model that reads both reports: {n_cut:,} pairs")
    return replace(scores, signature={**scores.signature, "left_out": left_out})


def load_sides(
    references: Reports,
    predictions: Reports,
    files: dict[str, Any],
    predicted_files: dict[str, Any],
    *,
    prepared: tuple[Inputs | None, Inputs | None],
    places: tuple[Sequence[int], Sequence[int]],
    models: Mapping[str, Any],
    encoding: Encoding | None,
) -> tuple[Inputs, Inputs]:
    """Return the chosen references and predictions as Inputs with their sources; `score` describes the arguments.

    `places` are the positions of the chosen reports in `references` and in `predictions`.
    """
    sides = [
        ([reports.ids[i] for i in positions], [reports.texts[i] for i in positions])
        for reports, positions in zip((references, predictions), places, strict=True)
    ]
    load: Callable[..., Inputs] = partial(load_inputs, **models)
    shared = {name: files[name] for name in _models(files) if name not in predicted_files}
    predicted = {name: value for name, value in files.items() if name not in shared}
    shared = {name: model for name, model in shared.items() if not all(p and name in p.attached for p in prepared)}
    both = load(*(first + second for first, second in zip(*sides, strict=True)), **shared).completed()
    n = len(sides[0][0])
    loaded_sides: list[Inputs] = []
    for side, given, stored, chosen in zip(sides, (predicted, predicted_files), prepared, places, strict=True):
        loaded = load(*side, encoding=encoding, **given).completed()
        from_models = both.take(np.arange(n) if not loaded_sides else np.arange(n, len(both.ids))).attached
        kept = {} if stored is None else stored.take(np.array(chosen, np.int64)).attached
        loaded_sides.append(replace(loaded, attached={**from_models, **kept, **loaded.attached}))
    # One section for both: `score` has compared them.
    section = references.known_section if references.section else predictions.known_section
    return replace(loaded_sides[0], section=section), loaded_sides[1]


def _models(files: Mapping[str, Any]) -> list[str]:
    """Return the names of those `files` that are a model to run, not a file of finished values."""
    return [name for name, value in files.items() if is_model(name, value)]


def _check_files(
    metrics: Sequence[str] | None,
    files: dict[str, Any],
    predicted_files: dict[str, Any],
    prepared_kinds: tuple[set[str], ...],
    uncertain: str | None,
    encoding: Encoding | None,
) -> None:
    """Raise InputError unless references and predictions have the sources of the metrics, None for the default ones.

    `prepared_kinds` are the representations that each side has from a prepared folder. A source must be given for both
    sides, whatever the metrics. With `uncertain` a CheXbert model gives labels too; `encoding` gives token states.
    """
    models = _models(files)
    given = {kind for kind, record in REPRESENTATIONS.items() if record.is_of_texts}
    # Token states of the references are made with the encoder of the predictions'.
    is_encoded = encoding is not None
    given |= {kind for kind, r in REPRESENTATIONS.items() if r.is_encoded and (is_encoded or kind in prepared_kinds[1])}
    for source in ATTACHED:
        kind, name = source.name, source.arguments[0]
        of_chexbert = kind == "labels" and uncertain is not None and "chexbert" in models
        both = name in models or (of_chexbert and name not in files and name not in predicted_files)
        sides = [
            name in given_files or kind in kinds or both
            for given_files, kinds in zip((files, predicted_files), prepared_kinds, strict=True)
        ]
        if any(sides) and not all(sides) and (name in files or name in predicted_files):
            lacking = "references" if sides[1] else "predictions"
            raise InputError(
                source.plural, "must be given for both sides", f"none for the {lacking}", f"Add {source.both_sides}."
            )
        given |= {kind} if all(sides) else set()
    for typed in metrics or ():
        record = get_metric(typed, for_scores=True)
        for kind in record.representations:
            needs = REPRESENTATIONS[kind].source
            if needs is not None and kind not in given and record.is_searched:
                raise InputError(
                    f"{needs.plural} of both sides",
                    f"must be given for metric {record.name!r}",
                    "none",
                    f"Add {needs.both_sides}.",
                )


def join_ids(
    references: Reports, predictions: Reports, inner: bool, tell: Callable[[str], None]
) -> tuple[list[int], list[int], dict[str, int]]:
    """Join references and predictions on ids.

    Return the positions of the references and of the predictions of each pair, in the order of the references, and the
    numbers of reports left out, by reason. Raise InputError if less than half of the shorter side is in both, if texts
    that are joined by their place differ in number, or, unless `inner` is true, if a report is left out for another
    reason than a missing or empty reference. `tell` gets notes.
    """
    check_joined(references.ids_from, predictions.ids_from, tell)
    if references.ids_from == predictions.ids_from == PLACE:
        lengths = [reports.counts.get("rows", len(reports.ids)) for reports in (references, predictions)]
        if lengths[0] != lengths[1]:
            raise InputError(
                "texts without ids",
                "must be as many on both sides",
                f"{lengths[0]} references and {lengths[1]} predictions",
                "They belong together by their place: complete the shorter list, or pass ids.",
            )
    usable = set(references.ids)
    unusable = {study: state for state, studies in references.states.items() for study in studies}
    unusable = {study: state for study, state in unusable.items() if study not in usable}
    missing = set(predictions.states.get("missing", ()))
    keys = list(references.ids), list(predictions.ids)
    if not set(keys[0]) & set(keys[1]):
        plain = [[_IU_XRAY.sub(r"\1", key) for key in side] for side in keys]
        if set(plain[0]) & set(plain[1]) and all(len(set(side)) == len(side) for side in plain):
            tell("ids such as CXR1_IM-0001 are read as 1")
            keys = plain[0], plain[1]
            unusable, missing = (
                {_IU_XRAY.sub(r"\1", key): state for key, state in unusable.items()},
                {_IU_XRAY.sub(r"\1", key) for key in missing},
            )
    prediction_of = {key: i for i, key in enumerate(keys[1])}
    answered = [i for i, key in enumerate(keys[0]) if key in prediction_of]
    reference_ids = set(keys[0])
    apart = {
        "without a prediction": [key for key in keys[0] if key not in prediction_of and key not in missing],
        "with a missing prediction": [key for key in keys[0] if key in missing],
        "without a reference": [key for key in keys[1] if key not in reference_ids and key not in unusable],
        "with a missing or empty reference": [key for key in keys[1] if key in unusable],
    }
    left_out = {what: len(ids) for what, ids in apart.items() if ids}
    n_shared = len((reference_ids | unusable.keys()) & (prediction_of.keys() | missing))
    n_fewer = min(len(reference_ids | unusable.keys()), len(prediction_of.keys() | missing))
    if not answered or 2 * n_shared < n_fewer:
        shown = " and ".join(
            f"{shown_names(ids[:3])}{f' (column {source.name})' if source.by in ('name', 'caller') else ''}"
            for ids, source in zip(keys, (references.ids_from, predictions.ids_from), strict=True)
        )
        columns = f"{option('id_column', 'NAME')} and {option('predicted_id_column', 'NAME')}"
        of_images = f", or {option('metadata')} where the predictions are of images"
        raise InputError(
            "references and predictions",
            "must share ids",
            f"{f'{n_shared} of {n_fewer}' if n_shared else 'none'} in common, such as {shown}",
            f"Pass {columns}{if_taken('metadata', of_images)}.{ids_hint(*keys)}",
        )
    unscorable = "with a missing or empty reference"
    if left_out.keys() - {unscorable} and not inner:
        listed = " and ".join(f"{len(ids)} {what} ({shown_names(ids[:3])})" for what, ids in apart.items() if ids)
        of_split = f" The references are of all splits: {option('split', 'test')} takes those of the tests."
        hint = (
            of_split if f", {ALL_SPLITS}, " in references.source and apart["without a prediction"] else ids_hint(*keys)
        )
        raise InputError(
            f"{len(keys[0])} references and {len(keys[1])} predictions",
            "must have the same ids",
            listed,
            f"Complete them, or pass {option('inner', True)} to score the ids that have both.{hint}",
        )
    if left_out:
        tell("left out: " + ", ".join(f"{count:,} {what}" for what, count in left_out.items()))
    return answered, [prediction_of[keys[0][i]] for i in answered], left_out
