"""Sets of shards against single indexes, and sizes from 1e5 to 1e7 reports: ``python -m benchmarks.scale``.

Every step runs in a process of its own, whose peak of memory is its row's, and is written down at once. A run that
was stopped goes on with the same --out: steps that have their row are left out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import metric_oracle as mo
from benchmarks import machine
from benchmarks.data import SEED, digest_of_sources, prepare_corpus
from benchmarks.growth import exponent
from benchmarks.machine import Row
from metric_oracle.base.operating_system import peak_memory
from metric_oracle.bench.timing import spread, timed
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index

METRICS = ("bleu", "rouge-l", "radgraph", "chexbert:labels")
SIZES = (100_000, 1_000_000, 10_000_000)
N_TESTS = 2192
OVER = 1.15  # a set may take so much more than the single index


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that have no row yet; return the exit code."""
    options = _options(arguments)
    if options.step:
        print(json.dumps(STEPS[options.step](options)))
        return 0
    results = machine.Results("scale", options.out, resume=True, seed=SEED)
    known = {(row["name"], row["reports"]) for row in results.rows}
    for size in options.sizes:
        for step, metric in _steps(options, size):
            key = f"scale-{step}{'-' + metric if metric else ''}", size
            if key in known:
                continue
            row = results.add({"name": key[0], "reports": size, **_child(options, step, size, metric)})
            over = f", {row['over']:.3f} times the single index" if "over" in row else ""
            print(f"{key[0]}: {size:,} reports: {row['value']:.4g} s, {row['peak_gb']:.3g} GB{over}", flush=True)
    for metric in options.metrics:
        of_set = [row for row in results.rows if row["name"] == f"scale-search-{metric}"]
        slope = exponent([row["reports"] for row in of_set], [row["value"] for row in of_set])
        print(f"{metric}: seconds grow with reports to the power of {slope:.2f}")
    print(f"rows: {results.path}")
    return int(any(row.get("met") is False for row in results.rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="reports (%(default)s)")
    parser.add_argument("--shards", type=int, default=8, help="of each set (%(default)s)")
    parser.add_argument("--single", type=int, default=1_000_000, help="largest single index beside (%(default)s)")
    parser.add_argument("--tests", type=int, default=N_TESTS, help="test reports (%(default)s)")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS, metavar="METRIC", help="some of them")
    parser.add_argument("--repetitions", type=int, default=3, help="of each search, in turns (%(default)s)")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpora and indexes")
    machine.add_out(parser, "scale")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)  # in the process of a step
    parser.add_argument("--metric", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _steps(options: argparse.Namespace, size: int) -> list[tuple[str, str]]:
    """Return the steps of a size, with the metric of searches."""
    builds = [("build-set", ""), *([("build-single", "")] if size <= options.single else [])]
    return [("corpus", ""), *builds, *(("search", metric) for metric in options.metrics)]


def _child(options: argparse.Namespace, step: str, size: int, metric: str) -> Row:
    """Run a step; return what it measured."""
    numbers = {"shards": options.shards, "tests": options.tests, "repetitions": options.repetitions}
    command = [sys.executable, "-m", "benchmarks.scale", "--step", step, "--sizes", str(size)]
    command += ["--data", str(options.data), "--single", str(options.single), "--metric", metric]
    command += [text for name, value in numbers.items() for text in (f"--{name}", str(value))]
    done = subprocess.run(command, cwd=machine.ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---- steps, each in a process of its own -----------------------------------------------------------------------------


def _corpus(options: argparse.Namespace) -> Path:
    return prepare_corpus(options.data, options.sizes[0], options.tests, embeddings=False)[1]


def _measured(make: Any) -> Row:
    """Return the seconds, those of the processors, and the peak of memory of one call."""
    begin = time.process_time()
    seconds = timed(make)
    return {"value": seconds, "cpu_s": time.process_time() - begin, "unit": "s", "peak_gb": peak_memory() / 1e9}


def _make_corpus(options: argparse.Namespace) -> Row:
    return _measured(lambda: _corpus(options))


def _index_path(options: argparse.Namespace, kind: str) -> Path:
    name = f"{kind}-{options.shards}" if kind == "set" else kind
    return _corpus(options).parent / f"scale-{name}-{digest_of_sources()}"


def _build(options: argparse.Namespace, kind: str, **how: Any) -> Row:
    corpus, path = _corpus(options), _index_path(options, kind)

    def make() -> None:
        mo.build_index(
            mo.reports(
                corpus / "train.csv",
                mo.Read(keep_empty=True),
                radgraph=corpus / "train_graphs.json",
                uncertain="positive",
                chexbert_labels=corpus / "train_labels.csv",
            ),
            path,
            metrics=list(METRICS),
            **how,
        )

    found = {"value": 0.0, "unit": "s", "peak_gb": 0.0, "was_there": True} if _is_there(path) else _measured(make)
    held = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {**found, "index_gb": held / 1e9, "shards": mo.open_index(path).n_shards}


def _is_there(path: Path) -> bool:
    return (path / "set.json").is_file() or (path / "manifest.json").is_file()


def _build_set(options: argparse.Namespace) -> Row:
    return _build(options, "set", shard_rows=-(-options.sizes[0] // options.shards))


def _build_single(options: argparse.Namespace) -> Row:
    return _build(options, "single")


def _time_searches(options: argparse.Namespace) -> Row:
    """Search the set, and in turns the single index where there is one; answers must be the same."""
    corpus = _corpus(options)
    queries = mo.reports(
        corpus / "test.csv",
        mo.Read(keep_empty=True),
        radgraph=corpus / "test_graphs.json",
        chexbert_labels=corpus / "test_labels.csv",
        uncertain="positive",
    ).load()
    many = mo.open_index(_index_path(options, "set"))
    both = [many]
    if options.sizes[0] <= options.single:
        both.append(mo.open_index(_index_path(options, "single")))
    first = [_once(index, queries, options.metric) for index in both]  # warm, and right
    if len(first) == 2 and not first[0].table.equals(first[1].table):
        msg = f"scale: {options.metric} must have the same answers from a set as from one index; got others."
        raise SystemExit(msg)
    of_set: list[float] = []
    of_single: list[float] = []
    begin = time.process_time()
    for _ in range(options.repetitions):
        for index, seconds in zip(both, (of_set, of_single), strict=False):
            seconds.append(timed(partial(_once, index, queries, options.metric)))
    p20, p80 = spread(of_set)
    row: Row = {
        "metric": options.metric, "tests": len(queries.ids), "shards": many.n_shards, "value": median(of_set),
        "p20": p20, "p80": p80, "unit": "s", "repetitions": options.repetitions, "peak_gb": peak_memory() / 1e9,
        "cpu_s": (time.process_time() - begin) / options.repetitions / len(both), "threads": os.cpu_count(),
        "index": many.fingerprint,
    }  # fmt: skip
    if of_single:
        # In turns: what slows the machine slows both.
        over = median(a / b for a, b in zip(of_set, of_single, strict=True))
        row |= {"single": median(of_single), "over": over, "goal": OVER, "sense": "at most", "met": over <= OVER}
    return row


def _once(index: Index, queries: Reports, metric: str) -> Any:
    return mo.retrieve(index, queries, metric)


STEPS = {"corpus": _make_corpus, "build-set": _build_set, "build-single": _build_single, "search": _time_searches}


if __name__ == "__main__":
    sys.exit(main())
