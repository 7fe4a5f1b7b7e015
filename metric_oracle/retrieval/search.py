"""The oracle: for every query the best rows of the corpus under a metric, exactly."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import BackendError, ExactnessError
from metric_oracle.indexes.contract import EncodedQueries, Representation
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.kernels._device import DeviceError
from metric_oracle.kernels.contract import Answers, Capabilities, Kernel
from metric_oracle.kernels.topk.reference import select
from metric_oracle.metrics import Metric
from metric_oracle.progress import Count
from metric_oracle.retrieval.answers import fallback_row, fill_zeros, layout, no_answer, with_strings
from metric_oracle.retrieval.checks import section_entry
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.kernels import load_kernel, load_reference
from metric_oracle.retrieval.merge import Answer, fall_back, merge
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.pool import MemoryLimit, n_threads, report, run_blocks
from metric_oracle.retrieval.results import Results

CHECKED = 100  # listed pairs that are scored again by the reference, evenly spread; `verify` does all
BLOCK = 32  # queries a task: small enough to share the work evenly, large enough to cost nothing
LEAST_BLOCK = 4  # the same where memory is looked after


class Found(NamedTuple):
    """What a search of some shards found; the reserve of RadGraph is not yet among the answers."""

    answer: Answer
    exact: bool
    signature: dict[str, Any]
    documents: int

    def results(self, ids: Sequence[str]) -> Results:
        """Return the table of the answers of all shards."""
        answer, fallback = fall_back(self.answer)
        return Results(layout(ids, answer, fallback, self.exact), self.signature)


def search(
    index: Index,
    queries: Inputs,
    record: Metric,
    options: SearchOptions,
    *,
    progress: Count | None = None,
    places: Sequence[int] | None = None,
    limit: np.ndarray | None = None,
    encoded: EncodedQueries | None = None,
) -> Found:
    """Search an index, or the shards of a set (those at some `places`) one after another, as a plan asks for it.

    The k-th best scores so far go to the shards that follow, which leave out what is worse; `limit`, float64[Q], has
    those of shards that were searched elsewhere. Where fewer than k rows are left the list ends with row -1. `encoded`
    has what a model made of the queries elsewhere.
    """
    k = options.k
    reserve = cache(partial(fallback_row, index, record)) if record.fallback else None
    tell = None if progress is None else _shared(progress, index.n_shards if places is None else len(places))
    answer, exact, of_shard = None, True, None
    stages: list[tuple[int, dict[str, Any]]] = []
    for shard in index.shards(places):
        representation = representation_of(shard, record)
        if not len(representation.row_id):
            continue
        # What a model makes of the queries, and what else no shard changes, is made once.
        if encoded is None:
            encoded = of_shard = representation.encode(queries, **options.settings)
        else:
            of_shard = representation.encode_again(queries, encoded, **options.settings)
        part, of_part, exact = search_shard(
            shard,
            queries.ids,
            record,
            representation,
            of_shard,
            options,
            reserve=reserve,
            progress=tell,
            limit=limit,
            checked=-(-CHECKED // index.n_shards),
        )
        answer = part if answer is None else merge([answer, part], k, record.higher_is_better)
        limit = limit_of(answer, k, limit, record.higher_is_better)
        stages.append((len(representation.row_ptr) - 1, of_part))
    if answer is not None:
        answer = with_strings(answer, index, options.text)
    return found_of(index, queries, record, options, answer, exact, of_shard, stages)


def found_of(
    index: Index,
    queries: Inputs,
    record: Metric,
    options: SearchOptions,
    answer: Answer | None,
    exact: bool,
    encoded: EncodedQueries | None,
    stages: Sequence[tuple[int, dict[str, Any]]],
) -> Found:
    """Return what a search found; no answer where no shard has a row that can be scored."""
    entries = {
        **signature(index, queries, record, options.backend, options.k),
        **({} if encoded is None else encoded.settings),
        "references": digest(queries),
        **joined_stages(stages),
    }
    found = no_answer(len(queries.ids), options.text) if answer is None else answer
    return Found(found, exact, entries, sum(n for n, _ in stages))


def limit_of(answer: Answer, k: int, limit: np.ndarray | None, higher_is_better: bool) -> np.ndarray | None:
    """Return the scores that rows of further shards must reach: float64[Q], None where all may be listed."""
    if answer.rows.shape[1] < k:
        return limit
    last = answer.scores[:, -1]
    if limit is None:
        return last
    return np.maximum(last, limit) if higher_is_better else np.minimum(last, limit)


def search_shard(
    shard: Index,
    ids: Sequence[str],
    record: Metric,
    representation: Representation,
    encoded: EncodedQueries,
    options: SearchOptions,
    *,
    reserve: Callable[[], int] | None,
    progress: Count | None,
    limit: np.ndarray | None = None,
    checked: int = CHECKED,
) -> tuple[Answer, dict[str, Any], bool]:
    """Return the k best rows of one index for each query, without their strings.

    Also return what the signature records of the work, and `exact`.

    Parameters
    ----------
    shard : Index
    ids : sequence of str
        Of the queries, for a message.
    record, representation, encoded
        The metric, what it reads of the shard, and the queries as that takes them.
    options : SearchOptions
        Of which `k` may be more than the rows that the shard can score.
    reserve : function or None
        Returns the row of the whole corpus that queries get which nothing matches.
    progress : function or None
        Called with the number of queries answered since the last call.
    limit : float64[Q] or None
        Rows that score worse may be left out; lists then end with row -1 and the worst of scores.
    checked : int
        Listed pairs that are scored again by the reference.
    """
    row_id, backend = representation.row_id, options.backend
    k = min(options.k, len(row_id))
    n = int(encoded.which.max()) + 1 if len(encoded.which) else 0
    worst = -np.inf if record.higher_is_better else np.inf
    limits = np.full(n, worst if limit is None else -worst)
    if limit is not None:  # of queries that are the same for this shard the least demanding
        (np.minimum if record.higher_is_better else np.maximum).at(limits, encoded.which, limit)
    answers = Answers(np.full((n, k), -1, np.int64), np.zeros((n, k)), np.zeros((n, k), np.int64), limits)
    try:
        if backend == "reference":
            kernel: Kernel = _Reference(record, representation, encoded)
        else:
            kernel = load_kernel(record, backend)
        corpus, batch = representation.corpus(record, encoded), encoded.batch
        expected = _Expected(record, representation, encoded)
        sample = _sample(n * k, checked)

        def score_ahead(first: int, last: int) -> None:
            """Score those of the sample that a block has answered, while other blocks are searched."""
            for q, place in zip(*np.divmod(sample[(sample >= first * k) & (sample < last * k)], k), strict=True):
                row = answers.rows[q, place]
                if row >= 0:
                    expected.of(int(q), int(representation.unit_of_row[row]))

        stages = _search(
            kernel,
            corpus,
            batch,
            n,
            k,
            answers,
            options.threads or n_threads(),
            progress,
            len(encoded.which),
            options.max_memory,
            score_ahead,
        )
    except DeviceError as error:
        raise BackendError(str(error)) from error
    if not kernel.capabilities.signed:
        fill_zeros(answers, row_id)
    answers.scores[answers.rows < 0] = worst
    unmatched = np.empty(0, np.int64) if reserve is None else np.flatnonzero(answers.scores[:, 0] == 0.0)
    row = -1
    if reserve is not None and len(unmatched):
        row = reserve() - shard.first_row
    if not 0 <= row < shard.n_reports:  # another shard has it
        unmatched = unmatched[:0]
    query = np.concatenate([np.repeat(np.arange(n), k), unmatched])
    rows = np.concatenate([answers.rows.ravel(), np.full(len(unmatched), row)])
    scores = np.concatenate([answers.scores.ravel(), np.zeros(len(unmatched))])
    some = np.flatnonzero(rows >= 0)
    pairs = query[some], representation.unit_of_row[rows[some]], scores[some]
    of_pairs = kernel.components(corpus, batch, *pairs)
    check_pairs(record, representation, encoded, ids, *pairs, of_pairs, checked, expected)
    components = {name: np.zeros(len(rows), values.dtype) for name, values in of_pairs.items()}
    for name, values in of_pairs.items():
        components[name][some] = values

    ties = np.concatenate([answers.ties.ravel(), np.zeros(len(unmatched), np.int64)])

    def laid_out(lists: np.ndarray) -> Answer:
        """Return the answers at some places of the pairs: int64[Q, m]."""
        of_whole = np.where(rows >= 0, rows + shard.first_row, -1)
        of_lists = {name: values[lists] for name, values in components.items()}
        return Answer(of_whole[lists], scores[lists], ties[lists], of_lists)

    found = laid_out((np.arange(n)[:, None] * k + np.arange(k))[encoded.which])
    if len(unmatched):
        place = np.zeros(n, np.int64)
        place[unmatched] = n * k + np.arange(len(unmatched))
        found = replace(found, reserve=laid_out(place[encoded.which][:, None]))
    return found, stages, kernel.capabilities.exact


def _shared(progress: Count, n_shards: int) -> Callable[[int], None]:
    """Turn numbers of queries that each of some shards has answered into numbers of queries."""
    done = told = 0

    def tell(n: int) -> None:
        nonlocal done, told
        done += n
        if done // n_shards > told:
            progress(done // n_shards - told)
            told = done // n_shards

    return tell


def joined_stages(stages: Sequence[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
    """Return what the signature records of several searches: shares weighted by documents, the closest calls of all."""
    if len(stages) < 2:
        return stages[0][1] if stages else {}
    found: dict[str, Any] = {}
    shares = [(n, part["stages"]) for n, part in stages if "stages" in part]
    if shares:
        total = sum(n for n, _ in shares)
        names = dict.fromkeys(name for _, share in shares for name in share)
        found["stages"] = {name: sum(n * share.get(name, 0.0) for n, share in shares) / total for name in names}
    calls = [part["closest_call"] for _, part in stages if "closest_call" in part]
    if calls:
        names = dict.fromkeys(name for call in calls for name in call)
        found["closest_call"] = {name: min(call[name] for call in calls if name in call) for name in names}
    return found


def signature(index: Index, queries: Inputs, record: Metric, backend: str, k: int) -> dict[str, Any]:
    """Return what is needed to reproduce a result."""
    return {
        "metric": record.name,
        "options": record.recorded,
        "source": record.source,
        "tool": record.tool,
        "direction": "higher" if record.higher_is_better else "lower",
        "representation": {kind: index.content["representations"][kind] for kind in record.representations},
        "index": index.fingerprint,
        **section_entry(index, queries),
        "backend": backend,
        "k": k,
        "ties": "lowest row first",
        "version": version("metric-oracle"),
    }


def digest(queries: Inputs) -> str:
    """Return the SHA-256 over the sorted ids and texts."""
    hasher = hashlib.sha256()
    for pair in sorted(zip(queries.ids, queries.texts, strict=True)):
        for string in pair:
            raw = string.encode("utf-8", "surrogatepass")
            hasher.update(b"%d:" % len(raw) + raw)
    return hasher.hexdigest()


def _search(
    kernel: Kernel,
    corpus: Any,
    batch: Any,
    n: int,
    k: int,
    answers: Answers,
    threads: int,
    progress: Count | None,
    n_queries: int,
    max_memory: float | None,
    answered: Callable[[int, int], None],
) -> dict[str, Any]:
    """Answer the distinct queries block by block on a thread pool; kernels release the interpreter lock.

    `answered` is called with the first query and the end of each block, from its thread.

    Return what the signature records of the work: the share of pairs that each stage of a screen dropped.
    """
    idle: list[Any] = []
    limit = None if max_memory is None else MemoryLimit(max_memory, threads, "retrieve")
    size = BLOCK if limit is None else LEAST_BLOCK

    def run(first: int) -> int:
        last = min(first + size, n)
        workspace = idle.pop() if idle else kernel.new_workspace(corpus)
        with nullcontext() if limit is None else limit.block():
            kernel.search(corpus, batch, first, last, k, answers, workspace)
        idle.append(workspace)
        answered(first, last)
        return last - first

    if kernel.capabilities.batched:
        kernel.search(corpus, batch, 0, n, k, answers, None)
        report(progress, n, n, n_queries, 0)
    else:
        run_blocks(run, range(0, n, size), n, threads, progress, n_queries)
    stages = kernel.stages(idle)
    closest = stages.pop("closest_call", None)
    return {**({"stages": stages} if stages else {}), **({"closest_call": closest} if closest else {})}


class _Reference(Kernel):
    """The plain scorer on every distinct candidate, as a kernel; components are those of the CPU's."""

    capabilities = Capabilities(bound=False, signed=True)

    def __init__(self, record: Metric, representation: Representation, encoded: EncodedQueries) -> None:
        self._score, self._kernel = load_reference(record), load_kernel(record, "cpu")
        self._sign = 1.0 if record.higher_is_better else -1.0
        self._representation, self._encoded = representation, encoded

    def search(self, corpus: Any, batch: Any, first: int, last: int, k: int, answers: Answers, workspace: Any) -> None:
        index = self._representation
        units = np.arange(len(index.row_ptr) - 1)
        items = [index.candidate(int(u), self._encoded) for u in units]
        for q in range(first, last):
            query = self._encoded.item(q)
            scores = np.array([self._score(item, query)[0] for item in items])
            rows, best, ties = select(units, self._sign * scores, index.row_ptr, index.row_id, k)
            answers.rows[q], answers.scores[q], answers.ties[q] = rows, self._sign * best, ties

    def score_all(self, corpus: Any, batch: Any, chosen: Sequence[int]) -> Iterator[np.ndarray]:
        return self._kernel.score_all(corpus, batch, chosen)

    def score_pairs(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray) -> Any:
        return self._kernel.score_pairs(corpus, batch, query, document)

    def components(self, corpus: Any, batch: Any, query: np.ndarray, document: np.ndarray, scores: np.ndarray) -> Any:
        return self._kernel.components(corpus, batch, query, document, scores)

    def new_workspace(self, corpus: Any) -> None:
        return None


