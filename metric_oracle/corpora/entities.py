"""Entities of reports with types and vectors, found by a recogniser and an encoder, as RaTEScore reads them."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

# Types of RaTE-NER (Zhao et al., EMNLP 2024); the place in this order is the number.
TYPES = ("abnormality", "anatomy", "disease", "non-abnormality", "non-disease")


@dataclass(frozen=True)
class EntityTable:
    """Entities of reports; those of report i are at ``ptr[i]`` to ``ptr[i + 1] - 1`` in the other arrays."""

    ids: list[str]
    ptr: npt.NDArray[np.int64]  # int64[n + 1]
    kinds: npt.NDArray[np.uint8]  # uint8[m], type of each entity: its index in `TYPES`
    vectors: npt.NDArray[np.float32]  # float32[m, d], vector of each entity: finite, other than zero, of any length

    def take(self, positions: npt.NDArray[np.int64]) -> "EntityTable":
        """Return the table of the reports at `positions`, in that order."""
        lengths = np.diff(self.ptr)[positions]
        ptr = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ptr[-1]) + np.repeat(self.ptr[:-1][positions] - ptr[:-1], lengths)
        ids = [self.ids[i] for i in positions.tolist()]
        return replace(self, ids=ids, ptr=ptr, kinds=self.kinds[places], vectors=self.vectors[places])
