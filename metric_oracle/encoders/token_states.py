"""Token states for BERTScore (Zhang et al., ICLR 2020) from a Hugging Face encoder.

Token ids and states equal those of bert_score 0.3.13 up to float32 noise: texts are stripped, the model is cut to its
first layers, and each vector of its output is divided by its length. A model that ends in a norm (ModernBERT, mBART)
still applies it when cut, as in bert_score; `hidden_states[layer]` would lack the norm.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.base.argument_checks import check_given, check_one_of
from metric_oracle.base.errors import InputError, not_installed, shown
from metric_oracle.base.job import Job
from metric_oracle.base.operating_system import reserve
from metric_oracle.base.progress import Advance
from metric_oracle.encoders.batches import (
    Blocks,
    digest,
    environment,
    part_bounds,
    run_batches,
    run_model,
    store_tokens,
)
from metric_oracle.encoders.libraries import choose_device, quiet
from metric_oracle.encoders.model_files import find, hash_files, load, n_positions
from metric_oracle.encoders.packed_layers import BATCH_TOKENS, Packed, pack

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

# Tokens per batch in float32, see `batches`. Few on a CPU, because a single query takes as long as a whole batch; many
# on a GPU, which would otherwise start batches more slowly than it runs them.
_BATCH_TOKENS = {"cpu": 1 << 7, "cuda": 1 << 13}
# Tokens per part of a file of states, see `write_states`: some seconds to minutes of work.
_PART_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 18}
_TOKENIZED_AT_ONCE = 1 << 13
# Tokenizers for which bert_score sets add_prefix_space. Later versions of transformers merge them into one class
# (Roberta) and silently ignore the argument, so the space is added to the text instead.
_PREFIX_SPACE = ("RobertaTokenizer", "GPT2Tokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer")


@dataclass(frozen=True)
class Tokens:
    """Token ids of texts, special tokens included."""

    ids: npt.NDArray[np.int32]  # int32[T], text after text
    ptr: npt.NDArray[np.int64]  # int64[n + 1], offsets of the texts in `ids`
    n_truncated: int  # number of texts that were longer than the maximum length of the encoder


class TokenEncoder:
    """A model that turns text into token states.

    It is a local folder, for which the network is never used, or the name of a model on the Hugging Face hub, which is
    downloaded unless it is in the local cache. `layer` is the number of layers to run, 0 for the embeddings alone; by
    default 5 for distilroberta-base, and any other model needs it. The type bfloat16 is less accurate than float32, and
    faster on devices that have it. The device "auto" is the GPU if there is one.

    BackendError is raised if torch, transformers or the device is missing, InputError if the model is missing,
    incomplete or damaged, or an argument is not valid.
    """

    def __init__(
        self, model: str | Path, *, layer: int | None = None, device: str = "auto", dtype: str = "float32"
    ) -> None:
        if layer is None:
            layer = PUBLISHED.get(str(model), (None,))[0]
        layer = check_given(
            "layer",
            layer,
            f"for an encoder other than {', '.join(PUBLISHED)}",
            "Add `mo.reports(..., layer=N)`.",
            got=f"none for {shown(Path(model))}",
        )
        check_one_of("dtype", dtype, ("float32", "bfloat16"), "Use float32.")
        self.layer = layer
        self.dtype = dtype
        try:
            import torch
            import transformers  # noqa: F401
        except ImportError as error:
            raise not_installed(f"encoder {shown(Path(model))}", error.name, "encoders") from None
        self.device = choose_device(device)
        self._folder, self.name = find(model)
        with quiet():
            self._tokenizer, loaded = load(self._folder, layer)
        self.width: int = loaded.config.hidden_size  # components of a token's state
        # Maximum length of a text in tokens, special ones included; longer texts are cut.
        self.max_length = min(self._tokenizer.model_max_length, n_positions(loaded))
        self._model = pack(loaded.to(torch.device(self.device)), self.device, dtype)
        self.is_mixed = isinstance(self._model, Packed)  # whether texts of several lengths run at once
        # First and last token of each text, to which bert_score gives weight 0.
        self.special_ids: tuple[int, int] = (self._tokenizer.cls_token_id, self._tokenizer.sep_token_id)
        self._prefix = " " if type(self._tokenizer).__name__.startswith(_PREFIX_SPACE) else ""

    @cached_property
    def signature(self) -> dict[str, Any]:
        """Everything that the states depend on. The hash is that of the files and does not depend on the folder."""
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
        """Device, versions and settings on which the last bits of the states depend."""
        return environment(self.device, _batch_tokens(self), self.dtype)

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of texts in order.

        Texts are stripped and cut to `max_length` tokens; an empty text has only the special tokens.
        """
        lists: list[npt.NDArray[np.int32]] = []
        length = np.zeros(len(texts), np.int64)
        n_truncated = 0
        with quiet():
            for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
                stripped = [text.strip() for text in texts[start : start + _TOKENIZED_AT_ONCE]]
                block = [self._prefix + text if text else text for text in stripped]
                ids_of = self._ids(block, truncation=True, max_length=self.max_length)
                lists.append(np.fromiter(chain.from_iterable(ids_of), np.int32))
                n_ids = np.array([len(ids) for ids in ids_of])
                length[start : start + len(block)] = n_ids
                full = [block[i] for i in np.flatnonzero(n_ids == self.max_length)]
                n_truncated += sum(len(ids) > self.max_length for ids in self._ids(full)) if full else 0
        ids = np.concatenate([np.empty(0, np.int32), *lists])
        return Tokens(ids, np.concatenate([[0], np.cumsum(length)]), n_truncated)

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """Return (begin, end) of each token in a text, (0, 0) of special ones; None if the tokenizer has no spans."""
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
        spans = []
        for begin, end in call["offset_mapping"]:
            first, last = max(begin + before, 0), max(end + before, 0)
            blanks = len(text[first:last]) - len(text[first:last].lstrip())
            spans.append((first + blanks, last) if end > begin else (0, 0))
        return spans

    def _ids(self, texts: list[str], **options: Any) -> list[list[int]]:
        """Return the token ids of each text; `options` are those of the tokenizer."""
        call = self._tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, **options)
        return call["input_ids"]

    def run(self, blocks: Blocks) -> npt.NDArray[np.float32]:
        """Return the states of a batch's tokens as unit vectors, float32[T, width].

        The last bits may depend on the shape, see `batches`. Raise InputError unless all are finite.
        """
        return self.to_host(self.run_on_device(blocks))

    def run_on_device(self, blocks: Blocks) -> Any:
        """Return the states of `run`, unchecked, as a tensor on the encoder's device, which may still compute them."""
        import torch

        with torch.inference_mode(), torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            states = run_model(self._model, blocks).float()
            return states / torch.norm(states, dim=-1, keepdim=True)

    def to_host(self, states: Any) -> npt.NDArray[Any]:
        """Return states as an array in main memory; raise InputError unless all are finite."""
        if not states.isfinite().all():
            step = "Check its weights" if self.dtype == "float32" else "Use float32"
            raise InputError(
                "encoder",
                "must give finite token states other than zero",
                f"NaN from {self.name}, layer {self.layer}, in {self.dtype}",
                f"{step}.",
            )
        return states.cpu().numpy()


