"""BERTScore search on a GPU: products of short codes bound every score on the device; the host scores the best exactly.

A code holds the coordinates of a token state in a space of few dimensions (a projection). The README of this folder
proves the bound. The device uses PyTorch and one Triton kernel (`segment_maxima.py`); Triton's interpreter runs this
very code on a CPU in the tests.
"""

import math
import queue
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels._errors import FLOAT64, check_bounds, product_error, sample_size
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.bertscore import cpu
from metric_oracle.kernels.bertscore.bounds import TINY, Ranking, margins_of, part_of
from metric_oracle.kernels.bertscore.cascade import every_document, finish_in_order, reset
from metric_oracle.kernels.bertscore.cpu import (
    collect_scores,
    final_scores,
    items_of,
    least_of,
    new_scratch,
)
from metric_oracle.kernels.bertscore.exact import exact_pair
from metric_oracle.kernels.bertscore.projections import (
    COLUMNS,
    REACH,
    Piece,
    QueryTiles,
    Resident,
    Weighed,
    code_error,
    upper_bounds,
)
from metric_oracle.kernels.bertscore.query import pack_query
from metric_oracle.kernels.contract import Capabilities

LIBRARY = "triton"
DEVICE = "cuda"
WIDTH, LEAST_WIDTH = 128, 16  # of a code: coordinates of a projection, and the length of the remainder
SAMPLE = 1 << 17  # tokens from which the basis is made
BLOCK = 1 << 16  # tokens of an upload
CELLS = 1 << 26  # bounds at once, 512 MB; halved where the device has no room
AHEAD = 256  # queries of a search that a device bounds together, for all threads
ENTRIES = 1 << 22  # limit of their lists, 50 MB: fewer queries for a large k
LISTED = 256  # items of a query that the host gets first
MORE = 16  # factor by which the list grows if it was too short
STAGES = ("projection", "float32")

_IDLE: dict[str, queue.SimpleQueue] = {}  # idle devices
_LOCK = threading.Lock()


