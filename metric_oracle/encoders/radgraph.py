"""RadGraph by its published model archives: reports -> entities and relations, in plain PyTorch and in batches.

The annotations are those of the `radgraph` package 0.1.18, which needs transformers 4 and reads one report at a time.
This module gives the same annotations with transformers 4 and 5, and never imports the package. An archive contains
`config.json`, `weights.th` and `vocabulary/`. Configuration and tokenizer of its transformer are separate files.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Advance
from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import Blocks, RunAll, flatten, one_thread_each, run_model, store_tokens
from metric_oracle.encoders.checkpoints import Published, check_tensors
from metric_oracle.encoders.packed_layers import pack
from metric_oracle.encoders.radgraph_archive import (
    ENCODER,
    WIDTHS,
    build_encoder,
    find_encoder,
    read_files,
    read_settings,
    read_vocabulary,
    read_weights,
)

# The words that the package reads if a report is empty.
_EMPTY = ["None"]
_V1_MARK = re.compile(r"([/,:.!?()])")
_XL_WORD = re.compile(r"\w+|[^\w\s]+")
# Escape sequences that occur in reports: \n, \f, the trade mark and \", written out.
_XL_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_XL_SPLITS = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))
# Words that the model reads in another form than that of the annotation.
_READ_AS = {"/.": ".", "/?": "?"}
_PAIRS_PER_BATCH = 2_048


@dataclass(frozen=True)
class _Spans:
    """Every span of at most `max_width` words of a report, by start, then end."""

    start: np.ndarray  # int64[spans], first word
    end: np.ndarray  # int64[spans], last word
    width: np.ndarray  # int64[spans], `end - start`

    @classmethod
    def of(cls, n_words: int, max_width: int) -> "_Spans":
        """Return the spans of at most `max_width` words in a report of `n_words` words."""
        n_of_word = np.minimum(np.arange(n_words, 0, -1), max_width)
        start = np.repeat(np.arange(n_words), n_of_word)
        width = np.arange(len(start)) - np.repeat(np.cumsum(n_of_word) - n_of_word, n_of_word)
        return cls(start, start + width, width)


class RadGraph(Encoder):
    """RadGraph: reports -> graphs.

    The model is `radgraph.tar.gz`, `radgraph-xl.tar.gz`, `modern-radgraph-xl.tar.gz` or `echograph.tar.gz` as
    published, or the folder with its extracted files. Its type follows from the names of the vocabulary files.

    The further folder `encoder` has `config.json` and tokenizer of the transformer that the archive names (its weights
    are in the archive); by default it is the local folder of that name, otherwise the local Hugging Face cache. A wrong
    tokenizer of the same size is not detected.
    """

    title, part_name = "RadGraph", "radgraph"
    part_size: ClassVar = {"cpu": 1 << 15, "cuda": 1 << 17}

    def _open(self, *, encoder: str | Path | None = None) -> dict[str, str]:
        files, sha256 = read_files(self._path)
        self._type, self._labels, self._relation_types = read_vocabulary(files, self._path)
        self._settings = read_settings(files["config.json"], self._path)
        folder = find_encoder(encoder, self._settings.encoder)
        model, self._tokenizer, self._special = build_encoder(folder)
        tensors = read_weights(files.pop("weights.th"), self._path)
        self._dim = model.config.hidden_size
        expected = {ENCODER + name: tuple(value.shape) for name, value in model.state_dict().items()}
        expected[WIDTHS] = (self._settings.n_widths, self._settings.n_features)
        layers = self._head_layers()
        for name, (n_in, n_out) in chain.from_iterable(layers.values()):
            expected |= {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}
        described = f"its config.json and its encoder {self._settings.encoder}"
        published = Published("archive", described, "a published archive and the encoder of that name")
        check_tensors(tensors, expected, self._path, published)
        model.load_state_dict({name: tensors[ENCODER + name] for name in model.state_dict()})
        self._encoder = pack(model.eval().to(self._device), self._device)
        self._width_table = tensors[WIDTHS].float().to(self._device)
        self._heads = {
            head: [
                tuple(tensors[f"{name}.{part}"].float().to(self._device) for part in ("weight", "bias"))
                for name, _ in of_head
            ]
            for head, of_head in layers.items()
        }
        # For ModernBERT, transformers 4 added no special tokens, but the package counted a start token. The published
        # weights were therefore trained on windows without special tokens, and with word states shifted by one piece.
        self._is_legacy = model.config.model_type == "modernbert"
        special = "legacy" if self._is_legacy else "added"
        return {"model": self._type, "archive": self._path.name, "sha256": sha256, "special_tokens": special}

    def annotate(
        self, texts: Sequence[str], *, progress: Advance | None = None, scratch: Path | None = None
    ) -> dict[str, dict[str, Any]]:
        """Annotate reports as the package does; return position ("0", "1", ...) -> graph.

        A graph is a dict of text, entities, data_source and data_split. Each distinct sequence of words is annotated
        once, and texts with the same words share one object. An empty text is read as the report "None", as in the
        package. So is a text of blanks only, for which the package raises an error.

        `progress` is called with the number of texts finished since the last call. The folder `scratch` keeps finished
        parts: after a kill, the same call continues from them. The caller removes it.
        """
        self._check_texts(texts)
        tokenized = {text: " ".join(split_words(text, self._type)) for text in dict.fromkeys(texts)}
        n_rows = Counter(tokenized[text] for text in texts)
        pieces = self._split_pieces(set(chain.from_iterable(text.split() for text in n_rows)))
        n_pieces = {text: sum(len(pieces[word]) for word in text.split()) for text in n_rows}
        distinct, ptr = longest_first(n_pieces)
        counts = [n_rows[text] for text in distinct]

        def run(part: slice) -> list[dict[str, Any]]:
            annotations = []
            with one_thread_each(self._device) as run_all:
                results = self._run_part(distinct[part], pieces, run_all)
                for entities, count in zip(results, counts[part], strict=True):
                    annotations.append(entities)
                    if progress is not None:
                        progress(count)
            return annotations

        key = [distinct, sorted(pieces.items())]
        graphs = {
            text: {"text": text, "entities": entities, "data_source": None, "data_split": "inference"}
            for part, annotations in self._run_parts(run, ptr, counts, key, scratch, progress)
            for text, entities in zip(distinct[part], annotations, strict=True)
        }
        return {str(row): graphs[tokenized[text]] for row, text in enumerate(texts)}

    def _head_layers(self) -> dict[str, list[tuple[str, tuple[int, int]]]]:
        """Return head -> its layers in order: the name of each, and its numbers of inputs and outputs."""
        hidden = self._settings.hidden
        span = 2 * self._dim + self._settings.n_features
        ner = f"_ner._ner_scorers.{self._type}__ner_labels"
        kind = f"{self._type}__relation_labels"
        pruner = f"_relation._mention_pruners.{kind}._scorer"
        heads = {
            "ner": (f"{ner}.0._module", f"{ner}.1._module", span, len(self._labels) - 1),
            "mention": (f"{pruner}.0._module", f"{pruner}.1._module", span, 1),
            "relation": (
                f"_relation._relation_feedforwards.{kind}",
                f"_relation._relation_scorers.{kind}",
                3 * span,
                len(self._relation_types),
            ),
        }
        return {
            head: list(
                zip(
                    [*(f"{inner}._linear_layers.{number}" for number in range(len(hidden))), last],
                    pairwise([n_in, *hidden, n_out]),
                    strict=True,
                )
            )
            for head, (inner, last, n_in, n_out) in heads.items()
        }

    def _check_texts(self, texts: Sequence[str]) -> None:
        """Raise InputError unless texts are strings in valid Unicode, in a container."""
        if isinstance(texts, str):
            raise InputError("texts", "must be a list of texts", "one text", "Put it into a list.")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(
                    "texts", "must all be str", f"{type(text).__name__} at position {row}", "Remove the missing ones."
                )
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(
                    "texts",
                    "must be valid Unicode",
                    f"half of a surrogate pair in text {row} (counted from 0)",
                    "Correct this text.",
                ) from None

    def _split_pieces(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return word -> ids of its word pieces. Words of invisible characters, for example, have none."""
        ordered = sorted(words)
        read = [_READ_AS.get(word, word) for word in ordered]
        # Without `verbose=False` a warning is logged for very long words.
        ids = self._tokenizer(read, add_special_tokens=False, verbose=False)["input_ids"] if read else []
        return dict(zip(ordered, ids, strict=True))

    def _run_part(
        self, texts: Sequence[str], pieces: Mapping[str, list[int]], run_all: RunAll
    ) -> Iterator[dict[str, Any]]:
        """Return an iterator over key -> entity of each text, whose words are separated by blanks.

        `pieces` is word -> ids of its pieces, for all words in the texts, and `run_all` the `map` of `one_thread_each`.
        """
        import torch

        window = self._settings.window
        reports = [text.split() for text in texts]
        ids_of = [self._with_special([piece for word in words for piece in pieces[word]]) for words in reports]
        windows = [ids[first : first + window] for ids in ids_of for first in range(0, len(ids), window)]
        ids, ptr = flatten(windows)
        states = torch.empty(len(ids), self._dim, device=self._device)
        store = store_tokens(states, ptr, self._encode)
        self._run_batches(self._encoder, store, ids, ptr)
        offsets = np.cumsum([0, *map(len, ids_of)]).tolist()

        def annotate(report: int) -> dict[str, Any]:
            words = reports[report]
            of_report = states[offsets[report] : offsets[report + 1]]
            return self._entities_of_report(words, [len(pieces[word]) for word in words], of_report)

        return run_all(annotate, range(len(reports)))

    def _entities_of_report(self, words: list[str], n_pieces: list[int], states: Any) -> dict[str, Any]:
        """Return key -> entity of a report from its words, the number of pieces of each, and the states of its windows.

        Each report is processed alone, so that the shapes of all products depend on this report only.
        """
        import torch

        spans = _Spans.of(len(words), self._settings.max_width)
        with torch.inference_mode():
            states = self._word_states(n_pieces, states)
            label = self._best(self._score_spans("ner", states, spans))
            mention = self._finite(self._score_spans("mention", states, spans))[:, 0]
            # The package scores all pairs of kept spans, and then drops pairs with a span that is not an entity.
            related = np.flatnonzero((label > 0) & self._may_relate(mention.cpu(), len(words)))
            relations = self._relate(states, spans, mention, related)
        entities: dict[int, dict[str, Any]] = {}
        keys: dict[int, str] = {}
        for span in np.flatnonzero(label).tolist():
            i, j = int(spans.start[span]), int(spans.end[span])
            keys[span] = str(len(keys) + 1)
            entities[span] = {
                "tokens": " ".join(words[i : j + 1]),
                "label": self._labels[label[span]],
                "start_ix": i,
                "end_ix": j,
                "relations": [],
            }
        for source, target, kind in relations:
            entities[source]["relations"].append([self._relation_types[kind], keys[target]])
        return {keys[span]: entity for span, entity in entities.items()}

    def _word_states(self, n_pieces: list[int], states: Any) -> Any:
        """Return the mean state of each word's pieces, float32[words, d], zero for words without pieces.

        `n_pieces` has their numbers, `states` are those of the windows of a report.
        """
        import torch

        # The first state is that of the start token.
        positions = _kept_states(len(states), self._settings.window)[1 : sum(n_pieces) + 1]
        offsets = np.minimum(np.cumsum([0, *n_pieces[:-1]]), len(positions))
        return torch.nn.functional.embedding_bag(
            torch.from_numpy(positions).to(self._device),
            # Without any piece, embedding_bag still needs a matrix of the right width.
            states if len(states) else torch.zeros(1, self._dim, device=self._device),
            torch.from_numpy(offsets).to(self._device),
            mode="mean",
        )

    def _with_special(self, pieces: list[int]) -> list[int]:
        """Return the ids of the windows of a report, in one list; special tokens are added unless `_is_legacy`."""
        if self._is_legacy:
            return pieces
        start, end = self._special
        n_inner = self._settings.window - 2
        windows = (pieces[first : first + n_inner] for first in range(0, len(pieces), n_inner))
        return [piece for window in windows for piece in (start, *window, end)]

    def _encode(self, blocks: Blocks) -> Any:
        """Return the last hidden states of a batch of windows, float32[T, d]."""
        import torch

        with torch.inference_mode():
            return run_model(self._encoder, blocks)

    def _score_spans(self, head: str, states: Any, spans: "_Spans") -> Any:
        """Return the scores of a head, float32[spans, classes], for spans of words with these states.

        Its first layer is a sum over start word, end word and width.
        """
        from torch.nn.functional import linear

        weight, bias = self._heads[head][0]
        of_start, of_end, of_width = weight.split([self._dim, self._dim, self._settings.n_features], dim=1)
        widths = linear(self._width_table, of_width, bias)
        first = linear(states, of_start)[spans.start] + linear(states, of_end)[spans.end] + widths[spans.width]
        return self._score(head, first)

    def _score(self, head: str, first: Any) -> Any:
        """Return the output of a head, given the output of its first layer."""
        from torch.nn.functional import linear

        output = first
        for weight, bias in self._heads[head][1:]:
            output = linear(output.relu(), weight, bias)
        return output

    def _may_relate(self, mention: Any, n_words: int) -> np.ndarray:
        """Return which spans relations may connect, bool[spans]: those with the highest mention scores, float32[spans].

        Their number grows with that of the words of the report.
        """
        is_kept = np.zeros(len(mention), bool)
        # The package multiplies in float32, in which the product may round up to the next integer.
        k = math.ceil(np.float32(n_words) * np.float32(self._settings.spans_per_word))
        # On the CPU, where ties are broken as in the package.
        is_kept[mention.topk(min(max(k, 1), len(mention))).indices.numpy()] = True
        return is_kept

    def _relate(self, states: Any, spans: "_Spans", mention: Any, related: np.ndarray) -> list[tuple[int, int, int]]:
        """Return (source, target, place of the relation type) of pairs of the spans at the positions `related`.

        Source and target are positions in `spans`; the pairs are sorted by source, then target. `states` are those of
        the words, and `mention` are the mention scores of all spans.
        """
        import torch
        from torch.nn.functional import linear

        # All pairs, also of a span with itself, as positions in `related`.
        source, target = np.indices((len(related), len(related))).reshape(2, -1)
        vectors = torch.cat(
            [states[spans.start[related]], states[spans.end[related]], self._width_table[spans.width[related]]], dim=1
        )
        weight, bias = self._heads["relation"][0]
        of_source, of_target, of_product = weight.split(vectors.shape[1], dim=1)
        sources, targets, scores = linear(vectors, of_source), linear(vectors, of_target, bias), mention[related]
        relations: list[tuple[int, int, int]] = []
        for begin in range(0, len(source), _PAIRS_PER_BATCH):
            a, b = source[begin : begin + _PAIRS_PER_BATCH], target[begin : begin + _PAIRS_PER_BATCH]
            first = sources[a] + targets[b] + linear(vectors[a] * vectors[b], of_product)
            kind = self._best(self._score("relation", first) + (scores[a] + scores[b])[:, None])
            has = kind > 0
            relations += zip(related[a[has]].tolist(), related[b[has]].tolist(), (kind[has] - 1).tolist(), strict=True)
        return relations

    def _best(self, scores: Any) -> np.ndarray:
        """Return the best class of each row, int64[n]: 0 where no score is above 0, else the first best column + 1."""
        from torch.nn.functional import pad

        return pad(self._finite(scores), (1, 0)).max(dim=1).indices.cpu().numpy()

    def _finite(self, scores: Any) -> Any:
        """Return scores unchanged; raise InputError unless all are finite."""
        self._check_finite(scores.isfinite().all(), "archive")
        return scores


