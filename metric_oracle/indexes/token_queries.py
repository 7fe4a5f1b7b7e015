"""Encoded queries of BERTScore: the token states of a batch, for the kernels and for the plain scorer."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from metric_oracle.encoders.token_states import Tokens, states_digest
from metric_oracle.indexes.contract import Documents
from metric_oracle.kernels.bertscore.query import TokenBatch
from metric_oracle.records import Metric


@dataclass(frozen=True)
class TokenItem:
    """One report for the plain scorer."""

    states: np.ndarray  # float32[n, d], token states
    ids: np.ndarray  # int32[n], token ids
    # What follows is None of a document of the corpus: as a candidate it has the weights of the reference.
    weights: np.ndarray | None = None  # float64[n], weight of each token
    weight_of_id: np.ndarray | None = None  # float64[ids], weight of each token id
    baseline: tuple[float, float, float] | None = None  # (precision, recall, f1) that scores are relative to, if any


@dataclass(frozen=True)
class TokenQueries(Documents):
    """Distinct token sequences of a batch of queries."""

    row_ptr: np.ndarray  # int64[n + 1], offsets of the queries of each document
    row_id: np.ndarray  # int64[Q], queries, ascending within a document
    tokens: Tokens  # token ids of the distinct sequences
    states: np.ndarray  # float16 or float32[T, d], token states of the distinct sequences
    weights: np.ndarray  # float64[T], weight of each token
    weight_of_id: np.ndarray  # float64[ids], weight of each token id of the corpus and of these queries
    baseline: tuple[float, float, float] | None  # (precision, recall, f1) that scores are relative to, if any
    recorded: dict[str, Any]  # what the signature records

    @property
    def settings(self) -> dict[str, Any]:
        """The option idf, whether scores are rescaled, how many queries were cut off, and what made the states."""
        return self.recorded

    @property
    def batch(self) -> TokenBatch:
        """The arrays that the kernels read."""
        return TokenBatch(self.states, self.tokens.ptr, self.weights, self.baseline)

    def arrays(self, metric: Metric, queries: Documents) -> TokenBatch:
        """Return the arrays that the kernels read, for any metric."""
        return self.batch

    def item(self, q: int) -> TokenItem:
        """Return a distinct query, by its number, with the weights of its tokens and the baseline."""
        tokens = slice(self.tokens.ptr[q], self.tokens.ptr[q + 1])
        states = self.states[tokens].astype(np.float32)
        return TokenItem(states, self.tokens.ids[tokens], self.weights[tokens], self.weight_of_id, self.baseline)


def digest_of(queries: TokenQueries) -> str:
    """Return a SHA-256 of the states of the distinct queries, in hexadecimal, which does not depend on their order.

    Another device or another version of a library gives other states, and so another digest.
    """
    digests = sorted(states_digest(queries.batch.states_of(q)) for q in range(len(queries.tokens.ptr) - 1))
    return hashlib.sha256("".join(digests).encode()).hexdigest()
