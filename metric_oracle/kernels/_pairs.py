"""Scores of given pairs: the compiled loops over pairs and over their counts, which all metrics share.

A metric defines, by `compiled_for`, what it counts in a pair for a NamedTuple class of scratch arrays (`begin_query`,
`count_pair`, `end_query`), and the score that follows from counts for a NamedTuple class of its options (`score_of`).
Counts are a row for each count and a column for each pair. Searches prepare and clear with the same functions, see
`_overlap_search.py`.
"""

import numpy as np

from metric_oracle.kernels._jit import jit


def begin_query(space, batch, q):
    """Prepare the scratch arrays `space` for query q of `batch`; return what `count_pair` and a scorer read of it."""
    raise NotImplementedError


def count_pair(space, query, documents, d, counts):
    """Write the counts of document d of `documents` with a query, what `begin_query` returned, into `counts`."""
    raise NotImplementedError


def end_query(space, batch, q):
    """Reset the scratch arrays `space` to what they were before `begin_query`."""
    raise NotImplementedError


def score_of(form, counts):
    """Return the score of a pair from its counts; `form` has the options of the metric."""
    raise NotImplementedError


@jit
def count_pairs(space, batch, documents, query, document, out):
    """Write the counts of pairs, ``query[i]`` and ``document[i]``, into ``out[:, i]``.

    Consecutive pairs of one query share what is prepared for it.
    """
    for i in range(len(query)):
        q = query[i]
        if i == 0 or query[i - 1] != q:
            found = begin_query(space, batch, q)
        count_pair(space, found, documents, document[i], out[:, i])
        if i == len(query) - 1 or query[i + 1] != q:
            end_query(space, batch, q)


@jit
def _score_counts(form, counts, out):
    """Write the score of each column of `counts` into `out`, float64[n]."""
    for i in range(len(out)):
        out[i] = score_of(form, counts[:, i])


def scores_of(form, counts):
    """Return the score of each column of `counts`: float64[n]; `form` has the options of the metric."""
    out = np.empty(counts.shape[1])
    _score_counts(form, counts, out)
    return out
