"""Published scorers on the pairs of a sample: ``build`` prepares, what it returns scores; only the latter is timed.

Whatever can be prepared is (tokens; sets in "python-sets"), which is more than users of these tools can count on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.data import LAYER, StateSample
from metric_oracle.indexes.ngrams import tokenize_bleu
from metric_oracle.retrieval.search import n_threads

Reports = list[tuple[str, dict]]  # text, RadGraph annotation
Score = Callable[[], np.ndarray]  # float64[references, candidates]


@dataclass(frozen=True)
class Peer:
    """A scorer that someone published.

    Attributes
    ----------
    title : as in the README
    metric : metric of ours that computes the same
    package : distribution that must be installed, None for plain Python
    n_candidates : candidates of the sample it gets, so that a repetition takes about a second
    build : imports the package, prepares references and candidates, returns the scoring function
    """

    title: str
    metric: str
    package: str | None
    n_candidates: int
    build: Callable[[Reports, Reports], Score]


def _fast_bleu(references: Reports, candidates: Reports) -> Score:
    """All candidates of a reference in one call, its fastest form; its threads are OpenMP's."""
    from fast_bleu import BLEU

    weights = {"bleu-2": (0.5, 0.5)}
    expected = [tokenize_bleu(text) for text, _ in references]
    hypotheses = [tokenize_bleu(text) for text, _ in candidates]
    return lambda: np.array([BLEU([r], weights).get_score(hypotheses)["bleu-2"] for r in expected])


def _nltk(references: Reports, candidates: Reports) -> Score:
    """Smoothing method 1 is fast_bleu's."""
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smooth = SmoothingFunction().method1
    expected = [[tokenize_bleu(text)] for text, _ in references]
    hypotheses = [tokenize_bleu(text) for text, _ in candidates]
    return lambda: np.array([[sentence_bleu(r, h, (0.5, 0.5), smooth) for h in hypotheses] for r in expected], float)


def _rouge_score(references: Reports, candidates: Reports) -> Score:
    """Without stemming; a look-up of the tokens of its own tokenizer takes the tokenizer's place."""
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenizers import DefaultTokenizer

    tokenize = DefaultTokenizer(use_stemmer=False).tokenize
    score = RougeScorer(
        ["rougeL"], tokenizer=_LookUp({text: tokenize(text) for text, _ in references + candidates})
    ).score
    return lambda: np.array([[score(r, c)["rougeL"].fmeasure for c, _ in candidates] for r, _ in references])


class _LookUp:
    def __init__(self, tokens: dict[str, list[str]]) -> None:
        self.tokenize = tokens.__getitem__


def _sets_beforehand(references: Reports, candidates: Reports) -> Score:
    """Only intersections and F1 are left to time."""
    expected = [_sets(graph) for _, graph in references]
    found = [_sets(graph) for _, graph in candidates]
    return lambda: np.array([[_mean_f1(r, c) for c in found] for r in expected])


def _sets_of_each_pair(references: Reports, candidates: Reports) -> Score:
    """From annotations in memory, as CXR-Report-Metric evaluates a file of pairs."""
    return lambda: np.array([[_mean_f1(_sets(r), _sets(c)) for _, c in candidates] for _, r in references])


def _sets(graph: dict[str, Any]) -> tuple[set, set]:
    """Return the entities (tokens, label) and the relations (entity, entity, type)."""
    entities = {key: (entity["tokens"], entity["label"]) for key, entity in graph["entities"].items()}
    relations = {
        (entities[key], entities[target], kind)
        for key, entity in graph["entities"].items()
        for kind, target in entity["relations"]
    }
    return set(entities.values()), relations


def _mean_f1(reference: tuple[set, set], candidate: tuple[set, set]) -> float:
    return (_f1(reference[0], candidate[0]) + _f1(reference[1], candidate[1])) / 2


def _f1(reference: set, candidate: set) -> float:
    """Go through precision and recall, as CXR-Report-Metric does."""
    matched = len(reference & candidate)
    precision = matched / len(candidate) if candidate else 0.0
    recall = matched / len(reference) if reference else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


