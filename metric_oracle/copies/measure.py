"""Compare one set of reports with a corpus: numbers for each report, from exact searches."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from metric_oracle.base.checksum import string_parts
from metric_oracle.corpora.joining import PLACE
from metric_oracle.corpora.reports import Reports
from metric_oracle.corpora.texts import folded
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.store import BATCH, Strings, to_arrow
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve

NEAR = ("rouge-l", "bleu-2", "jaccard:3")
NOVELTY = 4  # words of an n-gram
LONG = 30  # words of a long run
# What takes the place of names, dates and numbers in public reports: ___ (MIMIC-CXR), XXXX (IU X-ray), [** **]
# (MIMIC-III), and dates.
MARKER = re.compile(
    r"_{2,}|\bx{3,}\b|\[\*\*.*?\*\*\]|\b(?:\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})|\d{4}-\d{1,2}-\d{1,2})\b", re.IGNORECASE
)
_WEIGHTS = np.random.default_rng(0).integers(1, 1 << 63, 256, np.uint64)  # of each byte
_WEIGHTS[ord("A") : ord("Z") + 1] = _WEIGHTS[ord("a") : ord("z") + 1]
_WEIGHTS[[byte for byte in range(256) if byte > 127 or chr(byte).isspace()]] = 0
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n{2,}")


def masked(text: str) -> str:
    """Return a text without the markers that de-identification left in it."""
    return MARKER.sub(" ", text)


@dataclass(frozen=True)
class Measured:
    """A set of reports against a corpus."""

    reports: Reports
    is_copy: np.ndarray  # bool[n], whether the text is that of a training report, see `corpora.texts.folded`
    best: dict[str, np.ndarray]  # float64[n], score of the best training report, by each metric of `NEAR`
    run: np.ndarray  # int64[n], words of the longest run that a training report has too
    # The training report of the lowest row that has a run of that length: run_id, run_row; "" and -1 where no
    # word is shared. It need not be the nearest.
    run_report: pa.Table
    n_grams: np.ndarray  # int64[n], number of word 4-grams of a report
    n_new: np.ndarray  # int64[n], number of those that no training report has
    is_same: dict[str, np.ndarray]  # bool[n], whether the corpus has that value, by "id" and columns of both sides
    is_marked: np.ndarray  # bool[n], whether the text has a marker of de-identification
    nearest: pa.Table  # the best training report by ROUGE-L: candidate_id, row, n_ties
    # By metric: bool[n], whether the best training report scores higher than the human report of the study; empty
    # where that is not known.
    is_nearer: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def folded_texts(self) -> list[str]:
        """The texts in the form in which they are compared: without differences of case, blanks and Unicode form."""
        return [folded(text) for text in self.reports.texts]

    def sentences(self, n: int) -> list[tuple[str, int]]:
        """Return the n most frequent sentences, folded, and how many reports have each, the most frequent first.

        Sentences of equal frequency are in the order of their letters, whatever the order of the reports.
        """
        counts: Counter[str] = Counter()
        for text in self.reports.texts:
            counts.update(list(dict.fromkeys(filter(None, map(folded, _SENTENCE.split(text))))))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]


def measure(
    index: Index, reports: Reports, is_same: dict[str, np.ndarray], is_marked: np.ndarray, options: SearchOptions
) -> Measured:
    """Compare a set of reports with a corpus; `is_same` and `is_marked` are put into the result as they are."""
    from metric_oracle.copies.runs import shared_runs
    from metric_oracle.indexes.ngrams import positions, tokenize_rouge

    queries = Reports(reports.ids, reports.texts, is_loaded=True)
    best: dict[str, np.ndarray] = {}
    nearest: Any = None
    for name in NEAR:
        answers = retrieve(index, queries, name, options=options).table
        best[name] = answers["score"].to_numpy()
        nearest = answers.select(["candidate_id", "row", "n_ties"]) if nearest is None else nearest
    words = [tuple(tokenize_rouge(text)) for text in reports.texts]
    runs = shared_runs(words, [shard.part("words") for shard in index.shards()], NOVELTY)
    ptr = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(sequence) for sequence in words], out=ptr[1:])
    _, report = positions(ptr, NOVELTY)
    return Measured(
        reports,
        _are_copies(index, [folded(text) for text in reports.texts]),
        best,
        runs.longest,
        pa.table({"run_id": _ids(index, runs.row), "run_row": runs.row}),
        np.bincount(report, minlength=len(words)),
        np.bincount(report[~runs.shared], minlength=len(words)),
        is_same,
        is_marked,
        nearest,
    )


def _ids(index: Index, rows: np.ndarray) -> pa.Array:
    """Return the ids of corpus rows; "" for row -1."""
    ids = np.full(len(rows), "", object)
    ids[rows >= 0] = index.take("study_id", rows[rows >= 0]).to_pylist()
    return pa.array(ids, pa.large_string())


def same_values(index: Index, reports: Reports) -> dict[str, np.ndarray]:
    """Return whether the corpus has each report's id, and its value in each common column: bool[n] by name.

    Under "id" all are False if the ids are only places in a list. An empty value gives False.
    """
    columns = {name: reports.columns[name] for name in index.columns if name in reports.columns}
    same = {name: _are_in(index, name, values) for name, values in columns.items()}
    has_ids = reports.ids_from != PLACE  # the places of two lists are no ids of one report
    return {"id": _are_in(index, "study_id", reports.ids) & has_ids, **same}


def _are_in(index: Index, column: str, values: Sequence[str]) -> np.ndarray:
    """Return whether a column of the corpus has each value: bool[n]; False for an empty value."""
    import pyarrow.compute as pc

    wanted = Strings(values).arrow
    is_present = np.array([value != "" for value in values], np.bool_)
    in_shards = [pc.is_in(wanted, value_set=shard.strings(column)).to_numpy() for shard in index.shards()]
    return is_present & np.any(in_shards, axis=0)


def _are_copies(index: Index, texts: Sequence[str]) -> np.ndarray:
    """Return whether each folded text is that of a training report: bool[n].

    To save time, a training report is folded only if it has the letters of one of the texts, or a character that is not
    ASCII.
    """
    import pyarrow.compute as pc

    wanted = set(texts)
    copied: set[str] = set()
    letters = _letters(to_arrow(list(wanted)))
    for shard in index.shards():
        for first in range(0, len(shard.distinct), BATCH):
            column = shard.distinct["text"].slice(first, BATCH).combine_chunks()
            may_be_equal = np.isin(_letters(column), letters) | ~pc.string_is_ascii(column).to_numpy(
                zero_copy_only=False
            )
            copied.update(map(folded, column.take(to_arrow(np.flatnonzero(may_be_equal))).to_pylist()))
    return np.array([text in copied for text in texts], np.bool_)


def _letters(texts: pa.Array) -> np.ndarray:
    """Return a number for each text, uint64[n], that depends on its ASCII characters but not on case, order, space."""
    ptr, flat = string_parts(texts)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_WEIGHTS[flat[ptr[0] : ptr[-1]]], dtype=np.uint64)])
    return np.diff(sums[ptr - ptr[0]])


def without_markers(reports: Reports) -> Reports:
    """Return reports whose texts have no markers of de-identification; counts, states and section are left out."""
    texts = [masked(text) for text in reports.texts]
    return Reports(reports.ids, texts, reports.source, columns=reports.columns)


def have_markers(texts: Sequence[str]) -> np.ndarray:
    """Return which texts have a marker of de-identification: bool[n]."""
    return np.array([MARKER.search(text) is not None for text in texts], np.bool_)
