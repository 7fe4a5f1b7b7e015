"""Sort of whole numbers; Numba's own sorts take ten times as long to compile as the loops that call them."""

from metric_oracle.kernels._jit import jit


@jit
def sort(values):
    """Sort int64[n] in place, ascending: by a heap, in O(n log n) whatever the order."""
    n = len(values)
    for i in range(n // 2 - 1, -1, -1):
        _sink(values, i, n)
    for last in range(n - 1, 0, -1):
        values[0], values[last] = values[last], values[0]
        _sink(values, 0, last)


@jit
def _sink(values, i, n):
    """Move a value down the heap values[:n], the greatest first, to where it belongs."""
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
