"""CIDEr-D from weighted sums over n-grams. Plain scalar Python; the fast kernels compile these very functions.

For the n-grams of one order, with w = log(texts) - log(max(1, texts that have it)) and counts h of the candidate and r
of the reference, pycocoevalcap has

    sum min(h, r) r w^2 / (sqrt(sum h^2 w^2) sqrt(sum r^2 w^2)),

times exp(-d^2 / 72) with d the difference of the numbers of bigrams, and ten times the mean over the orders 1 to 4.
Each sum has a term for each occurrence of an n-gram in a text. It does not depend on the order of the terms: `split`
cuts each term into multiples of four powers of two, whose sums have no rounding. So equal vectors have equal scores, in
every corpus; one root of the product makes a text's similarity with itself exactly 1.
"""

import math

from metric_oracle.kernels._jit import scalar

ORDERS = 4
# A number of 2^52 units to 2^53 units has no room for less than a unit: the sum with it is rounded to units.
_ROUND = (1.5 * 2.0**43, 1.5 * 2.0**9, 1.5 * 2.0**-25, 1.5 * 2.0**-59)


@scalar
def inverse_frequency(texts, frequency):
    """Return the weight of an n-gram that occurs in `frequency` of `texts` texts."""
    return math.log(texts) - math.log(max(frequency, 1))


@scalar
def length_penalty(length, reference_length):
    """Return exp(-d^2 / 72), d the difference of the numbers of bigrams of two texts of so many words."""
    difference = max(length - 1, 0) - max(reference_length - 1, 0)
    return math.exp(-(difference * difference) / 72.0)


@scalar
def split(term):
    """Return the parts of a term that are multiples of 2^-9, 2^-43, 2^-77 and 2^-111, without what is smaller.

    The sums of the first parts are exact below 2^44, those of the others for fewer than 2^20 terms: the sum of the four
    sums is that of the terms but for its own rounding, in whatever order the terms come.
    """
    a = (term + _ROUND[0]) - _ROUND[0]
    term -= a
    b = (term + _ROUND[1]) - _ROUND[1]
    term -= b
    c = (term + _ROUND[2]) - _ROUND[2]
    term -= c
    return a, b, c, (term + _ROUND[3]) - _ROUND[3]


@scalar
def similarity(shared, square, reference_square):
    """Return the clipped cosine of one order; no more than 1, whatever the rounding.

    `shared` is the sum of min(h, r) r w^2, `square` and `reference_square` are the squared lengths of both texts'
    weights; 0 if a length is 0.
    """
    product = square * reference_square
    return min(shared / math.sqrt(product), 1.0) if product > 0.0 else 0.0


@scalar
def cider_d(s1, s2, s3, s4, penalty):
    """Return CIDEr-D from the similarities of the orders and the factor for lengths: 0 to 10."""
    return 2.5 * penalty * (s1 + s2 + s3 + s4)
