"""Search by a sum on CPUs: `weighted.py` searches by weighted sums, `ways.py` by sums and metrics under conditions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from metric_oracle.kernels.bertscore import cpu as bertscore
from metric_oracle.kernels.contract import Answers, Capabilities
from metric_oracle.kernels.sum.terms import Combined, Terms
from metric_oracle.kernels.sum.ways import ConditionalSearch
from metric_oracle.kernels.sum.weighted import BERTSCORE, WeightedSearch


@dataclass(frozen=True)
class Backend(Terms):
    """Sums on CPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(signed=True, splits=True)
    stages_of_bertscore: ClassVar[Any] = staticmethod(bertscore.stages)

    def search(
        self, corpus: Combined, batch: Combined, queries: range, k: int, answers: Answers, workspace: dict[str, Any]
    ) -> None:
        """Write the k best rows that fulfil all conditions for the distinct queries numbered in `queries`."""
        kind_of_search = WeightedSearch if self.metric.is_weighted else ConditionalSearch
        kind_of_search(self, corpus, batch, k, answers, workspace).search(queries)

    def new_workspace(self, corpus: Combined) -> dict[str, Any]:
        """Return an empty dict for the scratch arrays of one thread, which the first query adds."""
        return {}

    def stages(self, workspaces: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the shares of pairs that each stage of BERTScore's search dropped and that were scored.

        They are with the closest calls of its bounds, of cosines and of bonuses: the least difference between an error
        margin and a measured error. Only weighted sums are searched by bounds of their own.
        """
        if not self.metric.is_weighted:
            return {}
        stages = self.stages_of_bertscore([workspace.get(BERTSCORE, {}) for workspace in workspaces])
        closest = {**stages.get("closest_call", {}), **self.closest}
        return {**stages, "closest_call": closest} if closest else stages
