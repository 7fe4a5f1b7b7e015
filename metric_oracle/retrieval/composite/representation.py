"""Representation of a composite: the representations of its terms, joined row by row. It has no files of its own."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.lists import documents_of_rows, group_rows
from metric_oracle.indexes.shards import ShardSet
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.records import Metric

_JOINED: WeakKeyDictionary[Index, dict[tuple[bool, tuple[str, ...]], Any]] = WeakKeyDictionary()


def representation_of(index: Index, metric: Metric) -> Documents:
    """Return the representation that a metric reads from an index; the caller has checked that the index has it.

    For a metric of terms several are joined, once per index, and so are those of the shards of a set whose documents
    are joined (`is_joined`); the shards of any other set have one each, see `document_pairs.compared`.
    """
    is_set = isinstance(index, ShardSet)
    if not metric.terms and not is_set:
        return index.part(metric.representation)
    joined = _JOINED.setdefault(index, {})
    terms = tuple(dict.fromkeys(term.metric.representation for term in metric.terms.values()))
    kinds = terms or (metric.representation,)
    key = bool(terms), kinds
    if key not in joined:
        if is_set:
            parts = [(shard.first_row, representation_of(shard, metric)) for shard in index.shards()]
            stored: Any = type(parts[0][1])
            joined[key] = stored.of_shards(parts)
        else:
            joined[key] = CompositeIndex.join({kind: index.part(kind) for kind in kinds})
    return joined[key]


def is_joined(index: Index, metric: Metric) -> bool:
    """Return whether an index is a shard set whose documents, under a metric, are joined into those of a single index.

    CheXbert's label vectors are: they are few, and every shard has most of them.
    """
    is_single = isinstance(index, ShardSet) and not metric.terms
    return is_single and hasattr(metric.reads.load_class(), "of_shards")


class CompositeCorpus(NamedTuple):
    """Arrays of a corpus for a search under a composite; see `CompositeIndex`."""

    parts: dict[str, Any]  # name of a term -> named tuple of its kernel
    document_of: dict[str, np.ndarray]  # name of a representation -> its document in each combination
    row_ptr: np.ndarray  # int64[D + 1], where the rows of each combination begin in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows


class CompositeBatch(NamedTuple):
    """Arrays of the distinct queries for a search under a composite."""

    parts: dict[str, Any]  # name of a representation -> named tuple of its kernels
    place: dict[str, np.ndarray]  # name of a representation -> its distinct query in each combination

    def of(self, q: int, kind: str) -> int:
        """Return the number of the distinct query of representation `kind` that combination `q` contains."""
        return int(self.place[kind][q])


@dataclass(frozen=True)
class CompositeIndex(Documents):
    """Distinct combinations of the documents of several representations."""

    parts: dict[str, Documents]  # name of a representation -> opened representation
    document_of: dict[str, np.ndarray]  # name of it -> int32[D], its document in each combination; BERTScore's ascend
    row_ptr: np.ndarray  # int64[D + 1], where the rows of each combination begin in `row_id`
    row_id: np.ndarray  # int64[N], corpus rows, without those that lack one of the representations

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "CompositeIndex":
        """Join the representations of one corpus, by name, on its rows."""
        n_rows = max(len(part.document_of_row) for part in parts.values())
        # BERTScore, which a model encodes, comes first, so that its documents ascend.
        names = sorted(parts, key=lambda name: not REPRESENTATIONS[name].is_encoded)
        columns = [documents_of_rows(parts[name].row_ptr, parts[name].row_id, n_rows) for name in names]
        table = np.stack(columns, axis=1)
        complete = np.flatnonzero((table >= 0).all(axis=1))
        distinct, which = np.unique(table[complete], axis=0, return_inverse=True)
        item_of_row = np.full(n_rows, -1, np.int64)
        item_of_row[complete] = which.reshape(-1)
        document_of = {name: distinct[:, i].astype(np.int32) for i, name in enumerate(names)}
        row_ptr, row_id = group_rows(item_of_row, len(distinct))
        return cls(parts, document_of, row_ptr, row_id)

    def encode(self, reports: Reports, **settings: Any) -> "CompositeQueries":
        """Return the queries in `reports` encoded for each representation, with the settings that it has."""
        return self._joined(
            {name: part.encode(reports, **_of_part(name, settings)) for name, part in self.parts.items()}
        )

    def own(self, rows: np.ndarray) -> "CompositeQueries | None":
        """Return rows of this index as queries, None if the reports have to be encoded for a representation."""
        parts = {name: part.own(rows) for name, part in self.parts.items()}
        return None if any(part is None for part in parts.values()) else self._joined(parts)

    def encode_again(self, reports: Reports, encoded_before: "CompositeQueries", **settings: Any) -> "CompositeQueries":
        """Return queries that another shard has encoded, `encoded_before`, encoded for each representation of this one.

        Each gets the settings that it has.
        """
        return self._joined(
            {
                name: part.encode_again(reports, encoded_before.parts[name], **_of_part(name, settings))
                for name, part in self.parts.items()
            }
        )

    def _joined(self, parts: dict[str, Any]) -> "CompositeQueries":
        """Return the queries encoded for each representation, by name, as distinct combinations."""
        table = np.stack([part.document_of_row for part in parts.values()], axis=1)
        distinct, which = np.unique(table, axis=0, return_inverse=True)
        place = {name: distinct[:, i] for i, name in enumerate(parts)}
        return CompositeQueries(*group_rows(which.reshape(-1), len(distinct)), parts, place)

    def item(self, document: int) -> dict[str, Any]:
        """Return the documents for the plain scorers of the terms, keyed by representation."""
        return {name: part.item(int(self.document_of[name][document])) for name, part in self.parts.items()}

    def key(self, document: int) -> tuple[Hashable, ...]:
        """Return a value that identifies a combination in any index."""
        return tuple(part.key(int(self.document_of[name][document])) for name, part in sorted(self.parts.items()))

    def arrays(self, metric: Metric, queries: Documents) -> CompositeCorpus:
        """Return the arrays that the kernels of the terms of `metric` read."""
        assert isinstance(queries, CompositeQueries)
        parts = {
            name: self.parts[t.metric.representation].arrays(t.metric, queries.parts[t.metric.representation])
            for name, t in metric.terms.items()
        }
        return CompositeCorpus(parts, self.document_of, self.row_ptr, self.row_id)


def _of_part(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return those settings that the representation `kind` has."""
    return {key: settings[key] for key in REPRESENTATIONS[kind].settings if key in settings}


@dataclass(frozen=True)
class CompositeQueries(Documents):
    """The distinct combinations of documents in a batch of queries."""

    row_ptr: np.ndarray  # int64[n + 1], offsets of the queries of each combination
    row_id: np.ndarray  # int64[Q], queries, ascending within a combination
    parts: dict[str, Documents]  # name of a representation -> encoded queries
    place: dict[str, np.ndarray]  # name of a representation -> its distinct query in each combination

    def arrays(self, metric: Metric, queries: Documents) -> CompositeBatch:
        """Return the arrays that the kernels of the terms of `metric` read."""
        metrics = {t.metric.representation: t.metric for t in metric.terms.values()}
        parts = {name: part.arrays(metrics[name], part) for name, part in self.parts.items()}
        return CompositeBatch(parts, self.place)

    def item(self, q: int) -> dict[str, Any]:
        """Return the documents for the plain scorers of the terms, keyed by representation."""
        return {name: part.item(int(self.place[name][q])) for name, part in self.parts.items()}

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        """The settings that the signature records."""
        return {key: value for part in self.parts.values() for key, value in part.settings.items()}
