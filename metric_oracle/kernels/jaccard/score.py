"""Jaccard coefficient from counts. Plain scalar Python; the fast kernels compile this very function."""

from metric_oracle.kernels._jit import scalar


@scalar
def jaccard(shared, n_candidate, n_reference):
    """Return the size of the intersection of two sets over that of their union; 0 if nothing is shared.

    It is one division of integers, so equal fractions are equal floats.
    """
    if shared == 0:
        return 0.0
    return shared / (n_candidate + n_reference - shared)
