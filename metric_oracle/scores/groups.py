"""Scores of all candidates with all references within each of many groups of reports, in memory.

A group is, for example, the samples that a model wrote for one study. Its scores are a matrix with one row per
candidate and one column per reference; a *cell* is one entry of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.tables import are_columns
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.lists import documents_of_rows, offsets_of
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import REPRESENTATIONS, check_searched, get_metric
from metric_oracle.reading import AttachedReports, Given, attached
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_counted, with_frequencies
from metric_oracle.retrieval.corpus_index import counted_of
from metric_oracle.retrieval.document_pairs import Pairs, scorable_rows
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.thread_pool import run_blocks
from metric_oracle.scores.pair_scores import complete_pairs, places_of
from metric_oracle.sides import Sides

_NAME = "candidates"
AT_ONCE, LEAST = 1 << 17, 1 << 12  # cells of a task: at most, and at least where there are so many


def score_groups(
    references: Reports,
    candidates: Reports,
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
    references: Reports,
    candidates: Reports,
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
    if not np.sum(sizes[0] * sizes[1]):
        return np.zeros(0)
    is_own = references is candidates
    is_joined = not is_own and metric.reads.is_of_texts
    reports = candidates
    if is_joined:  # so that the texts of both sides are prepared together
        ids, texts = [*candidates.ids, *references.ids], [*candidates.texts, *references.texts]
        reports = Reports(ids, texts, is_loaded=True)
    built = MemoryIndex(reports, [metric.name])
    if is_own or is_joined:
        references = built.own_reports(references, np.arange(len(references.ids)) + len(candidates.ids) * is_joined)
    index = with_frequencies(built, counted, [metric], options.idf)
    sides = _Sides(index, references, candidates, *sizes, is_own)
    parts = {name: sides.scores(term.metric, options) for name, term in metric.terms.items()}
    if metric.name in parts:  # it is its own only term
        return parts[metric.name]
    return np.asarray(composite(parts.values(), metric.terms.values(), metric.intercept))


@dataclass(frozen=True)
class _Sides:
    """References and candidates of all groups, one group after another, prepared together."""

    index: Index  # its first rows are the candidates
    references: Reports
    candidates: Reports
    n_references: np.ndarray  # int64[G], of each group
    n_candidates: np.ndarray  # int64[G]
    is_own: bool  # whether the references are the candidates

    def scores(self, metric: Metric, options: SearchOptions) -> np.ndarray:
        """Return the scores of all matrices under a metric that is no sum: float64[C]."""
        out = np.zeros(int(np.sum(self.n_references * self.n_candidates)))
        places = places_of(self.references, metric.representations[0])
        is_complete = np.zeros(len(self.references.ids), bool) if places is None else places >= 0
        is_scorable = np.zeros(self.index.n_reports, bool)
        is_scorable[scorable_rows(self.index, metric)] = True
        is_scorable = is_scorable[: len(self.candidates.ids)]
        others = [] if self.is_own else [(self.candidates, is_scorable)]
        _check_complete(metric, [(self.references, is_complete), *others])
        # A blank report without a graph has no entity, and shares none: its scores stay 0.
        if not is_complete.any() or not is_scorable.any():
            return out
        complete, pairs = complete_pairs(self.index, self.references, metric, options.settings)
        assert pairs is not None
        query = np.full(len(self.references.ids), -1, np.int64)
        query[complete] = pairs.which
        document = documents_of_rows(pairs.row_ptr, pairs.row_id, self.index.n_reports)[: len(self.candidates.ids)]
        is_symmetric = self.is_own and metric.is_symmetric
        self._fill(out, pairs, query, document, is_symmetric, options.threads or n_threads())
        return out

    def _fill(
        self,
        out: np.ndarray,
        pairs: Pairs,
        query: np.ndarray,
        document: np.ndarray,
        is_symmetric: bool,
        threads: int,
    ) -> None:
        """Write the scores of all matrices into `out`, float64[C]; each thread scores blocks of distinct queries.

        `query` has the distinct query of each column of the matrices, int64[R], and `document` the document of each
        row, int64[H], both -1 for none. If `is_symmetric`, rows and columns of a matrix are the same reports in the
        same order, and only one of two mirrored cells is scored.
        """
        from metric_oracle.kernels._groups import Cells, distinct_pairs, mirror_cells

        columns = np.argsort(query, kind="stable")[np.count_nonzero(query < 0) :]  # query by query
        first_column = np.searchsorted(query[columns], np.arange(int(query.max()) + 2))
        cells = Cells(
            offsets_of(self.n_candidates),
            offsets_of(self.n_references),
            offsets_of(self.n_candidates * self.n_references),
            np.repeat(np.arange(len(self.n_references)), self.n_references),
            document,
            document if is_symmetric else np.full(len(query), -1, np.int64),
            first_column,
            columns,
        )
        before = offsets_of(self.n_candidates[cells.matrix[columns]])[first_column]
        edges = _block_starts(before, threads)
        n_documents = int(pairs.document_ptr[-1])

        def run(block: int) -> int:
            """Score the cells of one block of distinct queries."""
            first, last = edges[block], edges[block + 1]
            queries, documents, cell, pair = np.empty((4, before[last] - before[first]), np.int64)
            n, m = distinct_pairs(cells, first, last, n_documents, queries, documents, cell, pair)
            out[cell[:m]] = pairs.score(queries[:n], documents[:n])[pair[:m]]
            return last - first

        run_blocks(run, range(len(edges) - 1), threads)
        if is_symmetric:
            mirror_cells(cells, out)


def _check_complete(metric: Metric, sides: list[tuple[Reports, np.ndarray]]) -> None:
    """Raise InputError unless every report has the source that the metric reads; a blank one needs no graph.

    `sides` has reports, and whether each of them has the source.
    """
    kind = metric.representations[0]
    empty = REPRESENTATIONS[kind].load_class().empty
    unusable = [
        reports.ids[place]
        for reports, has_source in sides
        for place in np.flatnonzero(~has_source).tolist()
        if empty is None or reports.texts[place].strip()
    ]
    if unusable:
        source = REPRESENTATIONS[kind].source
        noun = "words" if source is None else source.noun
        raise InputError(
            "every report",
            f"must have {noun} for metric {metric.name!r}",
            f"{len(unusable)} without ({shown(*unusable[:3])})",
            "Give them, or leave these reports out.",
        )


def _block_starts(before: np.ndarray, threads: int) -> list[int]:
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


@dataclass(frozen=True)
class Groups:
    """Reports of one group or of several, one group after another.

    A group is, for example, the samples of one study.
    """

    reports: AttachedReports
    keys: list[Any] | None = None  # key of each group; None for the reports of one group
    sizes: np.ndarray | None = None  # int64[G], number of reports of each group; None for the reports of one group
    is_keyed: bool = False  # whether the groups were given as a dict


def groups_of(given_groups: Given, argument: str, other: Groups | None = None) -> Groups:
    """Return the groups in a list of lists of texts or a dict of lists; anything else is the reports of one group.

    Groups are in the order of those of `other`, with the same keys, if that is not None. Raise InputError for groups
    that hold no texts or have other keys; `argument` names them.
    """
    side = attached(given_groups)
    data = side.data
    keys: list[Any] | None = None
    if isinstance(data, Mapping) and are_columns(data):
        step = "Pass a dict of study id to list of texts, or a list of lists of texts."
        raise InputError(argument, "must be groups of texts", "a dict of columns", step)
    if isinstance(data, list | tuple | Mapping):
        groups = dict(data if isinstance(data, Mapping) else enumerate(data))
        if not groups or any(isinstance(group, list | tuple) for group in groups.values()):
            keys = list(groups)
    if other is not None and _distinct_keys(keys) != _distinct_keys(other.keys):
        value = "one group" if keys is None else f"{len(keys)} groups"
        rule = "must be one group" if other.keys is None else f"must be {len(other.keys)} groups with the same keys"
        step = "Pass candidates and references in the same form."
        raise InputError(argument, rule, value, step)
    if keys is None:
        return Groups(side)
    for key, group in groups.items():
        if not isinstance(group, list | tuple) or any(not isinstance(text, str | None) for text in group):
            step = "Pass a list of texts, a list of lists of texts, or a dict of them."
            value = f"another type in group {shown(key)}"
            raise InputError(argument, "must be lists of texts", value, step)
    keys = keys if other is None else other.keys or []
    ids = [f"{key}/{i}" for key in keys for i in range(len(groups[key]))]
    texts = [text for key in keys for text in groups[key]]
    reports = Reports.from_texts(texts, ids, keep_empty=True) if texts else Reports([], [], "no reports")
    sources = {name: _by_text(value, reports.texts) for name, value in side.sources.items()}
    joined = AttachedReports(reports, side.options, sources, side.models, side.of_encoder)
    return Groups(joined, keys, np.array([len(groups[key]) for key in keys], np.int64), isinstance(data, Mapping))


def _distinct_keys(keys: Sequence[Any] | None) -> set[Any] | None:
    """Return the distinct keys of the groups, None if they have no keys."""
    return None if keys is None else set(keys)


def _by_text(value: Any, texts: Sequence[str]) -> Any:
    """Return the value of a source as it is, of a dict with one of `texts` as a key a function from texts to values."""
    if not isinstance(value, Mapping) or not any(text in value for text in texts):
        return value

    def answer(texts_asked: list[str]) -> dict[str, Any]:
        """Return the values of these texts in the form of a source: a dict from position to value."""
        return {str(i): value[text] for i, text in enumerate(texts_asked) if text in value}

    return answer


@public
def pairwise(
    groups: Given,
    metric: str,
    references: Given | None = None,
    *,
    index: AnyIndex | None = None,
    options: SearchOptions | None = None,
) -> np.ndarray | list[np.ndarray] | dict[str, np.ndarray]:
    """Score every candidate of a group with every reference of that group, exactly.

    Parameters
    ----------
    groups : list of lists of texts, dict of them, list of texts, another container or AttachedReports
        Candidates. Groups may be of different sizes; texts may repeat and be empty; a missing one (None) is an error.
        A list of texts, and anything else that holds single reports, is one group. What the metric reads in addition
        to the texts is attached by [`reports`][metric_oracle.reports]; in groups it goes by the text, or by id and
        place: candidate 2 of group "a" is "a/2", and the groups of a list are "0", "1", ...
    metric : str
        Name of a metric.
    references : same as `groups`, optional
        As many groups; of dicts, those with the same id belong together. By default the candidates of a group are
        compared with one another. A model or an encoder that is attached here serves both sides.
    index : path, Index or reports, optional
        Corpus whose document frequencies count, see [`score`][metric_oracle.score].
    options : SearchOptions, optional
        `idf` and `rescale` of BERTScore, and `threads`.

    Returns
    -------
    numpy.ndarray or list or dict of numpy.ndarray
        float64[H, R] for each group, in a list or dict as `groups` is. Row i, column j: candidate i with reference j.
        Values are the metric's own: check its direction. Each distinct text is prepared once, and each distinct pair
        of all groups is scored once.

    Raises
    ------
    InputError
        If an argument is wrong, a report is missing, or a side lacks what the metric reads.

    Notes
    -----
    Metrics whose scores depend on all references of a call (`cider-d`, `crg`, and `idf="tests"`) count those of all
    groups.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.pairwise(["no acute process", "clear"], "rouge-l")
    array([[1., 0.],
           [0., 1.]])
    >>> mo.pairwise([["no edema"], ["clear", ""]], "rouge-l", [["no edema", "edema"], ["clear"]])
    [array([[1.        , 0.66666667]]), array([[1.],
           [0.]])]
    """
    metrics, options = [get_metric(metric)], options or DEFAULTS
    options.check_used(("idf", "rescale", "threads"), "scores of given reports")
    candidates = groups_of(groups, "groups")
    truth = candidates if references is None else groups_of(references, "references", candidates)
    sizes = truth.sizes, candidates.sizes
    if sizes[0] is not None and sizes[1] is not None and not (sizes[0].sum() and sizes[1].sum()):
        matrices = [np.zeros(shape) for shape in zip(sizes[1].tolist(), sizes[0].tolist(), strict=True)]
    else:
        truth_inputs, written = _loaded(truth.reports, candidates.reports)
        n_references, n_candidates = (
            np.array([len(inputs.ids)]) if side.sizes is None else side.sizes
            for side, inputs in ((truth, truth_inputs), (candidates, written))
        )
        counted = counted_of(index, metrics, options.idf)
        matrices = score_groups(truth_inputs, written, (n_references, n_candidates), metrics[0], options, counted)
    if candidates.keys is None:
        return matrices[0]
    return dict(zip(candidates.keys, matrices, strict=True)) if candidates.is_keyed else matrices


def _loaded(references: AttachedReports, candidates: AttachedReports) -> tuple[Reports, Reports]:
    """Return references and candidates with their sources; they are one object if `candidates` is `references`."""
    sides = Sides.of(None if references is candidates else references, {_NAME: candidates}).read(
        as_truth=lambda side: _complete_reports(side.read(keep_empty=True)),
        as_written=lambda side, section: _complete_reports(side.read(predictions=True, default_section=section)),
    )
    written = sides.written[_NAME]
    if references is candidates:
        reports = candidates.with_sources(written)
        return reports, reports
    return sides.load(_NAME, sides.read_truth, written)


def _complete_reports(reports: Reports) -> Reports:
    """Return reports as they are scored, whatever was left out before; raise InputError if one is missing."""
    n_missing = len(reports.states.get("missing", ()))
    if n_missing:
        raise InputError("reports", "must be texts", f"{n_missing} missing", "Leave them out.")
    return replace(reports, states={})
