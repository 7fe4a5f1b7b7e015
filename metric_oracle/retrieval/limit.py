"""The scores that a row must reach to be listed, query by query, while a search goes from shard to shard."""

from dataclasses import dataclass, replace

import numpy as np

from metric_oracle.retrieval.merge import BestRows


@dataclass(frozen=True)
class Limit:
    """A score for each query; rows that score worse may be left out."""

    sign: float  # of the metric: -1.0 where lower scores are better
    scores: np.ndarray | None = None  # float64[Q]; None for no limit

    def at_least(self, scores: np.ndarray | None) -> "Limit":
        """Return the limit that also demands these scores, float64[Q]; None demands nothing."""
        if scores is None or self.scores is None:
            return replace(self, scores=self.scores if scores is None else scores)
        better = np.maximum if self.sign > 0 else np.minimum
        return replace(self, scores=better(self.scores, scores))

    def after(self, best: BestRows, k: int) -> "Limit":
        """Return the limit for further shards: rows must reach the k-th best of the shards so far, `best`."""
        return self if best.rows.shape[1] < k else self.at_least(best.scores[:, -1])

    def of_distinct(self, which: np.ndarray, n: int) -> np.ndarray:
        """Return the limits of n distinct queries, float64[n]; `which`, int64[Q], is the distinct one of each query.

        Of equal queries the least demanding limit counts.
        """
        worst = -self.sign * np.inf
        if self.scores is None:
            return np.full(n, worst)
        limits = np.full(n, -worst)
        (np.minimum if self.sign > 0 else np.maximum).at(limits, which, self.scores)
        return limits