class _Expected:
    """What the plain scorer gives of pairs of a distinct query and a unit, each scored once.

    Of a pair of long reports that takes milliseconds of plain Python: what is known to be checked is scored while other
    threads, or a GPU, are searching.
    """

    def __init__(self, record: Metric, representation: Representation, encoded: EncodedQueries) -> None:
        self._score, self._representation, self._encoded = load_reference(record), representation, encoded
        self._known: dict[tuple[int, int], tuple[float, dict[str, Any]]] = {}

    def of(self, q: int, unit: int) -> tuple[float, dict[str, Any]]:
        """Return score and components of a pair."""
        if (q, unit) not in self._known:
            candidate = self._representation.candidate(unit, self._encoded)
            self._known[q, unit] = self._score(candidate, self._encoded.item(q))
        return self._known[q, unit]


def _sample(n: int, checked: int) -> np.ndarray:
    """Return places of up to `checked` pairs of `n`, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(checked, n)).astype(np.int64))


def check_pairs(
    record: Metric,
    representation: Representation,
    encoded: EncodedQueries,
    ids: Sequence[str],
    query: np.ndarray,
    units: np.ndarray,
    scores: np.ndarray,
    components: dict[str, np.ndarray],
    checked: int = CHECKED,
    expected: _Expected | None = None,
) -> None:
    """Raise unless scores and components of a sample of pairs are the reference's; `ids` are those of the queries."""
    expected = expected or _Expected(record, representation, encoded)
    for i in _sample(len(scores), checked):
        wanted = expected.of(int(query[i]), int(units[i]))
        got = scores[i], {name: values[i] for name, values in components.items()}
        if got != wanted:
            row = representation.row_id[representation.row_ptr[units[i]]]
            name = shown_names([ids[int(np.argmax(encoded.which == query[i]))]])
            msg = (
                f"retrieve: {record.name} of row {row} must be the reference's {wanted} for query {name}; got {got}. "
                "This is a defect: please report it with the index fingerprint."
            )
            raise ExactnessError(msg)
