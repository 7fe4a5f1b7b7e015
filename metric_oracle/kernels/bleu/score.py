"""Sentence BLEU from clipped n-gram counts. Plain scalar Python; the fast kernels compile these very functions.

Two published forms:

``coco`` False
    fast_bleu, which CXR-Report-Metric calls, and NLTK's smoothing method 1: a zero numerator becomes 0.1; brevity
    penalty 1 if the candidate is longer than the reference, else exp(1 - reference / candidate).
``coco`` True
    pycocoevalcap: 1e-15 added to each numerator and 1e-9 to each denominator, so that an identical pair scores
    0.99999999923.

Both are 0 when no unigram matches (pycocoevalcap's own value there is rounding noise of its constants).

The precisions are multiplied as one fraction and divided once: numerators and denominators are integers (a smoothed
precision of 0.1 / n is 1 / 10 n), so that equal means are equal floats whatever precisions they come from. The products
are float64: exact up to `EXACT_LENGTH` tokens of a candidate, rounded like any other product beyond, and alike in every
backend. pycocoevalcap's 1e-15 is left out of the numerators that it does not keep from zero, which moves a score by
less than 1e-14 of it, and its 1e-9 stays: its scores are equal where the lengths are.
"""

import math

from metric_oracle.kernels._jit import scalar

# Of the orders 1 to 4: the most tokens of a candidate for which the denominator, 10 for each order from the second on
# at worst, is an integer of at most 53 bits.
EXACT_LENGTH = (2**53, 30_011_996, 44_826, 1_733)


@scalar
def brevity(length, reference_length, coco):
    """Return the brevity penalty, a float of at most 1: the factor that lowers the score of a short candidate.

    `length` and `reference_length` are the numbers of tokens, `length` at least 1. `coco` is True for pycocoevalcap's
    form, False for fast_bleu's.
    """
    if coco:
        ratio = (length + 1e-15) / (reference_length + 1e-9)
        return math.exp(1.0 - 1.0 / ratio) if ratio < 1.0 else 1.0
    return 1.0 if length > reference_length else math.exp(1.0 - reference_length / length)


@scalar
def precision(matched, total, coco):
    """Return the smoothed precision of one n-gram order, a float, as the published tools print it.

    Of the candidate's `total` n-grams, `matched` are in the reference, each at most as often as there. `coco` is True
    for pycocoevalcap's form, False for fast_bleu's.
    """
    if coco:
        return (matched + 1e-15) / (total + 1e-9)
    return (matched if matched > 0 else 0.1) / max(total, 1)


@scalar
def _numerator(matched, coco):
    """Return the numerator of `precision`: the matches; for none 1 (fast_bleu) or 1e-15 (pycocoevalcap)."""
    return max(matched, 1) * (1e-15 if coco and matched == 0 else 1.0)


@scalar
def _denominator(matched, total, coco):
    """Return the denominator of `precision`: the total; `coco` adds pycocoevalcap's 1e-9.

    For no match fast_bleu's is 10 times the total, which makes the precision 0.1 / total.
    """
    return total + 1e-9 if coco else max(total, 1) * (1.0 if matched > 0 else 10.0)


@scalar
def geometric_mean(m1, m2, m3, m4, length, order, coco):
    """Return the geometric mean of the precisions of orders 1 to `order`, a float, without the brevity penalty.

    `m1` to `m4` are the numbers of n-grams of each order, 1 to 4, that match, as `matched` in `precision`; those above
    `order` are not read. `length` is the number of tokens of the candidate, `coco` as in `precision`.
    """
    above = _numerator(m1, coco)
    below = _denominator(m1, length, coco)
    if order == 1:
        return above / below
    above *= _numerator(m2, coco)
    below *= _denominator(m2, max(length - 1, 0), coco)
    if order == 2:
        return math.sqrt(above / below)
    above *= _numerator(m3, coco)
    below *= _denominator(m3, max(length - 2, 0), coco)
    if order == 3:
        return (above / below) ** (1.0 / 3.0)
    above *= _numerator(m4, coco)
    below *= _denominator(m4, max(length - 3, 0), coco)
    return math.sqrt(math.sqrt(above / below))


@scalar
def bleu(m1, m2, m3, m4, length, reference_length, order, coco):
    """Return BLEU of orders 1 to `order` from clipped matches m1 .. m4 (those above are ignored); 0 if m1 is 0.

    Lengths are in tokens, and `coco` is as in `precision`.
    """
    # Also computed where nothing matches: LLVM vectorises loops over this form, which has no branch.
    score = brevity(max(length, 1), reference_length, coco)
    score *= geometric_mean(m1, m2, m3, m4, length, order, coco)
    return score if m1 > 0 else 0.0
