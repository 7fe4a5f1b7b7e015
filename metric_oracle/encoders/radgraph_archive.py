"""Published RadGraph archives. Their files are read into memory and checked; no code in them is run."""

import io
import json
import math
import pickle
import re
import tarfile
import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from metric_oracle.base.errors import InputError, shown
from metric_oracle.base.files import sha256
from metric_oracle.encoders.checkpoints import named_tensors
from metric_oracle.encoders.model_files import cached_file

MODEL_TYPES = ("radgraph", "radgraph-xl", "modern-radgraph-xl", "echograph")
ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
# Tensors that are not used: those of coreference and events, and positions, which old versions of transformers saved.
_UNUSED = ("_coref.", "_events.", f"{ENCODER}embeddings.position_ids")
# Largest sizes of files in bytes; the published weights have about 0.5 GB.
_MOST_WEIGHT_BYTES = 1 << 33
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class ArchiveSettings:
    """The settings in `config.json`."""

    encoder: str  # name of the transformer
    window: int  # word pieces that the transformer reads at once, special tokens included
    max_width: int  # longest span in words
    n_widths: int  # rows of the embedding of span widths
    n_features: int  # columns of that embedding
    hidden: list[int]  # sizes of the hidden layers of the heads
    spans_per_word: float  # spans per word that relations may connect


def read_files(path: Path) -> tuple[dict[str, bytes], str]:
    """Return the files of an archive or folder by name, and the SHA-256 of the archive or of the folder's weights.

    Raise InputError if a file is missing, damaged or too large.
    """
    if path.is_dir():
        files = _read_folder(path)
    elif path.is_file():
        files = _read_archive(path)
    else:
        raise InputError("archive", "must be an existing .tar.gz file or folder", shown(path), "Check the name.")
    for name in ("config.json", "weights.th"):
        if name not in files:
            raise InputError("archive", f"must hold {name}", f"none in {path}", "Pass a published RadGraph archive.")
    return files, sha256(path / "weights.th" if path.is_dir() else path)


def _read_whole(file: IO[bytes], size: int, name: str, path: Path) -> bytes:
    """Return the content of an open file of `size` bytes, `name` in the archive; InputError if it is too large."""
    most = _MOST_WEIGHT_BYTES if name == "weights.th" else _MOST_BYTES
    if size > most:
        raise InputError("archive", f"must have at most {most} bytes in {name}", f"{size} in {path}", "Fetch it again.")
    return file.read()


def _read_folder(path: Path) -> dict[str, bytes]:
    """Return name -> content of the needed files in a folder, without those that it lacks."""
    files = {}
    for inner_path in [path / "config.json", path / "weights.th", *sorted(path.glob("vocabulary/*.txt"))]:
        if inner_path.is_file():
            name = inner_path.relative_to(path).as_posix()
            with inner_path.open("rb") as file:
                files[name] = _read_whole(file, inner_path.stat().st_size, name, path)
    return files


def _read_archive(path: Path) -> dict[str, bytes]:
    """Return name -> content of the needed members of an archive, read in one pass; raise InputError if damaged."""
    files = {}
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name not in ("config.json", "weights.th") and not re.fullmatch(r"vocabulary/[^/]+\.txt", name):
                    continue
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    raise InputError(
                        "archive", f"must hold {name} as a plain file", f"a link or folder in {path}", "Fetch it again."
                    )
                files[name] = _read_whole(file, member.size, name, path)
            # Read to the end, where gzip stores its checksum.
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass
    except (InputError, PermissionError):
        raise
    except (tarfile.TarError, ValueError, EOFError, OSError, zlib.error):
        raise InputError(
            "archive", "must be a whole .tar.gz file", f"a damaged, cut or foreign one, {path}", "Fetch it again."
        ) from None
    return files


def read_vocabulary(files: Mapping[str, bytes], path: Path) -> tuple[str, list[str], list[str]]:
    """Return the model type, the entity labels (the first is empty and means no entity) and the relation types.

    They are in `files`, name -> content. Raise InputError for other vocabularies than published ones.
    """
    ending = "__ner_labels.txt"
    names = [name[len("vocabulary/") : -len(ending)] for name in files if name.endswith(ending)]
    types = [name for name in MODEL_TYPES if name in names]
    if len(types) != 1:
        raise InputError(
            "archive",
            f"must hold vocabulary/TYPE{ending} for one TYPE of {', '.join(MODEL_TYPES)}",
            f"{shown(*sorted(names)) or 'none'} in {path}",
            "Pass a published RadGraph archive.",
        )
    lists = []
    for kind in ("ner_labels", "relation_labels"):
        try:
            text = files[f"vocabulary/{types[0]}__{kind}.txt"].decode()
        except (KeyError, UnicodeDecodeError):
            text = ""
        lists.append(re.sub(r"\r?\n\Z", "", text).replace("\r\n", "\n").split("\n"))
    labels, relation_types = lists
    if labels[0] or len(labels) < 2 or not all(labels[1:]) or not all(relation_types):
        raise InputError(
            "archive",
            "must have one name per line in its vocabulary, after an empty first line of the entity labels",
            f"another form in {path}",
            "Pass a published RadGraph archive.",
        )
    return types[0], labels, relation_types