PEERS: dict[str, Peer] = {
    "fast_bleu": Peer("fast_bleu (C++)", "bleu", "fast-bleu", 4000, _fast_bleu),
    "nltk": Peer("NLTK (Python)", "bleu", "nltk", 500, _nltk),
    "rouge-score": Peer("rouge-score (Python)", "rouge-l", "rouge-score", 500, _rouge_score),
    "cxr-report-metric": Peer(
        "CXR-Report-Metric's steps (Python sets)", "radgraph", None, 1000, _sets_of_each_pair
    ),
    "python-sets": Peer("Python sets made beforehand", "radgraph", None, 4000, _sets_beforehand),
}  # fmt: skip


# ---- token states ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StatePeer:
    """A way to score pairs of token states.

    Attributes
    ----------
    title : as in the README
    package : distribution that must be installed
    part : of BERTScore, that it computes
    goal : our pairs per second over its
    n_references, n_candidates : of the sample, so that a repetition takes about ten seconds on two cores
    build : imports the package, prepares a sample, returns scoring functions, of which the fastest counts, each with
        how far its scores may be from ours
    """

    title: str
    package: str
    part: str
    goal: float | None
    n_references: int
    n_candidates: int
    build: Callable[[StateSample], dict[str, tuple[Score, float]]]


_ROUGHLY = 0.02  # other roundings of states or products: float32 encoding, float16, bfloat16


