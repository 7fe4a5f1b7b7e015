"""Representations of labels: distinct vectors of small integers, for CheXbert's 14 labels and for tables of labels.

SRR-BERT (Delbrouck et al., ACL 2025) labels sentences with findings and their statuses, such as "Edema (Present)"; a
report has the labels of its sentences. Such sets are compared like graphs without relations: a label is an entity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.lists import group_rows, numbered_anew
from metric_oracle.indexes.radgraph import GraphIndex, build_graphs
from metric_oracle.indexes.store import Columns, Stored, read_arrays
from metric_oracle.indexes.vectors import VectorDocuments, distinct_rows, flat_index, in_order_of_use
from metric_oracle.kernels.chexbert_labels.cpu import LabelVectors
from metric_oracle.kernels.cosine.codes import unit_vectors
from metric_oracle.records import Metric

# Value of the classes 0 blank, 1 positive, 2 negative, 3 uncertain in a label vector.
VALUES = {"positive": (0, 1, -1, 1), "negative": (0, 1, -1, -1), "blank": (0, 1, -1, 0)}


@dataclass(frozen=True)
class LabelDocuments(VectorDocuments, StoredDocuments):
    """Distinct CheXbert label vectors."""

    vectors: np.ndarray  # int8[D, L], 1 positive, -1 negative, 0 blank; `meaning` says what an uncertain label is
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    meaning: str  # value of an uncertain label, a key of `VALUES`; in subclasses, the schema of the label names
    kind: ClassVar[str] = "labels"  # name of the representation, and of its source
    setting: ClassVar[str] = "uncertain"  # name of `meaning` in the settings of the source and in the manifest
    data_files: ClassVar[tuple[str, ...]] = ("labels.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "LabelDocuments":
        """Index the labels of the reports, without their texts."""
        return cls._distinct_vectors(corpus.reports, corpus.reports.attached[kind].settings[cls.setting])

    @classmethod
    def of_shards(cls, shards: Sequence[tuple[int, "LabelDocuments"]]) -> "LabelDocuments":
        """Join the labels of all shards of a set, pairs (first row, labels), into those of a single index."""
        parts = [part for _, part in shards]
        first, which = distinct_rows(np.concatenate([part.vectors for part in parts]))
        vectors = np.concatenate([part.vectors for part in parts])[first]
        rows = np.concatenate([part.row_id + first_row for first_row, part in shards])
        n_rows = np.concatenate([np.diff(part.row_ptr) for part in parts])
        document_of_row = np.full(int(rows.max(initial=-1)) + 1, -1, np.int64)
        document_of_row[rows] = np.repeat(which, n_rows)
        return cls(vectors, *group_rows(document_of_row, len(vectors)), parts[0].meaning)

    def positives(self, columns: Sequence[int] | slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the distinct sets of positive labels of some columns, bool[D, n], and the rows of each set.

        The rows are `row_ptr` and `row_id`.
        """
        positive, which = np.unique(self.vectors[:, columns] == 1, axis=0, return_inverse=True)
        return positive, *group_rows(numbered_anew(self.document_of_row, which.reshape(-1)), len(positive))

    def encode(self, reports: Reports) -> Self:
        """Return the distinct label vectors of the queries, with the values that the index uses."""
        return self._distinct_vectors(reports, self.meaning)

    def counts(self) -> dict[str, Any]:
        """Return `meaning` under the name that `setting` gives it."""
        return {self.setting: self.meaning}

    def arrays(self, metric: Metric, queries: Documents) -> LabelVectors:
        """Return the arrays that the kernels read, for any metric and queries."""
        return LabelVectors(self.vectors, self.row_ptr, self.row_id)

    def faiss(self) -> Any:
        """Return a faiss.IndexFlatIP over the vectors, scaled to length 1; vectors of zeros stay zero.

        Vector i is document i.
        """
        directions = np.zeros(self.vectors.shape, np.float32)
        is_nonzero = self.vectors.any(axis=1)
        directions[is_nonzero] = unit_vectors(self.vectors[is_nonzero])
        return flat_index(directions)

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the vectors, their rows and `meaning`."""
        arrays = {"vectors": self.vectors, "row_ptr": self.row_ptr, "row_id": self.row_id}
        yield "labels.arrow", {**arrays, self.setting: [self.meaning]}

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "LabelDocuments":
        """Open the vectors, their rows and `meaning`."""
        columns = read_arrays(stored["labels.arrow"])
        meaning = columns.pop(cls.setting)[0]
        return cls(meaning=meaning, **columns)

    @classmethod
    def _distinct_vectors(cls, reports: Reports, meaning: str) -> Self:
        """Return the distinct label vectors of reports that have labels."""
        classes, of_row = reports.attached[cls.kind].both
        used, used_of_row = in_order_of_use(of_row)
        vectors = cls._values(classes[used], meaning)
        first, which = distinct_rows(vectors)
        return cls(vectors[first], *group_rows(numbered_anew(used_of_row, which), len(first)), meaning)

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        """Return the values, int8[n, L], of the classes of labels, uint8[n, L] as in `Attachment.values`."""
        return np.array(VALUES[meaning], np.int8)[classes]


class SrrDocuments(LabelDocuments):
    """Distinct sets of SRR-BERT's labels: 1 if a report has the label, otherwise 0."""

    kind: ClassVar[str] = "srr"
    setting: ClassVar[str] = "schema"

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        return (classes == 1).astype(np.int8)


class LabelTableDocuments(SrrDocuments):
    """Distinct rows of a table of labels with any names: 1 positive, -1 negative, 0 missing."""

    kind: ClassVar[str] = "label_table"

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        return np.array(VALUES["blank"], np.int8)[classes]


@dataclass(frozen=True)
class SrrSets(GraphIndex):
    """The sets of `SrrDocuments` as graphs without relations. It has no files of its own."""

    stored: Any = None  # the `SrrDocuments`

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "SrrSets":
        """Make an index of graphs without relations, in which each label of a set of `parts["srr"]` is an entity."""
        stored: SrrDocuments = parts["srr"]
        index = build_graphs(_as_graphs(stored.vectors), stored.document_of_row)
        return cls(**{field.name: getattr(index, field.name) for field in fields(index)}, stored=stored)

    def graphs_of(self, reports: Reports) -> tuple[GraphTable, np.ndarray]:
        """Return the sets of reports as graphs, and which each report has."""
        queries = self.stored.encode(reports)
        return _as_graphs(queries.vectors), queries.document_of_row


def _as_graphs(set_vectors: np.ndarray) -> GraphTable:
    """Return sets, int8[n, L], as a table of n graphs; the entities of graph i are its columns that are not 0."""
    document, member = np.nonzero(set_vectors)
    empty = np.empty(0, np.int32)
    return GraphTable(
        keys=[str(number) for number in range(len(set_vectors))],
        keyed_by="position",
        schema="labels",
        texts=[None] * len(set_vectors),
        tokens=[str(number) for number in range(set_vectors.shape[1])],
        labels=["label"],
        relation_types=[],
        entity_ptr=np.searchsorted(document, np.arange(len(set_vectors) + 1)).astype(np.int64),
        entity_token=member.astype(np.int32),
        entity_label=np.zeros(len(member), np.int32),
        relation_ptr=np.zeros(len(set_vectors) + 1, np.int64),
        relation_source=empty,
        relation_target=empty,
        relation_type=empty,
        n_dangling=0,
    )
