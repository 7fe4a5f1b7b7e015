"""CIDEr-D's representation: n-grams weighted by tf-idf; document frequency is the number of texts that have them.

It has no files of its own and reads the n-grams that an index stores. The metric's variant says whose texts are
counted: the queries, which are the references of a test set, as in pycocoevalcap; or the corpus.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Self, cast

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.features import FeatureDocuments, lookup
from metric_oracle.indexes.lists import offsets_of
from metric_oracle.indexes.ngrams import NgramIndex, distinct_sequences, index_sequences, renumbered
from metric_oracle.indexes.store import Strings
from metric_oracle.kernels._errors import FLOAT32, gamma
from metric_oracle.kernels._overlap import Features
from metric_oracle.kernels.cider_d.cpu import WeightedBatch, WeightedCorpus, square_weights
from metric_oracle.kernels.cider_d.score import ORDERS, inverse_frequency
from metric_oracle.kernels.contract import read_only
from metric_oracle.records import Metric

Words = tuple[str, ...]


@dataclass(frozen=True)
class Frequencies:
    """Document frequencies: the number of texts of a collection that have each n-gram."""

    index: NgramIndex  # the n-grams of the collection

    @property
    def texts(self) -> int:
        """The number of texts."""
        return len(self.index.features.row_id)

    @cached_property
    def gram(self) -> np.ndarray:
        """The feature of the first occurrence of each feature's n-gram: int32[V]. It identifies the n-gram."""
        index = self.index
        gram = np.arange(len(index.features.post_ptr) - 1, dtype=np.int32)
        for order in range(ORDERS):
            repeats = index.repeat_key[index.repeat_ptr[order] : index.repeat_ptr[order + 1]]
            end = index.family_ptr[order + 1]
            gram[end - len(repeats) : end] = index.family_ptr[order] + (repeats >> 32)
        return gram

    @property
    def counts(self) -> np.ndarray:
        """The number of texts that have each feature: int64[V]."""
        features = self.index.features
        rows = np.diff(features.row_ptr)[features.post_unit]
        return np.add.reduceat(rows, features.post_ptr[:-1]) if len(rows) else np.empty(0, np.int64)

    @cached_property
    def weight(self) -> np.ndarray:
        """The weight of the n-gram of each feature: float64[V]."""
        values, position = np.unique(self.counts[self.gram], return_inverse=True)
        return np.array([inverse_frequency(self.texts, value) for value in values.tolist()])[position.reshape(-1)]

    def weights_at(self, feature: np.ndarray) -> np.ndarray:
        """Return the weights of n-grams, float64[n]; `feature` is a feature of each, -1 if no text has the n-gram.

        Such an n-gram gets the weight of one that a single text has.
        """
        out = np.full(len(feature), inverse_frequency(self.texts, 1))
        out[feature >= 0] = self.weight[feature[feature >= 0]]
        return out

    def weights_of(self, words: Words) -> dict[Words, float]:
        """Return tuple of words -> weight for the n-grams of up to `ORDERS` words in a text; `words` has its tokens."""
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
    """Document frequencies in several indexes together.

    Each n-gram is one feature of `index`; repeated occurrences have none.
    """

    n_texts: int  # number of texts of all indexes
    n_having: np.ndarray  # int64[V], number of texts that have each n-gram

    @classmethod
    def of(cls, indexes: Iterable[NgramIndex]) -> "JoinedFrequencies":
        """Add up the document frequencies of indexes, one after another."""
        joined = cls(_n_grams([], [np.empty(0, np.int64)] * (ORDERS - 1)), 0, np.empty(0, np.int64))
        for index in indexes:
            joined = joined.joined(Frequencies(index))
        return joined

    @property
    def texts(self) -> int:
        """The number of texts."""
        return self.n_texts

    @property
    def counts(self) -> np.ndarray:
        """The number of texts that have each n-gram: int64[V]."""
        return self.n_having

    @cached_property
    def gram(self) -> np.ndarray:
        """The feature of each n-gram, which is its own number: int64[V]."""
        return np.arange(len(self.n_having))

    def joined(self, other: Frequencies) -> "JoinedFrequencies":
        """Return the document frequencies in this collection and another one together.

        Words and n-grams get new numbers but keep their order, so that sorted keys stay sorted.
        """
        words = sorted({*self.index.words, *other.index.words})
        number = {word: i for i, word in enumerate(words)}
        sides = (self, other)
        word = [np.array([number[w] for w in side.index.words], np.int64) for side in sides]
        gram, frequencies, keys = word, [side.counts for side in sides], []
        having = []
        for order in range(ORDERS):
            n = len(words)
            if order:
                old_keys = [i.gram_key[i.gram_ptr[order] : i.gram_ptr[order + 1]] for i in (self.index, other.index)]
                new_keys = [renumbered(*of_side, n) for of_side in zip(old_keys, gram, word, strict=True)]
                distinct, position = np.unique(np.concatenate(new_keys), return_inverse=True)
                gram, n = np.split(position.reshape(-1), [len(new_keys[0])]), len(distinct)
                keys.append(distinct)
            total = np.zeros(n, np.int64)
            for side, number_of, counts in zip(sides, gram, frequencies, strict=True):
                total[number_of] += counts[side.index.family_ptr[order] :][: len(number_of)]
            having.append(total)
        return JoinedFrequencies(_n_grams(words, keys), self.texts + other.texts, np.concatenate(having))


