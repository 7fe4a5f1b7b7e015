"""Sets of features, laid out for the overlap kernels: distinct units, postings, forward lists, rows of each unit."""

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.errors import InputError
from metric_oracle.indexes.store import check_ids, check_offsets, gathered
from metric_oracle.kernels._build import invert_lists, note_cells, posting_offsets
from metric_oracle.kernels._overlap import Features, Queries

SHORTEST_SKIPPED = 4  # postings a cell from which a list gets a row in the skip table
AT_ONCE = 1 << 26  # postings that are put in order in memory: 256 MiB
MOST_FEATURES = 2**31 - 1  # ids of features are 32 bits wide


class Units:
    """What every representation has: distinct units, and the corpus rows that each stands for.

    Attributes
    ----------
    data_files, derived_files : tuple of str
        Names of the files that `save` writes: what scores depend on and no text of the corpus tells, which makes the
        index's fingerprint; and what follows from texts or data, which another machine may make otherwise.
    encodes_by_corpus : bool
        Whether queries are encoded otherwise for another corpus.
    """

    data_files: ClassVar[tuple[str, ...]] = ()
    derived_files: ClassVar[tuple[str, ...]] = ()
    encodes_by_corpus: ClassVar[bool] = True
    row_ptr: np.ndarray
    row_id: np.ndarray
    encode: Callable[..., Any]

    @cached_property
    def unit_of_row(self) -> np.ndarray:
        """Return the unit of each corpus row, -1 for rows that the representation lacks: int64[...]."""
        unit_of_row = np.full(int(self.row_id.max(initial=-1)) + 1, -1, np.int64)
        unit_of_row[self.row_id] = np.repeat(np.arange(len(self.row_ptr) - 1), np.diff(self.row_ptr))
        return unit_of_row

    def item(self, unit: int) -> Any:
        """Return a unit as the plain scorer takes it."""
        raise NotImplementedError

    def candidate(self, unit: int, encoded: Any) -> Any:
        """Return the same for some queries, which change nothing here."""
        return self.item(unit)

    def key(self, unit: int) -> Hashable:
        """Return what is equal for equal units of two indexes, and only for them."""
        return self.item(unit)

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records besides the numbers of units and rows."""
        return {}

    def encode_again(self, inputs: Any, encoded: Any, **settings: Any) -> Any:
        """Encode queries that another shard of the same set may have encoded; what does not go by the shard is kept."""
        return encoded if encoded is not None and not self.encodes_by_corpus else self.encode(inputs, **settings)


class Encoded:
    """What most encoded queries have in common."""

    @property
    def settings(self) -> dict[str, Any]:
        """What the signature records: nothing."""
        return {}

    def item(self, q: int) -> Any:
        """Return a distinct query as the plain scorer takes it, as a reference."""
        raise NotImplementedError

    def own(self, q: int) -> Any:
        """Return a distinct query as a candidate for itself."""
        return self.item(q)

    def portable(self) -> Any:
        """Return what a model made, without a corpus, for `encode_again` in another process; None: nothing was made."""
        return None


class FeatureUnits(Units):
    """Units described by features."""

    features: Features

    @property
    def row_ptr(self) -> np.ndarray:  # type: ignore[override]
        """Offsets of the rows of each unit."""
        return self.features.row_ptr

    @property
    def row_id(self) -> np.ndarray:  # type: ignore[override]
        """Corpus rows, ascending within a unit."""
        return self.features.row_id


def group_rows(unit_of_row: np.ndarray, n_units: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of each unit.

    Parameters
    ----------
    unit_of_row : int64[N]
        -1 for a row that has no representation.
    n_units : int

    Returns
    -------
    row_ptr : int64[D + 1]
    row_id : int64[...]
        Ascending within a unit.
    """
    row_ptr = np.zeros(n_units + 1, np.int64)
    np.cumsum(np.bincount(unit_of_row[unit_of_row >= 0], minlength=n_units), out=row_ptr[1:])
    order = np.argsort(unit_of_row, kind="stable")
    return row_ptr, order[np.count_nonzero(unit_of_row < 0) :].astype(np.int64)


