"""Baselines of the oracle: random retrieval, the most frequent report, the test report itself, nearest neighbours.

Their results have the columns of a search, and their scores equal those of the plain scorer. Columns with another
meaning:

rank
    The number of the draw for "random", 1 for the others.
n_ties
    Number of corpus rows with the same document as the chosen row, which the metric cannot distinguish.
row, candidate_id
    -1 and the query's own id for "identity", whose candidate is not a row of the corpus; n_ties is 0.
exact
    Always true: each chosen row was scored exactly. The nearest vectors are found with a proven bound of the cosines,
    which is compared with the exact ones.
signature
    ``baseline`` names the kind.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given, check_left_out
from metric_oracle.base.declarations import Uses
from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.progress import Progress
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import canonical_ids, ids_hint
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.findings.results import Results
from metric_oracle.indexes.contract import Corpus
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.metrics import METRICS, REPRESENTATIONS
from metric_oracle.reading import Queries, loaded
from metric_oracle.retrieval.blocks import BLOCK
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.fall_back import most_frequent_row
from metric_oracle.retrieval.kernels import arrays_of, load_scorer
from metric_oracle.retrieval.options import DEFAULTS, SETTINGS, SearchOptions
from metric_oracle.retrieval.plan import Plan, plan_scores
from metric_oracle.retrieval.search_signature import digest, signature
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.embeddings import as_vectors

DRAWS, SEED = 10, 0


def random(plan: Plan, queries: Reports, *, seed: int = SEED, draws: int = DRAWS) -> Results:
    """Score `draws` random reports of the corpus against each query; `rank` is the number of the draw.

    A draw does not depend on the number of draws, and is the same for all metrics that can score the same rows, so that
    metrics are compared on the same reports.
    """
    pairs = plan.pairs(queries)
    rows = drawn_rows(pairs.row_id, len(queries.ids), seed, draws)
    more = {"baseline": "random", "seed": int(seed), "draws": int(draws)}
    return _results(plan, queries, pairs, rows, more)


def drawn_rows(row_id: np.ndarray, n: int, seed: int, draws: int) -> np.ndarray:
    """Return corpus rows drawn at random for n queries from those that a metric can score: int64[n, draws].

    Draws are with replacement; all rows are equally likely, so that frequent texts are drawn often.
    """
    scorable = np.sort(row_id)
    return scorable[np.random.default_rng(seed).integers(len(scorable), size=(draws, n)).T]


def most_frequent(plan: Plan, queries: Reports) -> Results:
    """Score the most frequent report of the corpus as the candidate of every query.

    It is the lowest row of the most frequent text, among the rows that the metric can score. RadGraph F1 falls back to
    the same report for queries that no report matches.
    """
    pairs = plan.pairs(queries)
    rows = np.full((len(queries.ids), 1), most_frequent_row(plan.index, pairs.row_id))
    return _results(plan, queries, pairs, rows, {"baseline": "most-frequent"})


def identity(plan: Plan, queries: Reports) -> Results:
    """Score every query as a candidate for itself, which is the score of a perfect prediction.

    That is not always the best value of the metric: a report of one word has a BLEU-2 of 0.32 with itself, one without
    RadGraph entities a RadGraph F1 of 0.
    """
    pairs = plan.pairs(queries)
    items = [pairs.encoded.item(q) for q in range(len(pairs.encoded.row_ptr) - 1)]
    score = load_scorer(plan.metric, items)
    scored = [score(item, item) for item in items]
    scores = np.array([value for value, _ in scored])[pairs.which]
    components = {name: np.array([parts[name] for _, parts in scored])[pairs.which] for name in scored[0][1]}
    columns = {
        "row": np.full(len(scores), -1),
        "candidate_id": pa.array(queries.ids, pa.large_string()),
        "n_ties": np.zeros(len(scores), np.int64),
        "text": pa.array(queries.texts, pa.large_string()),
    }
    table = _table(queries, 1, columns, scores, components, plan.options.text)
    more = {"baseline": "identity", "references": digest(queries)}
    return Results(table, _signature(plan, queries, pairs, 1, more))


def nearest(plan: Plan, queries: Reports, *, corpus_vectors: Vectors, query_vectors: Vectors) -> Results:
    """Score the report of the nearest neighbour of each query in a space of image embeddings.

    As in CXR-RePaiR (Endo et al., ML4H 2021), that is the row with the greatest cosine, the lowest if several are
    equal. Corpus rows without an embedding cannot be chosen. Raise InputError if a query has none, see `nearest_rows`.
    """
    pairs = plan.pairs(queries)
    rows, chosen_by = nearest_rows(plan.index, queries, pairs.row_id, corpus_vectors, query_vectors)
    return _results(plan, queries, pairs, rows[:, None], {"baseline": "nearest", **chosen_by})


def nearest_rows(
    index: Index, queries: Reports, row_id: np.ndarray, corpus_vectors: Vectors, query_vectors: Vectors
) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the row, of those in `row_id`, that is nearest to each query, int64[Q], and entries of the signature.

    The entries are ``rows_with_vectors``, the number of rows that could be chosen, and ``vectors``, the SHA-256 of the
    vectors of ``corpus`` and ``query``, each in the order of its reports. Raise InputError if a query or all these rows
    have no vector, or the vectors of both sides have different widths.
    """
    corpus_ids = index.take("study_id", np.arange(index.n_reports)).to_pylist()
    of_row = _places(corpus_ids, corpus_vectors, "corpus_vectors")
    is_scorable = np.zeros(len(of_row), bool)
    is_scorable[row_id] = True
    of_row[~is_scorable] = -1
    of_query = _places(queries.ids, query_vectors, "query_vectors")
    lacking = [queries.ids[i] for i in np.flatnonzero(of_query < 0).tolist()]
    if lacking:
        raise InputError(
            "query_vectors",
            "must have a vector for each query",
            f"{len(lacking)} of {len(queries.ids)} without ({shown(*lacking[:3])})",
            "Add them to the file or leave these queries out.",
        )
    if not (of_row >= 0).any():
        raise InputError(
            "corpus_vectors",
            "must have a vector for at least one report that the metric can score",
            "none",
            "Pass the file that belongs to the index.",
        )
    widths = corpus_vectors.values.shape[1], query_vectors.values.shape[1]
    if widths[0] != widths[1]:
        raise InputError(
            "query_vectors",
            f"must have the width of the corpus's, {widths[0]}",
            widths[1],
            "Encode both with one model.",
        )
    space = (
        REPRESENTATIONS["chexbert"]
        .load_class()
        .build("chexbert", Corpus(_of_vectors(corpus_vectors, of_row), (), of_row))
    )
    encoded = space.encode(_of_vectors(query_vectors, of_query))
    rows = _nearest_rows(space, encoded)[encoded.document_of_row]
    chosen_by = {"corpus": _digest(corpus_vectors, of_row), "query": _digest(query_vectors, of_query)}
    return rows, {"rows_with_vectors": len(space.row_id), "vectors": chosen_by}