def _n_grams(words: list[str], gram_keys: list[np.ndarray]) -> NgramIndex:
    """Return an index of n-grams without texts, whose features are None.

    `words` are in code-point order, and `gram_keys` has the keys of each order from the second on, see `NgramIndex`.
    """
    n = np.array([0, *map(len, gram_keys)])
    empty = np.empty(0, np.int64)
    sizes = np.concatenate([[0, len(words)], n[1:]])
    return NgramIndex(
        "coco",
        cast("Features", None),
        Strings(words),
        np.concatenate(gram_keys),
        np.concatenate([[0], np.cumsum(n)]),
        empty,
        np.zeros(ORDERS + 1, np.int64),
        np.cumsum(sizes),
        empty,
        np.zeros(1, np.int64),
    )


@dataclass(frozen=True)
class WeightedIndex(FeatureDocuments):
    """N-grams of a corpus, weighted by their document frequencies among the queries."""

    ngrams: NgramIndex  # the stored n-grams, or those of queries
    counted: Frequencies  # document frequencies in these texts

    @classmethod
    def join(cls, parts: dict[str, Any]) -> Self:
        """Take the stored n-grams, `parts["coco"]`, without weights."""
        return cls(parts["coco"], Frequencies(parts["coco"]))

    @property
    def features(self) -> Features:  # type: ignore[override]
        """The n-grams with their occurrences, and the rows of the documents."""
        return self.ngrams.features

    @property
    def frequencies(self) -> Frequencies:
        """The document frequencies from which the weights of queries are computed: of queries, those among them."""
        return self.counted

    @property
    def weight(self) -> np.ndarray:
        """The weight of the n-gram of each feature of queries: float64[V]."""
        return self.counted.weight

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        """The number of texts that were counted."""
        return {"weighted_by": {"texts": self.frequencies.texts}}

    def item(self, document: int) -> tuple[Words, Callable[[Words], dict[Words, float]]]:
        """Return the tokens of a document, and the function that weights tokens, which caches its last two results."""
        # A query is scored with many candidates in turn: the cache keeps the weights of its n-grams.
        return self.ngrams.item(document), lru_cache(2)(self.frequencies.weights_of)

    def key(self, document: int) -> Words:
        """Return the tokens of a document."""
        return self.ngrams.item(document)

    def arrays(self, metric: Metric, queries: Documents) -> WeightedCorpus:
        """Return the arrays that the kernels read, with the weights that the queries determine.

        An n-gram that no query has gets the weight of one that occurs in a single query.
        """
        assert isinstance(queries, WeightedIndex)
        feature = self.ngrams.ids_of(queries.ngrams)
        is_known = feature >= 0
        weight = np.full(len(self.counted.gram), inverse_frequency(queries.counted.texts, 1))
        weight[self.counted.gram[feature[is_known]]] = queries.weight[is_known]
        return self.weighted(weight)

    def weighted(self, weight: np.ndarray) -> WeightedCorpus:
        """Return the arrays that the kernels read; `weight`, float64[V], has each n-gram's at its first feature."""
        squares = self._squares(weight)
        inverse = np.zeros(squares.shape, np.float32)
        inverse[squares > 0] = 1 / np.sqrt(squares[squares > 0])
        return WeightedCorpus(self.features, self.ngrams.buckets, squares, inverse)

    def _squares(self, weight: np.ndarray) -> np.ndarray:
        """Return the squared length of the weights of each order in each document: float64[ORDERS, D]."""
        squares = np.empty((ORDERS, len(self.features.fwd_ptr) - 1))
        square_weights(*read_only((self.features, self.counted.gram)), weight * weight, squares)
        return squares

    def encode(self, reports: Reports) -> Self:
        """Tokenize queries and count their n-grams."""
        which, items, tokens = distinct_sequences(reports.texts, "coco")
        return self.join({"coco": replace(index_sequences("queries", tokens, which, ORDERS), items=items)})

    def translate(self, metric: Metric, queries: Documents) -> WeightedBatch:
        """Look up the n-grams of queries and weight them."""
        assert isinstance(queries, WeightedIndex)
        asked, weight, squares = queries.features, queries.weight, queries._squares(queries.weight)
        n_queries, n_features = len(asked.fwd_ptr) - 1, np.diff(asked.fwd_ptr)
        query = np.repeat(np.arange(n_queries), n_features)
        feature = self.ngrams.ids_of(queries.ngrams)[asked.fwd_id]
        gram = queries.counted.gram[asked.fwd_id]
        # An entry is a distinct n-gram of a query; `entry` is the entry of each pair of a query and a feature.
        key = query * len(weight) + gram
        _, first, entry, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        entry = entry.reshape(-1)
        order = np.searchsorted(queries.ngrams.family_ptr, gram[first], side="right") - 1
        size = times * (weight[gram[first]] * weight[gram[first]])
        counts = (feature >= 0) & (size[entry] > 0)
        entries = np.flatnonzero(np.bincount(entry[counts], minlength=len(first)))
        return WeightedBatch(
            offsets_of(np.bincount(query[first[entries]], minlength=n_queries)),
            offsets_of(np.bincount(entry[counts], minlength=len(first))[entries]),
            feature[counts][np.argsort(entry[counts], kind="stable")].astype(np.int32),
            order[entries],
            size[entries],
            times[entries] * size[entries] / squares[order[entries], query[first[entries]]],
            np.ascontiguousarray(squares.T),
            np.diff(queries.ngrams.sequence_ptr),
            # Rounding: two factors, their product, and a sum of as many terms as the query has features.
            np.array([1 + 2 * gamma(n + 8, FLOAT32) for n in n_features.tolist()]),
        )


