"""Heap sorts for compiled code. Numba's own sorts take ten times as long to compile as the loops that call them."""

import numpy as np

from metric_oracle.kernels._jit import inner, jit


@jit
def sort(values):
    """Sort `values`, int64[n], in place, ascending, by a heap sort: O(n log n) for any input."""
    n = len(values)
    for i in range(n // 2 - 1, -1, -1):
        sink(values, i, n)
    for last in range(n - 1, 0, -1):
        values[0], values[last] = values[last], values[0]
        sink(values, 0, last)


@inner
def sink(values, i, n):
    """Restore the heap values[:n], whose maximum is at index 0, after ``values[i]`` has changed."""
    value = values[i]
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and values[child + 1] > values[child]:
            child += 1
        if value >= values[child]:
            break
        values[i] = values[child]
        i = child
    values[i] = value


@jit
def order_of(keys):
    """Return the indices, int64[n], that sort int64[n] or float64[n] ascending; equal `keys` keep their order."""
    n = len(keys)
    places = np.empty(n, np.int64)
    for i in range(n):
        places[i] = i
    for i in range(n // 2 - 1, -1, -1):
        _sink_place(keys, places, i, n)
    for last in range(n - 1, 0, -1):
        places[0], places[last] = places[last], places[0]
        _sink_place(keys, places, 0, last)
    return places


@inner
def _is_behind(keys, a, b):
    """Return whether index a comes after index b: its key is greater, or equal with a > b."""
    return keys[a] > keys[b] or (keys[a] == keys[b] and a > b)


@inner
def _sink_place(keys, places, i, n):
    """Restore the heap of indices places[:n], the last in sort order at the top, after ``places[i]`` has changed."""
    position = places[i]
    while 2 * i + 1 < n:
        child = 2 * i + 1
        if child + 1 < n and _is_behind(keys, places[child + 1], places[child]):
            child += 1
        if not _is_behind(keys, places[child], position):
            break
        places[i] = places[child]
        i = child
    places[i] = position
