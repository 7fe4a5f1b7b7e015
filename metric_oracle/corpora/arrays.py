"""Numbers in memory as arrays of NumPy: lists, arrays of other libraries, and tensors, wherever they are."""

from collections.abc import Iterator
from typing import Any

import numpy as np


def as_array(values: Any) -> np.ndarray:
    """Return numbers as an array; a tensor without its gradient, on the processor, in a type that NumPy has.

    Raise TypeError or ValueError for what is no array.
    """
    return np.asarray(_plain(values))


def _plain(values: Any) -> Any:
    """Return tensors, or lists and iterators of them, as arrays; anything else as it is."""
    if hasattr(values, "detach"):  # a tensor of PyTorch
        values = values.detach().cpu()
        return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()
    if isinstance(values, Iterator):
        values = list(values)
    if isinstance(values, list | tuple) and any(
        hasattr(value, "detach") or isinstance(value, Iterator) for value in values
    ):
        return [_plain(value) for value in values]
    return values
