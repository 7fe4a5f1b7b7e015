"""Cosine of CheXbert's 14 labels on a GPU: torch keeps what may be among the k best, the host scores it again."""

from itertools import pairwise

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels.chexbert_labels.cpu import cosines
from metric_oracle.kernels.topk.reference import select

WHOLE = True  # one call answers all queries
LIBRARY = "torch"
DEVICE = "cuda"
CELLS = 1 << 28  # float64 scores at once, 2 GB; halved where the device has no room
SLACK = 1e-9  # far above the rounding of a division and a root in float64, far below two different cosines


def search(index, encoded, first, last, k, found, work):
    """Find the k best rows of the corpus for the distinct queries first .. last - 1.

    Raises
    ------
    DeviceError
        If a device has no room.
    """
    corpus = index.vectors.astype(np.float64)
    squares = np.sum(corpus * corpus, axis=1)

    def work_on(device, begin, end):
        for q, units in _candidates(index, encoded.vectors, first + begin, first + end, k):
            scores = cosines(corpus[units], squares[units], encoded.vectors[q])
            rows, scores, ties = select(units, scores, index.row_ptr, index.row_id, k)
            m = len(rows)
            found.rows[q, :m], found.scores[q, :m], found.ties[q, :m] = rows, scores, ties

    _device.share("torch", last - first, work_on)


def _candidates(index, queries, first, last, k):
    """Yield each query with the units whose score may reach that of the k-th best row, on torch's current device."""
    import torch

    n_units = len(index.vectors)
    cells = CELLS
    while first < last:
        end = min(first + max(cells // n_units, 1), last)
        try:
            with torch.inference_mode():
                corpus = torch.from_numpy(np.array(index.vectors)).to(DEVICE).double()
                some = torch.from_numpy(np.array(queries[first:end])).to(DEVICE).double()
                norms = torch.sqrt((some * some).sum(1)[:, None] * (corpus * corpus).sum(1))
                scores = (some @ corpus.T / norms).where(norms > 0, 0.0)
                # k units stand for k rows or more.
                least = scores.topk(min(k, n_units), dim=1).values[:, -1:] - SLACK
                query, unit = (scores >= least).nonzero().cpu().numpy().T
        except torch.OutOfMemoryError as error:
            if end - first == 1:
                msg = (
                    "retrieve: the GPU must have room for the scores of one query; got too little. "
                    'Free its memory, or use backend "cpu".'
                )
                raise _device.NoRoomError(msg) from error
            cells = (end - first) // 2 * n_units
            continue
        edges = np.searchsorted(query, np.arange(end - first + 1))
        for q, (a, b) in zip(range(first, end), pairwise(edges), strict=True):
            yield q, unit[a:b]
        first = end


def new_work(index):
    """Nothing is kept between calls."""
    return


def is_usable():
    """Return whether there is a GPU, and what it takes to use it."""
    return not _device.lacking(LIBRARY)
