"""Queries of BERTScore: token states of a batch, as the kernels and the reference scorer take them."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metric_oracle.encoders.token_states import Tokens, states_digest
from metric_oracle.indexes.features import Encoded
from metric_oracle.kernels.bertscore.query import Corpus, TokenBatch


@dataclass(frozen=True)
class TokenItem:
    """One report as the reference scorer takes it.

    Attributes
    ----------
    states : float32[n, d]
    weights : float64[n]
    baseline : (precision, recall, f1) that scores are relative to, or None
    """

    states: np.ndarray
    weights: np.ndarray
    baseline: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class TokenQueries(Encoded):
    """Distinct token sequences of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
    tokens : Tokens
    states : float16 or float32[T, d]
    weights : float64[T]
    corpus : Corpus
        The candidates with the weights that belong to these queries.
    baseline : (precision, recall, f1) or None
    recorded : dict
        What the signature records.
    """

    which: np.ndarray
    tokens: Tokens
    states: np.ndarray
    weights: np.ndarray
    corpus: Corpus
    baseline: tuple[float, float, float] | None
    recorded: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return self.recorded

    @property
    def batch(self) -> TokenBatch:
        """What the kernels take."""
        return TokenBatch(self.states, self.tokens.ptr, self.weights, self.baseline)

    def portable(self) -> "TokenQueries":
        """Return it with no more of the corpus than the weights of tokens."""
        nothing: dict[str, Any] = dict.fromkeys(Corpus._fields)
        return replace(self, corpus=Corpus(**{**nothing, "weight_of_id": self.corpus.weight_of_id}))

    def item(self, q: int) -> TokenItem:
        """Return a distinct query."""
        return TokenItem(self.batch.states_of(q).astype(np.float32), self.batch.weights_of(q), self.baseline)


def digest_of(queries: TokenQueries) -> str:
    """Return what tells states from those of another device or library, whatever the order of the queries."""
    each = sorted(states_digest(queries.batch.states_of(q)) for q in range(len(queries.tokens.ptr) - 1))
    return hashlib.sha256("".join(each).encode()).hexdigest()
