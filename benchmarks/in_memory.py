"""Texts in memory to their best reports, without an index on the disk: ``python -m benchmarks.in_memory``.

Each way is measured in a process of its own: the first call from texts to answers, the same call again, and a search
with what that call prepared. What a process imports is apart, and one that is not counted stores what is compiled. But
first the answers of ours in memory must be those of an index in a folder, and a sample of them those of the plain
scorer; otherwise nothing is timed, and the exit code is 1. rapidfuzz is timed only if its best reports are ours; bm25s
ranks by another score and gets a recall.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks import machine
from benchmarks.gate import GateError
from benchmarks.machine import Row
from metric_oracle.base.operating_system import n_threads
from metric_oracle.bench.timing import spread
from metric_oracle.corpora.reports import read_reports
from metric_oracle.indexes.ngrams import tokenize_bleu, tokenize_rouge
from metric_oracle.synthetic.corpus import write_synthetic

SEED, REPORTS, TESTS = 0, 20_000, 200
KEPT = 100  # reports that bm25s lists
CHECKED = 3  # test reports that the plain scorer searches
METRICS = {"bleu": "bm25s", "rouge-l": "rapidfuzz"}  # and what people use instead
Search = Callable[[], np.ndarray]  # int[tests, kept], the rows that it finds, best first
Prepare = Callable[[list[str], list[str], str], Search]  # of the texts, the test reports and the metric


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and measure; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.in_memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=REPORTS, help="texts of the corpus (%(default)s)")
    parser.add_argument("--tests", type=int, default=TESTS, help="test reports (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=5, help="processes of each way (%(default)s)")
    parser.add_argument("--way", nargs=3, metavar=("WAY", "METRIC", "FILE"), help="measure one way in this process")
    machine.add_out(parser, "in-memory")
    options = parser.parse_args(arguments)
    if options.way:
        print(json.dumps(_measured(*options.way)))
        return 0
    results = machine.Results("in-memory", options.out, seed=SEED, reports=options.reports, tests=options.tests)
    line = "{name}: first {first_s:.3f} s, again {value:.3f} s, search alone {search_s:.3f} s, {cores} cores {note}"
    with TemporaryDirectory() as folder:
        texts, tests = _texts(Path(folder), options.reports, options.tests)
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps([texts, tests]), encoding="utf-8")
        return results.measure(_rows(texts, tests, file, options.repetitions), line)


def _texts(folder: Path, n: int, n_tests: int) -> tuple[list[str], list[str]]:
    """Return the texts of a synthetic corpus, as often as they occur, and those of its test reports."""
    paths = write_synthetic(folder / "made", n, n_tests, seed=SEED)
    corpus, tests = (read_reports(paths[name]).texts for name in ("train", "test"))
    return list(corpus), list(tests)


def _rows(texts: list[str], tests: list[str], file: Path, repetitions: int) -> Iterator[Row]:
    """Yield a row for each way that could be measured; raise GateError where our answers are wrong."""
    best = {metric: _checked(texts, tests, metric) for metric in METRICS}
    for metric, peer in METRICS.items():
        for way in ("retrieve", "folder", peer):
            if way == peer and not _is_installed(peer):
                print(f"{way}-{metric}: not measured: {peer} is not installed")
                continue
            _in_a_process(way, metric, file)  # not counted: it stores what is compiled
            found = [_in_a_process(way, metric, file) for _ in range(repetitions)]
            hits = [bool({*rows} & wanted) for rows, wanted in zip(found[0]["rows"], best[metric], strict=True)]
            firsts = [rows[0] == min(wanted) for rows, wanted in zip(found[0]["rows"], best[metric], strict=True)]
            if way != "bm25s" and not all(firsts):
                print(f"{way}-{metric}: not measured: its best reports are not those of the plain scorer")
                continue
            seconds = [one["second_s"] for one in found]
            yield {
                "name": f"{way}-{metric}",
                "value": median(seconds),
                "unit": "s",
                "spread": spread(seconds),
                **{name: median(one[name] for one in found) for name in ("import_s", "first_s", "search_s")},
                "recall": sum(hits) / len(hits),
                "repetitions": repetitions,
                "cores": n_threads(),
                "note": f"recall {sum(hits) / len(hits):.2f}" if way == "bm25s" else "",
            }


def _checked(texts: list[str], tests: list[str], metric: str) -> list[set[int]]:
    """Return the best rows of each test report, at most `KEPT`; raise GateError unless they are right in every form."""
    k = min(KEPT, len(texts))
    with TemporaryDirectory() as folder:
        index = mo.build_index(texts, Path(folder) / "INDEX", metrics=metric)
        wanted, found = mo.retrieve(index, tests, metric, k=k), mo.retrieve(texts, tests, metric, k=k)
        if not (found.table.equals(wanted.table) and found.signature == wanted.signature):
            raise GateError(f"{metric}: the answers in memory are not those of a folder; nothing is timed")
        try:
            mo.verify(index, mo.retrieve(index, tests[:CHECKED], metric), tests[:CHECKED], sample=CHECKED)
        except mo.MetricOracleError as error:
            raise GateError(f"{metric}: {error} Nothing is timed.") from error
    rows, scores = (wanted.table[name].to_numpy().reshape(-1, k) for name in ("row", "score"))
    return [set(of[score == score[0]].tolist()) for of, score in zip(rows, scores, strict=True)]


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def _in_a_process(way: str, metric: str, file: Path) -> dict[str, Any]:
    """Return what a process of its own has measured of a way."""
    command = [sys.executable, "-m", "benchmarks.in_memory", "--way", way, metric, str(file)]
    return json.loads(subprocess.run(command, cwd=machine.ROOT, check=True, capture_output=True, text=True).stdout)


def _measured(way: str, metric: str, file: str) -> dict[str, Any]:
    """Return the seconds of a way and the rows that it finds. This module imports what only ours needs before."""
    texts, tests = json.loads(Path(file).read_text(encoding="utf-8"))
    times = [time.perf_counter()]
    with TemporaryDirectory() as folder:
        ways: dict[str, Callable[[], Prepare]] = {
            "retrieve": lambda: _ours,
            "folder": lambda: _in_a_folder(Path(folder)),
            "bm25s": _bm25s,
            "rapidfuzz": _rapidfuzz,
        }
        prepare = ways[way]()
        times.append(time.perf_counter())
        for _ in range(2):
            search = prepare(texts, tests, metric)
            rows = search()
            times.append(time.perf_counter())
        search()
        times.append(time.perf_counter())
    names = ("import_s", "first_s", "second_s", "search_s")
    return {**dict(zip(names, np.diff(times).tolist(), strict=True)), "rows": rows.tolist()}


def _ours(texts: list[str], tests: list[str], metric: str) -> Search:
    """In memory, as `mo.retrieve(texts, tests, metric)` does it: an index for the call, and the search."""
    index = mo.build_index(texts, metrics=metric)
    return lambda: mo.retrieve(index, tests, metric).table["row"].to_numpy()[:, None]


def _in_a_folder(folder: Path) -> Prepare:
    def prepare(texts: list[str], tests: list[str], metric: str) -> Search:
        """Build the index in a folder of its own, on the disk."""
        index = mo.build_index(texts, folder / f"INDEX-{len([*folder.iterdir()])}", metrics=metric)
        return lambda: mo.retrieve(index, tests, metric).table["row"].to_numpy()[:, None]

    return prepare


def _bm25s() -> Prepare:
    import bm25s

    def prepare(texts: list[str], tests: list[str], metric: str) -> Search:
        """Index all texts, words as BLEU's."""
        corpus, queries = ([tokenize_bleu(text) for text in side] for side in (texts, tests))
        index = bm25s.BM25(backend="numba")
        index.index(corpus, show_progress=False)
        kept = min(KEPT, len(corpus))
        return lambda: index.retrieve(
            queries, k=kept, sorted=True, return_as="documents", show_progress=False, n_threads=n_threads()
        )

    return prepare


def _rapidfuzz() -> Prepare:
    from rapidfuzz.distance import LCSseq
    from rapidfuzz.process import cdist

    def prepare(texts: list[str], tests: list[str], metric: str) -> Search:
        """Give each word a number; F1 and the best with NumPy, 20 test reports at once."""
        number: dict[str, int] = {}
        corpus, queries = (
            [[number.setdefault(word, len(number)) for word in tokenize_rouge(text)] for text in side]
            for side in (texts, tests)
        )
        n_query, n_text = (np.array([len(words) for words in side]) for side in (queries, corpus))

        def search() -> np.ndarray:
            found = []
            for first in range(0, len(queries), 20):
                block = slice(first, first + 20)
                shared = cdist(queries[block], corpus, scorer=LCSseq.similarity, dtype=np.float32, workers=n_threads())
                sizes = np.maximum(n_query[block, None] + n_text, 1)
                found.append((shared.astype(np.float64) / sizes).argmax(axis=1))
            return np.concatenate(found)[:, None]

        return search

    return prepare


if __name__ == "__main__":
    sys.exit(main())
