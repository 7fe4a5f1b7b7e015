"""``oracle bench``: times searches on this machine's CPU and GPU, after checking that their results are equal.

The gate and the timings are here alone: the repository's ``benchmarks/`` measures with them too.
"""

import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_in_range
from metric_oracle.base.checksum import replacing_signed
from metric_oracle.base.errors import BackendError, ExactnessError, InputError, shown
from metric_oracle.base.operating_system import peak_memory
from metric_oracle.base.option_types import DEVICES, Backend
from metric_oracle.base.progress import Progress, silent
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.shards import open_index
from metric_oracle.metrics import get_metric, names_of, shown_in
from metric_oracle.reading import AttachedReports, Given, attached
from metric_oracle.reading import reports as with_sources
from metric_oracle.records import Metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.document_pairs import compared, scorable_rows
from metric_oracle.retrieval.machine import machine, versions
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import plan, retrieve
from metric_oracle.retrieval.search import Search
from metric_oracle.sources.attaching import piece_of
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.stand_ins import MAX_ENCODED, MAX_QUERIES, encoder_command, find_encoder, sources_of
from metric_oracle.verification.verify import verify

METRICS = shown_in("bench")
DEFAULT_SIZE = (20_000, 500)  # reports and test reports of the synthetic corpus; takes a minute or two
SINGLES, SINGLE_WARM_UP = 50, 10
_COMPARED = ("query_id", "rank", "row", "score", "n_ties", "fallback")
_ANSWERS = 5  # reports per query that are compared
# For the check against the reference: queries searched by brute force, and largest numbers of pairs to score.
_SAMPLE, _PAIRS, _STATE_PAIRS = 3, 600_000, 2_000
Row = dict[str, Any]
T = TypeVar("T")


# ---- what is shared with benchmarks/ ---------------------------------------------------------------------------------


def timed(function: Callable[[], Any]) -> float:
    """Return how long one call of the function takes, in seconds."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def repeated(function: Callable[[], Any], n: int) -> list[float]:
    """Return how long each of n calls of the function takes, in seconds."""
    return [timed(function) for _ in range(n)]


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the 20th and the 80th percentile of at least one value."""
    if len(values) == 1:
        return values[0], values[0]
    fifths = quantiles(values, n=5, method="inclusive")
    return fifths[0], fifths[-1]


def seconds_text(value: float) -> str:
    """Return a duration with its unit, s or ms, to at least three digits."""
    number, unit = (value, "s") if value >= 1 else (1000 * value, "ms")
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def check_answers(
    index: Index,
    queries: Reports,
    metric: str,
    backends: Sequence[Backend] = ("cpu",),
    *,
    k: int = _ANSWERS,
    sample: int = _SAMPLE,
) -> None:
    """Raise ExactnessError unless all backends give the same results as the plain scorer. Call this before timing.

    The results of the first backend, k reports for each query or all that can be scored if these are fewer, are
    verified: every listed pair is scored again, and `sample` of the queries are searched by brute force. Those of the
    other backends must equal them.
    """
    first, *more = backends
    k = min(k, len(scorable_rows(index, plan(index, metric).metric)))
    results = retrieve(index, queries, metric, k=k, backend=first, text=False)
    verify(index, results, queries, sample=sample)
    for backend in more:
        table = retrieve(index, queries, metric, k=k, backend=backend, text=False).table
        for column in _COMPARED:
            if not table[column].equals(results.table[column]):
                raise ExactnessError(
                    f"backends {first} and {backend} differ in {column} of {metric}.",
                    "This is a defect: please report it with the index fingerprint.",
                )


class Study(NamedTuple):
    """Times of one search of all queries."""

    total: float  # seconds from reports in memory to the table of results
    encode: float  # seconds of encoding the queries
    stages: dict[str, float]  # shares of pairs that the stages of the search dropped, as the signature records them
    distinct: int  # number of distinct queries that were searched

    @property
    def search(self) -> float:
        """Seconds of the search without encoding the queries."""
        return self.total - self.encode


