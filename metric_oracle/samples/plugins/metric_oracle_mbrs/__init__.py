"""A metric for mbrs: metrics of this package in its decoders. The folder of this file goes with ``--plugin_dir``.

mbrs imports the folder as a package of its own and puts the folder above it first on the path of modules. That folder
has nothing else, so that no module is hidden.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from mbrs.metrics import Metric, register

from metric_oracle.base.errors import InputError, shown
from metric_oracle.scores.rewards import Scorer


@register("metric_oracle")
class MetricOracle(Metric):  # type: ignore[misc]
    """The scores of a metric of this package, the same as of `metric_oracle.pairwise`."""

    @dataclass
    class Config(Metric.Config):  # type: ignore[misc]
        """Configuration of the metric.

        - metric (str): Name of a metric that `oracle metrics` lists, such as rouge-l or radgraph.
        - sources (list[str]): Models that the metric reads, as NAME=FILE with the names of `metric_oracle.reports`,
          such as radgraph=radgraph.tar.gz or encoder=distilroberta-base.
        """

        metric: str = "rouge-l"
        sources: list[str] = field(default_factory=list)

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        sources = dict(source.partition("=")[::2] for source in cfg.sources)
        incomplete = [source for source in cfg.sources if not source.partition("=")[2]]
        if incomplete:
            step = "Write for example radgraph=radgraph.tar.gz."
            raise InputError("sources", "must be NAME=FILE", shown(incomplete[0]), step)
        self._scorer = Scorer.open(cfg.metric, None, sources)
        self.HIGHER_IS_BETTER = self._scorer.metric.higher_is_better

    def score(self, hypothesis: str, reference: str, source: str | None = None) -> float:
        """Return the score of a hypothesis with a reference; `source` is not read."""
        return float(self._matrix([hypothesis], [reference])[0, 0])

    def pairwise_scores(self, hypotheses: list[str], references: list[str], source: str | None = None) -> Any:
        """Return the score of every hypothesis with every reference: a tensor float64[H, R]; `source` is not read."""
        return torch.from_numpy(self._matrix(hypotheses, references))

    def _matrix(self, hypotheses: list[str], references: list[str]) -> np.ndarray:
        sign = self._scorer.metric.sign  # the scorer gives rewards
        both = hypotheses if hypotheses == references else [*hypotheses, *references]
        matrix = sign * self._scorer.scores(both, None, np.array([len(both)])).reshape(len(both), len(both))
        return matrix if both is hypotheses else matrix[: len(hypotheses), len(hypotheses) :]