def pack(unit: np.ndarray, feature: np.ndarray, n_units: int, family_ptr: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sort (unit, feature) pairs into forward lists and count the families of each unit.

    Parameters
    ----------
    unit, feature : int64[P]
        Pairs without repetition.
    n_units : int
    family_ptr : int64[F + 1]
        First feature id of each family, and the number of features.

    Returns
    -------
    fwd_ptr : int64[D + 1]
    fwd_id : int32[P]
    sizes : int32[F, D]
    """
    n_features = int(family_ptr[-1])
    key = np.sort(unit * n_features + feature)
    unit, feature = np.divmod(key, max(n_features, 1))
    fwd_ptr = np.zeros(n_units + 1, np.int64)
    np.cumsum(np.bincount(unit, minlength=n_units), out=fwd_ptr[1:])
    family = np.searchsorted(family_ptr, feature, side="right") - 1
    n_families = len(family_ptr) - 1
    sizes = np.bincount(family * n_units + unit, minlength=n_families * n_units).reshape(n_families, n_units)
    return fwd_ptr, feature.astype(np.int32), sizes.astype(np.int32)


def check_features(n: int) -> None:
    """Raise where features are more than their ids can tell apart."""
    if n > MOST_FEATURES:
        msg = (
            f"build_index: reports must have at most {MOST_FEATURES:,} distinct features (n-grams, entities, "
            f"relations); got {n:,} or more. Build several indexes of fewer reports."
        )
        raise InputError(msg)


def most_features(before: int) -> int:
    """Return how many features after `before` others are one too many."""
    return MOST_FEATURES + 1 - before


def load_features(columns: dict[str, np.ndarray]) -> Features:
    """Take the features out of the columns of a file, once no offset or id leads out of its array."""
    features = Features(**{name: columns.pop(name) for name in Features._fields})
    check_offsets(features.post_ptr, features.post_unit)
    check_offsets(features.fwd_ptr, features.fwd_id)
    check_offsets(features.row_ptr, features.row_id)
    n_units, n_features = len(features.fwd_ptr) - 1, len(features.post_ptr) - 1
    counts = features.sizes.shape[1], len(features.row_ptr) - 1, len(features.skip_slot), len(features.post_unit)
    if counts != (n_units, n_units, n_features, len(features.fwd_id)):
        msg = "arrays of unlike lengths"
        raise ValueError(msg)
    check_ids(features.post_unit, n_units)
    check_ids(features.fwd_id, n_features)
    check_ids(features.skip_slot, len(features.skip), -1)
    is_long = features.skip_slot >= 0
    longest = np.diff(features.post_ptr)[is_long]
    check_ids(features.sizes, 1 << 31)
    of_units = features.sizes.sum(axis=0, dtype=np.int64)
    if np.any(of_units != np.diff(features.fwd_ptr)) or np.any(
        features.skip[features.skip_slot[is_long]] > longest[:, None]
    ):
        msg = "sizes of lists that are others"
        raise ValueError(msg)
    check_ids(features.skip, 1 << 31)
    return features


def invert(
    fwd_ptr: np.ndarray,
    fwd_id: np.ndarray,
    sizes: np.ndarray,
    sort_key: np.ndarray,
    unit_of_row: np.ndarray,
    n_features: int,
    scratch: Path | None = None,
) -> Features:
    """Add posting lists, skips and rows to forward lists whose units are sorted by `sort_key`.

    Parameters
    ----------
    scratch : Path or None
        Folder for posting lists beyond `AT_ONCE`, which then take no memory; see `gathered`.
    """
    post_ptr = posting_offsets(fwd_id, n_features)
    cell_of_unit = np.cumsum(_starts(sort_key)) - 1
    n_cells = int(cell_of_unit[-1]) + 1 if len(cell_of_unit) else 0
    is_long = np.diff(post_ptr) >= SHORTEST_SKIPPED * max(n_cells, 1)
    slot = np.where(is_long, np.cumsum(is_long) - 1, -1).astype(np.int32)
    skip = np.zeros((np.count_nonzero(is_long), n_cells + 1), np.int32)
    ranges = _ranges(post_ptr)

    def lists() -> Iterator[np.ndarray]:
        for first, last in ranges:
            some = invert_lists(fwd_ptr, fwd_id, post_ptr, first, last)
            note_cells(post_ptr, some, first, last, cell_of_unit, slot, skip)
            yield some

    post_unit = gathered(lists(), scratch if len(ranges) > 1 else None)
    row_ptr, row_id = group_rows(unit_of_row, len(fwd_ptr) - 1)
    sizes = np.ascontiguousarray(sizes)
    return Features(post_ptr, post_unit, fwd_ptr, fwd_id, sizes, slot, skip, row_ptr, row_id)


def _ranges(post_ptr: np.ndarray) -> list[tuple[int, int]]:
    """Cut features into ranges of `AT_ONCE` postings at most, or of one feature that has more; one range at least."""
    ranges: list[tuple[int, int]] = []
    first, n_features = 0, len(post_ptr) - 1
    while first < n_features or not ranges:
        last = int(np.searchsorted(post_ptr, post_ptr[first] + AT_ONCE, side="right")) - 1
        ranges.append((first, min(max(last, first + 1), n_features)))
        first = ranges[-1][1]
    return ranges


def _starts(sort_key: np.ndarray) -> np.ndarray:
    """Return which units begin a cell, a run of units with equal sort keys: bool[D]."""
    key = np.atleast_2d(sort_key)
    starts = np.ones(key.shape[1], bool)
    starts[1:] = np.any(key[:, 1:] != key[:, :-1], axis=0)
    return starts


def cells_of(sort_key: np.ndarray, size_a: np.ndarray, size_b: np.ndarray, finest: np.ndarray) -> np.ndarray:
    """Return the runs of units with equal sort keys, and the least and greatest sizes in each.

    Parameters
    ----------
    sort_key : int[D] or int[S, D]
        What the units are sorted by.
    size_a, size_b : int32[D]
    finest : int[D] or int[S, D]
        Sort key of the cells that the skip table knows; it refines `sort_key`.

    Returns
    -------
    int64[C, 8]
        First unit, end unit, least and greatest size_a, least and greatest size_b, first and end of the finest cells.
    """
    first = np.flatnonzero(_starts(sort_key))
    if len(first) == 0:
        return np.empty((0, 8), np.int64)
    end = np.r_[first[1:], len(size_a)]
    ranges = [reduce.reduceat(size, first) for size in (size_a, size_b) for reduce in (np.minimum, np.maximum)]
    fine = np.cumsum(_starts(finest)) - 1
    return np.stack([first, end, *ranges, fine[first], fine[end - 1] + 1], axis=1).astype(np.int64)


def renamed(features: Features, place: np.ndarray) -> Queries:
    """Return the units of one corpus as queries of another.

    Parameters
    ----------
    features : Features
    place : int64[V]
        Each feature's id in the other corpus, -1 for those that it lacks.
    """
    sizes = features.sizes.T.copy()
    known = place[features.fwd_id] >= 0
    kept = np.concatenate([[0], np.cumsum(known)])
    ends = kept[np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])]
    return Queries(ends, place[features.fwd_id[known]].astype(np.int32), sizes)


def lookup(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each wanted key in the ascending `keys`, -1 where it is not there or negative."""
    if len(keys) == 0:
        return np.full(len(wanted), -1, np.int64)
    position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[position] == wanted) & (wanted >= 0), position, -1)


def pack_queries(query: np.ndarray, feature: np.ndarray, sizes: np.ndarray, family_ptr: np.ndarray) -> Queries:
    """Lay out the features of a batch of queries.

    Parameters
    ----------
    query, feature : int64[P]
        Pairs without repetition; features of -1 (not in the corpus) are left out.
    sizes : int32[Q, F]
        Sizes with the unknown features counted.
    family_ptr : int64[F + 1]
    """
    known = feature >= 0
    query, feature = query[known], feature[known]
    n_families = len(family_ptr) - 1
    slot = query * n_families + np.searchsorted(family_ptr, feature, side="right") - 1
    order = np.argsort(slot, kind="stable")
    ptr = np.zeros(sizes.shape[0] * n_families + 1, np.int64)
    np.cumsum(np.bincount(slot, minlength=sizes.shape[0] * n_families), out=ptr[1:])
    return Queries(ptr, feature[order].astype(np.int32), np.ascontiguousarray(sizes, dtype=np.int32))
