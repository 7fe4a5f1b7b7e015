"""Cosine and agreement of labels on a GPU: torch selects the candidates, the host scores them again."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels._errors import FLOAT64, check_bounds, check_dropped, gamma
from metric_oracle.kernels.chexbert_labels import cpu
from metric_oracle.kernels.contract import Capabilities

LIBRARY = "torch"
DEVICE = "cuda"
CELLS = 1 << 28  # float64 scores at once, 2 GB; halved where the device has no room
ERROR = gamma(6, FLOAT64)  # of a score: a division, a root and products; cosines are at most 1


def _candidates(corpus, batch, queries, k):
    """Yield, for each of `queries`, number, documents that may hold the k best rows, and device scores.

    `queries` is a range of distinct queries. The documents are int64[n], their scores float64[n]. Raise NoRoomError if
    a device has no room for one query.
    """
    import torch

    n_documents = len(corpus.vectors)
    cells = CELLS
    while queries:
        some = queries[: max(cells // n_documents, 1)]
        try:
            with _device.in_one_line(), torch.inference_mode():
                vectors = torch.from_numpy(np.array(corpus.vectors)).to(DEVICE).double()
                block = torch.from_numpy(batch.vectors[some]).to(DEVICE).double()
                norms = torch.sqrt((block * block).sum(1)[:, None] * (vectors * vectors).sum(1))
                scores = (block @ vectors.T / norms).where(norms > 0, 0.0)
                # The k best documents stand for k rows or more.
                least = scores.topk(min(k, n_documents), dim=1).values[:, -1:] - 2 * ERROR
                kept = (scores >= least).nonzero()
                screened = scores[kept[:, 0], kept[:, 1]].cpu().numpy()
                query, document = kept.cpu().numpy().T
        except _device.NoRoomError as error:
            if len(some) == 1:
                raise _device.NoRoomError(
                    "the GPU",
                    "must have room for the scores of one query",
                    "too little",
                    'Free its memory, or use backend "cpu".',
                ) from error
            cells = len(some) // 2 * n_documents
            continue
        edges = np.searchsorted(query, np.arange(len(some) + 1))
        for q, (a, b) in zip(some, pairwise(edges), strict=True):
            yield q, document[a:b], screened[a:b]
        queries = queries[len(some) :]


@dataclass(frozen=True)
class Backend(_device.ByLibrary, cpu.Backend):
    """Cosine and agreement of labels on GPUs."""

    library: ClassVar[str] = LIBRARY
    capabilities: ClassVar[Capabilities] = Capabilities(batched=True, signed=True)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`.

        Raise DeviceError if a device has no room, and ExactnessError if the error of a device's score exceeds its
        bound, or a document that was dropped belongs in a list.
        """
        vectors = corpus.vectors.astype(np.float64)
        n = max((answers.exclusion.n_documents(q, k) for q in queries), default=k)
        squares = np.sum(vectors * vectors, axis=1)

        def work_on(device, begin, end):
            """Search for the queries from place `begin` to place `end` of `queries` on one GPU."""
            for q, documents, screened in _candidates(corpus, batch, queries[begin:end], n):
                query = batch.vectors[q].astype(np.float64)

                def score(documents, query=query):
                    return self.scores((vectors[documents] @ query, squares[documents], query @ query))

                scores = score(documents)
                check_bounds({"float64": float((ERROR - np.abs(screened - scores)).min())})
                least = answers.put(q, documents, scores, corpus, k)
                check_dropped(q, len(batch.vectors), len(vectors), documents, least, score)

        _device.share(LIBRARY, len(queries), work_on)
