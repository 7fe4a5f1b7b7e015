"""Documents as sets of features, in the layout of the kernels over sets.

It has posting lists (documents of each feature), forward lists (features of each document) and corpus rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metric_oracle.base.errors import InputError
from metric_oracle.indexes.contract import Documents
from metric_oracle.indexes.lists import group_rows, offsets_of, places_of_lists
from metric_oracle.indexes.store import check_ids, check_offsets, gathered
from metric_oracle.kernels._overlap import Features, QueryFeatures

SHORTEST_SKIPPED = 4  # postings per length bucket that a list needs for a row in the skip table
AT_ONCE = 1 << 26  # postings that are sorted in memory at once, 256 MiB
MOST_FEATURES = 2**31 - 1  # feature ids have 32 bits


class FeatureDocuments(Documents):
    """Base of representations whose documents are sets of features."""

    features: Features  # posting lists, forward lists and rows, in the layout of the kernels over sets
    # Of queries: the documents as the plain scorer takes them, made without the features, which it checks; None of a
    # corpus.
    items: Sequence[Any] | None = None

    @property
    def row_ptr(self) -> np.ndarray:  # type: ignore[override]
        """Offsets of the rows of each document in `row_id`: int64[D + 1]."""
        return self.features.row_ptr

    @property
    def row_id(self) -> np.ndarray:  # type: ignore[override]
        """Corpus rows, ascending within a document: int64[...]."""
        return self.features.row_id

    def features_of(self, documents: np.ndarray, which: np.ndarray) -> Features:
        """Return the features of some documents, by their numbers int64[n], without posting lists.

        `which` has the place of each query's document among these: int64[Q].
        """
        features = self.features
        fwd_ptr = offsets_of(np.diff(features.fwd_ptr)[documents])
        fwd_id = features.fwd_id[places_of_lists(features.fwd_ptr, documents)]
        return without_postings(ForwardLists(fwd_ptr, fwd_id, features.sizes[:, documents]), which, 0)


@dataclass(frozen=True)
class Mapped(Sequence[Any]):
    """A sequence whose values are made when they are read: `function` of each of `values`."""

    values: Sequence[Any] | np.ndarray
    function: Callable[[Any], Any]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.function(self.values[place])


class ForwardLists(NamedTuple):
    """The features of each document, as in `Features`."""

    fwd_ptr: np.ndarray  # int64[D + 1], offsets of the documents in `fwd_id`
    fwd_id: np.ndarray  # int32[P], feature ids, ascending within a document
    sizes: np.ndarray  # int32[F, D], number of features of each family in each document

    def take(self, documents: np.ndarray) -> "ForwardLists":
        """Return the lists of the given documents, int64[n], in that order."""
        from metric_oracle.kernels._build import reorder

        fwd_ptr, fwd_id = reorder(self.fwd_ptr, self.fwd_id, documents)
        return ForwardLists(fwd_ptr, fwd_id, self.sizes[:, documents])


def pack(document: np.ndarray, feature: np.ndarray, n_documents: int, family_ptr: np.ndarray) -> ForwardLists:
    """Sort (document, feature) pairs, int64[P] each and without repetition, into forward lists.

    `family_ptr` has the first feature id of each family, and the number of features: int64[F + 1].
    """
    n_features = int(family_ptr[-1])
    key = np.sort(document * n_features + feature)
    document, feature = np.divmod(key, max(n_features, 1))
    fwd_ptr = offsets_of(np.bincount(document, minlength=n_documents))
    family = np.searchsorted(family_ptr, feature, side="right") - 1
    n_families = len(family_ptr) - 1
    sizes = np.bincount(family * n_documents + document, minlength=n_families * n_documents).reshape(
        n_families, n_documents
    )
    return ForwardLists(fwd_ptr, feature.astype(np.int32), sizes.astype(np.int32))


def check_features(n_features: int) -> None:
    """Raise InputError if there are more features than 32-bit ids."""
    if n_features > MOST_FEATURES:
        raise InputError(
            "reports",
            f"must have at most {MOST_FEATURES:,} distinct features (n-grams, entities, relations)",
            f"{n_features:,} or more",
            "Build several indexes of fewer reports.",
        )


def too_many_features(before: int) -> int:
    """Return the least number of features that, added to `before` others, do not fit 32-bit ids."""
    return MOST_FEATURES + 1 - before


def load_features(columns: dict[str, np.ndarray]) -> Features:
    """Remove the arrays of the features from `columns`, arrays by name, and return them.

    Raise ValueError if an array has the wrong length, or an offset or id points outside of its array.
    """
    features = Features(**{name: columns.pop(name) for name in Features._fields})
    check_offsets(features.post_ptr, features.post_unit)
    check_offsets(features.fwd_ptr, features.fwd_id)
    check_offsets(features.row_ptr, features.row_id)
    n_documents, n_features = len(features.fwd_ptr) - 1, len(features.post_ptr) - 1
    counts = features.sizes.shape[1], len(features.row_ptr) - 1, len(features.skip_slot), len(features.post_unit)
    if counts != (n_documents, n_documents, n_features, len(features.fwd_id)):
        msg = "arrays of unlike lengths"
        raise ValueError(msg)
    check_ids(features.post_unit, n_documents)
    check_ids(features.fwd_id, n_features)
    check_ids(features.skip_slot, len(features.skip), -1)
    is_long = features.skip_slot >= 0
    longest = np.diff(features.post_ptr)[is_long]
    check_ids(features.sizes, 1 << 31)
    of_documents = features.sizes.sum(axis=0, dtype=np.int64)
    if np.any(of_documents != np.diff(features.fwd_ptr)) or np.any(
        features.skip[features.skip_slot[is_long]] > longest[:, None]
    ):
        msg = "sizes that differ from the lengths of the lists"
        raise ValueError(msg)
    check_ids(features.skip, 1 << 31)
    return features


def invert(
    lists: ForwardLists, sort_key: np.ndarray, document_of_row: np.ndarray, n_features: int, scratch: Path | None = None
) -> Features:
    """Return the features of documents: their forward lists, with posting lists, skip table and rows.

    The documents must be sorted by `sort_key`, int[D] or int[S, D]; those with equal keys are one length bucket. A row
    whose document is -1 is left out. `scratch` is a folder for a file of posting lists if there are more than `AT_ONCE`
    postings, see `gathered`.
    """
    from metric_oracle.kernels._build import invert_lists, note_buckets, posting_offsets

    fwd_ptr, fwd_id, sizes = lists
    post_ptr = posting_offsets(fwd_id, n_features)
    bucket_of_document = np.cumsum(_starts(sort_key)) - 1
    n_buckets = int(bucket_of_document[-1]) + 1 if len(bucket_of_document) else 0
    is_long = np.diff(post_ptr) >= SHORTEST_SKIPPED * max(n_buckets, 1)
    slot = np.where(is_long, np.cumsum(is_long) - 1, -1).astype(np.int32)
    skip = np.zeros((np.count_nonzero(is_long), n_buckets + 1), np.int32)
    ranges = _ranges(post_ptr)

    def postings() -> Iterator[np.ndarray]:
        """Yield the posting lists of one range of features after another."""
        for first, last in ranges:
            of_range = invert_lists(fwd_ptr, fwd_id, post_ptr, first, last)
            note_buckets(post_ptr, of_range, first, last, bucket_of_document, slot, skip)
            yield of_range

    post_unit = gathered(postings(), scratch if len(ranges) > 1 else None)
    row_ptr, row_id = group_rows(document_of_row, len(fwd_ptr) - 1)
    sizes = np.ascontiguousarray(sizes)
    return Features(post_ptr, post_unit, fwd_ptr, fwd_id, sizes, slot, skip, row_ptr, row_id)


def without_postings(lists: ForwardLists, document_of_row: np.ndarray, n_features: int) -> Features:
    """Return the features of documents without posting lists, for scores of pairs; the arguments are as in `invert`."""
    fwd_ptr, fwd_id, sizes = lists
    row_ptr, row_id = group_rows(document_of_row, len(fwd_ptr) - 1)
    slots = np.full(n_features, -1, np.int32)
    postings = np.zeros(n_features + 1, np.int64), np.empty(0, np.int32)
    return Features(
        *postings, fwd_ptr, fwd_id, np.ascontiguousarray(sizes), slots, np.empty((0, 1), np.int32), row_ptr, row_id
    )


def _ranges(post_ptr: np.ndarray) -> list[tuple[int, int]]:
    """Split features into ranges (first, end) of at most `AT_ONCE` postings, or of one feature with more.

    `post_ptr` has the offsets of their postings. There is at least one range, which may be empty.
    """
    ranges: list[tuple[int, int]] = []
    first, n_features = 0, len(post_ptr) - 1
    while first < n_features or not ranges:
        last = int(np.searchsorted(post_ptr, post_ptr[first] + AT_ONCE, side="right")) - 1
        ranges.append((first, min(max(last, first + 1), n_features)))
        first = ranges[-1][1]
    return ranges


def _starts(sort_key: np.ndarray) -> np.ndarray:
    """Return whether each document begins a run of documents with equal sort keys, int[D] or int[S, D]: bool[D]."""
    key = np.atleast_2d(sort_key)
    starts = np.ones(key.shape[1], bool)
    starts[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    return starts


def buckets_of(sort_key: np.ndarray, size_a: np.ndarray, size_b: np.ndarray, finest_key: np.ndarray) -> np.ndarray:
    """Return the length buckets, runs of documents with equal sort keys, and the sizes in each: int64[C, 8].

    A row has its first document and the one after its last, the least and greatest `size_a`, the least and greatest
    `size_b`, and its first finest bucket and the one after its last. The sizes, int32[D], are those in two families of
    features. The documents must be sorted by `finest_key`, which refines `sort_key` and by which the skip table is
    made; keys are int[D] or int[S, D].
    """
    first = np.flatnonzero(_starts(sort_key))
    if len(first) == 0:
        return np.empty((0, 8), np.int64)
    end = np.r_[first[1:], len(size_a)]
    ranges = [reduce.reduceat(size, first) for size in (size_a, size_b) for reduce in (np.minimum, np.maximum)]
    finest_bucket = np.cumsum(_starts(finest_key)) - 1
    return np.stack([first, end, *ranges, finest_bucket[first], finest_bucket[end - 1] + 1], axis=1).astype(np.int64)


def as_queries(features: Features, ids: np.ndarray) -> QueryFeatures:
    """Return documents as queries of another corpus: their features, with the ids that they have in the corpus.

    `ids` has that of each of ``features.fwd_id``, -1 for a feature that the corpus lacks: int[P].
    """
    sizes = features.sizes.T.copy()
    is_known = ids >= 0
    ends = offsets_of(is_known)[offsets_of(sizes)]
    return QueryFeatures(ends, ids[is_known].astype(np.int32), sizes)


def lookup(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each wanted key in the ascending `keys`, -1 if it is missing or negative: int64[n]."""
    if len(keys) == 0:
        return np.full(len(wanted), -1, np.int64)
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[position] == wanted) & (wanted >= 0), position, -1)
