"""Check, then measure: ``python -m benchmarks --help``."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks import gate, machine
from benchmarks.bench import Bench, why_not_cuda
from benchmarks.data import CAPTIONS, CORPORA, HAS_FAISS, LACKING, OF_STATES, SEED, SkippedError, lacking_in
from benchmarks.workloads import FULL_SIZE, WORKLOADS, Workload
from metric_oracle.base.errors import BackendError
from metric_oracle.base.option_types import Backend
from metric_oracle.bench.timing import spread


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate and the workloads; return the exit code, 1 if the gate is red."""
    options = _options(arguments)
    chosen = [w for w in WORKLOADS.values() if _is_wanted(w, options)]
    measured = [w for w in chosen if lacking_in(options.corpus, w.metrics) is None]
    with tempfile.TemporaryDirectory() as scratch:
        size = options.reports, options.tests, options.repetitions
        names = [workload.name for workload in measured]
        bench = Bench(options.data, *size, Path(scratch), options.corpus, _studied(measured), names)
        _say(f"data: {options.reports:,} reports, {options.tests:,} tests, {options.corpus}, in {options.data}")
        facts = {"reports": options.reports, "tests": options.tests, "full": not options.only, "seed": SEED}
        facts["corpus"] = options.corpus
        try:
            results = machine.Results("", options.out, index=bench.data.index.fingerprint, **facts)
            _gate(bench, measured, options.gate_queries)
        except (gate.GateError, SkippedError) as error:
            print(error, file=sys.stderr)
            return 1
        for workload in chosen:
            _say(_line(results.add(_row(workload, bench))))
    _say(f"rows: {results.path}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = f"Names: {', '.join(WORKLOADS)}."
    parser = argparse.ArgumentParser("python -m benchmarks", description="Timings, after a gate.", epilog=names)
    parser.add_argument("--reports", type=int, default=FULL_SIZE[0], help="corpus size (%(default)s)")
    parser.add_argument("--tests", type=int, default=FULL_SIZE[1], help="test reports (%(default)s)")
    parser.add_argument(
        "--corpus", choices=CORPORA, default=CORPORA[0], help="iu-xray: real findings, and others recombined from them"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help='workloads, also as patterns such as "peer-*"')
    parser.add_argument("--repetitions", type=int, default=5, help="of each timing (%(default)s)")
    parser.add_argument("--gate-queries", type=int, default=3, help="compared with the reference (%(default)s)")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpus and index")
    machine.add_out(parser, "")
    options = parser.parse_args(arguments)
    for pattern in options.only or []:
        if not any(fnmatch(name, pattern) for name in WORKLOADS):
            parser.error(f"--only: no workload is called {pattern}. {names}")
    return options


def _is_wanted(workload: Workload, options: argparse.Namespace) -> bool:
    if options.only:
        return any(fnmatch(workload.name, pattern) for pattern in options.only)
    # What takes no corpus, or files of annotations, is of the first one.
    return options.corpus == CORPORA[0] or workload.table != "other" or workload.name.startswith("single-")


def _studied(chosen: Sequence[Workload]) -> list[str]:
    """Return the metrics over token states that some workload needs and that can be searched here."""
    needed = {m for w in chosen for m in w.metrics}
    can = () if LACKING else OF_STATES if HAS_FAISS else ("bertscore",)
    return [m for m in can if m in needed]


def _gate(bench: Bench, chosen: Sequence[Workload], n_queries: int) -> None:
    """Check every metric that is about to be timed, on all reports and, with more queries, on the sample."""
    metrics = sorted({m for w in chosen for m in w.metrics if m != "chexbert" or HAS_FAISS} - set(OF_STATES))
    on_gpu = {m for w in chosen for m in w.metrics if w.backend == "cuda"}
    of_states = _studied(chosen)
    if of_states:
        _say(f"gate: {', '.join(of_states)} against plain products")
        gate.check_states(bench.states.index, bench.states.queries, of_states)
        for metric in on_gpu & set(of_states):
            if why_not_cuda(metric, bench.states) is None:
                both: tuple[Backend, ...] = ("cpu", "cuda")
                # One answer: the plain scorer scores all that are listed, each in milliseconds.
                gate.check(bench.states.index, bench.states.queries, [metric], n_queries=0, k=1, backends=both)
        _say("gate: passed")
    if not metrics:
        return
    _say(f"gate: {', '.join(metrics)} against the reference")
    for metric in metrics:
        usable = metric in on_gpu and why_not_cuda(metric, bench.data) is None
        backends: tuple[Backend, ...] = ("cpu", "cuda") if usable else ("cpu",)
        # Half a minute a query is what the references of these take; the sample below has all of its queries.
        some = min(n_queries, 1) if metric in CAPTIONS else n_queries
        gate.check(bench.data.index, bench.data.queries, [metric], n_queries=some, k=5, backends=backends)
    on_sample = [m for m in metrics if m != "chexbert"]
    k = min(20, bench.sample.index.n_reports)
    gate.check(bench.sample.index, bench.sample.queries, on_sample, n_queries=len(bench.sample.queries.ids), k=k)
    _say("gate: passed")


def _row(workload: Workload, bench: Bench) -> dict[str, Any]:
    """Measure; return the row without the facts that all rows share."""
    row: dict[str, Any] = {"name": workload.name, "title": workload.title, "table": workload.table}
    lacking = lacking_in(bench.corpus, workload.metrics)
    if lacking:
        return row | {"skipped": lacking}
    try:
        measurement = workload.measure(bench)
    except (SkippedError, BackendError) as reason:
        return row | {"skipped": str(reason)}
    is_full = (bench.corpus, bench.n_reports, bench.n_tests) == (CORPORA[0], *FULL_SIZE)
    holds = not workload.full_size or is_full
    goal = workload.goal if holds else None
    value = measurement.median
    p20, p80 = spread(measurement.values)
    met = None if goal is None else value <= goal if workload.sense == "at most" else value >= goal
    return row | {
        "value": value,
        "p20": p20,
        "p80": p80,
        "repetitions": len(measurement.values),
        "unit": workload.unit,
        "goal": goal,
        "sense": workload.sense,
        "met": met,
        **measurement.columns,
    }


def _line(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return f"{row['name']}: not measured: {row['skipped']}"
    verdict = "" if row["met"] is None else f" ({'met' if row['met'] else 'NOT met'}: {row['sense']} {row['goal']:g})"
    return f"{row['name']}: {row['value']:.4g} {row['unit']}{verdict}"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
