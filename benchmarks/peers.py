"""Published scorers on the pairs of a sample: ``build`` prepares, what it returns scores; only the latter is timed.

Whatever can be prepared is (tokens; sets in "python-sets"), which is more than users of these tools can count on.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

import metric_oracle as mo
from benchmarks.data import Data, SkippedError
from metric_oracle.base.operating_system import n_threads
from metric_oracle.indexes.ngrams import tokenize_bleu, tokenize_coco, tokenize_rouge
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._simd import intrinsic
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.kernels import load_reference

Reports = list[tuple[str, dict[str, Any]]]  # text, RadGraph annotation
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
    cores : that it uses, None for all that our search may use
    """

    title: str
    metric: str
    package: str | None
    n_candidates: int
    build: Callable[[Reports, Reports], Score]
    cores: int | None = 1


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


def _sets(graph: dict[str, Any]) -> tuple[set[Any], set[Any]]:
    """Return the entities (tokens, label) and the relations (entity, entity, type)."""
    entities = {key: (entity["tokens"], entity["label"]) for key, entity in graph["entities"].items()}
    relations = {
        (entities[key], entities[target], kind)
        for key, entity in graph["entities"].items()
        for kind, target in entity["relations"]
    }
    return set(entities.values()), relations


def _mean_f1(reference: tuple[set[Any], set[Any]], candidate: tuple[set[Any], set[Any]]) -> float:
    return (_f1(reference[0], candidate[0]) + _f1(reference[1], candidate[1])) / 2


def _f1(reference: set[Any], candidate: set[Any]) -> float:
    """Go through precision and recall, as CXR-Report-Metric does."""
    matched = len(reference & candidate)
    precision = matched / len(candidate) if candidate else 0.0
    recall = matched / len(reference) if reference else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _cider(references: Reports, candidates: Reports) -> Score:
    """Document frequencies are those of all candidates, the sample's corpus; n-grams are counted within the time."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    wanted, found = ([" ".join(tokenize_coco(text)) for text, _ in side] for side in (references, candidates))
    corpus = CiderScorer()
    for text in found:
        corpus.cook_append(None, [text])
    corpus.compute_doc_freq()

    def score(reference: str) -> list[float]:
        scorer = CiderScorer()
        for text in found:
            scorer.cook_append(text, [reference])
        scorer.document_frequency = corpus.document_frequency
        return list(scorer.compute_cider())

    return lambda: np.array([score(reference) for reference in wanted])


class _NoWordNet:
    """Knows no word."""

    def synsets(self, _: str) -> list[Any]:
        return []


def _meteor(references: Reports, candidates: Reports) -> Score:
    from nltk.translate.meteor_score import single_meteor_score

    wanted, found = ([tokenize_bleu(text) for text, _ in side] for side in (references, candidates))
    score = partial(single_meteor_score, wordnet=_NoWordNet())
    return lambda: np.array([[score(r, c) for c in found] for r in wanted])


PEERS: dict[str, Peer] = {
    "fast_bleu": Peer("fast_bleu (C++)", "bleu", "fast-bleu", 4000, _fast_bleu, cores=None),
    "nltk": Peer("NLTK (Python)", "bleu", "nltk", 500, _nltk),
    "rouge-score": Peer("rouge-score (Python)", "rouge-l", "rouge-score", 500, _rouge_score),
    "pycocoevalcap-cider": Peer("pycocoevalcap (Python)", "cider-d:corpus", "pycocoevalcap", 4000, _cider),
    "nltk-meteor": Peer("NLTK (Python)", "meteor:nltk-stems", "nltk", 200, _meteor),
    "cxr-report-metric": Peer(
        "CXR-Report-Metric's steps (Python sets)", "radgraph", None, 1000, _sets_of_each_pair
    ),
    "python-sets": Peer("Python sets made beforehand", "radgraph", None, 4000, _sets_beforehand),
}  # fmt: skip


# ---- whole searches --------------------------------------------------------------------------------------------------


class Search(Protocol):
    """A search over all distinct documents of a metric.

    Attributes
    ----------
    title : as in the README
    metric : metric of ours that has the same answers, or that it stands in for
    package : distribution that must be installed
    exact : whether its answers must be ours; others have a recall
    n_queries : distinct queries that it gets, None for all
    """

    title: str
    metric: str
    package: str
    exact: bool
    n_queries: int | None = None

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Prepare; what it returns searches: int[distinct queries, kept], the documents it keeps, -1 for none."""


