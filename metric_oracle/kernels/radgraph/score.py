"""RadGraph F1 from counts. Plain scalar Python, which the fast kernels compile."""

from metric_oracle.kernels._jit import scalar

NAMES = ("entities_f1", "relations_f1", "partial_f1", "complete_f1")  # of the families, as components


@scalar
def f1(matched, size_candidate, size_reference):
    """Return the F1 of two sets from the size of their intersection and their sizes; 0 if the intersection is empty.

    Twice the intersection over the sum of the sizes: one division of integers, so equal fractions are equal floats. The
    published code computes precision and recall first, which changes the last bits and breaks true ties.
    """
    if matched == 0:
        return 0.0
    return 2.0 * matched / (size_candidate + size_reference)


@scalar
def mean_f1(matched_a, sizes_a, matched_b, sizes_b):
    """Return the RadGraph F1 of Yu et al. (Patterns 2023): the mean of the entity F1 and the relation F1.

    From the matches and the summed sizes of both families, as one division of integers: the sum of two rounded F1
    values would tell equal means apart.
    """
    sizes_a, sizes_b = max(sizes_a, 1), max(sizes_b, 1)
    return (matched_a * sizes_b + matched_b * sizes_a) / (sizes_a * sizes_b)
