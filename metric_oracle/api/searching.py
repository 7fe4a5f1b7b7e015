"""Indexes, and what is found in them: the oracle, baselines, chance, the check of a result.

What a search does not need is imported by the function that does: one query shall not wait for all of the package.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from metric_oracle.api.given import (
    ARGUMENTS,
    LOADING,
    MODELS,
    READING,
    Given,
    Loading,
    names_of,
    opened,
    reports_of,
    say,
    section_of,
    split,
)
from metric_oracle.corpora.reports import check_left_out, check_options
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, load_encoding, load_inputs
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import get_metric
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.expectation import BINS_OF_STUDY, QUANTILES, Expectation, plan_expectation
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import open_runner, plan
from metric_oracle.retrieval.results import Results, read_results

__all__ = [
    "baseline",
    "build_index",
    "expectation",
    "load_queries",
    "merge",
    "open_index",
    "retrieve",
    "verify",
]


@called("build_index")
def build_index(
    reports: Given,
    out: str | Path,
    *,
    metrics: str | Sequence[str] | None = None,
    layer: int | None = None,
    states: str | None = None,
    bf16: bool = False,
    rescale_table: str | Path | None = None,
    max_memory: float | None = None,
    shard_rows: int | None = None,
    progress: Progress | None = None,
    runner: str | None = None,
    address: str | None = None,
    num_gpus: float | None = None,
    **given: Unpack[Loading],
) -> Index:
    """Build an index of a corpus of reports, or prepare test reports or predictions.

    Parameters
    ----------
    reports : path or container
        What :func:`metric_oracle.corpora.reports.as_reports` takes, or another index. Predictions are read with
        :func:`metric_oracle.read_predictions` first, which keeps the empty ones.
    out : path
        New folder. It may stand wherever test reports, references or predictions are asked for.
    metrics : str or sequence of str
        Metrics to build for; by default all that the given files allow.
    layer, states, bf16, rescale_table, max_memory
        Of token states, see :func:`metric_oracle.indexes.inputs.load_encoding`.
    shard_rows : int
        Build a set of shards of so many reports each, which stands where an index does. Parquet, CSV and JSON Lines
        are read piece by piece; anything else, and a split, is read whole and then cut. The same call in several
        processes shares the work.
    progress : function
        Called as ``progress(step, done, total)``: for each part before it is built, and while a model runs. Both
        numbers are None where they are not known; with a runner they count shards.
    runner, address, num_gpus
        Build the shards by the workers of a Ray cluster, models included, see :func:`retrieve`.
    radgraph, chexbert, chexbert_ids, chexbert_labels, entities, uncertain, radgraph_encoder, vocabulary, \
    entity_encoder, device, tell
        What is given beside the reports, in files or in memory, and models that make it: see
        :func:`metric_oracle.indexes.inputs.load_inputs`.
    encoder : str or path
        Name or folder of a Hugging Face encoder, for token states.
    section, id_column, text_column, split, split_file, profile, keep_empty
        See :func:`metric_oracle.read_reports`.
    """
    from metric_oracle.api.sharding import build_cut, build_streamed, may_stream, states_of
    from metric_oracle.indexes import build
    from metric_oracle.indexes.shard_build import check_shard_rows
    from metric_oracle.indexes.store import Strings

    check_options(given, LOADING, "build_index")
    names = names_of(metrics)
    for name in names or ():
        get_metric(name, "build_index")
    asked = split(
        {
            "layer": layer, "states": states, "bf16": bf16 or None, "rescale_table": rescale_table,
            "max_memory": max_memory,
        }
    )  # fmt: skip
    encoder = given.get("encoder")
    if encoder is None and asked:
        msg = f"build_index: encoder must be given with {', '.join(asked)}; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    reading, models = split(given, READING), split(given, MODELS) | split({"progress": progress})
    if shard_rows is not None:
        check_shard_rows(shard_rows)
    where = open_runner("build_index", runner, address, num_gpus)
    opening = {"encoder": encoder, **asked, **split(models, ("device", "tell", "progress"))}
    if shard_rows is not None and may_stream(reports, reading):
        return build_streamed(
            Path(reports), out, shard_rows, reading, split(given, ARGUMENTS), models,
            opening if encoder is not None else {}, names, progress, where,
        )  # fmt: skip
    if where is not None:
        msg = (
            "build_index: reports must be a whole file of Parquet, CSV or JSON Lines, with shard_rows, for a runner; "
            "got others. Add shard_rows, or convert them."
        )
        raise InputError(msg)
    encoding = None
    corpus, prepared = reports_of(reports, "build_index", reading)
    if "tell" in given:
        given["tell"](f"reports: {corpus.source}")
    elif corpus.words:
        say(f"reports: {corpus.source}", None)
    if encoder is not None:
        encoding = load_encoding(function="build_index", **opening)
    inputs = load_inputs(
        corpus.ids, corpus.texts, "build_index", encoding=encoding, **models, **split(given, ARGUMENTS)
    )
    inputs = _with_prepared(inputs, prepared)
    if shard_rows is not None:
        return build_cut(inputs, corpus, out, shard_rows, split(given, ARGUMENTS), names, progress)
    inputs = replace(inputs, ids=Strings(inputs.ids), texts=Strings(inputs.texts))
    described: dict[str, Any] = {
        "source": corpus.source,
        "states": states_of(corpus),
        "section": corpus.said,
    }
    del corpus, prepared  # lists of strings take three times the memory of Arrow's
    return build.build_index(inputs, out, metrics=names, **described, progress=progress)


def _with_prepared(inputs: Inputs, prepared: Inputs | None) -> Inputs:
    """Add what a prepared set holds to what was given beside it."""
    return inputs if prepared is None else replace(inputs, attached={**prepared.attached, **inputs.attached})


@called("load_queries")
def load_queries(
    queries: Given, *, index: str | Path | Index | None = None, progress: Progress | None = None,
    **given: Unpack[Loading],
) -> Inputs:  # fmt: skip
    """Read test reports and what belongs to them.

    Parameters
    ----------
    queries : path or container
        What :func:`metric_oracle.corpora.reports.as_reports` takes: a file, the reports themselves (whose ids become
        "0", "1", ...), a dict id -> text, a table. Or a folder of :func:`build_index`, whose texts, graphs, vectors,
        labels and token states are those of the queries. Missing, empty and token-less reports are left out; `tell` is
        called with how many, or else a warning says it.
    index : path or Index
        What they will be compared with. Its section is read where `section` says no other.
    encoder : str or path
        Where the encoder of the index is now; by default where it was when the index was built.
    radgraph, chexbert, ..., section, ...
        As in :func:`build_index`.
    """
    check_options(given, LOADING, "load_queries")
    reports, prepared = reports_of(queries, "load_queries", split(given, READING), like=section_of(index))
    if reports.left_out:
        say(reports.left_out, given.get("tell"))
    inputs = load_inputs(
        reports.ids, reports.texts, "retrieve", encoder=given.get("encoder"), **split(given, MODELS),
        **split(given, ARGUMENTS), progress=silent if progress is None else progress,
    )  # fmt: skip
    return replace(_with_prepared(inputs.completed(), prepared), section=reports.said)


def load_batch(index: Index, queries: Given, given: Loading, function: str, progress: Progress | None = None) -> Inputs:
    """Return queries that are loaded, or load them as the index has its reports."""
    check_options(given, LOADING, function)
    if not isinstance(queries, Inputs):
        return load_queries(queries, index=index, progress=progress, **given)
    check_left_out(split(given), ("tell",), function, "loaded queries")
    return queries


@called("retrieve")
def retrieve(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    k: int = 1,
    backend: str = "auto",
    threads: int | None = None,
    text: bool = True,
    progress: Progress | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    max_memory: float | None = None,
    prevalence: dict[str, int] | None = None,
    weights: str | Path | None = None,
    part: str | None = None,
    runner: str | None = None,
    address: str | None = None,
    num_gpus: float | None = None,
    **loading: Unpack[Loading],
) -> Results:
    """Find, for every test report, the k reports of the corpus that score best under a metric.

    Parameters
    ----------
    index : path or Index
    queries : path, container, prepared set or Inputs
    metric : str
        Such as ``"radgraph"``, ``"bleu"``, ``"rouge-l"``, ``"chexbert"``; ``"composite"`` with `weights`.
    k, backend, threads, text, progress, max_memory
        See :class:`metric_oracle.SearchOptions`.
    idf, rescale
        Of BERTScore: weights of tokens ("off", "tests", "corpus" or a file), and whether scores are relative to the
        encoder's baseline, by default where it has one.
    prevalence : dict
        Of CRG: counts of the whole test set, as its signature has them, where `queries` are a part of it.
    weights : path
        Of a composite: the file that fit-composite wrote.
    part : str
        Of a set of shards: "3/16" searches the third of sixteen runs of shards; write it for :func:`merge`.
    runner : {"ray"}
        Of a set of shards: search by the workers of a Ray cluster, a shard each with `threads` cores, one by default.
        Workers must see the set's folder. Ray runs a shard again, three times at most, whose worker was lost.
    address : str
        "local" starts Ray here for this call; "auto" or HOST:PORT is a cluster that runs. By default the connection
        that this process has, or else "local".
    num_gpus : float
        GPUs of each worker, by default none.
    **loading
        Keyword arguments of :func:`load_queries`, such as ``radgraph="test_graphs.json"``. The section is that of the
        index; another one is an error.
    """
    options = SearchOptions(
        k, backend, threads, text, max_memory, idf, rescale, prevalence, weights, part, runner, address, num_gpus
    )
    planned = plan(index, metric, options)
    return planned.run(load_batch(planned.index, queries, loading, "retrieve", progress), progress)


@called("merge")
def merge(parts: Sequence[str | Path]) -> Results:
    """Join the parts of one search of a set of shards, all of them, in any order.

    Parameters
    ----------
    parts : sequence of path
        Files of results that :func:`retrieve` made with `part`.
    """
    from metric_oracle.retrieval.parts import merge_parts

    return merge_parts(parts)


@called("baseline")
def baseline(
    index: str | Path | Index,
    queries: Given,
    kind: str,
    metric: str,
    *,
    draws: int | None = None,
    seed: int | None = None,
    corpus_vectors: Any = None,
    corpus_vector_ids: Any = None,
    query_vectors: Any = None,
    query_vector_ids: Any = None,
    text: bool = True,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **loading: Unpack[Loading],
) -> Results:
    """Score what needs no oracle: chance, the most frequent report, a perfect prediction, or the nearest image.

    Parameters
    ----------
    index : path or Index
    queries : path, container, prepared set or Inputs
    kind : {"random", "most-frequent", "identity", "nearest"}
        See the functions of :mod:`metric_oracle.retrieval.baselines`.
    metric : str
    draws, seed : int
        Of "random": reports drawn for each query, by default 10, and the seed, by default 0.
    corpus_vectors, corpus_vector_ids, query_vectors, query_vector_ids : path, or in memory
        Of "nearest": image embeddings of both sides, and their ids where they carry none.
    text, idf, rescale, **loading
        See :func:`retrieve`.
    """
    from metric_oracle.retrieval.baselines import plan_baseline

    planned = plan_baseline(
        index, kind, metric, SearchOptions(text=text, idf=idf, rescale=rescale), draws=draws, seed=seed,
        corpus_vectors=with_ids(corpus_vectors, corpus_vector_ids),
        query_vectors=with_ids(query_vectors, query_vector_ids),
    )  # fmt: skip
    return planned.run(load_batch(planned.scores.index, queries, loading, "baseline"))


def with_ids(vectors: Any, ids: Any) -> Any:
    """Return vectors, with their ids where these are given apart."""
    return vectors if ids is None else (vectors, ids)


@called("expectation")
def expectation(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS_OF_STUDY,
    progress: Progress | None = None,
    idf: str | Path | None = None,
    rescale: bool | None = None,
    **loading: Unpack[Loading],
) -> Expectation:
    """Return what a random report of the corpus is expected to score, exactly: no draws.

    Parameters
    ----------
    index, queries, metric, idf, rescale, **loading
        See :func:`retrieve`.
    quantiles, bins, progress
        See :mod:`metric_oracle.retrieval.expectation`.
    """
    options = SearchOptions(idf=idf, rescale=rescale)
    planned = plan_expectation(index, metric, options, quantiles=quantiles, bins=bins)
    return planned.run(load_batch(planned.scores.index, queries, loading, "expectation", progress), progress)


@called("verify")
def verify(
    index: str | Path | Index,
    results: str | Path | Results,
    queries: Given,
    *,
    sample: int = 20,
    seed: int = 0,
    corpus_vectors: Any = None,
    corpus_vector_ids: Any = None,
    query_vectors: Any = None,
    query_vector_ids: Any = None,
    progress: Progress | None = None,
    **loading: Unpack[Loading],
) -> dict[str, int]:
    """Check every column of a result file, and search a sample of its queries by brute force.

    Parameters
    ----------
    index : path or Index
    results : path or Results
    queries
        Those that the results were made with, see :func:`load_queries`.
    sample, seed, progress
        See :func:`metric_oracle.retrieval.verification.verify`.
    corpus_vectors, corpus_vector_ids, query_vectors, query_vector_ids
        Of the baseline "nearest", as :func:`baseline` took them: its rows are chosen again. Without them its scores are
        checked alone; `tell` is called with that, or else a warning says it.

    Returns
    -------
    dict
        ``pairs`` scored again and ``queries`` searched; a difference raises ExactnessError.
    """
    from metric_oracle.retrieval import verification
    from metric_oracle.retrieval.baselines import image_vectors

    held = opened(index)
    batch = load_batch(held, queries, loading, "verify")
    found = results if isinstance(results, Results) else read_results(results)
    read = image_vectors(
        {
            "corpus_vectors": with_ids(corpus_vectors, corpus_vector_ids),
            "query_vectors": with_ids(query_vectors, query_vector_ids),
        },
        "verify",
    )
    vectors = None
    if read:
        lacking = [name for name in ("corpus_vectors", "query_vectors") if name not in read]
        if lacking:
            msg = f"verify: {lacking[0]} must be given for kind 'nearest'; got None. Pass a file of embeddings."
            raise InputError(msg)
        vectors = read["corpus_vectors"], read["query_vectors"]
    checked = verification.verify(held, found, batch, sample=sample, seed=seed, vectors=vectors, progress=progress)
    if vectors is None and found.signature.get("baseline") == "nearest":
        say(
            "not verified: which rows are nearest, for which both sides' image vectors must be given",
            loading.get("tell"),
        )
    return checked
