"""Representation of sets of sentence vectors, with the cells and codes that bound their distances.

The kernels are those of BERTScore, with sentences in place of tokens. They expect two special tokens of weight 0 in
each report, which BERTScore's encoders add. So each set ends with two more copies of its first vector, of weight 0,
which change neither a greatest cosine nor a mean. A report without sentences is a set of two such vectors; it matches
nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents
from metric_oracle.indexes.lists import group_rows, numbered_anew, offsets_of, ranks_of
from metric_oracle.indexes.store import Columns, Stored, check_ids, check_offsets, read_arrays
from metric_oracle.indexes.tokens import TokenDocuments
from metric_oracle.indexes.vectors import distinct_rows, in_order_of_use
from metric_oracle.kernels._build import distinct_lists
from metric_oracle.kernels.bertscore.bounds import LONGEST, WIDEST
from metric_oracle.kernels.bertscore.codec import PER_TOKEN, screen
from metric_oracle.kernels.bertscore.query import TokenBatch, TokenCorpus
from metric_oracle.kernels.cosine.codes import unit_vectors
from metric_oracle.records import Metric
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.sentences import SentenceTable

COPIES = 2  # extra copies of the first vector of a set, with weight 0


@dataclass(frozen=True)
class SentenceDocuments(TokenDocuments):
    """Distinct sets of sentence vectors, largest first."""

    # float32[T, d], vectors of length 1 up to rounding; scores are those of the stored numbers. Within a set they are
    # sorted by their bytes, so that reports with the same sentences in another order are one set.
    states: np.ndarray
    ptr: np.ndarray  # int64[D + 1], offsets of the vectors of each set, including the copies
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each set
    row_id: np.ndarray  # int64[...], rows, ascending within a set
    screens: dict[str, np.ndarray] | None = None  # of a corpus, see `TokenDocuments`
    data_files: ClassVar[tuple[str, ...]] = ("sentences.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ("screen.arrow",)

    @cached_property
    def ids(self) -> np.ndarray:  # type: ignore[override]
        """1 for each vector of a sentence, and 0 for each copy: int32[T]; they are also the weights."""
        ids = np.ones(int(self.ptr[-1]), np.int32)
        for copy in range(1, COPIES + 1):
            ids[self.ptr[1:] - copy] = 0
        return ids

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "SentenceDocuments":
        """Index the sentence vectors of the reports, without their texts.

        Raise InputError if vectors have more components, or a report has more sentences, than the proof of the bounds
        allows.
        """
        vectors, ptr, set_of_row = _distinct_sets(corpus.reports.attached[kind], 1)
        longest = int(np.diff(ptr).max(initial=0))
        if vectors.shape[1] > WIDEST or longest > LONGEST:
            raise InputError(
                "sentence vectors",
                f"must have at most {WIDEST:,} components, and a report at most {LONGEST - COPIES:,} sentences",
                f"{vectors.shape[1]:,} and {longest - COPIES:,}",
                "Use another encoder, or shorten the report.",
            )
        return cls(vectors, ptr, *group_rows(set_of_row, len(ptr) - 1), _screens(vectors, ptr))

    def encode(self, reports: Reports) -> "SentenceDocuments":
        """Return the distinct sets of the queries; raise InputError if their vectors have not the index's width.

        Where either has no sentences, the width does not matter.
        """
        attachment = reports.attached["sentences"]
        width, corpus_width = attachment.values.vectors.shape[1], self.states.shape[1]
        if len(attachment.values.vectors) and self._has_sentences:
            _check_width(width, corpus_width)
        vectors, ptr, which = _distinct_sets(attachment, corpus_width)
        return SentenceDocuments(vectors, ptr, *group_rows(which, len(ptr) - 1))

    def arrays(self, metric: Metric, queries: Documents) -> TokenCorpus:
        """Return the arrays that the kernels read, in the width of the queries if the index has no sentences."""
        assert isinstance(queries, SentenceDocuments)
        width = queries.states.shape[1]
        if width != self.states.shape[1] and not self._has_sentences:  # its vectors only stand for empty reports
            vectors = _any_vectors(len(self.states), width)
            return replace(self, states=vectors, screens=_screens(vectors, self.ptr))._corpus
        return self._corpus

    def translate(self, metric: Metric, queries: Documents) -> TokenBatch:
        """Return the arrays of queries, in the width of the index if they have no sentences and it has.

        Raise InputError if both have sentences whose vectors differ in width.
        """
        assert isinstance(queries, SentenceDocuments)
        states, width = queries.states, self.states.shape[1]
        if states.shape[1] != width and self._has_sentences:
            if queries._has_sentences:
                _check_width(states.shape[1], width)
            states = _any_vectors(len(states), width)
        return TokenBatch(states, queries.ptr, queries.ids.astype(np.float64), None)

    @cached_property
    def _has_sentences(self) -> bool:
        """Whether a report has a sentence; otherwise all vectors are any."""
        return self.counts()["sentences"] > 0

    @cached_property
    def _corpus(self) -> TokenCorpus:
        """The arrays of this corpus for the kernels: sentences have the weight 1, copies 0."""
        return self.weighted(np.array([0.0, 1.0]))

    def item(self, document: int) -> np.ndarray:
        """Return the vectors of a document without the copies, float32[n, d]."""
        return self.states[self.ptr[document] : self.ptr[document + 1] - COPIES]

    def key(self, document: int) -> bytes:
        """Return the vectors of a document as bytes."""
        return self.item(document).tobytes()

    def counts(self) -> dict[str, Any]:
        """Return the number of sentences of the distinct sets, and the width of their vectors."""
        return {"sentences": len(self.states) - COPIES * (len(self.ptr) - 1), "width": self.states.shape[1]}

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield a file with the vectors and their rows, and one with the data of the bounds."""
        arrays = {"vectors": self.states, "ptr": self.ptr, "row_ptr": self.row_ptr, "row_id": self.row_id}
        yield "sentences.arrow", arrays
        assert self.screens is not None
        yield "screen.arrow", self.screens

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "SentenceDocuments":
        """Open the vectors, their rows and the data of the bounds."""
        arrays, screens = (read_arrays(stored[name]) for name in (*cls.data_files, *cls.derived_files))
        vectors = arrays.pop("vectors")
        check_offsets(arrays["ptr"], vectors)
        check_ids(screens["cell"], len(screens["centers"]))
        return cls(vectors, **arrays, screens=screens)

    def table(self) -> SentenceTable:
        """Return the sets in the form of sentence vectors that a user gives, with the number of each as its id."""
        ids = [str(document) for document in range(len(self.ptr) - 1)]
        ptr = self.ptr - COPIES * np.arange(len(self.ptr))
        return SentenceTable(ids, ptr, self.states[self.ids > 0])


