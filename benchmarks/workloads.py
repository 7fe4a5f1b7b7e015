"""The registry: one record for each thing that is measured, with its goal.

A measurement returns its repetitions; the value reported is their median. Whatever is compiled or read once is done
before, in a warm-up.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

import metric_oracle as mo
from benchmarks.data import (
    CAPTIONS,
    HAS_FAISS,
    LACKING,
    LEXICAL_AND_GRAPH,
    OF_STATES,
    Data,
    Sample,
    SkippedError,
    draw_sample,
    draw_states,
    embedding_options,
    prepare,
    prepare_states,
)
from benchmarks.floor import Ceilings, floor_columns, measure_ceilings, work_of
from benchmarks.pages import first_page, live_query
from benchmarks.peers import GRAPH_SEARCHES, PEERS, STATE_PEERS, FaissFlat, FastPlaid, recall_of, recalls
from metric_oracle.errors import BackendError
from metric_oracle.evaluation.bench import (
    Study,
    after_warm_up,
    alone,
    columns_of,
    repeated,
    run_alone,
    single_queries,
    study,
    timed,
)
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.composite.representation import representation_of

FULL_SIZE = (185_538, 2_192)  # reports and tests that the goals hold for
ALL = (*LEXICAL_AND_GRAPH, "chexbert")
_REFERENCES, _COMPARED = 20, 5  # test reports of the peers' sample, and how many of them have their scores compared
_LONG = 3  # repetitions of what takes minutes, at most
_STATE_SINGLES, _STATE_PAIRS = 30, 100  # queries alone, and pairs whose scores are compared, of token states
_ROUNDING = 1e-6  # of recall by float32 products: what lies as close is as good


@dataclass(frozen=True)
class Measurement:
    """Repetitions of one measurement, and what else is worth a column."""

    values: Sequence[float]
    columns: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The value reported."""
        return median(self.values)


class Bench:
    """What the workloads share: the data and the sample of the peers.

    `studied` names the metrics over token states whose whole studies some workload needs.
    """

    def __init__(
        self, root: Path, n_reports: int, n_tests: int, repetitions: int, scratch: Path, studied: Sequence[str] = ()
    ) -> None:
        self.root, self.n_reports, self.n_tests = root, n_reports, n_tests
        self.repetitions, self.scratch, self.studied = repetitions, scratch, studied
        self._on_gpu: dict[str, list[Study]] = {}

    @cached_property
    def data(self) -> Data:
        """The corpus that everything is measured on."""
        return prepare(self.root, self.n_reports, self.n_tests)

    @cached_property
    def states(self) -> Data:
        """The same corpus with token states."""
        return prepare_states(self.root, self.n_reports, self.n_tests)

    @cached_property
    def studies(self) -> dict[str, list[Study]]:
        """Whole studies of the metrics over token states, in turns; one query of each warms up."""
        data = self.states
        for metric in self.studied:
            mo.retrieve(data.index, alone(data.queries, 0), metric)
        out: dict[str, list[Study]] = {metric: [] for metric in self.studied}
        for _ in range(min(self.repetitions, _LONG)):
            for metric, studies in out.items():
                studies.append(study(data.index, data.queries, metric))
        return out

    @cached_property
    def sample(self) -> Sample:
        """The pairs that the peers score."""
        n_candidates = max(peer.n_candidates for peer in PEERS.values())
        folder = self.scratch / "sample"
        folder.mkdir()
        return draw_sample(self.data, _REFERENCES, n_candidates, folder)

    @cached_property
    def ceilings(self) -> Ceilings:
        """What this machine can do."""
        return measure_ceilings(self.repetitions)

    @cache  # noqa: B019 - one instance, as long as the process
    def process(self, metric: str, backend: str) -> dict[str, float]:
        """Run a whole oracle in a process of its own, once."""
        data = self.data if metric in (*ALL, *CAPTIONS) else self.states
        reads = get_metric(metric).representations
        options: dict[str, Any] = {"radgraph": data.corpus / "test_graphs.json"} if "radgraph" in reads else {}
        if "chexbert" in reads:
            options |= embedding_options(data.vectors, "test")
        if data.encoder is not None:
            options["encoder"] = data.encoder
        return run_alone(data.index_folder, data.corpus / "test.csv", metric, backend, keep_empty=True, **options)

    def studies_on(self, metric: str, backend: str) -> list[Study]:
        """Return whole studies, on a GPU timed at the first call."""
        if backend == "cpu":
            return self.studies[metric]
        if metric not in self._on_gpu:
            data = self.states
            mo.retrieve(data.index, alone(data.queries, 0), metric, backend=backend)
            n = min(self.repetitions, _LONG)
            self._on_gpu[metric] = [study(data.index, data.queries, metric, backend) for _ in range(n)]
        return self._on_gpu[metric]

    def faiss_peer(self, on_gpu: bool) -> FaissFlat:
        """Return FAISS with one row per report."""
        _need_embeddings(self.data)
        assert self.data.vectors is not None
        peer = FaissFlat(on_gpu)
        peer.build(np.load(self.data.vectors / "train.npy"), np.load(self.data.vectors / "test.npy"))
        return peer


