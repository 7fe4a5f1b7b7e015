"""Check a result file: score every pair again with the plain scorer, and search some queries by brute force."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_in_range, check_left_out, check_one_of
from metric_oracle.base.declarations import IN_PYTHON
from metric_oracle.base.errors import BackendError, ExactnessError, InputError, kind_of, shown
from metric_oracle.base.option_types import RESTRICTIONS
from metric_oracle.base.progress import Advance, Progress, counter, say
from metric_oracle.base.validation import public
from metric_oracle.corpora.kept_columns import RESERVED
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.findings.results import Results, read_results
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.kernels.contract import Answers
from metric_oracle.metrics import get_metric
from metric_oracle.reading import Queries, loaded
from metric_oracle.records import Metric
from metric_oracle.retrieval.blocks import BLOCK
from metric_oracle.retrieval.checks import check_queries, check_section
from metric_oracle.retrieval.conditions import conditioned, parsed, summands
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.fall_back import most_frequent_row
from metric_oracle.retrieval.kernels import load_kernel, load_reference
from metric_oracle.retrieval.restrictions import Restrictions
from metric_oracle.retrieval.search_signature import digest
from metric_oracle.retrieval.weights import metric_of
from metric_oracle.scores import baselines

# Settings of a search by their names in the signature.
_SETTINGS = {"idf": "idf", "rescale": "rescaled", "prevalence": "prevalence"}
_LISTED = ("query_id", "rank", "row", "score", "n_ties", "fallback")
ROOM = 1 << 26  # scores of a block of queries with all candidates, half a GB


def _verify(
    index: Index,
    results: Results,
    queries: Reports,
    *,
    sample: int = 20,
    seed: int = 0,
    vectors: tuple[Vectors, Vectors] | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Check every column of a result, and search `sample` of its queries by brute force.

    For every line, the plain scorer computes the score and its components again, and ids, texts, ranks, `fallback`,
    `exact` and `n_ties` are compared. The last score of a query may also belong to rows that are not listed. So only
    the brute-force search can check its `n_ties`, and whether the right rows are listed at all; see
    `verification.brute_force`.

    The result of a baseline involves no search. Its rows are chosen again: the draws by the seed in the signature, the
    most frequent report, or the query itself. The rows of "nearest" are chosen again if its image vectors are given.

    `queries` are all queries of the result; `vectors` are those of corpus and queries by which "nearest" chose the
    rows. Return how many ``pairs`` were scored again and ``queries`` searched. Raise ExactnessError if a value of the
    result differs, InputError if it belongs to another index or to other queries, and BackendError if the encoder gives
    other token states here than where the result was made.
    """
    signature = results.signature
    if signature.get("index") != index.fingerprint:
        raise InputError(
            "results",
            f"must belong to this index, fingerprint {index.fingerprint[:12]}",
            str(signature.get("index"))[:12],
            "Pass the index that they were made with.",
        )
    check_section(queries, index)
    metric = recorded_metric(signature)
    k = check_in_range("k in the signature", signature.get("k"), ge=1, step="Retrieve again.")
    kind = signature.get("baseline")
    if kind is not None:
        check_one_of("baseline in the signature", kind, baselines.KINDS, "Retrieve again.")
    if kind != "nearest":
        what = "an oracle's answers" if kind is None else f"baseline {kind!r}"
        step = "Leave them out: only results of baseline 'nearest' need them."
        check_left_out({"vectors": vectors}, f"for {what}", step)
    columns = {name: results.table[name].to_pylist() for name in results.table.column_names if name != "text"}
    recorded = {name: signature[name] for name in RESTRICTIONS if name in signature}
    _check_ids(columns["query_id"], queries, signature, bool(recorded))
    index.check_holds(metric)
    check_queries(queries, metric, index)

    settings = {name: signature[_SETTINGS[name]] for name in metric.settings if _SETTINGS[name] in signature}
    pairs = Pairs.of(index, metric, replace(queries, stored=None), settings)  # encoded anew, also rows of the index
    _check_states(signature, pairs.settings)
    positions = np.sort(np.random.default_rng(seed).permutation(len(queries.ids))[: 0 if kind else sample])
    asked = np.unique(pairs.which[positions]).tolist()
    from metric_oracle.verification import brute_force

    total = len(columns["row"]) + brute_force.n_pairs(pairs, asked)
    tell = counter(progress, "pairs", total)
    restrictions = Restrictions(index, queries, metric, recorded)
    check = _Check(index, metric, pairs, queries, results, columns, kind, k, restrictions, vectors)
    check.lines(tell)
    check.names()
    check.lists()
    if kind is None:
        check.repeat_search(positions, asked, tell)
    return {"pairs": len(columns["row"]), "queries": len(positions)}


