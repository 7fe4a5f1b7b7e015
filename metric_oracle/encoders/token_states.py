"""Token states for BERTScore (Zhang et al., ICLR 2020) from a Hugging Face encoder.

Token ids and states equal those of bert_score 0.3.13 up to float32 noise: stripped text, the last output of the model
cut to its first layers, each token's vector divided by its length. A model that ends in a norm (ModernBERT,
mBART) still applies it when cut, as in bert_score; `hidden_states[layer]` would lack it.
"""

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.encoders.libraries import choose_device
from metric_oracle.errors import BackendError, InputError

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

# Tokens of one batch. On a CPU more is slower: what passes between the layers no longer fits the cache.
_BATCH_TOKENS = {"cpu": 1 << 12, "cuda": 1 << 15}
_TOKENIZED_AT_ONCE = 1 << 13
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Places of the list of layers, by family: BERT and its many relatives, DistilBERT, ModernBERT and encoders of BART.
_LAYER_LISTS = ("encoder.layer", "transformer.layer", "layers")
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
            msg = (
                f"{function}: encoder must not be given without torch and transformers; got {model}, but no module "
                f'{error.name}. Run pip install "metric-oracle[encoders]".'
            )
            raise BackendError(msg) from None
        self.device = choose_device(device, function)
        self._folder, self.name = _find(model, function)
        with _quiet():
            self._tokenizer, self._model = _load(self._folder, layer, function)
        self._model.to(torch.device(self.device))
        self.width: int = self._model.config.hidden_size
        self.max_length = min(self._tokenizer.model_max_length, _n_positions(self._model))
        self.special_ids: tuple[int, int] = (self._tokenizer.cls_token_id, self._tokenizer.sep_token_id)
        self._prefix = " " if type(self._tokenizer).__name__.startswith(_PREFIX_SPACE) else ""

    @cached_property
    def signature(self) -> dict[str, Any]:
        """What the states depend on; the hash is that of the files, wherever the folder lies."""
        import torch
        import transformers

        hasher = hashlib.sha256()
        for name in ["config.json", *_weight_files(self._folder), *_tokenizer_files(self._folder)]:
            with (self._folder / name).open("rb") as file:
                hasher.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return {
            "model": self.name,
            "layer": self.layer,
            "sha256": hasher.hexdigest(),
            "width": self.width,
            "max_length": self.max_length,
            "compute": self.dtype,
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        }

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Return the token ids of texts in their order; an empty text has the special tokens only."""
        lists: list[npt.NDArray[np.int32]] = []
        length = np.zeros(len(texts), np.int64)
        n_truncated = 0
        with _quiet():
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

    def _ids(self, texts: list[str], **options: Any) -> list[list[int]]:
        call = self._tokenizer(texts, return_attention_mask=False, return_token_type_ids=False, **options)
        return call["input_ids"]

    def run(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the unit-length states of texts of one length.

        Parameters
        ----------
        ids : int64[B, L]

        Returns
        -------
        float32[B, L, width]
        """
        import torch

        batch = torch.from_numpy(ids).to(self.device)
        with torch.inference_mode(), torch.autocast(self.device, torch.bfloat16, enabled=self.dtype == "bfloat16"):
            states = self._model(input_ids=batch, attention_mask=torch.ones_like(batch))[0].float()
            states = states / torch.norm(states, dim=-1, keepdim=True)
            is_finite = states.isfinite().all()
        if not is_finite:
            step = "Check its weights" if self.dtype == "float32" else "Use float32"
            msg = (
                f"{self.function}: encoder must give finite token states other than zero; got NaN from {self.name}, "
                f"layer {self.layer}, in {self.dtype}. {step}."
            )
            raise InputError(msg)
        return states.cpu().numpy()


