"""METEOR's representation: no files of its own, the stems of the words that an index holds, and their synonyms."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from metric_oracle.errors import BackendError, not_installed
from metric_oracle.indexes.features import Encoded, FeatureUnits
from metric_oracle.indexes.ngrams import (
    TOKENIZERS,
    NgramIndex,
    distinct_sequences,
    encode_ngrams,
    flatten,
    index_sequences,
)
from metric_oracle.kernels._overlap import Features
from metric_oracle.kernels.meteor.cpu import StemBatch, StemCorpus, Texts
from metric_oracle.metrics import Metric
from metric_oracle.sources.inputs import Inputs

Token = tuple[str, str, frozenset[str]]  # a word, its stem, and the stems that count as synonyms of it


def stemmer() -> Callable[[str], str]:
    """Return nltk's form of Porter's stemmer."""
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise not_installed(function="retrieve", subject="METEOR", module=error.name, extra="meteor") from error
    return PorterStemmer().stem


def wordnet_synonyms() -> Callable[[str], Collection[str]]:
    """Return what nltk's METEOR takes for synonyms: the lemmas of one word in WordNet's synsets of a word."""
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError as error:
        msg = (
            "retrieve: METEOR with synonyms must have WordNet where nltk finds it; got none. Run "
            '"python -m nltk.downloader wordnet" once, or ask for meteor:nltk-stems.'
        )
        raise BackendError(msg) from error

    def synonyms(word: str) -> Collection[str]:
        names = {lemma.name() for synset in wordnet.synsets(word) for lemma in synset.lemmas()}
        return {name for name in names if "_" not in name}

    return synonyms


@dataclass(frozen=True)
class StemIndex(FeatureUnits):
    """Stems of the distinct token sequences of a corpus.

    Attributes
    ----------
    ngrams : NgramIndex
    stems : NgramIndex
        Of the sequences of stems, units as those of `ngrams`.
    stem : int32[W]
        Stem of each word.
    """

    ngrams: NgramIndex
    stems: NgramIndex
    stem: np.ndarray

    @classmethod
    def join(cls, parts: dict[str, Any]) -> "StemIndex":
        """Stem the vocabulary, and index the sequences of stems."""
        ngrams: NgramIndex = parts["ngrams"]
        of_word = list(map(stemmer(), ngrams.words))
        known = sorted(set(of_word))
        place = {stem: i for i, stem in enumerate(known)}
        stem = np.fromiter(map(place.__getitem__, of_word), np.int32, len(of_word))
        flat = stem[ngrams.sequence]
        return cls(ngrams, index_sequences("stems", known, flat, ngrams.sequence_ptr, ngrams.unit_of_row, 1), stem)

    @property
    def features(self) -> Features:  # type: ignore[override]
        """Stems with their occurrences; rows of the units."""
        return self.stems.features

    def synonyms(self) -> Callable[[str], Collection[str]]:
        """Return the synonyms of a stem: none."""
        return lambda stem: ()

    @cached_property
    def _near(self) -> dict[str, frozenset[str]]:
        """The synonyms of each stem of the corpus that has any, itself left out; WordNet is asked for stems, as is."""
        of_stem, stems = self.synonyms(), self.stems.words
        found = {stem: frozenset(of_stem(stem)) - {stem} for stem in stems}
        return {stem: near for stem, near in found.items() if near}

    @cached_property
    def _reached(self) -> dict[str, list[str]]:
        """The stems of the corpus that a stem is a synonym of."""
        found = defaultdict(list)
        for stem, near in self._near.items():
            for other in near:
                found[other].append(stem)
        return dict(found)

    def corpus(self, metric: Metric, encoded: Encoded) -> StemCorpus:
        """Return what the kernels take."""
        texts = Texts(self.ngrams.sequence, self.ngrams.sequence_ptr, self.stem)
        return StemCorpus(self.features, self.ngrams.cells, texts, len(self.stems.vocabulary))

    def item(self, unit: int) -> tuple[Token, ...]:
        """Return the tokens of a unit."""
        words, stems = self.ngrams.words, self.stems.words
        some = self.ngrams.sequence[self.ngrams.sequence_ptr[unit] : self.ngrams.sequence_ptr[unit + 1]].tolist()
        return tuple(self._token(words[word], stems[self.stem[word]]) for word in some)

    def _token(self, word: str, stem: str) -> Token:
        return word, stem, self._near.get(stem, frozenset())

    def encode(self, inputs: Inputs) -> "StemQueries":
        """Tokenize and stem queries; look up what their words can match."""
        words, which = distinct_sequences(inputs.texts, TOKENIZERS["ngrams"])
        stem = stemmer()
        stems = {word: stem(word) for word in set(chain.from_iterable(words))}
        reach, at = [], []
        for sequence in words:
            roots = [stems[word] for word in sequence]
            near = [(root, place) for place, of in enumerate(roots) for root in self._reached.get(of, ())]
            reach.append((*roots, *(root for root, _ in near)))
            at += [*range(len(roots)), *(place for _, place in near)]
        queries, flat, ptr = encode_ngrams(reach, self.stems)
        lengths = np.array([[len(sequence)] for sequence in words], np.int32).reshape(-1, 1)
        batch = StemBatch(
            queries._replace(sizes=lengths), *flatten(words, self.ngrams.word_id), flat, np.array(at, np.int64), ptr
        )
        items = [tuple(self._token(word, stems[word]) for word in sequence) for sequence in words]
        return StemQueries(which, items, batch)


class SynonymIndex(StemIndex):
    """The same with WordNet's synonyms."""

    def synonyms(self) -> Callable[[str], Collection[str]]:
        """Return the synonyms of a stem, see `wordnet_synonyms`."""
        return wordnet_synonyms()


@dataclass(frozen=True)
class StemQueries(Encoded):
    """Distinct token sequences of a batch of queries.

    Attributes
    ----------
    which : int64[Q]
        Distinct sequence of each query.
    items : list of tuple of Token
    batch : StemBatch
    """

    which: np.ndarray
    items: list[tuple[Token, ...]]
    batch: StemBatch

    def item(self, q: int) -> tuple[Token, ...]:
        """Return the tokens of a distinct query."""
        return self.items[q]
