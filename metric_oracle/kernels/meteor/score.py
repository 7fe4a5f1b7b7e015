"""METEOR from counts of matches. Plain scalar Python; the fast kernels compile this very function.

With m matches in c chunks of a candidate of h words and a reference of r, nltk has P = m / h, R = m / r,
F = P R / (0.9 P + 0.1 R) = 10 m / (h + 9 r), penalty 0.5 (c / m)^3 and score (1 - penalty) F. That is the one division

    5 (2 m^3 - c^3) / (m^2 (h + 9 r)),

whose parts are integers, exact in float64 up to 100,000 matches: equal fractions are equal floats.
"""

from metric_oracle.kernels._jit import scalar


@scalar
def meteor(matched, chunks, length, reference_length):
    """Return METEOR of a pair from numbers of matches and chunks and both lengths in words; 0 if nothing matches."""
    if matched <= 0:
        return 0.0
    m, c = float(matched), float(chunks)
    return 5.0 * (2.0 * m * m * m - c * c * c) / (m * m * (length + 9.0 * reference_length))
