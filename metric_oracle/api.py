"""The public functions: files in, answers out. The command line calls these and nothing else."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.errors import InputError
from metric_oracle.indexes import index as _index
from metric_oracle.indexes.index import Index, open_index
from metric_oracle.indexes.inputs import Inputs, load_encoding, load_inputs
from metric_oracle.metrics import COMPOSITE
from metric_oracle.retrieval import search as _search
from metric_oracle.retrieval import verification as _verification
from metric_oracle.retrieval.composite import read_weights
from metric_oracle.retrieval.results import Results, read_results

__all__ = ["build_index", "load_queries", "open_index", "retrieve", "verify"]


_ENCODING_OPTIONS = ("layer", "states", "bf16", "baseline", "device", "tell", "advance")


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
    k, backend, threads, text, progress
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
    given = (("idf", idf), ("rescale", rescale), ("prevalence", prevalence))
    settings = {name: value for name, value in given if value is not None}
    return _search.retrieve(
        opened, batch, record, k=k, backend=backend, threads=threads, text=text, progress=progress, **settings
    )


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
