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
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import metric_oracle as mo
from benchmarks import beside
from benchmarks.bench import Bench, Measurement, installed, need_embeddings, need_states, why_not_cuda
from benchmarks.data import (
    CAPTIONS,
    LEXICAL_AND_GRAPH,
    MODELS,
    OF_STATES,
    SkippedError,
    embedding_options,
    graph_options,
    label_options,
)
from benchmarks.floor import floor_columns, work_of
from benchmarks.pages import case_pages, first_page, live_query
from benchmarks.peers import PEERS, SEARCHES
from benchmarks.state_peers import APPROXIMATE, STATE_PEERS
from metric_oracle.base.option_types import Backend
from metric_oracle.bench.timing import columns_of, repeated, single_studies, timed
from metric_oracle.metrics import get_metric
from metric_oracle.projects import write_entry
from metric_oracle.tables.systems import RANDOM

FULL_SIZE = (185_538, 2_192)  # reports and tests that the goals hold for
ALL = (*LEXICAL_AND_GRAPH, "chexbert")
_STATE_SINGLES = 30  # queries alone over token states


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


# ---- oracles ---------------------------------------------------------------------------------------------------------


def _need(metric: str, bench: Bench, backend: Backend = "cpu") -> None:
    """Raise SkippedError where a metric cannot be searched."""
    if metric in OF_STATES:
        need_states(metric)
    if metric == "chexbert":
        need_embeddings(bench.data)
    reason = why_not_cuda(metric, bench.data_of(metric)) if backend == "cuda" else None
    if reason:
        raise SkippedError(reason)


def _oracle(metric: str, backend: Backend, bench: Bench) -> Measurement:
    """Time retrieve() from reports in memory to the table; what is paid once comes from a process of its own.

    The floor's ceilings are those of the processor; for captioning none was counted.
    """
    _need(metric, bench, backend)
    data = bench.data_of(metric)
    studies = bench.studies(metric, backend)
    columns = columns_of(studies, data.index, data.queries, metric) | bench.process(metric, backend)
    if backend == "cpu" and metric not in CAPTIONS:
        works = work_of(data.index, data.queries, metric, columns.get("stages", {}))
        columns |= floor_columns(works, columns["search_s"], bench.ceilings)
    if data.index.fingerprint != bench.data.index.fingerprint:
        columns["states_index"] = data.index.fingerprint
    return Measurement([s.total for s in studies], columns)


def _single(metric: str, bench: Bench) -> Measurement:
    """Time queries alone, each another report, after others that warm up; over token states without their encoding."""
    _need(metric, bench)
    data = bench.data_of(metric)
    if metric not in OF_STATES:
        milliseconds = [1000 * s.total for s in single_studies(data.index, data.queries, metric)]
        return Measurement(milliseconds, {"slowest_ms": max(milliseconds)})
    studies = single_studies(data.index, data.queries, metric, n=_STATE_SINGLES)
    searches = [1000 * s.search for s in studies]
    encode = 1000 * median([s.encode for s in studies])
    columns = {"slowest_ms": max(searches), "encode_ms": encode, "note": f"encoding {encode:.3g} ms"}
    return Measurement(searches, columns)


def _memory(metric: str, bench: Bench) -> Measurement:
    """Return the peak memory in GB of a process that opens the index and runs a whole oracle."""
    return Measurement([bench.process(metric, "cpu")["peak_gb"]])


def _states_ratio(bench: Bench) -> Measurement:
    """Return the time of RadCliQ's search over that of BERTScore's, measured in turns."""
    need_states("radcliq")
    pairs = list(zip(bench.studies("radcliq", "cpu"), bench.studies("bertscore", "cpu"), strict=True))
    whole = median([a.total / b.total for a, b in pairs])
    return Measurement(
        [a.search / b.search for a, b in pairs], {"with_encoding": whole, "note": f"with encoding {whole:.3g}"}
    )


def _states_memory(metric: str, bench: Bench) -> Measurement:
    """Return the peak memory of a process that runs a whole oracle, over the bytes of the stored states."""
    need_states(metric)
    peak = bench.process(metric, "cpu")["peak_gb"]
    states = bench.states.index.part("bertscore").states.nbytes / 1e9
    return Measurement(
        [peak / states], {"peak_gb": peak, "states_gb": states, "note": f"{peak:.3g} of {states:.3g} GB"}
    )


# ---- index -----------------------------------------------------------------------------------------------------------


def _mark(marks: list[tuple[str, float]], part: str, *_: int | None) -> None:
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
            mo.reports(
                bench.data.corpus / "train.csv", mo.Read(keep_empty=True), **graph_options(bench.data.corpus, "train")
            ),
            folder / "index",
            metrics=LEXICAL_AND_GRAPH,
            progress=partial(_mark, marks),
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
            index.representation(get_metric(metric))
        _collect(marks, totals, parts)
    columns = {f"{part}_ms": 1000 * median(seconds[1:]) for part, seconds in parts.items()}
    return Measurement([1000 * seconds for seconds in totals[1:]], columns)  # the first one imports modules


