"""FactMM-RAG's rule for positives on a corpus of its size: ``python -m benchmarks.mining``.

First the rule must give what it gives by the reference scorers, pair by pair, for some anchors of a small corpus;
otherwise nothing is timed, and the exit code is 1. The time is that of `mo.mine`, from the opened index to the file,
after a call with a few anchors, in a process of its own; the peak of memory is the process's.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pyarrow import parquet

import metric_oracle as mo
from benchmarks import machine
from metric_oracle.base.operating_system import n_threads, peak_memory
from metric_oracle.bench.timing import repeated, spread
from metric_oracle.synthetic.corpus import write_synthetic

SEED = 0
REPORTS = 125_417  # of FactMM-RAG's training split
SMALL, CHECKED = 1000, 50  # reports of the corpus, and anchors, of the check
SUM, K = "radgraph+chexbert:agreement", 3
WHERE = ("chexbert:agreement>=1", "radgraph>=0.4")
GOALS = {"seconds": 30.0, "gigabytes": 2.0}  # on two cores


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and measure; return the exit code."""
    options = _options(arguments)
    with TemporaryDirectory() as folder:
        if not _is_right(_index(Path(folder), SMALL), Path(folder)):
            print("the pairs are not those of the rule by the reference scorers; nothing is timed")
            return 1
    index = _index(options.data / f"mining-{options.reports}", options.reports)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        measured = process.submit(_measured, index.folder, options.repetitions).result()
    results = machine.Results("mining", options.out, seed=SEED)
    is_whole = options.reports == REPORTS
    shared = {
        "reports": index.n_reports,
        "pairs": measured["pairs"],
        "index_gb": sum(path.stat().st_size for path in Path(index.folder).rglob("*") if path.is_file()) / 1e9,
        "cores": n_threads(),
    }
    seconds = measured["seconds"]
    rows: list[dict[str, Any]] = [
        {"name": "factmm-rag", "value": median(seconds), "unit": "s", "spread": spread(seconds), "goal": "seconds"},
        {"name": "factmm-rag-memory", "value": measured["peak_gb"], "unit": "GB", "goal": "gigabytes"},
    ]
    for row in rows:
        stored = results.add({**row, **shared, "goal": GOALS[row["goal"]] if is_whole else None})
        print("{name}: {value:.2f} {unit}, goal {goal}, {pairs:,} pairs, {cores} cores".format(**stored))
    print(f"rows: {results.path}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.mining", description=__doc__.partition(":")[0])
    parser.add_argument("--reports", type=int, default=REPORTS, help="corpus size (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="of the run (%(default)s)")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpus and index")
    machine.add_out(parser, "mining")
    return parser.parse_args(arguments)


def _index(folder: Path, n: int) -> Any:
    """Return the index of a synthetic corpus with graphs and labels; it is made if it is not there yet."""
    if not (folder / "INDEX").exists():
        paths = write_synthetic(folder / "corpus", n, 1, seed=SEED)
        given: dict[str, Any] = {
            "radgraph": paths["train_graphs"],
            "chexbert_labels": paths["train_labels"],
            "uncertain": "negative",
        }
        mo.build_index(mo.reports(paths["train"], **given), folder / "INDEX", metrics=SUM.split("+"))
    return mo.open_index(folder / "INDEX")


def _is_right(index: Any, folder: Path) -> bool:
    """Tell whether some anchors get the pairs of the rule by the reference scorers."""
    queries = mo.reports(index).load().take(np.arange(0, index.n_reports, index.n_reports // CHECKED))
    by_metric = {}
    for metric in SUM.split("+"):
        table = mo.retrieve(index, queries, metric, k=index.n_reports, backend="reference", text=False).table
        names = ("query_id", "row", "score")
        by_metric[metric] = {
            (i, row): score for i, row, score in zip(*(table[x].to_pylist() for x in names), strict=True)
        }
    ids, expected = index.strings("study_id").to_pylist(), []
    radgraph, agreement = by_metric.values()
    for i in queries.ids:
        passed = [
            (-(radgraph[i, row] + agreement[i, row]), row)
            for row in range(index.n_reports)
            if ids[row] != i and agreement[i, row] >= 1 and radgraph[i, row] >= 0.4
        ]
        expected += [(i, row, -minus) for minus, row in sorted(passed)[:K]]
    _mine(index, folder / "pairs.parquet", queries.ids)
    table = parquet.read_table(folder / "pairs.parquet", columns=["anchor_id", "candidate_row", "score"])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == expected


def _mine(index: Any, out: Path, anchors: Sequence[str] | None = None) -> Any:
    return mo.mine(index, SUM, out, k=K, anchors=anchors, options=mo.SearchOptions(where=WHERE))


def _measured(folder: Path, repetitions: int) -> dict[str, Any]:
    """Return seconds, the number of pairs, and the peak of memory of this process."""
    index, mined = mo.open_index(folder), list[Any]()
    with TemporaryDirectory() as out:
        _mine(index, Path(out) / "few.parquet", index.strings("study_id").to_pylist()[:100])

        def whole() -> None:
            """Mine all pairs, and keep the result of this call alone."""
            mined[:] = [_mine(index, Path(out) / "pairs.parquet")]

        seconds = repeated(whole, repetitions)
    return {"seconds": seconds, "pairs": mined[0].counts["pairs"], "peak_gb": peak_memory() / 1e9}


if __name__ == "__main__":
    sys.exit(main())
