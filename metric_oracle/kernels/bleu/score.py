"""Sentence BLEU from clipped n-gram counts. Plain scalar Python; the fast kernels compile these very functions.

Two published forms:

``coco`` False
    fast_bleu, which CXR-Report-Metric calls, and NLTK's smoothing method 1: a zero numerator becomes 0.1; brevity
    penalty 1 if the candidate is longer than the reference, else exp(1 - reference / candidate).
``coco`` True
    pycocoevalcap: 1e-15 added to each numerator and 1e-9 to each denominator, so that an identical pair scores
    0.99999999923.

Both are 0 when no unigram matches (pycocoevalcap's own value there is rounding noise of its constants).
"""

import math

from metric_oracle.kernels._jit import scalar


@scalar
def brevity(length, reference_length, coco):
    """Return the brevity penalty of a candidate of `length` tokens (at least 1)."""
    if coco:
        ratio = (length + 1e-15) / (reference_length + 1e-9)
        return math.exp(1.0 - 1.0 / ratio) if ratio < 1.0 else 1.0
    return 1.0 if length > reference_length else math.exp(1.0 - reference_length / length)


@scalar
def precision(matched, total, coco):
    """Return the smoothed precision of one n-gram order."""
    if coco:
        return (matched + 1e-15) / (total + 1e-9)
    return (matched if matched > 0 else 0.1) / max(total, 1)


@scalar
def geometric_mean(m1, m2, m3, m4, length, order, coco):
    """Return the geometric mean of the precisions of orders 1 to `order` for a candidate of `length` tokens."""
    product = precision(m1, length, coco)
    if order == 1:
        return product
    product *= precision(m2, max(length - 1, 0), coco)
    if order == 2:
        return math.sqrt(product)
    product *= precision(m3, max(length - 2, 0), coco)
    if order == 3:
        return product ** (1.0 / 3.0)
    product *= precision(m4, max(length - 3, 0), coco)
    return math.sqrt(math.sqrt(product))


@scalar
def bleu(m1, m2, m3, m4, length, reference_length, order, coco):
    """Return BLEU of the given order; m1 .. m4 are clipped matches, those above `order` are ignored."""
    if m1 == 0:
        return 0.0
    return brevity(length, reference_length, coco) * geometric_mean(m1, m2, m3, m4, length, order, coco)
