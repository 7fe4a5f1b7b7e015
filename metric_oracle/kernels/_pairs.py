"""Scores of given pairs: the compiled loops over pairs and over their counts, which all metrics share.

A metric defines, by `compiled_for`, what it counts in pairs for a NamedTuple class of scratch arrays (`begin_query`,
`count_run`, `end_query`), and the score that follows from counts for a NamedTuple class of its options (`score_of`).
Counts are a row for each count and a column for each pair. Searches prepare and clear with the same functions, see
`_overlap_search.py`.
"""

import numpy as np

from metric_oracle.kernels._jit import jit


def begin_query(space, batch, q):
    """Prepare the scratch arrays `space` for query q of `batch`; return what `count_run` and a scorer read of it."""
    raise NotImplementedError


def count_run(space, query, corpus, documents, counts):
    """Write the C counts of each pair of a query and `documents`, int64[n], into `counts`, [C, n].

    `query` is what `begin_query` returned.
    """
    raise NotImplementedError


def end_query(space, batch, q):
    """Reset the scratch arrays `space` to what they were before `begin_query`."""
    raise NotImplementedError


def score_of(form, counts):
    """Return the score of a pair from its C counts; `form` has the options of the metric."""
    raise NotImplementedError


@jit
def count_pairs(space, batch, corpus, query, document, out):
    """Write the counts of pairs, ``query[i]`` and ``document[i]``, into ``out[:, i]``.

    Consecutive pairs of one query are a run, which shares what is prepared for it.
    """
    end = 0
    while end < len(query):
        first, q = end, query[end]
        while end < len(query) and query[end] == q:
            end += 1
        found = begin_query(space, batch, q)
        count_run(space, found, corpus, document[first:end], out[:, first:end])
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