KINDS: dict[str, Callable[..., Results]] = {
    "random": random,
    "most-frequent": most_frequent,
    "identity": identity,
    "nearest": nearest,
}


def check_image_vectors(arguments: Mapping[str, Any]) -> None:
    """Raise InputError unless `arguments` has both `corpus_vectors` and `query_vectors`, and neither is None."""
    for name in option_types.OF_BASELINES["nearest"]:
        check_given(name, arguments.get(name), "for kind 'nearest'", "Pass a file of embeddings.")


def image_vectors(arguments: Mapping[str, Any]) -> dict[str, Vectors]:
    """Read those of `corpus_vectors` and `query_vectors` that are in `arguments` and not None; return them by name.

    Each is a file, a dict id -> vector or Vectors, or a tuple of vectors and their ids, each a file or in memory.
    """
    read = {}
    for name in option_types.OF_BASELINES["nearest"]:
        if arguments.get(name) is not None:
            is_pair = isinstance(arguments[name], tuple) and len(arguments[name]) == 2
            vectors, ids = arguments[name] if is_pair else (arguments[name], None)
            read[name] = as_vectors(vectors, ids)
    return read


def _places(ids: Sequence[str], vectors: Vectors, name: str) -> np.ndarray:
    """Return, for each report, the row of its vector in `vectors`, -1 for a report without one: int64[n].

    Raise InputError if no report has one; `name` is the argument that the vectors were given by.
    """
    position_of = {key: i for i, key in enumerate(vectors.ids)}
    positions = np.array([position_of.get(i, -1) for i in canonical_ids(ids, "ids")], np.int64)
    if positions.max() < 0:
        raise InputError(
            name,
            "must share ids with the reports",
            f"none of {len(ids)} report ids among {len(vectors.ids)}",
            f"Pass the file that belongs to these reports.{ids_hint(ids, vectors.ids)}",
        )
    return positions


