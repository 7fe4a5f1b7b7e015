"""Hugging Face models on disk: finding them in a folder or the local cache, checking, loading and cutting them."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import sha256
from metric_oracle.encoders.libraries import quiet

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Names of the list of layers in BERT and its many relatives, in DistilBERT, and in ModernBERT and encoders of BART.
_LAYER_LISTS = ("encoder.layer", "transformer.layer", "layers")


def find(model: str | Path) -> tuple[Path, str]:
    """Return the folder of a model, and its name in results. `model` is a folder, or a name on the Hugging Face hub.

    By name it is downloaded, unless it is in the local cache. Raise InputError if it is not whole.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return whole_folder(folder, "encoder"), str(folder.resolve())
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(str(model))
        is_name = not isinstance(model, Path) and not folder.exists()
    except HFValidationError:
        is_name = False
    if not is_name:
        raise InputError(
            "encoder",
            "must be an existing folder or the name of a Hugging Face model",
            shown(Path(model)),
            "Check the path.",
        )
    return _find_on_hub(str(model)), str(model)


def whole_folder(model: str | Path, argument: str) -> Path:
    """Return the folder `model`; raise InputError, with the name of the argument, unless it has all needed files."""
    folder = Path(model).expanduser()
    lacking = _lacking(folder)
    if lacking:
        raise InputError(
            argument,
            f"must be a folder with {lacking[0]}",
            f"none in {folder}",
            "Save the whole model there, tokenizer included.",
        )
    return folder


def cached_file(model: str, file: str) -> Path | None:
    """Return the path of a file of the model called `model` in the local Hugging Face cache, or None without it."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(model, file)
    except ValueError:  # no valid name of a model
        return None
    return Path(path) if isinstance(path, str) else None  # the library has a marker for files that a model lacks


def _find_on_hub(name: str) -> Path:
    """Return the folder of a model in the Hugging Face cache, downloaded if missing; raise InputError if that fails."""
    from huggingface_hub import constants, snapshot_download

    config = cached_file(name, "config.json")
    folder = config.parent if config else Path(constants.HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    reason = ""
    if _lacking(folder):
        patterns = ["*.json", "*.txt", "*.model", "model*.safetensors"]
        try:
            with quiet():
                folder = Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns="*/*"))
                if _lacking(folder):
                    snapshot_download(name, allow_patterns="pytorch_model*", ignore_patterns="*/*")
        # The errors of the hub and of its two HTTP libraries have no narrower common class.
        except Exception as error:
            reason = f" ({type(error).__name__})"
    lacking = _lacking(folder)
    if lacking:
        raise InputError(
            "encoder",
            "must be a local folder, or the name of a model in the Hugging Face cache or on its hub",
            f"{name} without {', '.join(lacking)} in {folder}, and no download{reason}",
            "Pass a local folder, or run once with network.",
        )
    return folder


def _lacking(folder: Path) -> list[str]:
    """Return the files of a complete model that a folder lacks, by names that a message can list; empty for none."""
    needed = ["config.json", *(weight_files(folder) or ["model.safetensors or pytorch_model.bin"])]
    lacking = [name for name in needed if not (folder / name).is_file()]
    vocabularies = ("tokenizer.json", "vocab.txt", "merges.txt", ".model")
    if not any(name.endswith(vocabularies) for name in tokenizer_files(folder)):
        lacking.append("tokenizer.json or vocab.txt")
    return lacking


def weight_files(folder: Path) -> list[str]:
    """Return the names of the files of weights in a folder that transformers loads: safetensors, else PyTorch's.

    With an index of several files, that index and the files that it names, which may be missing.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return [name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            # transformers reports a damaged index.
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
                return [index.name, *sorted(set(shards))]
            return [index.name]
    return []


def tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the tokenizer's files in a folder; `*.model` are files of SentencePiece."""
    names = [name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    return names + sorted(path.name for path in folder.glob("*.model"))


def hash_files(folder: Path) -> str:
    """Return the SHA-256, in hexadecimal, of the files of a model and its tokenizer; the folder's path has no part."""
    hasher = hashlib.sha256()
    for name in ["config.json", *weight_files(folder), *tokenizer_files(folder)]:
        hasher.update(f"{name} {sha256(folder / name)}\n".encode())
    return hasher.hexdigest()


def read(folder: Path, kind: Any, argument: str) -> tuple[Any, Any, list[str]]:
    """Return tokenizer and model in a folder, without running its code, and the names of the tensors that it lacks.

    `kind` is the class of transformers that loads the model, such as AutoModel. Raise InputError, with the name of the
    argument, if it cannot.
    """
    import torch
    from transformers import AutoTokenizer

    common = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **common)
        model, info = kind.from_pretrained(
            folder, **common, dtype=torch.float32, weights_only=True, output_loading_info=True
        )
    # The errors that transformers and its libraries raise for damaged files have no narrower common class.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        raise InputError(
            argument,
            "must be a model and a tokenizer that transformers can load (code in the folder is not run)",
            f"{folder} ({reason})",
            "See the reason; if files are damaged, fetch them again.",
        ) from error
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise InputError(
            argument,
            "must have a tokenizer with cls and sep tokens",
            f"none in {folder}",
            "Use a model of BERT's kind.",
        )
    return tokenizer, model, sorted(info["missing_keys"])


def check_weights(model: Any, missing: list[str], folder: Path, argument: str) -> None:
    """Raise InputError if one of the missing tensors of a model is used: transformers fills it with random numbers."""
    # The pooler does not affect the states.
    random = [name for name in missing if name in model.state_dict() and "pooler" not in name]
    if random:
        raise InputError(
            argument,
            "must have weights for every tensor it uses",
            f"none for {len(random)} ({random[0]}) in {folder}",
            "Use the files that belong to its config.json.",
        )


def load(folder: Path, layer: int) -> tuple[Any, Any]:
    """Return the tokenizer in a folder, and the model, or its encoder, cut to its first `layer` layers.

    Raise InputError if a file is damaged, a tensor is missing or the model has fewer layers.
    """
    from transformers import AutoModel

    tokenizer, model, missing = read(folder, AutoModel, "encoder")
    whole = model
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    _cut_layers(model, layer, folder)
    check_weights(whole, missing, folder, "encoder")
    return tokenizer, model.eval()


def _cut_layers(model: Any, layer: int, folder: Path) -> None:
    """Remove all layers of a model but the first `layer`, in place, as bert_score does; InputError if it has fewer."""
    from torch import nn

    modules = dict(model.named_modules())
    for path in _LAYER_LISTS:
        layers = modules.get(path)
        if isinstance(layers, nn.ModuleList):
            if not 0 <= layer <= len(layers):
                raise InputError(
                    "layer",
                    f"must be from 0 to {len(layers)} (layers of this encoder)",
                    f"{layer} for {folder}",
                    "Change `layer`.",
                )
            parent, _, name = path.rpartition(".")
            modules[parent].register_module(name, layers[:layer])
            return
    raise InputError(
        "encoder",
        "must have a plain list of layers, as BERT, RoBERTa, DistilBERT, ELECTRA, DeBERTa, ModernBERT and BART have",
        f"{type(model).__name__} in {folder}",
        "Use a model of such a family.",
    )


def n_positions(model: Any) -> int:
    """Return the maximum length of a text of a model in tokens; 512 if its configuration does not limit it."""
    from torch import nn

    limit = model.config.to_dict().get("max_position_embeddings") or 512
    # RoBERTa's positions begin after that of the padding.
    for name, module in model.named_modules():
        is_positions = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if is_positions and module.padding_idx is not None:
            limit -= module.padding_idx + 1
    return limit
