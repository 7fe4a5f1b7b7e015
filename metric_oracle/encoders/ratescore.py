"""RaTEScore's two published models (Zhao et al., EMNLP 2024): reports -> entities with their types and vectors.

What they make, the package ratescore 0.6.0 defines: sentences by medspaCy's rules, one label for each word piece of a
sentence by RaTE-NER-Deberta, entities from the labels, and for each the last state of [CLS] that BioLORD-2023-C gives
for its text, of at most 30 word pieces. Two artefacts of the package are not kept: it gives a report without a sentence
the entities of the next one, and with a batch of several sentences its labels of padding count.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from metric_oracle.corpora.entities import TYPES, EntityTable
from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import digest, flatten, one_thread_each, run_batches, run_model, store_tokens
from metric_oracle.encoders.libraries import quiet
from metric_oracle.encoders.model_files import check_weights, hash_files, n_positions, read, whole_folder
from metric_oracle.encoders.sentences import RULES, Sentences
from metric_oracle.errors import InputError
from metric_oracle.files import sha256
from metric_oracle.progress import Count

_MAX_PIECES, _MAX_OF_ENTITY = 512, 30
_LEAST = 3  # characters of a sentence that is read
_LABELS = {"O", *(f"{first}-{kind.upper()}" for first in "BI" for kind in TYPES)}
_SPECIAL = ("[CLS]", "[SEP]")
_TOKENIZED_AT_ONCE = 1_024

_Entity = tuple[str, str]  # type and words
# Entities of each text and whether it was cut; vectors of the words that no earlier part has.
_Part = tuple[list[tuple[list[_Entity], bool]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Recognised:
    """Entities of texts.

    Attributes
    ----------
    table : EntityTable
        Of the distinct texts, by their places.
    words : list of str
        Of each entity in the table, as the recogniser's tokenizer spells them.
    of_row : int64[n]
        Each text's place in the table.
    n_truncated : int
        Texts with a sentence of more than 512 word pieces, of which the first 511 and [SEP] are read.
    """

    table: EntityTable
    words: list[str]
    of_row: np.ndarray
    n_truncated: int

    def cut_off(self) -> str:
        """Return a line for people about what was not read."""
        return (
            f"{self.n_truncated:,} of {len(self.of_row):,} reports have sentences longer than RaTE-NER takes: "
            "their ends are cut off"
        )

    def records(self) -> dict[str, dict[str, list[Any]]]:
        """Return words, types and vectors of each text by its place, as `corpora.entities` reads them."""
        spans = [slice(*self.table.ptr[i : i + 2].tolist()) for i in range(len(self.table.ids))]
        kinds = [TYPES[kind] for kind in self.table.kinds]
        made = [
            {"entities": self.words[some], "types": kinds[some], "vectors": list(self.table.vectors[some])}
            for some in spans
        ]
        return {str(row): made[place] for row, place in enumerate(self.of_row.tolist())}


class EntityModels(Encoder):
    """RaTE-NER and BioLORD: reports -> entities and their vectors. See `Encoder` for the other parameters.

    Parameters
    ----------
    path : path
        Folder of RaTE-NER-Deberta: a token classifier of transformers with its tokenizer. Where medspaCy's
        `rush_rules.tsv` lies in it, sentences are found by that; otherwise medspaCy must be installed.
    encoder : path
        Folder of BioLORD-2023-C, or of another model of BERT's kind, with its tokenizer.
    """

    title, part_name = "RaTE-NER", "entities"  # `part_size` counts characters

    def _open(self, *, encoder: str | Path | None = None) -> dict[str, str]:
        from transformers import AutoModel, AutoModelForTokenClassification

        function = self._function
        if encoder is None:
            msg = (
                f"{function}: entity_encoder must be given with a model that finds entities; got None. "
                "Add --entity-encoder FOLDER: that of BioLORD-2023-C."
            )
            raise InputError(msg)
        self._path = whole_folder(self._path, function, "entities")
        self._encoder_path = whole_folder(encoder, function, "entity_encoder")
        rules = self._path / RULES
        self._sentences = Sentences(rules if rules.is_file() else None, function)
        self._tokenizer, self._model = self._load(self._path, AutoModelForTokenClassification, "entities")
        self._labels = self._read_labels()
        self._max_pieces = min(_MAX_PIECES, n_positions(self._model))
        self._encoder_tokenizer, self._encoder = self._load(self._encoder_path, AutoModel, "entity_encoder")
        self._width = self._encoder.config.hidden_size
        own = {
            "recogniser_sha256": hash_files(self._path),
            "entity_encoder_sha256": hash_files(self._encoder_path),
            "rules_sha256": sha256(self._sentences.path),
        }
        named = {"model": self._path.name, "entity_encoder": self._encoder_path.name}
        return named | {"sha256": digest([*own.values()])} | own  # a change of any part makes another model

    def recognise(
        self, texts: Sequence[str], *, progress: Count | None = None, scratch: Path | None = None
    ) -> Recognised:
        """Find the entities of reports, each distinct sentence read once, and their vectors, each of distinct words.

        Parameters
        ----------
        texts : sequence of str
            One without a sentence of three characters has no entities.
        progress : function
            Called with the number of texts finished since the last call.
        scratch : path
            Folder that keeps finished parts, for the caller to remove: the same call after a kill resumes with them.
        """
        n_rows = Counter(texts)
        distinct, ptr = longest_first({text: len(text) + 1 for text in n_rows})
        of_sentence: dict[str, list[_Entity]] = {}
        vectors: dict[str, np.ndarray] = {}
        entities: list[list[_Entity]] = []
        cut: list[bool] = []

        def run(part: slice) -> _Part:
            found = self._read_texts({text: n_rows[text] for text in distinct[part]}, of_sentence, progress)
            words = dict.fromkeys(words for of_text, _ in found for _, words in of_text if words not in vectors)
            return found, self._embed(list(words))

        counts = [n_rows[text] for text in distinct]
        for _, (found, made) in self._run_parts(run, ptr, counts, [distinct], scratch, progress):
            vectors |= made
            entities += [of_text for of_text, _ in found]
            cut += [is_cut for _, is_cut in found]
        place = {text: i for i, text in enumerate(distinct)}
        every = [*chain.from_iterable(entities)]
        table = EntityTable(
            [str(i) for i in range(len(distinct))],
            np.cumsum([0, *map(len, entities)], dtype=np.int64),
            np.array([TYPES.index(kind) for kind, _ in every], np.uint8),
            np.array([vectors[words] for _, words in every], np.float32).reshape(len(every), self._width),
        )
        n_truncated = sum(n_rows[text] for text, is_cut in zip(distinct, cut, strict=True) if is_cut)
        of_row = np.array([place[text] for text in texts], np.int64)
        return Recognised(table, [words for _, words in every], of_row, n_truncated)

    def _load(self, folder: Path, kind: Any, argument: str) -> tuple[Any, Any]:
        with quiet():
            tokenizer, model, random = read(folder, kind, self._function, argument)
        check_weights(model, random, folder, self._function, argument)
        return tokenizer, model.eval().to(self._device)

    def _read_labels(self) -> list[str]:
        names = self._model.config.id2label
        labels = [str(names[i]) for i in range(len(names))]
        if not set(labels) <= _LABELS or "O" not in labels:
            msg = (
                f"{self._function}: entities must be a model with the labels O, B-TYPE and I-TYPE, types "
                f"{', '.join(TYPES)}; got others in {self._path}. Pass the folder of RaTE-NER-Deberta."
            )
            raise InputError(msg)
        return labels

    def _read_texts(
        self, texts: dict[str, int], known: dict[str, list[_Entity]], progress: Count | None
    ) -> list[tuple[list[_Entity], bool]]:
        """Return the entities of each text, and whether it was cut; `known` gets those of new sentences."""
        sentences = {text: [s for s in self._sentences.split(text) if len(s) >= _LEAST] for text in texts}
        todo = sorted({s for some in sentences.values() for s in some if s not in known})
        waiting: dict[str, list[str]] = {sentence: [] for sentence in todo}
        n_waiting: Counter[str] = Counter()
        for text, some in sentences.items():
            for sentence in {*some} & waiting.keys():
                waiting[sentence].append(text)
                n_waiting[text] += 1
        if progress is not None:
            progress(sum(n for text, n in texts.items() if not n_waiting[text]))
        ids, is_cut = self._split(self._tokenizer, todo, self._max_pieces)
        flat, ptr = flatten(ids)
        labels = np.empty(len(flat), np.int16)
        store = store_tokens(labels, ptr, self._label)
        with one_thread_each(self._device) as run_all:
            for done in run_batches(store, flat, ptr, self.batch_tokens[self._device], run_all):
                finished = 0
                for place in done.tolist():
                    n_waiting.subtract(waiting[todo[place]])
                    finished += sum(texts[text] for text in waiting[todo[place]] if not n_waiting[text])
                if progress is not None:
                    progress(finished)
        for place, sentence in enumerate(todo):
            own = [self._labels[label] for label in labels[ptr[place] : ptr[place + 1]]]
            known[sentence] = self._spelled(ids[place], own)
        cut = {sentence for sentence, one in zip(todo, is_cut, strict=True) if one}
        return [
            ([*chain.from_iterable(known[s] for s in some)], not cut.isdisjoint(some)) for some in sentences.values()
        ]

    def _spelled(self, ids: list[int], labels: list[str]) -> list[_Entity]:
        """Return type and words of the entities of a sentence."""
        pieces = self._tokenizer.convert_ids_to_tokens(ids)
        return [
            (kind.lower(), self._tokenizer.convert_tokens_to_string(pieces[first : last + 1]))
            for first, last, kind in find_entities(pieces, labels)
        ]

    def _split(self, tokenizer: Any, texts: list[str], most: int) -> tuple[list[list[int]], list[bool]]:
        """Return the word pieces of texts, special ones included, and which texts were cut."""
        found: list[list[int]] = []
        cut: list[bool] = []
        with quiet():
            for first in range(0, len(texts), _TOKENIZED_AT_ONCE):
                some = texts[first : first + _TOKENIZED_AT_ONCE]
                ids = tokenizer(some, truncation=True, max_length=most)["input_ids"]
                full = [place for place, own in enumerate(ids) if len(own) == most]
                whole = tokenizer([some[place] for place in full])["input_ids"] if full else []
                longer = {place for place, own in zip(full, whole, strict=True) if len(own) > most}
                cut += [place in longer for place in range(len(some))]
                found += ids
        return found, cut

    def _label(self, ids: np.ndarray) -> np.ndarray:
        """Return the best label of each word piece, int64[B, L]."""
        import torch

        with torch.inference_mode():
            logits = run_model(self._model, ids)
            is_finite, best = logits.isfinite().all(), logits.argmax(2)
        self._check(bool(is_finite), "entities", self._path)
        return best.cpu().numpy()

    def _embed(self, words: list[str]) -> dict[str, np.ndarray]:
        """Return the vector of each entity's words, float32[d]."""
        ids, _ = self._split(self._encoder_tokenizer, words, _MAX_OF_ENTITY)
        vectors = np.empty((len(words), self._width), np.float32)

        def run(places: np.ndarray, batch: np.ndarray) -> None:
            vectors[places] = self._first_states(batch)[: len(places)]

        with one_thread_each(self._device) as run_all:
            for _ in run_batches(run, *flatten(ids), self.batch_tokens[self._device], run_all):
                pass
        return dict(zip(words, vectors, strict=True))

    def _first_states(self, ids: np.ndarray) -> np.ndarray:
        """Return the last state of the first word piece, float32[B, d]."""
        import torch

        with torch.inference_mode():
            states = run_model(self._encoder, ids)[:, 0]
        found = states.float().cpu().numpy()
        self._check(bool(np.isfinite(found).all() and found.any(axis=1).all()), "entity_encoder", self._encoder_path)
        return found

    def _check(self, is_sound: bool, argument: str, path: Path) -> None:
        if not is_sound:
            msg = (
                f"{self._function}: {argument} must give finite numbers; got NaN, infinity or a vector of zeros from "
                f"{path}. Fetch it again."
            )
            raise InputError(msg)

    def _pack(self, output: _Part) -> bytes:
        found, vectors = output
        content = json.dumps([found, list(vectors)]).encode()
        return b"".join([len(content).to_bytes(8, "little"), content, *(row.tobytes() for row in vectors.values())])

    def _unpack(self, content: bytes) -> _Part:
        n = int.from_bytes(content[:8], "little")
        texts, words = json.loads(content[8 : 8 + n])
        vectors = np.frombuffer(content[8 + n :], np.float32).reshape(len(words), self._width)
        found = [([(kind, spelled) for kind, spelled in some], is_cut) for some, is_cut in texts]
        return found, dict(zip(words, vectors, strict=True))


def find_entities(pieces: Sequence[str], labels: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return first and last word piece and type of each entity, by the package's reading of the labels.

    A label counts with the one after it, that of [SEP] for the last word piece. An entity that [SEP] is labelled to go
    on is taken up to the end, but not where a B- was followed by another since the last O.
    """
    found: list[tuple[int, int, str]] = []
    begun: tuple[int, str] | None = None
    has_ended = False
    for place, (piece, label, after) in enumerate(zip(pieces, labels, labels[1:], strict=False)):
        if piece in _SPECIAL or label == "O":
            continue
        starts, follows = label[0] == "B", after[0]
        if follows == "I":
            begun = (place, label[2:]) if starts else begun
            continue
        if starts:
            found.append((place, place, label[2:]))
        elif begun is not None:
            found.append((begun[0], place, begun[1]))
        has_ended = follows == "B"
        begun = (place, label[2:]) if has_ended else None
    if begun is not None and not has_ended:
        found.append((begun[0], len(pieces) - 2, begun[1]))
    return found