def _digest(vectors: Vectors, positions: np.ndarray) -> str:
    """Return a SHA-256, in hexadecimal, of the vectors at these positions, int64[n], and of which are -1, no vector."""
    hasher = hashlib.sha256(np.packbits(positions >= 0).tobytes())
    hasher.update(np.ascontiguousarray(vectors.values[positions[positions >= 0]], "<f4").tobytes())
    return hasher.hexdigest()


def _of_vectors(vectors: Vectors, positions: np.ndarray) -> Reports:
    """Return Reports whose embeddings are the vectors at the given positions, without ids and texts."""
    return Reports([], [], attached={"chexbert": Attachment(vectors.values, positions)})


def _nearest_rows(space: Any, queries: Any) -> np.ndarray:
    """Return the lowest corpus row with the greatest cosine for each distinct query: int64[n].

    A matrix product in float32 selects the documents that may have it. Their cosines are then summed in a fixed order,
    so that equal vectors have equal cosines. Raise ExactnessError if the bound of the product's error does not hold.
    """
    from metric_oracle.kernels._errors import check_bounds
    from metric_oracle.kernels.cosine import cpu as cosines

    lowest = space.row_id[space.row_ptr[:-1]]  # rows ascend within a document
    kernel, metric = cosines.Backend(), METRICS["chexbert"]
    corpus, batch = arrays_of(metric, space, queries)
    error = kernel.score_error(corpus, batch)
    rows = np.empty(len(queries.vectors), np.int64)
    for first in range(0, len(rows), BLOCK):
        block = range(first, min(first + BLOCK, len(rows)))
        for q, screened in zip(block, kernel.score_all(corpus, batch, block), strict=True):
            finalists = np.flatnonzero(screened >= screened.max() - 4 * error)
            exact = np.empty(len(finalists))
            cosines.score_documents(finalists, queries.vectors[q], space.vectors, exact)
            check_bounds({"float32": error - np.abs(screened[finalists] - exact).max()})
            rows[q] = lowest[finalists[exact == exact.max()]].min()
    return rows


def _results(plan: Plan, queries: Reports, pairs: Pairs, rows: np.ndarray, more: dict[str, Any]) -> Results:
    """Score the chosen rows, int64[Q, k], and return them as results; each distinct pair is scored once.

    A sample of the pairs is compared with the plain scorer, see `Pairs.check`. `more` has the entries of the signature
    that are particular to the baseline.
    """
    index, k = plan.index, rows.shape[1]
    flat = rows.ravel()
    query, document, pair_of_row = pairs.distinct(np.repeat(pairs.which, k), pairs.document_of_row[flat])
    scores, components = pairs.score_with_components(query, document)
    pairs.check(queries.ids, query, document, scores, components)
    columns = {
        "row": flat,
        "candidate_id": index.take("study_id", flat),
        "n_ties": pairs.rows_like(document)[pair_of_row],
    }
    if plan.options.text:
        columns["text"] = index.take("text", flat)
    components = {name: values[pair_of_row] for name, values in components.items()}
    table = _table(queries, k, columns, scores[pair_of_row], components, plan.options.text)
    return Results(table, _signature(plan, queries, pairs, k, {**more, "references": digest(queries)}))


