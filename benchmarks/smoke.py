"""First contact with a GPU, in seconds: ``python -m benchmarks.smoke``; versions, then one launch of every kernel.

Needs Numba, numba-cuda, PyTorch, Triton and PyArrow, but no other dependency of the package. Answers are compared with
the plain scorers and with NumPy. Each part runs whether or not the one before it failed.
"""

import argparse
import importlib.metadata
import sys
import time
import tomllib
import traceback
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS, QUERIES = 100, 4
WORDS = [
    "no",
    "acute",
    "pleural",
    "effusion",
    "edema",
    "heart",
    "size",
    "is",
    "normal",
    "stable",
    "left",
    "right",
    "small",
    "lungs",
    "clear",
]
ROWS = (16, 32, 64, 128, 256, 512, 1024)  # of a report, in the kernel of BERTScore: each is another compilation
WIDTH = 128
_SHOWN = ("cuda-bindings", "cuda-core", "cuda-pathfinder", "transformers", "triton", "faiss-cpu")
Check = Callable[[argparse.Namespace], None]


def versions() -> list[str]:
    """Return a line for each package: its version, and the bound of `pyproject.toml` that it breaks."""
    from packaging.requirements import Requirement

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, extras = declared["project"], declared["project"]["optional-dependencies"]
    chosen = [*project["dependencies"], *extras["gpu"], *extras["encoders"]]
    of_tests = [bound for bound in declared["dependency-groups"]["dev"] if isinstance(bound, str)]
    chosen += [bound for bound in of_tests if bound.startswith(("pytest", "hypothesis"))]
    bounds = {requirement.name: requirement.specifier for requirement in map(Requirement, chosen)}
    lines = [f"python {sys.version.split()[0]}"]
    for name in dict.fromkeys([*bounds, *_SHOWN]):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed")
            continue
        bound = bounds.get(name)
        broken = bound is not None and not bound.contains(version, prereleases=True)
        lines.append(f"{name} {version}{f': MUST BE {bound}' if broken else ''}")
    return lines


def _texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(3, 20))) for _ in range(n)]


def _check_search(kind: str, backend: Any, plain: Callable[[Any, Any], float], n: int) -> None:
    """Search made-up reports; the best row and its score must be those of the plain scorer."""
    from metric_oracle.indexes.ngrams import build_ngrams
    from metric_oracle.kernels.contract import Answers
    from metric_oracle.metrics import METRICS

    texts = list(dict.fromkeys(_texts(n, 0)))
    index = build_ngrams(kind, texts, np.arange(len(texts)))
    queries: Any = SimpleNamespace(texts=_texts(QUERIES, 1))
    encoded = index.encode(queries)
    n_queries = int(encoded.document_of_row.max()) + 1
    answers = Answers(
        np.full((n_queries, 1), -1),
        np.zeros((n_queries, 1)),
        np.zeros((n_queries, 1), np.int64),
        np.full(n_queries, -np.inf),
    )
    metric = METRICS["bleu-2" if kind == "ngrams" else "rouge-l"]
    corpus = index.arrays(metric, encoded)
    backend.search(corpus, index.translate(metric, encoded), range(n_queries), 1, answers, None)
    for q in range(n_queries):
        scores = [plain(index.item(int(unit)), encoded.item(q)) for unit in index.document_of_row]
        assert answers.scores[q, 0] == max(scores), "the best score is not that of the plain scorer"
        assert answers.rows[q, 0] == scores.index(max(scores)), "the best row is not that of the plain scorer"


def bleu(options: argparse.Namespace) -> None:
    """BLEU-2: counts of n-grams and the selection of the best bins."""
    from metric_oracle.kernels.bleu import cuda, reference

    backend = cuda.Backend(order=2, coco=False)
    _check_search("ngrams", backend, lambda c, r: reference.score(c, r, order=2, coco=False)[0], options.documents)


def radgraph(options: argparse.Namespace) -> None:
    """F1 of two families of sets; words and pairs of words stand in for entities and relations."""
    from metric_oracle.kernels.radgraph import cuda, reference

    def sets(tokens: Sequence[str]) -> list[set[Any]]:
        seen: dict[Any, int] = {}
        out: list[set[Any]] = [set(), set()]
        for size, family in enumerate(out, 1):
            for gram in zip(*(tokens[i:] for i in range(size)), strict=False):
                seen[gram] = seen.get(gram, 0) + 1
                family.add((gram, seen[gram]))
        return out

    def plain(candidate: Sequence[str], other: Sequence[str]) -> float:
        return reference.score(sets(candidate), sets(other), family_a=0, family_b=1)[0]

    _check_search("ngrams", cuda.Backend(family_a=0, family_b=1), plain, options.documents)


def rouge_l(options: argparse.Namespace) -> None:
    """ROUGE-L: longest common subsequences."""
    from metric_oracle.kernels.rouge_l import cuda, reference

    _check_search(
        "words", cuda.Backend(coco=False), lambda c, r: reference.score(c, r, coco=False)[0], options.documents
    )


def bertscore(options: argparse.Namespace) -> None:
    """Products of codes and maxima both ways, for reports of every size that is a compilation of its own."""
    import torch

    from metric_oracle.kernels.bertscore.segment_maxima import segment_maxima

    rng = np.random.default_rng(2)
    lengths = np.array(sorted([*ROWS, *(rows - 3 for rows in ROWS)], reverse=True))
    asked, columns = 40, 64  # one query of two tiles; its last word fills the second one up
    codes, query = (rng.uniform(-1, 1, (n, WIDTH)).astype(np.float16) for n in (lengths.sum(), asked))
    weights = rng.random(len(codes)).astype(np.float32)
    share = np.pad(np.full(asked, 1 / asked, np.float32), (0, columns - asked))
    tiles = np.array([[0, 0], [1, 0], [0, 1]], np.int32)
    ptr = np.r_[0, np.cumsum(lengths)]
    filled = query[np.minimum(np.arange(columns), asked - 1)]

    def put(array: np.ndarray) -> Any:
        return torch.from_numpy(array).to(options.device)

    precision, recall = (torch.full((1, len(lengths)), float("nan"), device=options.device) for _ in range(2))
    segment_maxima(put(codes), put(ptr), lengths, put(weights), put(filled), put(share), put(tiles), precision, recall)
    product = codes.astype(np.float64) @ query.T
    for u, (a, b) in enumerate(pairwise(ptr.tolist())):
        expected = product[a:b].max(axis=1) @ weights[a:b], product[a:b].max(axis=0).mean()
        found = float(precision[0, u]), float(recall[0, u])
        assert np.allclose(found, expected, rtol=1e-4), f"{lengths[u]} tokens: {found} instead of {expected}"


CHECKS: tuple[Check, ...] = (bertscore, bleu, radgraph, rouge_l)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return the exit code, 1 where one failed."""
    parser = argparse.ArgumentParser("python -m benchmarks.smoke", description=__doc__.partition(":")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of torch (%(default)s)")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of the searches (%(default)s)")
    options = parser.parse_args(arguments)
    print("\n".join(versions()), flush=True)
    failed = 0
    for check in CHECKS:
        begin = time.monotonic()
        try:
            check(options)
            said = "right"
        except Exception:  # whatever it is, the others run
            failed += 1
            said = f"FAILED\n{traceback.format_exc()}"
        print(f"{check.__name__}, {time.monotonic() - begin:.1f} s: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
