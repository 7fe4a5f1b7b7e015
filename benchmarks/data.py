"""The synthetic corpus and its index, made once in a folder and used again; a random sample of it for the peers."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.corpora.synthetic import write_synthetic
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import Inputs

SEED = 0
WIDTH = 768  # of a CheXbert embedding
LEXICAL_AND_GRAPH = ("bleu", "rouge-l", "radgraph")
HAS_FAISS = find_spec("faiss") is not None
_PACKAGE = Path(mo.__file__).parent


@dataclass(frozen=True)
class Data:
    """A corpus with its test reports.

    Attributes
    ----------
    corpus : folder of write_synthetic
    vectors : folder of the embeddings, None where none were made
    index_folder : Path
    """

    corpus: Path
    vectors: Path | None
    index_folder: Path

    @cached_property
    def index(self) -> Index:
        """The opened index."""
        return mo.open_index(self.index_folder)

    @cached_property
    def queries(self) -> Inputs:
        """The test reports with graphs and, where there are any, embeddings."""
        return mo.load_queries(
            self.corpus / "test.csv",
            radgraph=self.corpus / "test_graphs.json",
            keep_empty=True,
            **embedding_options(self.vectors, "test"),
        )

    @property
    def pairs(self) -> int:
        """Test reports times corpus reports."""
        return len(self.queries.ids) * self.index.n_reports


def embedding_options(vectors: Path | None, split: str) -> dict[str, Any]:
    """Return the arguments that name the embeddings of a split."""
    if vectors is None:
        return {}
    return {"chexbert": vectors / f"{split}.npy", "chexbert_ids": vectors / f"{split}_ids.txt"}


def prepare(root: Path, n_reports: int, n_tests: int, *, embeddings: bool = HAS_FAISS) -> Data:
    """Make what is not there yet; what older source code made is replaced.

    Parameters
    ----------
    root : folder for everything
    n_reports, n_tests : size
    embeddings : whether there are CheXbert embeddings (random ones, one vector for each distinct text)
    """
    folder = root / f"{n_reports}x{n_tests}-seed{SEED}"
    corpus = folder / f"corpus-{_digest('corpora/synthetic*.py')}"
    if not corpus.exists():
        shutil.rmtree(folder, ignore_errors=True)
        write_synthetic(corpus, n_reports, n_tests, seed=SEED)
    vectors = folder / "vectors" if embeddings else None
    if vectors and not vectors.exists():
        _write_vectors(corpus, vectors)
    index = (
        folder
        / f"index-{_digest('indexes/*.py', 'corpora/*.py', 'kernels/_overlap.py')}{'-vectors' if vectors else ''}"
    )
    if not index.exists():
        for old in folder.glob("index-*"):
            shutil.rmtree(old)
        mo.build_index(
            corpus / "train.csv",
            index,
            radgraph=corpus / "train_graphs.json",
            keep_empty=True,
            **embedding_options(vectors, "train"),
        )
    return Data(corpus, vectors, index)


def _digest(*patterns: str) -> str:
    """Return a short hash of source files of the package."""
    hasher = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in _PACKAGE.glob(pattern)):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:10]


def _write_vectors(corpus: Path, out: Path) -> None:
    """Write random embeddings of both splits; equal texts have equal vectors."""
    splits = {split: read_reports(corpus / f"{split}.csv", keep_empty=True) for split in ("train", "test")}
    number: dict[str, int] = {}
    which = {
        split: [number.setdefault(text, len(number)) for text in reports.texts] for split, reports in splits.items()
    }
    values = np.random.default_rng(SEED).standard_normal((len(number), WIDTH), np.float32)
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for split, reports in splits.items():
        np.save(unfinished / f"{split}.npy", values[which[split]])
        (unfinished / f"{split}_ids.txt").write_text("\n".join(reports.ids) + "\n", encoding="utf-8")
    unfinished.rename(out)


@dataclass(frozen=True)
class Sample:
    """Some test reports and some corpus reports, every pair of which the peers score.

    Attributes
    ----------
    references, candidates : list of (text, RadGraph annotation)
    index : over the candidates
    queries : the references
    """

    references: list[tuple[str, dict]]
    candidates: list[tuple[str, dict]]
    index: Index
    queries: Inputs


def draw_sample(data: Data, n_references: int, n_candidates: int, folder: Path) -> Sample:
    """Draw test and corpus reports at random, without replacement, and index the latter in an empty folder."""
    rng = np.random.default_rng(SEED)
    tests = np.sort(rng.permutation(len(data.queries.ids))[:n_references])
    rows = np.sort(rng.permutation(data.index.n_reports)[:n_candidates])
    texts = data.index.reports["text"].take(rows).to_pylist()
    candidates = list(zip(texts, _graphs(data.corpus / "train_graphs.json", rows), strict=True))
    texts = [data.queries.texts[i] for i in tests]
    references = list(zip(texts, _graphs(data.corpus / "test_graphs.json", tests), strict=True))
    reports = Reports([str(i) for i in range(len(rows))], [text for text, _ in candidates], "sample", {}, {})
    index = mo.build_index(
        reports,
        folder / "index",
        metrics=LEXICAL_AND_GRAPH,
        radgraph=write_graphs(folder / "candidates.json", [graph for _, graph in candidates]),
    )
    graphs = write_graphs(folder / "references.json", [graph for _, graph in references])
    return Sample(references, candidates, index, mo.load_queries(texts, radgraph=graphs))


def write_graphs(path: Path, graphs: list[dict]) -> Path:
    """Write annotations with the ids "0", "1", ..., which a list of texts has too."""
    path.write_text(json.dumps({str(i): graph for i, graph in enumerate(graphs)}), encoding="utf-8")
    return path


def _graphs(path: Path, rows: np.ndarray) -> list[dict]:
    """Return the annotations of some reports; the synthetic file has one a line, after the line of the brace."""
    wanted = set((rows + 1).tolist())
    with path.open(encoding="utf-8") as file:
        lines = [line for number, line in enumerate(file) if number in wanted]
    return [next(iter(json.loads("{" + line.rstrip(",\n") + "}").values())) for line in lines]


def graphs_of_tests(data: Data, tests: np.ndarray) -> list[dict]:
    """Return the annotations of some test reports, in ascending order."""
    return _graphs(data.corpus / "test_graphs.json", tests)
