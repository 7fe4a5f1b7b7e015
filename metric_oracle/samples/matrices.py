"""The samples of each study with their sources, and the scores of all pairs of a group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.declarations import Flag, Uses
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import checksum
from metric_oracle.base.progress import Progress, counter
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.samples import Samples
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.judges.given import GivenJudge
from metric_oracle.judges.judge import Judge
from metric_oracle.metrics import REPRESENTATIONS, check_searched, get_metric
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import check_alone, with_frequencies
from metric_oracle.retrieval.corpus_index import counted_of
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.scores.groups import score_groups
from metric_oracle.scores.pair_scores import metric_entries, places_of

_USED = ("idf", "rescale", "threads")
# Arguments of the functions that score samples.
SampledReports: TypeAlias = Annotated[
    Any,
    Doc(
        "Several reports of a model for each study, called samples: JSON Lines or Parquet with lists in the column "
        "candidates, or a table with one row per sample."
    ),
]
MetricsOfSamples: TypeAlias = Annotated[
    str | GivenJudge | Sequence[str | GivenJudge],
    Doc(
        "Metrics of the samples, such as bleu, rouge-l or radgraph, see [`list_metrics`][metric_oracle.list_metrics], "
        "and judges: the name of one in oracle.toml, in Python what ``judge`` returns. Several with commas."
    ),
    option_types.METRIC,
]
CountedIndex: TypeAlias = Annotated[
    str | Path | Index | Any,
    Doc(
        "Index whose document frequencies the metric cider-d:corpus and `idf` corpus use, which need it: a folder that "
        "[`build_index`][metric_oracle.build_index] wrote; in Python also reports."
    ),
    Flag(metavar="INDEX"),
]
OptionsOfSamples: TypeAlias = Annotated[
    SearchOptions,
    Doc("`idf` and `rescale` of BERTScore, and `threads`."),
    Uses(*_USED),
]


def checked_metrics(
    metrics: Sequence[str],
    options: SearchOptions,
    index: AnyIndex | None,
    progress: Progress | None,
    *,
    may_be_none: bool = False,
) -> tuple[list[Metric], Index | None]:
    """Return the records of the metrics, each once, and the corpus whose document frequencies count, see `counted_of`.

    Raise InputError if one is unknown or has no exact search, a pair's score depends on other pairs of the call (also
    with `idf` "tests"), a corpus is needed and `index` is None, or another option was given; and if there is none,
    unless there `may_be_none`.
    """
    checked = [*{metric.name: metric for name in metrics for metric in [get_metric(name)]}.values()]
    if not checked and not may_be_none:
        raise InputError("metrics", "must be at least one", "none", "Name one.")
    for metric in checked:
        check_searched(metric)
        check_alone("metrics", metric, options.idf, "samples")
    options.check_used(_USED, "samples")
    return checked, counted_of(index, checked, options.idf, progress)


@dataclass(frozen=True)
class SampledGroups:
    """The samples of all studies as reports, and how they are scored."""

    reports: Reports  # one study after another
    sizes: npt.NDArray[np.int64]  # int64[G], number of samples of each study
    options: SearchOptions
    counted: Index | None  # corpus whose document frequencies count

    @classmethod
    def of(cls, samples: Samples, distinct: Reports, options: SearchOptions, counted: Index | None) -> "SampledGroups":
        """Return the groups of samples, whose distinct texts, with their sources, are `distinct`."""
        place = {text: i for i, text in enumerate(distinct.texts)}
        reports = distinct.take([place[text] for group in samples.texts for text in group])
        return cls(reports, np.array(samples.sizes, np.int64), options, counted)

    def matrices(self, metric: Metric) -> list[npt.NDArray[np.float64]]:
        """Return, for each study, the score of each sample (row) with each as its reference (column): float64[N, N]."""
        sizes = self.sizes, self.sizes
        return score_groups(self.reports, self.reports, sizes, metric, self.options, self.counted)

    def scores_with(self, references: Reports, metric: Metric) -> list[npt.NDArray[np.float64]]:
        """Return, for each study, the score of each sample with its reference: float64[N].

        `references` has one report per study, in order.
        """
        sizes = np.ones(len(self.sizes), np.int64), self.sizes
        scores = score_groups(references, self.reports, sizes, metric, self.options, self.counted)
        return [matrix[:, 0] for matrix in scores]

    def entries(self, references: Reports, metrics: list[Metric]) -> dict[str, dict[str, Any]]:
        """Return the signature entry of each metric by name, equal to that of `score` on the same references."""
        kinds = {kind for metric in metrics for kind in metric.representations}
        has_all = np.all([at >= 0 for kind in kinds if (at := places_of(self.reports, kind)) is not None], axis=0)
        sample = self.reports.take([int(np.argmax(has_all))])  # the entry depends on no text, so that one is enough
        built = MemoryIndex(sample, [metric.name for metric in metrics])
        index = with_frequencies(built, self.counted, metrics, self.options.idf)
        return metric_entries(index, references, metrics, self.options)


def judged_matrices(
    judges: Sequence[Judge],
    references: Sequence[Sequence[str]],
    samples: Sequence[Sequence[str]],
    tell: Callable[[str], None] | None,
    progress: Progress,
) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Return, by judge, its scores of all samples of each study with all references: float64[samples, references].

    The prices of all judges are told before the first is asked.
    """
    pairs = [
        (reference, sample)
        for of_study, group in zip(references, samples, strict=True)
        for sample in group
        for reference in of_study
    ]
    distinct = [*dict.fromkeys(pairs)]
    for judge in judges:
        judge.check_cost(len(distinct), judge.n_kept(distinct), tell)
    shapes = [(len(group), len(of_study)) for of_study, group in zip(references, samples, strict=True)]
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    matrices_of = {}
    for judge in judges:
        scores = judge.score(pairs, counter(progress, judge.name, len(distinct))).scores
        matrices_of[judge.name] = [
            part.reshape(shape) for part, shape in zip(np.split(scores, ends), shapes, strict=True)
        ]
    return matrices_of


def made_by(reports: Reports, metric: Metric) -> dict[str, dict[str, Any]]:
    """Return the signature entries of the encoder and the models that make what a metric reads, by representation.

    A representation that no model makes has none.
    """
    maker_of: dict[str, dict[str, Any]] = {}
    for kind in metric.representations:
        attachment = reports.attached.get(kind)
        if attachment is not None and attachment.made_by:
            maker_of[kind] = {"encoder": dict(attachment.made_by)}
        elif REPRESENTATIONS[kind].is_encoded and reports.opened_encoder is not None:
            maker_of[kind] = {"encoder": dict(reports.opened_encoder.encoder.signature)}
    return maker_of


def signature_of(samples: Samples, data: Any) -> dict[str, Any]:
    """Return the signature entry that identifies samples, a dict of `file`, its name, and `sha256` of all samples.

    `data` is what they were read from; "in memory" stands for the name unless it is a path.
    """
    name = Path(data).name if isinstance(data, str | Path) else "in memory"
    return {"file": name, "sha256": checksum([samples.ids, samples.texts, samples.names])}
