"""What a search leaves out of its lists: corpus rows that rules exclude, and scores that are too bad.

`Restrictions` are what the options of a search demand of some queries, named as in a signature. The search, its
verification and the counts of mining ask this object alone. A rule has two forms, side by side: `groups`, from which a
kernel learns what each list excludes, and `rows`, a plain comparison by which a result is verified.

Equal queries that exclude different rows get lists of their own, but share a search as long as these lists are few.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.kept_columns import RESERVED
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.texts import folded
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.lists import documents_of_rows
from metric_oracle.indexes.store import Strings, to_arrow
from metric_oracle.kernels.contract import Answers
from metric_oracle.kernels.topk.exclusion import NOTHING, Exclusion
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import Part, compared

SELF, TEXT, SAME = RESERVED
AT_ONCE = 64  # lists of a distinct query that share a search: their rows in common raise the threshold
_NO_ROWS = np.empty(0, np.int64)
_FOLDED: WeakKeyDictionary[Index, pa.Array] = WeakKeyDictionary()


class Restrictions:
    """What the lists of some queries leave out, in an index or in the shards of a set."""

    def __init__(self, index: Index, queries: Reports, metric: Metric, recorded: Mapping[str, Any]) -> None:
        """Make the rules of the options `recorded`, named as in a signature: `exclude`, `min_score`, `where`.

        The conditions of `where` are those of the metric. Raise InputError if the queries lack a column, or do not fit
        a rule.
        """
        self._metric, self._n_queries = metric, len(queries.ids)
        self.min_score: float | None = recorded.get("min_score")
        self.is_empty = not recorded
        excluded = recorded.get("exclude", ())
        # By the name under which mining counts what each leaves out.
        self.rules: dict[str, Rule] = {
            f"exclude {name}": _excluded_by(name, index, queries, metric) for name in excluded
        }

    def lists(self, part: Part) -> "ResultLists":
        """Return the lists of the queries for a shard, which rules divide; they have their exclusions."""
        which, n = part.encoded.document_of_row, len(part.encoded.row_ptr) - 1
        if not self.rules:
            return ResultLists(np.arange(n), which, [n], NOTHING)
        wanted, groups, offset = [], [], 0
        for rule in self.rules.values():
            of_query, of_row, size = rule.groups(part.shard)
            has_rows = np.append(np.bincount(of_row[of_row >= 0], minlength=size) > 0, False)
            wanted.append(np.where(has_rows[of_query], of_query + offset, -1))
            groups.append(np.where(of_row >= 0, of_row + offset, -1))
            offset += size
        group = np.stack(groups)
        keys = np.stack([which, *wanted], axis=1)
        distinct, of_query = np.unique(keys, axis=0, return_inverse=True)
        first = np.searchsorted(distinct[:, 0], np.arange(n))
        number = (np.arange(len(distinct)) - first[distinct[:, 0]]) // AT_ONCE
        order = np.argsort(number, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        exclusion = _exclusion_of(distinct[order, 1:], group, offset, part)
        ends = np.cumsum(np.bincount(number)).tolist()
        return ResultLists(distinct[order, 0], place[of_query.reshape(-1)], ends, exclusion)

    def excluded(self, query: int) -> np.ndarray:
        """Return the corpus rows that the rules exclude for a query, by plain comparisons: int64[n], ascending."""
        return np.unique(np.concatenate([_NO_ROWS, *(rule.rows(query) for rule in self.rules.values())]))

    def reached(self, scores: np.ndarray) -> np.ndarray:
        """Return whether each score may be listed."""
        if self.min_score is None:
            return np.ones(scores.shape, bool)
        return self._metric.sign * scores >= self._metric.sign * self.min_score

    @property
    def limit(self) -> np.ndarray | None:
        """The score that a row must reach to be listed, for each query: float64[Q]; None for no limit."""
        return None if self.min_score is None else np.full(self._n_queries, self.min_score)

    def of_scores(self, scores: np.ndarray, components: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name of each restriction on scores, and which of some pairs it leaves out: bool[n].

        `components` has the scores under the metrics of conditions.
        """
        for condition in self._metric.conditions:
            name = f"where {condition.metric.name}{condition.symbol}{condition.value:g}"
            yield name, ~condition.holds(components[condition.metric.name])
        if self.min_score is not None:
            yield "min_score", ~self.reached(scores)


