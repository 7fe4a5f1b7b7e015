"""Labels -> distinct vectors of small integers: CheXbert's 14, and SRR-BERT's, which are sets of labels.

SRR-BERT (Delbrouck et al., ACL 2025) labels sentences with findings and their statuses, such as "Edema (Present)"; a
report has the labels of its sentences. Sets compare as graphs without relations do: a label is an entity.
"""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.radgraph_json import GraphTable
from metric_oracle.indexes.features import Units, group_rows
from metric_oracle.indexes.radgraph import GraphIndex, GraphQueries, build_graphs
from metric_oracle.indexes.store import read_arrays, write_arrays
from metric_oracle.indexes.vectors import VectorQueries, distinct_rows, flat_index, in_order_of_use
from metric_oracle.kernels.chexbert_labels.cpu import LabelBatch, LabelCorpus
from metric_oracle.kernels.cosine.codes import unit_vectors
from metric_oracle.metrics import Metric
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.inputs import Inputs

# Value of the classes 0 blank, 1 positive, 2 negative, 3 uncertain in a label vector.
VALUES = {"positive": (0, 1, -1, 1), "negative": (0, 1, -1, -1), "blank": (0, 1, -1, 0)}


@dataclass(frozen=True)
class LabelIndex(Units):
    """Distinct CheXbert label vectors of a corpus.

    Attributes
    ----------
    vectors : int8[D, 14]
        Positive 1, negative -1, blank 0, uncertain as recorded.
    row_ptr, row_id : int64[D + 1], int64[N]
    meaning : str
        What the classes mean: what an uncertain label counts as.
    """

    vectors: np.ndarray
    row_ptr: np.ndarray
    row_id: np.ndarray
    meaning: str
    kind: ClassVar[str] = "labels"
    setting: ClassVar[str] = "uncertain"  # the attachment's name of `meaning`
    data_files: ClassVar[tuple[str, ...]] = ("labels.arrow",)
    derived_files: ClassVar[tuple[str, ...]] = ()
    encodes_by_corpus: ClassVar[bool] = False

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "LabelIndex":
        """Index the labels of a corpus."""
        meaning = inputs.attached[kind].settings[cls.setting]
        vectors, document_of_row = cls._distinct(inputs, meaning)
        return cls(vectors, *group_rows(document_of_row, len(vectors)), meaning)

    def encode(self, inputs: Inputs) -> VectorQueries:
        """Give the queries' labels the values that the index uses."""
        vectors, which = self._distinct(inputs, self.meaning)
        return VectorQueries(which, LabelBatch(vectors))

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records."""
        return {self.setting: self.meaning}

    def corpus(self, metric: Metric, encoded: VectorQueries) -> LabelCorpus:
        """Return what the kernels take."""
        return LabelCorpus(self.vectors, self.row_ptr, self.row_id)

    def item(self, unit: int) -> np.ndarray:
        """Return the vector of a document."""
        return self.vectors[unit]

    def key(self, unit: int) -> bytes:
        """Return what tells a unit from others, in any index."""
        return self.vectors[unit].tobytes()

    def faiss(self) -> Any:
        """Return a faiss.IndexFlatIP over the directions of the vectors; one that is all blank stays zero."""
        directions = np.zeros(self.vectors.shape, np.float32)
        some = self.vectors.any(axis=1)
        directions[some] = unit_vectors(self.vectors[some])
        return flat_index(directions)

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        arrays = {"vectors": self.vectors, "row_ptr": self.row_ptr, "row_id": self.row_id}
        write_arrays(folder / "labels.arrow", {**arrays, self.setting: [self.meaning]})

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "LabelIndex":
        """Open a saved representation."""
        columns = read_arrays(files["labels.arrow"])
        meaning = columns.pop(cls.setting)[0]
        return cls(meaning=meaning, **columns)

    @classmethod
    def _distinct(cls, inputs: Inputs, meaning: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct label vectors of some reports, and each report's: -1 for none."""
        classes, of_row = inputs.attached[cls.kind].both
        used, place = in_order_of_use(of_row)
        vectors = cls._values(classes[used], meaning)
        position, which = distinct_rows(vectors)
        return vectors[position], np.where(place >= 0, which[place], -1) if len(which) else place

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        """Return what classes count as: int8[n, L]."""
        return np.array(VALUES[meaning], np.int8)[classes]


class SrrIndex(LabelIndex):
    """Distinct sets of SRR-BERT's labels: 1 for those that a report has; `meaning` tells their names from others."""

    kind: ClassVar[str] = "srr"
    setting: ClassVar[str] = "schema"

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        return (classes == 1).astype(np.int8)


class LabelTableIndex(SrrIndex):
    """Distinct rows of a table of labels of any names: 1 positive, -1 negative, 0 missing."""

    kind: ClassVar[str] = "label_table"

    @staticmethod
    def _values(classes: np.ndarray, meaning: str) -> np.ndarray:
        return np.array(VALUES["blank"], np.int8)[classes]


@dataclass(frozen=True)
class SrrSets(GraphIndex):
    """The same sets as graphs without relations; no files of its own."""

    stored: Any = None

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "SrrSets":
        """Make an entity of every label."""
        stored: SrrIndex = parts["srr"]
        made = build_graphs(_as_graphs(stored.vectors), stored.unit_of_row)
        for array in made.features:
            array.flags.writeable = False  # as in a mapped file: else the search is compiled once more
        return cls(**{one.name: getattr(made, one.name) for one in fields(made)}, stored=stored)

    def encode(self, inputs: Inputs) -> GraphQueries:
        """Find the queries' sets."""
        found = self.stored.encode(inputs)
        graphs = Attachment(_as_graphs(found.vectors), found.which)
        return super().encode(replace(inputs, attached={"radgraph": graphs}))


def _as_graphs(vectors: np.ndarray) -> GraphTable:
    """Return sets, int8[n, L], as graphs whose entities are the places of their members."""
    unit, member = np.nonzero(vectors)
    none = np.empty(0, np.int32)
    return GraphTable(
        keys=[str(place) for place in range(len(vectors))],
        keyed_by="position",
        schema="labels",
        texts=[None] * len(vectors),
        tokens=[str(place) for place in range(vectors.shape[1])],
        labels=["label"],
        relation_types=[],
        entity_ptr=np.searchsorted(unit, np.arange(len(vectors) + 1)).astype(np.int64),
        entity_token=member.astype(np.int32),
        entity_label=np.zeros(len(member), np.int32),
        relation_ptr=np.zeros(len(vectors) + 1, np.int64),
        relation_source=none,
        relation_target=none,
        relation_type=none,
        n_dangling=0,
    )
