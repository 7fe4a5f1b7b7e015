"""Published scorers on the pairs of a sample: ``build`` prepares, what it returns scores; only the latter is timed.

Whatever can be prepared is (tokens; sets in "python-sets"), which is more than users of these tools can count on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
