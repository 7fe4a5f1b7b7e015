"""Representation of report embeddings, CheXbert's or any others: distinct unit vectors and their codes.

The unit vectors are float32. This rounding is part of the representation, so that every backend scores the same
numbers. Codes are short versions of the vectors; products of codes bound the cosines from above.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import BackendError, InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.lists import group_rows, numbered_anew
from metric_oracle.indexes.store import Columns, Stored, read_arrays
from metric_oracle.indexes.vectors import VectorDocuments, distinct_rows, flat_index, in_order_of_use
from metric_oracle.kernels.cosine.codes import (
    CHUNK,
    WIDEST,
    make_codes,
    pack_codes,
    principal_directions,
    skew_of,
    unit_vectors,
)
from metric_oracle.kernels.cosine.cpu import UnitVectors
from metric_oracle.records import Metric


@dataclass(frozen=True)
class EmbeddingDocuments(VectorDocuments, StoredDocuments):
    """Distinct embeddings, of any width up to `WIDEST`."""

    kind: str  # name of the representation in the registry, such as "chexbert"
    vectors: np.ndarray  # float32[D, d], unit vectors
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    # What follows is None of queries, and of a corpus until it has been saved and opened. Codes are in blocks of
    # documents, float32[C, K, BLOCK], the last filled with zeros.
    codes: Any = None
    basis: Any = None  # float32[d, m], principal directions, onto which vectors are projected to make codes
    measured: Any = None  # float64[3], errors of the codes and of the basis, see `kernels.cosine.cpu.UnitVectors`
    data_files: ClassVar[tuple[str, ...]] = ("vectors.arrow", "rows.arrow")
    derived_files: ClassVar[tuple[str, ...]] = ("codes.arrow",)

    def arrays(self, metric: Metric, queries: Documents) -> UnitVectors:
        """Return the arrays that the kernels read, for any metric and queries."""
        return UnitVectors(self.vectors, self.codes, self.measured, self.row_ptr, self.row_id)

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "EmbeddingDocuments":
        """Index the embeddings of the reports, without their texts."""
        return cls(kind, *_distinct_vectors(kind, corpus.reports))

    def encode(self, reports: Reports) -> "EmbeddingDocuments":
        """Return the distinct unit vectors of the queries.

        Raise BackendError if their width is not that of the index.
        """
        width = reports.attached[self.kind].values.shape[1]
        if width != self.vectors.shape[1]:
            raise BackendError(
                "embeddings",
                f"must have the index's width {self.vectors.shape[1]}",
                width,
                "Encode queries and corpus with one model.",
            )
        return EmbeddingDocuments(self.kind, *_distinct_vectors(self.kind, reports))

    def translate(self, metric: Metric, queries: Documents) -> UnitVectors:
        """Return the vectors of queries, with codes by the directions of this index if it has been opened from files.

        The codes are float32[Q, K].
        """
        assert isinstance(queries, EmbeddingDocuments)
        arrays = queries.arrays(metric, queries)
        if self.basis is None:
            return arrays
        codes, measured = make_codes(queries.vectors, self.basis)
        return arrays._replace(codes=codes, measured=np.array([self.measured[0], *measured]))

    def faiss(self) -> Any:
        """Return a faiss.IndexFlatIP over the vectors, whose inner products are cosines in float32.

        Vector i is document i.
        """
        return flat_index(self.vectors)

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the vectors and their rows, and codes that are made of them."""
        basis = principal_directions(self.vectors)
        codes, measured = pack_codes(self.vectors, basis)
        constants = np.array([skew_of(basis), *measured])
        yield "vectors.arrow", {"vectors": self.vectors}
        yield "codes.arrow", {"codes": codes, "basis": basis, "measured": constants}
        yield "rows.arrow", {"row_ptr": self.row_ptr, "row_id": self.row_id}

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "EmbeddingDocuments":
        """Open the vectors, their rows and their codes."""
        arrays = [read_arrays(stored[name]) for name in (*cls.data_files, *cls.derived_files)]
        return cls(kind=kind, **arrays[0], **arrays[1], **arrays[2])


def _distinct_vectors(kind: str, reports: Reports) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct unit vectors of reports, float32[n, d], in order of first use, and the rows of each.

    A report without an embedding is in no list of rows. Raise InputError if embeddings are wider
    than the proof of the bounds allows.
    """
    values, of_row = reports.attached[kind].both
    if values.shape[1] > WIDEST:
        raise InputError(
            "embeddings",
            f"must have at most {WIDEST} numbers each, for which the bounds of a search are proven",
            values.shape[1],
            "Reduce their width, for example by principal components.",
        )
    used, used_of_row = in_order_of_use(of_row)
    vectors = np.empty((len(used), values.shape[1]), np.float32)
    for first in range(0, len(used), CHUNK):
        chunk = slice(first, first + CHUNK)
        # The vectors of a prepared set have length 1 already; dividing again could change their last bits.
        vectors[chunk] = values[used[chunk]] if reports.attached[kind].are_unit else unit_vectors(values[used[chunk]])
    position, which = distinct_rows(vectors)
    for first in range(0, len(position), CHUNK):  # in place: no vector moves to a later position
        chunk = slice(first, first + CHUNK)
        vectors[chunk][: len(position[chunk])] = vectors[position[chunk]]
    return vectors[: len(position)], *group_rows(numbered_anew(used_of_row, which), len(position))
