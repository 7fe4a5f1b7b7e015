"""Bases of representations and of encoded queries, and the lists of rows and numbers that both are made of."""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metric_oracle.records import Metric


class Documents:
    """Base of representations, with what most of them do; see `indexes.contract.Representation`."""

    # Names of the files with data that scores depend on and that does not follow from the texts.
    data_files: ClassVar[tuple[str, ...]] = ()
    # Names of the files with what follows from the texts or the data files. Another machine may write other bytes.
    derived_files: ClassVar[tuple[str, ...]] = ()
    empty: ClassVar[Any] = None  # of a blank report without the source, for the plain scorer; None if it has no score
    encodes_by_corpus: ClassVar[bool] = True  # whether the encoding of queries depends on the corpus
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], corpus rows, ascending within a document
    encode: Callable[..., Any]

    @cached_property
    def document_of_row(self) -> np.ndarray:
        """The document of each corpus row up to the last that has one, -1 for none: int64[...]."""
        document_of_row = np.full(int(self.row_id.max(initial=-1)) + 1, -1, np.int64)
        document_of_row[self.row_id] = np.repeat(np.arange(len(self.row_ptr) - 1), np.diff(self.row_ptr))
        return document_of_row

    def item(self, document: int) -> Any:
        """Return a document in the form that the plain scorer takes; each representation has its own form."""
        raise NotImplementedError

    def candidate(self, document: int, encoded_queries: Any) -> Any:
        """Return `item`: a candidate does not depend on the queries."""
        return self.item(document)

    def key(self, document: int) -> Hashable:
        """Return `item`, which is hashable and has all of the document."""
        return self.item(document)

    @classmethod
    def build(cls, kind: str, reports: Any, texts: Sequence[str], text_of_row: np.ndarray) -> Any:
        """Build the representation of a corpus; each representation with files has its own way."""
        raise NotImplementedError

    @classmethod
    def build_for_pairs(
        cls, kind: str, reports: Any, texts: Sequence[str], text_of_row: np.ndarray, metrics: Sequence[Metric]
    ) -> Any:
        """Build all that a search reads, for any metrics."""
        return cls.build(kind, reports, texts, text_of_row)

    def own_batch(self) -> Any:
        """Return None: to be scored with one another, the documents have to be encoded."""
        return None

    def counts(self) -> dict[str, Any]:
        """Return an empty dict: the manifest records nothing more."""
        return {}

    def encode_rows(self, reports: Any, **settings: Any) -> Any:
        """Encode queries that are rows of this index like any others."""
        return self.encode(reports, **settings)

    def encode_again(self, reports: Any, encoded_before: Any, **settings: Any) -> Any:
        """Return `encoded_before` unless it is None or the encoding depends on the corpus; otherwise encode anew."""
        if encoded_before is not None and not self.encodes_by_corpus:
            return encoded_before
        return self.encode(reports, **settings)


class Encoded:
    """Base of encoded queries, with what most of them do; see `indexes.contract.EncodedQueries`."""

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing: the encoding has no settings."""
        return {}

    def item(self, q: int) -> Any:
        """Return the distinct query number `q` as a reference for the plain scorer; its form depends on the metric."""
        raise NotImplementedError

    def as_candidate(self, q: int) -> Any:
        """Return `item`: references and candidates have one form."""
        return self.item(q)

    def portable(self) -> Any:
        """Return None: no model ran."""
        return None


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets of lists of these lengths, of any shape, and their sum: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranks_of(order: np.ndarray) -> np.ndarray:
    """Return the place of each number from 0 in `order`, which has each of them once: int64[n]."""
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def places_of_lists(ptr: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the indices of all values of the chosen ragged lists, list after list: int64[...].

    `ptr` has the offsets of the lists: list i has the values at ``ptr[i]`` to ``ptr[i + 1] - 1``.
    """
    begin, lengths = ptr[chosen], ptr[chosen + 1] - ptr[chosen]
    return np.repeat(begin - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))


def distinct_in_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct values in order of first appearance, the place where each first appears, and which each is.

    The third array has, for every value, the number of its distinct value: int64[n].
    """
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return values[first[order]], first[order], ranks_of(order)[which]


def group_rows(document_of_row: np.ndarray, n_documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets of the rows of each document, int64[D + 1], and the rows, int64[...], ascending within a document.

    A row whose document is -1 is left out.
    """
    row_ptr = offsets_of(np.bincount(document_of_row[document_of_row >= 0], minlength=n_documents))
    order = np.argsort(document_of_row, kind="stable")
    return row_ptr, order[np.count_nonzero(document_of_row < 0) :].astype(np.int64)
