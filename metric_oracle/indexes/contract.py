"""What a representation is: the distinct documents of a corpus, as kernels and plain scorers take them."""

import mmap
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs


class EncodedQueries(Protocol):
    """The distinct queries of a batch in one representation.

    Attributes
    ----------
    which : int64[Q]
        Distinct query of each query.
    batch : NamedTuple
        Arrays of the distinct queries, as the kernels take them.
    """

    which: np.ndarray

    @property
    def batch(self) -> Any:
        """Return the arrays that the kernels take."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records of the encoding."""
        return {}

    def item(self, q: int) -> Any:
        """Return a distinct query as the plain scorer takes it, as a reference."""

    def own(self, q: int) -> Any:
        """Return a distinct query as the plain scorer takes it, as a candidate for itself."""
        return self.item(q)

    def portable(self) -> Any:
        """Return what a model made, without a corpus, for `encode_again` in another process; None: nothing was made."""
        return None


class Representation(Protocol):
    """The distinct documents of a corpus in one representation, and the corpus rows that each stands for.

    Attributes
    ----------
    row_ptr, row_id : int64[D + 1], int64[...]
        Rows of each document, ascending.
    unit_of_row : int64[...]
        Document of each row, -1 for rows that the representation lacks.
    """

    @property
    def row_ptr(self) -> np.ndarray:
        """Offsets of the rows of each document."""

    @property
    def row_id(self) -> np.ndarray:
        """Corpus rows, ascending within a document."""

    @property
    def unit_of_row(self) -> np.ndarray:
        """Document of each corpus row, -1 for none."""

    @property
    def encode(self) -> Callable[..., Any]:
        """Return the function that makes `EncodedQueries` of Inputs, its settings as keywords."""

    def encode_again(self, inputs: Inputs, encoded: Any, **settings: Any) -> Any:
        """Do the same where another shard of the same set has encoded them; what does not go by the shard is kept.

        `encoded` is None where the other process had nothing that is worth sending.
        """

    def corpus(self, metric: Metric, encoded: Any) -> Any:
        """Return the named tuple of arrays that a metric's kernels take; weights may depend on the queries."""

    def item(self, unit: int) -> Any:
        """Return a document as the plain scorer takes it, whatever the queries."""

    def key(self, unit: int) -> Hashable:
        """Return what is equal for equal documents of two corpora, and only for them."""

    def candidate(self, unit: int, encoded: Any) -> Any:
        """Return a document as the plain scorer takes it for these queries."""


class StoredRepresentation(Representation, Protocol):
    """A representation with files of its own.

    Attributes
    ----------
    data_files, derived_files : tuple of str
        What it writes: what the fingerprint of an index covers, and what follows from that, such as bounds.
    """

    data_files: ClassVar[tuple[str, ...]]
    derived_files: ClassVar[tuple[str, ...]]

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Any, row_text: np.ndarray) -> Self:
        """Make it from the distinct texts of a corpus, the text of each row, and what belongs to the rows."""

    def save(self, folder: Path) -> None:
        """Write it into a folder of its own."""

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> Self:
        """Open what `save` wrote, by the names of the files; arrays stay in them."""

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records besides the numbers of documents and rows."""
