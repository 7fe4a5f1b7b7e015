"""Protocols of representations: the distinct documents of a corpus, in the form that kernels and plain scorers read.

A plain scorer is the function `score` in a metric's `reference.py`: it scores one pair, in plain, slow Python.

What a method takes, gives and promises is said here. A representation says only what is particular to it. A corpus has
N rows and D documents; a batch has Q queries, each of which has what the representation is made of.
"""

import mmap
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.records import Metric


class EncodedQueries(Protocol):
    """The distinct queries of a batch in one representation, numbered from 0."""

    which: np.ndarray  # int64[Q], number of the distinct query that each query is

    @property
    def batch(self) -> Any:
        """The arrays that the kernels read, a named tuple; arrays by query are those of the distinct ones."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records of the encoding, by name; empty if it has no settings."""
        return {}

    def item(self, q: int) -> Any:
        """Return the distinct query number `q` in the form in which the plain scorer takes a reference."""

    def as_candidate(self, q: int) -> Any:
        """Return the distinct query number `q` in the form in which the plain scorer takes a candidate.

        So it can be scored with itself. By default references and candidates have one form.
        """
        return self.item(q)

    def portable(self) -> Any:
        """Return these queries without the arrays of the corpus, for `encode_again` in another process.

        None if no model ran; the other process then encodes the queries itself.
        """
        return None


class Representation(Protocol):
    """The distinct documents of a corpus in one representation, numbered from 0, and the corpus rows of each."""

    @property
    def row_ptr(self) -> np.ndarray:
        """Offsets of the rows of each document in `row_id`: int64[D + 1]."""

    @property
    def row_id(self) -> np.ndarray:
        """Corpus rows that have a document, document after document and ascending within one: int64[...]."""

    @property
    def document_of_row(self) -> np.ndarray:
        """The document of each corpus row, -1 for none: int64[...], up to the last row that has one."""

    @property
    def encode(self) -> Callable[..., Any]:
        """The function that encodes queries, given as Reports; its keyword arguments are the settings.

        It returns `EncodedQueries`, and raises InputError if the queries do not fit the corpus.
        """

    def encode_rows(self, reports: Reports, **settings: Any) -> Any:
        """Encode queries that are rows of this index, see `Reports.stored`; each of them has a document."""

    def encode_again(self, reports: Reports, encoded_before: Any, **settings: Any) -> Any:
        """Encode queries that another shard of the same set has encoded, and reuse what the shards share.

        `encoded_before` has the encoded queries of that shard, or what `EncodedQueries.portable` gave, which may be
        None.
        """

    def own_batch(self) -> Any:
        """Return the documents as the batch of queries that kernels read, to score documents with one another.

        None if the documents have to be encoded for that.
        """

    def corpus(self, metric: Metric, encoded_queries: Any) -> Any:
        """Return the arrays that the kernels of a metric read, a named tuple; weights may depend on the queries."""

    def item(self, document: int) -> Any:
        """Return a document in the form that the plain scorer takes, without what depends on the queries."""

    def key(self, document: int) -> Hashable:
        """Return a value that identifies a document in any index: equal for equal documents, and only for them."""

    def candidate(self, document: int, encoded_queries: Any) -> Any:
        """Return a document as a candidate for the plain scorer, with what depends on the queries, such as weights.

        Without encoded queries (None), it is `item`.
        """


class StoredRepresentation(Representation, Protocol):
    """A representation with files of its own."""

    data_files: ClassVar[tuple[str, ...]]  # names of files with data, which the fingerprint of an index covers
    derived_files: ClassVar[tuple[str, ...]]  # names of files that follow from the texts or the data, such as bounds

    @classmethod
    def build(cls, kind: str, reports: Reports, texts: Any, text_of_row: np.ndarray) -> Self:
        """Build the representation of a corpus; `kind` is its name in the registry.

        `reports` has the corpus with its sources, `texts` the distinct texts, a sequence of strings, and `text_of_row`
        the place of each row's text among them, int64[N]. Raise InputError if the corpus is too large or too wide.
        """

    @classmethod
    def build_for_pairs(
        cls, kind: str, reports: Reports, texts: Any, text_of_row: np.ndarray, metrics: Sequence[Metric]
    ) -> Self:
        """Build what `Kernel.pair_scores` and the plain scorers of some metrics read; it need not be searchable.

        `metrics` has all metrics that will read it; none of them is a composite. The others are as in `build`.
        """

    def save(self, folder: Path) -> None:
        """Write the files into a folder that belongs to this representation alone."""

    @classmethod
    def load(cls, kind: str, mapped_files: Mapping[str, mmap.mmap]) -> Self:
        """Open the files that `save` wrote, keyed by name; the arrays stay in the mapped files.

        Raise ValueError if an offset or id leads out of its array.
        """

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records, by name, in addition to the numbers of documents and rows."""


class DerivedRepresentation(Representation, Protocol):
    """A representation without files, made from others of the same index when it is first used."""

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Make the representation; `parts` has the opened representations that the registry names for it, by name."""
