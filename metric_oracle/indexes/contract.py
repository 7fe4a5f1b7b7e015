"""Protocols of representations: the distinct documents of a corpus, in the form that kernels and plain scorers read.

A plain scorer is the function `score` in a metric's `reference.py`: it scores one pair, in plain, slow Python.
"""

import mmap
from collections.abc import Callable, Hashable, Mapping, Sequence
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
        Arrays of the distinct queries, which the kernels read.
    """

    which: np.ndarray

    @property
    def batch(self) -> Any:
        """Return the arrays that the kernels read."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the encoding that the signature records."""
        return {}

    def item(self, q: int) -> Any:
        """Return a distinct query as a reference for the plain scorer."""

    def as_candidate(self, q: int) -> Any:
        """Return a distinct query in the form that candidates have, so that it can be scored with itself."""
        return self.item(q)

    def portable(self) -> Any:
        """Return the output of a model without the arrays of the corpus, for `encode_again` in another process.

        None if no model ran; the other process then encodes the queries itself.
        """
        return None


class Representation(Protocol):
    """The distinct documents of a corpus in one representation, and the corpus rows of each.

    Attributes
    ----------
    row_ptr, row_id : int64[D + 1], int64[...]
        Rows of each document, ascending.
    document_of_row : int64[...]
        Document of each row, -1 for rows that the representation lacks.
    """

    @property
    def row_ptr(self) -> np.ndarray:
        """Offsets of the rows of each document."""

    @property
    def row_id(self) -> np.ndarray:
        """Corpus rows, ascending within a document."""

    @property
    def document_of_row(self) -> np.ndarray:
        """Document of each corpus row, -1 for none."""

    @property
    def encode(self) -> Callable[..., Any]:
        """Return the function that encodes Inputs as `EncodedQueries`; its keyword arguments are the settings."""

    def encode_rows(self, inputs: Inputs, **settings: Any) -> Any:
        """Encode queries that are rows of this index, see `Inputs.stored`; each of them has a document."""

    def encode_again(self, inputs: Inputs, encoded: Any, **settings: Any) -> Any:
        """Encode queries that were encoded for another shard of the same set, and reuse what the shards share.

        `encoded` is None if the process that encoded them sent nothing; see `EncodedQueries.portable`.
        """

    def own_batch(self) -> Any:
        """Return the corpus's own documents as queries for the kernels, to score documents with one another.

        None if the documents have to be encoded for that.
        """

    def corpus(self, metric: Metric, encoded: Any) -> Any:
        """Return the named tuple of arrays that the kernels of a metric read; weights may depend on the queries."""

    def item(self, document: int) -> Any:
        """Return a document for the plain scorer, without anything that depends on the queries."""

    def key(self, document: int) -> Hashable:
        """Return a value that identifies a document in any index: equal for equal documents, and only for them."""

    def candidate(self, document: int, encoded: Any) -> Any:
        """Return a document as a candidate for the plain scorer, with what depends on the queries, such as weights."""


class StoredRepresentation(Representation, Protocol):
    """A representation with files of its own."""

    # Names of its files: those that the fingerprint of an index covers, and those derived from them, such as
    # bounds.
    data_files: ClassVar[tuple[str, ...]]
    derived_files: ClassVar[tuple[str, ...]]

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Any, row_text: np.ndarray) -> Self:
        """Build the representation of a corpus.

        Parameters
        ----------
        kind : str
            Name of the representation in the registry.
        inputs : Inputs
            The corpus with its sources.
        texts : sequence of str
            The distinct texts.
        row_text : int64[N]
            Index in `texts` of the text of each corpus row.
        """

    @classmethod
    def build_for_pairs(
        cls, kind: str, inputs: Inputs, texts: Any, row_text: np.ndarray, metrics: Sequence[Metric]
    ) -> Self:
        """Build what `Kernel.pair_scores` and the plain scorers of some metrics read; it cannot be searched.

        Parameters
        ----------
        kind, inputs, texts, row_text
            See `build`.
        metrics : sequence of Metric
            All metrics that will read it; none of them is a composite.
        """

    def save(self, folder: Path) -> None:
        """Write the files into a folder that belongs to this representation alone."""

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> Self:
        """Open the files that `save` wrote, mapped and keyed by name; the arrays stay in the mapped files."""

    def counts(self) -> dict[str, Any]:
        """Return the values that the manifest records in addition to the numbers of documents and rows."""