@dataclass(frozen=True)
class Workload:
    """One thing to measure.

    Attributes
    ----------
    name : as in --only
    title : as in the README
    unit : of the value
    goal : None where there is none
    measure : the measurement
    metrics : what the gate checks before
    sense : whether the value should stay under the goal or reach it
    table : of the README
    full_size : whether the goal holds at FULL_SIZE only
    backend : that searches
    """

    name: str
    title: str
    unit: str
    goal: float | None
    measure: Callable[[Bench], Measurement]
    metrics: tuple[str, ...] = ()
    sense: Literal["at most", "at least"] = "at most"
    table: Literal["oracle", "peer", "other"] = "other"
    full_size: bool = True
    backend: Literal["cpu", "cuda"] = "cpu"


def in_turns(one: Callable[[], Any], other: Callable[[], Any], n: int) -> list[tuple[float, float]]:
    """Return the seconds of n calls of each, side by side, so that a busy machine slows both; after one to warm up."""
    one()
    other()
    return [(timed(one), timed(other)) for _ in range(n)]


# ---- oracles ---------------------------------------------------------------------------------------------------------


def _need_embeddings(data: Data) -> None:
    if data.vectors is None:
        msg = 'faiss is not installed: pip install "metric-oracle[cpu]"'
        raise SkippedError(msg)


def why_not_cuda(metric: str, data: Data) -> str | None:
    """Return why the GPU cannot search here, None where it can."""
    try:
        mo.retrieve(data.index, alone(data.queries, 0), metric, backend="cuda", text=False)
    except BackendError as error:
        return str(error)
    return None


def _need_backend(backend: str, metric: str, data: Data) -> None:
    reason = why_not_cuda(metric, data) if backend == "cuda" else None
    if reason:
        raise SkippedError(reason)


def _oracle(metric: str, backend: str, bench: Bench) -> Measurement:
    """Time retrieve() from reports in memory to the table; what is paid once comes from a process of its own."""
    data = bench.data
    if metric == "chexbert":
        _need_embeddings(data)
    _need_backend(backend, metric, data)
    mo.retrieve(data.index, data.queries, metric, backend=backend)
    studies = [study(data.index, data.queries, metric, backend) for _ in range(bench.repetitions)]
    columns: dict[str, Any] = columns_of(studies, data.queries, data.index)
    stages = studies[-1].stages
    columns |= {"stages": stages} if stages else {}
    return Measurement(
        [s.total for s in studies],
        columns | bench.process(metric, backend) | _floor(metric, backend, columns, stages, bench),
    )


def _floor(
    metric: str, backend: str, columns: dict[str, Any], stages: dict[str, float], bench: Bench
) -> dict[str, Any]:
    """Return the columns of the floor; the ceilings are those of the processor. For captioning none was counted."""
    if backend != "cpu" or metric in CAPTIONS:
        return {}
    data = bench.data if metric in ALL else bench.states
    works = work_of(data.index, data.queries, metric, stages)
    return floor_columns(works, columns["search_s"], bench.ceilings)