def distinct_texts(data: Data, metric: str) -> tuple[list[str], list[str]]:
    """Return a text of each distinct query and of each distinct document, in the order of their numbers."""
    representation = data.index.representation(get_metric(metric))
    first = np.unique(representation.encode(data.queries).document_of_row, return_index=True)[1]
    rows = representation.row_id[representation.row_ptr[:-1]]
    return [data.queries.texts[i] for i in first], data.index.reports["text"].take(rows).to_pylist()


def _incidence(data: Data) -> tuple[Any, Any, Any, Any]:
    """Return which distinct graph has which feature, float32 CSR matrices of corpus and tests, and both sides.

    That of the tests is their sets of features, as the kernels read them.
    """
    from scipy.sparse import csr_matrix

    representation = data.index.part("radgraph")
    queries = representation.translate(get_metric("radgraph"), representation.encode(data.queries)).queries
    n_features = len(representation.features.post_ptr) - 1
    matrices = []
    for ids, ptr in (
        (representation.features.fwd_id, representation.features.fwd_ptr),
        (queries.id, queries.ptr[:: queries.sizes.shape[1]]),
    ):
        ones = np.ones(len(ids), np.float32)
        matrices.append(csr_matrix((ones, np.array(ids), np.array(ptr)), shape=(len(ptr) - 1, n_features)))
    return *matrices, representation, queries


def _in_blocks(best: Callable[[int], np.ndarray], n: int, block: int) -> np.ndarray:
    """Return the best document of each of n queries, blocks of them on all cores."""
    with ThreadPoolExecutor(n_threads()) as pool:
        return np.concatenate(list(pool.map(best, range(0, n, block))))[:, None]


class SparseProduct(Search):
    """SciPy: common entities and common relations counted by sparse products; F1 and the best unit with NumPy.

    Blocks of queries on all cores.
    """

    title, metric, package, exact = "SciPy sparse products, F1, argmax", "radgraph", "scipy", True
    block = 16

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Prepare the matrices of both families, that of the corpus transposed."""
        corpus, tests, representation, queries = _incidence(data)
        edges = representation.family_ptr
        families = []
        for family in range(2):
            columns = slice(edges[family], edges[family + 1])
            sizes = representation.features.sizes[family].astype(np.float64)
            families.append((tests[:, columns], corpus[:, columns].T.tocsr(), queries.sizes[:, family], sizes))

        def best(first: int) -> np.ndarray:
            block = slice(first, first + self.block)
            f1s = [
                (some[block] @ transposed).toarray() / np.maximum(n_query[block, None] + n_unit, 1)
                for some, transposed, n_query, n_unit in families
            ]
            return (f1s[0] + f1s[1]).argmax(axis=1)

        return lambda: _in_blocks(best, tests.shape[0], self.block)


class SparseTop(Search):
    """sparse_dot_topn: the units with the greatest cosine of entities and relations, which F1 may order otherwise."""

    title, metric, package, exact = "sparse_dot_topn, 100 best by cosine", "radgraph", "sparse-dot-topn", False

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Prepare rows of length 1, those of the corpus transposed."""
        from scipy.sparse import diags
        from sparse_dot_topn import sp_matmul_topn

        corpus, tests, representation, _ = _incidence(data)
        rows = []
        for matrix in (tests, corpus):
            some = matrix[:, : representation.family_ptr[2]]
            n = np.asarray(some.sum(axis=1)).ravel()
            rows.append((diags(1 / np.sqrt(np.maximum(n, 1)), dtype=np.float32) @ some).tocsr())
        queries, transposed = rows[0], rows[1].T.tocsr()

        def search() -> np.ndarray:
            found = sp_matmul_topn(queries, transposed, top_n=KEPT, sort=True, n_threads=n_threads())
            units = np.full((found.shape[0], KEPT), -1, np.int64)
            units[np.arange(KEPT) < np.diff(found.indptr)[:, None]] = found.indices
            return units

        return search


