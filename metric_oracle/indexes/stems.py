"""Representation of METEOR: the stems of words and their synonyms, made from the n-grams that an index stores."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from metric_oracle.base.errors import BackendError, not_installed
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.features import FeatureDocuments, as_queries
from metric_oracle.indexes.lists import offsets_of, places_of_lists
from metric_oracle.indexes.ngrams import (
    NgramIndex,
    TokenSequences,
    index_queries,
    index_sequences,
    positions,
    without_grams,
)
from metric_oracle.kernels._overlap import Features
from metric_oracle.kernels.meteor.cpu import DocumentWords, StemBatch, StemCorpus
from metric_oracle.records import Metric

Token = tuple[str, str, frozenset[str]]  # a word, its stem, and the synonyms of the stem


def stemmer() -> Callable[[str], str]:
    """Return the function of nltk's Porter stemmer that stems a word; raise BackendError if nltk is missing."""
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise not_installed(subject="METEOR", module=error.name, extra="meteor") from error
    return PorterStemmer().stem


def wordnet_synonyms() -> Callable[[str], Collection[str]]:
    """Return a function that gives a word's synonyms as nltk's METEOR does: the single-word lemmas of its synsets.

    Raise BackendError if nltk does not find WordNet.
    """
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError as error:
        raise BackendError(
            "METEOR with synonyms",
            "must have WordNet where nltk finds it",
            "none",
            'Run "python -m nltk.downloader wordnet" once, or ask for meteor:nltk-stems.',
        ) from error

    def synonyms(word: str) -> Collection[str]:
        """Return the lemmas of all synsets of a word, without those of several words."""
        names = {lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas()}
        return {name for name in names if "_" not in name}

    return synonyms


