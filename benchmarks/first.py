"""How long the first commands of a new machine take, and what they compile: ``python -m benchmarks.first``."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.machine import Row
from metric_oracle.bench.timing import timed
from metric_oracle.synthetic.example import N_REPORTS, N_TESTS, write_example
from metric_oracle.synthetic.stand_ins import find_encoder

PROJECT = ["--project", "made/oracle.toml"]  # of the example: graphs and labels lie beside the reports
LARGE = 2365, 590  # reports and test reports of IU X-ray
PROGRAM = "from benchmarks.first import watch; watch()"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.first", description=__doc__)
    parser.add_argument(
        "--metrics", nargs="+", default=["bleu", "rouge-l", "radgraph", "bertscore"], help="%(default)s"
    )
    machine.add_out(parser, "first")
    options = parser.parse_args(arguments)
    results = machine.Results("first", options.out)
    for row in _measure(options.metrics):
        results.add(row)
        print(f"{row['name']}: {row['value']:.1f} s, {row['compile_s']:.1f} s of a processor to compile", flush=True)
    print(f"rows: {results.path}")
    return 0


def _measure(metrics: Sequence[str]) -> Iterator[Row]:
    """Yield the rows: each job in a folder of its own, in which nothing is compiled before, and then once more."""
    yield from _twice("demo", ["demo"], [])
    for pairs in (24, 500):
        yield from _twice(f"score-{pairs}", ["score", "test", "strong", *PROJECT], [], n_tests=pairs)
    for size in ((N_REPORTS, N_TESTS), LARGE):
        for metric in metrics:
            encoder = find_encoder() if metric == "bertscore" else None
            if metric == "bertscore" and encoder is None:
                continue
            build = ["build-index", "train", *PROJECT, "-m", metric]
            build += ["--encoder", encoder, "--layer", "5"] if encoder else []
            search = ["retrieve", "INDEX", "test", "-m", metric, *PROJECT]
            name = metric if size != LARGE else f"{metric}-{size[1]}x{size[0]}"
            yield from _twice(name, search, [f"build-{name}", *build], *size)
    words = ["study", "INDEX", "made/test.csv", "Strong=made/strong.csv", "Weak=made/weak.csv", "-m", "bleu,rouge-l"]
    yield from _twice("study", words, ["build-study", "build-index", "made/train.csv"])


def _twice(
    name: str, words: Sequence[str], build: Sequence[str], n_reports: int = N_REPORTS, n_tests: int = N_TESTS
) -> Iterator[Row]:
    """Yield the rows of a command on the example's files in some size, of the same command again, and of its index.

    `build` has the name of the row and the command that builds the index; it is empty if none is needed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_example(folder / "made", n_reports, n_tests)
        if build:
            yield _run(build[0], [*build[1:], "--out", "INDEX", "--quiet"], folder)
        for one in (name, f"{name}-again"):
            yield _run(one, words if words == ["demo"] else [*words, "--quiet"], folder)


def _run(name: str, words: Sequence[str], folder: Path) -> Row:
    """Run a command with the store of compiled code of the folder; return its time and what it compiled."""
    log = folder / "compiled"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "store"), "ORACLE_COMPILED": str(log)}
    environment["PYTHONPATH"] = os.pathsep.join([str(machine.ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", PROGRAM, *words]
    run = partial(subprocess.run, command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds = timed(run)
    found: Counter[str] = Counter()
    for path in folder.glob("compiled.*"):
        found.update(json.loads(path.read_text(encoding="utf-8")))
        path.unlink()
    return {
        "name": name,
        "value": seconds,
        "unit": "s",
        "compile_s": sum(found.values()),
        "functions": {function: round(s, 2) for function, s in found.most_common()},
    }


def watch() -> None:
    """Run a command of `sys.argv`, and write the processor seconds of its compilations, by outermost function."""
    from numba.core import event

    class Listener(event.Listener):
        """Add up the compilations that are not within another."""

        def __init__(self) -> None:
            self.depth, self.begin, self.found = 0, 0.0, dict[str, float]()

        def on_start(self, event: Any) -> None:
            if self.depth == 0:
                self.begin = time.thread_time()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                name = event.data["dispatcher"].py_func.__qualname__
                self.found[name] = self.found.get(name, 0.0) + time.thread_time() - self.begin

    from metric_oracle.__main__ import main as run

    listener = Listener()
    try:
        with event.install_listener("numba:compile", listener):
            run()
    finally:
        path = Path(f"{os.environ['ORACLE_COMPILED']}.{os.getpid()}")
        path.write_text(json.dumps(listener.found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
