"""A stand-in for an encoder of token states."""

import hashlib
import re
import zlib
from typing import ClassVar

import numpy as np

from metric_oracle.encoders.token_states import Tokens


class FakeEncoder:
    """A stand-in for `TokenEncoder` without a model: a state follows from the token and its place modulo 3 alone.

    Words are cut at spaces. Equal words give equal states in every report, so that scores tie. The name stands for the
    files: another name is another encoder, `NAME@FOLDER` the same one elsewhere.
    """

    special_ids = (0, 1)
    width = 16
    max_length = 26
    device = "cpu"
    is_mixed = False
    environment: ClassVar = {"device": "cpu", "torch": "none"}

    def __init__(self, model, *, layer=None, device="auto", dtype="float32", function="build_index"):
        self.function, self.name, self.layer, self.dtype = function, str(model), 1 if layer is None else layer, dtype
        seed = zlib.crc32(f"{self.name.split('@')[0]} {self.layer}".encode())
        rng = np.random.default_rng(seed)
        self._of_word = rng.standard_normal((97, self.width)) + 0.5
        self._of_place = 0.4 * rng.standard_normal((3, self.width))
        self.runs = 0

    @property
    def signature(self):
        digest = hashlib.sha256(self.name.split("@")[0].encode()).hexdigest()
        return {"model": self.name, "layer": self.layer, "sha256": digest, "width": self.width, "compute": self.dtype}

    def tokenize(self, texts):
        words = [[2 + zlib.crc32(word.encode()) % 95 for word in text.split()] for text in texts]
        kept = [[0, *some[: self.max_length - 2], 1] for some in words]
        ptr = np.cumsum([0, *map(len, kept)])
        n_truncated = sum(len(some) > self.max_length - 2 for some in words)
        return Tokens(np.array([i for some in kept for i in some], np.int32), ptr, n_truncated)

    def spans(self, text):
        words = [found.span() for found in re.finditer(r"\S+", text)]
        return [(0, 0), *words[: self.max_length - 2], (0, 0)]

    def run(self, blocks):
        self.runs += 1
        (ids,) = blocks
        states = (self._of_word[ids] + self._of_place[np.arange(ids.shape[1]) % 3]).astype(np.float32)
        return (states / np.linalg.norm(states, axis=2, keepdims=True)).reshape(-1, self.width)
