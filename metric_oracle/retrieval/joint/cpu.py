"""Search by a metric or a sum of metrics among the documents that fulfil conditions on other metrics.

`ways.py` does the work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.kernels.topk.cpu import new_best
from metric_oracle.metrics import Term
from metric_oracle.retrieval.joint.conditions import listed
from metric_oracle.retrieval.joint.ways import Block, Workspace
from metric_oracle.retrieval.kernels import load_kernel


@dataclass(frozen=True)
class Backend(Kernel):
    """Searches under conditions on CPUs."""

    terms: Mapping[str, Term]  # all metrics by name: those of the order and those of the conditions
    ordered: Sequence[str]  # the metrics by which documents are ranked; their scores are added in this order
    conditions: Sequence[tuple[str, str, float]]  # metric, operator and number; every listed document fulfils all
    # What is computed once, for all threads: scores of distinct queries with all documents of metrics of few documents,
    # the arrays of `Block._by_document`, and how often a condition's metric could list all documents that fulfil it.
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels of the metrics."""
        return {name: load_kernel(term.metric, "cpu") for name, term in self.terms.items()}

    def new_workspace(self, corpus: Any) -> Workspace:
        """Return the scratch arrays of one thread."""
        return Workspace(new_best(len(corpus.row_ptr) - 1), {})

    def search(
        self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Workspace
    ) -> None:
        """Write the k best rows that fulfil all conditions for the distinct queries first .. last - 1 to `answers`."""
        Block(self, corpus, batch, k, answers, workspace).search(np.arange(first, last))

    def score_pairs(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the scores of pairs of a distinct query and a document, float64[n], and the components by name."""
        names = listed(self.ordered, self.conditions)
        values = {
            name: self.of_metric(name, corpus, batch, query, document)
            for name in dict.fromkeys((*self.ordered, *names))
        }
        scores = np.zeros(len(query))
        for name in self.ordered:
            scores += values[name]
        return scores, {name: values[name] for name in names}

    def components(
        self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return, by name, the scores of pairs under each metric of a sum and of the conditions: float64[n] each."""
        names = listed(self.ordered, self.conditions)
        return {name: self.of_metric(name, corpus, batch, query, document) for name in names}

    def kind(self, name: str) -> str:
        """Return the name of the representation that a metric reads."""
        return self.terms[name].metric.representation

    def of_metric(self, name: str, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> np.ndarray:
        """Return the scores of pairs of a distinct query and a document under the metric `name`: float64[n]."""
        kind = self.kind(name)
        own = corpus.document_of[kind][document].astype(np.int64)
        side = corpus.parts[name], batch.parts[kind]
        return self.kernels[name].pair_scores(*side, batch.place[kind][query], own)
