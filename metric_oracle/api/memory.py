"""Scores in memory: all pairs as a matrix, numbers by metric, and a reward for training."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from metric_oracle.api.given import (
    ARGUMENTS,
    MODELS,
    SIDES,
    Given,
    Scoring,
    Sides,
    opened,
    predicted,
    reports_of,
    split,
)
from metric_oracle.api.scoring import score
from metric_oracle.corpora.missing import is_missing
from metric_oracle.corpora.reports import Reports, check_options
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import REPRESENTATIONS, Metric, get_metric
from metric_oracle.retrieval import pairs as _pairs
from metric_oracle.retrieval.checks import check_counted
from metric_oracle.retrieval.matrix import score_matrix
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.sources.contract import Source, source_of
from metric_oracle.sources.token_states import Encoding, load_encoding


@called("pairwise")
def pairwise(
    hypotheses: Given,
    references: Given,
    metric: str,
    *,
    index: str | Path | Index | None = None,
    encoder: str | Path | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **given: Unpack[Sides],
) -> np.ndarray:
    """Score every hypothesis with every reference, exactly.

    Parameters
    ----------
    hypotheses, references : list of texts, or another container
        Empty ones count; a missing one (None) is an error.
    metric : str
    index
        Corpus whose document frequencies count, see :func:`score`.
    encoder, idf, rescale
        Of BERTScore, see :func:`score`.
    radgraph, chexbert, ..., predicted_radgraph, ..., uncertain, ...
        What is given beside references and hypotheses (``predicted_``), or the models that make it: see :func:`score`.

    Returns
    -------
    float64[n, m]
        Row i, column j: hypothesis i with reference j. Values are the metric's own: check its direction.
    """
    check_options(given, SIDES, "pairwise")
    record = get_metric(metric, "pairwise")
    asked, prepared = reports_of(references, "pairwise", {}, keep_empty=True)
    written, prepared_too = reports_of(hypotheses, "pairwise", {}, predictions=True)
    for side in (asked, written):
        if side.states.get("missing"):
            msg = f"pairwise: reports must be texts; got {len(side.states['missing'])} missing. Leave them out."
            raise InputError(msg)
    encoding = None if encoder is None else load_encoding(encoder, "pairwise")
    queries, corpus = _pairs.load_sides(
        asked,
        written,
        split(given, ARGUMENTS),
        predicted(given),
        prepared=(prepared, prepared_too),
        places=(range(len(asked.ids)), range(len(written.ids))),
        models=split(given, MODELS),
        encoding=encoding,
    )
    counted = None if index is None else opened(index)
    return score_matrix(queries, corpus, record, SearchOptions(idf=idf, rescale=rescale), counted)


@called("compute")
def compute(
    *, predictions: Given, references: Given, metrics: str | Sequence[str] | None = None, **given: Unpack[Scoring]
) -> dict[str, float]:
    """Return the mean score of predictions under each metric, as the `evaluate` library's metrics do.

    Parameters
    ----------
    predictions, references : list of texts, or another container
        Of lists, the reports at one place belong together.
    metrics : str or sequence of str
        By default the usual ones that need nothing but what is given.
    **given
        Keywords of :func:`score`, which also gives the score of each report.
    """
    return score(references, predictions, metrics, **given).mean()


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
    encoder: str | Path | None = None,
    column: str = "reference",
    **given: Unpack[Sides],
) -> Callable[..., list[float]]:
    """Return a reward function of the shape that TRL's GRPO trainer calls.

    Parameters
    ----------
    metric : str
        Where lower is better, the reward is the score's negative, because a trainer looks for the greatest reward. A
        metric whose scores depend on the other references of a call, such as ``cider-d``, is refused.
    index : path or Index
        Corpus whose document frequencies count under ``cider-d:corpus``, which needs it.
    encoder : str or path
        Of BERTScore.
    column : str
        Column of the data set that holds the references.
    radgraph, chexbert, chexbert_labels, entities
        Models that make what the metric reads, opened once: a RadGraph archive, chexbert.pth, RaTE-NER's folder, or a
        function from texts to graphs, vectors or classes in their order. What they make of references is kept.
    uncertain, radgraph_encoder, vocabulary, entity_encoder, device
        See :func:`build_index`.

    Returns
    -------
    function
        ``(prompts, completions, reference, **_) -> list of float``; completions are texts or lists of chat messages,
        whose last content counts. An empty completion scores as the metric says, and so does one that is nothing but a
        word for a missing report, such as "None".
    """
    check_options(given, SIDES, "reward")
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
            one, other, [record.name], system="completions", files=kept, predicted_files=models,
            models=split(given, ("uncertain",)), encoding=encoding, counted=counted,
        )  # fmt: skip
        return [sign * value for value in scores.table[record.name].to_pylist()]

    rewarded.__name__ = record.name if sign > 0 else f"negative {record.name}"
    return rewarded
