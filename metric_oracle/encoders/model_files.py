"""Models of the Hugging Face kind on disk: found in a folder or the local cache, checked, loaded and cut."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from metric_oracle.encoders.libraries import quiet
from metric_oracle.errors import InputError
from metric_oracle.files import sha256

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


def find(model: str | Path, function: str) -> tuple[Path, str]:
    """Return the folder of a model, and its name in results."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return whole_folder(folder, function, "encoder"), str(folder.resolve())
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


def whole_folder(model: str | Path, function: str, argument: str) -> Path:
    """Return the folder of a model, or raise unless it has all files that are needed."""
    folder = Path(model).expanduser()
    lacking = _lacking(folder)
    if lacking:
        msg = (
            f"{function}: {argument} must be a folder with {lacking[0]}; got none in {folder}. "
            "Save the whole model there, tokenizer included."
        )
        raise InputError(msg)
    return folder


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
            with quiet():
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
    needed = ["config.json", *(weight_files(folder) or ["model.safetensors or pytorch_model.bin"])]
    lacking = [name for name in needed if not (folder / name).is_file()]
    vocabularies = ("tokenizer.json", "vocab.txt", "merges.txt", ".model")
    if not any(name.endswith(vocabularies) for name in tokenizer_files(folder)):
        lacking.append("tokenizer.json or vocab.txt")
    return lacking


def weight_files(folder: Path) -> list[str]:
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


def tokenizer_files(folder: Path) -> list[str]:
    """Return the names of the files that make the tokenizer; `*.model` are those of SentencePiece."""
    names = [name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    return names + sorted(path.name for path in folder.glob("*.model"))


def hash_files(folder: Path) -> str:
    """Return the SHA-256 of what makes a model and its tokenizer, wherever the folder lies."""
    hasher = hashlib.sha256()
    for name in ["config.json", *weight_files(folder), *tokenizer_files(folder)]:
        hasher.update(f"{name} {sha256(folder / name)}\n".encode())
    return hasher.hexdigest()


def read(folder: Path, kind: Any, function: str, argument: str) -> tuple[Any, Any, list[str]]:
    """Return the tokenizer and the model of a kind of transformers', and the tensors that its files lack."""
    import torch
    from transformers import AutoTokenizer

    common = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, **common)
        model, info = kind.from_pretrained(
            folder, **common, dtype=torch.float32, weights_only=True, output_loading_info=True
        )
    # What the libraries under transformers raise at a damaged file has no narrower parent.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        msg = (
            f"{function}: {argument} must be a model and a tokenizer that transformers can read without running its "
            f"code; got {folder} ({reason}). Save it anew."
        )
        raise InputError(msg) from error
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        msg = (
            f"{function}: {argument} must have a tokenizer with cls and sep tokens; got none in {folder}. "
            "Use a model of BERT's kind."
        )
        raise InputError(msg)
    return tokenizer, model, sorted(info["missing_keys"])


def check_weights(model: Any, lacking: list[str], folder: Path, function: str, argument: str) -> None:
    """Raise where the files lack a tensor that is used: transformers fills it with random numbers."""
    # The pooler has no part in the states.
    random = [name for name in lacking if name in model.state_dict() and "pooler" not in name]
    if random:
        msg = (
            f"{function}: {argument} must have weights for every tensor it uses; got none for {len(random)} "
            f"({random[0]}) in {folder}. Use the files that belong to its config.json."
        )
        raise InputError(msg)


def load(folder: Path, layer: int, function: str) -> tuple[Any, Any]:
    """Return the tokenizer and the model, cut to its first layers."""
    from transformers import AutoModel

    tokenizer, model, lacking = read(folder, AutoModel, function, "encoder")
    whole = model
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    _cut(model, layer, folder, function)
    check_weights(whole, lacking, folder, function, "encoder")
    return tokenizer, model.eval()


def _cut(model: Any, layer: int, folder: Path, function: str) -> None:
    """Drop all layers but the first ones, as bert_score does."""
    from torch import nn

    modules = dict(model.named_modules())
    for place in _LAYER_LISTS:
        layers = modules.get(place)
        if isinstance(layers, nn.ModuleList):
            if not 0 <= layer <= len(layers):
                msg = (
                    f"{function}: layer must be from 0 to {len(layers)} (layers of this encoder); got {layer} for "
                    f"{folder}. Change --layer."
                )
                raise InputError(msg)
            home, _, name = place.rpartition(".")
            modules[home].register_module(name, layers[:layer])
            return
    msg = (
        f"{function}: encoder must have a plain list of layers, as BERT, RoBERTa, DistilBERT, ELECTRA, DeBERTa, "
        f"ModernBERT and BART have; got {type(model).__name__} in {folder}. Use a model of such a family."
    )
    raise InputError(msg)


def n_positions(model: Any) -> int:
    """Return the longest text in tokens that a model has positions for, 512 where it has no such limit."""
    from torch import nn

    limit = model.config.to_dict().get("max_position_embeddings") or 512
    # RoBERTa counts positions from the one after the padding's.
    for name, module in model.named_modules():
        is_positions = name.endswith("position_embeddings") and isinstance(module, nn.Embedding)
        if is_positions and module.padding_idx is not None:
            limit -= module.padding_idx + 1
    return limit
