"""Texts -> n-gram features, for BLEU and ROUGE-L.

A feature is an (n-gram, occurrence) pair: the second "no" of a report is another feature than the first. Clipped n-gram
matches of two texts are then the size of a set intersection.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from metric_oracle.indexes.features import Encoded, FeatureUnits, cells_of, invert, lookup, pack_queries
from metric_oracle.indexes.inputs import Inputs
from metric_oracle.indexes.store import read_arrays, write_arrays
from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import Features, Queries, SequenceBatch, SequenceCorpus
from metric_oracle.metrics import Metric

_NOT_ALNUM = re.compile(r"[^a-z0-9]+")


def tokenize_bleu(text: str) -> list[str]:
    """Split as CXR-Report-Metric does before BLEU: lower case, "." apart, single blanks, empty pieces dropped."""
    return [piece for piece in text.lower().replace(".", " .").split(" ") if piece]


def tokenize_rouge(text: str) -> list[str]:
    """Split as rouge-score's default tokenizer does without stemming: lower-case runs of a-z and 0-9."""
    return _NOT_ALNUM.sub(" ", text.lower()).split()


TOKENIZERS = {"ngrams": tokenize_bleu, "words": tokenize_rouge}
MAX_ORDER = {"ngrams": 4, "words": 1}


@dataclass(frozen=True)
class NgramIndex(FeatureUnits):
    """n-gram features of the distinct token sequences of a corpus, units by ascending length.

    Attributes
    ----------
    kind : str
        Folder of the index: "ngrams" (BLEU tokens, orders 1 to 4) or "words" (ROUGE tokens, order 1).
    features : Features
        Family n - 1 holds the n-grams of order n.
    words : list of str
        Vocabulary in code-point order; position = word id.
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
    words: list[str]
    gram_key: np.ndarray
    gram_ptr: np.ndarray
    repeat_key: np.ndarray
    repeat_ptr: np.ndarray
    family_ptr: np.ndarray
    sequence: np.ndarray
    sequence_ptr: np.ndarray

    @cached_property
    def word_id(self) -> dict[str, int]:
        """The vocabulary as a dictionary, made at the first query."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def cells(self) -> np.ndarray:
        """Runs of units of equal length, see :func:`metric_oracle.indexes.features.cells_of`."""
        length = self.features.sizes[0]
        return cells_of(length, length, length, length)

    def corpus(self, metric: Metric, encoded: Encoded) -> SequenceCorpus:
        """Return what the kernels take."""
        return SequenceCorpus(self.features, self.cells, self.sequence, self.sequence_ptr, len(self.words))

    def item(self, unit: int) -> tuple[str, ...]:
        """Return the tokens of a unit."""
        return tuple(self.words[w] for w in self.sequence[self.sequence_ptr[unit] : self.sequence_ptr[unit + 1]])

    def encode(self, inputs: Inputs) -> "NgramQueries":
        """Tokenize queries and look up their features."""
        sequences, which = distinct_sequences(inputs.texts, TOKENIZERS[self.kind])
        return NgramQueries(which, sequences, *encode_ngrams(sequences, self))

    @classmethod
    def build(cls, kind: str, inputs: Inputs, texts: Sequence[str], row_text: np.ndarray) -> "NgramIndex":
        """Index the distinct texts of a corpus; see :func:`build_ngrams`."""
        return build_ngrams(kind, texts, row_text)

    def save(self, folder: Path) -> None:
        """Write the representation into a folder."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("kind", "features")}
        write_arrays(folder / "features.arrow", {**self.features._asdict(), **arrays})

    @classmethod
    def load(cls, folder: Path) -> "NgramIndex":
        """Open a saved representation."""
        columns = read_arrays(folder / "features.arrow")
        words = columns.pop("words").to_pylist()
        features = Features(**{name: columns.pop(name) for name in Features._fields})
        return cls(kind=folder.name, features=features, words=words, **columns)


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

    def item(self, q: int) -> tuple[str, ...]:
        """Return the tokens of a distinct query."""
        return self.items[q]


def _positions(ptr: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the start positions of all n-grams of an order, and their text."""
    lengths = np.maximum(np.diff(ptr) - (order - 1), 0)
    text = np.repeat(np.arange(len(ptr) - 1), lengths)
    first = np.cumsum(lengths) - lengths
    return ptr[:-1][text] + np.arange(len(text)) - first[text], text


@jit
def _occurrence(text, gram, n_grams):
    """Return how often the same n-gram stood earlier in the same text; 0 for unknown n-grams (-1).

    Parameters
    ----------
    text : int64[P]
        Ascending.
    gram : int64[P]
        -1 to n_grams - 1.
    """
    out = np.zeros(len(gram), np.int64)
    seen_in = np.full(n_grams, -1, np.int64)
    times = np.zeros(n_grams, np.int64)
    for p in range(len(gram)):
        g = gram[p]
        if g >= 0:
            times[g] = times[g] + 1 if seen_in[g] == text[p] else 0
            seen_in[g] = text[p]
            out[p] = times[g]
    return out