def _check_width(width: int, corpus_width: int) -> None:
    """Raise InputError unless the sentence vectors of queries have the width of those of a corpus."""
    if width != corpus_width:
        raise InputError(
            "sentence vectors",
            f"must have the index's width {corpus_width}",
            width,
            "Encode queries and corpus with one model.",
        )


def _distinct_sets(attachment: Attachment, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct sets of reports, largest first: vectors, offsets of the sets, and which each report has.

    The vectors of a set, of unit length, float32[T, d], are followed by `COPIES` copies of its first one; an empty set
    has only copies of any vector. The offsets, int64[D + 1], count the copies. The sets of the reports are int64[N], -1
    for a report without an entry in the source. If no report has a sentence, the width d is `width`.
    """
    used, used_of_row = in_order_of_use(attachment.of_row)
    table = attachment.values.take(used)
    lengths = np.diff(table.ptr)
    vectors = np.empty((0, width), np.float32)
    rank = np.empty(0, np.int64)
    if len(table.vectors):
        # The vectors of an index have unit length already; dividing again could change their last bits.
        vectors = table.vectors if attachment.are_unit else unit_vectors(table.vectors)
        first, which = distinct_rows(vectors)
        rank = np.unique(vectors[first].view(np.uint32), axis=0, return_inverse=True)[1].reshape(-1)[which]
    order = np.lexsort((rank, np.repeat(np.arange(len(used)), lengths)))
    set_of, first = distinct_lists(table.ptr, rank[order].astype(np.int32))
    by_length = np.argsort(-lengths[first], kind="stable")
    example = first[by_length]
    n = lengths[example]
    begin = np.where(n > 0, table.ptr[:-1][example], len(vectors))
    ptr = offsets_of(n + COPIES)
    inside = np.arange(ptr[-1]) - np.repeat(ptr[:-1], n + COPIES)
    source = np.repeat(begin, n + COPIES) + np.where(inside < np.repeat(n, n + COPIES), inside, 0)
    set_of_row = numbered_anew(used_of_row, ranks_of(by_length)[set_of])
    # The last vector is for sets without sentences, which consist of copies of it.
    return np.concatenate([vectors[order], _any_vectors(1, vectors.shape[1])])[source], ptr, set_of_row


def _any_vectors(n: int, width: int) -> np.ndarray:
    """Return unit vectors, all the same, which stand for reports without sentences: float32[n, width]."""
    vectors = np.zeros((n, width), np.float32)
    vectors[:, 0] = 1.0
    return vectors


def _screens(vectors: np.ndarray, ptr: np.ndarray) -> dict[str, np.ndarray]:
    """Return the data of `kernels.bertscore.codec.screen`, from which cosines with the vectors of sets are bounded.

    `ptr` has the offsets of the sets, of which there may be none.
    """
    if len(vectors):
        return screen(vectors, ptr)
    # A shard may have no sets: make the data of one vector and keep none of its rows.
    screens = screen(_any_vectors(1, vectors.shape[1]), np.array([0, 1]))
    by_vector = {name: screens[name][:0] for name in (*PER_TOKEN, "order", "mean_along", "mean_off")}
    return {**screens, **by_vector}
