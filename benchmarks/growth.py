"""How the time of a search grows with the corpus and with the number of queries: ``python -m benchmarks.growth``."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

import metric_oracle as mo
from benchmarks import gate, machine
from benchmarks.data import HAS_FAISS, LACKING, LEXICAL_AND_GRAPH, OF_STATES, SEED, Data, prepare, prepare_states
from benchmarks.machine import Row
from benchmarks.workloads import FULL_SIZE
from metric_oracle.bench.timing import alone, spread, study
from metric_oracle.corpora.reports import Reports

METRICS = (*LEXICAL_AND_GRAPH, "chexbert", *OF_STATES)
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
COUNTS = (1, 10, 100, 1000)  # queries, and all of them
# Corpora beyond these are left out: embeddings would take 3 GB a million, encoding half an hour.
LARGEST = {"chexbert": 1_000_000, "bertscore": 100_000, "radcliq": 100_000}
COUNTED = 100_000  # reports of the corpus that different numbers of queries search


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code, 1 if the gate is red."""
    options = _options(arguments)
    results = machine.Results("growth", options.out, seed=SEED)
    return results.measure(_measure(options), "{name}: {tests:,} x {reports:,}: {value:.4g} s")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.growth", description=__doc__)
    parser.add_argument(
        "--largest", type=int, default=1_000_000, help="corpus, of 1, 3, 10, ... x 10,000 (%(default)s)"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="other corpora than these")
    parser.add_argument("--tests", type=int, default=FULL_SIZE[1], help="test reports (%(default)s)")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS, metavar="METRIC", help="some of them")
    parser.add_argument("--repetitions", type=int, default=5, help="of each timing (%(default)s)")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpora and indexes")
    machine.add_out(parser, "growth")
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows, corpus by corpus; each is generated once and kept."""
    sizes = options.sizes or [size for size in SIZES if size <= options.largest]
    counted = max((size for size in sizes if size <= COUNTED), default=min(sizes))
    of_states = [m for m in options.metrics if m in OF_STATES and not LACKING and (m == "bertscore" or HAS_FAISS)]
    plain = [m for m in options.metrics if m not in OF_STATES and (m != "chexbert" or HAS_FAISS)]
    for size in sizes:
        for metrics, states in ((plain, False), (of_states, True)):
            here = [m for m in metrics if size <= LARGEST.get(m, size)]
            if not here:
                continue
            if states:
                data = prepare_states(options.data, size, options.tests)
                gate.check_states(data.index, data.queries, here)
            else:
                data = prepare(options.data, size, options.tests, embeddings="chexbert" in here)
                gate.check(data.index, data.queries, here, n_queries=1, k=5)
            counts = [n for n in COUNTS if n < options.tests] if size == counted else []
            for metric in here:
                for n in [*counts, options.tests]:
                    yield _point(data, metric, n, options.repetitions, by_queries=size == counted)


def _point(data: Data, metric: str, n: int, repetitions: int, *, by_queries: bool) -> Row:
    """Return one measurement; the queries are nested random samples."""
    queries = _some(data.queries, n)
    mo.retrieve(data.index, alone(queries, 0), metric)
    studies = [study(data.index, queries, metric) for _ in range(repetitions)]
    seconds = [s.search for s in studies]
    p20, p80 = spread(seconds)
    return {
        "name": f"growth-{metric}",
        "metric": metric,
        "reports": data.index.n_reports,
        "tests": n,
        "by": [*(["reports"] if n == len(data.queries.ids) else []), *(["tests"] if by_queries else [])],
        "value": median(seconds),
        "p20": p20,
        "p80": p80,
        "unit": "s",
        "repetitions": repetitions,
        "encode_s": median([s.encode for s in studies]),
        "index": data.index.fingerprint,
    }


def _some(queries: Reports, n: int) -> Reports:
    chosen = np.random.default_rng(SEED).permutation(len(queries.ids))[:n]
    return queries.take(np.sort(chosen))


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of log(seconds) over log(size), by least squares: 1 is proportional growth."""
    if len(set(sizes)) < 2:
        return float("nan")
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def curves(rows: Sequence[Row], by: str) -> dict[str, tuple[list[int], list[float]]]:
    """Return, for each metric, ascending numbers of reports or of tests, and the seconds of each.

    Parameters
    ----------
    rows : of a results file
    by : "reports" or "tests"
    """
    found: dict[str, tuple[list[int], list[float]]] = {}
    for row in sorted((row for row in rows if by in row["by"]), key=lambda row: row[by]):
        sizes, seconds = found.setdefault(row["metric"], ([], []))
        sizes.append(row[by])
        seconds.append(row["value"])
    return found


if __name__ == "__main__":
    sys.exit(main())