class Rule(Protocol):
    """A rule by which queries exclude corpus rows."""

    def groups(self, shard: Index) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the group of each query, int64[Q], and of each row of a shard, and the number of groups.

        A group is -1 for none. A row is excluded if it has the query's group.
        """

    def rows(self, query: int) -> np.ndarray:
        """Return the corpus rows that a query excludes, int64[n], by plain comparisons that do not use `groups`."""


class _SameValue:
    """Exclude the rows with the query's value: its id, its text up to spelling, or its entry in a column."""

    def __init__(self, name: str, index: Index, queries: Reports) -> None:
        self._name, self._index = name, index
        if name == SELF:
            self._values = Strings(queries.ids).arrow
        elif name == TEXT:
            self._values = pa.chunked_array([pa.array(map(folded, queries.texts), pa.large_string())])
        elif name in queries.columns:
            self._values = Strings(queries.columns[name]).arrow
        else:
            raise InputError(
                f"the test reports have no column {shown(name)}, which `exclude` names.",
                "Pass test reports with this column, or a folder that `mo.build_index` wrote with it.",
            )

    def groups(self, shard: Index) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the groups of equal values, see `Rule`; an empty entry of a column is in none."""
        import pyarrow.compute as pc

        distinct = self._values.unique()
        if self._name not in (SELF, TEXT):
            distinct = distinct.filter(pc.not_equal(distinct, ""))

        def codes(strings: Any) -> np.ndarray:
            """Return the group of each string, -1 for strings that no query has."""
            group = pc.fill_null(pc.index_in(strings, value_set=distinct), -1)
            return np.asarray(group).astype(np.int64)

        if self._name == TEXT:
            of_row = codes(_folded(shard))[np.asarray(shard.reports["distinct_id"])]
        else:
            of_row = codes(shard.strings(self._column))
        return codes(self._values), of_row, len(distinct)

    def rows(self, query: int) -> np.ndarray:
        """Return the rows with the query's value, see `Rule`."""
        value = self._values[query].as_py()
        if value == "" and self._name not in (SELF, TEXT):
            return _NO_ROWS
        return self._rows_by_value.get(value, _NO_ROWS)

    @property
    def _column(self) -> str:
        """The column of the index that has the rows' values."""
        return {SELF: "study_id", TEXT: "text"}.get(self._name, self._name)

    @cached_property
    def _rows_by_value(self) -> dict[str, np.ndarray]:
        """The corpus rows of each value, int64[n]."""
        rows: dict[str, list[int]] = {}
        for shard in self._index.shards():
            for row, value in enumerate(shard.strings(self._column).to_pylist(), shard.first_row):
                rows.setdefault(folded(value) if self._name == TEXT else value, []).append(row)
        return {value: np.array(of_value, np.int64) for value, of_value in rows.items()}