def _bert_score(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Run the library as published, which encodes each text once a call, or its scoring of padded batches alone."""
    import torch
    from bert_score import BERTScorer
    from bert_score.utils import greedy_cos_idf
    from torch.nn.utils.rnn import pad_sequence

    scorer = BERTScorer(model_type=str(sample.encoder), num_layers=LAYER, device="cpu")
    shape = len(sample.references), len(sample.candidates)
    pairs = [(r, c) for r in sample.references for c in sample.candidates]

    def with_encoding() -> np.ndarray:
        f1 = scorer.score([c[0] for _, c in pairs], [r[0] for r, _ in pairs])[2]
        return f1.numpy().reshape(shape)

    def tensors(item: tuple[str, np.ndarray, np.ndarray]) -> tuple[Any, Any]:
        return torch.from_numpy(item[1]), torch.from_numpy(item[2]).float()

    prepared = [(r, c) for r in map(tensors, sample.references) for c in map(tensors, sample.candidates)]

    def padded(batch: list[tuple[Any, Any]]) -> tuple[Any, Any, Any]:
        lengths = torch.tensor([len(states) for states, _ in batch])
        states = pad_sequence([states for states, _ in batch], batch_first=True, padding_value=2.0)
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        return states, mask, pad_sequence([weights for _, weights in batch], batch_first=True)

    def from_states() -> np.ndarray:
        found = []
        with torch.no_grad():
            for first in range(0, len(prepared), scorer.batch_size):
                references, candidates = zip(*prepared[first : first + scorer.batch_size], strict=True)
                found.append(greedy_cos_idf(*padded(references), *padded(candidates))[2])
        return torch.cat(found).numpy().reshape(shape)

    return {"with encoding": (with_encoding, _ROUGHLY), "states made beforehand": (from_states, 1e-3)}


def _plain_product(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Cosines in bfloat16, maxima over the tokens of each report: reports of one length are one array.

    Of what torch and NumPy offer (segment_reduce, reduceat, maxima of slices, of the product or its transpose) this was
    the fastest; the size of the blocks is left to the trial.
    """
    import torch

    queries = [torch.from_numpy(states).bfloat16() for _, states, _ in sample.references]
    means = [torch.from_numpy(mask / mask.sum()).float() for _, _, mask in sample.references]
    corpus = torch.cat([torch.from_numpy(states).bfloat16() for _, states, _ in sample.candidates])
    weights = torch.cat([torch.from_numpy(mask / mask.sum()).float() for _, _, mask in sample.candidates])
    lengths = np.array([len(mask) for _, _, mask in sample.candidates])
    ptr = np.concatenate([[0], np.cumsum(lengths)]).tolist()

    def pieces(n_tokens: int) -> Iterator[tuple[int, int, int]]:
        """Return first report, last report and length of runs of reports of one length."""
        for first, last in pairwise(_bounds(lengths)):
            step = max(n_tokens // int(lengths[first]), 1)
            for i in range(first, last, step):
                yield i, min(i + step, last), int(lengths[first])

    def score(n_queries: int, n_tokens: int) -> np.ndarray:
        scores = np.empty((len(queries), len(lengths)), np.float32)
        blocks = []
        for first in range(0, len(queries), n_queries):
            block = slice(first, first + n_queries)
            blocks.append((block, torch.cat(queries[block]), torch.block_diag(*means[block])))
        for first, last, length in pieces(n_tokens):
            tokens = slice(ptr[first], ptr[last])
            for block, rows, mean in blocks:
                cosines = rows @ corpus[tokens].T
                columns = torch.stack(
                    [of_query.amax(0) for of_query in cosines.split([len(q) for q in queries[block]])]
                )
                precision = (columns.float() * weights[tokens]).view(len(columns), -1, length).sum(2)
                recall = mean @ cosines.view(len(rows), -1, length).amax(2).float()
                scores[block, first:last] = (2 * precision * recall / (precision + recall)).numpy()
        return scores

    sizes = [(8, 1 << 13), (32, 1 << 13), (32, 1 << 15)]
    return {f"{n} queries x {tokens} tokens": (partial(score, n, tokens), _ROUGHLY) for n, tokens in sizes}


def _maxsim_cpu(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Recall alone: the sum over a query's words of the greatest cosine, divided by their number.

    Version 0.1.0 computes products of more than 64**3 multiplications with a function that its wheel lacks: it crashes
    or returns other numbers. Hence reports of one length a call, and as many words as that allows.
    """
    from maxsim_cpu import maxsim_scores

    queries = [np.ascontiguousarray(states[mask]) for _, states, mask in sample.references]
    lengths = np.array([len(mask) for _, _, mask in sample.candidates])
    groups = []
    for first, last in pairwise(_bounds(lengths)):
        states = np.stack([states for _, states, _ in sample.candidates[first:last]])
        groups.append((slice(first, last), states, max(64**3 // states[0].size, 1)))

    def recall() -> np.ndarray:
        scores = np.zeros((len(queries), len(lengths)))
        for row, query in zip(scores, queries, strict=True):
            for columns, states, n_words in groups:
                for first in range(0, len(query), n_words):
                    row[columns] += maxsim_scores(query[first : first + n_words], states)
            row /= len(query)
        return scores

    return {"recall alone": (recall, 1e-4)}


def _bounds(lengths: np.ndarray) -> list[int]:
    """Return where runs of one length begin, and the end."""
    return [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]


STATE_PEERS: dict[str, StatePeer] = {
    "bertscore-library": StatePeer("bert_score", "bert-score", "f1", 5000.0, 20, 400, _bert_score),
    "bertscore-bf16": StatePeer("torch, bfloat16 product", "torch", "f1", 8.0, 64, 20_000, _plain_product),
    "bertscore-maxsim": StatePeer("maxsim-cpu (Rust)", "maxsim-cpu", "recall", None, 20, 3000, _maxsim_cpu),
}


class FaissFlat:
    """FAISS IndexFlatIP with one row per report: what people do with CheXbert embeddings."""

    def build(self, vectors: np.ndarray, queries: np.ndarray) -> None:
        """Normalise and add the vectors."""
        import faiss

        faiss.normalize_L2(vectors)
        faiss.normalize_L2(queries)
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)
        self._queries = queries

    def search(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the best score and row of each query, with as many threads as our search."""
        import faiss

        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(n_threads())
        try:
            scores, rows = self._index.search(self._queries, 1)
        finally:
            faiss.omp_set_num_threads(before)
        return scores[:, 0], rows[:, 0]
