"""The sort of whole numbers, against NumPy's."""

import numpy as np
import pytest

from metric_oracle.kernels._sort import sort


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 65, 1000])
@pytest.mark.parametrize("most", [1, 3, 2**62])
def test_sort_is_numpys(n, most):
    rng = np.random.default_rng(n)
    for values in (rng.integers(-most, most, n), np.arange(n), np.arange(n)[::-1].copy()):
        expected = np.sort(values)
        sort(values)
        np.testing.assert_array_equal(values, expected)
