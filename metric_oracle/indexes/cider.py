"""CIDEr-D's representation: no files of its own, the n-grams that an index holds, weighted by how many texts have them.

Whose texts, is the metric's variant: the queries, which are the references of a test set as pycocoevalcap counts them,
or the corpus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, cast

import numpy as np

from metric_oracle.indexes.features import Encoded, FeatureUnits, lookup
from metric_oracle.indexes.ngrams import (
    TOKENIZERS,
    NgramIndex,
    distinct_sequences,
    index_queries,
)
from metric_oracle.indexes.store import Strings
from metric_oracle.kernels._errors import FLOAT32, gamma
from metric_oracle.kernels._overlap import Features
from metric_oracle.kernels.cider_d.cpu import WeightedBatch, WeightedCorpus, square_weights
from metric_oracle.kernels.cider_d.score import ORDERS, inverse_frequency
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

Words = tuple[str, ...]


@dataclass(frozen=True)
class Frequencies:
    """In how many texts of a collection each n-gram stands.

    Attributes
    ----------
    index : NgramIndex
        Of the collection.
    """

    index: NgramIndex

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return len(self.index.features.row_id)

    @cached_property
    def gram(self) -> np.ndarray:
        """The first feature of the n-gram of each feature: int32[V]."""
        index = self.index
        gram = np.arange(len(index.features.post_ptr) - 1, dtype=np.int32)
        for order in range(ORDERS):
            repeats = index.repeat_key[index.repeat_ptr[order] : index.repeat_ptr[order + 1]]
            end = index.family_ptr[order + 1]
            gram[end - len(repeats) : end] = index.family_ptr[order] + (repeats >> 32)
        return gram

    @property
    def counts(self) -> np.ndarray:
        """In how many texts each feature stands: int64[V]."""
        features = self.index.features
        rows = np.diff(features.row_ptr)[features.post_unit]
        return np.add.reduceat(rows, features.post_ptr[:-1]) if len(rows) else np.empty(0, np.int64)

    @cached_property
    def weight(self) -> np.ndarray:
        """The weight of the n-gram of each feature: float64[V]."""
        values, which = np.unique(self.counts[self.gram], return_inverse=True)
        return np.array([inverse_frequency(self.texts, value) for value in values.tolist()])[which.reshape(-1)]

    def weights_at(self, feature: np.ndarray) -> np.ndarray:
        """Return the weights of n-grams by their features, -1 for those that no text has: float64[n]."""
        out = np.full(len(feature), inverse_frequency(self.texts, 1))
        out[feature >= 0] = self.weight[feature[feature >= 0]]
        return out

    def weights_of(self, words: Words) -> dict[Words, float]:
        """Return the weight of each n-gram of a text."""
        index = self.index
        word = gram = np.array([index.word_id.get(w, -1) for w in words], np.int64)
        features = []
        for order in range(ORDERS):
            if order:
                gram, word = gram[:-1], word[1:]
                keys = index.gram_key[index.gram_ptr[order] : index.gram_ptr[order + 1]]
                gram = lookup(keys, np.where((gram >= 0) & (word >= 0), gram * len(index.word_id) + word, -1))
            features.append(np.where(gram >= 0, gram + index.family_ptr[order], -1))
        weights = self.weights_at(np.concatenate(features)).tolist()
        grams = chain.from_iterable(zip(*(words[i:] for i in range(n)), strict=False) for n in range(1, ORDERS + 1))
        return dict(zip(grams, weights, strict=True))


@dataclass(frozen=True)
class JoinedFrequencies(Frequencies):
    """The same of the texts of several indexes; the features of `index` are their n-grams, without occurrences.

    Attributes
    ----------
    n_texts : int
    n_having : int64[V]
        Texts that have each n-gram.
    """

    n_texts: int
    n_having: np.ndarray

    @classmethod
    def of(cls, parts: Iterable[NgramIndex]) -> "JoinedFrequencies":
        """Count the n-grams of some indexes, one after another."""
        joined = cls(_n_grams([], [np.empty(0, np.int64)] * (ORDERS - 1)), 0, np.empty(0, np.int64))
        for part in parts:
            joined = joined.joined(Frequencies(part))
        return joined

    @property
    def texts(self) -> int:
        """How many texts there are."""
        return self.n_texts

    @property
    def counts(self) -> np.ndarray:
        """In how many texts each n-gram stands: int64[V]."""
        return self.n_having

    @cached_property
    def gram(self) -> np.ndarray:
        """Each n-gram itself: int64[V]."""
        return np.arange(len(self.n_having))

    def joined(self, other: Frequencies) -> "JoinedFrequencies":
        """Return those of the texts of both.

        Words and n-grams stay in their order when they are numbered anew, so that sorted keys stay sorted.
        """
        words = sorted({*self.index.words, *other.index.words})
        number = {word: i for i, word in enumerate(words)}
        both = (self, other)
        word = [np.array([number[w] for w in side.index.words], np.int64) for side in both]
        place, counted, keys = word, [side.counts for side in both], []
        having = []
        for order in range(ORDERS):
            n = len(words)
            if order:
                found = [_keys(side.index, order, word[i], place[i], n) for i, side in enumerate(both)]
                distinct, which = np.unique(np.concatenate(found), return_inverse=True)
                place, n = np.split(which.reshape(-1), [len(found[0])]), len(distinct)
                keys.append(distinct)
            total = np.zeros(n, np.int64)
            for side, at, counts in zip(both, place, counted, strict=True):
                total[at] += counts[side.index.family_ptr[order] :][: len(at)]
            having.append(total)
        return JoinedFrequencies(_n_grams(words, keys), self.texts + other.texts, np.concatenate(having))


def _n_grams(words: list[str], keys: list[np.ndarray]) -> NgramIndex:
    """Return n-grams by their keys, order by order from the second on; no text has them."""
    n = np.array([0, *map(len, keys)])
    nothing = np.empty(0, np.int64)
    sizes = np.concatenate([[0, len(words)], n[1:]])
    return NgramIndex(
        "coco",
        cast("Features", None),
        Strings(words),
        np.concatenate(keys),
        np.concatenate([[0], np.cumsum(n)]),
        nothing,
        np.zeros(ORDERS + 1, np.int64),
        np.cumsum(sizes),
        nothing,
        np.zeros(1, np.int64),
    )


def _keys(index: NgramIndex, order: int, word: np.ndarray, place: np.ndarray, n_words: int) -> np.ndarray:
    """Return the keys of n-grams, order - 1 words before the last, for other numbers of words and of those before."""
    before, last = np.divmod(index.gram_key[index.gram_ptr[order] : index.gram_ptr[order + 1]], max(len(word), 1))
    return place[before] * n_words + word[last]


@dataclass(frozen=True)
class WeightedIndex(FeatureUnits):
    """N-grams of a corpus, weighted by how many of the queries have them.

    Attributes
    ----------
    ngrams : NgramIndex
    own : Frequencies
        In the corpus.
    """

    ngrams: NgramIndex
    own: Frequencies

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "WeightedIndex":
        """Take the n-grams."""
        return cls(parts["coco"], Frequencies(parts["coco"]))

    @property
    def features(self) -> Features:  # type: ignore[override]
        """N-grams with their occurrences; rows of the units."""
        return self.ngrams.features

    def item(self, unit: int) -> Words:
        """Return the tokens of a unit."""
        return self.ngrams.item(unit)

    def corpus(self, metric: Metric, encoded: "WeightedQueries") -> WeightedCorpus:
        """Return what the kernels take."""
        return self.weighted(encoded.weight)

    def weighted(self, weight: np.ndarray) -> WeightedCorpus:
        """Return the same for the weight of the n-gram of each feature, float64[V]."""
        squares = np.empty((ORDERS, len(self.features.fwd_ptr) - 1))
        square_weights(self.features, self.own.gram, weight * weight, squares)
        inverse = np.zeros(squares.shape, np.float32)
        inverse[squares > 0] = 1 / np.sqrt(squares[squares > 0])
        return WeightedCorpus(self.features, self.ngrams.cells, squares, inverse)

    def encode(self, inputs: Inputs) -> "WeightedQueries":
        """Tokenize queries, look up their n-grams and weight them."""
        items, which = distinct_sequences(inputs.texts, TOKENIZERS["coco"])
        asked = Frequencies(index_queries(items, which, ORDERS))
        features = asked.index.features
        n_features = np.diff(features.fwd_ptr)
        query = np.repeat(np.arange(len(items)), n_features)
        feature = self.ngrams.places_of(asked.index)[features.fwd_id]
        gram = asked.gram[features.fwd_id]
        used = self.frequencies(asked)
        is_known = feature >= 0
        weight = self.asked_weight(asked, gram, feature)
        squares = np.empty((ORDERS, len(items)))
        square_weights(features, asked.gram, weight * weight, squares)
        # Entries: the distinct n-grams of each query, and the entry of each place.
        key = query * len(weight) + gram
        _, first, entry, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        entry = entry.reshape(-1)
        order = np.searchsorted(asked.index.family_ptr, gram[first], side="right") - 1
        size = times * (weight[gram[first]] * weight[gram[first]])
        counts = is_known & (size[entry] > 0)
        kept = np.flatnonzero(np.bincount(entry[counts], minlength=len(first)))
        batch = WeightedBatch(
            _offsets(np.bincount(query[first[kept]], minlength=len(items))),
            _offsets(np.bincount(entry[counts], minlength=len(first))[kept]),
            feature[counts][np.argsort(entry[counts], kind="stable")].astype(np.int32),
            order[kept],
            size[kept],
            times[kept] * size[kept] / squares[order[kept], query[first[kept]]],
            np.ascontiguousarray(squares.T),
            np.diff(asked.index.sequence_ptr),
            # A term meets the roundings of two factors and a product, then a sum of as many as a query has features.
            np.array([1 + 2 * gamma(n + 8, FLOAT32) for n in n_features.tolist()]),
        )
        return WeightedQueries(which, items, batch, used, self.corpus_weight(asked, feature[is_known], gram[is_known]))

    def frequencies(self, asked: Frequencies) -> Frequencies:
        """Return whose texts are counted: the queries'."""
        return asked

    def asked_weight(self, asked: Frequencies, gram: np.ndarray, feature: np.ndarray) -> np.ndarray:
        """Return the weights of the n-grams of the queries, at their first features.

        Parameters
        ----------
        asked : Frequencies
            In the queries.
        gram, feature : int64[n], int64[n]
            The n-grams of the queries in `asked`, and their features here.
        """
        return asked.weight

    def corpus_weight(self, asked: Frequencies, feature: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Return the weights of the n-grams of the corpus, for features that it has, and the n-grams of those."""
        weight = np.full(len(self.own.gram), inverse_frequency(asked.texts, 1))
        weight[self.own.gram[feature]] = asked.weight[gram]
        return weight


@dataclass(frozen=True)
class CorpusWeightedIndex(WeightedIndex):
    """The same, weighted by how many texts of the corpus have them.

    Attributes
    ----------
    whole : Frequencies or None
        In the corpus that counts: the one that this is a shard of, or that predictions are scored by; None: its own.
    """

    whole: Frequencies | None = None

    @cached_property
    def _weight(self) -> np.ndarray:
        if self.whole is None:
            return self.own.weight
        return self.whole.weights_at(self.whole.index.places_of(self.own.index)[self.own.gram])

    @cached_property
    def _corpus(self) -> WeightedCorpus:
        return self.weighted(self._weight)

    def corpus(self, metric: Metric, encoded: "WeightedQueries") -> WeightedCorpus:
        """Return what the kernels take, the same for all queries."""
        return self._corpus

    def frequencies(self, asked: Frequencies) -> Frequencies:
        """Return whose texts are counted: the corpus's."""
        return self.own if self.whole is None else self.whole

    def asked_weight(self, asked: Frequencies, gram: np.ndarray, feature: np.ndarray) -> np.ndarray:
        """Return the weights of the n-grams of the queries, at their first features."""
        counted = self.frequencies(asked)
        if self.whole is not None:
            feature = self.whole.index.places_of(asked.index)[asked.index.features.fwd_id]
        weight = np.full(len(asked.gram), inverse_frequency(counted.texts, 1))
        weight[gram[feature >= 0]] = counted.weight[feature[feature >= 0]]
        return weight

    def corpus_weight(self, asked: Frequencies, feature: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Return the weights of the n-grams of the corpus."""
        return self._weight


@dataclass(frozen=True)
class WeightedQueries(Encoded):
    """Distinct token sequences of a batch of queries, and how many texts have their n-grams.

    Attributes
    ----------
    which : int64[Q]
    items : list of tuple of str
    batch : WeightedBatch
    frequencies : Frequencies
    weight : float64[V]
        Weight of each n-gram of the corpus, at its first feature.
    """

    which: np.ndarray
    items: list[Words]
    batch: WeightedBatch
    frequencies: Frequencies
    weight: np.ndarray

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records."""
        return {"weighted_by": {"texts": self.frequencies.texts}}

    def item(self, q: int) -> tuple[Words, Callable[[Words], dict[Words, float]]]:
        """Return the tokens of a distinct query, and what weights the n-grams of a text."""
        # Of many candidates in turn: the query's own weights are kept.
        return self.items[q], lru_cache(2)(self.frequencies.weights_of)

    def own(self, q: int) -> Words:
        """Return the tokens of a distinct query, as those of a candidate."""
        return self.items[q]


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
