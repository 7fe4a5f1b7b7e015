"""Agreement and F1 of labels from counts. Plain scalar Python."""

from metric_oracle.kernels._jit import scalar

MEASURES = ("agreement", "f1")


@scalar
def agreement(equal, compared):
    """Return the share of equal labels among those that are compared; 0 if no label is compared.

    It is one division of integers, so that 28 of 50 is the number that 0.56 is.
    """
    if compared == 0:
        return 0.0
    return equal / compared


@scalar
def f1(matched, size_candidate, size_reference):
    """Return the F1 of two sets of positive labels from the number that both share and their sizes; 0 if that is 0."""
    if matched == 0:
        return 0.0
    return 2.0 * matched / (size_candidate + size_reference)