def _single(metric: str, bench: Bench) -> Measurement:
    """Time single queries, each another report, after others that warm up."""
    data = bench.data
    if metric == "chexbert":
        _need_embeddings(data)
    seconds = [timed(partial(mo.retrieve, data.index, query, metric)) for query in single_queries(data.queries)]
    milliseconds = [1000 * s for s in after_warm_up(seconds)]
    return Measurement(milliseconds, {"slowest_ms": max(milliseconds)})


def _memory(metric: str, bench: Bench) -> Measurement:
    """Return the peak memory in GB of a process that opens the index and runs a whole oracle."""
    return Measurement([bench.process(metric, "cpu")["peak_gb"]])


# ---- peers -----------------------------------------------------------------------------------------------------------


@contextmanager
def _installed(package: str) -> Iterator[None]:
    """Turn a missing module into one line."""
    try:
        yield
    except ImportError as error:
        msg = f"{package} is not installed: pip install {package}"
        raise SkippedError(msg) from error


def _peer(name: str, bench: Bench) -> Measurement:
    """Return our pairs per second over the peer's on a sample, whose scores must be ours."""
    peer = PEERS[name]
    references, candidates = bench.sample.references, bench.sample.candidates[: peer.n_candidates]
    with _installed(str(peer.package)):
        score = peer.build(references, candidates)
    difference = _largest_difference(bench.sample, peer.metric, score())
    if difference > 1e-9:
        msg = f"its scores differ from ours by up to {difference:.3g}: not timed"
        raise SkippedError(msg)
    n_pairs = len(references) * len(candidates)
    return _factor(bench, peer.metric, peer.title, score, n_pairs, {"largest_difference": difference})


def _factor(
    bench: Bench, metric: str, title: str, score: Callable[[], Any], n_pairs: int, columns: dict[str, Any],
    backend: str = "cpu",
) -> Measurement:  # fmt: skip
    """Return our pairs per second over the peer's, measured in turns."""
    data = bench.data
    ours = partial(mo.retrieve, data.index, data.queries, metric, backend=backend)
    seconds = in_turns(score, ours, bench.repetitions)
    columns |= {
        "pairs_per_s": data.pairs / median([ours for _, ours in seconds]),
        "peer": title,
        "peer_pairs_per_s": n_pairs / median([theirs for theirs, _ in seconds]),
        "peer_pairs": n_pairs,
        "backend": backend,
    }
    return Measurement([data.pairs / ours / (n_pairs / theirs) for theirs, ours in seconds], columns)


def _largest_difference(sample: Sample, metric: str, scores: np.ndarray) -> float:
    """Compare a peer's scores of the first references with ours."""
    n_queries = min(_COMPARED, len(scores))
    queries = sample.queries.take(np.arange(n_queries))
    table = mo.retrieve(sample.index, queries, metric, k=sample.index.n_reports, text=False).table
    ours = np.empty((n_queries, sample.index.n_reports))
    ours[np.repeat(np.arange(n_queries), sample.index.n_reports), table["row"].to_numpy()] = table["score"].to_numpy()
    return float(np.abs(ours[:, : scores.shape[1]] - scores[:n_queries]).max())


def _graph_search(name: str, bench: Bench) -> Measurement:
    """Return our pairs per second over those of a whole search, all of whose units are scored again."""
    peer = GRAPH_SEARCHES[name]
    with _installed(peer.package):
        search = peer.build(bench.data)
    recall = recall_of(search(), bench.data)
    if peer.exact and recall < 1:
        msg = f"it finds our best score for {100 * recall:.3g} % of the queries only: not timed"
        raise SkippedError(msg)
    return _factor(bench, "radgraph", peer.title, search, bench.data.pairs, {"recall": recall})


def _faiss(on_gpu: bool, bench: Bench) -> Measurement:
    """Return the time of FAISS with one row per report over that of our CheXbert oracle, measured in turns."""
    data = bench.data
    peer = bench.faiss_peer(on_gpu)
    found = mo.retrieve(data.index, data.queries, "chexbert").table["score"].to_numpy()
    difference = float(np.abs(peer.search()[0] - found).max())
    if difference > 1e-5:
        msg = f"its scores differ from ours by up to {difference:.3g}: not timed"
        raise SkippedError(msg)
    title = f"faiss IndexFlatIP{' on the GPU' if on_gpu else ''}"
    backend = "cuda" if on_gpu and why_not_cuda("chexbert", data) is None else "cpu"
    return _factor(bench, "chexbert", title, peer.search, data.pairs, {"largest_difference": difference}, backend)


