"""The sorts, against NumPy's."""

import numpy as np
import pytest

from metric_oracle.kernels._sort import order_of, sort


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 65, 1000])
@pytest.mark.parametrize("most", [1, 3, 2**62])
def test_sort_is_numpys(n, most):
    rng = np.random.default_rng(n)
    for values in (rng.integers(-most, most, n), np.arange(n), np.arange(n)[::-1].copy()):
        expected = np.sort(values)
        sort(values)
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 65, 1000])
@pytest.mark.parametrize("distinct", [1, 3, 1 << 20])
def test_order_is_numpys_stable_one(n, distinct):
    rng = np.random.default_rng(n)
    keys = rng.integers(0, distinct, n) / 3.0
    keys[rng.random(n) < 0.1] = -np.inf
    for values in (keys, np.sort(keys), -np.sort(-keys)):
        np.testing.assert_array_equal(order_of(values), np.argsort(values, kind="stable"))
