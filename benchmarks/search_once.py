"""One search of the benchmark's data on a GPU, for a profiler: ``python -m benchmarks.search_once METRIC ...``.

Data and index are made where they are not there yet, which is better done without a profiler.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import metric_oracle as mo
from benchmarks import machine
from benchmarks.data import OF_STATES, prepare, prepare_states


def main(arguments: Sequence[str] | None = None) -> int:
    """Search; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.search_once", description=__doc__.partition(":")[0])
    parser.add_argument("metrics", nargs="+", metavar="METRIC")
    parser.add_argument("--reports", type=int, default=20_000, help="corpus size (%(default)s)")
    parser.add_argument("--tests", type=int, default=512, help="test reports (%(default)s)")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpus and index")
    options = parser.parse_args(arguments)
    for metric in options.metrics:
        make = prepare_states if metric in OF_STATES else prepare
        data = make(options.data, options.reports, options.tests)
        found = mo.retrieve(data.index, data.queries, metric, backend=options.backend)
        print(f"{metric}: {found.table.num_rows} answers", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
