"""``oracle bench``: times searches on this machine's CPU and GPU, after checking that their results are equal.

The repository's ``benchmarks/`` measures with the functions of this module.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple, TypeVar

import numpy as np

from metric_oracle import api
from metric_oracle.arguments import check_in_range
from metric_oracle.choices import DEVICES
from metric_oracle.errors import BackendError, ExactnessError, InputError
from metric_oracle.indexes.index import Index
from metric_oracle.metrics import Metric, get_metric, shown_in
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.composite.representation import representation_of
from metric_oracle.retrieval.machine import machine, versions
from metric_oracle.retrieval.search import search
from metric_oracle.sealed import replacing_signed
from metric_oracle.sources.inputs import Inputs
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.demo import MAX_ENCODED, MAX_QUERIES, encoder_command, find_encoder, sources_of

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
    """Return the 20th and the 80th percentile."""
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
    queries: Inputs,
    metric: str,
    backends: Sequence[str] = ("cpu",),
    *,
    k: int = _ANSWERS,
    sample: int = _SAMPLE,
) -> None:
    """Raise ExactnessError unless all backends give the same results as the plain scorer. Call this before timing.

    Parameters
    ----------
    index, queries, metric : Index, Inputs, str
        The search that will be timed.
    backends : sequence of str
        Backends whose results for all queries are compared.
    k : int
        Number of reports per query, at most the number of scorable reports.
    sample : int
        Number of queries that the plain scorer searches by brute force. The listed pairs of all queries are scored
        again.

    Raises
    ------
    ExactnessError
        At the first difference.
    """
    first, *more = backends
    k = min(k, len(api.plan(index, metric).representation.row_id))
    results = api.retrieve(index, queries, metric, k=k, backend=first, text=False)
    api.verify(index, results, queries, sample=sample)
    for backend in more:
        table = api.retrieve(index, queries, metric, k=k, backend=backend, text=False).table
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


def study(index: Index, queries: Inputs, metric: str, backend: str = "cpu") -> Study:
    """Time a search of all queries, from reports in memory to the table of results, and the encoding within it."""
    times = [time.perf_counter()]
    plan = api.plan(index, metric, api.SearchOptions(backend=backend))
    answered = search(index, queries, plan.metric, plan.options, progress=lambda n: times.append(time.perf_counter()))
    results = answered.results(queries.ids)
    total = time.perf_counter() - times[0]
    encode = times[1] - times[0]  # the first call of `progress` comes when the queries are encoded
    distinct = len(np.unique(plan.encode(queries).which))
    return Study(total, encode, results.signature.get("stages", {}), distinct)


def columns_of(studies: Sequence[Study], index: Index, queries: Inputs, metric: str) -> Row:
    """Return the columns of a result row that describe searches of all queries: medians of times, and rates.

    `pairs_per_s` counts pairs of a query and a report of the corpus; `distinct_pairs` counts pairs of a distinct query
    and a document, the only ones that are compared. `stages` has the shares of pairs that the stages of the
    search dropped or that were scored.
    """
    seconds = [s.total for s in studies]
    total, (p20, p80) = median(seconds), spread(seconds)
    n_units = len(representation_of(index, get_metric(metric)).row_ptr) - 1
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


def single_studies(index: Index, queries: Inputs, metric: str, backend: str = "cpu", n: int = SINGLES) -> list[Study]:
    """Time searches for single queries with distinct texts, after some for warm-up."""
    return after_warm_up([study(index, query, metric, backend) for query in single_queries(queries, n)])


def single_queries(queries: Inputs, n: int = SINGLES) -> list[Inputs]:
    """Return batches of one report each, with distinct texts.

    The first `SINGLE_WARM_UP` are for warm-up, followed by up to n others.
    """
    distinct = np.unique(queries.texts, return_index=True)[1]
    chosen = np.random.default_rng(0).permutation(distinct)[: n + SINGLE_WARM_UP]
    return [alone(queries, i) for i in np.sort(chosen).tolist()]


def after_warm_up(values: Sequence[T]) -> list[T]:
    """Drop the values of the warm-up queries of `single_queries`, but keep at least one value."""
    return list(values[min(SINGLE_WARM_UP, len(values) - 1) :])


def alone(queries: Inputs, i: int) -> Inputs:
    """Return a batch of one query, without any data of the others, as if it had been given alone."""
    return queries.take(np.array([i])).piece()


def run_alone(
    index: str | Path, queries: str | Path, metric: str, backend: str = "cpu", **loading: Any
) -> dict[str, float]:
    """Run a whole search in a process of its own, and measure one-off costs and peak memory.

    Parameters
    ----------
    index, queries : path
        Folder of the index, and file of the test reports.
    metric, backend : str
    **loading
        Keyword arguments of `metric_oracle.reports`.

    Returns
    -------
    dict
        load_s : seconds to open the index and what the metric reads of it.
        compile_s : seconds that a process's first opening and first search take longer than those of the index opened
            again: imports, and compiling or loading stored machine code.
        prepare_s : seconds that the first search with an opened index takes longer than the second: look-up tables,
            opening the encoder, on a GPU the transfer.
        peak_gb : peak memory of the process in GB, and gpu_peak_gb that of the GPU with backend "cuda".

    Raises
    ------
    BackendError
        If the process fails.
    """
    arguments = {name: str(value) if isinstance(value, Path) else value for name, value in loading.items()}
    task = json.dumps([str(index), str(queries), metric, backend, arguments])
    command = [sys.executable, "-P", "-c", "from metric_oracle.bench.search import _process; _process()", task]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendError(
            f"the process that measures {metric} with backend {backend} ended with code {done.returncode} ({last}).",
            "See its last line; code -9 means that memory was short.",
        )
    return json.loads(done.stdout)


def _process() -> None:
    """Run in the process of `run_alone`: measure start-up costs with a single query, then search the whole batch."""
    folder, file, metric, backend, loading = json.loads(sys.argv[1])
    opened: list[Index] = []

    def load() -> None:
        """Open the index and what the metric reads of it."""
        opened[:] = []  # frees memory of the GPU for the next index
        opened.append(api.open_index(folder))
        assert opened[0].reports is not None
        representation_of(opened[0], get_metric(metric))

    def search(queries: Inputs) -> float:
        """Return how long a search of the queries takes, in seconds."""
        return timed(lambda: api.retrieve(opened[0], queries, metric, backend=backend))

    queries = api.reports(file, **loading).load()
    single = alone(queries, 0)
    first = timed(load) + search(single)
    load_s = timed(load)
    second, third = search(single), search(single)
    search(queries)
    out = {
        "load_s": load_s,
        "compile_s": max(first - load_s - second, 0.0),
        "prepare_s": max(second - third, 0.0),
        "peak_gb": peak() / 1e9,
    }
    torch = sys.modules.get("torch")
    if backend == "cuda" and torch is not None:
        out["gpu_peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    print(json.dumps(out))


def peak() -> int:
    """Return the peak memory of this process in bytes, mapped files included."""
    # VmHWM is ru_maxrss without what a forked process takes over from its parent.
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    peaks = [1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- oracle bench ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """An index and its test reports: opened, and as files for other processes; `metrics` are those to time on them."""

    index: Index
    queries: Inputs
    file: Path
    loading: dict[str, Any]
    metrics: list[str]


def run_bench(
    index: str | Path | None = None,
    queries: str | Path | None = None,
    *,
    metrics: Sequence[str] | None = None,
    backends: Sequence[str] = DEVICES,
    reports: int | None = None,
    tests: int | None = None,
    repetitions: int = 5,
    progress: Progress | None = None,
    **loading: Any,
) -> list[Row]:
    """Compare the results of the backends, then time their searches.

    Parameters
    ----------
    index, queries : path
        An index and a file of test reports; by default a synthetic corpus is made and indexed.
    metrics : sequence of str
        By default those of `METRICS` for which index and queries have the sources.
    backends : sequence of {"cpu", "cuda"}
    reports, tests : int
        Numbers of reports and test reports of the synthetic corpus, by default `DEFAULT_SIZE`. Metrics over token
        states get fewer reports, because encoding takes long.
    repetitions : int
        Number of timed searches for each metric and backend.
    progress : function
        Called as ``progress(step, None, None)``.
    **loading
        Keyword arguments of `metric_oracle.reports`.

    Returns
    -------
    list of dict
        One for each metric and backend; the entry `skipped` says why nothing was measured.

    Raises
    ------
    InputError, BackendError
        If an argument is wrong, or nothing can be measured.
    ExactnessError
        If results differ; nothing is timed then.
    """
    step = silent if progress is None else progress
    records = [get_metric(name) for name in metrics or METRICS]
    _check(index, queries, backends, (reports, tests), repetitions, loading)
    with tempfile.TemporaryDirectory(prefix="oracle-bench-") as scratch:
        rows: list[Row] = []
        if index is not None and queries is not None:
            step("reading the test reports", None, None)
            opened = api.open_index(index)
            names = [record.name for record in records]
            if metrics is None:
                names = [name for name in names if name in opened.metrics] or opened.metrics
            parts = [_Part(opened, api.reports(queries, **loading).load(), Path(queries), loading, names)]
        else:
            size = reports or DEFAULT_SIZE[0], tests or DEFAULT_SIZE[1]
            parts, rows = _synthetic(Path(scratch), records, size, step)
        planned, problems = _compare(parts, backends, step, rows)
        if not planned:
            raise (
                problems[0]
                if problems
                else BackendError(
                    f"nothing can be measured: {rows[0]['skipped']}.", "Choose other metrics or backends."
                )
            )
        return rows + [
            _measure(part, metric, backend, repetitions, Path(scratch), step) for part, metric, backend in planned
        ]


def _check(
    index: str | Path | None,
    queries: str | Path | None,
    backends: Sequence[str],
    size: tuple[int | None, int | None],
    repetitions: int,
    loading: dict[str, Any],
) -> None:
    """Raise InputError unless the arguments of `run_bench` fit together."""
    if (index is None) != (queries is None):
        got = "an index alone" if queries is None else "queries alone"
        raise InputError("index and queries", "must be given together", got, "Add the other, or leave both out.")
    unknown = [name for name in backends if name not in DEVICES]
    if unknown or not backends:
        raise InputError(
            "backends", f"must be one of {', '.join(DEVICES)}", ", ".join(unknown) or "none", "Choose one of these."
        )
    for name, value in (*zip(("reports", "tests"), size, strict=True), ("repetitions", repetitions)):
        if value is not None:
            check_in_range(name, value, ge=1)
    if index is not None and size != (None, None):
        raise InputError(
            "reports and tests",
            "must be left out with an index",
            "a size",
            "Leave them out: they are the sizes of a synthetic corpus.",
        )
    given = [name for name, value in loading.items() if value is not None]
    if index is None and given:
        raise InputError(", ".join(given), "must be left out without an index", "a value", "Name INDEX and QUERIES.")


def _synthetic(
    scratch: Path, records: Sequence[Metric], size: tuple[int, int], step: Progress
) -> tuple[list[_Part], list[Row]]:
    """Return a synthetic corpus, a smaller one for metrics over token states, and rows for what is not installed."""
    encoder = find_encoder()
    parts, rows = [], []
    plain = [record.name for record in records if "bertscore" not in record.representations]
    encoded = [record.name for record in records if "bertscore" in record.representations]
    smaller = min(size[0], MAX_ENCODED), min(size[1], MAX_QUERIES)
    for name, names, (n_reports, n_tests) in (("plain", plain, size), ("encoded", encoded, smaller)):
        if name == "encoded" and encoder is None:
            rows += [{"metric": m, "backend": "cpu", "skipped": f"not installed: {encoder_command()}"} for m in names]
            continue
        if not names:
            continue
        step(f"making a synthetic corpus of {n_reports:,} reports", None, None)
        files = write_synthetic(scratch / name, n_reports, n_tests)
        sources = {side: sources_of(files, side) for side in ("train", "test")}
        step("building the index" if name == "plain" else "encoding reports with MiniLM", None, None)
        of_encoder: dict[str, Any] = {"encoder": encoder, "layer": 5} if name == "encoded" else {}
        index = api.build_index(
            api.reports(files["train"], **sources["train"], **of_encoder), scratch / name / "INDEX", metrics=names
        )
        parts.append(
            _Part(index, api.reports(files["test"], **sources["test"]).load(), files["test"], sources["test"], names)
        )
    return parts, rows


def _compare(
    parts: Sequence[_Part], backends: Sequence[str], step: Progress, rows: list[Row]
) -> tuple[list[tuple[_Part, str, str]], list[Exception]]:
    """Compare the results of all backends, before anything is timed.

    Return the runs to time, and the errors of the runs that failed, which are also added to `rows`.
    """
    planned: list[tuple[_Part, str, str]] = []
    problems: list[Exception] = []
    for part in parts:
        for metric in part.metrics:
            usable = []
            for backend in backends:
                try:
                    api.retrieve(part.index, alone(part.queries, 0), metric, backend=backend, text=False)
                    usable.append(backend)
                except (BackendError, InputError) as reason:
                    problems.append(reason)
                    rows.append({"metric": metric, "backend": backend, "skipped": str(reason)})
            if usable:
                record = get_metric(metric)
                units = len(part.index.representation(record).row_ptr) - 1
                pairs = _STATE_PAIRS if "bertscore" in record.representations else _PAIRS
                step(f"comparing the answers under {metric} with the reference's", None, None)
                check_answers(part.index, part.queries, metric, usable, sample=max(1, min(_SAMPLE, pairs // units)))
            planned += [(part, metric, backend) for backend in usable]
    return planned, problems


def _measure(part: _Part, metric: str, backend: str, repetitions: int, scratch: Path, step: Progress) -> Row:
    """Return the result row of one metric and backend: times, rates and memory."""
    step(f"timing {metric} on {backend}", None, None)
    api.retrieve(part.index, part.queries, metric, backend=backend)
    studies = [study(part.index, part.queries, metric, backend) for _ in range(repetitions)]
    singles = [1000 * s.total for s in single_studies(part.index, part.queries, metric, backend)]
    single_p20, single_p80 = spread(singles)
    step(f"measuring the memory of {metric} on {backend}", None, None)
    return {
        "metric": metric,
        "backend": backend,
        "reports": part.index.n_reports,
        "tests": len(part.queries.ids),
        **columns_of(studies, part.index, part.queries, metric),
        "single_ms": median(singles),
        "single_p20_ms": single_p20,
        "single_p80_ms": single_p80,
        **run_alone(part.index.folder, part.file, metric, backend, **part.loading),
        "index": part.index.fingerprint,
    }


def json_lines(rows: Sequence[Row]) -> list[str]:
    """Return each row as a line of JSON, with facts about the machine, versions of packages and the time."""
    facts = {"machine": machine(), "versions": versions(), "time": datetime.now(UTC).isoformat(timespec="seconds")}
    return [json.dumps(row | facts) for row in rows]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows to a file, as JSON Lines."""
    with replacing_signed(path, {"kind": "bench", "version": version("metric-oracle")}) as temporary:
        temporary.write_text("".join(line + "\n" for line in json_lines(rows)), encoding="utf-8")