# ---- token states ----------------------------------------------------------------------------------------------------


def _need_states(metric: str) -> None:
    if LACKING:
        msg = f"{LACKING[0].replace('_', '-')} is not installed: pip install {LACKING[0].replace('_', '-')}"
        raise SkippedError(msg)
    if metric == "radcliq" and not HAS_FAISS:
        msg = 'faiss is not installed: pip install "metric-oracle[cpu]"'
        raise SkippedError(msg)


def _states_oracle(metric: str, backend: str, bench: Bench) -> Measurement:
    """Report whole studies: with the encoding of the queries, and without it."""
    _need_states(metric)
    data = bench.states
    _need_backend(backend, metric, data)
    studies = bench.studies_on(metric, backend)
    columns: dict[str, Any] = columns_of(studies, data.queries, data.index)
    search = columns["search_s"]
    n_units = len(representation_of(data.index, get_metric(metric)).row_ptr) - 1
    columns |= {
        "search_pairs_per_s": data.pairs / search,
        "distinct_search_pairs_per_s": len(set(data.queries.texts)) * n_units / search,
        "stages": studies[-1].stages,
        "states_index": data.index.fingerprint,
        **bench.process(metric, backend),
    }
    columns |= _floor(metric, backend, columns, studies[-1].stages, bench)
    return Measurement([s.total for s in studies], columns)


def _states_single(metric: str, bench: Bench) -> Measurement:
    """Time the search for single queries, each another report, after others that warm up; encoding is a column."""
    _need_states(metric)
    data = bench.states
    studies = [study(data.index, query, metric) for query in single_queries(data.queries, _STATE_SINGLES)]
    studies = after_warm_up(studies)
    searches = [1000 * s.search for s in studies]
    encode = 1000 * median([s.encode for s in studies])
    columns = {"slowest_ms": max(searches), "encode_ms": encode, "note": f"encoding {encode:.3g} ms"}
    return Measurement(searches, columns)


def _states_ratio(bench: Bench) -> Measurement:
    """Return the time of RadCliQ's search over that of BERTScore's, measured in turns."""
    _need_states("radcliq")
    pairs = list(zip(bench.studies["radcliq"], bench.studies["bertscore"], strict=True))
    whole = median([a.total / b.total for a, b in pairs])
    return Measurement(
        [a.search / b.search for a, b in pairs], {"with_encoding": whole, "note": f"with encoding {whole:.3g}"}
    )


def _states_memory(metric: str, bench: Bench) -> Measurement:
    """Return the peak memory of a process that runs a whole oracle, over the bytes of the stored states."""
    _need_states(metric)
    peak = bench.process(metric, "cpu")["peak_gb"]
    states = bench.states.index.part("bertscore").states.nbytes / 1e9
    return Measurement(
        [peak / states], {"peak_gb": peak, "states_gb": states, "note": f"{peak:.3g} of {states:.3g} GB"}
    )


def _states_peer(name: str, bench: Bench) -> Measurement:
    """Return the pairs per second of our search over the peer's, on its faster way, whose scores must be ours."""
    _need_states("bertscore")
    peer = STATE_PEERS[name]
    sample = draw_states(bench.states, peer.n_references, peer.n_candidates)
    with _installed(peer.package):
        ways = peer.build(sample)
    shape = len(sample.references), len(sample.candidates)
    compared = np.random.default_rng(0).integers(shape, size=(_STATE_PAIRS, 2)).tolist()
    exact = [sample.exact(*pair)[peer.part] for pair in compared]
    seconds: dict[str, float] = {}
    differences: dict[str, float] = {}
    for way, (score, tolerance) in ways.items():
        scores = score()
        differences[way] = max(abs(scores[i, j] - e) for (i, j), e in zip(compared, exact, strict=True))
        if not differences[way] <= tolerance:
            msg = f"its scores ({way}) differ from ours by up to {differences[way]:.3g}: not timed"
            raise SkippedError(msg)
        seconds[way] = timed(score)
    n_pairs = shape[0] * shape[1]
    fastest = min(seconds, key=lambda way: seconds[way])
    columns = {
        "ways_pairs_per_s": {way: n_pairs / s for way, s in seconds.items()},
        "largest_difference": differences[fastest],
    }
    backend = "cuda" if peer.on_gpu and why_not_cuda("bertscore", bench.states) is None else "cpu"
    return _states_factor(bench, f"{peer.title}, {fastest}", ways[fastest][0], n_pairs, columns, backend)


