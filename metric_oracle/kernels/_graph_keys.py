"""Sorting the feature keys of many graphs at once, where each graph has only a few."""

from metric_oracle.kernels._jit import jit
from metric_oracle.kernels._sort import sort

FEW = 32  # keys that insertion sorts faster than a heap


@jit
def sort_distinct(graph, key):
    """Sort the keys of each graph in place, and remove repeated keys within a graph.

    Parameters
    ----------
    graph : int64[n]
        Graph that each key belongs to, ascending.
    key : int64[n]

    Writes
    ------
    graph, key : the distinct pairs of graph and key, moved to the front of the arrays

    Returns
    -------
    int
        Number of distinct pairs; what follows them in the arrays is undefined.
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
