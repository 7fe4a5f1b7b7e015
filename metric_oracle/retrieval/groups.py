"""Scores of all candidates with all references within each of many groups of reports, in memory.

A group is, for example, the samples that a model wrote for one study. Its scores are a matrix with one row per
candidate and one column per reference; a *cell* is one entry of it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.kernels._groups import Cells, distinct_pairs, fill_cells, mirror_cells
from metric_oracle.kernels.contract import Kernel, read_only
from metric_oracle.metrics import REPRESENTATIONS, Metric, check_searched
from metric_oracle.retrieval.checks import check_counted, check_queries, with_frequencies
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.score import composite
from metric_oracle.retrieval.kernels import load_kernel
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.pair_scores import EMPTY, places_of
from metric_oracle.retrieval.pool import n_threads, run_blocks
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.inputs import Inputs

AT_ONCE, LEAST = 1 << 17, 1 << 12  # cells of a task: at most, and at least where there are so many


def score_groups(
    references: Inputs,
    candidates: Inputs,
    sizes: tuple[np.ndarray, np.ndarray],
    metric: Metric,
    options: SearchOptions,
    counted: Index | None = None,
) -> list[np.ndarray]:
    """Return, for each group, the exact scores of its candidates with its references: float64[candidates, references].

    The arguments are those of `score_cells`.
    """
    n_references, n_candidates = sizes
    out = score_cells(references, candidates, sizes, metric, options, counted)
    ends = np.cumsum(n_candidates * n_references)
    shapes = zip(ends.tolist(), n_candidates.tolist(), n_references.tolist(), strict=True)
    return [out[end - n * m : end].reshape(n, m) for end, n, m in shapes]


def score_cells(
    references: Inputs,
    candidates: Inputs,
    sizes: tuple[np.ndarray, np.ndarray],
    metric: Metric,
    options: SearchOptions,
    counted: Index | None = None,
) -> np.ndarray:
    """Return the scores of `score_groups` as one array: its matrices one after another, row by row.

    References and candidates are those of all groups, one group after another; the same object if candidates are
    compared with one another. `sizes` has the numbers of references and of candidates in each group, int64[G] each. Of
    the options only `idf`, `rescale` and `threads` are used. `counted` is a corpus whose document frequencies weight
    the scores, see `checks.with_frequencies`. Each distinct report is prepared once, and each distinct pair is scored
    once.
    """
    check_searched(metric)
    check_counted(counted, [metric], options.idf)
    n_cells = int(np.sum(sizes[0] * sizes[1]))
    out = np.zeros(n_cells)
    if n_cells:
        row = np.arange(len(references.ids)) if references is candidates else None
        reports = candidates
        if row is None and not metric.terms and REPRESENTATIONS[metric.representation].is_of_texts:
            reports = Inputs([*candidates.ids, *references.ids], [*candidates.texts, *references.texts])
            row = np.arange(len(candidates.ids), len(reports.ids))
        index = with_frequencies(MemoryIndex(reports, [metric.name]), counted, [metric], options.idf)
        if references is candidates:
            references = _with_states(references, index)
        out = _scores(index, references, candidates, row, sizes, metric, options)
    return out


def _with_states(inputs: Inputs, index: Index) -> Inputs:
    """Return the reports of an index with the token states that it holds, so that no encoder runs again."""
    made = {}
    for kind in index.content["representations"]:
        if REPRESENTATIONS[kind].is_encoded:
            part = index.part(kind)
            made[kind] = Attachment(part, part.document_of_row, {"cut_length": -1})
    return replace(inputs, attached={**inputs.attached, **made})


def _scores(
    index: Index,
    references: Inputs,
    candidates: Inputs,
    row: np.ndarray | None,
    sizes: tuple[np.ndarray, np.ndarray],
    record: Metric,
    options: SearchOptions,
) -> np.ndarray:
    """Return the scores of all cells, one matrix after another, row by row: float64[C].

    The first rows of the index are the candidates. `row` is the row of each reference, int64[R]; None if the index has
    only the candidates.
    """
    if record.terms:
        parts = [
            _scores(index, references, candidates, row, sizes, term.metric, options) for term in record.terms.values()
        ]
        return np.asarray(composite(parts, record.terms.values(), record.options["intercept"]))
    kind = record.representations[0]
    representation = representation_of(index, record)
    document = np.full(index.n_reports, -1, np.int64)  # of each row: candidates, and references where `row` says so
    document[: len(representation.document_of_row)] = representation.document_of_row
    places = places_of(references, kind)
    complete = np.flatnonzero(places >= 0) if places is not None else np.arange(0)
    _check_complete(record, references, candidates, complete, document)
    batch = None if row is None else representation.own_batch()
    # A blank report without a graph has no entity, and shares none.
    out = np.zeros(int(np.sum(sizes[0] * sizes[1])))
    if not len(complete) or not len(representation.row_id):
        return out
    if batch is not None and row is not None:
        # The references are documents of the index.
        encoded, which = None, document[row[complete]]
    else:
        truth = references if len(complete) == len(references.ids) else references.take(complete)
        check_queries(truth, record, index)
        settings = {name: value for name, value in options.settings.items() if name in record.settings}
        if REPRESENTATIONS[kind].is_encoded:
            settings["wordless"] = True
        encoded = representation.encode(truth, **settings)
        batch, which = encoded.batch, encoded.which
    is_half = record.is_symmetric and encoded is None and references.ids is candidates.ids
    cells = _cells(sizes, complete, which, document, is_half)
    corpus = read_only(representation.corpus(record, encoded))
    _score_cells(cells, corpus, read_only(batch), load_kernel(record, "cpu"), options.threads or n_threads(), out)
    if is_half:
        mirror_cells(cells, out)
    return out


def _check_complete(
    record: Metric, references: Inputs, candidates: Inputs, complete: np.ndarray, document: np.ndarray
) -> None:
    """Raise InputError unless every report has the source that the metric reads; a blank one needs no graph (`EMPTY`).

    `complete` has the positions of the references that have it, ascending; `document` is that of each candidate, -1 for
    none.
    """
    kind = record.representations[0]
    lacking = [(references, np.setdiff1d(np.arange(len(references.ids)), complete))]
    if references.ids is not candidates.ids:
        lacking.append((candidates, np.flatnonzero(document[: len(candidates.ids)] < 0)))
    empty = EMPTY.get(kind)
    unusable = [
        side.ids[place] for side, places in lacking for place in places if empty is None or side.texts[place].strip()
    ]
    if unusable:
        source = REPRESENTATIONS[kind].source
        noun = "words" if source is None else source.noun
        raise InputError(
            "every report",
            f"must have {noun} for metric {record.name!r}",
            f"{len(unusable)} without ({shown_names(unusable[:3])})",
            "Give them, or leave these reports out.",
        )


def _cells(
    sizes: tuple[np.ndarray, np.ndarray], complete: np.ndarray, which: np.ndarray, document: np.ndarray, is_half: bool
) -> Cells:
    """Return the cells of all groups as the arrays that the kernels read.

    `complete` has the positions of the references that can be scored, `which` the distinct query of each of these,
    `document` that of each candidate. If `is_half`, matrices are symmetric (a candidate is also a reference), and only
    half of their cells are scored.
    """
    n_references, n_candidates = sizes
    rows, columns, cells = (
        np.concatenate([[0], np.cumsum(n)]) for n in (n_candidates, n_references, n_candidates * n_references)
    )
    n_queries = int(which.max()) + 1
    return Cells(
        rows,
        columns,
        cells,
        np.repeat(np.arange(len(n_references)), n_references),
        document,
        document if is_half else np.full(int(columns[-1]), -1, np.int64),
        np.concatenate([[0], np.cumsum(np.bincount(which, minlength=n_queries))]),
        complete[np.argsort(which, kind="stable")],
    )


def _score_cells(cells: Cells, corpus: Any, batch: Any, kernel: Kernel, threads: int, out: np.ndarray) -> None:
    """Write the scores of the cells into `out`, float64[C]; each thread scores blocks of distinct queries."""
    n_documents = len(corpus.row_ptr) - 1
    rows = np.diff(cells.row_ptr)[cells.matrix[cells.column_of_query]]  # cells of each column
    before = np.concatenate([[0], np.cumsum(rows)])[cells.column_of_query_ptr]
    edges = _edges(before, threads)

    def run(block: int) -> int:
        """Score the cells of one block of distinct queries."""
        first, last = edges[block], edges[block + 1]
        query, document, cell, pair = np.empty((4, before[last] - before[first]), np.int64)
        n, m = distinct_pairs(cells, first, last, n_documents, query, document, cell, pair)
        scores = kernel.pair_scores(corpus, batch, query[:n], document[:n])
        fill_cells(np.asarray(scores), cell[:m], pair[:m], out)
        return last - first

    run_blocks(run, range(len(edges) - 1), edges[-1], threads, None, edges[-1])


def _edges(before: np.ndarray, threads: int) -> list[int]:
    """Return the first query of each block of distinct queries, and at the end the number of queries.

    `before`, int64[n + 1], has the number of cells before each query, and of all. A block has at most `AT_ONCE` cells,
    or one query that has more.
    """
    most = min(AT_ONCE, max(int(before[-1]) // (4 * threads), LEAST))
    edges = [0]
    while edges[-1] < len(before) - 1:
        last = int(np.searchsorted(before, before[edges[-1]] + most, side="right")) - 1
        edges.append(max(last, edges[-1] + 1))
    return edges


def expected_scores(matrix: np.ndarray, logprobs: Sequence[float] | None = None) -> np.ndarray:
    """Return the expected score of each sample of a group with the other samples as references: float64[N].

    Row i and column j of `matrix` have the score of sample i with reference j. Weights of the references are
    exp(logprob), normalised over the other samples; by default all are equal. A single sample gets NaN. Sums are
    rounded once (`math.fsum`), so that equal texts have equal expected scores whatever their order.
    """
    n = len(matrix)
    if n == 1:
        return np.array([np.nan])
    utility = np.empty(n)
    for i in range(n):
        scores = np.delete(matrix[i], i)
        if logprobs is None:
            utility[i] = math.fsum(scores) / (n - 1)
        else:
            others = np.delete(np.asarray(logprobs, np.float64), i)
            weights = np.exp(others - others.max())
            utility[i] = math.fsum(weights * scores) / math.fsum(weights)
    return utility
