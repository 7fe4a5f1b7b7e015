"""CREPE from a checkpoint in the published layout: a reference and a candidate -> expected errors of six categories.

In CREPE (Cho et al., EMNLP 2025), an encoder reads both reports at once, ``[CLS] reference [SEP] candidate [SEP]`` in
at most 512 word pieces. Six linear heads over its pooled state (the state of [CLS] if it has no pooler) predict the
numbers of errors, with negative predictions set to 0; the score is their sum. The layout is that of
gihuncho/crepe-biomedbert: tensors ``bert.*``, ``error_regressors.0-5`` and ``error_presence.0-5`` (which are used in
training only), and the encoder's ``config.json`` with ``num_error_categories`` and ``use_poisson_loss``. If the latter
is true, the counts are the softplus of the heads' outputs. The published package pads to 512 pieces and computes in
float32; its scores differ from ours by about 1e-6.

This module was written from the paper. Names of tensors and configuration keys and the form of the loss were read in
the authors' public code, which has no licence; no code is copied.
"""

import json
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import sha256
from metric_oracle.base.progress import Advance
from metric_oracle.corpora.tables import existing_file
from metric_oracle.encoders.base import Encoder
from metric_oracle.encoders.batches import one_thread_each
from metric_oracle.encoders.checkpoints import Published, load_strictly, named_tensors, read_torch

# False finding, omission, wrong location, wrong severity, invented comparison, omitted comparison.
CATEGORIES = ("A", "B", "C", "D", "E", "F")
MAX_PIECES = 512
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # names in transformers; the first one has precedence
VOCABULARIES = ("tokenizer.json", "vocab.txt")
_PUBLISHED = Published(
    "checkpoint", "CREPE", "the folder of gihuncho/crepe-biomedbert, or one that oracle train-crepe wrote"
)
_SPECIAL_PIECES = ("[UNK]", "[CLS]", "[SEP]")


class Crepe(Encoder):
    """CREPE: pairs of reports -> expected errors.

    If the candidate is empty, the model reads the reference alone, ``[CLS] reference [SEP]``, as in the published
    package.

    The weights are a folder with model.safetensors or pytorch_model.bin, or a file of tensors without code:
    ``.safetensors``, ``.bin``, ``.pt`` or ``.pth``. Further files are `config`, by default config.json beside them, and
    `vocabulary`, by default tokenizer.json or else vocab.txt beside them. With a vocab.txt, texts are lower-cased
    unless a tokenizer_config.json in its folder has ``"do_lower_case": false``.
    """

    title = "CREPE"
    batch_tokens: ClassVar = {"cpu": 1, "cuda": 1}  # one pair per batch

    def _open(self, *, config: str | Path | None = None, vocabulary: str | Path | None = None) -> dict[str, str]:
        weights = self._path.expanduser()
        self._path = _find_file(None, weights, WEIGHTS) if weights.is_dir() else existing_file(weights)
        config = _find_file(config, self._path.parent, ("config.json",))
        vocabulary = _find_file(vocabulary, self._path.parent, VOCABULARIES)
        for path in (self._path, config, vocabulary):
            existing_file(path)  # as train-crepe wrote it
        settings = _read_config(config)
        self._is_poisson = settings["use_poisson_loss"]
        network = _build(settings, config)
        load_strictly(network, _read_tensors(self._path), self._path, _PUBLISHED)
        self._network = network.eval().double().to(self._device)
        self._tokenizer = load_tokenizer(vocabulary, network["bert"].config)
        return {
            "model": "crepe",
            "checkpoint": self._path.name,
            "sha256": sha256(self._path),
            "config_sha256": sha256(config),
            "vocabulary_sha256": sha256(vocabulary),
        }

    def count_errors(
        self, pairs: Sequence[tuple[str, str]], *, progress: Advance | None = None
    ) -> tuple[np.ndarray, int]:
        """Predict the numbers of errors of pairs (reference, candidate); return them and how many pairs were cut.

        Counts are float64[n, 6], not negative, in the order of `CATEGORIES`. The bits of a row do not depend on the
        other pairs: each distinct pair is one batch. A pair is cut to 512 word pieces, the longer report first.
        `progress` is called with the number of distinct pairs finished since the last call.
        """
        position = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        counts, is_cut = np.empty((len(position), len(CATEGORIES))), np.zeros(len(position), bool)
        with one_thread_each(self._device) as run_all:
            for i, output in enumerate(run_all(self._count_errors, position)):
                counts[i], is_cut[i] = output
                if progress is not None:
                    progress(1)
        which = np.array([position[pair] for pair in pairs], np.int64)
        return counts[which], int(is_cut[which].sum())

    def _count_errors(self, pair: tuple[str, str]) -> tuple[np.ndarray, bool]:
        """Return the counts of one pair (reference, candidate), float64[6] from 0, and whether its text was cut.

        Raise InputError if a count is not finite.
        """
        import torch

        # transformers, and thus the published package, encodes no second text if it is empty.
        encoded = self._tokenizer.encode(*pair) if pair[1] else self._tokenizer.encode(pair[0])
        ids, kinds = (torch.tensor([values], device=self._device) for values in (encoded.ids, encoded.type_ids))
        with torch.inference_mode():
            outputs, _ = run_network(self._network, ids, kinds, torch.ones_like(ids))
            outputs = torch.nn.functional.softplus(outputs) if self._is_poisson else outputs
            counts = outputs[0].clamp(min=0).cpu().numpy()
        self._check_finite(np.isfinite(counts).all(), "crepe")
        return counts, bool(encoded.overflowing)


