"""Search by a metric or a sum of metrics among the documents that fulfil conditions on other metrics.

`ways.py` does the work.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.kernels.topk.cpu import new_best
from metric_oracle.retrieval.joint.conditions import listed
from metric_oracle.retrieval.joint.terms import Terms
from metric_oracle.retrieval.joint.ways import ConditionalSearch, Workspace


@dataclass(frozen=True)
class Backend(Terms, Kernel):
    """Searches under conditions on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(bound=False, signed=True)

    def new_workspace(self, corpus: Any) -> Workspace:
        """Return the scratch arrays of one thread."""
        return Workspace(new_best(len(corpus.row_ptr) - 1), {})

    def search(
        self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Workspace
    ) -> None:
        """Write the k best rows that fulfil all conditions for the distinct queries first .. last - 1 to `answers`."""
        ConditionalSearch(self, corpus, batch, k, answers, workspace).search(np.arange(first, last))

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
