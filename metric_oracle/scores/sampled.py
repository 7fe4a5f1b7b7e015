"""Means of the scores of random retrieval, estimated from a stratified sample of the corpus rows.

The rows are in the order of their documents, which metrics over token states keep by length, and are cut into strata of
as many rows as there are groups of queries. In a *round*, a random permutation of each stratum gives every group one of
its rows: each group gets a random row of each stratum, and every row of the corpus is used once. What is particular to
a row or to a query thus cancels in the mean over all queries. Only what is particular to the pair is left, and
differences between independent rounds within a stratum show how much that is.
"""

import math
from dataclasses import dataclass

import numpy as np

from metric_oracle.base.operating_system import n_threads
from metric_oracle.base.progress import Progress, counter
from metric_oracle.corpora.reports import Reports
from metric_oracle.retrieval.plan import Plan
from metric_oracle.retrieval.result_table import n_scorable
from metric_oracle.retrieval.thread_pool import in_queries, run_blocks

GROUPS, STRATA = 16, 32  # fewest of a sample
QUERIES = 8  # of a group, more if the corpus is small: small groups make a round cheap, large groups a pair
ROUNDS = 2  # first ones, which show how many are needed
SPARE = 1.1  # more rounds than they show, because their number is estimated
MOST = 0.5  # share of all pairs from which on all are scored


@dataclass(frozen=True)
class SampledMeans:
    """Estimated means of the scores of each query with all corpus rows."""

    means: np.ndarray  # float64[Q], unbiased estimates; equal queries have equal means
    standard_error: float  # standard error of the mean of `means`
    rows: int  # number of rows drawn for each query, the maximum if it differs


def sampled_means(
    plan: Plan, queries: Reports, *, error: float, seed: int = 0, progress: Progress | None = None
) -> SampledMeans | None:
    """Estimate the mean score of each query with all corpus rows, from which random retrieval draws.

    Rows are drawn until the standard error of the mean over all queries is at most `error`. The result is None if that
    would need more than half of all pairs, or if there are too few pairs for a standard error; see `expectation` for
    exact means. `progress` has numbers of queries in the first rounds.

    The standard error is that of the sample, for fixed queries and corpus. With T[h, r] the sum of the scores of
    stratum h in round r, over all groups and their queries, the variance of the mean is
    (G / (N Q))^2 sum_h var_r(T[h, r]) / R for G groups, N rows, Q queries and R rounds.
    """
    n_queries, n_rows = len(queries.ids), n_scorable(plan.index, plan.metric)
    n_groups = min(n_queries // max(min(QUERIES, n_queries // GROUPS), 1), n_rows // STRATA)
    if n_groups < GROUPS:
        return None
    n_strata = -(-n_rows // n_groups)
    pairs = plan.pairs(queries)
    document_of = np.repeat(np.arange(len(pairs.row_ptr) - 1), np.diff(pairs.row_ptr))
    rng = np.random.default_rng(seed)
    groups = np.array_split(rng.permutation(n_queries), n_groups)
    sums = np.zeros(n_queries)
    rounds: list[np.ndarray] = []  # sums over all groups, float64[n_strata] each
    wanted = ROUNDS
    while True:
        drawn = rng.permuted(np.tile(np.arange(n_groups), (wanted - len(rounds), n_strata, 1)), axis=2)
        rows = drawn + n_groups * np.arange(n_strata)[:, None]  # [rounds, strata, groups]; the last ones are no rows
        of_group = np.zeros((n_groups, *rows.shape[:2]))

        def run(g: int, rows: np.ndarray = rows, of_group: np.ndarray = of_group) -> int:
            """Score the rows that were drawn for group `g` with its queries; return 1, a group."""
            inside = rows[:, :, g] < n_rows
            documents, place = np.unique(document_of[rows[:, :, g][inside]], return_inverse=True)
            items, which = np.unique(pairs.which[groups[g]], return_inverse=True)
            scores = np.array([of_query[place] for of_query in pairs.scan(items.tolist(), documents)])
            sums[groups[g]] += scores.sum(axis=1)[which]
            of_group[g][inside] = np.bincount(which) @ scores
            return 1

        count = counter(progress, "", n_queries) if not rounds else None
        threads = plan.options.threads or n_threads()
        run_blocks(run, range(n_groups), threads, in_queries(count, n_groups, n_queries))
        rounds += list(of_group.sum(axis=0))
        variance = float(np.var(rounds, axis=0, ddof=1).sum()) / len(rounds)
        standard_error = n_groups / (n_rows * n_queries) * math.sqrt(variance)
        if standard_error <= error:
            break
        wanted = max(math.ceil(SPARE * len(rounds) * (standard_error / error) ** 2), len(rounds) + 1)
        if wanted > MOST * n_groups:
            return None
    of_query = np.bincount(pairs.which, sums) / np.bincount(pairs.which)
    scale = n_groups / (n_rows * len(rounds))
    return SampledMeans(scale * of_query[pairs.which], standard_error, n_strata * len(rounds))
