"""The distribution of one query's scores against NumPy on the scores of all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metric_oracle.kernels._distribution import BINS, new_scratch, summarise
from support import examples

LEVELS = (0.0, 0.01, 0.05, 0.25, 1 / 3, 0.5, 0.75, 0.95, 0.999, 1.0)


def check(scores, rows):
    scores, rows = np.asarray(scores, np.float64), np.asarray(rows, np.int64)
    everything = np.repeat(scores, rows)
    n = len(everything)
    ranks = np.array([max(int(np.ceil(n * p)), 1) for p in LEVELS])
    room, out = new_scratch(len(scores)), np.full(4 + len(ranks), np.nan)
    exponent, first, n_bins = summarise(scores, rows, ranks, room, out)
    size = max(np.abs(everything).max(), 1e-300)
    assert out[0] == pytest.approx(everything.mean(), abs=1e-13 * size, rel=0)
    # Both sides square the differences from means that differ by rounding.
    assert out[1] == pytest.approx(everything.std(), abs=1e-12 * size, rel=0)
    assert (out[2], out[3]) == (everything.min(), everything.max())
    assert out[4:].tolist() == np.quantile(everything, LEVELS, method="inverted_cdf").tolist()
    assert 1 <= n_bins <= BINS
    edges = np.ldexp(np.arange(first, first + n_bins + 1, dtype=np.float64), exponent)
    which = np.searchsorted(edges, everything, side="right") - 1
    assert room.counts[0, :n_bins].tolist() == np.bincount(which, minlength=n_bins).tolist()
    assert room.counts[0, 0] > 0
    assert room.counts[0, n_bins - 1] > 0


TIED = st.sampled_from([0.0, 1.0, 0.5, 0.25, 1 / 3, 2 / 3, 0.4, -1.0, -0.125, 1e-9, 1e-290])
SCORES = st.one_of(TIED, st.floats(-3, 3), st.floats(-1e12, 1e12)).map(lambda x: x if abs(x) >= 1e-290 else 0.0)


@examples(200)
@given(st.lists(st.tuples(SCORES, st.integers(1, 40)), min_size=1, max_size=60))
def test_any_scores(pairs):
    check(*zip(*pairs, strict=True))


@pytest.mark.parametrize("n", [1, 2, 3, 255, 256, 257, 1023, 5000])
@pytest.mark.parametrize("kind", ["zeros", "one apart", "few", "close", "many", "wide"])
def test_sizes_and_ties(n, kind):
    rng = np.random.default_rng(n)
    scores = {
        "zeros": np.zeros(n),
        "one apart": np.r_[np.full(n - 1, 0.3), 0.7],
        "few": rng.integers(0, 6, n) / 5,
        "close": 0.5 + rng.integers(0, 9, n) * 2.0**-53,
        "many": np.where(rng.random(n) < 0.7, 0.0, rng.random(n)),
        "wide": np.r_[rng.random(n - 1), 1e15],
    }[kind]
    check(scores, rng.integers(1, 9, n))


def test_the_mean_of_many_rows_is_right_to_the_last_bits():
    rng = np.random.default_rng(0)
    scores, rows = rng.random(200_000), rng.integers(1, 300, 200_000)
    out = np.empty(5)
    summarise(scores, rows, np.array([1]), new_scratch(len(scores)), out)
    import math

    exact = math.fsum((scores * rows).tolist()) / rows.sum()
    assert out[0] == pytest.approx(exact, rel=1e-14)
