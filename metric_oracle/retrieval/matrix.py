"""Scores of all candidates with all references, in memory."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.indexes.build import build_index
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import REPRESENTATIONS, Metric, check_searched
from metric_oracle.retrieval.checks import check_counted, check_queries, with_frequencies
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.pairs import EMPTY, places_of
from metric_oracle.sources.inputs import Inputs


def score_matrix(
    queries: Inputs, corpus: Inputs, metric: Metric, options: SearchOptions, counted: Index | None = None
) -> np.ndarray:
    """Return the exact scores of all candidates with all references: float64[candidates, references].

    Parameters
    ----------
    queries, corpus : Inputs
        References and candidates.
    metric : Metric
    options : SearchOptions
        Of them `idf` and `rescale` are used.
    counted : Index
        Corpus whose document frequencies count, see `retrieval.pairs.score`.
    """
    check_searched(metric, "pairwise")
    check_counted(counted, [metric], options.idf, "pairwise")
    with tempfile.TemporaryDirectory() as folder:
        index = build_index(corpus, Path(folder) / "candidates", metrics=[metric.name])
        index = with_frequencies(index, counted, [metric], options.idf, "pairwise")
        return _matrix(index, queries, metric, options.settings)


def _matrix(index: Index, queries: Inputs, record: Metric, settings: Mapping[str, Any]) -> np.ndarray:
    if record.terms:
        parts = [_matrix(index, queries, term.metric, settings) for term in record.terms.values()]
        return np.asarray(composite(parts, record.terms.values(), record.options["intercept"]))
    kind = record.representations[0]
    representation = representation_of(index, record)
    places, texts = places_of(queries, kind), index.strings("text").to_pylist()
    unit_of_row = np.full(index.n_reports, -1, np.int64)
    unit_of_row[: len(representation.unit_of_row)] = representation.unit_of_row
    rows = np.flatnonzero(unit_of_row >= 0)
    complete = np.flatnonzero(places >= 0) if places is not None else np.arange(0)
    empty = EMPTY.get(kind)
    lacking = [(queries.texts[q], queries.ids[q]) for q in np.setdiff1d(np.arange(len(queries.ids)), complete)]
    without = np.flatnonzero(unit_of_row < 0)
    ids = index.take("study_id", without).to_pylist()
    lacking += [(texts[row], study) for row, study in zip(without, ids, strict=True)]
    unusable = [study for text, study in lacking if empty is None or text.strip()]
    if unusable:
        source = REPRESENTATIONS[kind].source
        noun = "words" if source is None else source.noun
        msg = (
            f"pairwise: every report must have {noun} for metric {record.name!r}; got "
            f"{len(unusable)} without ({shown_names(unusable[:3])}). Give them, or leave these reports out."
        )
        raise InputError(msg)
    # A blank report without a graph has no entity, and shares none.
    matrix = np.zeros((index.n_reports, len(queries.ids)))
    if not len(rows) or not len(complete):
        return matrix
    some = queries.take(complete)
    check_queries(some, record, index)
    given = {name: value for name, value in settings.items() if name in record.settings}
    if REPRESENTATIONS[kind].is_encoded:
        given["wordless"] = True
    encoded = representation.encode(some, **given)
    n_units, n_queries = len(representation.row_ptr) - 1, int(encoded.which.max()) + 1
    query, unit = np.repeat(np.arange(n_queries), n_units), np.tile(np.arange(n_units), n_queries)
    kernel = load_kernel(record, "cpu")
    scores, _ = kernel.score_pairs(representation.corpus(record, encoded), encoded.batch, query, unit)
    found = np.asarray(scores).reshape(n_queries, n_units)[np.ix_(encoded.which, unit_of_row[rows])]
    matrix[np.ix_(rows, complete)] = found.T
    return matrix
