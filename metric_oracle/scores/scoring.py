"""Scores of a model's reports: references and predictions, joined on ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_options, given_of
from metric_oracle.base.declarations import PREDICTED, Flag, Uses
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, silent
from metric_oracle.base.validation import public
from metric_oracle.corpora.sections import check_sections
from metric_oracle.findings.results import Scores
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.memory import MemoryIndex
from metric_oracle.indexes.shards import section_of
from metric_oracle.judges.given import MetricsOrJudges, opened_judges, parted
from metric_oracle.judges.judge import Judge
from metric_oracle.judges.pair_models import PairScorer, opened_models
from metric_oracle.metrics import METRICS, get_metric
from metric_oracle.reading import Given
from metric_oracle.retrieval.checks import with_frequencies
from metric_oracle.retrieval.corpus_index import counted_of
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.scores.pair_scores import DEFAULT_METRICS, score_rows, with_judge
from metric_oracle.sides import SCORED, Joined, Sides
from metric_oracle.sources.attaching import can_make
from metric_oracle.sources.pair_models import open_pair_models

_NAME = "predictions"  # of the model's reports among the sides
# Keys of a checkpoint of CREPE, by the names of the registry.
CREPE = {"path": "crepe", "config": "crepe_config", "vocabulary": "crepe_vocabulary"}


# Both sides of a score, and the corpus whose reports are counted.
References: TypeAlias = Annotated[
    Given,
    Doc(
        "Reference reports, which radiologists wrote: in any form that [`reports`][metric_oracle.reports] takes. A "
        "model or an encoder that is given for them serves the predictions, too."
    ),
]
Predictions: TypeAlias = Annotated[
    Given,
    Doc(
        "Reports that a model wrote: in any form that [`reports`][metric_oracle.reports] takes, or a file as the code "
        "of R2Gen, CvT2DistilGPT2, M2 Trans, CXR-RePaiR, CXR-ReDonE or ReXrank writes it. Empty reports are scored."
    ),
]
Counted: TypeAlias = Annotated[
    str | Path | Index | Any,
    Doc(
        "Index whose document frequencies the metric cider-d:corpus and `idf` corpus use, which need it: a folder that "
        "[`build_index`][metric_oracle.build_index] wrote; in Python also reports. Its section is the default of "
        "the references'."
    ),
    Flag(metavar="INDEX"),
]
OfBertscore: TypeAlias = Annotated[
    SearchOptions,
    Doc(
        "Options of BERTScore, `idf` and `rescale`: see [`SearchOptions`][metric_oracle.SearchOptions]. For ``tests`` "
        "the references are counted, for ``corpus`` the reports of `index`."
    ),
    Uses("idf", "rescale"),
]


@public
def score(
    references: References,
    predictions: Predictions,
    metrics: MetricsOrJudges | None = None,
    *,
    index: Counted | None = None,
    system: Annotated[
        str | None,
        Doc("Name of the model that wrote the predictions. By default that of their file without its ending."),
        Flag(panel=PREDICTED),
    ] = None,
    inner: option_types.Inner = False,
    text: option_types.WithText = False,
    crepe: option_types.Crepe | None = None,
    options: OfBertscore | None = None,
    progress: Progress | None = None,
) -> Scores:
    """Score a model's reports against the radiologists' reports of the same studies, joined on ids.

    Returns
    -------
    Scores
        One row for each reference; null where a pair cannot be scored.

    Raises
    ------
    InputError
        If the sides are of different sections, share less than half of the ids of the side with fewer, or lack what a
        metric reads.

    Warns
    -----
    UserWarning
        If predictions are of a kind that Yu et al. compare with another section. If the references were attached with
        `tell`, this function is called with the line instead.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.score(["no acute process"], ["no acute disease"], "rouge-l").mean()
    {'rouge-l': 0.6666666666666666}
    """
    (names, judges), options = parted(metrics), options or DEFAULTS
    if names == [] and not judges:
        step = "Name at least one, or leave the argument out for the default metrics."
        raise InputError("metrics", "must be at least one", "none", step)
    named_metrics = [get_metric(name, for_scores=True) for name in names or ()]
    options.check_used(("idf", "rescale"), "scores of given reports")
    sides = Sides.of(references, {_NAME: predictions}, SCORED)
    system = system or sides.predictions[_NAME].name or _NAME
    models, corpus = sides.models, counted_of(index, named_metrics, options.idf, progress)
    pair_models = opened_models(named_metrics, {} if crepe is None else open_crepe(crepe, models.get("device")))
    with opened_judges(judges) as asked:
        sides = sides.read(section_of(corpus, sides.predictions[_NAME].data))
        if corpus is not None:
            check_sections(sides.read_truth.known_section, corpus.section, ("references", "index"))
        sides.tell_wordless(named_metrics or [get_metric("rouge-l")])
        sides.check_sources(_NAME, named_metrics)
        scoring = _Scoring(names, system, text, options, corpus, pair_models, asked, progress)
        return scoring.scores(sides, sides.join(_NAME, inner))


@dataclass(frozen=True)
class _Scoring:
    """How the pairs of references and predictions are scored."""

    names: Sequence[str] | None  # metrics; None for those that both sides allow
    system: str  # name of the model that wrote the predictions
    text: bool  # whether the texts are columns of the scores
    options: SearchOptions
    counted: Index | None  # the corpus whose document frequencies count
    pair_models: Mapping[str, PairScorer]
    judges: Sequence[Judge]
    progress: Progress | None

    def scores(self, sides: Sides, joined: Joined) -> Scores:
        """Return the scores of the pairs, in the order of the references."""
        order = sorted(joined.predictions)  # so that sources in the order of the predictions still fit
        both = sides.read_truth.take(joined.references), sides.written[_NAME].take(order)
        queries, corpus = sides.load(_NAME, *both, self.progress)
        row_of = {prediction: row for row, prediction in enumerate(order)}
        rows = np.array([row_of[i] for i in joined.predictions], np.int64)
        pairs = [(text, corpus.texts[row]) for text, row in zip(queries.texts, rows, strict=True)]
        for judge in self.judges:
            judge.check_cost(len({*pairs}), judge.n_kept({*pairs}), sides.listener)
        usual = [
            name for name in DEFAULT_METRICS if all(can_make(corpus, kind) for kind in METRICS[name].representations)
        ]
        names = None if self.names is None else [get_metric(name, for_scores=True).name for name in self.names]
        built = [name for name in (usual if names is None else names) if METRICS[name].is_searched]
        index = MemoryIndex(corpus, built, progress=silent if self.progress is None else self.progress)
        scores = score_rows(
            with_frequencies(index, self.counted, [METRICS[name] for name in names or ()], self.options.idf),
            queries,
            rows,
            names,
            system=self.system,
            options=self.options,
            text=self.text,
            progress=self.progress,
            pair_models=self.pair_models,
        )
        for judge in self.judges:
            scores = with_judge(scores, judge, pairs, self.progress)
        _tell_of_cuts(scores, sides)
        return replace(scores, signature={**scores.signature, "left_out": joined.left_out})


def _tell_of_cuts(scores: Scores, sides: Sides) -> None:
    """Tell how many reports were longer than what a model reads."""
    if sides.listener is None:
        return
    n_cut = max(entry.get("truncated_queries", 0) for entry in scores.signature["metrics"].values())
    if n_cut:
        sides.tell(f"cut off at the encoder's longest input: {n_cut:,} references")
    noted = scores.signature.get("noted", {}).values()
    n_cut = max((described.get("truncated_pairs", 0) for described in noted), default=0)
    if n_cut:
        sides.tell(f"cut off at the longest input of a model that reads both reports: {n_cut:,} pairs")


@public
def compute(
    *,
    predictions: Predictions,
    references: References,
    metrics: MetricsOrJudges | None = None,
    index: Counted | None = None,
    inner: option_types.Inner = False,
    crepe: option_types.Crepe | None = None,
    options: OfBertscore | None = None,
) -> dict[str, float]:
    """Return the mean score of predictions under each metric, as the `evaluate` library's metrics do.

    In lists, the reports at the same position belong together. [`score`][metric_oracle.score] also gives the score of
    each report.

    Returns
    -------
    dict of str to float
        Mean of each metric over the pairs that it can score.

    Raises
    ------
    InputError
        If the sides are of different sections, share less than half of the ids of the side with fewer, or lack what a
        metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.compute(predictions=["no acute disease"], references=["no acute process"], metrics="rouge-l")
    {'rouge-l': 0.6666666666666666}
    """
    return score(references, predictions, metrics, index=index, inner=inner, crepe=crepe, options=options).mean()


def open_crepe(crepe: str | Path | Mapping[str, Any], device: str | None = None) -> dict[str, Any]:
    """Return the opened model of a checkpoint of CREPE in a dict, by the name of its representation.

    `crepe` is a path, or a dict as in `score`, whose entry "device" comes before `device`. Raise InputError if it does
    not name a checkpoint, or its files are not one.
    """
    arguments = dict(crepe) if isinstance(crepe, Mapping) else {"path": crepe}
    check_options(arguments, (*CREPE, "device"))
    if arguments.get("path") is None:
        others = [repr(name) for name in given_of(arguments, ("config", "vocabulary"))]
        raise InputError(
            "crepe",
            "must name a checkpoint",
            f"{' and '.join(others)} alone" if others else "none",
            "Add 'path': FOLDER." if others else "Add `crepe=FOLDER`.",
        )
    named = {CREPE[name]: value for name, value in given_of(arguments).items() if name in CREPE}
    return open_pair_models(named, str(arguments["device"]) if arguments.get("device") else device)
