"""Temporal F1 from counts of keywords. Plain scalar Python; the fast kernels compile this very function."""

from metric_oracle.kernels._jit import scalar


@scalar
def temporal_f1(shared, n_candidate, n_reference):
    """Return the F1 of two sets of keywords from the number that both share and their sizes; 1 if both are empty.

    It is one division of integers, so equal fractions are equal floats.
    """
    if n_candidate + n_reference == 0:
        return 1.0
    return 2.0 * shared / (n_candidate + n_reference)