def _table(
    queries: Reports, k: int, of_rows: dict[str, Any], scores: np.ndarray, components: dict[str, np.ndarray], text: bool
) -> pa.Table:
    """Return the table of results of a baseline, with the columns of a search and k lines per query.

    `of_rows` has the columns row, candidate_id, n_ties and, if `text` is true, text, line by line like `scores` and
    `components`.
    """
    n = len(queries.ids)
    columns = {
        "query_id": pa.array(queries.ids, pa.large_string()).take(pa.array(np.repeat(np.arange(n), k))),
        "rank": np.tile(np.arange(1, k + 1), n),
        "row": of_rows["row"],
        "candidate_id": of_rows["candidate_id"],
        "score": scores,
        **components,
        "n_ties": of_rows["n_ties"],
        "fallback": np.zeros(n * k, bool),
        "exact": np.ones(n * k, bool),
    }
    if text:
        columns["text"] = of_rows["text"]
    return pa.table(columns)


def _signature(plan: Plan, queries: Reports, pairs: Pairs, k: int, more: dict[str, Any]) -> dict[str, Any]:
    """Return the signature of a baseline: that of a search without `ties`, the settings of the queries, and `more`."""
    entries = signature(plan.index, queries, plan.metric, "cpu", k)
    del entries["ties"]
    return {**entries, **pairs.settings, **more}


@public
def baseline(
    index: AnyIndex,
    queries: Queries,
    kind: Annotated[
        option_types.Baseline,
        Doc(
            "Baseline: reports drawn at random, the most frequent report of the corpus, each test report itself, or "
            "the report of the nearest image, by the cosine of image embeddings."
        ),
    ],
    metric: option_types.MetricOfScores,
    *,
    draws: Annotated[option_types.Draws | None, Doc("Number of random reports to draw for each test report.")] = None,
    seed: option_types.Seed | None = None,
    corpus_vectors: option_types.CorpusVectors = None,
    query_vectors: option_types.QueryVectors = None,
    options: Annotated[
        SearchOptions | None,
        Doc("`text`, and options that change scores, such as `idf` and `rescale`."),
        Uses("text", *SETTINGS),
    ] = None,
    progress: Progress | None = None,
) -> Results:
    """Score a baseline: random reports, the most frequent one, a perfect prediction, or the nearest image.

    `draws`, by default 10, and `seed`, by default 0, are for the kind random; the vectors for the kind nearest, which
    needs them.

    Returns
    -------
    Results
        Table with the columns of a search, in which ``rank`` is the number of the draw.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index(["no acute process", "small effusion"], metrics="rouge-l")
    >>> mo.baseline(index, ["small effusion"], "identity", "rouge-l").table["score"].to_pylist()
    [1.0]
    """
    arguments = {"draws": draws, "seed": seed, "corpus_vectors": corpus_vectors, "query_vectors": query_vectors}
    own = {name: value for name, value in arguments.items() if value is not None}
    check_left_out(own, f"for kind {kind!r}", allowed=option_types.OF_BASELINES.get(kind, ()))
    if kind == "nearest":
        check_image_vectors(own)
    plan = plan_scores(index, metric, options or DEFAULTS, progress)
    own |= image_vectors(own)
    return KINDS[kind](plan, loaded(queries, plan.index, progress, metrics=[plan.metric]), **own)