def distinct_sequences(
    texts: Sequence[str], tokenize: Callable[[str], list[str]]
) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Tokenize and drop repetitions: distinct token sequences in order of first appearance, and each text's."""
    seen: dict[tuple[str, ...], int] = {}
    which = np.fromiter((seen.setdefault(tuple(tokenize(text)), len(seen)) for text in texts), np.int64, len(texts))
    return list(seen), which


def _flatten(sequences: Sequence[tuple[str, ...]], word_id: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return word ids (-1 unknown) and offsets."""
    ptr = np.zeros(len(sequences) + 1, np.int64)
    np.cumsum([len(s) for s in sequences], out=ptr[1:])
    get = word_id.get
    flat = np.fromiter((get(word, -1) for s in sequences for word in s), np.int64, int(ptr[-1]))
    return flat, ptr


def build_ngrams(kind: str, texts: Sequence[str], row_text: np.ndarray) -> NgramIndex:
    """Index the n-grams of a corpus.

    Parameters
    ----------
    kind : {"ngrams", "words"}
    texts : sequence of str
        Distinct texts.
    row_text : int64[N]
        Which text each corpus row has.
    """
    max_order = MAX_ORDER[kind]
    sequences, unit_of_text = distinct_sequences(texts, TOKENIZERS[kind])
    by_length = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    sequences = [sequences[i] for i in by_length]
    rank = np.empty(len(by_length), np.int64)
    rank[by_length] = np.arange(len(by_length))
    words = sorted({word for s in sequences for word in s})
    flat, ptr = _flatten(sequences, {word: i for i, word in enumerate(words)})

    sizes = np.maximum(np.diff(ptr)[None, :] - np.arange(max_order)[:, None], 0).astype(np.int32)
    fwd_ptr = np.concatenate([[0], np.cumsum(sizes.sum(axis=0, dtype=np.int64))])
    fwd_id = np.empty(fwd_ptr[-1], np.int32)
    gram_keys, repeat_keys = [], []
    family_ptr = [0]
    gram = flat
    for order in range(1, max_order + 1):
        position, unit = _positions(ptr, order)
        if order == 1:
            n_grams = len(words)
            gram_keys.append(np.empty(0, np.int64))
        else:
            key = gram[position] * len(words) + flat[position + order - 1]
            keys, ids = np.unique(key, return_inverse=True)
            gram_keys.append(keys)
            n_grams = len(keys)
            gram = np.full(len(flat), -1, np.int64)
            gram[position] = ids
        occurrence = _occurrence(unit, gram[position], n_grams)
        feature = gram[position].copy()
        again = occurrence > 0
        keys, ids = np.unique(feature[again] << 32 | occurrence[again], return_inverse=True)
        feature[again] = n_grams + ids
        repeat_keys.append(keys)
        # Orders lie behind one another in a forward list, n-grams in text order.
        place = fwd_ptr[unit] + sizes[: order - 1, unit].sum(axis=0) + position - ptr[unit]
        fwd_id[place] = feature + family_ptr[-1]
        family_ptr.append(family_ptr[-1] + n_grams + len(keys))
    family = np.array(family_ptr, np.int64)
    return NgramIndex(
        kind,
        invert(fwd_ptr, fwd_id, sizes, sizes[0], rank[unit_of_text][row_text], int(family[-1])),
        words,
        np.concatenate(gram_keys),
        np.cumsum([0] + [len(k) for k in gram_keys]).astype(np.int64),
        np.concatenate(repeat_keys),
        np.cumsum([0] + [len(k) for k in repeat_keys]).astype(np.int64),
        family,
        flat.astype(np.int32),
        ptr,
    )


def encode_ngrams(sequences: Sequence[tuple[str, ...]], index: NgramIndex) -> tuple[Queries, np.ndarray, np.ndarray]:
    """Look up the features of tokenized queries.

    Returns
    -------
    queries : Queries
    flat : int64[...]
        Word ids in order, -1 unknown.
    ptr : int64[Q + 1]
    """
    flat, ptr = _flatten(sequences, index.word_id)
    max_order = len(index.family_ptr) - 1
    n_words = len(index.words)
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
        occurrence = _occurrence(query, feature, n_grams)
        again = (occurrence > 0) & (feature >= 0)
        keys = index.repeat_key[index.repeat_ptr[order - 1] : index.repeat_ptr[order]]
        found = lookup(keys, feature[again] << 32 | occurrence[again])
        feature[again] = np.where(found >= 0, n_grams + found, -1)
        features.append(np.where(feature >= 0, feature + index.family_ptr[order - 1], -1))
        queries.append(query)
    return pack_queries(np.concatenate(queries), np.concatenate(features), sizes, index.family_ptr), flat, ptr
