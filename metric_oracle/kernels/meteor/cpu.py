"""METEOR search on CPUs: bounds from shared stems, for the search function of `_overlap_search.py`.

Documents that the bounds do not drop are aligned with the query, word by word, as nltk does.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metric_oracle.kernels import _overlap_search as driver
from metric_oracle.kernels._jit import compiled_for, inner, jit
from metric_oracle.kernels._overlap import ROWS, Features, QueryFeatures, features_of, with_forward
from metric_oracle.kernels._overlap_counts import bound
from metric_oracle.kernels._pairs import begin_query, count_pairs, count_run, end_query, score_of
from metric_oracle.kernels.meteor.score import meteor


class DocumentWords(NamedTuple):
    """Words of the documents."""

    word: np.ndarray  # int32[T], word ids in order, document after document
    ptr: np.ndarray  # int64[D + 1], offset of each document in `word`
    stem: np.ndarray  # int32[W], stem of each word id


class StemCorpus(NamedTuple):
    """Arrays of a corpus for a search under METEOR."""

    # one family: the pairs (stem, occurrence) of each document; documents are sorted by ascending length
    features: Features
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length
    texts: DocumentWords
    n_stems: int  # number of distinct stems

    row_ptr, row_id = ROWS  # type: ignore[misc]


class StemBatch(NamedTuple):
    """Arrays of Q distinct queries.

    `reach` lists, for each query, first the stem of each of its words, then the stems of the words' synonyms, by
    ascending position of the word.
    """

    # features that a document's stems can match: a stem as often as it matches words of the query, as their stem or as
    # a synonym's. Sizes are the numbers of words of the queries.
    queries: QueryFeatures
    words: np.ndarray  # int64[...], word ids of each query in order, -1 for words that do not occur in the corpus
    words_ptr: np.ndarray  # int64[Q + 1], offset of each query in `words`
    reach: np.ndarray  # int64[...], stems that match a word of the query, -1 for stems that do not occur in the corpus
    reach_at: np.ndarray  # int64[...], position of that word in the query
    reach_ptr: np.ndarray  # int64[Q + 1], offset of each query in `reach` and `reach_at`


class MeteorScratch(NamedTuple):
    """Scratch arrays of one thread, for W words and S stems of the corpus; see `Places`."""

    word_slot: np.ndarray  # int32[W], all zero between queries
    stem_slot: np.ndarray  # int32[S], all zero between queries
    match: np.ndarray  # int64[longest document]


class Places(NamedTuple):
    """Positions of a query's words by word and by stem, as linked lists: the last position first, -1 at the end.

    A slot is a number from 1 that the query assigns to each of its words, or to each stem that matches. The lists of
    slot s begin at index s - 1. The query has n words and e entries, those of `StemBatch.reach`.
    """

    word_slot: np.ndarray  # int32[W], slot of each word, 0 if it is not in the query
    stem_slot: np.ndarray  # int32[S], slot of each stem, 0 if it matches nothing in the query
    word_last: np.ndarray  # int64[n], last position of the word of each slot
    word_before: np.ndarray  # int64[n], for each position the previous one with that word
    left: np.ndarray  # int64[n], copy of `word_last` that is used up while a document is matched
    own_last: np.ndarray  # int64[e], for each slot of a stem, the last entry that is the stem of a word itself
    near_last: np.ndarray  # int64[e], for each slot of a stem, the last entry that is a synonym's
    before: np.ndarray  # int64[e], for each entry, the previous one in its list
    at: np.ndarray  # int64[e], for each entry, its position in the query
    used: np.ndarray  # bool[n], scratch: positions that are already matched
    match: np.ndarray  # int64[longest document], scratch: the position that each word of a document matches


@jit
def _entries(batch, q):
    """Return the parts of `words`, `reach` and `reach_at` (see `StemBatch`) that belong to query q."""
    words = batch.words[batch.words_ptr[q] : batch.words_ptr[q + 1]]
    begin, end = batch.reach_ptr[q], batch.reach_ptr[q + 1]
    return words, batch.reach[begin:end], batch.reach_at[begin:end]


@jit
def find_places(batch, q, space):
    """Return the `Places` of query q, which use the arrays of `space`; `forget_places` resets these."""
    words, reach, reach_at = _entries(batch, q)
    word_slot, stem_slot = space.word_slot, space.stem_slot
    n, n_entries = len(words), len(reach)
    word_last, word_before = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    own_last, near_last = np.full(n_entries, -1, np.int64), np.full(n_entries, -1, np.int64)
    before = np.full(n_entries, -1, np.int64)
    n_words = n_stems = 0
    for t in range(n):
        if words[t] >= 0:
            if word_slot[words[t]] == 0:
                n_words += 1
                word_slot[words[t]] = n_words
            slot = word_slot[words[t]] - 1
            word_before[t] = word_last[slot]
            word_last[slot] = t
    for e in range(n_entries):
        if reach[e] >= 0:
            if stem_slot[reach[e]] == 0:
                n_stems += 1
                stem_slot[reach[e]] = n_stems
            last = own_last if e < n else near_last
            before[e] = last[stem_slot[reach[e]] - 1]
            last[stem_slot[reach[e]] - 1] = e
    return Places(
        word_slot,
        stem_slot,
        word_last,
        word_before,
        np.empty(n, np.int64),
        own_last,
        near_last,
        before,
        reach_at,
        np.empty(n, np.bool_),
        space.match,
    )


@jit
def forget_places(batch, q, space):
    """Reset the entries of `space` that `find_places` has changed for query q to zero."""
    words, reach, _ = _entries(batch, q)
    for t in range(len(words)):
        if words[t] >= 0:
            space.word_slot[words[t]] = 0
    for e in range(len(reach)):
        if reach[e] >= 0:
            space.stem_slot[reach[e]] = 0


@inner
def _take_last(entry, places):
    """Return the last entry of a list, from `entry` back, whose position is not yet matched; -1 if there is none."""
    while entry >= 0 and places.used[places.at[entry]]:
        entry = places.before[entry]
    return entry


@inner
def _match_stems(texts, begin, n, last, places):
    """Match the words of a document that are still free with the query's, by stems; return the number of new matches.

    The document has n words, from `begin` on in ``texts.word``. `last` is ``places.own_last`` for equal stems, or
    ``places.near_last`` for synonyms.
    """
    matched = 0
    for i in range(n - 1, -1, -1):
        if places.match[i] < 0:
            slot = places.stem_slot[texts.stem[texts.word[begin + i]]]
            entry = _take_last(last[slot - 1], places) if slot > 0 else np.int64(-1)
            if entry >= 0:
                places.match[i] = places.at[entry]
                places.used[places.at[entry]] = True
                matched += 1
    return matched


@jit
def align(texts, begin, end, places):
    """Match the words ``texts.word[begin:end]`` of a document with a query; return numbers of matches and of chunks.

    A chunk is a run of matches that are adjacent in both texts. Three rounds, as in nltk: equal words, equal stems,
    synonyms; each goes from the end of the document, and takes the last position that is still free.
    """
    n = end - begin
    matched = 0
    for position in range(len(places.used)):
        places.used[position] = False
        places.left[position] = places.word_last[position]
    for i in range(n - 1, -1, -1):
        slot = places.word_slot[texts.word[begin + i]]
        t = places.left[slot - 1] if slot > 0 else np.int64(-1)
        if t >= 0:
            places.left[slot - 1] = places.word_before[t]
            places.used[t] = True
            matched += 1
        places.match[i] = t
    most = min(n, len(places.used))
    if matched < most:
        matched += _match_stems(texts, begin, n, places.own_last, places)
    if matched < most:
        matched += _match_stems(texts, begin, n, places.near_last, places)
    chunks = 0
    before = np.int64(-2)
    for i in range(n):
        t = places.match[i]
        if t >= 0 and t != before + 1:
            chunks += 1
        before = t if t >= 0 else np.int64(-2)
    return matched, chunks


class MeteorForm(NamedTuple):
    """Says that a search or counts of pairs are those of METEOR, see `_overlap_search.py` and `_pairs.py`."""


class Meteor(NamedTuple):
    """The scorer (see `_overlap_search.py`): METEOR of documents against one query."""

    index: Features  # type: ignore[assignment] # its forward index holds the words of the documents, in order
    buckets: np.ndarray  # int64[C, 8], length buckets of documents of equal length, see `SetCorpus`
    size: int | np.integer  # number of words of the query
    texts: DocumentWords
    places: Places


@compiled_for(driver.scorer_of, MeteorForm)
def _(form, places, corpus, batch, q):
    index = with_forward(corpus.features, corpus.texts.ptr, corpus.texts.word)
    ids, size = features_of(batch.queries, q, 0, 1), np.int64(batch.queries.sizes[q, 0])
    return Meteor(index, corpus.buckets, size, corpus.texts, places), ids


compiled_for(driver.find, Meteor)(driver.find_in_family)


@compiled_for(bound, Meteor)
def _(scorer, j, a, b):
    # The matches are at most the shared features. All matches in one chunk; rises with the matches.
    most = min(a, min(scorer.buckets[j, 2], scorer.size))
    return meteor(most, 1, scorer.buckets[j, 2], scorer.size)


@compiled_for(driver.score, Meteor)
def _(scorer, d, j):
    begin, end = scorer.texts.ptr[d], scorer.texts.ptr[d + 1]
    matched, chunks = align(scorer.texts, begin, end, scorer.places)
    return meteor(matched, chunks, end - begin, scorer.size)


@compiled_for(begin_query, MeteorScratch)
def _(space, batch, q):
    return find_places(batch, q, space)


@compiled_for(count_run, MeteorScratch)
def _(space, places, corpus, documents, counts):
    texts = corpus.texts
    for i, d in enumerate(documents):
        begin, end = texts.ptr[d], texts.ptr[d + 1]
        counts[0, i], counts[1, i] = align(texts, begin, end, places)
        counts[2, i] = end - begin
        counts[3, i] = len(places.used)


@compiled_for(end_query, MeteorScratch)
def _(space, batch, q):
    forget_places(batch, q, space)


@compiled_for(score_of, MeteorForm)
def _(form, counts):
    return meteor(counts[0], counts[1], counts[2], counts[3])


@dataclass(frozen=True)
class Backend(driver.DrivenKernel):
    """METEOR on CPUs."""

    form = MeteorForm()

    def new_space(self, corpus):
        """Allocate the scratch arrays that `begin_query` takes."""
        longest = int(corpus.features.sizes[0].max(initial=0))
        word_slot, stem_slot = np.zeros(len(corpus.texts.stem), np.int32), np.zeros(corpus.n_stems, np.int32)
        return MeteorScratch(word_slot, stem_slot, np.empty(longest, np.int64))

    def counts(self, corpus, batch, query, document, known=None):
        """Return the numbers of matches and chunks of pairs and the words of both reports: int64[4, n]."""
        counts = np.empty((4, len(query)), np.int64)
        count_pairs(self.new_space(corpus), batch, corpus, query, document, counts)
        return counts

    def components(self, counts):
        """Return precision and recall, float64[n], and the number of chunks, int64[n], of pairs by name."""
        matched, chunks, length, reference_length = counts
        parts = {"precision": matched / np.maximum(length, 1), "recall": matched / np.maximum(reference_length, 1)}
        return {**parts, "chunks": chunks}
