"""Published RadGraph archives: their files are read, checked and never extracted; nothing in them is run."""

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

from metric_oracle.corpora.tables import shown_names
from metric_oracle.errors import InputError
from metric_oracle.files import sha256

MODEL_TYPES = ("radgraph", "radgraph-xl", "modern-radgraph-xl", "echograph")
ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
# Coreference and events take no part in RadGraph; old versions of transformers saved the positions.
_UNUSED = ("_coref.", "_events.", f"{ENCODER}embeddings.position_ids")
# Bytes of a file read into memory; the published weights have about 0.5 GB.
_MOST_BYTES = {"weights.th": 1 << 33}
_MOST_BYTES_ELSE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What `config.json` says."""

    encoder: str
    window: int
    max_width: int
    n_widths: int
    n_features: int
    hidden: list[int]
    spans_per_word: float


def read_files(path: Path, function: str) -> tuple[dict[str, bytes], str]:
    """Return the files of an archive by name, and the sha256 of the archive (of a folder's weights)."""
    if path.is_dir():
        files = _read_folder(path, function)
    elif path.is_file():
        files = _read_archive(path, function)
    else:
        msg = f"{function}: archive must be an existing .tar.gz file or folder; got {path}. Check the name."
        raise InputError(msg)
    for name in ("config.json", "weights.th"):
        if name not in files:
            msg = f"{function}: archive must hold {name}; got none in {path}. Pass a published RadGraph archive."
            raise InputError(msg)
    return files, sha256(path / "weights.th" if path.is_dir() else path)


def _is_needed(name: str) -> bool:
    return name in ("config.json", "weights.th") or re.fullmatch(r"vocabulary/[^/]+\.txt", name) is not None


def _read_whole(file: IO[bytes], size: int, name: str, path: Path, function: str) -> bytes:
    most = _MOST_BYTES.get(name, _MOST_BYTES_ELSE)
    if size > most:
        msg = f"{function}: archive must have at most {most} bytes in {name}; got {size} in {path}. Fetch it again."
        raise InputError(msg)
    return file.read()


def _read_folder(path: Path, function: str) -> dict[str, bytes]:
    files = {}
    for inner in [path / "config.json", path / "weights.th", *sorted(path.glob("vocabulary/*.txt"))]:
        if inner.is_file():
            name = inner.relative_to(path).as_posix()
            with inner.open("rb") as file:
                files[name] = _read_whole(file, inner.stat().st_size, name, path, function)
    return files


def _read_archive(path: Path, function: str) -> dict[str, bytes]:
    """Read the needed members into memory, by exact name and in one pass; nothing is extracted."""
    files = {}
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if not _is_needed(name):
                    continue
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    msg = (
                        f"{function}: archive must hold {name} as a plain file; got a link or folder in {path}. "
                        "Fetch it again."
                    )
                    raise InputError(msg)
                files[name] = _read_whole(file, member.size, name, path, function)
            # To the end, where gzip has its checksum.
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass
    except (InputError, PermissionError):
        raise
    except (tarfile.TarError, ValueError, EOFError, OSError, zlib.error):
        msg = (
            f"{function}: archive must be a whole .tar.gz file; got a damaged, cut or foreign one, {path}. "
            "Fetch it again."
        )
        raise InputError(msg) from None
    return files


def read_vocabulary(files: Mapping[str, bytes], path: Path, function: str) -> tuple[str, list[str], list[str]]:
    """Return the model type, the labels (the first is empty, for no entity) and the relation types."""
    ending = "__ner_labels.txt"
    found = [name[len("vocabulary/") : -len(ending)] for name in files if name.endswith(ending)]
    types = [name for name in MODEL_TYPES if name in found]
    if len(types) != 1:
        msg = (
            f"{function}: archive must hold vocabulary/TYPE{ending} for one TYPE of {', '.join(MODEL_TYPES)}; "
            f"got {shown_names(sorted(found)) or 'none'} in {path}. Pass a published RadGraph archive."
        )
        raise InputError(msg)
    lists = []
    for kind in ("ner_labels", "relation_labels"):
        try:
            text = files[f"vocabulary/{types[0]}__{kind}.txt"].decode()
        except (KeyError, UnicodeDecodeError):
            text = ""
        lists.append(re.sub(r"\r?\n\Z", "", text).replace("\r\n", "\n").split("\n"))
    labels, relation_types = lists
    if labels[0] or len(labels) < 2 or not all(labels[1:]) or not all(relation_types):
        msg = (
            f"{function}: archive must have one name a line in its vocabulary, after an empty first line of the entity "
            f"labels; got another form in {path}. Pass a published RadGraph archive."
        )
        raise InputError(msg)
    return types[0], labels, relation_types


def read_settings(raw: bytes, path: Path, function: str) -> Settings:
    """Return what `config.json` says, checked."""
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        config = None

    def value(key: str, rule: str, is_valid: Callable[[Any], bool], default: Any = None) -> Any:
        found = config
        for part in key.split("."):
            found = found.get(part, default) if isinstance(found, dict) else None
        if not is_valid(found):
            msg = (
                f"{function}: archive must have {rule} as {key} in config.json; got {found!r:.60} in {path}. "
                "Pass a published RadGraph archive."
            )
            raise InputError(msg)
        return found

    def count(key: str, least: int = 1) -> int:
        return value(key, f"an int of at least {least}", lambda n: type(n) is int and n >= least)

    indexer, embedder = "dataset_reader.token_indexers.bert", "model.embedder.token_embedders.bert"
    encoder = value(f"{embedder}.model_name", "a name", lambda name: isinstance(name, str) and 0 < len(name) < 200)
    value(f"{indexer}.model_name", f"the same name {encoder!r}", lambda name: name == encoder)
    window = count(f"{embedder}.max_length", 3)
    value(f"{indexer}.max_length", f"the same {window}", lambda n: n == window)
    for task in ("ner", "relation"):
        value(f"model.loss_weights.{task}", "a number above 0", lambda weight: _is_number(weight) and weight > 0)
    # It would change the spans' vectors; no published archive has it.
    value("model.modules.coref.coref_prop", "0", lambda n: n == 0, default=0)
    n_layers = count("model.feedforward_params.num_layers")
    sizes = "model.feedforward_params.hidden_dims"
    hidden = value(sizes, f"an int or {n_layers} of them", lambda n: type(n) is int or _are_counts(n, n_layers))
    max_width = count("dataset_reader.max_span_width")
    return Settings(
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


def _are_counts(values: object, n: int) -> bool:
    return isinstance(values, list) and len(values) == n and all(type(value) is int for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_tensors(content: bytes, path: Path, function: str) -> dict[str, Any]:
    """Return the tensors of `weights.th` but for those of tasks that take no part."""
    import torch

    try:
        with warnings.catch_warnings():
            # PyTorch warns of plain pickles before it refuses them.
            warnings.simplefilter("ignore")
            tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError, LookupError, AttributeError):
        tensors = None
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        msg = (
            f"{function}: archive must hold a PyTorch file of tensors without code as weights.th; "
            f"got a damaged or foreign one in {path}. Fetch it again."
        )
        raise InputError(msg)
    return {str(name): value for name, value in tensors.items() if not str(name).startswith(_UNUSED)}


def check_tensors(
    tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], path: Path, encoder: str, function: str
) -> None:
    """Raise where names or shapes of the tensors are not those expected; the first two of each kind are named."""
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": [name for name in tensors if name not in expected],
        "misshapen": [name for name in expected if name in tensors and tuple(tensors[name].shape) != expected[name]],
    }
    found = [
        f"{len(names)} {kind} ({', '.join([*names[:2], *(['...'] if len(names) > 2 else [])])})"
        for kind, names in problems.items()
        if names
    ]
    if found:
        msg = (
            f"{function}: archive must hold the tensors that its config.json and its encoder {encoder} have; "
            f"got {', '.join(found)} in {path}. Pass a published archive and the encoder of that name."
        )
        raise InputError(msg)


