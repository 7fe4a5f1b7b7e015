"""Other ways to score token states: ``build`` prepares a sample, what it returns scores; only the latter is timed."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.data import LAYER, SkippedError, StateSample
from benchmarks.peers import Score
from metric_oracle.base.operating_system import n_threads


@dataclass(frozen=True)
class StatePeer:
    """A way to score pairs of token states.

    Attributes
    ----------
    title : as in the README
    package : distribution that must be installed
    part : of BERTScore, that it computes
    goal : its time over ours
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


def _plain_product(precision: str, sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Cosines in bfloat16 or float32, maxima over the tokens of each report: reports of one length are one array.

    Of what torch and NumPy offer (segment_reduce, reduceat, maxima of slices, of the product or its transpose) this was
    the fastest; the size of the blocks is left to the trial.
    """
    import torch

    kind = getattr(torch, precision)
    queries = [torch.from_numpy(states).to(kind) for _, states, _ in sample.references]
    means = [torch.from_numpy(mask / mask.sum()).float() for _, _, mask in sample.references]
    corpus = torch.cat([torch.from_numpy(states).to(kind) for _, states, _ in sample.candidates])
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


def _product_on_gpu(find_device: Callable[[], str], sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Cosines in bfloat16 and maxima both ways on a GPU, precision, recall and F1 of them.

    Reports of one length are one array, and so are queries of one length: a product of two of them is a block of
    cosines without padding. States are there beforehand, scores come back. The size of the blocks is left to the trial.
    """
    import torch

    device = find_device()

    def put(side: list[tuple[str, np.ndarray, np.ndarray]]) -> list[tuple[Any, Any, Any]]:
        """Return places, states [n, length, d] and shares [n, length] of the reports of each length."""
        lengths = np.array([len(mask) for _, _, mask in side])
        groups = []
        for length in np.unique(lengths):
            places = np.flatnonzero(lengths == length)
            states = torch.from_numpy(np.stack([side[i][1] for i in places])).to(device, torch.bfloat16)
            shares = torch.from_numpy(np.stack([side[i][2] / side[i][2].sum() for i in places])).to(device).float()
            groups.append((torch.from_numpy(places).to(device), states, shares))
        return groups

    queries, corpus = put(sample.references), put(sample.candidates)
    shape = len(sample.references), len(sample.candidates)

    def score(cells: int) -> np.ndarray:
        scores = torch.empty(shape, device=device)
        for rows, words, of_words in queries:
            for columns, tokens, of_tokens in corpus:
                step = max(cells // (words.shape[0] * words.shape[1] * tokens.shape[1]), 1)
                for first in range(0, len(columns), step):
                    some = slice(first, first + step)
                    cosines = words.flatten(0, 1) @ tokens[some].flatten(0, 1).T
                    cosines = cosines.view(*words.shape[:2], -1, tokens.shape[1])
                    precision = (cosines.amax(1).float() * of_tokens[some]).sum(2)
                    recall = (cosines.amax(3).float() * of_words[:, :, None]).sum(1)
                    scores[rows[:, None], columns[some]] = 2 * precision * recall / (precision + recall)
        return scores.cpu().numpy()

    return {f"{cells:,} cosines at once": (partial(score, cells), _ROUGHLY) for cells in (1 << 24, 1 << 26, 1 << 28)}


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


def _sentence_transformers(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Recall alone, as in `_maxsim_cpu`; the library pads the reports of a block to one length."""
    import torch
    from sentence_transformers.util import mean_maxsim

    def way(kind: torch.dtype) -> Score:
        queries = [torch.from_numpy(states[mask]).to(kind) for _, states, mask in sample.references]
        documents = [torch.from_numpy(states).to(kind) for _, states, _ in sample.candidates]
        return lambda: mean_maxsim(queries, documents).numpy()

    return {
        "recall alone, float32": (way(torch.float32), 1e-4),
        "recall alone, bfloat16": (way(torch.bfloat16), _ROUGHLY),
    }


def _flash_maxsim(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Recall alone, as in `_maxsim_cpu`, with float16 states on the GPU; reports of one length a call.

    All queries go in one call, filled up with zeros, whose greatest product is 0: for each number of words the library
    would compile and try a dozen kernels.
    """
    import torch
    from flash_maxsim import flash_maxsim_batched
    from torch.nn.utils.rnn import pad_sequence

    gpu = need_gpu()
    words = [torch.from_numpy(states[mask]).half() for _, states, mask in sample.references]
    n_words = torch.tensor([len(some) for some in words], dtype=torch.int32, device=gpu)
    queries = pad_sequence(words, batch_first=True).to(gpu)
    lengths = np.array([len(mask) for _, _, mask in sample.candidates])
    groups = [
        torch.from_numpy(np.stack([states for _, states, _ in sample.candidates[first:last]])).half().to(gpu)
        for first, last in pairwise(_bounds(lengths))
    ]

    def recall() -> np.ndarray:
        sums = [flash_maxsim_batched(queries, group, query_lengths=n_words) for group in groups]
        return (torch.cat(sums, dim=1).float() / n_words[:, None]).cpu().numpy()

    return {"recall alone": (recall, _ROUGHLY)}


def _late_interaction(sample: StateSample) -> dict[str, tuple[Score, float]]:
    """Recall alone, as in `_maxsim_cpu`, with float16 states on the GPU; all reports packed, without padding."""
    import torch
    from late_interaction_kernels import maxsim_varlen

    gpu = need_gpu()
    sides = [[states[mask] for _, states, mask in sample.references], [states for _, states, _ in sample.candidates]]
    states = [torch.from_numpy(np.concatenate(side)).half().to(gpu) for side in sides]
    lengths = [[len(report) for report in side] for side in sides]
    ends = [torch.tensor(np.cumsum([0, *some]), dtype=torch.int32, device=gpu) for some in lengths]

    def recall() -> np.ndarray:
        with torch.inference_mode():
            sums = maxsim_varlen(*states, *ends, *map(max, lengths))
        return sums.float().cpu().numpy() / np.array(lengths[0])[:, None]

    return {"recall alone": (recall, _ROUGHLY)}


def need_gpu() -> str:
    """Return the name of a CUDA device, or raise SkippedError where torch sees none."""
    import torch

    if not torch.cuda.is_available():
        msg = "needs a GPU: torch finds no CUDA device"
        raise SkippedError(msg)
    return "cuda"


class Approximate(Protocol):
    """A search for the best candidate by recall alone that may miss it, and has a recall therefore.

    Attributes
    ----------
    title : as in the README
    package : distribution that must be installed
    n_references, n_candidates : of the sample
    """

    title: str
    package: str
    n_references: int
    n_candidates: int

    def build(self, sample: StateSample, folder: Path) -> Callable[[], np.ndarray]:
        """Index the candidates, in an empty folder; the search returns the best one of each reference, or -1."""


class FastPlaid(Approximate):
    """fast-plaid: approximate, on the GPU where there is one."""

    title, package = "fast-plaid (Rust), recall alone", "fast-plaid"
    n_references, n_candidates = 64, 20_000

    def build(self, sample: StateSample, folder: Path) -> Callable[[], np.ndarray]:
        """Write an index."""
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


class ColBandit(Approximate):
    """Col-Bandit by its authors, with their defaults: candidates are dropped after some words of the query.

    The more candidates, the smaller the share of the products that it needs: extrapolation does not favour it.
    """

    title, package = "Col-Bandit (C), recall alone", "colbandit"
    n_references, n_candidates = 64, 20_000

    def build(self, sample: StateSample, folder: Path) -> Callable[[], np.ndarray]:
        """Pack the candidates, in memory."""
        import colbandit

        index = colbandit.ColBandit(n_threads=n_threads()).index([states for _, states, _ in sample.candidates])
        queries = [states[mask] for _, states, mask in sample.references]
        return lambda: np.array([index.search(query, k=1)[0][0] for query in queries])


class NumKong(Approximate):
    """NumKong: all pairs, a call each, a query a thread.

    It chooses the nearest token by codes of 8 bits, scaled by the greatest coordinate of each state and compared as if
    the scales were equal, and takes that token's cosine in float32. A few coordinates of the states are large, so that
    it chooses badly: it gets the states turned by a random rotation, which leaves cosines as they are.
    """

    title, package = "NumKong maxsim_packed (C), recall alone, rotated states", "numkong"
    n_references, n_candidates = 20, 20_000

    def build(self, sample: StateSample, folder: Path) -> Callable[[], np.ndarray]:
        """Rotate and pack both sides, in memory."""
        from numkong import maxsim_pack, maxsim_packed

        width = sample.references[0][1].shape[1]
        rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((width, width)))[0].astype(np.float32)
        candidates = [maxsim_pack(states @ rotation) for _, states, _ in sample.candidates]
        queries = [maxsim_pack(states[mask] @ rotation) for _, states, mask in sample.references]

        def best(query: Any) -> int:
            return int(np.argmin([maxsim_packed(query, candidate) for candidate in candidates]))

        def search() -> np.ndarray:
            with ThreadPoolExecutor(n_threads()) as pool:
                return np.array(list(pool.map(best, queries)))

        return search


APPROXIMATE: dict[str, Approximate] = {
    "fast-plaid": FastPlaid(),
    "col-bandit": ColBandit(),
    "numkong": NumKong(),
}


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
    "bertscore-library": StatePeer("bert_score", "bert-score", "f1", 400.0, 20, 400, _bert_score),
    "bertscore-bf16": StatePeer(
        "torch, bfloat16 product", "torch", "f1", 25.0, 64, 20_000, partial(_plain_product, "bfloat16")
    ),
    "bertscore-bf16-gpu": StatePeer(
        "torch, bfloat16 product on the GPU",
        "torch",
        "f1",
        None,
        256,
        20_000,
        partial(_product_on_gpu, need_gpu),
        on_gpu=True,
    ),
    "bertscore-float32": StatePeer(
        "torch, float32 product", "torch", "f1", 10.0, 64, 5000, partial(_plain_product, "float32")
    ),
    "bertscore-maxsim": StatePeer("maxsim-cpu (Rust)", "maxsim-cpu", "recall", None, 20, 3000, _maxsim_cpu),
    "bertscore-sentence-transformers": StatePeer(
        "sentence-transformers, mean_maxsim",
        "sentence-transformers",
        "recall",
        None,
        64,
        5000,
        _sentence_transformers,
    ),
    "bertscore-flash-maxsim": StatePeer(
        "flash-maxsim (Triton)", "flash-maxsim", "recall", None, 64, 20_000, _flash_maxsim, on_gpu=True
    ),
    "bertscore-late-interaction": StatePeer(
        "late-interaction-kernels (Triton)",
        "late-interaction-kernels",
        "recall",
        None,
        64,
        20_000,
        _late_interaction,
        on_gpu=True,
    ),
}
