"""Token states for BERTScore (Zhang et al., ICLR 2020) from a Hugging Face encoder.

Token ids and states equal those of bert_score 0.3.13 up to float32 noise: stripped text, the last output of the model
cut to its first layers, each token's vector divided by its length. A model that ends in a norm (ModernBERT,
mBART) still applies it when cut, as in bert_score; `hidden_states[layer]` would lack it.
"""

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.encoders.batches import (
    digest,
    environment,
    one_thread_each,
    part_bounds,
    run_batches,
    run_model,
    store_tokens,
)
from metric_oracle.encoders.libraries import choose_device, quiet
from metric_oracle.encoders.model_files import find, hash_files, load, n_positions
from metric_oracle.errors import InputError, not_installed
from metric_oracle.files import write_json
from metric_oracle.progress import Count

_DISTILROBERTA = (
    5,
    {
        0: (0.42608285, 0.4272089, 0.42462298),
        5: (0.84732, 0.84759504, 0.8473319),
        6: (0.89334005, 0.8935088, 0.8933471),
    },
)
# Model name -> (layer, {layer: English rescaling baselines of P, R and F}), as bert_score 0.3.13 ships them.
PUBLISHED = {"distilroberta-base": _DISTILROBERTA, "distilbert/distilroberta-base": _DISTILROBERTA}

# Tokens of one batch, see `batches`: few, because a query alone takes as long as a whole batch. A GPU runs a
# batch in less time than it takes to start it.
_BATCH_TOKENS = {"cpu": 1 << 7, "cuda": 1 << 13}
_TOKENIZED_AT_ONCE = 1 << 13
# Tokenizers to which bert_score says add_prefix_space. Later transformers made one class of them (Roberta) and ignore
# the argument without a word, so the space is written before the text here.
_PREFIX_SPACE = ("RobertaTokenizer", "GPT2Tokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer")


@dataclass(frozen=True)
class Tokens:
    """Token ids of texts, special tokens included.

    Attributes
    ----------
    ids : int32[T]
    ptr : int64[n + 1]
        Offsets of each text in `ids`.
    n_truncated : int
        Texts that were longer than the encoder takes.
    """

    ids: npt.NDArray[np.int32]
    ptr: npt.NDArray[np.int64]
    n_truncated: int