class Popcount(Search):
    """Fingerprints of 1,024 bits: what is shared by two sets is at most the bits that are, and Dice of bits ranks.

    A floor of all searches that look at each pair of sets, and not the same answer: features that fall on one bit
    count once, and entities and relations are one family.
    """

    title, metric, package, exact = "popcount of 1,024 bits, best by Dice", "radgraph", "scipy", False
    bits, block = 1024, 64

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Count the bits of each set."""
        queries, units = _fingerprints(data, self.bits)
        n_query, n_unit = (np.bitwise_count(side).sum(axis=1, dtype=np.int64) for side in (queries, units))

        def best(first: int) -> np.ndarray:
            block = slice(first, first + self.block)
            return closest(queries[block], n_query[block], units, n_unit)

        return lambda: _in_blocks(best, len(queries), self.block)


class BitJaccard(Popcount):
    """NumKong: the Jaccard distances of the same fingerprints, in C; the least of each query with NumPy.

    Jaccard orders sets as Dice does.
    """

    title, package = "NumKong, Jaccard of 1,024 bits, argmin", "numkong"

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Pack the fingerprints of the corpus."""
        import numkong

        queries, units = (side.view(np.uint8) for side in _fingerprints(data, self.bits))
        packed = numkong.hammings_pack(units, dtype="uint1")

        def best(first: int) -> np.ndarray:
            return np.asarray(numkong.jaccards_packed(queries[first : first + self.block], packed)).argmin(axis=1)

        return lambda: _in_blocks(best, len(queries), self.block)


