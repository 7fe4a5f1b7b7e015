"""Batches in which the output for a sequence has the same bits whatever other sequences are in the batch.

The order in which a matrix product is summed depends on its shape and its number of threads. Therefore all sequences of
one length run in batches of one shape, and each batch runs in one thread of PyTorch; several batches run in parallel.
If the sequences of a length do not fill a batch, they are repeated. In tests on all code paths of MKL (SSE4.2, AVX2,
AVX-512) the last bits of the output then depended neither on the position in the batch nor on the other sequences; two
threads per product did change them. Such a batch never mixes lengths, because padding costs time and its mask changes
last bits too. The only padding of sequences is that of `run_model`.

The models of `packed_layers` mix lengths, and repeat nothing. Their products are of oneDNN: in tests of all its code
paths with 1 to 512 rows, the bits of a row in float32 depended on the number of rows only with one row, and on
processors that have AVX and not AVX2. In bfloat16 with AMX they do depend on it, hence the number is fixed there.
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

from metric_oracle.base.locks import let_interrupts_end_waits
from metric_oracle.encoders.model_files import n_positions
from metric_oracle.encoders.packed_layers import FAMILIES, Packed, can_pack

# Sequences of one length and those of the next ones, each int64[B, L].
Blocks = list[npt.NDArray[np.int64]]
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

    let_interrupts_end_waits()
    with ThreadPoolExecutor(n_threads, "encoder", begin) as executor:
        try:
            yield executor.map
        finally:
            executor.shutdown(cancel_futures=True)
            # Each thread has its own number, but new threads start with the number that was set last: that was 1.
            torch.set_num_threads(n_threads)


def run_batches(
    run: Callable[[npt.NDArray[np.int64], Blocks], None],
    ids: npt.NDArray[np.int32],
    ptr: npt.NDArray[np.int64],
    batch_tokens: int,
    device: str,
    finished: Callable[[npt.NDArray[np.int64]], object] | None = None,
    *,
    is_mixed: bool = False,
) -> None:
    """Run a model on sequences, longest first, in batches of one length each or, if `is_mixed`, of any lengths.

    `ptr` are the offsets of the sequences in `ids`; empty sequences are left out. `run` is called with the positions
    int64[n] of n sequences, longest first, and with their ids: a block of the sequences of each length. Unless lengths
    are mixed, that is one block, whose shape depends on the length alone; the sequences are its first n rows. `run`
    stores its output, and must work in any thread. A batch has at most `batch_tokens` ids, or one sequence.
    `finished` is called with the positions of each finished batch, in this thread. `device` is that of the model.
    """
    length = np.diff(ptr)

    def run_batch(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        rows = positions if is_mixed else np.resize(positions, max(1, batch_tokens // int(length[positions[0]])))
        starts = np.flatnonzero(np.diff(length[rows], prepend=-1))
        blocks = [ids[ptr[some, None] + np.arange(length[some[0]])] for some in np.split(rows, starts[1:])]
        run(positions, [block.astype(np.int64) for block in blocks])
        return positions

    ordered = np.argsort(-length, kind="stable")[: np.count_nonzero(length)]
    batches = []
    while len(ordered):
        is_next = np.cumsum(length[ordered[:batch_tokens]]) <= batch_tokens
        is_next &= is_mixed | (length[ordered[:batch_tokens]] == length[ordered[0]])
        n_texts = max(1, np.count_nonzero(is_next))
        batches.append(ordered[:n_texts])
        ordered = ordered[n_texts:]
    with one_thread_each(device) as run_all:
        for positions in run_all(run_batch, batches):
            if finished is not None:
                finished(positions)


def flatten(sequences: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Concatenate lists of ids; return int32[T] and the offsets of the lists, int64[n + 1]."""
    return np.fromiter(chain.from_iterable(sequences), np.int32), np.cumsum([0, *map(len, sequences)])


def store_tokens(
    output: Any, ptr: npt.NDArray[np.int64], run: Callable[[Blocks], Any]
) -> Callable[[npt.NDArray[np.int64], Blocks], None]:
    """Return a function for `run_batches` that stores what `run` returns in `output`, one row for each token.

    `run` takes blocks, and returns a row for each of their tokens; `ptr` are the offsets of the sequences in `output`.
    """

    def store(positions: npt.NDArray[np.int64], blocks: Blocks) -> None:
        rows = np.concatenate([np.arange(ptr[i], ptr[i + 1]) for i in positions])
        output[rows] = run(blocks)[: len(rows)]

    return store


def first_rows(blocks: Blocks) -> npt.NDArray[np.int64]:
    """Return the row of the first token of each sequence, int64[n], in the output for a batch."""
    length = np.concatenate([np.full(len(block), block.shape[1]) for block in blocks])
    return np.cumsum(length) - length


def run_model(model: Any, blocks: Blocks) -> Any:
    """Return the first output of a model for a batch of `run_batches`, one row for each token: hidden states or logits.

    Models without fused attention (MPNet and DeBERTa where they are not packed) multiply their heads as a stack of
    L x L matrices, and on AMD processors MKL sums each product in an order that depends on the matrix's address. If L
    is a multiple of four, every matrix begins on a 64-byte boundary, and results repeat exactly. The sequences of these
    models are therefore padded; the padding is masked and cut from the output.
    """
    import torch

    tensors = [torch.from_numpy(block).to(model.device) for block in blocks]
    if isinstance(model, Packed):
        return model.run(tensors)
    (batch,) = tensors
    mask = torch.ones_like(batch)
    n_ids = batch.shape[1]
    if model.config._attn_implementation == "eager":
        n_more = min(-n_ids % 4, max(n_positions(model) - n_ids, 0))
        batch = torch.nn.functional.pad(batch, (0, n_more), value=model.config.pad_token_id or 0)
        mask = torch.nn.functional.pad(mask, (0, n_more))
    return model(input_ids=batch, attention_mask=mask)[0][:, :n_ids].flatten(0, 1)


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
        "packed_layers_of": [*FAMILIES] if can_pack(device, dtype) else [],
    }


def digest(settings: Any, *arrays: npt.NDArray[Any]) -> str:
    """Return the SHA-256, in hexadecimal, of settings as JSON and of arrays: their types, shapes and bytes."""
    hasher = hashlib.sha256(json.dumps(settings).encode())
    for array in arrays:
        hasher.update(f"{array.dtype.name}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()