def encode(encoder: TokenEncoder, tokens: Tokens, storage: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return the unit-length token states of texts in memory.

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


def write_states(
    encoder: TokenEncoder,
    tokens: Tokens,
    path: Path,
    *,
    storage: npt.DTypeLike,
    part_tokens: int = 1 << 18,
    progress: Callable[[int], None] | None = None,
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
    bounds = _part_bounds(tokens.ptr, part_tokens)
    record = path.with_suffix(".json")
    digest = _digest(encoder, tokens, storage, part_tokens)
    checksums = _recorded(record, digest, len(bounds) - 1)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.truncate(shape[0] * row_bytes)
        # A disk without room shows now and not after hours.
        if hasattr(os, "posix_fallocate"):
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
                beside = record.with_name(record.name + ".tmp")
                beside.write_text(json.dumps({"digest": digest, "parts": checksums}) + "\n", encoding="utf-8")
                beside.replace(record)
            n_done += last - first
            if progress:
                progress(n_done)
    return np.memmap(path, storage, "r", shape=shape)


def _states(encoder: TokenEncoder, tokens: Tokens, start: int, stop: int, storage: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the states of the texts `start` to `stop`, in their order.

    A batch has texts of one length. Padding and the mask that it needs would change the last bits of a state with the
    company that its text is in, and cost more than the batches that stay small.
    """
    ptr = tokens.ptr[start : stop + 1] - tokens.ptr[start]
    ids = tokens.ids[tokens.ptr[start] : tokens.ptr[stop]]
    length = np.diff(ptr)
    states = np.empty((len(ids), encoder.width), storage)
    for n_tokens in np.unique(length)[::-1]:
        same = np.flatnonzero(length == n_tokens)
        n_texts = max(1, _BATCH_TOKENS[encoder.device] // int(n_tokens))
        for first in range(0, len(same), n_texts):
            place = ptr[same[first : first + n_texts], None] + np.arange(n_tokens)
            states[place] = encoder.run(ids[place].astype(np.int64))
    return states


def _part_bounds(ptr: npt.NDArray[np.int64], part_tokens: int) -> list[int]:
    """Return the first text of each part, and the number of texts."""
    bounds = [0]
    while bounds[-1] < len(ptr) - 1:
        stop = int(np.searchsorted(ptr, ptr[bounds[-1]] + part_tokens, "right")) - 1
        bounds.append(max(stop, bounds[-1] + 1))
    return bounds


def _digest(encoder: TokenEncoder, tokens: Tokens, storage: np.dtype, part_tokens: int) -> str:
    """Return the hash of everything that the bytes of a file of states depend on, the name of the model left out."""
    import torch

    settings = {name: value for name, value in encoder.signature.items() if name != "model"}
    # Products are summed in another order where the device or the number of threads differs.
    machine = [encoder.device, torch.get_num_threads(), _BATCH_TOKENS[encoder.device]]
    hasher = hashlib.sha256(json.dumps([settings, machine, storage.name, part_tokens]).encode())
    hasher.update(np.ascontiguousarray(tokens.ptr).data)
    hasher.update(np.ascontiguousarray(tokens.ids).data)
    return hasher.hexdigest()


def _recorded(record: Path, digest: str, n_parts: int) -> list[int | None]:
    """Return the checksum of each finished part of an earlier run with the same digest."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        if found["digest"] == digest and len(found["parts"]) == n_parts:
            return list(found["parts"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return [None] * n_parts


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep notes and bars of transformers off the terminal, and leave its settings as they were."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    has_hub_bars = not are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if has_bars:
                logging.enable_progress_bar()
            if not has_hub_bars:
                disable_progress_bars()


def _find(model: str | Path, function: str) -> tuple[Path, str]:
    """Return the folder of a model, and its name in results."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        lacking = _lacking(folder)
        if lacking:
            msg = (
                f"{function}: encoder must be a folder with {lacking[0]}; got none in {folder}. "
                "Save the whole model there, tokenizer included."
            )
            raise InputError(msg)
        return folder, str(folder.resolve())
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(str(model))
        is_name = not isinstance(model, Path) and not folder.exists()
    except HFValidationError:
        is_name = False
    if not is_name:
        msg = (
            f"{function}: encoder must be an existing folder or the name of a Hugging Face model; got {model}. "
            "Check the path."
        )
        raise InputError(msg)
    return _find_on_hub(str(model), function), str(model)


def _find_on_hub(name: str, function: str) -> Path:
    """Return the folder of a model in the local Hugging Face cache, downloaded where it is not there."""
    from huggingface_hub import constants, snapshot_download, try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    # Not a path: no such file, or a note that the repository has none.
    cache = Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    folder = Path(found).parent if isinstance(found, str) else cache
    reason = ""
    if _lacking(folder):
        patterns = ["*.json", "*.txt", "*.model", "model*.safetensors"]
        try:
            with _quiet():
                folder = Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns="*/*"))
                if _lacking(folder):
                    snapshot_download(name, allow_patterns="pytorch_model*", ignore_patterns="*/*")
        # The many errors of the hub and of the two HTTP libraries under it have no narrower parent.
        except Exception as error:
            reason = f" ({type(error).__name__})"
    lacking = _lacking(folder)
    if lacking:
        msg = (
            f"{function}: encoder must be a local folder, or the name of a model in the Hugging Face cache or on its "
            f"hub; got {name} without {', '.join(lacking)} in {folder}, and no download{reason}. "
            "Pass a local folder, or run once with network."
        )
        raise InputError(msg)
    return folder


def _lacking(folder: Path) -> list[str]:
    """Return the names of the files that a folder lacks of a whole model."""
    needed = ["config.json", *(_weight_files(folder) or ["model.safetensors or pytorch_model.bin"])]
    lacking = [name for name in needed if not (folder / name).is_file()]
    vocabularies = ("tokenizer.json", "vocab.txt", "merges.txt", ".model")
    if not any(name.endswith(vocabularies) for name in _tokenizer_files(folder)):
        lacking.append("tokenizer.json or vocab.txt")
    return lacking


def _weight_files(folder: Path) -> list[str]:
    """Return the names of the files of weights that transformers loads, safetensors first."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            # A damaged index is for transformers to find.
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
                return [index.name, *sorted(set(shards))]
            return [index.name]
    return []


def _tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files that make the tokenizer; `*.model` are those of SentencePiece."""
    names = [name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    return names + sorted(path.name for path in folder.glob("*.model"))


def _load(folder: Path, layer: int, function: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model, cut to its first layers."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    common = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **common)
        model, info = AutoModel.from_pretrained(
            folder, **common, dtype=torch.float32, weights_only=True, output_loading_info=True
        )
    # What the libraries under transformers raise at a damaged file has no narrower parent.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        msg = (
            f"{function}: encoder must be a model and a tokenizer that transformers can read without running its code; "
            f"got {folder} ({reason}). Save it anew."
        )
        raise InputError(msg) from error
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        msg = (
            f"{function}: encoder must have a tokenizer with cls and sep tokens; got none in {folder}. "
            "Use a model of BERT's kind."
        )
        raise InputError(msg)
    whole = model
    if hasattr(model, "encoder") and hasattr(model, "decoder"):
        model = model.encoder
    _cut(model, layer, folder, function)
    # Transformers fills what a file lacks with random numbers. The pooler has no part in the states.
    random = sorted(name for name in set(info["missing_keys"]) & set(whole.state_dict()) if "pooler" not in name)
    if random:
        msg = (
            f"{function}: encoder must have weights for every tensor it uses; got none for {len(random)} "
            f"({random[0]}) in {folder}. Use the files that belong to its config.json."
        )
        raise InputError(msg)
    return tokenizer, model.eval()


def _cut(model: Any, layer: int, folder: Path, function: str) -> None:
    """Drop all layers but the first ones, as bert_score does."""
    from torch import nn

    for place in _LAYER_LISTS:
        home, _, name = place.rpartition(".")
        owner = getattr(model, home, None) if home else model
        layers = getattr(owner, name, None)
        if isinstance(layers, nn.ModuleList):
            if not 0 <= layer <= len(layers):
                msg = (
                    f"{function}: layer must be from 0 to {len(layers)} (layers of this encoder); got {layer} for "
                    f"{folder}. Change --layer."
                )
                raise InputError(msg)
            setattr(owner, name, layers[:layer])
            return
    msg = (
        f"{function}: encoder must have a plain list of layers, as BERT, RoBERTa, DistilBERT, ELECTRA, DeBERTa, "
        f"ModernBERT and BART have; got {type(model).__name__} in {folder}. Use a model of such a family."
    )
    raise InputError(msg)


def _n_positions(model: Any) -> int:
    """Return the longest text in tokens that a model has positions for, 512 where it has no such limit."""
    limit = getattr(model.config, "max_position_embeddings", None) or 512
    # RoBERTa counts positions from the one after the padding's.
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit -= module.padding_idx + 1
    return limit
