"""Triton's interpreter runs a program at a time, in Python: what it found out once, it need not find out again."""

import hashlib
from typing import Any

import pytest

_FOUND: dict[bytes, list[Any]] = {}


def run_once(patch: pytest.MonkeyPatch) -> None:
    """Let equal launches of BERTScore's kernel run once in a process.

    A launch is a function of its arrays. A search for more rows, for another part of the score or under a composite
    begins with the same one; the tests make dozens of those.
    """
    from metric_oracle.kernels.bertscore import segment_maxima as module

    launch = module.segment_maxima

    def remembered(codes: Any, ptr: Any, lengths: Any, *rest: Any) -> None:
        *given, precision, recall = rest
        hasher = hashlib.blake2b()
        for array in (codes, ptr, *given):
            hasher.update(repr((array.shape, array.dtype)).encode() + array.numpy().tobytes())
        key = hasher.digest()
        if key not in _FOUND:
            launch(codes, ptr, lengths, *rest)
            _FOUND[key] = [precision.clone(), recall.clone()]
        for out, found in zip((precision, recall), _FOUND[key], strict=True):
            out.copy_(found)

    patch.setattr(module, "segment_maxima", remembered)
