"""BERTScore search on a GPU: float16 products bound every unit from both sides, the host scores what is left.

The README of this folder proves the bound. Plain torch operations only, so that the tests run this very code on torch's
CPU device. Queries of one length stand side by side, as do units of one length: no padding anywhere.
"""

import threading
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels.bertscore.cpu import (
    SLACK,
    Items,
    _approximate,
    _finish,
    _part,
    _room,
    _widen,
    components,
    final_scores,
    new_work,
    pack_query,
)
from metric_oracle.kernels.bertscore.score import F1, PRECISION
from metric_oracle.kernels.topk.reference import select

__all__ = ["components", "is_usable", "new_work", "search", "stages"]

LIBRARY = "torch"
DEVICE = "cuda"
CELLS = 1 << 28  # products at once, 512 MB; halved where the device has no room
BLOCK = 1 << 14  # tokens of an upload
STAGES = ("float16", "float32")
ROUNDING = 1e-9  # for all float64 sums, here and in the exact score: far above them, far below a float16
RELATIVE = 1e-12  # for F1 from its parts, and for values that only rescaling makes equal

_DEVICE_LOCK = threading.Lock()  # one block of queries on the device at a time; others are finished on the host


@dataclass
class Resident:
    """A corpus on the device; T tokens, D units.

    Attributes
    ----------
    states : float16 or float32[T, d], as stored
    ids : int32[T]
    unit : int32[T], unit of each token
    rows : int64[D], corpus rows of each unit
    scorable : bool[D], False where precision and recall are 0 by definition
    error : float
        Greatest distance between a state as float16 and the unit vector that it stands for.
    cells : int
        Products at once.
    """

    states: Any
    ids: Any
    unit: Any
    rows: Any
    scorable: Any
    error: float
    cells: int


def is_usable() -> bool:
    """Return whether torch is there and sees a CUDA device."""
    return not _device.lacking(LIBRARY)


def product_error(corpus_error, query_error, width):
    """Bound how far a float16 product of two states, summed in float32, lies from their cosine.

    Parameters
    ----------
    corpus_error, query_error : float or tensor
        Distance of the float16 vector from the unit vector that it stands for.
    width : int
    """
    lengths = (1 + corpus_error) * (1 + query_error)
    inputs = corpus_error + (1 + corpus_error) * query_error
    # No more than 2 d roundings or truncations to 24 bits of numbers up to 1, in any order, tensor cores included.
    sums = 2 * (width + 8) * 2.0**-23
    output = 2.0**-11 * (1 + sums)
    return inputs + lengths * (sums + output) + 2.0**-25 + ROUNDING