def read_settings(raw: bytes, path: Path) -> ArchiveSettings:
    """Return the settings in the content of `config.json`; raise InputError if one is missing or not supported."""
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        config = None

    def value(key: str, rule: str, is_valid: Callable[[Any], bool], default: Any = None) -> Any:
        content = config
        for part in key.split("."):
            content = content.get(part, default) if isinstance(content, dict) else None
        if not is_valid(content):
            raise InputError(
                "archive",
                f"must have {rule} as {key} in config.json",
                f"{content!r:.60} in {path}",
                "Pass a published RadGraph archive.",
            )
        return content

    def count(key: str, minimum: int = 1) -> int:
        return value(key, f"an int of at least {minimum}", lambda n: type(n) is int and n >= minimum)

    indexer, embedder = "dataset_reader.token_indexers.bert", "model.embedder.token_embedders.bert"
    encoder = value(f"{embedder}.model_name", "a name", lambda name: isinstance(name, str) and 0 < len(name) < 200)
    value(f"{indexer}.model_name", f"the same name {encoder!r}", lambda name: name == encoder)
    window = count(f"{embedder}.max_length", 3)
    value(f"{indexer}.max_length", f"the same {window}", lambda n: n == window)
    for task in ("ner", "relation"):
        value(f"model.loss_weights.{task}", "a number above 0", lambda weight: _is_number(weight) and weight > 0)
    # Coreference would change the vectors of spans; no published archive uses it.
    value("model.modules.coref.coref_prop", "0", lambda n: n == 0, default=0)
    n_layers = count("model.feedforward_params.num_layers")
    sizes = "model.feedforward_params.hidden_dims"
    hidden = value(
        sizes,
        f"an int or {n_layers} of them",
        lambda n: type(n) is int or (isinstance(n, list) and [*map(type, n)] == [int] * n_layers),
    )
    max_width = count("dataset_reader.max_span_width")
    return ArchiveSettings(
        encoder=encoder,
        window=window,
        max_width=max_width,
        n_widths=count("model.max_span_width", max_width),
        n_features=count("model.feature_size"),
        hidden=hidden if isinstance(hidden, list) else [hidden] * n_layers,
        spans_per_word=value(
            "model.modules.relation.spans_per_word", "a number above 0", lambda n: _is_number(n) and 0 < n < math.inf
        ),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_weights(content: bytes, path: Path) -> dict[str, Any]:
    """Return the tensors in the content of `weights.th` by name, without those that are not used.

    Raise InputError if it is damaged or has code; `path` is the archive, for the message.
    """
    import torch

    try:
        with warnings.catch_warnings():
            # PyTorch warns about plain pickles before it refuses them.
            warnings.simplefilter("ignore")
            tensors = named_tensors(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError, LookupError, AttributeError):
        tensors = None
    if tensors is None:
        raise InputError(
            "archive",
            "must hold a PyTorch file of tensors without code as weights.th",
            f"a damaged or foreign one in {path}",
            "Fetch it again.",
        )
    return {name: value for name, value in tensors.items() if not name.startswith(_UNUSED)}


def find_encoder(encoder: str | Path | None, name: str) -> Path:
    """Return the folder with configuration and tokenizer of the transformer that the archive calls `name`.

    It is `encoder`, or if that is None, the local folder of that name or the one in the Hugging Face cache. Raise
    InputError if it lacks a file.
    """
    if encoder is not None:
        folder: Path | None = Path(encoder)
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        config = cached_file(name, "config.json")
        folder = config and config.parent
    # Without a vocabulary, transformers would make a tokenizer without words.
    if (
        folder is None
        or not (folder / "config.json").is_file()
        or not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt"))
    ):
        got = folder or "nothing of that name here or in the Hugging Face cache"
        raise InputError(
            "radgraph_encoder",
            f"must be a folder with config.json and tokenizer.json or vocab.txt of {name}",
            got,
            "Fetch these files and pass their folder.",
        )
    return folder


def build_encoder(folder: Path) -> tuple[Any, Any, tuple[int, int]]:
    """Return the transformer in a folder with random weights, its tokenizer, and the ids of its start and end token.

    Raise InputError if transformers cannot read the files, or the tokenizer does not fit.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        # Otherwise transformers 4 compiles ModernBERT on a GPU.
        config.reference_compile = False
        model = transformers.AutoModel.from_config(config, attn_implementation="sdpa", trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        ids = tokenizer("a")["input_ids"]
        start, *inner, end = ids
        is_usable = inner == tokenizer("a", add_special_tokens=False)["input_ids"] and (
            max(tokenizer.get_vocab().values()) < model.get_input_embeddings().num_embeddings
        )
    # transformers and its tokenizers raise many errors for files of another kind, even Exception itself.
    except Exception as error:
        raise InputError(
            "radgraph_encoder",
            f"must hold files that transformers {transformers.__version__} reads",
            f"{type(error).__name__} from {folder}",
            "Fetch config.json and the tokenizer's files again.",
        ) from error
    if not is_usable:
        raise InputError(
            "radgraph_encoder",
            "must have a tokenizer that adds a start and an end token and has no more word pieces than "
            "config.json says",
            f"another in {folder}",
            "Fetch config.json and the tokenizer's files again.",
        )
    return model.float(), tokenizer, (start, end)