@dataclass(frozen=True)
class CorpusWeightedIndex(WeightedIndex):
    """N-grams of a corpus, weighted by their document frequencies in the corpus."""

    # Document frequencies in another corpus, used in place of this index's own: the shard set that this index is
    # a part of, or the training corpus by which predictions are scored. Queries have those of their corpus.
    whole: Frequencies | None = None

    @property
    def frequencies(self) -> Frequencies:
        """The document frequencies from which weights are computed: `whole`, or those in the corpus."""
        return self.counted if self.whole is None else self.whole

    @cached_property
    def weight(self) -> np.ndarray:
        """The weight of each n-gram, at its first feature: float64[V].

        One that is in no text of `whole` has the weight of one in a single text.
        """
        if self.whole is None:
            return self.counted.weight
        return self.whole.weights_at(self.whole.index.ids_of(self.counted.index)[self.counted.gram])

    @cached_property
    def _corpus(self) -> WeightedCorpus:
        """The arrays that the kernels read, with the weights of the corpus."""
        return self.weighted(self.weight)

    def encode(self, reports: Reports) -> Self:
        """Tokenize queries, whose n-grams have the weights of the corpus."""
        return replace(super().encode(reports), whole=self.frequencies)

    def arrays(self, metric: Metric, queries: Documents) -> WeightedCorpus:
        """Return the arrays that the kernels read, for any metric and queries."""
        return self._corpus
