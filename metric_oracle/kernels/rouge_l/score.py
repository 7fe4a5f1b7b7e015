"""ROUGE-L F-measure from the length of the longest common subsequence. Plain scalar Python."""

from metric_oracle.kernels._jit import scalar


@scalar
def rouge_l(lcs, length, reference_length):
    """Return the F-measure (beta 1) of rouge-score; 0 where nothing is common.

    Twice the subsequence over the sum of the lengths: one division of integers, so equal fractions are equal floats.
    rouge-score goes through precision and recall, which moves the last bits.
    """
    if lcs == 0:
        return 0.0
    return 2.0 * lcs / (length + reference_length)