# ---- processes -------------------------------------------------------------------------------------------------------


# Python's bytecode is kept, as where a package is installed.
_USERS = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _command(arguments: Sequence[str], bench: Bench, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end, away from the repository, and return what it printed."""
    done = subprocess.run(
        arguments,
        cwd=bench.scratch,
        env=_USERS | (environment or {}),
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


# The command itself, with its progress in a file instead of a bar.
_STUDY = """
import json, sys, time
from contextlib import contextmanager
from metric_oracle.__main__ import main
from metric_oracle.base.operating_system import peak_memory
from metric_oracle.commands import tables
marks = [("reading", time.perf_counter(), time.process_time())]

def mark(step, *_):
    if step != marks[-1][0]:
        marks.append((step, time.perf_counter(), time.process_time()))

@contextmanager
def progress(task):
    yield mark

tables.progress, file, sys.argv = progress, sys.argv[1], ["oracle", *sys.argv[2:]]
try:
    main()
finally:
    mark("")
    with open(file, "w") as out:
        json.dump({"marks": marks, "peak": peak_memory()}, out)
"""


def _study(bench: Bench) -> Measurement:
    """Time the command `oracle study` with four models, once; the columns have the time of each of its steps."""
    for metric in OF_STATES:
        need_states(metric)
    data = bench.states
    metrics = ",".join([*ALL, "chexbert:labels", *OF_STATES])
    splits = ("test", *MODELS)
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        record, project = Path(folder) / "marks.json", Path(folder) / "oracle.toml"
        for split in splits:
            entry = {"file": data.corpus / f"{split}.csv"} | graph_options(data.corpus, split)
            entry |= embedding_options(data.vectors, split) | label_options(data.corpus, split)
            entry = {name: str(one.resolve()) if isinstance(one, Path) else one for name, one in entry.items()}
            write_entry(project, split, {name.replace("_", "-"): one for name, one in entry.items()})
        arguments = [data.index_folder, *splits, "-m", metrics, "--encoder", data.encoder, "--project", project]
        command = [sys.executable, "-c", _STUDY, record, "study", *arguments, "--out", Path(folder) / "study"]
        whole = timed(partial(_command, [str(part) for part in command], bench))
        found = json.loads(record.read_text(encoding="utf-8"))
        rows = sorted(path.stem for path in Path(folder, "study").glob("*.parquet"))
    marks = found["marks"]
    # After the last average of random retrieval, each pair of models and each metric is compared.
    last = max(i for i, (step, *_) in enumerate(marks) if step.startswith(RANDOM)) + 1
    marks[last:-1] = [["table", *marks[last][1:]]]
    steps: dict[str, float] = defaultdict(float)
    cpu: dict[str, float] = defaultdict(float)
    for (step, begin, used), (_, end, used_then) in pairwise(marks):
        steps[step] += end - begin
        cpu[step] += used_then - used
    longest = max(steps, key=lambda step: steps[step])
    note = f"{len(steps)} steps; without the longest, {longest}: {whole - steps[longest]:.0f} s"
    columns = {"steps_s": steps, "steps_cpu_s": cpu, "rows": rows, "peak_gb": found["peak"] / 1e9, "note": note}
    return Measurement([whole], columns)


_COMPILE = """
import json, sys, time
from pathlib import Path
import metric_oracle as mo
folder = Path(sys.argv[1])
index = mo.open_index(folder / "index")
queries = mo.reports(json.loads((folder / "texts.json").read_text()), radgraph=folder / "references.json").load()
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
    with installed("starlette"):
        milliseconds = [1000 * s for s in live_query(bench.data)]
    return Measurement(milliseconds, {"slowest_ms": max(milliseconds)})


def _first_page(bench: Bench) -> Measurement:
    """Time the first page of a study; the very first time is a column."""
    with installed("starlette"):
        first, *seconds = first_page(bench.data, bench.repetitions)
    return Measurement([1000 * s for s in seconds], {"first_ms": 1000 * first, "note": f"at first {1000 * first:.3g}"})


def _case_pages(bench: Bench) -> Measurement:
    """Time pages of one test report each, after others that warm up."""
    with installed("starlette"):
        milliseconds = [1000 * s for s in case_pages(bench.data, 50)]
    slowest = max(milliseconds)
    return Measurement(milliseconds, {"slowest_ms": slowest, "note": f"slowest {slowest:.3g}"})


# ---- the registry ----------------------------------------------------------------------------------------------------

_TITLES = {"radgraph": "RadGraph F1", "bleu": "BLEU-2", "rouge-l": "ROUGE-L", "chexbert": "CheXbert"}
_CAPTION_TITLES = {
    "cider-d:corpus": "CIDEr-D, frequencies of the corpus",
    "meteor:nltk-stems": "METEOR, without synonyms",
}
_STATE_TITLES = {"bertscore": "BERTScore", "radcliq": "RadCliQ"}
_STATE_GOALS = {"bertscore": (35.0, 15.0, 2.0), "radcliq": (None, None, 2.0)}  # the study, one query, memory
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
            f"oracle-{metric}",
            title,
            "s",
            _STATE_GOALS[metric][0],
            partial(_oracle, metric, "cpu"),
            (metric,),
            table="oracle",
        )
        for metric, title in _STATE_TITLES.items()
    ]
    for metric, title in (_TITLES | _STATE_TITLES).items():
        measure = partial(_oracle, metric, "cuda")
        records.append(
            Workload(f"cuda-{metric}", f"{title}, GPU", "s", None, measure, (metric,), table="oracle", backend="cuda")
        )
    for name, peer in PEERS.items():
        title, measure = (_TITLES | _CAPTION_TITLES)[peer.metric], partial(beside.peer, name)
        least = 500.0 if peer.metric in CAPTIONS else 2000.0
        records.append(Workload(f"peer-{name}", title, "times", least, measure, (peer.metric,), "at least", "peer"))
    records += [
        Workload(
            f"peer-{name}",
            _TITLES[search.metric],
            "times",
            None,
            partial(beside.whole_search, name),
            (search.metric,),
            "at least",
            "peer",
        )
        for name, search in SEARCHES.items()
    ]
    for name, on_gpu, goal in (("faiss", False, 1.0), ("faiss-gpu", True, None)):
        measure = partial(beside.faiss, on_gpu)
        records.append(Workload(f"peer-{name}", "CheXbert", "times", goal, measure, ("chexbert",), "at least", "peer"))
    records.append(
        Workload(
            "peer-chexbert-torch", "CheXbert", "times", None, beside.product_on_gpu, ("chexbert",), "at least", "peer"
        )
    )
    records += [
        Workload(
            f"peer-{name}",
            "BERTScore, search",
            "times",
            state_peer.goal,
            partial(beside.states, name),
            ("bertscore",),
            "at least",
            "peer",
        )
        for name, state_peer in STATE_PEERS.items()
    ]
    what = "BERTScore, search"
    for name in APPROXIMATE:
        measure = partial(beside.states, name)
        records.append(Workload(f"peer-{name}", what, "times", None, measure, ("bertscore",), "at least", "peer"))
    records += [
        Workload(f"single-{metric}", f"One query alone, {title}", "ms", 5.0, partial(_single, metric), (metric,))
        for metric, title in _TITLES.items()
    ]
    for metric, title in _STATE_TITLES.items():
        _, single, memory = _STATE_GOALS[metric]
        what = f"One query alone, {title}, search"
        records.append(Workload(f"single-{metric}", what, "ms", single, partial(_single, metric), (metric,)))
        what, measure = f"Peak memory over stored states, {title}", partial(_states_memory, metric)
        records.append(Workload(f"memory-{metric}", what, "times", memory, measure, (metric,)))
    what = "RadCliQ's search over BERTScore's"
    records.append(Workload("ratio-radcliq", what, "times", 1.3, _states_ratio, OF_STATES))
    records += [
        Workload("study", "`oracle study`, four models, seven metrics", "s", 240.0, _study, OF_STATES),
        Workload("page-first", "First page of a study of five files", "ms", 100.0, _first_page, LEXICAL_AND_GRAPH),
        Workload("page-case", "Page of one test report of this study", "ms", 50.0, _case_pages, LEXICAL_AND_GRAPH),
        Workload(
            "page-live", "Live query on a page, BLEU-2 and ROUGE-L", "ms", 150.0, _live_query, ("bleu", "rouge-l")
        ),
        Workload("open", "Opening the index with all it holds", "ms", 50.0, _open, LEXICAL_AND_GRAPH),
        Workload("build", "build-index from files: BLEU, ROUGE-L, RadGraph", "s", 15.0, _build, LEXICAL_AND_GRAPH),
        Workload("memory-bleu", "Peak memory, BLEU-2", "GB", 1.5, partial(_memory, "bleu"), ("bleu",)),
        Workload("memory-rouge-l", "Peak memory, ROUGE-L", "GB", 1.5, partial(_memory, "rouge-l"), ("rouge-l",)),
        Workload("help", "`oracle --help`", "s", 0.15, _help, full_size=False),
        Workload("second-process", "A second `oracle retrieve`, one query", "s", 1.0, _second_process, ("bleu",)),
        Workload("demo", "`oracle demo`, nothing compiled before", "s", 60.0, _demo, full_size=False),
        Workload("compile", "Compiling BLEU, ROUGE-L and RadGraph once", "s", None, _compile, LEXICAL_AND_GRAPH),
    ]
    return records


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _registry()}