def _fingerprints(data: Data, n_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of each distinct query and graph as bits of words: uint64[sets, n_bits / 64].

    The bit of a feature is the top of the product of its number with an odd constant.
    """
    corpus, tests, representation, _ = _incidence(data)
    sides = []
    for matrix in (tests, corpus):
        some = matrix[:, : representation.family_ptr[2]].tocsr()
        shift = np.uint64(65 - n_bits.bit_length())
        bit = (some.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> shift
        words = np.zeros((some.shape[0], n_bits // 64), np.uint64)
        rows = np.repeat(np.arange(some.shape[0]), np.diff(some.indptr))
        np.bitwise_or.at(words, (rows, (bit // 64).astype(np.int64)), np.uint64(1) << bit % np.uint64(64))
        sides.append(words)
    return sides[0], sides[1]


@intrinsic
def _ones(_: Any, word: Any) -> Any:
    """Count the bits of a word that are set."""
    return word(word), lambda context, builder, signature, given: builder.ctpop(given[0])


@jit
def closest(queries, n_query, units, n_unit):
    """Return for each query the first unit with the greatest Dice coefficient of their bits."""
    best = np.zeros(len(queries), np.int64)
    for q in range(len(queries)):
        top = -1.0
        for unit in range(len(units)):
            shared = np.uint64(0)
            for i in range(queries.shape[1]):
                shared += _ones(queries[q, i] & units[unit, i])
            score = np.float64(shared) / np.float64(max(n_query[q] + n_unit[unit], 1))
            if score > top:
                top, best[q] = score, unit
    return best


class LongestCommon(Search):
    """rapidfuzz: the longest common subsequences of a query's words and those of all documents; F1 with NumPy."""

    title, metric, package, exact = "rapidfuzz LCSseq (C++) over words' ids, argmax", "rouge-l", "rapidfuzz", True
    n_queries = 200
    block = 20

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Give each word a number."""
        from rapidfuzz.distance import LCSseq
        from rapidfuzz.process import cdist

        number: dict[str, int] = {}
        queries, units = (
            [[number.setdefault(word, len(number)) for word in tokenize_rouge(text)] for text in texts]
            for texts in distinct_texts(data, self.metric)
        )
        queries = queries[: self.n_queries]
        n_query, n_unit = (np.array([len(words) for words in side]) for side in (queries, units))

        def search() -> np.ndarray:
            found = []
            for first in range(0, len(queries), self.block):
                block = slice(first, first + self.block)
                shared = cdist(queries[block], units, scorer=LCSseq.similarity, dtype=np.float32, workers=n_threads())
                sizes = np.maximum(n_query[block, None] + n_unit, 1)
                found.append((shared.astype(np.float64) / sizes).argmax(axis=1))
            return np.concatenate(found)[:, None]

        return search


class Bm25(Search):
    """bm25s: the documents that BM25 ranks best, what people use who look for a report like another."""

    title, metric, package, exact = "bm25s, 100 best by BM25", "bleu", "bm25s", False
    backend = "numba"  # the faster one

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Index the distinct documents, words as BLEU's."""
        import bm25s

        queries, units = ([tokenize_bleu(text) for text in texts] for texts in distinct_texts(data, self.metric))
        index = bm25s.BM25(backend=self.backend)
        index.index(units, show_progress=False)
        kept = min(KEPT, len(units))
        return lambda: index.retrieve(
            queries, k=kept, sorted=True, return_as="documents", show_progress=False, n_threads=n_threads()
        )


KEPT = 100  # of a search by another score than ours
SEARCHES: dict[str, Search] = {
    "bm25s": Bm25(),
    "rapidfuzz": LongestCommon(),
    "scipy": SparseProduct(),
    "sparse-dot-topn": SparseTop(),
    "popcount": Popcount(),
    "numkong-jaccard": BitJaccard(),
}


def recall_of(units: np.ndarray, data: Data, name: str) -> float:
    """Return the share of distinct queries that have a best report of ours among a peer's units, -1 for none.

    The units are scored again by the reference scorer, so that only their choice counts.
    """
    metric = get_metric(name)
    score = load_reference(metric)
    representation = data.index.representation(metric)
    encoded = representation.encode(data.queries)
    best = np.zeros(int(encoded.document_of_row.max()) + 1)
    best[encoded.document_of_row] = mo.retrieve(data.index, data.queries, name, text=False).table["score"].to_numpy()
    found = []
    for q, some in enumerate(units.tolist()):
        item = encoded.item(q)
        scores = (score(representation.item(unit), item)[0] for unit in some if unit >= 0)
        found.append(max(scores, default=0.0))
    return float((np.array(found) == best[: len(found)]).mean())


# ---- vectors ---------------------------------------------------------------------------------------------------------


class FaissFlat:
    """FAISS IndexFlatIP: what people do with CheXbert embeddings.

    Parameters
    ----------
    on_gpu : whether the index lies on a GPU, which takes the package faiss-gpu
    """

    def __init__(self, on_gpu: bool = False) -> None:
        self.on_gpu = on_gpu

    def build(self, vectors: np.ndarray, queries: np.ndarray) -> None:
        """Normalise and add the vectors."""
        import faiss

        if self.on_gpu and not (hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()):
            msg = "needs a GPU and faiss-gpu: this FAISS finds no CUDA device"
            raise SkippedError(msg)
        faiss.normalize_L2(vectors)
        faiss.normalize_L2(queries)
        self._index: Any = faiss.IndexFlatIP(vectors.shape[1])
        if self.on_gpu:
            self._resources = faiss.StandardGpuResources()
            self._index = faiss.index_cpu_to_gpu(self._resources, 0, self._index)
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
