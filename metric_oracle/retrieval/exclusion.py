"""Which corpus rows a search excludes for each query, by what `SearchOptions.exclude` names.

Each rule is a column that has a value for each query and each corpus row; a row with the query's value is excluded.
Equal queries that exclude different rows get lists of their own, but share a search as long as these lists are few.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
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
from metric_oracle.kernels.topk.exclusion import NOTHING, Exclusion
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import compared

SELF, TEXT, SAME = RESERVED
AT_ONCE = 64  # lists of a distinct query that share a search: their rows in common raise the threshold
_FOLDED: WeakKeyDictionary[Index, pa.Array] = WeakKeyDictionary()


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

    def rounds(self, n: int) -> Iterable[tuple[int, Exclusion]]:
        """Yield, for n distinct queries, the number of each round's first list and the rows that its lists exclude."""
        begin = 0
        for end in self.ends:
            if self.exclusion is NOTHING:
                yield begin, NOTHING
            else:
                first = np.searchsorted(self.query[begin:end], np.arange(n + 1)).astype(np.int64)
                yield begin, self.exclusion._replace(first=first, wanted=self.exclusion.wanted[begin:end].copy())
            begin = end


class Excluded:
    """The corpus rows that the results of some queries exclude, in an index or in the shards of a set.

    `names` are those of `check_exclude`: the rules "self", "text" and "same", and columns that the index keeps.
    """

    def __init__(self, index: Index, queries: Reports, metric: Metric, names: Sequence[str]) -> None:
        self._names, self._index, self._record = names, index, of_order(metric)
        self._values: dict[str, Any] = {}
        for name in names:
            if name == SELF:
                self._values[name] = Strings(queries.ids).arrow
            elif name == TEXT:
                self._values[name] = pa.chunked_array([pa.array(map(folded, queries.texts), pa.large_string())])
            elif name == SAME:
                self._values[name] = self._documents(queries)
            elif name in queries.columns:
                self._values[name] = Strings(queries.columns[name]).arrow
            else:
                raise InputError(
                    f"the test reports have no column {shown(name)}, which `exclude` names.",
                    "Pass test reports with this column, or a folder that `mo.build_index` wrote with it.",
                )

    def of(self, shard: Index, representation: Documents, which: np.ndarray) -> ResultLists:
        """Return the lists of the queries for a shard; `which` is the distinct query of each query in that shard."""
        n = int(which.max()) + 1 if len(which) else 0
        if not self._names:
            return ResultLists(np.arange(n), which, [n], NOTHING)
        wanted, groups, offset = [], [], 0
        for name in self._names:
            of_query, of_row, size = self._codes(name, shard)
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
        ends = np.cumsum(np.bincount(number)).tolist()
        column, row = np.nonzero(group >= 0)
        group_ids = group[column, row]
        by_group = np.argsort(group_ids, kind="stable")
        ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(group_ids, minlength=offset))])
        document = documents_of_rows(representation.row_ptr, representation.row_id, shard.n_reports)
        exclusion = Exclusion(
            np.empty(0, np.int64),
            np.ascontiguousarray(distinct[order, 1:]),
            np.ascontiguousarray(group),
            ptr.astype(np.int64),
            row[by_group].astype(np.int64),
            document,
        )
        return ResultLists(distinct[order, 0], place[of_query.reshape(-1)], ends, exclusion)

    def _codes(self, name: str, shard: Index) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the group of each query, int64[Q], and of each row of a shard by the rule `name`, and their number.

        A group is -1 for none. A row is excluded if it has the query's group.
        """
        import pyarrow.compute as pc

        values = self._values[name]
        if name == SAME:
            return self._same(values, shard)
        distinct = values.unique()
        if name not in (SELF, TEXT):
            distinct = distinct.filter(pc.not_equal(distinct, ""))

        def codes(strings: Any) -> np.ndarray:
            """Return the group of each string, -1 for strings that no query has."""
            group = pc.fill_null(pc.index_in(strings, value_set=distinct), -1)
            return np.asarray(group).astype(np.int64)

        if name == TEXT:
            of_row = codes(_folded(shard))[np.asarray(shard.reports["distinct_id"])]
        else:
            of_row = codes(shard.strings("study_id" if name == SELF else name))
        return codes(values), of_row, len(distinct)

    def _documents(self, queries: Reports) -> np.ndarray:
        """Return the document of each query, int64[Q], in the representation of all shards; -1 if it has none.

        Raise InputError unless each query is a row of the index: its id and text are those of one row.
        """
        import pyarrow.compute as pc

        ids = Strings(queries.ids).arrow
        rows = np.full(len(ids), -1, np.int64)
        for shard in self._index.shards():
            place = np.asarray(pc.fill_null(pc.index_in(ids, value_set=shard.strings("study_id")), -1)).astype(np.int64)
            rows = np.where(place >= 0, place + shard.first_row, rows)
        texts = None if (rows < 0).any() else self._index.take("text", rows)
        if texts is None or not texts.combine_chunks().equals(Strings(queries.texts).arrow.combine_chunks()):
            raise InputError(
                "exclude",
                "must be other than same for test reports that are no rows of the index",
                "reports with other ids or texts",
                "Give `mo.SearchOptions(exclude='text')`, or the reports of the index.",
            )
        return self._document_of_row[rows]

    @cached_property
    def _parts(self) -> list[tuple[Index, Documents]]:
        """The indexes whose documents are compared, see `document_pairs.compared`."""
        return compared(self._index, self._record)

    @cached_property
    def _document_of_row(self) -> np.ndarray:
        """The document of each corpus row, numbered over all parts, -1 for none: int64[N]."""
        documents, first = np.full(self._index.n_reports, -1, np.int64), 0
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

    def _same(self, documents: np.ndarray, shard: Index) -> tuple[np.ndarray, np.ndarray, int]:
        """Return what `_codes` does for the rule "same": a row is excluded if its document equals that of the query.

        `documents` has the document of each query, as `_documents` returns them.
        """
        of_row = self._document_of_row[shard.first_row : shard.first_row + shard.n_reports]
        if len(self._parts) == 1:  # whose documents are distinct
            return documents, of_row, len(self._parts[0][1].row_ptr) - 1
        # Documents of two shards are equal where their keys are.
        distinct, which = np.unique(documents, return_inverse=True)
        keys: dict[Any, int] = {}
        group = np.array([-1 if d < 0 else keys.setdefault(self._key(d), len(keys)) for d in distinct.tolist()])
        own, place = np.unique(of_row, return_inverse=True)
        of_own = np.array([-1 if d < 0 else keys.get(self._key(d), -1) for d in own.tolist()])
        return group[which.reshape(-1)], of_own[place.reshape(-1)], len(keys)


def of_order(metric: Metric) -> Metric:
    """Return the metric of a search without its conditions.

    Only the metrics that rank reports decide which reports count as the same.
    """
    if len(metric.terms) == 1 and not metric.is_weighted:
        return next(iter(metric.metrics.values()))
    return replace(metric, conditions=())


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
