"""ROUGE-L F-measure from the length of the longest common subsequence. Plain scalar Python.

With L the subsequence, c and r the lengths of candidate and reference: F = (1 + b^2) L / (c + b^2 r).

``coco`` False
    rouge-score: b = 1.
``coco`` True
    pycocoevalcap: b = 1.2, b^2 = 36 / 25.
"""

from metric_oracle.kernels._jit import scalar


@scalar
def rouge_l(lcs, length, reference_length, coco=False):
    """Return the F-measure from the length of the subsequence and both lengths in words; 0 if the subsequence is empty.

    `coco` stands for pycocoevalcap's form. One division of integers, so equal fractions are equal floats. Both tools
    compute precision and recall first, which changes the last bits.
    """
    if lcs == 0:
        return 0.0
    if coco:
        return 61.0 * lcs / (25 * length + 36 * reference_length)
    return 2.0 * lcs / (length + reference_length)


@scalar
def common(score, length, reference_length, coco):
    """Return the length of the common subsequence that gives this score of `rouge_l`, not yet rounded to an integer."""
    if coco:
        return score * (25 * length + 36 * reference_length) / 61.0
    return score * (length + reference_length) / 2.0
