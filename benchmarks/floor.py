"""The least time that an oracle's work can take on this machine: what must be done, over what the machine can do.

The work is counted from the index and the queries, not clocked. It is a floor of this design: what a search over these
indexes with these bounds cannot skip, even if it knew every best score beforehand. Another index may have a lower one.
The ceilings are measured in the same run.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import metric_oracle as mo
from metric_oracle.base.operating_system import n_threads
from metric_oracle.bench.timing import repeated
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import SLACK, by_rarity, postings
from metric_oracle.kernels.bertscore.query import chunk_of
from metric_oracle.kernels.bleu.score import bleu
from metric_oracle.kernels.radgraph.score import mean_f1
from metric_oracle.kernels.rouge_l.score import rouge_l
from metric_oracle.metrics import get_metric

PRODUCT = 4096  # rows and columns of the product that is timed: 137 billion operations
COPY = 1 << 29  # bytes, far more than caches hold
STREAM = 1 << 16  # counters of a thread's byte-add stream: they stay in its second cache
_ADDS = 1000  # times that a thread goes over its stream

POSTING = 4  # bytes
BYTES_A_FLOAT = 4  # byte multiply-adds in the time of one float32 multiply-add, in registers of one width (VPDPBUSD)
DOUBLES = 2  # float32 operations in the time of one float64 operation


# ---- what the machine can do -----------------------------------------------------------------------------------------


class Ceilings(NamedTuple):
    """The best that this machine did, all cores that the process may use.

    Attributes
    ----------
    flop_per_s : of a large float32 product
    bytes_per_s : read plus written, of a large copy
    adds_per_s : of a stream that adds one to a byte wherever an ascending list of int32 says
    """

    flop_per_s: float
    bytes_per_s: float
    adds_per_s: float


def measure_ceilings(repetitions: int = 5) -> Ceilings:
    """Measure; a ceiling is the best repetition, not the median."""
    threads = n_threads()
    a, b = np.random.default_rng(0).standard_normal((2, PRODUCT, PRODUCT)).astype(np.float32)
    a @ b
    product = min(repeated(lambda: a @ b, repetitions))
    sources = np.array_split(np.ones(COPY // 8), threads)
    targets = [np.zeros_like(source) for source in sources]
    units = np.arange(STREAM, dtype=np.int32)
    counts = [np.zeros(STREAM, np.uint8) for _ in range(threads)]
    add_bytes(units, counts[0], 1)
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(np.copyto, targets, sources))

        def add() -> None:
            list(pool.map(lambda count: add_bytes(units, count, _ADDS), counts))

        copy()
        moved, added = min(repeated(copy, repetitions)), min(repeated(add, repetitions))
    return Ceilings(2 * PRODUCT**3 / product, 2 * COPY / moved, threads * STREAM * _ADDS / added)


@jit
def add_bytes(units, count, times):
    """Add one to ``count[u]`` for every u of an ascending int32 list, `times` over."""
    for _ in range(times):
        for i in range(np.uint64(0), np.uint64(len(units))):
            count[np.uint32(units[i])] += np.uint8(1)


# ---- what an oracle must do ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """One part of an oracle's work.

    Attributes
    ----------
    name : as in the README
    flop : float32 operations, or what takes as long
    read : bytes that come from memory at least once
    adds : look-ups of one number with one addition each
    """

    name: str
    flop: float = 0.0
    read: float = 0.0
    adds: float = 0.0

    def seconds(self, ceilings: Ceilings) -> tuple[float, str]:
        """Return the least time and which ceiling sets it."""
        times = {
            "products": self.flop / ceilings.flop_per_s,
            "memory": self.read / ceilings.bytes_per_s,
            "byte-adds": self.adds / ceilings.adds_per_s,
        }
        limit = max(times, key=lambda name: times[name])
        return times[limit], limit


def floor_columns(works: list[Work], search_s: float, ceilings: Ceilings) -> dict[str, Any]:
    """Return the columns of a row: the floor, how many times it the search took, and what makes it up."""
    parts = {work.name: work.seconds(ceilings) for work in works}
    floor_s = sum(seconds for seconds, _ in parts.values())
    largest = max(parts, key=lambda name: parts[name][0])
    return {
        "floor_s": floor_s,
        "times_floor": search_s / floor_s,
        "floor_limit": parts[largest][1],
        "floor_parts": {
            work.name: {"s": parts[work.name][0], "flop": work.flop, "bytes": work.read, "adds": work.adds}
            for work in works
        },
        "ceilings": ceilings._asdict(),
    }


def work_of(index: Index, queries: Reports, name: str, stages: Mapping[str, float] | None = None) -> list[Work]:
    """Return what an oracle must do for a batch of queries.

    Parameters
    ----------
    index : Index
    queries : Reports
    name : one of bleu, rouge-l, radgraph, chexbert, bertscore, radcliq
    stages : dict
        Of metrics over vectors: the share of pairs that each stage of the search dropped, as the signature says.
    """
    metric = get_metric(name)
    representation: Any = index.representation(metric)
    encoded = representation.encode(queries)
    if name in ("chexbert", "bertscore", "radcliq"):
        assert stages is not None
        if name == "chexbert":
            return _codes(representation, len(encoded.vectors), stages)
        if name == "bertscore":
            return _cascade(representation, np.diff(encoded.ptr), stages)
        lengths = np.diff(encoded.parts["bertscore"].ptr)[encoded.document_of["bertscore"]]
        graphs, vectors = (encoded.parts[part] for part in ("radgraph", "chexbert"))
        return [
            *_cascade(representation.parts["bertscore"], lengths, stages),
            _all_postings(representation.parts["radgraph"], graphs, encoded.document_of["radgraph"]),
            _product(representation.parts["chexbert"], len(vectors.vectors)),
        ]
    best = np.zeros(int(encoded.document_of_row.max()) + 1)
    best[encoded.document_of_row] = mo.retrieve(index, queries, name, text=False).table["score"].to_numpy()
    features, packed = representation.features, representation.translate(metric, encoded).queries
    if name == "radgraph":
        n = count_radgraph(packed, best, representation.buckets(0, 1), features)
    elif name == "bleu":
        n = count_bleu(packed, best, representation.buckets, features)
    else:
        n = count_rouge_l(packed, best, representation.buckets, features)
    # A posting is a number of four bytes, read once, and one byte-add.
    return [Work("postings", read=POSTING * n, adds=n)]


def _codes(representation: Any, n_queries: int, stages: Mapping[str, float]) -> list[Work]:
    """Count a product of codes for each pair of distinct vectors, products of all dimensions for those that are left.

    How many pairs are left is taken from the run; that they ask memory for a vector each is not counted.
    """
    n_vectors, width = representation.vectors.shape
    pairs = float(n_queries) * n_vectors
    codes = representation.codes
    return [
        Work("codes", flop=2.0 * pairs * codes.shape[1], read=codes.nbytes),
        Work("products", flop=2.0 * width * pairs * (1.0 - stages["codes"] + DOUBLES * stages["scored"])),
    ]


def _product(representation: Any, n_queries: int) -> Work:
    """One inner product a pair of distinct vectors; the corpus's vectors are read once."""
    n_vectors, width = representation.vectors.shape
    return Work("product", flop=2.0 * n_queries * n_vectors * width, read=representation.vectors.nbytes)


