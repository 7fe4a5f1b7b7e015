"""Documents of several metrics at once: distinct combinations of those of each. They have no files of their own."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.lists import documents_of_rows, group_rows
from metric_oracle.kernels.sum.terms import Combined
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.records import Metric


@dataclass(frozen=True)
class CombinedDocuments(Documents):
    """Distinct combinations of the documents of several representations, of a corpus or of queries."""

    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each combination
    row_id: np.ndarray  # int64[...], rows, ascending within a combination; not those that lack a representation
    parts: dict[str, Documents]  # name of a representation -> its documents
    document_of: dict[str, np.ndarray]  # name of it -> int32[D], its document in each combination

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Join the representations of one corpus, by name, on its rows."""
        # BERTScore, which a model encodes, comes first, so that its documents ascend.
        return cls._distinct_combinations(parts, sorted(parts, key=lambda name: not REPRESENTATIONS[name].is_encoded))

    @classmethod
    def _distinct_combinations(cls, parts: dict[str, Any], names: Sequence[str]) -> Self:
        """Return the distinct combinations of documents of `parts`, sorted by those of `names` in turn."""
        n_rows = max(len(part.document_of_row) for part in parts.values())
        columns = [documents_of_rows(parts[name].row_ptr, parts[name].row_id, n_rows) for name in names]
        table = np.stack(columns, axis=1)
        complete = np.flatnonzero((table >= 0).all(axis=1))
        distinct, which = np.unique(table[complete], axis=0, return_inverse=True)
        item_of_row = np.full(n_rows, -1, np.int64)
        item_of_row[complete] = which.reshape(-1)
        document_of = {name: distinct[:, i].astype(np.int32) for i, name in enumerate(names)}
        return cls(*group_rows(item_of_row, len(distinct)), parts, document_of)

    def encode(self, reports: Reports, **settings: Any) -> Self:
        """Return the queries in `reports` encoded for each representation, with the settings that it has."""
        return self._queries(
            {name: part.encode(reports, **_of_part(name, settings)) for name, part in self.parts.items()}
        )

    def own(self, rows: np.ndarray) -> Self | None:
        """Return rows of this index as queries, None if the reports have to be encoded for a representation."""
        parts: dict[str, Any] = {name: part.own(rows) for name, part in self.parts.items()}
        return None if any(part is None for part in parts.values()) else self._queries(parts)

    def _queries(self, parts: dict[str, Any]) -> Self:
        """Return the combinations of queries that are encoded for each representation, by name."""
        return self._distinct_combinations(parts, [*parts])

    def item(self, document: int) -> dict[str, Any]:
        """Return the documents for the plain scorers of the metrics, keyed by representation."""
        return {name: part.item(int(self.document_of[name][document])) for name, part in self.parts.items()}

    def key(self, document: int) -> tuple[Hashable, ...]:
        """Return a value that identifies a combination in any index."""
        return tuple(part.key(int(self.document_of[name][document])) for name, part in sorted(self.parts.items()))

    def arrays(self, metric: Metric, queries: Documents) -> Combined:
        """Return the arrays that the kernels of the metrics of a sum read, each by the name of its metric."""
        parts, document_of = {}, {}
        for name, one in metric.metrics.items():
            own, document_of[name] = self.of_metric(one)
            parts[name] = own.arrays(one, queries.of_metric(one)[0])
        return Combined(parts, document_of, self.row_ptr, self.row_id)

    def translate(self, metric: Metric, queries: Documents) -> Combined:
        """Return the arrays of queries, each by the name of its metric."""
        parts, document_of = {}, {}
        for name, one in metric.metrics.items():
            of_metric, document_of[name] = queries.of_metric(one)
            parts[name] = self.of_metric(one)[0].translate(one, of_metric)
        return Combined(parts, document_of, queries.row_ptr, queries.row_id)

    def of_metric(self, metric: Metric) -> tuple[Documents, np.ndarray]:
        """Return the documents of one of the representations, and which of them each combination contains."""
        return self.parts[metric.representation], self.document_of[metric.representation]

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        """The settings that the signature records."""
        return {key: value for part in self.parts.values() for key, value in part.settings.items()}


def _of_part(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return those settings that the representation `kind` has."""
    return {key: settings[key] for key in REPRESENTATIONS[kind].settings if key in settings}
