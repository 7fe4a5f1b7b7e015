"""Sets of features, laid out for the overlap kernels: distinct units, postings, forward lists, rows of each unit."""

from functools import cached_property
from typing import Any

import numpy as np

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._overlap import Features, Queries

SHORTEST_SKIPPED = 4  # postings a cell from which a list gets a row in the skip table


@jit
def _invert(fwd_ptr, fwd_id, n_features):
    """Turn forward lists into posting lists by counting sort; units ascend within a list."""
    post_ptr = np.zeros(n_features + 1, np.int64)
    for p in range(len(fwd_id)):
        post_ptr[fwd_id[p] + 1] += 1
    for v in range(n_features):
        post_ptr[v + 1] += post_ptr[v]
    cursor = post_ptr[:-1].copy()
    post_unit = np.empty(len(fwd_id), np.int32)
    for u in range(len(fwd_ptr) - 1):
        for p in range(fwd_ptr[u], fwd_ptr[u + 1]):
            v = fwd_id[p]
            post_unit[cursor[v]] = u
            cursor[v] += 1
    return post_ptr, post_unit


class Units:
    """What every representation has: distinct units, and the corpus rows that each stands for."""

    row_ptr: np.ndarray
    row_id: np.ndarray

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

    def counts(self) -> dict[str, Any]:
        """Return what the manifest records besides the numbers of units and rows."""
        return {}


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


def reorder(fwd_ptr: np.ndarray, fwd_id: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the forward lists of the units `order`, in that order."""
    lengths = np.diff(fwd_ptr)[order]
    new_ptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths, out=new_ptr[1:])
    source = np.repeat(fwd_ptr[:-1][order] - new_ptr[:-1], lengths) + np.arange(new_ptr[-1])
    return new_ptr, fwd_id[source]


@jit
def _skip_table(post_ptr, post_unit, cell_of_unit, n_cells, shortest):
    """Find where each cell begins within the lists of at least `shortest` postings."""
    slot = np.full(len(post_ptr) - 1, -1, np.int32)
    n_slots = 0
    for v in range(len(slot)):
        if post_ptr[v + 1] - post_ptr[v] >= shortest:
            slot[v] = n_slots
            n_slots += 1
    skip = np.zeros((n_slots, n_cells + 1), np.int32)
    for v in range(len(slot)):
        if slot[v] >= 0:
            cell = 0
            for p in range(post_ptr[v], post_ptr[v + 1]):
                while cell <= cell_of_unit[post_unit[p]]:
                    skip[slot[v], cell] = p - post_ptr[v]
                    cell += 1
            skip[slot[v], cell:] = post_ptr[v + 1] - post_ptr[v]
    return slot, skip


def invert(
    fwd_ptr: np.ndarray,
    fwd_id: np.ndarray,
    sizes: np.ndarray,
    sort_key: np.ndarray,
    unit_of_row: np.ndarray,
    n_features: int,
) -> Features:
    """Add posting lists, skips and rows to forward lists whose units are sorted by `sort_key`."""
    post_ptr, post_unit = _invert(fwd_ptr, fwd_id, n_features)
    cell_of_unit = np.cumsum(_starts(sort_key)) - 1
    n_cells = int(cell_of_unit[-1]) + 1 if len(cell_of_unit) else 0
    skip_slot, skip = _skip_table(post_ptr, post_unit, cell_of_unit, n_cells, SHORTEST_SKIPPED * max(n_cells, 1))
    row_ptr, row_id = group_rows(unit_of_row, len(fwd_ptr) - 1)
    sizes = np.ascontiguousarray(sizes)
    return Features(post_ptr, post_unit, fwd_ptr, fwd_id, sizes, skip_slot, skip, row_ptr, row_id)


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
