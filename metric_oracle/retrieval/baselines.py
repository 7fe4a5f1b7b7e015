"""Baselines beside the oracle: random retrieval, the most frequent report, the test report itself, nearest neighbours.

Their results have the columns of an oracle's, and their scores are the reference's to the last bit. What differs:

rank
    The number of the draw for "random", 1 for the others.
n_ties
    Corpus rows that the metric cannot tell from the chosen one: those of its unit.
row, candidate_id
    -1 and the query's own id for "identity", whose candidate is no row of the corpus; its n_ties are 0.
exact
    True: nothing is searched for under the metric, and each row was scored as a pair. Which rows the nearest vectors
    are is proven by the bound of the cosines' screen, which is compared with them.
signature
    ``baseline`` names the kind.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.corpora.reports import check_left_out
from metric_oracle.corpora.tables import canonical_ids, shown_names, zeros_hint
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.errors import InputError
from metric_oracle.indexes.contract import Representation
from metric_oracle.indexes.embeddings import EmbeddingIndex
from metric_oracle.indexes.index import Index
from metric_oracle.kernels._errors import check_bounds
from metric_oracle.kernels.cosine import cpu as cosines
from metric_oracle.metrics import METRICS, Metric
from metric_oracle.retrieval.answers import most_frequent_row
from metric_oracle.retrieval.kernels import load_reference
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.plan import SearchPlan, plan_scores
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import BLOCK, check_pairs, digest, signature
from metric_oracle.retrieval.sharded import rows_like, score_pairs
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.embeddings import as_vectors
from metric_oracle.sources.inputs import Inputs

MOST_DRAWS = 10_000
DRAWS, SEED = 10, 0


def random(plan: SearchPlan, queries: Inputs, *, seed: int = SEED, draws: int = DRAWS) -> Results:
    """Score random reports of the corpus against each query.

    Parameters
    ----------
    plan : SearchPlan
    queries : Inputs
    seed : int
        Draw d of a seed is the same whatever the number of draws, and the same for all metrics that can score the same
        rows, so that metrics are compared on the same reports.
    draws : int
        Reports drawn for each query, with replacement; each row that the metric can score is as likely as any other, so
        a text is drawn as often as it occurs.

    Returns
    -------
    Results
        `draws` lines a query, `rank` the number of the draw.
    """
    encoded = plan.encode(queries)
    rows = drawn_rows(plan.representation, len(queries.ids), seed, draws)
    more = {"baseline": "random", "seed": int(seed), "draws": int(draws)}
    return _results(plan, queries, encoded, rows, more)


def drawn_rows(representation: Representation, n: int, seed: int, draws: int) -> np.ndarray:
    """Return the rows that are drawn for n queries: int64[n, draws]."""
    scorable = np.sort(representation.row_id)
    return scorable[np.random.default_rng(seed).integers(len(scorable), size=(draws, n)).T]


def most_frequent(plan: SearchPlan, queries: Inputs) -> Results:
    """Score one report against every query: the most frequent text of which the metric can score a row, lowest row.

    It is the report that RadGraph falls back to where nothing matches.
    """
    encoded = plan.encode(queries)
    row = most_frequent_row(plan.index, plan.representation.row_id)
    rows = np.full((len(queries.ids), 1), row)
    return _results(plan, queries, encoded, rows, {"baseline": "most-frequent"})


def identity(plan: SearchPlan, queries: Inputs) -> Results:
    """Score every query as a candidate for itself: what a perfect prediction gets.

    That is not always the best value of the metric: a report of one word has a BLEU-2 of 0.32 with itself, one without
    RadGraph entities a RadGraph F1 of 0.
    """
    encoded = plan.encode(queries)
    score = load_reference(plan.metric)
    found = [score(encoded.own(q), encoded.item(q)) for q in range(int(encoded.which.max()) + 1)]
    scores = np.array([value for value, _ in found])[encoded.which]
    components = {name: np.array([parts[name] for _, parts in found])[encoded.which] for name in found[0][1]}
    chosen = {
        "row": np.full(len(scores), -1),
        "candidate_id": pa.array(queries.ids, pa.large_string()),
        "n_ties": np.zeros(len(scores), np.int64),
        "text": pa.array(queries.texts, pa.large_string()),
    }
    table = _table(queries, 1, chosen, scores, components, plan.options.text)
    more = {"baseline": "identity", "references": digest(queries)}
    return Results(table, _signature(plan, queries, encoded, 1, more))


def nearest(plan: SearchPlan, queries: Inputs, *, corpus_vectors: Vectors, query_vectors: Vectors) -> Results:
    """Score the report of the nearest neighbour of each query in a space of image embeddings, as CXR-RePaiR retrieves.

    Parameters
    ----------
    plan, queries
        As for `random`.
    corpus_vectors, query_vectors : Vectors
        Embeddings with the ids of the studies, see `corpora.vectors.read_embeddings`. Corpus rows
        without one cannot be chosen; the signature says how many can.

    Returns
    -------
    Results
        The row with the greatest cosine (float64, of the directions in float32), the lowest one of equals.

    Notes
    -----
    Endo et al., ML4H 2021: retrieval by the inner product of unit vectors.
    """
    encoded = plan.encode(queries)
    rows, chosen_by = nearest_rows(plan.index, queries, plan.representation, corpus_vectors, query_vectors)
    return _results(plan, queries, encoded, rows[:, None], {"baseline": "nearest", **chosen_by})


def nearest_rows(
    index: Index, queries: Inputs, representation: Representation, corpus_vectors: Vectors, query_vectors: Vectors
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the row of each query, int64[Q], and what it was chosen by, as the signature has it.

    That is the number of rows with a vector, and the SHA-256 of each side's vectors in the order of its reports,
    whatever file they came in.
    """
    corpus_ids = index.take("study_id", np.arange(index.n_reports)).to_pylist()
    of_row = _places(corpus_ids, corpus_vectors, "corpus_vectors")
    is_scorable = np.zeros(len(of_row), bool)
    is_scorable[representation.row_id] = True
    of_row[~is_scorable] = -1
    of_query = _places(queries.ids, query_vectors, "query_vectors")
    lacking = [queries.ids[i] for i in np.flatnonzero(of_query < 0).tolist()]
    if lacking:
        msg = (
            f"baseline: query_vectors must have a vector of each query; got {len(lacking)} of {len(queries.ids)} "
            f"without ({shown_names(lacking[:3])}). Add them to the file or leave these queries out."
        )
        raise InputError(msg)
    if not (of_row >= 0).any():
        msg = (
            "baseline: corpus_vectors must have a vector of a row that the metric can score; got none. "
            "Pass the file that belongs to the index."
        )
        raise InputError(msg)
    widths = corpus_vectors.values.shape[1], query_vectors.values.shape[1]
    if widths[0] != widths[1]:
        msg = (
            f"baseline: query_vectors must have the width of the corpus's, {widths[0]}; got {widths[1]}. "
            "Encode both with one model."
        )
        raise InputError(msg)
    space = EmbeddingIndex.build("chexbert", _of_vectors(corpus_vectors, of_row), (), of_row)
    asked = space.encode(_of_vectors(query_vectors, of_query))
    rows = _nearest_rows(space, asked)[asked.which]
    chosen_by = {"corpus": _digest(corpus_vectors, of_row), "query": _digest(query_vectors, of_query)}
    return rows, {"rows_with_vectors": len(space.row_id), "vectors": chosen_by}


