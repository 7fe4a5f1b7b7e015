"""Encoded queries of BERTScore: the token states of a batch, for the kernels and for the plain scorer."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metric_oracle.encoders.token_states import Tokens, states_digest
from metric_oracle.indexes.documents import Encoded
from metric_oracle.kernels.bertscore.query import TokenBatch, TokenCorpus


@dataclass(frozen=True)
class TokenItem:
    """One report for the plain scorer."""

    states: np.ndarray  # float32[n, d], token states
    weights: np.ndarray  # float64[n], weight of each token
    baseline: tuple[float, float, float] | None = None  # (precision, recall, f1) that scores are relative to, if any


@dataclass(frozen=True)
class TokenQueries(Encoded):
    """Distinct token sequences of a batch of queries."""

    which: np.ndarray  # int64[Q], distinct sequence of each query
    tokens: Tokens  # token ids of the distinct sequences
    states: np.ndarray  # float16 or float32[T, d], token states of the distinct sequences
    weights: np.ndarray  # float64[T], weight of each token
    corpus: TokenCorpus  # the corpus with the token weights of these queries
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

    def portable(self) -> "TokenQueries":
        """Return these queries without the arrays of the corpus, except the weights of tokens."""
        without: dict[str, Any] = dict.fromkeys(TokenCorpus._fields)
        return replace(self, corpus=TokenCorpus(**{**without, "weight_of_id": self.corpus.weight_of_id}))

    def item(self, q: int) -> TokenItem:
        """Return a distinct query, by its number, with the weights of its tokens and the baseline."""
        return TokenItem(self.batch.states_of(q).astype(np.float32), self.batch.weights_of(q), self.baseline)


def digest_of(queries: TokenQueries) -> str:
    """Return a SHA-256 of the states of the distinct queries, in hexadecimal, which does not depend on their order.

    Another device or another version of a library gives other states, and so another digest.
    """
    digests = sorted(states_digest(queries.batch.states_of(q)) for q in range(len(queries.tokens.ptr) - 1))
    return hashlib.sha256("".join(digests).encode()).hexdigest()
