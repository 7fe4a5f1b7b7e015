"""The base of representations: distinct documents in the form that kernels and plain scorers read.

A plain scorer is the function `score` in a metric's `reference.py`: it scores one pair, in plain, slow Python.

What a method takes, gives and promises is said here. A representation says only what is particular to it.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.lists import documents_of_rows
from metric_oracle.indexes.store import Columns, Stored
from metric_oracle.records import Metric


class Corpus(NamedTuple):
    """The reports that a representation is built of."""

    reports: Reports  # with their sources
    texts: Sequence[str]  # the distinct texts
    text_of_row: np.ndarray  # int64[N], the place of each row's text among them
    # If only pairs are scored: all metrics that will read the representation, none of them a composite. It then needs
    # only what `Kernel.counts` and the plain scorers of these metrics read. None if it will be searched.
    readers: Sequence[Metric] | None = None


class Documents:
    """The distinct documents of reports in one representation, numbered from 0, and the rows of each.

    They are those of a corpus, whose rows are its reports, or of queries, whose rows are the positions of the queries.
    Documents of queries are made once, and each shard of a set translates them into numbers of its own. What depends on
    the batch of queries, such as weights, belongs to the queries.

    A representation is stored, with files of its own (`StoredDocuments`), or derived: made from others of the same
    index when it is first used (`join`).
    """

    empty: ClassVar[Any] = None  # of a blank report without the source, for the plain scorer; None if it has no score
    settings: Mapping[str, Any] = MappingProxyType({})  # of queries: what the signature records of their encoding
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows that have a document, ascending within a document
    # The function that makes the documents of queries, given as Reports that have what the representation is made of;
    # its keyword arguments are the settings. It raises InputError if the queries do not fit the corpus. All shards of a
    # set can translate what one of them has made.
    encode: Callable[..., Any]

    @cached_property
    def document_of_row(self) -> np.ndarray:
        """The document of each row up to the last that has one, -1 for none: int64[...]."""
        return documents_of_rows(self.row_ptr, self.row_id)

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Derive the representation; `parts` has the opened ones that the registry names for it, by name."""
        raise NotImplementedError

    def own(self, rows: np.ndarray) -> Any:
        """Return the documents of rows of this index, int64[Q], each of which has one, as those of queries.

        They have the scores of what `encode` makes of their reports. None, as by default, if these have to be encoded.
        """
        return None

    def arrays(self, metric: Metric, queries: "Documents") -> Any:
        """Return what the kernels of a metric read of a corpus, a named tuple of arrays by document.

        `queries` are those with which the documents are scored: weights may depend on them.
        """
        raise NotImplementedError

    def translate(self, metric: Metric, queries: "Documents") -> Any:
        """Return what the kernels of a metric read of queries, a named tuple of arrays by document.

        Its numbers, such as ids of words, are those of this corpus. By default no number depends on the corpus.
        """
        return queries.arrays(metric, queries)

    def of_metric(self, metric: Metric) -> tuple["Documents", np.ndarray]:
        """Return the documents that a metric compares, and the number of the one in each of these: int[D].

        By default they are these documents.
        """
        return self, np.arange(len(self.row_ptr) - 1)

    def item(self, document: int) -> Any:
        """Return a document in the form that the plain scorer takes, as candidate or as reference.

        The item of a query has what depends on the batch; a scorer takes it from the reference.
        """
        raise NotImplementedError

    def key(self, document: int) -> Hashable:
        """Return a value that identifies a document in any index: equal for equal documents, and only for them.

        By default it is `item`, which is then hashable and has all of the document.
        """
        return self.item(document)


class StoredDocuments(Documents):
    """Documents that are built of reports and have files of their own in an index."""

    # Names of the files with data that scores depend on and that does not follow from the texts; the fingerprint of an
    # index covers them.
    data_files: ClassVar[tuple[str, ...]] = ()
    # Names of the files with what follows from the texts or the data files. Another machine may write other bytes.
    derived_files: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> Self:
        """Build the representation of a corpus; `kind` is its name in the registry.

        Raise InputError if the corpus is too large or too wide.
        """
        raise NotImplementedError

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the name and the columns of each file, `data_files` and `derived_files`."""
        raise NotImplementedError

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> Self:
        """Open the stored `files`, keyed by name; the arrays are views of them.

        Raise ValueError if an offset or id leads out of its array.
        """
        raise NotImplementedError

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records, by name, in addition to the numbers of documents and rows."""
        return {}
