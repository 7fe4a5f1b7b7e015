"""Representation of Temporal F1: the set of keywords of change in each text, one bit per keyword."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.lists import group_rows
from metric_oracle.indexes.ngrams import Span, lowered_with_places
from metric_oracle.indexes.store import Columns, Stored, read_arrays
from metric_oracle.kernels.temporal.cpu import Masks
from metric_oracle.records import Metric

# The list of Bannur et al., CVPR 2023, as in Libra and RadEval. The position in this list is the number of the bit.
KEYWORDS = [
    "bigger",
    "change",
    "cleared",
    "constant",
    "decrease",
    "decreased",
    "decreasing",
    "elevated",
    "elevation",
    "enlarged",
    "enlargement",
    "enlarging",
    "expanded",
    "greater",
    "growing",
    "improved",
    "improvement",
    "improving",
    "increase",
    "increased",
    "increasing",
    "larger",
    "new",
    "persistence",
    "persistent",
    "persisting",
    "progression",
    "progressive",
    "reduced",
    "removal",
    "resolution",
    "resolved",
    "resolving",
    "smaller",
    "stability",
    "stable",
    "stably",
    "unaltered",
    "unchanged",
    "unfolded",
    "worse",
    "worsen",
    "worsened",
    "worsening",
]
_BIT = {word: np.uint64(1 << place) for place, word in enumerate(KEYWORDS)}
_APART = re.compile(r"[\n_-]+")  # replaced by a space, as in the published cleaning
_DROPPED = re.compile(r"[^\w\s.,:;()]")  # deleted, as in the published cleaning, so that "worse/new" is one word
_WORD = re.compile(r"\w+")


def mask_of(text: str) -> np.uint64:
    """Return the keywords of a text as a bit mask; they are whole words, in upper or lower case."""
    mask = np.uint64(0)
    for word in _WORD.findall(_DROPPED.sub("", _APART.sub(" ", text)).lower()):
        mask |= _BIT.get(word, np.uint64(0))
    return mask


def keyword_spans(text: str) -> list[tuple[Span, str]]:
    """Return the keywords of a text with their places in it, each as often as it occurs."""
    apart = _APART.sub(_as_many_blanks, text)
    letters = [i for i, letter in enumerate(apart) if not _DROPPED.match(letter)]
    lowered, place = lowered_with_places("".join(apart[i] for i in letters))
    words = [match for match in _WORD.finditer(lowered) if match[0] in _BIT]
    return [((letters[place[word.start()]], letters[place[word.end() - 1]] + 1), word[0]) for word in words]


def _as_many_blanks(gap: re.Match[str]) -> str:
    return " " * len(gap[0])


@dataclass(frozen=True)
class KeywordDocuments(StoredDocuments):
    """Distinct sets of keywords."""

    masks: np.ndarray  # uint64[D], ascending, a bit per keyword in the order of `KEYWORDS`
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    derived_files: ClassVar[tuple[str, ...]] = ("masks.arrow",)

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "KeywordDocuments":
        """Index the keywords of the texts."""
        bits = np.fromiter(map(mask_of, corpus.texts), np.uint64, len(corpus.texts))
        masks, which = np.unique(bits, return_inverse=True)
        return cls(masks, *group_rows(which.reshape(-1)[corpus.text_of_row], len(masks)))

    def encode(self, reports: Reports) -> "KeywordDocuments":
        """Return the distinct sets of keywords of the queries."""
        return self.build("temporal", Corpus(reports, reports.texts, np.arange(len(reports.texts))))

    def arrays(self, metric: Metric, queries: Documents) -> Masks:
        """Return the arrays that the kernels read, for any metric and queries."""
        return Masks(self.masks, self.row_ptr, self.row_id)

    def item(self, document: int) -> frozenset[str]:
        """Return the keywords of a document."""
        return frozenset(word for word, bit in _BIT.items() if self.masks[document] & bit)

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield the masks and their rows."""
        yield "masks.arrow", {"masks": self.masks, "row_ptr": self.row_ptr, "row_id": self.row_id}

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "KeywordDocuments":
        """Open the masks and their rows."""
        return cls(**read_arrays(stored["masks.arrow"]))
