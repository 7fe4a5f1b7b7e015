"""CREPE from a checkpoint in the published layout: a reference and a candidate -> expected errors of six categories.

Cho et al., EMNLP 2025: an encoder reads both reports at once, ``[CLS] reference [SEP] candidate [SEP]`` in at most 512
word pieces, and six linear heads over its pooled state (that of [CLS] where it has no pooler) predict the numbers of
errors. A count is not negative; the score is their sum. The layout is that of gihuncho/crepe-biomedbert: tensors
``bert.*``, ``error_regressors.0-5`` and ``error_presence.0-5`` (the latter help in training alone), and the encoder's
``config.json`` with ``num_error_categories`` and ``use_poisson_loss``, by which softplus makes counts of what the heads
give. The published package pads to 512 pieces in float32: its scores differ from these by about 1e-6.

Written from the paper; the names of tensors and configuration keys, and the form of the loss, were read in the authors'
public code, which has no licence: none of it is copied.
"""

import json
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.tables import existing_file
from metric_oracle.encoders.base import Encoder
from metric_oracle.encoders.batches import one_thread_each
from metric_oracle.encoders.checkpoints import load_strictly, read_torch
from metric_oracle.errors import InputError
from metric_oracle.files import sha256
from metric_oracle.progress import Count

# False finding, omission, wrong location, wrong severity, comparison made up, comparison omitted.
CATEGORIES = ("A", "B", "C", "D", "E", "F")
MAX_PIECES = 512
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # as transformers calls them, the first one first
VOCABULARIES = ("tokenizer.json", "vocab.txt")
_CALLED = "CREPE", "the folder of gihuncho/crepe-biomedbert, or one that oracle train-crepe wrote"
_SPECIAL_PIECES = ("[UNK]", "[CLS]", "[SEP]")


class Crepe(Encoder):
    """CREPE: pairs of reports -> expected errors. Parameters that are not listed are those of `Encoder`.

    An empty candidate is read as the published package does it: as the reference alone, ``[CLS] reference [SEP]``.

    Parameters
    ----------
    path : path
        Folder with model.safetensors or pytorch_model.bin, or such a file (``.safetensors``, ``.bin``, ``.pt``,
        ``.pth``: tensors without code).
    config : path
        By default the config.json beside the weights.
    vocabulary : path
        tokenizer.json or vocab.txt; by default the one beside the weights, tokenizer.json first. A vocab.txt is
        lower-cased unless a tokenizer_config.json beside it says ``"do_lower_case": false``.
    """

    title = "CREPE"
    batch_tokens: ClassVar = {"cpu": 1, "cuda": 1}  # each pair alone

    def _open(self, *, config: str | Path | None = None, vocabulary: str | Path | None = None) -> dict[str, str]:
        function = self._function
        self._path = _find_weights(self._path.expanduser(), function)
        settings = _find(config, self._path.parent, ("config.json",), function, "crepe_config")
        words = _find(vocabulary, self._path.parent, VOCABULARIES, function, "crepe_vocabulary")
        content = _read_config(settings, function)
        self._is_poisson = content["use_poisson_loss"]
        network = _build(content, settings, function)
        load_strictly(network, _read_tensors(self._path, function), self._path, function, _CALLED)
        self._network = network.eval().double().to(self._device)
        shape = network["bert"].config
        self._tokenizer = load_tokenizer(words, shape.vocab_size, function)
        self._tokenizer.enable_truncation(min(MAX_PIECES, shape.max_position_embeddings), strategy="longest_first")
        return {
            "model": "crepe",
            "checkpoint": self._path.name,
            "sha256": sha256(self._path),
            "config_sha256": sha256(settings),
            "vocabulary_sha256": sha256(words),
        }

    def count_errors(
        self, pairs: Sequence[tuple[str, str]], *, progress: Count | None = None
    ) -> tuple[np.ndarray, int]:
        """Predict the errors of candidates, each distinct pair once, alone, in float64.

        Parameters
        ----------
        pairs : sequence of (reference, candidate)
        progress : function
            Called with the number of distinct pairs finished since the last call.

        Returns
        -------
        counts : float64[n, 6]
            Not negative, in the order of `CATEGORIES`. A pair's bits do not depend on the others.
        n_truncated : int
            How many of the pairs are cut to 512 word pieces, the longer report first.
        """
        place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        counts, is_cut = np.empty((len(place), len(CATEGORIES))), np.zeros(len(place), bool)
        with one_thread_each(self._device) as run_all:
            for i, (found, cut) in enumerate(run_all(self._read, place)):
                counts[i], is_cut[i] = found, cut
                if progress is not None:
                    progress(1)
        which = np.array([place[pair] for pair in pairs], np.int64)
        return counts[which], int(is_cut[which].sum())

    def _read(self, pair: tuple[str, str]) -> tuple[np.ndarray, bool]:
        """Return the counts of one pair, float64[6], and whether it was cut."""
        import torch

        # As transformers has it, and with it the published package: no second report where the candidate is "".
        encoded = self._tokenizer.encode(*pair) if pair[1] else self._tokenizer.encode(pair[0])
        ids, kinds = (torch.tensor([values], device=self._device) for values in (encoded.ids, encoded.type_ids))
        with torch.inference_mode():
            found, _ = run_network(self._network, ids, kinds, torch.ones_like(ids))
            counts = as_counts(found, self._is_poisson)[0].clamp(min=0).cpu().numpy()
        if not np.isfinite(counts).all():
            msg = (
                f"{self._function}: crepe must give finite numbers; got NaN or infinity from {self._path}. "
                "Fetch the checkpoint again."
            )
            raise InputError(msg)
        return counts, bool(encoded.overflowing)


