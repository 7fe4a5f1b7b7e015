"""Cosine of two vectors, without bounds: float64 sums in index order."""

import numpy as np

from metric_oracle.kernels.cosine.score import cosine


def score(candidate, reference):
    """Return the cosine of two vectors, float32[d], and an empty dict of components."""
    a, b = candidate.astype(np.float64), reference.astype(np.float64)
    # A sum in NumPy adds in another order; running sums add one product after the other. No sum is -0.0.
    dot, square_a, square_b = (np.add.accumulate(products)[-1] + 0.0 for products in (a * b, a * a, b * b))
    return cosine(float(dot), float(square_a), float(square_b)), {}