def build_network(config: Any) -> Any:
    """Return a network with random weights for an encoder's configuration; its tensors are named as in a checkpoint."""
    from torch import nn
    from transformers import AutoModel

    def heads() -> Any:
        return nn.ModuleList(nn.Linear(config.hidden_size, 1) for _ in CATEGORIES)

    return nn.ModuleDict(
        {"bert": AutoModel.from_config(config), "error_regressors": heads(), "error_presence": heads()}
    )


def run_network(network: Any, ids: Any, kinds: Any, mask: Any, drop: Callable[[Any], Any] | None = None) -> Any:
    """Return the outputs of the count heads and of the presence heads for a batch: two tensors [B, 6].

    Word pieces `ids`, `kinds` and `mask` are int64[B, L]: a kind is 0 in the reference and 1 in the candidate, and the
    mask is 0 for padding, otherwise 1. In training `drop` is the dropout of the pooled state.
    """
    import torch

    encoder = network["bert"]
    typed = {"token_type_ids": kinds} if "token_type_ids" in signature(encoder.forward).parameters else {}
    output = encoder(input_ids=ids, attention_mask=mask, **typed)
    pooled = getattr(output, "pooler_output", None)
    pooled = output.last_hidden_state[:, 0] if pooled is None else pooled
    pooled = pooled if drop is None else drop(pooled)
    counts, presence = (
        torch.cat([head(pooled) for head in network[name]], 1) for name in ("error_regressors", "error_presence")
    )
    return counts, presence