def split_words(text: str, model_type: str) -> list[str]:
    """Split a report into words, at least one, as in the training of the models of a type.

    The package uses NLTK. Later 3.10 versions of NLTK have another tokenizer, which splits some words that are not
    ASCII differently (cm², accents as separate characters). This function splits as the versions before.
    """
    if model_type == "radgraph":
        return _V1_MARK.sub(r" \1 ", text).split() or _EMPTY
    # The package has other rules for echograph, but never uses them.
    for escape, plain in _XL_ESCAPES:
        text = text.replace(escape, plain)
    text = " ".join(_XL_WORD.findall(text))
    for joined, separate in _XL_SPLITS:
        text = text.replace(joined, separate)
    return text.split() or _EMPTY


def _kept_states(n_ids: int, window: int) -> np.ndarray:
    """Return the positions, among the `n_ids` ids of all windows of a report, of the states that are used.

    If there are several windows, the first and the last state of each are dropped as those of special tokens, except
    the first and the last state of the report. Windows without special tokens thus lose a word piece at each end, and
    the states of the last words are those of earlier pieces.
    """
    if n_ids <= window:
        return np.arange(n_ids)
    inner = np.arange(n_ids)
    inner = inner[(inner % window != 0) & (inner % window != window - 1)]
    return np.concatenate([[0], inner[: n_ids - 2 * math.ceil(n_ids / window)], [n_ids - 1]])
