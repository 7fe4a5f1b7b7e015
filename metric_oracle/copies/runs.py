"""Runs of words that reports share with one report of a corpus, exactly, without scoring pairs."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from metric_oracle.indexes.features import lookup
from metric_oracle.indexes.ngrams import NgramIndex, positions

LARGEST_TABLE = 1 << 24  # entries of a table of keys, 64 MiB; a search among more keys needs no table


class Runs(NamedTuple):
    """Runs of words that reports share with a corpus."""

    longest: np.ndarray  # int64[n], words of the longest run that a report shares with one report of the corpus
    row: np.ndarray  # int64[n], lowest corpus row with a shared run of that length; -1 where no word is shared
    shared: np.ndarray  # bool[G], for each run of `order` words of all reports in order, whether the corpus has it


def shared_runs(sequences: Sequence[tuple[str, ...]], corpora: Sequence[NgramIndex], order: int) -> Runs:
    """Find the longest run of words that each report shares with a row of the corpus, and the shared n-grams.

    `sequences` has the words of each report, `corpora` the words of each shard, `order` is the n of the n-grams.

    A run of n words is shared only if its first n - 1 words are. So the runs grow by one word in each pass, and a pass
    reads only the places of the corpus that still match: linear in the corpus for two words, and less for each further
    word. The passes end with the longest run that is shared.
    """
    ptr = np.zeros(len(sequences) + 1, np.int64)
    np.cumsum([len(words) for words in sequences], out=ptr[1:])
    longest, row, first_row = np.zeros(len(sequences), np.int64), np.full(len(sequences), -1, np.int64), 0
    begin, _ = positions(ptr, order)
    is_shared = np.zeros(int(ptr[-1]), np.bool_)  # by the place of the first word
    report_of = np.repeat(np.arange(len(sequences)), np.diff(ptr) + 1)  # a separator follows each report
    for corpus in corpora:
        word = corpus.ids_of_words(list(chain.from_iterable(sequences)))
        distinct, gram = np.unique(word[word >= 0], return_inverse=True)
        number, n_words, n_grams = np.full(len(corpus.vocabulary), -1, np.int32), len(distinct), len(distinct)
        number[distinct] = np.arange(n_words)
        # Words by their number among the distinct ones of the reports; -1 for others, and after each report.
        own, of_corpus = _separated(word, ptr), _separated(number[corpus.sequence], corpus.sequence_ptr)
        own[own >= 0] = gram
        begins = np.flatnonzero(own >= 0)
        place = np.flatnonzero(of_corpus >= 0)
        of_place, n = of_corpus[place], 1
        is_longer = np.zeros(len(sequences), np.bool_)  # than in the shards before
        first_of, begin_of = _first_rows(corpus), corpus.sequence_ptr[:-1] + np.arange(len(corpus.sequence_ptr) - 1)
        while len(begins):
            at = begins - report_of[begins]
            is_longer[report_of[begins[longest[report_of[begins]] < n]]] = True
            np.maximum.at(longest, report_of[begins], n)
            if n == order:
                is_shared[at] = True
            last, of_last, last_place, of_last_place = report_of[begins], gram, place, of_place
            begins, key = _longer(own, begins, gram, n, n_words)
            keys, gram = np.unique(key, return_inverse=True)
            place, key = _longer(of_corpus, place, of_place, n, n_words)
            of_place = _numbers(keys, n_grams * n_words, key)
            place, of_place = place[of_place >= 0], of_place[of_place >= 0]
            in_corpus = np.zeros(len(keys), np.bool_)
            in_corpus[of_place] = True
            begins, gram = begins[in_corpus[gram]], gram[in_corpus[gram]]
            ends = is_longer.copy()  # reports whose runs do not go on
            ends[report_of[begins]] = False
            if ends.any():
                is_wanted = np.zeros(n_grams, np.bool_)
                is_wanted[of_last[ends[last]]] = True
                is_held = is_wanted[of_last_place]
                document = np.searchsorted(begin_of, last_place[is_held], "right") - 1
                of_gram = _lowest(first_of[document], of_last_place[is_held], n_grams)
                of_report = _lowest(of_gram[of_last[ends[last]]], last[ends[last]], len(sequences))
                row[ends] = first_row + of_report[ends]
                is_longer &= ~ends
            n, n_grams = n + 1, len(keys)
        first_row += len(corpus.document_of_row)
    return Runs(longest, row, is_shared[begin])


def _first_rows(corpus: NgramIndex) -> np.ndarray:
    """Return the lowest row of each document, int64[D]."""
    first = np.zeros(len(corpus.sequence_ptr) - 1, np.int64)
    rows = np.flatnonzero(corpus.document_of_row >= 0)[::-1]
    first[corpus.document_of_row[rows]] = rows
    return first


def _lowest(rows: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    """Return the lowest row of each number below `size`, int64[size]; the largest int64 where there is none."""
    lowest = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(lowest, numbers, rows)
    return lowest


def _separated(words: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    """Return the words of n reports, int[T] cut at the offsets `ptr`, with -1 after each report: int32[T + n]."""
    separated = np.full(len(words) + len(ptr) - 1, -1, np.int32)
    is_word = np.ones(len(separated), np.bool_)
    is_word[ptr[1:] + np.arange(len(ptr) - 1)] = False
    separated[is_word] = words
    return separated


def _longer(words: np.ndarray, place: np.ndarray, gram: np.ndarray, n: int, n_words: int) -> tuple[np.ndarray, ...]:
    """Return the positions at which a run of n words goes on with a known word, and the key of each longer run.

    `words` are those of `_separated`, `place` the positions where the runs begin, `gram` the number of each run of n
    words, and `n_words` the number of known words, which are numbered from 0.
    """
    following = words[place + n]
    more = following >= 0
    return place[more], gram[more].astype(np.int64) * n_words + following[more]


def _numbers(keys: np.ndarray, end: int, wanted: np.ndarray) -> np.ndarray:
    """Return the index of each wanted key in the ascending `keys`, which are below `end`; -1 if it is missing."""
    if end > min(LARGEST_TABLE, 16 * len(wanted)):
        return lookup(keys, wanted)
    table = np.full(end, -1, np.int32)
    table[keys] = np.arange(len(keys))
    return table[wanted]
