"""Published scorers on the pairs of a sample: ``build`` prepares, what it returns scores; only the latter is timed.

Whatever can be prepared is (tokens; sets in "python-sets"), which is more than users of these tools can count on.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks.data import LAYER, Data, SkippedError, StateSample
from metric_oracle.indexes.ngrams import tokenize_bleu
from metric_oracle.kernels.radgraph import reference as radgraph
from metric_oracle.retrieval.pool import n_threads

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


def _cider(references: Reports, candidates: Reports) -> Score:
    """Document frequencies are those of all candidates, the sample's corpus; n-grams are counted within the time."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    # It splits at white space, of which a token of BLEU may have some: lines end inside of them.
    wanted, found = (
        [" ".join(re.sub(r"\s", "_", token) for token in tokenize_bleu(text)) for text, _ in side]
        for side in (references, candidates)
    )
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
    "fast_bleu": Peer("fast_bleu (C++)", "bleu", "fast-bleu", 4000, _fast_bleu),
    "nltk": Peer("NLTK (Python)", "bleu", "nltk", 500, _nltk),
    "rouge-score": Peer("rouge-score (Python)", "rouge-l", "rouge-score", 500, _rouge_score),
    "pycocoevalcap-cider": Peer("pycocoevalcap (Python)", "cider-d:corpus", "pycocoevalcap", 4000, _cider),
    "nltk-meteor": Peer("NLTK (Python)", "meteor:nltk-stems", "nltk", 200, _meteor),
    "cxr-report-metric": Peer(
        "CXR-Report-Metric's steps (Python sets)", "radgraph", None, 1000, _sets_of_each_pair
    ),
    "python-sets": Peer("Python sets made beforehand", "radgraph", None, 4000, _sets_beforehand),
}  # fmt: skip


# ---- whole searches over graphs --------------------------------------------------------------------------------------


def _incidence(data: Data) -> tuple[Any, Any, Any, Any]:
    """Return which distinct graph has which feature, float32 CSR matrices of corpus and tests, and both sides."""
    from scipy.sparse import csr_matrix

    representation = data.index.part("radgraph")
    encoded = representation.encode(data.queries)
    n_features = len(representation.features.post_ptr) - 1
    matrices = []
    for ids, ptr in (
        (representation.features.fwd_id, representation.features.fwd_ptr),
        (encoded.queries.id, encoded.queries.ptr[:: encoded.queries.sizes.shape[1]]),
    ):
        ones = np.ones(len(ids), np.float32)
        matrices.append(csr_matrix((ones, np.array(ids), np.array(ptr)), shape=(len(ptr) - 1, n_features)))
    return *matrices, representation, encoded


class SparseProduct:
    """SciPy: common entities and common relations counted by sparse products; F1 and the best unit with NumPy.

    Distinct graphs once, as in our search; blocks of queries on all cores.
    """

    title, package, exact = "SciPy sparse products, F1, argmax", "scipy", True
    block = 16

    def build(self, data: Data) -> Callable[[], np.ndarray]:
        """Prepare the matrices of both families, that of the corpus transposed."""
        corpus, tests, representation, encoded = _incidence(data)
        edges = representation.family_ptr
        families = []
        for family in range(2):
            columns = slice(edges[family], edges[family + 1])
            sizes = representation.features.sizes[family].astype(np.float64)
            families.append((tests[:, columns], corpus[:, columns].T.tocsr(), encoded.queries.sizes[:, family], sizes))

        def best(first: int) -> np.ndarray:
            block = slice(first, first + self.block)
            f1s = [
                (some[block] @ transposed).toarray() / np.maximum(n_query[block, None] + n_unit, 1)
                for some, transposed, n_query, n_unit in families
            ]
            return (f1s[0] + f1s[1]).argmax(axis=1)

        def search() -> np.ndarray:
            with ThreadPoolExecutor(n_threads()) as pool:
                return np.concatenate(list(pool.map(best, range(0, tests.shape[0], self.block))))[:, None]

        return search


class SparseTop:
    """sparse_dot_topn: the units with the greatest cosine of entities and relations, which F1 may order otherwise."""

    title, package, exact = "sparse_dot_topn, 100 best by cosine", "sparse-dot-topn", False
    kept = 100

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
            found = sp_matmul_topn(queries, transposed, top_n=self.kept, sort=True, n_threads=n_threads())
            units = np.full((found.shape[0], self.kept), -1, np.int64)
            units[np.arange(self.kept) < np.diff(found.indptr)[:, None]] = found.indices
            return units

        return search


GRAPH_SEARCHES: dict[str, SparseProduct | SparseTop] = {"scipy": SparseProduct(), "sparse-dot-topn": SparseTop()}