def columns_of(results: Results) -> list[str]:
    """Return the names of the columns by which the search of a result excluded rows, which its queries must have."""
    return [name for name in results.signature.get("exclude", ()) if name not in RESERVED]


def recorded_metric(signature: Mapping[str, Any]) -> Metric:
    """Return the metric that a signature names: a metric, a composite, a sum, or one under conditions.

    Raise InputError if the signature is damaged.
    """
    name, where = metric_of(signature), signature.get("where", ())
    if not where and not (isinstance(name, str) and "+" in name):
        return get_metric(name)
    if not isinstance(name, str) or not isinstance(where, list | tuple) or any(not isinstance(x, str) for x in where):
        raise InputError("where in the signature", "must be a list of texts", kind_of(where), "Retrieve again.")
    return conditioned(summands(name), parsed(where))


def _check_ids(ids: Sequence[str], queries: Reports, signature: Mapping[str, Any], may_lack: bool) -> None:
    """Raise InputError unless the query `ids` of a result's lines are those of all queries, and its texts theirs.

    With `may_lack` a query may have no line, because a search with exclusions can find nothing.
    """
    answered, of_queries = set(ids), set(queries.ids)
    unknown = sorted(answered - of_queries)
    if unknown:
        raise InputError(
            "results",
            "must be of these queries",
            f"{len(unknown)} query ids that are not among them ({shown(*unknown[:3])})",
            "Pass the queries that they were made with.",
        )
    lacking = [query for query in queries.ids if query not in answered]
    if lacking and not may_lack:
        raise InputError(
            "results",
            "must answer every query",
            f"none for {len(lacking)} of {len(queries.ids)} ({shown(*lacking[:3])})",
            "The file was cut, or made with other queries: retrieve again.",
        )
    made_of = signature.get("references")
    if made_of is not None and made_of != digest(queries):
        raise InputError(
            "results",
            f"must be of these queries, SHA-256 {digest(queries)[:12]}",
            f"{str(made_of)[:12]}: other texts under the same ids",
            "Pass the queries that they were made with.",
        )