def _all_postings(representation: Any, encoded: Any, place: np.ndarray) -> Work:
    """All postings of the queries' entities and relations: RadCliQ needs RadGraph F1 of every candidate."""
    features, queries = representation.features, representation.translate(get_metric("radgraph"), encoded).queries
    lengths = np.diff(features.post_ptr)
    n_families = queries.sizes.shape[1]
    n = sum(
        int(lengths[queries.id[queries.ptr[q * n_families] : queries.ptr[q * n_families + 2]]].sum()) for q in place
    )
    return Work("postings", read=POSTING * n, adds=n)


def _cascade(representation: Any, lengths: np.ndarray, stages: Mapping[str, float]) -> list[Work]:
    """BERTScore's cascade; how many pairs reach a stage is taken from the run, at the mean number of tokens.

    - look-ups: each distinct query needs a bound on precision of each candidate, one look-up a token of the corpus (a
      cell and a radius, three bytes, which several queries can share).
    - codes: pairs that the cells left have products of bytes. Those that the codes drop need the candidate's first
      tokens only (`chunk_of`), the others all.
    - products: pairs that the codes left have a float32 product of all dimensions; scored ones, a float64 product too.
    """
    n_tokens, width = representation.states.shape
    token_pairs = float(lengths.sum()) * n_tokens
    reached = 1.0 - stages["cells"] - stages["codes"]
    of_document = np.diff(representation.ptr)
    first_pairs = sum(n * float(np.minimum(of_document, chunk_of(n)).sum()) for n in lengths.tolist())
    coded_pairs = first_pairs * stages["codes"] + token_pairs * reached
    products = 2.0 * width * token_pairs * (reached + DOUBLES * stages["scored"])
    return [
        Work("look-ups", read=3.0 * n_tokens, adds=float(len(lengths)) * n_tokens),
        Work("codes", flop=2.0 * representation.screens["codes"].shape[1] * coded_pairs / BYTES_A_FLOAT),
        Work("products", flop=products),
    ]