class SharedLists:
    """The items with the greatest bounds of each query of a search, shared by all its threads.

    The first thread that asks for a query's list computes the lists of a whole block of queries, and the others wait.
    So the device gets large blocks, and all threads score the items of one block while the device works on the next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, tuple[Future, set[int]]] = {}

    def take(self, q, n_queries, listed, make):
        """Return the list of query q, one of `n_queries`; each list may be taken once.

        If there is no list yet, ``make(queries)`` returns those of a block of consecutive queries, with `listed` items
        each. If it raises an error, so does each call for a query of the block.
        """
        size = min(max(ENTRIES // listed, 1), AHEAD)
        first = q // size * size
        places = range(first, min(first + size, n_queries))
        with self._lock:
            is_first = first not in self._blocks
            lists, left = self._blocks.setdefault(first, (Future(), set(places)))
        if is_first:
            try:
                lists.set_result(make(places))
            except BaseException as error:  # after any error, no thread may wait for ever
                lists.set_exception(error)
        results = lists.result()[q - first]
        with self._lock:
            left.discard(q)
            if not left:
                self._blocks.pop(first, None)
        return results


def find(corpus, batch, places, k, items, work, part, scored, lists=None):
    """Return, for each query, the items that may be among its k best rows, and their exact precision and recall.

    For each they are int64[n], float64[n] and float64[n]. Raise ExactnessError as `cpu.find` does.

    Parameters
    ----------
    places : sequence of int
        Numbers of distinct queries.
    items : list of Items
        For each query: the same documents, their rows and offsets.
    work, part, scored : as for `cpu.find`
    lists : list of (int32[n], float64[n]), or None
        For each query, the items with the greatest bounds as `_listed` returns them, which are raised in place to cover
        rounding; None to compute them here.
    """
    n_items, n_sampled = len(items[0].document), sample_size(len(batch.ptr) - 1)
    scratch, answers = new_scratch(work, corpus, n_items, len(corpus.centers), batch.longest, k)
    margins = margins_of(corpus.states.shape[1], corpus.norm_error)
    done: dict[int, Any] = {}
    listed = n_listed(k)
    while len(done) < len(places):
        left = [i for i in range(len(places)) if i not in done]
        if lists is None:
            requests = [(places[i], items[i]) for i in left]
            lists = _listed(corpus, batch, requests, min(listed, n_items), part)
        for i, (item, bound) in zip(left, lists, strict=True):
            bound += TINY * (np.abs(bound) + np.abs(items[i].offset[item]))
            scratch.kept[: len(item)], scratch.kept_bound[: len(item)] = item, bound
            # Without the codes of the cascade, which would take 40 % of the time and are not used here.
            states, weights = batch.states_of(places[i]), batch.weights_of(places[i])
            query, _ = pack_query(states, weights, corpus.basis[:, :0], corpus.direction)
            ranking = Ranking(part, corpus, query, margins)
            if _finish(len(item), ranking, k, items[i], scratch, answers):
                drawn = np.random.default_rng(places[i]).integers(n_items, size=n_sampled)
                _check(np.append(drawn, answers.state[4]), ranking, items[i], scratch, answers)
                done[i] = collect_scores(scored, places[i], items[i], answers)
        lists = None
        listed *= MORE
    check_bounds(dict(zip(STAGES, _closest(work).tolist(), strict=True)), int(work["counts"][4]))
    return [done[i] for i in range(len(places))]


def n_listed(k):
    """Return how many items per query, those with the greatest bounds, the device sends to the host at first."""
    return max(LISTED, 4 * k)


def _finish(n_listed, ranking, k, items, work, scores):
    """Score the listed items by descending bound; return whether no other item can be among the k best rows.

    `work.kept` and `work.kept_bound` hold the first `n_listed` of the items by bound. `scores`, an `ItemScores`, is
    reset before.
    """
    n_items = len(items.document)
    reset(scores, items.least)
    n_seen, n_scored = finish_in_order(np.arange(n_listed), ranking, k, items, work, scores)
    if n_seen == n_listed and n_listed < n_items:
        return False
    scores.counts[0] += n_items - n_seen
    scores.counts[2] += n_seen - n_scored
    scores.counts[3] += n_scored
    return True


@jit
def _check(sample, ranking, items, work, scores):
    """Compare each score with the bound of its item; score a sample of items, which must be below the k-th best score.

    `sample`, int64[n], are items, or -1 for none; those that were scored before are skipped. ``scores.closest[0]`` is
    lowered to the least difference, and the number of items that fail is added to ``scores.counts[4]``.
    """
    part, corpus, query, _ = ranking
    j = 0
    for n in range(scores.state[0]):
        i = scores.item[n]
        while work.kept[j] != i:  # items were scored in the order of the list
            j += 1
        score = part_of(part, scores.precision[n], scores.recall[n]) + items.offset[i] - items.error
        scores.closest[0] = min(scores.closest[0], work.kept_bound[j] - score)
    for i in sample:
        if i >= 0 and not scores.is_scored[i]:
            precision, recall = exact_pair(np.int64(items.document[i]), corpus, query, work)
            if part_of(part, precision, recall) + items.offset[i] - items.error >= scores.threshold[0]:
                scores.counts[4] += 1


def stages(works):
    """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

    A closest call is a stage's least bound - score. `works` are the dicts that `cpu.new_scratch` filled. Without a pair
    all shares are 0.
    """
    counts = sum((work["counts"] for work in works if work), np.zeros(5, np.int64))
    total = max(int(counts.sum()), 1)
    shares = {name: float(counts[i] / total) for name, i in zip((*STAGES, "scored"), (0, 2, 3), strict=True)}
    least = np.min([_closest(work) for work in works if work], axis=0, initial=np.inf)
    closest = dict(zip(STAGES, np.broadcast_to(least, len(STAGES)).tolist(), strict=True))
    return {**shares, "closest_call": {name: x for name, x in closest.items() if x < np.inf}}


def _closest(work):
    """Return, for each of `STAGES`, the minimum of bound - score over all exactly scored pairs of a thread."""
    return work["closest"][[0, 2]]


# ---- on the device ---------------------------------------------------------------------------------------------------


@contextmanager
def _one_device():
    """Context manager that reserves a GPU for this thread and makes it current; it gives the number of the GPU.

    It waits while all are reserved. Errors of the GPU are cut to one line.
    """
    with _LOCK:
        if DEVICE not in _IDLE:
            _IDLE[DEVICE] = queue.SimpleQueue()
            for number, context in enumerate(_device.devices("torch")):
                _IDLE[DEVICE].put((number, context))
    number, context = _IDLE[DEVICE].get()
    try:
        with _device.in_one_line(), context:
            yield number
    finally:
        _IDLE[DEVICE].put((number, context))


def _listed(corpus, batch, requests, listed, part):
    """Return, for each query, the items with the greatest bounds and these bounds, in descending order.

    They are int32[listed] and float64[listed]. `requests` has the number and the `Items` of each query; `part` is the
    score to bound: PRECISION, RECALL or F1.
    """
    n_items = len(requests[0][1].document)
    lists: list[Any] = []
    with _one_device() as number:
        try:
            with _device.in_one_line():
                resident = _device.resident(
                    corpus.row_ptr, f"token codes on {DEVICE} {number}", lambda: _upload(corpus)
                )
            while len(lists) < len(requests):
                chunk = requests[len(lists) :][: max(resident.cells // n_items, 1)]
                try:
                    with _device.in_one_line():
                        lists.extend(_best_bounds(resident, corpus, batch, chunk, listed, part))
                except _device.NoRoomError:
                    if len(chunk) == 1:
                        raise
                    resident.cells = len(chunk) // 2 * n_items
        except _device.NoRoomError as error:
            raise _device.NoRoomError(
                "the GPU",
                "must have room for some of the corpus's token codes and one query",
                "too little",
                'Free its memory, or use backend "cpu".',
            ) from error
    return lists


def _upload(corpus):
    """Compute the codes of the corpus on the current device, and return them as a `Resident`.

    If they do not fit, they are kept on the host, in pieces.
    """
    import torch

    states = corpus.states.view(np.float16) if corpus.states.dtype == np.uint16 else corpus.states
    lengths = np.diff(corpus.ptr)
    basis = _basis(states)
    width = basis.shape[1] + 1
    token_bytes = 2 * width + corpus.ids.itemsize + 8 + 4
    room = _room_bytes()
    fits = len(states) * token_bytes <= room
    edges = [0, len(lengths)] if fits else _edges(corpus.ptr, room / 2 / token_bytes)
    pieces, error = [], 0.0
    for first, last in pairwise(edges):
        a, b = int(corpus.ptr[first]), int(corpus.ptr[last])
        home = DEVICE if fits else "cpu"
        codes = torch.empty((b - a, width), dtype=torch.float16, device=home)
        for t in range(a, b, BLOCK):
            chunk = torch.from_numpy(np.array(states[t : min(t + BLOCK, b)])).to(DEVICE)
            codes[t - a : t - a + len(chunk)], off = _codes(chunk, basis)
            error = max(error, off)
        document = np.repeat(np.arange(last - first), lengths[first:last])
        arrays = (np.array(corpus.ids[a:b]), document, corpus.ptr[first : last + 1] - a)
        pieces.append(Piece(first, lengths[first:last], codes, *(torch.from_numpy(x).to(home) for x in arrays)))
    return Resident(basis, pieces, error, CELLS)


def _room_bytes():
    """Return how many bytes of the current device a corpus may take, after room is left for a block of queries."""
    import torch

    return _device.SHARE_OF_MEMORY * torch.cuda.mem_get_info()[0] / 2 if DEVICE == "cuda" else np.inf


def _edges(ptr, most):
    """Return the edges of runs of documents of at most `most` tokens each; a longer document is a run of its own.

    They are a list of document numbers from 0 to D; `ptr`, int64[D + 1], has the offset of each document's tokens.
    """
    edges = [0]
    while edges[-1] < len(ptr) - 1:
        edges.append(max(int(np.searchsorted(ptr, ptr[edges[-1]] + most, side="right")) - 1, edges[-1] + 1))
    return edges


def _basis(states):
    """Return the leading eigenvectors of a sample of token states as columns, padded with zeros: float64[d, K - 1]."""
    import torch

    chunk = np.linspace(0, len(states) - 1, min(SAMPLE, len(states))).astype(np.int64)
    unit = _directions(torch.from_numpy(states[chunk]).to(DEVICE))
    _, vectors = torch.linalg.eigh(unit.T @ unit)
    d = len(vectors)
    width = min(WIDTH, max(LEAST_WIDTH, 1 << d.bit_length()))
    basis = torch.zeros((d, width - 1), dtype=torch.float64, device=DEVICE)
    n = min(width - 1, d)
    basis[:, :n] = vectors[:, d - n :]
    return basis


def _directions(states):
    """Return token states scaled to length 1, float64[n, d]; a zero vector stays zero."""
    wide = states.double()
    return wide / wide.norm(dim=1, keepdim=True).clamp_min(1e-300)


def _codes(states, basis):
    """Return the codes of token states, a tensor float16[n, K], and the maximum error of their coordinates.

    The last number of a code is the length of the remainder, rounded up. `basis` is what `_basis` returns. The error
    includes the deviation of the basis from orthonormality.
    """
    import torch

    unit = _directions(states)
    inside = unit @ basis
    coordinates = inside.half()
    kept = coordinates.double()
    square = basis.T @ basis
    askew = (square - square.round()).norm().item()
    computed = math.sqrt(basis.shape[1]) * product_error(len(basis), REACH, FLOAT64)
    error = (inside - kept).norm(dim=1).max().item() + 2 * askew + computed
    rest = (unit - kept @ basis.T).norm(dim=1)
    upwards = rest * (1 + 2.0**-10) + 2.0**-24  # twice what rounding to float16 takes away, and float64 before it
    return torch.cat([coordinates, upwards.half()[:, None]], dim=1), error


def _best_bounds(resident, corpus, batch, requests, listed, part):
    """Yield, for each query, the items with its `listed` greatest bounds, and these, in descending order.

    They are int32[n] and float64[n]. `requests` has the number and the `Items` of each query, `resident` the codes of
    the corpus; `part` is the score to bound: PRECISION, RECALL or F1.
    """
    import torch

    places = [q for q, _ in requests]
    items = requests[0][1]
    block = _block(resident, [batch.states_of(q) for q in places], [batch.weights_of(q) for q in places])
    offset = None if items.alone else torch.from_numpy(np.stack([x.offset for _, x in requests])).to(DEVICE)
    item = torch.empty((len(requests), 0), dtype=torch.int64, device=DEVICE)
    bound = torch.empty((len(requests), 0), dtype=torch.float64, device=DEVICE)
    for waiting, of_waiting in zip(resident.pieces, _weighed(resident, corpus.weight_of_id), strict=True):
        piece, weighed = waiting.to(DEVICE), of_waiting.to(DEVICE)
        first, last = np.searchsorted(items.document, [piece.first, piece.first + len(piece.lengths)]).tolist()
        if first == last:
            continue
        upper = _upper_bounds(piece, weighed, block, resident.error, part)
        if offset is not None:
            document = torch.from_numpy(items.document[first:last].astype(np.int64) - piece.first).to(DEVICE)
            upper = upper[:, document] + offset[:, first:last]
        best = upper.topk(min(listed, last - first), dim=1)
        item, bound = torch.cat([item, best.indices + first], dim=1), torch.cat([bound, best.values], dim=1)
        if bound.shape[1] > listed:
            best = bound.topk(listed, dim=1)
            item, bound = item.gather(1, best.indices), best.values
    # Several pieces may all fit into the list.
    order = bound.argsort(dim=1, descending=True)
    yield from zip(*(x.gather(1, order).cpu().numpy() for x in (item.int(), bound)), strict=True)


def _block(resident, states, weights):
    """Lay out the token states and weights of a batch of queries on the device, as `QueryTiles` for the Triton kernel.

    `states` and `weights` have an array for each query; `resident` has the basis of their codes.
    """
    import torch

    lengths = np.array([len(x) for x in states])
    n_tiles = -(-lengths // COLUMNS)
    ends = np.cumsum(lengths)
    # The last token of a query pads its last tile.
    token = np.concatenate(
        [np.minimum(np.arange(m * COLUMNS), n - 1) + end - n for m, n, end in zip(n_tiles, lengths, ends, strict=True)]
    )
    shares = [x / x.sum() for x in weights]
    filled = [np.pad(x, (0, m * COLUMNS - len(x))) for x, m in zip(shares, n_tiles, strict=True)]
    last = np.cumsum(n_tiles) - 1
    tiles = np.zeros((3, n_tiles.sum()), np.int32)
    tiles[0] = np.repeat(np.arange(len(states)), n_tiles)
    tiles[1, np.r_[0, last[:-1] + 1]] = 1
    tiles[2, last] = 1
    codes, error = _codes(torch.from_numpy(np.concatenate(states)).to(DEVICE), resident.basis)
    rest = np.split(codes[:, -1].double().cpu().numpy(), ends[:-1])
    most, mean = [x.max() for x in rest], [x @ share for x, share in zip(rest, shares, strict=True)]
    return QueryTiles(
        codes[torch.from_numpy(token).to(DEVICE)],
        weights=torch.from_numpy(np.concatenate(filled).astype(np.float32)).to(DEVICE),
        tiles=torch.from_numpy(tiles).to(DEVICE),
        lengths=torch.from_numpy(lengths).to(DEVICE),
        longest=int(lengths.max()),
        most=torch.tensor(most, device=DEVICE)[:, None],
        mean=torch.tensor(mean, device=DEVICE)[:, None],
        error=error,
    )


def _weighed(resident, weight_of_id):
    """Return the arrays of each piece of `resident` that depend on token weights, as `Weighed`.

    They are kept until the weights, float64[ids], change.
    """
    import torch

    if resident.weight_of_id is None or not np.array_equal(resident.weight_of_id, weight_of_id):
        weights = torch.from_numpy(np.array(weight_of_id)).to(DEVICE)
        resident.weight_of_id = None
        resident.weighed = [_weigh(x.to(DEVICE), weights).to(x.codes.device) for x in resident.pieces]
        resident.weight_of_id = np.array(weight_of_id)
    return resident.weighed


def _weigh(piece, weight_of_id):
    """Return the `Weighed` of a piece of the corpus, computed on the device from the weights of token ids."""
    import torch

    weights = weight_of_id[piece.ids.long()]
    rest = piece.codes[:, -1].double()
    zeros = torch.zeros(len(piece.lengths), dtype=torch.float64, device=DEVICE)
    total = zeros.index_add(0, piece.document, weights)[piece.document]
    share = (weights / total).where(total > 0, 0.0)
    mean = zeros.index_add(0, piece.document, share * rest)
    return Weighed(share.float(), mean, zeros.scatter_reduce(0, piece.document, rest, "amax"))


def _upper_bounds(piece, weighed, block, error, part):
    """Return upper bounds on the score of every query with every document of a piece of the corpus: float64[B, D].

    They are infinite for documents of more than `MOST_ROWS` tokens, and 0 where a side has only the two special tokens.
    `weighed` is the `Weighed` of the piece, `block` holds the queries, `error` is that of `Resident`, and `part` the
    score to bound: PRECISION, RECALL or F1.
    """
    import torch

    from metric_oracle.kernels.bertscore.segment_maxima import MOST_ROWS, n_beyond, segment_maxima

    precision = torch.empty((len(block.lengths), len(piece.lengths)), dtype=torch.float32, device=DEVICE)
    recall = torch.empty_like(precision)
    segment_maxima(
        piece.codes, piece.ptr, piece.lengths, weighed.share, block.codes, block.weights, block.tiles, precision, recall
    )
    longest = max(min(int(piece.lengths[0]), MOST_ROWS), block.longest)
    slack = code_error(error, block.error, piece.codes.shape[1], longest)
    spread = 2 * (block.most * weighed.mean + weighed.most * block.mean)
    upper = upper_bounds(precision.double(), recall.double(), slack, spread, part)
    upper[:, : n_beyond(piece.lengths)] = np.inf  # the host scores them
    words = torch.from_numpy(piece.lengths != 2).to(DEVICE)
    return upper.where(words & (block.lengths != 2)[:, None], 0.0)


@dataclass(frozen=True)
class Backend(_device.ByLibrary, cpu.Backend):
    """BERTScore on GPUs."""

    lists: SharedLists = field(default_factory=SharedLists, compare=False, repr=False)
    library: ClassVar[str] = LIBRARY
    capabilities: ClassVar[Capabilities] = Capabilities(signed=True)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`.

        Raise DeviceError if the device fails, or has no room for one query.
        """
        n = len(corpus.row_ptr) - 1
        items = every_document(corpus.row_ptr)
        every = items_of(items, queries, least_of(answers.limit[queries], batch.baseline, self.part), answers)
        listed = min(n_listed(k), n)

        def make(block):
            """Return the lists of a block of queries, computed on a GPU."""
            return _listed(corpus, batch, [(q, items) for q in block], listed, self.part)

        lists = [self.lists.take(q, len(batch.ptr) - 1, listed, make) for q in queries]
        results = find(corpus, batch, queries, k, every, workspace, self.part, self.scored, lists)
        for q, (item, precision, recall) in zip(queries, results, strict=True):
            scores = final_scores(precision, recall, batch.baseline)[self.part]
            answers.put(q, item, scores, corpus, k)

    def stages(self, workspaces):
        """Return, as a dict, the shares of pairs that each stage dropped and that were scored, and the closest calls.

        `workspaces` are the dicts of the threads.
        """
        return stages(workspaces)
