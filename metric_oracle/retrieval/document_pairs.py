"""Pairs of queries and the documents of an index, shard by shard: their scores, and scans of all documents.

Documents of all shards are numbered one after another. Two shards may have equal documents; a document stands for rows
of its own shard alone.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import ExactnessError, shown
from metric_oracle.base.option_types import Backend
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.lists import documents_of_rows
from metric_oracle.kernels.contract import Kernel
from metric_oracle.records import Metric
from metric_oracle.retrieval.kernels import arrays_of, backend_of, backend_of_pairs, load_kernel, load_reference

CHECKED = 100  # pairs, evenly spread, that the plain scorer scores again; `verify` scores all


class Loaded(NamedTuple):
    """A backend, and for each part what it reads of the corpus and of the queries."""

    kernel: Kernel
    arrays: list[tuple[Any, Any]]


class Part(NamedTuple):
    """The documents of a shard that are compared, or of the only index, and the queries."""

    shard: Index
    representation: Documents
    encoded: Documents  # the same for all shards of a set: `representation` translates them


@dataclass(frozen=True)
class Pairs:
    """All pairs of the distinct queries of a batch and the documents of an index, under a metric."""

    metric: Metric
    parts: list[Part]  # those with rows that can be scored; if there is none, the first
    # The backend of a search; "auto" for pairs that are given, whose backend `backend_of_pairs` chooses.
    backend: Backend = "auto"
    loaded: dict[Backend, Loaded] = field(init=False, default_factory=dict)  # what `on` loaded
    # Score and components of the plain scorer by distinct query and document, each computed once.
    plain_scores: dict[tuple[int, int], tuple[float, dict[str, Any]]] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, index: Index, metric: Metric, queries: Reports, settings: Mapping[str, Any]) -> "Pairs":
        """Encode queries for an index, or once for all shards of a set, see `batches`."""
        shards = compared(index, metric)
        return cls(metric, [*batches(shards, metric, queries, settings, is_only=len(shards) == 1)])

    @property
    def encoded(self) -> Documents:
        """The queries."""
        return self.parts[0].encoded

    @property
    def which(self) -> np.ndarray:
        """The distinct query of each query: int64[Q]."""
        return self.encoded.document_of_row

    @cached_property
    def reference(self) -> Callable[[Any, Any], tuple[float, dict[str, Any]]]:
        """The metric's plain scorer, a function of candidate and reference."""
        return load_reference(self.metric)

    def on(self, backend: Backend) -> Loaded:
        """Return a backend of the metric, with what it reads of the corpus and of the queries; each is loaded once."""
        if backend not in self.loaded:
            arrays = [arrays_of(self.metric, part.representation, part.encoded, backend) for part in self.parts]
            self.loaded[backend] = Loaded(load_kernel(self.metric, backend), arrays)
        return self.loaded[backend]

    @cached_property
    def scanned(self) -> Loaded:
        """What scans all documents."""
        n_pairs = (len(self.encoded.row_ptr) - 1) * int(self.document_ptr[-1])
        return self.on(backend_of(self.backend, self.metric, n_pairs))

    def _scored(self, n: int) -> Loaded:
        """Return what scores n pairs."""
        if self.backend != "auto":
            return self.on(self.backend)
        first = np.zeros(min(n, 1), np.int64)

        def score_one() -> None:
            """Call all that scores pairs, for the first query and the first document."""
            kernel, arrays = self.on("cpu")
            kernel.score_pairs(*arrays[0], first, first)

        return self.on(backend_of_pairs(self.metric, n, score_one))

    @cached_property
    def document_ptr(self) -> np.ndarray:
        """The number of the first document of each part, and of all documents: int64[S + 1]."""
        return np.cumsum([0, *(len(part.representation.row_ptr) - 1 for part in self.parts)])

    @cached_property
    def row_ptr(self) -> np.ndarray:
        """Offsets of the rows of each document in `row_id`: int64[D + 1]."""
        ends = np.cumsum([0, *(len(part.representation.row_id) for part in self.parts)])
        begins = [part.representation.row_ptr[:-1] + end for part, end in zip(self.parts, ends[:-1], strict=True)]
        return np.concatenate([*begins, ends[-1:]])

    @cached_property
    def row_id(self) -> np.ndarray:
        """Corpus rows, document after document and ascending within one: int64[N]."""
        return np.concatenate([part.representation.row_id + part.shard.first_row for part in self.parts])

    @cached_property
    def document_of_row(self) -> np.ndarray:
        """The document of each corpus row, -1 for none: int64[...], up to the last row that has one."""
        return documents_of_rows(self.row_ptr, self.row_id)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the encoded queries, which a signature records."""
        return dict(self.encoded.settings)

    def _part_of(self, document: int) -> tuple[Part, int]:
        """Return the part that has a document, and the document's number in it."""
        # NumPy's search lets another thread take the interpreter, and then waits for it at each checked pair.
        part = bisect_right(self.document_ptr, document) - 1
        return self.parts[part], int(document - self.document_ptr[part])

    def rows_like(self, documents: np.ndarray) -> np.ndarray:
        """Return the number of corpus rows with a document equal to each of some, in all parts: int64[n]."""
        if len(self.parts) == 1:  # whose documents are distinct
            return np.diff(self.row_ptr)[documents]
        keys = [part.representation.key(own) for part, own in map(self._part_of, documents.tolist())]
        n_rows = dict.fromkeys(keys, 0)
        for part in self.parts:
            for document, n in enumerate(np.diff(part.representation.row_ptr).tolist()):
                key = part.representation.key(document)
                if key in n_rows:
                    n_rows[key] += n
        return np.array([n_rows[key] for key in keys], np.int64)

    def distinct(self, query: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return queries and documents of the distinct pairs, sorted by query, and the number of each pair in these."""
        n_documents = int(self.document_ptr[-1])
        numbers, which = np.unique(query * n_documents + document, return_inverse=True)
        return *np.divmod(numbers, n_documents), which

    def score(self, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the exact scores of pairs of a distinct query and a document: float64[n].

        It is fastest if the pairs are sorted by query.
        """
        scores, (kernel, arrays) = np.empty(len(query)), self._scored(len(query))
        for part, some, queries, documents in self._by_part(query, document):
            scores[some] = kernel.scores(kernel.counts(*arrays[part], queries, documents))
        return scores

    def score_corpus_rows(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the exact scores of pairs of a query and a corpus row: float64[n], NaN for a row without a document.

        Queries, int64[n], are numbered as they were given, equal ones included.
        """
        document = np.append(self.document_of_row, -1)[np.minimum(row, len(self.document_of_row))]
        is_scored = document >= 0
        scores = np.full(len(row), np.nan)
        scores[is_scored] = self.score(self.which[query[is_scored]], document[is_scored])
        return scores

    def score_with_components(
        self, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the scores that `score` returns and their components by name, an array[n] each."""
        scores, (kernel, arrays) = np.empty(len(query)), self._scored(len(query))
        components: dict[str, np.ndarray] = {}
        for part, some, queries, documents in self._by_part(query, document):
            scores[some], values = kernel.score_pairs(*arrays[part], queries, documents)
            for name, of_some in values.items():
                components.setdefault(name, np.empty(len(query), of_some.dtype))[some] = of_some
        return scores, components

    def _by_part(self, query: np.ndarray, document: np.ndarray) -> Iterator[tuple[int, Any, np.ndarray, np.ndarray]]:
        """Yield, for each part that has some of the pairs, its number, their places, and their queries and documents.

        Queries and documents, int64[n] each, are numbered as in the part.
        """
        if len(self.parts) == 1:
            yield 0, slice(None), query, document
            return
        of_part = np.searchsorted(self.document_ptr, document, side="right") - 1
        for i in np.unique(of_part).tolist():
            some = np.flatnonzero(of_part == i)
            yield i, some, query[some], document[some] - self.document_ptr[i]

    def scan(self, query_numbers: Sequence[int], documents: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Yield the scores of all documents with each of the chosen distinct queries, within `error`: float64[D].

        With `documents`, int64[n] ascending, these alone are scored: float64[n]. An array may be overwritten by the
        next.
        """
        streams, queries, (kernel, arrays) = [], list(query_numbers), self.scanned
        for i in range(len(self.parts)):
            if documents is None:
                streams.append(kernel.score_all(*arrays[i], queries))
                continue
            first, last = self.document_ptr[i : i + 2]
            some = documents[np.searchsorted(documents, first) : np.searchsorted(documents, last)] - first
            streams.append(kernel.score_some(*arrays[i], queries, some))
        for of_parts in zip(*streams, strict=True):
            yield of_parts[0] if len(of_parts) == 1 else np.concatenate(of_parts)

    @property
    def error(self) -> float:
        """An upper bound on the absolute error of the scores of `scan`."""
        kernel, arrays = self.scanned
        return max(kernel.score_error(*of_part) for of_part in arrays)

    def items(self, query: int, document: int) -> tuple[Any, Any]:
        """Return a document and a distinct query as candidate and reference for the plain scorer."""
        part, own = self._part_of(document)
        return part.representation.item(own), self.encoded.item(query)

    def plain(self, query: int, document: int) -> tuple[float, dict[str, Any]]:
        """Return the plain scorer's score and components of a distinct query and a document."""
        if (query, document) not in self.plain_scores:
            self.plain_scores[query, document] = self.reference(*self.items(query, document))
        return self.plain_scores[query, document]

    def check(
        self,
        ids: Sequence[str],
        query: np.ndarray,
        document: np.ndarray,
        scores: np.ndarray,
        components: Mapping[str, np.ndarray],
        checked: int = CHECKED,
    ) -> None:
        """Raise ExactnessError unless scores and components of `checked` of the pairs equal the plain scorer's.

        `ids` are the ids of all queries, for the message.
        """
        sample = sample_of(len(scores), checked)
        scored = zip(scores[sample].tolist(), *(values[sample].tolist() for values in components.values()), strict=True)
        for i, (score, *parts) in zip(sample.tolist(), scored, strict=True):
            wanted = self.plain(int(query[i]), int(document[i]))
            answer = score, dict(zip(components, parts, strict=True))
            if answer != wanted:
                row = self.row_id[self.row_ptr[document[i]]]
                name = shown(ids[int(np.argmax(self.which == query[i]))])
                raise ExactnessError(
                    f"{self.metric.name} of row {row}",
                    f"must be {wanted} for query {name}, as the plain scorer computes it",
                    answer,
                    "This is a defect: please report it with the index fingerprint.",
                )


def sample_of(n: int, checked: int) -> np.ndarray:
    """Return the positions of at most `checked` of `n` pairs, evenly spread and ascending: int64[m]."""
    return np.unique(np.linspace(0, n - 1, min(checked, n)).astype(np.int64))


def batches(
    shards: Iterable[tuple[Index, Documents]],
    metric: Metric,
    queries: Reports,
    settings: Mapping[str, Any],
    encoded: Documents | None = None,
    *,
    is_only: bool,
) -> Iterator[Part]:
    """Encode queries for the first of some shards, each given with its representation, and yield them with every shard.

    `encoded` has queries that another process encoded, None if none did. If there is a single shard (`is_only`),
    queries that are its rows are taken from what it stores. They have its whole vocabulary, which would be slow to
    translate for another shard.
    """
    for shard, representation in shards:
        if encoded is None and is_only:
            encoded = _stored(shard, metric, representation, queries)
        if encoded is None:
            encoded = representation.encode(queries, **settings)
        yield Part(shard, representation, encoded)


def scorable(shards: Iterable[Index], metric: Metric) -> Iterator[tuple[Index, Documents]]:
    """Yield the shards that have rows which the metric can score, each with its representation."""
    for shard in shards:
        representation = shard.representation(metric)
        if len(representation.row_id):
            yield shard, representation


def compared(index: Index, metric: Metric) -> list[tuple[Index, Documents]]:
    """Return the indexes whose documents are compared one after another under a metric, each with its representation.

    They are the shards of a set that have rows which the metric can score, or the first shard if there is none. A set
    whose documents are joined is one index.
    """
    wholes = [index] if index.is_joined(metric) else [*index.shards()]
    return [*scorable(wholes, metric)] or [(wholes[0], wholes[0].representation(metric))]


def scorable_rows(index: Index, metric: Metric) -> np.ndarray:
    """Return the corpus rows that a metric can score, ascending: int64[n]."""
    return np.sort(np.concatenate([part.row_id + shard.first_row for shard, part in compared(index, metric)]))


def _stored(shard: Index, metric: Metric, representation: Documents, queries: Reports) -> Documents | None:
    """Return queries that are all rows of a shard, with its sources, from what the shard stores of them; else None."""
    sources = [queries.attached[kind] for kind in metric.representations if kind in queries.attached]
    if queries.stored is None or {queries.stored[0], *(s.stored_in for s in sources)} != {shard.checksum}:
        return None
    rows, document_of_row = queries.stored[1], representation.document_of_row
    is_scored = rows.max(initial=-1) < len(document_of_row) and (document_of_row[rows] >= 0).all()
    return representation.own(rows) if is_scored else None
