"""RaTEScore's two published models (Zhao et al., EMNLP 2024): reports -> entities with their types and vectors.

The output is that of the package ratescore 0.6.0. Texts are split into sentences by medspaCy's rules, RaTE-NER-Deberta
labels each word piece of a sentence, and the labels give the entities. The vector of an entity is the last state of
[CLS] in BioLORD-2023-C for the entity's words, of at most 30 word pieces. Two faults of the package are not reproduced:
it gives a report without sentences the entities of the next report, and in a batch of several sentences it reads labels
of padding.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.base.argument_checks import check_given
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import sha256
from metric_oracle.base.progress import Advance
from metric_oracle.corpora.entities import TYPES, EntityTable
from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import Blocks, digest, first_rows, flatten, run_model, store_tokens
from metric_oracle.encoders.libraries import quiet
from metric_oracle.encoders.model_files import check_weights, hash_files, n_positions, read, whole_folder
from metric_oracle.encoders.packed_layers import pack
from metric_oracle.encoders.sentences import RULES, Sentences

_MAX_PIECES, _MAX_ENTITY_PIECES = 512, 30
_MIN_CHARACTERS = 3  # shorter sentences are not read
_LABELS = {"O", *(f"{first}-{kind.upper()}" for first in "BI" for kind in TYPES)}
_SPECIAL = ("[CLS]", "[SEP]")
_TOKENIZED_AT_ONCE = 1_024

_Entity = tuple[str, str]  # type and words
# Entities of each text and whether it was cut; vectors of the words that are new in this part.
_Part = tuple[list[tuple[list[_Entity], bool]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Recognised:
    """Entities of texts."""

    table: EntityTable  # entities of the distinct texts; the ids are the numbers of these texts
    words: list[str]  # words of each entity in the table, as the recogniser's tokenizer spells them
    of_row: np.ndarray  # int64[n], number of each text's distinct text in the table
    n_truncated: int  # texts with a sentence of more than 512 word pieces, of which the first 511 and [SEP] are read

    def cut_off(self) -> str:
        """Return a note for users about the reports that were cut, also if there is none."""
        return (
            f"{self.n_truncated:,} of {len(self.of_row):,} reports have sentences longer than RaTE-NER takes: "
            "their ends are cut off"
        )

    def by_position(self) -> dict[str, dict[str, list[Any]]]:
        """Return position of a text ("0", ...) -> dict of the lists "entities" (their words), "types" and "vectors"."""
        spans = [slice(*self.table.ptr[i : i + 2].tolist()) for i in range(len(self.table.ids))]
        kinds = [TYPES[kind] for kind in self.table.kinds]
        of_text = [
            {"entities": self.words[span], "types": kinds[span], "vectors": list(self.table.vectors[span])}
            for span in spans
        ]
        return {str(row): of_text[number] for row, number in enumerate(self.of_row.tolist())}


class EntityModels(Encoder):
    """RaTE-NER and BioLORD: reports -> entities and their vectors.

    The model is the folder of RaTE-NER-Deberta: a token classifier of transformers with its tokenizer. If the folder
    has medspaCy's `rush_rules.tsv`, sentences are found by these rules; otherwise medspaCy must be installed. The
    further folder `encoder`, which is needed, is that of BioLORD-2023-C, or of another BERT model, with its tokenizer.
    """

    title, part_name = "RaTE-NER", "entities"  # `part_size` counts characters

    def _open(self, *, encoder: str | Path | None = None) -> dict[str, str]:
        from transformers import AutoModel, AutoModelForTokenClassification

        step = "Add `mo.reports(..., entity_encoder=FOLDER)` with the folder of BioLORD-2023-C."
        folder = None if encoder is None else Path(encoder)
        folder = check_given("entity_encoder", folder, "if entities names a model", step)
        self._path = whole_folder(self._path, "entities")
        self._encoder_path = whole_folder(folder, "entity_encoder")
        rules = self._path / RULES
        self._sentences = Sentences(rules if rules.is_file() else None)
        self._tokenizer, self._model = self._load_model(self._path, AutoModelForTokenClassification, "entities")
        self._labels = self._read_labels()
        self._max_pieces = min(_MAX_PIECES, n_positions(self._model))
        self._model = pack(self._model, self._device)
        self._encoder_tokenizer, encoder = self._load_model(self._encoder_path, AutoModel, "entity_encoder")
        self._encoder = pack(encoder, self._device)
        self._width = self._encoder.config.hidden_size
        checksums = {
            "recogniser_sha256": hash_files(self._path),
            "entity_encoder_sha256": hash_files(self._encoder_path),
            "rules_sha256": sha256(self._sentences.path),
        }
        names = {"model": self._path.name, "entity_encoder": self._encoder_path.name}
        return names | {"sha256": digest([*checksums.values()])} | checksums

    def recognise(
        self, texts: Sequence[str], *, progress: Advance | None = None, scratch: Path | None = None
    ) -> Recognised:
        """Find the entities of reports and their vectors. Distinct sentences and distinct entities are encoded once.

        A text without a sentence of at least three characters has no entities. `progress` is called with the number of
        texts finished since the last call. The folder `scratch` keeps finished parts: after a kill, the same call
        continues from them. The caller removes it.
        """
        n_rows = Counter(texts)
        distinct, ptr = longest_first({text: len(text) + 1 for text in n_rows})
        by_sentence: dict[str, list[_Entity]] = {}
        vectors: dict[str, np.ndarray] = {}
        entities: list[list[_Entity]] = []
        cut: list[bool] = []

        def run(part: slice) -> _Part:
            annotated = self._read_texts({text: n_rows[text] for text in distinct[part]}, by_sentence, progress)
            words = dict.fromkeys(words for of_text, _ in annotated for _, words in of_text if words not in vectors)
            return annotated, self._embed(list(words))

        counts = [n_rows[text] for text in distinct]
        for _, (annotated, new_vectors) in self._run_parts(run, ptr, counts, [distinct], scratch, progress):
            vectors |= new_vectors
            entities += [of_text for of_text, _ in annotated]
            cut += [is_cut for _, is_cut in annotated]
        number = {text: i for i, text in enumerate(distinct)}
        flat = [*chain.from_iterable(entities)]
        table = EntityTable(
            [str(i) for i in range(len(distinct))],
            np.cumsum([0, *map(len, entities)], dtype=np.int64),
            np.array([TYPES.index(kind) for kind, _ in flat], np.uint8),
            np.array([vectors[words] for _, words in flat], np.float32).reshape(len(flat), self._width),
        )
        n_truncated = sum(n_rows[text] for text, is_cut in zip(distinct, cut, strict=True) if is_cut)
        of_row = np.array([number[text] for text in texts], np.int64)
        return Recognised(table, [words for _, words in flat], of_row, n_truncated)

    def _load_model(self, folder: Path, kind: Any, argument: str) -> tuple[Any, Any]:
        """Return tokenizer and model in a folder, see `model_files.read`; raise InputError if it lacks weights."""
        with quiet():
            tokenizer, model, missing = read(folder, kind, argument)
        check_weights(model, missing, folder, argument)
        return tokenizer, model.eval().to(self._device)

    def _read_labels(self) -> list[str]:
        """Return the labels of the recogniser by number; raise InputError for another model."""
        names = self._model.config.id2label
        labels = [str(names[i]) for i in range(len(names))]
        foreign = [label for label in labels if label not in _LABELS]
        if foreign or "O" not in labels:
            raise InputError(
                "entities",
                f"must be a model with the labels O, B-TYPE and I-TYPE, types {', '.join(TYPES)}",
                f"{foreign[0]!r:.40} in {self._path}" if foreign else f"no O in {self._path}",
                "Pass the folder of RaTE-NER-Deberta.",
            )
        return labels

    def _read_texts(
        self, texts: dict[str, int], by_sentence: dict[str, list[_Entity]], progress: Advance | None
    ) -> list[tuple[list[_Entity], bool]]:
        """Return the entities of each text, and whether it was cut.

        `texts` is text -> number of rows that have it, which `progress` is told as they are finished. `by_sentence` is
        sentence -> entities; this call encodes the other sentences and adds them.
        """
        split = {
            text: [sentence for sentence in self._sentences.split(text) if len(sentence) >= _MIN_CHARACTERS]
            for text in texts
        }
        new = sorted({sentence for sentences in split.values() for sentence in sentences} - by_sentence.keys())
        texts_with: dict[str, list[str]] = {sentence: [] for sentence in new}
        n_open: Counter[str] = Counter()  # number of sentences of each text that have not been read yet
        for text, sentences in split.items():
            for sentence in {*sentences} & texts_with.keys():
                texts_with[sentence].append(text)
                n_open[text] += 1
        if progress is not None:
            progress(sum(n for text, n in texts.items() if not n_open[text]))
        ids, is_cut = self._word_pieces(self._tokenizer, new, self._max_pieces)
        flat, ptr = flatten(ids)
        labels = np.empty(len(flat), np.int16)

        def finished(positions: np.ndarray) -> None:
            n_rows = 0
            for i in positions.tolist():
                n_open.subtract(texts_with[new[i]])
                n_rows += sum(texts[text] for text in texts_with[new[i]] if not n_open[text])
            if progress is not None:
                progress(n_rows)

        store = store_tokens(labels, ptr, self._label)
        self._run_batches(self._model, store, flat, ptr, finished)
        for i, sentence in enumerate(new):
            names = [self._labels[label] for label in labels[ptr[i] : ptr[i + 1]]]
            by_sentence[sentence] = self._entities(ids[i], names)
        cut = {sentence for sentence, is_long in zip(new, is_cut, strict=True) if is_long}
        return [
            ([*chain.from_iterable(map(by_sentence.__getitem__, sentences))], not cut.isdisjoint(sentences))
            for sentences in split.values()
        ]

    def _entities(self, ids: list[int], labels: list[str]) -> list[_Entity]:
        """Return type and words of each entity of a sentence, from the ids of its word pieces and their labels."""
        pieces = self._tokenizer.convert_ids_to_tokens(ids)
        return [
            (kind.lower(), self._tokenizer.convert_tokens_to_string(pieces[first : last + 1]))
            for first, last, kind in find_entities(pieces, labels)
        ]

    def _word_pieces(self, tokenizer: Any, texts: list[str], max_pieces: int) -> tuple[list[list[int]], list[bool]]:
        """Return the ids of each text's word pieces, special ones included, and whether it was cut to `max_pieces`."""
        pieces: list[list[int]] = []
        is_cut: list[bool] = []
        with quiet():
            for first in range(0, len(texts), _TOKENIZED_AT_ONCE):
                block = texts[first : first + _TOKENIZED_AT_ONCE]
                ids = tokenizer(block, truncation=True, max_length=max_pieces)["input_ids"]
                full = [i for i, of_text in enumerate(ids) if len(of_text) == max_pieces]
                uncut = tokenizer([block[i] for i in full])["input_ids"] if full else []
                longer = {i for i, of_text in zip(full, uncut, strict=True) if len(of_text) > max_pieces}
                is_cut += [i in longer for i in range(len(block))]
                pieces += ids
        return pieces, is_cut

    def _label(self, blocks: Blocks) -> np.ndarray:
        """Return the number of the best label of each word piece of a batch, int64[T]; InputError if not finite."""
        import torch

        with torch.inference_mode():
            logits = run_model(self._model, blocks)
            is_finite, best = logits.isfinite().all(), logits.argmax(1)
        self._check_finite(is_finite, "entities")
        return best.cpu().numpy()

    def _embed(self, words: list[str]) -> dict[str, np.ndarray]:
        """Return words of an entity -> their vector, float32[d]."""
        ids, _ = self._word_pieces(self._encoder_tokenizer, words, _MAX_ENTITY_PIECES)
        vectors = np.empty((len(words), self._width), np.float32)

        def store(positions: np.ndarray, blocks: Blocks) -> None:
            vectors[positions] = self._first_states(blocks)[: len(positions)]

        self._run_batches(self._encoder, store, *flatten(ids))
        return dict(zip(words, vectors, strict=True))

    def _first_states(self, blocks: Blocks) -> np.ndarray:
        """Return the last states of the first word pieces of the texts in a batch, float32[B, d].

        Raise InputError if they are not finite, or one is zero.
        """
        import torch

        with torch.inference_mode():
            states = run_model(self._encoder, blocks)[first_rows(blocks)]
        vectors = states.float().cpu().numpy()
        # A vector of zeros has no cosine with another.
        is_valid = np.isfinite(vectors).all() and vectors.any(axis=1).all()
        self._check_finite(is_valid, "entity_encoder", self._encoder_path, "NaN, infinity or a vector of zeros")
        return vectors

    def _pack(self, output: _Part) -> bytes:
        annotated, vectors = output
        content = json.dumps([annotated, list(vectors)]).encode()
        return b"".join([len(content).to_bytes(8, "little"), content, *(row.tobytes() for row in vectors.values())])

    def _unpack(self, content: bytes) -> _Part:
        n = int.from_bytes(content[:8], "little")
        texts, words = json.loads(content[8 : 8 + n])
        vectors = np.frombuffer(content[8 + n :], np.float32).reshape(len(words), self._width)
        annotated = [([(kind, spelled) for kind, spelled in of_text], is_cut) for of_text, is_cut in texts]
        return annotated, dict(zip(words, vectors, strict=True))


def find_entities(pieces: Sequence[str], labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return (first word piece, last one, type) of each entity in a sentence, as the package ratescore reads labels.

    Whether an entity ends at a word piece depends on the label of the next one; for the last word piece, that is the
    label of [SEP]. If [SEP] has an I- label, the open entity extends to the last word piece, unless it directly follows
    another entity.
    """
    entities: list[tuple[int, int, str]] = []
    start: tuple[int, str] | None = None  # first word piece and type of the open entity
    has_ended = False
    for position, (piece, label, next_label) in enumerate(zip(pieces, labels, labels[1:], strict=False)):
        if piece in _SPECIAL or label == "O":
            continue
        is_start, next_prefix = label[0] == "B", next_label[0]
        if next_prefix == "I":
            start = (position, label[2:]) if is_start else start
            continue
        if is_start:
            entities.append((position, position, label[2:]))
        elif start is not None:
            entities.append((start[0], position, start[1]))
        has_ended = next_prefix == "B"
        start = (position, label[2:]) if has_ended else None
    if start is not None and not has_ended:
        entities.append((start[0], len(pieces) - 2, start[1]))
    return entities
