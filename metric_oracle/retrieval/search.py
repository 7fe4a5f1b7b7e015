"""Exact search: for every query, the best rows of the corpus under a metric."""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.files import package_version
from metric_oracle.base.progress import Advance
from metric_oracle.corpora.reports import Reports
from metric_oracle.findings.results import Results
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.store import BATCH
from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.records import Metric
from metric_oracle.retrieval.checks import section_entry
from metric_oracle.retrieval.document_pairs import CHECKED, Pairs, Part, encode_for, sample_of
from metric_oracle.retrieval.exclusion import Excluded, ResultLists
from metric_oracle.retrieval.kernels import load_kernel, load_reference
from metric_oracle.retrieval.merge import BestRows, fall_back, merge_best
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.result_table import fallback_row, fill_zeros, layout, listed, no_rows, with_strings
from metric_oracle.retrieval.thread_pool import MemoryLimit, n_threads, report, run_blocks

# Least and greatest number of queries per task. Large tasks come first, because each has a fixed cost; small ones come
# last, so that the threads end together.
BLOCK = 32
MOST_BLOCK = 128
LEAST_BLOCK = 4  # queries per task if memory is limited


class SearchedShards(NamedTuple):
    """The result of a search of one or several shards, before the fall-back report is put first."""

    best: BestRows
    exact: bool  # whether each list is proven to have the best rows
    signature: dict[str, Any]
    documents: int  # number of documents of the shards that were searched

    def results(self, ids: Sequence[str]) -> Results:
        """Return the table of results for the queries with these ids, with the fall-back report first where it applies.

        All shards must have been searched.
        """
        best, fallback = fall_back(self.best)
        return Results(listed(layout(ids, best, fallback, self.exact)), self.signature)


