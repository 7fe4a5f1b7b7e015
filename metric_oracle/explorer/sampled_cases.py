"""Several reports of a model for a test report, with their scores, for its page."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.samples import Samples
from metric_oracle.metrics import METRICS
from metric_oracle.samples.consensus import consensus
from metric_oracle.scores.groups import pairwise


@dataclass(frozen=True)
class SampledCases:
    """Reports that a model sampled for the test reports."""

    samples: Samples
    _position: dict[str, int] = field(init=False, repr=False)  # of each id in `samples`

    def __post_init__(self) -> None:
        object.__setattr__(self, "_position", {study: i for i, study in enumerate(self.samples.ids)})

    def check(self, ids: Sequence[str]) -> None:
        """Raise InputError if none of the test reports `ids` has samples."""
        if not any(study in self._position for study in ids):
            raise InputError(
                "sampled",
                "must have the ids of the test reports",
                "none of them",
                "Check that the files belong together.",
            )

    def of(self, study: str, reference: str | None, metrics: Sequence[str]) -> list[dict[str, Any]]:
        """Return the samples of the test report with the id `study`; none if there are none.

        They are scored with `reference`, its text, under those of `metrics` that read only texts; without a text there
        are no scores. A sample has its name, the metrics under which `consensus` chooses it, its log-probability or
        None, its text, its scores, and the metrics under which it is the best of this study.
        """
        place = self._position.get(study)
        if place is None:
            return []
        texts, names = self.samples.texts[place], self.samples.names[place]
        logprobs = [None] * len(texts) if self.samples.logprobs is None else self.samples.logprobs[place]
        of_texts = [name for name in dict.fromkeys(metrics) if _reads_texts(name)]
        named = of_texts if len(texts) > 1 else []
        with catch_warnings():
            simplefilter("ignore")  # what there is to note of the texts was said when their file was read
            scored = (
                {}
                if reference is None
                else {name: np.asarray(pairwise(texts, name, [reference]))[:, 0] for name in of_texts}
            )
            places_of_best = consensus({study: list(texts)}, named).chosen if named else {}
        best = {name: METRICS[name].best_of(values) for name, values in scored.items()}
        return [
            {
                "name": name,
                "consensus": [metric for metric, (place_of_best,) in places_of_best.items() if place_of_best == i],
                "logprob": logprob,
                "text": text,
                "scores": {metric: float(values[i]) for metric, values in scored.items()},
                "best": [metric for metric, values in scored.items() if values[i] == best[metric]],
            }
            for i, (name, logprob, text) in enumerate(zip(names, logprobs, texts, strict=True))
        ]


def _reads_texts(name: str) -> bool:
    """Return whether the score of a pair depends on its two texts alone."""
    metric = METRICS.get(name)
    if metric is None or metric.counts_corpus:
        return False
    representation = metric.reads
    return representation.is_of_texts and not representation.counts_queries