def _states_factor(
    bench: Bench, title: str, score: Callable[[], Any], n_pairs: int, columns: dict[str, Any], backend: str = "cpu"
) -> Measurement:
    """Return the pairs per second of our search over the peer's, timed after our studies."""
    theirs = repeated(score, min(bench.repetitions, _LONG))
    ours = [s.search for s in bench.studies_on("bertscore", backend)]
    columns |= {
        "pairs_per_s": bench.states.pairs / median(ours),
        "peer": title,
        "peer_pairs_per_s": n_pairs / median(theirs),
        "peer_pairs": n_pairs,
        "backend": backend,
    }
    factors = [bench.states.pairs / a / (n_pairs / b) for a, b in zip(ours, theirs, strict=True)]
    return Measurement(factors, columns)


def _fast_plaid(bench: Bench) -> Measurement:
    """Return the pairs per second of our exact search over those of an approximate one, with its recall."""
    _need_states("bertscore")
    peer = FastPlaid()
    sample = draw_states(bench.states, peer.n_references, peer.n_candidates)
    with _installed(peer.package):
        search = peer.build(sample, Path(tempfile.mkdtemp(dir=bench.scratch)))
    found, values = search(), recalls(sample)
    reached = values[np.arange(len(found)), found] >= values.max(axis=1) - _ROUNDING
    columns = {"recall": float((reached & (found >= 0)).mean())}
    return _states_factor(bench, peer.title, search, values.size, columns)


# ---- index -----------------------------------------------------------------------------------------------------------


def _mark(marks: list[tuple[str, float]], part: str) -> None:
    marks.append((part, time.perf_counter()))


def _collect(marks: list[tuple[str, float]], totals: list[float], parts: dict[str, list[float]]) -> None:
    """Add up one repetition, which ends now: its whole, and its parts, each of which began at a mark."""
    end = time.perf_counter()
    totals.append(end - marks[0][1])
    for (part, begin), (_, after) in zip(marks, [*marks[1:], ("", end)], strict=True):
        parts.setdefault(part, []).append(after - begin)


def _build(bench: Bench) -> Measurement:
    """Time build_index from files to the opened index; its parts are columns."""
    totals: list[float] = []
    parts: dict[str, list[float]] = {}
    for _ in range(bench.repetitions):
        marks: list[tuple[str, float]] = [("read", time.perf_counter())]
        folder = Path(tempfile.mkdtemp(dir=bench.scratch))
        mo.build_index(
            bench.data.corpus / "train.csv",
            folder / "index",
            metrics=LEXICAL_AND_GRAPH,
            radgraph=bench.data.corpus / "train_graphs.json",
            progress=partial(_mark, marks),
            keep_empty=True,
        )
        _collect(marks, totals, parts)
        shutil.rmtree(folder)
    return Measurement(totals, {f"{part}_s": median(seconds) for part, seconds in parts.items()})


def _open(bench: Bench) -> Measurement:
    """Time opening the index and all that it holds; the representations are columns."""
    totals: list[float] = []
    parts: dict[str, list[float]] = {}
    metrics = [m for m in ALL if m != "chexbert" or bench.data.vectors is not None]
    for _ in range(bench.repetitions + 1):
        marks = [("open", time.perf_counter())]
        index = mo.open_index(bench.data.index_folder)
        _mark(marks, "reports")
        assert index.reports is not None
        for metric in metrics:
            _mark(marks, metric)
            representation_of(index, get_metric(metric))
        _collect(marks, totals, parts)
    columns = {f"{part}_ms": 1000 * median(seconds[1:]) for part, seconds in parts.items()}
    return Measurement([1000 * seconds for seconds in totals[1:]], columns)  # the first one imports modules


# ---- processes -------------------------------------------------------------------------------------------------------


