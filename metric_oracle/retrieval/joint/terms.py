"""The metrics of a sum with conditions, what was computed for all threads, and scores of pairs under one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from metric_oracle.kernels.contract import Kernel
from metric_oracle.records import Term
from metric_oracle.retrieval.kernels import load_kernel


@dataclass(frozen=True)
class Terms:
    """The metrics by which documents are ranked, and those of the conditions that listed documents fulfil."""

    terms: Mapping[str, Term]  # all metrics by name: those of the order and those of the conditions
    ordered: Sequence[str]  # the metrics by which documents are ranked; their scores are added in this order
    conditions: Sequence[tuple[str, str, float]]  # metric, operator and number; every listed document fulfils all
    # What is computed once, for all threads: scores of distinct queries with all documents of metrics of few documents,
    # the arrays of `ConditionalSearch._by_document`, and how often a condition's metric could list all documents that
    # fulfil it.
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernel of each metric, by its name."""
        return {name: load_kernel(term.metric, "cpu") for name, term in self.terms.items()}

    def kind(self, name: str) -> str:
        """Return the name of the representation that a metric reads."""
        return self.terms[name].metric.representation

    def of_metric(self, name: str, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the scores of pairs of a distinct query and a document under the metric `name`: float64[n]."""
        kind = self.kind(name)
        own = corpus.document_of[kind][document].astype(np.int64)
        side = corpus.parts[name], batch.parts[kind]
        return self.kernels[name].pair_scores(*side, batch.place[kind][query], own)
