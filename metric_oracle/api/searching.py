"""Indexes, and what is found in them: the oracle, baselines, chance, the check of a result.

What a search does not need is imported by the function that does: one query shall not wait for all of the package.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle.api.attached import attached, with_prepared
from metric_oracle.api.given import Given, names_of, opened, say, split
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs, load_inputs
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import get_metric
from metric_oracle.progress import Progress
from metric_oracle.retrieval.expectation import BINS_OF_STUDY, QUANTILES, Expectation, plan_expectation
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.plan import open_runner, plan
from metric_oracle.retrieval.results import Results, read_results

__all__ = [
    "baseline",
    "build_index",
    "expectation",
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
    shard_rows: int | None = None,
    max_memory: float | None = None,
    runner: str | None = None,
    address: str | None = None,
    num_gpus: float | None = None,
    progress: Progress | None = None,
) -> Index:
    """Build an index of a corpus of reports, or prepare test reports or predictions.

    Parameters
    ----------
    reports : path, container or AttachedReports
        The corpus, with what the metrics read in addition to the texts: [`reports`][metric_oracle.reports]. Or another
        index. Predictions are read with [`read_predictions`][metric_oracle.read_predictions] first, which keeps the
        empty ones.
    out : path
        New folder. It may stand wherever test reports, references or predictions are asked for.
    metrics : str or sequence of str, optional
        Metrics to build for; by default all that the sources allow.
    shard_rows : int, optional
        Build a set of shards of so many reports each, which stands where an index does. Parquet, CSV and JSON Lines
        are read piece by piece; anything else, and a split, is read whole and then cut. The same call in several
        processes shares the work.
    max_memory : float, optional
        Memory in GB that encoding may use in addition to the model and mapped files.
    runner, address, num_gpus : optional
        Build the shards by the workers of a Ray cluster, models included, see
        [`SearchOptions`][metric_oracle.SearchOptions].
    progress : function, optional
        Called with the name of each part before it is built; with a runner also with the numbers of finished shards and
        of all, None while the latter is unknown and at most as many while a Parquet file is read.

    Returns
    -------
    Index
        The opened index, a `ShardSet` with `shard_rows`.

    Raises
    ------
    InputError
        If an argument is wrong, a file cannot be read or does not belong to the reports, or `out` exists.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no acute process", "small effusion"], f"{folder}/INDEX", metrics="bleu")
    >>> index.n_reports
    2
    """
    from metric_oracle.api.sharding import build_cut, build_streamed, may_stream, states_of
    from metric_oracle.indexes import build
    from metric_oracle.indexes.shard_build import check_shard_rows
    from metric_oracle.indexes.store import Strings

    given = attached(reports)
    names = names_of(metrics)
    for name in names or ():
        get_metric(name, "build_index")
    if max_memory is not None and not given.encoding:
        msg = "build_index: encoder must be given with max_memory; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    if shard_rows is not None:
        check_shard_rows(shard_rows)
    where = open_runner("build_index", runner, address, num_gpus)
    if shard_rows is not None and may_stream(given.data, given.reading):
        of_encoder = {**given.encoding, **split({"max_memory": max_memory, "progress": progress})}
        opening = {**of_encoder, **split(given.models, ("device", "tell"))} if given.encoding else {}
        return build_streamed(
            Path(given.data),
            out,
            shard_rows,
            dict(given.reading),
            dict(given.sources),
            dict(given.models) | split({"progress": progress}),
            opening,
            names,
            progress,
            where,
        )
    if where is not None:
        msg = (
            "build_index: reports must be a whole file of Parquet, CSV or JSON Lines, with shard_rows, for a runner; "
            "got others. Add shard_rows, or convert them."
        )
        raise InputError(msg)
    corpus, prepared = given.read("build_index")
    if "tell" in given.models:
        given.models["tell"](f"reports: {corpus.source}")
    elif corpus.words:
        say(f"reports: {corpus.source}", None)
    encoding = given.open_encoding("build_index", progress, **split({"max_memory": max_memory}))
    inputs = load_inputs(corpus.ids, corpus.texts, "build_index", encoding=encoding, **given.models, **given.sources)
    inputs = with_prepared(inputs, prepared)
    if shard_rows is not None:
        return build_cut(inputs, corpus, out, shard_rows, given.sources, names, progress)
    inputs = replace(inputs, ids=Strings(inputs.ids), texts=Strings(inputs.texts))
    described: dict[str, Any] = {
        "source": corpus.source,
        "states": states_of(corpus),
        "section": corpus.said,
    }
    del corpus, prepared  # lists of strings take three times the memory of Arrow's
    return build.build_index(inputs, out, metrics=names, **described, progress=progress)


def loaded(queries: Given, index: Index, progress: Progress | None = None) -> Inputs:
    """Return loaded test reports as they are, and others as they are compared with an index."""
    return queries if isinstance(queries, Inputs) else attached(queries).load(index, progress)


def chosen(options: SearchOptions | None, **given: Any) -> SearchOptions:
    """Return search options with those that were given as arguments of their own."""
    return replace(options or DEFAULTS, **split(given))


@called("retrieve")
def retrieve(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    k: int | None = None,
    backend: str | None = None,
    threads: int | None = None,
    text: bool | None = None,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Results:
    """Find, for every test report, the k reports of the corpus that score best under a metric.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, with what the metric reads in addition to the texts: [`reports`][metric_oracle.reports]. Their
        section is that of the index by default; another one is an error.
    metric : str
        Such as ``"radgraph"``, ``"bleu"``, ``"rouge-l"``, ``"chexbert"``; ``"composite"`` with ``options.weights``.
    k, backend, threads, text : optional
        The most frequent search options as arguments; they replace those of `options`.
    options : SearchOptions, optional
        All other options of the search, see [`SearchOptions`][metric_oracle.SearchOptions].
    progress : function, optional
        Called with the number of queries answered since the last call.

    Returns
    -------
    Results
        ``table`` has k rows for each query: best score first, equal scores by ascending corpus row. ``signature`` is
        what is needed to reproduce them.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.
    BackendError
        If the backend cannot be used here.
    ExactnessError
        If an answer is not exact: a bound was broken, or a score differs from the reference scorer's.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no acute process", "small effusion"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.retrieve(index, ["small left effusion"], "rouge-l").table["text"].to_pylist()
    ['small effusion']
    """
    planned = plan(index, metric, chosen(options, k=k, backend=backend, threads=threads, text=text))
    return planned.run(loaded(queries, planned.index, progress), progress)


@called("merge")
def merge(parts: Sequence[str | Path]) -> Results:
    """Join the parts of one search of a set of shards, all of them, in any order.

    Parameters
    ----------
    parts : sequence of path
        Files of results that [`retrieve`][metric_oracle.retrieve] made with `part`.

    Returns
    -------
    Results
        Those of a search of the whole set.

    Raises
    ------
    InputError
        If a part is missing, comes twice or is of another search.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> index = mo.build_index("train.csv", "SET", metrics="bleu", shard_rows=100)
    >>> for part in ("1/2", "2/2"):
    ...     found = mo.retrieve(index, "test.csv", "bleu", options=mo.SearchOptions(part=part))
    ...     found.write(f"part-{part[0]}.parquet")
    >>> mo.merge(["part-1.parquet", "part-2.parquet"]).table.num_rows
    24
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
    query_vectors: Any = None,
    text: bool | None = None,
    options: SearchOptions | None = None,
) -> Results:
    """Score what needs no search: random reports, the most frequent one, a perfect prediction, or the nearest image.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    kind : {"random", "most-frequent", "identity", "nearest"}
        See `retrieval.baselines`.
    metric : str
        Name of a metric.
    draws : int, optional
        "random": reports drawn for each query, by default 10.
    seed : int, optional
        "random": seed of the draws, by default 0.
    corpus_vectors, query_vectors : path, dict of str to array, or pair of vectors and ids
        "nearest": image embeddings of both sides, float[n, d]. A pair gives the ids where the vectors have none.
    text : bool, optional
        Whether results contain the text of the corpus reports, by default True.
    options : SearchOptions, optional
        Options that change scores, such as `idf` and `rescale`.

    Returns
    -------
    Results
        With the columns of a search; ``rank`` is the number of the draw.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no acute process", "small effusion"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.baseline(index, ["small effusion"], "identity", "rouge-l").table["score"].to_pylist()
    [1.0]
    """
    from metric_oracle.retrieval.baselines import plan_baseline

    planned = plan_baseline(
        index,
        kind,
        metric,
        chosen(options, text=text),
        draws=draws,
        seed=seed,
        corpus_vectors=corpus_vectors,
        query_vectors=query_vectors,
    )
    return planned.run(loaded(queries, planned.scores.index))


