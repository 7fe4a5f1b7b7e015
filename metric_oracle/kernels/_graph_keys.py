"""Sorting the feature keys of many graphs at once, where each graph has only a few."""

from metric_oracle.kernels._jit import linear
from metric_oracle.kernels._sort import sort

FEW = 32  # keys that insertion sorts faster than a heap


@linear
def sort_distinct(graph, key):
    """Sort the keys of each graph in place, and remove repeated ones; return the number of pairs that are left.

    ``graph[i]``, ascending, is the graph of ``key[i]``; both are int64[n]. The distinct pairs come first, and what
    follows them is undefined.
    """
    n = first = 0
    while first < len(key):
        g, end = graph[first], first + 1
        while end < len(key) and graph[end] == g:
            end += 1
        if end - first > FEW:
            sort(key[first:end])
        for i in range(first + 1, end):
            value, j = key[i], i
            while j > first and key[j - 1] > value:
                key[j] = key[j - 1]
                j -= 1
            key[j] = value
        for i in range(first, end):
            if i == first or key[i] != key[n - 1]:
                graph[n], key[n] = g, key[i]
                n += 1
        first = end
    return n