class TokenEncoder:
    """A model that turns text into token states.

    Parameters
    ----------
    model : str or path
        Local folder, which never touches the network, or the name of a model on the Hugging Face hub, which is
        downloaded unless the local cache holds it.
    layer : int
        Number of layers to run, 0 for the embeddings alone; by default the published one of the model.
    device : str
        auto, cpu or cuda.
    dtype : str
        float32, or bfloat16 for faster and coarser products.
    function : str
        Name of the caller in error lines.

    Attributes
    ----------
    max_length : int
        Longest text in tokens, special ones included; what is beyond it is cut off.
    special_ids : pair of int
        The ids that bert_score gives weight 0: those that begin and end a text.
    width : int
        Components of a token's state.

    Raises
    ------
    BackendError
        If torch, transformers or the device is absent.
    InputError
        If the model is absent, incomplete or damaged, or an argument breaks its rule.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layer: int | None = None,
        device: str = "auto",
        dtype: str = "float32",
        function: str = "build_index",
    ) -> None:
        self.function = function
        if layer is None:
            layer = PUBLISHED.get(str(model), (None,))[0]
        if layer is None:
            msg = (
                f"{function}: layer must be given for an encoder other than {', '.join(PUBLISHED)}; got none for "
                f"{model}. Add --layer N."
            )
            raise InputError(msg)
        if dtype not in ("float32", "bfloat16"):
            msg = f"{function}: dtype must be float32 or bfloat16; got {dtype!r}. Use float32."
            raise InputError(msg)
        self.layer = layer
        self.dtype = dtype
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise not_installed(function, f"encoder {model}", error.name, "encoders") from None
        self.device = choose_device(device, function)
        self._folder, self.name = find(model, function)
        with quiet():
            self._tokenizer, self._model = load(self._folder, layer, function)
        self._model.to(torch.device(self.device))
        self.width: int = self._model.config.hidden_size
        self.max_length = min(self._tokenizer.model_max_length, n_positions(self._model))
        self.special_ids: tuple[int, int] = (self._tokenizer.cls_token_id, self._tokenizer.sep_token_id)
        self._prefix = " " if type(self._tokenizer).__name__.startswith(_PREFIX_SPACE) else ""

    @cached_property
    def signature(self) -> dict[str, Any]:
        """What the states depend on; the hash is that of the files, wherever the folder lies."""
        import torch
        import transformers

        return {
            "model": self.name,
            "layer": self.layer,
            "sha256": hash_files(self._folder),
            "width": self.width,
            "max_length": self.max_length,
            "compute": self.dtype,
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        }

    @property
    def environment(self) -> dict[str, Any]:
        """Where the states are made: they may differ in their last bits between two of these, and only there."""
        return environment(self.device, _BATCH_TOKENS[self.device])

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of texts in their order; an empty text has the special tokens only."""
        lists: list[npt.NDArray[np.int32]] = []
        length = np.zeros(len(texts), np.int64)
        n_truncated = 0
        with quiet():
            for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
                stripped = [text.strip() for text in texts[start : start + _TOKENIZED_AT_ONCE]]
                some = [self._prefix + text if text else text for text in stripped]
                found = self._ids(some, truncation=True, max_length=self.max_length)
                lists.append(np.fromiter(chain.from_iterable(found), np.int32))
                n_ids = np.array([len(ids) for ids in found])
                length[start : start + len(some)] = n_ids
                full = [some[place] for place in np.flatnonzero(n_ids == self.max_length)]
                n_truncated += sum(len(ids) > self.max_length for ids in self._ids(full)) if full else 0
        ids = np.concatenate([np.empty(0, np.int32), *lists])
        return Tokens(ids, np.concatenate([[0], np.cumsum(length)]), n_truncated)

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """Return where each token of `tokenize` lies in a text: begin and end, empty for a special token.

        None where the tokenizer cannot say it.
        """
        if not self._tokenizer.is_fast:
            return None
        stripped = text.strip()
        before = len(text) - len(text.lstrip()) - len(self._prefix if stripped else "")
        with quiet():
            call = self._tokenizer(
                self._prefix + stripped if stripped else stripped,
                return_offsets_mapping=True,
                truncation=True,
                max_length=self.max_length,
            )
        found = []
        for begin, end in call["offset_mapping"]:
            first, last = max(begin + before, 0), max(end + before, 0)
            blanks = len(text[first:last]) - len(text[first:last].lstrip())
            found.append((first + blanks, last) if end > begin else (0, 0))
        return found

    def _ids(self, texts: list[str], **options: Any) -> list[list[int]]:
        call = self._tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, **options)
        return call["input_ids"]

    def run(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the unit-length states of texts of one length; last bits follow from the shape, see `encode`.

        Parameters
        ----------
        ids : int64[B, L]

        Returns
        -------
        float32[B, L, width]
        """
        return self.to_host(self.make(ids))

    def make(self, ids: npt.NDArray[np.int64]) -> Any:
        """Return what `run` does as a tensor on the encoder's device, which may still be at work on it."""
        import torch

        with torch.inference_mode(), torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            states = run_model(self._model, ids).float()
            return states / torch.norm(states, dim=-1, keepdim=True)

    def to_host(self, states: Any) -> npt.NDArray[Any]:
        """Copy states from the encoder's device, after a check that they are finite."""
        if not states.isfinite().all():
            step = "Check its weights" if self.dtype == "float32" else "Use float32"
            msg = (
                f"{self.function}: encoder must give finite token states other than zero; got NaN from {self.name}, "
                f"layer {self.layer}, in {self.dtype}. {step}."
            )
            raise InputError(msg)
        return states.cpu().numpy()


def encode(encoder: TokenEncoder, tokens: Tokens, storage: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return the unit-length token states of texts in memory.

    On one device and library, a text's states are the same bits whatever texts are with it, and in whatever number of
    threads.

    Parameters
    ----------
    encoder : TokenEncoder
    tokens : Tokens
    storage : dtype
        float16 or float32.

    Returns
    -------
    storage[T, width]
        In the order of `tokens`.
    """
    return _states(encoder, tokens, 0, len(tokens.ptr) - 1, storage)


def states_digest(states: npt.NDArray[Any]) -> str:
    """Return the SHA-256 of token states: their type, shape and numbers."""
    return digest("states", states)


def write_states(
    encoder: TokenEncoder,
    tokens: Tokens,
    path: Path,
    *,
    storage: npt.DTypeLike,
    part_tokens: int = 1 << 18,
    progress: Count | None = None,
) -> np.memmap:
    """Write the unit-length token states of texts to a raw file; a killed run resumes.

    A part is a run of texts of about `part_tokens` tokens. When it is on disk, its checksum goes to the file's record,
    `path` with the ending `.json`, which stays for the caller to remove. A later call with the same encoder, tokens and
    machine settings keeps the parts whose bytes are those of the record and gives the bytes of an unbroken run.

    Parameters
    ----------
    encoder : TokenEncoder
    tokens : Tokens
        Fastest if texts of like length lie together.
    path : Path
    storage : dtype
        float16 or float32.
    part_tokens : int
    progress : function
        Called with the number of finished tokens, kept ones included, after each part.

    Returns
    -------
    np.memmap
        Read-only, storage[T, width], in the order of `tokens`.
    """
    storage = np.dtype(storage)
    shape = (len(tokens.ids), encoder.width)
    if not len(tokens.ids):
        msg = f"{encoder.function}: texts must be at least one; got 0 to encode. Check the file and the section."
        raise InputError(msg)
    row_bytes = encoder.width * storage.itemsize
    bounds = part_bounds(tokens.ptr, part_tokens)
    record = path.with_suffix(".json")
    run_digest = _digest(encoder, tokens, storage, part_tokens)
    checksums = _recorded(record, run_digest, len(bounds) - 1)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(shape[0] * row_bytes)
        # A disk without room shows now and not after hours.
        os.posix_fallocate(file.fileno(), 0, shape[0] * row_bytes)
        n_done = 0
        for part, (start, stop) in enumerate(pairwise(bounds)):
            first, last = int(tokens.ptr[start]), int(tokens.ptr[stop])
            file.seek(first * row_bytes)
            if checksums[part] is None or checksums[part] != zlib.crc32(file.read((last - first) * row_bytes)):
                states = _states(encoder, tokens, start, stop, storage)
                file.seek(first * row_bytes)
                file.write(states.data)
                file.flush()
                os.fsync(file.fileno())
                checksums[part] = zlib.crc32(states.data)
                write_json(record, {"digest": run_digest, "parts": checksums})
            n_done += last - first
            if progress is not None:
                progress(n_done)
    return np.memmap(path, storage, "r", shape=shape)


def _states(encoder: TokenEncoder, tokens: Tokens, start: int, stop: int, storage: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the states of the texts `start` to `stop`, in their order."""
    ptr = tokens.ptr[start : stop + 1] - tokens.ptr[start]
    ids = tokens.ids[tokens.ptr[start] : tokens.ptr[stop]]
    if encoder.device == "cuda":
        return _states_on_device(encoder, ids, ptr, storage)
    states = np.empty((len(ids), encoder.width), storage)
    store = store_tokens(states, ptr, encoder.run)
    with one_thread_each(encoder.device) as run_all:
        for _ in run_batches(store, ids, ptr, _BATCH_TOKENS[encoder.device], run_all):
            pass
    return states


def _states_on_device(
    encoder: TokenEncoder, ids: npt.NDArray[np.int32], ptr: npt.NDArray[np.int64], storage: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Return the states of texts; they stay on the device until all are made, so that no batch waits for a copy."""
    import torch

    kind = {2: torch.float16, 4: torch.float32}[np.dtype(storage).itemsize]
    states = torch.empty((len(ids), encoder.width), dtype=kind, device=encoder.device)

    def run(some: npt.NDArray[np.int64], batch: npt.NDArray[np.int64]) -> None:
        place = torch.from_numpy(ptr[some, None] + np.arange(batch.shape[1])).to(encoder.device)
        states[place] = encoder.make(batch)[: len(some)].to(kind)

    for _ in run_batches(run, ids, ptr, _BATCH_TOKENS[encoder.device], map):
        pass
    return encoder.to_host(states)


def _digest(encoder: TokenEncoder, tokens: Tokens, storage: np.dtype, part_tokens: int) -> str:
    """Return the hash of everything that the bytes of a file of states depend on, the name of the model left out."""
    settings = {name: value for name, value in encoder.signature.items() if name != "model"}
    machine = environment(encoder.device, _BATCH_TOKENS[encoder.device])
    return digest([settings, machine, storage.name, part_tokens], tokens.ptr, tokens.ids)


def _recorded(record: Path, run_digest: str, n_parts: int) -> list[int | None]:
    """Return the checksum of each finished part of an earlier run with the same digest."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        if found["digest"] == run_digest and len(found["parts"]) == n_parts:
            return list(found["parts"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return [None] * n_parts
