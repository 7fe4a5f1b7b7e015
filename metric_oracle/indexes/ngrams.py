"""Texts -> n-gram features, for BLEU and ROUGE-L.

A feature is an (n-gram, occurrence) pair: the second "no" of a report is another feature than the first. Clipped n-gram
matches of two texts are then the size of a set intersection.
"""

import mmap
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.indexes.features import (
    Encoded,
    FeatureUnits,
    cells_of,
    check_features,
    invert,
    load_features,
    lookup,
    most_features,
    pack_queries,
    renamed,
)
from metric_oracle.indexes.store import BATCH, Strings, check_ids, check_offsets, read_arrays, release, write_arrays
from metric_oracle.kernels._build import (
    distinct_lists,
    number_grams,
    occurrences,
    place_features,
    rank_features,
    renumber,
    reorder,
)
from metric_oracle.kernels._overlap import Features, Queries, SequenceBatch, SequenceCorpus
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

_NOT_ALNUM = re.compile(r"[^a-z0-9]+")


def tokenize_bleu(text: str) -> list[str]:
    """Split as CXR-Report-Metric does before BLEU: lower case, "." apart, cut at U+0020 alone, empty pieces dropped."""
    return [piece for piece in _prepare(text).split(" ") if piece]


def tokenize_coco(text: str) -> list[str]:
    """Split as pycocoevalcap's BLEU and CIDEr do, after the same preparation: at all white space of Unicode."""
    return _prepare(text).split()


def _prepare(text: str) -> str:
    return text.lower().replace(".", " .")


def tokenize_rouge(text: str) -> list[str]:
    """Split as rouge-score's default tokenizer does without stemming: lower-case runs of a-z and 0-9."""
    return _NOT_ALNUM.sub(" ", text.lower()).split()


TOKENIZERS = {"ngrams": tokenize_bleu, "coco": tokenize_coco, "words": tokenize_rouge}
MAX_ORDER = {"ngrams": 4, "coco": 4, "words": 1}


