"""A composite's representation: no files of its own, those of its parts that an index holds, joined row by row."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metric_oracle.indexes.features import Units, group_rows
from metric_oracle.indexes.inputs import Inputs


@dataclass(frozen=True)
class CompositeIndex(Units):
    """Distinct combinations of the units of several representations.

    Attributes
    ----------
    parts : dict
        Name -> opened representation.
    unit : dict of str to int32[D]
        Unit of each combination in each representation; those of BERTScore ascend.
    row_ptr, row_id : int64[D + 1], int64[...]
        Rows that have all of them.
    """

    parts: dict[str, Any]
    unit: dict[str, np.ndarray]
    row_ptr: np.ndarray
    row_id: np.ndarray

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "CompositeIndex":
        """Join representations of one corpus on its rows."""
        n_rows = max(len(part.unit_of_row) for part in parts.values())
        names = sorted(parts, key=lambda name: name != "bertscore")  # its units first: they ascend
        columns = [
            np.pad(parts[n].unit_of_row, (0, n_rows - len(parts[n].unit_of_row)), constant_values=-1) for n in names
        ]
        table = np.stack(columns, axis=1)
        complete = np.flatnonzero((table >= 0).all(axis=1))
        distinct, which = np.unique(table[complete], axis=0, return_inverse=True)
        item_of_row = np.full(n_rows, -1, np.int64)
        item_of_row[complete] = which.reshape(-1)
        unit = {name: distinct[:, i].astype(np.int32) for i, name in enumerate(names)}
        row_ptr, row_id = group_rows(item_of_row, len(distinct))
        row_ptr.flags.writeable = False  # as in a mapped file: else BERTScore's search is compiled once more
        return cls(parts, unit, row_ptr, row_id)

    def encode(self, inputs: Inputs, **settings: Any) -> "CompositeQueries":
        """Encode the queries for each representation; `settings` are those of BERTScore."""
        parts = {
            name: part.encode(inputs, **(settings if name == "bertscore" else {})) for name, part in self.parts.items()
        }
        table = np.stack([part.which for part in parts.values()], axis=1)
        distinct, which = np.unique(table, axis=0, return_inverse=True)
        place = {name: distinct[:, i] for i, name in enumerate(parts)}
        return CompositeQueries(which.reshape(-1), parts, place, self)

    def item(self, unit: int) -> dict[str, Any]:
        """Return what the reference scorers of the parts take, by representation."""
        return {name: part.item(int(self.unit[name][unit])) for name, part in self.parts.items()}


@dataclass(frozen=True)
class CompositeQueries:
    """Distinct combinations of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    parts : dict
        Representation -> encoded queries.
    place : dict of str to int64[n]
        Place of each combination among a representation's distinct queries.
    index : CompositeIndex
    scored : dict
        Values of the parts of pairs of distinct query and combination, as a search found them.
    """

    which: np.ndarray
    parts: dict[str, Any]
    place: dict[str, np.ndarray]
    index: CompositeIndex = field(repr=False)
    scored: dict[tuple[int, int], list[float]] = field(default_factory=dict, repr=False)

    def of(self, q: int, part: str) -> int:
        """Return the place of a combination among a representation's distinct queries."""
        return int(self.place[part][q])

    def item(self, q: int) -> dict[str, Any]:
        """Return what the reference scorers of the parts take, by representation."""
        return {name: part.item(self.of(q, name)) for name, part in self.parts.items()}

    def candidate(self, unit: int) -> dict[str, Any]:
        """Return a combination of the corpus with the weights that belong to these queries."""
        return {
            name: getattr(queries, "candidate", self.index.parts[name].item)(int(self.index.unit[name][unit]))
            for name, queries in self.parts.items()
        }

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return getattr(self.parts.get("bertscore"), "settings", {})