def recall_of(units: np.ndarray, data: Data) -> float:
    """Return the share of distinct queries that have a best report of ours among a peer's units, -1 for none.

    The units are scored again by the reference scorer, so that only their choice counts.
    """
    representation = data.index.part("radgraph")
    encoded = representation.encode(data.queries)
    best = np.zeros(len(units))
    best[encoded.which] = mo.retrieve(data.index, data.queries, "radgraph", text=False).table["score"].to_numpy()
    items = {int(unit): representation.item(int(unit)) for unit in np.unique(units[units >= 0])}
    found = [
        max(
            (radgraph.score(items[unit], encoded.item(q), family_a=0, family_b=1)[0] for unit in some if unit >= 0),
            default=0.0,
        )
        for q, some in enumerate(units.tolist())
    ]
    return float((np.array(found) == best).mean())


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
    on_gpu : whether it runs on a GPU, and is compared with our search there
    """

    title: str
    package: str
    part: str
    goal: float | None
    n_references: int
    n_candidates: int
    build: Callable[[StateSample], dict[str, tuple[Score, float]]]
    on_gpu: bool = False


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


def _flash_maxsim(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Recall alone, as in :func:`_maxsim_cpu`, with float16 states on the GPU; reports of one length a call."""
    import torch
    from flash_maxsim import flash_maxsim

    need_gpu()
    queries = [torch.from_numpy(states[mask]).half().cuda() for _, states, mask in sample.references]
    lengths = np.array([len(mask) for _, _, mask in sample.candidates])
    groups = [
        torch.from_numpy(np.stack([states for _, states, _ in sample.candidates[first:last]])).half().cuda()
        for first, last in pairwise(_bounds(lengths))
    ]

    def recall() -> np.ndarray:
        rows = [torch.cat([flash_maxsim(query, group) for group in groups]) / len(query) for query in queries]
        return torch.stack(rows).float().cpu().numpy()

    return {"recall alone": (recall, _ROUGHLY)}


def need_gpu() -> None:
    """Raise SkippedError unless torch sees a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        msg = "needs a GPU: torch finds no CUDA device"
        raise SkippedError(msg)


class FastPlaid:
    """fast-plaid: the best candidates by recall alone; approximate, on the GPU where there is one."""

    title, package = "fast-plaid (Rust), recall alone", "fast-plaid"
    n_references, n_candidates = 64, 20_000

    def build(self, sample: StateSample, folder: Path) -> Callable[[], np.ndarray]:
        """Index the candidates in an empty folder; the search returns the best candidate of each reference."""
        import torch
        from fast_plaid import search

        index = search.FastPlaid(index=str(folder), device="cuda" if torch.cuda.is_available() else "cpu")
        index.create(documents_embeddings=[torch.from_numpy(states) for _, states, _ in sample.candidates])
        queries = [torch.from_numpy(states[mask])[None] for _, states, mask in sample.references]

        def best() -> np.ndarray:
            # A query a call: their lengths differ, and padding would take part.
            found = [index.search(queries_embeddings=query, top_k=1)[0] for query in queries]
            return np.array([some[0][0] if some else -1 for some in found])

        return best


def recalls(sample: StateSample) -> np.ndarray:
    """Return BERTScore's recall of all pairs from plain float32 products: float32[references, candidates]."""
    states = np.concatenate([states for _, states, _ in sample.candidates])
    starts = np.cumsum([0, *(len(mask) for _, _, mask in sample.candidates)])[:-1]
    rows = [
        np.maximum.reduceat(query[mask] @ states.T, starts, axis=1).mean(axis=0) for _, query, mask in sample.references
    ]
    return np.stack(rows)


def _bounds(lengths: np.ndarray) -> list[int]:
    """Return where runs of one length begin, and the end."""
    return [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]


STATE_PEERS: dict[str, StatePeer] = {
    "bertscore-library": StatePeer("bert_score", "bert-score", "f1", 5000.0, 20, 400, _bert_score),
    "bertscore-bf16": StatePeer("torch, bfloat16 product", "torch", "f1", 8.0, 64, 20_000, _plain_product),
    "bertscore-maxsim": StatePeer("maxsim-cpu (Rust)", "maxsim-cpu", "recall", None, 20, 3000, _maxsim_cpu),
    "bertscore-flash-maxsim": StatePeer(
        "flash-maxsim (Triton)", "flash-maxsim", "recall", None, 64, 20_000, _flash_maxsim, on_gpu=True
    ),
}


class FaissFlat:
    """FAISS IndexFlatIP with one row per report: what people do with CheXbert embeddings.

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