# A unit that reaches the best score shares at least `need` features with the query, so it stands in one of n - need + 1
# of the query's n posting lists, whichever are taken: here the shortest, as in the search, and of them the parts with
# units of that size. Entities and relations are taken in one order, until what is left cannot reach the best score.


@jit
def _least(ids, need, cell, cells, index):
    """Count the postings of a cell that must be read."""
    n = np.int64(0)
    for i in range(len(ids) + 1 - max(need, 1)):
        begin, end = postings(ids[i], cells, cell, cell + 1, index)
        n += end - begin
    return n


@jit
def count_rouge_l(queries, best, cells, index):
    """Return the postings that ROUGE-L's search must read; the common subsequence is at most the shared words."""
    n = np.int64(0)
    for q in range(len(best)):
        ids = by_rarity(queries.id[queries.ptr[q] : queries.ptr[q + 1]], index.post_ptr)
        length = np.int64(queries.sizes[q, 0])
        for j in range(len(cells)):
            need = 0
            while need <= len(ids) and rouge_l(min(need, cells[j, 2]), cells[j, 2], length) < best[q] * SLACK:
                need += 1
            n += _least(ids, need, j, cells, index)
    return n


@jit
def count_bleu(queries, best, cells, index):
    """Return the postings of bigrams that BLEU-2's search must read; all known unigrams are taken for matched."""
    n = np.int64(0)
    n_families = queries.sizes.shape[1]
    for q in range(len(best)):
        base = q * n_families
        known = queries.ptr[base + 1] - queries.ptr[base]
        ids = by_rarity(queries.id[queries.ptr[base + 1] : queries.ptr[base + 2]], index.post_ptr)
        length = np.int64(queries.sizes[q, 0])
        for j in range(len(cells)):
            size = cells[j, 2]
            need = 0
            while need <= len(ids):
                m1, m2 = min(known, size), max(min(need, size - 1), 0)
                if bleu(m1, m2, 0, 0, size, length, 2, False) >= best[q] * SLACK:
                    break
                need += 1
            n += _least(ids, need, j, cells, index)
    return n


@jit
def count_radgraph(queries, best, cells, index):
    """Return the postings of entities and relations that RadGraph's search must read."""
    n = np.int64(0)
    n_families = queries.sizes.shape[1]
    for q in range(len(best)):
        base = q * n_families
        ids_a = queries.id[queries.ptr[base] : queries.ptr[base + 1]]
        ids_b = queries.id[queries.ptr[base + 1] : queries.ptr[base + 2]]
        ids = by_rarity(np.concatenate((ids_a, ids_b)), index.post_ptr)
        first_b = ids_b.min() if len(ids_b) > 0 else np.int32(2**31 - 1)
        size_a, size_b = np.int64(queries.sizes[q, 0]), np.int64(queries.sizes[q, 1])
        for j in range(len(cells)):
            a, b = len(ids_a), len(ids_b)  # that a unit can match which was in none of the lists so far
            for i in range(len(ids)):
                m_a, m_b = min(a, cells[j, 2]), min(b, cells[j, 4])
                bound = mean_f1(m_a, cells[j, 2] + size_a, m_b, cells[j, 4] + size_b)
                if (m_a == 0 and m_b == 0) or bound < best[q] * SLACK:
                    break
                begin, end = postings(ids[i], cells, j, j + 1, index)
                n += end - begin
                if ids[i] >= first_b:
                    b -= 1
                else:
                    a -= 1
    return n
