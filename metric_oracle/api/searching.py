"""Public functions that build indexes, search them, score baselines and verify results.

Modules that a search does not need are imported inside functions, because importing all of them would delay a search.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from metric_oracle import choices
from metric_oracle.api.attached import attached, with_prepared
from metric_oracle.api.given import Given, given_of, names_of, opened, say, say_wordless
from metric_oracle.arguments import check_given, check_left_out
from metric_oracle.corpora.kept import check_kept
from metric_oracle.errors import InputError, called, option
from metric_oracle.findings.results import Results, read_results
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import METRICS, Metric, get_metric
from metric_oracle.progress import Progress
from metric_oracle.retrieval.expectation import BINS_OF_STUDY, QUANTILES, Expectation, plan_expectation
from metric_oracle.retrieval.options import DEFAULTS, SearchOptions
from metric_oracle.retrieval.plan import open_runner, plan
from metric_oracle.sources.inputs import Inputs, load_inputs

__all__ = ["baseline", "build_index", "expectation", "merge", "open_index", "retrieve", "verify"]


@called("build_index")
def build_index(
    reports: Given,
    out: str | Path,
    *,
    metrics: str | Sequence[str] | None = None,
    keep: str | Sequence[str] = (),
    shard_rows: choices.Positive | None = None,
    max_memory: choices.Memory | None = None,
    runner: choices.Runner | None = None,
    address: str | None = None,
    num_gpus: choices.Gpus | None = None,
    progress: Progress | None = None,
) -> Index:
    """Build an index of a corpus of reports, or prepare test reports or predictions.

    Parameters
    ----------
    reports : path, container or AttachedReports
        The corpus, with its sources: [`reports`][metric_oracle.reports]. Or another index. Read predictions with
        [`read_predictions`][metric_oracle.read_predictions] first, which keeps empty ones.
    out : path
        New folder. Every function that takes test reports, references or predictions accepts it as well.
    metrics : str or sequence of str, optional
        Metrics that the index is for, by default all whose sources are given.
    keep : str or sequence of str, optional
        Columns of a table to store with the reports, such as ``"subject_id"``. A search can exclude the rows that have
        the query's value in one of them, see [`SearchOptions`][metric_oracle.SearchOptions].
    shard_rows : int, optional
        Number of reports of a shard: build a set of shards instead of one index. Parquet, CSV and JSON Lines are read
        in pieces; other files, and a split, are read as a whole. The same call in several processes shares the work.
    max_memory : float, optional
        Memory in GB that encoding token states may use, in addition to the model and to mapped files.
    runner, address, num_gpus : optional
        Ray cluster whose workers build the shards and run the models, see
        [`SearchOptions`][metric_oracle.SearchOptions].
    progress : function, optional
        Called as ``progress(step, done, total)`` with the name of each part of the index; with a runner, with the
        number of finished shards and of all, which is None while it is unknown.

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
    from metric_oracle.api.sharding import STREAMED, build_cut, build_streamed, may_stream, states_of
    from metric_oracle.indexes import build
    from metric_oracle.indexes.store import Strings

    given = attached(reports)
    names, columns = names_of(metrics), check_kept(keep)
    for name in names or ():
        get_metric(name)
    if max_memory is not None:
        step = f"Add {option('encoder', 'NAME')} or a folder."
        check_given("encoder", given.encoding or None, f"with {option('max_memory')}", step)
    where = open_runner(runner, address, num_gpus)
    if shard_rows is not None and may_stream(given.data, given.reading):
        of_encoder = {**given.encoding, **given_of({"max_memory": max_memory, "progress": progress})}
        opening = {**of_encoder, **given_of(given.models, ("device", "tell"))} if given.encoding else {}
        return build_streamed(
            Path(given.data),
            out,
            shard_rows,
            {**given.reading, **({"keep": list(columns)} if columns else {})},
            dict(given.sources),
            dict(given.models) | given_of({"progress": progress}),
            opening,
            names,
            progress,
            where,
        )
    if where is not None:
        step = "Write the wanted reports to a CSV file."
        in_pieces = (*STREAMED, "profile")
        check_left_out(given.reading, "with a runner, which reads a file in pieces", step, allowed=in_pieces)
        raise InputError(
            "reports",
            f"must be a file of Parquet, CSV, TSV or JSON Lines that can be read in pieces, and given with "
            f"{option('shard_rows')}, for a runner",
            f"{given.described} {'without it' if shard_rows is None else 'with it'}",
            f"Add {option('shard_rows', 'N')}." if shard_rows is None else step,
        )
    corpus, prepared = given.read(keep=columns, is_shown="tell" in given.models)
    if "tell" in given.models:
        given.models["tell"](f"reports: {corpus.source}")
    encoding = given.open_encoding(progress, **given_of({"max_memory": max_memory}))
    indexed = [get_metric(name) for name in names] if names else [METRICS["rouge-l"], METRICS["jaccard:1"]]
    say_wordless(indexed, {"reports": corpus.texts}, given.models.get("tell"))
    inputs = load_inputs(corpus.ids, corpus.texts, encoding=encoding, **given.models, **given.sources)
    inputs = with_prepared(replace(inputs, columns=corpus.columns), prepared)
    if shard_rows is not None:
        return build_cut(inputs, corpus, out, shard_rows, given.sources, names, progress)
    inputs = replace(inputs, ids=Strings(inputs.ids), texts=Strings(inputs.texts))
    described: dict[str, Any] = {"source": corpus.source, "states": states_of(corpus), "section": corpus.known_section}
    del corpus, prepared  # lists of strings take three times the memory of Arrow's
    return build.build_index(inputs, out, metrics=names, **described, progress=progress)