@dataclass(frozen=True)
class NgramIndex(FeatureUnits):
    """n-gram features of the distinct token sequences of a corpus, units by ascending length.

    Attributes
    ----------
    kind : str
        Folder of the index: "ngrams" (CXR-Report-Metric's tokens, orders 1 to 4), "coco" (pycocoevalcap's, orders 1 to
        4) or "words" (ROUGE tokens, order 1).
    features : Features
        Family n - 1 holds the n-grams of order n.
    vocabulary : Strings
        Words in code-point order; position = word id.
    gram_key : int64[...]
        Ascending keys (id of the first n - 1 words * vocabulary size + last word id) of order 2 and up.
    gram_ptr : int64[max_order + 1]
        Slices of `gram_key` for each order (order 1 is empty: the word id is the key).
    repeat_key : int64[...]
        Ascending keys (n-gram id << 32 | occurrence) of second and later occurrences.
    repeat_ptr : int64[max_order + 1]
    family_ptr : int64[max_order + 1]
        First feature id of each order.
    sequence : int32[...]
        Word ids of each unit in order.
    sequence_ptr : int64[D + 1]
    """

    kind: str
    features: Features
    vocabulary: Strings
    gram_key: np.ndarray
    gram_ptr: np.ndarray
    repeat_key: np.ndarray
    repeat_ptr: np.ndarray
    family_ptr: np.ndarray
    sequence: np.ndarray
    sequence_ptr: np.ndarray
    derived_files: ClassVar[tuple[str, ...]] = ("features.arrow",)

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary as a list, made when it is first needed: a large one would hold up opening."""
        return list(self.vocabulary)

    @cached_property
    def word_id(self) -> dict[str, int]:
        """The vocabulary as a dictionary, made at the first query."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def cells(self) -> np.ndarray:
        """Runs of units of equal length, see `indexes.features.cells_of`."""
        length = self.features.sizes[0]
        return cells_of(length, length, length, length)

    def corpus(self, metric: Metric, encoded: Encoded) -> SequenceCorpus:
        """Return what the kernels take."""
        return SequenceCorpus(self.features, self.cells, self.sequence, self.sequence_ptr, len(self.vocabulary))

    def item(self, unit: int) -> tuple[str, ...]:
        """Return the tokens of a unit."""
        return tuple(self.words[w] for w in self.sequence[self.sequence_ptr[unit] : self.sequence_ptr[unit + 1]])

    def encode(self, inputs: Inputs) -> "NgramQueries":
        """Tokenize queries and look up their features."""
        sequences, which = distinct_sequences(inputs.texts, TOKENIZERS[self.kind])
        return NgramQueries(which, sequences, *encode_ngrams(sequences, self))

    def encode_again(self, inputs: Inputs, encoded: "NgramQueries | None", **settings: Any) -> "NgramQueries":
        """Find the n-grams of queries that another shard has encoded, each once."""
        if encoded is None:
            return self.encode(inputs)
        asked = encoded.asked
        words = self.places_of_words(asked)
        queries = renamed(asked.features, self.places_of(asked))
        return NgramQueries(encoded.which, encoded.items, queries, words[asked.sequence], asked.sequence_ptr)

    def places_of_words(self, other: "NgramIndex") -> np.ndarray:
        """Return the ids here of the words of another index, -1 for those that are not here: int64[W]."""
        get = self.word_id.get
        return np.array([get(word, -1) for word in other.words], np.int64)

    def places_of(self, other: "NgramIndex") -> np.ndarray:
        """Return the ids here of the features of another index, -1 for those that are not here: int64[V]."""
        words = gram = self.places_of_words(other)
        n_words, n_other = len(self.vocabulary), max(len(other.vocabulary), 1)
        place = []
        for order in range(len(self.family_ptr) - 1):
            if order:
                before, last = np.divmod(other.gram_key[other.gram_ptr[order] : other.gram_ptr[order + 1]], n_other)
                known = (gram[before] >= 0) & (words[last] >= 0)
                keys = self.gram_key[self.gram_ptr[order] : self.gram_ptr[order + 1]]
                gram = lookup(keys, np.where(known, gram[before] * n_words + words[last], -1))
            first, n_grams = self.family_ptr[order], n_words if not order else len(keys)
            repeats = other.repeat_key[other.repeat_ptr[order] : other.repeat_ptr[order + 1]]
            of_gram = gram[repeats >> 32]
            keys = self.repeat_key[self.repeat_ptr[order] : self.repeat_ptr[order + 1]]
            again = lookup(keys, np.where(of_gram >= 0, of_gram << 32 | repeats & (1 << 32) - 1, -1))
            place += [np.where(gram >= 0, gram + first, -1), np.where(again >= 0, again + first + n_grams, -1)]
        return np.concatenate(place)

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "NgramIndex":
        """Index the distinct texts of a corpus; see `build_ngrams`."""
        return build_ngrams(kind, texts, row_text, inputs.scratch)

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("kind", "features")}
        write_arrays(folder / "features.arrow", {**self.features._asdict(), **arrays})

    @classmethod
    def load(cls, kind: str, files: Mapping[str, mmap.mmap]) -> "NgramIndex":
        """Open a saved representation."""
        columns = read_arrays(files["features.arrow"])
        opened = cls(kind=kind, features=load_features(columns), **columns)
        check_offsets(opened.sequence_ptr, opened.sequence)
        check_offsets(opened.gram_ptr, opened.gram_key)
        check_offsets(opened.repeat_ptr, opened.repeat_key)
        check_offsets(opened.family_ptr, range(len(opened.features.post_ptr) - 1))
        n_words = len(opened.vocabulary)
        check_ids(opened.sequence, n_words)
        if np.any(np.diff(opened.sequence_ptr) != opened.features.sizes[0]):
            msg = "sizes of sequences that are others"
            raise ValueError(msg)
        before = n_words
        for order, n_features in enumerate(np.diff(opened.family_ptr).tolist()):
            grams = opened.gram_key[opened.gram_ptr[order] : opened.gram_ptr[order + 1]]
            repeats = opened.repeat_key[opened.repeat_ptr[order] : opened.repeat_ptr[order + 1]]
            check_ids(grams, before * n_words)
            before = n_features - len(repeats)
            check_ids(repeats, before << 32)
        return opened


@dataclass(frozen=True)
class NgramQueries(Encoded):
    """Distinct token sequences of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
        Distinct sequence of each query.
    items : list of tuple of str
    queries : Queries
    words, words_ptr : int64[...], int64[len(items) + 1]
        Word ids in order, -1 for words that the corpus lacks.
    """

    which: np.ndarray
    items: list[tuple[str, ...]]
    queries: Queries
    words: np.ndarray
    words_ptr: np.ndarray

    @property
    def batch(self) -> SequenceBatch:
        """What the kernels take."""
        return SequenceBatch(self.queries, self.words, self.words_ptr)

    @cached_property
    def asked(self) -> NgramIndex:
        """The queries as a corpus of their own, with all their n-grams, one unit each."""
        return index_queries(self.items, np.arange(len(self.items)), self.queries.sizes.shape[1])

    def item(self, q: int) -> tuple[str, ...]:
        """Return the tokens of a distinct query."""
        return self.items[q]


