"""CheXbert from its published checkpoint: reports -> embeddings and the classes of 14 findings.

CheXbert is a BertModel with 14 linear heads over the state of [CLS]. `chexbert.pth` contains its tensors, with the
names that DataParallel gives them, and the state of the Adam optimiser, which is not used.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import sha256
from metric_oracle.base.progress import Advance
from metric_oracle.corpora.tables import existing_file
from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import Blocks, first_rows, run_model
from metric_oracle.encoders.checkpoints import Published, check_names, load_strictly, named_tensors, read_torch
from metric_oracle.encoders.model_files import cached_file
from metric_oracle.encoders.packed_layers import pack

# Number of classes of each head, in the order of `corpora.label_tables.LABELS`; No Finding is blank or positive.
_HEADS = (4,) * 13 + (2,)
_PUBLISHED = Published("checkpoint", "CheXbert", "chexbert.pth")
_MAX_PIECES = 512
_SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_VOCABULARY_NAMES = ("bert-base-uncased", "google-bert/bert-base-uncased")
_TEXTS_PER_BLOCK = 1_024


class CheXbert(Encoder):
    """CheXbert: reports -> embeddings and classes. Its file is `chexbert.pth` as published.

    The further file `vocabulary` is the `vocab.txt` of bert-base-uncased; by default the one in the folder of the
    checkpoint, otherwise the one in the local Hugging Face cache.
    """

    title, part_name = "CheXbert", "chexbert"

    def _open(self, *, vocabulary: str | Path | None = None) -> dict[str, str]:
        import torch
        from transformers import BertTokenizerFast  # type: ignore[attr-defined]

        existing_file(self._path)
        model = _build_model(_read_tensors(self._path), self._path)
        model.eval().to(self._device)
        self._bert = pack(model["bert"], self._device)
        # Weights and biases of all heads, as those of one.
        self._heads = [
            torch.cat([getattr(head, name).detach() for head in model["linear_heads"]]) for name in ("weight", "bias")
        ]
        config = self._bert.config
        self._dtype = np.dtype([("embedding", np.float32, config.hidden_size), ("classes", np.uint8, len(_HEADS))])
        self._max_pieces = min(_MAX_PIECES, config.max_position_embeddings)
        vocabulary = _find_vocabulary(vocabulary, self._path, config.vocab_size)
        self._tokenizer = BertTokenizerFast(str(vocabulary), do_lower_case=True)
        return {"model": "chexbert", "checkpoint": self._path.name, "sha256": sha256(self._path)}

    def encode(
        self, texts: Sequence[str], *, progress: Advance | None = None, scratch: Path | None = None
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Encode reports as the published code does; return embeddings, classes and the number of texts that were cut.

        Embeddings are the last hidden states of [CLS], float32[n, d], not normalised. Classes are uint8[n, 14] in the
        order of `LABELS`: 0 blank, 1 positive, 2 negative, 3 uncertain. Of a text with more than 512
        word pieces the first 511 and [SEP] are read; an empty one is [CLS] [SEP]. Distinct sequences are encoded once.

        `progress` is called with the number of texts finished since the last call. The folder `scratch` keeps finished
        parts: after a kill, the same call continues from them. The caller removes it.
        """
        clean = [" ".join(text.split()) for text in texts]
        pieces, truncated = self._word_pieces(dict.fromkeys(clean))
        distinct, ptr = longest_first({ids: len(ids) // 4 for ids in pieces.values()})
        position = {ids: number for number, ids in enumerate(distinct)}
        which = np.array([position[pieces[text]] for text in clean], np.int64)
        counts = np.bincount(which, minlength=len(distinct))
        ids = np.frombuffer(b"".join(distinct), np.int32)
        output = np.empty(len(distinct), self._dtype)

        def run(part: slice) -> np.ndarray:
            embeddings, classes = output["embedding"][part], output["classes"][part]

            def store(positions: np.ndarray, blocks: Blocks) -> None:
                rows = self._run_batch(blocks)
                embeddings[positions], classes[positions] = (values[: len(positions)] for values in rows)

            def finished(positions: np.ndarray) -> None:
                if progress is not None:
                    progress(int(counts[part][positions].sum()))

            offsets = ptr[part.start : part.stop + 1]
            self._run_batches(self._bert, store, ids, offsets, finished)
            return output[part]

        for part, rows in self._run_parts(run, ptr, counts, [ptr, ids], scratch, progress):
            output[part] = rows
        n_truncated = sum(text in truncated for text in clean)
        return output["embedding"][which], output["classes"][which], n_truncated

    def _pack(self, output: np.ndarray) -> bytes:
        return output.tobytes()

    def _unpack(self, content: bytes) -> np.ndarray:
        return np.frombuffer(content, self._dtype)

    def _word_pieces(self, texts: Iterable[str]) -> tuple[dict[str, bytes], set[str]]:
        """Return text -> word pieces (int32 ids as bytes, which are hashable), and the texts that are cut."""
        texts = list(texts)
        pieces: dict[str, bytes] = {}
        truncated = set()
        for first in range(0, len(texts), _TEXTS_PER_BLOCK):
            block = texts[first : first + _TEXTS_PER_BLOCK]
            for text, ids in zip(block, self._tokenizer(block)["input_ids"], strict=True):
                if len(ids) > self._max_pieces:
                    truncated.add(text)
                    ids[self._max_pieces - 1 :] = [self._tokenizer.sep_token_id]
                pieces[text] = np.array(ids, np.int32).tobytes()
        return pieces, truncated

    def _run_batch(self, blocks: Blocks) -> tuple[np.ndarray, np.ndarray]:
        """Return embeddings, float32[m, d], and classes, int64[m, 14], of a batch.

        Rows after those of its texts have no meaning. Raise InputError if a number is not finite.
        """
        import torch

        with torch.inference_mode():
            states = run_model(self._bert, blocks)[first_rows(blocks)]
            # A product for each text: the last bits of one for several depend on their number.
            logits = torch.stack([torch.nn.functional.linear(state, *self._heads) for state in states])
            is_finite = states.isfinite().all() & logits.isfinite().all()
            classes = torch.stack([values.argmax(1) for values in logits.split(_HEADS, 1)], 1)
        self._check_finite(is_finite, "checkpoint")
        return states.cpu().numpy(), classes.cpu().numpy()


def _read_tensors(path: Path) -> dict[str, Any]:
    """Return the tensors of a checkpoint by name, without the prefix of DataParallel; InputError for another file."""
    checkpoint = read_torch(path, "Fetch chexbert.pth again")
    tensors = named_tensors(checkpoint.get("model_state_dict") if isinstance(checkpoint, dict) else None)
    if tensors is None:
        raise InputError(
            "checkpoint", 'must hold tensors under "model_state_dict"', f"none in {path}", "Pass chexbert.pth."
        )
    prefix = "module." if all(name.startswith("module.") for name in tensors) else ""
    return {name[len(prefix) :]: value for name, value in tensors.items()}


def _build_model(tensors: dict[str, Any], path: Path) -> Any:
    """Return the module with these tensors, whose shapes set its sizes; `path` is their file, for messages.

    Raise InputError if they are not all those of CheXbert, and no others.
    """
    from torch import nn
    from transformers import BertConfig, BertModel

    sources = (
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert.encoder.layer.0.intermediate.dense.weight",
    )
    check_names(path, _PUBLISHED, missing=[name for name in sources if name not in tensors])
    check_names(path, _PUBLISHED, misshapen=[name for name in sources if tensors[name].ndim != 2])
    (vocabulary, hidden), (positions, _), (types, _), (intermediate, _) = (tensors[name].shape for name in sources)
    layers = {match[1] for name in tensors if (match := re.match(r"bert\.encoder\.layer\.(\d+)\.", name))}
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=len(layers),
        # The heads of every published BERT are 64 wide; the tiny models of the tests have one head.
        num_attention_heads=hidden // 64 if hidden and hidden % 64 == 0 else 1,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        type_vocab_size=types,
    )
    heads = nn.ModuleList(nn.Linear(hidden, n_classes) for n_classes in _HEADS)
    model = nn.ModuleDict({"bert": BertModel(config), "linear_heads": heads})
    load_strictly(model, tensors, path, _PUBLISHED)
    return model


def _find_vocabulary(vocabulary: str | Path | None, checkpoint: Path, n_pieces: int) -> Path:
    """Return the file of word pieces: `vocabulary`, or if it is None, one beside the checkpoint or in the cache.

    Raise InputError unless it has `n_pieces`, one for each embedding of the model.
    """
    default = checkpoint.with_name("vocab.txt")
    if vocabulary is not None:
        path = existing_file(Path(vocabulary))
    elif default.is_file():
        path = default
    else:
        cached = [file for name in _VOCABULARY_NAMES if (file := cached_file(name, "vocab.txt"))]
        if not cached:
            raise InputError(
                "vocabulary",
                "must be the vocab.txt of bert-base-uncased",
                "none in the checkpoint's folder or in the Hugging Face cache",
                f"Put it at {default}.",
            )
        path = cached[0]
    try:
        pieces = path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        pieces = []
    lacking = [piece for piece in _SPECIAL_PIECES if piece not in pieces]
    if len(pieces) != n_pieces or lacking:
        raise InputError(
            "vocabulary",
            f"must have one word piece per line, {n_pieces} as in the checkpoint, with {' '.join(_SPECIAL_PIECES)}",
            f"{len(pieces)} lines{f' without {lacking[0]}' if pieces and lacking else ''} in {path}",
            "Pass the vocab.txt of bert-base-uncased.",
        )
    return path
