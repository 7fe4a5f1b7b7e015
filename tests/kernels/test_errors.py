"""The error model against exact fractions: bounds hold in every order of summation, and are no fairy tales."""

import math
from fractions import Fraction

import numpy as np
import pytest

from metric_oracle.kernels._errors import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    gamma,
    length_error,
    product_error,
    rounding,
    underflow,
)

DTYPES = {FLOAT16: np.float16, FLOAT32: np.float32, FLOAT64: np.float64}
WIDTHS = (1, 2, 3, 63, 64, 65, 300)


def exact(values):
    return [Fraction(float(x)) for x in values]


def left(terms):
    """Sum in index order in the terms' own precision."""
    total = terms.dtype.type(0)
    for x in terms:
        total = total + x
    return total


def pairwise(terms):
    """Sum halves of the terms in their own precision."""
    if len(terms) == 1:
        return terms[0]
    return pairwise(terms[: len(terms) // 2]) + pairwise(terms[len(terms) // 2 :])


def vectors(rng, n, dtype):
    """Yield pairs of vectors: plain, with many cancelling terms, of one sign, of very different sizes."""
    x, y = rng.normal(size=(2, n))
    yield x.astype(dtype), y.astype(dtype)
    yield np.resize(x, n).astype(dtype), np.resize(np.c_[y, -y].ravel(), n).astype(dtype)
    yield np.abs(x).astype(dtype), np.abs(y).astype(dtype)
    if dtype is not np.float16:
        sizes = 10.0 ** rng.integers(-30, 4, n)
        yield (x * sizes).astype(dtype), (y * sizes[::-1]).astype(dtype)


def lengths(x, y):
    return math.sqrt(float(sum(v * v for v in exact(x)))) * math.sqrt(float(sum(v * v for v in exact(y))))


@pytest.mark.parametrize("u", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("order", [left, pairwise])
@pytest.mark.parametrize("n", WIDTHS)
def test_products_err_by_no_more(u, order, n):
    rng = np.random.default_rng(n)
    for _ in range(5):
        for x, y in vectors(rng, n, DTYPES[u]):
            true = sum(a * b for a, b in zip(exact(x), exact(y), strict=True))
            assert abs(Fraction(float(order(x * y))) - true) <= Fraction(product_error(n, lengths(x, y), u))


def test_a_product_can_err_by_much_of_the_bound():
    # 1 + 2**-24 + ... rounds to 1 again and again: the sum in index order loses every later term.
    n = 300
    x, y = np.ones((2, n), np.float32)
    x[1:] = 2.0**-24
    error = abs(Fraction(float(left(x * y))) - sum(exact(x)))
    assert error == Fraction(n - 1, 1 << 24)
    assert 0.05 * product_error(n, lengths(x, y)) < error <= product_error(n, lengths(x, y))


def test_products_that_underflow_lose_no_more():
    x = np.full(8, 1e-25, np.float32)
    true = sum(v * v for v in exact(x))
    assert np.float32(np.sum(x * x)) == 0
    assert true <= Fraction(product_error(8, lengths(x, x)))
    assert true > Fraction(gamma(8) * lengths(x, x))


@pytest.mark.parametrize("u", [FLOAT16, FLOAT32])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-7, 1e-41])
def test_rounded_vectors_lose_no_more(u, scale):
    rng = np.random.default_rng(0)
    for n in WIDTHS:
        x = rng.normal(size=n) * scale
        lost = [a - b for a, b in zip(exact(x), exact(x.astype(DTYPES[u])), strict=True)]
        square = sum(v * v for v in lost)
        length = math.sqrt(float(sum(v * v for v in exact(x)))) * (1 + 1e-15)
        assert square <= Fraction(rounding(length, n, u)) ** 2


@pytest.mark.parametrize("n", WIDTHS)
def test_lengths_err_by_no_more(n):
    rng = np.random.default_rng(n)
    for u in (FLOAT32, FLOAT64):
        x = rng.normal(size=n).astype(DTYPES[u])
        length = Fraction(float(np.sqrt(left(x * x))))
        true = sum(v * v for v in exact(x))
        error = Fraction(length_error(n, u))
        assert (length / (1 + error)) ** 2 <= true <= (length * (1 + error)) ** 2


def test_gamma_is_highams():
    for u in (FLOAT16, FLOAT32, FLOAT64):
        for n in (0, 1, 2, 768, 1000):
            true = n * Fraction(u) / (1 - n * Fraction(u))
            assert true <= Fraction(gamma(n, u)) <= true * Fraction(1000001, 1000000)
    assert gamma(1 << 24) == math.inf
    assert product_error(1 << 24) == math.inf
    assert underflow(2) == 2 * np.finfo(np.float32).tiny
