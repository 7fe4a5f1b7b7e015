"""What the plain scorers cost, by metric: ``python -m benchmarks.small``.

Seconds of a pair, from which `retrieval.kernels` has its `PLAIN_SECONDS`; the number of pairs from which on a search
uses a kernel; and whether both give the same answers, for as many test reports as take a minute. Reports are those of
IU X-ray, 590 and 2,365, for metrics of texts; for others, whose sources it lacks, synthetic ones with made-up sources.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks import machine, real
from benchmarks.machine import Row
from metric_oracle.corpora.entities import TYPES
from metric_oracle.corpora.label_tables import LABELS, read_labels
from metric_oracle.metrics import METRICS
from metric_oracle.reading import loaded
from metric_oracle.records import Metric
from metric_oracle.retrieval.document_pairs import Pairs
from metric_oracle.retrieval.kernels import PLAIN_SECONDS, SMALL_SEARCH
from metric_oracle.synthetic.corpus import write_synthetic
from metric_oracle.synthetic.stand_ins import find_encoder, sources_of

SIZE = 2365, 590  # reports and test reports of IU X-ray in R2Gen's split
SEED = 0
PAIRS = 1000  # that are timed
K = 3
# One metric for each kernel, the slowest of its variants.
CHOSEN = (
    "bleu-4", "rouge-l", "cider-d", "meteor:nltk-stems", "jaccard:4", "temporal", "radgraph", "chexbert",
    "chexbert:labels", "labels:agreement", "ratescore", "sentences", "crg", "bertscore",
)  # fmt: skip
ENTITIES, WIDTH = 6, 768  # of a report: vectors, and numbers of each


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser("python -m benchmarks.small", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reports", type=int, default=SIZE[0], help="corpus size (%(default)s)")
    parser.add_argument("--tests", type=int, default=SIZE[1], help="test reports (%(default)s)")
    parser.add_argument("--metrics", nargs="+", choices=CHOSEN, default=CHOSEN, metavar="METRIC", help="some of them")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the plain search, by metric (%(default)s)")
    machine.add_out(parser, "small")
    options = parser.parse_args(arguments)
    results = machine.Results("small", options.out, seed=SEED, reports=options.reports, tests=options.tests, k=K)
    line = "{name}: {value:.3g} s a pair, a kernel from {pairs:,.0f} pairs on; same for {queries} queries: {same}"
    with TemporaryDirectory() as folder:
        return results.measure(_measure(options, Path(folder)), line)


def _measure(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield a row for each metric."""
    synthetic = _synthetic(folder, options.reports, options.tests)
    of_texts = synthetic
    if real.SOURCE.is_dir():
        real.write_recombined(folder / "real", options.reports, options.tests)
        of_texts = {side: partial(mo.reports, folder / f"real/{side}.csv") for side in ("train", "test")}
    for name in options.metrics:
        metric = METRICS[name]
        sides = of_texts if all(kind.source is None for kind in metric.reads.stored) else synthetic
        if metric.needs_encoder:
            encoder = find_encoder()
            if encoder is None:
                continue
            sides = {**of_texts, "train": partial(of_texts["train"], encoder=encoder, layer=5)}
        index = mo.build_index(sides["train"](), metrics=name)
        queries = loaded(sides["test"](), index, metrics=[metric])
        seconds = _seconds_of_pair(metric, Pairs.of(index, metric, queries, {}))
        n = min(max(int(options.seconds / (seconds * index.n_reports)), 1), len(queries.ids))
        some = queries.take(np.linspace(0, len(queries.ids) - 1, n).astype(np.int64))
        answers = [mo.retrieve(index, some, name, k=K, backend=backend).table for backend in ("cpu", "reference")]
        yield {
            "name": name,
            "value": seconds,
            "unit": "s",
            "chosen": PLAIN_SECONDS[metric.kernel],
            "pairs": SMALL_SEARCH / PLAIN_SECONDS[metric.kernel],
            "corpus": "IU X-ray" if sides is not synthetic and real.SOURCE.is_dir() else "synthetic",
            "queries": n,
            "same": answers[0].equals(answers[1]),
        }


def _seconds_of_pair(metric: Metric, pairs: Pairs) -> float:
    """Return the mean time of a pair under the plain scorer, the median of five parts of random pairs."""
    rng, times = np.random.default_rng(SEED), []
    numbers = [
        rng.integers(len(side.row_ptr) - 1, size=PAIRS) for side in (pairs.encoded, pairs.parts[0].representation)
    ]
    items = [pairs.items(int(q), int(d)) for q, d in zip(*numbers, strict=True)]
    for part in np.array_split(np.arange(PAIRS), 5):
        begin = perf_counter()
        for i in part:
            pairs.reference(*items[i])
            if perf_counter() - begin > 5.0:
                break
        times.append((perf_counter() - begin) / (1 + int(i - part[0])))
    return median(times)


def _synthetic(folder: Path, n_reports: int, n_tests: int) -> dict[str, Any]:
    """Return, for both sides of a synthetic corpus, a function that gives its reports with all sources."""
    files, sides = write_synthetic(folder / "synthetic", n_reports, n_tests, seed=SEED), {}
    rng = np.random.default_rng(SEED)
    pool = rng.standard_normal((500, WIDTH)).astype(np.float32)
    for side in ("train", "test"):
        labels = read_labels(files[f"{side}_labels"])
        ids = labels.ids or []
        drawn = {i: rng.integers(len(pool), size=ENTITIES) for i in ids}
        sides[side] = partial(
            mo.reports,
            files[side],
            **sources_of(files, side),
            labels=[
                {name: (None, 1, 0, None)[c] for name, c in zip(LABELS, some, strict=True)} | {"study_id": i}
                for i, some in zip(ids, labels.values.tolist(), strict=True)
            ],
            entities={
                i: {"types": [TYPES[n % len(TYPES)] for n in some.tolist()], "vectors": pool[some]}
                for i, some in drawn.items()
            },
            sentences={i: {"vectors": pool[some]} for i, some in drawn.items()},
        )
    return sides


if __name__ == "__main__":
    sys.exit(main())