def _command(arguments: Sequence[str], bench: Bench, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end, away from the repository, and return what it printed."""
    done = subprocess.run(
        arguments,
        cwd=bench.scratch,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        msg = f"{Path(arguments[0]).name} {' '.join(arguments[1:2])} ended with code {done.returncode}: {last}"
        raise SkippedError(msg)
    return done.stdout


def _oracle_command() -> str:
    command = Path(sys.executable).with_name("oracle")
    if not command.exists():
        msg = f"there is no command {command}: pip install -e ."
        raise SkippedError(msg)
    return str(command)


def _help(bench: Bench) -> Measurement:
    run = partial(_command, [_oracle_command(), "--help"], bench)
    run()
    return Measurement(repeated(run, bench.repetitions))


def _second_process(bench: Bench) -> Measurement:
    """Time a process with one query; an earlier one has left its compiled code."""
    index, text = str(bench.data.index_folder.resolve()), bench.data.queries.texts[0]
    run = partial(_command, [_oracle_command(), "retrieve", index, "--text", text, "--metric", "bleu"], bench)
    first = timed(run)
    return Measurement(repeated(run, bench.repetitions), {"first_process_s": first})


def _demo(bench: Bench) -> Measurement:
    """Time `oracle demo` once, nothing compiled before."""
    with tempfile.TemporaryDirectory(dir=bench.scratch) as cache:
        return Measurement([timed(partial(_command, [_oracle_command(), "demo"], bench, {"NUMBA_CACHE_DIR": cache}))])


_COMPILE = """
import json, sys, time
from pathlib import Path
import metric_oracle as mo
folder = Path(sys.argv[1])
index = mo.open_index(folder / "index")
queries = mo.load_queries(json.loads((folder / "texts.json").read_text()), radgraph=folder / "references.json")
seconds = {}
for metric in sys.argv[2:]:
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        mo.retrieve(index, queries, metric)
        times.append(time.perf_counter() - begin)
    seconds[metric + "_s"] = times[0] - times[1]
print(json.dumps(seconds))
"""


def _compile(bench: Bench) -> Measurement:
    """Time what the first searches of a fresh installation take longer than the second ones."""
    folder = bench.sample.index.folder.parent
    (folder / "texts.json").write_text(json.dumps(bench.sample.queries.texts), encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=bench.scratch) as cache:
        arguments = [sys.executable, "-c", _COMPILE, str(folder), *LEXICAL_AND_GRAPH]
        seconds = json.loads(_command(arguments, bench, {"NUMBA_CACHE_DIR": cache}))
    return Measurement([sum(seconds.values())], seconds)


# ---- the pages -------------------------------------------------------------------------------------------------------


def _live_query(bench: Bench) -> Measurement:
    """Time live queries, each another report, after others that warm up."""
    with _installed("starlette"):
        milliseconds = [1000 * s for s in live_query(bench.data)]
    return Measurement(milliseconds, {"slowest_ms": max(milliseconds)})


def _first_page(bench: Bench) -> Measurement:
    """Time the first page of a study; the very first time is a column."""
    with _installed("starlette"):
        first, *seconds = first_page(bench.data, bench.repetitions)
    return Measurement([1000 * s for s in seconds], {"first_ms": 1000 * first, "note": f"at first {1000 * first:.3g}"})


# ---- the registry ----------------------------------------------------------------------------------------------------

_TITLES = {"radgraph": "RadGraph F1", "bleu": "BLEU-2", "rouge-l": "ROUGE-L", "chexbert": "CheXbert"}
_CAPTION_TITLES = {
    "cider-d:corpus": "CIDEr-D, frequencies of the corpus",
    "meteor:nltk-stems": "METEOR, without synonyms",
}
_STATE_TITLES = {"bertscore": "BERTScore", "radcliq": "RadCliQ"}
_STATE_GOALS = {"bertscore": (120.0, 60.0, 2.0), "radcliq": (None, None, 2.0)}  # the study, one query, memory
_GOALS = {
    "radgraph": 0.3,
    "bleu": 0.6,
    "rouge-l": 1.0,
    "chexbert": None,
    "cider-d:corpus": 1.0,
    "meteor:nltk-stems": 60.0,
}


def _registry() -> list[Workload]:
    records = [
        Workload(
            f"oracle-{metric}", title, "s", _GOALS[metric], partial(_oracle, metric, "cpu"), (metric,), table="oracle"
        )
        for metric, title in (_TITLES | _CAPTION_TITLES).items()
    ]
    records += [
        Workload(
            f"oracle-{metric}", title, "s", _STATE_GOALS[metric][0], partial(_states_oracle, metric, "cpu"), (metric,),
            table="oracle",
        )
        for metric, title in _STATE_TITLES.items()
    ]  # fmt: skip
    for metric, title in (_TITLES | _STATE_TITLES).items():
        measure = partial(_oracle if metric in _TITLES else _states_oracle, metric, "cuda")
        records.append(
            Workload(f"cuda-{metric}", f"{title}, GPU", "s", None, measure, (metric,), table="oracle", backend="cuda")
        )
    for name, peer in PEERS.items():
        title, measure = (_TITLES | _CAPTION_TITLES)[peer.metric], partial(_peer, name)
        least = 500.0 if peer.metric in CAPTIONS else 2000.0
        records.append(Workload(f"peer-{name}", title, "times", least, measure, (peer.metric,), "at least", "peer"))
    records += [
        Workload(
            f"peer-{name}", _TITLES["radgraph"], "times", None, partial(_graph_search, name), ("radgraph",), "at least",
            "peer",
        )
        for name in GRAPH_SEARCHES
    ]  # fmt: skip
    for name, on_gpu, goal in (("faiss", False, 1.0), ("faiss-gpu", True, None)):
        measure = partial(_faiss, on_gpu)
        records.append(Workload(f"peer-{name}", "CheXbert", "times", goal, measure, ("chexbert",), "at least", "peer"))
    records += [
        Workload(
            f"peer-{name}", "BERTScore, search", "times", state_peer.goal,
            partial(_states_peer, name), ("bertscore",), "at least", "peer",
        )
        for name, state_peer in STATE_PEERS.items()
    ]  # fmt: skip
    what = "BERTScore, search"
    records.append(Workload("peer-fast-plaid", what, "times", None, _fast_plaid, ("bertscore",), "at least", "peer"))
    records += [
        Workload(f"single-{metric}", f"One query alone, {title}", "ms", 5.0, partial(_single, metric), (metric,))
        for metric, title in _TITLES.items()
    ]
    for metric, title in _STATE_TITLES.items():
        _, single, memory = _STATE_GOALS[metric]
        what = f"One query alone, {title}, search"
        records.append(Workload(f"single-{metric}", what, "ms", single, partial(_states_single, metric), (metric,)))
        what, measure = f"Peak memory over stored states, {title}", partial(_states_memory, metric)
        records.append(Workload(f"memory-{metric}", what, "times", memory, measure, (metric,)))
    what = "RadCliQ's search over BERTScore's"
    records.append(Workload("ratio-radcliq", what, "times", 1.3, _states_ratio, OF_STATES))
    records += [
        Workload("page-first", "First page of a study of five files", "ms", 100.0, _first_page, LEXICAL_AND_GRAPH),
        Workload(
            "page-live", "Live query on a page, BLEU-2 and ROUGE-L", "ms", 150.0, _live_query, ("bleu", "rouge-l")
        ),
        Workload("open", "Opening the index with all it holds", "ms", 50.0, _open),
        Workload("build", "build-index from files: BLEU, ROUGE-L, RadGraph", "s", 15.0, _build),
        Workload("memory-bleu", "Peak memory, BLEU-2", "GB", 1.5, partial(_memory, "bleu"), ("bleu",)),
        Workload("memory-rouge-l", "Peak memory, ROUGE-L", "GB", 1.5, partial(_memory, "rouge-l"), ("rouge-l",)),
        Workload("help", "`oracle --help`", "s", 0.3, _help, full_size=False),
        Workload("second-process", "A second `oracle retrieve`, one query", "s", 1.5, _second_process, ("bleu",)),
        Workload("demo", "`oracle demo`, nothing compiled before", "s", 60.0, _demo, full_size=False),
        Workload("compile", "Compiling BLEU, ROUGE-L and RadGraph once", "s", None, _compile, LEXICAL_AND_GRAPH),
    ]
    return records


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _registry()}