def loaded(
    queries: Given,
    index: Index,
    progress: Progress | None = None,
    keep: Sequence[str] = (),
    metrics: Sequence[Metric] = (),
) -> Inputs:
    """Return test reports as Inputs for an index; loaded reports are returned unchanged.

    `keep` names columns to keep. Texts without a word under one of `metrics`, which will read them, are told.
    """
    if isinstance(queries, Inputs):
        return queries
    side = attached(queries)
    inputs = side.load(index, progress, keep)
    say_wordless(metrics, {"test reports": inputs.texts}, side.models.get("tell"))
    return inputs


def chosen(options: SearchOptions | None, **given: Any) -> SearchOptions:
    """Return search options in which the given arguments that are not None replace those of `options`.

    `options` may be None, for the defaults.
    """
    return replace(options or DEFAULTS, **given_of(given))


@called("retrieve")
def retrieve(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    k: int | None = None,
    backend: choices.Backend | None = None,
    threads: choices.Threads | None = None,
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
        Test reports, with their sources: [`reports`][metric_oracle.reports]. By default their section is that of the
        index; another section is an error.
    metric : str
        Name of a metric, such as ``"radgraph"`` or ``"bleu"``; a sum, such as ``"radgraph+chexbert:agreement"``; or
        ``"composite"``, with its weights in ``options.weights``.
    k, backend, threads, text : optional
        The search options that are used most; they replace those of `options`.
    options : SearchOptions, optional
        All other options of the search, see [`SearchOptions`][metric_oracle.SearchOptions].
    progress : function, optional
        Called as ``progress("", done, total)`` with numbers of queries.

    Returns
    -------
    Results
        ``table`` has k rows for each query: best score first, equal scores by ascending row of the corpus.
        ``signature`` contains everything that is needed to reproduce the result.

    Raises
    ------
    InputError
        If an argument is wrong, or the test reports do not fit the index or lack what the metric reads.
    BackendError
        If the backend cannot be used here.
    ExactnessError
        If the result is not exact: a bound was lower than a score, or a score differs from the reference scorer's.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> index = mo.build_index(["no acute process", "small effusion"], f"{folder}/INDEX", metrics="rouge-l")
    >>> mo.retrieve(index, ["small left effusion"], "rouge-l").table["text"].to_pylist()
    ['small effusion']
    """
    planned = plan(index, metric, chosen(options, k=k, backend=backend, threads=threads, text=text))
    return planned.run(loaded(queries, planned.index, progress, planned.columns, [planned.metric]), progress)


@called("merge")
def merge(parts: Sequence[str | Path]) -> Results:
    """Join the results of all parts of one search of a shard set, in any order.

    Parameters
    ----------
    parts : sequence of path
        Files of results of [`retrieve`][metric_oracle.retrieve] with the option `part`.

    Returns
    -------
    Results
        The result of a search of the whole set.

    Raises
    ------
    InputError
        If a part is missing, is given twice or belongs to another search.

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
    from metric_oracle.retrieval.part_files import merge_parts

    return merge_parts(parts)


@called("baseline")
def baseline(
    index: str | Path | Index,
    queries: Given,
    kind: choices.Baseline,
    metric: str,
    *,
    draws: choices.Draws | None = None,
    seed: choices.Seed | None = None,
    corpus_vectors: Any = None,
    query_vectors: Any = None,
    text: bool | None = None,
    options: SearchOptions | None = None,
) -> Results:
    """Score a baseline: random reports, the most frequent one, a perfect prediction, or the nearest image.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    kind : {"random", "most-frequent", "identity", "nearest"}
        Baseline: reports drawn at random, the most frequent report of the corpus, each query itself, or the report of
        the image with the nearest embedding.
    metric : str
        Name of a metric.
    draws : int, optional
        "random": number of reports drawn for each query, by default 10.
    seed : int, optional
        "random": seed of the draws, by default 0.
    corpus_vectors, query_vectors : path, dict of str to array, or pair of vectors and ids
        "nearest": image embeddings of corpus and queries, float[n, d]. A pair contains vectors without ids, and ids.
    text : bool, optional
        Whether results contain the text of the corpus reports, by default True.
    options : SearchOptions, optional
        Options that change scores, such as `idf` and `rescale`.

    Returns
    -------
    Results
        Table with the columns of a search, in which ``rank`` is the number of the draw.

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
    return planned.run(loaded(queries, planned.scores.index, metrics=[planned.scores.metric]))


@called("expectation")
def expectation(
    index: str | Path | Index,
    queries: Given,
    metric: str,
    *,
    quantiles: Sequence[float] = QUANTILES,
    bins: choices.Bins = BINS_OF_STUDY,
    options: SearchOptions | None = None,
    progress: Progress | None = None,
) -> Expectation:
    """Compute exact statistics of the scores of every test report with all reports of the corpus.

    Parameters
    ----------
    index : path or Index
        Index or shard set.
    queries : path, container, AttachedReports, prepared folder or Inputs
        Test reports, see [`retrieve`][metric_oracle.retrieve].
    metric : str
        Name of a metric.
    quantiles : sequence of float, default (0.05, 0.25, 0.5, 0.75, 0.95)
        Quantiles to compute, from 0 to 1. The p-quantile is the lowest score that a share p of the reports does not
        exceed: NumPy's method "inverted_cdf".
    bins : int, default 128
        Largest number of bins of the histogram. The width of a bin is the smallest power of two with so many bins.
    options : SearchOptions, optional
        `threads`, and options that change scores, such as `idf` and `rescale`.
    progress : function, optional
        Called as ``progress("", done, total)`` with numbers of queries.

    Returns
    -------
    Expectation
        For each query the mean, standard deviation, minimum, quantiles and maximum of the scores; and a histogram of
        the scores of all pairs.

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
    return planned.run(loaded(queries, planned.scores.index, progress, metrics=[planned.scores.metric]), progress)


@called("verify")
def verify(
    index: str | Path | Index,
    results: str | Path | Results,
    queries: Given,
    *,
    sample: choices.Count = 20,
    seed: choices.Seed = 0,
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
        Number of queries, drawn at random, that are searched by brute force.
    seed : int, default 0
        Seed of the draw.
    corpus_vectors, query_vectors : optional
        Image embeddings of the baseline "nearest", as in [`baseline`][metric_oracle.baseline], to find the nearest
        images again. Without them only the scores are checked.
    progress : function, optional
        Called as ``progress(step, done, total)`` with numbers of pairs.
    tell : function, optional
        Called with a note on what could not be verified; by default it is a warning.

    Returns
    -------
    dict of str to int
        Number of ``pairs`` that were scored again and of ``queries`` that were searched.

    Raises
    ------
    InputError
        If the results belong to another index or to other queries.
    BackendError
        If the encoder gives other token states on this machine than where the results were computed.
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
    from metric_oracle.retrieval.baselines import check_image_vectors, image_vectors

    index = opened(index)
    results = results if isinstance(results, Results) else read_results(results)
    batch = loaded(queries, index, keep=verification.columns_of(results))
    read = image_vectors({"corpus_vectors": corpus_vectors, "query_vectors": query_vectors})
    vectors = None
    if read:
        check_image_vectors(read)
        vectors = read["corpus_vectors"], read["query_vectors"]
    checked = verification.verify(index, results, batch, sample=sample, seed=seed, vectors=vectors, progress=progress)
    if vectors is None and results.signature.get("baseline") == "nearest":
        say("not verified: which rows are nearest, for which both sides' image vectors must be given", tell)
    return checked
