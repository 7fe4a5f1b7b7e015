"""Other ways beside our search: the time of a whole search of distinct reports, theirs over ours."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import metric_oracle as mo
from benchmarks.bench import Bench, Measurement, beside, in_turns, installed, need_embeddings, need_states, why_not_cuda
from benchmarks.data import Sample, SkippedError
from benchmarks.peers import PEERS, SEARCHES, FaissFlat, recall_of
from benchmarks.state_peers import need_gpu
from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.option_types import Backend
from metric_oracle.bench.timing import columns_of, study, timed
from metric_oracle.metrics import get_metric

_COMPARED = 5  # test reports of the peers' sample that have their scores compared


def peer(name: str, bench: Bench) -> Measurement:
    """Time a scorer of pairs on a sample, on which its scores must be ours."""
    record = PEERS[name]
    references, candidates = bench.sample.references, bench.sample.candidates[: record.n_candidates]
    with installed(str(record.package)):
        score = record.build(references, candidates)
    difference = _largest_difference(bench.sample, record.metric, score())
    if difference > 1e-9:
        msg = f"its scores differ from ours by up to {difference:.3g}: not timed"
        raise SkippedError(msg)
    n_pairs = len(references) * len(candidates)
    columns = {"same": True, "peer_cores": record.cores or n_threads(), "largest_difference": difference}
    return _timed_beside(bench, record.metric, {record.title: score}, n_pairs, columns)


def _largest_difference(sample: Sample, metric: str, scores: np.ndarray) -> float:
    """Compare a peer's scores of the first references with ours."""
    n_queries = min(_COMPARED, len(scores))
    queries = sample.queries.take(np.arange(n_queries))
    table = mo.retrieve(sample.index, queries, metric, k=sample.index.n_reports, text=False).table
    ours = np.empty((n_queries, sample.index.n_reports))
    ours[np.repeat(np.arange(n_queries), sample.index.n_reports), table["row"].to_numpy()] = table["score"].to_numpy()
    return float(np.abs(ours[:, : scores.shape[1]] - scores[:n_queries]).max())


def whole_search(name: str, bench: Bench) -> Measurement:
    """Time a search of distinct documents, all of whose answers are scored again."""
    record, data = SEARCHES[name], bench.data
    with installed(record.package):
        search = record.build(data)
    found = search()
    recall = recall_of(found, data, record.metric)
    if record.exact and recall < 1:
        msg = f"it finds our best score for {100 * recall:.3g} % of the queries only: not timed"
        raise SkippedError(msg)
    n_units = len(data.index.representation(get_metric(record.metric)).row_ptr) - 1
    columns = {"same": record.exact, "recall": recall}
    return _timed_beside(bench, record.metric, {record.title: search}, len(found) * n_units, columns)


def faiss(on_gpu: bool, bench: Bench) -> Measurement:
    """Time FAISS on the distinct vectors, and on a row for each report; the faster way counts."""
    data = bench.data
    need_embeddings(data)
    assert data.vectors is not None
    found = mo.retrieve(data.index, data.queries, "chexbert").table["score"].to_numpy()
    representation = data.index.part("chexbert")
    which = np.unique(representation.encode(data.queries).document_of_row, return_index=True)[1]
    rows = representation.row_id[representation.row_ptr[:-1]]
    every = np.arange(len(found)), np.arange(data.index.n_reports)
    ways: dict[str, Callable[[], Any]] = {}
    difference = 0.0
    for way, (queries, documents) in {"distinct vectors": (which, rows), "a row a report": every}.items():
        flat = FaissFlat(on_gpu)
        flat.build(np.load(data.vectors / "train.npy")[documents], np.load(data.vectors / "test.npy")[queries])
        difference = max(difference, float(np.abs(flat.search()[0] - found[queries]).max()))
        ways[f"faiss IndexFlatIP{' on the GPU' if on_gpu else ''}, {way}"] = flat.search
    if difference > 1e-5:
        msg = f"its scores differ from ours by up to {difference:.3g}: not timed"
        raise SkippedError(msg)
    backend: Backend = "cuda" if on_gpu and why_not_cuda("chexbert", data) is None else "cpu"
    columns = {"same": True, "largest_difference": difference}
    return _timed_beside(bench, "chexbert", ways, len(which) * len(rows), columns, backend)


def product_on_gpu(bench: Bench) -> Measurement:
    """Time a float32 product of all distinct vectors on a GPU, and the best document of each query."""
    data = bench.data
    need_embeddings(data)
    device = need_gpu()
    import torch

    assert data.vectors is not None
    found = mo.retrieve(data.index, data.queries, "chexbert").table["score"].to_numpy()
    representation = data.index.part("chexbert")
    which = np.unique(representation.encode(data.queries).document_of_row, return_index=True)[1]
    rows = representation.row_id[representation.row_ptr[:-1]]
    sides = [np.load(data.vectors / f"{split}.npy")[some] for split, some in (("test", which), ("train", rows))]
    queries, documents = (torch.from_numpy(side).to(device) for side in sides)
    queries, documents = (side / side.norm(dim=1, keepdim=True) for side in (queries, documents))

    def search() -> np.ndarray:
        best = [(some @ documents.T).max(dim=1).values for some in queries.split(256)]
        return torch.cat(best).cpu().numpy()

    difference = float(np.abs(search() - found[which]).max())
    if difference > 1e-5:
        msg = f"its scores differ from ours by up to {difference:.3g}: not timed"
        raise SkippedError(msg)
    backend: Backend = "cuda" if why_not_cuda("chexbert", data) is None else "cpu"
    columns = {"same": True, "largest_difference": difference}
    ways = {"torch, float32 product on the GPU": search}
    return _timed_beside(bench, "chexbert", ways, len(which) * len(rows), columns, backend)


def states(name: str, bench: Bench) -> Measurement:
    """Return the time of a peer over token states, in turns with our search, whose encoding is left out."""
    need_states("bertscore")
    side = bench.state_sides[name]
    if isinstance(side, SkippedError):
        raise side
    backend: Backend = "cuda" if side.on_gpu and ("bertscore", "cuda") in bench.rounds else "cpu"
    studies, data = bench.rounds["bertscore", backend], bench.states
    distinct = columns_of(studies, data.index, data.queries, "bertscore")["distinct_pairs"]
    ours = [s.search for s in studies]
    return beside(bench.rounds["peer", name], ours, side.n_pairs, data, distinct, backend=backend, **side.columns)


def _timed_beside(
    bench: Bench,
    metric: str,
    ways: dict[str, Callable[[], Any]],
    n_pairs: int,
    columns: dict[str, Any],
    backend: Backend = "cpu",
) -> Measurement:
    """Time the ways of a peer and our search in turns, after a call of each; the peer's fastest way counts."""
    data = bench.data
    ours = partial(study, data.index, data.queries, metric, backend)
    sides: dict[str, Callable[[], Any]] = {way: partial(timed, run) for way, run in ways.items()} | {"": ours}
    in_turns(sides, 1)
    rounds = in_turns(sides, bench.repetitions)
    studies = rounds.pop("")
    seconds: dict[str, float] = {way: float(np.median(times)) for way, times in rounds.items()}
    fastest = min(seconds, key=lambda way: seconds[way])
    if len(ways) > 1:
        columns |= {"ways_s": seconds}
    distinct = columns_of(studies, data.index, data.queries, metric)["distinct_pairs"]
    ours_s = [s.total for s in studies]
    columns |= {"peer": fastest, "backend": backend}
    return beside(rounds[fastest], ours_s, n_pairs, data, distinct, **columns)