def search_index(
    index: Index,
    queries: Reports,
    metric: Metric,
    options: SearchOptions,
    *,
    progress: Advance | None = None,
    shards: Sequence[int] | None = None,
    limit: np.ndarray | None = None,
    encoded: Documents | None = None,
) -> SearchedShards:
    """Search an index, or the shards of a set one after another: those with the numbers `shards`, by default all.

    A set whose documents are joined (`is_joined`) is searched like an index. Otherwise the k-th best scores so far are
    passed to the shards that follow, which leave out rows that score worse. `limit`, float64[Q], has those of shards
    that were searched elsewhere. If fewer than k rows are found, a list ends with row -1. `encoded` holds queries that
    were encoded in another process, None if they were not. `progress` is called with 0 once the queries are encoded,
    then with numbers of queries that were answered.
    """
    k = options.k
    reserve = cache(partial(fallback_row, index, metric)) if metric.fallback and not options.is_restricted else None
    excluded = Excluded(index, queries, metric, options.exclude)
    if options.min_score is not None:
        least = np.full(len(queries.ids), options.min_score)
        limit = least if limit is None else most_demanding(limit, least, metric.sign)
    # Rules of exclusion read what only the shards have.
    is_whole = shards is None and not options.exclude and index.is_joined(metric)
    n_parts = 1 if is_whole else index.n_shards
    tell = None if progress is None else _shared(progress, n_parts if shards is None else len(shards))
    best, exact, of_shard = None, True, None
    stages: list[tuple[int, dict[str, Any]]] = []
    for shard in [index] if is_whole else index.shards(shards):
        representation = shard.representation(metric)
        if not len(representation.row_id):
            continue
        # What a model makes of the queries, and what else no shard changes, is made once.
        if encoded is None:
            encoded = of_shard = encode_for(shard, metric, representation, queries, options.settings)
            if progress is not None:
                progress(0)  # encoded, none answered
        else:
            encoded = of_shard = representation.encode_again(queries, encoded, **options.settings)
        n = int(of_shard.document_of_row.max()) + 1 if len(of_shard.document_of_row) else 0
        part, of_part, exact = search_shard(
            queries.ids,
            Pairs(metric, [Part(shard, representation, of_shard, np.arange(n))], of_shard.document_of_row),
            options,
            excluded.of(shard, representation, of_shard.document_of_row),
            reserve=reserve,
            progress=tell,
            limit=limit,
            checked=-(-CHECKED // n_parts),
        )
        best = part if best is None else merge_best([best, part], k, metric.sign)
        limit = limit_of(best, k, limit, metric.sign)
        stages.append((len(representation.row_ptr) - 1, of_part))
    if best is not None:
        best = with_strings(best, index, options.text)
    return searched_of(index, queries, metric, options, best, exact, of_shard, stages)


def searched_of(
    index: Index,
    queries: Reports,
    metric: Metric,
    options: SearchOptions,
    best: BestRows | None,
    exact: bool,
    encoded: Documents | None,
    stages: Sequence[tuple[int, dict[str, Any]]],
) -> SearchedShards:
    """Return the result of a search from its best rows, None if no shard has a row that can be scored.

    `stages` are those of `joined_stages`.
    """
    entries = {
        **signature(index, queries, metric, options.backend, options.k),
        **({} if encoded is None else encoded.settings),
        "references": digest(queries),
        **joined_stages(stages),
        **options.restrictions,
    }
    best = no_rows(len(queries.ids), options.text) if best is None else best
    return SearchedShards(best, exact, entries, sum(n for n, _ in stages))


def most_demanding(a: np.ndarray, b: np.ndarray, sign: float) -> np.ndarray:
    """Return the better of two limits of each query: float64[Q]; `sign` is that of the metric."""
    return np.maximum(a, b) if sign > 0 else np.minimum(a, b)


def limit_of(best: BestRows, k: int, limit: np.ndarray | None, sign: float) -> np.ndarray | None:
    """Return the scores that rows of further shards must reach to be listed: float64[Q], None for no limit.

    `best` are those of the shards so far, `limit` the one before it, and `sign` is that of the metric.
    """
    if best.rows.shape[1] < k:
        return limit
    last = best.scores[:, -1]
    if limit is None:
        return last
    return most_demanding(last, limit, sign)


def search_shard(
    ids: Sequence[str],
    pairs: Pairs,
    options: SearchOptions,
    lists: ResultLists,
    *,
    reserve: Callable[[], int] | None,
    progress: Advance | None,
    limit: np.ndarray | None = None,
    checked: int = CHECKED,
) -> tuple[BestRows, dict[str, Any], bool]:
    """Return the k best rows of one index for each query, what the signature records of the work, and `exact`.

    They have no ids and texts, and are fewer than k rows if the shard has fewer that can be scored. Rows that score
    worse than `limit`, float64[Q], may be left out; lists then end with row -1 and the worst possible score.

    `pairs` are those of the queries with the documents of the shard, its only part, and `ids` the ids of the queries,
    for messages. `lists` has the rows that each list excludes. `reserve` returns the corpus row of the fall-back
    report; it is None if the search has none. The plain scorer scores `checked` listed pairs again.
    """
    metric, ((shard, representation, encoded, place),) = pairs.metric, pairs.parts
    row_id, backend, n = representation.row_id, options.backend, len(place)
    k = min(options.k, len(row_id))
    n_lists = len(lists.query)
    worst = -metric.sign * np.inf
    limits = np.full(n, worst if limit is None else -worst)
    if limit is not None:  # of queries that are the same for this shard the least demanding
        (np.minimum if metric.sign > 0 else np.maximum).at(limits, encoded.document_of_row, limit)
    shape = n_lists, k
    answers = Answers(np.full(shape, -1, np.int64), np.zeros(shape), np.zeros(shape, np.int64), limits)
    rounds = [
        (
            begin,
            Answers(answers.rows[begin:end], answers.scores[begin:end], answers.ties[begin:end], limits, of_round),
        )
        for (begin, of_round), end in zip(lists.rounds(n), lists.ends, strict=True)
    ]
    if backend == "reference":
        kernel: Kernel = _Reference(metric, representation, encoded)
    else:
        kernel = load_kernel(metric, backend)
    ((corpus, batch),) = pairs.arrays
    sample = sample_of(n_lists * k, checked).tolist()
    listed_rows = answers.rows.ravel()

    def score_ahead(first: int, last: int) -> None:
        """Score those pairs of the checked sample that belong to a block of lists, while other blocks are searched.

        A pair of long reports takes milliseconds of plain Python.
        """
        for place in sample[bisect_left(sample, first * k) : bisect_left(sample, last * k)]:
            row = listed_rows[place]
            if row >= 0:
                pairs.plain(int(lists.query[place // k]), int(representation.document_of_row[row]))

    stages = _answer_queries(
        kernel,
        corpus,
        batch,
        n,
        k,
        rounds,
        options.threads or n_threads(),
        progress,
        len(encoded.document_of_row),
        options.max_memory,
        score_ahead,
    )
    if not kernel.capabilities.signed:
        fill_zeros(answers, row_id, lists)
    if options.min_score is not None:
        sign = metric.sign
        answers.rows[sign * answers.scores < sign * options.min_score] = -1
    answers.scores[answers.rows < 0] = worst
    answers.ties[answers.rows < 0] = 0
    unmatched = np.empty(0, np.int64) if reserve is None else np.flatnonzero(answers.scores[:, 0] == 0.0)
    row = -1
    if reserve is not None and len(unmatched):
        row = reserve() - shard.first_row
    if not 0 <= row < shard.n_reports:  # another shard has it
        unmatched = unmatched[:0]
    query = np.concatenate([np.repeat(lists.query, k), lists.query[unmatched]])
    rows = np.concatenate([answers.rows.ravel(), np.full(len(unmatched), row)])
    scores = np.concatenate([answers.scores.ravel(), np.zeros(len(unmatched))])
    listed_pairs = np.flatnonzero(rows >= 0)
    listed = query[listed_pairs], representation.document_of_row[rows[listed_pairs]], scores[listed_pairs]
    of_listed = kernel.components(kernel.counts(corpus, batch, *listed))
    pairs.check(ids, *listed, of_listed, checked)
    components = {name: np.zeros(len(rows), values.dtype) for name, values in of_listed.items()}
    for name, values in of_listed.items():
        components[name][listed_pairs] = values

    ties = np.concatenate([answers.ties.ravel(), np.zeros(len(unmatched), np.int64)])

    def laid_out(places: np.ndarray) -> BestRows:
        """Return the pairs at these places, int64[Q, m], as `BestRows` with m rows per query."""
        of_whole = np.where(rows >= 0, rows + shard.first_row, -1)
        of_places = {name: values[places] for name, values in components.items()}
        return BestRows(of_whole[places], scores[places], ties[places], of_places)

    answer_lists = laid_out((np.arange(n_lists)[:, None] * k + np.arange(k))[lists.of_query])
    if len(unmatched):
        reserve_line = np.zeros(n_lists, np.int64)
        reserve_line[unmatched] = n_lists * k + np.arange(len(unmatched))
        answer_lists = replace(answer_lists, reserve=laid_out(reserve_line[lists.of_query][:, None]))
    return answer_lists, stages, kernel.capabilities.exact


def _shared(progress: Advance, n_shards: int) -> Callable[[int], None]:
    """Return a progress function for several shards: a query counts once all `n_shards` shards have answered it."""
    done = reported = 0

    def tell(n: int) -> None:
        """Add n answered queries of one shard."""
        nonlocal done, reported
        done += n
        if done // n_shards > reported:
            progress(done // n_shards - reported)
            reported = done // n_shards

    return tell


def joined_stages(stages: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """Join the signature entries of several searches, each with the number of documents that were searched.

    Shares are averaged, weighted by the number of documents; of closest calls (least distances between bound and score)
    the least is kept.
    """
    if len(stages) < 2:
        return stages[0][1] if stages else {}
    joined: dict[str, Any] = {}
    shares = [(n, part["stages"]) for n, part in stages if "stages" in part]
    if shares:
        total = sum(n for n, _ in shares)
        names = dict.fromkeys(name for _, share in shares for name in share)
        joined["stages"] = {name: sum(n * share.get(name, 0.0) for n, share in shares) / total for name in names}
    calls = [part["closest_call"] for _, part in stages if "closest_call" in part]
    if calls:
        names = dict.fromkeys(name for call in calls for name in call)
        joined["closest_call"] = {name: min(call[name] for call in calls if name in call) for name in names}
    return joined


def signature(index: Index, queries: Reports, metric: Metric, backend: str, k: int) -> dict[str, Any]:
    """Return the signature of a search: a dict of everything that is needed to reproduce its results."""
    return {
        "metric": metric.name,
        "options": metric.recorded,
        "source": metric.citation,
        "tool": metric.tool,
        "direction": metric.direction,
        "representation": {kind: index.content["representations"][kind] for kind in metric.representations},
        "index": index.fingerprint,
        **section_entry(index, queries),
        "backend": backend,
        "k": k,
        "ties": "lowest row first",
        "version": package_version(),
    }


def digest(queries: Reports) -> str:
    """Return a SHA-256 of the sorted pairs of id and text, in hexadecimal."""
    hasher = hashlib.sha256()
    pairs = sorted(zip(queries.ids, queries.texts, strict=True))
    for first in range(0, len(pairs), BATCH):
        raw = [string.encode("utf-8", "surrogatepass") for pair in pairs[first : first + BATCH] for string in pair]
        hasher.update(b"".join([b"%d:%b" % (len(string), string) for string in raw]))
    return hasher.hexdigest()


def _answer_queries(
    kernel: Kernel,
    corpus: Any,
    batch: Any,
    n: int,
    k: int,
    rounds: Sequence[tuple[int, Answers]],
    threads: int,
    progress: Advance | None,
    n_queries: int,
    max_memory: float | None,
    answered: Callable[[int, int], None],
) -> dict[str, Any]:
    """Answer the n distinct queries block by block on a thread pool; kernels release the interpreter lock.

    `rounds` has the number of the first list of each round, and the arrays that its results are written to. `n_queries`
    is the number of queries, equal ones included, in which progress is reported. `answered` is called with the first
    list and the end of the lists of each finished block, from the thread that searched it.

    Return what the signature records of the work: the share of pairs that each stage dropped by its bounds, and the
    least distance between a bound and a score.
    """
    idle: list[Any] = []
    limit = None if max_memory is None else MemoryLimit(max_memory, threads)
    sizes = (n, n) if kernel.capabilities.batched else (BLOCK, MOST_BLOCK) if limit is None else (LEAST_BLOCK,) * 2
    blocks = [
        (begin, answers, first, last)
        for begin, answers in rounds
        for run_of_lists in _runs(answers, n)
        for first, last in _blocks(*run_of_lists, *sizes, threads)
    ]
    total = sum(last - first for _, _, first, last in blocks)
    of_a_query = 1
    if kernel.capabilities.splits and blocks:  # threads beyond the cores make no query faster
        of_a_query = max(min(threads, n_threads()) // len(blocks), 1)

    def run(i: int) -> int:
        """Search block `i` of distinct queries; return how many it has."""
        begin, answers, first, last = blocks[i]
        workspace = idle.pop() if idle else None if kernel.capabilities.batched else kernel.new_workspace(corpus)
        with nullcontext() if limit is None else limit.block():
            kernel.search(corpus, batch, first, last, k, answers._replace(threads=of_a_query), workspace)
        if workspace is not None:
            idle.append(workspace)
        ends = answers.exclusion.first[[first, last]].tolist() if len(answers.exclusion.first) else (first, last)
        answered(begin + ends[0], begin + ends[1])
        return last - first

    if kernel.capabilities.batched:
        for i in range(len(blocks)):
            run(i)
        report(progress, n, n, n_queries, 0)
    else:
        run_blocks(run, range(len(blocks)), total, threads, progress, n_queries, of_a_query)
    stages = kernel.stages(idle)
    closest = stages.pop("closest_call", None)
    return {**({"stages": stages} if stages else {}), **({"closest_call": closest} if closest else {})}


def _runs(answers: Answers, n: int) -> list[tuple[int, int]]:
    """Return runs of consecutive ones of n distinct queries that have lists among the answers: (first, end) of each."""
    if not len(answers.exclusion.first):
        return [(0, n)] if n else []
    has_lists = np.diff(answers.exclusion.first) > 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], has_lists, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _blocks(first: int, end: int, least: int, most: int, threads: int) -> Iterator[tuple[int, int]]:
    """Yield blocks (first, end): a quarter of a thread's share of what is left, from `least` to `most` queries."""
    while first < end:
        last = min(first + min(max((end - first) // (4 * threads), least), most), end)
        yield first, last
        first = last


class _Reference(Kernel):
    """A kernel that scores every document with the plain scorer; components come from the CPU kernel."""

    capabilities = Capabilities(bound=False, signed=True)

    def __init__(self, metric: Metric, representation: Documents, encoded: Documents) -> None:
        self._score, self._kernel = load_reference(metric), load_kernel(metric, "cpu")
        self._sign = metric.sign
        self._representation, self._encoded = representation, encoded

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        index = self._representation
        documents = np.arange(len(index.row_ptr) - 1)
        items = [index.item(int(u)) for u in documents]
        for q in range(first, last):
            query = self._encoded.item(q)
            scores = np.array([self._score(item, query)[0] for item in items])
            answers.put(q, documents, scores, index, k, self._sign)

    def counts(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, known: Any = None) -> Any:
        return self._kernel.counts(corpus, batch, query, document, known)

    def scores(self, counts: Any) -> np.ndarray:
        return self._kernel.scores(counts)

    def components(self, counts: Any) -> dict[str, np.ndarray]:
        return self._kernel.components(counts)

    def new_workspace(self, corpus: Any) -> None:
        return None
