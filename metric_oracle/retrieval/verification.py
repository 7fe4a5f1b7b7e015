"""Check a result file: every pair scored again by the reference, a sample of queries searched by brute force."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metric_oracle.corpora.tables import shown_names
from metric_oracle.corpora.vectors import Vectors
from metric_oracle.errors import BackendError, ExactnessError, InputError
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import Metric, get_metric
from metric_oracle.progress import Count, Progress, counter
from metric_oracle.retrieval import baselines, brute_force
from metric_oracle.retrieval.answers import most_frequent_row, put_most_frequent_first
from metric_oracle.retrieval.checks import check_queries, check_section
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.composite.weights import metric_of
from metric_oracle.retrieval.kernels import load_kernel, load_reference
from metric_oracle.retrieval.results import Results
from metric_oracle.retrieval.search import BLOCK, digest
from metric_oracle.retrieval.sharded import rows_like
from metric_oracle.sources.inputs import Inputs

# Settings of a search by their names in the signature.
_SETTINGS = {"idf": "idf", "rescale": "rescaled", "prevalence": "prevalence"}
_LISTED = ("query_id", "rank", "row", "score", "n_ties", "fallback")
ROOM = 1 << 26  # scores of a block of queries with all candidates: half a GB


def verify(
    index: Index,
    results: Results,
    queries: Inputs,
    *,
    sample: int = 20,
    seed: int = 0,
    vectors: tuple[Vectors, Vectors] | None = None,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Check every column of a result, and search `sample` of its queries by brute force.

    Of every line the score and its components are made again by the plain scorer, and the ids, texts, ranks,
    `fallback` and `exact` compared; `n_ties` too, but for those of the last score of a query, which rows that are not
    listed may have as well: these, and whether the right rows are listed at all, only the search finds, see
    `retrieval.brute_force`.

    Of a baseline's result, which claims no search, the choice of the rows is made again: draws by the seed in the
    signature, the most frequent report, the query itself. That of "nearest" is made again where its image vectors are
    given.

    Parameters
    ----------
    index : Index
    results : Results
    queries : Inputs
        All queries of the result.
    sample, seed : int
    vectors : (corpus, query), each Vectors
        What "nearest" chose the rows by.
    progress : function
        Called as ``progress("pairs", done, total)``.

    Returns
    -------
    dict
        ``pairs`` scored again and ``queries`` searched.

    Raises
    ------
    InputError
        If the result belongs to another index, or to other queries.
    BackendError
        If the encoder gives other token states here than where the result was made.
    ExactnessError
        If a value of the result differs.
    """
    signature = results.signature
    if signature.get("index") != index.fingerprint:
        msg = (
            f"verify: results must belong to this index, fingerprint {index.fingerprint[:12]}; got "
            f"{str(signature.get('index'))[:12]}. Pass the index that they were made with."
        )
        raise InputError(msg)
    check_section(queries, index)
    record = get_metric(metric_of(signature, "verify"), "verify")
    k = signature.get("k")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        msg = f"verify: k in the signature must be an int of at least 1; got {k!r}. Retrieve again."
        raise InputError(msg)
    kind = signature.get("baseline")
    if kind is not None and kind not in tuple(baselines.KINDS):
        known = ", ".join(baselines.KINDS)
        msg = f"verify: baseline in the signature must be one of {known}; got {kind!r}. Retrieve again."
        raise InputError(msg)
    if vectors is not None and kind != "nearest":
        what = "an oracle's answers" if kind is None else f"baseline {kind!r}"
        msg = f"verify: vectors must be left out for {what}; got some. They choose the rows of baseline 'nearest'."
        raise InputError(msg)
    for name, value in (("sample", sample), ("seed", seed)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            msg = f"verify: {name} must be an int of at least 0; got {value!r}. Choose one."
            raise InputError(msg)
    columns = {name: results.table[name].to_pylist() for name in results.table.column_names if name != "text"}
    _check_ids(columns["query_id"], queries, signature)
    index.check_holds(record)
    check_queries(queries, record, index)

    representation = representation_of(index, record)
    settings = {name: signature[_SETTINGS[name]] for name in record.settings if _SETTINGS[name] in signature}
    encoded = representation.encode(queries, **settings)
    _check_states(signature, encoded.settings)
    chosen = np.sort(np.random.default_rng(seed).permutation(len(queries.ids))[: 0 if kind else sample])
    asked = np.unique(encoded.which[chosen]).tolist()
    total = len(columns["row"]) + brute_force.n_pairs(record, representation, encoded, asked)
    tell = counter(progress, "pairs", total)
    check = _Check(index, record, representation, encoded, queries, results, columns, kind, k, vectors)
    check.pairs(tell)
    check.names()
    check.lists()
    if kind is None:
        check.search(chosen, asked, tell)
    return {"pairs": len(columns["row"]), "queries": len(chosen)}


def _check_ids(ids: Sequence[str], queries: Inputs, signature: Mapping[str, Any]) -> None:
    """Raise unless the result is of these queries, all of them."""
    answered, asked = set(ids), set(queries.ids)
    unknown = sorted(answered - asked)
    if unknown:
        msg = (
            f"verify: results must be of these queries; got {len(unknown)} query ids that are not among them "
            f"({shown_names(unknown[:3])}). Pass the queries that they were made with."
        )
        raise InputError(msg)
    lacking = [query for query in queries.ids if query not in answered]
    if lacking:
        msg = (
            f"verify: results must answer every query; got none for {len(lacking)} of {len(queries.ids)} "
            f"({shown_names(lacking[:3])}). The file was cut, or made with other queries: retrieve again."
        )
        raise InputError(msg)
    made_of = signature.get("references")
    if made_of is not None and made_of != digest(queries):
        msg = (
            f"verify: results must be of these queries, SHA-256 {digest(queries)[:12]}; got {str(made_of)[:12]}: other "
            "texts under the same ids. Pass the queries that they were made with."
        )
        raise InputError(msg)


def _check_states(signature: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise where the encoder gives other token states than those that the scores were made of."""
    then, now = signature.get("states_digest"), settings.get("states_digest")
    if then is None or now is None or then == now:
        return
    before, here = signature.get("environment") or {}, settings.get("environment") or {}
    differ = [
        f"{name} {before.get(name)!r} then, {value!r} now" for name, value in here.items() if before.get(name) != value
    ]
    msg = (
        f"verify: token states of the queries must be those that the results were made of, SHA-256 {str(then)[:12]}; "
        f"got {str(now)[:12]} ({'; '.join(differ) or 'in the same environment'}). The file is not to blame: verify it "
        "where it was made, or retrieve again here."
    )
    raise BackendError(msg)


def _fail(what: str, query: str, rest: str, step: str = "") -> NoReturn:
    step = step or "The results were altered, or are of another version"
    msg = f"verify: {what} of query {shown_names([query])} {rest}. {step}: retrieve again."
    raise ExactnessError(msg)


def _shown(value: Any) -> str:
    """Return a number or truth value as it is; of anything else, which may be a text, the type."""
    return repr(value) if value is None or isinstance(value, bool | int | float) else type(value).__name__


@dataclass(frozen=True)
class _Check:
    """A result beside what it must be; each method raises an ExactnessError that names the query."""

    index: Index
    record: Metric
    representation: Representation
    encoded: EncodedQueries
    queries: Inputs
    results: Results
    columns: Mapping[str, list[Any]]
    baseline: str | None
    k: int
    vectors: tuple[Vectors, Vectors] | None = None
    scored: dict[tuple[int, int], tuple[float, dict[str, Any]]] = field(default_factory=dict)

    @cached_property
    def place(self) -> dict[str, int]:
        """The place of each query."""
        return {query: i for i, query in enumerate(self.queries.ids)}

    @cached_property
    def most_frequent(self) -> int:
        """The row that RadGraph falls back to."""
        return most_frequent_row(self.index, self.representation.row_id)

    @cached_property
    def units(self) -> list[int]:
        """The unit of each line, -1 for a row that the metric cannot score."""
        of_row = self.representation.unit_of_row
        return [int(of_row[row]) if 0 <= row < len(of_row) else -1 for row in self.columns["row"]]

    @cached_property
    def n_rows_like(self) -> dict[int, int]:
        """The rows of each unit that is listed, of -1 none."""
        units = np.unique([unit for unit in self.units if unit >= 0]).astype(np.int64)
        return {-1: 0, **dict(zip(units.tolist(), rows_like(self.representation, units).tolist(), strict=True))}

    def plain(self, q: int, unit: int) -> tuple[float, dict[str, Any]]:
        """Return plain score and components of a distinct query and a unit, or -1 for the query itself."""
        if (q, unit) not in self.scored:
            candidate = self.encoded.own(q) if unit < 0 else self.representation.candidate(unit, self.encoded)
            self.scored[q, unit] = load_reference(self.record)(candidate, self.encoded.item(q))
        return self.scored[q, unit]

    def pairs(self, tell: Count) -> None:
        """Compare scores, components and `exact` of every line."""
        which = self.encoded.which.tolist()
        exact = self.baseline is not None or load_kernel(self.record, "cpu").capabilities.exact
        names = self.results.components
        for line, (query, row, value, unit) in enumerate(
            zip(*(self.columns[name] for name in ("query_id", "row", "score")), self.units, strict=True)
        ):
            again, components = None, dict.fromkeys(names)
            if unit >= 0 if self.baseline != "identity" else row == -1:
                again, components = self.plain(which[self.place[query]], unit)
            if again != value:
                _fail("the score", query, f"and row {row} must be {again!r}; got {_shown(value)}")
            if components.keys() != set(names):
                _fail("the components", query, f"and row {row} must be {', '.join(components) or 'none'}; got others")
            for name, right in {**components, "exact": exact}.items():
                got = self.columns[name][line]
                if got != right:
                    _fail(name, query, f"and row {row} must be {right!r}; got {_shown(got)}")
            tell(1)

    def names(self) -> None:
        """Compare the ids and texts of the candidates."""
        ids = self.columns["query_id"]
        asked = {"study_id": self.queries.ids, "text": self.queries.texts}
        for name, column in (("candidate_id", "study_id"), ("text", "text")):
            if name not in self.results.table.column_names:
                continue
            if self.baseline == "identity":
                right = pa.array([asked[column][self.place[query]] for query in ids], pa.large_string())
            else:
                right = self.index.take(column, np.array(self.columns["row"], np.int64))
            same = pc.fill_null(pc.equal(self.results.table[name].cast(pa.large_string()), right), False)
            line = pc.index(same, False).as_py()
            if line >= 0:
                of_row = f"and row {self.columns['row'][line]} must be that of the index; got another"
                _fail(name, ids[line], of_row, "The results were altered")

    def lists(self) -> None:
        """Compare what follows from all lines of a query: ranks, order, ties, fall-back, a baseline's rows."""
        listed: dict[str, list[tuple[Any, ...]]] = {}
        for query, *answer in zip(*(self.columns[name] for name in _LISTED), self.units, strict=True):
            listed.setdefault(query, []).append(tuple(answer))
        for query, answers in listed.items():
            answers.sort()
            ranks = [rank for rank, *_ in answers]
            if len(ranks) != self.k or ranks != list(range(1, len(ranks) + 1)):
                rest = f"must have the ranks 1 to {self.k}; got others"
                _fail("the answers", query, rest, "The results were cut or altered")
        rows = [] if self.baseline is None else self._rows_of_baseline(list(listed))
        for query, answers in listed.items():
            if self.baseline is None:
                self._check_ranked(query, answers)
                continue
            _, found, _, ties, fallback, units = zip(*answers, strict=True)
            if rows and list(found) not in [some[query] for some in rows]:
                _fail("the rows", query, f"must be those of baseline {self.baseline!r}; got others")
            self._compare(query, "fallback", found, fallback, [False] * self.k)
            self._compare(query, "n_ties", found, ties, [self.n_rows_like[unit] for unit in units])

    def _n_rows(self, unit: int) -> int:
        return 0 if unit < 0 else int(self.representation.row_ptr[unit + 1] - self.representation.row_ptr[unit])

    def _check_ranked(self, query: str, answers: Sequence[tuple[Any, ...]]) -> None:
        _, rows, scores, ties, fallback, units = zip(*answers, strict=True)
        falls = self.record.fallback and scores[0] == 0
        if falls and rows[0] != self.most_frequent:
            _fail("the first answer", query, f"must be row {self.most_frequent}, the most frequent report; got another")
        self._compare(query, "fallback", rows, fallback, [falls, *[False] * (self.k - 1)])
        sign = -1 if self.record.higher_is_better else 1
        order = [(sign * score, row) for score, row in zip(scores, rows, strict=True)][1 if falls else 0 :]
        if len(set(rows)) < self.k or order != sorted(order):
            rest = f"must be {self.k}, ranked by score, then row; got others"
            _fail("the answers", query, rest, "The results were cut or altered")
        # All rows with a score before the last one are listed; of that one others may have it too.
        times = Counter(scores)
        least = sum(map(self._n_rows, {u for u, score in zip(units, scores, strict=True) if score == scores[-1]}))
        right = [times[score] if score != scores[-1] else max(ties[-1], least) for score in scores]
        self._compare(query, "n_ties", rows, ties, right)

    def _compare(self, query: str, name: str, rows: Sequence[int], got: Sequence[Any], right: Sequence[Any]) -> None:
        for row, one, other in zip(rows, got, right, strict=True):
            if one != other:
                _fail(name, query, f"and row {row} must be {other}; got {_shown(one)}")

    def _rows_of_baseline(self, order: list[str]) -> list[dict[str, list[int]]]:
        """Return the rows that each query may have by a baseline's rule; none where they cannot be known here."""
        if self.baseline == "nearest":
            return [] if self.vectors is None else [self._nearest(*self.vectors)]
        if self.baseline != "random":
            row = -1 if self.baseline == "identity" else self.most_frequent
            return [{query: [row] for query in order}]
        seed = self.results.signature.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            msg = f"verify: seed in the signature must be an int of at least 0; got {seed!r}. Make the baseline again."
            raise InputError(msg)
        drawn = baselines.drawn_rows(self.representation, len(order), seed, self.k).tolist()
        # The draws go by the order of the queries, and these may come in another one than then.
        return [dict(zip(ids, drawn, strict=True)) for ids in (self.queries.ids, order)]

    def _nearest(self, corpus: Vectors, asked: Vectors) -> dict[str, list[int]]:
        """Return the row of each query by image vectors, once these are known to be those of the result."""
        rows, chosen_by = baselines.nearest_rows(self.index, self.queries, self.representation, corpus, asked)
        then = self.results.signature.get("vectors")
        for side, digest_now in chosen_by["vectors"].items():
            digest_then = str(then.get(side)) if isinstance(then, Mapping) else "none"
            if digest_then != digest_now:
                msg = (
                    f"verify: {side}_vectors must be those that the rows were chosen by, SHA-256 {digest_then[:12]}; "
                    f"got {digest_now[:12]}. Pass the file that the baseline was made with, or make it again."
                )
                raise InputError(msg)
        return {query: [row] for query, row in zip(self.queries.ids, rows.tolist(), strict=True)}

    def search(self, chosen: np.ndarray, asked: list[int], tell: Count) -> None:
        """Compare the answers of some queries with those of a search by brute force."""
        listed: dict[str, list[tuple[Any, ...]]] = {self.queries.ids[i]: [] for i in chosen.tolist()}
        for query, *answer in zip(*(self.columns[name] for name in _LISTED), strict=True):
            if query in listed:
                listed[query].append(tuple(answer))
        which = self.encoded.which[chosen]
        at_once = int(np.clip(ROOM // (len(self.representation.row_ptr) - 1), 1, BLOCK))
        for first in range(0, len(asked), at_once):
            some = asked[first : first + at_once]
            found = brute_force.search(
                self.record,
                self.representation,
                self.encoded,
                some,
                self.k,
                lambda q, unit: self.plain(q, unit)[0],
                tell,
            )
            fallback = np.zeros(found.rows.shape, bool)
            if self.record.fallback:
                put_most_frequent_first(found, fallback, self.most_frequent)
            for place, q in enumerate(some):
                lines = [array[place].tolist() for array in (*found[:3], fallback)]
                right = list(zip(range(1, self.k + 1), *lines, strict=True))
                for i in chosen[which == q].tolist():
                    if sorted(listed[self.queries.ids[i]]) != right:
                        rest = "must be those of a brute-force search; got others"
                        _fail("the answers", self.queries.ids[i], rest)