def search(index, encoded, first, last, k, found, work, part=F1):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1.

    Raises
    ------
    DeviceError
        If the device cannot hold the corpus and one query.
    """
    import torch

    try:
        with _DEVICE_LOCK, _device.plain_arithmetic(DEVICE):
            left = list(_screen(_resident(index), index.ptr, encoded, first, last, k, part))
    except torch.OutOfMemoryError as error:
        msg = (
            f"retrieve: the GPU must have room for the corpus's token states, {index.states.nbytes / 1e9:.2f} GB, and "
            'one query; got too little. Free its memory, or use backend "cpu".'
        )
        raise _device.NoRoomError(msg) from error
    corpus = encoded.corpus
    n_units = len(index.ptr) - 1
    items = Items(np.arange(n_units, dtype=np.int32), np.zeros(n_units, np.float32), 0.0, True, index.row_ptr)
    scratch, answers = _room(work, corpus, n_units, len(index.centers), encoded.longest, k)
    for q, (units, bound) in zip(range(first, last), left, strict=True):
        query, _ = pack_query(encoded.states_of(q), encoded.weights_of(q), index.basis, index.direction)
        _finish_units(units, bound, part, k, items, corpus, query, scratch, answers)
        n = answers.state[0]
        scores = final_scores(answers.precision[:n], answers.recall[:n], encoded.baseline)[part]
        unit = answers.item[:n].astype(np.int64)
        found.rows[q], found.scores[q], found.ties[q] = select(unit, scores, index.row_ptr, index.row_id, k)


def stages(works):
    """Return the share of pairs that each stage dropped, and the share that was scored in float64."""
    counts = sum((work["answers"].counts for work in works if work), np.zeros(4, np.int64))
    total = max(int(counts.sum()), 1)
    return {name: float(counts[i] / total) for name, i in zip((*STAGES, "scored"), (0, 2, 3), strict=True)}


def _resident(index):
    """Return the corpus on the device, brought there once and kept as long as the index."""
    return _device.resident(index, f"token states on {DEVICE}", lambda: _upload(index))


def _upload(index):
    import torch

    lengths = np.diff(index.ptr)
    states = torch.empty(index.states.shape, dtype=getattr(torch, index.states.dtype.name), device=DEVICE)
    error = 0.0
    for first in range(0, len(states), BLOCK):
        block = states[first : first + BLOCK]
        block.copy_(torch.from_numpy(np.array(index.states[first : first + BLOCK])))
        error = max(error, _rounding(block).max().item())
    return Resident(
        states,
        ids=torch.from_numpy(np.array(index.ids)).to(DEVICE),
        unit=torch.from_numpy(np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)).to(DEVICE),
        rows=torch.from_numpy(np.diff(index.row_ptr)).to(DEVICE),
        scorable=torch.from_numpy(lengths != 2).to(DEVICE),
        error=error,
        cells=CELLS,
    )


def _rounding(states):
    """Return how far each state as float16 is from its unit vector: float64[...]. A zero vector stands for zero."""
    wide = states.double()
    unit = wide / wide.norm(dim=1, keepdim=True).clamp_min(1e-300)
    return (unit - states.half().double()).norm(dim=1)


def _screen(resident, ptr, encoded, first, last, k, part):
    """Yield for each query the units that may be among its k best rows, and bounds on their scores, best first."""
    import torch

    weights = torch.from_numpy(np.array(encoded.corpus.weight_of_id)).to(DEVICE).index_select(0, resident.ids)
    total = torch.zeros(len(ptr) - 1, dtype=torch.float64, device=DEVICE).index_add_(0, resident.unit, weights)
    lengths = np.diff(encoded.tokens.ptr)
    longest = int(np.diff(ptr).max())
    q = first
    while q < last:
        n = int(lengths[q])
        same = int(np.argmin(np.r_[lengths[q:last] == n, False]))
        end = q + max(min(same, resident.cells // max(n * longest, 8 * len(total))), 1)
        try:
            precision, recall, error = _products(resident, ptr, weights, total, encoded, q, end)
            lower, upper = bounds(precision, recall, error, resident.scorable & (n != 2), part)
            left = list(_survivors(lower, upper, resident.rows, k))
        except torch.OutOfMemoryError:
            if end == q + 1 and resident.cells <= n * longest:
                raise
            resident.cells //= 2
        else:
            yield from left
            q = end


def _products(resident, ptr, weights, total, encoded, q, end):
    """Return approximate precision and recall of all units for queries of one length, and their error.

    Returns
    -------
    precision, recall : float64[B, D]
    error : float64[B, 1]
    """
    import torch

    size = end - q
    stored = torch.from_numpy(np.concatenate([encoded.states_of(i) for i in range(q, end)])).to(DEVICE)
    query_weights = torch.from_numpy(np.stack([encoded.weights_of(i) for i in range(q, end)])).to(DEVICE)
    n = query_weights.shape[1]
    query = stored.half()
    query_error = _rounding(stored).view(size, n).amax(1, keepdim=True)
    n_units = len(ptr) - 1
    lengths = np.diff(ptr)
    precision = torch.zeros((n_units, size), dtype=torch.float64, device=DEVICE)
    recall = torch.empty_like(precision)
    tokens_at_once = resident.cells // max(size * n, resident.states.shape[1])
    first = 0
    while first < n_units:
        last = max(int(np.searchsorted(ptr, ptr[first] + tokens_at_once, side="right")) - 1, first + 1)
        a, b = int(ptr[first]), int(ptr[last])
        product = resident.states[a:b].half() @ query.T
        row = product.view(b - a, size, n).amax(2)
        precision.index_add_(0, resident.unit[a:b], row.double() * weights[a:b, None])
        column = torch.empty((last - first, size * n), dtype=torch.float16, device=DEVICE)
        # Units of one length stand side by side.
        edges = [0, *(np.flatnonzero(np.diff(lengths[first:last])) + 1).tolist(), last - first]
        for u, v in pairwise(edges):
            block = product[int(ptr[first + u]) - a : int(ptr[first + v]) - a]
            torch.amax(block.view(v - u, -1, size * n), 1, out=column[u:v])
        recall[first:last] = (column.view(-1, size, n).double() * query_weights).sum(2)
        first = last
    precision = _divide(precision, total[:, None])
    recall = _divide(recall, query_weights.sum(1))
    return precision.T, recall.T, product_error(resident.error, query_error, query.shape[1])


def _divide(sums, weights):
    """Return weighted means, 0 where all weights are 0."""
    return (sums / weights).where(weights > 0, 0.0)


def bounds(precision, recall, error, scorable, part=F1):
    """Return lower and upper bounds on scores from approximate precision and recall.

    F1 rises with both wherever it is defined, as its derivatives 2 R^2 / (P + R)^2 and 2 P^2 / (P + R)^2 say, so its
    extremes lie in two corners of the box, unless the box touches P + R = 0: then nothing is known.

    Parameters
    ----------
    precision, recall : float64[B, D]
    error : float64[B, 1]
        How far each is off at most.
    scorable : bool[D], False where both are 0 by definition
    part : {PRECISION, RECALL, F1}
    """
    if part == F1:
        known = (precision + recall).abs() > 2 * error
        lower, upper = (
            2 * p * r / (p + r) for p, r in ((precision - error, recall - error), (precision + error, recall + error))
        )
        lower, upper = lower.where(known, -np.inf), upper.where(known, np.inf)
    else:
        value = precision if part == PRECISION else recall
        lower, upper = value - error, value + error
    return lower.where(scorable, 0.0), upper.where(scorable, 0.0)


def _survivors(lower, upper, rows, k):
    """Return for each query the units whose upper bound reaches the k-th best row's lower bound, best first."""
    value, unit = lower.topk(min(k, lower.shape[1]), dim=1)
    # Of the units from the best downwards, the one with which there are k rows.
    place = (rows[unit].cumsum(1) < k).sum(1, keepdim=True)
    threshold = value.gather(1, place.clamp_max(value.shape[1] - 1)).where(place < value.shape[1], -np.inf)
    threshold -= RELATIVE * (1 + threshold.abs())
    kept = (~(upper < threshold)).nonzero()
    bound = upper[kept[:, 0], kept[:, 1]].cpu().numpy()
    query, unit = kept.cpu().numpy().T
    edges = np.searchsorted(query, np.arange(len(lower) + 1))
    for a, b in pairwise(edges):
        order = np.argsort(-bound[a:b], kind="stable")
        yield unit[a:b][order], bound[a:b][order]


@jit
def _finish_units(units, bound, part, k, items, corpus, query, work, found):
    """Score the units that may be among the k best, in the order of their bounds: float32 products, then float64."""
    threshold = found.threshold
    found.state[:] = 0
    threshold[0] = -np.inf
    error = corpus.norm_error + (query.states.shape[0] + 8) * 2.0**-24 * 1.01
    n_scored = 0
    for i in range(len(units)):
        if bound[i] + SLACK < threshold[0]:
            break
        u = units[i]
        if threshold[0] > -np.inf and corpus.ptr[u + 1] - corpus.ptr[u] != 2 and len(query.weights) != 2:
            _widen(u, corpus, work)
            precision, recall = _approximate(u, corpus, query, work)
            sure = part != F1 or (precision > error and recall > error)
            if sure and _part(part, precision + error, recall + error) + SLACK < threshold[0]:
                continue
        _finish(u, part, k, items, corpus, query, work, found)
        n_scored += 1
    found.counts[0] += len(corpus.ptr) - 1 - len(units)
    found.counts[2] += len(units) - n_scored
    found.counts[3] += n_scored
