"""Cosine similarity from sums of products. Plain scalar Python; the fast kernels compile these very functions."""

import math

from metric_oracle.kernels._jit import scalar


@scalar
def cosine(dot, square_a, square_b):
    """Return the cosine of two vectors from their inner product and squared lengths; 0 if one of the vectors is zero.

    It divides by one square root, that of the product of the squares, so that a vector and itself score exactly 1.
    """
    if square_a == 0 or square_b == 0:
        return 0.0
    return dot / math.sqrt(square_a * square_b)


@scalar
def integer_cosine(dot, square_a, square_b):
    """Return the cosine of two vectors of integers from their inner product and squared lengths; 0 if one is zero.

    The root is taken of one quotient of integers, so that equal cosines are equal numbers: 3 / sqrt(27) is 1 / sqrt(3).
    """
    if square_a == 0 or square_b == 0:
        return 0.0
    root = math.sqrt(dot * dot / (square_a * square_b))
    return -root if dot < 0 else root
