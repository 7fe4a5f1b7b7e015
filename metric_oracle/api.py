"""The public functions: files in, answers out. The command line calls these and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.corpora.predictions import read_predictions
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.corpora.vectors import read_embeddings
from metric_oracle.errors import InputError
from metric_oracle.indexes import index as _index
from metric_oracle.indexes.index import Index, open_index
from metric_oracle.indexes.inputs import Inputs, load_encoding, load_inputs
from metric_oracle.metrics import COMPOSITE
from metric_oracle.retrieval import baselines as _baselines
from metric_oracle.retrieval import expectation as _expectation
from metric_oracle.retrieval import pairs as _pairs
from metric_oracle.retrieval import search as _search
from metric_oracle.retrieval import verification as _verification
from metric_oracle.retrieval.composite.weights import read_weights
from metric_oracle.retrieval.expectation import Expectation
from metric_oracle.retrieval.results import Results, Scores, read_results, read_scores

__all__ = [
    "baseline",
    "build_index",
    "expectation",
    "load_queries",
    "open_index",
    "read_scores",
    "retrieve",
    "score",
    "verify",
]


_ENCODING_OPTIONS = ("layer", "states", "bf16", "baseline", "device", "max_memory", "tell", "advance")


def build_index(
    reports: str | Path | Reports,
    out: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    radgraph: str | Path | None = None,
    chexbert: str | Path | None = None,
    chexbert_ids: str | Path | None = None,
    chexbert_labels: str | Path | None = None,
    uncertain: str | None = None,
    encoder: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Index:
    """Build an index of a corpus of reports.

    Parameters
    ----------
    reports : path or Reports
        A file or folder that :func:`metric_oracle.corpora.reports.read_reports` knows.
    out : path
        New folder.
    metrics : sequence of str
        Metrics to build for; by default all that the given files allow.
    radgraph : path
        RadGraph JSON of the reports, or a model archive that makes it.
    chexbert, chexbert_ids : path
        CheXbert embeddings, and the file of their ids where they carry none; or chexbert.pth, which makes them.
    chexbert_labels : path
        CheXbert labels.
    uncertain : {"positive", "negative", "blank"}
        What an uncertain label counts as; required with labels.
    encoder : str or path
        Name or folder of a Hugging Face encoder, for token states.
    progress : function
        Called with the name of each part before it is built.
    **options
        Keyword arguments of :func:`metric_oracle.indexes.inputs.load_encoding` (layer, states, ...) and of
        ``read_reports``.
    """
    of_encoder = {name: options.pop(name) for name in _ENCODING_OPTIONS if name in options}
    of_models = {name: of_encoder[name] for name in ("device", "tell", "advance") if name in of_encoder}
    given = [name for name, v in of_encoder.items() if v is not None and v is not False and name not in of_models]
    if encoder is None and given:
        msg = f"build_index: encoder must be given with {', '.join(given)}; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    corpus = reports if isinstance(reports, Reports) else read_reports(reports, **options)
    encoding = None if encoder is None else load_encoding(encoder, "build_index", **of_encoder)
    inputs = load_inputs(
        corpus.ids,
        corpus.texts,
        "build_index",
        radgraph=radgraph,
        chexbert=chexbert,
        chexbert_ids=chexbert_ids,
        labels=chexbert_labels,
        uncertain=uncertain,
        encoding=encoding,
        **of_models,
    )
    states = {name: corpus.counts.get(name, 0) for name in ("missing", "empty", "tokenless")}
    return _index.build_index(inputs, out, metrics=metrics, source=corpus.source, states=states, progress=progress)


def load_queries(
    queries: str | Path | Sequence[str] | Reports,
    *,
    radgraph: str | Path | None = None,
    chexbert: str | Path | None = None,
    chexbert_ids: str | Path | None = None,
    chexbert_labels: str | Path | None = None,
    uncertain: str | None = None,
    encoder: str | Path | None = None,
    **reading: Any,
) -> Inputs:
    """Read test reports and what belongs to them.

    Parameters
    ----------
    queries : path, list of texts, or Reports
        A path is a file; a list holds the reports themselves, whose ids become "0", "1", ...
    radgraph, chexbert, chexbert_ids, chexbert_labels, uncertain, **reading
        As in :func:`build_index`.
    encoder : str or path
        Where the encoder of the index is now; by default where it was when the index was built.
    """
    if isinstance(queries, Reports):
        ids, texts = queries.ids, queries.texts
    elif isinstance(queries, str | Path):
        read = read_reports(queries, **reading)
        ids, texts = read.ids, read.texts
    else:
        texts = list(queries)
        if not all(isinstance(text, str) for text in texts):
            msg = "load_queries: queries must be texts, a path or Reports; got a list with other values. Drop those."
            raise InputError(msg)
        ids = [str(i) for i in range(len(texts))]
    return load_inputs(
        ids,
        texts,
        "retrieve",
        radgraph=radgraph,
        chexbert=chexbert,
        chexbert_ids=chexbert_ids,
        labels=chexbert_labels,
        uncertain=uncertain,
        encoder=encoder,
    )


def retrieve(
    index: str | Path | Index,
    queries: str | Path | Sequence[str] | Reports | Inputs,
    metric: str,
    *,
    k: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    text: bool = True,
    progress: Callable[[int], None] | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    max_memory: float | None = None,
    prevalence: dict[str, int] | None = None,
    weights: str | Path | None = None,
    **loading: Any,
) -> Results:
    """Find, for every test report, the k reports of the corpus that score best under a metric.

    Parameters
    ----------
    index : path or Index
    queries : path, list of texts, Reports or Inputs
    metric : str
        Such as ``"radgraph"``, ``"bleu"``, ``"rouge-l"``, ``"chexbert"``; ``"composite"`` with `weights`.
    k, backend, threads, text, progress, max_memory
        See :func:`metric_oracle.retrieval.search.retrieve`.
    idf, rescale
        Of BERTScore: weights of tokens ("off", "tests", "corpus" or a file), and whether scores are relative to the
        encoder's baseline, by default where it has one.
    prevalence : dict
        Of CRG: counts of the whole test set, as its signature has them, where `queries` are a part of it.
    weights : path
        Of a composite: the file that fit-composite wrote.
    **loading
        Keyword arguments of :func:`load_queries`, such as ``radgraph="test_graphs.json"``.
    """
    if weights is not None and metric != COMPOSITE:
        msg = f"retrieve: weights must be left out for metric {metric!r}; got {weights}. Pass --metric {COMPOSITE}."
        raise InputError(msg)
    record = metric if weights is None else read_weights(weights)
    opened = index if isinstance(index, Index) else open_index(index)
    batch = queries if isinstance(queries, Inputs) else load_queries(queries, **loading)
    settings = _settings(idf, rescale)
    if prevalence is not None:
        settings["prevalence"] = prevalence
    return _search.retrieve(
        opened, batch, record, k=k, backend=backend, threads=threads, text=text, progress=progress,
        max_memory=max_memory, **settings,
    )  # fmt: skip


def baseline(
    index: str | Path | Index,
    queries: str | Path | Sequence[str] | Reports | Inputs,
    kind: str,
    metric: str,
    *,
    draws: int | None = None,
    seed: int | None = None,
    corpus_vectors: str | Path | None = None,
    corpus_vector_ids: str | Path | None = None,
    query_vectors: str | Path | None = None,
    query_vector_ids: str | Path | None = None,
    text: bool = True,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **loading: Any,
) -> Results:
    """Score what needs no oracle: chance, the most frequent report, a perfect prediction, or the nearest image.

    Parameters
    ----------
    index : path or Index
    queries : path, list of texts, Reports or Inputs
    kind : {"random", "most-frequent", "identity", "nearest"}
        See the functions of :mod:`metric_oracle.retrieval.baselines`.
    metric : str
    draws, seed : int
        Of "random": reports drawn for each query, by default 10, and the seed, by default 0.
    corpus_vectors, corpus_vector_ids, query_vectors, query_vector_ids : path
        Of "nearest": image embeddings of both sides, and the files of their ids where they carry none.
    text, idf, rescale, **loading
        See :func:`retrieve`.
    """
    if kind not in _baselines.KINDS:
        msg = f"baseline: kind must be one of {', '.join(_baselines.KINDS)}; got {kind!r}. Choose one."
        raise InputError(msg)
    vectors = {
        "corpus_vectors": corpus_vectors, "corpus_vector_ids": corpus_vector_ids, "query_vectors": query_vectors,
        "query_vector_ids": query_vector_ids,
    }  # fmt: skip
    own = {"draws": draws, "seed": seed, **vectors}
    belonging = {"random": ("draws", "seed"), "nearest": tuple(vectors)}.get(kind, ())
    foreign = [name for name, value in own.items() if value is not None and name not in belonging]
    if foreign:
        msg = f"baseline: {', '.join(foreign)} must be left out for kind {kind!r}; got a value. Drop it."
        raise InputError(msg)
    options: dict[str, Any] = {name: own[name] for name in ("draws", "seed") if own[name] is not None}
    if kind == "nearest":
        for side in ("corpus", "query"):
            path, ids = vectors[f"{side}_vectors"], vectors[f"{side}_vector_ids"]
            if path is None:
                msg = f"baseline: {side}_vectors must be given for kind 'nearest'; got None. Pass a file of embeddings."
                raise InputError(msg)
            options[f"{side}_vectors"] = read_embeddings(path, ids=ids)
    opened = index if isinstance(index, Index) else open_index(index)
    batch = queries if isinstance(queries, Inputs) else load_queries(queries, **loading)
    return _baselines.KINDS[kind](opened, batch, metric, text=text, **options, **_settings(idf, rescale))


def expectation(
    index: str | Path | Index,
    queries: str | Path | Sequence[str] | Reports | Inputs,
    metric: str,
    *,
    quantiles: Sequence[float] = _expectation.QUANTILES,
    bins: int = _expectation.BINS_OF_STUDY,
    progress: Callable[[int], None] | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **loading: Any,
) -> Expectation:
    """Return what a random report of the corpus is expected to score, exactly: no draws.

    Parameters
    ----------
    index, queries, metric, idf, rescale, **loading
        See :func:`retrieve`.
    quantiles, bins, progress
        See :func:`metric_oracle.retrieval.expectation.expectation`.
    """
    opened = index if isinstance(index, Index) else open_index(index)
    batch = queries if isinstance(queries, Inputs) else load_queries(queries, **loading)
    return _expectation.expectation(
        opened, batch, metric, quantiles=quantiles, bins=bins, progress=progress, **_settings(idf, rescale)
    )


def _settings(idf: str | Path | None, rescale: bool | None) -> dict[str, Any]:
    """Return the settings of BERTScore that were given."""
    return {name: value for name, value in (("idf", idf), ("rescale", rescale)) if value is not None}


def verify(
    index: str | Path | Index,
    results: str | Path | Results,
    queries: str | Path | Sequence[str] | Reports | Inputs,
    *,
    sample: int = 20,
    seed: int = 0,
    **loading: Any,
) -> dict[str, int]:
    """Score a result file again with the reference and search a sample of its queries by brute force.

    Returns
    -------
    dict
        ``pairs`` scored again and ``queries`` searched; a difference raises ExactnessError.
    """
    opened = index if isinstance(index, Index) else open_index(index)
    batch = queries if isinstance(queries, Inputs) else load_queries(queries, **loading)
    found = results if isinstance(results, Results) else read_results(results)
    return _verification.verify(opened, found, batch, sample=sample, seed=seed)


def score(
    references: str | Path | Reports,
    predictions: str | Path | Reports,
    metrics: Sequence[str] | None = None,
    *,
    system: str | None = None,
    inner: bool = False,
    radgraph: str | Path | None = None,
    predicted_radgraph: str | Path | None = None,
    chexbert: str | Path | None = None,
    predicted_chexbert: str | Path | None = None,
    chexbert_ids: str | Path | None = None,
    predicted_chexbert_ids: str | Path | None = None,
    chexbert_labels: str | Path | None = None,
    predicted_chexbert_labels: str | Path | None = None,
    uncertain: str | None = None,
    encoder: str | Path | None = None,
    layer: int | None = None,
    baseline: str | Path | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    text: bool = False,
    reading: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
    advance: Callable[[int, int], None] | None = None,
    progress: Callable[[str], None] | None = None,
    **of_predictions: Any,
) -> Scores:
    """Score a model's reports against the radiologists', joined on ids, under every metric that the files allow.

    Parameters
    ----------
    references : path or Reports
        Test reports, as for :func:`load_queries`.
    predictions : path or Reports
        What a model wrote, see :func:`metric_oracle.corpora.predictions.read_predictions`.
    metrics : sequence of str
        Names of the registry; by default the usual ones that the given files allow.
    system : str
        Name of the model, by default that of its file.
    inner : bool
        Score the ids that have both a reference and a prediction; otherwise an id without one of them is an error.
    radgraph, chexbert, chexbert_ids, chexbert_labels
        Of the references, and with ``predicted_`` before the name of the predictions, as in :func:`build_index`. A
        model (a RadGraph archive, chexbert.pth) is given once, for both.
    uncertain, encoder, layer, baseline
        As in :func:`build_index`.
    idf, rescale
        As in :func:`retrieve`; "tests" are the references, "corpus" the predictions.
    text : bool
        Whether the scores carry the texts of both sides.
    reading : mapping
        Keyword arguments of ``read_reports`` for the references, such as ``{"section": "findings"}``.
    tell, advance, progress
        Called with lines for people, with finished and all items of a model's work, and with the name of each step.
    **of_predictions
        Keyword arguments of ``read_predictions``, such as ``ids="annotation.json"``.

    Returns
    -------
    Scores
        One row a reference; null where a pair cannot be scored.
    """
    of_encoder = {"layer": layer, "baseline": baseline}
    given = [name for name, value in of_encoder.items() if value is not None]
    if encoder is None and given:
        msg = f"score: encoder must be given with {', '.join(given)}; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    say = tell or (lambda line: None)
    count = advance or (lambda done, total: None)
    if not isinstance(references, Reports):
        references = read_reports(references, **(reading or {}))
    say(f"references: {references.source}")
    if not isinstance(predictions, Reports):
        system = system or Path(predictions).name.partition(".")[0]
        predictions = read_predictions(predictions, **of_predictions)
    say(f"predictions: {predictions.source}")
    encoding = None
    if encoder is not None:
        encoding = load_encoding(encoder, "score", layer=layer, baseline=baseline, tell=say, advance=count)
    names = ("radgraph", "chexbert", "chexbert_ids", "labels")
    return _pairs.score(
        references,
        predictions,
        metrics,
        system=system or "predictions",
        inner=inner,
        files=dict(zip(names, (radgraph, chexbert, chexbert_ids, chexbert_labels), strict=True)),
        predicted_files=dict(
            zip(
                names,
                (predicted_radgraph, predicted_chexbert, predicted_chexbert_ids, predicted_chexbert_labels),
                strict=True,
            )
        ),
        uncertain=uncertain,
        encoding=encoding,
        idf=idf,
        rescale=rescale,
        text=text,
        tell=say,
        advance=count,
        progress=progress,
    )
