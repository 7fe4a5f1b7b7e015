"""Scores in memory: all pairs as a matrix, numbers by metric, and a reward for training."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.api.attached import attached
from metric_oracle.api.given import MODELS, Given, opened, split
from metric_oracle.api.scoring import own_sources, score, shared_models
from metric_oracle.corpora.missing import is_missing
from metric_oracle.corpora.reports import Reports, check_options
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import REPRESENTATIONS, Metric, get_metric
from metric_oracle.retrieval import pairs as _pairs
from metric_oracle.retrieval.checks import check_counted
from metric_oracle.retrieval.matrix import score_matrix
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.sources.contract import Source, source_of
from metric_oracle.sources.inputs import ARGUMENTS
from metric_oracle.sources.token_states import Encoding, load_encoding


@called("pairwise")
def pairwise(
    hypotheses: Given,
    references: Given,
    metric: str,
    *,
    index: str | Path | Index | None = None,
    options: SearchOptions | None = None,
) -> np.ndarray:
    """Score every hypothesis with every reference, exactly.

    Parameters
    ----------
    hypotheses, references : list of texts, another container or AttachedReports
        Empty ones count; a missing one (None) is an error. What the metric reads in addition to the texts is attached
        by [`reports`][metric_oracle.reports]; a model or an encoder of the references serves both sides.
    metric : str
        Name of a metric.
    index : path or Index, optional
        Corpus whose document frequencies count, see [`score`][metric_oracle.score].
    options : SearchOptions, optional
        `idf` and `rescale` of BERTScore.

    Returns
    -------
    numpy.ndarray
        float64[n, m]. Row i, column j: hypothesis i with reference j. Values are the metric's own: check its direction.

    Raises
    ------
    InputError
        If an argument is wrong, a report is missing, or a side lacks what the metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.pairwise(["no acute process"], ["no acute process", "clear"], "rouge-l")
    array([[1., 0.]])
    """
    record, options = get_metric(metric, "pairwise"), options or DEFAULTS
    options.check_used(("idf", "rescale"), "pairwise", "scores of given reports")
    one, other = attached(references), attached(hypotheses)
    models, encoded = shared_models(one, other, "pairwise")
    asked, prepared = one.read("pairwise", keep_empty=True)
    written, prepared_too = other.read("pairwise", predictions=True)
    for side in (asked, written):
        if side.states.get("missing"):
            msg = f"pairwise: reports must be texts; got {len(side.states['missing'])} missing. Leave them out."
            raise InputError(msg)
    encoding = None if encoded is None else encoded.open_encoding("pairwise")
    queries, corpus = _pairs.load_sides(
        asked,
        written,
        dict(one.sources),
        own_sources(one, other),
        prepared=(prepared, prepared_too),
        places=(range(len(asked.ids)), range(len(written.ids))),
        models=models,
        encoding=encoding,
    )
    counted = None if index is None else opened(index)
    return score_matrix(queries, corpus, record, options, counted)


@called("compute")
def compute(
    *,
    predictions: Given,
    references: Given,
    metrics: str | Sequence[str] | None = None,
    index: str | Path | Index | None = None,
    inner: bool = False,
    crepe: str | Path | Mapping[str, Any] | None = None,
    options: SearchOptions | None = None,
) -> dict[str, float]:
    """Return the mean score of predictions under each metric, as the `evaluate` library's metrics do.

    Parameters
    ----------
    predictions, references : list of texts, another container or AttachedReports
        Of lists, the reports at one place belong together.
    metrics : str or sequence of str, optional
        By default the usual ones that the sources allow.
    index, inner, crepe, options : optional
        See [`score`][metric_oracle.score], which also gives the score of each report.

    Returns
    -------
    dict of str to float
        Mean of each metric over the pairs that it can score.

    Raises
    ------
    InputError
        If the sides are of different sections, share no ids, or lack what a metric reads.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.compute(predictions=["no acute disease"], references=["no acute process"], metrics="rouge-l")
    {'rouge-l': 0.6666666666666666}
    """
    return score(references, predictions, metrics, index=index, inner=inner, crepe=crepe, options=options).mean()


def _model_of(source: Source, given: Mapping[str, Any], record: Metric) -> Callable[[list[str]], Any]:
    """Return what makes a source of texts: a function that was given, or one that runs the model that was."""
    value = given.get(source.argument)
    makers = [source_of(name) for name in (source.name, source.record.made_by) if name]
    if value is None and source.record.made_by:
        value = given.get(makers[-1].argument)
        value = value if makers[-1].is_model(value) else None
    for maker in makers:
        if maker.is_model(value):
            model = maker.open(value, given, "reward")
            return lambda texts: source.answer(maker.run(model, texts))
    if not callable(value):
        msg = (
            f"reward: {source.argument} must be a model or a function of texts for metric {record.name!r}; got "
            f"{type(value).__name__}. Pass its file, or what returns {source.record.plural} of a list of texts."
        )
        raise InputError(msg)
    return value


class _Remembered:
    """A model that keeps what it made of each text."""

    def __init__(self, model: Callable[[list[str]], Any]) -> None:
        self._model = model
        self._made: dict[str, Any] = {}

    def __call__(self, texts: list[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._made]
        found: Any = self._model(new) if new else []
        by_place = isinstance(found, Mapping)
        self._made |= {text: found.get(str(place)) if by_place else found[place] for place, text in enumerate(new)}
        rows = [self._made[text] for text in texts]
        is_graph = any(isinstance(row, Mapping) for row in rows)
        return {str(place): row for place, row in enumerate(rows) if row is not None} if is_graph else rows


@called("reward")
def reward(
    metric: str,
    *,
    index: str | Path | Index | None = None,
    column: str = "reference",
    sources: Mapping[str, Any] | None = None,
) -> Callable[..., list[float]]:
    """Return a reward function of the shape that TRL's GRPO trainer calls.

    Parameters
    ----------
    metric : str
        Where lower is better, the reward is the score's negative, because a trainer looks for the greatest reward. A
        metric whose scores depend on the other references of a call, such as ``cider-d``, is refused.
    index : path or Index
        Corpus whose document frequencies count under ``cider-d:corpus``, which needs it.
    column : str
        Column of the data set that holds the references.
    sources : dict, optional
        What makes what the metric reads, by the arguments of [`reports`][metric_oracle.reports], opened once: a
        RadGraph archive, ``chexbert.pth``, RaTE-NER's folder, or a function from texts to graphs, vectors or classes in
        their
        order; the encoder of BERTScore; and `uncertain`, `device` and what else the models need. What they make of
        references is kept.

    Returns
    -------
    function
        ``(prompts, completions, reference, **_) -> list of float``; completions are texts or lists of chat messages,
        whose last content counts. An empty completion scores as the metric says, and so does one that is nothing but a
        word for a missing report, such as "None".

    Raises
    ------
    InputError
        If the metric is refused, or lacks a model, an encoder or a corpus that it needs.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.reward("rouge-l")(completions=["no acute disease"], reference=["no acute process"])
    [0.6666666666666666]
    """
    given = dict(sources or {})
    check_options(given, (*ARGUMENTS, *MODELS, "encoder"), "reward")
    encoder = given.get("encoder")
    record = get_metric(metric, "reward")
    if not record.terms and REPRESENTATIONS[record.representation].counts_queries:
        instead = "cider-d:corpus with --index INDEX" if record.kernel == "cider_d" else "a metric that does not"
        msg = (
            f"reward: metric must be one whose scores do not depend on the other references of a call; got "
            f"{record.name!r}. Use {instead}."
        )
        raise InputError(msg)
    counted = None if index is None else opened(index)
    check_counted(counted, [record], None, "reward")
    models = {
        source.argument: _model_of(source, given, record)
        for source in (source_of(kind) for kind in record.representations if REPRESENTATIONS[kind].is_attached)
    }
    encoding: Encoding | None = None
    if record.needs_encoder:
        if encoder is None:
            msg = f"reward: encoder must be given for metric {record.name!r}; got None. Add a name or a folder."
            raise InputError(msg)
        encoding = load_encoding(encoder, "reward", **split(given, ("device",)))
    kept = {name: _Remembered(model) for name, model in models.items()}
    sign = 1.0 if record.higher_is_better else -1.0

    @called("reward")
    def rewarded(prompts: Any = None, completions: Sequence[Any] = (), **columns: Any) -> list[float]:
        references: Any = columns.get(column)
        try:
            texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        except (TypeError, LookupError):
            msg = (
                "reward: completions must be texts, or lists of chat messages with a content each; got others. Pass "
                "what the trainer passes."
            )
            raise InputError(msg) from None
        texts = ["" if is_missing(text) else text for text in texts]
        is_column = hasattr(references, "__len__") and not isinstance(references, str)
        n = len(references) if is_column else None
        if n != len(texts):
            got = n if is_column else "none" if references is None else type(references).__name__
            msg = (
                f"reward: {column} must be one report for each of {len(texts)} completions; got {got}. "
                "Name the column of the data set that holds them."
            )
            raise InputError(msg)
        keys = [str(place) for place in range(len(texts))]
        one, other = (Reports.from_texts(side, keys, keep_empty=True) for side in (list(references), texts))
        scores = _pairs.score(
            one,
            other,
            [record.name],
            system="completions",
            files=kept,
            predicted_files=models,
            models=split(given, ("uncertain",)),
            encoding=encoding,
            counted=counted,
        )
        return [sign * value for value in scores.table[record.name].to_pylist()]

    rewarded.__name__ = record.name if sign > 0 else f"negative {record.name}"
    return rewarded