def _check_states(signature: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise BackendError if the encoder makes other token states here, as in `settings`, than for the result."""
    then, now = signature.get("states_digest"), settings.get("states_digest")
    if then is None or now is None or then == now:
        return
    before, here = signature.get("environment") or {}, settings.get("environment") or {}
    differ = [
        f"{name} {before.get(name)!r} then, {value!r} now" for name, value in here.items() if before.get(name) != value
    ]
    raise BackendError(
        "token states of the queries",
        f"must be those that the results were made of, SHA-256 {str(then)[:12]}",
        f"{str(now)[:12]} ({'; '.join(differ) or 'in the same environment'})",
        "The file is not to blame: verify it where it was made, or retrieve again here.",
    )


def _fail(what: str, query: str, rest: str, step: str = "") -> NoReturn:
    """Raise ExactnessError, because `what` of a query is not as computed again; `rest` ends the sentence."""
    step = step or "The results were altered, or are of another version"
    raise ExactnessError(f"{what} of query {shown(query)} {rest}.", f"{step}: retrieve again.")


@dataclass(frozen=True)
class _Check:
    """The result to check, its columns as lists, and what is needed to compute it again.

    Each check raises an ExactnessError that names the query.
    """

    index: Index
    metric: Metric
    pairs: Pairs  # of the queries and the documents of the index
    queries: Reports
    results: Results
    columns: Mapping[str, list[Any]]  # values of each column of the result but the text
    baseline: str | None  # kind of the baseline, None for a search
    k: int
    restrictions: Restrictions  # what the search left out
    vectors: tuple[Vectors, Vectors] | None = None  # of corpus and queries, for baseline "nearest"
    # Score and components of distinct queries with themselves, as `plain` computed them.
    of_itself: dict[int, tuple[float, dict[str, Any]]] = field(default_factory=dict)

    @cached_property
    def position_of(self) -> dict[str, int]:
        """The position of each query id in `queries`."""
        return {query: i for i, query in enumerate(self.queries.ids)}

    @cached_property
    def most_frequent(self) -> int:
        """The row of the most frequent report, to which RadGraph falls back."""
        return most_frequent_row(self.index, self.pairs.row_id)

    @cached_property
    def documents(self) -> list[int]:
        """The document of each line, -1 for a row that the metric cannot score."""
        of_row = self.pairs.document_of_row
        return [int(of_row[row]) if 0 <= row < len(of_row) else -1 for row in self.columns["row"]]

    @cached_property
    def n_rows_like(self) -> dict[int, int]:
        """The number of corpus rows with an equal document, for each listed document; 0 for -1."""
        documents = np.unique([document for document in self.documents if document >= 0]).astype(np.int64)
        return {-1: 0, **dict(zip(documents.tolist(), self.pairs.rows_like(documents).tolist(), strict=True))}

    def plain(self, q: int, document: int) -> tuple[float, dict[str, Any]]:
        """Return the plain scorer's score and components of a distinct query and a document; -1 is the query itself."""
        if document >= 0:
            return self.pairs.plain(q, document)
        if q not in self.of_itself:
            item = self.pairs.encoded.item(q)
            self.of_itself[q] = load_reference(self.metric)(item, item)
        return self.of_itself[q]

    @property
    def falls_back(self) -> bool:
        """Whether queries that nothing matches get the most frequent report."""
        return self.metric.fallback and self.restrictions.is_empty

    def lines(self, tell: Advance) -> None:
        """Compare scores, components and `exact` of every line; `tell` gets each line as a pair."""
        which = self.pairs.which.tolist()
        exact = self.baseline is not None or load_kernel(self.metric, "cpu").capabilities.exact
        names = self.results.components
        for line, (query, row, value, document) in enumerate(
            zip(*(self.columns[name] for name in ("query_id", "row", "score")), self.documents, strict=True)
        ):
            again, components = None, dict.fromkeys(names)
            if document >= 0 if self.baseline != "identity" else row == -1:
                again, components = self.plain(which[self.position_of[query]], document)
            if again != value:
                _fail("the score", query, f"and row {row} must be {again!r}; got {kind_of(value)}")
            if components.keys() != set(names):
                _fail(
                    "the components",
                    query,
                    f"and row {row} must be {', '.join(components) or 'none'}; got {', '.join(names) or 'none'}",
                )
            for name, expected in {**components, "exact": exact}.items():
                stored = self.columns[name][line]
                if stored != expected:
                    _fail(name, query, f"and row {row} must be {expected!r}; got {kind_of(stored)}")
            tell(1)

    def names(self) -> None:
        """Compare the ids and texts of the candidates."""
        import pyarrow.compute as pc

        ids = self.columns["query_id"]
        of_queries = {"study_id": self.queries.ids, "text": self.queries.texts}
        for name, column in (("candidate_id", "study_id"), ("text", "text")):
            if name not in self.results.table.column_names:
                continue
            if self.baseline == "identity":
                expected = pa.array([of_queries[column][self.position_of[query]] for query in ids], pa.large_string())
            else:
                expected = self.index.take(column, np.array(self.columns["row"], np.int64))
            same = pc.fill_null(pc.equal(self.results.table[name].cast(pa.large_string()), expected), False)
            line = pc.index(same, False).as_py()
            if line >= 0:
                of_row = f"and row {self.columns['row'][line]} differs from that of the index"
                _fail(name, ids[line], of_row, "The results were altered")

    def lists(self) -> None:
        """Check the list of each query as a whole: ranks, order, ties, fall-back report, rows of a baseline."""
        listed: dict[str, list[tuple[Any, ...]]] = {}
        for query, *answer in zip(*(self.columns[name] for name in _LISTED), self.documents, strict=True):
            listed.setdefault(query, []).append(tuple(answer))
        for query, answers in listed.items():
            answers.sort()
            ranks = [rank for rank, *_ in answers]
            n = self.k if self.restrictions.is_empty else min(len(ranks), self.k)
            if len(ranks) != n or ranks != list(range(1, len(ranks) + 1)):
                rest = f"must have the ranks 1 to {self.k}, each once; got {len(ranks)} from {ranks[0]} to {ranks[-1]}"
                _fail("the answers", query, rest, "The results were cut or altered")
        rows = [] if self.baseline is None else self._rows_of_baseline(list(listed))
        for query, answers in listed.items():
            if self.baseline is None:
                self._check_ranked(query, answers)
                continue
            _, rows_of_query, _, ties, fallback, documents = zip(*answers, strict=True)
            if rows and list(rows_of_query) not in [possible[query] for possible in rows]:
                _fail("the rows", query, f"differ from those of baseline {self.baseline!r}")
            self._compare_column(query, "fallback", rows_of_query, fallback, [False] * self.k)
            self._compare_column(
                query, "n_ties", rows_of_query, ties, [self.n_rows_like[document] for document in documents]
            )

    def _check_ranked(self, query: str, answers: Sequence[tuple[Any, ...]]) -> None:
        """Raise unless order, ties and fall-back report of one query's lines, by rank, agree with their scores.

        Each of `answers` is a line: the columns `_LISTED` but the query, and the document.
        """
        _, rows, scores, ties, fallback, documents = zip(*answers, strict=True)
        falls = self.falls_back and scores[0] == 0
        if falls and rows[0] != self.most_frequent:
            _fail(
                "the first answer", query, f"must be row {self.most_frequent}, the most frequent report; got {rows[0]}"
            )
        self._compare_column(query, "fallback", rows, fallback, [falls, *[False] * (len(rows) - 1)])
        order = [(-self.metric.sign * score, row) for score, row in zip(scores, rows, strict=True)][1 if falls else 0 :]
        if len(set(rows)) < len(rows) or order != sorted(order):
            rest = f"must be {len(rows)} different rows, ordered by score, then by row, and are not"
            _fail("the answers", query, rest, "The results were cut or altered")
        # All rows with a better score than the last one are listed. Unlisted rows may have the last score, too.
        times = Counter(scores)
        tied = {u for u, score in zip(documents, scores, strict=True) if score == scores[-1]}
        least = times[scores[-1]]
        if self.restrictions.is_empty:  # else some rows of a document may be excluded
            ptr = self.pairs.row_ptr
            least = sum(int(ptr[u + 1] - ptr[u]) for u in tied if u >= 0)
        expected = [times[score] if score != scores[-1] else max(ties[-1], least) for score in scores]
        self._compare_column(query, "n_ties", rows, ties, expected)

    def _compare_column(
        self, query: str, name: str, rows: Sequence[int], stored: Sequence[Any], right: Sequence[Any]
    ) -> None:
        """Raise unless the stored values of one column equal the right ones, for one query."""
        for row, value, expected in zip(rows, stored, right, strict=True):
            if value != expected:
                _fail(name, query, f"and row {row} must be {expected}; got {kind_of(value)}")

    def _rows_of_baseline(self, order: list[str]) -> list[dict[str, list[int]]]:
        """Return the rows that the rule of the baseline gives: alternatives, each a dict of query id -> rows by rank.

        A random baseline has two, because draws follow the order of the queries or that of the results, of which
        `order` has the query ids. The list is empty if the rows cannot be computed.
        """
        if self.baseline == "nearest":
            return [] if self.vectors is None else [self._nearest(*self.vectors)]
        if self.baseline != "random":
            row = -1 if self.baseline == "identity" else self.most_frequent
            return [{query: [row] for query in order}]
        made_with = self.results.signature.get("seed")
        seed = check_in_range("seed in the signature", made_with, ge=0, step="Make the baseline again.")
        drawn = baselines.drawn_rows(self.pairs.row_id, len(order), seed, self.k).tolist()
        # The draws depend on the order of the queries, which may have been that of the queries or of the file.
        return [dict(zip(ids, drawn, strict=True)) for ids in (self.queries.ids, order)]

    def _nearest(self, corpus: Vectors, asked: Vectors) -> dict[str, list[int]]:
        """Return the row of each query, by id, that image vectors of the corpus and of the queries choose.

        Raise InputError unless the vectors are those of the result.
        """
        rows, chosen_by = baselines.nearest_rows(self.index, self.queries, self.pairs.row_id, corpus, asked)
        then = self.results.signature.get("vectors")
        for side, digest_now in chosen_by["vectors"].items():
            digest_then = str(then.get(side)) if isinstance(then, Mapping) else "none"
            if digest_then != digest_now:
                raise InputError(
                    f"{side}_vectors",
                    f"must be those that the rows were chosen by, SHA-256 {digest_then[:12]}",
                    digest_now[:12],
                    "Pass the file that the baseline was made with, or make it again.",
                )
        return {query: [row] for query, row in zip(self.queries.ids, rows.tolist(), strict=True)}

    def repeat_search(self, positions: np.ndarray, asked: list[int], tell: Advance) -> None:
        """Compare the answers of the queries with `positions` with those of a brute-force search.

        `asked` are the numbers of their distinct queries, ascending.
        """
        from metric_oracle.verification import brute_force

        listed: dict[str, list[tuple[Any, ...]]] = {self.queries.ids[i]: [] for i in positions.tolist()}
        for query, *answer in zip(*(self.columns[name] for name in _LISTED), strict=True):
            if query in listed:
                listed[query].append(tuple(answer))
        at_once = int(np.clip(ROOM // (len(self.pairs.row_ptr) - 1), 1, BLOCK))
        for first in range(0, len(asked), at_once):
            block = asked[first : first + at_once]
            asked_now = [i for i in positions.tolist() if self.pairs.which[i] in block]
            best = brute_force.answers_of(
                self.pairs,
                block,
                self.k,
                tell,
                lists=[
                    brute_force.WantedList(block.index(int(self.pairs.which[i])), self.restrictions.excluded(i))
                    for i in asked_now
                ],
                min_score=self.restrictions.min_score,
            )
            fallback = np.zeros(best.rows.shape, bool)
            if self.falls_back:
                put_most_frequent_first(best, fallback, self.most_frequent)
            for line, i in enumerate(asked_now):
                lines = [array[line].tolist() for array in (*best[:3], fallback)]
                expected = [one for one in zip(range(1, self.k + 1), *lines, strict=True) if one[1] >= 0]
                if sorted(listed[self.queries.ids[i]]) != expected:
                    _fail("the answers", self.queries.ids[i], "differ from those of a brute-force search")


def put_most_frequent_first(answers: Answers, fallback: np.ndarray, row: int) -> None:
    """Put `row`, the most frequent report, first for queries whose best score is 0, and mark it in `fallback`.

    Yu et al. do so. `fallback`, bool[Q, k], is changed in place like `answers`. `retrieval.fall_back` does the same in
    a search; with this second implementation results are checked.
    """
    for q in np.flatnonzero(answers.scores[:, 0] == 0.0):
        others = answers.rows[q][answers.rows[q] != row]
        answers.rows[q] = np.r_[row, others][: answers.rows.shape[1]]
        fallback[q, 0] = True


@public
def verify(
    index: AnyIndex,
    results: Annotated[
        str | Path | Results,
        Doc(
            "File of results that [`retrieve`][metric_oracle.retrieve] or [`baseline`][metric_oracle.baseline] found "
            "in this index; in Python also the results themselves."
        ),
    ],
    queries: Queries,
    *,
    sample: Annotated[
        option_types.Count, Doc("Number of test reports, drawn at random, that are searched again by brute force.")
    ] = 20,
    seed: option_types.Seed = 0,
    corpus_vectors: option_types.CorpusVectors = None,
    query_vectors: option_types.QueryVectors = None,
    progress: Progress | None = None,
    tell: Annotated[
        Callable[[str], None] | None,
        Doc("Called with a note on what could not be verified; by default it is a warning."),
        IN_PYTHON,
    ] = None,
) -> dict[str, int]:
    """Check a result file: score it again with the reference scorer, and search a sample by brute force.

    Every column is checked. Without image embeddings, of a baseline nearest the scores are checked, but not which
    images are nearest. The command line also checks the files of the index; its exit code is 1 if anything differs.

    Returns
    -------
    dict of str to int
        Number of ``pairs`` that were scored again and of ``queries`` that were searched.

    Raises
    ------
    InputError
        If the results belong to another index or to other queries.
    BackendError
        If the encoder gives other token states on this machine than where the results were computed.
    ExactnessError
        If a value of the results differs.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index(["small effusion", "clear"], metrics="rouge-l")
    >>> results = mo.retrieve(index, ["small effusion"], "rouge-l")
    >>> mo.verify(index, results, ["small effusion"])
    {'pairs': 1, 'queries': 1}
    """
    results = results if isinstance(results, Results) else read_results(results)
    columns = columns_of(results)
    index = corpus_of(index, map(recorded_metric, [results.signature]), progress, exclude=columns)
    batch = loaded(queries, index, keep=columns)
    read = baselines.image_vectors({"corpus_vectors": corpus_vectors, "query_vectors": query_vectors})
    vectors = None
    if read:
        baselines.check_image_vectors(read)
        vectors = read["corpus_vectors"], read["query_vectors"]
    checked = _verify(index, results, batch, sample=sample, seed=seed, vectors=vectors, progress=progress)
    if vectors is None and results.signature.get("baseline") == "nearest":
        say("not verified: which rows are nearest, for which both sides' image vectors must be given", tell)
    return checked