def study(index: Index, queries: Reports, metric: str, backend: Backend = "cpu") -> Study:
    """Search all queries once, from reports in memory to the table of results, and return what that took."""
    times = [time.perf_counter()]
    planned = plan(index, metric, SearchOptions(backend=backend))
    search = Search(index, queries, planned.metric, planned.options)
    results = search.results(lambda n: times.append(time.perf_counter()))
    total = time.perf_counter() - times[0]
    encode = times[1] - times[0]  # the first call of `progress` comes when the queries are encoded
    distinct = len(np.unique(planned.pairs(queries).which))
    return Study(total, encode, results.signature.get("stages", {}), distinct)


def columns_of(studies: Sequence[Study], index: Index, queries: Reports, metric: str) -> Row:
    """Return the columns of a result row that describe `studies` of these queries: medians of times, and rates.

    `pairs_per_s` counts pairs of a query and a report of the corpus; `distinct_pairs` counts pairs of a distinct query
    and a document, the only ones that are compared.
    """
    seconds = [s.total for s in studies]
    total, (p20, p80) = median(seconds), spread(seconds)
    n_units = sum(len(part.row_ptr) - 1 for _, part in compared(index, get_metric(metric)))
    distinct, stages = studies[-1].distinct * n_units, studies[-1].stages
    return {
        "seconds": total,
        "p20": p20,
        "p80": p80,
        "repetitions": len(studies),
        "encode_s": median([s.encode for s in studies]),
        "search_s": median([s.search for s in studies]),
        "queries_per_s": len(queries.ids) / total,
        "pairs_per_s": len(queries.ids) * index.n_reports / total,
        "distinct_pairs": distinct,
        "distinct_pairs_per_s": distinct / total,
        **({"stages": stages} if stages else {}),
    }


def single_studies(
    index: Index, queries: Reports, metric: str, backend: Backend = "cpu", n: int = SINGLES
) -> list[Study]:
    """Return the times of searches for at most n single queries with distinct texts, after some for warm-up."""
    return after_warm_up([study(index, query, metric, backend) for query in single_queries(queries, n)])


def single_queries(queries: Reports, n: int = SINGLES) -> list[Reports]:
    """Return batches of one report each, with distinct texts.

    The first `SINGLE_WARM_UP` are for warm-up, followed by up to n others.
    """
    distinct = np.unique(queries.texts, return_index=True)[1]
    places = np.random.default_rng(0).permutation(distinct)[: n + SINGLE_WARM_UP]
    return [alone(queries, i) for i in np.sort(places).tolist()]


def after_warm_up(values: Sequence[T]) -> list[T]:
    """Drop the values of the warm-up queries of `single_queries`, but keep at least one value."""
    return list(values[min(SINGLE_WARM_UP, len(values) - 1) :])


def alone(queries: Reports, i: int) -> Reports:
    """Return a batch of query number `i`, without any data of the others, as if it had been given alone."""
    return piece_of(queries.take([i]))


def run_alone(index: str | Path, queries: Given, metric: str, backend: Backend = "cpu") -> dict[str, float]:
    """Run a whole search in a process of its own, and return its one-off costs in seconds and its peak memory in GB.

    The test reports must not be loaded yet. Keys: load_s, to open the index and what the metric reads of it; compile_s,
    what a process's first opening and first search take longer than those of the index opened again: imports, and
    compiling or loading stored machine code; prepare_s, what the first search with an opened index takes longer than
    the second: look-up tables, opening the encoder, on a GPU the transfer; peak_gb, and gpu_peak_gb with backend
    "cuda". Raise BackendError if the process fails.
    """
    task = pickle.dumps((index, attached(queries), metric, backend))
    command = [sys.executable, "-P", "-c", "from metric_oracle.bench.timing import _process; _process()"]
    done = subprocess.run(command, input=task, capture_output=True, check=False)
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise BackendError(
            f"the process that measures {metric} with backend {backend} ended with code {done.returncode} ({last}).",
            "See its last line; code -9 means that memory was short.",
        )
    return json.loads(done.stdout)


