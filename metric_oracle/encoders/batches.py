"""Batches in which the output for a sequence has the same bits whatever other sequences are in the batch.

The order in which a matrix product is summed depends on its shape and its number of threads. Therefore all sequences of
one length run in batches of one shape, and each batch runs in one thread of PyTorch; several batches run in parallel.
If the sequences of a length do not fill a batch, they are repeated. In tests on all code paths of MKL (SSE4.2, AVX2,
AVX-512) and of oneDNN (also AMX), which runs the products of `packed_layers`, the last bits of the output then depended
neither on the position in the batch nor on the other sequences; two threads per product did change them, and with AMX
the shape of a batch. A batch never mixes lengths, because padding costs time and its mask changes last bits too. The
only padding of sequences is that of `run_model`.
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
from metric_oracle.encoders.packed_layers import can_pack

# A parallel `map`, whose results come in the order of the arguments.
RunAll = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def one_thread_each(device: str) -> Iterator[RunAll]:
    """Yield a parallel `map`: each call uses one thread of PyTorch, and as many run at once as PyTorch had threads.

    The caller's number of threads stays as it is. On a GPU the calls run one after the other.
    """
    torch = sys.modules.get("torch")
    if device != "cpu" or torch is None:
        yield map
        return
    n_threads = torch.get_num_threads()

    def begin() -> None:
        # The first call in a thread copies the number that any thread has set last. Without it, a number that another
        # thread sets later would replace the 1.
        torch.get_num_threads()
        torch.set_num_threads(1)

    with ThreadPoolExecutor(n_threads, "encoder", begin) as pool:
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)
            # Each thread has its own number, but new threads start with the number that was set last: that was 1.
            torch.set_num_threads(n_threads)


def run_batches(
    run: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None],
    ids: npt.NDArray[np.int32],
    ptr: npt.NDArray[np.int64],
    batch_tokens: int,
    device: str,
    finished: Callable[[npt.NDArray[np.int64]], object] | None = None,
) -> None:
    """Run a model on sequences, longest first, in batches whose shape depends on the length alone.

    `ptr` are the offsets of the sequences in `ids`; empty sequences are left out. `run` is called with the positions
    int64[n] of n sequences of one length L, and with a batch int64[B, L] that has these sequences as its first n rows.
    It stores its output, and must work in any thread. A batch has at most `batch_tokens` ids, or one sequence.
    `finished` is called with the positions of each finished batch, in this thread. `device` is that of the model.
    """
    length = np.diff(ptr)

    def run_batch(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        n_ids = int(length[positions[0]])
        repeated = np.resize(positions, max(1, batch_tokens // n_ids))
        run(positions, ids[ptr[repeated, None] + np.arange(n_ids)].astype(np.int64))
        return positions

    batches = []
    for n_ids in np.unique(length[length > 0])[::-1]:
        same_length = np.flatnonzero(length == n_ids)
        n_texts = max(1, batch_tokens // int(n_ids))
        batches += [same_length[first : first + n_texts] for first in range(0, len(same_length), n_texts)]
    with one_thread_each(device) as run_all:
        for positions in run_all(run_batch, batches):
            if finished is not None:
                finished(positions)


def flatten(sequences: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Concatenate lists of ids; return int32[T] and the offsets of the lists, int64[n + 1]."""
    return np.fromiter(chain.from_iterable(sequences), np.int32), np.cumsum([0, *map(len, sequences)])


def store_tokens(
    output: Any, ptr: npt.NDArray[np.int64], run: Callable[[npt.NDArray[np.int64]], Any]
) -> Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], None]:
    """Return a function for `run_batches` that stores what `run` returns in `output`, one row for each token.

    `run` takes a batch int64[B, L] and returns [B, L, ...]; `ptr` are the offsets of the sequences in `output`.
    """

    def store(positions: npt.NDArray[np.int64], batch: npt.NDArray[np.int64]) -> None:
        output[ptr[positions, None] + np.arange(batch.shape[1])] = run(batch)[: len(positions)]

    return store


def run_model(model: Any, ids: npt.NDArray[np.int64]) -> Any:
    """Return the first output of a Transformers model for token ids int64[B, L]: hidden states or logits, [B, L, ...].

    Models without fused attention (MPNet, DeBERTa) multiply their heads as a stack of L x L matrices, and on AMD
    processors MKL sums each product in an order that depends on the matrix's address. If L is a multiple of four, every
    matrix begins on a 64-byte boundary, and results repeat exactly. The sequences of these models are therefore padded;
    the padding is masked and cut from the output.
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
    """Divide sequences into parts of at most `part_tokens` tokens, or of one sequence.

    `ptr` are the offsets of the sequences. Return the number of the first sequence of each part, then that of all
    sequences.
    """
    bounds = [0]
    while bounds[-1] < len(ptr) - 1:
        stop = int(np.searchsorted(ptr, ptr[bounds[-1]] + part_tokens, "right")) - 1
        bounds.append(max(stop, bounds[-1] + 1))
    return bounds


def environment(device: str, batch_tokens: int, dtype: str = "float32") -> dict[str, Any]:
    """Return the device, versions and settings on which the last bits of a model that computes in `dtype` depend."""
    import torch

    is_cuda = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if is_cuda else "cpu",
        "instructions": "cuda" if is_cuda else torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "batch_tokens": batch_tokens,
        "threads_of_a_product": 1,
        "layers_of_bert": "packed" if can_pack(device, dtype) else "transformers",
    }


def digest(settings: Any, *arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256, in hexadecimal, of settings as JSON and of arrays: their types, shapes and bytes."""
    hasher = hashlib.sha256(json.dumps(settings).encode())
    for array in arrays:
        hasher.update(f"{array.dtype.name}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()