def find_encoder(encoder: str | Path | None, name: str, function: str) -> Path:
    """Return the folder with configuration and tokenizer of the transformer."""
    from huggingface_hub import try_to_load_from_cache

    if encoder is not None:
        folder: Path | None = Path(encoder)
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        try:
            cached = try_to_load_from_cache(name, "config.json")
        except ValueError:
            cached = None
        # Not a path: no such file, or a note that the repository has none.
        folder = Path(cached).parent if isinstance(cached, str) else None
    # Without the second file, transformers makes up a tokenizer that knows no word.
    if (
        folder is None
        or not (folder / "config.json").is_file()
        or not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt"))
    ):
        got = folder or "nothing of that name here or in the Hugging Face cache"
        msg = (
            f"{function}: encoder must be a folder with config.json and tokenizer.json or vocab.txt of {name}; "
            f"got {got}. Fetch these files and pass their folder."
        )
        raise InputError(msg)
    return folder


def build_encoder(folder: Path, function: str) -> tuple[Any, Any, tuple[int, int]]:
    """Return the transformer with no weights yet, its tokenizer and the ids of its start and end token."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        # transformers 4 would compile ModernBERT on a GPU.
        config.reference_compile = False
        model = transformers.AutoModel.from_config(config, attn_implementation="sdpa", trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        ids = tokenizer("a")["input_ids"]
        start, *inner, end = ids
        is_usable = inner == tokenizer("a", add_special_tokens=False)["input_ids"] and (
            max(tokenizer.get_vocab().values()) < model.get_input_embeddings().num_embeddings
        )
    # Whatever transformers and its tokenizers raise at foreign files, a bare Exception among it.
    except Exception as error:
        msg = (
            f"{function}: encoder must hold files that transformers {transformers.__version__} reads; "
            f"got {type(error).__name__} from {folder}. Fetch config.json and the tokenizer's files again."
        )
        raise InputError(msg) from error
    if not is_usable:
        msg = (
            f"{function}: encoder must have a tokenizer that adds a start and an end token and has no more word pieces "
            f"than config.json says; got another in {folder}. Fetch config.json and the tokenizer's files again."
        )
        raise InputError(msg)
    return model.float(), tokenizer, (start, end)