def _process() -> None:
    """Run in the process of `run_alone`: measure start-up costs with a single query, then search the whole batch.

    The arguments come pickled from standard input, and the result is printed as JSON.
    """
    folder, reports, metric, backend = pickle.load(sys.stdin.buffer)  # noqa: S301 - `run_alone` made it
    opened: list[Index] = []

    def load() -> None:
        """Open the index and what the metric reads of it."""
        opened[:] = []  # frees memory of the GPU for the next index
        opened.append(open_index(folder))
        assert opened[0].reports is not None
        compared(opened[0], get_metric(metric))

    def search(queries: Reports) -> float:
        """Return how long a search of the queries takes, in seconds."""
        return timed(lambda: retrieve(opened[0], queries, metric, backend=backend))

    queries = reports.load()
    single = alone(queries, 0)
    first = timed(load) + search(single)
    load_s = timed(load)
    second, third = search(single), search(single)
    search(queries)
    out = {
        "load_s": load_s,
        "compile_s": max(first - load_s - second, 0.0),
        "prepare_s": max(second - third, 0.0),
        "peak_gb": peak_memory() / 1e9,
    }
    torch = sys.modules.get("torch")
    if backend == "cuda" and torch is not None:
        out["gpu_peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    print(json.dumps(out))


# ---- oracle bench ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """An index and its test reports."""

    index: Index
    reports: AttachedReports  # the test reports, not loaded, for other processes
    metrics: list[str]  # names of those to time

    @cached_property
    def queries(self) -> Reports:
        """The test reports."""
        return deepcopy(self.reports).load()

    def measured(self, metric: str, backend: Backend, repetitions: int, step: Progress) -> Row:
        """Return the result row of one metric and backend: times, rates and memory."""
        step(f"timing {metric} on {backend}", None, None)
        retrieve(self.index, self.queries, metric, backend=backend)
        studies = [study(self.index, self.queries, metric, backend) for _ in range(repetitions)]
        singles = [1000 * s.total for s in single_studies(self.index, self.queries, metric, backend)]
        single_p20, single_p80 = spread(singles)
        step(f"measuring the memory of {metric} on {backend}", None, None)
        return {
            "metric": metric,
            "backend": backend,
            "reports": self.index.n_reports,
            "tests": len(self.queries.ids),
            **columns_of(studies, self.index, self.queries, metric),
            "single_ms": median(singles),
            "single_p20_ms": single_p20,
            "single_p80_ms": single_p80,
            **run_alone(self.index.folder, self.reports, metric, backend),
            "index": self.index.fingerprint,
        }


def run_bench(
    index: Annotated[
        str | Path | None,
        Doc(
            "Index of the corpus: a folder that [`build_index`][metric_oracle.build_index] wrote. Without `index` and "
            "`queries`, a synthetic corpus is made and searched."
        ),
    ] = None,
    queries: Annotated[
        Given, Doc("Test reports, in any form that [`reports`][metric_oracle.reports] takes. Needed with `index`.")
    ] = None,
    *,
    metrics: option_types.Metrics | None = None,
    backends: Annotated[
        Sequence[Backend],
        Doc("Backends to time: cpu, cuda, or both with a comma. One that this machine lacks is skipped."),
    ] = DEVICES,
    reports: Annotated[
        option_types.Positive | None,
        Doc("Number of training reports in the synthetic corpus. By default 20000; not with `index`."),
    ] = None,
    tests: Annotated[
        option_types.Positive | None,
        Doc("Number of test reports in the synthetic corpus. By default 500; not with `index`."),
    ] = None,
    repetitions: Annotated[
        option_types.Positive, Doc("Number of times that each measurement is repeated; the median is shown.")
    ] = 5,
    progress: Progress | None = None,
) -> list[Row]:
    """Compare the results of the backends, then time their searches; return a row for each metric and backend.

    Rows of what cannot be measured come first; their entry `skipped` says why. The metrics are by default those of
    `METRICS` for which index and queries have the sources. Raise ExactnessError if results differ, before anything is
    timed, and InputError or BackendError if an argument is wrong or nothing can be measured.
    """
    step = silent if progress is None else progress
    searched = [get_metric(name) for name in names_of(metrics) or METRICS]
    _check_arguments(index, queries, backends, {"reports": reports, "tests": tests}, repetitions)
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as scratch:
        rows: list[Row] = []
        if index is not None and queries is not None:
            step("reading the test reports", None, None)
            opened, names = open_index(index), [metric.name for metric in searched]
            if metrics is None:
                names = [name for name in names if name in opened.metrics] or opened.metrics
            parts = [_Part(opened, attached(queries), names)]
        else:
            size = reports or DEFAULT_SIZE[0], tests or DEFAULT_SIZE[1]
            parts, rows = _synthetic(Path(scratch), searched, size, step)
        planned: list[tuple[_Part, str, Backend]] = []
        problem: Exception | None = None
        for part, name in [(one, name) for one in parts for name in one.metrics]:
            usable = []
            for backend in backends:
                try:
                    retrieve(part.index, alone(part.queries, 0), name, backend=backend, text=False)
                    usable.append(backend)
                except (BackendError, InputError) as reason:
                    problem = problem or reason
                    rows.append({"metric": name, "backend": backend, "skipped": str(reason)})
            if usable:
                metric = get_metric(name)
                pairs = _STATE_PAIRS if metric.needs_encoder else _PAIRS
                n_documents = len(part.index.representation(metric).row_ptr) - 1
                step(f"comparing the answers under {name} with the reference's", None, None)
                sample = max(1, min(_SAMPLE, pairs // n_documents))
                check_answers(part.index, part.queries, name, usable, sample=sample)
            planned += [(part, name, backend) for backend in usable]
        if not planned:
            raise problem or BackendError(
                f"nothing can be measured: {rows[0]['skipped']}.", "Choose other metrics or backends."
            )
        return rows + [part.measured(metric, backend, repetitions, step) for part, metric, backend in planned]


def _check_arguments(
    index: str | Path | None,
    queries: Given,
    backends: Sequence[Backend],
    sizes: dict[str, int | None],
    repetitions: int,
) -> None:
    """Raise InputError unless the arguments of `run_bench` fit together; `sizes` has `reports` and `tests`."""
    if (index is None) != (queries is None):
        got = "an index alone" if queries is None else "queries alone"
        raise InputError("index and queries", "must be given together", got, "Add the other, or leave both out.")
    unknown = [name for name in backends if name not in DEVICES]
    if unknown or not backends:
        raise InputError("backends", f"must be one of {', '.join(DEVICES)}", shown(*unknown) or "none", "Choose one.")
    for name, value in {**sizes, "repetitions": repetitions}.items():
        if value is not None:
            check_in_range(name, value, ge=1)
    if index is not None and any(sizes.values()):
        step = "Leave them out: they are the sizes of a synthetic corpus."
        raise InputError("reports and tests", "must be left out with an index", "a size", step)


def _synthetic(
    scratch: Path, metrics: Sequence[Metric], size: tuple[int, int], step: Progress
) -> tuple[list[_Part], list[Row]]:
    """Return a synthetic corpus, a smaller one for metrics over token states, and rows of metrics without an encoder.

    `size` has the numbers of reports and of test reports. The files are written into the folder `scratch`.
    """
    encoder = find_encoder()
    plain, encoded = ([r.name for r in metrics if r.needs_encoder == needs] for needs in (False, True))
    lacking = encoded if encoder is None else []
    rows = [{"metric": m, "backend": "cpu", "skipped": f"not installed: {encoder_command()}"} for m in lacking]
    smaller = min(size[0], MAX_ENCODED), min(size[1], MAX_QUERIES)
    of_states: dict[str, Any] = {"encoder": encoder, "layer": 5}
    parts = []
    for names, (n_reports, n_tests), of_encoder in ((plain, size, {}), (encoded, smaller, of_states)):
        if not names or (of_encoder and encoder is None):
            continue
        step(f"making a synthetic corpus of {n_reports:,} reports", None, None)
        folder = scratch / ("encoded" if of_encoder else "plain")
        files = write_synthetic(folder, n_reports, n_tests)
        step("encoding reports with MiniLM" if of_encoder else "building the index", None, None)
        corpus = with_sources(files["train"], **sources_of(files, "train"), **of_encoder)
        index = build_index(corpus, folder / "INDEX", metrics=names)
        parts.append(_Part(index, with_sources(files["test"], **sources_of(files, "test")), names))
    return parts, rows


def json_lines(rows: Sequence[Row]) -> list[str]:
    """Return each row as a line of JSON, with facts about the machine, versions of packages and the time."""
    facts = {"machine": machine(), "versions": versions(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
    return [json.dumps(row | facts) for row in rows]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows to a file, as JSON Lines, with a signature file beside it."""
    with replacing_signed(path, {"kind": "bench", "version": version("metric-oracle")}) as temporary:
        temporary.write_text("".join(line + "\n" for line in json_lines(rows)), encoding="utf-8")