@called("expectation")
def expectation(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    quantiles: Sequence[float] = QUANTILES,
    bins: int = BINS_OF_STUDY,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Expectation:
    """Describe the scores of every test report with all reports of the corpus, exactly: no report is drawn.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    metric : str
        Name of a metric.
    quantiles : sequence of float, default (0.05, 0.25, 0.5, 0.75, 0.95)
        From 0 to 1. The p-quantile is the lowest score that at least p of the rows do not exceed: NumPy's method
        "inverted_cdf".
    bins : int, default 128
        Bins of the histogram at most; their width is the least power of two that this allows.
    options : SearchOptions, optional
        `threads`, and options that change scores, such as `idf` and `rescale`.
    progress : function, optional
        Called with the number of queries described since the last call.

    Returns
    -------
    Expectation
        For each query mean, standard deviation, least, quantiles and greatest score; and a histogram of all pairs.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["small effusion", "clear"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.expectation(index, ["small effusion"], "rouge-l").table["mean"].to_pylist()
    [0.5]
    """
    planned = plan_expectation(index, metric, options or DEFAULTS, quantiles=quantiles, bins=bins)
    return planned.run(loaded(queries, planned.scores.index, progress), progress)


@called("verify")
def verify(
    index: str | Path | Index,
    results: str | Path | Results,
    queries: Given,
    *,
    sample: int = 20,
    seed: int = 0,
    corpus_vectors: Any = None,
    query_vectors: Any = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, int]:
    """Check every column of a result file, and search a sample of its queries by brute force.

    Parameters
    ----------
    index : path or Index
        The index that the results were made with.
    results : path or Results
        Results of a search or of a baseline.
    queries : path, container, AttachedReports, prepared folder or Inputs
        The test reports that the results were made with, see [`retrieve`][metric_oracle.retrieve].
    sample : int, default 20
        Queries that are searched by brute force.
    seed : int, default 0
        Of the choice of these queries.
    corpus_vectors, query_vectors : optional
        Of the baseline "nearest", as [`baseline`][metric_oracle.baseline] took them: its rows are chosen again. Without
        them its scores are checked alone.
    progress : function, optional
        Called with the numbers of finished and of all pairs.
    tell : function, optional
        Called with what could not be verified; by default that is a warning.

    Returns
    -------
    dict of str to int
        ``pairs`` scored again and ``queries`` searched.

    Raises
    ------
    InputError
        If the results belong to another index or to other queries.
    BackendError
        If the encoder gives other token states here than where the results were made.
    ExactnessError
        If a value of the results differs.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["small effusion", "clear"], f"{folder}/INDEX", metrics="rouge-l")
    >>> results = mo.retrieve(index, ["small effusion"], "rouge-l")
    >>> mo.verify(index, results, ["small effusion"])
    {'pairs': 1, 'queries': 1}
    """
    from metric_oracle.retrieval import verification
    from metric_oracle.retrieval.baselines import image_vectors

    held = opened(index)
    batch = loaded(queries, held)
    found = results if isinstance(results, Results) else read_results(results)
    read = image_vectors({"corpus_vectors": corpus_vectors, "query_vectors": query_vectors}, "verify")
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
            tell,
        )
    return checked