def _positions(ptr: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the start positions of all n-grams of an order, and their text."""
    lengths = np.maximum(np.diff(ptr) - (order - 1), 0)
    text = np.repeat(np.arange(len(ptr) - 1), lengths)
    first = np.cumsum(lengths) - lengths
    return ptr[:-1][text] + np.arange(len(text)) - first[text], text


def distinct_sequences(
    texts: Sequence[str], tokenize: Callable[[str], list[str]]
) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Tokenize and drop repetitions: distinct token sequences in order of first appearance, and each text's."""
    seen: dict[tuple[str, ...], int] = {}
    which = np.fromiter((seen.setdefault(tuple(tokenize(text)), len(seen)) for text in texts), np.int64, len(texts))
    return list(seen), which


def flatten(sequences: Sequence[tuple[str, ...]], word_id: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return word ids (-1 unknown) and offsets."""
    ptr = np.zeros(len(sequences) + 1, np.int64)
    np.cumsum([len(s) for s in sequences], out=ptr[1:])
    get = word_id.get
    flat = np.fromiter((get(word, -1) for s in sequences for word in s), np.int64, int(ptr[-1]))
    return flat, ptr


def number_tokens(
    texts: Sequence[str], tokenize: Callable[[str], list[str]]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Tokenize texts one by one: the words in code-point order, their ids int32[T], offsets int64[n + 1]."""
    number: dict[str, int] = defaultdict(count().__next__)
    ids, lengths = array("i"), array("q", [0])
    for first in range(0, len(texts), BATCH):
        for text in texts[first : first + BATCH]:
            ids.extend(map(number.__getitem__, tokenize(text)))
            lengths.append(len(ids))
        release()  # the texts are read once, in order
    words = sorted(number)
    rank = np.empty(len(words), np.int32)
    rank[np.fromiter(map(number.__getitem__, words), np.int64, len(words))] = np.arange(len(words))
    flat = np.frombuffer(ids, np.int32)
    renumber(flat, rank)
    return words, flat, np.frombuffer(lengths, np.int64)


def _ranked(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ascending keys, and the place of each of the given ones: int32[n]."""
    order = np.argsort(keys)
    rank = np.empty(len(keys), np.int32)
    rank[order] = np.arange(len(keys), dtype=np.int32)
    return keys[order], rank


def build_ngrams(kind: str, texts: Sequence[str], row_text: np.ndarray, scratch: Path | None = None) -> NgramIndex:
    """Index the n-grams of a corpus.

    Parameters
    ----------
    kind : {"ngrams", "coco", "words"}
    texts : sequence of str
        Distinct texts.
    row_text : int64[N]
        Which text each corpus row has.
    scratch : Path or None
        See `invert`.
    """
    max_order = MAX_ORDER[kind]
    words, flat, ptr = number_tokens(texts, TOKENIZERS[kind])
    unit_of_text, first = distinct_lists(ptr, flat)
    order = np.argsort(np.diff(ptr)[first], kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    ptr, flat = reorder(ptr, flat, first[order])
    return index_sequences(kind, words, flat, ptr, rank[unit_of_text][row_text], max_order, scratch)


def index_sequences(
    kind: str,
    words: Sequence[str],
    flat: np.ndarray,
    ptr: np.ndarray,
    unit_of_row: np.ndarray,
    max_order: int,
    scratch: Path | None = None,
) -> NgramIndex:
    """Index the n-grams of sequences.

    Parameters
    ----------
    kind : str
    words : sequence of str
        The vocabulary, in code-point order.
    flat, ptr : int32[T], int64[D + 1]
        Word ids of the sequences, shortest first.
    unit_of_row : int64[N]
        Sequence of each corpus row.
    max_order : int
    scratch : path
        As for `build_ngrams`.
    """
    sizes = np.maximum(np.diff(ptr)[None, :] - np.arange(max_order)[:, None], 0).astype(np.int32)
    fwd_ptr = np.concatenate([[0], np.cumsum(sizes.sum(axis=0, dtype=np.int64))])
    fwd_id = np.zeros(fwd_ptr[-1], np.int32)  # what is not placed yet is no repeat
    gram_keys, repeat_keys, family_ptr = [], [], [0]
    gram = flat.copy()
    for n in range(1, max_order + 1):
        if n == 1:
            keys, place = np.empty(0, np.int64), np.arange(len(words), dtype=np.int32)
        else:
            keys, place = _ranked(number_grams(ptr, flat, gram, n, len(words), most_features(0)))
        gram_keys.append(keys)
        repeats = family_ptr[-1] + len(place)
        check_features(repeats)
        most = most_features(repeats)
        keys, place = _ranked(place_features(ptr, gram, place, n, fwd_ptr, fwd_id, family_ptr[-1], most))
        repeat_keys.append(keys)
        family_ptr.append(repeats + len(keys))
        check_features(family_ptr[-1])
        rank_features(fwd_id, repeats, place)
    del gram, keys, place
    family = np.array(family_ptr, np.int64)
    return NgramIndex(
        kind,
        invert(fwd_ptr, fwd_id, sizes, sizes[0], unit_of_row, int(family[-1]), scratch),
        Strings(words),
        np.concatenate(gram_keys),
        np.cumsum([0] + [len(k) for k in gram_keys]).astype(np.int64),
        np.concatenate(repeat_keys),
        np.cumsum([0] + [len(k) for k in repeat_keys]).astype(np.int64),
        family,
        flat,
        ptr,
    )


def index_queries(sequences: Sequence[tuple[str, ...]], unit_of_row: np.ndarray, max_order: int) -> NgramIndex:
    """Index the n-grams of tokenized queries, each a unit in the order given; see `index_sequences`."""
    words = sorted(set(chain.from_iterable(sequences)))
    flat, ptr = flatten(sequences, {word: i for i, word in enumerate(words)})
    return index_sequences("queries", words, flat.astype(np.int32), ptr, unit_of_row, max_order)


def encode_ngrams(sequences: Sequence[tuple[str, ...]], index: NgramIndex) -> tuple[Queries, np.ndarray, np.ndarray]:
    """Look up the features of tokenized queries.

    Returns
    -------
    queries : Queries
    flat : int64[...]
        Word ids in order, -1 unknown.
    ptr : int64[Q + 1]
    """
    query, feature, sizes, flat, ptr = find_features(sequences, index)
    return pack_queries(query, feature, sizes, index.family_ptr), flat, ptr


def find_features(sequences: Sequence[tuple[str, ...]], index: NgramIndex) -> tuple[np.ndarray, ...]:
    """Look up the n-grams of sequences, order by order, sequence by sequence.

    Returns
    -------
    query : int64[P]
        Sequence of each n-gram.
    feature : int64[P]
        -1 unknown.
    sizes : int64[Q, orders]
    flat, ptr : int64[...], int64[Q + 1]
        Word ids, -1 unknown.
    """
    flat, ptr = flatten(sequences, index.word_id)
    max_order = len(index.family_ptr) - 1
    n_words = len(index.vocabulary)
    queries, features = [], []
    sizes = np.maximum(np.diff(ptr)[:, None] - np.arange(max_order)[None, :], 0)
    gram = flat
    for order in range(1, max_order + 1):
        position, query = _positions(ptr, order)
        if order == 1:
            n_grams = n_words
        else:
            last = flat[position + order - 1]
            key = np.where((gram[position] >= 0) & (last >= 0), gram[position] * n_words + last, -1)
            keys = index.gram_key[index.gram_ptr[order - 1] : index.gram_ptr[order]]
            gram = np.full(len(flat), -1, np.int64)
            gram[position] = lookup(keys, key)
            n_grams = len(keys)
        feature = gram[position].copy()
        occurrence = occurrences(query, feature, n_grams)
        again = (occurrence > 0) & (feature >= 0)
        keys = index.repeat_key[index.repeat_ptr[order - 1] : index.repeat_ptr[order]]
        found = lookup(keys, feature[again] << 32 | occurrence[again])
        feature[again] = np.where(found >= 0, n_grams + found, -1)
        features.append(np.where(feature >= 0, feature + index.family_ptr[order - 1], -1))
        queries.append(query)
    return np.concatenate(queries), np.concatenate(features), sizes, flat, ptr
