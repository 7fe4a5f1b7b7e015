"""RadGraph by its published model archives: reports -> entities and relations, in plain PyTorch and in batches.

What the annotations are, the `radgraph` package 0.1.18 defines. It runs on transformers 4 only and reads one report at
a time; this module gives the same annotations beside transformers 4 and 5, and never imports it. An archive holds
`config.json`, `weights.th` and `vocabulary/`. Configuration and tokenizer of its transformer are files of their own.
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

from metric_oracle.encoders.base import Encoder, longest_first
from metric_oracle.encoders.batches import RunAll, flatten, one_thread_each, run_batches, run_model, store_tokens
from metric_oracle.encoders.radgraph_archive import (
    ENCODER,
    WIDTHS,
    build_encoder,
    check_tensors,
    find_encoder,
    read_files,
    read_settings,
    read_tensors,
    read_vocabulary,
)
from metric_oracle.errors import InputError
from metric_oracle.progress import Count

# What the package reads in place of an empty report.
_EMPTY = ["None"]
_V1_MARK = re.compile(r"([/,:.!?()])")
_XL_WORD = re.compile(r"\w+|[^\w\s]+")
# Escapes that were left in the reports: \n, \f, the trade mark and \" as they are typed.
_XL_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_XL_PARTED = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))
# Words that the model reads in another form than the annotation shows.
_READ_AS = {"/.": ".", "/?": "?"}
_PAIRS_PER_BATCH = 2_048


@dataclass(frozen=True)
class _Spans:
    """Every span of at most `max_width` words of a report, by start, then end.

    Attributes
    ----------
    start, end, width : int64[spans]
        First and last word; how many words the last lies after the first.
    """

    start: np.ndarray
    end: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, n_words: int, max_width: int) -> "_Spans":
        """Enumerate the spans of so many words."""
        n_of_word = np.minimum(np.arange(n_words, 0, -1), max_width)
        start = np.repeat(np.arange(n_words), n_of_word)
        width = np.arange(len(start)) - np.repeat(np.cumsum(n_of_word) - n_of_word, n_of_word)
        return cls(start, start + width, width)


class RadGraph(Encoder):
    """RadGraph: reports -> graphs. Parameters that are not listed are those of `Encoder`.

    Parameters
    ----------
    path : path
        `radgraph.tar.gz`, `radgraph-xl.tar.gz`, `modern-radgraph-xl.tar.gz` or `echograph.tar.gz` as published, or the
        folder that one was extracted to. The names of its vocabulary files tell the model type.
    encoder : path
        Folder with `config.json` and tokenizer of the transformer that the archive names (its weights are in the
        archive); by default the local folder of that name, else its entry in the local Hugging Face cache. A tokenizer
        of the same size with other word pieces cannot be recognised as wrong.
    """

    title, part_name = "RadGraph", "radgraph"
    part_size: ClassVar = {"cpu": 1 << 15, "cuda": 1 << 17}

    def _open(self, *, encoder: str | Path | None = None) -> dict[str, str]:
        function = self._function
        files, sha256 = read_files(self._path, function)
        self._type, self._labels, self._relation_types = read_vocabulary(files, self._path, function)
        self._settings = read_settings(files["config.json"], self._path, function)
        folder = find_encoder(encoder, self._settings.encoder, function)
        model, self._tokenizer, self._ends = build_encoder(folder, function)
        tensors = read_tensors(files.pop("weights.th"), self._path, function)
        self._dim = model.config.hidden_size
        expected = {ENCODER + name: tuple(value.shape) for name, value in model.state_dict().items()}
        expected[WIDTHS] = (self._settings.n_widths, self._settings.n_features)
        layers = self._head_layers()
        for name, (n_in, n_out) in chain.from_iterable(layers.values()):
            expected |= {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}
        check_tensors(tensors, expected, self._path, self._settings.encoder, function)
        model.load_state_dict({name: tensors[ENCODER + name] for name in model.state_dict()})
        self._encoder = model.eval().to(self._device)
        self._width_table = tensors[WIDTHS].float().to(self._device)
        self._heads = {
            head: [
                tuple(tensors[f"{name}.{part}"].float().to(self._device) for part in ("weight", "bias"))
                for name, _ in named
            ]
            for head, named in layers.items()
        }
        # transformers 4 added no special tokens here, so the published weights were trained on windows without them,
        # and on words that read one piece too far, since a start token was counted all the same.
        self._is_legacy = model.config.model_type == "modernbert"
        special = "legacy" if self._is_legacy else "added"
        return {"model": self._type, "archive": self._path.name, "sha256": sha256, "special_tokens": special}

    def annotate(
        self, texts: Sequence[str], *, progress: Count | None = None, scratch: Path | None = None
    ) -> dict[str, dict[str, Any]]:
        """Annotate reports as the package does, each distinct sequence of words once.

        Parameters
        ----------
        texts : sequence of str
            As in the package, an empty one is read as the report "None". So is one without a word (blanks only), which
            stops the package.
        progress : function
            Called with the number of texts finished since the last call.
        scratch : path
            Folder that keeps finished parts, for the caller to remove: the same call after a kill resumes with them.

        Returns
        -------
        dict
            Position as text ("0", "1", ...) -> text, entities, data_source and data_split. Texts of the same words
            share one object.
        """
        self._check_texts(texts)
        parted = {text: " ".join(split_words(text, self._type)) for text in dict.fromkeys(texts)}
        n_rows = Counter(parted[text] for text in texts)
        pieces = self._split_pieces(set(chain.from_iterable(text.split() for text in n_rows)))
        n_pieces = {text: sum(len(pieces[word]) for word in text.split()) for text in n_rows}
        distinct, ptr = longest_first(n_pieces)
        counts = [n_rows[text] for text in distinct]

        def run(part: slice) -> list[dict[str, Any]]:
            found = []
            with one_thread_each(self._device) as run_all:
                results = self._run_part(distinct[part], pieces, run_all)
                for entities, count in zip(results, counts[part], strict=True):
                    found.append(entities)
                    if progress is not None:
                        progress(count)
            return found

        key = [distinct, sorted(pieces.items())]
        graphs = {
            text: {"text": text, "entities": entities, "data_source": None, "data_split": "inference"}
            for part, found in self._run_parts(run, ptr, counts, key, scratch, progress)
            for text, entities in zip(distinct[part], found, strict=True)
        }
        return {str(row): graphs[parted[text]] for row, text in enumerate(texts)}

    def _head_layers(self) -> dict[str, list[tuple[str, tuple[int, int]]]]:
        """Return for each head its layers in order, as name and sizes."""
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
        if isinstance(texts, str):
            msg = f"{self._function}: texts must be a list of texts; got one text. Put it into a list."
            raise InputError(msg)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                msg = (
                    f"{self._function}: texts must all be str; got {type(text).__name__} at position {row}. "
                    "Drop the missing ones."
                )
                raise InputError(msg)
            try:
                text.encode()
            except UnicodeEncodeError:
                msg = f"{self._function}: texts must be Unicode; got half a character at position {row}. Repair it."
                raise InputError(msg) from None

    def _split_pieces(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return the ids of the word pieces of each word; some, such as invisible characters, have none."""
        listed = sorted(words)
        read = [_READ_AS.get(word, word) for word in listed]
        # Without `verbose=False` a very long word is logged as too long for the transformer.
        ids = self._tokenizer(read, add_special_tokens=False, verbose=False)["input_ids"] if read else []
        return dict(zip(listed, ids, strict=True))

    def _run_part(
        self, texts: Sequence[str], pieces: Mapping[str, list[int]], run_all: RunAll
    ) -> Iterator[dict[str, Any]]:
        """Return the entities of each text, its words joined by blanks."""
        import torch

        window = self._settings.window
        reports = [text.split() for text in texts]
        ids_of = [self._with_ends([piece for word in words for piece in pieces[word]]) for words in reports]
        windows = [ids[first : first + window] for ids in ids_of for first in range(0, len(ids), window)]
        ids, ptr = flatten(windows)
        states = torch.empty(len(ids), self._dim, device=self._device)
        store = store_tokens(states, ptr, self._encode)
        for _ in run_batches(store, ids, ptr, self.batch_tokens[self._device], run_all):
            pass
        ends = np.cumsum([0, *map(len, ids_of)]).tolist()

        def annotate(report: int) -> dict[str, Any]:
            words = reports[report]
            own = states[ends[report] : ends[report + 1]]
            return self._run(words, [len(pieces[word]) for word in words], own)

        return run_all(annotate, range(len(reports)))

    def _run(self, words: list[str], n_pieces: list[int], states: Any) -> dict[str, Any]:
        """Return the entities of a report from the states of its windows.

        Reports are not joined here: the shapes of all products follow from the report alone.
        """
        import torch

        spans = _Spans.of(len(words), self._settings.max_width)
        with torch.inference_mode():
            states = self._word_states(n_pieces, states)
            label = self._best(self._score_spans("ner", states, spans))
            mention = self._finite(self._score_spans("mention", states, spans))[:, 0]
            # The package scores all pairs of kept spans and drops those where a span is no entity afterwards.
            related = np.flatnonzero((label > 0) & self._is_kept(mention.cpu(), len(words)))
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
        """Return for each word the mean of its word pieces' states: float32[words, d], zero for none."""
        import torch

        # The state of a piece lies one place further, after that of the start token.
        place = _unfolded(len(states), self._settings.window)[1 : sum(n_pieces) + 1]
        offsets = np.minimum(np.cumsum([0, *n_pieces[:-1]]), len(place))
        return torch.nn.functional.embedding_bag(
            torch.from_numpy(place).to(self._device),
            # Words without a piece need a matrix of the right width.
            states if len(states) else torch.zeros(1, self._dim, device=self._device),
            torch.from_numpy(offsets).to(self._device),
            mode="mean",
        )

    def _with_ends(self, pieces: list[int]) -> list[int]:
        """Return the windows of a report one after the other, each with its special tokens."""
        if self._is_legacy:
            return pieces
        start, end = self._ends
        n_inner = self._settings.window - 2
        folded = (pieces[first : first + n_inner] for first in range(0, len(pieces), n_inner))
        return [piece for inner in folded for piece in (start, *inner, end)]

    def _encode(self, ids: np.ndarray) -> Any:
        """Return the last hidden states of windows of one length, int64[B, L] -> float32[B, L, d]."""
        import torch

        with torch.inference_mode():
            return run_model(self._encoder, ids)

    def _score_spans(self, head: str, states: Any, spans: "_Spans") -> Any:
        """Return float32[spans, classes] from start word, end word and width; the first layer is a sum of the three."""
        from torch.nn.functional import linear

        weight, bias = self._heads[head][0]
        of_start, of_end, of_width = weight.split([self._dim, self._dim, self._settings.n_features], dim=1)
        widths = linear(self._width_table, of_width, bias)
        first = linear(states, of_start)[spans.start] + linear(states, of_end)[spans.end] + widths[spans.width]
        return self._score(head, first)

    def _score(self, head: str, first: Any) -> Any:
        """Return the output of a head from that of its first layer."""
        from torch.nn.functional import linear

        for weight, bias in self._heads[head][1:]:
            first = linear(first.relu(), weight, bias)
        return first

    def _is_kept(self, mention: Any, n_words: int) -> np.ndarray:
        """Tell which spans relations may join: the best of them by mention score."""
        is_kept = np.zeros(len(mention), bool)
        # In float32 as in the package, where a product may round up to the next integer.
        k = math.ceil(np.float32(n_words) * np.float32(self._settings.spans_per_word))
        # On the CPU, so that equal scores fall as in the package.
        is_kept[mention.topk(min(max(k, 1), len(mention))).indices.numpy()] = True
        return is_kept

    def _relate(self, states: Any, spans: "_Spans", mention: Any, related: np.ndarray) -> list[tuple[int, int, int]]:
        """Return (source span, target span, relation type), by source, then target, among some spans."""
        import torch
        from torch.nn.functional import linear

        # All pairs, a span with itself too, as places in `related`.
        source, target = np.indices((len(related), len(related))).reshape(2, -1)
        vectors = torch.cat(
            [states[spans.start[related]], states[spans.end[related]], self._width_table[spans.width[related]]], dim=1
        )
        weight, bias = self._heads["relation"][0]
        of_source, of_target, of_product = weight.split(vectors.shape[1], dim=1)
        sources, targets, scores = linear(vectors, of_source), linear(vectors, of_target, bias), mention[related]
        found: list[tuple[int, int, int]] = []
        for begin in range(0, len(source), _PAIRS_PER_BATCH):
            a, b = source[begin : begin + _PAIRS_PER_BATCH], target[begin : begin + _PAIRS_PER_BATCH]
            first = sources[a] + targets[b] + linear(vectors[a] * vectors[b], of_product)
            kind = self._best(self._score("relation", first) + (scores[a] + scores[b])[:, None])
            is_one = kind > 0
            found += zip(
                related[a[is_one]].tolist(), related[b[is_one]].tolist(), (kind[is_one] - 1).tolist(), strict=True
            )
        return found

    def _best(self, scores: Any) -> np.ndarray:
        """Return the best class of each row, 0 for none, whose score is 0; the first of equal ones."""
        from torch.nn.functional import pad

        return pad(self._finite(scores), (1, 0)).max(dim=1).indices.cpu().numpy()

    def _finite(self, scores: Any) -> Any:
        if not scores.isfinite().all():
            msg = (
                f"{self._function}: archive must give finite scores; got NaN or infinity from {self._path}. "
                "Fetch it again."
            )
            raise InputError(msg)
        return scores


def split_words(text: str, model_type: str) -> list[str]:
    """Return the words of a report as the models were trained on them, at least one.

    The package leaves words to NLTK, whose later 3.10 versions take another engine and cut some that are not ASCII
    elsewhere (cm², accents as characters of their own). These are the words of the versions before.
    """
    if model_type == "radgraph":
        return _V1_MARK.sub(r" \1 ", text).split() or _EMPTY
    # The package has other rules for echograph and does not reach them.
    for escape, plain in _XL_ESCAPES:
        text = text.replace(escape, plain)
    text = " ".join(_XL_WORD.findall(text))
    for glued, parted in _XL_PARTED:
        text = text.replace(glued, parted)
    return text.split() or _EMPTY


def _unfolded(n: int, window: int) -> np.ndarray:
    """Return the places, among the `n` ids of all windows of a report, whose states make up the report.

    Of several windows the first and last state are dropped as those of special tokens, but for the report's own first
    and last. Windows without special tokens lose a word piece at each end, and the last words move up.
    """
    if n <= window:
        return np.arange(n)
    inner = np.arange(n)
    inner = inner[(inner % window != 0) & (inner % window != window - 1)]
    return np.concatenate([[0], inner[: n - 2 * math.ceil(n / window)], [n - 1]])
