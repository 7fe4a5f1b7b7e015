"""CheXbert from its published checkpoint: reports -> embeddings and the classes of 14 findings.

CheXbert is a BertModel with 14 linear heads over the state of [CLS]. `chexbert.pth` holds its tensors as DataParallel
names them, and the state of Adam, which is left alone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.tables import existing_file
from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import one_thread_each, run_batches, run_model
from metric_oracle.encoders.checkpoints import check_names, load_strictly, read_torch
from metric_oracle.errors import InputError
from metric_oracle.files import sha256
from metric_oracle.progress import Count

# Classes of each head, in the order of `corpora.vectors.LABELS`; No Finding is blank or positive.
_HEADS = (4,) * 13 + (2,)
_CALLED = "CheXbert", "chexbert.pth"  # the model, and the file that people pass
_MAX_PIECES = 512
_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_VOCABULARY_NAMES = ("bert-base-uncased", "google-bert/bert-base-uncased")
_TEXTS_PER_BLOCK = 1_024


class CheXbert(Encoder):
    """CheXbert: reports -> embeddings and classes. Parameters that are not listed are those of `Encoder`.

    Parameters
    ----------
    path : path
        `chexbert.pth` as published.
    vocabulary : path
        `vocab.txt` of bert-base-uncased; by default the one in the folder of the checkpoint, else that of the local
        Hugging Face cache.
    """

    title, part_name = "CheXbert", "chexbert"

    def _open(self, *, vocabulary: str | Path | None = None) -> dict[str, str]:
        from transformers import BertTokenizerFast  # type: ignore[attr-defined]

        function = self._function
        existing_file(self._path, function, "checkpoint")
        model = _build_model(_read_tensors(self._path, function), self._path, function)
        self._model = model.eval().to(self._device)
        config = model["bert"].config
        self._dtype = np.dtype([("embedding", np.float32, config.hidden_size), ("classes", np.uint8, len(_HEADS))])
        self._max_pieces = min(_MAX_PIECES, config.max_position_embeddings)
        words = _find_vocabulary(vocabulary, self._path, config.vocab_size, function)
        self._tokenizer = BertTokenizerFast(str(words), do_lower_case=True)
        return {"model": "chexbert", "checkpoint": self._path.name, "sha256": sha256(self._path)}

    def encode(
        self, texts: Sequence[str], *, progress: Count | None = None, scratch: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Encode reports as the published code does, each distinct sequence of word pieces once.

        Parameters
        ----------
        texts : sequence of str
            An empty one is encoded as [CLS] [SEP].
        progress : function
            Called with the number of texts finished since the last call.
        scratch : path
            Folder that keeps finished parts, for the caller to remove: the same call after a kill resumes with them.

        Returns
        -------
        embeddings : float32[n, d]
            The last hidden state of [CLS], not normalised.
        classes : uint8[n, 14]
            0 blank, 1 positive, 2 negative, 3 uncertain, in the order of `corpora.vectors.LABELS`.
        n_truncated : int
            How many texts have more than 512 word pieces, of which the first 511 and [SEP] are read.
        """
        clean = [" ".join(text.split()) for text in texts]
        pieces, truncated = self._split(dict.fromkeys(clean))
        distinct, ptr = longest_first({ids: len(ids) // 4 for ids in pieces.values()})
        place = {ids: number for number, ids in enumerate(distinct)}
        which = np.array([place[pieces[text]] for text in clean], np.int64)
        counts = np.bincount(which, minlength=len(distinct))
        ids = np.frombuffer(b"".join(distinct), np.int32)
        output = np.empty(len(distinct), self._dtype)

        def run(part: slice) -> np.ndarray:
            for done in self._run_part(ids, ptr[part.start : part.stop + 1], output[part]):
                if progress is not None:
                    progress(int(counts[part][done].sum()))
            return output[part]

        for part, rows in self._run_parts(run, ptr, counts, [ptr, ids], scratch, progress):
            output[part] = rows
        n_truncated = sum(text in truncated for text in clean)
        return output["embedding"][which], output["classes"][which], n_truncated

    def _pack(self, output: np.ndarray) -> bytes:
        return output.tobytes()

    def _unpack(self, content: bytes) -> np.ndarray:
        return np.frombuffer(content, self._dtype)

    def _run_part(self, ids: np.ndarray, ptr: np.ndarray, output: np.ndarray) -> Iterator[np.ndarray]:
        """Fill in embeddings and classes of sequences; yield the places of those that are finished."""

        def run(places: np.ndarray, batch: np.ndarray) -> None:
            embeddings, classes = self._run(batch)
            output["embedding"][places], output["classes"][places] = embeddings[: len(places)], classes[: len(places)]

        with one_thread_each(self._device) as run_all:
            yield from run_batches(run, ids, ptr, self.batch_tokens[self._device], run_all)

    def _split(self, texts: Iterable[str]) -> tuple[dict[str, bytes], set[str]]:
        """Return the word pieces of each text (int32 ids as bytes, compact and hashable) and the texts cut off."""
        todo = list(texts)
        pieces: dict[str, bytes] = {}
        truncated = set()
        for first in range(0, len(todo), _TEXTS_PER_BLOCK):
            block = todo[first : first + _TEXTS_PER_BLOCK]
            for text, ids in zip(block, self._tokenizer(block)["input_ids"], strict=True):
                if len(ids) > self._max_pieces:
                    truncated.add(text)
                    ids[self._max_pieces - 1 :] = [self._tokenizer.sep_token_id]
                pieces[text] = np.array(ids, np.int32).tobytes()
        return pieces, truncated

    def _run(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return embeddings and classes of one batch, int64[B, L]."""
        import torch

        with torch.inference_mode():
            states = run_model(self._model["bert"], ids)[:, 0]
            logits = [head(states) for head in self._model["linear_heads"]]
            is_finite = torch.stack([tensor.isfinite().all() for tensor in (states, *logits)]).all()
            classes = torch.stack([values.argmax(1) for values in logits], 1)
        if not is_finite:
            msg = (
                f"{self._function}: checkpoint must give finite numbers; got NaN or infinity from {self._path}. "
                "Fetch chexbert.pth again."
            )
            raise InputError(msg)
        return states.cpu().numpy(), classes.cpu().numpy()


def _read_tensors(path: Path, function: str) -> dict[str, Any]:
    """Read the model's tensors from a checkpoint, under their names without DataParallel's prefix."""
    import torch

    checkpoint = read_torch(path, function, "Fetch chexbert.pth again")
    tensors = checkpoint.get("model_state_dict") if isinstance(checkpoint, dict) else None
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        msg = (
            f'{function}: checkpoint must hold tensors under "model_state_dict"; got none in {path}. Pass chexbert.pth.'
        )
        raise InputError(msg)
    prefix = "module." if all(str(name).startswith("module.") for name in tensors) else ""
    tensors = {str(name)[len(prefix) :]: value for name, value in tensors.items()}
    # Old versions of transformers saved this constant.
    tensors.pop("bert.embeddings.position_ids", None)
    return tensors


def _build_model(tensors: dict[str, Any], path: Path, function: str) -> Any:
    """Return the module whose sizes and weights are those of the tensors; all of them, and no other, must fit."""
    from torch import nn
    from transformers import BertConfig, BertModel

    sources = (
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert.encoder.layer.0.intermediate.dense.weight",
    )
    check_names(function, path, _CALLED, missing=[name for name in sources if name not in tensors])
    check_names(function, path, _CALLED, misshapen=[name for name in sources if tensors[name].ndim != 2])
    (vocabulary, hidden), (positions, _), (types, _), (intermediate, _) = (tensors[name].shape for name in sources)
    layers = {found[1] for name in tensors if (found := re.match(r"bert\.encoder\.layer\.(\d+)\.", name))}
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=len(layers),
        # BERT's heads are 64 wide at every published size; a tiny test model has one.
        num_attention_heads=hidden // 64 if hidden and hidden % 64 == 0 else 1,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        type_vocab_size=types,
    )
    heads = nn.ModuleList(nn.Linear(hidden, n_classes) for n_classes in _HEADS)
    model = nn.ModuleDict({"bert": BertModel(config), "linear_heads": heads})
    load_strictly(model, tensors, path, function, _CALLED)
    return model


def _find_vocabulary(vocabulary: str | Path | None, checkpoint: Path, n_pieces: int, function: str) -> Path:
    """Return the file of word pieces, which must be as many as the model has embeddings."""
    from huggingface_hub import try_to_load_from_cache

    beside = checkpoint.with_name("vocab.txt")
    if vocabulary is not None:
        path = existing_file(Path(vocabulary), function, "vocabulary")
    elif beside.is_file():
        path = beside
    else:
        cached = [try_to_load_from_cache(name, "vocab.txt") for name in _VOCABULARY_NAMES]
        # Not a path: no such file, or a note that the repository has none.
        found = [Path(name) for name in cached if isinstance(name, str)]
        if not found:
            msg = (
                f"{function}: vocabulary must be the vocab.txt of bert-base-uncased; got none beside the checkpoint or "
                f"in the Hugging Face cache. Put it at {beside}."
            )
            raise InputError(msg)
        path = found[0]
    try:
        pieces = path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        pieces = []
    if len(pieces) != n_pieces or not set(_SPECIAL_PIECES) <= set(pieces):
        msg = (
            f"{function}: vocabulary must have one word piece a line, {n_pieces} as in the checkpoint, "
            f"with {' '.join(_SPECIAL_PIECES)}; got {len(pieces)} lines in {path}. "
            "Pass the vocab.txt of bert-base-uncased."
        )
        raise InputError(msg)
    return path