KINDS: dict[str, Callable[..., Results]] = {
    "random": random,
    "most-frequent": most_frequent,
    "identity": identity,
    "nearest": nearest,
}
# Options of one kind each; all others must be left out.
OPTIONS = {"random": ("draws", "seed"), "nearest": ("corpus_vectors", "query_vectors")}


@dataclass(frozen=True)
class BaselinePlan:
    """A baseline that was checked; only the queries are missing. Made by `plan_baseline`.

    Attributes
    ----------
    kind : str
    scores : SearchPlan
        Index, metric and options.
    own : dict
        Options of this kind.
    """

    kind: str
    scores: SearchPlan
    own: Mapping[str, Any]

    def run(self, queries: Inputs) -> Results:
        """Score the baseline's reports against loaded test reports, see the functions above."""
        return KINDS[self.kind](self.scores, queries, **self.own)


def plan_baseline(
    index: str | Path | Index, kind: str, metric: str | Metric, options: SearchOptions = DEFAULTS, **own: Any
) -> BaselinePlan:
    """Check everything about a baseline that does not depend on the queries, and open the index.

    Parameters
    ----------
    index : path or Index
    kind : {"random", "most-frequent", "identity", "nearest"}
    metric : str or Metric
    options : SearchOptions
        See `retrieval.plan.plan_scores`.
    **own
        `draws` and `seed` of "random"; `corpus_vectors` and `query_vectors` of "nearest", see `image_vectors`.
        None is the default.

    Raises
    ------
    InputError
        If an argument is wrong, or the index does not hold what the metric reads.
    """
    if kind not in KINDS:
        msg = f"baseline: kind must be one of {', '.join(KINDS)}; got {kind!r}. Choose one."
        raise InputError(msg)
    own = {name: value for name, value in own.items() if value is not None}
    check_left_out(own, OPTIONS.get(kind, ()), "baseline", f"kind {kind!r}")
    for name, least, most in (("seed", 0, None), ("draws", 1, MOST_DRAWS)):
        value = own.get(name, least)
        is_int = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_int or value < least or (most is not None and value > most):
            rule = f"of at least {least}" if most is None else f"from {least} to {most}"
            msg = f"baseline: {name} must be an int {rule}; got {value!r}. Choose one."
            raise InputError(msg)
    lacking = [name for name in OPTIONS["nearest"] if kind == "nearest" and name not in own]
    if lacking:
        msg = f"baseline: {lacking[0]} must be given for kind 'nearest'; got None. Pass a file of embeddings."
        raise InputError(msg)
    scores = plan_scores(index, metric, options)
    return BaselinePlan(kind, scores, own | image_vectors(own, "baseline"))


