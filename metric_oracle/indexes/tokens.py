"""What BERTScore and sentences share: documents that are lists of vectors, with the data that bound their cosines."""

from typing import Any

import numpy as np

from metric_oracle.indexes.contract import StoredDocuments
from metric_oracle.kernels.bertscore.codec import in_order
from metric_oracle.kernels.bertscore.query import TokenCorpus


class TokenDocuments(StoredDocuments):
    """Base of representations whose documents are lists of vectors, such as the states of tokens."""

    states: np.ndarray  # float16 or float32[T, d], vectors of length 1 up to rounding
    ids: np.ndarray  # int32[T], ids of the tokens, on which their weights depend
    ptr: np.ndarray  # int64[D + 1], offsets of the tokens of each document
    # of a corpus: the arrays of `kernels.bertscore.codec.screen`, by name; indexes of version 0.2 have no "order", and
    # the tokens of each document in the order of `states`
    screens: dict[str, np.ndarray] | None

    def weighted(self, weight_of_id: np.ndarray) -> TokenCorpus:
        """Return the arrays that the kernels read; `weight_of_id` has the weight of each token id: float64[ids]."""
        assert self.screens is not None
        screens: dict[str, Any] = {**self.screens, "norm_error": float(self.screens["norm_error"][0])}
        weights = weight_of_id[self.ids].astype(np.float32)
        return TokenCorpus(
            states=self.states.view(np.uint16) if self.states.dtype == np.float16 else self.states,
            ptr=self.ptr,
            weights=np.pad(in_order(weights, self.ptr, screens.pop("order", None)), (0, 16)),
            document_weight=np.add.reduceat(weights, self.ptr[:-1], dtype=np.float64),
            weight_of_id=weight_of_id,
            ids=self.ids,
            row_ptr=self.row_ptr,
            row_id=self.row_id,
            **screens,
        )