def load_tokenizer(path: Path, config: Any) -> Any:
    """Return the tokenizer of a tokenizer.json or vocab.txt, for the encoder with the configuration `config`.

    It cuts pairs to the encoder's maximum length. Raise InputError unless it has the encoder's number of word pieces
    and joins two texts as BERT does.
    """
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    try:
        if path.suffix.lower() == ".json":
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.no_padding()
        else:
            tokenizer = BertWordPieceTokenizer(str(path), lowercase=_is_uncased(path))._tokenizer
        tokenizer.no_truncation()
        probe = tokenizer.encode("a", "a")
        is_pair = set(probe.type_ids) == {0, 1} and tokenizer.num_special_tokens_to_add(True) == 3
        lacking = [piece for piece in _SPECIAL_PIECES if tokenizer.token_to_id(piece) is None]
        n_pieces = tokenizer.get_vocab_size()
    # The library raises Exception itself, and TypeError if a special word piece is missing.
    except Exception:
        n_pieces, is_pair, lacking = 0, False, []
    if n_pieces != config.vocab_size or not is_pair or lacking:
        wrong = f" without {lacking[0]}" if lacking else " joined in another way"
        raise InputError(
            "vocabulary of crepe",
            f"must have {config.vocab_size} word pieces as in the checkpoint, with {' '.join(_SPECIAL_PIECES)}, "
            "and join pairs of texts as BERT does",
            f"{n_pieces}{wrong if n_pieces == config.vocab_size else ''} in {path}",
            "Pass the tokenizer.json or vocab.txt of the checkpoint.",
        )
    tokenizer.enable_truncation(min(MAX_PIECES, config.max_position_embeddings), strategy="longest_first")
    return tokenizer


def _is_uncased(vocabulary: Path) -> bool:
    """Return whether texts are lower-cased: unless a tokenizer_config.json beside the vocab.txt says otherwise."""
    path = vocabulary.with_name("tokenizer_config.json")
    return not path.is_file() or json.loads(path.read_text("utf-8")).get("do_lower_case", True) is True


def _find_file(path: str | Path | None, folder: Path, names: Sequence[str]) -> Path:
    """Return `path`, else the first of `names` that is a file in the folder; raise InputError if there is none."""
    if path is not None:
        return existing_file(Path(path).expanduser())
    paths = [folder / name for name in names if (folder / name).is_file()]
    if not paths:
        raise InputError("crepe", f"must have {' or '.join(names)}", f"none in {folder}", "Put it there.")
    return paths[0]


def _read_config(path: Path) -> dict[str, Any]:
    """Return the content of a config.json of CREPE; raise InputError if a key is missing or has another value."""
    try:
        content = json.loads(path.read_text("utf-8"))
        kind, n, is_poisson = content["model_type"], content["num_error_categories"], content["use_poisson_loss"]
    except (ValueError, TypeError, KeyError, RecursionError):
        kind, n, is_poisson = None, None, None
    if not isinstance(kind, str) or n != len(CATEGORIES) or not isinstance(is_poisson, bool):
        raise InputError(
            "config of crepe",
            "must be a config.json of CREPE, with model_type, num_error_categories 6 and use_poisson_loss",
            f"another one, {path}",
            "Pass the config.json of the checkpoint.",
        )
    return content


def _build(settings: dict[str, Any], path: Path) -> Any:
    """Return the network with random weights for the content of a config.json, whose `path` is for the message.

    Raise InputError if no encoder can have its type and sizes.
    """
    from transformers import AutoConfig

    try:
        # Only the library's own model types: code that the file may name is not run.
        config = type(AutoConfig.for_model(settings["model_type"])).from_dict(settings)
        config._attn_implementation = "eager"
        if config.max_position_embeddings > 3:  # [CLS] [SEP] [SEP]
            return build_network(config)
    # A wrong number can raise any error in the libraries.
    except Exception:
        pass
    raise InputError(
        "config of crepe",
        "must have a model_type and sizes that an encoder can have",
        f"model_type {settings.get('model_type')!r:.40} with its sizes in {path}",
        "Fetch it again.",
    ) from None


def _read_tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a file of weights by name; raise InputError if it is damaged or has others."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix.lower() == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, ValueError, KeyError):
            raise InputError(
                "crepe", "must be a whole safetensors file", f"a damaged one, {path}", "Fetch it again."
            ) from None
    tensors = named_tensors(read_torch(path, "Fetch it again"))
    if tensors is None:
        raise InputError(
            "crepe", "must hold tensors by their names", f"another content in {path}", f"Pass {WEIGHTS[1]}."
        )
    return tensors