def image_vectors(given: Mapping[str, Any], function: str) -> dict[str, Vectors]:
    """Read the image embeddings of both sides where they are given.

    Parameters
    ----------
    given : mapping
        `corpus_vectors` and `query_vectors`: a file, a dict id -> vector, Vectors; or a pair of vectors and their ids,
        each a file or in memory.
    function : str
        Name for error messages.
    """
    found = {}
    for name in OPTIONS["nearest"]:
        if given.get(name) is not None:
            is_pair = isinstance(given[name], tuple) and len(given[name]) == 2
            vectors, ids = given[name] if is_pair else (given[name], None)
            found[name] = as_vectors(vectors, ids, function)
    return found


def _places(ids: Sequence[str], vectors: Vectors, name: str) -> np.ndarray:
    """Return the place of each report's vector, -1 for none: int64[n]."""
    place = {key: i for i, key in enumerate(vectors.ids)}
    places = np.array([place.get(i, -1) for i in canonical_ids(ids, "baseline", "ids")], np.int64)
    if places.max() < 0:
        msg = (
            f"baseline: {name} must share ids with the reports; got none of {len(ids)} report ids among "
            f"{len(vectors.ids)}. Pass the file that belongs to these reports.{zeros_hint(ids, vectors.ids)}"
        )
        raise InputError(msg)
    return places