@dataclass(frozen=True)
class StemIndex(FeatureDocuments):
    """Stems of the distinct token sequences of a corpus. It has no files of its own."""

    ngrams: NgramIndex  # the stored token sequences
    stems: NgramIndex  # the same documents as sequences of stems
    stem: np.ndarray  # int32[W], number of each word's stem

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "StemIndex":
        """Stem the vocabulary of the stored n-grams, `parts["ngrams"]`, and index their sequences of stems."""
        ngrams: NgramIndex = parts["ngrams"]
        return cls._of_words(ngrams, list(map(stemmer(), ngrams.words)))

    @classmethod
    def _of_words(cls, ngrams: NgramIndex, of_word: Sequence[str], *, is_searched: bool = True) -> "StemIndex":
        """Index the stems of token sequences, or only name them; `of_word` has the stem of each word."""
        vocabulary = sorted(set(of_word))
        number = {stem: i for i, stem in enumerate(vocabulary)}
        stem = np.fromiter(map(number.__getitem__, of_word), np.int32, len(of_word))
        tokens = TokenSequences(vocabulary, stem[ngrams.sequence], ngrams.sequence_ptr)
        make = partial(index_sequences, max_order=1) if is_searched else without_grams
        return cls(ngrams, make("stems", tokens, ngrams.document_of_row), stem)

    @property
    def features(self) -> Features:  # type: ignore[override]
        """The stems with their occurrences, and the rows of the documents."""
        return self.stems.features

    def synonyms(self) -> Callable[[str], Collection[str]]:
        """Return a function that gives no stem any synonym."""
        return lambda stem: ()

    @cached_property
    def _synonyms_of(self) -> dict[str, frozenset[str]]:
        """The synonyms of each stem of the corpus, for stems that have any.

        As in nltk, the stems, not the words, are looked up in WordNet, and a stem matches if it equals one of the
        synonyms found.
        """
        of_stem, stems = self.synonyms(), self.stems.words
        synonyms = {stem: frozenset(of_stem(stem)) - {stem} for stem in stems}
        return {stem: words for stem, words in synonyms.items() if words}

    @cached_property
    def _stems_with_synonym(self) -> dict[str, list[str]]:
        """For each synonym, the stems of the corpus that have it."""
        stems_with = defaultdict(list)
        for stem, synonyms in self._synonyms_of.items():
            for synonym in synonyms:
                stems_with[synonym].append(stem)
        return dict(stems_with)

    def arrays(self, metric: Metric, queries: Documents) -> StemCorpus:
        """Return the arrays that the kernels read, for any metric and queries."""
        texts = DocumentWords(self.ngrams.sequence, self.ngrams.sequence_ptr, self.stem)
        return StemCorpus(self.features, self.ngrams.buckets, texts, len(self.stems.vocabulary))

    def item(self, document: int) -> tuple[Token, ...]:
        """Return the tokens of a document: words with their stems, and of a corpus with synonyms."""
        return tuple(map(self._token, self.ngrams.item(document)))

    def _token(self, word: str) -> Token:
        """Return a word with its stem and its synonyms."""
        stem = self.stems.words[self.stem[self.ngrams.word_id[word]]]
        return word, stem, self._synonyms_of.get(stem, frozenset())

    def encode(self, reports: Reports) -> "StemIndex":
        """Tokenize and stem the queries, whose synonyms no metric reads; the corpus has the stems of its words."""
        ngrams = self.ngrams.encode(reports)
        known, stem = np.append(self.stem, -1)[self.ngrams.ids_of_words(ngrams.words)].tolist(), stemmer()
        of_word = [stem(word) if i < 0 else self.stems.words[i] for word, i in zip(ngrams.words, known, strict=True)]
        return StemIndex._of_words(ngrams, of_word, is_searched=False)

    def translate(self, metric: Metric, queries: Documents) -> StemBatch:
        """Return the words of queries, and the stems of the corpus that they can match."""
        assert isinstance(queries, StemIndex)
        flat, ptr = queries.ngrams.sequence, queries.ngrams.sequence_ptr
        word_id = self.ngrams.ids_of_words(queries.ngrams.words)
        stems = [queries.stems.words[i] for i in queries.stem.tolist()]
        others = [self._stems_with_synonym.get(stem_of_word, ()) for stem_of_word in stems]
        vocabulary = sorted({*stems, *chain.from_iterable(others)})
        number = {stem: i for i, stem in enumerate(vocabulary)}.__getitem__
        numbers = np.fromiter(map(number, stems), np.int32, len(stems))
        n_others = np.fromiter(map(len, others), np.int64, len(others))
        other_ptr = offsets_of(n_others)
        other = np.fromiter(map(number, chain.from_iterable(others)), np.int32, other_ptr[-1])
        # Stems that each query can match: its own, then those with a synonym in it; and the word that each belongs to.
        place, text = positions(ptr, 1)
        texts = np.concatenate([text, np.repeat(text, n_others[flat])])
        by_text = np.argsort(texts, kind="stable")
        reach = np.concatenate([numbers[flat], other[places_of_lists(other_ptr, flat)]])[by_text]
        reach_at = np.concatenate([place, np.repeat(place, n_others[flat])])[by_text] - ptr[texts[by_text]]
        reach_ptr = offsets_of(np.bincount(texts, minlength=len(ptr) - 1))
        index = index_queries(TokenSequences(vocabulary, reach, reach_ptr), np.arange(len(ptr) - 1), 1)
        stems_of = as_queries(index.features, self.stems.ids_of(index)[index.features.fwd_id])
        return StemBatch(
            stems_of._replace(sizes=np.diff(ptr).astype(np.int32)[:, None]),
            word_id[flat],
            ptr,
            self.stems.ids_of_words(vocabulary)[reach],
            reach_at,
            reach_ptr,
        )


class SynonymIndex(StemIndex):
    """Stems with the synonyms of WordNet."""

    def synonyms(self) -> Callable[[str], Collection[str]]:
        """Return the function of `wordnet_synonyms`, which takes a stem as it takes a word."""
        return wordnet_synonyms()
