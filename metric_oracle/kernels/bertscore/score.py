"""BERTScore from cosines' maxima. Plain scalar Python; the fast kernels compile these very functions."""

from metric_oracle.kernels._jit import scalar

PRECISION, RECALL, F1, MEAN = 0, 1, 2, 3


@scalar
def f1(precision, recall):
    """Return the harmonic mean as bert_score computes it, for negative values too; 0 where it is undefined."""
    if precision + recall == 0.0:
        return 0.0
    return 2.0 * precision * recall / (precision + recall)


@scalar
def mean(precision, recall):
    """Return the arithmetic mean of both, which the distance of sets of sentences goes by."""
    return 0.5 * (precision + recall)


@scalar
def rescale(value, baseline):
    """Return a score relative to the encoder's baseline (Zhang et al., ICLR 2020, section 6)."""
    return (value - baseline) / (1.0 - baseline)