class _SameDocument:
    """Exclude the rows whose documents equal the query's, which is a row of the index: equal for the metric."""

    def __init__(self, index: Index, queries: Reports, metric: Metric) -> None:
        self._parts = compared(index, metric.order)
        self._document_of_row = self._numbered(index)
        self._rows = _rows_of(queries, index)
        self._documents = self._document_of_row[self._rows]  # of each query

    def groups(self, shard: Index) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the groups of equal documents, see `Rule`."""
        of_row = self._document_of_row[shard.first_row : shard.first_row + shard.n_reports]
        if len(self._parts) == 1:  # whose documents are distinct
            return self._documents, of_row, len(self._parts[0][1].row_ptr) - 1
        # Documents of two shards are equal where their keys are.
        distinct, which = np.unique(self._documents, return_inverse=True)
        keys: dict[Any, int] = {}
        group = np.array([-1 if d < 0 else keys.setdefault(self._key(d), len(keys)) for d in distinct.tolist()])
        own, place = np.unique(of_row, return_inverse=True)
        of_own = np.array([-1 if d < 0 else keys.get(self._key(d), -1) for d in own.tolist()])
        return group[which.reshape(-1)], of_own[place.reshape(-1)], len(keys)

    def rows(self, query: int) -> np.ndarray:
        """Return the rows of documents with the same key, see `Rule`."""
        row, key, same = int(self._rows[query]), None, [_NO_ROWS]
        for shard, part in self._parts:
            if shard.first_row <= row < shard.first_row + len(part.document_of_row):
                document = int(part.document_of_row[row - shard.first_row])
                key = None if document < 0 else part.key(document)
        for shard, part in self._parts if key is not None else ():
            for document in range(len(part.row_ptr) - 1):
                if part.key(document) == key:
                    rows = part.row_id[part.row_ptr[document] : part.row_ptr[document + 1]]
                    same.append(rows + shard.first_row)
        return np.concatenate(same)

    def _numbered(self, index: Index) -> np.ndarray:
        """Return the document of each corpus row, numbered over all parts, -1 for none: int64[N]."""
        documents, first = np.full(index.n_reports, -1, np.int64), 0
        for shard, part in self._parts:
            of_row = part.document_of_row
            begin = shard.first_row
            documents[begin : begin + len(of_row)] = np.where(of_row >= 0, of_row + first, -1)
            first += len(part.row_ptr) - 1
        return documents

    def _key(self, document: int) -> Any:
        """Return a value that equal documents of any parts have, and only they."""
        for _, part in self._parts:
            n_documents = len(part.row_ptr) - 1
            if document < n_documents:
                return part.key(document)
            document -= n_documents
        raise AssertionError(document)


def _excluded_by(name: str, index: Index, queries: Reports, metric: Metric) -> Rule:
    """Return the rule that a name in `exclude` stands for: "self", "text", "same" or a column that the index keeps."""
    return _SameDocument(index, queries, metric) if name == SAME else _SameValue(name, index, queries)


def _rows_of(queries: Reports, index: Index) -> np.ndarray:
    """Return the corpus row of each query: int64[Q].

    Raise InputError unless each query is a row of the index: its id and text are those of one row.
    """
    import pyarrow.compute as pc

    ids = Strings(queries.ids).arrow
    rows = np.full(len(ids), -1, np.int64)
    for shard in index.shards():
        place = np.asarray(pc.fill_null(pc.index_in(ids, value_set=shard.strings("study_id")), -1)).astype(np.int64)
        rows = np.where(place >= 0, place + shard.first_row, rows)
    texts = None if (rows < 0).any() else index.take("text", rows)
    if texts is None or not texts.combine_chunks().equals(Strings(queries.texts).arrow.combine_chunks()):
        raise InputError(
            "exclude",
            "must be other than same for test reports that are no rows of the index",
            "reports with other ids or texts",
            "Give `mo.SearchOptions(exclude='text')`, or the reports of the index.",
        )
    return rows


@dataclass(frozen=True)
class ResultLists:
    """The result lists of a search of one index.

    A list has the k best rows of a distinct query without the rows that one set of exclusions leaves out. A distinct
    query has several lists where equal test reports exclude different rows. Lists are searched in rounds.
    """

    query: np.ndarray  # int64[L], distinct query of each list, ascending within a round
    of_query: np.ndarray  # int64[Q], number of each query's list
    ends: list[int]  # end of each round, in which a distinct query has `AT_ONCE` lists at most
    exclusion: Exclusion  # excluded rows of all lists; its `first` is empty, `rounds` sets it for each round

    def rounds(self, answers: Answers) -> Iterator[tuple[int, Answers]]:
        """Yield, for each round, the number of its first list, and the part of `answers` that is its own."""
        begin, n = 0, len(answers.limit)
        for end in self.ends:
            exclusion = NOTHING
            if self.exclusion is not NOTHING:
                first = np.searchsorted(self.query[begin:end], np.arange(n + 1)).astype(np.int64)
                exclusion = self.exclusion._replace(first=first, wanted=self.exclusion.wanted[begin:end].copy())
            rows, scores, ties = (column[begin:end] for column in answers[:3])
            yield begin, Answers(rows, scores, ties, answers.limit, exclusion)
            begin = end


def _exclusion_of(wanted: np.ndarray, group: np.ndarray, n_groups: int, part: Part) -> Exclusion:
    """Return the rows that each list of a shard excludes.

    `wanted`, int64[L, G], has the groups that each list excludes, `group`, int64[G, N], those of each row.
    """
    column, row = np.nonzero(group >= 0)
    group_ids = group[column, row]
    by_group = np.argsort(group_ids, kind="stable")
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(group_ids, minlength=n_groups))])
    representation: Documents = part.representation
    return Exclusion(
        np.empty(0, np.int64),
        np.ascontiguousarray(wanted),
        np.ascontiguousarray(group),
        ptr.astype(np.int64),
        row[by_group].astype(np.int64),
        documents_of_rows(representation.row_ptr, representation.row_id, part.shard.n_reports),
    )


def _folded(shard: Index) -> pa.Array:
    """Return the distinct texts of an index, normalised for comparison (case, white space, Unicode form); cached."""
    if shard not in _FOLDED:
        texts = shard.distinct["text"].to_pylist()
        _FOLDED[shard] = to_arrow([folded(text) for text in texts])
    return _FOLDED[shard]


def check_exclude(names: Any, index: Index) -> tuple[str, ...]:
    """Return the rules and columns in `names`, a text with commas or a sequence, each once, or raise InputError.

    The index must keep the columns.
    """
    listed = names.split(",") if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    allowed = (*RESERVED, *index.columns)
    wrong = [name for name in listed if not isinstance(name, str) or name.strip() not in allowed]
    if wrong:
        raise InputError(
            "exclude",
            f"must be among {', '.join(allowed)}",
            shown(wrong[0]),
            "Columns are stored with `keep=COLUMN` of `mo.build_index`.",
        )
    return tuple(dict.fromkeys(name.strip() for name in listed))
