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
from metric_oracle.synthetic.stand_ins import find_encoder

QUERY = "Small left pleural effusion. No pneumothorax."
PROJECT = ["--project", "first/oracle.toml"]  # what `oracle example` says of its files: graphs lie beside the reports
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
    """Yield the rows: the demonstration, each metric's index and searches, a study; nothing is compiled before each."""
    with tempfile.TemporaryDirectory() as name:
        yield _run("demo", ["demo"], Path(name))
    for metric in metrics:
        encoder = find_encoder() if metric == "bertscore" else None
        if metric == "bertscore" and encoder is None:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _run("example", ["example", "first"], folder)
            reads_graphs = metric == "radgraph"
            build = ["build-index", *(["train", *PROJECT] if reads_graphs else ["first/train.csv"]), "-m", metric]
            build += ["--encoder", encoder, "--layer", "5"] if encoder else []
            build += ["--out", "INDEX", "--quiet"]
            search = ["retrieve", "INDEX", *(["test", *PROJECT] if reads_graphs else ["--text", QUERY]), "-m", metric]
            yield _run(f"build-{metric}", build, folder)
            for time_ in ("first", "second"):
                yield _run(f"{time_}-retrieve-{metric}", [*search, "--quiet"], folder)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run("example", ["example", "first"], folder)
        yield _run("build-study", ["build-index", "first/train.csv", "--out", "INDEX", "--quiet"], folder)
        files = ["first/test.csv", "Strong=first/strong.csv", "Weak=first/weak.csv"]
        words = ["study", "INDEX", *files, "-m", "bleu,rouge-l", "--out", "study"]
        yield _run("first-study", words, folder)


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
