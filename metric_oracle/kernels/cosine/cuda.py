"""Cosine search on a GPU: float32 products by torch or FAISS select documents, which the host scores exactly."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metric_oracle.kernels import _device
from metric_oracle.kernels._errors import check_bounds, check_dropped
from metric_oracle.kernels.contract import Capabilities
from metric_oracle.kernels.cosine import cpu

FIRST_CANDIDATES = 32
LIBRARY = "torch"
DEVICE = "cuda"
CELLS = 1 << 30  # products at once, 4 GB; halved where the device has no room
FAISS_MOST = 2048  # neighbours that FAISS selects on a GPU


def nearest(corpus, queries, n):
    """Return the n greatest float32 products of each query, float32[Q, n], and their documents, int64[Q, n].

    They are in descending order. `queries` are unit vectors, float32[Q, d]; n is at most the number of documents. Raise
    DeviceError if neither FAISS nor torch can find so many, or a device has no room.
    """
    faiss = _device.faiss_on_gpu()
    if faiss is not None and n <= FAISS_MOST:
        with _device.in_one_line():
            on_device = _device.resident(corpus.vectors, "faiss", lambda: _put_in_faiss(faiss, corpus.vectors))
            return on_device.search(queries, n)
    reason = _device.lacking(LIBRARY)
    if reason:
        raise _device.DeviceError(
            "PyTorch",
            f"must be there for more than {FAISS_MOST} neighbours on a GPU",
            f"{n} and FAISS alone, {reason}",
            'Install it, ask for fewer with k, or use backend "cpu".',
        )
    product, document = np.empty((len(queries), n), np.float32), np.empty((len(queries), n), np.int64)

    def keep(first, last, products):
        """Keep the n greatest products of the queries first .. last - 1."""
        best = products.topk(n, dim=1)
        product[first:last], document[first:last] = best.values.cpu().numpy(), best.indices.cpu().numpy()

    _multiply(corpus, queries, keep)
    return product, document


def _put_in_faiss(faiss, vectors):
    """Return a FAISS index of inner products with `vectors`, on all GPUs and without a copy in main memory."""
    on_device = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(vectors.shape[1]))
    on_device.add(vectors)
    return on_device


def products(corpus, queries):
    """Return the float32 product of each query, float32[Q, d], with every document: float32[Q, D]."""
    out = np.empty((len(queries), len(corpus.vectors)), np.float32)

    def keep(first, last, products):
        """Copy the products of the queries first .. last - 1 to the host."""
        out[first:last] = products.cpu().numpy()

    _multiply(corpus, queries, keep)
    return out


def _multiply(corpus, queries, keep):
    """Multiply queries and documents on the GPUs by torch; call ``keep(first, last, products)`` for each batch.

    The products of the queries first .. last - 1 are a tensor on the device, float32[last - first, D].
    """

    def work(device, first, last):
        """Multiply the share of one device, the queries first .. last - 1."""
        _multiply_on(device, corpus.vectors, queries, first, last, keep)

    _device.share("torch", len(queries), work)


def _multiply_on(device, documents, queries, first, end, keep):
    """Multiply the queries first .. end - 1 on torch's current device, in batches of as many as fit into its memory.

    `device` is its number; `documents` and `queries` are vectors; for `keep` see `_multiply`. Raise NoRoomError if
    there is no room for the documents and one query.
    """
    cells = CELLS
    while first < end:
        last = min(first + max(cells // len(documents), 1), end)
        try:
            with _device.in_one_line(), _device.plain_arithmetic(DEVICE):
                vectors = _device.resident(documents, f"vectors on {device}", lambda: _put(documents))
                keep(first, last, _put(queries[first:last]) @ vectors.T)
        except _device.NoRoomError as error:
            if last - first == 1:
                raise _device.NoRoomError(
                    "the GPU",
                    f"must have room for the embeddings, {documents.nbytes / 1e9:.2f} GB, and one query",
                    "too little",
                    'Free its memory, or use backend "cpu".',
                ) from error
            cells = (last - first) // 2 * len(documents)
            continue
        first = last


def _put(array):
    """Copy an array to torch's current device by way of a copy on the host, because its file is mapped read-only."""
    import torch

    return torch.from_numpy(np.array(array)).to(DEVICE)


@dataclass(frozen=True)
class Backend(cpu.Backend):
    """Cosine of embeddings on GPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(batched=True, signed=True)

    def search(self, corpus, batch, queries, k, answers, workspace):
        """Write the k best rows of the corpus for the distinct queries numbered in `queries` into `answers`.

        The float32 product of a document that `nearest` does not return is at most the last one returned. If that plus
        the error bound reaches the k-th exact score, more documents are requested. Raise DeviceError if a device has no
        room, and ExactnessError if a product is below a score by more than its error bound, or a document that was
        dropped belongs in a list.
        """
        n_documents = len(corpus.vectors)
        error = cpu.screen_error(corpus.vectors.shape[1])
        pending = np.arange(queries.start, queries.stop)
        n_best = {q: answers.exclusion.n_documents(q, k) for q in queries}
        n = min(max(FIRST_CANDIDATES, 2 * k), n_documents)
        while len(pending):
            screened, candidates = nearest(corpus, batch.vectors[pending], n)
            again = []
            for i, q in enumerate(pending):
                # The k-th best score is at least the product of the last of these minus the error: they have k rows.
                product = screened[i].astype(np.float64)
                kept = product >= product[min(n_best[q], n) - 1] - 2 * error
                documents = candidates[i][kept]

                def score(documents, q=q):
                    exact = np.empty(len(documents))
                    cpu.score_documents(documents, batch.vectors[q], corpus.vectors, exact)
                    return exact

                exact = score(documents)
                check_bounds({"float32": float((product[kept] + error - exact).min())})
                least = answers.put(q, documents, exact, corpus, k)
                if n < n_documents and float(screened[i, -1]) + error >= least:
                    again.append(q)
                    continue
                check_dropped(int(q), len(batch.vectors), n_documents, documents, least, score)
            pending = np.array(again, np.int64)
            n = min(4 * n, n_documents)

    def stages(self, workspaces):
        """Return an empty dict: a GPU multiplies all pairs."""
        return {}

    def lacking(self):
        """Return why neither torch nor FAISS can use a GPU; an empty string if one of them can."""
        return "" if _device.faiss_on_gpu() is not None else _device.lacking(LIBRARY)
