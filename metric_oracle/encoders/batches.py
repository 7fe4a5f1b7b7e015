"""Batches whose numbers do not depend on the company: one shape for each length, every product in one thread.

The order in which a product of matrices is summed follows from its shape and its number of threads. So a sequence of
some length always runs in a batch of the same shape, filled up by repeating where texts are few, in one thread of
PyTorch's; several batches run side by side. With that, the last bits of a sequence's numbers did not change with its
place in the batch or with its neighbours on any code path of MKL (SSE4.2, AVX2, AVX-512), while two threads for one
product did change them. Lengths are never mixed: padding would cost more, and its mask changes last bits too.
`run_model` has the one exception.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.encoders.model_files import n_positions

# A `map` whose results come in order.
RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def one_thread_each(device: str) -> Iterator[RunAll]:
    """Give a `map` whose calls have one thread of PyTorch's each; as many run at once as PyTorch had threads.

    The caller's number of threads is not touched. On a GPU calls run one after the other.
    """
    torch = sys.modules.get("torch")
    if device != "cpu" or torch is None:
        yield map
        return
    n_threads = torch.get_num_threads()

    def begin() -> None:
        # A thread that first asks takes the number that any caller has set last, which may be after ours.
        torch.get_num_threads()
        torch.set_num_threads(1)

    with ThreadPoolExecutor(n_threads, "encoder", begin) as pool:
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)
            # The number is each thread's own, but the last one set is also that of threads to come.
            torch.set_num_threads(n_threads)


def run_batches(
    run: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None],
    ids: npt.NDArray[np.int32],
    ptr: npt.NDArray[np.int64],
    batch_tokens: int,
    run_all: RunAll,
) -> Iterator[npt.NDArray[np.int64]]:
    """Run a model on sequences, longest first, in batches whose shape follows from the length alone.

    Parameters
    ----------
    run : function
        Called with the places int64[n] of n sequences of one length L and with a batch int64[B, L], whose first n rows
        they are. It stores what it makes, from any thread.
    ids : int32[T]
    ptr : int64[n + 1]
        Offsets of each sequence in `ids`; one without ids is left out.
    batch_tokens : int
        Ids of a batch; a longer sequence is a batch of its own.
    run_all : function
        Of `one_thread_each`.

    Yields
    ------
    int64[n]
        Places of finished sequences.
    """
    length = np.diff(ptr)

    def one(some: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        n_ids = int(length[some[0]])
        filled = np.resize(some, max(1, batch_tokens // n_ids))
        run(some, ids[ptr[filled, None] + np.arange(n_ids)].astype(np.int64))
        return some

    batches = []
    for n_ids in np.unique(length[length > 0])[::-1]:
        same = np.flatnonzero(length == n_ids)
        n_texts = max(1, batch_tokens // int(n_ids))
        batches += [same[first : first + n_texts] for first in range(0, len(same), n_texts)]
    yield from run_all(one, batches)


def flatten(sequences: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Join lists of ids: int32[T] and the offsets of each list, int64[n + 1]."""
    return np.fromiter(chain.from_iterable(sequences), np.int32), np.cumsum([0, *map(len, sequences)])


def store_tokens(
    output: Any, ptr: npt.NDArray[np.int64], run: Callable[[npt.NDArray[np.int64]], Any]
) -> Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None]:
    """Return a function for `run_batches`: `run`, int64[B, L] -> [B, L, ...], stores a row a token in `output`.

    `ptr`, int64[n + 1], has the offsets of each sequence in `output`, an array or a tensor.
    """

    def store(places: npt.NDArray[np.int64], batch: npt.NDArray[np.int64]) -> None:
        output[ptr[places, None] + np.arange(batch.shape[1])] = run(batch)[: len(places)]

    return store


def run_model(model: Any, ids: npt.NDArray[np.int64]) -> Any:
    """Return what a model of transformers makes first of word pieces, int64[B, L] -> tensor [B, L, ...].

    What has no fused attention there (MPNet, DeBERTa) multiplies heads as a stack of matrices, and on AMD's processors
    MKL sums each in an order that depends on its address. Filled up to a multiple of four rows all begin at 64 bytes
    alike; what is filled up is masked and cut off.
    """
    import torch

    batch = torch.from_numpy(ids).to(model.device)
    mask = torch.ones_like(batch)
    n_ids = ids.shape[1]
    if model.config._attn_implementation == "eager":
        n_more = min(-n_ids % 4, max(n_positions(model) - n_ids, 0))
        batch = torch.nn.functional.pad(batch, (0, n_more), value=model.config.pad_token_id or 0)
        mask = torch.nn.functional.pad(mask, (0, n_more))
    return model(input_ids=batch, attention_mask=mask)[0][:, :n_ids]


def part_bounds(ptr: npt.NDArray[np.int64], part_tokens: int) -> list[int]:
    """Return the first sequence of each part of at most so many tokens, and the number of sequences."""
    bounds = [0]
    while bounds[-1] < len(ptr) - 1:
        stop = int(np.searchsorted(ptr, ptr[bounds[-1]] + part_tokens, "right")) - 1
        bounds.append(max(stop, bounds[-1] + 1))
    return bounds


def environment(device: str, batch_tokens: int) -> dict[str, Any]:
    """Return what the last bits of a model's numbers depend on beside the model and its libraries."""
    import torch

    is_cuda = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "instructions": "cuda" if is_cuda else torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "batch_tokens": batch_tokens,
        "threads_of_a_product": 1,
    }


def digest(settings: Any, *arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of settings and the bytes of arrays."""
    hasher = hashlib.sha256(json.dumps(settings).encode())
    for array in arrays:
        hasher.update(f"{array.dtype.name}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()
