"""Representation of the Jaccard coefficient: sets of n-grams, made from the word sequences that an index stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.features import (
    FeatureDocuments,
    ForwardLists,
    as_queries,
    buckets_of,
    check_features,
    invert,
    lookup,
)
from metric_oracle.indexes.lists import numbered_anew, offsets_of, ranks_of
from metric_oracle.indexes.ngrams import NgramIndex, positions, ranked, renumbered
from metric_oracle.kernels._build import distinct_lists, number_grams, reorder
from metric_oracle.kernels._overlap import Features, SetBatch, SetCorpus
from metric_oracle.kernels.contract import read_only
from metric_oracle.records import Metric

Gram = tuple[str, ...]


def grams_of(words: Sequence[str], order: int) -> frozenset[Gram]:
    """Return the set of n-grams of `order` words in a sequence of words; it is empty if the sequence is shorter."""
    return frozenset(tuple(words[i : i + order]) for i in range(len(words) - order + 1))


@dataclass(frozen=True)
class GramSets(FeatureDocuments):
    """Distinct sets of n-grams of a corpus, sorted by ascending size. It has no files of its own."""

    order: ClassVar[int]  # the n of the n-grams
    words: NgramIndex  # the word sequences from which the sets are made
    features: Features  # each n-gram is a feature
    sequence_of: np.ndarray  # int64[D], a document of `words` that has each set
    # For each order from 2 on, ascending keys: number of the first n - 1 words * vocabulary size + last word.
    gram_keys: list[np.ndarray]

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "GramSets":
        """Collect the distinct sets of n-grams of the stored word sequences, `parts["words"]`."""
        words: NgramIndex = parts["words"]
        flat, ptr = read_only((words.sequence, words.sequence_ptr))
        n_words = len(words.vocabulary)
        gram, gram_keys = flat.copy(), []
        for order in range(2, cls.order + 1):
            keys, place = ranked(number_grams(ptr, flat, gram, order, n_words, 2**31))
            position, _ = positions(ptr, order)
            gram[position] = place[gram[position]]
            gram_keys.append(keys)
        n_grams = len(gram_keys[-1]) if gram_keys else n_words
        check_features(n_grams)
        position, sequence = positions(ptr, cls.order)
        distinct = np.unique(sequence * n_grams + gram[position])  # each n-gram of a sequence once, ascending
        sequence, ids = np.divmod(distinct, max(n_grams, 1))
        set_ptr, ids = offsets_of(np.bincount(sequence, minlength=len(ptr) - 1)), ids.astype(np.int32)
        set_of_sequence, first = distinct_lists(set_ptr, ids)
        by_size = np.argsort(np.diff(set_ptr)[first], kind="stable")
        sequence_of = first[by_size]
        set_ptr, ids = reorder(set_ptr, ids, sequence_of)
        sizes = np.diff(set_ptr).astype(np.int32)[None, :]
        document_of_row = numbered_anew(words.document_of_row, ranks_of(by_size)[set_of_sequence])
        features = invert(ForwardLists(set_ptr, ids, sizes), sizes[0], document_of_row, n_grams)
        return cls(words, features, sequence_of, gram_keys)

    @cached_property
    def buckets(self) -> np.ndarray:
        """Length buckets of sets of equal size, see `indexes.features.buckets_of`."""
        size = self.features.sizes[0]
        return buckets_of(size, size, size, size)

    def arrays(self, metric: Metric, queries: Documents) -> SetCorpus:
        """Return the arrays that the kernels read, for any metric and queries."""
        return SetCorpus(self.features, self.buckets)

    def item(self, document: int) -> frozenset[Gram]:
        """Return the n-grams of a document."""
        return grams_of(self.words.item(self.sequence_of[document]), self.order)

    def encode(self, reports: Reports) -> "GramSets":
        """Collect the distinct sets of n-grams of the queries."""
        return self.join({"words": self.words.encode(reports)})

    def translate(self, metric: Metric, queries: Documents) -> SetBatch:
        """Return the sets of queries, with the numbers of this corpus; each distinct n-gram is looked up once."""
        assert isinstance(queries, GramSets)
        gram = word = self.words.ids_of_words(queries.words.words)
        for own_keys, keys in zip(self.gram_keys, queries.gram_keys, strict=True):
            gram = lookup(own_keys, renumbered(keys, gram, word, len(self.words.vocabulary)))
        return SetBatch(as_queries(queries.features, gram[queries.features.fwd_id]))


class WordSets(GramSets):
    """Sets of words."""

    order = 1


class BigramSets(GramSets):
    """Sets of pairs of words."""

    order = 2


class TrigramSets(GramSets):
    """Sets of runs of three words."""

    order = 3


class FourgramSets(GramSets):
    """Sets of runs of four words."""

    order = 4