def encode(encoder: TokenEncoder, tokens: Tokens, storage: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return the token states of texts as unit vectors, in the order of `tokens`: storage[T, width].

    `storage` is float16 or float32. With one device and one version of the library, the bits of a text's states depend
    neither on the other texts nor on the number of threads.
    """
    return _states(encoder, tokens, 0, len(tokens.ptr) - 1, storage)


def encode_once(
    encoder: TokenEncoder,
    tokens: Tokens,
    storage: npt.DTypeLike,
    known_states: dict[str, dict[bytes, npt.NDArray[Any]]],
) -> npt.NDArray[Any]:
    """Return what `encode` does of distinct texts, but encode only those not in `known_states`, and add them to it.

    `known_states` is settings of an encoder -> bytes of the token ids of a text -> its states; it begins empty.
    """
    states_of = known_states.setdefault(repr([encoder.signature, encoder.environment, np.dtype(storage).name]), {})
    keys = [tokens.ids[first:last].tobytes() for first, last in pairwise(tokens.ptr.tolist())]
    new = [text for text, key in enumerate(keys) if key not in states_of]
    if new:
        length = np.diff(tokens.ptr)[new]
        ptr = np.concatenate([[0], np.cumsum(length)])
        ids = np.concatenate([tokens.ids[tokens.ptr[text] : tokens.ptr[text + 1]] for text in new])
        states = encode(encoder, Tokens(ids, ptr, 0), storage)
        states_of |= {keys[text]: states[ptr[i] : ptr[i + 1]] for i, text in enumerate(new)}
        if len(new) == len(keys):
            return states
    return np.concatenate([states_of[key] for key in keys])


def states_digest(states: npt.NDArray[Any]) -> str:
    """Return the SHA-256, in hexadecimal, of the type, shape and numbers of token states."""
    return digest("states", states)


def write_states(
    encoder: TokenEncoder,
    tokens: Tokens,
    path: Path,
    *,
    storage: npt.DTypeLike,
    part_tokens: int | None = None,
    progress: Advance | None = None,
) -> np.memmap:
    """Write the token states of texts as unit vectors to a raw file; return it as a read-only memmap, as of `encode`.

    A killed run resumes. A part has consecutive texts of about `part_tokens` tokens, by default 32,768 on a CPU and
    262,144 on a GPU. The file is the only piece of a job, whose record, `path` with the ending `.json`, the caller
    removes. A later call with the same encoder, tokens and machine settings keeps the parts that are on record. The
    result has the bytes of a run without a kill. `progress` is called with the number of all finished tokens after
    each part. Encoding is fastest if texts of equal length are adjacent. Raise InputError without tokens.
    """
    storage = np.dtype(storage)
    part_tokens = part_tokens or _PART_TOKENS[encoder.device]
    shape = (len(tokens.ids), encoder.width)
    if not len(tokens.ids):
        raise InputError("texts", "must be at least one", "0 to encode", "Check the file and the section.")
    row_bytes = encoder.width * storage.itemsize
    bounds = part_bounds(tokens.ptr, part_tokens)
    job = Job(path.parent, path.with_suffix(".json").name)
    job.claim(path.name, made_of=_digest(encoder, tokens, storage, part_tokens))
    with path.open("r+b" if path.exists() else "w+b") as file:
        reserve(file.fileno(), shape[0] * row_bytes)
        n_done = 0
        for start, stop in pairwise(bounds):
            first, last = int(tokens.ptr[start]), int(tokens.ptr[stop])
            part = path.name, first * row_bytes, last * row_bytes
            if not job.holds_part(*part):
                file.seek(first * row_bytes)
                file.write(_states(encoder, tokens, start, stop, storage).data)
                file.flush()
                os.fsync(file.fileno())
                job.record_part(*part)
            n_done += last - first
            if progress is not None:
                progress(n_done)
    return np.memmap(path, storage, "r", shape=shape)


def _states(encoder: TokenEncoder, tokens: Tokens, start: int, stop: int, storage: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the states of the texts from the number `start` to `stop` - 1, see `encode`."""
    ptr = tokens.ptr[start : stop + 1] - tokens.ptr[start]
    ids = tokens.ids[tokens.ptr[start] : tokens.ptr[stop]]
    if encoder.device == "cuda":
        return _states_on_device(encoder, ids, ptr, storage)
    states = np.empty((len(ids), encoder.width), storage)
    store = store_tokens(states, ptr, encoder.run)
    run_batches(store, ids, ptr, _batch_tokens(encoder), encoder.device, is_mixed=encoder.is_mixed)
    return states


def _states_on_device(
    encoder: TokenEncoder, ids: npt.NDArray[np.int32], ptr: npt.NDArray[np.int64], storage: npt.DTypeLike
) -> npt.NDArray[Any]:
    """Return the states of texts with offsets `ptr` in `ids`, see `encode`.

    They stay on the device until all are computed, so that no batch waits for a copy.
    """
    import torch

    kind = {2: torch.float16, 4: torch.float32}[np.dtype(storage).itemsize]
    states = torch.empty((len(ids), encoder.width), dtype=kind, device=encoder.device)

    def store(positions: npt.NDArray[np.int64], blocks: Blocks) -> None:
        rows = np.concatenate([np.arange(ptr[i], ptr[i + 1]) for i in positions])
        states[torch.from_numpy(rows).to(encoder.device)] = encoder.run_on_device(blocks)[: len(rows)].to(kind)

    run_batches(store, ids, ptr, _batch_tokens(encoder), encoder.device, is_mixed=encoder.is_mixed)
    return encoder.to_host(states)


def _batch_tokens(encoder: TokenEncoder) -> int:
    """Return the number of tokens per batch: more are faster with mixed lengths, and in bfloat16 on a CPU."""
    is_large = encoder.is_mixed or (encoder.device == "cpu" and encoder.dtype == "bfloat16")
    return BATCH_TOKENS if is_large else _BATCH_TOKENS[encoder.device]


def _digest(encoder: TokenEncoder, tokens: Tokens, storage: np.dtype, part_tokens: int) -> str:
    """Return the hash of everything that the bytes of a file of states depend on; the model's name is not included."""
    settings = {name: value for name, value in encoder.signature.items() if name != "model"}
    machine = environment(encoder.device, _batch_tokens(encoder), encoder.dtype)
    return digest([settings, machine, storage.name, part_tokens], tokens.ptr, tokens.ids)