def _digest(vectors: Vectors, places: np.ndarray) -> str:
    """Return the SHA-256 of the vectors at some places, -1 for none, and of which are none."""
    hasher = hashlib.sha256(np.packbits(places >= 0).tobytes())
    hasher.update(np.ascontiguousarray(vectors.values[places[places >= 0]], "<f4").tobytes())
    return hasher.hexdigest()


def _of_vectors(vectors: Vectors, places: np.ndarray) -> Inputs:
    return Inputs([], [], {"chexbert": Attachment(vectors.values, places)})


def _nearest_rows(space: EmbeddingIndex, asked: Any) -> np.ndarray:
    """Return the lowest row with the greatest cosine for each distinct query, int64[n].

    A matrix product finds whatever may have it; their cosines are summed in index order, so that equal vectors tie.
    """
    lowest = space.row_id[space.row_ptr[:-1]]  # rows ascend within a unit
    kernel, record = cosines.Backend(), METRICS["chexbert"]
    corpus = space.corpus(record, asked)
    error = kernel.score_error(corpus, asked.batch)
    rows = np.empty(len(asked.vectors), np.int64)
    for first in range(0, len(rows), BLOCK):
        some = range(first, min(first + BLOCK, len(rows)))
        for q, screened in zip(some, kernel.score_all(corpus, asked.batch, some), strict=True):
            finalists = np.flatnonzero(screened >= screened.max() - 4 * error)
            exact = np.empty(len(finalists))
            cosines.score_documents(finalists, asked.vectors[q], space.vectors, exact)
            check_bounds({"float32": error - np.abs(screened[finalists] - exact).max()})
            rows[q] = lowest[finalists[exact == exact.max()]].min()
    return rows


def _results(plan: SearchPlan, queries: Inputs, encoded: Any, rows: np.ndarray, more: dict[str, Any]) -> Results:
    """Score the chosen rows, int64[Q, k], each distinct pair once, and lay them out."""
    index, record, representation = plan.index, plan.metric, plan.representation
    k = rows.shape[1]
    flat = rows.ravel()
    n_units = len(representation.row_ptr) - 1
    pair = np.repeat(encoded.which, k) * n_units + representation.unit_of_row[flat]
    distinct, place = np.unique(pair, return_inverse=True)
    query, unit = np.divmod(distinct, n_units)
    scores, components = score_pairs(record, representation, encoded, query, unit)
    check_pairs(record, representation, encoded, queries.ids, query, unit, scores, components)
    chosen = {
        "row": flat,
        "candidate_id": index.take("study_id", flat),
        "n_ties": rows_like(representation, unit)[place],
    }
    if plan.options.text:
        chosen["text"] = index.take("text", flat)
    components = {name: values[place] for name, values in components.items()}
    table = _table(queries, k, chosen, scores[place], components, plan.options.text)
    return Results(table, _signature(plan, queries, encoded, k, {**more, "references": digest(queries)}))


def _table(
    queries: Inputs, k: int, chosen: dict[str, Any], scores: np.ndarray, components: dict[str, np.ndarray], text: bool
) -> pa.Table:
    n = len(queries.ids)
    columns = {
        "query_id": pa.array(queries.ids, pa.large_string()).take(pa.array(np.repeat(np.arange(n), k))),
        "rank": np.tile(np.arange(1, k + 1), n),
        "row": chosen["row"],
        "candidate_id": chosen["candidate_id"],
        "score": scores,
        **components,
        "n_ties": chosen["n_ties"],
        "fallback": np.zeros(n * k, bool),
        "exact": np.ones(n * k, bool),
    }
    if text:
        columns["text"] = chosen["text"]
    return pa.table(columns)


def _signature(plan: SearchPlan, queries: Inputs, encoded: Any, k: int, more: dict[str, Any]) -> dict[str, Any]:
    """Return what reproduces the result; an oracle's entries that say nothing here are left out."""
    entries = signature(plan.index, queries, plan.metric, "cpu", k)
    del entries["ties"]
    return {**entries, **encoded.settings, **more}