def build_network(config: Any) -> Any:
    """Return the module of an encoder's configuration, with the names that the tensors have in a checkpoint."""
    from torch import nn
    from transformers import AutoModel

    def heads() -> Any:
        return nn.ModuleList(nn.Linear(config.hidden_size, 1) for _ in CATEGORIES)

    return nn.ModuleDict(
        {"bert": AutoModel.from_config(config), "error_regressors": heads(), "error_presence": heads()}
    )


def run_network(network: Any, ids: Any, kinds: Any, mask: Any, drop: Callable[[Any], Any] | None = None) -> Any:
    """Return what the heads of counts and of presence give for a batch: two tensors [B, 6].

    Parameters
    ----------
    network : module of `build_network`
    ids, kinds, mask : int64[B, L]
        Word pieces, 0 for those of the reference and 1 of the candidate, 0 for padding.
    drop : function
        Dropout of the pooled state, in training.
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


def as_counts(found: Any, is_poisson: bool) -> Any:
    """Return the counts that heads mean; below 0 they are none."""
    from torch.nn.functional import softplus

    return softplus(found) if is_poisson else found


def load_tokenizer(path: Path, n_pieces: int, function: str) -> Any:
    """Return the tokenizer of a tokenizer.json or vocab.txt, which must put pairs as BERT has them."""
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    try:
        if path.suffix.lower() == ".json":
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.no_padding()
        else:
            tokenizer = BertWordPieceTokenizer(str(path), lowercase=_lowers(path))._tokenizer
        tokenizer.no_truncation()
        probe = tokenizer.encode("a", "a")
        is_pair = set(probe.type_ids) == {0, 1} and tokenizer.num_special_tokens_to_add(True) == 3
        known = [piece for piece in _SPECIAL_PIECES if tokenizer.token_to_id(piece) is not None]
        found = tokenizer.get_vocab_size()
    # The library raises a bare Exception, and TypeError where a special word piece is lacking.
    except Exception:
        found, is_pair, known = 0, False, []
    if found != n_pieces or not is_pair or len(known) < len(_SPECIAL_PIECES):
        msg = (
            f"{function}: crepe_vocabulary must have {n_pieces} word pieces as in the checkpoint, with "
            f"{' '.join(_SPECIAL_PIECES)}, and put pairs as BERT does; got {found} in {path}. "
            "Pass its tokenizer.json or vocab.txt."
        )
        raise InputError(msg)
    return tokenizer


def _lowers(vocabulary: Path) -> bool:
    """Tell whether texts are lower-cased, from the tokenizer_config.json beside a vocab.txt."""
    beside = vocabulary.with_name("tokenizer_config.json")
    if not beside.is_file():
        return True
    return json.loads(beside.read_text("utf-8")).get("do_lower_case", True) is True


def _find_weights(checkpoint: Path, function: str) -> Path:
    """Return the file of weights that is meant by a folder or a file."""
    if not checkpoint.is_dir():
        return existing_file(checkpoint, function, "crepe")
    return _find(None, checkpoint, WEIGHTS, function, "crepe")


def _find(given: str | Path | None, folder: Path, names: Sequence[str], function: str, argument: str) -> Path:
    """Return a file that is given, or the first of some names in a folder."""
    if given is not None:
        return existing_file(Path(given).expanduser(), function, argument)
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        option = f"--{argument.replace('_', '-')}"
        msg = f"{function}: {argument} must be {' or '.join(names)} in {folder}; got none. Pass {option} FILE."
        raise InputError(msg)
    return found[0]


def _read_config(path: Path, function: str) -> dict[str, Any]:
    """Read the configuration, with what CREPE adds to BERT's."""
    try:
        content = json.loads(path.read_text("utf-8"))
        kind, n, is_poisson = content["model_type"], content["num_error_categories"], content["use_poisson_loss"]
    except (ValueError, TypeError, KeyError, RecursionError):
        kind, n, is_poisson = None, None, None
    if not isinstance(kind, str) or n != len(CATEGORIES) or not isinstance(is_poisson, bool):
        msg = (
            f"{function}: crepe_config must be a config.json of CREPE: model_type, 6 num_error_categories, and "
            f"use_poisson_loss; got another in {path}. Pass that of the checkpoint."
        )
        raise InputError(msg)
    return content


def _build(content: dict[str, Any], path: Path, function: str) -> Any:
    """Return the network of a configuration."""
    from transformers import AutoConfig

    try:
        # Of the library's own kinds alone: nothing in the file names code to run.
        config = type(AutoConfig.for_model(content["model_type"])).from_dict(content)
        config._attn_implementation = "eager"
        if config.max_position_embeddings > 3:  # [CLS] [SEP] [SEP]
            return build_network(config)
    # What is wrong with a number shows in whatever the libraries do with it first.
    except Exception:
        pass
    msg = (
        f"{function}: crepe_config must have a model_type and sizes that an encoder can have; got others in {path}. "
        "Fetch it again."
    )
    raise InputError(msg) from None


def _read_tensors(path: Path, function: str) -> dict[str, Any]:
    """Read the tensors of a checkpoint."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix.lower() == ".safetensors":
        try:
            tensors = load_file(path)
        except (SafetensorError, ValueError, KeyError):
            msg = f"{function}: crepe must be a whole safetensors file; got a damaged one, {path}. Fetch it again."
            raise InputError(msg) from None
    else:
        tensors = read_torch(path, function, "Fetch it again")
        if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
            msg = (
                f"{function}: crepe must hold tensors by their names; got another content in {path}. Pass {WEIGHTS[1]}."
            )
            raise InputError(msg)
    tensors = {str(name): value for name, value in tensors.items()}
    # Old versions of transformers saved this constant.
    tensors.pop("bert.embeddings.position_ids", None)
    return tensors
